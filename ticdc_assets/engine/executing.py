"""Run a step in this process, or distributed over Spark's Python workers.

In: a *step*, which is a function from parts of the work to results, and the parts. Out: the results
of all parts, in the order of the parts. The size of the work decides where a step runs, never which
step runs. For small work, nearly all of the time is Spark's fixed cost (a plan, a job, workers), so
up to `INLINE_ROWS` rows run in this process. If these have more than `INLINE_BYTES` bytes, their
values are large: buckets are files then, and a step holds one of them at a time.

If rows of many parts belong together (the changes of a key), the step returns rows with the number
of their *bucket*, and a second function makes results from each bucket's rows (`reduce`).

Parts and results pass between processes, so they are small: ranges of offsets, row groups of files,
names of written files, counts. Rows stay in files, except on their way to a bucket: there they are
Arrow bytes, in which Spark sees neither rows nor types.

Why running a step again is safe: Spark repeats failed tasks, so a step may run more than once for a
part. Its files have no effect until a commit names them (`files`).
"""

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol, TypeAlias, TypeVar

import pyarrow as pa
from pyspark import RDD
from pyspark.sql import SparkSession

from ticdc_assets.engine.cluster import require_cluster
from ticdc_assets.engine.worker_costs import settle
from ticdc_assets.errors import TicdcError
from ticdc_assets.storage.paths import AnyPath

P = TypeVar("P")
R = TypeVar("R")

Step: TypeAlias = Callable[[Iterable[P]], Iterator[R]]
"""A function from parts to results; what it refers to has to be picklable."""

Sorting: TypeAlias = Callable[[Iterable[P]], Iterator[tuple[int, pa.RecordBatch]]]
"""A step from parts to rows, each batch with the number of the bucket that its rows belong to."""

Reducing: TypeAlias = Callable[[int, Iterator[pa.RecordBatch]], Iterator[R]]
"""A function from a bucket's number and all of its rows, in any order, to results."""

INLINE_ROWS = 20_000
"""Rows up to which a step runs in this process."""

INLINE_BYTES = 32 << 20
"""Bytes, before compression, up to which it holds all of them."""

_BLOB_BYTES = 1 << 18
"""Size of what is handed to a bucket at a time, about. A worker of Spark holds up to 1,000 such."""


class Executor(Protocol):
    """Runs steps."""

    @property
    def workers(self) -> int:
        """Parts that are worked on at a time."""
        ...

    @property
    def holds(self) -> bool:
        """Whether all rows may be held in this process; if not, results are files."""
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

    def reduce(
        self,
        step: Sorting[P],
        parts: Sequence[P],
        function: Reducing[R],
        *,
        tasks: int,
        buckets: int,
    ) -> list[R]:
        """Return what a function makes of the rows of each bucket, in any order.

        Args:
            step: gives the rows of parts; it is called once for each task.
            parts: the parts.
            function: is called once for each bucket that has rows.
            tasks: among how many tasks the parts are shared out.
            buckets: how many buckets there are; their numbers begin at 0.

        Raises:
            TicdcError: the function raised it.
        """
        ...


class Inline:
    """Runs steps in this process."""

    workers = 1
    holds = True

    def run(self, step: Step[P, R], parts: Sequence[P], *, tasks: int) -> list[R]:
        """Return the results of a step; see `Executor`."""
        return list(step(parts))

    def reduce(
        self,
        step: Sorting[P],
        parts: Sequence[P],
        function: Reducing[R],
        *,
        tasks: int,
        buckets: int,
    ) -> list[R]:
        """Return what a function makes of each bucket; see `Executor`."""
        rows: dict[int, list[pa.RecordBatch]] = {}
        for bucket, batch in step(parts):
            rows.setdefault(bucket, []).append(batch)
        return [result for bucket, own in rows.items() for result in function(bucket, iter(own))]


class InFiles(Inline):
    """Runs steps in this process, with the rows of buckets in files: for few rows that are large.

    The files are in a temporary folder of this machine, which is removed with the last result.
    """

    holds = False

    def reduce(
        self,
        step: Sorting[P],
        parts: Sequence[P],
        function: Reducing[R],
        *,
        tasks: int,
        buckets: int,
    ) -> list[R]:
        """Return what a function makes of each bucket; see `Executor`."""
        with tempfile.TemporaryDirectory(prefix="ticdc-assets-") as folder, ExitStack() as opened:
            writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
            for bucket, batch in step(parts):
                if bucket not in writers:
                    sink = opened.enter_context(pa.OSFile(f"{folder}/{bucket}", "wb"))
                    writers[bucket] = pa.ipc.new_stream(sink, batch.schema)
                writers[bucket].write_batch(batch)
            for writer in writers.values():
                writer.close()
            opened.close()
            return [
                result
                for bucket in writers
                for result in function(bucket, _rows(pa.memory_map(f"{folder}/{bucket}")))
            ]


class OnSpark:
    """Runs steps in Spark's Python workers.

    Args:
        spark: the session.
        folder: a folder that steps write to, which all workers have to share.
    """

    holds = False

    def __init__(self, spark: SparkSession, folder: AnyPath) -> None:
        require_cluster(spark, folder)
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

        return _results(_mapped(self._tasks(parts, tasks), guarded).collect())

    def reduce(
        self,
        step: Sorting[P],
        parts: Sequence[P],
        function: Reducing[R],
        *,
        tasks: int,
        buckets: int,
    ) -> list[R]:
        """Return what a function makes of each bucket; see `Executor`."""

        def sorted_out(some: Iterable[P]) -> Iterator[tuple[int, bytes]]:
            for bucket, batch in step(some):
                for blob in _blobs(batch):
                    yield bucket, blob

        def reduced(blobs: Iterable[tuple[int, bytes]]) -> Iterator[R | _Raised]:
            # There are as many partitions as buckets, so these are of one.
            for bucket, own in itertools.groupby(blobs, key=itemgetter(0)):
                try:
                    yield from function(bucket, (row for _, blob in own for row in _rows(blob)))
                except TicdcError as error:
                    yield _Raised(error)

        sorted_rows = _mapped(self._tasks(parts, tasks), sorted_out)
        shuffled = sorted_rows.partitionBy(buckets, lambda bucket: bucket)
        return _results(_mapped(shuffled, reduced).collect())

    def _tasks(self, parts: Sequence[P], tasks: int) -> RDD[P]:
        return self._context.parallelize(parts, max(1, min(tasks, len(parts))))


def _mapped(parts: RDD[P], function: Callable[[Iterable[P]], Iterator[R]]) -> RDD[R]:
    """Return the results of a function from each task's parts, after which its worker settles."""

    def task(some: Iterable[P]) -> Iterator[R]:
        yield from function(some)
        settle()

    return parts.mapPartitions(task)


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


def _blobs(batch: pa.RecordBatch) -> Iterator[bytes]:
    rows = max(1, _BLOB_BYTES * batch.num_rows // max(1, batch.nbytes))
    for place in range(0, batch.num_rows, rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch.slice(place, rows))
        yield sink.getvalue().to_pybytes()


def _rows(blob: bytes | pa.NativeFile) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(blob) as reader:
        yield from reader


def executor(spark: SparkSession, folder: AnyPath, *, rows: int, size: int) -> Executor:
    """Return what runs steps on so much work.

    Args:
        spark: the session, which is asked for nothing if the work is small.
        folder: a folder that steps write to.
        rows: rows or records of all parts.
        size: their bytes before compression, 0 if nobody knows.
    """
    if rows > INLINE_ROWS:
        return OnSpark(spark, folder)
    return Inline() if size <= INLINE_BYTES else InFiles()
