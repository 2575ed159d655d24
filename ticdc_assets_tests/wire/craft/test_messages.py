"""Craft by hand: what is read of a record, what is refused, what is written, any bytes."""

import struct
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import UnsupportedVersionError, WireError
from ticdc_assets.demo.simulator.encoders.craft import encode, write_rows
from ticdc_assets.model.events import DdlEvent, Event, Op, RowChange, Watermark, ZonedTimestamp
from ticdc_assets.model.schemas import ColumnFlag, RowShape, SentColumn
from ticdc_assets.model.values.floats import to_float32
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire import record as record_module
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.craft.layout import MAX_NAME_BYTES, ColumnGroup, EventKind, GroupKind, Header
from ticdc_assets.wire.craft.reference import decode
from ticdc_assets.wire.record import Record
from ticdc_assets_tests import strategies
from ticdc_assets_tests.events import ddl_event, row_event
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.wire.comparing import assert_equal, assert_refused, batch_of, only

CRAFT = WireFormat.CRAFT
BINARY, HANDLE, PRIMARY, NULLABLE, UNSIGNED = 1, 2, 8, 64, 128


def u(*numbers: int) -> bytes:
    """Return uvarints, written apart from the code that is tested."""
    written = b""
    for number in numbers:
        while number > 127:
            written += bytes([number % 128 + 128])
            number //= 128
        written += bytes([number])
    return written


def z(*numbers: int) -> bytes:
    """Return varints."""
    return u(*(2 * number if number >= 0 else -2 * number - 1 for number in numbers))


def strings(*texts: bytes) -> bytes:
    return u(*map(len, texts)) + b"".join(texts)


def table(*sizes: int) -> bytes:
    """Return a size table."""
    return u(len(sizes)) + z(*(size - last for size, last in zip(sizes, (0, *sizes), strict=False)))


def message(
    headers: bytes, bodies: Sequence[bytes], terms: bytes, groups: Sequence[bytes] = ()
) -> bytes:
    """Return a message whose sizes are right."""
    tables = table(len(headers), len(terms)) + table(*map(len, bodies)) + b"".join(groups)
    return b"\x01" + headers + b"".join(bodies) + terms + tables + u(len(tables))[::-1]


TERMS = u(4) + strings(b"db", b"t", b"id", b"v")
HEADERS = u(300) + u(1) + z(-1) + z(0) + z(1)


def group(
    *columns: tuple[int, int, bytes | None], kind: int = 1, first: int = 2, count: int | None = None
) -> bytes:
    """Return a column group of (type, flags, value), its names one after the other."""
    count = len(columns) if count is None else count
    lengths = z(*(-1 if value is None else len(value) for _, _, value in columns))
    return (
        bytes([kind])
        + u(count)
        + z(first, *(1 for _ in columns[1:]))
        + u(*(code for code, _, _ in columns))
        + u(*(flags for _, flags, _ in columns))
        + lengths
        + b"".join(value or b"" for _, _, value in columns)
    )


def row(*groups: bytes, headers: bytes = HEADERS, terms: bytes = TERMS) -> bytes:
    """Return a message of one row."""
    return message(headers, [b"".join(groups)], terms, [table(*map(len, groups))])


def value_of(code: int, flags: int, raw: bytes | None) -> Any:
    """Return what both decoders read of one value."""
    (outcome,) = assert_equal([row(group((code, flags, raw)))], CRAFT)
    return only(outcome).after["id"] if isinstance(outcome, list) else outcome[0]


ID = (3, BINARY | HANDLE | PRIMARY, z(7))
TS = 415508878783938562

# Every byte by hand: 300 is 2 * 128 + 44, so ac 02; 15 is (8 + 7), and its zigzag number is 30.
INSERT = (
    b"\x01"  # version
    b"\xac\x02"  # commit ts 300
    b"\x01"  # a row
    b"\x01"  # partition -1
    b"\x00\x02"  # database is term 0, table is term 1
    b"\x01\x02"  # after, 2 columns
    b"\x04\x02"  # names are terms 2 and 2 + 1
    b"\x03\xfc\x01"  # types 3 (int) and 252 (blob)
    b"\x0b\x41"  # flags binary + handle + primary, binary + nullable
    b"\x02\x06"  # lengths 1 and 3
    b"\x0e\x00\xff\x80"  # 7 and three bytes
    b"\x04\x02\x01\x02\x01dbtidv"  # 4 terms
    b"\x02\x0c\x0a"  # 6 bytes of headers, 6 + 5 of terms
    b"\x01\x1e"  # one body of 15 bytes
    b"\x01\x1e"  # one column group of 15 bytes
    b"\x07"  # 7 bytes of tables
)
DDL = message(
    u(TS) + u(2) + z(-1) + z(0) + z(1),
    [u(5) + strings(b"alter table t add column v blob")],
    u(2) + strings(b"db", b"t"),
)
DATABASE_DDL = message(
    u(TS) + u(2) + z(-1) + z(0) + z(-1),
    [u(1) + strings(b"create database db")],
    u(1) + strings(b"db"),
)
WATERMARK = message(u(TS) + u(3) + z(-1) + z(-1) + z(-1), [b""], b"")
UPDATE = row(group(ID, (15, NULLABLE, "é".encode())), group(ID, (15, NULLABLE, None), kind=2))
DELETE = row(group(ID, kind=2))
THREE = message(
    # The commit ts goes back by 5 and forth by 7; the second row is of a partition.
    u(300, 2**64 - 5, 7) + u(1, 1, 1) + z(-1, 83, -83) + z(0, 0, 0) + z(1, 0, 0),
    [group(ID), group(ID) + group(ID, kind=2), group(ID, kind=2)],
    u(3) + strings(b"db", b"t", b"id"),
    [table(len(group(ID))), table(len(group(ID)), len(group(ID))), table(len(group(ID)))],
)
SMALL = (INSERT, UPDATE, DELETE, THREE, DDL, DATABASE_DDL, WATERMARK)

INSERT_EVENT = row_event(
    300,
    database="db",
    after={"id": "7", "v": "AP+A"},
    shape=RowShape(
        columns=(SentColumn("id", "int", ColumnFlag(11)), SentColumn("v", "blob", ColumnFlag(65)))
    ),
)


# --- reading ---


def test_bytes_worked_out_by_hand() -> None:
    assert assert_equal([INSERT], CRAFT) == [[INSERT_EVENT]]
    assert encode([INSERT_EVENT]) == [Record(key=None, value=INSERT)]
    assert row(group(ID, (252, 65, b"\x00\xff\x80"))) == INSERT


def test_updates_and_deletes() -> None:
    update, delete = map(only, assert_equal([UPDATE, DELETE], CRAFT))
    assert update == replace(
        INSERT_EVENT,
        op=Op.UPDATE,
        before={"id": "7", "v": None},
        after={"id": "7", "v": "é"},
        shape=RowShape(
            columns=(
                SentColumn("id", "int", ColumnFlag(11)),
                SentColumn("v", "varchar", ColumnFlag(64)),
            )
        ),
    )
    assert delete == replace(
        INSERT_EVENT,
        op=Op.DELETE,
        before={"id": "7"},
        after=None,
        shape=RowShape(columns=(SentColumn("id", "int", ColumnFlag(11)),), partial=True),
    )


def test_several_rows_in_one_message() -> None:
    (outcome,) = assert_equal([THREE], CRAFT)
    assert isinstance(outcome, list)
    assert [
        (event.op, event.commit_ts, event.table_id)
        for event in outcome
        if isinstance(event, RowChange)
    ] == [(Op.INSERT, 300, None), (Op.UPDATE, 295, 82), (Op.DELETE, 302, None)]
    assert encode(outcome) == [Record(key=None, value=THREE)]


def test_ddl_and_watermarks() -> None:
    ddl, database_ddl, watermark = map(only, assert_equal([DDL, DATABASE_DDL, WATERMARK], CRAFT))
    sql = "alter table t add column v blob"
    assert ddl == ddl_event(TS, sql, database="db", action_code=5)
    assert (database_ddl.ddl_type, database_ddl.action_code) == ("QUERY", 1)
    assert (database_ddl.database, database_ddl.table) == ("db", "")
    assert watermark == Watermark(watermark_ts=TS, build_ts_ms=None)
    assert [record.value for record in encode([ddl, database_ddl, watermark])] == [
        DDL,
        DATABASE_DDL,
        WATERMARK,
    ]


@pytest.mark.parametrize("terms", [b"", b"\x00"])
def test_a_dictionary_without_terms(terms: bytes) -> None:
    """TiCDC writes none where no name is; the protocol says its size, 0."""
    nameless = headers(ts=u(TS), kind=u(3), database=z(-1), table=z(-1))
    sent = message(nameless, [b""], terms)
    assert only(assert_equal([sent], CRAFT)[0]) == Watermark(watermark_ts=TS, build_ts_ms=None)
    nameless = headers(ts=u(TS), kind=u(2), database=z(-1), table=z(-1))
    text = b"create database d"
    sent = message(nameless, [u(1, len(text)) + text], terms)
    ddl = only(assert_equal([sent], CRAFT)[0])
    assert isinstance(ddl, DdlEvent)
    assert (ddl.sql, ddl.database, ddl.table) == (text.decode(), "", "")


def test_the_groups_may_stand_in_any_order() -> None:
    before, after = group(ID, kind=2), group((3, 11, z(8)))
    first, second = map(only, assert_equal([row(before, after), row(after, before)], CRAFT))
    assert first == second
    assert (first.before, first.after) == ({"id": "7"}, {"id": "8"})


def test_columns_that_only_the_image_before_has_come_last_in_the_shape() -> None:
    before = group((15, 64, b"x"), ID, kind=2, first=2)
    after = group((8, 64, z(1)), first=3)
    event = only(assert_equal([row(after, before)], CRAFT)[0])
    assert (event.before, event.after) == ({"id": "x", "v": "7"}, {"v": "1"})
    assert event.shape == RowShape(
        columns=(
            SentColumn("v", "bigint", ColumnFlag(64)),
            SentColumn("id", "varchar", ColumnFlag(64)),
        )
    )
    assert decode(encode([event])[0]) == [event]


def float_bytes(value: float) -> bytes:
    return struct.pack("<d", value)


VALUES = [
    (1, 0, z(-128), "-128"),
    (1, BINARY | UNSIGNED, u(255), "255"),
    (2, 0, z(-1), "-1"),
    (9, 0, z(8388607), "8388607"),
    (3, UNSIGNED, u(2**32 - 1), "4294967295"),
    (8, 0, z(-(2**63)), "-9223372036854775808"),
    (8, 0, z(2**63 - 1), "9223372036854775807"),
    (8, UNSIGNED, u(2**64 - 1), "18446744073709551615"),
    # More bytes than needed, as Go reads them too.
    (8, UNSIGNED, b"\x81\x00", "1"),
    (8, 0, b"\x82\x80\x80\x80\x80\x80\x80\x80\x80\x00", "1"),
    # YEAR is signed whatever its flags say.
    (13, BINARY | UNSIGNED, z(1971), "1971"),
    (16, BINARY | UNSIGNED, u(2**64 - 1), "18446744073709551615"),
    (247, 0, u(0), "0"),
    (248, 0, u(2**63), "9223372036854775808"),
    (5, 0, float_bytes(1e21), "1000000000000000000000"),
    (5, 0, float_bytes(-0.1), "-0.1"),
    (4, 0, float_bytes(to_float32(0.1)), "0.1"),
    (4, 0, float_bytes(-0.0), "-0"),
    (246, 0, b"-1.10", "-1.10"),
    (10, 0, b"0000-00-00", "0000-00-00"),
    (14, 0, b"2000-01-01", "2000-01-01"),
    (12, 0, b"9999-12-31 23:59:59.999", "9999-12-31 23:59:59.999"),
    (7, 0, b"1970-01-01 08:00:01", "1970-01-01 08:00:01"),
    (11, 0, b"-838:59:59", "-838:59:59"),
    (245, BINARY, '{"é": "<>"}'.encode(), '{"é": "<>"}'),
    (225, BINARY, b"[1,-2.5]", "[1,-2.5]"),
    *((code, 0, "é\0".encode(), "é\0") for code in (15, 249, 250, 251, 252, 253, 254)),
    *((code, BINARY, b"\xff\0", "/wA=") for code in (15, 249, 250, 251, 252, 253, 254)),
    (252, 0, b"", ""),
    (252, BINARY, b"", ""),
    (246, 0, b"", ""),
    (6, 0, None, None),
    (252, 0, None, None),
]


@pytest.mark.parametrize(("code", "flags", "raw", "text"), VALUES)
def test_values(code: int, flags: int, raw: bytes | None, text: str | None) -> None:
    assert value_of(code, flags, raw) == text


WRONG_VALUES = [
    (3, 0, b"", "truncated"),
    (3, 0, b"\x80", "truncated"),
    (3, 0, b"\x00\x00", "trailing_bytes"),
    (3, 0, b"\xff" * 9 + b"\x02", "number_too_long"),
    (3, 0, b"\xff" * 10 + b"\x01", "number_too_long"),
    (3, 0, b"\x80" * 1000 + b"\x01", "number_too_long"),
    (247, 0, b"", "truncated"),
    (5, 0, bytes(7), "wrong_length"),
    (4, 0, bytes(4), "wrong_length"),
    (5, 0, bytes(9), "wrong_length"),
    (5, 0, float_bytes(float("nan")), "not_finite"),
    (5, 0, float_bytes(float("-inf")), "not_finite"),
    (15, 0, b"\xff", "invalid_utf8"),
    (15, 0, b"\xed\xa0\x80", "invalid_utf8"),
    (246, BINARY, b"\xc3", "invalid_utf8"),
    (6, 0, b"", "unexpected_value"),
    (0, 0, b"x", "unknown_column_type"),
    (0, 0, None, "unknown_column_type"),
    (255, 0, None, "unknown_column_type"),
    (2**63, 0, b"x", "unknown_column_type"),
    (3, 256, z(7), "unknown_flags"),
]


@pytest.mark.parametrize(("code", "flags", "raw", "reason"), WRONG_VALUES)
def test_wrong_values(code: int, flags: int, raw: bytes | None, reason: str) -> None:
    assert value_of(code, flags, raw) == reason


DAMAGED_FLOATS = [
    (float("nan"), "0"),
    (float("inf"), "0"),
    (float("-inf"), "0"),
    (1e300, "0"),
    (-1e39, "0"),
    (5e-324, "0"),
    (-5e-324, "-0"),
    (0.1, "0.1"),
    (3.4028235677973366e38, "0"),
    (3.4028235677973362e38, "340282350000000000000000000000000000000"),
]


@pytest.mark.parametrize(("value", "text"), DAMAGED_FLOATS)
def test_a_damaged_float_does_not_lose_its_row(value: float, text: str) -> None:
    assert value_of(4, 0, float_bytes(value)) == text


# --- refusing ---

H, B = HEADERS, group(ID)
ONE = [table(len(B))]
LONG = b"n" * (MAX_NAME_BYTES + 1)
# In JSON each of them is six characters: 252 bytes, and four more are the most.
CONTROLS = b"\x01" * 42 + b"nnnn"


def headers(**fields: bytes) -> bytes:
    parts = {"ts": u(300), "kind": u(1), "partition": z(-1), "database": z(0), "table": z(1)}
    return b"".join((parts | fields).values())


def framed(tables: bytes, before: bytes = b"\x01" + H + B + TERMS) -> bytes:
    return before + tables + u(len(tables))[::-1]


META, BODIES = table(len(H), len(TERMS)), table(len(B))
WRONG = [
    (None, "null_value", 0),
    (b"", "empty_value", 0),
    (b"\x80", "truncated", 0),
    (b"\xff" * 10, "number_too_long", 0),
    (b"\x01", "truncated", 0),
    (b"\x01\x00", "wrong_tables", 1),
    (b"\x01\x80", "truncated", 1),
    (b"\x01\x05", "truncated", 1),
    (b"\x01" + b"\xff" * 30, "truncated", 30),
    (b"\x01" + b"\x01" + b"\xff" * 9, "truncated", 1),
    (framed(b""), "wrong_tables", 25),
    (framed(META), "wrong_tables", 25),
    (framed(BODIES + BODIES), "wrong_tables", 25),
    (framed(table(1, 2, 3) + BODIES), "wrong_tables", 25),
    (framed(META + BODIES), "wrong_tables", 25),
    (framed(META + BODIES + ONE[0] * 2), "wrong_tables", 25),
    (framed(META + BODIES + b"\x00"), "empty_chunk", 30),
    (framed(META + BODIES + u(2**64 - 1)), "truncated", 40),
    (framed(META + BODIES + table(-1, len(B) + 1)), "out_of_range", 30),
    (framed(META + BODIES + table(len(B) - 1)), "sizes_differ", 25),
    (framed(table(len(H) + 1, len(TERMS)) + BODIES + ONE[0]), "sizes_differ", 25),
    (framed(META + table(2**62) + ONE[0]), "sizes_differ", 25),
    (framed(table(len(H) + 1, len(TERMS) - 1) + BODIES + ONE[0]), "trailing_bytes", 21),
    (framed(table(len(H) - 1, len(TERMS) + 1) + BODIES + ONE[0]), "truncated", 14),
    (message(headers(kind=u(0)), [B], TERMS, ONE), "unknown_kind", 3),
    (message(headers(kind=u(4)), [B], TERMS, ONE), "unknown_kind", 3),
    (message(headers(ts=u(2**63)), [B], TERMS, ONE), "out_of_range", 1),
    (message(headers(partition=z(-2)), [B], TERMS, ONE), "out_of_range", 4),
    (message(headers(database=z(4)), [B], TERMS, ONE), "unknown_term", 5),
    (message(headers(database=z(-2)), [B], TERMS, ONE), "unknown_term", 5),
    (message(headers(table=z(2**63 - 1)), [B], TERMS, ONE), "unknown_term", 6),
    (message(headers(database=z(-1)), [B], TERMS, ONE), "missing_name", 7),
    (message(headers(table=z(-1)), [B], TERMS, ONE), "missing_name", 7),
    (row(B, terms=u(3) + strings(b"", b"t", b"id")), "missing_name", 7),
    (row(B, terms=u(3) + strings(b"db", b"t", b"\xff")), "invalid_utf8", 21),
    (row(B, terms=u(3) + strings(b"db", LONG, b"id")), "name_too_long", 21),
    (row(B, terms=u(3) + strings(b"db", b"t", CONTROLS + b"n")), "name_too_long", 21),
    (row(B, terms=u(2**40) + strings(b"db", b"t", b"id")), "truncated", 20),
    (row(B, terms=u(3) + u(2**62, 1, 2) + b"dbtid"), "truncated", 26),
    (row(B, terms=TERMS + b"x"), "trailing_bytes", 25),
    (row(B, terms=b""), "unknown_term", 5),
    (row(B, terms=b"\x00"), "unknown_term", 5),
    (row(B, terms=b"\x00\x00"), "empty_chunk", 14),
    (row(B, headers=H + b"\x00"), "trailing_bytes", 7),
    (row(B, headers=H[:-1]), "truncated", 6),
    (row(b"\x03" + B[1:]), "unknown_group", 7),
    (row(b"\x00" + B[1:]), "unknown_group", 7),
    (row(B, B), "duplicate_group", 14),
    (row(B, B, B), "duplicate_group", 14),
    (row(group(ID, count=0)), "empty_chunk", 8),
    (row(group(ID, count=2**50)), "truncated", 16),
    (row(group(ID, count=2)), "truncated", 13),
    (row(group(ID, first=4)), "unknown_term", 9),
    (row(group(ID, first=-1)), "unknown_term", 9),
    (row(B + b"\x00"), "trailing_bytes", 14),
    (row(B[:-1]), "truncated", 13),
    (row(B[:-2] + z(-2)), "truncated", 13),
    (row(B[:-2] + z(2**40) + b"\x0e"), "truncated", 18),
    (row(B[:-2] + z(-(2**63)) + b"\x0e"), "truncated", 22),
    (row(b"\x01\x02" + z(2, 0) + u(3, 3, 0, 0) + z(-1, -1)), "duplicate_column", 9),
    (
        message(u(300, 1) + u(1, 2) + z(-1, 0, 0, 0, 1, 0), [B, b""], TERMS, ONE * 2),
        "mixed_kinds",
        1,
    ),
    (message(headers(kind=u(3)), [B], TERMS), "trailing_bytes", 7),
    (message(headers(kind=u(3)), [b""], TERMS, [table(0)]), "wrong_tables", 18),
    (message(headers(kind=u(2)), [b""], TERMS), "truncated", 7),
    (message(headers(kind=u(2)), [u(5)], TERMS), "truncated", 8),
    (message(headers(kind=u(2)), [u(256) + strings(b"x")], TERMS), "out_of_range", 7),
    (message(headers(kind=u(2)), [u(5) + strings(b"")], TERMS), "empty_text", 8),
    (message(headers(kind=u(2)), [u(5) + strings(b"\xff")], TERMS), "invalid_utf8", 9),
    (message(headers(kind=u(2)), [u(5) + strings(b"x") + b"y"], TERMS), "trailing_bytes", 10),
    (message(headers(kind=u(2)), [u(5, 2**63) + b"y"], TERMS), "truncated", 18),
]


def test_messages_that_are_refused() -> None:
    assert_refused([(value, reason, f"byte {place}") for value, reason, place in WRONG], CRAFT)


@pytest.mark.parametrize("name", ["\U00020000" * 62, "\x01" * 40, '"' * 64, "\\" * 64])
def test_names_that_are_said_for_each_row_make_no_message_large(name: str) -> None:
    """A name is written once, and is in the images and shapes of all rows."""
    names = tuple(f"{name}{number}" for number in range(10, 30))
    nulls = ColumnGroup(
        kind=GroupKind.AFTER, names=names, types=(3,) * 20, flags=(0,) * 20, values=(None,) * 20
    )
    header = Header(kind=EventKind.ROW, commit_ts=1, table_id=None, database="d", table="t")
    value = write_rows([header] * 500, [[nulls]] * 500)
    (outcome,) = assert_equal([value], CRAFT)
    assert isinstance(outcome, list)
    assert len(outcome) == 500
    rows = decode_batch(CRAFT, batch_of([value]))
    for column in ("after", "shape"):
        assert rows.column(column).nbytes < 90 * len(value)


def test_what_a_long_message_says_again_has_a_limit() -> None:
    header = Header(kind=EventKind.ROW, commit_ts=1, table_id=None, database="d", table="t")
    null = ColumnGroup(
        kind=GroupKind.AFTER, names=("\x01" * 40,), types=(3,), flags=(0,), values=(None,)
    )
    value = write_rows([header] * 100, [[null]] * 100)
    with mock.patch.object(record_module, "MOST_REPEATED_BYTES", 100 * 242):
        assert len(decode(Record(key=None, value=value))) == 100
    with (
        mock.patch.object(record_module, "MOST_REPEATED_BYTES", 100 * 242 - 1),
        pytest.raises(WireError, match="too_many_rows"),
    ):
        decode(Record(key=None, value=value))


@pytest.mark.parametrize("version", [0, 2, 123, 128, 2**63, 2**64 - 1])
def test_other_versions_are_refused_by_name(version: int) -> None:
    other = Record(key=None, value=u(version) + INSERT[1:])
    assert assert_equal([other], CRAFT) == [("unsupported_version", "byte 0", "1", str(version))]
    with pytest.raises(UnsupportedVersionError):
        decode(other)


# --- writing ---


def test_rows_share_records_and_nothing_else_does() -> None:
    watermark = Watermark(watermark_ts=300, build_ts_ms=None)
    (ddl,) = decode(Record(key=None, value=DDL))
    events: list[Event] = [INSERT_EVENT] * 5
    events += [watermark, watermark, INSERT_EVENT, ddl, ddl, INSERT_EVENT, INSERT_EVENT]
    records = encode(events, max_batch_size=2)
    assert [len(decode(record)) for record in records] == [2, 2, 1, 1, 1, 1, 1, 1, 2]
    assert [event for record in records for event in decode(record)] == events
    assert [len(decode(record)) for record in encode([INSERT_EVENT] * 40)] == [16, 16, 8]
    assert encode([]) == []


def test_spelled_types_and_zones_are_written() -> None:
    """Events of other formats: a type with its length, a TIMESTAMP with its zone."""
    columns = (
        SentColumn("id", "int(10) unsigned", ColumnFlag(UNSIGNED)),
        SentColumn("at", "timestamp(3)", ColumnFlag(BINARY)),
    )
    at = ZonedTimestamp(location="UTC", value="1970-01-01 00:00:01.000")
    event = replace(INSERT_EVENT, after={"id": "200", "at": at}, shape=RowShape(columns=columns))
    again = only(assert_equal([encode([event])[0].value], CRAFT)[0])
    assert again.after == {"id": "200", "at": at.value}
    assert [column.mysql_type for column in again.shape.columns] == ["int", "timestamp"]


# --- any bytes ---


def test_memory_stays_near_the_size_of_the_message() -> None:
    absurd = [
        row(group(ID, count=2**31 - 1)),
        row(B, terms=u(2**31 - 1) + strings(b"db", b"t", b"id")),
        framed(META + BODIES + u(2**31 - 1) + bytes(64)),
        framed(META + table(2**40) + ONE[0]),
        row(B[:-2] + z(2**31 - 1) + b"\x0e"),
        message(headers(kind=u(2)), [u(5) + u(2**31 - 1) + b"y"], TERMS),
    ]
    assert_equal(absurd, CRAFT)
    tracemalloc.start()
    try:
        for value in absurd:
            with pytest.raises(WireError):
                decode(Record(key=None, value=value))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


# --- both ways, both decoders ---


EVENTS = strategies.flagged_rows() | strategies.flagged_ddl_events | strategies.untimed_watermarks


@examples(100)
@given(st.lists(EVENTS, min_size=1, max_size=6))
def test_generated_events_come_back(events: list[Event]) -> None:
    outcomes = assert_equal([record.value for record in encode(events, max_batch_size=3)], CRAFT)
    again: list[Event] = []
    for outcome in outcomes:
        assert isinstance(outcome, list), outcome
        again += outcome
    assert again == events


def test_wide_and_long_rows() -> None:
    """Counts and lengths of more than one byte and more than two."""
    columns = tuple(SentColumn(f"c{number}", "text", ColumnFlag(0)) for number in range(1017))
    image = {column.name: "x" * (number * 9) for number, column in enumerate(columns)}
    event = replace(
        INSERT_EVENT,
        op=Op.UPDATE,
        before=dict.fromkeys(image),
        after=image,
        shape=RowShape(columns=columns),
    )
    written = [record.value for record in encode([event] * 3, max_batch_size=3)]
    assert assert_equal(written, CRAFT) == [[event] * 3]


def test_rows_of_many_shapes_in_one_batch() -> None:
    """What is remembered of one message must never be taken for another."""
    values = [
        row(
            group((code, flags, None), (3, 11, z(number)), first=first),
            terms=u(4) + strings(b"db", b"t", b"id", b"v%d" % (number % 3)),
        )
        for number in range(5)
        for code in (3, 8, 15, 252)
        for flags in (0, 1, 64, 65, 128, 193)
        for first in (1, 2)
    ]
    assert all(isinstance(outcome, list) for outcome in assert_equal(values + values[::-1], CRAFT))
