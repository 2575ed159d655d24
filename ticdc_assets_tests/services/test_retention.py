"""Retention: truncating below a base cut changes no row, no later sync and no older moment."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from ticdc_assets.capture import CaptureRecord
from ticdc_assets.config import CaptureSource, Changefeed, Retention, Writer
from ticdc_assets.engine.control import read_table
from ticdc_assets.engine.fencing import guarded
from ticdc_assets.engine.lock import writer_lock
from ticdc_assets.engine.paths import FIRST_GENERATION
from ticdc_assets.errors import LeaseLostError, NotFoundError
from ticdc_assets.pipeline.cuts import Cut, read_cuts
from ticdc_assets.pipeline.decoding import decode_new
from ticdc_assets.pipeline.positions import read_position
from ticdc_assets.pipeline.publishing import publish
from ticdc_assets.pipeline.quarantine import (
    FAULT_SCHEMA,
    Closing,
    append_faults,
    close_rows,
    place_of,
    read_quarantine,
)
from ticdc_assets.pipeline.truncation_points import (
    TruncationPoint,
    caveat_below,
    has_lost_records,
    is_told_below,
    read_raw_truncation_point,
    read_truncation_point,
)
from ticdc_assets.reading.as_of import AsOf
from ticdc_assets.services import redriving, retention
from ticdc_assets.services.kept_cuts import kept_cuts
from ticdc_assets.services.redriving import redrive
from ticdc_assets.services.retention import retain
from ticdc_assets.services.rewinding import rewind
from ticdc_assets.services.verifying import verify
from ticdc_assets.simulator.alterations import AddColumn, AddPrimaryKey
from ticdc_assets.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.simulator.columns import column
from ticdc_assets.simulator.upstream import Upstream
from ticdc_assets.wire.compression import Compression
from ticdc_assets_tests.golden import Rows
from ticdc_assets_tests.lake.feeds import Feed, truth_rows
from ticdc_assets_tests.pipeline.test_failed_mirrors import citing
from ticdc_assets_tests.simulator.builders import churn, fill

DAY = timedelta(days=1)
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
FEED = Changefeed(
    name="feed",
    wire_format="simple-json",
    timezone="UTC",
    source=CaptureSource(path=Path("/nowhere")),
)


# Which cuts are kept ----------------------------------------------------------------------------


def cut_at(number: int, published_at: datetime, *, late: int = 0) -> Cut:
    """A cut without mirrors."""
    return Cut(
        generation=FIRST_GENERATION,
        number=number,
        tso=number,
        published_at=published_at,
        batch=number,
        mirrors=(),
        held=(),
        quarantined=0,
        replays=0,
        late=late,
        steps_back=0,
        ignored={},
    )


def kept(
    cuts: Sequence[Cut], ages: Retention, now: datetime, *, base: int = 0, raw_base: int = 0
) -> list[int]:
    truncation_points = [
        TruncationPoint(cut=next((cut for cut in cuts if cut.number == number), None))
        for number in (base, raw_base)
    ]
    feed = replace(FEED, retention=ages)
    found = kept_cuts(
        cuts,
        feed,
        now,
        truncation_point=truncation_points[0],
        raw_truncation_point=truncation_points[1],
    )
    return [cut.number for cut in found]


def test_cuts_go_by_their_age_but_for_the_newest() -> None:
    cuts = [cut_at(number, START + number * DAY) for number in range(1, 6)]
    assert kept(cuts, Retention(cuts=None), START + 99 * DAY) == [1, 2, 3, 4, 5]
    assert kept(cuts, Retention(cuts=3 * DAY), START + 6 * DAY) == [4, 5]
    assert kept(cuts, Retention(cuts=3 * DAY), START + 99 * DAY) == [5]


def test_cuts_older_than_a_day_are_thinned_to_one_an_hour() -> None:
    minutes = [START + number * timedelta(minutes=20) for number in range(1, 13)]
    cuts = [cut_at(number, at, late=number == 4) for number, at in enumerate(minutes, 1)]
    ages = Retention(cuts=9 * DAY)
    assert kept(cuts, ages, START + DAY) == list(range(1, 13))
    # The newest of each hour, and the one that says that rows came late.
    hours = sorted({(number * 20) // 60: number for number in range(1, 13)}.values())
    assert kept(cuts, ages, START + 2 * DAY) == sorted({*hours, 4})
    assert kept(cuts, Retention(cuts=None), START + 2 * DAY) == list(range(1, 13))


def test_bases_and_what_may_become_one_are_kept() -> None:
    hours = [START + number * timedelta(hours=3) for number in range(9)]
    cuts = [cut_at(number, at, late=number == 2) for number, at in enumerate(hours, 1)]
    ages = Retention(cuts=DAY, change_log=9 * DAY)
    # The newest of each day, and the one that says that rows came late.
    assert kept(cuts, ages, START + 5 * DAY) == [2, 4, 9]
    assert kept(cuts, ages, START + 5 * DAY, base=1) == [1, 2, 4, 9]
    assert kept(cuts, ages, START + 5 * DAY, base=4) == [4, 9]
    assert kept(cuts, ages, START + 5 * DAY, base=4, raw_base=3) == [3, 4, 9]
    ages = Retention(cuts=DAY, change_log=9 * DAY, raw_messages=9 * DAY)
    assert kept(cuts, ages, START + 5 * DAY, base=4, raw_base=3) == [3, 4, 9]


# With Spark -------------------------------------------------------------------------------------

KEYED, BAG = ("d", "keyed"), ("d", "bag")


def keeping(feed: Feed, ages: Retention) -> Feed:
    return replace(feed, changefeed=replace(feed.changefeed, retention=ages))


def truncated(feed: Feed, cut: Cut) -> retention.Retaining:
    """Retain at the moment at which `cut` is the newest that is old enough."""
    return retain(feed.spark, feed.paths, feed.changefeed, now=cut.published_at + DAY)


def keyed_upstream() -> tuple[Upstream, StandInChangefeed]:
    """An upstream with one small table, and its changefeed over one partition."""
    upstream = Upstream()
    upstream.create_database("d")
    columns = (column("id", "int", nullable=False), column("v", "varchar(20)"))
    upstream.create_table(KEYED, columns, primary_key=("id",))
    fill(upstream, KEYED, rows=6)
    return upstream, StandInChangefeed(upstream, "d", partitions=1)


def keyed_beyond_base(
    spark: SparkSession, tmp_path: Path, retention: Retention
) -> tuple[Upstream, Feed, Cut]:
    """Return an upstream, its feed, and a cut of it; a newer cut has one row more."""
    upstream, changefeed = keyed_upstream()
    feed = keeping(Feed.of(spark, tmp_path), retention)
    feed.write(changefeed.tick())
    feed.sync()
    base = feed.cut
    fill(upstream, KEYED, rows=1, seed=5)
    feed.write(changefeed.tick())
    feed.sync()
    return upstream, feed, base


def sent_later(
    changefeed: StandInChangefeed, records: Iterable[CaptureRecord]
) -> list[CaptureRecord]:
    """Return records at offsets behind all others."""
    return [
        replace(item, offset=changefeed.inject(0, key=None, value=b"").offset) for item in records
    ]


def an_insert(records: Sequence[CaptureRecord], table: str = "keyed") -> CaptureRecord:
    """Return the first record that inserts a row of a table."""
    name = f'"{table}"'.encode()
    return next(
        item
        for item in records
        if item.value is not None and name in item.value and b'"INSERT"' in item.value
    )


def synced_without_an_insert(feed: Feed, changefeed: StandInChangefeed) -> CaptureRecord:
    """Sync what a changefeed sends, but for one inserted row; return its record, which is late."""
    records = list(changefeed.tick())
    late = an_insert(records)
    feed.write([without(item) if item is late else item for item in records])
    feed.sync()
    return late


def in_lz4(record: CaptureRecord) -> CaptureRecord:
    """Return a record that a changefeed without compression refuses."""
    return replace(record, value=pa.compress(record.value, codec="lz4", asbytes=True))


def log_rows(feed: Feed, condition: ds.Expression) -> list[dict[str, Any]]:
    rows = read_table(
        feed.paths.change_log, condition, columns=["batch", "kind", "table", "commit_ts", "offset"]
    )
    assert rows is not None
    return rows.to_pylist()


@pytest.mark.spark
def test_truncating_changes_nothing_that_is_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = Upstream()
    upstream.create_database("d")
    columns = (column("id", "int", nullable=False), column("v", "varchar(20)"))
    upstream.create_table(KEYED, columns, primary_key=("id",))
    upstream.create_table(BAG, columns)
    options = FeedOptions(force_replicate=True)
    changefeed = StandInChangefeed(upstream, "d", partitions=2, options=options)
    feed = keeping(
        Feed.of(spark, tmp_path),
        Retention(raw_messages=DAY, change_log=DAY, cuts=timedelta(days=9)),
    )
    moments: list[int] = []
    for seed in range(3):
        fill(upstream, KEYED, rows=4, seed=seed)
        churn(upstream, steps=12, seed=seed)
        if seed == 2:
            upstream.alter_table(
                KEYED, AddColumn(column=column("n", "int", nullable=False, default="7"))
            )
        feed.write(changefeed.tick())
        feed.sync()
        moments.append(feed.cut.tso)
    first, base, *_ = read_cuts(feed.paths)
    stamps = [
        row["commit_ts"]
        for row in log_rows(feed, (ds.field("kind") == "row") & (ds.field("commit_ts") > base.tso))
    ]
    moments = [base.tso, random.Random(3).choice(stamps)]
    before = {tso: feed.rows_as_of(tso) for tso in moments}
    truth = truth_rows(changefeed.truth())
    position = read_position(feed.paths)

    # A run that dies between the change log and the raw messages leaves nothing half done.
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(retention._CutOff, "truncate_raw_messages", die)
        with pytest.raises(KeyboardInterrupt):
            truncated(feed, base)
    assert (read_truncation_point(feed.paths).cut, read_raw_truncation_point(feed.paths).cut) == (
        base,
        None,
    )
    done = truncated(feed, base)
    assert done.changes == 0
    assert done.records > 0
    assert done.notes == ()
    assert (
        read_truncation_point(feed.paths)
        == read_raw_truncation_point(feed.paths)
        == done.raw_truncation_point
    )
    assert not log_rows(feed, (ds.field("kind") == "row") & (ds.field("commit_ts") <= base.tso))
    assert read_position(feed.paths) == position

    assert feed.rows() == truth
    assert {tso: feed.rows_as_of(tso) for tso in moments} == before
    with pytest.raises(NotFoundError, match=f"oldest that can be read is {base.tso}"):
        feed.rows_as_of(base.tso - 1)
    feed.sync(refold={KEYED, BAG})
    assert feed.rows() == truth
    assert [mirror.mode for mirror in feed.cut.mirrors] == ["fold", "fold"]
    assert not any(is_told_below(item.caveats) for item in feed.cut.mirrors)

    # What is sent again from below is not applied but counted; what is new is applied.
    changefeed.restart(first.tso)
    churn(upstream, steps=6, seed=8)
    feed.write(changefeed.tick())
    feed.sync()
    assert feed.cut.unplaced > 0
    assert feed.rows() == truth_rows(changefeed.truth())
    feed.sync(refold={KEYED, BAG})
    assert feed.rows() == truth_rows(changefeed.truth())


@pytest.mark.spark
def test_what_the_base_lacks_stays_until_it_can_be_applied(
    spark: SparkSession, tmp_path: Path
) -> None:
    upstream = Upstream()
    upstream.create_database("d")
    columns = (column("id", "int", nullable=False), column("v", "varchar(20)"))
    waiting = ("d", "waiting")
    for name in (KEYED, waiting):
        upstream.create_table(name, columns, primary_key=("id",))
        fill(upstream, name, rows=6)
    options = FeedOptions(bootstraps=False)
    changefeed = StandInChangefeed(upstream, "d", partitions=1, options=options)
    records = list(changefeed.tick())
    is_schema = [
        b'"tableSchema"' in (item.value or b"") and b'"waiting"' in (item.value or b"")
        for item in records
    ]
    (schema,) = (item for item, found in zip(records, is_schema, strict=True) if found)
    refused = an_insert(records)
    feed = keeping(
        Feed.of(spark, tmp_path), Retention(raw_messages=DAY, change_log=DAY, cuts=9 * DAY)
    )
    feed.write(
        [
            without(item) if item is schema else in_lz4(item) if item is refused else item
            for item in records
        ]
    )
    feed.sync()
    base = feed.cut
    assert (base.held[0].rows, base.quarantined) == (len(upstream.rows(waiting)), 1)
    fill(upstream, KEYED, rows=2, seed=5)
    feed.write(changefeed.tick())
    feed.sync()
    done = truncated(feed, base)
    assert min(done.changes, done.records) > 0
    below = (ds.field("kind") == "row") & (ds.field("commit_ts") <= base.tso)
    assert {row["table"] for row in log_rows(feed, below)} == {"waiting"}
    raw = read_table(feed.paths.raw_messages, columns=["offset"])
    assert raw is not None
    assert refused.offset in raw.column("offset").to_pylist()
    assert [row["offset"] for row in read_quarantine(feed.paths)] == [refused.offset]

    # The schema comes, from below the truncation point.
    feed.write(sent_later(changefeed, [schema]))
    feed.sync()
    wanted: Rows = truth_rows(changefeed.truth())
    assert feed.rows()[waiting] == wanted[waiting]
    assert not feed.cut.held
    assert verify(spark, feed.paths, feed.changefeed).equal
    assert not any(is_told_below(item.caveats) for item in feed.cut.mirrors)

    # A fix comes, too: what became of the row since is in the base alone, so its mirror says so.
    fixed = replace(feed.changefeed, compression=Compression.LZ4)
    assert redrive(spark, feed.paths, fixed).decoded == 1
    feed.sync()
    assert (feed.cut.late, feed.cut.unplaced) == (1, 0)
    assert feed.rows() == wanted
    marked = {item.table: item.caveats for item in feed.cut.mirrors}
    assert marked["waiting"] == []
    assert marked["keyed"] == [caveat_below(base.tso)]
    fill(upstream, KEYED, rows=1, seed=9)
    feed.write(changefeed.tick())
    feed.sync()
    assert feed.cut.mirror(*KEYED) is not None
    assert feed.rows() == truth_rows(changefeed.truth())


@pytest.mark.spark
def test_a_cut_that_repeats_one_without_a_redriven_change_is_no_base(
    spark: SparkSession, tmp_path: Path
) -> None:
    upstream = Upstream()
    upstream.create_database("d")
    upstream.create_table(KEYED, (column("id", "int", nullable=False),), primary_key=("id",))
    fill(upstream, KEYED, rows=6)
    changefeed = StandInChangefeed(upstream, "d", partitions=1)
    feed = keeping(Feed.of(spark, tmp_path), Retention(change_log=DAY, cuts=9 * DAY))
    feed.write(changefeed.tick())
    feed.sync()
    fault = dict.fromkeys(FAULT_SCHEMA.names) | {
        "stage": "apply",
        "topic": "d",
        "partition": 0,
        "offset": 1,
        "index": 0,
        "commit_ts": feed.cut.tso,
    }
    rows = pa.Table.from_pylist([fault], schema=FAULT_SCHEMA)
    append_faults(feed.paths, [rows], app_id="test")
    close_rows(feed.paths, "apply", [place_of(fault)], Closing.REDRIVE)
    # As maintenance does before the redriven change is in a mirror.
    publish(feed.paths, feed.cut.again(feed.cut))
    done = truncated(feed, feed.cut)
    assert done.changes == 0
    assert done.notes == (
        "change_log is not truncated further: cut 2 cannot be a base cut: row changes that it had "
        "in quarantine were redriven since",
    )


@pytest.mark.spark
def test_rows_held_for_the_version_of_another_table_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One table gets the name of another, and a later row of that name cites the other one."""
    upstream, changefeed = keyed_upstream()
    other = ("d", "other")
    upstream.create_table(other, (column("id", "int", nullable=False),), primary_key=("id",))
    fill(upstream, other, rows=4)
    feed = keeping(Feed.of(spark, tmp_path), Retention(raw_messages=DAY, change_log=DAY))
    feed.write(changefeed.tick())
    feed.sync()
    was = feed.cut.mirror(*KEYED)
    assert was is not None
    upstream.rename_tables([(KEYED, ("d", "old")), (other, KEYED)])
    fill(upstream, KEYED, rows=1, seed=3)
    records = list(changefeed.tick())
    stray = an_insert(records)
    version, table_id = was.table_schema.version, was.table_id
    cited = citing(stray, "keyed", version, table_id=table_id)
    feed.write(cited if item is stray else item for item in records)
    feed.sync()
    assert [(item.table, item.rows) for item in feed.cut.held] == [("keyed", 1)]
    done = truncated(feed, feed.cut)
    assert min(done.changes, done.records) > 0
    assert [row["offset"] for row in log_rows(feed, ds.field("kind") == "row")] == [stray.offset]
    raw = read_table(feed.paths.raw_messages, columns=["offset"])
    assert raw is not None
    assert stray.offset in raw.column("offset").to_pylist()
    assert verify(spark, feed.paths, feed.changefeed).equal


@pytest.mark.spark
def test_a_base_is_chosen_before_the_rows_that_tell_against_it_are_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Both tables are truncated, the change log further; a row came late to the older cut."""
    upstream, changefeed = keyed_upstream()
    feed = keeping(Feed.of(spark, tmp_path), Retention())
    late = synced_without_an_insert(feed, changefeed)
    older = feed.cut
    feed.write(sent_later(changefeed, [late]))
    fill(upstream, KEYED, rows=2, seed=5)
    feed.write(changefeed.tick())
    feed.sync()
    newer = feed.cut
    assert newer.late == 1
    between = newer.published_at - older.published_at
    done = truncated(keeping(feed, Retention(change_log=DAY, raw_messages=DAY + between)), newer)
    assert done.truncation_point.cut == newer
    assert done.records == 0
    assert done.notes == (
        "raw_messages is not truncated further: cut 1 cannot be a base cut: rows came late to it",
    )


@pytest.mark.spark
@pytest.mark.parametrize("how", ["a sync that was killed", "a rewind"])
def test_no_cut_is_a_base_below_rows_that_no_cut_has(
    how: str, spark: SparkSession, tmp_path: Path
) -> None:
    """A row came late, and the cut that would tell it is not made yet, or is void."""
    _, changefeed = keyed_upstream()
    feed = keeping(Feed.of(spark, tmp_path), Retention(change_log=DAY, raw_messages=DAY))
    late = synced_without_an_insert(feed, changefeed)
    older = feed.cut
    feed.write(sent_later(changefeed, [late]))
    if how == "a rewind":
        feed.sync()
        assert feed.cut.late == 1
        rewind(spark, feed.paths, feed.changefeed, by="test", number=older.number)
    else:
        feed.land()
        decode_new(spark, feed.paths, feed.changefeed)
    done = truncated(feed, feed.cut)
    assert (done.changes, done.records) == (0, 0)
    for table, note in zip(("change_log", "raw_messages"), done.notes, strict=True):
        assert note.startswith(f"{table} is not truncated further: ")
        assert note.endswith("cannot be a base cut: rows came late to it")
    feed.sync()
    assert feed.rows() == truth_rows(changefeed.truth())


@pytest.mark.spark
def test_nothing_is_truncated_while_what_landed_waits_to_be_decoded(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Some of it may have come late, and nothing tells that before it is decoded."""
    _, changefeed = keyed_upstream()
    feed = keeping(Feed.of(spark, tmp_path), Retention(change_log=DAY, raw_messages=DAY))
    late = synced_without_an_insert(feed, changefeed)
    feed.write(sent_later(changefeed, [late]))
    feed.land()
    done = truncated(feed, feed.cut)
    assert (done.changes, done.records) == (0, 0)
    assert done.notes == ("nothing is truncated: a sync must first finish a killed run",)
    feed.sync()
    assert feed.rows() == truth_rows(changefeed.truth())


@pytest.mark.spark
def test_a_killed_redrive_behind_a_truncation_loses_no_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is in the change log, its record still open in quarantine: a sync applies it."""
    _, changefeed = keyed_upstream()
    records = list(changefeed.tick())
    refused = an_insert(records)
    feed = keeping(Feed.of(spark, tmp_path), Retention(change_log=DAY))
    feed.write([in_lz4(item) if item is refused else item for item in records])
    feed.sync()
    assert truncated(feed, feed.cut).changes > 0
    fixed = replace(feed.changefeed, compression=Compression.LZ4)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(redriving, "close_rows", die)
        with pytest.raises(KeyboardInterrupt):
            redrive(spark, feed.paths, fixed)
    assert [row["offset"] for row in read_quarantine(feed.paths)] == [refused.offset]
    feed.sync()
    assert (feed.cut.late, feed.cut.unplaced) == (1, 0)
    assert feed.rows() == truth_rows(changefeed.truth())
    redrive(spark, feed.paths, fixed)
    assert read_quarantine(feed.paths) == []


def bag_upstream(*, bootstraps: bool = True) -> tuple[Upstream, StandInChangefeed]:
    """An upstream with one small table without a key, and its changefeed over one partition."""
    upstream = Upstream()
    upstream.create_database("d")
    upstream.create_table(BAG, (column("id", "int", nullable=False), column("v", "varchar(20)")))
    fill(upstream, BAG, rows=3)
    options = FeedOptions(bootstraps=bootstraps, force_replicate=True)
    return upstream, StandInChangefeed(upstream, "d", partitions=1, options=options)


@pytest.mark.spark
def test_a_rebuild_takes_rows_without_a_key_that_the_base_holds(
    spark: SparkSession, tmp_path: Path
) -> None:
    upstream, changefeed = bag_upstream(bootstraps=False)
    feed = keeping(Feed.of(spark, tmp_path), Retention(raw_messages=DAY))
    feed.write(changefeed.tick())
    upstream.alter_table(BAG, AddColumn(column=column("a", "int", default="1")))
    fill(upstream, BAG, rows=3, seed=4)
    records = list(changefeed.tick())
    schema = next(item for item in records if b'"tableSchema"' in (item.value or b""))
    feed.write(without(item) if item is schema else item for item in records)
    feed.sync()
    base = feed.cut
    assert [item.rows for item in base.held] == [3]
    assert truncated(feed, base).records > 0
    assert verify(spark, feed.paths, feed.changefeed).equal
    feed.write(sent_later(changefeed, [schema]))
    feed.sync()
    assert feed.rows() == truth_rows(changefeed.truth())
    assert verify(spark, feed.paths, feed.changefeed).equal


@pytest.mark.spark
def test_no_cut_is_a_base_while_rows_of_before_a_new_key_wait(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A table that got a key begins with the rows of before; some of these wait for a schema."""
    upstream, changefeed = bag_upstream(bootstraps=False)
    upstream.alter_table(BAG, AddColumn(column=column("a", "int", default="1")))
    with upstream.transaction() as transaction:
        transaction.insert(BAG, {"id": "7", "v": "late", "a": "1"})
    upstream.alter_table(BAG, AddColumn(column=column("b", "int", default="2")))
    upstream.alter_table(BAG, AddPrimaryKey(columns=("id",)))
    records = list(changefeed.tick())
    late = [item for item in records if item.value is not None and b"ADD COLUMN" in item.value]
    assert len(late) == 2
    feed = keeping(Feed.of(spark, tmp_path), Retention(raw_messages=DAY, change_log=DAY))
    feed.write(without(item) if item in late else item for item in records)
    feed.sync()
    done = truncated(feed, feed.cut)
    assert (done.changes, done.records) == (0, 0)
    assert done.notes == tuple(
        f"{table} is not truncated further: cut 1 cannot be a base cut: changes of rows that "
        "d.bag took over wait for their schema or in quarantine"
        for table in ("change_log", "raw_messages")
    )
    feed.write(sent_later(changefeed, late))
    feed.sync()
    assert feed.rows() == truth_rows(changefeed.truth())
    assert truncated(feed, feed.cut).notes == ()
    feed.sync(refold={BAG})
    assert feed.rows() == truth_rows(changefeed.truth())


@pytest.mark.spark
def test_a_new_key_that_comes_late_marks_the_mirror_if_rows_of_before_it_wait(
    spark: SparkSession, tmp_path: Path
) -> None:
    upstream, changefeed = bag_upstream(bootstraps=False)
    upstream.alter_table(BAG, AddColumn(column=column("a", "int", default="1")))
    with upstream.transaction() as transaction:
        transaction.insert(BAG, {"id": "7", "v": "late", "a": "1"})
    upstream.alter_table(BAG, AddPrimaryKey(columns=("id",)))
    records = list(changefeed.tick())
    late = [item for item in records if item.value is not None and b"ALTER TABLE" in item.value]
    assert len(late) == 2
    feed = keeping(Feed.of(spark, tmp_path), Retention(change_log=DAY))
    feed.write(without(item) if item in late else item for item in records)
    feed.sync()
    base = feed.cut
    assert truncated(feed, base).changes > 0
    feed.write(sent_later(changefeed, late))
    feed.sync()
    assert feed.cut.mirrors[0].caveats == [caveat_below(base.tso)]


@pytest.mark.spark
def test_a_row_of_before_a_new_key_that_is_redriven_behind_a_truncation_marks_the_mirror(
    spark: SparkSession, tmp_path: Path
) -> None:
    upstream, changefeed = bag_upstream()
    upstream.alter_table(BAG, AddPrimaryKey(columns=("id",)))
    records = list(changefeed.tick())
    refused = an_insert(records, "bag")
    feed = keeping(Feed.of(spark, tmp_path), Retention(change_log=DAY))
    feed.write([in_lz4(item) if item is refused else item for item in records])
    feed.sync()
    base = feed.cut
    assert truncated(feed, base).changes > 0
    fixed = replace(feed.changefeed, compression=Compression.LZ4)
    redriving = redrive(spark, feed.paths, fixed)
    feed.sync(refold=redriving.refold)
    assert (feed.cut.late, feed.cut.unplaced) == (1, 0)
    assert feed.cut.mirrors[0].caveats == [caveat_below(base.tso)]

    # The rows that lack it count no more, but they can still be read.
    upstream.truncate_table(BAG)
    fill(upstream, BAG, rows=2, seed=7)
    feed.write(changefeed.tick())
    feed.sync()
    assert feed.cut.mirrors[0].caveats == []
    for tso, warnings in ((base.tso, (caveat_below(base.tso),)), (feed.cut.tso, ())):
        moment = AsOf(spark, feed.paths, feed.changefeed, tso)
        assert moment.table(*BAG).warnings == warnings


@pytest.mark.spark
def test_a_record_in_quarantine_stays_though_it_could_be_decoded_by_now(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The settings are corrected, maintenance runs, and only then somebody re-drives."""
    _, changefeed = keyed_upstream()
    records = list(changefeed.tick())
    refused = an_insert(records)
    feed = keeping(Feed.of(spark, tmp_path), Retention(raw_messages=DAY))
    feed.write(in_lz4(item) if item is refused else item for item in records)
    feed.sync()
    feed = replace(feed, changefeed=replace(feed.changefeed, compression=Compression.LZ4))
    # By the new settings it is the only one that can be decoded.
    assert truncated(feed, feed.cut).records == 0
    assert redrive(spark, feed.paths, feed.changefeed).decoded == 1
    feed.sync()
    assert feed.rows() == truth_rows(changefeed.truth())


@pytest.mark.spark
def test_what_is_truncated_under_a_lease_is_known_to_be_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    upstream = Upstream()
    upstream.create_database("d")
    columns = (column("id", "int", nullable=False), column("v", "varchar(20)"))
    upstream.create_table(KEYED, columns, primary_key=("id",))
    upstream.create_table(BAG, columns)
    options = FeedOptions(force_replicate=True)
    changefeed = StandInChangefeed(upstream, "d", partitions=1, options=options)
    feed = keeping(Feed.of(spark, tmp_path), Retention(raw_messages=DAY, change_log=DAY))
    with writer_lock(feed.paths, Writer(lease=timedelta(minutes=5))):
        for seed in range(2):
            fill(upstream, KEYED, rows=4, seed=seed)
            fill(upstream, BAG, rows=4, seed=seed)
            feed.write(changefeed.tick())
            feed.sync()
        base, _ = read_cuts(feed.paths)
        position = read_position(feed.paths)
        done = truncated(feed, base)
        assert min(done.changes, done.records) > 0
        assert read_truncation_point(feed.paths).cut == base
        assert read_raw_truncation_point(feed.paths).cut == base
        assert has_lost_records(feed.paths)
        assert read_position(feed.paths) == position
        feed.sync(refold={KEYED, BAG})
        assert feed.rows() == truth_rows(changefeed.truth())
        fill(upstream, BAG, rows=2, seed=7)
        feed.write(changefeed.tick())
        feed.sync()
    assert feed.rows() == truth_rows(changefeed.truth())


@dataclass
class Lease:
    """A lease that is over when it has been looked at some times."""

    looks: int
    number: int = 1

    def require(self) -> None:
        self.looks -= 1
        if self.looks < 0:
            raise LeaseLostError("it is over")


@pytest.mark.spark
def test_a_run_whose_lease_is_over_truncates_nothing(spark: SparkSession, tmp_path: Path) -> None:
    upstream = Upstream()
    upstream.create_database("d")
    columns = (column("id", "int", nullable=False), column("v", "varchar(20)"))
    upstream.create_table(KEYED, columns, primary_key=("id",))
    fill(upstream, KEYED, rows=4)
    changefeed = StandInChangefeed(upstream, "d", partitions=1)
    feed = keeping(Feed.of(spark, tmp_path), Retention(change_log=DAY))
    feed.write(changefeed.tick())
    feed.sync()
    rows = log_rows(feed, ds.scalar(True))
    # It is over between the look at which the commit gets its number, and the DELETE.
    with guarded(feed.paths.base, Lease(looks=1)), pytest.raises(LeaseLostError):
        truncated(feed, feed.cut)
    assert log_rows(feed, ds.scalar(True)) == rows
    assert read_truncation_point(feed.paths).cut is None


def without(record: CaptureRecord) -> CaptureRecord:
    """Return an empty watermark in the place of a record."""
    text = json.dumps({"version": 1, "type": "WATERMARK", "commitTs": 1, "buildTs": 1})
    return replace(record, key=None, value=text.encode())
