"""Messages of Simple Avro read by fastavro: a reader that shares no code with ours.

Both know the schema of docs/formats/simple.md, each in its own words. Its defaults are bytes here
too, as what TiCDC writes there need not be text. TiCDC's real messages are read by the same schema,
where they are present, so that it is the one in the topic and not one that only we agree on.

What the fields mean is in `test_avro`.
"""

import io
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader
from hypothesis import given

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import Event
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.simple import avro
from ticdc_assets.wire.simple.avro_reference import (
    HEADER_ENUM,
    MESSAGE_BRANCH,
    MESSAGE_TYPES,
    PAYLOADS,
)
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.wire import golden
from ticdc_assets_tests.wire.simple.test_avro import KINDS, SMALL, events

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


def read_by_us(value: bytes) -> Read:
    """Return what the types of the reference read."""
    reader = avro.Reader(value)
    assert reader.varint() == MESSAGE_BRANCH
    kind = HEADER_ENUM.read(reader)
    assert reader.varint() == MESSAGE_TYPES.index(kind)
    payload = {"version": avro.INT.read(reader), **PAYLOADS[kind].read(reader)}
    reader.finish()
    return {"type": kind, "payload": payload}


def without_branches(value: Any) -> Any:
    """Return a value without the numbers of branches, which fastavro does not tell."""
    match value:
        case (int(), item):
            return without_branches(item)
        case dict():
            return {name: without_branches(item) for name, item in value.items()}
        case _:
            return value


def assert_both_read_the_same(value: bytes | None) -> Read:
    found = read(value)
    assert found == without_branches(read_by_us(value or b""))
    return found


@examples(100)
@given(events())
def test_what_is_written_says_the_same_to_another_reader(event: Event) -> None:
    (written,) = encode(WireFormat.SIMPLE_AVRO, [event])
    assert_both_read_the_same(written.value)


@pytest.mark.parametrize("kind", KINDS)
def test_messages_written_by_hand_say_the_same(kind: str) -> None:
    assert_both_read_the_same(SMALL[kind])


@golden.needs_golden
@pytest.mark.parametrize("folder", ["simple-avro/types", "simple-avro/shop"])
def test_real_messages_are_read_by_the_same_schema(folder: str) -> None:
    found = [assert_both_read_the_same(message.value) for message in golden.records(folder)]
    assert {message["type"] for message in found} == {"WATERMARK", "BOOTSTRAP", "DDL", "DML"}
