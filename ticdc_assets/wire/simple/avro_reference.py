"""The Simple protocol in Avro: one record to one event.

In: a Kafka record whose value is one message in Avro's binary encoding (`avro`), without a schema
and without a mark of one; both sides know the schema, which is below and in docs/formats/simple.md.
The record's key is ignored: TiCDC sends none. Out: a list of exactly one event, or a `WireError`
whose position is a byte of the value, or a path such as `$.data.id` for a value that does not fit.
Decoding depends on the value alone.

This is the readable reference; `avro_batch` gives the same meaning faster. What the fields
mean, and which a message type has, is a table in `message`, shared with the JSON encoding.

A message is the branch `MESSAGE_BRANCH` of a union of all records, a symbol of `MESSAGE_TYPES`, and
the branch of a union that this symbol says: a version, and the fields in `PAYLOADS`. Values become
the spelling that all formats share (`events.PhysicalValue`). A BIT(64) or SET of 64 labels with its
top bit is a negative long, and stays negative text: a row does not say which type a column has
(`values.canonical` reads it back).

The `default` of a column is raw bytes, whatever the schema calls it: that of a BIT is its bits, and
that of a binary column may not be UTF-8. The BIT's becomes a number, as in the JSON encoding; the
bytes of the other are kept, which the JSON encoding loses.

Source: message.json, avro.go and encodeValue4Avro of message.go in pingcap/tiflow
pkg/sink/codec/simple at 017624f.

Not handled: compressed values, which are refused as bytes of another record.
"""

import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.model.events import Event, PhysicalValue, ZonedTimestamp
from ticdc_assets.model.json_fields import required_not_null
from ticdc_assets.model.mysql_types import Kind as ColumnKind
from ticdc_assets.model.mysql_types import kind_of
from ticdc_assets.model.schemas import (
    ColumnSchema,
    TableSchema,
    default_to_json,
    sent_schema,
)
from ticdc_assets.model.values.floats import double_text, float_text
from ticdc_assets.wire.codes import Form
from ticdc_assets.wire.fields import READERS, Kind, Reader, read_fields
from ticdc_assets.wire.go_json import member
from ticdc_assets.wire.record import Record, content_of
from ticdc_assets.wire.simple import avro
from ticdc_assets.wire.simple.message import (
    FIELDS,
    check_version,
    event_from_fields,
    message_type,
    read_checksum,
)

MESSAGE_TYPES: Final = ("WATERMARK", "BOOTSTRAP", "DDL", "DML")
"""Symbols of `Message.type`, and in the same order the branches of `Message.payload`."""
DDL_SYMBOLS: Final = (
    "CREATE",
    "ALTER",
    "ERASE",
    "RENAME",
    "TRUNCATE",
    "CINDEX",
    "DINDEX",
    "QUERY",
)
"""Symbols of `DDL.type`."""
DML_SYMBOLS: Final = ("INSERT", "UPDATE", "DELETE")
"""Symbols of `DML.type`."""

MESSAGE_BRANCH: Final = 11
"""The branch of a `Message` in the union of all records."""

DATA_TYPE: Final = avro.record(
    mysqlType=avro.STRING,
    charset=avro.STRING,
    collate=avro.STRING,
    length=avro.LONG,
    decimal=avro.Optional(avro.INT),
    elements=avro.Optional(avro.Array(avro.STRING)),
    unsigned=avro.Optional(avro.BOOLEAN),
    zerofill=avro.Optional(avro.BOOLEAN),
)
COLUMN_SCHEMA: Final = avro.record(
    name=avro.STRING,
    dataType=DATA_TYPE,
    nullable=avro.BOOLEAN,
    # A string by its schema; its bytes need not be text.
    default=avro.Optional(avro.BYTES),
)
INDEX_SCHEMA: Final = avro.record(
    name=avro.STRING,
    unique=avro.BOOLEAN,
    primary=avro.BOOLEAN,
    nullable=avro.BOOLEAN,
    columns=avro.Array(avro.STRING),
)
TABLE_SCHEMA: Final = avro.record(
    database=avro.STRING,
    table=avro.STRING,
    tableID=avro.LONG,
    version=avro.LONG,
    columns=avro.Array(COLUMN_SCHEMA),
    indexes=avro.Array(INDEX_SCHEMA),
)
CHECKSUM_RECORD: Final = avro.record(
    version=avro.INT,
    corrupted=avro.BOOLEAN,
    current=avro.LONG,
    previous=avro.LONG,
)
TIMESTAMP: Final = avro.record(location=avro.STRING, value=avro.STRING)
UNSIGNED_BIGINT: Final = avro.record(value=avro.LONG)

BRANCHES: Final[Mapping[Form, avro.AvroType]] = {
    Form.NULL: avro.NULL,
    Form.SIGNED: avro.LONG,
    Form.FLOAT: avro.FLOAT,
    Form.DOUBLE: avro.DOUBLE,
    Form.TEXT: avro.STRING,
    Form.BASE64: avro.BYTES,
    Form.ZONED: TIMESTAMP,
    Form.UNSIGNED: UNSIGNED_BIGINT,
}
"""The branches of `VALUES` in their order, each by the form of its values."""
FORMS: Final = tuple(BRANCHES)
"""The form of each branch, by its number."""
VALUES: Final = avro.Union(dict(enumerate(BRANCHES.values())))
"""The values of an image."""

# Each after its version, which is checked before anything else.
WATERMARK: Final = avro.record(commitTs=avro.LONG, buildTs=avro.LONG)
BOOTSTRAP: Final = avro.record(buildTs=avro.LONG, tableSchema=TABLE_SCHEMA)
DDL: Final = avro.record(
    type=avro.Enum(DDL_SYMBOLS),
    sql=avro.STRING,
    commitTs=avro.LONG,
    buildTs=avro.LONG,
    tableSchema=avro.Optional(TABLE_SCHEMA),
    preTableSchema=avro.Optional(TABLE_SCHEMA),
)
DML: Final = avro.record(
    database=avro.STRING,
    table=avro.STRING,
    tableID=avro.LONG,
    type=avro.Enum(DML_SYMBOLS),
    commitTs=avro.LONG,
    buildTs=avro.LONG,
    schemaVersion=avro.LONG,
    claimCheckLocation=avro.Optional(avro.STRING),
    handleKeyOnly=avro.Optional(avro.BOOLEAN),
    checksum=avro.Optional(CHECKSUM_RECORD),
    data=avro.Optional(avro.Map(VALUES)),
    old=avro.Optional(avro.Map(VALUES)),
)
PAYLOADS: Final[Mapping[str, avro.RecordType]] = {
    "WATERMARK": WATERMARK,
    "BOOTSTRAP": BOOTSTRAP,
    "DDL": DDL,
    "DML": DML,
}
"""The payload of each type of message, after its version."""

HEADER_ENUM: Final = avro.Enum(MESSAGE_TYPES)
"""The type of `Message.type`."""


def decode(record: Record) -> list[Event]:
    """Return the one event of `record`.

    Raises:
        WireError: the value is not a message of the Simple protocol in Avro.
        UnsupportedVersionError: the message has another version.
    """
    reader = avro.Reader(content_of(record.value, "an Avro message"))
    wrapper = _wrapper(reader)
    check_version(avro.INT.read(reader))
    sent = PAYLOADS[wrapper].read(reader)
    reader.finish()
    kind = message_type(sent.get("type", wrapper))
    fields = read_fields(sent, FIELDS[kind], readers=_READERS, read_required=required_not_null)
    return [event_from_fields(kind, fields)]


def _wrapper(reader: avro.Reader) -> str:
    branch = reader.varint()
    if branch != MESSAGE_BRANCH:
        raise WireError(
            "unknown_branch", "byte 0", f"branch {MESSAGE_BRANCH}, a Message", str(branch)
        )
    wrapper = HEADER_ENUM.read(reader)
    start = reader.position
    payload = reader.varint()
    if payload != MESSAGE_TYPES.index(wrapper):
        raise WireError(
            "unknown_branch",
            f"byte {start}",
            f"branch {MESSAGE_TYPES.index(wrapper)}, the payload of a {wrapper}",
            str(payload),
        )
    return wrapper


def _image(value: Mapping[str, tuple[int, Any]], position: str) -> dict[str, PhysicalValue]:
    return {name: _physical(branch, item, position, name) for name, (branch, item) in value.items()}


def _physical(branch: int, item: Any, position: str, name: str) -> PhysicalValue:
    text = _TEXTS.get(FORMS[branch])
    if text is None:
        return item
    if type(item) is float and not math.isfinite(item):
        # TiCDC writes 0 for them (golden/QUIRKS.md A13), and no MySQL type has such values.
        raise WireError("not_finite", member(position, name), "a finite number", str(item))
    return text(item)


_TEXTS: Final[Mapping[Form, Callable[[Any], PhysicalValue]]] = {
    Form.SIGNED: str,
    Form.FLOAT: float_text,
    Form.DOUBLE: double_text,
    Form.BASE64: lambda item: b64encode(item).decode(),
    Form.ZONED: lambda item: ZonedTimestamp(**item),
    Form.UNSIGNED: lambda item: str(item["value"] % 2**64),
}
"""The text of a value of each form; other values stay as they were read."""


def _schema(value: Mapping[str, Any], position: str) -> TableSchema:
    return sent_schema(_schema_as_json(value, position), position)


def _schema_as_json(value: Mapping[str, Any], position: str) -> dict[str, Any]:
    """Return the JSON encoding of the same schema."""
    return {
        "schema": value["database"],
        "table": value["table"],
        "tableID": value["tableID"],
        "version": value["version"],
        "columns": [
            {
                "name": column["name"],
                "dataType": column["dataType"],
                "nullable": column["nullable"],
                "default": _default(column, f"{position}.columns[{number}].default"),
            }
            for number, column in enumerate(value["columns"])
        ],
        "indexes": value["indexes"],
    }


def _default(column: Mapping[str, Any], position: str) -> Any:
    raw: bytes | None = column["default"]
    if raw is None:
        return None
    data_type = column["dataType"]
    kind = kind_of(
        ColumnSchema(
            name=column["name"], mysql_type=data_type["mysqlType"], charset=data_type["charset"]
        )
    )
    if kind is ColumnKind.BIT:
        bits = raw.lstrip(b"\0")
        if len(bits) > 8:
            raise WireError("out_of_range", position, "at most 64 bits", shorten(raw))
        return int.from_bytes(bits)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if kind is ColumnKind.BINARY:
            return default_to_json(raw)
        got = shorten(raw[error.start : error.start + 16])
    raise WireError("invalid_utf8", position, "UTF-8", got)


_READERS: Final[Mapping[Kind, Reader]] = {
    **READERS,
    Kind.IMAGE: _image,
    Kind.CHECKSUM: read_checksum,
    Kind.SCHEMA: _schema,
}
