"""Small batches are landed and decoded here as by Spark, and both write the tables in turns."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ticdc_assets.broker import LocalBroker
from ticdc_assets.config import Changefeed, KafkaSource
from ticdc_assets.errors import SourceUnavailableError
from ticdc_assets.kafka import Administration, OffsetRange, end_offsets, fetch
from ticdc_assets.lake import decoding, landing, small_batches
from ticdc_assets.lake.commits import COMMIT_ID
from ticdc_assets.lake.control import commit_metadata, open_table, read_table
from ticdc_assets.lake.decoding import decode_new
from ticdc_assets.lake.landing import land
from ticdc_assets.lake.paths import LakePaths
from ticdc_assets.lake.small_batches import BY_LANDING_DAY, append_rows, are_plain, read_landed
from ticdc_assets.lake.totals import GROUP_KEY
from ticdc_assets.simulator.builders import fill
from ticdc_assets.simulator.changefeed import StandInChangefeed
from ticdc_assets.simulator.columns import column
from ticdc_assets.simulator.upstream import Upstream
from ticdc_assets_tests.golden import FORMATS, Scenario
from ticdc_assets_tests.lake.feeds import Feed
from ticdc_assets_tests.lake.test_killed_runs import DEATHS, Killed

PLACE = ("topic", "partition", "offset", "index")
NOW = ("landed_at", "landed_day", "quarantined_at", "first_landed_at", "last_landed_at")


def by_spark(monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[pytest.MonkeyPatch]:
    """Leave no batch small while the context is open."""
    context = monkeypatch.context()

    class Large(AbstractContextManager[pytest.MonkeyPatch]):
        def __enter__(self) -> pytest.MonkeyPatch:
            patch = context.__enter__()
            for owner in (small_batches, landing):
                patch.setattr(owner, "LOCAL_RECORDS", -1)
            return patch

        def __exit__(self, *error: Any) -> None:
            context.__exit__(*error)

    return Large()


def in_order(rows: pa.Table) -> pa.Table:
    """Return rows in the order of their places, without what is of the moment of writing."""
    kept = [name for name in rows.column_names if name not in NOW]
    names = [name for name in PLACE if name in kept]
    return rows.sort_by([(name, "ascending") for name in names]).select(kept).combine_chunks()


def assert_same_table(left: Path, right: Path) -> None:
    """Compare rows, and what the log says of the table and of its newest commit."""
    rows = [read_table(path) for path in (left, right)]
    assert rows[0] is not None
    assert rows[1] is not None
    assert in_order(rows[0]).equals(in_order(rows[1]), check_metadata=False)
    assert rows[0].schema == rows[1].schema
    logs = [_actions(path) for path in (left, right)]
    for name in ("metaData", "protocol", "txn", "commitInfo"):
        assert [log[name] for log in logs] == [logs[0][name]] * 2, name
    # Large batches have bounds of what files are skipped by, small ones of all there is.
    assert {"min.offset", "max.offset"} <= logs[1]["stats"] <= logs[0]["stats"]


_KEPT = {
    "metaData": ("schemaString", "partitionColumns", "configuration", "format"),
    "protocol": ("minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"),
    "txn": ("appId", "version"),
    "commitInfo": ("operation",),
}


def _actions(path: Path) -> dict[str, Any]:
    """Return what the newest action of each kind says, and the columns with statistics."""
    found: dict[str, Any] = {"stats": set()}
    for file in sorted((path / "_delta_log").glob("*.json")):
        for line in file.read_text().splitlines():
            ((kind, action),) = json.loads(line).items()
            if kind in _KEPT:
                found[kind] = {name: action.get(name) for name in _KEPT[kind]}
            if kind == "commitInfo" and "userMetadata" in action:
                # Files of large batches are in the commit that creates the table.
                found[kind]["operation"] = action["operation"].replace("CREATE TABLE", "WRITE")
                metadata = json.loads(action["userMetadata"])
                assert metadata.pop(COMMIT_ID)
                found[kind]["userMetadata"] = metadata
            if kind == "add":
                stats = json.loads(action["stats"])
                found["stats"] |= {f"min.{name}" for name in stats["minValues"]}
                found["stats"] |= {f"max.{name}" for name in stats["maxValues"]}
    return found


# Decoding ---------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize(
    ("variant", "name"),
    [
        *(("simple-json", "corrupt"), ("simple-avro", "corrupt"), ("open", "corrupt")),
        *(("canal-json", "corrupt"), ("craft", "corrupt")),
        ("options", "simple-avro-claim-check-raw"),
    ],
)
def test_rows_decoded_here_are_those_of_spark(
    variant: str,
    name: str,
    spark: SparkSession,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
) -> None:
    scenario = Scenario(golden_dir(variant, name))
    feed = Feed.of(
        spark,
        tmp_path,
        capture=scenario.capture,
        timezone=scenario.timezone,
        wire_format=FORMATS[scenario.variant],
        compression=scenario.compression,
        claim_check=scenario.claim_check,
    )
    feed.land()
    here = decoding._decoded_here(feed.paths, feed.changefeed, 1, 7)
    assert here is not None
    raw = spark.read.format("delta").load(str(feed.paths.raw_messages))
    there = decoding.decoded(raw, feed.changefeed, 7).toArrow()
    assert in_order(here).equals(in_order(there), check_metadata=False)
    assert here.column("landed_at").unique() == there.column("landed_at").unique()
    assert set(here.column("batch").to_pylist()) == {7}
    assert ("error" in here.column("kind").to_pylist()) is (name == "corrupt")


@pytest.mark.spark
def test_both_ways_write_the_same_tables(
    spark: SparkSession,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = Scenario(golden_dir("simple-json", "corrupt"))
    here = Feed.of(spark, tmp_path / "here", capture=scenario.capture)
    there = here.in_folder(tmp_path / "there")
    with monkeypatch.context() as patch:
        patch.setattr(SparkSession, "read", None)
        patch.setattr(SparkSession, "createDataFrame", None)
        here.land()
        mine = decode_new(spark, here.paths, here.changefeed)
    with by_spark(monkeypatch):
        there.land()
        assert decode_new(spark, there.paths, there.changefeed) == mine
    assert mine.quarantined
    for name in ("raw_messages", "change_log", "quarantine"):
        assert_same_table(getattr(here.paths, name), getattr(there.paths, name))
    groups = [
        [
            {key: value for key, value in row.items() if key not in NOW}
            for row in sorted(decoding.read_groups(feed.paths).rows, key=repr)
        ]
        for feed in (here, there)
    ]
    key = GROUP_KEY
    assert [sorted(found, key=lambda row: repr([row[n] for n in key])) for found in groups] == [
        sorted(groups[0], key=lambda row: repr([row[n] for n in key]))
    ] * 2


@pytest.fixture
def small(spark: SparkSession, tmp_path: Path) -> tuple[Feed, Callable[[], None]]:
    """A feed of one table, and a function that sends one row more and a damaged record."""
    return small_feed(spark, tmp_path)


def small_feed(spark: Any, folder: Path) -> tuple[Feed, Callable[[], None]]:
    """Return the same with the session `spark`, which may be None where no batch is large."""
    upstream = Upstream()
    upstream.create_database("d")
    upstream.create_table(("d", "t"), (column("id", "int", nullable=False),), primary_key=("id",))
    changefeed = StandInChangefeed(upstream, "d", partitions=2)
    feed = Feed.of(spark, folder)

    def send() -> None:
        fill(upstream, ("d", "t"), rows=1)
        feed.write(changefeed.tick())
        feed.write([changefeed.inject(1, key=None, value=b"{")])

    return feed, send


@pytest.mark.spark
def test_both_ways_in_turns_and_over_checkpoints(
    small: tuple[Feed, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, send = small
    tables = (feed.paths.raw_messages, feed.paths.change_log, feed.paths.quarantine)
    for number in range(22):
        send()
        if number in (1, 10, 21):
            with by_spark(monkeypatch):
                feed.land()
                decode_new(feed.spark, feed.paths, feed.changefeed)
        else:
            feed.land()
            decode_new(feed.spark, feed.paths, feed.changefeed)
    for path, app_id in zip(tables, ("land", "decode", "decode"), strict=True):
        names = {file.name for file in (path / "_delta_log").glob("*.checkpoint.parquet")}
        assert names == {f"{version:020}.checkpoint.parquet" for version in (10, 20)}
        table = open_table(path)
        assert table is not None
        assert table.transaction_version(app_id) == 22
        rows = read_table(path)
        assert rows is not None
        assert sorted(set(rows.column("batch").to_pylist())) == list(range(1, 23))
        # Files of each writer are found by their statistics.
        some = feed.spark.read.format("delta").load(str(path)).where("batch between 10 and 12")
        assert some.count() == sum(10 <= value <= 12 for value in rows.column("batch").to_pylist())
        places = list(zip(*(rows.column(name).to_pylist() for name in PLACE[:3]), strict=True))
        assert len(set(places)) == len(places)
    assert commit_metadata(feed.paths.change_log) == {"batch": 22, "landed": 22, "redrive": False}
    assert decoding.read_groups(feed.paths).batch == 22


@pytest.mark.spark
@pytest.mark.parametrize("first", ["here", "spark"])
@pytest.mark.parametrize(
    "death",
    ["change log appended, errors and totals missing", "errors quarantined, totals missing"],
)
def test_what_one_way_left_half_done_the_other_finishes(
    first: str,
    death: str,
    small: tuple[Feed, Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed, send = small
    send()
    feed.land()

    def decode(way: str) -> None:
        if way == "here":
            decode_new(feed.spark, feed.paths, feed.changefeed)
        else:
            with by_spark(monkeypatch):
                decode_new(feed.spark, feed.paths, feed.changefeed)

    with monkeypatch.context() as patch:
        DEATHS[death](patch)
        with pytest.raises(Killed):
            decode(first)
    decode("spark" if first == "here" else "here")
    faults, log = read_table(feed.paths.quarantine), read_table(feed.paths.change_log)
    assert faults is not None
    assert log is not None
    assert faults.num_rows == 1
    groups = decoding.read_groups(feed.paths)
    assert groups.batch == 1
    assert sum(row["rows"] for row in groups.rows) == log.num_rows


@pytest.mark.parametrize("death", list(DEATHS)[:4])
def test_a_killed_run_is_finished_without_spark(
    death: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, send = small_feed(None, tmp_path)

    def run() -> None:
        feed.land()
        decode_new(feed.spark, feed.paths, feed.changefeed)

    send()
    run()
    send()
    with monkeypatch.context() as patch:
        DEATHS[death](patch)
        with pytest.raises(Killed):
            run()
    run()
    raw, log, faults = (
        read_table(path)
        for path in (feed.paths.raw_messages, feed.paths.change_log, feed.paths.quarantine)
    )
    assert raw is not None
    assert log is not None
    assert faults is not None
    records = [
        set(zip(*(table.column(name).to_pylist() for name in PLACE[:3]), strict=True))
        for table in (raw, log, faults)
    ]
    assert [len(found) for found in records[::2]] == [raw.num_rows, 2]
    assert records[0] == records[1] | records[2]
    groups = decoding.read_groups(feed.paths)
    assert groups.batch == 2
    assert sum(row["rows"] for row in groups.rows) == log.num_rows
    events = set(zip(*(log.column(name).to_pylist() for name in PLACE), strict=True))
    assert len(events) == log.num_rows


# Reading and appending --------------------------------------------------------------------------


def batch_of(number: int, values: list[bytes]) -> pa.Table:
    rows = landing._table_of([])
    columns = {
        "batch": pa.array([number] * len(values), pa.int64()),
        "landed_at": pa.array([0] * len(values), pa.timestamp("us", tz="UTC")),
        "topic": pa.array(["t"] * len(values)),
        "partition": pa.array([0] * len(values), pa.int32()),
        "offset": pa.array(range(len(values)), pa.int64()),
        "key": pa.array([None] * len(values), pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.nulls(len(values), rows.schema.field("headers").type),
        "landed_day": pa.array([0] * len(values), pa.int32()).cast(pa.date32()),
    }
    return pa.table(columns)


def append(path: Path, number: int, values: list[bytes]) -> bool:
    return append_rows(
        path,
        batch_of(number, values),
        app_id="land",
        version=number,
        metadata={"batch": number},
        layout=BY_LANDING_DAY,
    )


def test_a_version_that_the_table_has_seen_is_skipped(tmp_path: Path) -> None:
    assert append(tmp_path / "t", 1, [b"a"])
    assert append(tmp_path / "t", 2, [b"b"])
    assert not append(tmp_path / "t", 2, [b"c"])
    assert not append(tmp_path / "t", 1, [b"c"])
    table = read_table(tmp_path / "t")
    assert table is not None
    assert sorted(table.column("value").to_pylist()) == [b"a", b"b"]


def test_an_append_of_nothing_is_a_commit_with_its_metadata(tmp_path: Path) -> None:
    assert append(tmp_path / "t", 1, [])
    assert append(tmp_path / "t", 2, [])
    assert commit_metadata(tmp_path / "t") == {"batch": 2}
    assert read_landed(tmp_path / "t", 2) == []


def test_only_small_batches_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    append(path, 1, [b"x" * 100] * 50)
    append(path, 2, [bytes([number]) * 100 for number in range(50)])
    for number in (1, 2):
        records = read_landed(path, number)
        assert records is not None
        assert sum(batch.num_rows for batch in records) == 50
    # The same value many times over is in the file once.
    footer = pq.ParquetFile(next(path.rglob("*.parquet"))).metadata
    assert small_batches._payload_bytes(footer) < 6_000
    for limit, value in (("LOCAL_BYTES", 4_000), ("LOCAL_RECORDS", 49)):
        with monkeypatch.context() as patch:
            patch.setattr(small_batches, limit, value)
            assert read_landed(path, 1) is None
            assert read_landed(path, 2) is None
    assert read_landed(path, 3) == []
    assert read_landed(tmp_path / "none", 1) is None


def test_a_batch_among_others_in_a_file_is_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, 1, [b"a"])
    append(path, 2, [b"b", b"c"])
    append(path, 3, [b"d"])
    table = open_table(path)
    assert table is not None
    table.optimize.compact()
    records = read_landed(path, 2)
    assert records is not None
    assert pa.Table.from_batches(records).column("value").to_pylist() == [b"b", b"c"]


def test_tables_with_newer_features_are_left_to_spark(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, 1, [b"a"])
    assert are_plain((path, tmp_path / "none"))
    table = open_table(path)
    assert table is not None
    table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    assert not are_plain((tmp_path / "none", path))
    assert read_landed(path, 1) is None


# Kafka ------------------------------------------------------------------------------------------


@pytest.mark.kafka
@pytest.mark.spark
def test_records_landed_here_are_those_of_spark(
    broker: LocalBroker,
    topic: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Administration(broker.source()).create_topic(topic, 2, config={})
    servers = {"bootstrap.servers": broker.source().bootstrap_servers}
    keys = [None, b"", b"key", bytes(range(256))]
    values = [b"value", None, b"", "ü😀".encode(), b"x" * 5_000]
    producer = Producer(servers)
    for number in range(40):
        producer.produce(
            topic,
            key=keys[number % 4],
            value=values[number % 5],
            partition=number % 2,
            timestamp=1_700_000_000_123 + 7 * number,
        )
    producer.flush()
    writer = Producer(servers | {"transactional.id": topic})
    writer.init_transactions(30)
    for is_kept in (True, False):
        writer.begin_transaction()
        writer.produce(topic, value=f"kept: {is_kept}".encode(), partition=1)
        writer.flush()
        if is_kept:
            writer.commit_transaction(30)
        else:
            writer.abort_transaction(30)
    source = broker.source(topic)
    changefeed = Changefeed(name="feed", wire_format="open", timezone="UTC", source=source)
    here, there = (LakePaths(root=tmp_path / name, changefeed="feed") for name in ("a", "b"))
    with monkeypatch.context() as patch:
        patch.setattr(SparkSession, "read", None)
        landed = land(spark, here, changefeed)
    with by_spark(monkeypatch):
        assert land(spark, there, changefeed) == landed
    assert_same_table(here.raw_messages, there.raw_messages)
    # Records with headers are Spark's, by both ways of asking.
    producer.produce(topic, value=b"v", partition=0, headers=[("h", b"1"), ("n", None)])
    producer.flush()
    assert fetch(source, end_offsets(source), max_bytes=1 << 20) is None
    land(spark, here, changefeed)
    rows = read_table(here.raw_messages)
    assert rows is not None
    found = [value for value in rows.column("headers").to_pylist() if value is not None]
    assert found == [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}]]
    _check_limits(source, topic)


def _check_limits(source: KafkaSource, topic: str) -> None:
    whole = {(topic, 0): OffsetRange(earliest=0, end=20)}
    records = fetch(source, whole, max_bytes=1 << 20)
    assert records is not None
    assert [record.offset for record in records] == list(range(20))
    assert fetch(source, whole, max_bytes=4_000) is None
    with pytest.raises(SourceUnavailableError, match="before 99"):
        fetch(source, {(topic, 1): OffsetRange(earliest=15, end=99)}, max_bytes=1 << 20)
