"""The doctor's checks: each is wrong where the thing is wrong, and says what to type."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ticdc_assets.base.ports import HOST, free_port
from ticdc_assets.config import CaptureSource, Changefeed, KafkaSource, Settings
from ticdc_assets.doctor import checks as doctor
from ticdc_assets.doctor.checks import check_disk, check_home, check_unnamed, run_checks
from ticdc_assets.doctor.sources import check_source
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.kafka.records import produce
from ticdc_assets.spark.preflight import Check
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.compression import Compression
from ticdc_assets_tests.brokers import OwnBroker
from ticdc_assets_tests.demo.simulator.builders import plain_upstream, write_capture
from ticdc_assets_tests.demo.simulator.compressing import CompressingChangefeed
from ticdc_assets_tests.spark.test_preflight import only


def records(
    topic: str, wire_format: WireFormat, compression: Compression = Compression.NONE
) -> list[CaptureRecord]:
    """A table's first changes, in two partitions."""
    upstream = plain_upstream(("shop", "orders"), rows=20)
    feed = CompressingChangefeed(
        upstream, topic, compression=compression, partitions=2, wire_format=wire_format
    )
    return list(feed.tick())


def changefeed(
    source: KafkaSource | CaptureSource,
    wire_format: str = "simple-json",
    compression: Compression = Compression.NONE,
) -> Changefeed:
    how = {"wire_format": wire_format, "compression": compression}
    return Changefeed(name="shop", timezone="UTC", source=source, **how)


def by_name(checks: Iterable[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def only_wrong(checks: Iterable[Check]) -> Check:
    """The one check that is not met."""
    (wrong,) = [check for check in checks if not check.ok]
    return wrong


def captured(
    folder: Path, wire_format: WireFormat, compression: Compression = Compression.NONE
) -> CaptureSource:
    path = folder / "capture.jsonl"
    write_capture(path, records("shop", wire_format, compression))
    return CaptureSource(path=path)


# The machine ------------------------------------------------------------------------------------


def test_all_checks_of_a_machine_without_java(tmp_path: Path) -> None:
    env = only(tmp_path) | {"TICDC_CHANGEFEEDS": str(tmp_path / "none.yaml")}
    checks = by_name(run_checks(env=env))
    # Without java no jars are looked for, and without settings no sources.
    names = ["python", "configuration", "java", "pyspark"]
    assert list(checks) == names
    assert [name for name, check in checks.items() if not check.ok] == ["configuration", "java"]


# Lake and instance ------------------------------------------------------------------------------


def test_a_full_disk_is_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_disk(tmp_path / "lake").ok
    monkeypatch.setattr(doctor, "LEAST_FREE_BYTES", 10**18)
    check = check_disk(tmp_path / "lake")
    assert not check.ok
    assert not check.vital
    assert "ticdc-assets maintain" in check.fix


def test_a_home_that_is_not_there_yet(tmp_path: Path) -> None:
    check = check_home(tmp_path / "lake" / "_dagster", {})
    assert check.ok
    assert check.found == f"{tmp_path / 'lake' / '_dagster'} (not there yet)"
    assert list(tmp_path.iterdir()) == []


def test_homes_that_do_not_work(tmp_path: Path) -> None:
    relative = check_home(Path("home").absolute(), {"DAGSTER_HOME": "home"})
    assert (relative.ok, relative.fix) == (False, f"write it as {Path('home').absolute()}")
    assert check_home(tmp_path, {"DAGSTER_HOME": "~/home"}).ok, "Dagster takes it"
    (tmp_path / "file").touch()
    below_a_file = check_home(tmp_path / "file" / "home", {})
    assert not below_a_file.ok
    assert "DAGSTER_HOME" in below_a_file.fix


@pytest.mark.parametrize(
    ("text", "env", "found"),
    [
        ("{", {}, "cannot be read (no YAML)"),
        ("storage: {postgres: {postgres_url: {env: PG_URL}}}", {}, "which needs PG_URL"),
        ("run_launcher: {config: [{env: ONE}, {env: TWO}]}", {"ONE": "1"}, "which needs TWO"),
    ],
)
def test_instance_settings_that_do_not_work(
    tmp_path: Path, text: str, env: Mapping[str, str], found: str
) -> None:
    (tmp_path / "dagster.yaml").write_text(text)
    check = check_home(tmp_path, {"DAGSTER_HOME": str(tmp_path)} | env)
    assert not check.ok
    assert found in check.found


def test_instance_settings_with_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dagster.yaml").write_text("storage: {postgres: {postgres_url: {env: PG_URL}}}")
    env = {"DAGSTER_HOME": str(tmp_path), "PG_URL": "postgresql://secret@host/db"}
    check = check_home(tmp_path, env)
    assert check.ok, check.found
    assert check.found.endswith("runs and events in PostgreSQL")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "extra `postgres`" in check_home(tmp_path, env).fix


def test_changefeeds_that_the_file_does_not_name(tmp_path: Path) -> None:
    feed = changefeed(CaptureSource(path=tmp_path / "m.jsonl"))
    settings = Settings(changefeeds=(feed,), lake=tmp_path / "lake", path=tmp_path / "c.yaml")
    assert check_unnamed(settings).ok
    for name in ("shop", "old", "_dagster"):
        (tmp_path / "lake" / name).mkdir(parents=True)
    (tmp_path / "lake" / "file").touch()
    for name in ("shop", "old"):
        (tmp_path / "lake" / name / "raw_messages" / "_delta_log").mkdir(parents=True)
    check = check_unnamed(settings)
    assert not check.ok
    assert not check.vital
    assert check.found == f"old, which {tmp_path / 'c.yaml'} does not name"


# Captures ---------------------------------------------------------------------------------------


def test_a_capture_that_is_not_there_or_empty(tmp_path: Path) -> None:
    feed = changefeed(CaptureSource(path=tmp_path / "m.jsonl"))
    check = only_wrong(check_source(feed))
    assert check.name == "source shop"
    assert "No such file" in check.found
    (tmp_path / "m.jsonl").touch()
    checks = by_name(check_source(feed))
    assert checks["source shop"].found.endswith("0 bytes, no record yet")
    assert checks["format shop"].ok


def test_a_capture_that_was_cut(tmp_path: Path) -> None:
    """It looks like one that has ended."""
    source = captured(tmp_path, WireFormat.SIMPLE_JSON)
    checked = changefeed(source, WireFormat.SIMPLE_JSON.value)
    assert all(check.ok for check in check_source(checked, lake=tmp_path / "lake"))
    source.path.write_bytes(source.path.read_bytes()[:-10])
    check = only_wrong(check_source(checked, lake=tmp_path / "lake"))
    assert check.name == "end shop"
    assert not check.vital


@pytest.mark.parametrize("wire_format", list(WireFormat))
def test_every_format_is_recognised(tmp_path: Path, wire_format: WireFormat) -> None:
    source = captured(tmp_path, wire_format)
    for stated in WireFormat:
        checks = by_name(check_source(changefeed(source, stated.value)))
        check = checks["format shop"]
        assert checks["source shop"].ok
        assert check.ok is (stated is wire_format)
        if stated is not wire_format:
            assert check.fix == f"write `format: {wire_format.value}` in the configuration"


def test_a_compression_is_recognised(tmp_path: Path) -> None:
    source = captured(tmp_path, WireFormat.CANAL_JSON, Compression.LZ4)
    right = changefeed(source, "canal-json", Compression.LZ4)
    assert all(check.ok for check in check_source(right))
    check = only_wrong(check_source(changefeed(source, "canal-json")))
    assert "look like canal-json compressed by lz4" in check.found
    assert check.fix == "write `compression: lz4` in the configuration"
    check = only_wrong(check_source(changefeed(source)))
    assert check.fix == "write `format: canal-json` and `compression: lz4` in the configuration"


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (b'{"payload":{"op":"c","source":{},"after":{}},"schema":{}}', "Debezium"),
        (b'{"database":"d","table":"t","type":"insert","ts":1,"data":{}}', "Maxwell"),
        (b"\x00\x00\x00\x00\x07\x02\x04", "Avro with a schema registry"),
        (b"\x03\x00" + b"\xc0" * 16 + b"\x02", "Avro with a schema registry"),  # of AWS Glue
        (b"\x10\x01\x18\x07\x2a\x00", "Canal in Protobuf"),
        (b'{"hello":"world"}', "JSON in none of"),
        (b"hello", "no format of TiCDC"),
    ],
)
def test_what_nobody_here_reads_is_named(tmp_path: Path, value: bytes, what: str) -> None:
    path = tmp_path / "m.jsonl"
    write_capture(path, [replace(records("shop", WireFormat.SIMPLE_JSON)[0], value=value)])
    check = only_wrong(check_source(changefeed(CaptureSource(path=path))))
    assert f"look like {what}" in check.found
    assert "; needed: records in simple-json; " in check.sentence()
    assert "hello" not in check.sentence(), "a payload"
    assert "protocol" in check.fix


# Brokers ----------------------------------------------------------------------------------------


def test_a_dead_broker_is_told_in_time() -> None:
    port = free_port()
    source = KafkaSource(bootstrap_servers=f"{HOST}:{port}", topics=("shop",))
    check = only_wrong(check_source(changefeed(source), timeout_seconds=0.6))
    assert "cannot be reached" in check.found
    assert "Connection refused" in check.found
    assert f"nc -vz {HOST} {port}" in check.fix
    assert check.sentence().startswith("source shop: the Kafka broker ")


@pytest.mark.kafka
def test_a_topic_that_is_not_there(broker: OwnBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    check = by_name(check_source(changefeed(broker.source(f"{topic}s", topic))))["topics shop"]
    assert not check.ok
    assert not check.vital
    assert check.found == f"no topic for {topic}s"
    assert repr(topic) not in check.fix, "a topic that is configured already"
    check = only_wrong(check_source(changefeed(broker.source(f"{topic}s"))))
    assert check.name == "source shop"
    assert f"no topic {topic}s at" in check.found
    assert f"did you mean '{topic}'?" in check.fix


@pytest.mark.kafka
def test_a_topic_and_what_is_in_it(broker: OwnBroker, topic: str) -> None:
    broker.create_topic(topic, 3, config={"retention.ms": "3600000"})
    source = broker.source(topic)
    checks = by_name(check_source(changefeed(source)))
    assert checks["source shop"].ok
    assert checks["format shop"].found == "no record to check yet"
    assert checks["partitions shop"].found == "no record in any partition"
    assert "a retention of 60.0 min in" in checks["retention shop"].found
    assert f"--entity-name {topic}" in checks["retention shop"].fix
    assert [check.vital for check in checks.values() if not check.ok] == [False, False]

    produce(source, records(topic, WireFormat.CANAL_JSON))
    checks = by_name(check_source(changefeed(source)))
    assert checks["partitions shop"].found == f"no record ever in {topic}/2"
    assert checks["format shop"].fix == "write `format: canal-json` in the configuration"
    assert by_name(check_source(changefeed(source, "canal-json")))["format shop"].ok

    # A topic without any record joins later, and holds nothing up.
    broker.create_topic(f"{topic}-new", 1)
    both = changefeed(broker.source(topic, f"{topic}-new"), "canal-json")
    assert by_name(check_source(both))["partitions shop"].found == f"no record ever in {topic}/2"


@pytest.mark.kafka
def test_a_topic_that_is_compacted(broker: OwnBroker, topic: str) -> None:
    broker.create_topic(topic, 1, config={"cleanup.policy": "compact"})
    check = by_name(check_source(changefeed(broker.source(topic))))["retention shop"]
    assert not check.ok
    assert check.vital
    assert "cleanup.policy=delete" in check.fix


@pytest.mark.kafka
def test_a_topic_that_may_lose_landed_records(broker: OwnBroker, topic: str) -> None:
    broker.create_topic(
        topic, 1, config={"unclean.leader.election.enable": "true", "retention.ms": "-1"}
    )
    check = by_name(check_source(changefeed(broker.source(topic))))["retention shop"]
    assert not check.ok
    assert not check.vital
    assert "--add-config unclean.leader.election.enable=false" in check.fix
