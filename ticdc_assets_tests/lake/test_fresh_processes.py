"""What needs Spark starts it: each such path of a sync and of a command in a process of its own.

The lakes that they find are made in this process without Spark, and each test has a copy, so none
depends on what another one started. The session of other tests is not used here.
"""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from ticdc_assets.demo.simulator.alterations import DropColumn
from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.demo.simulator.upstream import Truth, Upstream
from ticdc_assets.log.cuts import MirrorCut, require_cut
from ticdc_assets.log.quarantine import Closing, close_rows, place_of, read_quarantine
from ticdc_assets.mirrors import change_reading, mirror_making
from ticdc_assets.rows import rows_of_work
from ticdc_assets.spark import executing
from ticdc_assets.spark.session import LazySession
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.demo.simulator.builders import write_capture
from ticdc_assets_tests.golden import Rows, rows_of
from ticdc_assets_tests.lake.feeds import Feed, grow_cuts_older, truth_rows

pytestmark = pytest.mark.spark

MANY, LARGE = ("d", "many"), ("d", "large")
"""6,000 rows with 12,000 changes, and 11,000 rows: more than are rewritten without Spark."""


@dataclass(frozen=True)
class Story:
    """What a changefeed sent, up to moments with a name, and its lake at two of them.

    Attributes:
        folder: where the captures and the lakes are.
        truths: the rows of the source at each moment, as the source has them.
        last_ts: TSO of the last transaction at each moment.
    """

    folder: Path
    truths: dict[str, Truth] = field(default_factory=dict)
    last_ts: dict[str, int] = field(default_factory=dict)

    def truth(self, moment: str) -> Rows:
        return truth_rows(self.truths[moment])

    def capture(self, moment: str) -> Path:
        return self.folder / f"{moment}.jsonl"

    def at(
        self, moment: str, folder: Path, *, lake: str | None = None, **settings: Any
    ) -> Commands:
        """Return commands on what was sent up to a moment and on a copy of the lake of another."""
        if lake is not None:
            shutil.copytree(self.folder / lake, folder / "lake")
        shutil.copy(self.capture(moment), folder / "capture.jsonl")
        commands = Commands(folder)
        commands.add_capture("feed", folder / "capture.jsonl", **settings)
        return commands


def dumped(commands: Commands, *arguments: object) -> Rows:
    return rows_of(map(json.loads, commands.ran("dump", "feed", *arguments).splitlines()))


def mirror_of(commands: Commands, name: TableName) -> MirrorCut:
    cut = require_cut(commands.paths("feed"))
    assert (cut.failed, cut.unaccounted) == ((), ())
    mirror = cut.mirror(*name)
    assert mirror is not None
    return mirror


def update(upstream: Upstream, name: TableName, value: str, *, rows: int) -> None:
    with upstream.transaction() as transaction:
        for number in range(rows):
            transaction.update(name, (str(number),), changes={"v": value})


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, java: None) -> Story:
    folder = tmp_path_factory.mktemp("story")
    story = Story(folder)
    upstream = Upstream()
    upstream.create_database("d")
    columns = (column("id", "int", nullable=False), column("v", "int"), column("day", "date"))
    for name, rows in ((MANY, 6_000), (LARGE, 11_000)):
        upstream.create_table(name, columns, primary_key=("id",))
        with upstream.transaction() as transaction:
            for number in range(rows):
                transaction.insert(name, {"id": str(number), "v": "0", "day": "2026-01-01"})
    changefeed = StandInChangefeed(
        upstream, "d", partitions=2, options=FeedOptions(rows_per_flush=3_000)
    )
    feed = Feed.of(LazySession(), folder)

    def send(moment: str) -> None:
        feed.write(changefeed.records())
        shutil.copy(folder / "capture.jsonl", story.capture(moment))
        story.truths[moment] = {name: dict(rows) for name, rows in upstream.truth().items()}
        story.last_ts[moment] = changefeed.upstream.history[-1].commit_ts

    def sync(moment: str) -> None:
        feed.sync()
        shutil.copytree(folder / "lake", folder / moment)

    with pytest.MonkeyPatch.context() as patch:
        # All of it is small, so that no Spark is started here.
        for owner in (rows_of_work, change_reading, mirror_making, executing):
            for limit in {"INLINE_ROWS", "INLINE_BYTES"} & vars(owner).keys():
                patch.setattr(owner, limit, 10**6)
        send("filled")
        sync("filled")
        update(upstream, MANY, "1", rows=1)
        send("touched")
        update(upstream, MANY, "2", rows=6_000)
        update(upstream, MANY, "3", rows=6_000)
        send("changed")
        update(upstream, MANY, "4", rows=1)
        write_capture(
            folder / "capture.jsonl", [changefeed.inject(0, key=None, value=b"no message")]
        )
        send("closed")
        sync("closed")
    update(upstream, LARGE, "5", rows=1)
    send("merged")
    upstream.alter_table(LARGE, DropColumn(name="day"))
    update(upstream, MANY, "6", rows=1)
    send("altered")
    changefeed.restart(story.last_ts["changed"])
    send("replayed")
    return story


# In `make test`: a sync that starts Spark in its middle ------------------------------------------


def test_many_changes_of_few_rows(story: Story, tmp_path: Path) -> None:
    """More changes than are folded here, in a batch that is small enough to be decoded here."""
    commands = story.at("changed", tmp_path, lake="filled")
    assert "published: cut 2" in commands.ran("sync", "feed")
    found = mirror_of(commands, MANY)
    assert (found.mode, found.rows, found.changes) == ("change", 6_000, 6_000)
    assert commands.rows("feed") == story.truth("changed")


# Left to the nightly: each is a program with a JVM of its own -------------------------------------


@pytest.mark.slow
def test_a_mirror_that_a_killed_run_left_ahead(story: Story, tmp_path: Path) -> None:
    commands = story.at("touched", tmp_path, lake="filled")
    before = mirror_of(commands, LARGE)
    path = before.path(commands.paths("feed"))
    rows = DeltaTable(str(path)).to_pyarrow_table()
    write_deltalake(str(path), rows.slice(0, 9_000), mode="overwrite")
    assert "published: cut 2" in commands.ran("sync", "feed")
    found = mirror_of(commands, LARGE)
    assert (found.mode, found.rows) == ("change", 11_000)
    assert found.version > before.version + 1


@pytest.mark.slow
def test_a_truncated_change_log(story: Story, tmp_path: Path) -> None:
    commands = story.at("closed", tmp_path, lake="closed", retention={"change_log": "1 day"})
    paths = commands.paths("feed")
    give_up_quarantined(paths)
    grow_cuts_older(paths, hours=48)
    told = commands.ran("maintain", "feed")
    assert "change_log: truncated below cut 2" in told
    assert DeltaTable(str(paths.change_log)).count() < 100


def give_up_quarantined(paths: LakePaths) -> None:
    """Close what is in quarantine: as long as a record is there, it may be of any table."""
    places = [place_of(row) for row in read_quarantine(paths)]
    close_rows(paths, "decode", places, Closing.REMOVED)


@pytest.mark.slow
def test_everything_at_once(story: Story, tmp_path: Path) -> None:
    """More records than are landed and decoded here, more changes than are folded here."""
    commands = story.at("closed", tmp_path, history=["d.many"])
    assert "published: cut 1" in commands.ran("sync", "feed")
    assert dumped(commands) == story.truth("closed")
    versions = commands.ran("show", "feed", *MANY, "--history", "5", "--format", "jsonl")
    assert [json.loads(line)["row"]["v"] for line in versions.splitlines()] == ["0", "2", "3"]


@pytest.mark.slow
def test_a_history_that_is_switched_on(story: Story, tmp_path: Path) -> None:
    commands = story.at("closed", tmp_path, lake="closed", history=["d.many"])
    assert "published: cut 3" in commands.ran("sync", "feed")
    assert mirror_of(commands, MANY).history_rows == 18_002
    rows = commands.ran("show", "feed", *MANY, "--deleted", "--format", "jsonl").splitlines()
    assert len(rows) == 6_000


@pytest.mark.slow
def test_a_large_mirror_that_is_merged_into_and_altered(story: Story, tmp_path: Path) -> None:
    """The rows of a mirror that Spark has written are looked at before it is altered in place."""
    commands = story.at("merged", tmp_path, lake="closed")
    commands.ran("sync", "feed")
    assert mirror_of(commands, LARGE).mode == "change"
    shutil.copy(story.capture("altered"), tmp_path / "capture.jsonl")
    commands.ran("sync", "feed")
    assert mirror_of(commands, LARGE).mode == "alter"
    assert dumped(commands) == story.truth("altered")


@pytest.mark.slow
def test_rows_that_come_again(story: Story, tmp_path: Path) -> None:
    commands = story.at("replayed", tmp_path, lake="closed")
    assert "ignored 1 replayed row, folded in 0 late rows" in commands.ran("sync", "feed")
    assert dumped(commands) == story.truth("altered")


@pytest.mark.slow
def test_tables_that_are_folded_again(story: Story, tmp_path: Path) -> None:
    commands = story.at("closed", tmp_path, lake="closed")
    told = commands.ran("backfill", "feed", "--table", "d.many")
    assert "d.many: folded again, 6,000 rows" in told
    assert dumped(commands) == story.truth("closed")


@pytest.mark.slow
def test_moments_and_versions(story: Story, tmp_path: Path) -> None:
    """Reads that fold more changes than are folded here."""
    commands = story.at("closed", tmp_path, lake="closed")
    moment = story.last_ts["changed"]
    rows = commands.ran("show", "feed", *MANY, "--as-of", moment, "--format", "jsonl")
    assert {json.loads(row)["v"] for row in rows.splitlines()} == {"3"}
    assert dumped(commands, "--as-of", moment) == story.truth("changed")
    versions = commands.ran("show", "feed", *MANY, "--history", "0", "--format", "jsonl")
    values = [json.loads(line)["row"]["v"] for line in versions.splitlines()]
    assert values == ["0", "1", "2", "3", "4"]


@pytest.mark.slow
def test_queries_and_proofs(story: Story, tmp_path: Path) -> None:
    commands = story.at("closed", tmp_path, lake="closed")
    query = "select count(*) as n, min(v) as v from d.many"
    assert "6000" in commands.ran("sql", "feed", query)
    told = commands.ran("verify", "feed", "--json")
    assert json.loads(told)["cut"] == 2
    told = commands.ran("backfill", "feed", "--day", datetime.now(UTC).date())
    assert "differs" in told or "differ" in told


@pytest.mark.slow
def test_quarantined_records_are_tried_again(story: Story, tmp_path: Path) -> None:
    commands = story.at("closed", tmp_path, lake="closed")
    assert "tried 1 quarantined record again: 0 decoded" in commands.ran("redrive", "feed")


@pytest.mark.slow
def test_what_would_be_removed(story: Story, tmp_path: Path) -> None:
    ages = {"change_log": "1 day", "raw_messages": "1 day"}
    commands = story.at("closed", tmp_path, lake="closed", retention=ages)
    give_up_quarantined(commands.paths("feed"))
    grow_cuts_older(commands.paths("feed"), hours=48)
    assert "would remove 29,0" in commands.ran("maintain", "feed", "--dry-run")


@pytest.mark.slow
@pytest.mark.dagster
@pytest.mark.parametrize("job", ["feed_verify", "feed_maintenance"])
def test_jobs_of_dagster(job: str, story: Story, tmp_path: Path) -> None:
    """By Dagster's own command, as a daemon's run does it."""
    commands = story.at("closed", tmp_path, lake="closed", retention={"change_log": "1 day"})
    if job == "feed_maintenance":
        grow_cuts_older(commands.paths("feed"), hours=48)
    (tmp_path / "dagster_home").mkdir()
    process = commands.start(
        *("job", "execute", "-m", "ticdc_assets.definitions", "-j", job),
        program=(sys.executable, "-m", "dagster"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output = process.communicate(timeout=300)[0].decode()
    assert process.returncode == 0, output
    assert "RUN_SUCCESS" in output
