"""Data files of Delta tables: written with Arrow in any process, committed by one; and read.

In: rows as Arrow tables. Out: a Parquet file with a unique name in the table's folder, and its
description. Rows may have values of many MiB, so files of unknown writers are read in batches of
limited bytes.

Why writing again is safe: a file has no effect until `committing` names it. Maintenance removes
files of killed runs and repeated tasks, which it recognises by name (`delta_files.WRITTEN_NAME`).
"""

import json
import os
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from ticdc_assets.delta.damage import reading_file
from ticdc_assets.delta.delta_protocol import Action, DeletionVector
from ticdc_assets.delta.row_schema import filled
from ticdc_assets.storage.paths import AnyPath, RemotePath, below, located
from ticdc_assets.wire.batch import runs_within

_LONGEST_BOUND = 256

_BATCH_BYTES = 32 << 20
"""Bytes of large columns in a batch; a single row may have more."""

GROUP_ROWS = 100_000
"""Approximate number of rows of a row group."""

GROUP_BYTES = 32 << 20
"""Approximate bytes of its values, before they are encoded."""

FILE_BYTES = 128 << 20
"""Bytes of a file from which on it is closed; a compaction joins only smaller ones."""

_END_BYTES = 256 << 10
"""How many bytes at the end of a file in a store are read at once; a smaller file is read whole."""

_KEPT_ENDS = 256
"""How many of these a process keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file of a table that no commit names yet, as its writer left it.

    Attributes:
        path: its path, relative to the table's folder.
        partition: values of the columns that the table is partitioned by.
        stats: its statistics as Delta writes them.
        raw_size: its bytes before compression; 0 if unknown.
    """

    path: str
    size: int
    rows: int
    partition: Mapping[str, str]
    modified_ms: int
    stats: str
    raw_size: int = 0

    @property
    def added(self) -> Action:
        """The `add` of a commit that names it."""
        return {
            "path": self.path,
            "partitionValues": dict(self.partition),
            "size": self.size,
            "modificationTime": self.modified_ms,
            "stats": self.stats,
        }


@dataclass(frozen=True, kw_only=True)
class FileLayout:
    """How rows of a table are written into files.

    Attributes:
        schema: the columns by their names in files, with ids where they have them, and without
            those that the table is partitioned by.
        bounded: columns whose bounds are recorded, by these names: integers, texts or times.
        distinct: columns whose values rarely repeat, so no dictionary is tried.
        partition: the values of the columns that the table is partitioned by, as Delta writes them.
    """

    schema: pa.Schema
    bounded: Collection[str] = ()
    distinct: Collection[str] = ()
    partition: Mapping[str, str] = field(default_factory=dict[str, str])

    def writer(self, table: AnyPath) -> "FileWriter":
        """Return a writer for one file of a table."""
        return FileWriter(table, self)

    def stored(self, rows: pa.Table) -> pa.Table:
        """Return rows with the column names that files have; the columns are in order."""
        return rows.rename_columns(self.schema.names).cast(self.schema)


def layout_of(
    schema: pa.Schema, stored: Mapping[str, tuple[str, int | None]], key: Sequence[str]
) -> FileLayout:
    """Return the file layout of a mirror or a history.

    `stored` has for each of its columns the name in files, and the id in them if it has one.
    """
    fields: list[pa.Field] = []
    for item in schema:
        name, number = stored[item.name]
        metadata = None if number is None else {_FIELD_ID: str(number)}
        fields.append(pa.field(name, item.type, metadata=metadata))
    return FileLayout(
        schema=pa.schema(fields),
        # Rows are searched by their keys, wherever these columns are.
        bounded=[
            stored[item.name][0]
            for item in sorted(schema, key=lambda item: item.name not in key)
            # This module writes exact bounds for these types.
            if pa.types.is_integer(item.type)
            or pa.types.is_string(item.type)
            or (pa.types.is_timestamp(item.type) and item.type.tz is not None)
        ][:_BOUNDED],
        distinct=[stored[name][0] for name in key if len(key) == 1],
    )


_FIELD_ID = "PARQUET:field_id"

_BOUNDED = 32
"""How many columns get bounds, as Delta limits it."""


def gathered(tables: Iterable[pa.Table], *, rows: int, size: int) -> Iterator[pa.Table]:
    """Yield rows in groups of tables; each ends with the one that reaches so many rows or bytes."""
    held: list[pa.Table] = []
    count = held_bytes = 0
    for table in tables:
        held.append(table)
        count += table.num_rows
        held_bytes += table.nbytes
        # Variables keep their rows alive while the next ones are made.
        del table
        if count >= rows or held_bytes >= size:
            group = pa.concat_tables(held)
            held, count, held_bytes = [], 0, 0
            yield group
            del group
    if held:
        yield pa.concat_tables(held)


def write_rows(
    table: AnyPath, layout: FileLayout, rows: Iterable[pa.Table], *, group_rows: int | None = None
) -> list[WrittenFile]:
    """Write rows, with their columns in order, into files and row groups of bounded size.

    About one row group of them is held. It has `GROUP_ROWS` rows at most if `group_rows` is None.
    """
    files: list[WrittenFile] = []
    writer: FileWriter | None = None
    for group in in_row_groups(rows, group_rows):
        writer = writer or layout.writer(table)
        writer.write(layout.stored(group))
        del group
        if writer.size >= FILE_BYTES:
            files.append(writer.close())
            writer = None
    if writer is not None:
        files.append(writer.close())
    return files


def in_row_groups(rows: Iterable[pa.Table], most: int | None = None) -> Iterator[pa.Table]:
    """Yield rows in tables of about one row group each; `GROUP_ROWS` at most if None."""
    most = most or GROUP_ROWS
    parts = (item.slice(start, most) for item in rows for start in range(0, item.num_rows, most))
    return gathered(parts, rows=most, size=GROUP_BYTES)


class FileWriter:
    """Writes one file of a table."""

    def __init__(self, table: AnyPath, layout: FileLayout) -> None:
        schema = layout.schema
        self._table = table
        self._partition = layout.partition
        self._bounded = layout.bounded
        # Readers take a column without a count of nulls for one without nulls.
        self._nulls = {field.name: 0 for field in schema if not pa.types.is_nested(field.type)}
        folders = [f"{name}={value}" for name, value in self._partition.items()]
        self._path = table.joinpath(*folders, f"part-{uuid.uuid4()}.snappy.parquet")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        names = set(schema.names)
        distinct = names & set(layout.distinct)
        where, files = located(self._path)
        self._sink = (files or LocalFileSystem()).open_output_stream(str(where), compression=None)
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            metadata_collector=self._footers,
            compression="snappy",
            # Both also accept names, which their annotations do not say. Nested columns have none.
            use_dictionary=[*names - distinct] if distinct else True,  # pyright: ignore[reportArgumentType]
            write_statistics=[*names & set(layout.bounded)],  # pyright: ignore[reportArgumentType]
            store_decimal_as_integer=True,
            store_schema=False,
        )

    def write(self, rows: pa.Table) -> None:
        """Write rows as one row group."""
        for name in self._nulls:
            self._nulls[name] += rows[name].null_count
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    @property
    def size(self) -> int:
        """The bytes of the file so far."""
        return self._sink.tell()

    def close(self) -> WrittenFile:
        """End the file and return its description."""
        self._writer.close()
        (metadata,), size = self._footers, self._sink.tell()
        self._sink.close()
        return WrittenFile(
            path=str(below(self._path, self._table)),
            size=size,
            rows=metadata.num_rows,
            partition=self._partition,
            modified_ms=int(time.time() * 1000),
            stats=json.dumps(self._statistics(metadata)),
            raw_size=sum(
                metadata.row_group(number).total_byte_size
                for number in range(metadata.num_row_groups)
            ),
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
            statistics = [group.column(number).statistics for group in groups]
            if not statistics or any(item is None for item in statistics):
                continue
            values = [item for item in statistics if item.num_values]
            if not values or not all(item.has_min_max for item in values):
                continue
            low, high = min(item.min for item in values), max(item.max for item in values)
            if isinstance(low, datetime):
                # In whole milliseconds, which is what Delta writes.
                low -= timedelta(microseconds=low.microsecond % 1000)
                high += timedelta(microseconds=-high.microsecond % 1000)
                least[name], greatest[name] = (
                    item.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
                    for item in (low, high)
                )
            elif isinstance(low, int) or max(len(low), len(high)) <= _LONGEST_BOUND:
                least[name], greatest[name] = low, high
        return {
            "numRecords": metadata.num_rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": self._nulls,
        }


# Reading ----------------------------------------------------------------------------------------


@contextmanager
def open_parquet(
    path: AnyPath, *, footer: pq.FileMetaData | None = None, repeated: Sequence[str] = ()
) -> Iterator[pq.ParquetFile]:
    """Open a file of a lake, only to read it, with some columns (`repeated`) as dictionaries.

    Raises:
        LakeDamagedError: it belongs to a table and is broken (`reading_file`).
    """
    with reading_file(path):
        where, files = located(path)
        if isinstance(path, RemotePath):
            end = _end_of(path)
            footer = footer or end.footer
            where, files = (pa.BufferReader(end.data), None) if end.is_whole else (where, files)
        with pq.ParquetFile(
            where,
            metadata=footer,
            read_dictionary=list(repeated),
            filesystem=files,
            # In a store the columns of a row group are requested at once, not one after the other.
            pre_buffer=files is not None,
        ) as file:
            yield file


def read_footer(path: AnyPath) -> pq.FileMetaData:
    """Read the footer of a file of a lake; the errors are those of `open_parquet`."""
    with reading_file(path):
        return _end_of(path).footer if isinstance(path, RemotePath) else pq.read_metadata(path)


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a file in a store; all of its bytes if it is small."""

    data: bytes
    is_whole: bool
    footer: pq.FileMetaData


@lru_cache(maxsize=_KEPT_ENDS)
def _end_of(path: RemotePath) -> _End:
    """Return the end of a file in a store, which is read once.

    Each request to a store takes as long as reading the whole of a small file. The name of a file
    has a random part, and nobody writes it again, so what was read stays true.
    """
    with path.open() as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END_BYTES))
        data = file.read()
        is_whole = len(data) == size
        # A file ends with the length of its footer and the mark of Parquet, four bytes each.
        has_footer = is_whole or int.from_bytes(data[-8:-4], "little") + 8 <= len(data)
        footer = pq.read_metadata(pa.BufferReader(data) if has_footer else file)
    return _End(data if is_whole else b"", is_whole, footer)


def read_bounded(
    path: AnyPath,
    groups: Sequence[int],
    schema: pa.Schema,
    stored: Sequence[str],
    condition: ds.Expression | None,
    *,
    large: Collection[str],
    most: int,
    deleted: DeletionVector | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of row groups that meet a condition, in batches of bounded size.

    The columns of `schema` that the file, which calls them `stored`, lacks are null. Some columns
    of the file may be `large` texts or bytes. A batch has `most` rows at most.
    """
    footer = read_footer(path)
    counts = (footer.row_group(number).num_rows for number in range(footer.num_row_groups))
    starts = [0, *accumulate(counts)]

    def values_in(number: int) -> Iterator[pq.ColumnChunkMetaData]:
        group = footer.row_group(number)
        columns = map(group.column, range(group.num_columns))
        return (column for column in columns if column.path_in_schema in large)

    def repeated_in(number: int) -> list[str]:
        # One dictionary value may be the value of every row, so a column stays a dictionary until
        # few rows are left.
        return [item.path_in_schema for item in values_in(number) if item.has_dictionary_page]

    def wanted(batch: pa.RecordBatch) -> pa.Table:
        there = dict(zip(batch.schema.names, batch.columns, strict=True))
        values = {item.name: there.get(name) for name, item in zip(stored, schema, strict=True)}
        rows = filled(schema, batch.num_rows, values)
        return rows if condition is None else rows.filter(condition)

    for repeated, numbers in groupby(groups, repeated_in):
        with open_parquet(path, footer=footer, repeated=repeated) as file:
            for number in numbers:
                place, end = starts[number : number + 2]
                size = sum(column.total_uncompressed_size for column in values_in(number))
                for batch in file.iter_batches(
                    batch_size=max(1, min(most, _BATCH_BYTES * (end - place) // max(1, size))),
                    row_groups=[number],
                    columns=list(stored),
                    use_threads=False,
                ):
                    left = None if deleted is None else deleted.kept(place, batch.num_rows)
                    place += batch.num_rows
                    if left is not None:
                        batch = batch.filter(pa.array(left))
                    there = [name for name in large if name in batch.schema.names]
                    for part in _without_dictionaries(batch, there) if repeated else [batch]:
                        yield from wanted(part).to_batches()


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
            column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
            for column in part.columns
        ]
        yield pa.RecordBatch.from_arrays(columns, names=part.schema.names)


def texts_of(schema: pa.Schema, stored: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a file, by their names in it, that may be large: texts and bytes."""
    return tuple(
        name for name, field in zip(stored, schema, strict=True) if field.type in _LARGE_TYPES
    )


_LARGE_TYPES = frozenset({pa.string(), pa.large_string(), pa.binary(), pa.large_binary()})


def row_groups(
    table: ds.Dataset, folder: AnyPath, condition: ds.Expression | None
) -> Iterator[tuple[AnyPath, tuple[int, ...]]]:
    """Yield the files that may have rows that meet a condition, with their matching row groups."""
    for fragment in table.get_fragments(filter=condition):
        for piece in fragment.split_by_row_group(condition):
            yield folder / piece.path, tuple(group.id for group in piece.row_groups)
