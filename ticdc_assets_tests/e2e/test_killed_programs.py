"""A program that is killed at any moment and run again ends as one that was not."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets_tests.brokers import OwnBroker
from ticdc_assets_tests.e2e.topics import FEED, TopicFeed, retopiced
from ticdc_assets_tests.golden import Scenario, assert_same_rows

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Moment = Callable[[LakePaths], Path]

MOMENTS: dict[str, tuple[Moment, float]] = {
    "while it lands": (lambda paths: paths.lock, 0.0),
    "when it has landed": (lambda paths: paths.raw_messages, 0.0),
    "when it has decoded": (lambda paths: paths.change_log, 0.0),
    "while it applies": (lambda paths: paths.schema_registry, 0.5),
    "when mirrors are half there": (lambda paths: paths.row_folders[0], 1.0),
}
"""When to kill: so many seconds after something new was committed to the table."""


@pytest.mark.parametrize(
    "moments",
    [
        # What a run leaves at any of its steps, deaths in the tests' own process show.
        pytest.param(("when it has landed", "when mirrors are half there"), id="two"),
        pytest.param(tuple(MOMENTS), id="all", marks=pytest.mark.slow),
    ],
)
def test_a_program_that_is_killed_goes_on(
    moments: tuple[str, ...],
    broker: OwnBroker,
    topic: str,
    tmp_path: Path,
    spark: Any,
    golden_dir: Callable[..., Path],
) -> None:
    scenario = Scenario(golden_dir("simple-json", "shop"))
    feed = TopicFeed.of(broker, topic, tmp_path, timezone=scenario.timezone)
    capture = retopiced(scenario.records, topic, tmp_path / "golden.jsonl.gz")
    feed.commands.done("play", capture, FEED)
    size = len(scenario.records) // (len(moments) + 1)
    paths = feed.commands.paths(FEED)
    killed = [
        kill_a_sync(feed, size, what=moment(paths), delay=delay)
        for moment, delay in map(MOMENTS.__getitem__, moments)
    ]
    # A slow machine may let one run to its end before the blow falls, not most of them.
    assert sum(killed) >= len(moments) // 2, dict(zip(moments, killed, strict=True))
    feed.sync()
    landed = feed.landed()
    assert len(landed) == len(set(landed)) == len(scenario.records)
    assert feed.cut_ts == scenario.meta["final_ts"]
    assert_same_rows(feed.rows, scenario.state())
    assert "nothing new was landed" in feed.sync()


def kill_a_sync(feed: TopicFeed, size: int, *, what: Path, delay: float) -> bool:
    """Start a sync, kill it `delay` seconds after `what` changed, and tell whether it was alive."""
    before = commits(what)
    program = feed.commands.start(
        "sync", FEED, "--max-records", size, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 240
        while commits(what) == before and program.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(delay)
        alive = program.poll() is None
    finally:
        # The program and its JVM: nobody gets a chance to tidy up.
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
        program.wait(30)
    return alive


def commits(path: Path) -> int:
    """Return how many Delta commits there are at or below a folder, or whether a file is there."""
    if not path.is_dir():
        return int(path.exists())
    return sum(1 for log in path.rglob("_delta_log") for _ in log.glob("*.json"))
