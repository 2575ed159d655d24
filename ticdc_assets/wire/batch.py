"""The hot path: Arrow batches of Kafka records to Arrow batches of changes.

In: record batches with the columns topic, partition, offset, key, value. Out: one row an event, in
the order of the records, with the columns of `CHANGE_SCHEMA`; a record that is no message gives
exactly one row of kind `error`. The meaning is that of `wire.decode`, to the last reason and
position; the result depends on the records alone, and splitting a batch anywhere changes nothing.

How it stays equal to `decode`: a message is taken here only if it has the plain shape that TiCDC
writes, and is given to `decode` in every other case, errors included. What msgspec would let pass
and `decode` refuses is closed as follows (tests try each):

- Unknown fields are skipped by msgspec without a look at their text: the structs forbid them.
- A `Raw` slice is skipped too. Images and checksums are decoded once more with their type. The
  earlier of two members of one name is never seen by anybody, so the text of the whole batch is
  checked to be UTF-8, and what is not image or checksum must be too short to nest deeper than
  `MAX_DEPTH` (or the message must have too few brackets for that).
- Numbers: an integer field takes only integers without fraction, and the range is in the type.
- A byte order mark, NaN, lone surrogates, trailing bytes and control characters are refused by
  msgspec itself, also inside what it skips.

Images, schemas and checksums leave as JSON text, as sent. Only what took the long way is written
again by this module, with the same meaning; and a schema whose text Python's own `json` could not
read (digits without end in a field nobody knows).

Not handled: typing of values, and schemas of rows; the text of `before` and `after` goes back to
values by `image_from_json`.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportUnknownLambdaType=false

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec
import pyarrow as pa

from ticdc_assets.errors import WireError
from ticdc_assets.events import (
    Bootstrap,
    Checksum,
    DdlEvent,
    Event,
    Image,
    PhysicalValue,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.schemas import TableSchema, schema_from_json, schema_to_json
from ticdc_assets.tso import MAX_TSO
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.go_json import MAX_DEPTH
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.simple_message import OPS, MessageType

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
"""The values of column `kind`."""

_COORDINATES: Final = ("topic", "partition", "offset")
# Every row has the common columns; few have the rare ones, which are kept apart for speed.
_COMMON: Final = tuple(CHANGE_SCHEMA.names[3:17])
_RARE: Final = tuple(CHANGE_SCHEMA.names[17:])

_Common: TypeAlias = tuple[Any, ...]
_Rare: TypeAlias = tuple[str | bytes | None, ...]


def decode_batch(wire_format: WireFormat, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the events of `batch` as rows of `CHANGE_SCHEMA`.

    Args:
        wire_format: how the records are written.
        batch: records with the columns topic, partition, offset, key and value; more are ignored.
    """
    return _DECODERS[wire_format](batch).to_batch(batch)


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


@dataclass(slots=True)
class _Rows:
    """Output rows while they are collected.

    Attributes:
        sources: for each row the number of its record in the batch.
        common: for each row the values of the common columns.
        rare: the values of the rare columns, by number of the row.
    """

    sources: list[int] = field(default_factory=list[int])
    common: list[_Common] = field(default_factory=list[_Common])
    rare: dict[int, _Rare] = field(default_factory=dict[int, _Rare])

    def add(self, source: int, rows: Sequence[tuple[_Common, _Rare | None]]) -> None:
        for common, rare in rows:
            if rare is not None:
                self.rare[len(self.common)] = rare
            self.sources.append(source)
            self.common.append(common)

    def to_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        length = len(self.common)
        columns: list[pa.Array[Any]] = [self._coordinate(batch, name) for name in _COORDINATES]
        values: Sequence[Sequence[Any]] = (
            list(zip(*self.common, strict=True)) if self.common else [()] * len(_COMMON)
        )
        columns += [
            pa.array(values[number], CHANGE_SCHEMA.field(name).type)
            for number, name in enumerate(_COMMON)
        ]
        columns += [self._rare(number, length) for number in range(len(_RARE))]
        return pa.RecordBatch.from_arrays(columns, schema=CHANGE_SCHEMA)

    def _coordinate(self, batch: pa.RecordBatch, name: str) -> "pa.Array[Any]":
        column = batch.column(name)
        wanted = CHANGE_SCHEMA.field(name).type
        if column.type != wanted:
            column = column.cast(wanted)
        if len(self.sources) == len(column):
            # Each record has at least one row, so with as many rows each has exactly one.
            return column
        return column.take(pa.array(self.sources, pa.int64()))

    def _rare(self, number: int, length: int) -> "pa.Array[Any]":
        if not self.rare:
            return pa.nulls(length, pa.string())
        values: list[str | bytes | None] = [None] * length
        for row, rare in self.rare.items():
            values[row] = rare[number]
        return pa.array(values, pa.string())


# ---------------------------------------------------------------- the long way, for any format


def _decoded(
    wire_format: WireFormat, record: Record, texts: "_Texts"
) -> list[tuple[_Common, _Rare | None]]:
    """Return the rows of what the reference decoder says about `record`."""
    try:
        events = decode(wire_format, record)
    except WireError as error:
        return [(_ERROR_ROW, _error_rare(error))]
    return [
        _ROWS_OF[type(event)](index, event, record, texts) for index, event in enumerate(events)
    ]


_Texts: TypeAlias = Callable[[Record], tuple[bytes | None, bytes | None]]
"""The schema and the schema before it in a record, as sent, or None where it has none."""


_ERROR_ROW: Final[_Common] = (0, ERROR, *(None,) * (len(_COMMON) - 2))


def _error_rare(error: WireError) -> _Rare:
    return (None, None, None, None, error.reason, error.position, error.expected, error.got)


def _change_row(
    index: int, event: Event, _record: Record, _texts: _Texts
) -> tuple[_Common, _Rare | None]:
    row = cast(RowChange, event)
    return (
        index,
        ROW,
        row.op.value,
        row.commit_ts,
        row.build_ts_ms,
        row.database,
        row.table,
        row.table_id,
        row.schema_version,
        None if row.before is None else image_to_json(row.before),
        None if row.after is None else image_to_json(row.after),
        row.handle_key_only,
        row.claim_check_location,
        None if row.checksum is None else _encode(asdict(row.checksum)),
    ), None


def _ddl_row(
    index: int, event: Event, record: Record, texts: _Texts
) -> tuple[_Common, _Rare | None]:
    ddl = cast(DdlEvent, event)
    named = ddl.schema or ddl.pre_schema
    common = (
        index,
        DDL,
        None,
        ddl.commit_ts,
        ddl.build_ts_ms,
        ddl.database,
        ddl.table,
        None if named is None else named.table_id,
        None if ddl.schema is None else ddl.schema.version,
        *(None,) * 5,
    )
    schema, pre_schema = texts(record)
    return common, (
        ddl.ddl_type,
        ddl.sql,
        _schema_text(ddl.schema, schema),
        _schema_text(ddl.pre_schema, pre_schema),
        *(None,) * 4,
    )


def _bootstrap_row(
    index: int, event: Event, record: Record, texts: _Texts
) -> tuple[_Common, _Rare | None]:
    bootstrap = cast(Bootstrap, event)
    schema = bootstrap.schema
    common = (
        index,
        BOOTSTRAP,
        None,
        None,
        bootstrap.build_ts_ms,
        schema.database,
        schema.table,
        schema.table_id,
        schema.version,
        *(None,) * 5,
    )
    text, _ = texts(record)
    return common, (None, None, _schema_text(schema, text), *(None,) * 5)


def _watermark_row(
    index: int, event: Event, _record: Record, _texts: _Texts
) -> tuple[_Common, _Rare | None]:
    watermark = cast(Watermark, event)
    return (
        index,
        WATERMARK,
        None,
        watermark.watermark_ts,
        watermark.build_ts_ms,
        *(None,) * 9,
    ), None


_ROWS_OF: Final[
    Mapping[type[Event], Callable[[int, Event, Record, _Texts], tuple[_Common, _Rare | None]]]
] = {
    RowChange: _change_row,
    DdlEvent: _ddl_row,
    Bootstrap: _bootstrap_row,
    Watermark: _watermark_row,
}


def _schema_text(schema: TableSchema | None, text: bytes | None) -> bytes | None:
    """Return `text` if it can be stored as the text of `schema`, else a text of our own."""
    if schema is None:
        return None
    if text is not None and _reads_as(text, schema):
        return text
    return _encode(schema_to_json(schema))


def _reads_as(text: bytes, schema: TableSchema) -> bool:
    try:
        return schema_from_json(json.loads(text), "$") == schema
    except (ValueError, WireError):
        return False


# ---------------------------------------------------------------- the Simple protocol in JSON

_Integer = Annotated[int, msgspec.Meta(ge=0, le=MAX_TSO)]
_Uint32 = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
_ABSENT: Final = msgspec.Raw()
_MISSING: Final = -1


class _Message(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A row or a watermark of the shape TiCDC writes; the names are those of the protocol."""

    version: Literal[1]
    type: Literal["INSERT", "UPDATE", "DELETE", "WATERMARK"]
    commitTs: _Integer
    buildTs: _Integer
    database: str = ""
    table: str = ""
    tableID: _Integer = _MISSING
    schemaVersion: _Integer = _MISSING
    claimCheckLocation: str | None = None
    handleKeyOnly: bool | None = None
    checksum: msgspec.Raw = _ABSENT
    data: msgspec.Raw = _ABSENT
    old: msgspec.Raw = _ABSENT


class _Timestamp(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    location: str
    value: str


class _Checksum(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    version: _Integer
    corrupted: bool
    current: _Uint32
    previous: _Uint32


class _Schemas(msgspec.Struct, gc=False):
    tableSchema: msgspec.Raw = _ABSENT
    preTableSchema: msgspec.Raw = _ABSENT


_decode_message: Final = msgspec.json.Decoder(_Message).decode
_check_image: Final = msgspec.json.Decoder(dict[str, str | _Timestamp | None]).decode
_check_checksum: Final = msgspec.json.Decoder(_Checksum).decode
_decode_schemas: Final = msgspec.json.Decoder(_Schemas).decode
_decode_stored_image: Final = msgspec.json.Decoder(dict[str, str | ZonedTimestamp | None]).decode
_decode_stored_checksum: Final = msgspec.json.Decoder(Checksum).decode
_encode: Final = msgspec.json.Encoder().encode

# Of each row type: its op, and whether it has `data` and `old`.
_IMAGES: Final[Mapping[str, tuple[str, bool, bool]]] = {
    kind.value: (op.value, kind is not MessageType.DELETE, kind is not MessageType.INSERT)
    for kind, op in OPS.items()
}

# A member that is thrown away and nests deeper than MAX_DEPTH takes this many bytes at least,
# and what every message has besides takes some more.
_SHORTEST_DEEP: Final = 2 * (MAX_DEPTH + 1)


def _simple_json(batch: pa.RecordBatch) -> _Rows:
    column = batch.column("value")
    values: list[bytes | None] = column.to_pylist()
    suspects = _not_utf8(column, values)
    rows = _Rows()
    for number, value in enumerate(values):
        common = None if value is None or number in suspects else _plain_row(value)
        if common is None:
            record = Record(key=None, value=value)
            rows.add(number, _decoded(WireFormat.SIMPLE_JSON, record, _simple_json_schemas))
        else:
            rows.sources.append(number)
            rows.common.append(common)
    return rows


def _not_utf8(column: "pa.Array[Any]", values: Sequence[bytes | None]) -> frozenset[int]:
    """Return the numbers of the values that are no UTF-8."""
    try:
        column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return frozenset(
            number
            for number, value in enumerate(values)
            if value is not None and not _is_utf8(value)
        )
    return frozenset()


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _plain_row(value: bytes) -> _Common | None:
    """Return the common columns of a row or watermark of the plain shape, else None."""
    try:
        message = _decode_message(value)
        data, old, checksum = message.data, message.old, message.checksum
        rest = len(value) - len(data) - len(old) - len(checksum)
        if rest >= _SHORTEST_DEEP and value.count(b"{") + value.count(b"[") > MAX_DEPTH:
            return None
        images = _IMAGES.get(message.type)
        if images is None:
            return _plain_watermark(message)
        op, has_data, has_old = images
        if (
            bool(data) is not has_data
            or bool(old) is not has_old
            or message.tableID == _MISSING
            or message.schemaVersion == _MISSING
            or not message.database
            or not message.table
        ):
            return None
        if has_data:
            _check_image(data)
        if has_old:
            _check_image(old)
        if checksum:
            _check_checksum(checksum)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return (
        0,
        ROW,
        op,
        message.commitTs,
        message.buildTs,
        message.database,
        message.table,
        message.tableID,
        message.schemaVersion,
        bytes(old) if has_old else None,
        bytes(data) if has_data else None,
        message.handleKeyOnly or False,
        message.claimCheckLocation or None,
        bytes(checksum) if checksum else None,
    )


def _plain_watermark(message: _Message) -> _Common | None:
    if message.data or message.old or message.checksum:
        return None
    return (0, WATERMARK, None, message.commitTs, message.buildTs, *(None,) * 9)


def _simple_json_schemas(record: Record) -> tuple[bytes | None, bytes | None]:
    schemas = _decode_schemas(record.value or b"{}")
    return bytes(schemas.tableSchema) or None, bytes(schemas.preTableSchema) or None


_DECODERS: Final[Mapping[WireFormat, Callable[[pa.RecordBatch], _Rows]]] = {
    WireFormat.SIMPLE_JSON: _simple_json,
}
