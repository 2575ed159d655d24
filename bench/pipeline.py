"""The pipeline in Spark: folding, merging, and small syncs.

In: a session, a scratch folder and sizes. Out: results. Everything goes through the functions that
a sync calls; beside each stands a plain Delta operation on the same rows, so that the ratio says
what the package adds.

    a MERGE of typed rows by hand   beside   a merge of changes into a mirror, and a whole sync
    an append of ten rows by Spark  beside   a control table's write and read by delta-rs
"""

import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from bench.measuring import Sample, measure
from bench.results import SLOWER, Result
from bench.shop import Shop, alternating
from ticdc_assets.config import CaptureSource, Changefeed, KafkaSource, Settings
from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.control import read_rows
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.opening import keeping
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.log.cuts import newest_cut, require_cut
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.landing import land
from ticdc_assets.log.schema_tables import register_new
from ticdc_assets.mirrors.applying import apply_changes
from ticdc_assets.reading.mirrors import read_mirror, require_mirror
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire import WireFormat

entry = partial(Result, "Mirrors in Spark")
control_entry = partial(Result, "Control tables")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """A changefeed over a capture in a folder of its own."""

    spark: SparkSession
    paths: LakePaths
    changefeed: Changefeed

    @property
    def lake(self) -> Lake:
        """Its lake."""
        return Lake(changefeed=self.changefeed, paths=self.paths, session=self.spark)

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        folder: Path,
        *,
        wire_format: WireFormat = WireFormat.SIMPLE_JSON,
        source: KafkaSource | None = None,
        lake: AnyPath | None = None,
    ) -> "Feed":
        """Return a feed over a capture of its own if no source is given.

        Its lake is empty, or what another process left in the folder.
        """
        folder.mkdir(parents=True, exist_ok=True)
        return cls(
            spark=spark,
            paths=LakePaths(root=lake or folder / "lake", changefeed="bench"),
            changefeed=Changefeed(
                name="bench",
                wire_format=str(wire_format),
                timezone="UTC",
                source=source or CaptureSource(path=folder / "capture.jsonl"),
            ),
        )

    @property
    def capture(self) -> Path:
        """The file its records are in."""
        assert isinstance(self.changefeed.source, CaptureSource)
        return self.changefeed.source.path

    def prepare(self) -> None:
        """Do the steps of a sync before the last."""
        land(self.lake)
        decode_new(self.lake)
        register_new(self.lake)

    def apply(self, refold: Sequence[TableName] = ()) -> None:
        """Do the last step of a sync."""
        with _one_sync():
            apply_changes(self.lake, refold=refold)

    def sync(self) -> None:
        """Land, decode, register and apply once, without Dagster around it."""
        with _one_sync():
            self.prepare()
            apply_changes(self.lake)

    def read(self, name: TableName) -> DataFrame:
        """Return the rows of a mirror at the newest cut."""
        settings = Settings(changefeeds=(self.changefeed,), lake=self.paths.root, path=Path("none"))
        return read_mirror(self.spark, self.changefeed.name, *name, settings=settings)


def _one_sync() -> AbstractContextManager[None]:
    """Keep what one sync works out, and nothing of an earlier one, as a run of Dagster does."""
    return keeping(uuid.uuid4().hex)


def measure_one_table(
    spark: SparkSession, folder: Path, *, rows: int, changes: int, repetitions: int
) -> list[Result]:
    """Return the times of a fold, of a merge, and of a sync that finds nothing new."""
    feed = Feed.of(spark, folder)
    shop = Shop.open(feed.capture, tables=1, rows=rows)
    name = shop.names[0]
    feed.sync()
    fold = measure(lambda: feed.apply(refold=[name]), repetitions=repetitions)
    plain = _plain_merge(spark, feed, name, changes=changes, repetitions=repetitions)
    states = alternating()

    def more() -> None:
        shop.change(changes, states())
        feed.prepare()

    merge = measure(feed.apply, repetitions=repetitions, before=more)
    nothing = measure(feed.sync, repetitions=repetitions)
    cut = newest_cut(feed.paths)
    assert cut is not None
    assert cut.mirrors[0].mode == "change"
    return [
        entry(f"fold of a mirror of {rows:,} rows from change_log", fold, rows),
        entry(f"a plain MERGE of {changes:,} typed rows into {rows:,}", plain, changes),
        entry(
            f"apply of {changes:,} changes to {rows:,} rows, cut published",
            merge,
            changes,
            "changes",
            base=plain,
            compared=f"{SLOWER} the MERGE",
        ),
        entry("a sync with nothing new", nothing, base=plain, compared=f"{SLOWER} the MERGE"),
    ]


def measure_many_tables(
    spark: SparkSession, folder: Path, *, tables: int, rows: int, changes: int, repetitions: int
) -> list[Result]:
    """Return the times of small syncs of many tables, and until a reader sees one."""
    feed = Feed.of(spark, folder)
    shop = Shop.open(feed.capture, tables=tables, rows=rows)
    feed.sync()
    name = shop.names[-1]
    plain = _plain_merge(spark, feed, name, changes=changes, repetitions=repetitions)
    states = alternating()
    said: list[str] = []

    def change() -> None:
        said.append(states())
        shop.change(changes, said[-1])

    sync = measure(feed.sync, repetitions=repetitions, warm_up=3, before=change)

    def sync_and_read() -> None:
        feed.sync()
        rows_seen = feed.read(name)
        seen = rows_seen.where(rows_seen["state"] == said[-1]).count()
        if seen != min(changes, rows):
            raise ValueError(f"a reader saw {seen} of {changes} changes of {name[1]}")

    seen = measure(sync_and_read, repetitions=repetitions, before=change)
    nothing = measure(feed.sync, repetitions=repetitions, warm_up=2)
    what = f"{tables} tables of {rows:,} rows with {changes:,} changes each"
    return [
        entry(f"a plain MERGE of {changes:,} typed rows into {rows:,}", plain, changes),
        entry(
            f"a sync of {what}",
            sync,
            tables * changes,
            "changes",
            base=plain,
            compared=f"{SLOWER} one MERGE",
            goal="small-sync",
        ),
        entry(
            "the same, until a reader of the newest cut has counted them in one table",
            seen,
            base=plain,
            compared=f"{SLOWER} one MERGE",
            goal="small-sync-seen",
        ),
        entry(
            f"a sync of {tables} tables with nothing new",
            nothing,
            base=plain,
            compared=f"{SLOWER} one MERGE",
            goal="nothing-new",
        ),
    ]


def _plain_merge(
    spark: SparkSession, feed: Feed, name: TableName, *, changes: int, repetitions: int
) -> Sample:
    """Measure a MERGE by hand into a copy of a mirror: what any program would pay."""
    copied = str(feed.paths.root / "merged")
    rows = feed.read(name)
    (
        rows.write.format("delta")
        .mode("overwrite")
        .option("delta.enableDeletionVectors", "true")
        .option("delta.columnMapping.mode", "name")
        .save(copied)
    )
    every = max(1, require_mirror(require_cut(feed.paths), *name).rows // changes)
    source: DataFrame = spark.createDataFrame(
        rows.where(f"id % {every} = 0").limit(changes).toArrow()
    )

    def merge() -> None:
        (
            DeltaTable.forPath(spark, copied)
            .alias("t")
            .merge(source.alias("s"), "t.id = s.id")
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll()
            .execute()
        )

    return measure(merge, repetitions=repetitions)


def measure_control(spark: SparkSession, folder: Path, *, repetitions: int) -> list[Result]:
    """Return the time of writing and reading ten rows, by delta-rs and by Spark."""
    rows = pa.table({"number": pa.array(range(10), pa.int64()), "text": ["some text"] * 10})
    light, heavy = folder / "light", str(folder / "heavy")
    frame = spark.createDataFrame(rows)
    works: dict[str, Callable[[], object]] = {
        "append of ten rows by Spark": (
            lambda: frame.write.format("delta").mode("append").save(heavy)
        ),
        "append of ten rows by delta-rs": (
            lambda: write_table(light, rows, overwrite=False, metadata={"number": 1})
        ),
        "read of all rows by Spark": (
            lambda: spark.read.format("delta").load(heavy).toArrow().to_pylist()
        ),
        "read of all rows by delta-rs": lambda: read_rows(light),
    }
    samples = {
        what: measure(work, repetitions=repetitions, warm_up=3) for what, work in works.items()
    }
    by_spark = [sample for what, sample in samples.items() if what.endswith("Spark")]
    return [
        control_entry(
            what,
            sample,
            base=by_spark["read" in what] if "delta-rs" in what else None,
            compared=f"{SLOWER} Spark",
        )
        for what, sample in samples.items()
    ]
