"""Run a step in this process, or distributed over Spark's Python workers.

In: a *step*, which is a function from parts of the work to results, and the parts. Out: the results
of all parts, in their order. The size of the work decides where a step runs, never which step runs.
If rows of many parts belong together (the changes of a key), the step returns rows with the number
of their *bucket*, and a second function makes results from each bucket's rows (`reduce`).

Parts and results pass between processes, so they are small: ranges of offsets, row groups of files,
names of written files, counts. Rows stay in files, except on their way to a bucket: there they are
Arrow bytes, in which Spark sees neither rows nor types.

Why running a step again is safe: Spark repeats failed tasks, so a step may run more than once for a
part. Its files have no effect until a commit names them (`files`).
"""

import itertools
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.config import Compute, lake_path, load_compute
from ticdc_assets.spark.cluster import require_cluster
from ticdc_assets.spark.compute import HERE, report
from ticdc_assets.spark.driver import described, place_of, workers_of
from ticdc_assets.spark.worker_costs import settle
from ticdc_assets.storage.paths import AnyPath

if TYPE_CHECKING:  # importing pyspark takes a while
    from pyspark.sql import DataFrame, SparkSession

P = TypeVar("P")
R = TypeVar("R")

Step: TypeAlias = Callable[[Iterable[P]], Iterator[R]]
"""A function from parts to results; what it refers to has to be picklable."""

Sorting: TypeAlias = Callable[[Iterable[P]], Iterator[tuple[int, pa.RecordBatch]]]
"""A step from parts to rows, each batch with the number of the bucket that its rows belong to."""

Reducing: TypeAlias = Callable[[int, Iterator[pa.RecordBatch]], Iterator[R]]
"""A function from a bucket's number and all of its rows, in any order, to results."""

INLINE_ROWS = 20_000
"""Rows up to which a step runs in this process: Spark's fixed cost would be nearly all."""

INLINE_BYTES = 32 << 20
"""Bytes, before compression, up to which it holds all of them; above that, buckets are files."""

_BLOB_BYTES = 1 << 18
"""The approximate size of a batch for a bucket. A Spark worker holds up to 1,000 such batches."""


class Inline:
    """Runs steps in this process.

    Attributes:
        workers: how many parts are worked on at a time.
        holds: whether all rows may be held in this process; if not, results are files, and so are
            the rows of buckets, in a temporary folder of this machine.
    """

    workers: int = 1

    def __init__(self, *, holds: bool = True) -> None:
        self.holds = holds

    def run(self, step: Step[P, R], parts: Sequence[P], *, tasks: int) -> list[R]:
        """Return the results of a step for all parts, in their order.

        Args:
            step: the step; it is called once for each task.
            parts: the parts.
            tasks: among how many tasks the parts are shared out, those next to each other together.

        Raises:
            TicdcError: the step raised it.
        """
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
        if not self.holds:
            return _reduced_in_files(step(parts), function)
        rows: dict[int, list[pa.RecordBatch]] = {}
        for bucket, batch in step(parts):
            rows.setdefault(bucket, []).append(batch)
        return [
            result
            for bucket, bucket_rows in rows.items()
            for result in function(bucket, iter(bucket_rows))
        ]


def _reduced_in_files(rows: Iterable[tuple[int, pa.RecordBatch]], function: Reducing[R]) -> list[R]:
    """Return what a function makes of each bucket, for few rows that are large."""
    with tempfile.TemporaryDirectory(prefix="ticdc-assets-") as folder, ExitStack() as opened:
        writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        for bucket, batch in rows:
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
            for result in function(bucket, _unpacked(pa.memory_map(f"{folder}/{bucket}")))
        ]


class OnSpark:
    """Runs steps in Spark's Python workers, through DataFrames.

    A task is a row and a partition: its number, and its parts as pickled bytes. So parts next to
    each other stay together. A result is a row too, with the number of its task or bucket.

    Args:
        spark: the session.
        folder: a folder that steps write to, which all workers have to share.
        does: what the steps do, for the Spark UI.
    """

    holds = False

    def __init__(self, spark: "SparkSession", folder: AnyPath, does: str = "") -> None:
        require_cluster(spark, folder)
        self._spark = spark
        lake, below = str(lake_path()), str(folder)
        inner = below.removeprefix(lake).strip("/") if below.startswith(lake) else folder.name
        changefeed = inner.partition("/")[0]
        self._does = f"{changefeed}: {does}" if does else ""
        self.workers = workers_of(spark)

    def run(self, step: Step[P, R], parts: Sequence[P], *, tasks: int) -> list[R]:
        """Return the results of a step; see `Inline`."""
        if not parts:
            return list(step(parts))

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, parts in _rows_of(batches):
                yield from _packed(number, partial(step, pickle.loads(parts)))
            settle()

        return self._results(self._tasks(parts, tasks).mapInArrow(task, _RESULT))

    def reduce(
        self,
        step: Sorting[P],
        parts: Sequence[P],
        function: Reducing[R],
        *,
        tasks: int,
        buckets: int,
    ) -> list[R]:
        """Return what a function makes of each bucket; see `Inline`."""

        def sorted_out(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _, parts in _rows_of(batches):
                for bucket, batch in step(pickle.loads(parts)):
                    for blob in _blobs(batch):
                        yield _row(bucket, blob)
            settle()

        def reduced(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # A partition has the rows of one bucket, or is empty.
            for bucket, bucket_rows in itertools.groupby(_rows_of(batches), key=itemgetter(0)):
                batches_of = (batch for _, blob in bucket_rows for batch in _unpacked(blob))
                yield from _packed(bucket, partial(function, bucket, batches_of))
            settle()

        sorted_rows = self._tasks(parts, tasks).mapInArrow(sorted_out, _RESULT)
        bucket_rows = sorted_rows.repartitionById(buckets, "number")
        return self._results(bucket_rows.mapInArrow(reduced, _RESULT))

    def _tasks(self, parts: Sequence[P], tasks: int) -> "DataFrame":
        """Return the parts as rows, one for each task, each in its own partition."""
        tasks = max(1, min(tasks, len(parts)))
        bounds = [number * len(parts) // tasks for number in range(tasks + 1)]
        shares = (list(parts[start:stop]) for start, stop in itertools.pairwise(bounds))
        rows = pa.table([pa.array(range(tasks)), pa.array(map(pickle.dumps, shares))], _ROW.names)
        frame = self._spark.createDataFrame(rows.cast(_ROW))
        # Spark gives each of so few rows its own partition.
        return frame if tasks <= self.workers else frame.repartitionById(tasks, "number")

    def _results(self, rows: "DataFrame") -> list[Any]:
        with described(self._spark, self._does):
            table = rows.toArrow()
        numbers = table["number"].to_numpy()
        results: list[Any] = []
        # Rows of one number arrive in their order.
        for place in np.argsort(numbers, kind="stable").tolist():
            result = pickle.loads(table["data"][place].as_buffer())
            if isinstance(result, _Raised):
                raise result.error
            results.append(result)
        return results


Executor: TypeAlias = Inline | OnSpark
"""Runs steps."""

_RESULT = "number int, data binary"
_ROW = pa.schema([("number", pa.int32()), ("data", pa.binary())])


def _row(number: int, data: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array([number], pa.int32()), pa.array([data], pa.binary())], _ROW)


def _rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Buffer]]:
    """Yield the rows of a partition, without a copy of their bytes."""
    for batch in batches:
        for number, data in zip(*batch.columns, strict=True):
            yield number.as_py(), data.as_buffer()


@dataclass(frozen=True, slots=True)
class _Raised:
    """An error raised in Spark, passed as a result: otherwise Spark would raise its own."""

    error: TicdcError


def _packed(number: int, function: Callable[[], Iterable[Any]]) -> Iterator[pa.RecordBatch]:
    """Return the rows of a function's results; the last one may be the error that it raised."""
    try:
        for result in function():
            yield _row(number, pickle.dumps(result, pickle.HIGHEST_PROTOCOL))
    except TicdcError as error:
        yield _row(number, pickle.dumps(_Raised(error)))


def _blobs(batch: pa.RecordBatch) -> Iterator[bytes]:
    rows = max(1, _BLOB_BYTES * batch.num_rows // max(1, batch.nbytes))
    for place in range(0, batch.num_rows, rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch.slice(place, rows))
        yield sink.getvalue().to_pybytes()


def _unpacked(blob: "pa.Buffer | pa.NativeFile") -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(blob) as reader:
        yield from reader


def executor(
    spark: "SparkSession", folder: AnyPath, does: str, *, rows: int, size: int, lightness: int = 1
) -> Executor:
    """Return the executor for this much work, by the setting `compute`.

    Args:
        spark: the session, which does not start if the work is small.
        folder: a folder that steps write to.
        does: what the steps do, for the Spark UI: "decoding", "folding shop.orders".
        rows: rows or records of all parts.
        size: their bytes before compression; 0 if unknown.
        lightness: how many of these rows cost as much as one row of other steps.
    """
    if rows // lightness > INLINE_ROWS or load_compute() is Compute.SPARK:
        return on_spark(spark, folder, does, rows=rows)
    report(HERE, does, rows)
    return Inline(holds=size <= INLINE_BYTES)


def on_spark(spark: "SparkSession", folder: AnyPath, does: str, *, rows: int) -> OnSpark:
    """Return the executor that runs steps on Spark, whatever their size; see `executor`."""
    runs_on = OnSpark(spark, folder, does)
    report(place_of(spark), does, rows)
    return runs_on
