"""The parts of the benchmark, and how much each of them measures.

In: the name of a part, sizes, and a scratch folder. Out: what it measured. Each part is run in a
process of its own (`apart`), so that none is measured with what another one left, and what is not
Spark's has no JVM beside it; a quick run takes all of them in one process instead.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.goals import Reached
from bench.measuring import MemoryWatch
from bench.messages import load_messages
from bench.results import Part, Result, Run, machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAP = "3g"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured.

    Attributes:
        messages: messages of each format, for what needs no Spark.
        repetitions: of each piece that takes a moment; others have at most three.
        values: values of each type.
        stage_rows: rows for the decode stage in Spark, about.
        changes: row changes from Kafka to mirrors.
        times: how many times as many for the memory.
        small: rows of a large mirror's tenth.
        large: rows of a large mirror.
        large_changes: changes into both.
        rows: rows of one table that is merged into; more than are rewritten whole.
        tables: tables of a small sync.
        table_rows: rows of each.
        table_changes: changes of each.
        message_sizes: bytes of text in a message.
        batch_sizes: changes in a sync.
        batch_rows: rows of the mirror that they go into.
        mirror_sizes: rows of a mirror.
        mirror_changes: changes that go into it.
        table_counts: tables in a sync.
        many_counts: tables of the commands in fresh processes.
        many_rows: rows of each of them.
        syncs: syncs in a row without a compaction.
        partition_counts: partitions of a topic.
        partition_changes: changes in a sync from them.
        landed: messages that were landed before.
        landed_changes: changes in a sync behind them.
        lake_sizes: changes in a sync, of a lake in a folder and of one on S3.
        lake_syncs: syncs in a row on both.
        executors: tasks that Spark works on at a time.
        executor_changes: changes that they catch up with.
        columns: of a table of few and of one of many.
        column_rows: new rows of both.
        exported_rows: rows of an export.
        exported_times: how many times as many for the memory.
        trickle_sizes: rows of mirrors that small batches go into.
        trickle_changes: changes of a batch.
        trickle_batches: batches before the readers.
        command_rows: rows of the mirror that the command brings a batch to.
        sustained: tables of sustained changes, and rows of each.
        sustained_rate: changes a second.
        sustained_seconds: how long they come.
        cold_changes: changes of one table for a cold sync.
    """

    messages: int
    repetitions: int
    values: int
    stage_rows: int
    changes: int
    times: int
    small: int
    large: int
    large_changes: int
    rows: int
    tables: int
    table_rows: int
    table_changes: int
    message_sizes: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    batch_rows: int
    mirror_sizes: tuple[int, ...]
    mirror_changes: int
    table_counts: tuple[int, ...]
    many_counts: tuple[int, ...]
    many_rows: int
    syncs: int
    partition_counts: tuple[int, ...]
    partition_changes: int
    landed: tuple[int, ...]
    landed_changes: int
    lake_sizes: tuple[int, ...]
    lake_syncs: int
    executors: tuple[int, ...]
    executor_changes: int
    columns: tuple[int, int]
    column_rows: int
    exported_rows: int
    exported_times: int
    trickle_sizes: tuple[int, ...]
    trickle_changes: int
    trickle_batches: int
    command_rows: int
    sustained: tuple[int, int]
    sustained_rate: int
    sustained_seconds: float
    cold_changes: int

    @property
    def few(self) -> int:
        """Repetitions of what takes long."""
        return min(3, self.repetitions)


FULL = Sizes(
    messages=20_000,
    repetitions=5,
    values=20_000,
    stage_rows=200_000,
    changes=1_000_000,
    times=5,
    small=1_000_000,
    large=10_000_000,
    large_changes=100_000,
    rows=20_000,
    tables=10,
    table_rows=1_000,
    table_changes=100,
    message_sizes=(20, 200, 1_000, 4_000, 16_000),
    batch_sizes=(100, 1_000, 10_000, 100_000),
    batch_rows=200_000,
    mirror_sizes=(100_000, 1_000_000, 10_000_000),
    mirror_changes=1_000,
    table_counts=(1, 5, 10, 20),
    many_counts=(10, 200, 2_000, 5_000),
    many_rows=20,
    syncs=300,
    partition_counts=(1, 4, 16, 64),
    partition_changes=20_000,
    landed=(1_000_000, 5_000_000, 20_000_000),
    landed_changes=1_000,
    lake_sizes=(300, 1_500, 15_000),
    lake_syncs=60,
    executors=(1, 2),
    executor_changes=200_000,
    columns=(12, 500),
    column_rows=20_000,
    exported_rows=1_000_000,
    exported_times=10,
    trickle_sizes=(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    trickle_changes=1_000,
    trickle_batches=200,
    command_rows=200_000,
    sustained=(10, 1_000_000),
    sustained_rate=500,
    sustained_seconds=600,
    cold_changes=1_000_000,
)

QUICK = Sizes(
    messages=300,
    repetitions=1,
    values=20,
    stage_rows=300,
    changes=200,
    times=2,
    small=12_000,
    large=24_000,
    large_changes=100,
    rows=12_000,
    tables=2,
    table_rows=50,
    table_changes=10,
    message_sizes=(20, 200),
    batch_sizes=(10, 20),
    batch_rows=12_000,
    mirror_sizes=(100, 12_000),
    mirror_changes=10,
    table_counts=(1, 2),
    many_counts=(1, 12),
    many_rows=2,
    syncs=12,
    partition_counts=(1, 2),
    partition_changes=20,
    landed=(500, 1_000),
    landed_changes=10,
    lake_sizes=(30, 60),
    lake_syncs=12,
    executors=(1, 2),
    executor_changes=200,
    columns=(12, 40),
    column_rows=200,
    exported_rows=300,
    exported_times=2,
    trickle_sizes=(12_000, 24_000),
    trickle_changes=20,
    trickle_batches=3,
    command_rows=12_000,
    sustained=(2, 12_000),
    sustained_rate=20,
    sustained_seconds=3,
    cold_changes=300,
)


def run_part(name: str, sizes: Sizes, folder: Path) -> Run:
    """Measure one part."""
    load, began = os.getloadavg()[0], time.monotonic()
    with MemoryWatch() as watch:
        part = PARTS[name](sizes, folder / name)
    return Run(
        name=name,
        part=part,
        seconds=time.monotonic() - began,
        memory=watch.peak,
        load=load,
        machine=machine(),
    )


def _joined(*parts: Part) -> Part:
    return Part(
        results=[item for part in parts for item in part.results],
        facts=[item for part in parts for item in part.facts],
        reached=[item for part in parts for item in part.reached],
        series=[item for part in parts for item in part.series],
        shares=[item for part in parts for item in part.shares],
    )


def _sorted_out(found: Sequence[Result | Reached]) -> Part:
    return Part(
        results=[item for item in found if isinstance(item, Result)],
        reached=[item for item in found if isinstance(item, Reached)],
    )


# What needs no Spark ----------------------------------------------------------------------------


def _decoding(sizes: Sizes, _: Path) -> Part:
    from bench.decoding import measure_decoding

    messages = load_messages(sizes.messages)
    # A tenth of a second each: a burst of other work must not decide about most of them.
    found = _sorted_out(measure_decoding(messages, repetitions=3 * sizes.repetitions))
    return replace(
        found,
        facts=[
            f"Decoding and folding in one process: {messages.source}'s {len(messages.records):,} "
            f"records of simple-json, {messages.rows:,} of them row changes, "
            f"{messages.size // len(messages.records)} bytes each; of the other formats those of "
            "as many rows, or fewer if there are no more."
        ],
    )


def _differences(sizes: Sizes, _: Path) -> Part:
    from bench.decoding import measure_differences

    return _sorted_out(measure_differences(sizes.messages, repetitions=sizes.repetitions))


def _folding(sizes: Sizes, _: Path) -> Part:
    from bench.folding import measure_folding

    messages = load_messages(sizes.messages)
    return Part(results=measure_folding(messages, repetitions=sizes.repetitions))


def _values(sizes: Sizes, _: Path) -> Part:
    from bench.conversions import measure_conversions

    return Part(results=measure_conversions(values=sizes.values, repetitions=sizes.repetitions))


def _message_sizes(sizes: Sizes, _: Path) -> Part:
    from bench.growth import measure_message_sizes

    return measure_message_sizes(
        sizes.message_sizes, messages=sizes.messages, repetitions=sizes.repetitions
    )


# What needs Spark -------------------------------------------------------------------------------


def _stage(sizes: Sizes, folder: Path) -> Part:
    from bench.stage import measure_stage

    return measure_stage(
        _spark(),
        folder,
        messages=sizes.messages,
        rows=sizes.stage_rows,
        repetitions=sizes.few,
    )


def _small(sizes: Sizes, folder: Path) -> Part:
    from bench.pipeline import measure_control, measure_many_tables, measure_one_table

    spark = _spark()
    return Part(
        results=[
            *measure_one_table(
                spark, folder / "one", rows=sizes.rows, changes=1_000, repetitions=sizes.few
            ),
            *measure_many_tables(
                spark,
                folder / "many",
                tables=sizes.tables,
                rows=sizes.table_rows,
                changes=sizes.table_changes,
                repetitions=sizes.repetitions,
            ),
            *measure_control(spark, folder / "control", repetitions=sizes.repetitions),
        ]
    )


def _large(sizes: Sizes, folder: Path) -> Part:
    from bench.large import measure_large

    return measure_large(
        _spark(),
        folder,
        small=sizes.small,
        large=sizes.large,
        changes=sizes.large_changes,
        repetitions=sizes.few,
    )


def _growth(sizes: Sizes, folder: Path) -> Part:
    from bench.growth import (
        measure_batch_sizes,
        measure_mirror_sizes,
        measure_partition_counts,
        measure_syncs_in_a_row,
        measure_table_counts,
    )

    spark = _spark()
    # Many sizes, and the line through them counts.
    few = min(2, sizes.few)
    return _joined(
        measure_batch_sizes(
            spark, folder / "batch", sizes.batch_sizes, rows=sizes.batch_rows, repetitions=few
        ),
        measure_mirror_sizes(
            spark,
            folder / "mirror",
            sizes.mirror_sizes,
            changes=sizes.mirror_changes,
            repetitions=few,
        ),
        measure_table_counts(
            spark,
            folder / "tables",
            sizes.table_counts,
            changes=sizes.table_changes,
            repetitions=few,
        ),
        measure_partition_counts(
            spark,
            folder / "partitions",
            sizes.partition_counts,
            changes=sizes.partition_changes,
            repetitions=few,
        ),
        measure_syncs_in_a_row(spark, folder / "row", syncs=sizes.syncs),
    )


def _landed(sizes: Sizes, folder: Path) -> Part:
    from bench.landed import measure_landed

    return measure_landed(
        _spark(),
        folder,
        sizes.landed,
        changes=sizes.landed_changes,
        repetitions=sizes.repetitions,
    )


def _lakes(sizes: Sizes, folder: Path) -> Part:
    from bench.lakes import measure_lakes
    from ticdc_assets.spark.session import LazySession

    return measure_lakes(
        LazySession(), folder, sizes.lake_sizes, syncs=sizes.lake_syncs, repetitions=sizes.few
    )


def _executors(sizes: Sizes, folder: Path) -> Part:
    from bench.catching_up import measure_executors

    return measure_executors(
        folder, sizes.executors, changes=sizes.executor_changes, repetitions=sizes.few
    )


def _wide_rows(sizes: Sizes, folder: Path) -> Part:
    from bench.wide_rows import measure_wide_rows

    return measure_wide_rows(_spark(), folder, sizes.columns, rows=sizes.column_rows)


def _many_tables(sizes: Sizes, folder: Path) -> Part:
    from bench.many_tables import measure_many_tables

    return measure_many_tables(folder, sizes.many_counts, rows=sizes.many_rows)


def _freshness(sizes: Sizes, folder: Path) -> Part:
    from bench.freshness import measure_freshness

    return measure_freshness(
        _spark(),
        folder,
        tables=sizes.tables,
        changes=sizes.table_changes,
        repetitions=sizes.few,
    )


def _catching_up(sizes: Sizes, folder: Path) -> Part:
    from bench.catching_up import measure_catching_up

    return measure_catching_up(
        folder, changes=sizes.changes, times=sizes.times, repetitions=sizes.few, heap=HEAP
    )


def _seeding(sizes: Sizes, folder: Path) -> Part:
    from bench.seeding import measure_seeding

    return measure_seeding(
        folder, rows=sizes.exported_rows, times=sizes.exported_times, repetitions=sizes.few
    )


def _trickle(sizes: Sizes, folder: Path) -> Part:
    from bench.trickle import measure_trickle

    return measure_trickle(
        folder,
        sizes.trickle_sizes,
        changes=sizes.trickle_changes,
        command_rows=sizes.command_rows,
        batches=sizes.trickle_batches,
        repetitions=sizes.few,
    )


def _sustained(sizes: Sizes, folder: Path) -> Part:
    from bench.sustained import measure_sustained

    tables, rows = sizes.sustained
    return measure_sustained(
        folder,
        tables=tables,
        rows=rows,
        rate=sizes.sustained_rate,
        seconds=sizes.sustained_seconds,
    )


def _million(sizes: Sizes, folder: Path) -> Part:
    from bench.million import measure_million

    return measure_million(folder, changes=sizes.cold_changes)


def _spark() -> "SparkSession":
    from ticdc_assets.spark.session import get_spark

    return get_spark({"spark.master": "local[2]"})


PARTS: Mapping[str, Callable[[Sizes, Path], Part]] = {
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
