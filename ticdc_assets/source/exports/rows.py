"""The rows of an export, verbatim from its files, and how large files are split.

In: a file of an export, and its dialect. Out: parts of it that begin and end with whole rows
(`split_file`), and the rows of a part, verbatim, with their lines (`read_rows`). Any bytes give
rows; if a file cannot be read further, one more row says why, and the rest of the part is left out.
`fields_of` finds the fields of rows, and `Fields` has their values without escapes. Memory is
bounded by `_CHUNK_BYTES` and the longest row.

Rows of Parquet files have no text, so they get the text of SQL, which distinguishes bytes from text
(`PARQUET_DIALECT`).
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs
import pyarrow.parquet as pq

from ticdc_assets.base.errors import shorten
from ticdc_assets.source.exports import export_loops as loops
from ticdc_assets.source.exports.compression import chunks_of
from ticdc_assets.source.exports.dialect import CsvDialect
from ticdc_assets.source.exports.folder import ExportFile

Bytes: TypeAlias = npt.NDArray[np.uint8]

ROW_SCHEMA: Final = pa.schema(
    [
        ("file", pa.string()),
        ("line", pa.int64()),
        ("index", pa.int32()),
        ("format", pa.string()),
        ("columns", pa.string()),
        ("problem", pa.string()),
        ("row", pa.binary()),
    ]
)
"""Rows of files. `index` is the place of a row among those that begin in its line."""

PARQUET_DIALECT: Final = CsvDialect(backslash=True)
"""The dialect for rows of Parquet files: SQL."""

INSTANT: Final = "+00:00"
"""The suffix of a time in a Parquet file that is in UTC, whatever the session's zone."""

_CHUNK_BYTES = 8 << 20
_MOST_ROW_BYTES = 256 << 20
_MOST_ROWS = 1 << 20
_MOST_HEADS = 3 * 4096
_PARQUET_ROWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """A part of a file: whole rows.

    Attributes:
        file: the file.
        begin: its first byte; for a Parquet file its first row group.
        end: the byte, or row group, after its last one; None if it reaches the end.
        line: number of the line, or row, at its begin.
        columns: the names of the file's columns from before its begin; None for none.
        in_rows: whether it begins among the rows of an SQL statement.
        is_bare: whether no row of that statement is before its begin.
    """

    file: ExportFile
    begin: int = 0
    end: int | None = None
    line: int = 1
    columns: tuple[str, ...] | None = None
    in_rows: bool = False
    is_bare: bool = False


def split_file(
    filesystem: fs.FileSystem, root: str, file: ExportFile, dialect: CsvDialect, *, most: int
) -> list[FilePart]:
    """Split a file into parts of about `most` bytes.

    A compressed or unreadable file is one part.
    """
    whole = [FilePart(file=file)]
    is_parquet = file.format == "parquet"
    if not is_parquet and (file.compression is not None or file.size <= most):
        return whole
    parts: list[FilePart] = []
    begin = FilePart(file=file)
    try:
        if is_parquet:
            with filesystem.open_input_file(f"{root}/{file.path}") as source:
                metadata = pq.read_metadata(source)
            row = 1
            for number in range(metadata.num_row_groups):
                parts.append(FilePart(file=file, begin=number, end=number + 1, line=row))
                row += metadata.row_group(number).num_rows
            return parts or whole
        chunk_bytes = min(most, _CHUNK_BYTES)
        for chunk_rows in _rows_of_chunks(filesystem, root, begin, dialect, chunk_bytes):
            # The last part reaches the end of the file, so it shows whether something was cut off.
            if begin.begin + most <= chunk_rows.next_part.begin < file.size:
                parts.append(replace(begin, end=chunk_rows.next_part.begin))
                begin = chunk_rows.next_part
    except (OSError, pa.ArrowException):
        return whole
    return [*parts, begin]


def read_rows(
    filesystem: fs.FileSystem, root: str, part: FilePart, dialect: CsvDialect
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, with the columns of `ROW_SCHEMA`."""
    line = part.line
    try:
        if part.file.format == "parquet":
            for batch in _parquet_rows(filesystem, root, part):
                line += batch.num_rows
                yield batch
            return
        for chunk_rows in _rows_of_chunks(filesystem, root, part, dialect, _CHUNK_BYTES):
            line = chunk_rows.next_part.line
            yield from chunk_rows.batches
            if chunk_rows.problem is not None:
                yield _problem(part.file, line, chunk_rows.problem)
                return
    except (OSError, pa.ArrowException) as error:
        yield _problem(part.file, line, f"the file cannot be read further: {shorten(str(error))}")


def ends_with_a_row(
    filesystem: fs.FileSystem, root: str, file: ExportFile, dialect: CsvDialect
) -> bool:
    """Return whether a file ends with a whole row, as far as its last bytes show.

    A CSV file whose last row has no line terminator may have been cut within the last value of that
    row. In other formats, and in compressed files, `read_rows` reports what was cut off.
    """
    if file.format != "csv" or file.compression is not None or not file.size:
        return True
    terminator = dialect.terminator.encode()
    # As in `csv_rows`, a row that ends by "\n" may end so whatever comes before it.
    wanted = b"\n" if terminator.endswith(b"\n") else terminator
    try:
        with filesystem.open_input_file(f"{root}/{file.path}") as opened:
            size = opened.size()
            opened.seek(max(0, size - len(wanted)))
            return bytes(opened.read(len(wanted))) == wanted
    except (OSError, pa.ArrowException):
        return True  # `read_rows` reports it


class _ChunkRows(NamedTuple):
    """Rows of a chunk, where to continue, and why not if that is impossible."""

    batches: Sequence[pa.RecordBatch]
    next_part: FilePart
    problem: str | None = None


def _rows_of_chunks(
    filesystem: fs.FileSystem,
    root: str,
    part: FilePart,
    dialect: CsvDialect,
    chunk_bytes: int,
) -> Iterator[_ChunkRows]:
    """Yield the rows of a part of a CSV or SQL file, a chunk at a time."""
    find = _rows_of_sql if part.file.format == "sql" else _rows_of_csv
    held = b""
    for chunk, is_last in _chunks(filesystem, f"{root}/{part.file.path}", part, chunk_bytes):
        data = held + chunk if held else chunk
        while True:
            chunk_rows = find(data, part, dialect, is_last)
            yield chunk_rows
            if chunk_rows.problem is not None:
                return
            used = chunk_rows.next_part.begin - part.begin
            part = chunk_rows.next_part
            data = data[used:] if used else data
            # The arrays for rows are bounded, so there may be more rows in the same bytes.
            if not used or not data:
                break
        held = data
        if len(held) > _MOST_ROW_BYTES:
            yield _ChunkRows((), part, f"a row has more than {_MOST_ROW_BYTES >> 20} MiB")
            return


def _chunks(
    filesystem: fs.FileSystem, path: str, part: FilePart, chunk_bytes: int
) -> Iterator[tuple[bytes, bool]]:
    """Yield the bytes of a part, and whether they are its last."""
    if part.file.compression is not None:
        yield from chunks_of(filesystem, path, part.file.compression)
        return
    with filesystem.open_input_file(path) as file:
        end = file.size() if part.end is None else part.end
        file.seek(part.begin)
        at = part.begin
        while at < end:
            chunk = bytes(file.read(min(chunk_bytes, end - at)))
            if not chunk:
                return
            at += len(chunk)
            yield chunk, at >= end


# CSV and SQL ------------------------------------------------------------------------------------


def _room(most: int) -> loops.Rows:
    return loops.Rows(*(np.empty(most, np.int64) for _ in range(3)))


def _rows_of_csv(data: bytes, part: FilePart, dialect: CsvDialect, is_last: bool) -> _ChunkRows:
    rows = _room(min(max(16, len(data) // 2), _MOST_ROWS))
    count, used, line = loops.csv_rows(
        np.frombuffer(data, np.uint8), is_last, _style(dialect), part.line, rows
    )
    first, columns = 0, part.columns
    if count and columns is None and dialect.header and part.begin == 0:
        first, columns = 1, _header(data[rows.begins[0] : rows.ends[0]], dialect)
    batches = [_row_batch(part.file, columns, data, rows, first, count)] if count > first else []
    after = replace(part, begin=part.begin + int(used), line=int(line), columns=columns)
    return _ChunkRows(batches, after)


def _rows_of_sql(data: bytes, part: FilePart, dialect: CsvDialect, is_last: bool) -> _ChunkRows:
    most = min(max(16, len(data) // 3), _MOST_ROWS)
    rows = _room(most)
    heads = np.empty(_MOST_HEADS, np.int64)
    count, headed, used, state, line = loops.sql_rows(
        np.frombuffer(data, np.uint8),
        loops.ROWS if part.in_rows else loops.HEAD,
        dialect.backslash,
        part.line,
        rows,
        heads,
    )
    columns = part.columns
    batches: list[pa.RecordBatch] = []
    first = 0
    for place in range(0, headed, 3):
        before, begin, end = heads[place : place + 3].tolist()
        named = _columns_of(data[begin:end])
        if named == columns:
            continue
        if before > first:
            batches.append(_row_batch(part.file, columns, data, rows, first, before))
        first, columns = before, named
    if count > first:
        batches.append(_row_batch(part.file, columns, data, rows, first, count))
    in_rows = state == loops.ROWS
    before = heads[headed - 3] if headed else 0
    is_bare = in_rows and count == before and (headed > 0 or part.is_bare)
    problem = None
    # With full arrays there may be whole rows after `used`. A part that ends before its file does
    # may end anywhere between rows.
    if is_last and part.end is None and count < most and headed < _MOST_HEADS:
        rest = data[used:]
        # Only blanks may follow rows: a comma announces another row, as VALUES does.
        if in_rows and (is_bare or rest.strip()):
            problem = "the last row is incomplete"
        elif not in_rows and _begins_insert(rest):
            problem = "the last statement is incomplete"
    after = replace(
        part,
        begin=part.begin + int(used),
        line=int(line),
        columns=columns,
        in_rows=in_rows,
        is_bare=is_bare,
    )
    return _ChunkRows(batches, after, problem)


_NOT_SQL = re.compile(rb"(?:\s++|(?:#|--(?=\s|\Z))[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+")
_WORD = re.compile(rb"[A-Za-z]+")


def _begins_insert(statement: bytes) -> bool:
    """Return whether a statement is an INSERT or REPLACE, or was cut in that word."""
    blank = _NOT_SQL.match(statement)
    word = _WORD.match(statement, blank.end() if blank else 0)
    if word is None:
        return False
    verb = word[0].upper()
    if word.end() == len(statement):
        return b"INSERT".startswith(verb) or b"REPLACE".startswith(verb)
    return verb in (b"INSERT", b"REPLACE")


_NAME = re.compile(r"`((?:[^`]|``)*)`|([^\s,`]+)")
_COLUMNS = re.compile(rb"\(((?:[^()`]|`(?:[^`]|``)*`)*)\)\s*$")


def _columns_of(head: bytes) -> tuple[str, ...] | None:
    """Return the columns that the head of an INSERT names; None if it names none."""
    listed = _COLUMNS.search(head)
    if listed is None:
        return None
    names = _NAME.findall(listed[1].decode("utf-8", "replace"))
    return tuple(quoted.replace("``", "`") or bare for quoted, bare in names)


def _row_batch(
    file: ExportFile,
    columns: tuple[str, ...] | None,
    data: bytes,
    rows: loops.Rows,
    first: int,
    end: int,
) -> pa.RecordBatch:
    """Return the rows of `data` from one number to another."""
    begins, ends, lines = (item[first:end] for item in rows)
    # The rows, and between two of them what separates them.
    offsets = np.stack([begins, ends], axis=1).ravel()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    size = len(lines)
    is_first = np.concatenate([[True], lines[1:] != lines[:-1]])
    starts = np.maximum.accumulate(np.where(is_first, np.arange(size), 0))
    return _rows_of(
        file,
        size,
        line=pa.array(lines.copy()),
        index=pa.array((np.arange(size) - starts).astype(np.int32)),
        columns=None if columns is None else json.dumps(columns, ensure_ascii=False),
        row=pieces.take(pa.array(np.arange(0, len(offsets), 2))).cast(pa.binary()),
    )


def _rows_of(
    file: ExportFile,
    size: int,
    *,
    line: "pa.Array[Any]",
    index: "pa.Array[Any]",
    columns: str | None,
    row: "pa.Array[Any]",
    problem: str | None = None,
) -> pa.RecordBatch:
    def constant(value: str | None) -> "pa.Array[Any]":
        return pa.repeat(pa.scalar(value, pa.string()), size)

    return pa.RecordBatch.from_arrays(
        [
            *(constant(file.path), line, index, constant(file.format)),
            *(constant(columns), constant(problem), row),
        ],
        schema=ROW_SCHEMA,
    )


def _problem(file: ExportFile, line: int, problem: str) -> pa.RecordBatch:
    return _rows_of(
        file,
        1,
        line=pa.array([line]),
        index=pa.array([0], pa.int32()),
        columns=None,
        row=pa.nulls(1, pa.binary()),
        problem=problem,
    )


# Parquet ----------------------------------------------------------------------------------------


def _parquet_rows(filesystem: fs.FileSystem, root: str, part: FilePart) -> Iterator[pa.RecordBatch]:
    row = part.line
    with filesystem.open_input_file(f"{root}/{part.file.path}") as source:
        file = pq.ParquetFile(source)
        if not file.schema_arrow.names:
            raise pa.ArrowInvalid("it has no columns")
        groups = range(part.begin, file.num_row_groups if part.end is None else part.end)
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS, row_groups=list(groups)):
            size = batch.num_rows
            fields = pc.binary_join_element_wise(*map(_field_texts, batch.columns), ",")
            rows = pc.binary_join_element_wise("(", fields, ")", "").cast(pa.binary())
            yield _rows_of(
                part.file,
                size,
                line=pa.array(np.arange(row, row + size)),
                index=pa.array(np.zeros(size, np.int32)),
                columns=json.dumps(batch.schema.names, ensure_ascii=False),
                row=rows,
            )
            row += size


def _field_texts(column: "pa.Array[Any]") -> "pa.Array[Any]":
    """Return the values of a column as literals of SQL: bytes as x'..', all else as text."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type

    def each(spell: Callable[[Any], str]) -> "pa.Array[Any]":
        values = column.to_pylist()
        return pa.array([None if item is None else spell(item) for item in values], pa.string())

    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return pc.fill_null(each(lambda value: f"x'{value.hex()}'"), "NULL")
    if pa.types.is_boolean(kind):
        texts = column.cast(pa.int8()).cast(pa.string())
    elif pa.types.is_timestamp(kind):
        suffix = ""
        if kind.tz is not None:
            column, suffix = column.cast(pa.timestamp(kind.unit, "UTC")), INSTANT
        texts = pc.strftime(column, format=f"%Y-%m-%d %H:%M:%S{suffix}")
    elif pa.types.is_decimal(kind):
        # Arrow prints small ones with an exponent.
        texts = each(lambda value: format(value, "f"))
    elif pa.types.is_nested(kind):
        texts = each(partial(json.dumps, default=str, ensure_ascii=False))
    else:
        texts = column.cast(pa.string())
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), "'", "\\'")
    return pc.fill_null(pc.binary_join_element_wise("'", escaped, "'", ""), "NULL")


# Fields -----------------------------------------------------------------------------------------

FAULTS: Final = {
    loops.TOO_FEW: "fewer fields than columns",
    loops.TOO_MANY: "more fields than columns",
    loops.OPEN_TEXT: "a text that does not end",
    loops.BEHIND_TEXT: "bytes after the end of a text",
    loops.NO_VALUE: "no value between separators",
}
"""The faults of rows, by number."""


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """The fields of some rows.

    Attributes:
        faults: for each row 0 or its fault (`FAULTS`).
    """

    faults: Bytes
    _data: Bytes
    _fields: loops.Fields
    _quote_size: int

    def values(self, number: int) -> tuple["pa.Array[Any]", npt.NDArray[np.bool_]]:
        """Return the values of a column as bytes, and which are digits of a hexadecimal literal.

        Values of rows with a fault are null.
        """
        begins, ends, forms = (item[number] for item in self._fields)
        forms = np.where(self.faults == loops.GOOD, forms, loops.NULL).astype(np.uint8)
        is_null = forms == loops.NULL
        size = int(np.where(is_null, 0, ends - begins).sum())
        content, offsets = np.empty(size, np.uint8), np.empty(len(begins) + 1, np.int64)
        loops.values(self._data, begins, ends, forms, self._quote_size, content, offsets)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
        every = pa.Array.from_buffers(pa.large_binary(), len(begins), buffers)
        if is_null.any():
            every = pc.if_else(pa.array(is_null), None, every)
        return every, forms == loops.HEXADECIMAL


def fields_of(rows: "pa.Array[Any]", width: int, format: str, dialect: CsvDialect) -> Fields:
    """Return the fields of rows of a file, which should have `width` of them."""
    _, offsets, content = rows.buffers()
    size = len(rows)
    places = np.frombuffer(offsets, np.int32)[rows.offset : rows.offset + size + 1]
    data = np.frombuffer(content or b"", np.uint8)
    is_csv = format == "csv"
    return _found(data, places.astype(np.int64), _places(width, size), dialect, is_csv=is_csv)


def _header(row: bytes, dialect: CsvDialect) -> tuple[str, ...]:
    """Return the names in the first row of a CSV file."""
    room = _places(row.count(dialect.separator.encode()) + 1, 1)
    room.begins[:] = -1
    fields = _found(
        np.frombuffer(row, np.uint8), np.array([0, len(row)]), room, dialect, is_csv=True
    )
    fields.faults[:] = loops.GOOD
    count = int(np.count_nonzero(room.begins[:, 0] >= 0))
    values = [fields.values(number)[0][0].as_py() or b"" for number in range(count)]
    return tuple(value.decode("utf-8", "replace") for value in values)


def _found(
    data: Bytes,
    places: npt.NDArray[np.int64],
    fields: loops.Fields,
    dialect: CsvDialect,
    *,
    is_csv: bool,
) -> Fields:
    faults, style = np.zeros(len(places) - 1, np.uint8), _style(dialect)
    if is_csv:
        loops.csv_fields(data, places, style, fields, faults)
        return Fields(faults, data, fields, len(style.quote))
    loops.sql_fields(data, places, dialect.backslash, fields, faults)
    return Fields(faults, data, fields, 1)


def _places(width: int, size: int) -> loops.Fields:
    begins, ends = (np.empty((width, size), np.int64) for _ in range(2))
    return loops.Fields(begins, ends, np.zeros((width, size), np.uint8))


def _style(dialect: CsvDialect) -> loops.Style:
    texts = (dialect.separator, dialect.quote, dialect.terminator, dialect.null)
    arrays = (np.frombuffer(text.encode(), np.uint8) for text in texts)
    return loops.Style(*arrays, backslash=dialect.backslash)
