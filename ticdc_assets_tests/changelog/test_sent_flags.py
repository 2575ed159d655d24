"""Rows of Open Protocol whose flags are not those of their columns, and what becomes of them."""

import json
from base64 import b64encode
from typing import Any

import pytest

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import Event
from ticdc_assets.model.mysql_types import arrow_type, lacks_sign
from ticdc_assets.model.schemas import ColumnFlag, RowShape, SentColumn
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.open.reference import DDL, ROW
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import ROW as ROW_KIND
from ticdc_assets_tests.changelog.lives import only_table
from ticdc_assets_tests.events import ddl_event, row_event
from ticdc_assets_tests.reference.fold import FoldedTable
from ticdc_assets_tests.wire.comparing import assert_equal, batch_of
from ticdc_assets_tests.wire.open.test_messages import record as open_record

OPEN = WireFormat.OPEN_PROTOCOL
ID = {"t": 3, "h": True, "f": 11}


def record(*parts: tuple[dict[str, Any], dict[str, Any] | str]) -> Record:
    """Return the record of keys and values; a value may be its JSON text."""
    return open_record(
        *(
            (
                json.dumps(key).encode(),
                (value if isinstance(value, str) else json.dumps(value)).encode(),
            )
            for key, value in parts
        )
    )


def key(ts: int, kind: int, partition: int | None = 141) -> dict[str, Any]:
    place = {} if kind == DDL or partition is None else {"ptn": partition}
    return {"ts": ts, "scm": "d", "tbl": "t", "t": kind, **place}


def ddl(ts: int, sql: str) -> Record:
    return record((key(ts, DDL), {"q": sql, "t": 3 if sql.startswith("create") else 5}))


def row(ts: int, *, partition: int | None = 141, **images: dict[str, dict[str, Any]]) -> Record:
    return record((key(ts, ROW, partition), images))


def put(ts: int, number: int, **columns: tuple[int, int, Any]) -> Record:
    """Return an INSERT of a row with an id and more columns: type code, flags and value."""
    return row(
        ts,
        u={
            "id": {**ID, "v": number},
            **{name: {"t": t, "f": f, "v": v} for name, (t, f, v) in columns.items()},
        },
    )


def folded(*records: Record) -> FoldedTable:
    """Return the one table of some records, read by both decoders."""
    events: list[Event] = []
    for outcome in assert_equal(records, OPEN):
        assert isinstance(outcome, list), outcome
        events += outcome
    return only_table(events)


def rows(table: FoldedTable) -> dict[str, dict[str, str | None]]:
    return {str(item["id"]): item for item in table.listed()}


CREATE = (
    "create table t (id int primary key) partition by range (id) (partition p values less than (9))"
)
GO_QUOTED = r"\xff\x00\"é\u00a0"
CONTENT = b'\xff\x00"' + "é\u00a0".encode()
HEX = "0x" + CONTENT.hex()
IN_BASE64 = b64encode(CONTENT).decode()


@pytest.mark.parametrize("flags", [0, 64, 65])
@pytest.mark.parametrize(
    ("sql", "code", "sent", "wanted"),
    [
        ("bigint unsigned", 8, 2**64 - 1, str(2**64 - 1)),
        ("bigint", 8, -(2**63), str(-(2**63))),
        ("int unsigned", 3, 2**32 - 1, str(2**32 - 1)),
        ("tinyint unsigned", 1, 255, "255"),
        ("mediumint", 9, -1, "-1"),
        ("decimal(5,2) unsigned", 246, "1.50", "1.50"),
        ("float unsigned", 4, 1.5, "1.5"),
        ("varbinary(20)", 15, GO_QUOTED, HEX),
        ("varbinary(20)", 15, "plain", "0x" + b"plain".hex()),
        ("varbinary(20)", 15, "", "0x"),
        ("binary(9)", 254, GO_QUOTED, HEX),
        ("varchar(20) charset binary", 15, GO_QUOTED, HEX),
        ("tinyblob", 249, IN_BASE64, HEX),
        ("blob", 252, b64encode(b"text").decode(), "0x" + b"text".hex()),
        ("longblob", 251, IN_BASE64, HEX),
        ("varchar(20)", 15, 'say "so"\n\\', 'say "so"\n\\'),
        ("varchar(20)", 15, r"C:\temp\new", r"C:\temp\new"),
        ("varchar(20)", 15, r"\q \x41 \101 \xFF", r"\q \x41 \101 \xFF"),
        ("char(9)", 254, "é\u00a0", "é\u00a0"),
        ("text", 252, b64encode("é".encode()).decode(), "é"),
        ("json", 245, '{"a": 1}', '{"a":1}'),
        ("bit(64)", 16, 2**64 - 1, str(2**64 - 1)),
        ("enum('a','b')", 247, 2, "b"),
        ("datetime(3)", 12, "2024-01-01 00:00:00.500", "2024-01-01 00:00:00.500"),
    ],
)
def test_a_value_is_read_by_the_type_that_ddl_told(
    flags: int, sql: str, code: int, sent: Any, wanted: str
) -> None:
    """The flags are none, or those of another type that the column had."""
    table = folded(
        ddl(10, CREATE),
        put(20, 1),
        ddl(30, f"alter table t add column c {sql}"),
        put(40, 2, c=(code, flags, sent)),
        put(50, 3, c=(code, flags, None)),
    )
    assert rows(table) == {
        "1": {"id": "1", "c": None},
        "2": {"id": "2", "c": wanted},
        "3": {"id": "3", "c": None},
    }
    assert not table.plan.caveats


@pytest.mark.parametrize(
    ("before", "after", "old", "new", "wanted"),
    [
        ("int", "bigint unsigned", (3, 65, -1), (8, 65, 2**64 - 1), ("-1", str(2**64 - 1))),
        ("varchar(20)", "varbinary(20)", (15, 64, "a"), (15, 64, r"\xff"), ("0x61", "0xff")),
        ("varbinary(20)", "varchar(20)", (15, 65, "a"), (15, 65, 'b"\n'), ("a", 'b"\n')),
        ("text", "blob", (252, 64, "YQ=="), (252, 64, "/w=="), ("0x61", "0xff")),
        ("blob", "text", (252, 65, "YQ=="), (252, 65, "w6k="), ("a", "é")),
    ],
)
def test_flags_that_a_modify_changed_do_not_count(
    before: str,
    after: str,
    old: tuple[int, int, Any],
    new: tuple[int, int, Any],
    wanted: tuple[str, str],
) -> None:
    table = folded(
        ddl(10, CREATE.replace("primary key", f"primary key, c {before}")),
        put(20, 1, c=old),
        ddl(30, f"alter table t modify c {after}"),
        put(40, 2, c=new),
    )
    # A negative number went through the MODIFY in some SQL mode: what of is another matter.
    found = rows(table)
    assert found["2"]["c"] == wanted[1]
    assert found["1"]["c"] == (wanted[0] if wanted[0] != "-1" else found["1"]["c"])


def test_one_value_that_is_none_of_its_column_stops_no_other_row() -> None:
    def part(number: int, sent: str) -> tuple[dict[str, Any], dict[str, Any]]:
        columns = {"id": {**ID, "v": number}, "c": {"t": 15, "f": 0, "v": sent}}
        return key(40, ROW), {"u": columns}

    table = folded(
        ddl(10, CREATE.replace("primary key", "primary key, c varbinary(9)")),
        record(part(1, "a"), part(2, r"\q"), part(3, r"\xff")),
    )
    assert {number: item["c"] for number, item in rows(table).items()} == {"1": "0x61", "3": "0xff"}


def test_a_column_that_was_renamed_keeps_its_key() -> None:
    table = folded(
        ddl(10, "create table t (a int, b bigint unsigned, primary key (a, b))"),
        row(20, u={"a": {**ID, "v": 1}, "b": {"t": 8, "h": True, "f": 139, "v": 2**64 - 1}}),
        ddl(30, "alter table t rename column b to c"),
        row(40, d={"a": {**ID, "v": 1}, "c": {"t": 8, "h": True, "f": 0, "v": 2**64 - 1}}),
        row(50, u={"a": {**ID, "v": 2}, "c": {"t": 8, "h": True, "f": 0, "v": 2**64 - 2}}),
    )
    assert table.plan.schema.handle_key == ("a", "c")
    assert [dict(item) for item in table.listed()] == [{"a": "2", "c": str(2**64 - 2)}]


@pytest.mark.parametrize("drop", ["alter table t drop primary key", None])
def test_a_key_that_was_dropped_is_none_whatever_the_flags_say(drop: str | None) -> None:
    """The new TiCDC leaves out a DDL after which it would not take the table, but not its rows."""
    stale = {"id": {"t": 3, "f": 11, "v": 1}, "c": {"t": 3, "f": 65, "v": 6}}
    table = folded(
        ddl(10, "create table t (id int primary key nonclustered, c int)"),
        row(20, u={**stale, "id": {**ID, "v": 1}}),
        *([] if drop is None else [ddl(30, drop)]),
        row(40, u={**stale, "c": {"t": 3, "f": 65, "v": 7}}),
        row(50, d=stale),
        row(60, u={**stale, "c": {"t": 3, "f": 65, "v": 8}}),
    )
    assert sorted(item["c"] or "" for item in table.listed()) == ["7", "8"]
    assert table.plan.schema.handle_key == ()


def test_without_ddl_a_sign_that_nothing_tells_is_not_claimed() -> None:
    low, high = str(-(2**63)), str(2**64 - 1)
    table = folded(
        put(20, 1, c=(8, 0, int(high)), s=(1, 0, 255)),
        put(30, 2, c=(8, 0, int(low)), s=(1, 0, -128)),
    )
    assert {number: item["c"] for number, item in rows(table).items()} == {"1": high, "2": low}
    columns = {column.name: column for column in table.plan.schema.columns}
    assert lacks_sign(columns["c"])
    assert lacks_sign(columns["s"])
    assert not lacks_sign(columns["id"])
    assert str(arrow_type(columns["c"])) == "decimal128(20, 0)"
    assert str(arrow_type(columns["s"])) == "int16"


def test_flags_that_come_later_say_what_those_of_0_did_not() -> None:
    table = folded(
        put(20, 1, c=(8, 0, 7), b=(252, 0, "YQ=="), v=(15, 0, r"\"")),
        put(30, 2, c=(8, 193, 2**64 - 1), b=(252, 65, "/w=="), v=(15, 65, r"\xff")),
        put(40, 3, c=(8, 0, 8), b=(252, 0, "YQ=="), v=(15, 0, r"\"")),
    )
    columns = {column.name: column for column in table.plan.schema.columns}
    assert columns["c"].unsigned
    assert (columns["b"].mysql_type, columns["v"].mysql_type) == ("blob", "varbinary")
    found = rows(table)
    assert (found["2"]["c"], found["2"]["b"], found["2"]["v"]) == (str(2**64 - 1), "0xff", "0xff")
    assert (found["3"]["c"], found["3"]["b"], found["3"]["v"]) == ("8", "0x61", "0x22")


@pytest.mark.parametrize("is_keyed", [True, False])
def test_the_flags_of_a_row_count_for_its_image_before(*, is_keyed: bool) -> None:
    """TiCDC v8.5.4 and v8.5.5 send TiDB's flags in `p` with only-output-updated-columns.

    There 1 is NOT NULL, not binary, and 128 is binary.
    """
    number = ID if is_keyed else {"t": 3, "f": 65}
    texts = {"s": (15, 0), "t": (252, 0), "b": (15, 65), "x": (252, 65)}

    def image(*values: str) -> dict[str, dict[str, Any]]:
        named = zip(texts.items(), values, strict=True)
        columns = {name: {"t": t, "f": f, "v": value} for (name, (t, f)), value in named}
        return {"id": {**number, "v": 1}, **columns}

    old = ("old", b64encode(b"old").decode(), r"\xff\x01", b64encode(b"\xff").decode())
    new = ("new", b64encode(b"new").decode(), r"\xff\x02", b64encode(b"\xfe").decode())
    before = image(*old)
    del before["id"]
    for name, flags in (("s", 4097), ("t", 4113), ("b", 128), ("x", 144)):
        before[name]["f"] = flags
    key_text = " primary key" if is_keyed else ""
    sql = f"create table t (id int{key_text}, s varchar(9) not null, t text not null, "
    table = folded(
        ddl(10, sql + "b varbinary(9), x blob)"),
        row(20, partition=None, u=image(*old)),
        row(30, partition=None, u=image(*new), p=before),
    )
    assert table.quarantined == []
    assert table.listed() == [{"id": "1", "s": "new", "t": "new", "b": "0xff02", "x": "0xfe"}]


def test_a_value_proves_bytes_where_nothing_else_tells() -> None:
    table = folded(put(20, 1, b=(252, 0, "YQ==")), put(30, 2, b=(252, 0, "/w==")))
    assert {number: item["b"] for number, item in rows(table).items()} == {"1": "0x61", "2": "0xff"}


# ------------------------------------------------------------------------------ craft


def test_craft_rows_are_read_by_the_type_that_ddl_told() -> None:
    """Its text is the bytes themselves: nothing in it is quoted."""
    flags = {"id": ColumnFlag(11), "v": ColumnFlag(0), "b": ColumnFlag(64), "x": ColumnFlag(65)}
    shape = RowShape(
        columns=(
            SentColumn("id", "int", flags["id"]),
            SentColumn("v", "varchar", flags["v"]),
            SentColumn("b", "text", flags["b"]),
            SentColumn("x", "varbinary", flags["x"]),
        )
    )
    values = {"id": "1", "v": r"\n", "b": "é", "x": b64encode(b"a\nb\\").decode()}
    sql = "create table t (id int primary key, v varbinary(9), b blob, x varchar(9))"
    events = [ddl_event(10, sql), row_event(20, after=values, shape=shape)]
    table = only_table(
        event
        for item in encode(WireFormat.CRAFT, events)
        for event in decode(WireFormat.CRAFT, item)
    )
    assert list(table.listed()) == [
        {"id": "1", "v": "0x" + rb"\n".hex(), "b": "0x" + "é".encode().hex(), "x": "a\nb\\"}
    ]


# ------------------------------------------------------------------------------ damaged images

DAMAGED = '{"u":{"id":%s,"a":{"t":15,"f":64,"v":null},"b":{"t":3,"f":65,"v":%d}},"p":{%s}}'
NAMELESS = '"t":15,"f":64,"v":"x"'


def damaged(ts: int, number: int, value: int, more: str = "", key_of_row: str = "") -> Record:
    own = key_of_row or json.dumps({**ID, "v": number})
    return record((key(ts, ROW, None), DAMAGED % (own, value, NAMELESS + more)))


def test_what_is_whole_of_a_damaged_row_is_applied() -> None:
    table = folded(
        ddl(10, "create table t (id int primary key, a varchar(9), b int)"),
        put(20, 1, a=(15, 64, "x"), b=(3, 65, 1)),
        put(20, 2, a=(15, 64, "x"), b=(3, 65, 1)),
        damaged(30, 1, 1),
        damaged(40, 2, 9, ',"b":{"t":3,"f":65,"v":1}'),
    )
    assert rows(table) == {
        "1": {"id": "1", "a": None, "b": "1"},
        "2": {"id": "2", "a": None, "b": "9"},
    }


def test_without_a_key_a_damaged_row_is_refused() -> None:
    plain = json.dumps({"t": 3, "f": 65, "v": 1})
    row_of = {"a": {"t": 15, "f": 64, "v": "x"}, "b": {"t": 3, "f": 65, "v": 1}}
    table = folded(
        ddl(10, "create table t (id int, a varchar(9), b int)"),
        row(20, partition=None, u={"id": json.loads(plain), **row_of}),
        damaged(30, 1, 1, key_of_row=plain),
    )
    assert [dict(item) for item in table.listed()] == [{"id": "1", "a": "x", "b": "1"}]
    ((_, error),) = table.quarantined
    assert error.reason == "damaged_image"


def test_damaged_rows_are_counted_by_their_shape() -> None:
    items = [damaged(30, 1, 1), put(40, 2)]
    batch = decode_batch(OPEN, batch_of(items))
    marks = [
        '"damaged":true' in line["shape"] for line in batch.to_pylist() if line["kind"] == ROW_KIND
    ]
    assert marks == [True, False]
