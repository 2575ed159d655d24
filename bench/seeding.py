"""Beginning with an export, and comparing with one: rows of a table of 12 columns.

In: how many rows. Out: the time from the files of an export to the published mirror, from CSV and
from SQL, in turn with Spark's copy of the same rows from CSV into a Delta table; the memory of a
seed with ten times the rows; and the time of a comparison of the mirror with an export that has one
row more, one less and one other value, which it must find.

Each is measured in a process of its own, on lakes of its own, after an export of a few rows that
warms it up. Not measured: the Dagster run around it, and files that are not on this machine.
"""

import itertools
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from bench.apart import apart
from bench.exports import NULL, SPARK_SCHEMA, TABLE, Format, Slip, write_export
from bench.goals import Reached
from bench.measuring import Memory, MemoryWatch, Sample, cpu_seconds, measure, measure_in_turn
from bench.pipeline import Feed
from bench.results import SLOWER, Part, Result, Shares
from bench.traffic import DATABASE
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log.cuts import require_cut
from ticdc_assets.log.schema_tables import register_new
from ticdc_assets.repair.diffing import SourceDifference, diff
from ticdc_assets.repair.seeding import seed
from ticdc_assets.spark.executing import INLINE_ROWS
from ticdc_assets.spark.session import get_spark
from ticdc_assets_tests.demo.simulator.builders import write_capture

entry = partial(Result, "Exports")
WARM_UP_ROWS = 2 * INLINE_ROWS
"""More than this process does by itself: Spark's workers are there, and their loops compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeded:
    """Exports that became mirrors, in turn with Spark's copies of the same rows.

    Attributes:
        sample: the time of all steps.
        steps: the time of each step, the first time.
        copied: the time of a copy.
    """

    sample: Sample
    steps: Mapping[str, float]
    copied: Sample


def measure_seeding(folder: Path, *, rows: int, times: int, repetitions: int) -> Part:
    """Return the times of seeding `rows` and of comparing with them, and the memory of more."""
    csv = apart(seed_apart, folder / "csv", rows, "csv", repetitions).result()
    sql = apart(seed_apart, folder / "sql", rows, "sql", repetitions).result()
    # As many rows in all: the longer something runs, the higher is its highest moment.
    few, _ = apart(memory_apart, folder / "few", rows, times).result()
    more, sample = apart(memory_apart, folder / "more", rows * times, 1).result()
    compared = apart(diff_apart, folder / "diff", rows).result()
    return Part(
        results=[
            entry(f"{rows:,} rows of CSV to a Delta table by Spark", csv.copied, rows),
            entry(
                f"{rows:,} rows of CSV to a mirror",
                csv.sample,
                rows,
                base=csv.copied,
                compared=f"{SLOWER} that",
                goal="seed-csv",
            ),
            entry(
                f"{rows:,} rows of SQL to a mirror",
                sql.sample,
                rows,
                base=sql.copied,
                compared=f"{SLOWER} the same rows from CSV",
                goal="seed-sql",
            ),
            entry(f"{rows * times:,} rows of CSV to a mirror", sample, rows * times),
            entry(f"diff of a mirror of {rows:,} rows with an export", compared, rows, goal="diff"),
        ],
        reached=[Reached("seed-memory", more.total / few.total)],
        shares=[Shares(what=f"{rows:,} rows of an export", seconds=tuple(csv.steps.items()))],
        facts=[
            "Exports: one table of 12 columns, files of a million rows, local[2], without Dagster "
            f"around it. Most memory of {times} seeds of {rows:,} rows, one after the other: "
            f"{few.python} MB in Python and {few.jvm} MB in the JVM; of one of {rows * times:,}: "
            f"{more.python} MB and {more.jvm} MB.",
        ],
    )


def seed_apart(folder: Path, rows: int, format: Format, repetitions: int) -> Seeded:
    """Seed mirrors from an export, in turn with copies of its rows by Spark.

    Raises:
        ValueError: a mirror or a copy does not have the rows that it has to have.
    """
    with _session(folder) as spark:
        few = _Turns(spark, folder / "few", min(rows, WARM_UP_ROWS), format)
        few.measure(repetitions=1)
        return _Turns(spark, folder / "all", rows, format).measure(repetitions=repetitions)


def memory_apart(folder: Path, rows: int, times: int) -> tuple[Memory, Sample]:
    """Seed mirrors from CSV, one after the other; return the most memory, and the time of each."""
    with _session(folder) as spark:
        _seeded(spark, folder / "warm-up", min(rows, WARM_UP_ROWS), 1)
        return _seeded(spark, folder / "measured", rows, times)


def _seeded(spark: SparkSession, folder: Path, rows: int, times: int) -> tuple[Memory, Sample]:
    feeds = [_feed(spark, folder / str(number)) for number in range(times)]
    export = folder / "export"
    write_export(export, rows, tso=feeds[0][1], format="csv")
    left = iter(feeds)
    with MemoryWatch() as watch:
        sample = measure(lambda: _seed(next(left)[0], export, rows), repetitions=times, warm_up=0)
    return watch.peak, sample


def diff_apart(folder: Path, rows: int) -> Sample:
    """Compare a mirror with an export that differs in three rows.

    Raises:
        ValueError: other than these three are found.
    """
    with _session(folder) as spark:
        feed, tso = _feed(spark, folder / "feed")
        write_export(folder / "same", rows, tso=tso, format="csv")
        slip = Slip(changed=rows // 2, missing=rows // 3, added=rows)
        write_export(folder / "other", rows, tso=tso, format="csv", slip=slip)
        _seed(feed, folder / "same", rows)
        cpu_began, began = cpu_seconds(), time.perf_counter()
        found = diff(feed.lake, str(folder / "other"))
        seconds = time.perf_counter() - began
        cpu = cpu_seconds() - cpu_began
    _require(found)
    return Sample(seconds=(seconds,), cpu_seconds=cpu)


def _require(found: SourceDifference) -> None:
    (table,) = found.tables
    counts = table.counts
    if table.findings or (counts.changed, counts.missing, counts.too_many) != (1, 1, 1):
        raise ValueError(f"expected three rows that differ, found: {table.sentence}")


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    """Give a session that ends with the block, and remove what was written into the folder."""
    spark = get_spark({"spark.master": "local[2]"})
    try:
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(folder)


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


def _seed(feed: Feed, export: Path, rows: int) -> dict[str, float]:
    """Seed a mirror from an export, and return the time of each step."""
    seconds: dict[str, float] = {}
    steps = {
        "land and decode": lambda: seed(feed.lake, str(export)),
        "register": lambda: register_new(feed.lake),
        "apply": feed.apply,
    }
    for name, step in steps.items():
        began = time.perf_counter()
        step()
        seconds[name] = time.perf_counter() - began
    found = {mirror.table: mirror.rows for mirror in require_cut(feed.paths).mirrors}
    if found != {TABLE: rows}:
        raise ValueError(f"the mirrors have {found} rows and not {rows:,}")
    return seconds


class _Turns:
    """Seeds of one export into empty lakes, and copies of its rows, one after the other."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int, format: Format) -> None:
        self._spark, self._folder, self._rows = spark, folder, rows
        self._lakes = itertools.count()
        self._prepare()  # a new changefeed has the same TSOs as the last, so one export serves all
        self._csv, self._export = folder / "csv", folder / format
        write_export(self._csv, rows, tso=self._tso, format="csv")
        if format != "csv":
            write_export(self._export, rows, tso=self._tso, format=format)
        self._steps: list[dict[str, float]] = []
        self._copy_path = folder / "copy"

    def measure(self, *, repetitions: int) -> Seeded:
        seeded, copied = measure_in_turn(
            [self._seed, self._copy], repetitions=repetitions, warm_up=0, before=self._prepare
        )
        copy = self._spark.read.format("delta").load(str(self._copy_path))
        found = copy.dropna(subset=["price", "ordered_at", "changed_at", "day"]).count()
        if found != self._rows:
            raise ValueError(f"the copy has {found} whole rows and not {self._rows:,}")
        return Seeded(sample=seeded, copied=copied, steps=self._steps[0])

    def _prepare(self) -> None:
        self._feed, self._tso = _feed(self._spark, self._folder / str(next(self._lakes)))

    def _seed(self) -> None:
        self._steps.append(_seed(self._feed, self._export, self._rows))

    def _copy(self) -> None:
        rows = self._spark.read.csv(
            str(self._csv / "*.csv"), schema=SPARK_SCHEMA, header=True, escape="\\", nullValue=NULL
        )
        rows.write.format("delta").mode("overwrite").save(str(self._copy_path))
