"""Connections to a Kafka cluster: options, and connection errors.

In: a `KafkaSource`. Out: a librdkafka client, and one error that names the broker, the topic or the
configuration key if there is no answer. A refusal by a broker (a login, a certificate, a protocol)
is reported at once; if no broker listens, it waits some seconds, because brokers restart. The
client itself would retry until its deadline and then only report a timeout. See `Trouble`.

Options have librdkafka's names and are passed on unchanged. They contain secrets, so error texts
never contain their values.
"""

import logging
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from ticdc_assets.base.errors import ConfigError, SourceRefusedError, SourceUnavailableError
from ticdc_assets.config import KafkaSource
from ticdc_assets.config.sources import MECHANISM_KEYS

TIMEOUT_SECONDS = 15.0

_LOGGER = logging.getLogger(__name__)

_T = TypeVar("_T")


ISOLATION: Final = "isolation.level"
"""The option that decides which records of transactions are read."""


def client_options(source: KafkaSource) -> dict[str, str]:
    """Return the options for librdkafka (confluent-kafka). They contain secrets: never log them."""
    options = {key: option.value for key, option in source.options.items()}
    # Brokers and the client know these names in upper case only; TiCDC takes them in lower case.
    upper = {key: options[key].upper() for key in MECHANISM_KEYS if key in options}
    return {"bootstrap.servers": source.bootstrap_servers} | options | upper


NO_RIGHT = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}

RIGHT_FIX: Final = (
    "give the user of source.kafka.options.sasl.username the rights DESCRIBE and READ on the topic"
)

# --- connection problems ---

REFUSED_SECONDS = 2.0
"""How long to wait for another broker's answer after one has refused."""

DOWN_SECONDS = 5.0
"""How long to wait for unreachable brokers: one of them may be restarting."""


class Trouble:
    """The connection problems of a client, and when they are enough to give up.

    The client calls it while it is polled. The client keeps trying, so a fault is reported only
    when no broker is left that could answer, or when a time limit is over.
    """

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._secrets = [
            option.value
            for option in source.options.values()
            if option.value and option.shown != option.value
        ]
        self.forget()

    def forget(self) -> None:
        """Start again: a broker has answered."""
        self._refused_at: float | None = None
        self._down_at: float | None = None
        self._refusal = ""
        self._reason = ""

    def ask(self) -> None:
        """Start a new request.

        The client reports once that no broker is left; it repeats a refusal.
        """
        self._refused_at, self._refusal = None, ""
        self._down_at = None if self._down_at is None else time.monotonic()

    def heard(self, error: KafkaError) -> None:
        """Take an error from the client."""
        code, now = error.code(), time.monotonic()
        if code == KafkaError._ALL_BROKERS_DOWN:
            self._down_at = self._down_at or now
            return
        self._reason = error.str()
        is_refusal = code in (KafkaError._AUTHENTICATION, KafkaError._SSL)
        if is_refusal and self._refused_at is None:
            # The first one is the most informative: later ones say that the connection is closed.
            self._refused_at, self._refusal = now, self._reason

    def log(self, _level: int, message: str, *arguments: object) -> None:
        """Take a line of the client's log.

        The log would go to standard error and repeats itself many times a second. It alone reports
        that a broker closed a connection; the rest is for debugging.
        """
        _LOGGER.debug(message, *arguments)
        closed = _CLOSED.search(message % arguments if arguments else message)
        if closed is not None:
            self._reason = closed[1]

    def verdict(self) -> SourceUnavailableError | None:
        """Return the error to give up with; None while an answer may still come."""
        now = time.monotonic()
        if self._refused_at is not None:
            if self._down_at is not None or now - self._refused_at > REFUSED_SECONDS:
                return self._refused()
        elif self._down_at is not None:
            is_closed = _CLOSED_REASON in self._reason
            if now - self._down_at > (REFUSED_SECONDS if is_closed else DOWN_SECONDS):
                return self.silence("cannot be reached")
        return None

    def silence(self, what: str) -> SourceUnavailableError:
        """Return the error for brokers without an answer, with the reason if there is one."""
        if self._refusal:
            return self._refused()
        servers, reason = self._source.bootstrap_servers, self._reason
        host, _, port = servers.split(",")[0].rpartition(":")
        host = host.strip("[]")
        told = f"the Kafka broker {servers} {what}" + (f": {self.shown(reason)}" if reason else "")
        if "resolve" in reason:
            fix = (
                "correct the host name in source.kafka.bootstrap_servers; check with "
                f"`getent hosts {host}`. If the name is not in that key, the broker announces it "
                "as its address (advertised.listeners)"
            )
        elif _CLOSED_REASON in reason:
            # A proxy in front of stopped brokers does the same, so this is not a refusal.
            fix = (
                "that port may speak another protocol, with or without TLS or a login: set "
                f"{_key('security.protocol')} to the protocol of the broker's listener"
            )
        else:
            fix = (
                "start the broker, or correct host and port in source.kafka.bootstrap_servers; "
                f"check with `nc -vz {host} {port}`"
            )
        return SourceUnavailableError(told, fix)

    def _refused(self) -> SourceRefusedError:
        what, keys = self._read(self._refusal)
        text = f"the Kafka broker {self._source.bootstrap_servers} {what}"
        return SourceRefusedError(text, f"correct {keys}")

    def _read(self, reason: str) -> tuple[str, str]:
        """Return the meaning of a refusal, and the configuration keys to correct."""
        shown, protocol = self.shown(reason), _key("security.protocol")
        if "current SASL state" in reason:
            return f"takes no login on that port ({shown})", protocol
        if "Unsupported SASL mechanism" in reason:
            given = [key for key in MECHANISM_KEYS if key in self._source.options]
            return f"refused the login: {shown}", _key([*given, "sasl.mechanism"][0])
        if "OAUTHBEARER token" in reason:
            keys = _key("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.client.secret")
            return f"received no request, because no login token could be obtained: {shown}", keys
        if "SASL" in reason:
            given = [key for key in _LOGIN_KEYS if key in self._source.options]
            return f"refused the login: {shown}", _key(*(given or _LOGIN_KEYS[:2]))
        if "certificate verify failed" in reason:
            fault = _certificate_fault(self._source, reason)
            if "mismatch" in fault:
                name_check = _key("ssl.endpoint.identification.algorithm")
                keys = f"the host name in source.kafka.bootstrap_servers, or {name_check}"
                return f"has a certificate for another host name: {fault}", keys
            keys = _key("ssl.ca.location")
            return f"has a certificate that is not trusted: {fault or shown}", keys
        keys = _key("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
        return f"refused the connection: {shown}", keys

    def shown(self, reason: str) -> str:
        """Return a reason without the client's own bookkeeping, and without secrets."""
        address = rf"^(\w+://)?{re.escape(self._source.bootstrap_servers)}/\w+: "
        reason = re.sub(address, "", _BOOKKEEPING.sub("", reason)).strip(" .:")
        # The sentence names the brokers; an address is news only if it is another one.
        reason = _CONNECTING.sub(
            lambda found: "" if found[1] in self._source.bootstrap_servers else f"{found[1]}: ",
            reason,
        )
        for secret in self._secrets:
            reason = reason.replace(secret, "***")
        return reason


_CLOSED_REASON: Final = "Disconnected"
_CLOSED: Final = re.compile(r"FAIL \S+ \S+ (.*Disconnected.*)")
_BOOKKEEPING: Final = re.compile(
    r" ?\(after \d+ms in state \w+(?:[^()]|\([^()]*\))*\)|: receive 0 after POLLIN"
)
_CONNECTING: Final = re.compile(r"Connect to ipv[46]#(\S+) failed: ")
_LOGIN_KEYS: Final = ("sasl.username", "sasl.password", "sasl.oauthbearer.client.id")


def _key(*options: str) -> str:
    return " and ".join(f"source.kafka.options.{option}" for option in options)


def _certificate_fault(source: KafkaSource, reason: str) -> str:
    """Return what is wrong with the certificate of the broker in `reason`; "" if unknown.

    For each fault the client only says that verifying failed; so this connects to the broker again.
    """
    named = re.search(r"://([^/\s]+):(\d+)", reason)
    if named is None:
        return ""
    files = {
        name: source.options[key].value
        for key, name in (("ssl.ca.pem", "cadata"), ("ssl.ca.location", "cafile"))
        if key in source.options and source.options[key].value != "probe"
    }
    try:
        context = ssl.create_default_context()
        if files:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # The file counts if both are given.
            name, value = files.popitem()
            context.load_verify_locations(**{name: value})
        host = named[1].strip("[]")
        with (
            socket.create_connection((host, int(named[2])), timeout=REFUSED_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message.rstrip(".")
    except (OSError, ValueError):
        return ""


def client_of(kind: Callable[..., _T], options: Mapping[str, Any], trouble: Trouble) -> _T:
    """Return a Kafka client that reports its connections to `trouble`."""
    try:
        return kind({**options, "error_cb": trouble.heard}, logger=trouble)
    except KafkaException as error:
        # It names the property and, for a list of choices, the value; never a credential.
        raise ConfigError(f"options: {error.args[0].str()}") from error
