"""The Simple protocol in Avro: messages written by hand, hostile bytes, and the way back."""

import struct
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import UnsupportedVersionError
from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.demo.simulator.shapes import shape_of
from ticdc_assets.model.events import (
    Bootstrap,
    Checksum,
    DdlEvent,
    Event,
    Op,
    PhysicalValue,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import (
    ColumnFlag,
    ColumnSchema,
    IndexSchema,
    RowShape,
    SentColumn,
    TableSchema,
)
from ticdc_assets.model.values.floats import double_text, float_text, to_float32
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.simple import avro
from ticdc_assets_tests import strategies
from ticdc_assets_tests.events import ddl_event, row_event
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.wire.comparing import Outcome, assert_equal, assert_refused
from ticdc_assets_tests.wire.craft.test_messages import z as number

AVRO = WireFormat.SIMPLE_AVRO


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return number(len(raw)) + raw


def some(value: bytes) -> bytes:
    return b"\x02" + value


NONE = b"\x00"
END = b"\x00"
TRUE, FALSE = b"\x01", b"\x00"


def block(*items: bytes) -> bytes:
    return number(len(items)) + b"".join(items) + END if items else END


# Branches of a value.
NULL = b"\x00"
LONG, FLOAT, DOUBLE, STRING, BYTES, ZONED, UNSIGNED = (bytes([2 * n]) for n in range(1, 8))


def dml(
    op: int,
    data: bytes,
    old: bytes,
    *,
    extras: bytes = 3 * NONE,
    database: bytes | str = "d",
    table: str = "t",
    version: int = 1,
) -> bytes:
    return (
        b"\x16\x06\x06"
        + number(version)
        + text(database)
        + text(table)
        + number(112)
        + number(op)
        + number(470614220992151553)
        + number(1795250787788)
        + number(470614220990000001)
        + extras
        + data
        + old
    )


INSERT, UPDATE, DELETE = range(3)
ENTRIES = (
    text("n") + NULL,
    text("id") + LONG + number(-1),
    text("f") + FLOAT + struct.pack("<f", 1.1),
    text("d") + DOUBLE + struct.pack("<d", -1e-7),
    text('q"') + STRING + text('é"\n'),
    text("b") + BYTES + text(b"\xff\x00"),
    text("t") + ZONED + text("UTC") + text("2024-01-02 03:04:05"),
    text("u") + UNSIGNED + number(-2),
)
IMAGE = {
    "n": None,
    "id": "-1",
    "f": "1.1",
    "d": "-0.0000001",
    'q"': 'é"\n',
    "b": "/wA=",
    "t": ZonedTimestamp(location="UTC", value="2024-01-02 03:04:05"),
    "u": "18446744073709551614",
}
SHAPE = RowShape(
    columns=tuple(
        SentColumn(name, mysql_type, flags)
        for name, mysql_type, flags in (
            ("n", "json", None),
            ("id", "int", ColumnFlag.HANDLE_KEY),
            ("f", "float", None),
            ("d", "double", None),
            ('q"', "varchar", ColumnFlag(0)),
            ("b", "text", ColumnFlag.BINARY),
            ("t", "timestamp", None),
            ("u", "bigint", ColumnFlag.UNSIGNED),
        )
    )
)
ID = text("id") + LONG + number(7)

TS, BUILT = 470614220992151553, 1795250787788
ROW = row_event(TS, after=IMAGE, build_ts_ms=BUILT, table_id=112, schema_version=470614220990000001)

COLUMNS = (
    # name; type, charset, collation, length, decimal, elements, unsigned, zerofill; null, default
    text("id") + text("bigint") + text("binary") + text("binary") + number(20)
    + NONE + NONE + some(TRUE) + some(FALSE) + FALSE + NONE,
    text("mood") + text("enum") + text("utf8mb4") + text("utf8mb4_bin") + number(4)
    + NONE + some(block(text("good"), text("<b>"))) + NONE + NONE + TRUE + some(text("good")),
    text("flags") + text("bit") + text("binary") + text("binary") + number(10)
    + NONE + NONE + some(TRUE) + some(FALSE) + TRUE + some(text(b"\x02\xaa")),
    text("price") + text("decimal") + text("binary") + text("binary") + number(12)
    + some(number(2)) + NONE + some(TRUE) + some(TRUE) + TRUE + NONE,
    text("raw") + text("varbinary") + text("binary") + text("binary") + number(4)
    + NONE + NONE + NONE + NONE + TRUE + some(text(b"a\xff\xfe")),
)  # fmt: skip
INDEX = text("primary") + TRUE + TRUE + FALSE + block(text("id"))


def table(columns: tuple[bytes, ...] = COLUMNS, indexes: tuple[bytes, ...] = (INDEX,)) -> bytes:
    return (
        text("d")
        + text("t")
        + number(112)
        + number(470614220990000001)
        + block(*columns)
        + block(*indexes)
    )


def _column(name: str, mysql_type: str, length: int, **more: object) -> ColumnSchema:
    fields = {"charset": "binary", "collation": "binary", **more}
    return ColumnSchema(name=name, mysql_type=mysql_type, length=length, **fields)  # pyright: ignore[reportArgumentType]


TABLE = TableSchema(
    database="d",
    table="t",
    table_id=112,
    version=470614220990000001,
    columns=(
        _column("id", "bigint", 20, unsigned=True, nullable=False),
        _column(
            "mood",
            "enum",
            4,
            charset="utf8mb4",
            collation="utf8mb4_bin",
            elements=("good", "<b>"),
            default="good",
        ),
        _column("flags", "bit", 10, unsigned=True, default=0x2AA),
        _column("price", "decimal", 12, decimal=2, unsigned=True, zerofill=True),
        _column("raw", "varbinary", 4, default=b"a\xff\xfe"),
    ),
    indexes=(
        IndexSchema(name="primary", unique=True, primary=True, nullable=False, columns=("id",)),
    ),
)


def bootstrap(schema: bytes) -> bytes:
    return b"\x16\x02\x02\x02" + number(1795250787788) + schema


def ddl(symbol: int, sql: str, schemas: bytes) -> bytes:
    times = number(470614220992151553) + number(1795250787788)
    return b"\x16\x04\x04\x02" + number(symbol) + text(sql) + times + schemas


EXTRAS = (
    some(text("file:///tmp/a.json"))
    + some(TRUE)
    + some(number(1) + FALSE + number(2**32 - 1) + number(0))
)
MESSAGES: Mapping[bytes, Event] = {
    dml(INSERT, some(block(*ENTRIES)), NONE): ROW,
    dml(UPDATE, some(block(ID)), some(block(ID, ENTRIES[5])), extras=EXTRAS): replace(
        ROW,
        op=Op.UPDATE,
        before={"id": "7", "b": "/wA="},
        after={"id": "7"},
        handle_key_only=True,
        claim_check_location="file:///tmp/a.json",
        checksum=Checksum(version=1, corrupted=False, current=2**32 - 1, previous=0),
    ),
    dml(DELETE, NONE, some(END), extras=NONE + some(FALSE) + NONE): replace(
        ROW, op=Op.DELETE, before={}, after=None
    ),
    b"\x16\x00\x00\x02" + number(470614220992151553) + number(1795250787788): Watermark(
        watermark_ts=470614220992151553, build_ts_ms=1795250787788
    ),
    bootstrap(table()): Bootstrap(build_ts_ms=1795250787788, schema=TABLE),
    ddl(0, "create table t", some(table()) + NONE): ddl_event(
        TS, "create table t", build_ts_ms=BUILT, schema=TABLE
    ),
    ddl(7, "create database d", NONE + NONE): ddl_event(
        *(TS, "create database d"), ddl_type="QUERY", build_ts_ms=BUILT, database="", table=""
    ),
}
KINDS = ("insert", "update", "delete", "watermark", "bootstrap", "create", "query")
SMALL = dict(zip(KINDS, MESSAGES, strict=True))


def reasons(values: list[bytes]) -> set[str]:
    """Return the reasons for which both decoders refuse `values`, or "read"."""
    return {
        outcome[0] if isinstance(outcome, tuple) else "read"
        for outcome in assert_equal(values, AVRO)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_messages_written_by_hand(kind: str) -> None:
    assert assert_equal([SMALL[kind]], AVRO) == [[MESSAGES[SMALL[kind]]]]


def test_the_words_of_ddl_types_have_the_numbers_of_the_schema() -> None:
    words = [
        event.ddl_type
        for symbol in range(8)
        for event in decode(AVRO, Record(key=None, value=ddl(symbol, "x", NONE + NONE)))
        if isinstance(event, DdlEvent)
    ]
    assert " ".join(words) == "CREATE ALTER ERASE RENAME TRUNCATE CINDEX DINDEX QUERY"


@pytest.mark.parametrize("kind", KINDS)
def test_messages_by_hand_are_written_again(kind: str) -> None:
    event = MESSAGES[SMALL[kind]]
    if isinstance(event, RowChange):
        event = replace(event, shape=SHAPE)
    # TiCDC writes no flag that is false.
    wanted = dml(DELETE, NONE, some(END)) if kind == "delete" else SMALL[kind]
    assert encode(AVRO, [event]) == [Record(key=None, value=wanted)]


# ---------------------------------------------------------------- what is refused


def test_an_unknown_version_is_named_whatever_follows() -> None:
    with pytest.raises(UnsupportedVersionError):
        decode(AVRO, Record(key=None, value=dml(INSERT, b"?", b"?", version=2)))


def test_the_images_of_an_op_are_there_and_no_others() -> None:
    image = some(block(ID))
    found = {
        (op, data != NONE, old != NONE): reasons([dml(op, data, old)])
        for op in (INSERT, UPDATE, DELETE)
        for data in (NONE, image)
        for old in (NONE, image)
    }
    missing, unexpected, read = {"missing_field"}, {"unexpected_field"}, {"read"}
    assert found == {
        (INSERT, False, False): missing,
        (INSERT, False, True): missing,
        (INSERT, True, False): read,
        (INSERT, True, True): unexpected,
        (UPDATE, False, False): missing,
        (UPDATE, False, True): missing,
        (UPDATE, True, False): missing,
        (UPDATE, True, True): read,
        (DELETE, False, False): missing,
        (DELETE, False, True): read,
        (DELETE, True, False): unexpected,
        (DELETE, True, True): unexpected,
    }


@pytest.mark.parametrize(
    ("checksum", "reason"),
    [
        (number(-1) + FALSE + number(0) + number(0), "out_of_range"),
        (number(2**31) + FALSE + number(0) + number(0), "out_of_range"),
        (number(0) + b"\x02" + number(0) + number(0), "invalid_boolean"),
        (number(0) + TRUE + number(2**32) + number(0), "out_of_range"),
        (number(0) + TRUE + number(0) + number(-1), "out_of_range"),
        (number(2**31 - 1) + TRUE + number(2**32 - 1) + number(2**32 - 1), "read"),
    ],
)
def test_checksums(checksum: bytes, reason: str) -> None:
    extras = NONE + NONE + some(checksum)
    assert reasons([dml(INSERT, some(block(ID)), NONE, extras=extras)]) == {reason}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (text("a") + b"\x10", "unknown_branch"),
        (text("a") + b"\x01", "unknown_branch"),
        (text(b"\xc3") + NULL, "invalid_utf8"),
        (text("a") + STRING + text(b"\xed\xa0\x80"), "invalid_utf8"),
        (text("a") + STRING + text(b"\xc0\x80"), "invalid_utf8"),
        (text("a") + ZONED + text(b"\xff") + text(""), "invalid_utf8"),
        (text("a") + ZONED + text("") + text(b"\xff"), "invalid_utf8"),
        (text("a") + FLOAT + struct.pack("<f", float("nan")), "not_finite"),
        (text("a") + FLOAT + struct.pack("<f", float("-inf")), "not_finite"),
        (text("a") + DOUBLE + struct.pack("<d", float("nan")), "not_finite"),
        (text("a") + DOUBLE + struct.pack("<d", float("inf")), "not_finite"),
        (text("id") + NULL, "duplicate_column"),
        (text("a") + BYTES + text(b"\xff"), "read"),
        (text("") + NULL, "read"),
    ],
)
def test_entries_of_an_image(entry: bytes, reason: str) -> None:
    for entries in ((ID, entry), (ID, entry, text("z") + NULL)):
        assert reasons([dml(INSERT, some(block(*entries)), NONE)]) == {reason}


NUMBERS = {
    0: b"\x00",
    -1: b"\x01",
    63: b"\x7e",
    64: b"\x80\x01",
    2**63 - 1: b"\xfe" + b"\xff" * 8 + b"\x01",
    -(2**63): b"\xff" * 9 + b"\x01",
}


def test_numbers_at_the_limits() -> None:
    for value, raw in NUMBERS.items():
        (outcome,) = assert_equal([dml(INSERT, some(block(text("a") + LONG + raw)), NONE)], AVRO)
        assert outcome == [replace(ROW, after={"a": str(value)})]
    image = block(text("a") + LONG + b"\x82\x80\x00")
    (longer,) = assert_equal([dml(INSERT, some(image), NONE)], AVRO)
    assert longer == [replace(ROW, after={"a": "1"})]


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff" * 9 + b"\x02",
        b"\xff" * 9 + b"\x7f",
        b"\xff" * 9 + b"\x81\x00",
        b"\xff" * 10,
        b"\x80" * 1000 + b"\x01",
    ],
)
def test_numbers_that_are_refused_in_every_place(raw: bytes) -> None:
    plain = SMALL["update"]
    values = [
        dml(INSERT, some(block(text("a") + branch + raw)), NONE) for branch in (LONG, UNSIGNED)
    ]
    values += [dml(INSERT, some(raw + ID + END), NONE), raw + plain[1:]]
    values += [b"\x16\x06\x06\x02" + text("d") + text("t") + raw + plain[14:]]
    assert reasons(values) == {"number_too_long"}


LENGTHS = (-1, -(2**62), -(2**63), 2**31, 2**62, 2**63 - 1, 10_000)


@pytest.mark.parametrize("length", LENGTHS)
def test_absurd_lengths_and_counts(length: int) -> None:
    """Of every length and count of a row and of a schema."""
    raw = number(length)
    rest = b"abc" * 20
    entry = text("a")
    values = [
        b"\x16\x06\x06\x02" + raw + rest,
        b"\x16\x06\x06\x02" + text("d") + raw + rest,
        dml(INSERT, b"", b"", extras=some(raw) + rest),
        dml(INSERT, some(number(1) + raw + rest), b""),
        *(
            dml(INSERT, some(number(1) + entry + branch + raw + rest), b"")
            for branch in (STRING, BYTES, ZONED)
        ),
        dml(INSERT, some(number(1) + entry + ZONED + text("UTC") + raw + rest), b""),
        bootstrap(raw + rest),
        bootstrap(text("d") + text("t") + number(1) + number(1) + number(1) + raw + rest),
        b"\x16\x04\x04\x02\x00" + raw + rest,
    ]
    assert reasons(values) == {"invalid_length"}
    counts = [
        dml(INSERT, some(raw + ID * 3), b""),
        dml(DELETE, NONE, some(raw + ID * 3)),
        bootstrap(text("d") + text("t") + number(1) + number(1) + raw + rest),
        bootstrap(text("d") + text("t") + number(1) + number(1) + block(*COLUMNS) + raw + rest),
    ]
    # A negative count is that of a block whose size follows.
    assert reasons(counts) <= {"invalid_count", "invalid_length"}


@pytest.mark.thorough
def test_more_items_than_any_table_has_are_refused_before_they_are_read() -> None:
    many = avro.MAX_ITEMS + 1
    entries = b"".join(text(f"{place:x}") + NULL for place in range(many))
    whole = dml(INSERT, some(number(many) + entries + END), NONE)
    fewer = number(many - 1) + b"".join(text(f"{place:x}") + NULL for place in range(many - 1))
    parts = dml(INSERT, some(fewer + number(1) + text("last") + NULL + END), NONE)
    assert reasons([whole, parts]) == {"invalid_count"}
    assert reasons([dml(INSERT, some(fewer + END), NONE)]) == {"read"}
    labels = b"\x02" + number(many) + b"\x00" * (many + 1)
    column = text("a") + text("enum") + 2 * text("") + number(1) + NONE + labels
    assert reasons([bootstrap(table((column,)))]) == {"invalid_count"}


def test_images_in_several_blocks_mean_the_same() -> None:
    """Legal in Avro, though TiCDC does not write it."""
    other = text("b") + LONG + number(1)
    whole = block(ID, other)
    sized = number(-1) + number(len(ID)) + ID + number(-1) + number(len(other)) + other + END
    values = [
        dml(INSERT, some(image), NONE)
        for image in (whole, number(1) + ID + number(1) + other + END, sized)
    ]
    assert assert_equal(values, AVRO) == [[replace(ROW, after={"id": "7", "b": "1"})]] * 3


@pytest.mark.parametrize("size", [-1, 0, len(ID) - 1, len(ID) + 1, 2**62])
def test_a_block_that_lies_about_its_size_is_refused(size: int) -> None:
    image = number(-1) + number(size) + ID + END
    assert reasons([dml(INSERT, some(image), NONE)]) == {"invalid_length"}


REFUSED: list[tuple[bytes | None, str, str]] = [
    (None, "null_value", "byte 0"),
    (b"", "empty_value", "byte 0"),
    (b"\x14", "unknown_branch", "byte 0"),
    (b"\x18", "unknown_branch", "byte 0"),
    (b"\x15", "unknown_branch", "byte 0"),
    (b"\x16", "truncated", "byte 1"),
    (b"\x16\x08", "unknown_symbol", "byte 1"),
    (b"\x16\x01", "unknown_symbol", "byte 1"),
    (b"\x16\x06\x04", "unknown_branch", "byte 2"),
    (b"\x16\x06\x06\x04", "unsupported_version", "$.version"),
    (b"\x16\x06\x06\x01", "unsupported_version", "$.version"),
    (b"\x16\x00\x00" + number(2**31), "out_of_range", "byte 3"),
    (b"\x16\x00\x00\x02\x01\x00", "out_of_range", "$.commitTs"),
    (b"\x16\x00\x00\x02\x00\x01", "out_of_range", "$.buildTs"),
    (b'{"version":1}', "unknown_branch", "byte 0"),
    (dml(3, NONE, NONE), "unknown_symbol", "byte 10"),
    (dml(-1, NONE, NONE), "unknown_symbol", "byte 10"),
    (dml(INSERT, some(block(ID)), NONE, database=""), "empty_text", "$.database"),
    (dml(INSERT, some(block(ID)), NONE, table=""), "empty_text", "$.table"),
    (dml(INSERT, some(block(ID)), NONE, database=b"\xff"), "invalid_utf8", "byte 5"),
    (dml(INSERT, b"\x04", NONE), "unknown_branch", "byte 38"),
    (dml(INSERT, b"\x01", NONE), "unknown_branch", "byte 38"),
    (dml(INSERT, NONE, NONE, extras=b"\x02\x03"), "invalid_length", "byte 36"),
    (dml(INSERT, NONE, NONE, extras=b"\x00\x02\x02"), "invalid_boolean", "byte 37"),
    # A count without items is the end: zero cannot be negative, so no block is empty and none can
    # go on for ever.
    (dml(INSERT, some(END + END), NONE), "trailing_bytes", "byte 41"),
    *(
        (bootstrap(table(columns)), reason, f"$.tableSchema.{position}")
        for columns, reason, position in (
            ((*COLUMNS, COLUMNS[0]), "duplicate_column", "columns"),
            (COLUMNS[1:], "unknown_column", "indexes[0].columns"),
            (
                (COLUMNS[0], COLUMNS[2].replace(text(b"\x02\xaa"), text(b"\x01" * 9))),
                *("out_of_range", "columns[1].default"),
            ),
            (
                (COLUMNS[0], COLUMNS[1].replace(some(text("good")), some(text(b"goo\xff")))),
                *("invalid_utf8", "columns[1].default"),
            ),
        )
    ),
]


def test_what_is_refused() -> None:
    assert_refused(REFUSED, AVRO)


def test_defaults_of_bits() -> None:
    wanted = {b"": 0, b"\0": 0, b"\x02\xaa": 682, b"\0" * 20 + b"\x05": 5, b"\xff" * 8: 2**64 - 1}
    for raw, value in wanted.items():
        column = COLUMNS[2].replace(text(b"\x02\xaa"), text(raw))
        (event,) = decode(AVRO, Record(key=None, value=bootstrap(table((column,), ()))))
        assert isinstance(event, Bootstrap)
        assert event.schema.columns[0].default == value


# ---------------------------------------------------------------- the way back


def known(column: ColumnSchema) -> ColumnSchema:
    """Return `column` as Avro can say it."""
    kind = kind_of(column)
    return replace(column, decimal=column.decimal if kind is Kind.DECIMAL else 0)


def known_schema(schema: TableSchema) -> TableSchema:
    return replace(schema, columns=tuple(map(known, schema.columns)))


@st.composite
def events(draw: st.DrawFn) -> Event:
    """Events of all kinds, rows with a shape, without what Avro loses."""
    event: Event = draw(
        st.one_of(
            strategies.table_schemas().flatmap(
                lambda schema: strategies.row_changes(schema=schema).map(
                    lambda row: replace(row, shape=shape_of(schema))
                )
            ),
            strategies.ddl_events(),
            strategies.bootstraps,
            strategies.watermarks,
        )
    )
    match event:
        case DdlEvent():
            return replace(
                event,
                schema=event.schema and known_schema(event.schema),
                pre_schema=event.pre_schema and known_schema(event.pre_schema),
            )
        case Bootstrap():
            return replace(event, schema=known_schema(event.schema))
        case RowChange():
            return replace(
                event,
                handle_key_only=draw(st.booleans()),
                claim_check_location=draw(st.none() | strategies.texts.filter(bool)),
            )
        case Watermark():
            return event


def _spelled(column: SentColumn, value: PhysicalValue) -> PhysicalValue:
    """Return a value as it is read: signed where it was a long, floats in their shortest form."""
    if not isinstance(value, str):
        return value
    match column.mysql_type:
        case "bit" | "set" if int(value) >= 2**63:
            return str(int(value) - 2**64)
        case "float":
            return float_text(to_float32(float(value)))
        case "double":
            return double_text(float(value))
        case _:
            return value


def _as_read(event: Event) -> Event:
    if not isinstance(event, RowChange):
        return event
    columns = {column.name: column for column in event.shape.columns} if event.shape else {}
    before, after = (
        None if image is None else {name: _spelled(columns[name], image[name]) for name in image}
        for image in (event.before, event.after)
    )
    return replace(event, shape=None, before=before, after=after)


@examples(150)
@given(st.lists(events(), min_size=1, max_size=4))
@pytest.mark.thorough
def test_events_survive_the_way_there_and_back(sent: list[Event]) -> None:
    values = [record.value for record in encode(AVRO, sent)]
    wanted: list[Outcome] = [[_as_read(event)] for event in sent]
    assert assert_equal(values, AVRO) == wanted


SHAPED = replace(ROW, shape=SHAPE)


def test_unsigned_numbers_are_written_in_their_64_bits() -> None:
    """BIT and SET as TiCDC casts them; a row read from Avro has them signed already."""
    shape = RowShape(
        columns=(
            SentColumn("bits", "bit", ColumnFlag.UNSIGNED),
            SentColumn("labels", "set"),
            SentColumn("spelled", "bigint(20) unsigned"),
        )
    )
    entries = (
        text("bits") + LONG + number(-1),
        text("labels") + LONG + number(-(2**63)),
        text("spelled") + UNSIGNED + number(-1),
    )
    wanted = [Record(key=None, value=dml(INSERT, some(block(*entries)), NONE))]
    for bits, labels in ((str(2**64 - 1), str(2**63)), ("-1", str(-(2**63)))):
        after = {"bits": bits, "labels": labels, "spelled": str(2**64 - 1)}
        assert encode(AVRO, [replace(ROW, after=after, shape=shape)]) == wanted
