"""Hypothesis strategies for schemas, images and events, shared by the tests of every layer.

Everything is legal for the model, and as unfriendly as upstream allows: names with quotes, dots,
paths and emoji, the extremes of each type, NULLs, empty texts, characters that JSON and Go escape.
Values are *physical*: the text that the Simple protocol sends in JSON. Events at the end are those
of formats without schemas, whose columns have flags.
"""

import string
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from ticdc_assets.model.events import (
    Bootstrap,
    Checksum,
    DdlEvent,
    Event,
    Image,
    Op,
    PhysicalValue,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.schemas import (
    ColumnFlag,
    ColumnSchema,
    IndexSchema,
    RowShape,
    SentColumn,
    TableSchema,
)
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.model.values.floats import double_text, float_text
from ticdc_assets.wire.column_types import TYPE_NAMES, ddl_word
from ticdc_assets_tests.events import ddl_event, row_event

SENT_OPS = (Op.INSERT, Op.UPDATE, Op.DELETE)
"""What messages say of a row; exports have an op of their own."""

DDL_TYPES = ("CREATE", "RENAME", "CINDEX", "DINDEX", "ERASE", "TRUNCATE", "ALTER", "QUERY")

AWKWARD_NAMES = (
    "a", "id", "old", "data", "location", "value", 'qu"ote', "back`tick", "it's", "a.b",
    "two words", " padded ", "../../x", "C:\\temp", "<script>&", "sep\u2028sep", "东", "é", "🚀",
    "%s{}$1", "__proto__", "_", "0",
)  # fmt: skip

AWKWARD_TEXTS = (
    "", "null", "0", "-0", '"quoted"', "back\\slash", "<b>&amp;</b>", "line\nbreak\ttab\r",
    "\x00\x01\x08\x0b\x0c\x1f\x7f", "\u2028\u2029\ufeff\ufffd", "🚀",
    '{"location":"UTC","value":"x"}', '},"old":{', "\\ud800", "[" * 200,
)  # fmt: skip

_CHARACTERS = st.characters(exclude_categories=["Cs"])

tsos = st.integers(1, MAX_TSO) | st.sampled_from([1, 2**53 + 1, 470614221441204230, MAX_TSO])
"""TSOs, the largest included."""

ids = st.integers(1, 2**63 - 1) | st.integers(1, 200)
"""Table ids."""

epoch_ms = st.integers(0, 2**53)
"""Epoch milliseconds."""

names = st.sampled_from(AWKWARD_NAMES) | st.text(_CHARACTERS, min_size=1, max_size=64)
"""Names of databases, tables, columns and indexes."""

texts = st.sampled_from(AWKWARD_TEXTS) | st.text(_CHARACTERS, max_size=40)
"""Texts without lone surrogates."""

zones = st.sampled_from(["UTC", "Asia/Shanghai", "Local", "America/St_Johns", ""])
"""Zones as Go prints a location."""

sqls = texts.map(lambda text: f"alter table t comment '{text}'")
"""SQL texts, none of them empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlType:
    """A MySQL type: what its column looks like, and the texts of its values."""

    column: st.SearchStrategy[dict[str, object]]
    values: Callable[[ColumnSchema], st.SearchStrategy[PhysicalValue]]


def _binary(**attributes: object) -> dict[str, object]:
    """Fields of a column that is no text."""
    return {"charset": "binary", "collation": "binary", **attributes}


def _fixed(**attributes: object) -> st.SearchStrategy[dict[str, object]]:
    return st.just(_binary(**attributes))


def _integers(bits: int, length: int) -> MysqlType:
    def values(column: ColumnSchema) -> st.SearchStrategy[PhysicalValue]:
        low, high = (
            (0, 2**bits - 1) if column.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        return (st.integers(low, high) | st.sampled_from([low, 0, high])).map(str)

    column = st.tuples(st.booleans(), st.booleans()).map(
        lambda flags: _binary(length=length, unsigned=flags[0], zerofill=all(flags))
    )
    return MysqlType(column=column, values=values)


def _texts(length: int) -> MysqlType:
    column = st.sampled_from(["utf8mb4_bin", "utf8mb4_general_ci"]).map(
        lambda collation: {"charset": "utf8mb4", "collation": collation, "length": length}
    )
    return MysqlType(column=column, values=lambda _column: texts)


def _bytes(length: int) -> MysqlType:
    return MysqlType(
        column=_fixed(length=length),
        values=lambda _column: st.binary(max_size=20).map(lambda raw: b64encode(raw).decode()),
    )


def _floats(width: int, length: int) -> MysqlType:
    """Floats in plain notation, as Go's 'f' format writes them."""

    def plain(number: float) -> str:
        text = f"{number:.400f}".rstrip("0").rstrip(".") if number else "0"
        return text if text.strip("-0.") else "0"

    numbers = st.floats(allow_nan=False, allow_infinity=False, width=width)
    return MysqlType(column=_fixed(length=length), values=lambda _column: numbers.map(plain))


def _decimals() -> MysqlType:
    def values(column: ColumnSchema) -> st.SearchStrategy[PhysicalValue]:
        high = 10**column.length - 1

        def scaled(number: int) -> str:
            digits = str(abs(number)).rjust(column.decimal + 1, "0")
            whole, part = digits[: len(digits) - column.decimal], digits[-column.decimal :]
            sign = "-" if number < 0 else ""
            return sign + (f"{whole}.{part}" if column.decimal else whole)

        return (st.integers(-high, high) | st.sampled_from([-high, 0, high])).map(scaled)

    column = st.integers(1, 65).flatmap(
        lambda length: st.integers(0, min(30, length)).map(
            lambda scale: _binary(length=length, decimal=scale)
        )
    )
    return MysqlType(column=column, values=values)


def _labelled(elements: st.SearchStrategy[list[str]], largest: Callable[[int], int]) -> MysqlType:
    column = elements.map(
        lambda labels: {
            "charset": "utf8mb4",
            "collation": "utf8mb4_bin",
            "length": max(len(label) for label in labels),
            "elements": tuple(labels),
        }
    )
    return MysqlType(
        column=column, values=lambda column: st.integers(0, largest(len(column.elements))).map(str)
    )


def _sampled(*values: str, **attributes: object) -> MysqlType:
    return MysqlType(column=_fixed(**attributes), values=lambda _column: st.sampled_from(values))


def _timestamps() -> MysqlType:
    moments = ("1970-01-01 00:00:01", "2038-01-19 03:14:07", "0000-00-00 00:00:00")
    return MysqlType(
        column=_fixed(length=19),
        values=lambda _column: st.builds(
            ZonedTimestamp, location=zones, value=st.sampled_from(moments)
        ),
    )


def _bits() -> MysqlType:
    return MysqlType(
        column=st.integers(1, 64).map(lambda length: _binary(length=length, unsigned=True)),
        values=lambda column: st.integers(0, 2**column.length - 1).map(str),
    )


_LABELS = st.lists(
    st.text(string.ascii_letters + "'\"\\é🚀 ", max_size=8), min_size=1, max_size=6, unique=True
)

MYSQL_TYPES: Mapping[str, MysqlType] = {
    "tinyint": _integers(8, 4),
    "smallint": _integers(16, 6),
    "mediumint": _integers(24, 9),
    "int": _integers(32, 11),
    "bigint": _integers(64, 20),
    "float": _floats(32, 12),
    "double": _floats(64, 22),
    "decimal": _decimals(),
    "bit": _bits(),
    "year": _sampled("0", "1901", "2155", length=4),
    "date": _sampled("0000-00-00", "1000-01-01", "9999-12-31", length=10),
    "datetime": _sampled(
        "0000-00-00 00:00:00.000", "9999-12-31 23:59:59.999", length=23, decimal=3
    ),
    "time": _sampled("-838:59:59", "00:00:00", "838:59:59", length=10),
    "timestamp": _timestamps(),
    "char": _texts(40),
    "varchar": _texts(40),
    "text": _texts(65535),
    "longtext": _texts(4294967295),
    "binary": _bytes(20),
    "varbinary": _bytes(20),
    "blob": _bytes(65535),
    "enum": _labelled(_LABELS, lambda count: count),
    "set": _labelled(_LABELS, lambda count: 2**count - 1),
    "json": _sampled("null", "{}", '{"a": [1, "<>"]}', '"x"'),
    "vector": _sampled("[]", "[1,-2.5]"),
}
"""The types, by the word of a schema."""


@st.composite
def column_schemas(draw: st.DrawFn) -> ColumnSchema:
    """Columns of any type."""
    word = draw(st.sampled_from(sorted(MYSQL_TYPES)))
    bare = ColumnSchema(
        name=draw(names),
        mysql_type=word,
        nullable=draw(st.booleans()),
        **draw(MYSQL_TYPES[word].column),
    )
    defaults = st.integers(0, 2**bare.length - 1) if word == "bit" else texts
    return replace(bare, default=draw(st.none() | defaults))


@st.composite
def table_schemas(draw: st.DrawFn, *, max_columns: int = 6) -> TableSchema:
    """Tables with distinct columns, with a handle key or without one."""
    columns = draw(
        st.lists(
            column_schemas(),
            min_size=1,
            max_size=max_columns,
            unique_by=lambda column: column.name.lower(),
        )
    )
    key = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
    primary = draw(st.booleans())
    if primary:
        columns = [
            replace(column, nullable=column.nullable and column not in key) for column in columns
        ]
    indexes = [
        IndexSchema(
            name="PRIMARY" if primary else draw(names),
            unique=primary,
            primary=primary,
            nullable=not primary and any(column.nullable for column in key),
            columns=tuple(column.name for column in key),
        )
        for _ in range(1 if primary else draw(st.integers(0, 1)))
    ]
    return TableSchema(
        database=draw(names),
        table=draw(names),
        table_id=draw(ids),
        version=draw(tsos),
        columns=tuple(columns),
        indexes=tuple(indexes),
    )


def physical_values(column: ColumnSchema) -> st.SearchStrategy[PhysicalValue]:
    """Values of `column` as sent, NULL included where it may be."""
    values = MYSQL_TYPES[column.mysql_type].values(column)
    return st.none() | values if column.nullable else values


def images_of(schema: TableSchema) -> st.SearchStrategy[Image]:
    """Full images of a row of `schema`."""
    return st.fixed_dictionaries(
        {column.name: physical_values(column) for column in schema.columns}
    )


wild_values: st.SearchStrategy[PhysicalValue] = (
    st.none() | texts | st.builds(ZonedTimestamp, location=texts, value=texts)
)
"""Any physical value, of no type in particular."""

wild_images: st.SearchStrategy[Image] = st.dictionaries(
    names | st.just(""), wild_values, max_size=6
)
"""Images of no table in particular; the empty one too."""

checksums = st.builds(
    Checksum,
    version=st.integers(0, 2),
    corrupted=st.booleans(),
    current=st.integers(0, 2**32 - 1),
    previous=st.integers(0, 2**32 - 1),
)
"""Row checksums."""


@st.composite
def row_changes(draw: st.DrawFn, *, schema: TableSchema | None = None) -> RowChange:
    """Row changes: of `schema` with full images, or of no table in particular."""
    images = wild_images if schema is None else images_of(schema)
    op = draw(st.sampled_from(SENT_OPS))
    return RowChange(
        op=op,
        commit_ts=draw(tsos),
        build_ts_ms=draw(epoch_ms),
        database=draw(names) if schema is None else schema.database,
        table=draw(names) if schema is None else schema.table,
        table_id=draw(ids) if schema is None else schema.table_id,
        schema_version=draw(tsos) if schema is None else schema.version,
        before=None if op is Op.INSERT else draw(images),
        after=None if op is Op.DELETE else draw(images),
        handle_key_only=draw(st.booleans()) if schema is None else False,
        claim_check_location=(draw(st.none() | texts.filter(bool)) if schema is None else None),
        checksum=draw(st.none() | checksums),
    )


@st.composite
def ddl_events(draw: st.DrawFn) -> DdlEvent:
    """DDL events with the schemas around them, with one of them, or with none."""
    schema = draw(st.none() | table_schemas(max_columns=3))
    pre_schema = draw(st.none() | table_schemas(max_columns=3))
    named = schema or pre_schema
    return DdlEvent(
        ddl_type=draw(st.sampled_from(DDL_TYPES)),
        commit_ts=draw(tsos),
        build_ts_ms=draw(epoch_ms),
        sql=draw(sqls),
        database=named.database if named else "",
        table=named.table if named else "",
        schema=schema,
        pre_schema=pre_schema,
    )


bootstraps = st.builds(Bootstrap, build_ts_ms=epoch_ms, schema=table_schemas(max_columns=3))
"""Bootstraps."""

watermarks = st.builds(Watermark, watermark_ts=tsos, build_ts_ms=epoch_ms)
"""Watermarks."""

events: st.SearchStrategy[Event] = row_changes() | ddl_events() | bootstraps | watermarks
"""Events of all kinds."""


# Events of Open Protocol and Craft ----------------------------------------------------------------

unsigned_numbers = st.integers(0, 2**64 - 1) | st.sampled_from([0, 127, 128, 2**63, 2**64 - 1])
signed_numbers = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, -64, 64, -(2**63)])
"""Numbers of 64 bits."""


def _flagged_texts(column: SentColumn) -> st.SearchStrategy[str | None]:
    """Texts of values of a type with flags, as decoders spell them."""
    match column.mysql_type:
        case "null":
            return st.none()
        case "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" as word:
            is_unsigned = ColumnFlag.UNSIGNED in (column.flags or ColumnFlag(0))
            of_64_bits = is_unsigned and word != "year"
            found = (unsigned_numbers if of_64_bits else signed_numbers).map(str)
        case "enum" | "set" | "bit":
            found = unsigned_numbers.map(str)
        case "double":
            found = st.floats(allow_nan=False, allow_infinity=False).map(double_text)
        case "float":
            found = st.floats(allow_nan=False, allow_infinity=False, width=32).map(float_text)
        case word if word.endswith(("binary", "blob")):
            found = st.binary(max_size=80).map(lambda raw: b64encode(raw).decode())
        case _:
            found = texts
    return st.none() | found


def _flagged_column(name: str, code: int, flags: int) -> SentColumn:
    return SentColumn(name, TYPE_NAMES[code][flags & 1], ColumnFlag(flags))


flagged_columns = st.builds(
    _flagged_column, names, st.sampled_from(sorted(TYPE_NAMES)), st.integers(0, 255)
)
"""Columns of any type with any flags."""


@st.composite
def flagged_rows(draw: st.DrawFn, *, in_open: bool = False) -> RowChange:
    """Rows as Craft has them; or as Open Protocol does: by name, cut, with fewer old columns."""
    columns = draw(
        st.lists(
            flagged_columns, min_size=1, max_size=5, unique_by=lambda column: column.name.lower()
        )
    )
    op = draw(st.sampled_from(SENT_OPS))
    is_cut = in_open and draw(st.booleans())
    old = columns
    if in_open:
        columns.sort(key=lambda column: column.name)
        if op is Op.UPDATE:
            old = draw(st.lists(st.sampled_from(columns), min_size=1, unique=True))

    def image(of: list[SentColumn]) -> dict[str, str | None]:
        return {column.name: draw(_flagged_texts(column)) for column in of}

    return row_event(
        draw(tsos),
        database=draw(names),
        table=draw(names),
        table_id=draw(st.none() | ids),
        before=None if op is Op.INSERT else image(old),
        after=None if op is Op.DELETE else image(columns),
        handle_key_only=is_cut,
        claim_check_location=draw(st.none() | texts.filter(bool)) if is_cut else None,
        shape=RowShape(columns=tuple(columns), partial=is_cut or op is Op.DELETE),
        row_id=draw(signed_numbers) if in_open else 0,
    )


flagged_ddl_events = st.builds(
    lambda code, ts, sql, database, table: ddl_event(
        ts, sql, ddl_type=ddl_word(code), database=database, table=table, action_code=code
    ),
    st.integers(0, 255),
    tsos,
    sqls,
    st.just("") | names,
    st.just("") | names,
)
"""DDL events with the number of their action, and without schemas."""

untimed_watermarks = st.builds(Watermark, watermark_ts=tsos, build_ts_ms=st.none())
"""Watermarks of the formats that do not say when a message was built."""
