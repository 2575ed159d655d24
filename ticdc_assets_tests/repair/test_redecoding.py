"""Decoding landing days again: what differs is put right, what does not is left alone."""

import json
import shutil
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import LossError, NotFoundError
from ticdc_assets.config import Retention
from ticdc_assets.delta.control import read_rows, read_table
from ticdc_assets.delta.opening import latest_version
from ticdc_assets.demo.simulator.alterations import AddColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log import landing
from ticdc_assets.log.ahead import TS_AHEAD
from ticdc_assets.log.landing import landed_days
from ticdc_assets.log.quarantine import (
    Closing,
    close_rows,
    count_open,
    place_of,
    read_quarantine,
)
from ticdc_assets.mirrors import applying as mirrors
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.mirrors.truncation_points import read_truncation_point
from ticdc_assets.reading.as_of import AsOf
from ticdc_assets.repair import redecoding
from ticdc_assets.repair.maintenance import maintain
from ticdc_assets.repair.redecoding import RedecodedDay, redecode
from ticdc_assets.repair.redriving import redrive
from ticdc_assets.repair.retention import retain
from ticdc_assets.repair.verifying import verify
from ticdc_assets.rows import rows_of_work
from ticdc_assets.spark import executing
from ticdc_assets.spark.session import functions
from ticdc_assets_tests.demo.simulator.builders import churn, fill, plain_upstream
from ticdc_assets_tests.golden import Rows
from ticdc_assets_tests.lake.feeds import Feed, truth_rows
from ticdc_assets_tests.lake.killing import before, killed

pytestmark = pytest.mark.spark

BEGAN = datetime.now(UTC)
TODAY, YESTERDAY = BEGAN.date(), BEGAN.date() - timedelta(days=1)
KEYED, BAG, LEFT_ALONE = ("d", "keyed"), ("d", "bag"), ("d", "quiet")


class Today(datetime):
    """A clock that stands still, as the run may go on over midnight."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return BEGAN


class Yesterday(datetime):
    """The same a day before."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return BEGAN - timedelta(days=1)


Story = tuple[Feed, StandInChangefeed, Upstream]


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A feed with two landing days, each synced, and with one record in quarantine."""
    upstream = plain_upstream(KEYED, LEFT_ALONE, bags=[BAG], rows=6)
    changefeed = StandInChangefeed(
        upstream, "d", partitions=2, options=FeedOptions(force_replicate=True)
    )
    feed = Feed.of(spark, tmp_path_factory.mktemp("story"))
    feed.write(changefeed.tick())
    feed.write([changefeed.inject(1, key=None, value=b"{")])
    sync_at(feed, Yesterday)
    upstream.alter_table(KEYED, AddColumn(column=column("n", "int", default="7")))
    churn(upstream, steps=8, seed=1)
    feed.write(changefeed.tick())
    sync_at(feed, Today)
    assert landed_days(feed.paths) == [YESTERDAY, TODAY]
    return feed, changefeed, upstream


def sync_at(feed: Feed, clock: type[datetime]) -> None:
    """Sync by another clock than the machine's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(landing, "datetime", clock)
        patch.setattr(mirrors, "datetime", clock)
        feed.sync()


@pytest.fixture
def feed(story: Story, tmp_path: Path) -> Feed:
    """The story's feed with a lake of its own."""
    shutil.copytree(story[0].paths.root, tmp_path / "lake")
    return story[0].in_folder(tmp_path)


@pytest.fixture(params=["here", pytest.param("Spark", marks=pytest.mark.slow)])
def runs_on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let steps run here or in Spark, there with more buckets than one."""
    if request.param == "Spark":
        monkeypatch.setattr(executing, "INLINE_ROWS", -1)
        monkeypatch.setattr(rows_of_work, "_ROWS_PER_BUCKET", 20)


def truth(story: Story) -> Rows:
    return truth_rows(story[1].truth())


def groups(feed: Feed) -> list[dict[str, Any]]:
    return sorted(read_rows(feed.paths.change_groups), key=repr)


def log_rows(feed: Feed) -> list[dict[str, Any]]:
    """Return the change log, whole, in an order of its own."""
    rows = read_rows(feed.paths.change_log)
    return sorted(rows, key=lambda row: repr(row | {"batch": 0}))


def rows_files(feed: Feed) -> set[Path]:
    found = feed.paths.generation_folder.rglob("*.parquet")
    return {path for path in found if "_delta_log" not in path.parts}


def damage(feed: Feed) -> None:
    """Lose, change and add rows of yesterday: row changes, a watermark and DDL."""
    whole = read_table(feed.paths.change_log)
    assert whole is not None
    rows = [row for row in whole.to_pylist() if row["landed_day"] == YESTERDAY]
    bag = [row for row in rows if (row["kind"], row["table"]) == ("row", BAG[1])]
    wrong = [{**min(bag, key=lambda row: row["offset"]), "index": 99}]
    for row in rows:
        match row:
            case {"kind": "row", "table": "keyed", "offset": offset}:
                if offset % 2:
                    wrong.append(row | {"after": '{"id": "1", "v": "wrong"}'})
            case {"kind": "ddl" | "bootstrap", "table": "keyed"}:
                pass
            case {"kind": "watermark", "partition": 0}:
                pass
            case _:
                wrong.append(row)
    assert len(wrong) < len(rows)
    write_deltalake(
        str(feed.paths.change_log),
        pa.Table.from_pylist(wrong, schema=whole.schema),
        mode="overwrite",
        predicate=f"landed_day = '{YESTERDAY}'",
    )


def again(feed: Feed, days: Iterable[date]) -> tuple[RedecodedDay, ...]:
    return redecode(feed.lake, list(days)).days


def versions(feed: Feed) -> list[int | None]:
    paths = feed.paths
    return [
        latest_version(path)
        for path in (paths.change_log, paths.change_groups, paths.quarantine, paths.cuts)
    ]


@pytest.mark.usefixtures("runs_on")
def test_what_was_lost_changed_or_added_is_put_right(story: Story, feed: Feed) -> None:
    before, totals, log = versions(feed), groups(feed), log_rows(feed)
    first = again(feed, [YESTERDAY, TODAY])
    assert [item.equal for item in first] == [True, True]
    assert (
        sum(item.records for item in first)
        == feed.spark.read.format("delta").load(str(feed.paths.raw_messages)).count()
    )
    assert versions(feed) == before, "what is equal is not written"

    damage(feed)
    left = sum(row["landed_day"] == YESTERDAY for row in log_rows(feed))
    one, two = again(feed, [TODAY, YESTERDAY])
    assert one.day == YESTERDAY
    yesterdays = sum(row["landed_day"] == YESTERDAY for row in log)
    assert (one.before, one.rows) == (left, yesterdays)
    assert one.schemas
    assert set(one.tables) == {KEYED, BAG}
    assert two.equal
    assert log_rows(feed) == log
    assert groups(feed) == totals
    assert {item.table: item.mode for item in feed.cut.mirrors} == {
        "keyed": "fold",
        "bag": "fold",
        "quiet": "carried",
    }
    assert feed.rows() == truth(story)
    before = versions(feed)
    assert all(item.equal for item in again(feed, [YESTERDAY, TODAY]))
    assert versions(feed) == before
    assert feed.sync().outcome is Outcome.UNCHANGED


def test_cuts_of_a_day_that_is_corrected_stay_right(spark: SparkSession, tmp_path: Path) -> None:
    """What is decoded again is of the day's first batch, and what is equal stays as it is."""
    upstream = plain_upstream(KEYED, LEFT_ALONE, rows=4)
    changefeed = StandInChangefeed(upstream, "d", partitions=1)
    feed = Feed.of(spark, tmp_path)
    moments: dict[int, Rows] = {}
    for number in range(4):
        feed.write(changefeed.tick())
        sync_at(feed, Today)
        moments[feed.cut.tso] = truth_rows(changefeed.truth())
        churn(upstream, steps=4, seed=number)
    # The last records wait to be landed; a redecoding does not land them.
    maintain(feed.lake)
    log = log_rows(feed)
    DeltaTable.forPath(spark, str(feed.paths.change_log)).delete(
        f"landed_day = date'{TODAY}' and kind = 'row' and `table` = '{KEYED[1]}'"
    )
    (day,) = again(feed, [TODAY])
    assert day.tables == (KEYED,)
    assert (feed.cut.late, feed.cut.replays) == (0, 0)
    there = log_rows(feed)
    assert [row | {"batch": 0} for row in there] == [row | {"batch": 0} for row in log]
    assert [row for row in there if row["table"] != KEYED[1]] == [
        row for row in log if row["table"] != KEYED[1]
    ]
    for tso, rows in moments.items():
        assert feed.rows_as_of(tso) == rows
    assert verify(feed.lake).equal
    feed.follow(changefeed)
    assert feed.cut.late == 0
    feed.require_truth(changefeed)


@pytest.mark.parametrize(
    ("dies_before", "is_by_sync"),
    [("replace_day", True), ("register_new", False), ("apply_changes", True)],
)
def test_a_killed_run_is_finished(
    story: Story, feed: Feed, dies_before: str, is_by_sync: bool
) -> None:
    totals = groups(feed)
    damage(feed)
    # The mirrors are made of what was wrong.
    feed.sync(refold=[KEYED, BAG])
    assert feed.rows() != truth(story)
    with killed(before(redecoding, dies_before)):
        again(feed, [YESTERDAY])
    assert feed.rows() != truth(story)
    if is_by_sync:
        assert feed.sync().outcome is Outcome.PUBLISHED
    else:
        assert all(item.equal for item in again(feed, [TODAY]))
    assert feed.rows() == truth(story)
    assert groups(feed) == totals
    assert all(item.equal for item in again(feed, [YESTERDAY, TODAY]))


@pytest.mark.usefixtures("runs_on")
def test_quarantine_is_renewed(story: Story, feed: Feed) -> None:
    F = functions(feed.spark)
    # A decoder that is broken: today's rows are lost to it, and so are told by their reason.
    (fault,) = read_rows(feed.paths.quarantine)
    DeltaTable.forPath(feed.spark, str(feed.paths.quarantine)).delete()
    (day,) = again(feed, [YESTERDAY])
    assert (day.quarantined, day.released, day.batch) == (1, 0, None)
    assert "; 1 fault came into quarantine, 0 left it" in day.sentence()
    (found,) = read_rows(feed.paths.quarantine)
    assert {**found, "quarantined_at": None} == {**fault, "quarantined_at": None, "batch": 2}
    assert count_open(feed.paths).decode == 1

    # The records of the keyed table cannot be read any more: what they gave is not given up.
    raw = DeltaTable.forPath(feed.spark, str(feed.paths.raw_messages))
    text = F.decode("value", "UTF-8")
    raw.update(
        (F.col("landed_day") == F.lit(TODAY)) & text.contains('"table":"keyed"'),
        {"value": F.encode(F.lit("{"), "UTF-8")},
    )
    log = log_rows(feed)
    files = rows_files(feed)
    with pytest.raises(LossError, match=r"d\.keyed are refused now .*, such as d/.* feed --day 2"):
        again(feed, [TODAY])
    assert log_rows(feed) == log
    assert rows_files(feed) == files, "what was decoded for nothing is removed"
    assert count_open(feed.paths).decode == 1
    assert feed.rows() == truth(story)

    # Whoever accepts it has what is refused in quarantine, and the mirrors without it.
    (day,) = redecode(feed.lake, [TODAY], accept_losses=True).days
    assert day.losses
    assert "lost: " in day.sentence()
    assert count_open(feed.paths).decode == 1 + day.quarantined
    assert len(log_rows(feed)) == len(log) - (day.before - day.rows)

    # The record in quarantine is read now.
    good = feed.spark.read.format("delta").load(str(feed.paths.raw_messages))
    value = good.where(f"landed_day = date'{TODAY}'").where(text.contains("WATERMARK")).first()
    assert value is not None
    raw.update(
        (F.col("offset") == fault["offset"]) & (F.col("partition") == fault["partition"]),
        {"value": F.lit(bytes(value["value"]))},
    )
    open_faults = count_open(feed.paths).decode
    (day,) = again(feed, [YESTERDAY])
    assert (day.rows - day.before, day.released) == (1, 1)
    assert count_open(feed.paths).decode == open_faults - 1


def test_a_cut_from_before_a_redrive_lacks_its_rows_whatever_is_decoded_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    upstream = plain_upstream(KEYED, LEFT_ALONE, rows=4)
    changefeed = StandInChangefeed(upstream, "d", partitions=1)
    feed = Feed.of(spark, tmp_path)
    records = list(changefeed.tick())
    feed.write([*records, changefeed.inject(0, key=None, value=b"{")])
    sync_at(feed, Today)
    older = feed.cut
    (fault,) = read_quarantine(feed.paths)
    values = [json.loads(item.value) for item in records if item.value is not None]
    insert = next(
        item for item in values if (item["type"], item.get("table")) == ("INSERT", KEYED[1])
    )
    insert["data"]["id"] = "99"
    DeltaTable.forPath(spark, str(feed.paths.raw_messages)).update(
        f"offset = {fault['offset']}",
        {"value": functions(spark).lit(json.dumps(insert).encode())},
    )
    assert redrive(feed.lake).decoded == 1
    churn(upstream, steps=4, seed=1)
    feed.write(changefeed.tick())
    sync_at(feed, Today)
    assert older.tso < feed.cut.tso

    # What differs is of another table.
    DeltaTable.forPath(spark, str(feed.paths.change_log)).delete(
        f"`table` = '{LEFT_ALONE[1]}' and kind = 'row'"
    )
    (day,) = again(feed, [TODAY])
    assert day.tables == (LEFT_ALONE,)
    assert AsOf(feed.lake, older.tso).table(*KEYED).rows == 5
    assert all(item.equal for item in again(feed, [TODAY]))


def test_what_is_refused_on_two_days_is_in_quarantine_of_both(feed: Feed) -> None:
    # The first day makes the table.
    shutil.rmtree(feed.paths.quarantine)
    strict = feed.having(max_ahead_seconds=-10 * 365 * 86400)
    before = len(log_rows(feed))
    days = again(strict, [YESTERDAY, TODAY])
    assert all(day.rows < day.before for day in days)
    moved = [row for row in read_rows(feed.paths.quarantine) if row["reason"] == TS_AHEAD]
    assert len(moved) == before - len(log_rows(feed)) == sum(day.before - day.rows for day in days)


@pytest.mark.usefixtures("runs_on")
def test_behind_a_truncation_totals_go_on_and_days_before_it_are_refused(
    story: Story, feed: Feed
) -> None:
    # As long as it is open, it may be of any table.
    places = [place_of(row) for row in read_quarantine(feed.paths)]
    close_rows(feed.paths, "decode", places, Closing.REMOVED)
    keeping = feed.having(retention=Retention(change_log=timedelta(hours=1)))
    assert retain(keeping.lake, now=BEGAN).changes
    totals, log = groups(feed), log_rows(feed)
    with pytest.raises(NotFoundError, match=f"landed before {TODAY}"):
        again(feed, [YESTERDAY, TODAY])
    (day,) = again(feed, [TODAY])
    assert day.equal

    DeltaTable.forPath(feed.spark, str(feed.paths.change_log)).delete(
        f"landed_day = date'{TODAY}' and kind in ('row', 'watermark')"
    )
    (day,) = again(feed, [TODAY])
    assert day.rows > day.before
    assert groups(feed) == totals
    assert log_rows(feed) == log
    assert read_truncation_point(feed.paths).number == 1
    assert feed.rows() == truth(story)


def test_no_schema_is_truncated_that_is_registered_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """After a killed run the next one reads them all again; one of them is in a bootstrap alone."""
    upstream = plain_upstream(KEYED, LEFT_ALONE)
    options = FeedOptions(first_ts=upstream.clock.next())
    changefeed = StandInChangefeed(upstream, "d", partitions=1, options=options)
    ages = Retention(change_log=timedelta(hours=1))
    feed = Feed.of(spark, tmp_path).having(retention=ages)
    for name in (KEYED, LEFT_ALONE):
        fill(upstream, name, rows=4)
    feed.write(changefeed.tick())
    sync_at(feed, Yesterday)
    upstream.alter_table(KEYED, AddColumn(column=column("n", "int", default="7")))
    churn(upstream, steps=4, seed=1)
    feed.write(changefeed.tick())
    sync_at(feed, Today)
    DeltaTable.forPath(spark, str(feed.paths.change_log)).delete(
        f"landed_day = date'{TODAY}' and kind = 'ddl'"
    )
    with killed(before(redecoding, "register_new")):
        again(feed, [TODAY])
    done = retain(feed.lake, now=BEGAN)
    assert (done.changes, len(done.notes)) == (0, 1)
    assert "its schemas were not registered yet" in done.notes[0]
    feed.sync()
    feed.require_truth(changefeed)
    assert retain(feed.lake, now=BEGAN).changes
    feed.require_truth(changefeed)
