"""Feeds that are odd: what is missing, late, damaged, keyless, wide or strangely named."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import SourceUnavailableError
from ticdc_assets.config import TableChoice
from ticdc_assets.delta.control import read_rows, read_table
from ticdc_assets.demo.simulator.alterations import AddColumn, ModifyColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.model.events import Bootstrap
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets_tests.demo.simulator.builders import (
    all_types_upstream,
    churn,
    fill,
    keyless_upstream,
    odd_names_upstream,
    upstream_of,
    wide_upstream,
)
from ticdc_assets_tests.demo.simulator.partitions import Method, Partition, Partitioning
from ticdc_assets_tests.demo.simulator.variants import Variant, each_format
from ticdc_assets_tests.golden import events_of
from ticdc_assets_tests.lake.feeds import Feed, truth_rows
from ticdc_assets_tests.repair.test_retention import an_insert

pytestmark = pytest.mark.spark


COLUMNS: Final = (
    column("id", "bigint", nullable=False),
    column("v", "varchar(20)"),
    column("n", "int"),
)

BY_ID: Final = Partitioning(
    method=Method.RANGE,
    column="id",
    partitions=(Partition(name="p0", below=0), Partition(name="p1", below=None)),
)


def small_upstream(rows: int = 12) -> Upstream:
    return upstream_of(("d", "t"), COLUMNS, primary_key=("id",), rows=rows)


def test_a_source_without_records(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed.of(spark, tmp_path, partitions={"shop": 2})
    with pytest.raises(SourceUnavailableError, match="capture"):
        feed.sync()
    feed.write([])
    applying = feed.sync()
    assert applying.outcome is Outcome.WAITING
    assert applying.reason == "no watermark yet from shop/0, shop/1"
    assert feed.listed() == []


def test_a_table_without_a_key_is_a_bag(feed: Feed) -> None:
    upstream = keyless_upstream()
    changefeed = StandInChangefeed(
        upstream, "log", partitions=2, options=FeedOptions(force_replicate=True)
    )
    feed.follow_to_truth(changefeed)
    checkpoint = changefeed.watermark_ts
    churn(upstream, steps=15, seed=9)
    records = list(changefeed.tick())
    alike = Counter(item.value for item in records)
    late = an_insert([item for item in records if alike[item.value] == 1], "lines")
    feed.write(item for item in records if item is not late)
    feed.sync()
    # What comes late is behind a watermark too, and is no replay.
    feed.write([changefeed.inject(late.partition, key=late.key, value=late.value)])
    feed.follow(changefeed)
    assert feed.cut.late == 1
    feed.require_truth(changefeed)
    changefeed.restart(checkpoint)
    feed.follow_to_truth(changefeed)
    assert feed.cut.replays > 0
    feed.sync(refold={("log", "lines")})
    feed.require_truth(changefeed)
    listing = {item.table: item for item in feed.listed()}
    assert listing["lines"].key == []
    assert any("bag" in caveat for caveat in listing["lines"].status.caveats)
    assert listing["keyed"].key == ["id"]


@pytest.mark.parametrize(
    "make",
    [
        wide_upstream,
        odd_names_upstream,
        # By day golden messages have a column of each type.
        pytest.param(all_types_upstream, marks=pytest.mark.slow),
    ],
    ids=lambda make: make.__name__,
)
def test_wide_odd_and_all_types(make, feed: Feed) -> None:
    upstream = make()
    changefeed = StandInChangefeed(upstream, "odd", partitions=2)
    feed.follow_to_truth(changefeed)
    churn(upstream, steps=20, seed=5)
    feed.follow_to_truth(changefeed)
    inside = feed.paths.base.resolve()
    for mirror in feed.cut.mirrors:
        assert mirror.path(feed.paths).resolve().is_relative_to(inside)
    # Half a second each; every name and column was read above, without Spark.
    for mirror in feed.cut.mirrors[::4]:
        frame = feed.read(mirror.database, mirror.table)
        assert frame.count() == mirror.rows


@pytest.mark.parametrize("any_size", ["small", "large"], indirect=True)
@pytest.mark.usefixtures("any_size")
def test_odd_columns_come_and_change_later(feed: Feed) -> None:
    """A table gets its first DATETIME, and columns whose names are syntax elsewhere."""
    upstream = upstream_of(
        ("d", "t"),
        (
            column("id", "bigint", nullable=False),
            column("a.b", "varchar(20)"),
            column("y`z", "int"),
        ),
        primary_key=("id",),
        rows=5,
    )
    changefeed = StandInChangefeed(upstream, "shop", partitions=1)
    feed.follow(changefeed)
    for action in (
        AddColumn(column=column("when.`it` was", "datetime(3)", default="2024-01-02 03:04:05.678")),
        ModifyColumn(name="y`z", column=column("y`z", "varchar(20)")),
    ):
        upstream.alter_table(("d", "t"), action)
        churn(upstream, steps=5, seed=2)
        feed.follow_to_truth(changefeed)
    assert feed.rows_as_of(feed.cut.tso - 1) == truth_rows(changefeed.truth(feed.cut.tso - 1))


def write_with_a_misfit(feed: Feed, changefeed: StandInChangefeed) -> tuple[CaptureRecord, str]:
    """Write the next records, one of them with "12;4" in an INT column.

    Returns:
        This record as it was, and the right value.
    """
    records = list(changefeed.tick())
    position, victim = next(
        (number, record)
        for number, record in enumerate(records)
        if b'"INSERT"' in (record.value or b"") and b'"n":"' in (record.value or b"")
    )
    message = json.loads(victim.value or b"")
    right = message["data"]["n"]
    message["data"]["n"] = "12;4"
    records[position] = replace(victim, value=json.dumps(message).encode())
    feed.write(records)
    return victim, right


def test_a_row_whose_value_does_not_fit_is_quarantined_alone(feed: Feed) -> None:
    upstream = small_upstream()
    changefeed = StandInChangefeed(upstream, "shop", partitions=1)
    feed = feed.having(history=TableChoice(("d.*",)))
    victim, _ = write_with_a_misfit(feed, changefeed)
    feed.sync()
    (fault,) = read_quarantine(feed.paths)
    assert (fault["stage"], fault["partition"], fault["offset"]) == ("apply", 0, victim.offset)
    assert fault["position"] == "after.n"
    assert "12;4" in fault["got"]
    (mirror,) = feed.cut.mirrors
    assert mirror.incomplete
    assert mirror.quarantined == 1
    # Neither has the row, and no column of it is NULL instead of unknown.
    assert (mirror.history_rows, mirror.history_unread) == (mirror.rows, 1)
    wanted = truth_rows(changefeed.truth())
    assert sum((wanted["d", "t"] - feed.rows()["d", "t"]).values()) == 1
    feed.sync(refold={("d", "t")})
    assert len(read_quarantine(feed.paths)) == 1
    (mirror,) = feed.cut.mirrors
    assert (mirror.quarantined, mirror.history_unread) == (1, 1)


def test_a_quarantined_row_belongs_to_its_table_whatever_that_is_called_now(feed: Feed) -> None:
    """The table is renamed, and another one has its name."""
    table, renamed = ("d", "t"), ("d", "renamed")
    upstream = small_upstream(rows=4)
    changefeed = StandInChangefeed(upstream, "shop", partitions=1)
    _, right = write_with_a_misfit(feed, changefeed)
    feed.sync()
    upstream.rename_table(table, renamed)
    upstream.create_table(table, (column("id", "bigint", nullable=False),), primary_key=("id",))
    fill(upstream, table, rows=2)
    feed.follow(changefeed)
    feed.sync(refold=[table])
    assert len(read_quarantine(feed.paths)) == 1

    # It is understood now: in place of a fix the change log gets another text.
    log = read_table(feed.paths.change_log)
    assert log is not None
    rows = log.to_pylist()
    for row in rows:
        row["after"] = row["after"] and row["after"].replace("12;4", right)
    write_deltalake(
        str(feed.paths.change_log), pa.Table.from_pylist(rows, schema=log.schema), mode="overwrite"
    )
    feed.sync(refold_quarantined=True)
    assert {item.table: (item.mode, item.quarantined) for item in feed.cut.mirrors} == {
        "renamed": ("fold", 0),
        "t": ("carried", 0),
    }
    assert read_quarantine(feed.paths) == []
    feed.require_truth(changefeed)


@pytest.mark.parametrize("partitioning", [None, BY_ID], ids=["whole", "partitioned"])
@each_format("simple-json", "simple-avro")
def test_bootstraps_with_the_database_before_a_rename_are_the_tables(
    spark: SparkSession, tmp_path: Path, variant: Variant, partitioning: Partitioning | None
) -> None:
    """TiCDC goes on sending them, and nothing of before the RENAME was landed."""
    upstream = Upstream()
    upstream.create_database("d")
    upstream.create_table(("d", "t"), COLUMNS, primary_key=("id",), partitioning=partitioning)
    fill(upstream, ("d", "t"), rows=12)
    upstream.create_database("e")
    changefeed = variant.changefeed(upstream, partitions=1)
    bootstraps = [
        record
        for record in changefeed.tick()
        if any(
            isinstance(event, Bootstrap) for _, event in events_of([record], variant.wire_format)
        )
    ]
    upstream.rename_table(("d", "t"), ("e", "t"))
    list(changefeed.tick())
    with upstream.transaction() as transaction:
        key = transaction.insert(("e", "t"), {"id": "-1", "v": "since", "n": "1"})
    records = [*bootstraps, *changefeed.tick()]
    feed = Feed.of(spark, tmp_path, wire_format=variant.wire_format)
    feed.write(replace(record, offset=number) for number, record in enumerate(records))
    feed.sync()
    assert feed.cut.held == ()
    assert feed.rows() == truth_rows({("e", "t"): {key: upstream.rows(("e", "t"))[key]}})
    # The table of the name before is another one.
    assert [mirror.database for mirror in feed.cut.mirrors] == ["e"]


def test_rows_wait_for_their_schema_and_take_their_place(feed: Feed) -> None:
    """The schema comes after a cut, between changes of a row: the last change still wins."""
    upstream = small_upstream()
    changefeed = StandInChangefeed(
        upstream, "shop", partitions=2, options=FeedOptions(bootstraps=False)
    )
    records = list(changefeed.tick())
    schemas = [item for item in records if b'"tableSchema"' in (item.value or b"")]
    watermark = json.dumps({"version": 1, "type": "WATERMARK", "commitTs": 1, "buildTs": 1})
    feed.write(
        replace(item, value=watermark.encode()) if item in schemas else item for item in records
    )
    feed.sync()
    (waiting,) = feed.cut.held
    assert (waiting.database, waiting.table, waiting.mirror_id) == ("d", "t", None)
    assert waiting.rows == sum(b'"INSERT"' in (item.value or b"") for item in records)
    assert not feed.cut.mirrors
    churn(upstream, steps=10, seed=8)
    later = list(changefeed.tick())
    late_schemas = [
        replace(item, offset=changefeed.inject(item.partition, key=None, value=b"").offset)
        for item in schemas
    ]
    feed.write([*later, *late_schemas])
    feed.sync()
    assert not feed.cut.held
    feed.require_truth(changefeed)


def test_a_late_row_takes_its_place_and_a_replay_changes_nothing(feed: Feed) -> None:
    upstream = small_upstream()
    changefeed = StandInChangefeed(upstream, "shop", partitions=1)
    records = list(changefeed.tick())
    rows = [item for item in records if b'"INSERT"' in (item.value or b"")]
    kept_back = rows[3]
    watermark = next(item for item in records if b"WATERMARK" in (item.value or b""))
    feed.write(
        replace(item, value=watermark.value) if item is kept_back else item for item in records
    )
    feed.sync()
    assert sum(feed.rows()["d", "t"].values()) == len(rows) - 1
    again = changefeed.inject(0, key=kept_back.key, value=kept_back.value)
    replay = changefeed.inject(0, key=rows[0].key, value=rows[0].value)
    feed.write([again, replay])
    feed.sync()
    assert (feed.cut.late, feed.cut.replays) == (1, 1)
    feed.require_truth(changefeed)


def test_two_structures_for_one_version_are_reported(feed: Feed) -> None:
    upstream = small_upstream()
    changefeed = StandInChangefeed(upstream, "shop", partitions=1)
    records = list(changefeed.tick())
    bootstrap = next(item for item in records if b'"BOOTSTRAP"' in (item.value or b""))
    other = json.loads(bootstrap.value or b"")
    other["tableSchema"]["columns"][2]["dataType"]["mysqlType"] = "bigint"
    feed.write([*records, changefeed.inject(0, key=None, value=json.dumps(other).encode())])
    feed.sync()
    (conflict,) = read_rows(feed.paths.schema_conflicts)
    assert (conflict["database"], conflict["table"]) == ("d", "t")
    assert conflict["registered_source"] == "DDL tableSchema"
    assert '"bigint"' in conflict["claimed"]
    feed.require_truth(changefeed)


@pytest.mark.usefixtures("any_size")
def test_what_a_typed_column_cannot_hold_stands_exactly_beside_it(feed: Feed) -> None:
    """Zero dates, also in the key: NULL in the typed column, exact text in the rescued data."""
    name = ("d", "dates")
    upstream = upstream_of(
        name,
        (
            column("day", "date", nullable=False),
            column("at", "datetime(3)"),
            column("n", "bigint unsigned"),
        ),
        primary_key=("day",),
    )
    keys = ("0000-00-00", "2024-00-10", "2024-02-10")
    with upstream.transaction() as transaction:
        for day in keys:
            transaction.insert(name, {"day": day, "at": "0000-00-00 00:00:00.000", "n": "1"})
    changefeed = StandInChangefeed(upstream, "d", partitions=1)
    feed.follow_to_truth(changefeed)
    with upstream.transaction() as transaction:
        transaction.update(name, (keys[0],), changes={"n": str(2**64 - 1)})
        transaction.delete(name, (keys[1],))
    feed.follow_to_truth(changefeed)
    assert feed.cut.mirrors[0].unknown_deletes == 0
    frame = feed.read(*name)
    assert dict(frame.dtypes) == {
        "day": "date",
        "at": "timestamp_ntz",
        "n": "decimal(20,0)",
        "_ticdc_commit_ts": "bigint",
        "_rescued_data": "map<string,string>",
    }
    (zero,) = frame.where("day is null").collect()
    assert zero["_rescued_data"] == {"day": "0000-00-00", "at": "0000-00-00 00:00:00.000"}
    assert zero["n"] == 2**64 - 1
