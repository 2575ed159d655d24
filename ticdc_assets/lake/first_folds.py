"""The rows of new mirrors with many changes, folded and written by Spark's Python workers.

In: the files of the change log, and for each mirror a condition that tells its changes among their
rows and the function from changes to effects. Out: Parquet files in the mirrors' folders that no
commit names yet, with one row a key, the counts of the foldings, and the effects that came to
nothing.

Spark shares out the work and moves what belongs to one key to one place, but it sees neither a row
nor a type: workers read files by Arrow, hand on effects as Arrow's own bytes, cut by a hash of the
key, and write what they folded. All mirrors are one job that reads the change log once. For mirrors
of some hundred thousand rows the alternative, an aggregate over columns for each, costs more in
plans, generated code and its compilation than in rows, and each row passes four times between the
JVM's form and Arrow's. What a worker holds at a time is bounded (`_ROWS_PER_PART`, `_READ_AHEAD`),
whatever the number of changes and of mirrors.

Why running it again is safe: see `files`; `committing` is what names them.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter, or_
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
from pyspark.sql import SparkSession

from ticdc_assets.lake.effects import effect_schema
from ticdc_assets.lake.files import FileWriter, WrittenFile
from ticdc_assets.lake.folding import FoldCounts, fold_rows
from ticdc_assets.lake.mirror_rows import (
    CHANGE_COLUMNS,
    ArrowMap,
    MirrorLayout,
    put_rows,
)
from ticdc_assets.lake.spark_commits import require_shared
from ticdc_assets.schemas import TableSchema

_ROWS_PER_PART = 100_000
"""Changes that are folded at a time, about: keys are spread over parts by their hash."""

_READ_ROWS = 10_000
"""Rows of the change log that a worker converts at a time."""

_READ_AHEAD = 100_000
"""Rows of it that wait in a worker until there are enough of their mirror."""

_BLOB_BYTES = 1 << 18
"""Size of what is handed on at a time, about. Spark's workers hold up to 1,000 of these."""

READ_COLUMNS = frozenset({*CHANGE_COLUMNS, "kind", "batch", "database", "table"})
"""Columns that changes and the conditions on them are made of."""

MAX_ERRORS = 10_000
"""Effects that came to nothing up to which a mirror is made in this way."""


@dataclass(frozen=True, kw_only=True)
class FirstFold:
    """A mirror that is to be folded.

    Attributes:
        condition: which rows of the change log are its changes.
        convert: the function from changes to effects on it.
        schema: its schema, with a handle key.
        folder: where its files come.
        rows: how many changes there are, about.
    """

    condition: ds.Expression
    convert: ArrowMap
    schema: TableSchema
    folder: Path
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedFiles:
    """A mirror's rows in files.

    Attributes:
        files: the files, relative to the mirror's folder.
        counts: of the folding.
        missing: as of `folding.FoldedRows`.
        errors: the effects that came to nothing.
    """

    files: Sequence[WrittenFile]
    counts: FoldCounts
    missing: frozenset[tuple[str, ...]]
    errors: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    mirror: int
    file: WrittenFile | None
    counts: FoldCounts
    missing: frozenset[tuple[str, ...]]
    errors: Sequence[bytes]


def fold_into_files(
    spark: SparkSession,
    log: ds.Dataset,
    log_folder: Path,
    mirrors: Sequence[FirstFold],
) -> list[FoldedFiles | None]:
    """Fold the changes of mirrors and write the rows; None for one with too many errors.

    Args:
        spark: the session.
        log: the change log.
        log_folder: where its files are.
        mirrors: what is to be folded.
    """
    require_shared(spark, log_folder)
    # The parts of all mirrors are numbered through: `firsts` says where those of each begin.
    rows = sum(mirror.rows for mirror in mirrors)
    most = min(_ROWS_PER_PART, math.ceil(rows / spark.sparkContext.defaultParallelism)) or 1
    parts = [math.ceil(mirror.rows / most) or 1 for mirror in mirrors]
    *firsts, total = itertools.accumulate(parts, initial=0)
    read = _Reader(log.schema, reduce(or_, (mirror.condition for mirror in mirrors)))
    pieces = [
        (str(log_folder / piece.path), [group.id for group in piece.row_groups])
        for fragment in log.get_fragments(filter=read.condition)
        for piece in fragment.split_by_row_group()
    ]
    for mirror in mirrors:
        mirror.folder.mkdir(parents=True, exist_ok=True)

    def effects_of(some: Iterable[tuple[str, list[int]]]) -> Iterator[tuple[int, bytes]]:
        batches = (batch for piece in some for batch in read(piece))
        for number, changes in _divided(batches, mirrors):
            for effects in mirrors[number].convert(changes):
                for part, blob in _shared_out(effects, parts[number]):
                    yield firsts[number] + part, blob

    def fold(blobs: Iterable[tuple[int, bytes]]) -> Iterator[_Part]:
        # There are as many partitions as parts, so these are of one.
        for part, own in itertools.groupby(blobs, key=itemgetter(0)):
            number = bisect_right(firsts, part) - 1
            batches = [batch for _, blob in own for batch in _from_bytes(blob)]
            yield _write_part(pa.Table.from_batches(batches), mirrors[number], number)

    found: list[_Part] = (
        spark.sparkContext.parallelize(pieces, max(1, min(len(pieces), total)))
        .mapPartitions(effects_of)
        .partitionBy(total, lambda part: part)
        .mapPartitions(fold)
        .collect()
    )
    return [
        _joined(mirror, [part for part in found if part.mirror == number])
        for number, mirror in enumerate(mirrors)
    ]


def _joined(mirror: FirstFold, parts: Sequence[_Part]) -> FoldedFiles | None:
    nothing = fold_rows(effect_schema(mirror.schema).empty_table())
    counts = reduce(FoldCounts.plus, (part.counts for part in parts), nothing.counts)
    if counts.errors > MAX_ERRORS:
        return None
    errors = [batch for part in parts for blob in part.errors for batch in _from_bytes(blob)]
    return FoldedFiles(
        files=[part.file for part in parts if part.file is not None],
        counts=counts,
        missing=frozenset[tuple[str, ...]]().union(*(part.missing for part in parts)),
        # A table without batches is none that Spark takes.
        errors=pa.Table.from_batches(errors) if errors else nothing.rows.schema.empty_table(),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the rows of pieces of the change log's files that a condition is true of."""

    schema: pa.Schema
    condition: ds.Expression

    def __call__(self, piece: tuple[str, list[int]]) -> Iterator[pa.RecordBatch]:
        path, row_groups = piece
        local = pyarrow.fs.LocalFileSystem()
        fragment = ds.ParquetFileFormat().make_fragment(path, local, row_groups=row_groups)
        yield from fragment.to_batches(
            schema=self.schema,
            columns=[name for name in self.schema.names if name in READ_COLUMNS],
            filter=self.condition,
            batch_size=_READ_ROWS,
            batch_readahead=1,
            use_threads=False,
        )


def _divided(
    batches: Iterable[pa.RecordBatch], mirrors: Sequence[FirstFold]
) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Yield the changes of each mirror, some thousands at a time, with the mirror's number."""
    held: list[list[pa.Table]] = [[] for _ in mirrors]
    sizes = [0] * len(mirrors)

    def taken(number: int) -> tuple[int, list[pa.RecordBatch]]:
        table = pa.concat_tables(held[number]).combine_chunks()
        held[number], sizes[number] = [], 0
        return number, table.to_batches()

    for batch in batches:
        rows = pa.Table.from_batches([batch])
        for number, mirror in enumerate(mirrors):
            own = rows if len(mirrors) == 1 else rows.filter(mirror.condition)
            if own.num_rows:
                held[number].append(own.select(CHANGE_COLUMNS))
                sizes[number] += own.num_rows
                if sizes[number] >= _READ_ROWS:
                    yield taken(number)
        if sum(sizes) >= _READ_AHEAD:
            yield from (taken(number) for number, size in enumerate(sizes) if size)
    yield from (taken(number) for number, size in enumerate(sizes) if size)


def _shared_out(effects: pa.RecordBatch, parts: int) -> Iterator[tuple[int, bytes]]:
    """Yield effects as bytes, with the part that their keys belong to."""
    keys = effects.column("key").to_pylist()
    places = np.fromiter((crc32(key.encode()) % parts for key in keys), np.int64, len(keys))
    ordered = effects.take(pa.array(np.argsort(places, kind="stable")))
    rows = max(1, _BLOB_BYTES * effects.num_rows // max(1, effects.nbytes))
    ends = np.cumsum(np.bincount(places, minlength=parts)).tolist()
    for part, (begin, end) in enumerate(itertools.pairwise([0, *ends])):
        for place in range(begin, end, rows):
            yield part, _to_bytes(ordered.slice(place, min(rows, end - place)))


def _to_bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _from_bytes(blob: bytes) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(blob) as reader:
        yield from reader


def _write_part(effects: pa.Table, mirror: FirstFold, number: int) -> _Part:
    """Fold effects and write what is left of them."""
    folded = fold_rows(effects)
    errors: list[bytes] = []
    if folded.counts.errors:
        bad = folded.rows.filter(ds.field("reason").is_valid()).slice(0, MAX_ERRORS + 1)
        errors += map(_to_bytes, bad.to_batches())
    rows = put_rows(folded.rows, MirrorLayout(schema=mirror.schema))
    return _Part(
        mirror=number,
        file=_write(rows, mirror.folder) if rows.num_rows else None,
        counts=folded.counts,
        missing=folded.missing,
        errors=errors,
    )


def _write(rows: pa.Table, folder: Path) -> WrittenFile:
    writer = FileWriter(folder, rows.schema)
    writer.write(rows)
    return writer.close()
