"""Rows of a batch of changes: the columns, and how decoded events become such rows.

In: events of one record, or the columns of rows of a batch decoder. Out: an Arrow batch with the
columns of `CHANGE_SCHEMA`, one row an event, in the order of the records; a record that is not a
message gives exactly one row of kind `error`.

Images, shapes, schemas and checksums are columns of JSON text. `image_to_json` and its like are the
one way to write them and `image_from_json` and its like the one way to read them, so a row means
the same whichever decoder wrote it. The same events give the same rows.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import count
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_assets.base.errors import InputError, WireError
from ticdc_assets.model.events import (
    Bootstrap,
    Checksum,
    DdlEvent,
    Event,
    Image,
    Op,
    PhysicalValue,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.schemas import (
    RowShape,
    schema_to_json,
    shape_from_json,
    shape_to_json,
)
from ticdc_assets.wire.record import Record

CHANGE_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("index", pa.int32()),
        ("kind", pa.string()),
        ("op", pa.string()),
        ("commit_ts", pa.int64()),
        ("build_ts_ms", pa.int64()),
        ("database", pa.string()),
        ("table", pa.string()),
        ("table_id", pa.int64()),
        ("schema_version", pa.int64()),
        ("before", pa.string()),
        ("after", pa.string()),
        ("handle_key_only", pa.bool_()),
        ("claim_check_location", pa.string()),
        ("checksum", pa.string()),
        ("shape", pa.string()),
        ("es_only", pa.bool_()),
        ("ddl_type", pa.string()),
        ("sql", pa.string()),
        ("schema", pa.string()),
        ("pre_schema", pa.string()),
        ("error_reason", pa.string()),
        ("error_position", pa.string()),
        ("error_expected", pa.string()),
        ("error_got", pa.string()),
    ]
)
"""Columns of a batch of changes."""

ROW: Final = "row"
DDL: Final = "ddl"
BOOTSTRAP: Final = "bootstrap"
WATERMARK: Final = "watermark"
ERROR: Final = "error"
SNAPSHOT: Final = "snapshot"
"""The values of column `kind`. No message has the last one: rows of exports have it."""

DAMAGED_ROW: Final = "row with a damaged image"
"""The count for rows whose shape says that they are damaged (`RowShape.damaged`)."""

OF_MIRRORS: Final = (ROW, SNAPSHOT)
"""Kinds of rows that mirrors are built from."""

PIECE_BYTES: Final = 1 << 23
"""Bytes of content that are decoded together, at most: a longer value is left to the reference."""

COORDINATES: Final = ("topic", "partition", "offset")
"""The columns that identify a record."""
PLACE: Final = (*COORDINATES, "index")
"""The columns that identify a change."""
PLACE_SCHEMA: Final = pa.schema([CHANGE_SCHEMA.field(name) for name in PLACE])
"""These columns with their types."""

_Flags: TypeAlias = npt.NDArray[np.bool_]

Row: TypeAlias = dict[str, Any]
"""Columns of one row by their names, without coordinates; columns that it lacks are null."""


def image_from_json(text: str | bytes) -> dict[str, PhysicalValue]:
    """Return the image that a column `before` or `after` holds as JSON text.

    Raises:
        msgspec.DecodeError: the text is not what `decode_batch` or `image_to_json` wrote.
    """
    return _decode_stored_image(text)


def image_to_json(image: Image) -> str:
    """Return `image` as the JSON text that `image_from_json` reads."""
    return _encode(dict(image)).decode()


def checksum_from_json(text: str | bytes) -> Checksum:
    """Return the checksums that a column `checksum` holds as JSON text.

    Raises:
        msgspec.DecodeError: the text is not what `decode_batch` wrote.
    """
    return _decode_stored_checksum(text)


def shape_text(shape: RowShape) -> str:
    """Return `shape` as the JSON text of the column `shape`."""
    return _encode(shape_to_json(shape)).decode()


def shape_from_text(text: str | bytes) -> RowShape:
    """Return the shape that a column `shape` holds as JSON text."""
    return shape_from_json(json.loads(text))


def counted_as(kind: str, shape: str | None) -> str:
    """Return the kind under which rows are counted; `shape` is the text of their shape."""
    is_damaged = kind == ROW and shape is not None and shape_from_text(shape).damaged
    return DAMAGED_ROW if is_damaged else kind


_SHORT_RUN: Final = 32
"""Rows that are worth copying as one run; shorter runs are picked row by row."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SourcedRows:
    """Finished rows, and the records they come from.

    Attributes:
        sources: for each row the number of its record in the batch, in their order.
        rows: the rows, with the columns of `CHANGE_SCHEMA`.
    """

    sources: npt.NDArray[np.int64]
    rows: pa.RecordBatch

    @classmethod
    def of(
        cls,
        batch: pa.RecordBatch,
        sources: npt.NDArray[np.int64],
        columns: "Mapping[str, pa.Array[Any]]",
    ) -> "SourcedRows":
        """Return rows with the coordinates of their records in `batch`.

        The other columns of `CHANGE_SCHEMA` that `columns` lacks are null.
        """
        number: int = batch.num_rows
        every = np.array_equal(sources, np.arange(number))
        arrays: list[pa.Array[Any]] = []
        for column in CHANGE_SCHEMA:
            if column.name in COORDINATES:
                coordinate = batch.column(column.name).cast(column.type)
                arrays.append(coordinate if every else coordinate.take(pa.array(sources)))
            elif column.name in columns:
                arrays.append(columns[column.name])
            else:
                arrays.append(pa.nulls(len(sources), column.type))
        return cls(sources=sources, rows=pa.RecordBatch.from_arrays(arrays, schema=CHANGE_SCHEMA))

    @classmethod
    def of_rows(
        cls, batch: pa.RecordBatch, sources: Sequence[int], rows: Sequence[Row]
    ) -> "SourcedRows":
        """Return the same of rows that are not columns yet."""
        columns = {
            column.name: pa.array([row.get(column.name) for row in rows], column.type)
            for column in CHANGE_SCHEMA
            if column.name not in COORDINATES
        }
        return cls.of(batch, np.array(sources, np.int64), columns)

    def joined(self, other: "SourcedRows") -> "SourcedRows":
        """Return these rows and others in the order of their records; no record is in both."""
        if not len(other.sources):
            return self
        if not len(self.sources):
            return other
        sources = np.concatenate([self.sources, other.sources])
        order = np.argsort(sources, kind="stable")
        border = len(self.sources)
        # A new run starts where the source changes.
        is_first = (np.diff(order, prepend=-2) != 1) | (order == border)
        first = np.flatnonzero(is_first)
        if len(first) * _SHORT_RUN > len(order):
            rows = pa.concat_batches([self.rows, other.rows]).take(pa.array(order))
        else:
            starts, sizes = order[first].tolist(), np.diff(first, append=len(order)).tolist()
            rows = pa.concat_batches(
                [
                    self.rows.slice(start, size)
                    if start < border
                    else other.rows.slice(start - border, size)
                    for start, size in zip(starts, sizes, strict=True)
                ]
            )
        return SourcedRows(sources=sources[order], rows=rows)


def row_columns(
    rows: _Flags,
    *,
    op: npt.NDArray[np.int64],
    index: "pa.Array[Any] | None" = None,
    handle_key_only: _Flags,
    es_only: _Flags | None = None,
    **columns: "pa.Array[Any]",
) -> "Mapping[str, pa.Array[Any]]":
    """Return the columns of row changes and watermarks.

    Args:
        rows: which are row changes; the others are watermarks.
        op: what each did: 0 for an insert, 1 for an update, 2 for a delete.
        index: the number of each in its record; all 0 if None.
        handle_key_only: whether its columns were cut.
        es_only: whether its commit ts has no logical part; all have one if None.
        columns: the other columns, null where a watermark has none.
    """
    marks = ~rows
    no = np.zeros(len(rows), np.bool_)
    return {
        "index": pa.array(np.zeros(len(rows), np.int32)) if index is None else index,
        "kind": _KINDS.take(pa.array(rows.view(np.int8))),
        "op": _OPS.take(pa.array(op, mask=marks)),
        "handle_key_only": pa.array(handle_key_only, mask=marks),
        "es_only": pa.array(no if es_only is None else es_only, mask=marks),
        **columns,
    }


_KINDS: Final = pa.array([WATERMARK, ROW])
_OPS: Final = pa.array([Op.INSERT.value, Op.UPDATE.value, Op.DELETE.value])


def read_by(
    decode: Callable[[Record], list[Event]], batch: pa.RecordBatch, numbers: npt.NDArray[np.int64]
) -> SourcedRows:
    """Return the rows that a reference decoder gives for records, by their numbers in order."""
    sources: list[int] = []
    rows: list[Row] = []
    # Schemas are sent to each partition, again and again; equal bytes are read once.
    read: dict[Record, list[Row]] = {}
    taken = pa.array(numbers)
    keys, values = (
        takeable(batch.column(name)).take(taken).to_pylist() for name in ("key", "value")
    )
    for number, key, value in zip(numbers.tolist(), keys, values, strict=True):
        record = Record(key=key, value=value)
        if record not in read:
            try:
                read[record] = list(map(event_row, decode(record), count()))
            except WireError as error:
                read[record] = [error_row(error)]
        sources += [number] * len(read[record])
        rows += read[record]
    return SourcedRows.of_rows(batch, sources, rows)


def takeable(column: "pa.Array[Any]") -> "pa.Array[Any]":
    """Return the same values in a type that rows can be taken from."""
    return column.cast(pa.large_binary()) if column.type == pa.binary_view() else column


def error_row(error: InputError, index: int = 0) -> Row:
    """Return the row of a record (or of its event number `index`) without events."""
    return {
        "index": index,
        "kind": ERROR,
        "error_reason": error.reason,
        "error_position": error.position,
        "error_expected": error.expected,
        "error_got": error.got,
    }


def event_row(event: Event, index: int = 0) -> Row:
    """Return the row of an event, the event number `index` of its record."""
    kind, columns = _EVENTS[type(event)]
    row: Row = {"index": index, "kind": kind}
    for name, text in columns:
        value = getattr(event, name)
        if value is not None:
            row[name] = value if text is None else text(value)
    if isinstance(event, Watermark):
        row["commit_ts"] = event.watermark_ts
    if isinstance(event, Bootstrap | DdlEvent):
        named = event.schema or (event.pre_schema if isinstance(event, DdlEvent) else None)
        if named is not None:
            row["table_id"] = named.table_id
            # A bootstrap has no names besides.
            row.setdefault("database", named.database)
            row.setdefault("table", named.table)
        if event.schema is not None:
            row["schema_version"] = event.schema.version
    return row


_decode_stored_image: Final = msgspec.json.Decoder(dict[str, str | ZonedTimestamp | None]).decode
_decode_stored_checksum: Final = msgspec.json.Decoder(Checksum).decode
_encode: Final = msgspec.json.Encoder().encode
_TEXTS: Final[Mapping[str, Callable[[Any], str | bytes]]] = {
    **dict.fromkeys(("before", "after"), image_to_json),
    "checksum": lambda checksum: _encode(asdict(checksum)),
    "shape": shape_text,
    **dict.fromkeys(("schema", "pre_schema"), lambda schema: _encode(schema_to_json(schema))),
}
"""How the attributes of events become texts of JSON."""

_EVENTS: Final = {
    event: (
        kind,
        [
            (item.name, _TEXTS.get(item.name))
            for item in fields(event)
            if item.name in CHANGE_SCHEMA.names
        ],
    )
    for event, kind in (
        (RowChange, ROW),
        (DdlEvent, DDL),
        (Bootstrap, BOOTSTRAP),
        (Watermark, WATERMARK),
    )
}
"""The kind of a row, and the attributes that are columns with their texts, by type of event."""
