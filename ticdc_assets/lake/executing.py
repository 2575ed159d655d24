"""Where a step runs: in this process, or shared out among Spark's Python workers.

In: a *step*, which is a function from parts of the work to results, and the parts. Out: the results
of all parts, in the order of the parts. The size of the work decides where the step runs, never
which step it is. Spark's fixed cost (a plan, a job, workers) is nearly all of the time of a small
piece of work; so up to `INLINE_ROWS` rows and `INLINE_BYTES` bytes run in this process.

Parts and results pass between processes, so they are small: ranges of offsets, row groups of files,
names of written files, counts. Rows stay in files.

Why running a step again is safe: Spark repeats a task that failed, so a step may run more than once
for a part. What it writes counts for nothing until a commit names it (`files`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from pyspark.sql import SparkSession

from ticdc_assets.errors import TicdcError
from ticdc_assets.lake.spark_commits import require_shared

P = TypeVar("P")
R = TypeVar("R")

Step: TypeAlias = Callable[[Iterable[P]], Iterator[R]]
"""A function from parts to results; what it refers to has to be picklable."""

INLINE_ROWS = 20_000
"""Rows up to which a step runs in this process."""

INLINE_BYTES = 32 << 20
"""Bytes, before compression, up to which it does."""


class Executor(Protocol):
    """Runs steps."""

    @property
    def workers(self) -> int:
        """Parts that are worked on at a time."""
        ...

    def run(self, step: Step[P, R], parts: Sequence[P], *, tasks: int) -> list[R]:
        """Return the results of a step for all parts, in their order.

        Args:
            step: the step; it is called once for each task.
            parts: the parts.
            tasks: among how many tasks the parts are shared out, those next to each other together.

        Raises:
            TicdcError: the step raised it.
        """
        ...


class Inline:
    """Runs steps in this process."""

    workers = 1

    def run(self, step: Step[P, R], parts: Sequence[P], *, tasks: int) -> list[R]:
        """Return the results of a step; see `Executor`."""
        return list(step(parts))


class OnSpark:
    """Runs steps in Spark's Python workers.

    Args:
        spark: the session.
        folder: a folder that steps write to, which all workers have to share.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        require_shared(spark, folder)
        self._context = spark.sparkContext
        self.workers = self._context.defaultParallelism

    def run(self, step: Step[P, R], parts: Sequence[P], *, tasks: int) -> list[R]:
        """Return the results of a step; see `Executor`."""

        def guarded(some: Iterable[P]) -> Iterator[R | _Raised]:
            try:
                yield from step(some)
            except TicdcError as error:
                # Out of Spark it would come as an error of Spark.
                yield _Raised(error)

        rdd = self._context.parallelize(parts, max(1, min(tasks, len(parts))))
        return _results(rdd.mapPartitions(guarded).collect())


@dataclass(frozen=True, slots=True)
class _Raised:
    error: TicdcError


def _results(found: Iterable[R | _Raised]) -> list[R]:
    results: list[R] = []
    for item in found:
        if isinstance(item, _Raised):
            raise item.error
        results.append(item)
    return results


def executor(spark: SparkSession, folder: Path, *, rows: int, size: int) -> Executor:
    """Return what runs steps on so much work.

    Args:
        spark: the session, which is asked for nothing if the work is small.
        folder: a folder that steps write to.
        rows: rows or records of all parts.
        size: their bytes before compression, 0 if nobody knows.
    """
    small = rows <= INLINE_ROWS and size <= INLINE_BYTES
    return Inline() if small else OnSpark(spark, folder)
