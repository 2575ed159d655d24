"""Freshness: how long one sync takes, as a run of its own and as one of a run that follows.

In: a scratch folder and sizes. Out: results, and sentences about where a warm sync's time goes.
Both do the same work on the same stand-in changefeed: ten tables, of which each gets some changes.

    a run of its own    beside   a run that follows
    process, imports, Dagster, Spark's start, the steps, the checks    the steps, reported

The run that follows is measured without Dagster's executor around it, but every event that it would
report is stored in an instance of its own.

Not measured: Spark Connect.
"""

import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any
from unittest.mock import patch

import dagster as dg
from pyspark.sql import SparkSession

from bench.commands import configure, environment, installed
from bench.measuring import measure
from bench.pipeline import Feed
from bench.results import SLOWER, Part, Result, Shares
from bench.shop import Shop, alternating
from ticdc_assets.log import decoding, schema_tables
from ticdc_assets.log.watching import SourceWatcher
from ticdc_assets.mirrors import applying as mirrors
from ticdc_assets.mirrors import validity
from ticdc_assets.orchestration.reporting import events_of
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets.orchestration.syncing import Syncing
from ticdc_assets.wire import WireFormat

entry = partial(Result, "Freshness")

_TIMED: tuple[tuple[str, ModuleType, str], ...] = (
    ("change_groups", decoding, "add_to_statistics"),
    ("reading the history", schema_tables, "read_history"),
    ("completing the history", schema_tables, "complete"),
    ("planning", validity, "build_plan"),
    ("publishing", mirrors, "publish"),
)

_STEPS = ("land", "decode", "register", "apply")
_REPORTING = "report to Dagster"


class Cycle:
    """Warm syncs of one feed, reported to an instance, with the time of each part."""

    def __init__(self, spark: SparkSession, feed: Feed, instance: dg.DagsterInstance) -> None:
        self.steps = ChangefeedSteps(changefeed=feed.changefeed, root=feed.paths.root)
        self._syncing = Syncing(self.steps, spark, instance)
        self._instance = instance
        self.parts: dict[str, list[float]] = defaultdict(list)

    def sync(self) -> None:
        """Sync once."""
        spent: dict[str, float] = defaultdict(float)
        with ExitStack() as stack:
            for name, module, function in _TIMED:
                stack.enter_context(_timed(spent, name, module, function))
            done: list[Any] = []
            works: tuple[tuple[str, Callable[[], object]], ...] = (
                ("land", lambda: done.append(self._syncing.land())),
                ("decode", lambda: done.append(self._syncing.decode())),
                ("register", lambda: done.append(self._syncing.register())),
                ("apply", lambda: done.append(self._syncing.apply())),
            )
            for name, work in works:
                with _clocked(spent, name):
                    work()
            with _clocked(spent, _REPORTING):
                for step in done:
                    for event in events_of([*step.reports, *step.news]):
                        self._instance.report_runless_asset_event(event)
        self.steps.results.clear()
        for name, seconds in spent.items():
            self.parts[name].append(seconds)

    def told(self) -> str:
        """Return where the time of the syncs since the last call went, in one sentence."""
        parts = ", ".join(f"{name} {median(seconds):.2f} s" for name, seconds in self.parts.items())
        self.parts.clear()
        return parts

    def shares(self, what: str) -> Shares:
        """Return the same of the steps, to be drawn."""
        return Shares(
            what=what,
            seconds=tuple((name, median(self.parts[name])) for name in (*_STEPS, _REPORTING)),
        )


@contextmanager
def _clocked(spent: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        spent[name] += time.perf_counter() - began


@contextmanager
def _timed(spent: dict[str, float], name: str, module: ModuleType, function: str) -> Iterator[None]:
    """Add the time that a function takes to `spent`."""
    wrapped = getattr(module, function)

    def call(*args: Any, **kwargs: Any) -> Any:
        with _clocked(spent, name):
            return wrapped(*args, **kwargs)

    with patch.object(module, function, call):
        yield


def measure_freshness(
    spark: SparkSession, folder: Path, *, tables: int, changes: int, repetitions: int
) -> Part:
    """Return the times of syncs, and where those of the warm ones go."""
    folder.mkdir(parents=True)
    states = alternating()
    feed = Feed.of(spark, folder / "cold")
    shop = Shop.open(feed.capture, tables=tables, rows=1_000)
    name = feed.changefeed.name
    configure(folder / "cold", name, WireFormat.SIMPLE_JSON, feed.changefeed.source)

    def run() -> None:
        subprocess.run(
            installed("sync", name),
            env=environment(folder / "cold"),
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    cold = measure(run, repetitions=repetitions, before=lambda: shop.change(changes, states()))
    cold_nothing = measure(run, repetitions=repetitions, warm_up=0)

    feed = Feed.of(spark, folder / "warm")
    shop = Shop.open(feed.capture, tables=tables, rows=1_000)
    facts: list[str] = []
    with dg.DagsterInstance.local_temp(str(folder)) as instance:
        cycle = Cycle(spark, feed, instance)
        cycle.sync()
        warm = measure(
            cycle.sync,
            repetitions=repetitions,
            warm_up=3,
            before=lambda: shop.change(changes, states()),
        )
        shares = cycle.shares(f"{tables} tables x {changes:,} changes, warm")
        facts.append(f"A warm sync with changes, medians of all, first ones too: {cycle.told()}.")
        warm_nothing = measure(cycle.sync, repetitions=repetitions)
        facts.append(f"A warm sync with nothing new: {cycle.told()}.")
        watermark = measure(cycle.sync, repetitions=repetitions, before=shop.send)
        facts.append(f"A warm sync of a watermark: {cycle.told()}.")
    news = SourceWatcher(feed.lake)
    look = measure(lambda: [news.look() for _ in range(1_000)], repetitions=repetitions)
    what = f"{tables} tables of 1,000 rows with {changes:,} changes each"
    facts.append("Spark Connect was not measured.")
    results = [
        entry(f"a run of its own, {what}", cold),
        entry(
            f"a sync of a run that follows, {what}", warm, base=cold, compared=f"{SLOWER} the run"
        ),
        entry("a run of its own, nothing new", cold_nothing),
        entry(
            "a sync of a run that follows, nothing new",
            warm_nothing,
            base=cold_nothing,
            compared=f"{SLOWER} the run",
        ),
        entry(
            "a sync of a run that follows, a watermark of each partition",
            watermark,
            base=cold_nothing,
            compared=f"{SLOWER} the run",
        ),
        entry("checks of a capture that does not change", look, 1_000, "checks"),
    ]
    return Part(results=results, facts=facts, shares=[shares])
