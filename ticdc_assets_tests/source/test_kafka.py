"""Kafka: options for both clients, and the rest against a real broker.

The broker is started once for the session; tests that end one or let it hang start their own.
"""

import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest
from confluent_kafka import Producer

from ticdc_assets.base.errors import (
    ConfigError,
    LandingGapError,
    PrerequisiteError,
    SourceUnavailableError,
)
from ticdc_assets.base.ports import HOST, free_port, port_is_free
from ticdc_assets.config import CaptureSource, KafkaSource, OptionValue
from ticdc_assets.source.capture import CaptureReader, CaptureRecord
from ticdc_assets.source.kafka.administration import Administration, OffsetRange
from ticdc_assets.source.kafka.connection import Trouble, client_options
from ticdc_assets.source.kafka.records import _next_number, consume, fetch, produce
from ticdc_assets.source.transfer import play_capture, record_topic
from ticdc_assets_tests.brokers import OwnBroker, end_offsets
from ticdc_assets_tests.demo.simulator.builders import write_capture

WHO = {"sasl.username": "alice", "sasl.password": "s3cret"}


def source(options: dict[str, str], servers: str = "h:1") -> KafkaSource:
    values = {key: OptionValue(value, "***") for key, value in options.items()}
    return KafkaSource(bootstrap_servers=servers, topics=("t",), options=values)


def records(topic: str, count: int, partitions: int = 3) -> list[CaptureRecord]:
    """Records with every shape of key and value, round robin over the partitions."""
    keys = [None, b"", b"key", bytes(range(256))]
    values = [b"value", None, b"", "ü😀".encode(), b"x" * 5000]
    return [
        CaptureRecord(
            topic=topic,
            partition=number % partitions,
            offset=number // partitions,
            timestamp_ms=1_700_000_000_000 + 7 * number,
            key=keys[number % len(keys)],
            value=values[number % len(values)],
        )
        for number in range(count)
    ]


def by_partition(given: Iterable[CaptureRecord]) -> list[CaptureRecord]:
    return sorted(given, key=lambda record: record.partition)


def filled(
    broker: OwnBroker, topic: str, count: int, partitions: int = 3
) -> tuple[KafkaSource, list[CaptureRecord]]:
    """Create a topic with records; return its source and the records."""
    broker.create_topic(topic, partitions)
    given = records(topic, count, partitions)
    assert produce(broker.source(), given) == count
    return broker.source(topic), given


def dead() -> KafkaSource:
    return KafkaSource(bootstrap_servers=f"{HOST}:{free_port()}", topics=("t",))


# --- options ---


def test_options_go_to_the_client_as_they_are() -> None:
    given = WHO | {"sasl.mechanism": "PLAIN", "a.b": "c", "ssl.keystore.location": "/k.p12"}
    assert client_options(source(given)) == {"bootstrap.servers": "h:1"} | given


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_mechanism_may_be_written_as_in_a_sink_uri(key: str) -> None:
    given = WHO | {"security.protocol": "sasl_ssl", key: "scram-sha-512"}
    assert client_options(source(given))[key] == "SCRAM-SHA-512"
    Administration(source(given))


def test_unknown_option_is_named() -> None:
    with pytest.raises(ConfigError, match=r'No such configuration property: "fetch\.wiat"'):
        Administration(source({"fetch.wiat": "1"}))


# --- no broker ---


@pytest.mark.parametrize(
    "ask", [Administration.ping, Administration.topic_names], ids=["ping", "topic_names"]
)
def test_a_question_without_an_answer_leaves_no_client(
    ask: Callable[[Administration], object],
) -> None:
    """It has threads that go on trying, and commands seldom look for garbage."""

    def asked() -> "weakref.ref[Administration]":
        administration = Administration(dead(), timeout_seconds=1)
        try:
            ask(administration)
        except SourceUnavailableError:
            return weakref.ref(administration)
        raise AssertionError

    gc.disable()
    try:
        left = asked()
        deadline = time.monotonic() + 10
        while left() is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert left() is None
    finally:
        gc.enable()


def test_a_dead_broker_is_a_clear_error(capfd: pytest.CaptureFixture[str]) -> None:
    given = dead()
    with pytest.raises(SourceUnavailableError) as caught:
        end_offsets(given, timeout_seconds=0.5)
    assert caught.value.retriable
    message = str(caught.value)
    assert message.startswith(f"the Kafka broker {given.bootstrap_servers} cannot be reached: ")
    assert "Connection refused" in message
    assert len(message.splitlines()) == 1
    with pytest.raises(SourceUnavailableError, match="did not take a record of topic 't' part"):
        produce(given, records("t", 3), timeout_seconds=0.5)
    assert capfd.readouterr() == ("", "")


# --- a broker ---


class HastyBroker(OwnBroker):
    """A broker that is believed to be dead after a second; its partitions get new leaders then."""

    def _settings(self) -> dict[str, object]:
        times = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 300}
        return super()._settings() | times


@pytest.mark.kafka
def test_a_broker_that_hangs_has_told_no_offsets_and_tells_them_as_a_new_leader(
    java: None, tmp_path: Path
) -> None:
    with HastyBroker(tmp_path) as broker:
        broker.create_topic("t", 8)
        places = [("t", number) for number in range(8)]
        asking, patient = (Administration(broker.source(), timeout_seconds=n) for n in (1, 30))
        described = patient.describe(["t"])
        told = patient.ranges(described)
        assert broker.pid is not None
        os.killpg(broker.pid, signal.SIGSTOP)
        try:
            for ask in (
                lambda: asking.ranges(described),
                lambda: asking.ends(places),
                lambda: asking.offsets_at(places, 1),
            ):
                with pytest.raises(SourceUnavailableError, match="did not answer within 1 s"):
                    ask()
        finally:
            os.killpg(broker.pid, signal.SIGCONT)
        # The broker comes back some time within these; the client still knows who led before.
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            assert patient.ranges(described) == told
        assert patient.ends(places) == {key: span.end for key, span in told.items()}


@pytest.mark.kafka
def test_offsets_of_every_partition(broker: OwnBroker, topic: str) -> None:
    broker.create_topic(topic, 3)
    empty = OffsetRange(earliest=0, end=0)
    assert end_offsets(broker.source(topic)) == {(topic, number): empty for number in range(3)}
    produce(broker.source(), records(topic, 10))
    assert [span.end for _, span in sorted(end_offsets(broker.source(topic)).items())] == [4, 3, 3]
    broker.delete_records(topic, {0: 2})
    assert end_offsets(broker.source(topic))[topic, 0] == OffsetRange(earliest=2, end=4)
    broker.add_partitions(topic, 5)
    assert len(end_offsets(broker.source(topic))) == 5


@pytest.mark.kafka
def test_missing_topic_is_named(broker: OwnBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    with pytest.raises(SourceUnavailableError) as caught:
        end_offsets(broker.source("not-there"))
    expected = f"the Kafka broker {broker.bootstrap_servers} has no topic 'not-there'"
    assert caught.value.reason == expected
    assert "source.kafka.topics" in caught.value.fix
    assert Administration(broker.source()).partition_count("not-there") is None
    with pytest.raises(SourceUnavailableError, match="did not take a record of topic 'not-there'"):
        produce(broker.source(), records("not-there", 1), timeout_seconds=2.0)


@pytest.mark.kafka
def test_a_topic_that_is_not_there_yet_is_left_out(broker: OwnBroker, topic: str) -> None:
    broker.create_topic(topic, 2)
    source = broker.source(topic, "comes-later")
    assert {name for name, _ in end_offsets(source)} == {topic}
    with pytest.raises(SourceUnavailableError) as caught:
        end_offsets(broker.source("comes-later", "neither"))
    expected = f"the Kafka broker {broker.bootstrap_servers} has none of the topics"
    assert caught.value.reason == f"{expected} 'comes-later', 'neither'"


@pytest.mark.kafka
def test_recreated_topic_has_another_id(broker: OwnBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    source = broker.source(topic)
    _, first = Administration(source).listed(source)
    assert Administration(source).listed(source)[1] == first
    broker.delete_topic(topic)
    broker.create_topic(topic, 1)
    _, second = Administration(source).listed(source)
    assert first[topic]
    assert second[topic]
    assert first != second


@pytest.mark.kafka
def test_records_come_back_as_they_were(broker: OwnBroker, topic: str) -> None:
    source, given = filled(broker, topic, 2000)
    assert by_partition(consume(source, end_offsets(source))) == by_partition(given)


@pytest.mark.kafka
def test_record_without_a_timestamp_gets_one(broker: OwnBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    produce(broker.source(), [replace(records(topic, 1)[0], timestamp_ms=-1)])
    got = list(consume(broker.source(), end_offsets(broker.source(topic))))
    assert abs(got[0].timestamp_ms - time.time() * 1000) < 60_000


@pytest.mark.kafka
def test_ranges_and_limit_bound_what_is_read(broker: OwnBroker, topic: str) -> None:
    source, _ = filled(broker, topic, 200, partitions=2)
    wanted = {
        (topic, 0): OffsetRange(earliest=10, end=20),
        (topic, 1): OffsetRange(earliest=5, end=5),
    }
    got = consume(source, wanted)
    assert [(record.partition, record.offset) for record in got] == [(0, n) for n in range(10, 20)]
    assert len(list(consume(source, end_offsets(source), limit=7))) == 7
    assert list(consume(source, wanted, limit=0)) == []


@pytest.mark.kafka
def test_range_whose_records_are_gone_is_an_error(broker: OwnBroker, topic: str) -> None:
    source, _ = filled(broker, topic, 20, partitions=1)
    seen = end_offsets(source)
    broker.delete_records(topic, {0: 5})
    with pytest.raises(SourceUnavailableError, match=f"topic '{topic}' partition 0"):
        list(consume(broker.source(), seen))


@pytest.mark.kafka
def test_a_record_that_was_damaged_on_disk_is_an_error(broker: OwnBroker, topic: str) -> None:
    """A broker sends what its disk has; the client alone can compare the checksum."""
    broker.create_topic(topic, 1)
    value = b'{"a message": "of TiCDC"}'
    given = [replace(record, value=value) for record in records(topic, 3, partitions=1)]
    for record in given:
        produce(broker.source(), [record])
    (log,) = (broker.directory / "topics" / f"{topic}-0").glob("*.log")
    content = log.read_bytes()
    assert content.count(value) == 3
    at = content.index(value, content.index(value) + 1)
    with log.open("r+b") as file:
        file.seek(at + value.index(b"T"))
        file.write(b"X")
    got: list[CaptureRecord] = []
    with pytest.raises(SourceUnavailableError, match=r"partition 0: .*CRC32C") as caught:
        got.extend(consume(broker.source(), end_offsets(broker.source(topic))))
    assert got == []
    assert "let another replica lead" in str(caught.value)
    taken = replace(broker.source(), options={"check.crcs": OptionValue("false", "false")})
    assert len(list(consume(taken, end_offsets(broker.source(topic))))) == 3


@pytest.mark.kafka
@pytest.mark.parametrize("seconds", [0.3, pytest.param(17, marks=pytest.mark.thorough)])
def test_last_records_may_come_later(broker: OwnBroker, topic: str, seconds: float) -> None:
    """As from a replica that knows less than the leader, whose offsets were listed.

    On a slow link the client gives nothing before it has a whole answer of 16 MiB.
    """
    source, _ = filled(broker, topic, 7, partitions=1)
    given = records(topic, 10, partitions=1)
    ranges = {(topic, 0): OffsetRange(earliest=0, end=10)}
    fetching = fetch(source, ranges, timeout_seconds=1.0)
    assert len(next(fetching)) == 7
    with pytest.raises(SourceUnavailableError, match=r"now ends topic .* at offset 7, before 10"):
        next(fetching)
    fetching = fetch(source, ranges)
    assert len(next(fetching)) == 7
    later = Timer(seconds, produce, [source, given[7:]])
    later.start()
    assert [item.value() for some in fetching for item in some] == [it.value for it in given[7:]]
    later.join()


@pytest.mark.parametrize(
    ("size", "number"), [(0, 1000), (1_000, 1000), (1 << 20, 16), (20 << 20, 1)]
)
def test_large_messages_are_taken_few_at_a_time(size: int, number: int) -> None:
    assert _next_number([bytes(size)] * 3) == number


@pytest.mark.kafka
def test_large_message(broker: OwnBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    large = replace(records(topic, 1)[0], value=os.urandom(12 * 1024 * 1024))
    produce(broker.source(), [large])
    assert list(consume(broker.source(), end_offsets(broker.source(topic)))) == [large]


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("level", "wanted", "end"),
    [(None, "abcdef", 7), ("read_committed", "ab", 5), ("READ_COMMITTED", "ab", 5)],
)
def test_recording_reads_what_landing_reads(
    broker: OwnBroker, topic: str, tmp_path: Path, level: str | None, wanted: str, end: int
) -> None:
    broker.create_topic(topic, 1)
    options = broker.source().options
    if level is not None:
        options = {**options, "isolation.level": OptionValue(level, level)}
    given = replace(broker.source(topic), options=options)
    plain = Producer(client_options(broker.source()))
    for letter in "ab":
        plain.produce(topic, letter, partition=0)
    plain.flush()
    with in_transaction(broker, topic, "cd"):
        pass
    with in_transaction(broker, topic, "ef"):
        # The marker that ends the first transaction has an offset too.
        ranges = end_offsets(given)
        assert ranges == {(topic, 0): OffsetRange(earliest=0, end=end)}
        (fetched,) = fetch(given, ranges)
        assert b"".join(item.value() or b"" for item in fetched).decode() == wanted
        assert b"".join(record.value or b"" for record in consume(given, ranges)).decode() == wanted
        assert record_topic(given, tmp_path / "m.jsonl") == (len(wanted), True)


@contextmanager
def in_transaction(broker: OwnBroker, topic: str, letters: str) -> Iterator[None]:
    """Write records in a transaction, which is open in the block and then given up."""
    options = client_options(broker.source()) | {"transactional.id": f"{topic}-{letters}"}
    producer = Producer(options)
    producer.init_transactions(30)
    producer.begin_transaction()
    for letter in letters:
        producer.produce(topic, letter, partition=0)
    producer.flush(30)
    yield
    producer.abort_transaction(30)


# --- captures ---


@pytest.mark.kafka
def test_capture_there_and_back(broker: OwnBroker, topic: str, tmp_path: Path) -> None:
    given = records(topic, 500)
    first, second = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"
    write_capture(first, given)
    capture = CaptureSource(path=first, partitions={topic: 4})
    assert play_capture(capture, broker.source()) == (500, True, {topic: 4})
    assert len(end_offsets(broker.source(topic))) == 4
    assert record_topic(broker.source(topic), second) == (500, True)
    assert by_partition(CaptureReader(second)) == by_partition(given)


@pytest.mark.kafka
def test_recording_goes_on_where_it_ended(broker: OwnBroker, topic: str, tmp_path: Path) -> None:
    source, _ = filled(broker, topic, 200)
    given = records(topic, 300)
    path = tmp_path / "m.jsonl"
    assert record_topic(source, path, limit=50) == (50, False)
    assert record_topic(source, path) == (150, True)
    assert record_topic(source, path) == (0, True)
    produce(broker.source(), given[200:])
    assert record_topic(source, path) == (100, True)
    assert by_partition(CaptureReader(path)) == by_partition(given)


@pytest.mark.kafka
def test_recording_never_leaves_a_hole(broker: OwnBroker, topic: str, tmp_path: Path) -> None:
    source, given = filled(broker, topic, 5, partitions=1)
    path = tmp_path / "m.jsonl"
    record_topic(source, path)
    produce(broker.source(), given)
    broker.delete_records(topic, {0: 7})
    with pytest.raises(LandingGapError) as caught:
        record_topic(source, path)
    assert (caught.value.landed, caught.value.available) == (5, 7)
    broker.delete_topic(topic)
    broker.create_topic(topic, 1)
    with pytest.raises(LandingGapError, match="recreated"):
        record_topic(source, path)


@pytest.mark.kafka
def test_playing_into_too_few_partitions(broker: OwnBroker, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    write_capture(path, records(topic, 30))
    broker.create_topic(topic, 2)
    with pytest.raises(ConfigError, match=f"topic '{topic}' at .* has 2 partitions, .* has 3"):
        play_capture(CaptureSource(path=path), broker.source())
    broker.add_partitions(topic, 5)
    played = play_capture(CaptureSource(path=path), broker.source(), limit=10)
    assert played == (10, False, {topic: 3})
    ends = [span.end for _, span in sorted(end_offsets(broker.source(topic)).items())]
    assert ends == [4, 3, 3, 0, 0]


# --- the broker itself ---


def wait_until_gone(group: int, seconds: float) -> bool:
    """Return whether a process group has no member left, within some seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.kafka
def test_broker_goes_on_after_stop_and_crash(java: None, tmp_path: Path) -> None:
    told: list[str] = []
    # A name that a properties file or a list of folders would trip over.
    folder = tmp_path / "brö ker,1\\n"
    broker = OwnBroker(folder, progress=told.append)

    def seen(broker: OwnBroker) -> object:
        source = broker.source("t")
        return broker.port, Administration(source).listed(source)

    with broker:
        assert told[-1] == f"Kafka answers on {broker.bootstrap_servers}"
        group = broker.pid
        assert group is not None
        broker.create_topic("t", 2)
        produce(broker.source(), records("t", 10, partitions=2))
        before = seen(broker)
        broker.kill()
        assert not broker.running
        assert port_is_free(broker.port)
        assert wait_until_gone(group, 5)
        broker.start()
        assert seen(broker) == before
        group = broker.pid
    assert group is not None
    assert wait_until_gone(group, 5)
    assert broker.pid is None
    # A new owner finds port and topics.
    with OwnBroker(folder) as other:
        assert seen(other) == before
    (folder / "topics" / "meta.properties").write_text("version=1\nnode.id=77\ncluster.id=x\n")
    with pytest.raises(PrerequisiteError, match=r"ended while starting: .*node.id.*broker\.log"):
        broker.start()
    assert not broker.running


@pytest.mark.kafka
def test_broker_does_not_outlive_its_owner(java: None, tmp_path: Path, root: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from ticdc_assets_tests.brokers import OwnBroker\n"
        "print(OwnBroker(Path(sys.argv[1])).start().pid, flush=True)\n"
        "if sys.argv[2] == 'killed':\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    for ending, status in (("killed", -signal.SIGKILL), ("finished", 0)):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path), ending],
            cwd=root,
            stdout=subprocess.PIPE,
            timeout=120,
            check=False,
        )
        assert done.returncode == status
        assert wait_until_gone(int(done.stdout), 20), ending


@pytest.mark.kafka
def test_broker_listens_on_loopback_only(broker: OwnBroker) -> None:
    settings = (broker.directory / "server.properties").read_text()
    listeners = [line for line in settings.splitlines() if "listeners=" in line]
    assert len(listeners) == 2
    assert all("0.0.0.0" not in line and f"://{HOST}:" in line for line in listeners)
    lines = subprocess.run(["ss", "-ltnH"], capture_output=True, text=True, check=False).stdout
    ours = [line.split()[3] for line in lines.splitlines() if f":{broker.port} " in line]
    assert all(address.endswith(f"127.0.0.1]:{broker.port}") or HOST in address for address in ours)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "127.0.0.1:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: Connection refused "
            "(after 0ms in state CONNECT, 3 identical error(s) suppressed)",
            "Connection refused",
        ),
        (
            "broker-2:9092/2: Connect to ipv4#10.0.0.7:9092 failed: No route to host (after 4ms in "
            "state CONNECT)",
            "broker-2:9092/2: 10.0.0.7:9092: No route to host",
        ),
        ("Disconnected (after 12ms in state UP)", "Disconnected"),
    ],
)
def test_a_reason_is_shown_without_the_bookkeeping_of_the_client(said: str, shown: str) -> None:
    source = KafkaSource(bootstrap_servers="127.0.0.1:9092", topics=("t",))
    assert Trouble(source).shown(said) == shown


def test_an_address_is_shown_as_programs_take_it() -> None:
    source = KafkaSource(bootstrap_servers="[::1]:9092", topics=("t",))
    assert Trouble(source).silence("cannot be reached").fix.endswith("`nc -vz ::1 9092`")
