"""A sync that stands still in the middle, while another one takes over its lease and publishes.

The first is a process of its own, which stops itself (SIGSTOP) at a chosen place, most of them
right before a commit that it has looked at already. The second waits until the lease is over and
syncs the same lake, with more in the source. Then the first goes on: it must commit nothing that
counts, and nothing may be lost or doubled.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.config import Writer
from ticdc_assets.delta.commits import newest_version
from ticdc_assets.delta.control import read_rows
from ticdc_assets.delta.lock import writer_lock
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.mirrors.applying import Outcome
from ticdc_assets.repair.verifying import verify
from ticdc_assets_tests.delta.libraries import lease_of
from ticdc_assets_tests.demo.simulator.builders import churn, fill
from ticdc_assets_tests.lake.feeds import Feed, small_up_to
from ticdc_assets_tests.lake.test_killed_runs import alter, place, two_tables

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WRITER = Writer(lease=timedelta(seconds=2))

STALLING = """
import importlib, json, os, signal, sys
from datetime import timedelta
from pathlib import Path
from ticdc_assets.config import CaptureSource, Changefeed, Writer
from ticdc_assets.delta.lake import Lake
from ticdc_assets.base.errors import TicdcError
from ticdc_assets.mirrors import file_fates
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.landing import land
from ticdc_assets.mirrors.applying import apply_changes
from ticdc_assets.log.schema_tables import register_new

root, capture, owner, name, about, is_large = sys.argv[1:]
if is_large:
    file_fates.SMALL_ROWS, file_fates.MOST_DELETED = 0, 0.9
module, _, inside = owner.partition(":")
holder = importlib.import_module(module)
for part in inside.split(".") if inside else ():
    holder = getattr(holder, part)
original = getattr(holder, name)
stopped = []

def stalling(*args, **kwargs):
    text = str(args[0])
    if not stopped and about in text:
        stopped.append(text)
        print("stops", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return original(*args, **kwargs)

setattr(holder, name, stalling)
feed = Changefeed(
    name="feed", wire_format="simple-json", timezone="UTC",
    source=CaptureSource(path=Path(capture)), writer=Writer(lease=timedelta(seconds=2)),
)
lake = Lake.open(Path(root), feed)
try:
    with lake.writing():
        land(lake)
        decode_new(lake)
        register_new(lake)
        apply_changes(lake)
    print("done", flush=True)
except TicdcError as error:
    print(type(error).__name__, error, flush=True)
except BaseException as error:
    print("not one of ours:", type(error).__name__, error, flush=True)
"""


@dataclass(frozen=True)
class Place:
    """Where a sync stands still: before a function is called about a table.

    Attributes:
        owner: module, and what inside it has the function.
        name: the function.
        about: a piece of its first argument: of a table's path.
        is_large: whether small mirrors are written as large ones are.
    """

    owner: str
    name: str
    about: str = ""
    is_large: bool = False


COMMIT = ("ticdc_assets.delta.committing", "create")

PLACES = {
    "records are in files": Place("ticdc_assets.delta.appending", "commit_state"),
    "records are about to be committed": Place(*COMMIT, "/raw_messages/"),
    "the landing is about to be logged": Place(*COMMIT, "/landings/"),
    "changes are about to be committed": Place(*COMMIT, "/change_log/"),
    "faults are about to be committed": Place(*COMMIT, "/quarantine/"),
    "totals are about to be committed": Place(*COMMIT, "/change_groups/"),
    "DDL is about to be committed": Place(*COMMIT, "/ddl_history/"),
    "schemas are about to be committed": Place(*COMMIT, "/schema_registry/"),
    "a small mirror is about to be committed": Place(*COMMIT, "/mirrors/"),
    "a large mirror is about to be committed": Place(*COMMIT, "/mirrors/", is_large=True),
    "a cut is about to be published": Place("ticdc_assets.mirrors.applying", "publish"),
    "a cut is about to be committed": Place(*COMMIT, "/cuts/"),
}

FIRST = {
    "the first records are about to be committed": Place(*COMMIT, "/raw_messages/"),
    "the first mirror is about to be made": Place(*COMMIT, "/mirrors/"),
    "the first cut is about to be committed": Place(*COMMIT, "/cuts/"),
}


@dataclass
class Story:
    """An upstream, its changefeed, and a lake that follows under a lease."""

    feed: Feed
    upstream: Upstream
    changefeed: StandInChangefeed

    @classmethod
    def begun(cls, spark: SparkSession, folder: Path) -> "Story":
        upstream = two_tables()
        # Identical rows of a table without a key are counted, not kept apart.
        upstream.create_table(("d", "bag"), (column("v", "int"),))
        fill(upstream, ("d", "bag"), rows=5)
        feed = Feed.of(spark, folder)
        feed = feed.having(writer=WRITER)
        return cls(feed, upstream, StandInChangefeed(upstream, "d", partitions=2))

    def send(self) -> None:
        self.feed.write(self.changefeed.tick())

    def sync(self) -> Outcome:
        with writer_lock(self.feed.paths, WRITER):
            return self.feed.sync().outcome

    def alter(self) -> None:
        alter(self.upstream)
        self.send()
        self.feed.write([self.changefeed.inject(1, key=None, value=b"{")])

    def go_on(self, seed: int) -> None:
        churn(self.upstream, steps=5, seed=seed)
        self.send()

    @contextmanager
    def stalled(self, where: Place) -> Iterator[subprocess.Popen[str]]:
        assert hasattr(self.feed.changefeed.source, "path")
        words = [
            *(str(self.feed.paths.root), str(self.feed.changefeed.source.path)),
            *(where.owner, where.name, where.about, "large" if where.is_large else ""),
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", STALLING, *words], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "stops\n"
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.communicate()

    def require_whole(self) -> None:
        """Nothing is lost, nothing is doubled."""
        feed = self.feed
        feed.require_truth(self.changefeed)
        log, raw = read_rows(feed.paths.change_log), read_rows(feed.paths.raw_messages)
        assert len({place(row, "index") for row in log}) == len(log)
        assert len({place(row) for row in raw}) == len(raw)
        assert sum(row["rows"] for row in read_rows(feed.paths.change_groups)) == len(log)
        numbers = [row["number"] for row in read_rows(feed.paths.cuts)]
        assert len(set(numbers)) == len(numbers)
        for table in (*feed.paths.tables, feed.paths.accepted_gaps):
            found = (lease_of(table, it) for it in range(newest_version(table) + 1))
            leases = [number for number in found if number is not None]
            assert leases == sorted(leases), f"{table} has a commit of an older lease"


def require_refused(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGCONT)
    told = process.communicate(timeout=120)[0].splitlines()[-1]
    assert told.startswith("LeaseLostError"), told


@pytest.mark.parametrize("where", PLACES)
def test_a_stalled_sync_loses_and_doubles_nothing(
    where: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if PLACES[where].is_large:
        small_up_to(monkeypatch, 0)
    story = Story.begun(spark, tmp_path)
    story.send()
    assert story.sync() is Outcome.PUBLISHED
    story.alter()
    with story.stalled(PLACES[where]) as process:
        story.go_on(seed=2)
        assert story.sync() is Outcome.PUBLISHED
        story.require_whole()
        cut = story.feed.cut
        require_refused(process)
    assert story.feed.cut == cut
    story.require_whole()
    assert story.sync() is Outcome.UNCHANGED
    story.go_on(seed=3)
    assert story.sync() is Outcome.PUBLISHED
    story.require_whole()
    assert verify(story.feed.lake).equal


@pytest.mark.parametrize("where", FIRST)
def test_a_stalled_first_sync_loses_and_doubles_nothing(
    where: str, spark: SparkSession, tmp_path: Path
) -> None:
    story = Story.begun(spark, tmp_path)
    story.send()
    with story.stalled(FIRST[where]) as process:
        story.go_on(seed=2)
        assert story.sync() is Outcome.PUBLISHED
        cut = story.feed.cut
        require_refused(process)
    assert story.feed.cut == cut
    story.require_whole()
    story.go_on(seed=3)
    assert story.sync() is Outcome.PUBLISHED
    story.require_whole()
    assert verify(story.feed.lake).equal
