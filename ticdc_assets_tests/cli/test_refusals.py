"""What brokers refuse, and brokers that are away: one sentence, with the key to correct.

One broker with a listener of each kind serves all of it.
"""

import pickle
import subprocess
import sys
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from ticdc_assets.base.errors import SourceRefusedError, SourceUnavailableError
from ticdc_assets.base.ports import HOST, free_port
from ticdc_assets.config import KafkaSource, OptionValue
from ticdc_assets.doctor.sources import check_source
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.kafka.administration import OffsetRange
from ticdc_assets.source.kafka.records import consume, produce
from ticdc_assets_tests.brokers import end_offsets
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.doctor.test_doctor import by_name, changefeed
from ticdc_assets_tests.secured_broker import PASSWORD, SecuredBroker, make_keys, source

pytestmark = pytest.mark.kafka

WRONG = "not-this-word"
KEY = "source.kafka.options"
LOGIN = (
    "refused the login: SASL authentication error: Authentication failed",
    f"correct {KEY}.sasl.username and {KEY}.sasl.password",
)


@pytest.fixture(scope="module")
def secured(java: None, tmp_path_factory: pytest.TempPathFactory) -> Generator[SecuredBroker]:
    """A broker that listens in all ways, with a topic to read and one that is closed."""
    folder = tmp_path_factory.mktemp("secured")
    with SecuredBroker(folder / "broker", make_keys(folder / "keys")) as broker:
        broker.create_topic("t", 1)
        broker.create_topic("closed", 1)
        broker.let_describe_alone("closed")
        produce(broker.source(), [record("t"), record("closed")])
        yield broker


def record(topic: str) -> CaptureRecord:
    return CaptureRecord(
        topic=topic, partition=0, offset=0, timestamp_ms=1_700_000_000_000, key=None, value=b"{}"
    )


def refusal(given: KafkaSource) -> SourceUnavailableError:
    """Return why a broker gives no offsets: in one sentence, without a secret."""
    with pytest.raises(SourceUnavailableError) as caught:
        end_offsets(given)
    sentence = str(caught.value)
    assert len(sentence.splitlines()) == 1
    assert sentence.startswith(f"the Kafka broker {given.bootstrap_servers} ")
    assert WRONG not in sentence
    assert PASSWORD not in sentence
    assert str(pickle.loads(pickle.dumps(caught.value))) == sentence
    return caught.value


@pytest.mark.parametrize(
    ("listener", "options", "what", "fix"),
    [
        ("SASL_PLAINTEXT", {"sasl.password": WRONG}, *LOGIN),
        ("SASL_SSL", {"sasl.password": WRONG}, *LOGIN),
        (
            "SASL_PLAINTEXT",
            {"sasl.mechanism": "SCRAM-SHA-512"},
            "Unsupported SASL mechanism: broker's supported mechanisms: PLAIN",
            f"correct {KEY}.sasl.mechanism",
        ),
        (
            "SSL",
            {"ssl.ca.location": "other.pem"},
            "has a certificate that is not trusted: self-signed certificate",
            f"correct {KEY}.ssl.ca.location",
        ),
        (
            "SSL",
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
            | {"sasl.username": "alice", "sasl.password": WRONG},
            "takes no login on that port",
            f"correct {KEY}.security.protocol",
        ),
        (
            "SASL_PLAINTEXT",
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}
            | {"sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": WRONG}
            | {"sasl.oauthbearer.token.endpoint.url": f"http://{HOST}:1/token"},
            "no login token could be obtained: Failed to acquire SASL OAUTHBEARER token",
            f"correct {KEY}.sasl.oauthbearer.token.endpoint.url",
        ),
    ],
)
def test_what_a_broker_refuses_is_said_with_the_key_to_correct(
    secured: SecuredBroker, listener: str, options: Mapping[str, str], what: str, fix: str
) -> None:
    given = secured.options(listener) | dict(options)
    if given.get("ssl.ca.location") == "other.pem":
        given["ssl.ca.location"] = str(secured.keys / "other.pem")
    error = refusal(source(given, secured.servers(listener)))
    assert isinstance(error, SourceRefusedError)
    assert not error.retriable
    assert what in error.reason
    assert error.fix.startswith(fix)


@pytest.mark.parametrize(
    ("listener", "spoken"),
    [
        ("SSL", "PLAINTEXT"),
        ("SASL_PLAINTEXT", "PLAINTEXT"),
        ("SASL_SSL", "SSL"),
        ("PLAINTEXT", "SSL"),
    ],
)
def test_a_listener_of_another_protocol(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch, listener: str, spoken: str
) -> None:
    monkeypatch.setattr("ticdc_assets.source.kafka.connection.REFUSED_SECONDS", 0.5)
    error = refusal(source(secured.options(spoken), secured.servers(listener)))
    assert "Disconnected" in error.reason
    assert f"{KEY}.security.protocol" in error.fix


def test_a_certificate_for_another_host(secured: SecuredBroker) -> None:
    error = refusal(source(secured.options("SSL"), secured.servers("SSL", "localhost")))
    assert "certificate is not valid for 'localhost'" in error.reason
    assert "source.kafka.bootstrap_servers" in error.fix
    assert f"{KEY}.ssl.endpoint.identification.algorithm" in error.fix


def test_brokers_that_are_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ticdc_assets.source.kafka.connection.DOWN_SECONDS", 1.0)
    error = refusal(source({}, f"{HOST}:{free_port()},{HOST}:{free_port()}"))
    assert error.retriable
    assert "cannot be reached" in error.reason
    assert "Connection refused" in error.reason
    assert "source.kafka.bootstrap_servers" in error.fix
    error = refusal(source({}, "no-such-host.invalid:9092"))
    assert "Failed to resolve 'no-such-host.invalid:9092'" in error.reason
    assert "source.kafka.bootstrap_servers" in error.fix


def test_one_broker_of_several_that_is_away_changes_nothing(secured: SecuredBroker) -> None:
    servers = f"{HOST}:{free_port()},{secured.servers('PLAINTEXT')}"
    assert list(end_offsets(source(secured.options("PLAINTEXT"), servers))) == [("t", 0)]


def test_a_broker_that_comes_back_within_seconds_is_waited_for(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that refuses at first and then is the broker's, as when one is restarted."""
    monkeypatch.setattr("ticdc_assets.source.kafka.connection.DOWN_SECONDS", 60.0)
    port = free_port()
    command = f"sleep 1; exec {sys.executable} -c '{_RELAY}' {port} {secured.port}"
    relay = subprocess.Popen(["/bin/sh", "-c", command])
    try:
        given = source(secured.options("PLAINTEXT"), f"{HOST}:{port}")
        assert list(end_offsets(given, timeout_seconds=60)) == [("t", 0)]
    finally:
        relay.kill()
        relay.wait()


_RELAY = """
import socket, sys, threading
def pump(a, b):
    while data := a.recv(65536): b.sendall(data)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    here, _ = server.accept()
    there = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    for pair in ((here, there), (there, here)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""


def test_a_topic_that_may_be_seen_and_not_read(secured: SecuredBroker) -> None:
    options = secured.options("SASL_PLAINTEXT")
    given = source(options, secured.servers("SASL_PLAINTEXT"), "closed")
    ranges = end_offsets(given)
    assert ranges == {("closed", 0): OffsetRange(earliest=0, end=1)}
    with pytest.raises(SourceRefusedError) as caught:
        list(consume(given, ranges))
    assert "topic 'closed' partition 0" in caught.value.reason
    assert "Topic authorization failed" in caught.value.reason
    assert "READ" in caught.value.fix
    check = by_name(check_source(changefeed(given)))["format shop"]
    assert not check.ok
    assert "Topic authorization failed" in check.found


# By the command line -----------------------------------------------------------------------------


def test_every_command_says_why(secured: SecuredBroker, tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    options = {
        key: OptionValue(value, value) for key, value in secured.options("SASL_PLAINTEXT").items()
    }
    options["sasl.password"] = OptionValue("", "")
    given = KafkaSource(
        bootstrap_servers=secured.servers("SASL_PLAINTEXT"), topics=("t",), options=options
    )
    commands.add_topic("feed", given, secrets={"sasl.password": "KAFKA_PASSWORD"})
    capture = tmp_path / "capture.jsonl"
    # Its only record is no message.
    synced = commands.run("sync", "feed", KAFKA_PASSWORD=PASSWORD)
    assert synced.exit_code == 1
    assert "went to quarantine" in synced.stderr
    recorded = commands.program("record", "feed", capture, env={"KAFKA_PASSWORD": PASSWORD})
    assert recorded.returncode == 0
    for words in (
        ("sync", "feed"),
        ("record", "feed", tmp_path / "another.jsonl"),
        ("play", capture, "feed"),
        ("doctor",),
        ("status", "feed"),
        ("sync", "feed", "--follow", "--seconds", 60),
    ):
        run = commands.program if words[0] == "play" else commands.here
        done = run(*words, env={"KAFKA_PASSWORD": WRONG})
        text = done.stdout + done.stderr
        assert done.returncode == 1, text
        assert all(part in text for part in LOGIN), text
        assert "Traceback" not in text
        assert WRONG not in text


def test_a_login_over_tls_is_enough_to_write_and_to_read(secured: SecuredBroker) -> None:
    given = source(secured.options("SASL_SSL"), secured.servers("SASL_SSL"))
    end = end_offsets(given)["t", 0].end
    assert produce(given, [record("t")] * 5) == 5
    assert end_offsets(given) == {("t", 0): OffsetRange(earliest=0, end=end + 5)}
    ranges = {("t", 0): OffsetRange(earliest=end, end=end + 5)}
    assert [item.offset for item in consume(given, ranges)] == list(range(end, end + 5))
