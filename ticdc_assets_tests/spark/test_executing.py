"""Landing and decoding come to the same tables wherever they run, and each finishes the other's."""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import LakeDamagedError, SourceUnavailableError
from ticdc_assets.config import Changefeed, KafkaSource, OptionValue
from ticdc_assets.delta.appending import BY_LANDING_DAY, append_files
from ticdc_assets.delta.control import commit_metadata, read_table
from ticdc_assets.delta.delta_protocol import COMMIT_ID
from ticdc_assets.delta.lake import Lake
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.log import change_statistics
from ticdc_assets.log.change_files import RECORD_COLUMNS, rows_of
from ticdc_assets.log.decoding import decode_new, record_decoder
from ticdc_assets.log.landing import land
from ticdc_assets.log.landing_files import RAW_SCHEMA, LandingBatch, columns_of, write_columns
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.kafka.administration import Administration
from ticdc_assets.spark import executing
from ticdc_assets.spark.executing import (
    INLINE_BYTES,
    INLINE_ROWS,
    Inline,
    OnSpark,
    executor,
)
from ticdc_assets.spark.session import LazySession
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets_tests.brokers import OwnBroker
from ticdc_assets_tests.delta.libraries import opened
from ticdc_assets_tests.demo.simulator.builders import fill, upstream_of
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.golden import FULL_VARIANTS, Scenario
from ticdc_assets_tests.lake.feeds import Feed
from ticdc_assets_tests.lake.golden_lakes import feed_of
from ticdc_assets_tests.lake.killing import Killed
from ticdc_assets_tests.lake.places import named_table
from ticdc_assets_tests.lake.test_killed_runs import DEATHS

PLACE = ("topic", "partition", "offset", "index")
NOW = ("landed_at", "landed_day", "quarantined_at", "first_landed_at", "last_landed_at")


@contextmanager
def by_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no work be small while the context is open."""
    with monkeypatch.context() as patch:
        patch.setattr(executing, "INLINE_ROWS", -1)
        yield


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
    assert logs[0]["stats"] == logs[1]["stats"]


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
                for file in metadata.get("faults", ()):
                    assert file.pop("path")
                    assert file.pop("modified_ms")
                found[kind]["userMetadata"] = metadata
            if kind == "add":
                stats = json.loads(action["stats"])
                found["stats"] |= {f"min.{name}" for name in stats["minValues"]}
                found["stats"] |= {f"max.{name}" for name in stats["maxValues"]}
    return found


# Decoding ---------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("variant", FULL_VARIANTS)
@examples(3)
@given(cuts=st.lists(st.integers(0, 10**4), max_size=5), tasks=st.integers(1, 4))
def test_both_executors_decode_the_same(
    variant: str,
    cuts: list[int],
    tasks: int,
    spark: SparkSession,
    golden_dir: Callable[..., Path],
) -> None:
    """Damaged records among others, whatever parts they come in; nothing is written."""
    scenario = Scenario(golden_dir(variant, "corrupt"))
    records = records_of(scenario)
    places = [0, *sorted(cut % records.num_rows for cut in cuts), records.num_rows]
    parts = [records.slice(start, end - start) for start, end in itertools.pairwise(places)]
    decode = record_decoder(feed_of(spark, Path("nowhere"), scenario).changefeed, 7)

    def step(some: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from decode(some)

    here, there = (
        pa.Table.from_batches(runs_on.run(step, parts, tasks=tasks)).combine_chunks()
        for runs_on in (Inline(), OnSpark(spark, Path("nowhere")))
    )
    assert there.equals(here, check_metadata=True)
    kinds = set(here["kind"].to_pylist())
    assert {"error", "row"} <= kinds


def records_of(scenario: Scenario) -> pa.RecordBatch:
    """Return the records of a scenario as they are read of `raw_messages`."""
    landed_at = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [
        {
            "batch": 1,
            "landed_at": landed_at,
            "topic": item.topic,
            "partition": item.partition,
            "offset": item.offset,
            "timestamp_ms": item.timestamp_ms,
            "key": item.key,
            "value": item.value,
        }
        for item in scenario.records
    ]
    return pa.RecordBatch.from_pylist(
        rows, schema=pa.schema([RAW_SCHEMA.field(name) for name in RECORD_COLUMNS])
    )


@pytest.mark.spark
@pytest.mark.parametrize(
    ("variant", "name"),
    [
        ("open", "corrupt"),
        ("options", "simple-avro-claim-check-raw"),
        # By day the test above has these formats.
        *(
            pytest.param(variant, "corrupt", marks=pytest.mark.slow)
            for variant in FULL_VARIANTS
            if variant != "open"
        ),
    ],
)
def test_both_executors_write_the_same_tables(
    variant: str,
    name: str,
    spark: SparkSession,
    tmp_path: Path,
    golden_dir: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = Scenario(golden_dir(variant, name))
    here = feed_of(spark, tmp_path / "here", scenario)
    there = here.in_folder(tmp_path / "there")
    with monkeypatch.context() as patch:
        # Nothing of it is asked of Spark.
        patch.setattr(executing, "OnSpark", None)
        patch.setattr(SparkSession, "read", None)
        here.land()
        mine = decode_new(here.lake)
    with by_spark(monkeypatch):
        there.land()
        assert decode_new(there.lake) == mine
    assert bool(mine.quarantined) is (name == "corrupt")
    tables = ["raw_messages", "change_log", *(["quarantine"] if mine.quarantined else [])]
    for table in tables:
        assert_same_table(getattr(here.paths, table), getattr(there.paths, table))
    statistics = [
        [
            {key: value for key, value in row.items() if key not in NOW}
            for row in change_statistics.read_statistics(feed.paths).rows
        ]
        for feed in (here, there)
    ]
    assert sorted(statistics[0], key=repr) == sorted(statistics[1], key=repr)


@pytest.mark.spark
@pytest.mark.parametrize("feature", ["enableDeletionVectors", "enableChangeDataFeed"])
@pytest.mark.parametrize("name", ["raw_messages", "change_log", "quarantine"])
def test_tables_that_another_program_gave_features_are_refused(
    small: tuple[Feed, Callable[[], None]], name: str, feature: str
) -> None:
    feed, send = small
    send()
    feed.sync()
    path = named_table(feed.paths, name)
    feed.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.{feature}' = 'true')")
    send()
    with pytest.raises(LakeDamagedError) as caught:
        feed.sync()
    assert str(caught.value).startswith(
        f"{name} of changefeed 'feed' is damaged: another program gave it features of Delta that "
        "only mirrors have ("
    )
    assert feature.removeprefix("enable").lower() in str(caught.value).lower()
    if name != "raw_messages":
        # It says what to type, and that mends it.
        assert "`ticdc-assets rebuild feed` makes all tables again" in str(caught.value)
        feed.rebuild()
        feed.sync()


@pytest.fixture
def small(spark: SparkSession, tmp_path: Path) -> tuple[Feed, Callable[[], None]]:
    """A feed of one table, and a function that sends one row more and a damaged record."""
    return small_feed(spark, tmp_path)


def small_feed(spark: Any, folder: Path) -> tuple[Feed, Callable[[], None]]:
    """Return the same with the session `spark`, which may be None where no batch is large."""
    upstream = upstream_of(("d", "t"), (column("id", "int", nullable=False),), primary_key=("id",))
    changefeed = StandInChangefeed(upstream, "d", partitions=2)
    feed = Feed.of(spark, folder)

    def send() -> None:
        fill(upstream, ("d", "t"), rows=1)
        feed.write(changefeed.tick())
        feed.write([changefeed.inject(1, key=None, value=b"{")])

    return feed, send


@pytest.mark.spark
def test_both_executors_in_turns_and_over_checkpoints(
    small: tuple[Feed, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, send = small
    tables = (feed.paths.raw_messages, feed.paths.change_log, feed.paths.quarantine)
    for number in range(22):
        send()
        if number in (1, 10, 21):
            with by_spark(monkeypatch):
                feed.land()
                decode_new(feed.lake)
        else:
            feed.land()
            decode_new(feed.lake)
    for path, app_id in zip(tables, ("land", "decode", "decode"), strict=True):
        names = {file.name for file in (path / "_delta_log").glob("*.checkpoint.parquet")}
        assert names == {f"{version:020}.checkpoint.parquet" for version in (10, 20)}
        table = opened(path)
        assert table.transaction_version(app_id) == 22
        rows = read_table(path)
        assert rows is not None
        assert sorted(set(rows.column("batch").to_pylist())) == list(range(1, 23))
        # Files of each writer are found by their statistics.
        some = feed.spark.read.format("delta").load(str(path)).where("batch between 10 and 12")
        assert some.count() == sum(10 <= value <= 12 for value in rows.column("batch").to_pylist())
        places = list(zip(*(rows.column(name).to_pylist() for name in PLACE[:3]), strict=True))
        assert len(set(places)) == len(places)
    said = commit_metadata(feed.paths.change_log)
    assert (said["batch"], said["landed"], len(said["faults"])) == (22, 22, 1)
    assert change_statistics.read_statistics(feed.paths).batch == 22


@pytest.mark.spark
@pytest.mark.parametrize("first", ["here", "spark"])
@pytest.mark.parametrize(
    "death",
    ["change log appended, errors and totals missing", "errors quarantined, totals missing"],
)
def test_what_one_executor_left_half_done_the_other_finishes(
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
            decode_new(feed.lake)
        else:
            with by_spark(monkeypatch):
                decode_new(feed.lake)

    with monkeypatch.context() as patch:
        DEATHS[death](patch)
        with pytest.raises(Killed):
            decode(first)
    decode("spark" if first == "here" else "here")
    faults, log = read_table(feed.paths.quarantine), read_table(feed.paths.change_log)
    assert faults is not None
    assert log is not None
    assert faults.num_rows == 1
    statistics = change_statistics.read_statistics(feed.paths)
    assert statistics.batch == 1
    assert sum(row["rows"] for row in statistics.rows) == log.num_rows


# Reading and appending --------------------------------------------------------------------------


def append(raw: Path, number: int, values: list[bytes]) -> bool:
    batch = LandingBatch(raw=raw, number=number, landed_at=datetime.now(UTC))
    place = ("t", 0)
    records = [
        CaptureRecord(topic="t", partition=0, offset=offset, timestamp_ms=0, key=None, value=value)
        for offset, value in enumerate(values)
    ]
    return append_files(
        raw,
        write_columns([columns_of(records)], {place: (0, len(values))}, batch).files,
        RAW_SCHEMA,
        app_id="land",
        version=number,
        metadata={"batch": number},
        layout=BY_LANDING_DAY,
    )


def read(raw: Path, batch: int) -> list[bytes]:
    records = rows_of(raw, RECORD_COLUMNS, batches=(batch, batch)).read()
    return [value for record in records for value in record.column("value").to_pylist()]


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
    assert read(tmp_path / "t", 2) == []


def test_the_parts_of_a_batch_are_those_of_its_files(tmp_path: Path) -> None:
    raw = tmp_path / "t"
    append(raw, 1, [b"x" * 100] * 50)
    append(raw, 2, [bytes([number]) * 100 for number in range(50)])
    for number in (1, 2):
        rows = rows_of(raw, RECORD_COLUMNS, batches=(number, number))
        assert (rows.count, len(rows.parts())) == (50, 1)
        assert len(read(raw, number)) == 50
    assert read(raw, 3) == []
    assert read(tmp_path / "none", 1) == []


def test_a_batch_among_others_in_a_file_is_read_alone(tmp_path: Path) -> None:
    raw = tmp_path / "t"
    append(raw, 1, [b"a"])
    append(raw, 2, [b"b", b"c"])
    append(raw, 3, [b"d"])
    table = opened(raw)
    table.optimize.compact()
    assert read(raw, 2) == [b"b", b"c"]


@pytest.mark.parametrize(
    ("rows", "size", "holds"),
    [
        *((0, 0, True), (INLINE_ROWS, INLINE_BYTES, True)),
        *((INLINE_ROWS + 1, 0, None), (1, INLINE_BYTES + 1, False)),
    ],
)
def test_the_size_of_the_work_decides_where_it_runs(
    rows: int, size: int, holds: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executing, "OnSpark", lambda *_: None)
    found = executor(LazySession(), tmp_path, "trying", rows=rows, size=size)
    assert (None if found is None else found.holds) is holds


@pytest.mark.spark
@pytest.mark.parametrize("tasks", [1, 3, 99])
def test_results_are_in_the_order_of_the_parts_and_errors_come_as_they_are(
    tasks: int, spark: SparkSession, tmp_path: Path
) -> None:
    def squares(some: Iterable[int]) -> Iterator[int]:
        for number in some:
            if number > 8:
                raise SourceUnavailableError("no more", "begin anew")
            yield number * number

    for runs_on in (Inline(), OnSpark(spark, tmp_path)):
        assert runs_on.run(squares, range(9), tasks=tasks) == [n * n for n in range(9)]
        assert runs_on.run(squares, [], tasks=tasks) == []
        with pytest.raises(SourceUnavailableError, match=r"^no more; begin anew$"):
            runs_on.run(squares, range(10), tasks=tasks)


# Kafka ------------------------------------------------------------------------------------------


@pytest.mark.kafka
@pytest.mark.spark
def test_both_executors_land_the_same_records(
    broker: OwnBroker,
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
            headers=[("h", b"1"), ("n", None)] if number == 3 else None,
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
        patch.setattr(executing, "OnSpark", None)
        landed = land(Lake(changefeed=changefeed, paths=here, session=spark))
    with by_spark(monkeypatch):
        assert land(Lake(changefeed=changefeed, paths=there, session=spark)) == landed
    assert_same_table(here.raw_messages, there.raw_messages)
    rows = read_table(here.raw_messages)
    assert rows is not None
    assert rows.num_rows == 42
    found = [value for value in rows.column("headers").to_pylist() if value is not None]
    assert found == [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}]]
    _check_isolation(source, topic, spark, tmp_path)


def _check_isolation(source: KafkaSource, topic: str, spark: SparkSession, folder: Path) -> None:
    """Land what is committed only: what was aborted, and what is still open, is not there."""
    options = {
        **source.options,
        "isolation.level": OptionValue(value="read_committed", shown="read_committed"),
    }
    committed = replace(source, options=options)
    changefeed = Changefeed(name="feed", wire_format="open", timezone="UTC", source=committed)
    paths = LakePaths(root=folder / "committed", changefeed="feed")
    writer = Producer(
        {"bootstrap.servers": source.bootstrap_servers, "transactional.id": f"{topic}-open"}
    )
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(topic, value=b"open", partition=1)
    writer.flush()
    assert land(Lake(changefeed=changefeed, paths=paths, session=spark)).backlog == 0
    writer.commit_transaction(30)
    land(Lake(changefeed=changefeed, paths=paths, session=spark))
    rows = read_table(paths.raw_messages)
    assert rows is not None
    told = [value for value in rows.column("value").to_pylist() if value in TRANSACTIONS]
    assert sorted(told) == [b"kept: True", b"open"]


TRANSACTIONS = (b"kept: True", b"kept: False", b"open")
