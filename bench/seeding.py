"""Beginning with an export, and comparing with one: rows of a table of 12 columns.

In: how many rows. Out: the time from the files of an export to the published mirror, from CSV and
from SQL; the memory of that with ten times the rows; and the time of a comparison of the mirror
with an export that has one row more, one less and one other value, which it must find.

Each is measured in a process of its own, on a lake of its own, after an export of a few rows that
warms it up. Not measured: the Dagster run around it, and files that are not on this machine.
"""

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from bench.apart import apart
from bench.exports import TABLE, Format, Slip, write_export
from bench.goals import Goal, Reached
from bench.measuring import Memory, MemoryWatch, Sample, cpu_seconds
from bench.pipeline import Feed
from bench.results import Part, Result, Shares
from bench.traffic import DATABASE
from ticdc_assets.engine.executing import INLINE_ROWS
from ticdc_assets.engine.session import get_spark
from ticdc_assets.pipeline.cuts import require_cut
from ticdc_assets.pipeline.schema_tables import register_new
from ticdc_assets.services.diffing import SourceDifference, diff
from ticdc_assets.services.seeding import seed
from ticdc_assets.simulator.changefeed import StandInChangefeed
from ticdc_assets.simulator.upstream import Upstream
from ticdc_assets_tests.simulator.builders import write_capture

SECTION = "Exports"
WARM_UP_ROWS = 2 * INLINE_ROWS
"""More than this process does by itself: Spark's workers are there, and their loops compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """One export that became a mirror.

    Attributes:
        seconds: wall time of each step.
        cpu_seconds: CPU time of all steps.
        memory: when it was most.
    """

    seconds: Mapping[str, float]
    cpu_seconds: float
    memory: Memory

    @property
    def sample(self) -> Sample:
        """The time of all steps."""
        return Sample(seconds=(sum(self.seconds.values()),), cpu_seconds=self.cpu_seconds)


def measure_seeding(folder: Path, *, rows: int, times: int) -> Part:
    """Return the times of seeding `rows` and of comparing with them, and the memory of more."""
    csv = apart(seed_apart, folder / "csv", rows, "csv").result()
    sql = apart(seed_apart, folder / "sql", rows, "sql").result()
    more = apart(seed_apart, folder / "more", rows * times, "csv").result()
    compared = apart(diff_apart, folder / "diff", rows).result()
    note = "" if rows == 1_000_000 else f"{rows:,} rows"
    return Part(
        results=[
            Result(
                section=SECTION,
                what=f"{rows:,} rows of CSV to a mirror",
                sample=csv.sample,
                count=rows,
                goal=Goal.SEED_CSV,
                note=note,
            ),
            Result(
                section=SECTION,
                what=f"{rows:,} rows of SQL to a mirror",
                sample=sql.sample,
                count=rows,
                goal=Goal.SEED_SQL,
                note=note,
            ),
            Result(
                section=SECTION,
                what=f"{rows * times:,} rows of CSV to a mirror",
                sample=more.sample,
                count=rows * times,
            ),
            Result(
                section=SECTION,
                what=f"diff of a mirror of {rows:,} rows with an export",
                sample=compared,
                count=rows,
                goal=Goal.DIFF,
                note=note,
            ),
        ],
        reached=[
            Reached(goal=Goal.SEED_MEMORY, value=more.memory.total / csv.memory.total, note=note),
        ],
        shares=[Shares(what=f"{rows:,} rows of an export", seconds=tuple(csv.seconds.items()))],
        facts=[
            "Exports: one table of 12 columns, files of a million rows, local[2], without Dagster "
            f"around it. Most memory with {rows:,} rows: {csv.memory.python} MB in Python and "
            f"{csv.memory.jvm} MB in the JVM; with {rows * times:,}: {more.memory.python} MB and "
            f"{more.memory.jvm} MB.",
        ],
    )


def seed_apart(folder: Path, rows: int, format: Format) -> Seeded:
    """Seed a mirror from an export.

    Raises:
        ValueError: the mirror does not have the rows that it has to have.
    """
    spark = get_spark({"spark.master": "local[2]"})
    try:
        for number, count in enumerate((min(rows, WARM_UP_ROWS), rows)):
            feed, tso = _feed(spark, folder / str(number))
            write_export(folder / f"export{number}", count, tso=tso, format=format)
            done = _seed(feed, folder / f"export{number}", count)
    finally:
        spark.stop()
        shutil.rmtree(folder)
    return done


def diff_apart(folder: Path, rows: int) -> Sample:
    """Compare a mirror with an export that differs in three rows.

    Raises:
        ValueError: other than these three are found.
    """
    spark = get_spark({"spark.master": "local[2]"})
    try:
        feed, tso = _feed(spark, folder / "feed")
        write_export(folder / "same", rows, tso=tso, format="csv")
        slip = Slip(changed=rows // 2, missing=rows // 3, added=rows)
        write_export(folder / "other", rows, tso=tso, format="csv", slip=slip)
        _seed(feed, folder / "same", rows)
        cpu_began, began = cpu_seconds(), time.perf_counter()
        found = diff(spark, feed.paths, feed.changefeed, str(folder / "other"))
        seconds = time.perf_counter() - began
        cpu = cpu_seconds() - cpu_began
    finally:
        spark.stop()
        shutil.rmtree(folder)
    _require(found)
    return Sample(seconds=(seconds,), cpu_seconds=cpu)


def _require(found: SourceDifference) -> None:
    (table,) = found.tables
    counts = table.counts
    if table.findings or (counts.changed, counts.missing, counts.too_many) != (1, 1, 1):
        raise ValueError(f"expected three rows that differ, found: {table.sentence}")


def _feed(spark: SparkSession, folder: Path) -> tuple[Feed, int]:
    """Return a feed whose watermark is above a TSO, and the TSO."""
    feed = Feed.of(spark, folder)
    upstream = Upstream()
    upstream.create_database(DATABASE)
    changefeed = StandInChangefeed(upstream, "bench", partitions=4)
    records = list(changefeed.tick())
    tso = upstream.clock.next()
    write_capture(feed.capture, [*records, *changefeed.tick()])
    feed.sync()
    return feed, tso


def _seed(feed: Feed, export: Path, rows: int) -> Seeded:
    seconds: dict[str, float] = {}
    steps = {
        "land and decode": lambda: seed(feed.spark, feed.paths, feed.changefeed, str(export)),
        "register": lambda: register_new(feed.paths, feed.changefeed),
        "apply": feed.apply,
    }
    cpu_began = cpu_seconds()
    with MemoryWatch() as watch:
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            seconds[name] = time.perf_counter() - began
    found = {mirror.table: mirror.rows for mirror in require_cut(feed.paths).mirrors}
    if found != {TABLE: rows}:
        raise ValueError(f"the mirrors have {found} rows and not {rows:,}")
    return Seeded(seconds=seconds, cpu_seconds=cpu_seconds() - cpu_began, memory=watch.peak)
