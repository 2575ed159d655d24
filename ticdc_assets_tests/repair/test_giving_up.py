"""A record that nobody can decode is given up, and all goes on without it."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import NotFoundError
from ticdc_assets.config import Retention
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.log.accepted_gaps import read_accepted
from ticdc_assets.log.quarantine import Closing, read_quarantine
from ticdc_assets.repair import redriving
from ticdc_assets.repair.redecoding import redecode
from ticdc_assets.repair.redriving import give_up, redrive
from ticdc_assets.repair.retention import retain
from ticdc_assets.repair.verifying import verify
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.spark.session import functions
from ticdc_assets_tests.demo.simulator.builders import fill, plain_upstream
from ticdc_assets_tests.lake.feeds import Feed, LandingClock
from ticdc_assets_tests.lake.killing import before, killed

pytestmark = pytest.mark.spark

DAY = timedelta(days=1)
TABLE = ("d", "t")


class Lost:
    """A lake in which one record of the second day is no message: the first of what follows it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.upstream = plain_upstream(TABLE)
        self.changefeed = StandInChangefeed(self.upstream, "d", partitions=1)
        feed = Feed.of(spark, folder)
        ages = Retention(raw_messages=DAY, change_log=DAY, cuts=9 * DAY)
        self.feed = feed.having(retention=ages)
        self._shift = 0
        self.added(1)
        LandingClock.at += DAY
        fill(self.upstream, TABLE, rows=3, seed=2)
        records = list(self.changefeed.tick())
        spoilt = replace(records[0], key=b"", value=b"\xff no message")
        self.offset, self._shift = spoilt.offset, 1
        self.feed.write([spoilt, *self._moved(records)])
        self.feed.sync()

    def added(self, seed: int) -> None:
        fill(self.upstream, TABLE, rows=3, seed=seed)
        self.feed.write(self._moved(self.changefeed.tick()))
        self.feed.sync()

    def _moved(self, records: Iterable[CaptureRecord]) -> list[CaptureRecord]:
        return [replace(item, offset=item.offset + self._shift) for item in records]

    @property
    def caveats(self) -> tuple[str, ...]:
        (mirror,) = self.feed.cut.mirrors
        return tuple(mirror.caveats)

    def give_up(self) -> None:
        with self.feed.lake.writing():
            give_up(self.feed.lake, "d", 0, self.offset, by="ada@here")


@pytest.fixture
def lost(spark: SparkSession, tmp_path: Path, clock: type[LandingClock]) -> Lost:
    return Lost(spark, tmp_path)


def test_a_record_that_is_given_up_marks_mirrors_and_holds_back_nothing(lost: Lost) -> None:
    feed = lost.feed
    later = datetime.now(UTC) + 2 * DAY
    held = retain(feed.lake, now=later, dry_run=True)
    assert any("accept-loss gives one up" in note for note in held.notes)
    assert lost.caveats == ()
    lost.give_up()
    assert read_quarantine(feed.paths) == []
    (row,) = read_quarantine(feed.paths, open_only=False)
    assert row["closed_by"] == Closing.GIVEN_UP
    (gap,) = read_accepted(feed.paths)
    assert (gap.from_offset, gap.to_offset, gap.accepted_by) == (
        lost.offset,
        lost.offset + 1,
        "ada@here",
    )
    assert gap.after_ts > 0
    feed.sync()
    (caveat,) = lost.caveats
    assert f"offset {lost.offset} of topic 'd' partition 0 cannot be decoded" in caveat
    feed.require_truth(lost.changefeed)
    # Landing goes on where it was, and nothing decodes the record again.
    lost.added(3)
    assert redrive(feed.lake).records == 0
    assert verify(feed.lake).equal
    assert redecode(feed.lake, [LandingClock.at.date()]).equal
    assert read_quarantine(feed.paths) == []
    rows = feed.rows()
    rebuilt = feed.rebuild()
    assert rebuilt.cut is not None
    assert feed.rows() == rows
    assert read_quarantine(feed.paths) == []
    assert [row["closed_by"] for row in read_quarantine(feed.paths, open_only=False)] == [
        Closing.GIVEN_UP
    ]
    assert lost.caveats == (caveat,)
    feed.sync()
    done = retain(feed.lake, now=datetime.now(UTC) + 2 * DAY)
    assert done.notes == ()
    assert min(done.changes, done.records) > 0
    assert verify(feed.lake).equal
    # A table that begins again lacks nothing.
    lost.upstream.truncate_table(TABLE)
    lost.added(4)
    assert lost.caveats == ()


def test_giving_up_is_safe_to_run_again(lost: Lost) -> None:
    with killed(before(redriving, "close_rows")):
        lost.give_up()
    assert len(read_quarantine(lost.feed.paths)) == 1
    lost.give_up()
    assert read_quarantine(lost.feed.paths) == []
    assert len(read_accepted(lost.feed.paths)) == 1
    with pytest.raises(NotFoundError, match="no undecodable record in quarantine at topic 'd'"):
        lost.give_up()


def test_a_record_that_was_given_up_is_decoded_again_once(lost: Lost, spark: SparkSession) -> None:
    feed, day = lost.feed, LandingClock.at.date()
    lost.give_up()
    value = next(item.value for item in lost.changefeed.tick() if item.value is not None)
    DeltaTable.forPath(spark, str(feed.paths.raw_messages)).update(
        f"offset = {lost.offset}", {"value": functions(spark).lit(value)}
    )
    (first,) = redecode(feed.lake, [day]).days
    assert (first.rows - first.before, first.released) == (1, 0)
    assert redecode(feed.lake, [day]).equal
    assert read_quarantine(feed.paths) == []
