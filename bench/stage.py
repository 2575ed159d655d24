"""The decode stage in Spark, for every format, beside a copy of the same raw messages.

In: messages of each format, landed once and then multiplied by Spark until they are as many rows
as is asked for. Out: the time from `raw_messages` to `change_log` with `change_groups`, Delta to
Delta, and that of copying `raw_messages`, which reads and writes the same bytes and looks at none.
"""

import json
import shutil
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.goals import goal_of
from bench.measuring import measure_in_turn
from bench.messages import load_messages
from bench.pipeline import Feed
from bench.results import FASTER, Part, Result
from ticdc_assets.delta.control import commit_metadata
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.landing import land
from ticdc_assets.spark.session import functions
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.demo.simulator.builders import write_capture

entry = partial(Result, "Decoding in Spark")
FILES = 4
"""As many as a topic of four partitions lands in."""


def measure_stage(
    spark: SparkSession, folder: Path, *, messages: int, rows: int, repetitions: int
) -> Part:
    """Return the times of decoding about `rows` row changes of every format, beside a copy."""
    results: list[Result] = []
    facts: list[str] = []
    for wire_format in WireFormat:
        found, fact = _one_format(
            spark,
            folder / str(wire_format).replace("-", "_"),
            wire_format,
            messages=messages,
            rows=rows,
            repetitions=repetitions,
        )
        results += found
        facts.append(fact)
    return Part(results=results, facts=facts)


def _one_format(
    spark: SparkSession,
    folder: Path,
    wire_format: WireFormat,
    *,
    messages: int,
    rows: int,
    repetitions: int,
) -> tuple[list[Result], str]:
    own = load_messages(messages, wire_format)
    feed = Feed.of(spark, folder, wire_format=wire_format)
    write_capture(feed.capture, own.records)
    land(feed.lake)
    times = max(1, round(rows / own.rows))
    _multiply(spark, feed, times)
    copied = folder / "copied"

    def copy() -> None:
        raw = spark.read.format("delta").load(str(feed.paths.raw_messages))
        raw.write.format("delta").mode("overwrite").partitionBy("landed_day").save(str(copied))

    def forget() -> None:
        for path in (feed.paths.change_log, feed.paths.change_groups, feed.paths.quarantine):
            shutil.rmtree(str(path), ignore_errors=True)

    floor, decoding = measure_in_turn(
        [
            copy,
            lambda: decode_new(feed.lake),
        ],
        repetitions=repetitions,
        warm_up=2,
        before=forget,
    )
    shutil.rmtree(folder)
    count = own.rows * times
    return [
        entry(f"{wire_format}: copy of raw_messages", floor, count),
        entry(
            f"{wire_format}: raw_messages to change_log, with change_groups",
            decoding,
            count,
            base=floor,
            compared=f"{FASTER} the copy",
            goal=goal_of("spark", wire_format),
        ),
    ], (
        f"The decode stage had {count:,} rows of {wire_format} from {own.source} in "
        f"{len(own.records) * times:,} records, {own.size // own.rows} bytes a row: {own.rows:,} "
        f"rows, {times} times."
    )


def _multiply(spark: SparkSession, feed: Feed, times: int) -> None:
    """Put the landed batch into `raw_messages` several times over, each at offsets of its own."""
    F = functions(spark)
    path = str(feed.paths.raw_messages)
    raw = spark.read.format("delta").load(path)
    # Far above every offset, whatever their partition.
    step = raw.agg(F.max("offset")).first()[0] + 1  # pyright: ignore[reportOptionalSubscript]
    copies = [
        raw.withColumn("offset", F.col("offset") + F.lit(number * step)) for number in range(times)
    ]
    (
        reduce(DataFrame.unionByName, copies)
        .coalesce(FILES)
        .write.format("delta")
        .mode("overwrite")
        .partitionBy("landed_day")
        .option("userMetadata", json.dumps(commit_metadata(feed.paths.raw_messages)))
        .save(path)
    )
