"""Rows of many columns: what a value costs in a sync, beside one of a table of few columns.

In: how many rows, and two numbers of columns. Out: the CPU seconds of a sync that finds so many new
rows of a table of either, from Kafka to a new mirror, and those of one value of the wider table
against one of the other. The columns have mixed types. The syncs before those that count have the
same shapes, so what is compiled for a shape of rows is no cost of a value.
"""

import shutil
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from bench.filling import local_broker
from bench.goals import Reached
from bench.measuring import measure
from bench.pipeline import Feed
from bench.results import Part, Result
from bench.traffic import Traffic, wide
from ticdc_assets.model.events import Op
from ticdc_assets.source.kafka.records import produce

entry = partial(Result, "Rows of many columns")


def measure_wide_rows(
    spark: SparkSession, folder: Path, columns: tuple[int, int], *, rows: int
) -> Part:
    """Return what syncs of new rows cost with few columns and with many."""
    results: list[Result] = []
    a_value: list[float] = []
    with local_broker(folder / "broker") as broker:
        for count in columns:
            feeds: list[Feed] = []

            def send(count: int = count, feeds: list[Feed] = feeds) -> None:
                name = f"columns_{count}_{len(feeds)}"
                traffic = Traffic(shapes=[wide(count)], topic=name)
                broker.create_topic(name, traffic.partitions)
                produce(broker.source(), traffic.opening)
                produce(broker.source(), traffic.changes(rows, mix=[Op.INSERT]))
                feeds.append(Feed.of(spark, folder / name, source=broker.source(name)))

            def sync(feeds: list[Feed] = feeds) -> None:
                feeds[-1].sync()

            sample = measure(sync, repetitions=1, before=send)
            for number in range(len(feeds)):
                shutil.rmtree(folder / f"columns_{count}_{number}")
            a_value.append(sample.cpu_seconds / (rows * count))
            results.append(
                entry(
                    f"a sync of {rows:,} new rows of {count} columns",
                    sample,
                    rows * count,
                    "values",
                )
            )
    few, many = a_value
    return Part(
        results=results,
        reached=[Reached("wide-rows", many / few)],
        facts=[
            f"CPU of a value: {few * 1e6:.1f} µs in rows of {columns[0]} columns, "
            f"{many * 1e6:.1f} µs in rows of {columns[1]}, from Kafka to a new mirror."
        ],
    )
