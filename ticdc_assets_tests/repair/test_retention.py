"""Retention: truncating below a base cut changes no row, no later sync and no older moment."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import LeaseLostError, NotFoundError
from ticdc_assets.config import Retention, TableChoice, Writer
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.control import read_rows, read_table
from ticdc_assets.delta.fencing import guarded
from ticdc_assets.delta.lock import writer_lock
from ticdc_assets.demo.simulator.alterations import AddColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log import landing
from ticdc_assets.log.cuts import Cut, read_cuts
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.positions import newest_landing, read_position
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.mirrors.truncation_points import (
    KeptTable,
    TruncationPoint,
    has_caveat_below,
    has_lost_records,
    read_raw_truncation_point,
    read_truncation_point,
)
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.repair import redriving, retention
from ticdc_assets.repair.redriving import redrive
from ticdc_assets.repair.retention import kept_cuts, retain
from ticdc_assets.repair.rewinding import rewind
from ticdc_assets.repair.verifying import verify
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.spark.session import LazySession
from ticdc_assets.wire.compression import Compression
from ticdc_assets_tests.demo.simulator.builders import PLAIN_COLUMNS, churn, fill, plain_upstream
from ticdc_assets_tests.demo.simulator.key_changes import AddPrimaryKey
from ticdc_assets_tests.lake.feeds import LANDED, Feed, LandingClock, grow_cuts_older, truth_rows
from ticdc_assets_tests.lake.killing import before, killed
from ticdc_assets_tests.mirrors.test_failed_mirrors import citing
from ticdc_assets_tests.statuses import LANDINGS_SCHEMA, publish_with_tables
from ticdc_assets_tests.statuses import cut as made_up_cut

DAY = timedelta(days=1)
START = datetime(2026, 1, 1, 12, tzinfo=UTC)


# Which cuts are kept ----------------------------------------------------------------------------


def cut_at(number: int, published_at: datetime, *, late: int = 0) -> Cut:
    return made_up_cut(number=number, tso=number, published_at=published_at, mirrors=(), late=late)


def kept(
    cuts: Sequence[Cut], ages: Retention, now: datetime, *, base: int = 0, raw_base: int = 0
) -> list[int]:
    points = (
        TruncationPoint(cut=next((cut for cut in cuts if cut.number == number), None))
        for number in (base, raw_base)
    )
    return sorted(kept_cuts(cuts, ages, now, *points))


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


def test_cuts_that_a_table_rests_on_are_kept() -> None:
    cuts = [cut_at(number, START + number * DAY) for number in range(1, 6)]
    table = KeptTable(
        mirror_id="1", database="d", table="t", base=2, reason="", since=START, spans=()
    )
    point = TruncationPoint(cut=cuts[3], kept=(table,))
    found = kept_cuts(cuts, Retention(cuts=DAY), START + 99 * DAY, point, TruncationPoint())
    assert found == {2, 4, 5}


def test_landings_go_by_the_age_of_cuts_but_for_the_newest(tmp_path: Path) -> None:
    lake = Feed.of(LazySession(), tmp_path).having(retention=Retention(cuts=3 * DAY)).lake
    publish_with_tables(lake.paths, cut_at(1, START))
    for number in range(1, 6):
        row = {"number": number, "landed_at": START + number * DAY, "partitions": []}
        rows = pa.Table.from_pylist([row], schema=LANDINGS_SCHEMA)
        write_table(lake.paths.landings, rows, overwrite=False, metadata={"number": number})
    for days, dry_run, left in ((6, True, 5), (6, False, 3), (99, False, 1), (99, False, 1)):
        before = len(read_rows(lake.paths.landings))
        done = retain(lake, now=START + days * DAY, dry_run=dry_run)
        assert done.landings == (2 if dry_run else before - left)
        assert len(read_rows(lake.paths.landings)) == left
    row = newest_landing(lake.paths)
    assert row is not None
    assert row["number"] == 5


# With Spark -------------------------------------------------------------------------------------

KEYED, BAG, WAITING = ("d", "keyed"), ("d", "bag"), ("d", "waiting")
BOTH = Retention(raw_messages=DAY, change_log=DAY, cuts=timedelta(days=9))


def landed_day(number: int) -> date:
    return (LANDED + number * DAY).date()


def truncated(feed: Feed, cut: Cut) -> retention.Retaining:
    """Retain at the moment at which `cut` is the newest that is old enough."""
    return retain(feed.lake, now=cut.published_at + DAY)


def keyed_upstream() -> tuple[Upstream, StandInChangefeed]:
    """An upstream with one small table, and its changefeed over one partition."""
    upstream = plain_upstream(KEYED, rows=6)
    return upstream, StandInChangefeed(upstream, "d", partitions=1)


def keyed_beyond_base(
    spark: SparkSession, tmp_path: Path, retention: Retention
) -> tuple[Upstream, Feed, Cut]:
    """Return an upstream, its feed, and a cut of it; a newer cut has one row more.

    With `clock`, its record lands a day later.
    """
    upstream, changefeed = keyed_upstream()
    feed = Feed.of(spark, tmp_path).having(retention=retention)
    feed.follow(changefeed)
    base = feed.cut
    LandingClock.at += DAY
    fill(upstream, KEYED, rows=1, seed=5)
    feed.follow(changefeed)
    return upstream, feed, base


def waiting_upstream() -> tuple[Upstream, StandInChangefeed, list[CaptureRecord], CaptureRecord]:
    """Return two tables, what was sent of them, and the one message with the schema of a table."""
    upstream = plain_upstream(KEYED, WAITING, rows=6)
    options = FeedOptions(bootstraps=False)
    changefeed = StandInChangefeed(upstream, "d", partitions=1, options=options)
    records = list(changefeed.tick())
    (schema,) = (
        item
        for item in records
        if b'"tableSchema"' in (item.value or b"") and b'"waiting"' in (item.value or b"")
    )
    return upstream, changefeed, records, schema


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


def records_at(feed: Feed) -> set[int]:
    found = read_table(feed.paths.raw_messages, columns=["offset"])
    return set() if found is None else set(found.column("offset").to_pylist())


def rows_below(feed: Feed, tso: int) -> dict[str, int]:
    """Return how many row changes the change log has at or below a TSO, by table."""
    rows = log_rows(feed, (ds.field("kind") == "row") & (ds.field("commit_ts") <= tso))
    return dict(Counter(row["table"] for row in rows))


def reasons(done: retention.Retaining) -> dict[str, str]:
    return {item.table: item.reason for item in done.truncation_point.kept}


def synced(feed: Feed, records: Iterable[CaptureRecord]) -> Cut:
    feed.write(records)
    feed.sync()
    return feed.cut


def require_folds(feed: Feed, changefeed: StandInChangefeed, tables: set[tuple[str, str]]) -> None:
    """Require that tables can be folded from what is kept, and have all rows then."""
    feed.sync(refold=tables)
    feed.require_truth(changefeed)


@pytest.mark.spark
def test_truncating_changes_nothing_that_is_kept(clock: type[LandingClock], feed: Feed) -> None:
    upstream = plain_upstream(KEYED, bags=[BAG])
    options = FeedOptions(force_replicate=True)
    changefeed = StandInChangefeed(upstream, "d", partitions=2, options=options)
    feed = feed.having(retention=BOTH)
    moments: list[int] = []
    for number in range(3):
        clock.at = LANDED + number * DAY
        fill(upstream, KEYED, rows=4, seed=number)
        churn(upstream, steps=12, seed=number)
        if number == 2:
            upstream.alter_table(
                KEYED, AddColumn(column=column("n", "int", nullable=False, default="7"))
            )
        synced(feed, changefeed.tick())
        moments.append(feed.cut.tso)
    first, base, *_ = read_cuts(feed.paths)
    stamps = [
        row["commit_ts"]
        for row in log_rows(feed, (ds.field("kind") == "row") & (ds.field("commit_ts") > base.tso))
    ]
    moments = [base.tso, random.Random(3).choice(stamps)]
    then = {tso: feed.rows_as_of(tso) for tso in moments}
    truth = truth_rows(changefeed.truth())
    position = read_position(feed.paths)

    # A dry run says the same, and does nothing.
    told = retain(feed.lake, now=base.published_at + DAY, dry_run=True)
    assert told.tables is not None
    assert {"d.keyed", "d.bag", "watermarks"} <= told.tables.keys()
    assert read_truncation_point(feed.paths).cut is None

    # A run that dies between the change log and the raw messages leaves nothing half done.
    with killed(before(retention._Retention, "truncate_raw_messages")):
        truncated(feed, base)
    assert (read_truncation_point(feed.paths).cut, read_raw_truncation_point(feed.paths).cut) == (
        base,
        None,
    )
    # So does one that dies before it removes cuts.
    with killed(before(retention._Retention, "remove_cuts")):
        truncated(feed, base)
    assert (
        read_truncation_point(feed.paths).cut == read_raw_truncation_point(feed.paths).cut == base
    )
    done = truncated(feed, base)
    assert (done.changes, done.records, done.notes) == (0, 0, ())
    assert read_truncation_point(feed.paths) == done.truncation_point
    assert landing.landed_days(feed.paths) == [landed_day(2)]
    assert [item.day for item in told.days if item.stays is None] == [landed_day(0), landed_day(1)]
    assert rows_below(feed, base.tso) == {}
    assert read_position(feed.paths) == position

    assert feed.rows() == truth
    assert {tso: feed.rows_as_of(tso) for tso in moments} == then
    with pytest.raises(NotFoundError, match=rf"oldest that can be read is .* \(TSO {base.tso}\)"):
        feed.rows_as_of(base.tso - 1)
    feed.sync(refold={KEYED, BAG})
    assert feed.rows() == truth
    assert [mirror.mode for mirror in feed.cut.mirrors] == ["fold", "fold"]
    assert not any(has_caveat_below(item.caveats) for item in feed.cut.mirrors)
    assert verify(feed.lake).equal

    # What is sent again from below is not applied but counted; what is new is applied.
    changefeed.restart(first.tso)
    churn(upstream, steps=6, seed=8)
    synced(feed, changefeed.tick())
    assert feed.cut.unplaced > 0
    feed.require_truth(changefeed)
    require_folds(feed, changefeed, {KEYED, BAG})
    # Their tables stay as they are from there on.
    arrived = rows_below(feed, base.tso)
    done = truncated(feed, feed.cut)
    assert reasons(done) == dict.fromkeys(
        arrived, "row changes of it arrived below the cut that it rests on"
    )
    assert rows_below(feed, base.tso) == arrived
    assert {item.base for item in done.truncation_point.kept} == {base.number}
    assert verify(feed.lake).equal


@pytest.mark.spark
def test_a_table_with_held_rows_is_not_truncated_until_its_schema_comes(
    tmp_path: Path, clock: type[LandingClock], feed: Feed
) -> None:
    upstream, changefeed, records, schema = waiting_upstream()
    feed = feed.having(history=TableChoice(("d.*",)))
    whole = feed.in_folder(tmp_path / "whole")
    feed = feed.having(retention=BOTH)
    cuts = [synced(feed, [without(item) if item is schema else item for item in records])]
    assert cuts[0].held[0].rows == len(upstream.rows(WAITING))
    done = truncated(feed, cuts[0])
    assert done.changes > 0
    assert done.records == 0
    held = f"it has {cuts[0].held[0].rows} row changes that no table takes"
    assert reasons(done) == {"waiting": held}
    assert done.notes == (
        f"raw_messages is not truncated further: cut 1 cannot be a base cut: d.waiting: {held}",
    )
    (since,) = {item.since for item in done.truncation_point.kept}
    assert rows_below(feed, cuts[0].tso) == {"waiting": cuts[0].held[0].rows}
    for number in (1, 2):
        clock.at = LANDED + number * DAY
        churn(upstream, steps=8, seed=number)
        cuts.append(synced(feed, changefeed.tick()))
        before = rows_below(feed, feed.cut.tso)
        done = truncated(feed, feed.cut)
        (table,) = done.truncation_point.kept
        assert (table.table, table.base, table.since) == ("waiting", 0, since)
        assert rows_below(feed, feed.cut.tso) == {"waiting": before["waiting"]}
        assert records_at(feed) == set(range(changefeed.next_offsets[0]))
    assert done.truncation_point.number == cuts[-1].number
    (told,) = read_status(feed.lake, datetime.now(UTC)).untruncated
    assert told.sentence == (
        f"d.waiting is not truncated at all since {since:%Y-%m-%d %H:%M:%S} UTC: {told.reason}"
    )
    assert verify(feed.lake).equal

    # The schema comes, from below the truncation point.
    synced(feed, sent_later(changefeed, [schema]))
    wanted = truth_rows(changefeed.truth())
    assert feed.rows() == wanted
    assert not feed.cut.held
    assert not any(has_caveat_below(item.caveats) for item in feed.cut.mirrors)
    assert feed.rows_as_of(cuts[-1].tso) == truth_rows(changefeed.truth(cuts[-1].tso))
    # Its history has all versions too.
    whole.sync()
    mirrors = [item.cut.mirror(*WAITING) for item in (feed, whole)]
    assert len({item.history_rows for item in mirrors if item is not None}) == 1
    assert verify(feed.lake).equal
    feed.sync(refold={KEYED, WAITING})
    assert feed.rows() == wanted
    clock.at = LANDED + 3 * DAY
    churn(upstream, steps=4, seed=9)
    synced(feed, changefeed.tick())
    done = truncated(feed, feed.cut)
    assert (done.truncation_point.kept, done.notes) == ((), ())
    assert done.records > 0
    assert rows_below(feed, feed.cut.tso) == {}
    require_folds(feed, changefeed, {KEYED, WAITING})
    assert verify(feed.lake).equal


@pytest.mark.spark
def test_a_table_whose_schema_came_after_the_base_rests_on_what_it_rested_on(feed: Feed) -> None:
    """Before, its rows cited a name without a table; the base has no mirror of it."""
    upstream, changefeed, records, schema = waiting_upstream()
    feed = feed.having(retention=BOTH)
    first = synced(feed, [without(item) if item is schema else item for item in records])
    (table,) = truncated(feed, first).truncation_point.kept
    assert (table.mirror_id, table.base) == (None, 0)
    fill(upstream, KEYED, rows=3, seed=5)
    base = synced(feed, changefeed.tick())
    synced(feed, sent_later(changefeed, [schema]))
    done = truncated(feed, base)
    assert done.truncation_point.number == base.number
    (later,) = done.truncation_point.kept
    assert later.mirror_id is not None
    assert (later.base, later.since) == (0, table.since)
    fill(upstream, WAITING, rows=3, seed=6)
    synced(feed, changefeed.tick())
    assert [item.caveats for item in feed.cut.mirrors] == [[], []]
    require_folds(feed, changefeed, {KEYED, WAITING})
    assert verify(feed.lake).equal


@pytest.mark.spark
def test_no_table_is_truncated_beyond_a_record_in_quarantine(
    clock: type[LandingClock], feed: Feed
) -> None:
    """It may be of any table. The cut before it landed is a base."""
    upstream, changefeed = keyed_upstream()
    feed = feed.having(retention=BOTH)
    first = synced(feed, changefeed.tick())
    grow_cuts_older(feed.paths, 24)
    clock.at = LANDED + DAY
    fill(upstream, KEYED, rows=3, seed=5)
    records = list(changefeed.tick())
    refused = an_insert(records)
    second = synced(feed, [in_lz4(item) if item is refused else item for item in records])
    done = truncated(feed, second)
    assert done.truncation_point.number == done.raw_truncation_point.number == first.number
    assert min(done.changes, done.records) > 0
    assert landing.landed_days(feed.paths) == [landed_day(1)]
    done = truncated(feed, second)
    assert (done.changes, done.records) == (0, 0)
    (since,) = {row["quarantined_at"] for row in read_quarantine(feed.paths)}
    assert done.notes == tuple(
        f"{table} is not truncated further: cut 2 cannot be a base cut: 1 record in quarantine "
        f"since {since:%Y-%m-%d %H:%M:%S} UTC may have changes of any table (redrive "
        "decodes such records after a fix, accept-loss gives one up)"
        for table in ("change_log", "raw_messages")
    )
    # By the new settings it can be decoded, but nobody has re-driven it.
    feed = feed.having(compression=Compression.LZ4)
    assert truncated(feed, second).records == 0
    # A re-drive that dies after the row is in the change log.
    with killed(before(redriving, "close_rows")):
        redrive(feed.lake)
    assert truncated(feed, second).changes == 0
    feed.sync()
    assert (feed.cut.late, feed.cut.unplaced) == (1, 0)
    feed.require_truth(changefeed)
    redrive(feed.lake)
    assert read_quarantine(feed.paths) == []
    feed.require_truth(changefeed)
    assert verify(feed.lake).equal
    done = truncated(feed, feed.cut)
    assert done.truncation_point.number == feed.cut.number
    assert done.records > 0
    assert verify(feed.lake).equal


@pytest.mark.spark
def test_a_table_with_rows_that_cite_the_version_of_another_one_is_not_truncated(
    feed: Feed,
) -> None:
    """One table gets the name of another, and a later row of that name cites the other one."""
    upstream, changefeed = keyed_upstream()
    other = ("d", "other")
    upstream.create_table(other, (column("id", "int", nullable=False),), primary_key=("id",))
    fill(upstream, other, rows=4)
    feed = feed.having(retention=Retention(raw_messages=DAY, change_log=DAY))
    synced(feed, changefeed.tick())
    was = feed.mirror(*KEYED)
    upstream.rename_tables([(KEYED, ("d", "old")), (other, KEYED)])
    fill(upstream, KEYED, rows=1, seed=3)
    records = list(changefeed.tick())
    stray = an_insert(records)
    version, table_id = was.table_schema.version, was.table_id
    cited = citing(stray, "keyed", version, table_id=table_id)
    synced(feed, [cited if item is stray else item for item in records])
    assert [(item.table, item.rows) for item in feed.cut.held] == [("keyed", 1)]
    done = truncated(feed, feed.cut)
    assert reasons(done) == {"keyed": "it has 1 held row change"}
    # Its rows of before cite its old name; those of the other table's time are gone.
    assert rows_below(feed, feed.cut.tso) == {"other": 4, "keyed": 1}
    assert (done.changes > 0, done.records) == (True, 0)
    assert verify(feed.lake).equal


@pytest.mark.spark
def test_a_table_to_which_rows_came_late_rests_on_an_older_cut(feed: Feed) -> None:
    upstream, changefeed = keyed_upstream()
    upstream.create_table(WAITING, PLAIN_COLUMNS, primary_key=("id",))
    fill(upstream, WAITING, rows=3)
    feed = feed.having(retention=Retention())
    late = synced_without_an_insert(feed, changefeed)
    older = feed.cut
    feed.write(sent_later(changefeed, [late]))
    fill(upstream, KEYED, rows=2, seed=5)
    newer = synced(feed, changefeed.tick())
    assert newer.late == 1
    between = newer.published_at - older.published_at
    reason = f"at cut {older.number}, row changes came late"

    # The change log is truncated at the older cut first.
    feed = feed.having(retention=Retention(change_log=DAY, raw_messages=DAY))
    rows = rows_below(feed, older.tso)
    done = truncated(feed, older)
    assert reasons(done) == {"keyed": reason}
    assert rows_below(feed, older.tso) == {"keyed": rows["keyed"]}
    assert done.notes == (
        f"raw_messages is not truncated further: cut 1 cannot be a base cut: d.keyed: {reason}",
    )
    require_folds(feed, changefeed, {KEYED, WAITING})
    # Both are truncated, the change log further.
    longer = Retention(change_log=DAY, raw_messages=DAY + between)
    done = truncated(feed.having(retention=longer), newer)
    assert (done.truncation_point.cut, done.truncation_point.kept) == (newer, ())
    assert done.records == 0
    assert done.notes == (
        f"raw_messages is not truncated further: cut 1 cannot be a base cut: d.keyed: {reason}",
    )
    require_folds(feed, changefeed, {KEYED, WAITING})


@pytest.mark.spark
@pytest.mark.parametrize("how", ["a sync that was killed", "a rewind", "records that wait"])
def test_a_table_is_not_truncated_below_rows_that_no_cut_has(how: str, feed: Feed) -> None:
    """A row came late, and the cut that would tell it is not made yet, or is void."""
    _, changefeed = keyed_upstream()
    feed = feed.having(retention=Retention(change_log=DAY, raw_messages=DAY))
    late = synced_without_an_insert(feed, changefeed)
    older = feed.cut
    feed.write(sent_later(changefeed, [late]))
    if how == "a rewind":
        feed.sync()
        assert feed.cut.late == 1
        rewind(feed.lake, by="test", number=older.number)
    else:
        feed.land()
    if how == "a sync that was killed":
        decode_new(feed.lake)
    rows = rows_below(feed, feed.cut.tso)
    done = truncated(feed, feed.cut)
    assert done.records == 0
    assert rows_below(feed, feed.cut.tso) == rows
    if how == "records that wait":
        # Some of them may have come late, and nothing tells that before they are decoded.
        assert (done.changes, reasons(done)) == (0, {})
        assert done.notes == ("nothing is truncated: a sync must first finish a killed run",)
    else:
        assert reasons(done) == {"keyed": f"at cut {feed.cut.number}, row changes came late"}
    feed.sync()
    feed.require_truth(changefeed)


def bag_upstream() -> tuple[Upstream, StandInChangefeed]:
    """An upstream with one small table without a key, and its changefeed without bootstraps."""
    upstream = plain_upstream(bags=[BAG], rows=3)
    options = FeedOptions(bootstraps=False, force_replicate=True)
    return upstream, StandInChangefeed(upstream, "d", partitions=1, options=options)


@pytest.mark.spark
def test_a_table_without_a_key_that_has_held_rows_counts_no_row_twice(
    clock: type[LandingClock], feed: Feed
) -> None:
    """It was truncated before, so it rests on an older cut until its schema comes."""
    upstream, changefeed = bag_upstream()
    feed = feed.having(retention=BOTH)
    first = synced(feed, changefeed.tick())
    assert truncated(feed, first).records > 0
    clock.at = LANDED + DAY
    upstream.alter_table(BAG, AddColumn(column=column("a", "int", default="1")))
    fill(upstream, BAG, rows=3, seed=4)
    records = list(changefeed.tick())
    schema = next(item for item in records if b'"tableSchema"' in (item.value or b""))
    watermark = records[-1].value
    assert watermark is not None
    assert b"WATERMARK" in watermark
    replaced = replace(schema, key=None, value=watermark)
    second = synced(feed, [replaced if item is schema else item for item in records])
    assert [item.rows for item in second.held] == [3]
    done = truncated(feed, second)
    assert (done.changes, done.records) == (0, 0)
    (table,) = done.truncation_point.kept
    assert (table.table, table.base) == ("bag", first.number)
    assert done.truncation_point.number == second.number
    assert verify(feed.lake).equal
    clock.at = LANDED + 2 * DAY
    synced(feed, sent_later(changefeed, [schema]))
    feed.require_truth(changefeed)
    assert verify(feed.lake).equal
    require_folds(feed, changefeed, {BAG})
    done = truncated(feed, feed.cut)
    assert done.truncation_point.kept == ()
    assert rows_below(feed, feed.cut.tso) == {}
    require_folds(feed, changefeed, {BAG})
    assert verify(feed.lake).equal


@pytest.mark.spark
@pytest.mark.parametrize(
    ("columns", "late_texts"),
    [("ab", (b"ADD COLUMN",)), ("a", (b"ADD COLUMN", b"ADD PRIMARY KEY"))],
    ids=["columns come late", "a column and the key come late"],
)
def test_a_table_is_not_truncated_while_rows_of_before_its_new_key_wait(
    columns: str, late_texts: tuple[bytes, ...], feed: Feed
) -> None:
    """A table that got a key begins with the rows of before; some of these wait for a schema."""
    upstream, changefeed = bag_upstream()
    first, *others = (AddColumn(column=column(name, "int", default="1")) for name in columns)
    upstream.alter_table(BAG, first)
    with upstream.transaction() as transaction:
        transaction.insert(BAG, {"id": "7", "v": "late", "a": "1"})
    for action in (*others, AddPrimaryKey(columns=("id",))):
        upstream.alter_table(BAG, action)
    records = list(changefeed.tick())
    late = [item for item in records if any(text in (item.value or b"") for text in late_texts)]
    assert len(late) == 2
    feed = feed.having(retention=Retention(raw_messages=DAY, change_log=DAY))
    synced(feed, [without(item) if item in late else item for item in records])
    done = truncated(feed, feed.cut)
    assert done.records == 0
    assert rows_below(feed, feed.cut.tso) == {"bag": 4}
    assert reasons(done).keys() == {"bag"}
    synced(feed, sent_later(changefeed, late))
    assert feed.cut.mirrors[0].caveats == []
    feed.require_truth(changefeed)
    done = truncated(feed, feed.cut)
    assert (done.truncation_point.kept, done.notes) == ((), ())
    require_folds(feed, changefeed, {BAG})


@pytest.mark.spark
def test_a_key_that_comes_late_below_the_base_marks_the_mirror(feed: Feed) -> None:
    """Nothing said that the table lacks anything, so its changes are gone."""
    upstream, changefeed = bag_upstream()
    upstream.alter_table(BAG, AddPrimaryKey(columns=("id",)))
    records = list(changefeed.tick())
    (late,) = [item for item in records if item.value is not None and b"ALTER TABLE" in item.value]
    feed = feed.having(retention=Retention(change_log=DAY))
    base = synced(feed, [without(item) if item is late else item for item in records])
    assert truncated(feed, base).changes > 0
    assert rows_below(feed, base.tso) == {}
    synced(feed, sent_later(changefeed, [late]))
    assert [has_caveat_below(item.caveats) for item in feed.cut.mirrors] == [True]


@pytest.mark.spark
def test_what_is_truncated_under_a_lease_is_known_to_be_gone(
    clock: type[LandingClock], feed: Feed
) -> None:
    upstream = plain_upstream(KEYED, bags=[BAG])
    options = FeedOptions(force_replicate=True)
    changefeed = StandInChangefeed(upstream, "d", partitions=1, options=options)
    feed = feed.having(retention=Retention(raw_messages=DAY, change_log=DAY))
    with writer_lock(feed.paths, Writer(lease=timedelta(minutes=5))):
        for seed in range(2):
            clock.at = LANDED + seed * DAY
            fill(upstream, KEYED, rows=4, seed=seed)
            fill(upstream, BAG, rows=4, seed=seed)
            feed.follow(changefeed)
        base, _ = read_cuts(feed.paths)
        position = read_position(feed.paths)
        done = truncated(feed, base)
        assert min(done.changes, done.records) > 0
        assert read_truncation_point(feed.paths).cut == base
        assert read_raw_truncation_point(feed.paths).cut == base
        assert has_lost_records(feed.paths)
        assert read_position(feed.paths) == position
        feed.sync(refold={KEYED, BAG})
        feed.require_truth(changefeed)
        fill(upstream, BAG, rows=2, seed=7)
        feed.follow(changefeed)
    feed.require_truth(changefeed)


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
def test_a_run_whose_lease_is_over_truncates_nothing(feed: Feed) -> None:
    _, changefeed = keyed_upstream()
    feed = feed.having(retention=Retention(change_log=DAY))
    feed.follow(changefeed)
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
