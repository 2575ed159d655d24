"""The parts of the benchmark, and how much each of them measures.

In: the name of a part, sizes, and a scratch folder. Out: what it measured. Each part is run in a
process of its own (`apart`), so that none is measured with what another one left, and what is not
Spark's has no JVM beside it; a quick run takes all of them in one process instead.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bench.measuring import MemoryWatch
from bench.messages import load_messages
from bench.results import Part, Run, machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Size = TypeVar("Size")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured.

    Args:
        quick: whether it is very little, which says nothing but that the parts work.
    """

    quick: bool = False

    def of(self, full: Size, quick: Size) -> Size:
        """Return one of two sizes."""
        return quick if self.quick else full

    @property
    def messages(self) -> int:
        """Messages of each format, for what needs no Spark."""
        return self.of(20_000, 300)

    @property
    def repetitions(self) -> int:
        """Repetitions of each piece that takes a moment."""
        return self.of(5, 1)

    @property
    def few(self) -> int:
        """Repetitions of what takes long."""
        return self.of(3, 1)

    @property
    def tables(self) -> int:
        """Tables of a small sync."""
        return self.of(10, 2)

    @property
    def table_changes(self) -> int:
        """Changes of each."""
        return self.of(100, 10)


def run_part(name: str, scale: Scale, folder: Path) -> Run:
    """Measure one part."""
    load, began = os.getloadavg()[0], time.monotonic()
    with MemoryWatch() as watch:
        part = PARTS[name](scale, folder / name)
    return Run(
        name=name,
        part=part,
        seconds=time.monotonic() - began,
        memory=watch.peak,
        load=load,
        machine=machine(),
    )


# What needs no Spark ----------------------------------------------------------------------------


def _decoding(scale: Scale, _: Path) -> Part:
    from bench.decoding import measure_decoding

    # A tenth of a second each: a burst of other work must not decide about most of them.
    return measure_decoding(load_messages(scale.messages), repetitions=3 * scale.repetitions)


def _differences(scale: Scale, _: Path) -> Part:
    from bench.decoding import measure_differences

    return measure_differences(scale.messages, repetitions=scale.repetitions)


def _folding(scale: Scale, _: Path) -> Part:
    from bench.folding import measure_folding

    messages = load_messages(scale.messages)
    return Part(results=measure_folding(messages, repetitions=scale.repetitions))


def _values(scale: Scale, _: Path) -> Part:
    from bench.conversions import measure_conversions

    return Part(
        results=measure_conversions(values=scale.of(20_000, 20), repetitions=scale.repetitions)
    )


def _message_sizes(scale: Scale, _: Path) -> Part:
    from bench.growth import measure_message_sizes

    return measure_message_sizes(
        scale.of((20, 200, 1_000, 4_000, 16_000), (20, 200)),
        messages=scale.messages,
        repetitions=scale.repetitions,
    )


# What needs Spark -------------------------------------------------------------------------------


def _stage(scale: Scale, folder: Path) -> Part:
    from bench.stage import measure_stage

    return measure_stage(
        _spark(),
        folder,
        messages=scale.messages,
        rows=scale.of(200_000, 300),
        repetitions=scale.few,
    )


def _small(scale: Scale, folder: Path) -> Part:
    from bench.pipeline import measure_control, measure_many_tables, measure_one_table

    spark = _spark()
    return Part(
        results=[
            *measure_one_table(
                spark,
                folder / "one",
                rows=scale.of(20_000, 12_000),
                changes=1_000,
                repetitions=scale.few,
            ),
            *measure_many_tables(
                spark,
                folder / "many",
                tables=scale.tables,
                rows=scale.of(1_000, 50),
                changes=scale.table_changes,
                repetitions=scale.repetitions,
            ),
            *measure_control(spark, folder / "control", repetitions=scale.repetitions),
        ]
    )


def _large(scale: Scale, folder: Path) -> Part:
    from bench.large import measure_large

    return measure_large(
        _spark(),
        folder,
        small=scale.of(1_000_000, 12_000),
        large=scale.of(10_000_000, 24_000),
        changes=scale.of(100_000, 100),
        repetitions=scale.few,
    )


def _growth(scale: Scale, folder: Path) -> Part:
    from bench.growth import (
        measure_batch_sizes,
        measure_mirror_sizes,
        measure_partition_counts,
        measure_syncs_in_a_row,
        measure_table_counts,
    )

    spark = _spark()
    # Many sizes, and the line through them counts.
    few = min(2, scale.few)
    return Part.joined(
        [
            measure_batch_sizes(
                spark,
                folder / "batch",
                scale.of((100, 1_000, 10_000, 100_000), (10, 20)),
                rows=scale.of(200_000, 12_000),
                repetitions=few,
            ),
            measure_mirror_sizes(
                spark,
                folder / "mirror",
                scale.of((100_000, 1_000_000, 10_000_000), (100, 12_000)),
                changes=scale.of(1_000, 10),
                repetitions=few,
            ),
            measure_table_counts(
                spark,
                folder / "tables",
                scale.of((1, 5, 10, 20), (1, 2)),
                changes=scale.table_changes,
                repetitions=few,
            ),
            measure_partition_counts(
                spark,
                folder / "partitions",
                scale.of((1, 4, 16, 64), (1, 2)),
                changes=scale.of(20_000, 20),
                repetitions=few,
            ),
            measure_syncs_in_a_row(spark, folder / "row", syncs=scale.of(300, 12)),
        ]
    )


def _landed(scale: Scale, folder: Path) -> Part:
    from bench.landed import measure_landed

    return measure_landed(
        _spark(),
        folder,
        scale.of((1_000_000, 5_000_000, 20_000_000), (500, 1_000)),
        changes=scale.of(1_000, 10),
        repetitions=scale.repetitions,
    )


def _lakes(scale: Scale, folder: Path) -> Part:
    from bench.lakes import measure_lakes
    from ticdc_assets.spark.session import LazySession

    return measure_lakes(
        LazySession(),
        folder,
        scale.of((300, 1_500, 15_000), (30, 60)),
        syncs=scale.of(60, 12),
        repetitions=scale.few,
    )


def _executors(scale: Scale, folder: Path) -> Part:
    from bench.catching_up import measure_executors

    return measure_executors(folder, (1, 2), changes=scale.of(200_000, 200), repetitions=scale.few)


def _wide_rows(scale: Scale, folder: Path) -> Part:
    from bench.wide_rows import measure_wide_rows

    return measure_wide_rows(
        _spark(), folder, scale.of((12, 500), (12, 40)), rows=scale.of(20_000, 200)
    )


def _many_tables(scale: Scale, folder: Path) -> Part:
    from bench.many_tables import measure_many_tables

    return measure_many_tables(
        folder, scale.of((10, 200, 2_000, 5_000), (1, 12)), rows=scale.of(20, 2)
    )


def _freshness(scale: Scale, folder: Path) -> Part:
    from bench.freshness import measure_freshness

    return measure_freshness(
        _spark(),
        folder,
        tables=scale.tables,
        changes=scale.table_changes,
        repetitions=scale.few,
    )


def _catching_up(scale: Scale, folder: Path) -> Part:
    from bench.catching_up import measure_catching_up

    return measure_catching_up(
        folder,
        changes=scale.of(1_000_000, 200),
        times=scale.of(5, 2),
        repetitions=scale.few,
    )


def _seeding(scale: Scale, folder: Path) -> Part:
    from bench.seeding import measure_seeding

    return measure_seeding(
        folder, rows=scale.of(1_000_000, 300), times=scale.of(10, 2), repetitions=scale.few
    )


def _trickle(scale: Scale, folder: Path) -> Part:
    from bench.trickle import measure_trickle

    return measure_trickle(
        folder,
        scale.of((1_000, 10_000, 100_000, 1_000_000, 10_000_000), (12_000, 24_000)),
        changes=scale.of(1_000, 20),
        command_rows=scale.of(200_000, 12_000),
        batches=scale.of(200, 3),
        repetitions=scale.few,
    )


def _sustained(scale: Scale, folder: Path) -> Part:
    from bench.sustained import measure_sustained

    tables, rows = scale.of((10, 1_000_000), (2, 12_000))
    return measure_sustained(
        folder,
        tables=tables,
        rows=rows,
        rate=scale.of(500, 20),
        seconds=scale.of(600, 3),
    )


def _million(scale: Scale, folder: Path) -> Part:
    from bench.million import measure_million

    return measure_million(folder, changes=scale.of(1_000_000, 300))


def _spark() -> "SparkSession":
    from ticdc_assets.spark.session import get_spark

    return get_spark({"spark.master": "local[2]"})


PARTS: Mapping[str, Callable[[Scale, Path], Part]] = {
    "decoding": _decoding,
    "differences": _differences,
    "folding": _folding,
    "values": _values,
    "message-sizes": _message_sizes,
    "stage": _stage,
    "small": _small,
    "large": _large,
    "growth": _growth,
    "landed": _landed,
    "lakes": _lakes,
    "executors": _executors,
    "wide-rows": _wide_rows,
    "many-tables": _many_tables,
    "freshness": _freshness,
    "trickle": _trickle,
    "sustained": _sustained,
    "catching-up": _catching_up,
    "million-cold": _million,
    "seeding": _seeding,
}
"""Every part, in the order in which they are run and told."""
