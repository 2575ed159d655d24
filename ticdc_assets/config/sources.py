"""Where the records of a changefeed come from: topics of a Kafka cluster, or a capture.

In: `source` of a changefeed in the file. Out: a `KafkaSource` or a `CaptureSource`. Client options
are checked as far as possible without a broker: no option that this project sets itself, no secret
in the file, no contradiction in the connection options. No connection is made and no file is
opened.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, cast

from pydantic import ConfigDict, Field, TypeAdapter, ValidationInfo
from pydantic.dataclasses import dataclass
from pydantic_core import InitErrorDetails

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.config.reading import (
    File,
    Keys,
    OptionValue,
    at,
    items_of,
    mapping,
    matched,
    mistake,
    reads,
    refuse,
    scalar,
    unexpected,
    values_of,
)
from ticdc_assets.config.topics import TopicPattern, is_topic_name, is_topic_pattern

MODEL: Final = ConfigDict(hide_input_in_errors=True)
"""The configuration shared by all models."""

FROM_ENV: Final = "{env: NAME}, because a secret must come from the environment"

_COUNT = re.compile(r"[1-9][0-9]{0,5}")
_SERVER = re.compile(r"(?P<host>\[[^\s\[\]/]+\]|[^\s\[\]/:@]+):(?P<port>[1-9][0-9]{0,4})")
_SECRET_KEY = re.compile(r"password|secret|token|passphrase|\.key|\.pem|oauth", re.IGNORECASE)
_NO_SECRET_KEY = re.compile(
    # Where a secret is and how it is created: paths, addresses, names of methods; and certificates.
    r"[._](location|file|urls?|type|algorithm|class|method|scope|client\.id|audience|name|keytab|jwt)$"
    r"|[._](seconds|ms|urlencode)$|[._](ca|certificate)\.pem$",
    re.IGNORECASE,
)

_OWN_POSITION = "positions are kept in raw_messages, not in a consumer group"
_OWN_BYTES = "keys and values are landed as bytes, verbatim"
_OWN_OPTIONS: Mapping[str, str] = {
    "bootstrap.servers": "use the key bootstrap_servers next to options",
    "metadata.broker.list": "use the key bootstrap_servers next to options",
    "group.id": _OWN_POSITION,
    "enable.auto.commit": _OWN_POSITION,
    "enable.auto.offset.store": _OWN_POSITION,
    "auto.offset.reset": "landing starts at the landed position and never resets",
    "key.deserializer": _OWN_BYTES,
    "value.deserializer": _OWN_BYTES,
    "key.serializer": _OWN_BYTES,
    "value.serializer": _OWN_BYTES,
    "interceptor.classes": _OWN_BYTES,
}

_JAVA_ONLY: Final = (
    "sasl.jaas.config",
    "sasl.client.callback.handler.class",
    "sasl.login.",
    "sasl.kerberos.ticket.",
    "ssl.truststore.",
    "ssl.keystore.type",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.protocol",
    "ssl.provider",
    "ssl.enabled.protocols",
    "ssl.trustmanager.algorithm",
    "ssl.keymanager.algorithm",
    "ssl.secure.random.implementation",
    "security.providers",
)
"""Prefixes of options that only Java's client has."""
_OF_JAVA = (
    "only Java's client has this option, and it is not used here; replace it with an option of "
    "librdkafka (sasl.username and sasl.password for a login, ssl.ca.location for a trust store)"
)

MECHANISM_KEYS: Final = ("sasl.mechanism", "sasl.mechanisms")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_CREDENTIAL_MECHANISMS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StartKind(StrEnum):
    """Where in a topic landing begins."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True, config=MODEL)
class StartPosition:
    """Where a changefeed's first landing begins; a time names the first Kafka timestamp, in ms.

    It applies only to topics that exist at the first landing. Topics that appear later are read
    from their first record, because they have no records from before the first landing. After the
    first landing, a change of this setting has no effect.
    """

    kind: StartKind = StartKind.EARLIEST
    timestamp_ms: int | None = None


def is_loopback(bootstrap_servers: str) -> bool:
    """Return whether every server of the list is on this machine."""
    for server in _servers(bootstrap_servers):
        host = server.rpartition(":")[0].strip("[]")
        try:
            is_here = ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_here = host.lower() == "localhost"
        if not is_here:
            return False
    return True


@reads("host:port, several separated by commas")
def _bootstrap(value: Any, info: ValidationInfo) -> str:
    given = scalar(value, info, _bootstrap.expected)
    servers = _servers(given.value)
    for server in servers or [""]:
        match = _SERVER.fullmatch(server)
        if match is None or int(match["port"]) > 65535:
            raise unexpected(_bootstrap.expected, given)
    return ",".join(servers)


@reads("a non-empty list of names")
def _topics(value: Any, _: ValidationInfo) -> tuple[str, ...]:
    """Return the names of a list that has names and patterns."""
    return tuple(topic for topic in items_of(value, _topic, "topic") if not is_topic_pattern(topic))


@reads("a non-empty list of names", key="topics")
def _patterns(value: Any, info: ValidationInfo) -> tuple[TopicPattern, ...]:
    """Return the patterns of a list whose mistakes `_topics` has reported."""
    given = cast(list[str], value) if "topics" in info.data else []
    return tuple(TopicPattern(topic) for topic in given if is_topic_pattern(topic))


def _topic(value: Any) -> str:
    expected = "a topic name (1 to 249 of A-Z a-z 0-9 . _ -)"
    if not isinstance(value, str):
        # `[cdc_{schema}]` is a text, but `[{schema}_a]` is a mapping and so a mistake.
        raise unexpected(f'{expected} (a pattern is quoted: "{{schema}}_{{table}}")', value)
    if is_topic_pattern(value):
        try:
            TopicPattern(value)
        except ConfigError as error:
            raise mistake(str(error)) from None
    elif not is_topic_name(value):
        raise unexpected(expected, value)
    return value


@reads("earliest, latest, or a time with its zone like 2026-11-20T00:00:00Z")
def _start(value: Any, _: ValidationInfo) -> StartPosition:
    if value in (StartKind.EARLIEST, StartKind.LATEST):
        return StartPosition(StartKind(value))
    moment = datetime.fromisoformat(value if isinstance(value, str) else "")
    if moment.tzinfo is None or moment < _EPOCH:
        raise ValueError(value)
    return StartPosition(StartKind.TIMESTAMP, (moment - _EPOCH) // timedelta(milliseconds=1))


@reads("a mapping of topic to number of partitions")
def _partitions(value: Any, _: ValidationInfo) -> dict[str, int]:
    def count(_: str, given: Any) -> int:
        try:
            return int(matched(_COUNT, given)[0])
        except ValueError:
            raise unexpected("a number of partitions above 0", given) from None

    counts, mistakes = values_of(mapping(value).items(), count)
    refuse(mistakes)
    return counts


@reads("a mapping of client options")
def _options(value: Any, info: ValidationInfo) -> dict[str, OptionValue]:
    if not isinstance(value, dict):
        # Not shown: it may hold a secret in the wrong place.
        raise mistake("expected a mapping of client options")
    given = cast(dict[str, Any], value)

    def option(key: str, item: Any) -> OptionValue:
        if key in _OWN_OPTIONS:
            raise mistake(f"not to be set here: {_OWN_OPTIONS[key]}")
        if key.startswith(_JAVA_ONLY):
            raise mistake(_OF_JAVA)
        typed = scalar(item, info, "a value or {env: NAME}")
        if not isinstance(item, str) or not _SECRET_KEY.search(key):
            return typed
        if not _NO_SECRET_KEY.search(key):
            raise mistake(f"expected {FROM_ENV}, got a value")
        return OptionValue(item, "***")

    options, mistakes = values_of(given.items(), option)
    servers = info.data.get("bootstrap_servers")
    # A wrong option is there too, so that no second mistake calls it missing.
    there = {
        key: options.get(key, OptionValue("", ""))
        for key in given
        if key not in _OWN_OPTIONS and not key.startswith(_JAVA_ONLY)
    }
    mistakes += _security(there, local=not servers or is_loopback(servers))
    refuse(mistakes)
    return options


def _security(options: Mapping[str, OptionValue], *, local: bool) -> Iterable[InitErrorDetails]:
    """Return the connection options that are missing or contradict each other."""
    key, names = "security.protocol", ", ".join(_PROTOCOLS)
    stated = options.get(key)
    credentials = sorted(option for option in options if option.startswith(("sasl.", "ssl.")))
    if stated is None:
        if credentials:
            why = f"missing, while {credentials[0]} is set; expected one of {names}"
            yield at(key, mistake(why))
        elif not local:
            why = "(required for servers not on this machine)"
            yield at(key, mistake(f"missing; expected one of {names} {why}"))
        return
    protocol = stated.value.upper()
    if protocol and protocol not in _PROTOCOLS:
        yield at(key, unexpected(f"one of {names}", stated))
    elif protocol == "PLAINTEXT" and credentials:
        yield at(key, unexpected(f"another protocol, as {credentials[0]} is set", stated))
    elif protocol.startswith("SASL_"):
        yield from _sasl(options)


def _sasl(options: Mapping[str, OptionValue]) -> Iterable[InitErrorDetails]:
    given = [key for key in MECHANISM_KEYS if key in options]
    if not given:
        expected = "missing; expected one like SCRAM-SHA-512 or PLAIN"
        yield at("sasl.mechanism", mistake(expected))
        return
    if len(given) > 1:
        yield at(given[1], mistake("the same as sasl.mechanism; set one of them"))
    mechanism = options[given[0]].value.upper()
    if mechanism in _CREDENTIAL_MECHANISMS:
        for key in ("sasl.username", "sasl.password"):
            if key not in options:
                yield at(key, mistake(f"missing; {mechanism} needs it"))


@dataclass(frozen=True, slots=True, kw_only=True, config=MODEL)
class KafkaSource:
    """Topics of a Kafka cluster: named topics, and topics that match patterns."""

    bootstrap_servers: Annotated[str, _bootstrap] = Field(
        description="`host:port`, several separated by commas; may be `{env: NAME}`"
    )
    options: Annotated[Mapping[str, OptionValue], _options] = Field(
        default_factory=dict[str, OptionValue],
        description="client options by their librdkafka names; a value may be `{env: NAME}`, and a "
        "secret must be; for servers that are not on this machine `security.protocol` is required",
        validate_default=True,
    )
    topics: Annotated[tuple[str, ...], _topics] = Field(
        description="names, and patterns that match later topics too: TiCDC's topic expressions "
        '(`"cdc_{schema}_{table}"`, quoted) or `*` for any characters. Also list the topic of the '
        "sink URI: it has the DDL of databases"
    )
    patterns: Annotated[tuple[TopicPattern, ...], _patterns] = ()
    start: Annotated[StartPosition, _start] = Field(
        default=StartPosition(),
        description="where the first landing of the changefeed begins: `earliest`, `latest`, or a "
        "time with its zone, like `2026-11-20T00:00:00Z`; `earliest`. Topics that appear later are "
        "read from their first record",
    )

    def takes(self, topic: str) -> bool:
        """Return whether a topic belongs to the source, by name or by pattern."""
        return topic in self.topics or any(pattern.matches(topic) for pattern in self.patterns)

    @property
    def named(self) -> list[str]:
        """The names and patterns, as the file has them."""
        return [*self.topics, *(pattern.text for pattern in self.patterns)]

    @property
    def topics_shown(self) -> str:
        """The same as one text for people."""
        return ", ".join(self.named)


@dataclass(frozen=True, slots=True, kw_only=True, config=MODEL)
class CaptureSource:
    """A capture: a file of Kafka records, absolute; it may grow and need not exist yet."""

    path: Path
    partitions: Mapping[str, int] = field(default_factory=dict[str, int])


Source: TypeAlias = KafkaSource | CaptureSource
"""Where the records of a changefeed come from."""


@reads("the path of a capture file")
def _capture(value: Any, info: ValidationInfo) -> CaptureSource:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError(value)
    return CaptureSource(path=cast(File, info.context).folder / Path(value).expanduser())


_WHICH = "a mapping with either `kafka` or `capture`"


def _one_source(value: Mapping[str, Any], _: ValidationInfo) -> Iterable[InitErrorDetails]:
    if ("kafka" in value) == ("capture" in value):
        yield InitErrorDetails(type=unexpected(_WHICH, sorted(value)), loc=(), input=None)
    elif "partitions" in value and "kafka" in value:
        expected = "no value: the broker has the number of partitions"
        yield at("partitions", unexpected(expected, value["partitions"]))


@dataclass(frozen=True, slots=True, kw_only=True, config=MODEL)
class SourceKeys:
    """What `source` of a changefeed has in the file."""

    kafka: Annotated[KafkaSource | None, Keys("a mapping with `bootstrap_servers`")] = Field(
        default=None
    )
    capture: Annotated[CaptureSource | None, _capture] = Field(
        default=None,
        description="instead of `kafka`: a file of records, relative to the settings' folder",
    )
    partitions: Annotated[Mapping[str, int], _partitions] = Field(
        default_factory=dict[str, int],
        description="for a capture: the number of partitions of a topic, if the file has none",
    )


_KEYS: TypeAdapter[SourceKeys] = TypeAdapter(Annotated[SourceKeys, Keys(_WHICH, _one_source)])


@reads(_WHICH)
def read_source(value: Any, info: ValidationInfo) -> Source:
    """Return what a changefeed reads from."""
    keys = _KEYS.validate_python(value, context=info.context)
    if keys.capture is None:
        return cast(KafkaSource, keys.kafka)
    return replace(keys.capture, partitions=keys.partitions)


def _servers(bootstrap_servers: str) -> list[str]:
    return [server.strip() for server in bootstrap_servers.split(",") if server.strip()]
