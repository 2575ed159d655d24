"""The Simple protocol in Avro: one record an event.

In: events whose rows have their shape. Out: records whose value is one message, as
`wire.simple.avro_reference` reads it; its tables are the layout here too.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from ticdc_assets.base.errors import shorten
from ticdc_assets.demo.simulator.encoders.craft import write_varint
from ticdc_assets.demo.simulator.encoders.simple_json import fields_from_event
from ticdc_assets.model.events import Event, Image, PhysicalValue, RowChange
from ticdc_assets.model.mysql_types import Kind as ColumnKind
from ticdc_assets.model.mysql_types import base_type, is_unsigned, kind_of
from ticdc_assets.model.schemas import (
    ColumnFlag,
    ColumnSchema,
    RowShape,
    TableSchema,
    schema_to_json,
)
from ticdc_assets.wire.codes import Form
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.simple import avro
from ticdc_assets.wire.simple.avro_reference import (
    DDL_SYMBOLS,
    FORMS,
    HEADER_ENUM,
    MESSAGE_BRANCH,
    MESSAGE_TYPES,
    PAYLOADS,
)
from ticdc_assets.wire.simple.message import OPS, VERSION, MessageType


def encode(events: Sequence[Event], *, ticdc: bool = False) -> list[Record]:
    """Return the records that TiCDC would send for `events`, one for each.

    TiCDC writes the columns of a row in no order; here they have the order of the image. The new
    TiCDC (`ticdc`) writes BIT as decimal text, and the digits of TIMESTAMP.
    """
    return [Record(key=None, value=_encoded(event, ticdc=ticdc)) for event in events]


def _encoded(event: Event, *, ticdc: bool) -> bytes:
    sent = fields_from_event(event)
    if isinstance(event, RowChange):
        sent |= _row_fields(event, ticdc=ticdc)
    kind = MessageType(sent["type"])
    wrapper = "DML" if kind in OPS else "DDL" if kind in DDL_SYMBOLS else kind.value
    written = {
        name: _WRITERS[name](value) if name in _WRITERS else value for name, value in sent.items()
    }
    for name in sent.keys() & {"tableSchema", "preTableSchema"}:
        written[name] = _schema_fields(sent[name], ticdc=ticdc)
    return write_message(wrapper, written)


def write_message(wrapper: str, payload: Mapping[str, Any], *, version: int = VERSION) -> bytes:
    """Return the message of a payload of `wire.simple.avro_reference.PAYLOADS`."""
    out = bytearray()
    write(out, avro.LONG, MESSAGE_BRANCH)
    write(out, HEADER_ENUM, wrapper)
    write(out, avro.LONG, MESSAGE_TYPES.index(wrapper))
    write(out, avro.INT, version)
    write(out, PAYLOADS[wrapper], payload)
    return bytes(out)


def _row_fields(row: RowChange, *, ticdc: bool) -> dict[str, Any]:
    """Return the fields of a row that only its shape can write, or that zero leaves out."""
    assert row.shape is not None
    columns = _columns(row.shape)
    images: dict[str, Image | None] = {"data": row.after, "old": row.before}
    return {
        "tableID": row.table_id,
        "schemaVersion": row.schema_version,
        **{
            name: {key: _branch(columns, key, item, ticdc=ticdc) for key, item in image.items()}
            for name, image in images.items()
            if image is not None
        },
    }


def _columns(shape: RowShape) -> dict[str, ColumnSchema]:
    return {
        column.name: ColumnSchema(
            name=column.name,
            mysql_type=column.mysql_type,
            unsigned=bool(column.flags and column.flags & ColumnFlag.UNSIGNED),
            charset="binary" if column.flags and column.flags & ColumnFlag.BINARY else "",
        )
        for column in shape.columns
    }


def _branch(
    columns: Mapping[str, ColumnSchema], name: str, value: PhysicalValue, *, ticdc: bool
) -> tuple[int, Any]:
    """Return the branch of a value and what is written there."""
    if value is None:
        return FORMS.index(Form.NULL), None
    column = columns[name]
    kind = kind_of(column)
    form = Form.TEXT if ticdc and kind is ColumnKind.BIT else _FORMS.get(kind, Form.TEXT)
    if kind is ColumnKind.INTEGER and base_type(column) == "bigint" and is_unsigned(column):
        form = Form.UNSIGNED
    return FORMS.index(form), _VALUES[form](value)


def _signed(text: str) -> int:
    # TiCDC casts uint64, what BIT and SET are, to int64.
    number = int(text)
    return number - 2**64 if number >= 2**63 else number


_VALUES: Final[Mapping[Form, Callable[[Any], Any]]] = {
    Form.SIGNED: _signed,
    Form.FLOAT: float,
    Form.DOUBLE: float,
    Form.TEXT: str,
    Form.BASE64: b64decode,
    Form.ZONED: asdict,
    Form.UNSIGNED: lambda text: {"value": _signed(text)},
}
"""What is written of a value that is not NULL."""

_FORMS: Final[Mapping[ColumnKind, Form]] = {
    ColumnKind.INTEGER: Form.SIGNED,
    ColumnKind.BIT: Form.SIGNED,
    ColumnKind.YEAR: Form.SIGNED,
    ColumnKind.ENUM: Form.SIGNED,
    ColumnKind.SET: Form.SIGNED,
    ColumnKind.FLOAT: Form.FLOAT,
    ColumnKind.DOUBLE: Form.DOUBLE,
    ColumnKind.BINARY: Form.BASE64,
    ColumnKind.TIMESTAMP: Form.ZONED,
}
"""The form of each kind of column that is no text; BIGINT UNSIGNED has its own."""

_SIGNED: Final = frozenset(
    {
        ColumnKind.INTEGER,
        ColumnKind.BIT,
        ColumnKind.YEAR,
        ColumnKind.FLOAT,
        ColumnKind.DOUBLE,
        ColumnKind.DECIMAL,
    }
)
"""Kinds whose schemas say `unsigned` and `zerofill`."""


def _schema_fields(schema: TableSchema, *, ticdc: bool) -> dict[str, Any]:
    written = schema_to_json(schema)
    for fields, column in zip(written["columns"], schema.columns, strict=True):
        fields["dataType"] |= _kind_fields(column, ticdc=ticdc)
        fields["default"] = _default_bytes(column)
    return written | {"database": schema.database}


def _kind_fields(column: ColumnSchema, *, ticdc: bool) -> dict[str, Any]:
    """Return the fields that only some kinds of columns have, null for the others."""
    kind = kind_of(column)
    scaled = kind is ColumnKind.DECIMAL or (ticdc and kind is ColumnKind.TIMESTAMP)
    signed, labelled = kind in _SIGNED, kind in (ColumnKind.ENUM, ColumnKind.SET)
    return {
        "decimal": column.decimal if scaled else None,
        "elements": column.elements if labelled else None,
        "unsigned": column.unsigned if signed else None,
        "zerofill": column.zerofill if signed else None,
    }


def _default_bytes(column: ColumnSchema) -> bytes | None:
    match column.default:
        case int():
            # TiDB keeps that of a BIT as wide as the column.
            width = max((column.length + 7) // 8, (column.default.bit_length() + 7) // 8, 1)
            return column.default.to_bytes(width)
        case str():
            return column.default.encode()
        case None | bytes():
            return column.default


_WRITERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    # Go leaves an empty location out.
    "handleKeyOnly": lambda value: value or None,
    "checksum": asdict,
}
"""Fields that are written otherwise than they are in the event."""


# Avro ---------------------------------------------------------------------------------------------


def write(out: bytearray, kind: avro.AvroType, value: Any) -> None:
    """Append `value`, which is of the type `kind`; a field of a record that is absent as None.

    Raises:
        ValueError: it is no value of the type.
    """
    match kind:
        case avro.Null():
            if value is not None:
                raise ValueError(f"not null: {shorten(value)}")
        case avro.Boolean():
            out.append(1 if value else 0)
        case avro.Integer():
            if not kind.low <= value <= kind.high:
                raise ValueError(f"not from {kind.low} to {kind.high}: {value}")
            out += write_varint(value)
        case avro.Floating():
            try:
                out += kind.layout.pack(value)
            except OverflowError as error:
                raise ValueError(f"too large for a float: {value}") from error
        case avro.Bytes():
            write(out, avro.LONG, len(value))
            out += value
        case avro.String():
            write(out, avro.BYTES, value.encode())
        case avro.Enum():
            write(out, avro.LONG, kind.symbols.index(value))
        case avro.Union():
            number, inner = value
            write(out, avro.LONG, number)
            write(out, kind.branches[number], inner)
        case avro.Optional():
            out.append(0 if value is None else 2)
            if value is not None:
                write(out, kind.type, value)
        case avro.RecordType():
            for name, field in kind.fields:
                write(out, field, value.get(name))
        case avro.Array():
            if value:
                write(out, avro.LONG, len(value))
            for item in value:
                write(out, kind.items, item)
            out.append(0)
        case avro.Map():
            if value:
                write(out, avro.LONG, len(value))
            for name, item in value.items():
                write(out, avro.STRING, name)
                write(out, kind.values, item)
            out.append(0)
        case _:
            raise TypeError(f"an unknown type of Avro: {kind!r}")
