"""A real broker with listeners of every kind: plain, TLS, name and password, and both."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from ticdc_assets.base.ports import HOST, free_port
from ticdc_assets.config import KafkaSource, OptionValue
from ticdc_assets_tests.brokers import OwnBroker

USER = "alice"
PASSWORD = 's3"cret'
"""With a character that a login line in Java would trip over."""

_LISTENERS = {"TLS": "SSL", "LOGIN": "SASL_PLAINTEXT", "SECURED": "SASL_SSL"}
_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "


class SecuredBroker(OwnBroker):
    """A broker that also listens with TLS, with name and password, and with both.

    Its own listener has all rights. `USER` may log in by PLAIN alone.

    Args:
        directory: the broker's folder.
        keys: folder of its keys, as `make_keys` leaves it.
    """

    def __init__(self, directory: Path, keys: Path) -> None:
        super().__init__(directory)
        self.keys = keys
        self._ports: dict[str, int] = {}
        while len(set(self._ports.values())) < len(_LISTENERS):
            self._ports = {name: free_port() for name in _LISTENERS}

    def servers(self, protocol: str, host: str = HOST) -> str:
        """Return the address of the listener that speaks a protocol."""
        if protocol == "PLAINTEXT":
            return f"{host}:{self.port}"
        (name,) = (name for name, spoken in _LISTENERS.items() if spoken == protocol)
        return f"{host}:{self._ports[name]}"

    def options(self, protocol: str) -> dict[str, str]:
        """Return the options of a client that may talk to that listener."""
        options = {"security.protocol": protocol}
        if "SASL" in protocol:
            options |= {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
        if "SSL" in protocol:
            options["ssl.ca.location"] = str(self.keys / "ca.pem")
        return options

    def _settings(self) -> dict[str, object]:
        settings = super()._settings()
        listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in self._ports.items())
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in _LISTENERS.items())
        login = f'{_PLAIN_LOGIN}user_{USER}="{PASSWORD.replace(chr(34), chr(92) + chr(34))}";'
        settings |= {
            "listeners": f"{settings['listeners']},{listeners}",
            "advertised.listeners": f"{settings['advertised.listeners']},{listeners}",
            "listener.security.protocol.map": (
                f"{settings['listener.security.protocol.map']},{protocols}"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
        }
        for name, protocol in _LISTENERS.items():
            own = f"listener.name.{name.lower()}"
            if "SASL" in protocol:
                settings[f"{own}.sasl.enabled.mechanisms"] = "PLAIN"
                settings[f"{own}.plain.sasl.jaas.config"] = login.replace("\\", "\\\\")
            if "SSL" in protocol:
                settings[f"{own}.ssl.keystore.type"] = "PEM"
                settings[f"{own}.ssl.keystore.location"] = self.keys / "both.pem"
        return settings

    def let_describe_alone(self, topic: str) -> None:
        """Let `USER` see a topic and not read it."""
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        binding: Any = AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            f"User:{USER}",
            "*",
            AclOperation.DESCRIBE,
            AclPermissionType.ALLOW,
        )
        for future in client.create_acls([binding]).values():
            future.result(30)


def source(options: dict[str, str], servers: str, *topics: str) -> KafkaSource:
    """Return a source with the given options; a password is not shown."""
    values = {
        key: OptionValue(value, "***" if key == "sasl.password" else value)
        for key, value in options.items()
    }
    return KafkaSource(bootstrap_servers=servers, topics=topics or ("t",), options=values)


def make_keys(folder: Path) -> Path:
    """Make the broker's certificate, which is its own authority and for 127.0.0.1 alone."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is needed to make certificates")
    folder.mkdir(exist_ok=True)
    for name, subject in (("ca", "broker"), ("other", "stranger")):
        request = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={subject}"
        command = [openssl, *request.split(), "-addext", f"subjectAltName=IP:{HOST}"]
        command += ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    both = (folder / "ca.key").read_text() + (folder / "ca.pem").read_text()
    (folder / "both.pem").write_text(both)
    return folder
