"""Sustained changes: how long each waits for its cut while a follow run keeps up with a producer.

In: how many changes a second, over how many tables of how many rows, for how long. Out: the seconds
from the production of each change until a cut that has it is published, as median and 99th
percentile, and CPU seconds of the follow run for a thousand changes.

The follow run is the installed command (`ticdc-assets sync --follow`), with Dagster, in a process
of its own. Changes are produced in small steps, with a watermark to each partition twice a second.
They begin when the command has published the first cut after its start, so that its start is not
waited for; its CPU seconds are counted with the others. Afterwards the mirrors must have the rows
that they have to have.
"""

import os
import signal
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

from bench.apart import apart
from bench.commands import configure, installed, run_watched
from bench.filling import local_broker
from bench.goals import Reached
from bench.measuring import Sample
from bench.results import Part, Result
from bench.traffic import Traffic
from bench.trickle import load_apart
from ticdc_assets.log.cuts import Cut, read_cuts, require_cut
from ticdc_assets.model.tso import physical_ms
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.source.kafka.records import produce
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire import WireFormat

entry = partial(Result, "Sustained changes")
CHANGEFEED = "bench"

STEP_SECONDS = 0.1
STEPS_PER_WATERMARK = 5
_START_SECONDS = 300.0
"""How long the first cut may take."""


def measure_sustained(folder: Path, *, tables: int, rows: int, rate: int, seconds: float) -> Part:
    """Return how long changes wait for their cuts.

    Args:
        folder: a scratch folder.
        tables: how many tables.
        rows: rows of the mirror of each.
        rate: changes a second, over all tables.
        seconds: how long they are produced.
    """
    lake = folder / "sustained"
    with local_broker(folder / "broker") as broker, ThreadPoolExecutor(1) as pool:
        loaded = apart(load_apart, lake, broker.port, rows, tables).result()
        paths = LakePaths(root=lake / "lake", changefeed=CHANGEFEED)
        traffic, source = loaded.traffic, loaded.source
        configure(lake, CHANGEFEED, WireFormat.SIMPLE_JSON, source)
        pid = lake / "pid"
        # The shell becomes the command, so that its id is known while it runs.
        command = ["sh", "-c", f'echo $$ > {pid}; exec "$@"', "sh"]
        command += installed("sync", CHANGEFEED, "--follow")
        follow = pool.submit(apart, run_watched, command, lake)
        commits: list[int] = []
        in_time = False
        try:
            first = traffic.be_at(time.time_ns() // 1_000_000)
            produce(source, traffic.changes(10 * tables))
            if _is_cut(paths, first, follow, _START_SECONDS):
                produce(source, _paced(traffic, rate, seconds, commits))
                # As long again for what is left; who is too slow does not get there.
                in_time = _is_cut(paths, commits[-1], follow, max(seconds, 30.0))
        finally:
            if pid.exists() and not follow.done():
                os.kill(int(pid.read_text(encoding="ascii")), signal.SIGINT)
        sample, memory = follow.result().result()
    if not commits:
        raise TimeoutError(f"the follow run published no cut within {_START_SECONDS:g} s")
    cuts = read_cuts(paths)
    waits = seconds_until_cut(cuts, commits)
    found = {mirror.table: mirror.rows for mirror in require_cut(paths).mirrors}
    if in_time and found != traffic.live:
        raise ValueError(f"the mirrors have {found} rows and not {traffic.live}")
    ordered = quantiles(waits, n=100)
    return Part(
        results=[
            entry(
                f"from a change to its cut: {rate:,} changes/s over {tables} tables of "
                f"{rows:,} rows",
                # The one in the middle is the median of all; CPU seconds are those of the run.
                Sample(
                    seconds=(min(waits), ordered[49], max(waits)), cpu_seconds=sample.cpu_seconds
                ),
                goal="sustained-p50",
            ),
            entry(
                "1,000 of these changes, in the time in which they come",
                Sample(
                    seconds=(1_000 / rate,),
                    cpu_seconds=sample.cpu_seconds / len(commits) * 1_000,
                ),
            ),
        ],
        reached=[Reached("sustained-p99", ordered[98])],
        facts=[
            f"Sustained: {len(commits):,} changes in {seconds:g} s, a watermark each "
            f"{STEP_SECONDS * STEPS_PER_WATERMARK:g} s, {len(cuts)} cuts. From a change to its "
            f"cut: p50 {ordered[49]:.2f} s, p95 {ordered[94]:.2f} s, p99 {ordered[98]:.2f} s, at "
            f"most {max(waits):.2f} s"
            + ("" if in_time else "; the run did not get to the end in as long again")
            + f". Most memory of the follow run: {memory.python} MB in Python and {memory.jvm} MB "
            "in a JVM."
        ],
    )


def seconds_until_cut(cuts: Sequence[Cut], commits: Iterable[int]) -> list[float]:
    """Return for each commit ts the seconds from its time to the cut that has it.

    One that no cut has has waited until now.

    Args:
        cuts: the cuts, in their order.
        commits: the commit ts, of moments of this machine's clock.
    """
    stamps = [cut.tso for cut in cuts]
    now = time.time()
    waits: list[float] = []
    for ts in commits:
        number = bisect_left(stamps, ts)
        at = cuts[number].published_at.timestamp() if number < len(cuts) else now
        waits.append(at - physical_ms(ts) / 1000)
    return waits


def _paced(
    traffic: Traffic, rate: int, seconds: float, commits: list[int]
) -> Iterator[CaptureRecord]:
    """Yield changes at a pace, and add to `commits` a TSO for each."""
    began = time.monotonic()
    made = 0
    for step in range(1, round(seconds / STEP_SECONDS) + 1):
        time.sleep(max(0.0, began + step * STEP_SECONDS - time.monotonic()))
        count = round(rate * STEP_SECONDS * step) - made
        made += count
        commits += [traffic.be_at(time.time_ns() // 1_000_000)] * count
        yield from traffic.changes(count, watermark=False)
        if step % STEPS_PER_WATERMARK == 0:
            yield from traffic.watermarks()
    yield from traffic.watermarks()


def _is_cut(paths: LakePaths, tso: int, follow: "Future[Any]", seconds: float) -> bool:
    """Wait for a cut that has a TSO while the follow run goes on; return whether it came."""
    deadline = time.monotonic() + seconds
    while require_cut(paths).tso < tso:
        if follow.done() or time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True
