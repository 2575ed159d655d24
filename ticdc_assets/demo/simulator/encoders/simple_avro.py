"""The Simple protocol in Avro: one record an event.

In: events whose rows have their shape. Out: records whose value is one message, as
`wire.simple_avro` reads it; its tables are the layout here too.
"""

import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from ticdc_assets.base.errors import shorten
from ticdc_assets.demo.simulator.encoders import numbers
from ticdc_assets.demo.simulator.encoders.avro import write
from ticdc_assets.demo.simulator.encoders.simple_json import fields_from_event
from ticdc_assets.model.events import Event, Image, PhysicalValue, RowChange, ZonedTimestamp
from ticdc_assets.model.mysql_types import Kind as ColumnKind
from ticdc_assets.model.mysql_types import base_type, is_unsigned, kind_of
from ticdc_assets.model.schemas import (
    ColumnFlag,
    ColumnSchema,
    RowShape,
    TableSchema,
    schema_to_json,
)
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.wire import avro
from ticdc_assets.wire.fields import Field, Kind, Presence
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.simple_avro import (
    DDL_SYMBOLS,
    FORMS,
    HEADER_ENUM,
    MESSAGE_BRANCH,
    MESSAGE_TYPES,
    PAYLOADS,
)
from ticdc_assets.wire.simple_message import FIELDS, OPS, VERSION, MessageType
from ticdc_assets.wire.value_forms import Form


def encode(events: Sequence[Event], *, ticdc: bool = False) -> list[Record]:
    """Return the records that TiCDC would send for `events`, one for each.

    TiCDC writes the columns of a row in no order; here they have the order of the image.

    Args:
        events: the events.
        ticdc: whether the new TiCDC writes: BIT as decimal text, and the digits of TIMESTAMP.

    Raises:
        ValueError: a row has no shape that names its columns, or an event has what Avro cannot
            hold.
    """
    return [Record(key=None, value=_encoded(event, ticdc=ticdc)) for event in events]


def _encoded(event: Event, *, ticdc: bool) -> bytes:
    if event.build_ts_ms is None:
        raise ValueError("Simple Avro needs a build time")
    sent = fields_from_event(event)
    if isinstance(event, RowChange):
        sent |= _row_fields(event, ticdc=ticdc)
    kind = MessageType(sent["type"])
    wrapper = "DML" if kind in OPS else "DDL" if kind in DDL_SYMBOLS else kind.value
    for field in FIELDS[kind]:
        _check(sent, field)
    out = bytearray()
    write(out, avro.LONG, MESSAGE_BRANCH)
    write(out, HEADER_ENUM, wrapper)
    write(out, avro.LONG, MESSAGE_TYPES.index(wrapper))
    write(out, avro.INT, VERSION)
    written = {
        name: _WRITERS[name](value) if name in _WRITERS else value for name, value in sent.items()
    }
    for name in sent.keys() & {"tableSchema", "preTableSchema"}:
        written[name] = _schema_fields(sent[name], ticdc=ticdc)
    write(out, PAYLOADS[wrapper], written)
    return bytes(out)


def _row_fields(row: RowChange, *, ticdc: bool) -> dict[str, Any]:
    """Return the fields of a row that only its shape can write, or that zero leaves out."""
    if row.table_id is None or row.schema_version is None or row.es_only:
        raise ValueError("Simple Avro needs a table id, a schema version and a commit ts")
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


def _columns(shape: RowShape | None) -> dict[str, ColumnSchema]:
    if shape is None:
        raise ValueError("Simple Avro needs the shape of a row")
    return {
        column.name: ColumnSchema(
            name=column.name,
            mysql_type=column.mysql_type,
            unsigned=bool(column.flags and column.flags & ColumnFlag.UNSIGNED),
            charset="binary" if column.flags and column.flags & ColumnFlag.BINARY else "",
        )
        for column in shape.columns
    }


def _check(sent: Mapping[str, Any], field: Field) -> None:
    """Refuse to write what `decode` would refuse to read."""
    value = sent.get(field.name)
    missing = not value if field.kind is Kind.NAME else value is None
    if field.presence is Presence.REQUIRED and missing:
        raise ValueError(f"a {sent['type']} needs {field.name}")
    if field.presence is Presence.ABSENT and value is not None:
        raise ValueError(f"a {sent['type']} has no {field.name}")
    if field.kind is Kind.INTEGER and value is not None and not 0 <= value <= MAX_TSO:
        raise ValueError(f"{field.name} is not from 0 to {MAX_TSO}: {value}")


def _branch(
    columns: Mapping[str, ColumnSchema], name: str, value: PhysicalValue, *, ticdc: bool
) -> tuple[int, Any]:
    """Return the branch of a value and what is written there."""
    column = columns.get(name)
    if column is None:
        raise ValueError(f"the shape has no column {name!r}")
    if value is None:
        return FORMS.index(Form.NULL), None
    kind = kind_of(column)
    form = Form.TEXT if ticdc and kind is ColumnKind.BIT else _FORMS[kind]
    if kind is ColumnKind.INTEGER and base_type(column) == "bigint" and is_unsigned(column):
        form = Form.UNSIGNED
    if isinstance(value, ZonedTimestamp) is not (form is Form.ZONED):
        raise ValueError(f"no value of a {kind} column: {shorten(value)}")
    return FORMS.index(form), _VALUES[form](value)


def _signed(text: str) -> int:
    # TiCDC casts uint64, what BIT and SET are, to int64.
    return _as_int64(numbers.integer(text, -(2**63), 2**64 - 1))


def _unsigned(text: str) -> dict[str, int]:
    return {"value": _as_int64(numbers.integer(text, 0, 2**64 - 1))}


def _as_int64(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _base64(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


_VALUES: Final[Mapping[Form, Callable[[Any], Any]]] = {
    Form.SIGNED: _signed,
    Form.FLOAT: numbers.double,
    Form.DOUBLE: numbers.double,
    Form.TEXT: str,
    Form.BASE64: _base64,
    Form.ZONED: asdict,
    Form.UNSIGNED: _unsigned,
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
    ColumnKind.DECIMAL: Form.TEXT,
    ColumnKind.DATE: Form.TEXT,
    ColumnKind.DATETIME: Form.TEXT,
    ColumnKind.TIME: Form.TEXT,
    ColumnKind.TEXT: Form.TEXT,
    ColumnKind.JSON: Form.TEXT,
    ColumnKind.VECTOR: Form.TEXT,
    ColumnKind.UNKNOWN: Form.TEXT,
    ColumnKind.BINARY: Form.BASE64,
    ColumnKind.TIMESTAMP: Form.ZONED,
}
"""The form of each kind of column; BIGINT UNSIGNED has its own."""

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
    json_form = schema_to_json(schema)
    return {
        "database": schema.database,
        "table": schema.table,
        "tableID": schema.table_id,
        "version": schema.version,
        "columns": [_column_fields(column, ticdc=ticdc) for column in schema.columns],
        "indexes": json_form["indexes"],
    }


def _column_fields(column: ColumnSchema, *, ticdc: bool) -> dict[str, Any]:
    kind = kind_of(column)
    scaled = kind is ColumnKind.DECIMAL or (ticdc and kind is ColumnKind.TIMESTAMP)
    signed, labelled = kind in _SIGNED, kind in (ColumnKind.ENUM, ColumnKind.SET)
    return {
        "name": column.name,
        "dataType": {
            "mysqlType": column.mysql_type,
            "charset": column.charset,
            "collate": column.collation,
            "length": column.length,
            "decimal": column.decimal if scaled else None,
            "elements": column.elements if labelled else None,
            "unsigned": column.unsigned if signed else None,
            "zerofill": column.zerofill if signed else None,
        },
        "nullable": column.nullable,
        "default": _default_bytes(column, kind),
    }


def _default_bytes(column: ColumnSchema, kind: ColumnKind) -> bytes | None:
    match column.default:
        case None:
            return None
        case int() if kind is ColumnKind.BIT:
            # TiDB keeps it as wide as the column.
            width = max((column.length + 7) // 8, (column.default.bit_length() + 7) // 8, 1)
            return column.default.to_bytes(width)
        case str() if kind is not ColumnKind.BIT:
            return column.default.encode()
        case bytes() if kind is ColumnKind.BINARY:
            return column.default
        case _:
            raise ValueError(f"no default of a {kind} column: {shorten(column.default)}")


_WRITERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    # Go leaves an empty location out.
    "handleKeyOnly": lambda value: value or None,
    "checksum": asdict,
}
"""Fields that are written otherwise than they are in the event."""
