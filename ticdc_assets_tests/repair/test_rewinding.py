"""Going back to an older cut: the lake is then as if nothing too far ahead had been believed."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import NotFoundError
from ticdc_assets.config import ALL_TABLES
from ticdc_assets.delta.control import read_rows
from ticdc_assets.demo.simulator.alterations import AddColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.clock import wall_clock_ms
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.log import quarantine
from ticdc_assets.log.ahead import TS_AHEAD
from ticdc_assets.log.change_statistics import read_statistics
from ticdc_assets.log.cuts import Rewind, newest_cut, publish, read_cuts, void_numbers
from ticdc_assets.log.landing import landed_days
from ticdc_assets.log.quarantine import Closing, Place, count_open, read_quarantine
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.model.events import Watermark
from ticdc_assets.model.tso import MAX_TSO, from_physical_ms
from ticdc_assets.observe.series import read_cut_history
from ticdc_assets.repair import redecoding, redriving, rewinding
from ticdc_assets.repair.maintenance import maintain
from ticdc_assets.repair.redecoding import redecode, redecode_ahead
from ticdc_assets.repair.redriving import redrive
from ticdc_assets.repair.retention import retain
from ticdc_assets.repair.rewinding import Rewinding, rewind
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.demo.simulator.builders import churn, fill, plain_upstream, upstream_of
from ticdc_assets_tests.lake.feeds import Feed, grow_cuts_older, treat_as_large, truth_rows
from ticdc_assets_tests.lake.killing import before, killed
from ticdc_assets_tests.repair.test_maintenance import history_texts
from ticdc_assets_tests.repair.test_verify import assert_clean

pytestmark = pytest.mark.spark

KEYED, BAG, NEW = ("d", "keyed"), ("d", "bag"), ("d", "new")


class Story:
    """A feed that believed a watermark far in the future, and the same feed that never saw it.

    Attributes:
        trusting: the first of the two, with a limit that lets anything in.
        clean: the second one, which got a watermark at 1 instead.
        right: the last cut of the first one that was right.
        truth_then: the rows of then.
        truth: the rows at the end.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._offsets = Counter[int]()
        upstream = plain_upstream(KEYED, bags=[BAG], rows=6)
        changefeed = StandInChangefeed(
            upstream, "d", partitions=2, options=FeedOptions(force_replicate=True, rows_per_flush=9)
        )
        self.trusting, self.clean = (
            feed.having(history=ALL_TABLES, max_ahead_seconds=most)
            for feed, most in (
                (Feed.of(spark, folder), 1e12),
                (
                    Feed.of(spark, folder, capture=folder / "clean.jsonl").in_folder(folder / "c"),
                    3600.0,
                ),
            )
        )
        self._write(changefeed.tick())
        self.trusting.sync()
        churn(upstream, steps=4, seed=1)
        self._write(changefeed.tick())
        self.trusting.sync()
        self.clean.sync()
        self.right = self.trusting.cut
        self.truth_then = truth_rows(changefeed.truth())
        upstream.alter_table(KEYED, AddColumn(column=column("n", "int", default="7")))
        upstream.create_table(NEW, (column("id", "int", nullable=False),), primary_key=("id",))
        fill(upstream, NEW, rows=3)
        churn(upstream, steps=8, seed=2)
        records = list(changefeed.tick())
        half = len(records) // 2
        self._write(records[:half])
        row = next(item for item in records if b'"INSERT"' in (item.value or b""))
        for bad in (mark(0, MAX_TSO), mark(1, MAX_TSO), far_ahead(row)):
            self._write([bad], clean=mark(bad.partition, 1))
        self.trusting.sync()
        assert self.trusting.cut.tso == MAX_TSO
        self._write(records[half:])
        self.trusting.sync()
        self.clean.sync()
        self.truth = truth_rows(changefeed.truth())

    def _write(self, records: Iterable[CaptureRecord], clean: CaptureRecord | None = None) -> None:
        for item in records:
            offset = self._offsets[item.partition]
            self._offsets[item.partition] += 1
            self.trusting.write([replace(item, offset=offset)])
            self.clean.write([replace(clean or item, offset=offset)])


def mark(partition: int, watermark_ts: int) -> CaptureRecord:
    """Return a record with a watermark; its offset is given when it is written."""
    event = Watermark(watermark_ts=watermark_ts, build_ts_ms=1)
    (record,) = encode(WireFormat.SIMPLE_JSON, [event])
    return CaptureRecord(
        topic="d", partition=partition, offset=0, timestamp_ms=-1, key=None, value=record.value
    )


def far_ahead(row: CaptureRecord) -> CaptureRecord:
    message = json.loads(row.value or b"")
    return replace(row, value=json.dumps(message | {"commitTs": MAX_TSO}).encode())


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(spark, tmp_path_factory.mktemp("story"))


@pytest.fixture
def feed(story: Story, tmp_path: Path) -> Feed:
    """The trusting feed with a lake of its own, and the limit of today."""
    shutil.copytree(story.trusting.paths.root, tmp_path / "lake")
    feed = story.trusting.in_folder(tmp_path)
    return feed.having(max_ahead_seconds=3600.0)


def rewound(feed: Feed, **wanted: int) -> Rewinding:
    return rewind(feed.lake, by="ada@here", **wanted)


def ahead(feed: Feed) -> list[dict[str, Any]]:
    return [row for row in read_quarantine(feed.paths) if row["reason"] == TS_AHEAD]


def closed_fault(feed: Feed, offset: int, closing: Closing) -> Place:
    """Put a change into quarantine and close it; return its place."""
    fault = dict.fromkeys(quarantine.FAULT_SCHEMA.names) | {
        "stage": "apply",
        "topic": "d",
        "partition": 0,
        "offset": offset,
        "index": 0,
        "commit_ts": 1,
    }
    faults = pa.Table.from_pylist([fault], schema=quarantine.FAULT_SCHEMA)
    quarantine.append_faults(feed.paths, [faults], app_id="test")
    place = quarantine.place_of(fault)
    quarantine.close_rows(feed.paths, "apply", [place], closing)
    return place


def versions(feed: Feed) -> dict[tuple[str, str], list[str]]:
    return {(item.database, item.table): history_texts(feed, item) for item in feed.cut.mirrors}


def progress(feed: Feed) -> dict[tuple[str, int], int]:
    found = read_statistics(feed.paths).progress()
    return {place: item.watermark_ts for place, item in found.items()}


def test_after_it_the_lake_is_as_if_it_had_never_believed_it(story: Story, feed: Feed) -> None:
    wrong = feed.cut
    assert wrong.tso == MAX_TSO
    done = rewound(feed, tso=story.right.tso)
    assert (done.older.number, done.before.number) == (story.right.number, wrong.number)
    assert done.quarantined == 3
    assert len(ahead(feed)) == 3
    cut = feed.cut
    assert cut.number == wrong.number + 1
    assert (cut.tso, cut.batch) == (story.right.tso, story.right.batch)
    assert cut.rewind == Rewind(
        number=story.right.number, from_number=wrong.number, from_tso=MAX_TSO, by="ada@here"
    )
    assert feed.rows() == feed.rows_as_of(cut.tso) == story.truth_then
    with pytest.raises(NotFoundError, match="the newest cut is at"):
        feed.rows_as_of(cut.tso + 1)
    assert_clean(feed)
    void = set(range(story.right.number + 1, cut.number))
    assert void_numbers(feed.paths) == void
    assert len(void) == 2
    assert void.isdisjoint(item.number for item in read_cuts(feed.paths))
    history = read_cut_history(feed.paths, story.right.published_at, newest=newest_cut(feed.paths))
    assert [item.number for item in history.points][-2:] == [story.right.number, cut.number]
    assert all(0 <= item.lag_seconds < 1e9 for item in history.points)
    # Whoever does it again finds that it is done.
    assert rewound(feed, tso=cut.tso).cut == cut
    applying = feed.sync()
    assert applying.outcome is Outcome.PUBLISHED
    assert feed.cut.tso == story.clean.cut.tso
    assert progress(feed) == progress(story.clean)
    assert feed.rows() == story.clean.rows() == story.truth
    assert versions(feed) == versions(story.clean)
    assert feed.rows_as_of(cut.tso) == story.truth_then
    assert_clean(feed)
    assert feed.sync().outcome is Outcome.UNCHANGED
    maintain(feed.lake, margin=timedelta(0))
    assert feed.rows() == story.truth
    assert feed.rows_as_of(cut.tso) == story.truth_then
    # Nothing of it is forgotten: it comes back if it is wanted.
    assert redrive(feed.having(max_ahead_seconds=1e12).lake).decoded == 3
    assert feed.sync().cut is not None
    assert feed.cut.tso == MAX_TSO


def test_void_cuts_go_with_the_cut_that_made_them_void(story: Story, feed: Feed) -> None:
    cut = rewound(feed, tso=story.right.tso).cut
    void = void_numbers(feed.paths)
    feed.sync()
    # Of cuts older than a day only the newest of an hour stays.
    grow_cuts_older(feed.paths, 48)
    for _ in range(2):
        retain(feed.lake)
        assert void.isdisjoint(item.number for item in read_cuts(feed.paths))
        there = {row["number"] for row in read_rows(feed.paths.cuts, columns=["number"])}
        # It stays if the next hour has begun since.
        assert cut.number in there or void.isdisjoint(there)


def test_a_run_that_was_killed_is_finished_by_the_next_one(story: Story, feed: Feed) -> None:
    for death in (before(redecoding, "replace_day"), before(rewinding, "publish")):
        with killed(death):
            rewound(feed, number=story.right.number)
        # What has left the change log is in quarantine, wherever the run died.
        assert len(ahead(feed)) == 3
    done = rewound(feed, number=story.right.number)
    assert (done.cut.tso, done.quarantined) == (story.right.tso, 0)
    assert len(ahead(feed)) == 3
    feed.sync()
    assert feed.rows() == story.truth
    assert_clean(feed)


def test_quarantine_is_that_of_the_newest_cut_wherever_a_run_is_killed(
    story: Story, feed: Feed
) -> None:
    closed_fault(feed, 1, Closing.LATER_CHANGE)
    closed_fault(feed, 2, Closing.REMOVED)
    with killed(before(rewinding, "publish")):
        rewound(feed, number=story.right.number)
    assert feed.cut.rewind is None
    assert count_open(feed.paths).apply == 0
    with killed(before(rewinding, "reopen_rewound")):
        rewound(feed, number=story.right.number)
    assert feed.cut.rewind is not None
    feed.sync()
    (reopened,) = (row for row in read_quarantine(feed.paths) if row["stage"] == "apply")
    assert reopened["offset"] == 1


@pytest.mark.slow
def test_large_mirrors_are_taken_back(
    story: Story, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    treat_as_large(monkeypatch)
    rewound(feed, tso=story.right.tso)
    feed.sync()
    assert feed.rows() == story.truth


def test_only_the_limit_tells_what_counts(story: Story, feed: Feed) -> None:
    """A cut that was right is gone back behind: nothing leaves the change log."""
    closing = Closing.LATER_CHANGE
    place = closed_fault(feed, 1, closing)
    assert count_open(feed.paths).apply == 0
    first = rewound(feed, tso=story.right.tso)
    assert count_open(feed.paths).apply == 1
    # A killed run closes it, and maintenance publishes a cut that lacks what that run did.
    quarantine.close_rows(feed.paths, "apply", [place], closing)
    publish(feed.paths, first.cut.again(first.cut))
    repeated = feed.cut
    feed.sync()
    again = rewound(feed, tso=story.right.tso)
    assert again.quarantined == 0
    # What closed a fault is gone with the mirror that it was in.
    assert count_open(feed.paths).apply == 1
    assert again.older == repeated
    assert feed.rows() == story.truth_then
    assert feed.sync().outcome is Outcome.PUBLISHED
    assert feed.rows() == story.truth
    numbers = [item.number for item in read_cuts(feed.paths)]
    assert numbers == [
        *range(1, story.right.number + 1),
        first.cut.number,
        repeated.number,
        feed.cut.number - 1,
        feed.cut.number,
    ]
    # What cannot be gone back to is said in one sentence.
    for wanted, said in (
        ({"tso": feed.cut.tso + 1}, "its newest cut"),
        ({"tso": 1}, "no such cut is kept"),
        ({"number": first.before.number}, "no such cut is kept"),
    ):
        with pytest.raises(NotFoundError, match=said) as refused:
            rewound(feed, **wanted)
        assert "\n" not in str(refused.value)
    mirror = story.right.mirrors[0]
    shutil.rmtree(mirror.path(feed.paths))
    with pytest.raises(NotFoundError, match="is damaged"):
        rewound(feed, number=story.right.number)


def test_what_a_re_drive_accepted_stays_accepted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of landing is kept: only a re-drive asks it anew, and what it says is kept too."""
    upstream = upstream_of(
        KEYED, (column("id", "int", nullable=False),), primary_key=("id",), rows=3
    )
    changefeed = StandInChangefeed(upstream, "d", partitions=1)
    feed = Feed.of(spark, tmp_path)
    feed.write(changefeed.tick())
    far = from_physical_ms(wall_clock_ms() + 2 * 3_600_000)
    feed.write([changefeed.inject(0, key=None, value=mark(0, far).value)])
    feed.sync()
    assert feed.cut.tso == changefeed.watermark_ts

    def redriven() -> int:
        return redrive(feed.lake).decoded

    def decoded_again() -> bool:
        return redecode(feed.lake, landed_days(feed.paths)).equal

    assert redriven() == 0
    assert decoded_again()

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(hours=1, seconds=10)

    with monkeypatch.context() as patch:
        patch.setattr(redriving, "datetime", Later)
        patch.setattr(quarantine, "datetime", Later)
        assert redriven() == 1
    feed.sync()
    assert feed.cut.tso == far
    assert decoded_again()
    assert_clean(feed)
    assert redecode_ahead(feed.lake)[0].equal
    feed.require_truth(changefeed)
