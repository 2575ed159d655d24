"""The parts of the benchmark, and how much each of them measures.

In: the name of a part, sizes, and a scratch folder. Out: what it measured. Each part is run in a
process of its own (`apart`), so that none is measured with what another one left, and what is not
Spark's has no JVM beside it; a quick run takes all of them in one process instead.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench.measuring import MemoryWatch
from bench.messages import load_messages
from bench.results import Part, Result, Run, machine

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


def _spark() -> "SparkSession":
    from ticdc_assets.spark.session import get_spark

    return get_spark({"spark.master": "local[2]"})


def _measured(function: str, *arguments: Any, **sizes: Any) -> Part:
    """Call `module.function` of this package; what other parts need is not imported."""
    module, _, name = function.partition(".")
    found: Part | list[Result] = getattr(import_module(f"bench.{module}"), name)(
        *arguments, **sizes
    )
    return found if isinstance(found, Part) else Part(results=found)


def _growth(scale: Scale, folder: Path) -> Part:
    spark = _spark()
    # Many sizes, and the line through them counts.
    few = min(2, scale.few)
    parts: list[tuple[str, tuple[int, ...], dict[str, int]]] = [
        (
            "batch_sizes",
            scale.of((100, 1_000, 10_000, 100_000), (10, 20)),
            {"rows": scale.of(200_000, 12_000), "repetitions": few},
        ),
        (
            "mirror_sizes",
            scale.of((100_000, 1_000_000, 10_000_000), (100, 12_000)),
            {"changes": scale.of(1_000, 10), "repetitions": few},
        ),
        (
            "table_counts",
            scale.of((1, 5, 10, 20), (1, 2)),
            {"changes": scale.table_changes, "repetitions": few},
        ),
        (
            "partition_counts",
            scale.of((1, 4, 16, 64), (1, 2)),
            {"changes": scale.of(20_000, 20), "repetitions": few},
        ),
    ]
    syncs = scale.of(300, 12)
    return Part.joined(
        [
            *(
                _measured(f"growth.measure_{name}", spark, folder / name, sizes, **more)
                for name, sizes, more in parts
            ),
            _measured("growth.measure_syncs_in_a_row", spark, folder / "row", syncs=syncs),
        ]
    )


def _small(scale: Scale, folder: Path) -> Part:
    spark = _spark()
    return Part.joined(
        [
            _measured(
                "pipeline.measure_one_table",
                spark,
                folder / "one",
                rows=scale.of(20_000, 12_000),
                changes=1_000,
                repetitions=scale.few,
            ),
            _measured(
                "pipeline.measure_many_tables",
                spark,
                folder / "many",
                tables=scale.tables,
                rows=scale.of(1_000, 50),
                changes=scale.table_changes,
                repetitions=scale.repetitions,
            ),
            _measured(
                "pipeline.measure_control",
                spark,
                folder / "control",
                repetitions=scale.repetitions,
            ),
        ]
    )


def _lakes(scale: Scale, folder: Path) -> Part:
    from ticdc_assets.spark.session import LazySession

    sizes = scale.of((300, 1_500, 15_000), (30, 60))
    return _measured(
        "lakes.measure_lakes",
        LazySession(),
        folder,
        sizes,
        syncs=scale.of(60, 12),
        repetitions=scale.few,
    )


PARTS: Mapping[str, Callable[[Scale, Path], Part]] = {
    # A tenth of a second each: a burst of other work must not decide about most of them.
    "decoding": lambda scale, _: _measured(
        "decoding.measure_decoding",
        load_messages(scale.messages),
        repetitions=3 * scale.repetitions,
    ),
    "differences": lambda scale, _: _measured(
        "decoding.measure_differences", scale.messages, repetitions=scale.repetitions
    ),
    "folding": lambda scale, _: _measured(
        "folding.measure_folding", load_messages(scale.messages), repetitions=scale.repetitions
    ),
    "values": lambda scale, _: _measured(
        "conversions.measure_conversions",
        values=scale.of(20_000, 20),
        repetitions=scale.repetitions,
    ),
    "message-sizes": lambda scale, _: _measured(
        "growth.measure_message_sizes",
        scale.of((20, 200, 1_000, 4_000, 16_000), (20, 200)),
        messages=scale.messages,
        repetitions=scale.repetitions,
    ),
    "stage": lambda scale, folder: _measured(
        "stage.measure_stage",
        _spark(),
        folder,
        messages=scale.messages,
        rows=scale.of(200_000, 300),
        repetitions=scale.few,
    ),
    "small": _small,
    "large": lambda scale, folder: _measured(
        "large.measure_large",
        _spark(),
        folder,
        small=scale.of(1_000_000, 12_000),
        large=scale.of(10_000_000, 24_000),
        changes=scale.of(100_000, 100),
        repetitions=scale.few,
    ),
    "growth": _growth,
    "landed": lambda scale, folder: _measured(
        "landed.measure_landed",
        _spark(),
        folder,
        scale.of((1_000_000, 5_000_000, 20_000_000), (500, 1_000)),
        changes=scale.of(1_000, 10),
        repetitions=scale.repetitions,
    ),
    "lakes": _lakes,
    "executors": lambda scale, folder: _measured(
        "catching_up.measure_executors",
        folder,
        (1, 2),
        changes=scale.of(200_000, 200),
        repetitions=scale.few,
    ),
    "wide-rows": lambda scale, folder: _measured(
        "wide_rows.measure_wide_rows",
        _spark(),
        folder,
        scale.of((12, 500), (12, 40)),
        rows=scale.of(20_000, 200),
    ),
    "many-tables": lambda scale, folder: _measured(
        "many_tables.measure_many_tables",
        folder,
        scale.of((10, 200, 2_000, 5_000), (1, 12)),
        rows=scale.of(20, 2),
    ),
    "freshness": lambda scale, folder: _measured(
        "freshness.measure_freshness",
        _spark(),
        folder,
        tables=scale.tables,
        changes=scale.table_changes,
        repetitions=scale.few,
    ),
    "trickle": lambda scale, folder: _measured(
        "trickle.measure_trickle",
        folder,
        scale.of((1_000, 10_000, 100_000, 1_000_000, 10_000_000), (12_000, 24_000)),
        changes=scale.of(1_000, 20),
        command_rows=scale.of(200_000, 12_000),
        batches=scale.of(200, 3),
        repetitions=scale.few,
    ),
    "sustained": lambda scale, folder: _measured(
        "sustained.measure_sustained",
        folder,
        tables=scale.of(10, 2),
        rows=scale.of(1_000_000, 12_000),
        rate=scale.of(500, 20),
        seconds=scale.of(600, 3),
    ),
    "catching-up": lambda scale, folder: _measured(
        "catching_up.measure_catching_up",
        folder,
        changes=scale.of(1_000_000, 200),
        times=scale.of(5, 2),
        repetitions=scale.few,
    ),
    "million-cold": lambda scale, folder: _measured(
        "million.measure_million", folder, changes=scale.of(1_000_000, 300)
    ),
    "seeding": lambda scale, folder: _measured(
        "seeding.measure_seeding",
        folder,
        rows=scale.of(1_000_000, 300),
        times=scale.of(10, 2),
        repetitions=scale.few,
    ),
}
"""Every part, in the order in which they are run and told."""
