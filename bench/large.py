"""Changes into large mirrors: how the cost follows the change, and not the mirror.

In: a number of changes (70 % inserts, 20 % updates, 10 % deletes) and two sizes of a mirror. Out:
the time and CPU of applying them to each, one beside the other, and its CPU and the bytes that it
writes beside those of a MERGE into a table without deletion vectors, which rewrites every file that
it meets; and the cost of applying them to a portable mirror, whose files are rewritten too.

Inserts have new keys at the end, deletes take the lowest, updates are spread over all keys, so they
meet every file. Landing and decoding are not in it: they do not know how large a mirror is.
"""

import itertools
import shutil
from functools import partial
from pathlib import Path
from statistics import median

from delta.tables import DeltaTable
from pyspark.sql import Column, SparkSession

from bench.filling import TABLE, Filled, bytes_in, filled_feed, local_broker, plain_copy
from bench.goals import Reached
from bench.measuring import Sample, measure
from bench.pipeline import Feed
from bench.results import SLOWER, Part, Result
from bench.traffic import FIRST_ID
from ticdc_assets.spark.session import functions

entry = partial(Result, "Large mirrors")


def measure_large(
    spark: SparkSession, folder: Path, *, small: int, large: int, changes: int, repetitions: int
) -> Part:
    """Return the costs of the same changes into a mirror of `small` and one of `large` rows."""
    with local_broker(folder / "broker") as broker:
        filled = filled_feed(spark, folder / "small", broker, small)
        first, marked = _applied(filled, changes, repetitions)
        shutil.rmtree(folder / "small")
        filled = filled_feed(spark, folder / "portable", broker, small, portable=True)
        portable, rewritten_files = _applied(filled, changes, repetitions)
        shutil.rmtree(folder / "portable")
        filled = filled_feed(spark, folder / "large", broker, large)
        plain, rewritten = _rewritten(spark, filled.feed, folder / "plain", large, changes)
        second, written = _applied(filled, changes, repetitions)
    return Part(
        results=[
            entry(f"apply of {changes:,} changes to {small:,} rows", first, changes, "changes"),
            entry(
                f"the same, into a portable mirror (`readers.portable`) of {small:,} rows",
                portable,
                changes,
                "changes",
                base=first,
                compared=f"{SLOWER} that",
            ),
            entry(
                f"apply of {changes:,} changes to {large:,} rows",
                second,
                changes,
                "changes",
                base=first,
                compared=f"{SLOWER} that",
                goal="mirror-cpu",
            ),
            entry(
                f"a MERGE that rewrites files, {changes:,} typed rows into {large:,}, once",
                plain,
                changes,
                "changes",
            ),
        ],
        reached=[
            Reached("mirror-merge", second.cpu_seconds / plain.cpu_seconds),
            Reached("mirror-bytes", written / rewritten),
        ],
        facts=[
            f"Applying {changes:,} changes to {large:,} rows wrote {written / 1e6:.1f} MB, the "
            f"rewriting MERGE {rewritten / 1e6:.1f} MB. Into {small:,} rows it wrote "
            f"{marked / 1e6:.1f} MB, into a portable mirror of as many {rewritten_files / 1e6:.1f} "
            "MB."
        ],
    )


def _applied(filled: Filled, changes: int, repetitions: int) -> tuple[Sample, float]:
    """Return the cost of applying changes to a mirror, and the bytes that it wrote."""
    feed, path = filled.feed, filled.path
    sizes = [bytes_in(path)]

    def apply() -> None:
        feed.apply()
        sizes.append(bytes_in(path))

    sample = measure(apply, repetitions=repetitions, before=lambda: filled.prepare(changes))
    found = feed.read(TABLE).count()
    (wanted,) = filled.traffic.live.values()
    if found != wanted:
        raise ValueError(f"the mirror has {found} rows and not {wanted}")
    written = [after - before for before, after in itertools.pairwise(sizes)]
    return sample, median(written[1:])


def _rewritten(
    spark: SparkSession, feed: Feed, table: Path, rows: int, changes: int
) -> tuple[Sample, float]:
    """Return the cost of a MERGE into a table without deletion vectors, and the bytes it wrote."""
    F = functions(spark)
    plain_copy(feed.read(TABLE), table)
    before = bytes_in(table)
    deletes, updates = changes // 10, changes // 5
    every = max(1, rows // updates)
    # The same mix: the lowest are deleted, some of all are updated, the others are new.
    keys = (
        spark.range(deletes)
        .select((F.col("id") + FIRST_ID).alias("id"), F.lit(True).alias("deleted"))
        .union(
            spark.range(updates).select(
                (F.col("id") * every % (rows - deletes) + FIRST_ID + deletes), F.lit(False)
            )
        )
        .union(
            spark.range(changes - updates - deletes).select(
                F.col("id") + FIRST_ID + rows, F.lit(False)
            )
        )
        .dropDuplicates(["id"])
    )
    row = feed.read(TABLE).limit(1)
    columns = row.columns
    source = spark.createDataFrame(
        keys.crossJoin(F.broadcast(row.drop("id"))).select("deleted", *columns).toArrow()
    )
    values: dict[str, str | Column] = {name: F.col(f"s.{name}") for name in columns if name != "id"}

    def merge() -> None:
        (
            DeltaTable.forPath(spark, str(table))
            .alias("t")
            .merge(source.alias("s"), "t.id = s.id")
            .whenMatchedDelete(F.col("s.deleted"))
            .whenMatchedUpdate(set=dict(values))
            .whenNotMatchedInsert(
                condition=~F.col("s.deleted"), values=values | {"id": F.col("s.id")}
            )
            .execute()
        )

    sample = measure(merge, repetitions=1, warm_up=0)
    written = bytes_in(table) - before
    shutil.rmtree(table)
    return sample, written
