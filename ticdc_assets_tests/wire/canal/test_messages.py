"""Canal-JSON: messages written by hand from its document, refusals, and no end."""

import json
import tracemalloc
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import WireError
from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.demo.simulator.encoders.canal_json import java_sql_type
from ticdc_assets.model.events import (
    Bootstrap,
    Checksum,
    DdlEvent,
    Event,
    Op,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.schemas import RowShape, SentColumn, TableSchema
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire import record as record_module
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.canal import reference
from ticdc_assets.wire.fields import LARGEST, Kind
from ticdc_assets.wire.record import MAX_REPEATED, Record
from ticdc_assets_tests import strategies
from ticdc_assets_tests.events import ddl_event, row_event
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.wire.comparing import Outcome, assert_refused, batch_of
from ticdc_assets_tests.wire.comparing import assert_equal as assert_equal_in

MAX_ES = LARGEST[Kind.MILLISECONDS]
CANAL = WireFormat.CANAL_JSON


def assert_equal(values: list[bytes]) -> list[Outcome]:
    return assert_equal_in(values, CANAL)


def written(*events: Event) -> list[bytes]:
    records = encode(CANAL, list(events))
    assert all(record.key is None for record in records)
    return [record.value or b"" for record in records]


ES = 1640007049196
TSO = (ES << 18) + 7

SHAPE = RowShape(
    columns=(
        SentColumn("id", "int"),
        SentColumn("c <&>", "bigint unsigned"),
        SentColumn("b", "varbinary(16)"),
        SentColumn("e", "enum('X','it''s')"),
    ),
    primary_key=("id",),
)
HEAD = b'{"id":0,"database":"test","table":"t","pkNames":["id"],"isDdl":false,'
TIMES = b'"es":1640007049196,"ts":1640007049200,"sql":"",'
TYPES = (
    b'"sqlType":{"id":4,"c \\u003c\\u0026\\u003e":3,"b":2004,"e":4},"mysqlType":{"id":"int",'
    b'"c \\u003c\\u0026\\u003e":"bigint unsigned","b":"varbinary(16)",'
    b"\"e\":\"enum('X','it''s')\"},"
)
OLD_TYPES = TYPES.replace(b":3,", b":-5,")
DATA = (
    b'"data":[{"id":"2","c \\u003c\\u0026\\u003e":"18446744073709551615",'
    b'"b":"\\u0005\\u0008\\n\xc3\xbf\xc3\xbe","e":"2"}]'
)
OLD_DATA = b'"data":[{"id":"2","c \\u003c\\u0026\\u003e":"7","b":null,"e":"1"}]'
EXTENSION = b',"_tidb":{"commitTs":%d}}' % TSO

AFTER = {
    "id": "2",
    "c <&>": "18446744073709551615",
    "b": b64encode(b"\x05\x08\n\xff\xfe").decode(),
    "e": "2",
}
BEFORE = {"id": "2", "c <&>": "7", "b": None, "e": "1"}

INSERT = HEAD + b'"type":"INSERT",' + TIMES + TYPES + b'"old":null,' + DATA + EXTENSION
UPDATE = (
    HEAD
    + b'"type":"UPDATE",'
    + TIMES
    + TYPES
    + b'"old":[{"c \\u003c\\u0026\\u003e":"7","b":null}],'
    + DATA
    + EXTENSION
)
DELETE = HEAD + b'"type":"DELETE",' + TIMES + OLD_TYPES + b'"old":null,' + OLD_DATA + EXTENSION
PLAIN = HEAD + b'"type":"INSERT",' + TIMES + TYPES + b'"old":null,' + DATA + b"}"
DDL = (
    b'{"id":0,"database":"test","table":"","pkNames":null,"isDdl":true,"type":"QUERY",'
    b'"es":1640007049196,"ts":1640007049200,"sql":"drop database if exists \\u003ctest\\u003e",'
    b'"sqlType":null,"mysqlType":null,"data":null,"old":null'
) + EXTENSION
PLAIN_DDL = DDL.replace(EXTENSION, b"}")
WATERMARK = (
    b'{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK",'
    b'"es":1640007049196,"ts":1640007049200,"sql":"","sqlType":null,"mysqlType":null,'
    b'"data":null,"old":null,"_tidb":{"watermarkTs":%d}}' % TSO
)

SAID = {"database": "test", "build_ts_ms": 1640007049200}
INSERTED = row_event(TSO, after=AFTER, shape=SHAPE, **SAID)
DROPPED = ddl_event(TSO, "drop database if exists <test>", ddl_type="QUERY", table="", **SAID)
EVENTS: Mapping[bytes, Event] = {
    INSERT: INSERTED,
    UPDATE: replace(INSERTED, op=Op.UPDATE, before={"c <&>": "7", "b": None}),
    DELETE: replace(
        INSERTED, op=Op.DELETE, before=BEFORE, after=None, shape=replace(SHAPE, partial=True)
    ),
    PLAIN: replace(INSERTED, commit_ts=ES << 18, es_only=True),
    DDL: DROPPED,
    PLAIN_DDL: replace(DROPPED, commit_ts=ES << 18, es_only=True),
    WATERMARK: Watermark(watermark_ts=TSO, build_ts_ms=1640007049200),
}
NAMES = {message: f"{number}" for number, message in enumerate(EVENTS)}


@pytest.mark.parametrize("message", EVENTS, ids=NAMES.get)
def test_messages_mean_their_events_and_events_give_the_messages(message: bytes) -> None:
    assert assert_equal([message]) == [[EVENTS[message]]]
    assert written(EVENTS[message]) == [message]


def test_images_are_written_in_one_way() -> None:
    """Without blanks between their tokens and needless escapes."""
    text = b'{"id":"\\u0032 ","c \\u003c\\u0026\\u003e":null,"b":null,"e":"1"}'
    for blanked in (text, text.replace(b'":', b'" : ').replace(b',"', b' ,\n\t\r"')):
        value = INSERT.replace(DATA[8:-1], blanked)
        assert blanked in value
        (row,) = decode_batch(CANAL, batch_of([value])).to_pylist()
        assert row["after"] == '{"id":"2 ","c <&>":null,"b":null,"e":"1"}'
        assert_equal([value])


def test_the_example_of_the_document_for_bytes() -> None:
    sent = "\\u0005\\u0007\\n\\u000f$2+cx\\u003c\\u0026ÿþ-7F".encode()
    raw = bytes([5, 7, 10, 15, 36, 50, 43, 99, 120, 60, 38, 255, 254, 45, 55, 70])
    value = INSERT.replace(b"\\u0005\\u0008\\n\xc3\xbf\xc3\xbe", sent)
    ((event,),) = assert_equal([value])
    assert isinstance(event, RowChange)
    assert event.after == {**AFTER, "b": b64encode(raw).decode()}
    assert written(event) == [value]


def test_all_bytes_are_code_points() -> None:
    event = replace(INSERTED, after={**AFTER, "b": b64encode(bytes(range(256))).decode()})
    (value,) = written(event)
    assert assert_equal([value]) == [[event]]
    # Tab, line feed and carriage return have a short form here, backspace and form feed none.
    assert b'"\\u0000\\u0001' in value
    assert b"\\u0008\\t\\n\\u000b\\u000c\\r\\u000e" in value
    assert b"\x7f\xc2\x80" in value


def test_only_key_and_claim_check() -> None:
    partial = replace(INSERTED, handle_key_only=True, shape=replace(SHAPE, partial=True))
    located = replace(partial, claim_check_location="s3://bucket/../../x.json")
    end = EXTENSION[:-2]
    values = [
        INSERT.replace(end, end + b',"onlyHandleKey":true'),
        INSERT.replace(end, end + b',"claimCheckLocation":"s3://bucket/../../x.json"'),
    ]
    assert assert_equal(values) == [[partial], [located]]
    assert written(partial, located) == values
    same = [
        INSERT.replace(end, end + b',"onlyHandleKey":false,"claimCheckLocation":""'),
        INSERT.replace(end, end + b',"onlyHandleKey":null,"claimCheckLocation":null'),
        INSERT.replace(end, end + b',"rowkey":"dGVzdA=="'),
        INSERT.replace(end, end + b',"new":[1.5]'),
    ]
    assert assert_equal(same) == [[INSERTED]] * 4


def test_a_table_without_any_key_has_empty_images() -> None:
    """With handle-key-only nothing is left of such a row, and Go writes that so."""
    types = b'"sqlType":null,"mysqlType":{},"old":null,"data":[{}],'
    value = HEAD.replace(b'["id"]', b"[]") + b'"type":"INSERT",' + TIMES + types + EXTENSION[1:]
    value = value.replace(b"}}", b',"onlyHandleKey":true}}')
    event = replace(
        INSERTED,
        after={},
        handle_key_only=True,
        shape=RowShape(columns=(), primary_key=(), partial=True),
    )
    # The new TiCDC has null for no types.
    null = value.replace(b'"mysqlType":{}', b'"mysqlType":null')
    assert assert_equal([value, null]) == [[event]] * 2
    assert written(event) == [value]


def test_an_update_of_which_nothing_is_said() -> None:
    value = UPDATE.replace(b'"old":[{"c \\u003c\\u0026\\u003e":"7","b":null}]', b'"old":[{}]')
    event = replace(INSERTED, op=Op.UPDATE, before={})
    assert assert_equal([value]) == [[event]]
    assert written(event) == [value]


def test_before_5_4_a_delete_says_its_row_twice() -> None:
    twice = DELETE.replace(b'"old":null', OLD_DATA.replace(b"data", b"old"))
    assert assert_equal([twice]) == [[EVENTS[DELETE]]]
    other = twice.replace(b'"e":"1"', b'"e":"2"', 1)
    (outcome,) = assert_equal([other])
    assert outcome[:3] == ("unexpected_field", "$.old", "the rows of data")


OFFICIAL = """{"data":[{"id":"1","name":"a","n":5},{"id":"2","name":null,"n":-1.50}],
 "database":"inv","es":1600000000000,"gtid":"x","id":7,"isDdl":false,
 "mysqlType":{"ID":"int","id":"INT(11) UNSIGNED","name":"Enum('A','b''C')","n":"decimal(10, 4)"},
 "old":%s,"pkNames":null,"sql":"","sqlType":{"id":4,"n":3,"name":12},"table":"t",
 "ts":1600000000001,"type":"%s"}"""


def test_messages_of_the_official_canal_have_several_rows() -> None:
    value = (OFFICIAL % ('[{"name":"z"},{"n":18446744073709551616}]', "UPDATE")).encode()
    shape = RowShape(
        columns=(
            SentColumn("id", "int(11) unsigned"),
            SentColumn("n", "decimal(10, 4)"),
            SentColumn("name", "enum('A','b''C')"),
        )
    )
    first = row_event(
        1600000000000 << 18,
        build_ts_ms=1600000000001,
        database="inv",
        before={"name": "z"},
        after={"id": "1", "name": "a", "n": "5"},
        shape=shape,
        es_only=True,
    )
    second = replace(
        first, before={"n": "18446744073709551616"}, after={"id": "2", "name": None, "n": "-1.50"}
    )
    assert assert_equal([value]) == [[first, second]]
    value = (OFFICIAL % ("null", "INSERT")).encode()
    inserted = [replace(event, op=Op.INSERT, before=None) for event in (first, second)]
    assert assert_equal([value]) == [inserted]
    deleted = [
        replace(
            event, op=Op.DELETE, before=event.after, after=None, shape=replace(shape, partial=True)
        )
        for event in (first, second)
    ]
    assert assert_equal([value.replace(b"INSERT", b"DELETE")]) == [deleted]


def test_numbers_keep_their_text() -> None:
    for number in ("0", "-5", "18446744073709551615", "1" * 400, "1.50", "-2.5e-3", "1E400"):
        value = INSERT.replace(b'"18446744073709551615"', number.encode())
        ((event,),) = assert_equal([value])
        assert isinstance(event, RowChange)
        assert event.after is not None
        assert event.after["c <&>"] == number


def test_columns_stand_in_the_order_of_sql_type() -> None:
    message = json.loads(INSERT)
    for sql_type, order in (
        ({"e": 4, "b": 0, "c <&>": 0, "id": 0}, ["e", "b", "c <&>", "id"]),
        ({"e": "not looked at", "gone": 1}, ["e", "id", "c <&>", "b"]),
        ({}, ["id", "c <&>", "b", "e"]),
        (None, ["id", "c <&>", "b", "e"]),
    ):
        message["sqlType"] = sql_type
        ((event,),) = assert_equal([json.dumps(message).encode()])
        assert isinstance(event, RowChange)
        assert event.shape is not None
        assert [column.name for column in event.shape.columns] == order


def test_a_column_only_of_the_row_before_stands_last() -> None:
    message = json.loads(UPDATE)
    del message["data"][0]["id"]
    message["old"][0] = {"id": "1", "e": "1"}
    ((event,),) = assert_equal([json.dumps(message).encode()])
    assert isinstance(event, RowChange)
    assert event.shape is not None
    assert [column.name for column in event.shape.columns] == ["c <&>", "b", "e", "id"]


def test_the_types_of_a_table_may_change_from_row_to_row() -> None:
    """The batch decoder keeps what it learnt of a table, but no longer than it is true."""
    text = INSERT.replace(b"varbinary(16)", b"varchar(16)")
    more = INSERT.replace(b'["id"]', b'["id","e"]')
    renamed = INSERT.replace(b'"b":', b'"B":')
    order = INSERT.replace(b'"id":4,', b"").replace(b'"e":4', b'"e":4,"id":4')
    values = [INSERT, text, INSERT, more, DELETE, renamed, order, INSERT]
    outcomes = assert_equal(values)
    assert outcomes[0] == outcomes[2] == outcomes[7] == [INSERTED]
    assert [INSERTED] not in (outcomes[1], outcomes[3], outcomes[5], outcomes[6])


@pytest.mark.parametrize(
    ("sent", "lower", "binary"),
    [
        ("VARCHAR(255)", "varchar(255)", False),
        ("Int(10) UNSIGNED", "int(10) unsigned", False),
        ("ENUM('A','b''C','Blob')", "enum('A','b''C','Blob')", False),
        ("SET('BINARY', 'X') CHARSET", "set('BINARY', 'X') charset", False),
        ("enum('\\','B','C')", "enum('\\','B','C')", False),
        ("enum('A", "enum('A", False),
        ("enum('A'B'C'D", "enum('A'b'C'd", False),
        ("VarBinary(16)", "varbinary(16)", True),
        ("BINARY", "binary", True),
        ("LONGBLOB", "longblob", True),
        ("", "", False),
    ],
)
def test_types_in_lower_case(sent: str, lower: str, binary: bool) -> None:
    assert reference.lower_type(sent) == lower
    assert reference.is_binary_type(lower) is binary


INTEGERS = [
    # Type, value, number, as in the document's tables.
    ("tinyint", "-128", -6),
    ("tinyint unsigned", "127", -6),
    ("tinyint unsigned", "128", 5),
    ("smallint", "32767", 5),
    ("smallint unsigned", "32767", 5),
    ("smallint(5) unsigned", "32768", 4),
    ("mediumint unsigned", "16777215", 4),
    ("int unsigned", "2147483647", 4),
    ("int(10) unsigned zerofill", "2147483648", -5),
    ("integer unsigned", "4294967295", -5),
    ("bigint", "-9223372036854775808", -5),
    ("bigint unsigned", "9223372036854775807", -5),
    ("bigint unsigned", "9223372036854775808", 3),
    ("bigint unsigned", "18446744073709551615", 3),
    ("bigint unsigned", None, -5),
]
OTHERS = [
    ("float", 7),
    ("double unsigned", 8),
    ("double precision", 8),
    ("decimal(10, 4)", 3),
    ("char(16)", 1),
    ("varchar", 12),
    ("binary(16)", 2004),
    ("varbinary", 2004),
    *((f"{size}text", 2005) for size in ("tiny", "", "medium", "long")),
    *((f"{size}blob", 2004) for size in ("tiny", "", "medium", "long")),
    ("date", 91),
    ("datetime(6)", 93),
    ("timestamp", 93),
    ("time(3)", 92),
    ("year(4)", 12),
    ("enum('a','b unsigned')", 4),
    ("set('a')", -7),
    ("bit(64)", -7),
    ("json", 12),
    ("vector(3)", 12),
    ("of tomorrow", 12),
]


def test_java_sql_types() -> None:
    for mysql_type, value, number in INTEGERS:
        assert java_sql_type(mysql_type, value) == number, (mysql_type, value)
    for mysql_type, number in OTHERS:
        assert java_sql_type(mysql_type, "x") == number, mysql_type
        assert java_sql_type(mysql_type, None) == number, mysql_type


def without(message: bytes, name: str) -> bytes:
    fields = json.loads(message)
    del fields[name]
    return json.dumps(fields).encode()


def having(message: bytes, **changes: Any) -> bytes:
    return json.dumps({**json.loads(message), **changes}).encode()


MANY = [{"id": "1"}] * 3
REFUSED: list[tuple[bytes, str, str]] = [
    (b"[]", "wrong_type", "$"),
    (b"{}", "missing_field", "$.isDdl"),
    (without(INSERT, "type"), "missing_field", "$.type"),
    (having(INSERT, isDdl=None), "wrong_type", "$.isDdl"),
    (having(INSERT, isDdl=0), "wrong_type", "$.isDdl"),
    (having(INSERT, type="insert"), "unknown_type", "$.type"),
    (having(INSERT, type="QUERY"), "unknown_type", "$.type"),
    (having(INSERT, type=None), "wrong_type", "$.type"),
    (having(INSERT, database=""), "empty_text", "$.database"),
    (having(INSERT, table=None), "wrong_type", "$.table"),
    (without(INSERT, "table"), "missing_field", "$.table"),
    (having(INSERT, pkNames="id"), "wrong_type", "$.pkNames"),
    (having(INSERT, pkNames=["id", 1]), "wrong_type", "$.pkNames[1]"),
    (having(INSERT, ts="1"), "wrong_type", "$.ts"),
    (having(INSERT, ts=-1), "out_of_range", "$.ts"),
    (having(INSERT, ts=2**63), "out_of_range", "$.ts"),
    (having(INSERT, ts=1.5), "wrong_type", "$.ts"),
    (having(INSERT, ts=True), "wrong_type", "$.ts"),
    (having(INSERT, sqlType=[]), "wrong_type", "$.sqlType"),
    (without(INSERT, "mysqlType"), "missing_field", "$.mysqlType"),
    (having(INSERT, mysqlType=None), "missing_field", "$.mysqlType.id"),
    (having(INSERT, mysqlType=[]), "wrong_type", "$.mysqlType"),
    (having(INSERT, mysqlType={"id": 1}), "wrong_type", "$.mysqlType.id"),
    (having(INSERT, mysqlType={"id": "int"}), "missing_field", '$.mysqlType["c <&>"]'),
    (having(INSERT, data=None), "wrong_type", "$.data"),
    (having(INSERT, data={}), "wrong_type", "$.data"),
    (having(INSERT, data=[]), "no_rows", "$.data"),
    (having(INSERT, data=[None]), "wrong_type", "$.data[0]"),
    (having(INSERT, data=[{"id": True}]), "wrong_type", "$.data[0].id"),
    (having(INSERT, data=[{"id": ["1"]}]), "wrong_type", "$.data[0].id"),
    (having(INSERT, data=[{}, {"id": {}}]), "wrong_type", "$.data[1].id"),
    (having(INSERT, data=[{"b": 1}]), "wrong_type", "$.data[0].b"),
    (having(INSERT, data=[{"b": "aĀ"}]), "wrong_bytes", "$.data[0].b"),
    (having(INSERT, data=[{"b": "🚀"}]), "wrong_bytes", "$.data[0].b"),
    (having(INSERT, old=[]), "unexpected_field", "$.old"),
    (having(UPDATE, old=None), "wrong_type", "$.old"),
    (having(UPDATE, old=[]), "row_count", "$.old"),
    (having(UPDATE, old=[{}, {}]), "row_count", "$.old"),
    (having(UPDATE, data=MANY, old=MANY[1:]), "row_count", "$.old"),
    (having(UPDATE, old=[{"b": "\u0100"}]), "wrong_bytes", "$.old[0].b"),
    (having(INSERT, _tidb=1), "wrong_type", "$._tidb"),
    (having(INSERT, _tidb={}), "missing_field", "$._tidb.commitTs"),
    (having(INSERT, _tidb={"watermarkTs": 1}), "missing_field", "$._tidb.commitTs"),
    (having(INSERT, _tidb={"commitTs": "1"}), "wrong_type", "$._tidb.commitTs"),
    (having(INSERT, _tidb={"commitTs": MAX_TSO + 1}), "out_of_range", "$._tidb.commitTs"),
    (
        having(INSERT, _tidb={"commitTs": 1, "onlyHandleKey": 1}),
        "wrong_type",
        "$._tidb.onlyHandleKey",
    ),
    (
        having(INSERT, _tidb={"commitTs": 1, "claimCheckLocation": 1}),
        "wrong_type",
        "$._tidb.claimCheckLocation",
    ),
    (having(PLAIN, es=MAX_ES + 1), "out_of_range", "$.es"),
    (having(PLAIN, es="1"), "wrong_type", "$.es"),
    (without(PLAIN, "es"), "missing_field", "$.es"),
    (without(PLAIN_DDL, "es"), "missing_field", "$.es"),
    (without(DDL, "sql"), "missing_field", "$.sql"),
    (having(DDL, sql=""), "empty_text", "$.sql"),
    (having(DDL, type="INSERT"), "unknown_type", "$.type"),
    (having(DDL, type="TIDB_WATERMARK"), "unknown_type", "$.type"),
    (having(DDL, database=1), "wrong_type", "$.database"),
    (having(DDL, _tidb={"watermarkTs": 1}), "missing_field", "$._tidb.commitTs"),
    (without(WATERMARK, "_tidb"), "missing_field", "$._tidb"),
    (having(WATERMARK, _tidb=None), "wrong_type", "$._tidb"),
    (having(WATERMARK, _tidb={"commitTs": 1}), "missing_field", "$._tidb.watermarkTs"),
    (having(WATERMARK, _tidb={"watermarkTs": -1}), "out_of_range", "$._tidb.watermarkTs"),
]


def test_what_is_refused() -> None:
    assert_refused(REFUSED, CANAL)


def test_what_is_not_looked_at() -> None:
    """Each of these says the same, and both decoders know."""
    insert = [
        having(INSERT, id="x", sql=None, es="never"),
        having(INSERT, new={"deep": [1.5]}, gtid=""),
        having(INSERT, id=9, es=5, sql="insert into"),
        having(INSERT, es=1.0),
        having(INSERT, ts=1640007049200, es=-3),
        without(INSERT, "es"),
        without(INSERT, "old"),
        b'{"ts":"of no use","data":7,"isDdl":1,' + INSERT[1:],
        b'{"_tidb":{"commitTs":"x"},"mysqlType":{"b":1},' + INSERT[1:],
        INSERT.replace(b'"data":[{', b'"data":[{"id":1,"b":[],'),
        INSERT.replace(b'"mysqlType":{', b'"mysqlType":{"b":"int","unused":"X",'),
        INSERT.replace(b'"sqlType":{', b'"sqlType":{"id":[],'),
    ]
    assert assert_equal(insert) == [[INSERTED]] * len(insert)
    assert assert_equal([having(PLAIN, _tidb=None)]) == [[EVENTS[PLAIN]]]
    ddl = [having(DDL, data=1, old=2, pkNames=3, es="x", mysqlType=4), without(DDL, "table")]
    assert assert_equal(ddl) == [[DROPPED]] * len(ddl)
    watermark = [
        having(WATERMARK, data=[1], es=None, database=5),
        having(WATERMARK, data=[{"a": "1"}]),
        having(WATERMARK, _tidb={"watermarkTs": TSO, "commitTs": "x"}),
    ]
    assert assert_equal(watermark) == [[EVENTS[WATERMARK]]] * len(watermark)
    for message in (INSERT, DDL, WATERMARK):
        ((event,),) = assert_equal([without(message, "ts")])
        assert not isinstance(event, str)
        assert event == replace(EVENTS[message], build_ts_ms=None)


TABLE = TableSchema(database="d", table="t", table_id=1, version=1, columns=(), indexes=())
EMPTY_DDL = (
    b'{"id":0,"database":"","table":"","pkNames":null,"isDdl":true,"type":"QUERY","es":0,'
    b'"ts":1795000000000,"sql":"","sqlType":null,"mysqlType":null,"data":null,"old":null'
)


def test_a_ddl_that_says_nothing_is_a_bootstrap() -> None:
    bootstrap = Bootstrap(build_ts_ms=1795000000000, schema=None)
    values = [
        EMPTY_DDL + b',"_tidb":{}}',
        EMPTY_DDL + b',"_tidb":{"commitTs":0}}',
        EMPTY_DDL + b',"_tidb":{"commitTs":null}}',
        EMPTY_DDL + b"}",
        EMPTY_DDL.replace(b'"sql":"",', b'"sql":null,') + b"}",
        EMPTY_DDL.replace(b'"es":0,', b"") + b"}",
        EMPTY_DDL.replace(b'"QUERY"', b'"CREATE"') + b"}",
        EMPTY_DDL.replace(b'"QUERY"', b'"none"') + b"}",
    ]
    assert assert_equal(values) == [[bootstrap]] * len(values)
    assert written(bootstrap) == values[:1]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (EMPTY_DDL + b',"_tidb":{"commitTs":7}}', "empty_text"),
        (EMPTY_DDL.replace(b'"es":0', b'"es":7') + b"}", "empty_text"),
        (EMPTY_DDL.replace(b'"table":""', b'"table":"t"') + b"}", "empty_text"),
        (EMPTY_DDL + b',"_tidb":{"commitTs":-1}}', "out_of_range"),
        (EMPTY_DDL.replace(b'"ts":1795000000000', b'"ts":"1"') + b"}", "wrong_type"),
    ],
)
def test_a_ddl_that_says_a_part_is_refused(value: bytes, reason: str) -> None:
    (outcome,) = assert_equal([value])
    assert outcome[0] == reason


def test_what_the_format_has_no_place_for_is_left_out() -> None:
    more = replace(
        INSERTED,
        table_id=7,
        schema_version=8,
        row_id=9,
        checksum=Checksum(version=1, corrupted=False, current=1, previous=2),
        after={**AFTER, "e": ZonedTimestamp(location="UTC", value="2")},
    )
    ddl = replace(DROPPED, schema=TABLE, pre_schema=TABLE, action_code=2)
    assert written(more, ddl) == [INSERT, DDL]
    assert encode(CANAL, []) == []


def test_repeating_what_is_said_once_has_a_limit() -> None:
    """A row of the official Canal is short; its table's description is repeated for each."""
    names = {"id": "enum('" + "x" * 100_000 + "')"}
    rows = [{"id": "1"}] * (MAX_REPEATED + 10)
    few = having(INSERT, mysqlType=names, data=rows[: MAX_REPEATED - 1])
    many = having(INSERT, mysqlType=names, data=rows)
    outcomes = assert_equal([few, many])
    assert len(outcomes[0]) == MAX_REPEATED - 1
    assert isinstance(outcomes[0], list)
    assert outcomes[1][:2] == ("too_many_rows", "$.data")


@pytest.mark.parametrize("label", ["x" * 6, "\U0001f680", "\x01", "é" * 3, '"'])
def test_what_is_repeated_is_counted_as_it_is_stored(label: str) -> None:
    mysql_type = f"enum('{label * 1_000}')"
    value = having(INSERT, mysqlType={"id": mysql_type}, data=[{"id": "1"}] * 30)
    stored = 30 * len(json.dumps(mysql_type, ensure_ascii=False).encode())
    # What is said of database, table and key besides is less than that.
    with mock.patch.object(record_module, "MOST_REPEATED_BYTES", stored + 30 * 100):
        (outcome,) = assert_equal([value])
    assert isinstance(outcome, list)
    assert len(outcome) == 30
    with mock.patch.object(record_module, "MOST_REPEATED_BYTES", stored):
        (refusal,) = assert_equal([value])
    assert refusal[:2] == ("too_many_rows", "$.data")


@pytest.mark.thorough
def test_memory_stays_near_the_size_of_the_message() -> None:
    names = {"id": "enum('" + "x" * 50_000 + "')"}
    values = [
        having(INSERT, mysqlType=names, data=[{"id": "1"}] * 5_000),
        having(INSERT, data=[{"id": "1"}] * 5_000),
        having(INSERT, data=[{"id": "1"}] * 5_000, _tidb={"commitTs": 1, "x": "9" * 100_000}),
        b'{"isDdl":' + b"9" * 100_000 + b"}",
    ]
    for value in values:
        tracemalloc.start()
        try:
            decode(CANAL, Record(key=None, value=value))
        except WireError:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < 60 * len(value), value[:80]


# Round trips of any events.

_VALUES: Mapping[str, st.SearchStrategy[str]] = {
    "int": st.integers(-(2**31), 2**31 - 1).map(str),
    "bigint(20) unsigned": st.integers(0, 2**64 - 1).map(str),
    "tinyint unsigned": st.integers(0, 255).map(str),
    "bit(64)": st.integers(0, 2**64 - 1).map(str),
    "decimal(65,30)": st.decimals(allow_nan=False, allow_infinity=False).map("{:f}".format),
    "varchar(255)": strategies.texts,
    "longtext": strategies.texts,
    "json": strategies.texts.map(json.dumps),
    "varbinary": st.binary(max_size=12).map(lambda raw: b64encode(raw).decode()),
    "longblob": st.binary(max_size=12).map(lambda raw: b64encode(raw).decode()),
    "enum('A','b''C','blob')": st.integers(0, 3).map(str),
    "timestamp(6)": st.just("2024-02-29 23:59:59.999999"),
}


@st.composite
def rows(draw: st.DrawFn) -> RowChange:
    names = draw(st.lists(strategies.names, max_size=5, unique_by=str.lower))
    columns = tuple(SentColumn(name, draw(st.sampled_from(list(_VALUES)))) for name in names)

    def image(present: tuple[SentColumn, ...]) -> dict[str, str | None]:
        return {column.name: draw(st.none() | _VALUES[column.mysql_type]) for column in present}

    op = draw(st.sampled_from(strategies.SENT_OPS))
    es_only = draw(st.booleans())
    location = None if es_only else draw(st.none() | strategies.texts.filter(bool))
    cut = location is not None or (not es_only and draw(st.booleans()))
    changed = tuple(column for column in columns if draw(st.booleans()))
    before = {
        Op.INSERT: lambda: None,
        Op.UPDATE: lambda: image(changed),
        Op.DELETE: lambda: image(columns),
    }[op]()
    return row_event(
        draw(st.integers(0, MAX_ES)) << 18 if es_only else draw(strategies.tsos),
        build_ts_ms=draw(strategies.epoch_ms),
        database=draw(strategies.names),
        table=draw(strategies.names),
        before=before,
        after=None if op is Op.DELETE else image(columns),
        handle_key_only=cut,
        claim_check_location=location,
        shape=RowShape(
            columns=columns,
            primary_key=draw(st.none() | st.lists(strategies.names, max_size=2).map(tuple)),
            partial=cut or op is Op.DELETE,
        ),
        es_only=es_only,
    )


@st.composite
def ddls(draw: st.DrawFn) -> DdlEvent:
    es_only = draw(st.booleans())
    return ddl_event(
        draw(st.integers(0, MAX_ES)) << 18 if es_only else draw(strategies.tsos),
        draw(strategies.texts.filter(bool)),
        ddl_type=draw(st.sampled_from(["CREATE", "ALTER", "QUERY", "ERASE", "RENAME"])),
        build_ts_ms=draw(strategies.epoch_ms),
        database=draw(strategies.texts),
        table=draw(strategies.texts),
        es_only=es_only,
    )


@examples(100)
@given(st.lists(rows() | ddls() | strategies.watermarks, max_size=4))
def test_any_events_come_back(events: list[Event]) -> None:
    values = written(*events)
    assert assert_equal(values) == [[event] for event in events]
    assert [again for event in events for again in written(event)] == values
