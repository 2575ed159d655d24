"""Input and output rows of steps: tables in this process, or row groups of Parquet files.

In: a table, or files. Out: `Rows`, their parts for an executor, and buckets of keys for reducing.
Few rows stay in this process, many are in files, and later steps need not know which.

Why running it again is safe: see `files`; the folders belong to one run (`scratch`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import TypeAlias, TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.delta.delta_protocol import DeletionVector
from ticdc_assets.delta.files import (
    FileLayout,
    WrittenFile,
    read_bounded,
    read_footer,
    texts_of,
)
from ticdc_assets.spark.driver import Session
from ticdc_assets.spark.executing import INLINE_BYTES, INLINE_ROWS, Executor, Reducing
from ticdc_assets.spark.frames import Frame, frame_of, parquet_frame
from ticdc_assets.storage.paths import AnyPath

R = TypeVar("R")

_ROWS_PER_BUCKET = 80_000
"""About how many changes are folded at a time: keys are spread over buckets by their hash."""

_BYTES_PER_BUCKET = 64 << 20
"""About how many bytes of their images.

A worker holds a few times as many, so that its memory is limited however large the values are.
"""

_LARGE_ROW = 1 << 20
"""Mean bytes of a row above which rows are spread over more buckets."""

READ_ROWS = 10_000
"""Rows that a worker converts at a time."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows that steps read: a table in this process, or row groups of Parquet files.

    Attributes:
        schema: their columns; in files these may go by other names (`stored`).
        table: the rows, if they are in this process.
        groups: path and numbers of row groups, if they are in files.
        deleted: which rows of a file are left out, by its path.
        stored: names of the columns in the files, in order.
        large: which of these may have large values.
        condition: which of the rows in the files count, by the names of `schema`; all if None.
        count: about how many rows there are.
        size: about how many bytes they have before compression; 0 if unknown.
        largest: the greatest mean bytes of a row among the row groups; 0 if unknown.
        files: the files, if a step wrote them and a commit may name them.
    """

    schema: pa.Schema
    table: pa.Table | None = None
    groups: tuple[tuple[AnyPath, tuple[int, ...]], ...] = ()
    deleted: Mapping[AnyPath, DeletionVector] = field(default_factory=dict[AnyPath, DeletionVector])
    stored: tuple[str, ...] = ()
    large: tuple[str, ...] = ()
    condition: ds.Expression | None = None
    count: int
    size: int = 0
    largest: int = 0
    files: tuple[WrittenFile, ...] = ()

    @classmethod
    def here(cls, table: pa.Table) -> "Rows":
        """Return rows that are in this process."""
        return cls(schema=table.schema, table=table, count=table.num_rows, size=table.nbytes)

    @classmethod
    def of_files(
        cls,
        paths: Sequence[AnyPath],
        schema: pa.Schema,
        stored: Sequence[str] | None = None,
        deleted: Mapping[AnyPath, DeletionVector] | None = None,
        *,
        by_group: bool = False,
    ) -> "Rows":
        """Return the rows of whole files but for those that are `deleted`.

        A part is a file, or one row group (`by_group`).
        """
        footers = [(path, read_footer(path)) for path in paths]
        deleted = deleted or {}
        names = tuple(schema.names if stored is None else stored)
        numbers = [(path, range(footer.num_row_groups)) for path, footer in footers]
        groups = [
            footer.row_group(n) for _, footer in footers for n in range(footer.num_row_groups)
        ]
        return cls(
            schema=schema,
            groups=tuple((path, (n,)) for path, group_numbers in numbers for n in group_numbers)
            if by_group
            else tuple((path, tuple(group_numbers)) for path, group_numbers in numbers),
            deleted=deleted,
            stored=names,
            large=texts_of(schema, names),
            count=sum(group.num_rows for group in groups)
            - sum(item.cardinality for item in deleted.values()),
            size=sum(group.total_byte_size for group in groups),
            largest=max((it.total_byte_size // max(1, it.num_rows) for it in groups), default=0),
        )

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> "Rows":
        """Return the rows of parts that `kept` returned, at least one, in the same way."""
        first, *_ = parts
        if first.table is not None:
            return cls.here(pa.concat_tables(part.table_here() for part in parts))
        return replace(
            first,
            groups=tuple(chain.from_iterable(part.groups for part in parts)),
            count=sum(part.count for part in parts),
            size=sum(part.size for part in parts),
            files=tuple(chain.from_iterable(part.files for part in parts)),
        )

    def read(self, most: int = READ_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of bounded size, of `most` rows."""
        if self.table is not None:
            yield from self.table.to_batches(max_chunksize=most)
        for path, numbers in self.groups:
            yield from read_bounded(
                path,
                numbers,
                self.schema,
                self.stored,
                self.condition,
                large=self.large,
                most=most,
                deleted=self.deleted.get(path),
            )

    def table_here(self) -> pa.Table:
        """Return the rows in this process, however many they are."""
        if self.table is not None:
            return self.table
        return pa.Table.from_batches(list(self.read()), self.schema)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows, a file at a time."""
        for part in self.parts():
            yield pa.Table.from_batches(part.read(), self.schema)

    def frame(self, spark: Session) -> Frame:
        """Return the rows in Spark: those of a table, or of whole files."""
        if self.table is not None or not self.groups:
            return frame_of(spark, self.table_here())
        stored = pa.schema(
            [item.with_name(name) for item, name in zip(self.schema, self.stored, strict=True)]
        )
        return parquet_frame(spark, [path for path, _ in self.groups], stored, self.schema.names)

    def select(self, names: Sequence[str]) -> "Rows":
        """Return the rows with some of their columns."""
        if self.table is not None:
            return Rows.here(self.table.select(list(names)))
        schema = pa.schema([self.schema.field(name) for name in names])
        places = dict(zip(self.schema.names, self.stored, strict=True))
        stored = tuple(places[name] for name in names)
        return replace(self, schema=schema, stored=stored, large=texts_of(schema, stored))

    def here_if_few(self) -> "Rows":
        """Return the rows in this process if a step would run here; else with their true size.

        A file's own size is too low if it stores equal values once (a dictionary).
        """
        if self.table is not None or self.count > INLINE_ROWS or self.size > INLINE_BYTES:
            return self
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in self.read():
            batches.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if size > INLINE_BYTES:
                return replace(self, size=size * self.count // rows)
        return Rows.here(pa.Table.from_batches(batches, self.schema))

    def parts(self) -> "list[Rows]":
        """Return the parts that steps read: the table, or the row groups of one file each."""
        if self.table is not None:
            return [self]
        share = max(1, len(self.groups))
        return [
            replace(
                self,
                groups=((path, numbers),),
                deleted={path: self.deleted[path]} if path in self.deleted else {},
                count=self.count // share,
                size=self.size // share,
                files=(),
            )
            for path, numbers in self.groups
        ]


Sort: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[tuple[int, pa.RecordBatch]]]
"""A function from rows to rows with the number of the bucket that they belong to."""


def reduced(
    executor: Executor,
    sources: Sequence[tuple[Rows, Sort]],
    function: Reducing[R],
    *,
    buckets: int,
) -> list[R]:
    """Return what a function makes of the rows of each bucket, in any order (`Executor.reduce`).

    `sources` are the rows, each with the function that puts them into buckets.
    """
    parts = [(number, part) for number, (rows, _) in enumerate(sources) for part in rows.parts()]
    sorts = [sort for _, sort in sources]

    def step(some: Iterable[tuple[int, Rows]]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for number, pairs in groupby(some, key=itemgetter(0)):
            yield from sorts[number](batch for _, part in pairs for batch in part.read())

    tasks = max(buckets, executor.workers)
    return executor.reduce(step, parts, function, tasks=tasks, buckets=buckets)


def buckets_for(rows: int, size: int, workers: int) -> int:
    """Return the number of buckets for so many rows and bytes, with so many workers."""
    most = min(_ROWS_PER_BUCKET, math.ceil(rows / workers)) or 1
    # Chance puts several rows as large as these into one bucket.
    some = _BYTES_PER_BUCKET // (4 if size > rows * _LARGE_ROW else 1)
    return max(1, math.ceil(rows / most), math.ceil(size / some))


def in_buckets(operations: pa.RecordBatch, buckets: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield operations with the bucket of their keys."""
    keys = operations.column("key").to_pylist()
    hashes: Iterable[int] = (crc32(key.encode()) for key in keys)
    if "identity" in operations.schema.names:
        # A change whose row is unknown is spread by its identity.
        identities = operations.column("identity").to_pylist()
        hashes = (
            crc32(identity if key.startswith("!") and identity is not None else key.encode())
            for key, identity in zip(keys, identities, strict=True)
        )
    yield from shared_out(operations, np.fromiter(hashes, np.int64, len(keys)), buckets)


def shared_out(
    rows: pa.RecordBatch, numbers: npt.NDArray[np.int64], buckets: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield rows with their bucket: the remainder of their number."""
    places = numbers % buckets
    ordered = rows.take(pa.array(np.argsort(places, kind="stable")))
    ends = np.cumsum(np.bincount(places, minlength=buckets)).tolist()
    for bucket, (begin, end) in enumerate(pairwise([0, *ends])):
        if end > begin:
            yield bucket, ordered.slice(begin, end - begin)


def by_name(rows: pa.RecordBatch) -> Iterator[tuple[tuple[str, str], pa.RecordBatch]]:
    """Yield the rows of the change log that cite each (database, table)."""
    if not rows.num_rows:
        return
    databases, tables = (rows.column(name).dictionary_encode() for name in ("database", "table"))
    codes = databases.indices.to_numpy().astype(np.int64) * len(tables.dictionary)
    codes += tables.indices.to_numpy()
    names, numbers = np.unique(codes, return_inverse=True)
    for number, share in shared_out(rows, numbers, len(names)):
        database, table = divmod(int(names[number]), len(tables.dictionary))
        yield (databases.dictionary[database].as_py(), tables.dictionary[table].as_py()), share


def kept(rows: pa.Table, folder: AnyPath | None, layout: FileLayout | None = None) -> Rows:
    """Return rows as they are, or in the file that they were written to, if there are any.

    Args:
        rows: the rows.
        folder: the folder of the file; None to have the rows as they are.
        layout: how a table writes its files, if the folder is a table's; else the columns have
            numbered names in the file.
    """
    if folder is None:
        return Rows.here(rows)
    layout = layout or _numbered(rows.schema)
    stored = tuple(layout.schema.names)
    files: tuple[WrittenFile, ...] = ()
    if rows.num_rows:
        writer = layout.writer(folder)
        writer.write(layout.stored(rows))
        files = (writer.close(),)
    return Rows(
        schema=rows.schema,
        groups=tuple((folder / file.path, (0,)) for file in files),
        stored=stored,
        large=texts_of(rows.schema, stored),
        count=rows.num_rows,
        size=sum(file.raw_size for file in files),
        files=files,
    )


def _numbered(schema: pa.Schema) -> FileLayout:
    """Return the layout of files whose columns have numbered names."""
    names = numbered_names(schema)
    fields = [item.with_name(name) for item, name in zip(schema, names, strict=True)]
    return FileLayout(schema=pa.schema(fields))


def numbered_names(schema: pa.Schema) -> list[str]:
    """Return names of columns that any reader accepts, in order."""
    return [f"c{number}" for number in range(len(schema))]
