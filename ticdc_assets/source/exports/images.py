"""Images of exported rows, in the form that messages have.

In: rows of one file, and the schema of their table. Out: `ExportImages`: for each row its image as
JSON text (`wire.rows.image_from_json`), or the reason why it has none. Columns that the file lacks
are computed from their expressions if that is certain. A column without a value is never NULL: it
is not in the image, and the row has a shape that names the columns that are. A row without a value
in its key is refused, because it cannot be identified. Values have the form that messages have
(`events.PhysicalValue`): ENUM and SET as numbers, bytes as base64, a TIMESTAMP with the zone of the
session that exported it. Whether a value fits its type is checked where the image is read.

Any bytes give an image or a reason, and the same bytes give the same.
"""

import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.base.errors import ImageError, shorten
from ticdc_assets.model.mysql_types import Kind, decimal_size, fractional_digits, kind_of
from ticdc_assets.model.schemas import ColumnSchema, RowShape, SentColumn, TableSchema
from ticdc_assets.model.values import canonical_of, physical_of
from ticdc_assets.model.values.vector_loops import PADDING
from ticdc_assets.registry.ddl.reader import parse_ddl
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.inference.generated_columns import GeneratedColumns
from ticdc_assets.source.exports import export_loops as loops
from ticdc_assets.source.exports.dialect import DUMPLING_OPTION, BinaryText, CsvDialect
from ticdc_assets.source.exports.folder import UNREADABLE_FILE
from ticdc_assets.source.exports.rows import FAULTS, INSTANT, PARQUET_DIALECT, fields_of
from ticdc_assets.wire.rows import image_from_json, image_to_json, shape_text


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExportImages:
    """Images of rows, or why they have none.

    Attributes:
        images: JSON texts; null for a row without.
        reason: a word for the reason; null for a row with an image.
        position: the column that it is about; null if it is about the row.
        expected: what was expected there.
        got: what was there.
        shapes: the `RowShape` of a row whose image lacks columns, as text; null for the others.
        errors: how many rows have no image.
    """

    images: "pa.Array[Any]"
    reason: "pa.Array[Any]"
    position: "pa.Array[Any]"
    expected: "pa.Array[Any]"
    got: "pa.Array[Any]"
    shapes: "pa.Array[Any]"
    errors: int


class ImageMaker:
    """Makes images of the rows of one table.

    Args:
        schema: the table's schema in the export.
        dialect: how its CSV files are written.
        timezone: zone of the session that exported it, for TIMESTAMP columns.
        create_sql: its CREATE TABLE; "" if unknown.
        is_ordered: whether the columns of the schema are in the order of the table.
    """

    def __init__(
        self,
        schema: TableSchema,
        dialect: CsvDialect,
        timezone: str,
        create_sql: str = "",
        *,
        is_ordered: bool = True,
    ) -> None:
        self._dialect = dialect
        self._is_ordered = is_ordered
        self._columns = {column.name.lower(): column for column in schema.columns}
        self._lacking = _LackingColumns(schema, create_sql, timezone)
        self._timezone = timezone

    def make(
        self,
        rows: "pa.Array[Any]",
        *,
        format: str,
        columns: Sequence[str] | None,
        problem: str | None = None,
    ) -> ExportImages:
        """Return the images of rows.

        Args:
            rows: the rows, of one file.
            format: `sql`, `csv` or `parquet`.
            columns: the names that the file gives its columns; those of the table if None.
            problem: why these are not rows; None if they are.
        """
        if problem is not None:
            return _refused(len(rows), UNREADABLE_FILE, "the rows of a file", problem)
        if format == "csv" and columns is not None and not columns:
            got = "no name: the files may be written with another separator or delimiter"
            return _refused(len(rows), "invalid_row", "a first row with names of columns", got)
        if columns is not None:
            return self._made(rows, format, list(columns))
        if not self._is_ordered:
            expected = "a schema file, or names of columns (--complete-insert, no --no-header)"
            return _refused(len(rows), "unnamed_columns", expected, "neither")
        # A file without names has the columns that Dumpling writes with or without its option.
        attempts = [self._made(rows, format, names) for names in self._lacking.usual]
        return min(attempts, key=lambda images: images.errors)

    def _made(self, rows: "pa.Array[Any]", format: str, names: Sequence[str]) -> ExportImages:
        size = len(rows)
        unknown = [name for name in names if name.lower() not in self._columns]
        if unknown or len({name.lower() for name in names}) < len(names):
            expected = "columns of the table, each once"
            return _refused(size, "unknown_column", expected, shorten(names))
        columns = [self._columns[name.lower()] for name in names]
        dialect = PARQUET_DIALECT if format == "parquet" else self._dialect
        fields = fields_of(rows, len(columns), format, dialect)
        faults = Faults(size)
        for code in np.unique(fields.faults).tolist():
            if code != loops.GOOD:
                where = np.flatnonzero(fields.faults == code)
                faults.add(where, "invalid_row", None, f"{len(columns)} fields", FAULTS[code])
        texts: list[Any] = []
        binary = dialect.binary if format == "csv" else BinaryText.RAW
        spellings = _PARQUET_SPELLINGS if format == "parquet" else _SPELLINGS
        for number, column in enumerate(columns):
            values, is_hex = fields.values(number)
            if format == "csv" and not dialect.quote and not column.nullable:
                # Without quotes, NULL and the same text are written alike.
                values = pc.fill_null(values, pa.scalar(dialect.null.encode(), pa.large_binary()))
            zone = self._timezone if kind_of(column) is Kind.TIMESTAMP else None
            if zone is not None and format == "parquet" and values.null_count < size:
                moments = values.cast(pa.large_string())
                if pc.all(pc.ends_with(moments, INSTANT)).as_py():
                    moments = pc.utf8_slice_codeunits(moments, 0, -len(INSTANT))
                    values, zone = moments.cast(pa.large_binary()), "UTC"
            if format == "parquet" and kind_of(column) in _MOMENTS and not column.nullable:
                got = "NULL, which Dumpling writes for zero dates: export CSV or SQL"
                where = np.flatnonzero(np.asarray(values.is_null()))
                faults.add(where, f"invalid_{kind_of(column)}", column.name, "a date", got)
            values = _spelled(values, is_hex, column, spellings, binary, faults)
            name = json.dumps(column.name, ensure_ascii=False)
            texts += [f"{',' if number else ''}{name}:", _quoted(values, zone)]
        parts = [
            pa.scalar(part.encode(), pa.large_binary()) if isinstance(part, str) else part
            for part in ("{", *texts, "}", "")
        ]
        images = pc.binary_join_element_wise(*parts) if columns else pa.array([b"{}"] * size)
        images, shapes = self._lacking.completed(_texts(images, faults), columns, faults)
        return faults.images(images, shapes)


def _quoted(values: "pa.Array[Any]", zone: str | None) -> "pa.Array[Any]":
    """Return values as they are in the JSON text of images, with their zone if there is one."""
    size = len(values)
    _, offsets, content = values.buffers()
    places = np.frombuffer(offsets, np.int64)[values.offset : values.offset + size + 1]
    data = np.frombuffer(content or b"", np.uint8)[places[0] : places[-1]]
    before = after = '"'
    if zone is not None:
        before, after = '{"location":' + json.dumps(zone) + ',"value":"', '"}'
    # An escape has up to six bytes.
    escapes = int(np.count_nonzero((data < ord(" ")) | (data == ord('"')) | (data == ord("\\"))))
    most = len(data) + 5 * escapes + size * max(len("null"), len(before) + len(after))
    written, ends = np.empty(most + PADDING, np.uint8), np.empty(size + 1, np.int64)
    loops.quoted(
        np.concatenate([data, np.zeros(PADDING, np.uint8)]),
        places - places[0],
        np.asarray(values.is_null()),
        *(_padded(before), _padded(after)),
        *(written, ends),
    )
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(written)]
    return pa.Array.from_buffers(pa.large_binary(), size, buffers)


def _padded(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytearray(text.encode() + bytes(PADDING)), np.uint8)


def _texts(images: "pa.Array[Any]", faults: "Faults") -> "pa.Array[Any]":
    """Return bytes as texts; rows whose bytes are not UTF-8 get a fault."""
    try:
        texts = images.cast(pa.large_string())
    except pa.ArrowInvalid:
        for row, value in enumerate(images.to_pylist()):
            try:
                value.decode()
            except UnicodeDecodeError as error:
                got = shorten(value[max(0, error.start - 20) : error.start + 20])
                faults.add(np.array([row]), "invalid_text", None, "UTF-8", got)
        texts = pc.if_else(pa.array(faults.good), images, b"").cast(pa.large_string())
    return pc.if_else(pa.array(faults.good), texts, None).cast(pa.string())


class Faults:
    """The faults of rows; the first fault of a row counts.

    Attributes:
        good: which rows have none.
    """

    def __init__(self, size: int) -> None:
        self.good = np.ones(size, np.bool_)
        self._columns: list[list[str | None]] = [[None] * size for _ in range(4)]

    def add(
        self,
        rows: npt.NDArray[np.int64],
        reason: str,
        position: str | None,
        expected: str,
        got: str,
    ) -> None:
        """Add a fault of rows; the texts are those of `ExportImages`."""
        for row in rows.tolist():
            if self.good[row]:
                self.good[row] = False
                for column, text in zip(
                    self._columns, (reason, position, expected, got), strict=True
                ):
                    column[row] = text

    def add_misfit(self, rows: npt.NDArray[np.int64], column: ColumnSchema, raw: object) -> None:
        """Add the fault that a value does not fit its column's type."""
        kind = kind_of(column)
        expected = _EXPECTED.get(kind, "hexadecimal digits")
        self.add(rows, f"invalid_{kind}", column.name, expected, shorten(raw))

    def images(self, images: "pa.Array[Any]", shapes: "pa.Array[Any]") -> ExportImages:
        """Return images, with the faults of rows that have none."""
        reason, position, expected, got = (pa.array(item, pa.string()) for item in self._columns)
        return ExportImages(
            images=images,
            reason=reason,
            position=position,
            expected=expected,
            got=got,
            shapes=shapes,
            errors=len(self.good) - int(np.count_nonzero(self.good)),
        )


def _refused(size: int, reason: str, expected: str, got: str) -> ExportImages:
    """Return images of rows that all have the same fault."""
    faults = Faults(size)
    faults.add(np.arange(size), reason, None, expected, got)
    nothing = pa.nulls(size, pa.string())
    return faults.images(nothing, nothing)


_MOMENTS: Final = frozenset({Kind.DATETIME, Kind.TIMESTAMP})


# Spelling ---------------------------------------------------------------------------------------


def _spelled(
    values: "pa.Array[Any]",
    is_hex: npt.NDArray[np.bool_],
    column: ColumnSchema,
    spellings: "_Spellings",
    binary: BinaryText,
    faults: Faults,
) -> "pa.Array[Any]":
    """Return values of a column in the form of messages; those with a fault are null."""
    kind = kind_of(column)
    make = spellings.get(kind)
    spell: Callable[[bytes], bytes] = (lambda raw: raw) if make is None else make(column)
    if make is None:
        if not is_hex.any():
            return values
        binary = BinaryText.RAW
    if kind is Kind.BIT and spellings is _PARQUET_SPELLINGS and not is_hex.any():
        spell = lambda raw: b"%d" % int(raw)  # noqa: E731
    if kind in (Kind.ENUM, Kind.SET):
        binary = BinaryText.RAW
    spelled = pa.nulls(len(values), pa.large_binary())
    # The same bytes may mean two things; repeated ones are spelled once.
    for form, rows in ((BinaryText.HEX, is_hex), (binary, ~is_hex)):
        if not rows.any():
            continue
        encoded = pc.if_else(pa.array(rows), values, None).dictionary_encode()
        texts: list[bytes | None] = []
        for text in encoded.dictionary.to_pylist():
            try:
                texts.append(spell(_READERS[form](text)))
            except (KeyError, ValueError):
                texts.append(None)
                where = pc.equal(encoded.indices, len(texts) - 1).fill_null(False)
                faults.add_misfit(np.flatnonzero(np.asarray(where)), column, text)
        spelled = pc.coalesce(spelled, pa.array(texts, pa.large_binary()).take(encoded.indices))
    return spelled


_READERS: Final[Mapping[BinaryText, Callable[[bytes], bytes]]] = {
    BinaryText.RAW: lambda text: text,
    BinaryText.HEX: binascii.unhexlify,
    BinaryText.BASE64: lambda text: binascii.a2b_base64(text, strict_mode=True),
}


def _enum(column: ColumnSchema) -> Callable[[bytes], bytes]:
    numbers = {label.encode(): number for number, label in enumerate(("", *column.elements))}
    return lambda raw: b"%d" % numbers[raw]


def _set(column: ColumnSchema) -> Callable[[bytes], bytes]:
    bits = {label.encode(): 1 << number for number, label in enumerate(column.elements)}
    return lambda raw: b"%d" % sum({bits[item] for item in raw.split(b",")} if raw else ())


def _moment(column: ColumnSchema) -> Callable[[bytes], bytes]:
    with_digits = _with_digits(fractional_digits(column))
    # A date becomes its first midnight.
    is_day_too = kind_of(column) is not Kind.TIME

    def spell(raw: bytes) -> bytes:
        if raw.endswith(INSTANT.encode()):
            raise ValueError("a time in UTC, and the column has no zone")
        return with_digits(raw + b" 00:00:00" if is_day_too and b":" not in raw else raw)

    return spell


def _with_digits(count: int | None) -> Callable[[bytes], bytes]:
    """Return the function that gives a number a fixed number of decimal digits."""

    def spell(raw: bytes) -> bytes:
        if count is None or b"e" in raw.lower():
            return raw
        whole, _, digits = raw.partition(b".")
        if digits[count:].strip(b"0"):
            raise ValueError("more digits than the column has")
        return whole + (b"." + digits[:count].ljust(count, b"0") if count else b"")

    return spell


_Spellings: TypeAlias = Mapping[Kind, Callable[[ColumnSchema], Callable[[bytes], bytes]]]

_SPELLINGS: Final[_Spellings] = {
    Kind.BIT: lambda _: lambda raw: b"%d" % int.from_bytes(raw),
    Kind.BINARY: lambda _: lambda raw: binascii.b2a_base64(raw, newline=False),
    Kind.ENUM: _enum,
    Kind.SET: _set,
}
_PARQUET_SPELLINGS: Final[_Spellings] = {
    **_SPELLINGS,
    Kind.DECIMAL: lambda column: _with_digits((decimal_size(column) or (0, None))[1]),
    Kind.DATETIME: _moment,
    Kind.TIMESTAMP: _moment,
    Kind.TIME: _moment,
}
"""A Parquet file's own types may have other decimal digits than the columns."""
_EXPECTED: Final = {
    Kind.BIT: "bytes of a BIT",
    Kind.BINARY: "bytes as the dialect writes them",
    Kind.ENUM: "a label of the column",
    Kind.SET: "labels of the column",
    Kind.DECIMAL: "no more digits than the column has",
    Kind.DATETIME: "no zone, and no more digits than the column has",
    Kind.TIMESTAMP: "no zone, and no more digits than the column has",
    Kind.TIME: "no more digits than the column has",
}


# Lacking columns --------------------------------------------------------------------------------


class _LackingColumns:
    """The columns of one table that files may lack; `usual` are those of files without names."""

    def __init__(self, schema: TableSchema, create_sql: str, timezone: str) -> None:
        self._generated = GeneratedColumns(parse_ddl(create_sql), schema, timezone)
        self._schema = schema
        self._timezone = timezone
        self._stored = [column for column in schema.columns if not column.virtual]
        names = [column.name for column in self._stored]
        self.usual = [[name for name in names if name.lower() not in self._generated.stored]]
        if len(self.usual[0]) < len(names):
            self.usual.append(names)

    def completed(
        self, images: "pa.Array[Any]", known: Sequence[ColumnSchema], faults: Faults
    ) -> tuple["pa.Array[Any]", "pa.Array[Any]"]:
        """Return images with the computed columns, and shapes of rows that lack some.

        `known` are the columns that the file has; `faults` receives the rows that have no key.
        """
        there = {column.name for column in known}
        lacking = [item for item in self._stored if item.name not in there]
        if not lacking:
            return images, pa.nulls(len(images), pa.string())
        texts = images.to_pylist()
        left: list[frozenset[str] | None] = [None] * len(texts)
        complete = self._completion(known, lacking)
        for row in np.flatnonzero(faults.good).tolist():
            texts[row], left[row] = complete(texts[row])
        key = set(self._schema.handle_key)
        for name in self._schema.handle_key:
            rows = [row for row, names in enumerate(left) if names and name in names]
            if rows:
                expected, got = self._way_out(name)
                faults.add(np.array(rows), "unknown_key", name, expected, got)
        for row, names in enumerate(left):
            if names and not key.isdisjoint(names):
                texts[row] = left[row] = None
        shape_of = lru_cache(maxsize=None)(self._shape)
        shapes = [None if not names else shape_of(names) for names in left]
        return pa.array(texts, pa.string()), pa.array(shapes, pa.string())

    def _completion(
        self, known: Sequence[ColumnSchema], lacking: Sequence[ColumnSchema]
    ) -> Callable[[str], tuple[str, frozenset[str]]]:
        """Return the function that adds columns to an image and returns those it still lacks."""
        every = frozenset(column.name for column in lacking)
        generated = [self._generated.named(column.name) for column in lacking]
        if not any(item is not None and item.evaluate is not None for item in generated):
            return lambda image: (image, every)
        converters = [(column.name, canonical_of(column, self._timezone)) for column in known]
        physical = {column.name: physical_of(column, self._timezone) for column in lacking}
        virtual = {column.name for column in self._schema.columns if column.virtual}

        def complete(text: str) -> tuple[str, frozenset[str]]:
            image = image_from_json(text)
            row: CanonicalRow = {}
            for name, convert in converters:
                try:
                    row[name] = convert(image[name])
                except ImageError:
                    # Reading the image will report it.
                    return text, every
            completed = self._generated.complete(row, every | virtual)
            added = {
                name: convert(completed[name])
                for name, convert in physical.items()
                if name in completed
            }
            if added:
                more = image_to_json(added)
                text = text[:-1] + ("," if len(image) else "") + more[1:]
            return text, every.difference(added)

        return complete

    def _shape(self, lacking: frozenset[str]) -> str:
        columns = tuple(
            SentColumn(column.name, column.mysql_type)
            for column in self._stored
            if column.name not in lacking
        )
        return shape_text(RowShape(columns=columns, partial=True))

    def _way_out(self, name: str) -> tuple[str, str]:
        """Return what was expected of a column of the key, and what is there."""
        item = self._generated.named(name)
        if item is None:
            return "a value of the key", "a file without this column"
        return (
            f"a value of the key: export with Dumpling's {DUMPLING_OPTION}",
            f"a file without this column, which is generated as {item.expression}"
            + (f" ({shorten(item.problem, 120)})" if item.problem else ""),
        )
