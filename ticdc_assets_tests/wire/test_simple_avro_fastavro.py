"""What the Simple Avro encoder writes, read by fastavro: a reader that shares no code with ours.

Both know the schema of docs/formats/simple.md, each in its own words. Its defaults are bytes here
too, as what TiCDC writes there need not be text. TiCDC's real messages are read by the same schema,
where they are present, so that it is the one in the topic and not one that only we agree on.
"""

import io
import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader
from hypothesis import given

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import (
    Bootstrap,
    DdlEvent,
    Event,
    Image,
    PhysicalValue,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.schemas import ColumnFlag, ColumnSchema, RowShape, TableSchema
from ticdc_assets.model.values.floats import double_text, float_text, to_float32
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.test_simple_avro import KINDS, MESSAGES, SHAPE, SMALL, events

Read = dict[str, Any]


def record(name: str, /, **fields: Any) -> Read:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


def array(items: Any) -> Read:
    return {"type": "array", "items": items}


def enum(name: str, words: str) -> Read:
    return {"type": "enum", "name": name, "symbols": words.split()}


VALUES = ["null", "long", "float", "double", "string", "bytes", "Timestamp", "UnsignedBigint"]
IMAGE = ["null", {"type": "map", "values": VALUES}]

SCHEMA = parse_schema(
    [
        record(
            "DataType",
            mysqlType="string",
            charset="string",
            collate="string",
            length="long",
            decimal=["null", "int"],
            elements=["null", array("string")],
            unsigned=["null", "boolean"],
            zerofill=["null", "boolean"],
        ),
        record(
            "ColumnSchema",
            name="string",
            dataType="DataType",
            nullable="boolean",
            default=["null", "bytes"],
        ),
        record(
            "IndexSchema",
            name="string",
            unique="boolean",
            primary="boolean",
            nullable="boolean",
            columns=array("string"),
        ),
        record(
            "TableSchema",
            database="string",
            table="string",
            tableID="long",
            version="long",
            columns=array("ColumnSchema"),
            indexes=array("IndexSchema"),
        ),
        record("Checksum", version="int", corrupted="boolean", current="long", previous="long"),
        record("Timestamp", location="string", value="string"),
        record("UnsignedBigint", value="long"),
        record("Watermark", version="int", commitTs="long", buildTs="long"),
        record("Bootstrap", version="int", buildTs="long", tableSchema="TableSchema"),
        record(
            "DDL",
            version="int",
            type=enum("DdlType", "CREATE ALTER ERASE RENAME TRUNCATE CINDEX DINDEX QUERY"),
            sql="string",
            commitTs="long",
            buildTs="long",
            tableSchema=["null", "TableSchema"],
            preTableSchema=["null", "TableSchema"],
        ),
        record(
            "DML",
            version="int",
            database="string",
            table="string",
            tableID="long",
            type=enum("DmlType", "INSERT UPDATE DELETE"),
            commitTs="long",
            buildTs="long",
            schemaVersion="long",
            claimCheckLocation=["null", "string"],
            handleKeyOnly=["null", "boolean"],
            checksum=["null", "Checksum"],
            data=IMAGE,
            old=IMAGE,
        ),
        record(
            "Message",
            type=enum("MessageType", "WATERMARK BOOTSTRAP DDL DML"),
            payload=["Watermark", "Bootstrap", "DDL", "DML"],
        ),
    ]
)


def read(value: bytes | None) -> Read:
    """Return what fastavro reads, and that it is all there is."""
    stream = io.BytesIO(value or b"")
    message = schemaless_reader(stream, SCHEMA, None)
    assert stream.read() == b""
    assert isinstance(message, dict)
    return message


# What an event says, in the words of the schema --------------------------------------------------


def message_of(event: Event, types: Mapping[str, str]) -> Read:
    """Return what is to be read of `event`, whose columns are of `types`."""
    if isinstance(event, RowChange):
        return {"type": "DML", "payload": row_of(event, types)}
    said: Read = {"version": 1, "buildTs": event.build_ts_ms}
    match event:
        case Watermark():
            return {"type": "WATERMARK", "payload": said | {"commitTs": event.watermark_ts}}
        case Bootstrap():
            return {"type": "BOOTSTRAP", "payload": said | {"tableSchema": table_of(event.schema)}}
        case DdlEvent():
            said |= {"type": event.ddl_type, "sql": event.sql, "commitTs": event.commit_ts}
            said["tableSchema"] = table_of(event.schema)
            said["preTableSchema"] = table_of(event.pre_schema)
            return {"type": "DDL", "payload": said}


def row_of(event: RowChange, types: Mapping[str, str]) -> Read:
    return {
        "version": 1,
        "database": event.database,
        "table": event.table,
        "tableID": event.table_id,
        "type": event.op.upper(),
        "commitTs": event.commit_ts,
        "buildTs": event.build_ts_ms,
        "schemaVersion": event.schema_version,
        "claimCheckLocation": event.claim_check_location,
        "handleKeyOnly": event.handle_key_only or None,
        "checksum": event.checksum and asdict(event.checksum),
        "data": image_of(event.after, types),
        "old": image_of(event.before, types),
    }


def image_of(image: Image | None, types: Mapping[str, str]) -> Read | None:
    return image and {name: value_of(value, types[name]) for name, value in image.items()}


def value_of(value: PhysicalValue, mysql_type: str) -> Any:
    """Return the value as Avro holds it, by the name of its type."""
    if value is None:
        return None
    if isinstance(value, ZonedTimestamp):
        return {"location": value.location, "value": value.value}
    match mysql_type:
        case "bigint unsigned":
            return {"value": signed(int(value))}
        case "float":
            return struct.unpack("<f", struct.pack("<f", float(value)))[0]
        case "double":
            return float(value)
        case "year" | "bit" | "enum" | "set":
            return signed(int(value))
        case _ if mysql_type.split()[0].endswith("int"):
            return int(value)
        case _ if "blob" in mysql_type or "binary" in mysql_type:
            return b64decode(value)
        case _:
            return value


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def table_of(schema: TableSchema | None) -> Read | None:
    return schema and {
        "database": schema.database,
        "table": schema.table,
        "tableID": schema.table_id,
        "version": schema.version,
        "columns": [column_of(column) for column in schema.columns],
        "indexes": [asdict(index) | {"columns": list(index.columns)} for index in schema.indexes],
    }


def column_of(column: ColumnSchema) -> Read:
    match column.default:
        case int() as bits:
            default: bytes | None = bits.to_bytes(8)
        case str() as words:
            default = words.encode()
        case bytes() as exact:
            default = exact
        case None:
            default = None
    return {
        "name": column.name,
        "dataType": {
            "mysqlType": column.mysql_type,
            "charset": column.charset,
            "collate": column.collation,
            "length": column.length,
            "decimal": column.decimal,
            "elements": list(column.elements),
            "unsigned": column.unsigned,
            "zerofill": column.zerofill,
        },
        "nullable": column.nullable,
        "default": default,
    }


def types_of(shape: RowShape | None) -> dict[str, str]:
    types: dict[str, str] = {}
    for column in shape.columns if shape else ():
        flags = column.flags or ColumnFlag(0)
        is_unsigned = ColumnFlag.UNSIGNED in flags and column.mysql_type == "bigint"
        is_bytes = ColumnFlag.BINARY in flags and column.mysql_type == "text"
        types[column.name] = "bigint unsigned" if is_unsigned else column.mysql_type
        types[column.name] = "blob" if is_bytes else types[column.name]
    return types


def plain(value: Any) -> Any:
    """Return what was read with what means the same spelled in one way.

    What a type does not have is null or its zero; a BIT's default may have zero bytes in front, and
    others need not be text.
    """
    match value:
        case {"mysqlType": str()}:
            return {name: item or None for name, item in value.items()}
        case {"dataType": {"mysqlType": "bit"}, "default": bytes() as bits}:
            rest = {name: plain(item) for name, item in value.items()}
            return rest | {"default": int.from_bytes(bits)}
        case {"dataType": _, "default": bytes() as words}:
            rest = {name: plain(item) for name, item in value.items()}
            return rest | {"default": words.decode(errors="replace")}
        case {"handleKeyOnly": _}:
            rest = {name: plain(item) for name, item in value.items()}
            return rest | {"handleKeyOnly": bool(value["handleKeyOnly"])}
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case _:
            return value


# ------------------------------------------------------------------------------------------------


@examples(100)
@given(events())
def test_what_is_written_says_the_same_to_another_reader(event: Event) -> None:
    (written,) = encode(WireFormat.SIMPLE_AVRO, [event])
    types = types_of(event.shape if isinstance(event, RowChange) else None)
    assert plain(read(written.value)) == plain(message_of(event, types))


@pytest.mark.parametrize("kind", KINDS)
def test_messages_written_by_hand_say_the_same(kind: str) -> None:
    value = SMALL[kind]
    assert plain(read(value)) == plain(message_of(MESSAGES[value], types_of(SHAPE)))


@golden.needs_golden
@pytest.mark.parametrize("folder", ["simple-avro/types", "simple-avro/shop"])
def test_real_messages_are_read_by_the_same_schema(folder: str) -> None:
    kinds = set[str]()
    for message in golden.records(folder):
        (event,) = decode(WireFormat.SIMPLE_AVRO, message)
        found = read(message.value)
        kinds.add(found["type"])
        if isinstance(event, RowChange):
            payload = found["payload"]
            for name in ("data", "old"):
                image = payload.pop(name)
                ours = event.after if name == "data" else event.before
                assert spelled(image, ours) == ours
            event = replace(event, before=None, after=None)
            found["payload"] |= {"data": None, "old": None}
        assert plain(found) == plain(message_of(event, {}))
    assert kinds == {"WATERMARK", "BOOTSTRAP", "DDL", "DML"}


def spelled(image: Read | None, ours: Image | None) -> Image | None:
    """Return an image as our decoder spells it; of floats only the number is looked at."""
    if image is None:
        return None
    found: dict[str, PhysicalValue] = {}
    for name, value in image.items():
        match value:
            case {"location": str(location), "value": str(moment)}:
                found[name] = ZonedTimestamp(location=location, value=moment)
            case {"value": int(number)}:
                found[name] = str(number % 2**64)
            case bytes():
                found[name] = b64encode(value).decode()
            case float():
                text = (ours or {}).get(name)
                assert isinstance(text, str)
                # fastavro widens a float, and does not say that it was one.
                is_float = to_float32(value) == value and text == float_text(value)
                assert is_float or text == double_text(value)
                found[name] = text
            case int():
                found[name] = str(value)
            case _:
                found[name] = value
    return found
