"""Open Protocol by hand: what is read of a record, what is refused, what is written, any bytes."""

import json
import struct
from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import UnsupportedVersionError, WireError
from ticdc_assets.demo.simulator.encoders.go_json import quote
from ticdc_assets.demo.simulator.encoders.open_protocol import encode
from ticdc_assets.model.events import Bootstrap, Event, Op, RowChange, Watermark, ZonedTimestamp
from ticdc_assets.model.schemas import ColumnFlag, RowShape, SentColumn
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.column_types import TYPE_NAMES
from ticdc_assets.wire.open.go_quote import unquote
from ticdc_assets.wire.open.reference import decode, map_values
from ticdc_assets.wire.record import Record
from ticdc_assets_tests import strategies
from ticdc_assets_tests.events import ddl_event, row_event
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.wire.comparing import assert_equal, assert_refused, only
from ticdc_assets_tests.wire.differing import framed

OPEN = WireFormat.OPEN_PROTOCOL
TS = 415508878783938562

ROW_KEY = b'{"ts":415508878783938562,"scm":"test","tbl":"t1","t":1}'
DDL_KEY = b'{"ts":415508856908021766,"scm":"test","tbl":"t1","t":2}'
WATERMARK_KEY = b'{"ts":415508881038376963,"t":3}'
DDL_VALUE = b'{"q":"CREATE TABLE test.t1(id int primary key, val varchar(16))","t":3}'
INSERT_VALUE = b'{"u":{"id":{"t":3,"h":true,"f":11,"v":1},"val":{"t":252,"f":65,"v":"AP8="}}}'
UPDATE_VALUE = (
    b'{"u":{"id":{"t":8,"h":true,"f":43,"v":-3},"x":{"t":5,"f":65,"v":1e+21}},'
    b'"p":{"id":{"t":8,"h":true,"f":43,"v":-3},"x":{"t":5,"f":65,"v":null}}}'
)
DELETE_VALUE = r'{"d":{"b":{"t":15,"h":true,"f":11,"v":"\\x01\\\"é"}}}'.encode()


def number(value: int) -> bytes:
    return struct.pack(">Q", value)


def record(*parts: tuple[bytes, bytes], version: int = 1) -> Record:
    """Return the record of keys and values."""
    return Record(
        key=number(version) + framed(key for key, _ in parts),
        value=framed(value for _, value in parts),
    )


def row(**columns: Any) -> Record:
    """Return the record of an INSERT whose columns are given as JSON texts of their fields."""
    image = ",".join(f"{json.dumps(name)}:{fields}" for name, fields in columns.items())
    return record((ROW_KEY, f'{{"u":{{{image}}}}}'.encode()))


def column(code: int, value: str, flags: int = 0) -> str:
    return f'{{"t":{code},"f":{flags},"v":{value}}}'


MIXED = record(
    (ROW_KEY, INSERT_VALUE), (ROW_KEY, UPDATE_VALUE), (ROW_KEY, DELETE_VALUE), (WATERMARK_KEY, b"")
)
DDL = record((DDL_KEY, DDL_VALUE))
RECORDS = (record((ROW_KEY, INSERT_VALUE)), MIXED, DDL, record((WATERMARK_KEY, b"")))


# --- reading ---


def test_each_kind_of_event() -> None:
    mixed, ddl = assert_equal([MIXED, DDL], OPEN)
    id_column = SentColumn("id", "int", ColumnFlag(11))
    names = {"database": "test", "table": "t1"}
    assert mixed == [
        row_event(
            TS,
            after={"id": "1", "val": "AP8="},
            shape=RowShape((id_column, SentColumn("val", "blob", ColumnFlag(65)))),
            **names,
        ),
        row_event(
            TS,
            before={"id": "-3", "x": None},
            after={"id": "-3", "x": "1" + 21 * "0"},
            shape=RowShape(
                (
                    SentColumn("id", "bigint", ColumnFlag(43)),
                    SentColumn("x", "double", ColumnFlag(65)),
                )
            ),
            **names,
        ),
        row_event(
            TS,
            before={"b": b64encode(b'\x01"' + "é".encode()).decode()},
            shape=RowShape((SentColumn("b", "varbinary", ColumnFlag(11)),), partial=True),
            **names,
        ),
        Watermark(watermark_ts=415508881038376963, build_ts_ms=None),
    ]
    sql = "CREATE TABLE test.t1(id int primary key, val varchar(16))"
    assert ddl == [ddl_event(415508856908021766, sql, action_code=3, **names)]


def test_the_fields_of_a_key() -> None:
    fields = b'{"ts":0,"scm":"a.b","tbl":"../../x","rid":-5,"ptn":7,"t":1,"ohk":true,"new":[{}]}'
    with_location = b'{"ts":1,"scm":"a","tbl":"b","t":1,"ccl":"s3://b/../x.json"}'
    nulls = b'{"ts":1,"scm":"a","tbl":"b","rid":null,"ptn":null,"t":1,"ohk":null,"ccl":null}'
    unnamed = b'{"ts":1,"t":2}'
    cut, located, plain, ddl = (
        only(outcome)
        for outcome in assert_equal(
            [
                record((fields, INSERT_VALUE)),
                record((with_location, INSERT_VALUE)),
                record((nulls, INSERT_VALUE)),
                record((unnamed, b'{"q":"x","t":250}')),
            ],
            OPEN,
        )
    )
    assert (cut.commit_ts, cut.database, cut.table) == (0, "a.b", "../../x")
    assert (cut.table_id, cut.row_id) == (7, -5)
    assert (cut.handle_key_only, cut.claim_check_location, cut.shape.partial) == (True, None, True)
    assert located.claim_check_location == "s3://b/../x.json"
    assert (located.handle_key_only, located.shape.partial) == (True, True)
    assert (plain.table_id, plain.row_id, plain.handle_key_only) == (None, 0, False)
    assert plain.shape.partial is False
    assert (ddl.database, ddl.table, ddl.ddl_type, ddl.action_code) == ("", "", "QUERY", 250)


def test_the_document_s_own_examples() -> None:
    """They are older than the flags; without them nothing tells what is binary."""
    event = only(
        assert_equal(
            [record((ROW_KEY, b'{"u":{"id":{"t":3,"h":true,"v":1},"val":{"t":15,"v":"YWE="}}}'))],
            OPEN,
        )[0]
    )
    assert event.after == {"id": "1", "val": "YWE="}
    assert event.shape.columns == (
        SentColumn("id", "int", ColumnFlag.HANDLE_KEY),
        SentColumn("val", "varchar", ColumnFlag(0)),
    )


def test_columns_that_only_the_before_image_has_come_last() -> None:
    value = (
        b'{"u":{"b":{"t":3,"f":0,"v":1},"c":{"t":3,"f":0,"v":1}},'
        b'"p":{"a":{"t":1,"f":64,"v":1},"b":{"t":8,"f":1,"v":2}}}'
    )
    event = only(assert_equal([record((ROW_KEY, value))], OPEN)[0])
    assert event.shape.columns == (
        SentColumn("b", "int", ColumnFlag(0)),
        SentColumn("c", "int", ColumnFlag(0)),
        SentColumn("a", "tinyint", ColumnFlag(64)),
    )
    assert event.before == {"a": "1", "b": "2"}


def test_empty_images_are_none() -> None:
    column_id = b'{"id":{"t":3,"f":0,"v":1}}'
    for value, op in (
        (b'{"u":' + column_id + b',"p":{}}', Op.INSERT),
        (b'{"u":' + column_id + b',"p":null,"d":{}}', Op.INSERT),
        (b'{"u":{},"d":' + column_id + b"}", Op.DELETE),
    ):
        assert only(assert_equal([record((ROW_KEY, value))], OPEN)[0]).op is op


VALUES = [
    (1, 0, "-128", "-128"),
    (1, 0, "300", "300"),
    (2, 128, "65535", "65535"),
    (3, 1, "-0", "0"),
    (8, 129, "18446744073709551615", "18446744073709551615"),
    (8, 1, "-9223372036854775808", "-9223372036854775808"),
    (9, 0, "0", "0"),
    (13, 193, "2024", "2024"),
    (16, 129, "18446744073709551615", "18446744073709551615"),
    (247, 0, "2", "2"),
    (248, 0, "18446744073709551615", "18446744073709551615"),
    (4, 1, "1.1", "1.1"),
    (4, 1, "3.4028235e+38", "340282350000000000000000000000000000000"),
    (4, 1, "1e-7", "0.0000001"),
    (4, 1, "16777217", "16777216"),
    (4, 1, "-0", "-0"),
    (5, 1, "-0", "-0"),
    (5, 1, "-0.0", "-0"),
    (5, 1, "0", "0"),
    (5, 1, "100000000000000000000", "100000000000000000000"),
    (5, 1, "9007199254740993", "9007199254740992"),
    (5, 1, "1.7976931348623157e+308", "17976931348623157" + 292 * "0"),
    (5, 1, "5e-324", "0." + 323 * "0" + "5"),
    (5, 1, "1e-400", "0"),
    (7, 65, '"2010-07-03 06:21:39.036912"', "2010-07-03 06:21:39.036912"),
    (10, 65, '"0000-00-00"', "0000-00-00"),
    (14, 65, '"2000-01-01"', "2000-01-01"),
    (11, 65, '"-838:59:59.000"', "-838:59:59.000"),
    (12, 65, '"2015-12-20 23:58:58"', "2015-12-20 23:58:58"),
    (225, 65, '"[0.1,-2.5]"', "[0.1,-2.5]"),
    (245, 65, '"{\\"a\\": 1}"', '{"a": 1}'),
    (246, 65, '"-0.10"', "-0.10"),
    (15, 0, r'"a\\x41\u00e9\ud83d\ude00"', "a\\x41é😀"),
    (15, 1, r'"a\\\\\\\"é\\u00e9\\U0001f600\\a"', 'a\\"éé😀\a'.encode()),
    (253, 1, r'"\\xff\\x00"', b"\xff\x00"),
    (254, 65, '""', b""),
    (254, 64, '"test"', "test"),
    (249, 0, '"5rWL6K+VdGV4dA=="', "测试text"),
    (250, 64, '""', ""),
    (251, 1, '"/wA="', b"\xff\x00"),
    (252, 65, '"5rWL6K+VdGV4dA=="', "测试text".encode()),
    (6, 0, "null", None),
    *((code, flags, "null", None) for code in TYPE_NAMES for flags in (0, 1)),
]


def test_values_of_each_type() -> None:
    outcomes = assert_equal([row(c=column(code, sent, f)) for code, f, sent, _ in VALUES], OPEN)
    for outcome, (code, flags, sent, wanted) in zip(outcomes, VALUES, strict=True):
        event = only(outcome)
        text = b64encode(wanted).decode() if isinstance(wanted, bytes) else wanted
        assert event.after == {"c": text}, (code, flags, sent)
        assert event.shape.columns[0].mysql_type == TYPE_NAMES[code][flags & 1]


# --- refusing ---

PATH = "$.values[0].u.c"
WRONG_COLUMNS = [
    (column(3, '"1"'), "wrong_type", f"{PATH}.v"),
    (column(3, "true"), "wrong_type", f"{PATH}.v"),
    (column(3, "1.0"), "wrong_type", f"{PATH}.v"),
    (column(3, "1e2"), "wrong_type", f"{PATH}.v"),
    (column(3, "{}"), "wrong_type", f"{PATH}.v"),
    (column(8, "18446744073709551616"), "out_of_range", f"{PATH}.v"),
    (column(8, "-9223372036854775809"), "out_of_range", f"{PATH}.v"),
    (column(8, "1" * 5000), "out_of_range", f"{PATH}.v"),
    (column(16, "-1"), "out_of_range", f"{PATH}.v"),
    (column(247, "-1"), "out_of_range", f"{PATH}.v"),
    (column(248, "-1"), "out_of_range", f"{PATH}.v"),
    (column(4, "3.5e+38"), "out_of_range", f"{PATH}.v"),
    (column(4, '"1"'), "wrong_type", f"{PATH}.v"),
    (column(5, "1e400"), "out_of_range", f"{PATH}.v"),
    (column(5, "1" * 400), "out_of_range", f"{PATH}.v"),
    (column(5, "false"), "wrong_type", f"{PATH}.v"),
    (column(6, "0"), "wrong_type", f"{PATH}.v"),
    (column(12, "1"), "wrong_type", f"{PATH}.v"),
    (column(246, "1.5"), "wrong_type", f"{PATH}.v"),
    (column(15, "[]"), "wrong_type", f"{PATH}.v"),
    (column(252, '"A"', 1), "invalid_base64", f"{PATH}.v"),
    (column(252, '"AAA"', 1), "invalid_base64", f"{PATH}.v"),
    (column(252, '"AB=="', 1), "invalid_base64", f"{PATH}.v"),
    (column(252, '"AA==AA=="', 1), "invalid_base64", f"{PATH}.v"),
    (column(252, r'"AA\n=="', 1), "invalid_base64", f"{PATH}.v"),
    (column(252, '"AAAA="', 1), "invalid_base64", f"{PATH}.v"),
    (column(252, '"AAAAA==="', 1), "invalid_base64", f"{PATH}.v"),
    (column(252, '"=AAA"', 1), "invalid_base64", f"{PATH}.v"),
    (column(252, '"AA=="', 1)[:-1] + ',"v":"AA==="}', "invalid_base64", f"{PATH}.v"),
    (column(252, '"A-_="', 1), "invalid_base64", f"{PATH}.v"),
    (column(252, '"é"', 0), "invalid_base64", f"{PATH}.v"),
    (column(252, "0", 1), "wrong_type", f"{PATH}.v"),
    (column(0, "1"), "unknown_column_type", f"{PATH}.t"),
    (column(255, "null"), "unknown_column_type", f"{PATH}.t"),
    (column(-1, "1"), "out_of_range", f"{PATH}.t"),
    (column(3, "1", 65536), "out_of_range", f"{PATH}.f"),
    (column(3, "1", -1), "out_of_range", f"{PATH}.f"),
    ('{"f":0,"v":1}', "missing_field", f"{PATH}.t"),
    ('{"t":3,"f":0}', "missing_field", f"{PATH}.v"),
    ('{"t":"3","f":0,"v":1}', "wrong_type", f"{PATH}.t"),
    ('{"t":3,"f":0.0,"v":1}', "wrong_type", f"{PATH}.f"),
    ('{"t":3,"f":0,"v":1,"h":1}', "wrong_type", f"{PATH}.h"),
    ("null", "wrong_type", PATH),
    ("[]", "wrong_type", PATH),
]


CONTRADICTING = [
    (15, 1, r'"a\\q"', r"a\q", "varchar"),
    (15, 1, r'"a\\x41"', r"a\x41", "varchar"),
    (15, 1, r'"\\101"', r"\101", "varchar"),
    (15, 1, r'"\\xFF"', r"\xFF", "varchar"),
    (15, 1, r'"\\x07"', r"\x07", "varchar"),
    (15, 1, r'"\\u0041"', r"\u0041", "varchar"),
    (15, 1, r'"\\U0000ffff"', r"\U0000ffff", "varchar"),
    (15, 1, r'"\\ud800"', r"\ud800", "varchar"),
    (253, 65, r'"say \"so\"\n"', 'say "so"\n', "varchar"),
    (254, 65, r'"a\tb\u007f"', "a\tb\x7f", "char"),
    (254, 1, r'"C:\\"', "C:\\", "char"),
    (252, 0, '"/w=="', "/w==", "blob"),
    (251, 64, '"/mFi"', "/mFi", "longblob"),
]
"""Values that are not written as their flags say, and so by another type than these say."""


def test_values_that_contradict_their_flags_are_read_as_they_are_written() -> None:
    records = [row(c=column(code, sent, f)) for code, f, sent, _, _ in CONTRADICTING]
    outcomes = assert_equal(records, OPEN)
    for outcome, (_, flags, sent, wanted, kind) in zip(outcomes, CONTRADICTING, strict=True):
        event = only(outcome)
        assert event.after == {"c": wanted}, sent
        assert event.shape.columns == (SentColumn("c", kind, ColumnFlag(flags)),), sent


def test_a_column_s_name_stands_in_the_position() -> None:
    (outcome,) = assert_equal([row(**{'a "b': column(3, "{}")})], OPEN)
    assert outcome[1] == '$.values[0].u["a \\"b"].v'


WRONG_PARTS = [
    (b"{}", b"", "missing_field", "$.keys[0].t"),
    (b'{"t":0}', b"", "unknown_type", "$.keys[0].t"),
    (b'{"t":4}', b"", "unknown_type", "$.keys[0].t"),
    (b'{"t":1.0}', b"", "wrong_type", "$.keys[0].t"),
    (b"[]", b"", "wrong_type", "$.keys[0]"),
    (b"", b"", "empty_value", "key byte 16"),
    (b'{"t":3', b"", "invalid_json", "key byte 22"),
    (b'{"t":3,"\xff":1}', b"", "invalid_utf8", "key byte 24"),
    (b'{"t":3}', b"", "missing_field", "$.keys[0].ts"),
    (b'{"ts":-1,"t":3}', b"", "out_of_range", "$.keys[0].ts"),
    (b'{"ts":9223372036854775808,"t":3}', b"", "out_of_range", "$.keys[0].ts"),
    (WATERMARK_KEY, b"{}", "unexpected_value", "byte 8"),
    (b'{"ts":1,"tbl":"t","t":1}', INSERT_VALUE, "missing_field", "$.keys[0].scm"),
    (b'{"ts":1,"scm":null,"tbl":"t","t":1}', INSERT_VALUE, "missing_field", "$.keys[0].scm"),
    (b'{"ts":1,"scm":"s","tbl":"","t":1}', INSERT_VALUE, "empty_text", "$.keys[0].tbl"),
    (b'{"ts":1,"scm":"s","tbl":1,"t":1}', INSERT_VALUE, "wrong_type", "$.keys[0].tbl"),
    (b'{"ts":1,"scm":"s","tbl":"t","rid":1.5,"t":1}', b"", "wrong_type", "$.keys[0].rid"),
    (b'{"ts":1,"scm":"s","tbl":"t","ptn":-1,"t":1}', b"", "out_of_range", "$.keys[0].ptn"),
    (b'{"ts":1,"scm":"s","tbl":"t","ohk":1,"t":1}', b"", "wrong_type", "$.keys[0].ohk"),
    (b'{"ts":1,"scm":"s","tbl":"t","ccl":[],"t":1}', b"", "wrong_type", "$.keys[0].ccl"),
    (ROW_KEY, b"", "empty_value", "byte 8"),
    (ROW_KEY, b"{", "invalid_json", "byte 9"),
    (ROW_KEY, b'{"u":NaN}', "invalid_json", "byte 13"),
    (ROW_KEY, b'{"u":{"c":{"t":5,"f":0,"v":-Infinity}}}', "invalid_json", "byte 35"),
    (ROW_KEY, b'{"\\ud800":1}', "lone_surrogate", "byte 10"),
    (ROW_KEY, b"\xef\xbb\xbf{}", "byte_order_mark", "byte 8"),
    (ROW_KEY, INSERT_VALUE + b"x", "trailing_bytes", f"byte {8 + len(INSERT_VALUE)}"),
    (ROW_KEY, b"[" * 200, "too_deep", "byte 8"),
    (ROW_KEY, b"null", "wrong_type", "$.values[0]"),
    (ROW_KEY, b"{}", "wrong_members", "$.values[0]"),
    (ROW_KEY, b'{"u":{}}', "wrong_members", "$.values[0]"),
    (ROW_KEY, b'{"p":{"c":{"t":3,"f":0,"v":1}}}', "wrong_members", "$.values[0]"),
    (ROW_KEY, b'{"u":[]}', "wrong_type", "$.values[0].u"),
    (
        ROW_KEY,
        b'{"u":{"c":{"t":3,"f":0,"v":1}},"d":{"c":{"t":3,"f":0,"v":1}}}',
        "wrong_members",
        "$.values[0]",
    ),
    (DDL_KEY, b"", "empty_value", "byte 8"),
    (DDL_KEY, b'{"q":"x"}', "missing_field", "$.values[0].t"),
    (DDL_KEY, b'{"q":"x","t":256}', "out_of_range", "$.values[0].t"),
    (DDL_KEY, b'{"q":"x","t":"256"}', "out_of_range", "$.values[0].t"),
    (DDL_KEY, b'{"q":"x","t":"-3"}', "wrong_type", "$.values[0].t"),
    (DDL_KEY, b'{"q":"x","t":"0003"}', "wrong_type", "$.values[0].t"),
    (DDL_KEY, b'{"q":"","t":3}', "empty_text", "$.values[0].q"),
    (DDL_KEY, b'{"q":7,"t":3}', "wrong_type", "$.values[0].q"),
]


def test_positions_count_the_parts() -> None:
    good = (ROW_KEY, INSERT_VALUE)
    start = 8 + len(INSERT_VALUE) + 8
    outcomes = assert_equal(
        [
            record(good, (ROW_KEY, b"{}")),
            record(good, (ROW_KEY, b"!")),
            record(good, (b"!", b"{}")),
            record(good, (b"{}", b"{}")),
        ],
        OPEN,
    )
    assert [outcome[1] for outcome in outcomes] == [
        "$.values[1]",
        f"byte {start}",
        f"key byte {8 + 8 + len(ROW_KEY) + 8}",
        "$.keys[1].t",
    ]


FRAME = number(len(WATERMARK_KEY)) + WATERMARK_KEY
WRONG_FRAMES = [
    (None, b"", "null_key", "key byte 0"),
    (None, None, "null_key", "key byte 0"),
    (b"", b"", "truncated", "key byte 0"),
    (number(1)[:7], b"", "truncated", "key byte 7"),
    (number(1), None, "null_value", "byte 0"),
    (number(1) + number(len(ROW_KEY)) + ROW_KEY, None, "null_value", "byte 0"),
    (number(1) + FRAME + number(len(DDL_KEY)) + DDL_KEY, None, "null_value", "byte 0"),
    (number(1) + FRAME[:-1], None, "length_beyond_end", "key byte 8"),
    (number(1), b"", "empty_value", "byte 0"),
    (number(1) + number(len(ROW_KEY)) + ROW_KEY, b"", "empty_value", "byte 0"),
    (number(1), bytes(8), "trailing_bytes", "byte 0"),
    (number(1) + FRAME, bytes(7), "truncated", "byte 7"),
    (number(1) + FRAME, bytes(9), "trailing_bytes", "byte 8"),
    (number(1) + FRAME, bytes(16), "trailing_bytes", "byte 8"),
    (number(1) + FRAME + FRAME, bytes(8), "missing_value", "byte 8"),
    (number(1) + FRAME + b"\0", bytes(8), "truncated", "key byte 48"),
    (number(1) + FRAME[:-1], bytes(8), "length_beyond_end", "key byte 8"),
    (number(1) + FRAME, number(1), "length_beyond_end", "byte 0"),
    (number(1) + number(2**63) + WATERMARK_KEY, bytes(8), "length_beyond_end", "key byte 8"),
    (number(1) + FRAME, number(2**64 - 1) + b"{}", "length_beyond_end", "byte 0"),
]


def update(after: str, before: str) -> Record:
    return record((ROW_KEY, f'{{"u":{{{after}}},"p":{{{before}}}}}'.encode()))


NAMED = '"id":{"t":3,"h":true,"f":11,"v":1}'
NULLED = '"a":{"t":15,"f":64,"v":null},"b":{"t":3,"f":65,"v":null},"c":{"t":3,"f":65,"v":9}'


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        ('"t":15,"f":64,"v":"x"', {}),
        ('"t":15,"f":64,"v":"x","t":3,"f":65,"v":-7', {}),
        ('"t":3,"f":65,"v":1,"c":{"t":3,"f":65,"v":8}', {"c": "8"}),
        ('"c":{"t":3,"f":65,"v":8},"t":15,"f":64,"v":"{}"', {"c": "8"}),
        ('"t":3,"h":true,"f":0,"v":1,"c":{"t":3,"f":65,"v":null}', {"c": None}),
        ('"v":1e999', {}),
    ],
)
def test_columns_without_a_name_are_passed_over_and_marked(
    before: str, wanted: dict[str, str | None]
) -> None:
    good = update(f"{NAMED},{NULLED}", '"c":{"t":3,"f":65,"v":8}')
    damaged, whole, several = assert_equal(
        [
            update(f"{NAMED},{NULLED}", before),
            good,
            record(
                (ROW_KEY, INSERT_VALUE),
                (ROW_KEY, f'{{"u":{{{NAMED},{NULLED}}},"p":{{{before}}}}}'.encode()),
                (ROW_KEY, DELETE_VALUE),
            ),
        ],
        OPEN,
    )
    event = only(damaged)
    assert (event.op, event.before) == (Op.UPDATE, wanted)
    assert event.after == {"id": "1", "a": None, "b": None, "c": "9"}
    assert event.shape.damaged
    assert not only(whole).shape.damaged
    assert event.shape == replace(only(whole).shape, damaged=True)
    mixed: Any = several
    assert [item.op for item in mixed] == [Op.INSERT, Op.UPDATE, Op.DELETE]
    assert [item.shape.damaged for item in mixed] == [False, True, False]


def test_columns_of_the_names_of_members_are_columns() -> None:
    columns = '"t":{"t":3,"f":65,"v":1},"v":{"t":15,"f":64,"v":null}'
    before = '"t":{"t":3,"f":65,"v":2},"v":{"t":15,"f":64,"v":"x"}'
    event = only(assert_equal([update(columns, before)], OPEN)[0])
    assert (event.before, event.after) == ({"t": "2", "v": "x"}, {"t": "1", "v": None})
    assert not event.shape.damaged


@pytest.mark.parametrize("value", ["1", "[]", "null", '"x"'])
def test_other_members_than_columns_are_refused(value: str) -> None:
    for image in (f'"x":{value}', f'"t":{value}'):
        outcomes = assert_equal(
            [
                record((ROW_KEY, f'{{"u":{{{NAMED},{image}}}}}'.encode())),
                record((ROW_KEY, f'{{"d":{{{NAMED},{image}}}}}'.encode())),
                update(NAMED, f"{NAMED},{image.replace('t', 'x')}"),
            ],
            OPEN,
        )
        assert {outcome[0] for outcome in outcomes} == {"wrong_type"}


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        ('"a":{"t":3,"h":true,"f":0,"v":1},"b":{"t":3,"f":65,"v":1}', {"a": 2, "b": 65}),
        ('"a":{"t":3,"h":true,"f":0,"v":1},"b":{"t":3,"f":11,"v":1}', {"a": 2, "b": 9}),
        ('"a":{"t":3,"h":true,"v":1},"b":{"t":3,"v":1}', {"a": 2, "b": 0}),
        ('"a":{"t":3,"f":11,"v":1},"b":{"t":3,"f":1,"v":1}', {"a": 9, "b": 1}),
        ('"a":{"t":3,"h":false,"f":11,"v":1}', {"a": 9}),
    ],
)
def test_the_member_h_says_which_columns_are_the_handle_key(
    columns: str, wanted: dict[str, int]
) -> None:
    records = [record((ROW_KEY, f'{{"{name}":{{{columns}}}}}'.encode())) for name in ("u", "d")]
    for outcome in assert_equal(records, OPEN):
        shape = only(outcome).shape
        assert {column.name: column.flags for column in shape.columns} == wanted


def test_a_value_in_either_image_tells_how_a_column_is_read() -> None:
    blob = '"c":{"t":252,"f":0,"v":"%s"}'
    text, more = "YQ==", "/w=="
    for after, before in ((text, more), (more, text)):
        event = only(assert_equal([update(blob % after, blob % before)], OPEN)[0])
        assert (event.after, event.before) == ({"c": after}, {"c": before})
        assert event.shape.columns[0].mysql_type == "blob"


EMPTY_DDLS = [
    ('{"ts":0,"scm":"","tbl":"","t":2}', '{"q":"","t":0}'),
    ('{"ts":0,"t":2}', '{"q":"","t":3}'),
    ('{"t":2}', '{"q":null,"t":"0"}'),
    ('{"scm":null,"ts":null,"t":2}', "{}"),
]


def test_a_ddl_that_says_nothing_is_a_bootstrap() -> None:
    records = [record((key.encode(), value.encode())) for key, value in EMPTY_DDLS]
    for outcome in assert_equal(records, OPEN):
        assert outcome == [Bootstrap(build_ts_ms=None, schema=None)]
    (written,) = encode([Bootstrap(build_ts_ms=None, schema=None)])
    assert written == records[0]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ('{"ts":7,"scm":"","tbl":"","t":2}', '{"q":"","t":0}', "empty_text"),
        ('{"ts":0,"scm":"d","tbl":"","t":2}', '{"q":"","t":0}', "empty_text"),
        ('{"scm":"d","t":2}', '{"q":"","t":0}', "missing_field"),
        ('{"ts":0,"scm":"","tbl":"t","t":2}', '{"t":0}', "missing_field"),
        ('{"ts":-1,"t":2}', '{"q":"","t":0}', "out_of_range"),
        ('{"ts":0,"t":2}', '{"q":"","t":0', "invalid_json"),
        ('{"ts":0,"t":2}', "[]", "wrong_type"),
    ],
)
def test_a_ddl_that_says_a_part_is_refused(key: str, value: str, reason: str) -> None:
    (outcome,) = assert_equal([record((key.encode(), value.encode()))], OPEN)
    assert outcome[0] == reason


def test_the_code_of_a_ddl_may_be_text() -> None:
    """The protocol calls it a string and shows a number."""
    text = DDL_VALUE.replace(b'"t":3', b'"t":"3"')
    assert text != DDL_VALUE
    assert decode(record((DDL_KEY, text))) == decode(record((DDL_KEY, DDL_VALUE)))
    assert_equal([record((DDL_KEY, text))], OPEN)


@pytest.mark.parametrize("count", [1, 2])
def test_watermarks_need_no_value(count: int) -> None:
    """The protocol says that a resolved event has none; TiCDC writes a length of 0."""
    key = number(1) + FRAME * count
    sent = [Record(key=key, value=value) for value in (None, b"", bytes(8 * count))]
    assert assert_equal(sent, OPEN) == [decode(record((WATERMARK_KEY, b""))) * count] * 3


def test_what_is_refused() -> None:
    wrong = [
        *((row(c=fields), *why) for fields, *why in WRONG_COLUMNS),
        *((record((key, value)), *why) for key, value, *why in WRONG_PARTS),
        *((Record(key=key, value=value), *why) for key, value, *why in WRONG_FRAMES),
    ]
    assert_refused(wrong, OPEN)


@pytest.mark.parametrize("version", [0, 2, 256, 2**56, 2**63, 2**64 - 1])
def test_other_versions_are_refused_by_name(version: int) -> None:
    other = record((ROW_KEY, INSERT_VALUE), version=version)
    (outcome,) = assert_equal([other], OPEN)
    assert outcome == ("unsupported_version", "key byte 0", "1", str(version))
    with pytest.raises(UnsupportedVersionError):
        decode(other)


def test_of_several_members_of_one_name_the_last_wins() -> None:
    key = b'{"ts":1,"ts":2,"scm":"a","scm":"b","tbl":"t","t":3,"t":1}'
    value = (
        b'{"u":{"a":{"t":3,"f":0,"v":1}},"u":{"c":{"t":3,"f":0,"v":1,"v":2},'
        b'"b":{"t":3,"f":0,"v":1},"c":{"t":3,"t":8,"f":0,"v":3}}}'
    )
    wrong_first = b'{"u":{"a":{"t":3,"f":0,"v":{}},"a":{"t":3,"f":0,"v":1}}}'
    wrong_last = b'{"u":{"a":{"t":3,"f":0,"v":1},"a":{"t":3,"f":0,"v":{}}}}'
    first, second, third = assert_equal(
        [record((key, value)), record((key, wrong_first)), record((key, wrong_last))], OPEN
    )
    event = only(first)
    assert (event.commit_ts, event.database) == (2, "b")
    assert list(event.after.items()) == [("c", "3"), ("b", "1")]
    assert only(second).after == {"a": "1"}
    assert third[:2] == ("wrong_type", "$.values[0].u.a.v")


# --- writing ---


def test_bytes_worked_out_by_hand() -> None:
    """Each length is that of the JSON behind it: 0x37 is 55, 0x1f is 31."""
    events = decode(MIXED)
    assert encode(events[3:]) == [
        Record(
            key=b"\0\0\0\0\0\0\0\1" + b"\0\0\0\0\0\0\0\x1f" + WATERMARK_KEY,
            value=b"\0\0\0\0\0\0\0\0",
        )
    ]
    rows, watermark = encode(events)
    assert rows.key == number(1) + 3 * (b"\0\0\0\0\0\0\0\x37" + ROW_KEY)
    assert rows == record((ROW_KEY, INSERT_VALUE), (ROW_KEY, UPDATE_VALUE), (ROW_KEY, DELETE_VALUE))
    assert [watermark] == encode(events[3:])
    assert encode(decode(DDL)) == [DDL]


@pytest.mark.parametrize(
    ("code", "value", "written"),
    [
        (5, "1" + 21 * "0", b"1e+21"),
        (5, "1" + 20 * "0", b"100000000000000000000"),
        (5, "0.000001", b"0.000001"),
        (5, "0.00000099", b"9.9e-7"),
        (5, "-0.000000000012", b"-1.2e-11"),
        (5, "17976931348623157" + 292 * "0", b"1.7976931348623157e+308"),
        (5, "-0", b"-0"),
        (5, "1.50", b"1.5"),
        (4, "340282350000000000000000000000000000000", b"3.4028235e+38"),
        (4, "0.000001", b"0.000001"),
        (4, "0.0000009", b"9e-7"),
        (4, "1.1", b"1.1"),
        (16, "18446744073709551615", b"18446744073709551615"),
        (246, "1.10", b'"1.10"'),
        (15, "<&>", rb'"\u003c\u0026\u003e"'),
        (252, "é", b'"w6k="'),
    ],
)
def test_values_as_go_writes_them(code: int, value: str, written: bytes) -> None:
    expected = b'{"u":{"c":{"t":%d,"f":0,"v":%s}}}' % (code, written)
    assert insert_of(TYPE_NAMES[code][0], value).value == number(len(expected)) + expected


def insert_of(mysql_type: str, value: Any, flags: int = 0) -> Record:
    insert = decode(MIXED)[0]
    assert isinstance(insert, RowChange)
    shape = RowShape((SentColumn("c", mysql_type, ColumnFlag(flags)),))
    (written,) = encode([replace(insert, after={"c": value}, shape=shape)])
    return written


def test_a_zoned_timestamp_loses_its_zone() -> None:
    written = insert_of("timestamp", ZonedTimestamp(location="Asia/Tokyo", value="2020-01-01"))
    assert only(assert_equal([written], OPEN)[0]).after == {"c": "2020-01-01"}


# --- values inside a record ---


def test_values_are_changed_where_they_are() -> None:
    seen: list[str] = []

    def twice(value: bytes, position: str) -> bytes:
        seen.append(position)
        return value + value

    parts = [(b"a", b"xy"), (b"bb", b""), (b"c", b"z")]
    assert map_values(record(*parts), twice) == record((b"a", b"xyxy"), (b"bb", b""), (b"c", b"zz"))
    assert seen == ["byte 8", "byte 26"]
    assert map_values(Record(key=b"k", value=None), twice) == Record(key=b"k", value=None)
    assert map_values(Record(key=None, value=b""), twice) == Record(key=None, value=b"")


def test_a_broken_frame_is_seen_before_its_value_is_changed() -> None:
    def refuse(_value: bytes, _position: str) -> bytes:
        raise AssertionError

    for value, position in ((number(2) + b"x", "byte 0"), (b"1234567", "byte 7")):
        with pytest.raises(WireError) as caught:
            map_values(Record(key=b"", value=value), refuse)
        assert caught.value.position == position


# --- Go's quoting ---


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", ""),
        (b"plain ~!#[]", "plain ~!#[]"),
        (b'"\\', r"\"\\"),
        (b"\a\b\f\n\r\t\v", r"\a\b\f\n\r\t\v"),
        (b"\x00\x1f\x7f", r"\x00\x1f\x7f"),
        (b"\x80\xff", r"\x80\xff"),
        (b"\xe2\x82A", r"\xe2\x82A"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),
        (b"\xc0\x80", r"\xc0\x80"),
        ("é数🚀�".encode(), "é数🚀�"),
        ("\x85\xa0\u200d\u2028\ue000".encode(), r"\u0085\u00a0\u200d\u2028\ue000"),
        ("\U000e0001\U0010ffff".encode(), r"\U000e0001\U0010ffff"),
    ],
)
def test_bytes_as_go_quotes_them(value: bytes, text: str) -> None:
    assert quote(value) == text
    assert unquote(text) == value


@given(st.binary(max_size=64))
def test_quoted_bytes_are_read_again(value: bytes) -> None:
    assert unquote(quote(value)) == value


# --- there and back ---

EVENTS = (
    strategies.flagged_rows(in_open=True)
    | strategies.flagged_rows(in_open=True)
    | strategies.flagged_ddl_events
    | strategies.untimed_watermarks
)


@examples(120)
@given(st.lists(EVENTS, min_size=1, max_size=5), st.integers(1, 4))
def test_what_is_written_is_read_again(events: list[Event], batch_size: int) -> None:
    written = encode(events, max_batch_size=batch_size)
    outcomes = assert_equal(written, OPEN)
    assert all(isinstance(outcome, list) for outcome in outcomes)
    assert [event for outcome in outcomes for event in outcome] == events
    assert [
        again
        for outcome in outcomes
        if isinstance(outcome, list)
        for again in encode(outcome, max_batch_size=len(outcome))
    ] == written
