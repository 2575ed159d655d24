"""From Kafka to mirrors: a sync that finds many changes, and the memory that it takes.

In: how many changes. Out: the time of the sync from an empty lake, by steps, and the most memory
that its processes had. The broker is real and on the same machine; it is started, and its topics
are written, before anything is measured. The broker's CPU and memory are not counted, but it takes
what it needs of the same cores while the sync runs.

Each number of changes is caught up with in a process of its own, after a small changefeed that
warms it up; so the memory of one says nothing of the other. Afterwards every mirror must have the
rows that it has to have.

Not measured: a broker elsewhere, and the Dagster run around the sync (`freshness` has that).
"""

import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.apart import apart
from bench.goals import Reached
from bench.growth import grown
from bench.measuring import Memory, MemoryWatch, Sample, cpu_seconds
from bench.pipeline import Feed
from bench.results import CONSTANT, Part, Result, Shares
from bench.traffic import Traffic, narrow, wide
from ticdc_assets.config import KafkaSource
from ticdc_assets.log.cuts import require_cut
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.landing import land
from ticdc_assets.log.schema_tables import register_new
from ticdc_assets.source.kafka.records import produce
from ticdc_assets.spark.session import get_spark
from ticdc_assets_tests.brokers import OwnBroker

entry = partial(Result, "From Kafka to mirrors")
WARM_UP_CHANGES = 20_000
NARROW_TABLES, WIDE_TABLES = 8, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that was written.

    Attributes:
        source: where it is read from.
        changes: row changes in it.
        live: how many rows each table must have in the end.
    """

    source: KafkaSource
    changes: int
    live: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """One sync that caught up with a topic.

    Attributes:
        seconds: wall time of each step.
        cpu_seconds: CPU time of all steps.
        memory: when it was most.
    """

    seconds: Mapping[str, float]
    cpu_seconds: float
    memory: Memory

    @property
    def whole(self) -> float:
        """Wall time of the sync."""
        return sum(self.seconds.values())


def measure_catching_up(folder: Path, *, changes: int, times: int, repetitions: int) -> Part:
    """Return the times of catching up with `changes`, and with `times` as many for the memory."""
    with OwnBroker(folder / "broker") as broker:
        warm_up = _write(broker, "warm_up", min(changes, WARM_UP_CHANGES))
        once = _write(broker, "once", changes)
        began = time.process_time()
        more = _write(broker, "more", changes * times)
        making = (time.process_time() - began) / more.changes
        first = apart(catch_up, folder / "once", warm_up, once, repetitions).result()
        second = apart(catch_up, folder / "more", warm_up, more, 1).result()
    sample, large = _sample(first), _sample(second)
    typical = sorted(first, key=lambda item: item.whole)[len(first) // 2]
    tables = NARROW_TABLES + WIDE_TABLES
    small, big = first[0].memory, second[0].memory
    return Part(
        results=[
            entry(
                f"{changes:,} changes over {tables} tables, from an empty lake",
                sample,
                changes,
                goal="end-to-end",
            ),
            entry(
                f"{more.changes:,} changes over {tables} tables, from an empty lake, once",
                large,
                more.changes,
            ),
        ],
        reached=[
            Reached("memory-growth", big.total / small.total),
            Reached("memory-peak", big.total / 1000),
        ],
        shares=[
            Shares(what=f"{changes:,} changes", seconds=tuple(typical.seconds.items())),
            Shares(what=f"{more.changes:,} changes", seconds=tuple(second[0].seconds.items())),
        ],
        facts=[
            f"Catching up: {NARROW_TABLES} tables of 4 columns and {WIDE_TABLES} of 30, 70 % "
            "inserts, 20 % updates, 10 % deletes, Simple JSON, one topic of 4 partitions, a "
            "watermark each 1,000 rows, local[2], without Dagster around it. Writing the topic "
            f"cost {making * 1e6:.0f} µs of CPU a change, before it.",
            f"Most memory while catching up with {changes:,} changes: {small.python} MB in Python "
            f"and {small.jvm} MB in the JVM; with {more.changes:,}: {big.python} MB and {big.jvm} "
            f"MB. The heap may grow to 3g.",
        ],
    )


def _write(broker: OwnBroker, name: str, changes: int) -> Topic:
    shapes = [narrow()] * NARROW_TABLES + [wide()] * WIDE_TABLES
    traffic = Traffic(shapes=shapes, topic=name)
    broker.create_topic(name, traffic.partitions)
    produce(broker.source(), traffic.opening)
    produce(broker.source(), traffic.changes(changes))
    return Topic(source=broker.source(name), changes=changes, live=traffic.live)


def measure_executors(
    folder: Path, counts: Sequence[int], *, changes: int, repetitions: int
) -> Part:
    """Return what catching up costs by the number of tasks that Spark works on at a time."""
    samples: list[tuple[int, Sample]] = []
    with OwnBroker(folder / "broker") as broker:
        warm_up = _write(broker, "warm_up", min(changes, WARM_UP_CHANGES))
        topic = _write(broker, "topic", changes)
        for count in counts:
            done = apart(
                catch_up, folder / str(count), warm_up, topic, repetitions, cores=count
            ).result()
            samples.append((count, _sample(done)))
    part = grown(
        samples,
        plot=f"Catching up with {changes:,} changes",
        x="executors",
        limit=CONSTANT,
        what=lambda count: f"{changes:,} changes from an empty lake by {count} executors",
    )
    (_, first), (_, last) = samples[0], samples[-1]
    return replace(
        part,
        facts=[
            f"{counts[-1]} executors (`local[{counts[-1]}]`) caught up with {changes:,} changes "
            f"{first.median / last.median:.2f} times as fast as {counts[0]}, for "
            f"{last.cpu_seconds / first.cpu_seconds:.2f} times the CPU seconds."
        ],
    )


def _sample(done: Sequence[CaughtUp]) -> Sample:
    return Sample(
        seconds=tuple(item.whole for item in done),
        cpu_seconds=statistics.median(item.cpu_seconds for item in done),
    )


def catch_up(
    folder: Path, warm_up: Topic, topic: Topic, repetitions: int, *, cores: int = 2
) -> list[CaughtUp]:
    """Catch up with a topic several times, each time from an empty lake.

    Raises:
        ValueError: a mirror does not have the rows that it has to have.
    """
    spark = get_spark({"spark.master": f"local[{cores}]"})
    done: list[CaughtUp] = []
    try:
        for number, item in enumerate([warm_up, *[topic] * repetitions]):
            feed = Feed.of(spark, folder / str(number), source=item.source)
            caught_up = _sync(feed)
            found = {mirror.table: mirror.rows for mirror in require_cut(feed.paths).mirrors}
            if found != item.live:
                raise ValueError(f"the mirrors have {found} rows and not {item.live}")
            shutil.rmtree(folder / str(number))
            if number:
                done.append(caught_up)
    finally:
        spark.stop()
    return done


def _sync(feed: Feed) -> CaughtUp:
    seconds: dict[str, float] = {}
    steps = {
        "land": lambda: land(feed.lake),
        "decode": lambda: decode_new(feed.lake),
        "register": lambda: register_new(feed.lake),
        "apply": feed.apply,
    }
    cpu_began = cpu_seconds()
    with MemoryWatch() as watch:
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            seconds[name] = time.perf_counter() - began
    return CaughtUp(seconds=seconds, cpu_seconds=cpu_seconds() - cpu_began, memory=watch.peak)
