"""Data files of Delta tables: written with Arrow in any process, committed by one; and read.

In: rows as Arrow tables. Out: a Parquet file with a unique name in the table's folder, and its
description: size, partition, number of rows, and bounds of the columns by which readers skip files.
Bounds come from Parquet's footer; nulls are counted for every column.

Rows may have values of many MiB, and a file may store a value once and refer to it often. So files
from unknown writers are read in batches that are limited by their bytes in memory (`read_bounded`).

Why writing again is safe: a file has no effect until a commit names it; only `committing` makes
such commits, and checks each file first. Maintenance removes files of killed runs and repeated
tasks; it recognises them by their names (`WRITTEN_NAME`).
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false

import json
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ticdc_assets.delta.damage import reading_file
from ticdc_assets.delta.delta_protocol import DeletionVector
from ticdc_assets.storage.paths import AnyPath, below, located
from ticdc_assets.wire.batch import runs_within

_LONGEST_BOUND = 256

_BATCH_BYTES = 32 << 20
"""Bytes of large columns that a batch has, or one row that has more."""

WRITTEN_NAME = re.compile(r"part-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.snappy\.parquet")
"""Names of the files that are written here; Spark and delta-rs number theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file of a table that no commit names yet, as its writer left it.

    Attributes:
        path: its path, relative to the table's folder.
        size: its size in bytes.
        rows: how many rows it has.
        partition: values of the columns that the table is partitioned by.
        modified_ms: when it was written.
        stats: its statistics as Delta writes them.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str]
    modified_ms: int
    stats: str


@dataclass(frozen=True, kw_only=True)
class FileLayout:
    """How rows of a table are written into files.

    Attributes:
        schema: the columns by the names that they have in files, with the ids of those that have
            one.
        bounded: columns whose bounds are kept, by these names.
        distinct: columns whose values hardly ever repeat.
    """

    schema: pa.Schema
    bounded: Sequence[str] = ()
    distinct: Sequence[str] = ()

    def writer(self, table: AnyPath) -> "FileWriter":
        """Return what writes one file of a table."""
        return FileWriter(table, self.schema, bounded=self.bounded, distinct=self.distinct)

    def stored(self, rows: pa.Table) -> pa.Table:
        """Return rows, whose columns are in order, by the names that they have in files."""
        return rows.rename_columns(self.schema.names).cast(self.schema)


def layout_of(
    schema: pa.Schema, stored: Mapping[str, tuple[str, int | None]], key: Sequence[str]
) -> FileLayout:
    """Return how rows of a mirror or a history are written.

    Args:
        schema: the columns of the table.
        stored: for each of them its name in files, and its id in them if it has one.
        key: the columns of the table's key.
    """
    fields: list[pa.Field] = []
    for item in schema:
        name, number = stored[item.name]
        own = None if number is None else {_FIELD_ID: str(number)}
        fields.append(pa.field(name, item.type, metadata=own))
    return FileLayout(
        schema=pa.schema(fields),
        bounded=[
            name
            for item, (name, _) in zip(schema, (stored[item.name] for item in schema), strict=True)
            if _has_bounds(item.type)
        ][:_BOUNDED],
        distinct=[stored[name][0] for name in key if len(key) == 1],
    )


_FIELD_ID = "PARQUET:field_id"

_BOUNDED = 32
"""Columns whose bounds are kept, as many as Delta keeps them of."""


def _has_bounds(kind: pa.DataType) -> bool:
    """Return whether the bounds of a type are told exactly by what writes them here."""
    is_moment = pa.types.is_timestamp(kind) and kind.tz is not None
    return pa.types.is_integer(kind) or pa.types.is_string(kind) or is_moment


def gathered(tables: Iterable[pa.Table], *, rows: int, size: int) -> Iterator[pa.Table]:
    """Yield rows in tables that each end with the one that reached a bound.

    Args:
        tables: the rows.
        rows: how many rows are enough.
        size: how many bytes of them are.
    """
    held: list[pa.Table] = []
    count = held_bytes = 0
    for table in tables:
        held.append(table)
        count += table.num_rows
        held_bytes += table.nbytes
        if count >= rows or held_bytes >= size:
            yield pa.concat_tables(held)
            held, count, held_bytes = [], 0, 0
    if held:
        yield pa.concat_tables(held)


class FileWriter:
    """Writes one file.

    Args:
        table: folder of the table.
        schema: columns of the file, without those that the table is partitioned by.
        partition: values of these, as Delta writes them.
        bounded: columns whose bounds are kept: whole numbers, text or moments.
        distinct: columns whose values hardly ever repeat, so that no dictionary is tried.
    """

    def __init__(
        self,
        table: AnyPath,
        schema: pa.Schema,
        *,
        partition: Mapping[str, str] | None = None,
        bounded: Collection[str] = (),
        distinct: Collection[str] = (),
    ) -> None:
        self._table = table
        self._partition = dict(partition or {})
        self._bounded = bounded
        # A reader takes a column that no count of nulls is told of for one without any.
        self._nulls = {field.name: 0 for field in schema if not pa.types.is_nested(field.type)}
        folders = [f"{name}={value}" for name, value in self._partition.items()]
        self._path = table.joinpath(*folders, f"part-{uuid.uuid4()}.snappy.parquet")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        names = set(schema.names)
        where, files = located(self._path)
        self._writer = pq.ParquetWriter(
            where,
            schema,
            filesystem=files,
            compression="snappy",
            # Both take names too, which their annotations do not say.
            use_dictionary=[*names - set(distinct)],  # pyright: ignore[reportArgumentType]
            write_statistics=[*names & set(bounded)],  # pyright: ignore[reportArgumentType]
            store_decimal_as_integer=True,
            store_schema=False,
        )

    def write(self, rows: pa.Table) -> None:
        """Write rows as one row group."""
        for name in self._nulls:
            self._nulls[name] += rows[name].null_count
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    def close(self) -> WrittenFile:
        """End the file and return what is to be said of it."""
        self._writer.close()
        stat = self._path.stat()
        metadata = read_footer(self._path)
        return WrittenFile(
            path=str(below(self._path, self._table)),
            size=stat.st_size,
            rows=metadata.num_rows,
            partition=self._partition,
            modified_ms=int(stat.st_mtime * 1000),
            stats=json.dumps(self._statistics(metadata)),
        )

    def _statistics(self, metadata: pq.FileMetaData) -> dict[str, Any]:
        """Return the file's statistics as Delta writes them."""
        least: dict[str, Any] = {}
        greatest: dict[str, Any] = {}
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        for number in range(metadata.num_columns):
            name = metadata.schema.column(number).path
            if name not in self._bounded:
                continue
            found = [group.column(number).statistics for group in groups]
            if not found or any(item is None for item in found):
                continue
            values = [item for item in found if item.num_values]
            if not values or not all(item.has_min_max for item in values):
                continue
            low, high = min(item.min for item in values), max(item.max for item in values)
            if isinstance(low, datetime):
                least[name], greatest[name] = _bounds_of_moments(low, high)
            elif isinstance(low, int) or max(len(low), len(high)) <= _LONGEST_BOUND:
                least[name], greatest[name] = low, high
        return {
            "numRecords": metadata.num_rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": self._nulls,
        }


def _bounds_of_moments(low: datetime, high: datetime) -> tuple[str, str]:
    """Return bounds in whole milliseconds, which is what Delta writes."""
    low -= timedelta(microseconds=low.microsecond % 1000)
    high += timedelta(microseconds=-high.microsecond % 1000)
    first, last = (item.astimezone(UTC).isoformat(timespec="milliseconds") for item in (low, high))
    return first.replace("+00:00", "Z"), last.replace("+00:00", "Z")


# Reading ----------------------------------------------------------------------------------------


@contextmanager
def open_parquet(
    path: AnyPath, *, footer: pq.FileMetaData | None = None, repeated: Sequence[str] = ()
) -> Iterator[pq.ParquetFile]:
    """Give a file of a lake to be read, and for nothing else.

    Args:
        path: the file.
        footer: its footer, if it was read before.
        repeated: columns that are read as dictionaries.

    Raises:
        LakeDamagedError: it is a table's, and broken (`reading_file`).
    """
    where, files = located(path)
    with (
        reading_file(path),
        # In a store the columns of a row group are asked for at once, not one behind the other.
        pq.ParquetFile(
            where,
            metadata=footer,
            read_dictionary=list(repeated),
            filesystem=files,
            pre_buffer=files is not None,
        ) as file,
    ):
        yield file


def read_footer(path: AnyPath) -> pq.FileMetaData:
    """Read the footer of a file of a lake; it raises what `open_parquet` does."""
    where, files = located(path)
    with reading_file(path):
        return pq.read_metadata(where, filesystem=files)


def read_bounded(
    path: AnyPath,
    row_group: int,
    *,
    columns: Sequence[str],
    large: Collection[str],
    most: int,
    deleted: DeletionVector | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group of a file, in batches of bounded size.

    Args:
        path: the file.
        row_group: number of the row group.
        columns: what to read; columns that the file lacks are left out.
        large: which of these are texts or bytes that may be large.
        most: rows in a batch at most.
        deleted: which rows of the file are left out; none if None.
    """
    footer = read_footer(path)
    group = footer.row_group(row_group)
    place = sum(footer.row_group(number).num_rows for number in range(row_group))
    values = [
        column
        for column in map(group.column, range(group.num_columns))
        if column.path_in_schema in large
    ]
    size = sum(column.total_uncompressed_size for column in values)
    rows = max(1, min(most, _BATCH_BYTES * group.num_rows // max(1, size)))
    # What a dictionary has once may be the value of each row, so it is left a dictionary until
    # there are few of them.
    repeated = [column.path_in_schema for column in values if column.has_dictionary_page]
    with open_parquet(path, footer=footer, repeated=repeated) as file:
        for batch in file.iter_batches(
            batch_size=rows,
            row_groups=[row_group],
            columns=list(columns),
            use_threads=False,
        ):
            left = None if deleted is None else deleted.kept(place, batch.num_rows)
            place += batch.num_rows
            if left is not None:
                batch = batch.filter(pa.array(left))
            there = [name for name in large if name in batch.schema.names]
            yield from _without_dictionaries(batch, there) if repeated else [batch]


def _without_dictionaries(
    batch: pa.RecordBatch, large: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Yield rows with values in place of dictionaries."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for name in large:
        column = batch.column(name)
        if isinstance(column, pa.DictionaryArray):
            lengths = pc.binary_length(column.dictionary).take(column.indices)
        else:
            lengths = pc.binary_length(column)
        sizes += pc.fill_null(lengths, 0).to_numpy()
    for start, stop in runs_within(sizes, _BATCH_BYTES):
        part = batch.slice(start, stop - start)
        columns = [
            column.dictionary.take(column.indices)
            if isinstance(column, pa.DictionaryArray)
            else column
            for column in part.columns
        ]
        yield pa.RecordBatch.from_arrays(columns, names=part.schema.names)


def read_bounded_as(
    path: AnyPath,
    row_group: int,
    schema: pa.Schema,
    stored: Sequence[str],
    condition: ds.Expression | None,
    *,
    large: Collection[str],
    most: int,
    deleted: DeletionVector | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group that a condition is true of, in batches of bounded size.

    Args:
        path: the file.
        row_group: number of the row group.
        schema: the columns to read; those that the file lacks are null.
        stored: what they are called in the file.
        condition: which rows, by the names of `schema`; all if None.
        large: which columns of the file are texts or bytes that may be large.
        most: rows in a batch at most.
        deleted: which rows of the file are left out; none if None.
    """
    for batch in read_bounded(
        path, row_group, columns=stored, large=large, most=most, deleted=deleted
    ):
        names = set(batch.schema.names)
        rows = pa.table(
            [
                batch.column(name).cast(field.type)
                if name in names
                else pa.nulls(batch.num_rows, field.type)
                for name, field in zip(stored, schema, strict=True)
            ],
            schema=schema,
        )
        yield from (rows if condition is None else rows.filter(condition)).to_batches()


def texts_of(schema: pa.Schema, stored: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a file that may be large: texts and bytes.

    Args:
        schema: the columns.
        stored: what they are called in the file.
    """
    return tuple(
        name for name, field in zip(stored, schema, strict=True) if field.type in _LARGE_TYPES
    )


_LARGE_TYPES = frozenset({pa.string(), pa.large_string(), pa.binary(), pa.large_binary()})


def row_groups(
    table: ds.Dataset, folder: AnyPath, condition: ds.Expression | None
) -> Iterator[tuple[AnyPath, tuple[int, ...]]]:
    """Yield the files of a table that may have rows that a condition is true of.

    With each come the numbers of its row groups that may.
    """
    for fragment in table.get_fragments(filter=condition):
        for piece in fragment.split_by_row_group(condition):
            yield folder / piece.path, tuple(group.id for group in piece.row_groups)
