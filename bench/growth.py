"""How cost grows: with message size, changes in a sync, mirror size, tables, partitions and syncs.

In: the sizes to try. Out: a result for each, and the lines of plots with the power that each may
have: `GROWS` for what is more work, `CONSTANT` for what should not matter. Each varies one thing;
the others stand in the titles. CPU seconds are plotted, which other work on the machine moves less
than wall times.
"""

import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from bench.decoding import record_batches
from bench.filling import Filled, filled_feed, local_broker
from bench.goals import Reached
from bench.measuring import Sample, cpu_seconds, measure
from bench.messages import Messages
from bench.pipeline import Feed
from bench.results import CONSTANT, GROWS, Part, Result, Series
from bench.shop import Shop, alternating
from bench.traffic import TEXT_FORMATS, Traffic, narrow
from ticdc_assets.source.kafka.records import produce
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.batch import decode_batch

entry = partial(Result, "What was measured for it")
CPU = "CPU seconds"


def measure_message_sizes(sizes: Sequence[int], *, messages: int, repetitions: int) -> Part:
    """Return what decoding a message costs by the size of its text, in one process, no Spark."""
    results: list[Result] = []
    series: list[Series] = []
    for wire_format in TEXT_FORMATS:
        points: list[tuple[float, float]] = []
        for size in sizes:
            traffic = Traffic(shapes=[narrow(size)], wire_format=wire_format)
            records = list(traffic.changes(max(100, messages // (1 + size // 1000))))
            own = Messages(records=records, source="templates", wire_format=wire_format)
            batches = record_batches(own)

            def decode(own: Messages = own, batches: list = batches) -> None:
                for batch in batches:
                    decode_batch(own.wire_format, batch)

            sample = measure(decode, repetitions=repetitions)
            mean = own.size / len(records)
            points.append((mean, sample.cpu_seconds / len(records) * 1e6))
            results.append(
                entry(
                    f"{wire_format}: decode_batch of messages of {mean:,.0f} bytes",
                    sample,
                    len(records),
                    "messages",
                )
            )
        series.append(
            Series(
                plot="Decoding a message",
                x="bytes in a message",
                y="CPU µs a message",
                name=str(wire_format),
                points=tuple(points),
                limit=GROWS,
            )
        )
    return Part(results=results, series=series)


def measure_batch_sizes(
    spark: SparkSession, folder: Path, sizes: Sequence[int], *, rows: int, repetitions: int
) -> Part:
    """Return what a sync of one table costs by the number of its changes."""
    samples: list[tuple[int, Sample]] = []
    with local_broker(folder / "broker") as broker:
        filled = filled_feed(spark, folder / "batch", broker, rows)
        for size in sizes:

            def send(size: int = size) -> None:
                filled.send(size)

            samples.append((size, measure(filled.feed.sync, repetitions=repetitions, before=send)))
    shutil.rmtree(folder)
    return grown(
        samples,
        plot=f"A sync into {rows:,} rows",
        x="changes in it",
        limit=GROWS,
        what=lambda size: f"a sync of {size:,} changes into {rows:,} rows",
    )


def measure_mirror_sizes(
    spark: SparkSession, folder: Path, sizes: Sequence[int], *, changes: int, repetitions: int
) -> Part:
    """Return what applying changes costs by the size of the mirror."""
    samples: list[tuple[int, Sample]] = []
    with local_broker(folder / "broker") as broker:
        for size in sizes:
            filled = filled_feed(spark, folder / f"mirror_{size}", broker, size)

            def more(filled: Filled = filled) -> None:
                filled.prepare(changes)

            sample = measure(filled.feed.apply, repetitions=repetitions, before=more)
            samples.append((size, sample))
    shutil.rmtree(folder)
    return grown(
        samples,
        plot=f"An apply of {changes:,} changes",
        x="rows in the mirror",
        limit=CONSTANT,
        what=lambda size: f"an apply of {changes:,} changes to {size:,} rows",
    )


def measure_table_counts(
    spark: SparkSession, folder: Path, counts: Sequence[int], *, changes: int, repetitions: int
) -> Part:
    """Return what a sync costs by the number of its tables."""
    samples: list[tuple[int, Sample]] = []
    for count in counts:
        feed = Feed.of(spark, folder / str(count))
        shop = Shop.open(feed.capture, tables=count, rows=1_000)
        feed.sync()
        states = alternating()
        sample = measure(
            feed.sync,
            repetitions=repetitions,
            before=lambda shop=shop, states=states: shop.change(changes, states()),
        )
        samples.append((count, sample))
        shutil.rmtree(folder / str(count))
    return grown(
        samples,
        plot=f"A sync of tables with {changes:,} changes each",
        x="tables",
        limit=GROWS,
        what=lambda count: f"a sync of {count} tables of 1,000 rows with {changes:,} changes each",
    )


def measure_partition_counts(
    spark: SparkSession, folder: Path, counts: Sequence[int], *, changes: int, repetitions: int
) -> Part:
    """Return what a sync from Kafka costs by the partitions of the topic."""
    samples: list[tuple[int, Sample]] = []
    with local_broker(folder / "broker") as broker:
        for count in counts:
            name = f"partitions_{count}"
            traffic = Traffic(shapes=[narrow()], partitions=count, topic=name)
            broker.create_topic(name, count)
            produce(broker.source(), traffic.opening)
            feed = Feed.of(spark, folder / name, source=broker.source(name))
            feed.sync()

            def more(traffic: Traffic = traffic) -> None:
                produce(broker.source(), traffic.changes(changes))

            samples.append((count, measure(feed.sync, repetitions=repetitions, before=more)))
            shutil.rmtree(folder / name)
    part = grown(
        samples,
        plot=f"A sync of {changes:,} changes from Kafka",
        x="partitions",
        limit=CONSTANT,
        what=lambda count: f"a sync of {changes:,} changes from {count} partitions of a topic",
    )
    cpu = {count: sample.cpu_seconds for count, sample in samples}
    few, many = _COMPARED if cpu.keys() >= {*_COMPARED} else (counts[0], counts[-1])
    return replace(part, reached=[Reached("partitions", cpu[many] / cpu[few])])


_COMPARED = (4, 64)
"""The numbers of partitions that the goal compares."""


def measure_syncs_in_a_row(
    spark: SparkSession, folder: Path, *, syncs: int, name: str = CPU, lake: AnyPath | None = None
) -> Part:
    """Return what a small sync costs by how many came before it without a compaction.

    Each is a commit in five tables, a file in most of them, and a version of the mirrors.

    Args:
        spark: the session.
        folder: for the changefeed's capture, and for the lake if none is given.
        syncs: how many.
        name: which line of the plot it is.
        lake: root of the lake.
    """
    feed = Feed.of(spark, folder, lake=lake)
    shop = Shop.open(feed.capture, tables=3, rows=100)
    feed.sync()
    states = alternating()
    costs: list[float] = []
    for _ in range(syncs):
        shop.change(10, states())
        began = cpu_seconds()
        feed.sync()
        costs.append(cpu_seconds() - began)
    shutil.rmtree(folder)
    samples: list[tuple[int, Sample]] = []
    for number in sorted({min(syncs, place) for place in (10, 25, 50, 100, 200, syncs)}):
        around = costs[max(0, number - _AROUND) : number]
        # What one takes with others on the machine is no cost of its commits: the middle of some.
        sample = Sample(seconds=tuple(around), cpu_seconds=statistics.median(around))
        samples.append((number, sample))
    return grown(
        samples,
        plot="A small sync without a compaction",
        x="syncs before it",
        limit=CONSTANT,
        what=lambda number: (
            f"sync {number} in a row of three tables with 10 changes each (CPU)"
            + ("" if lake is None else f", lake: {name}")
        ),
        name=name,
    )


_AROUND = 9


def grown(
    samples: Sequence[tuple[int, Sample]],
    *,
    plot: str,
    x: str,
    limit: float,
    what: Callable[[int], str],
    name: str = CPU,
) -> Part:
    """Return results of one thing at several sizes, and their line in a plot.

    Args:
        samples: what each size cost.
        plot: title of the plot.
        x: what grows.
        limit: the power that the CPU seconds may have of it.
        what: what was done at a size.
        name: which line of the plot it is.
    """
    series = Series(
        plot=plot,
        x=x,
        y=CPU,
        name=name,
        points=tuple((size, sample.cpu_seconds) for size, sample in samples),
        limit=limit,
    )
    return Part(
        results=[entry(what(size), sample) for size, sample in samples],
        series=[series],
    )
