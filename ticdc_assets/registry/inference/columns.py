"""A column as DDL text defines it, to the column that TiDB creates.

In: a `ColumnDefinition`, the default character set of its table, and the time zone in which the
statement ran. Out: the `ColumnSchema` that the Simple protocol would send for it: lengths,
character sets and flags filled in as TiDB does. It depends on its arguments alone, and is total:
every text gives a column.

    type                       length where none is written   charset     besides
    tinyint ... bigint         4 6 9 11 20; unsigned 3 5 8 10 20   binary
    bit                        1                              binary      unsigned
    year                       4                              binary      unsigned, zerofill
    decimal                    10, scale 0                    binary
    float, double              12, 22                         binary      D of (M,D) as `decimal`
    date                       10                             binary
    datetime, timestamp        19, +1+n for n fractional digits    binary
    time                       10, +1+n                       binary
    char, binary               1                              C, binary   C in charset `binary`:
    varchar, varbinary         (always written)               C, binary   the binary twin of the
    tinytext ... longtext      2^8-1 2^16-1 2^24-1 2^32-1     C, binary   type (varbinary, blob)
    enum                       bytes of the longest label     C
    set                        bytes of all labels joined     C
    json                       2^32-1                         binary
    vector                     -1: any number of dimensions   binary

C is the column's own charset, or that of its collation, or the table's default.

A DEFAULT becomes text, an integer (BIT), bytes (of a binary column, that are not UTF-8), or None
for no default and for NULL: what `values.defaults` reads. A literal that is not a value of the
column stays as it was written.

    text                the text itself
    numbers             integers and decimals exactly, floats in full         007.10 -> '7.10'
    bit                 the number of b'', x'' or an integer; of a text the number of its bytes
    x'', 0x and b''     as their bytes; for columns of numbers as a number
    timestamp           from the session's zone to UTC
    a number of date, datetime, enum, set   the date, the labels        20240131 -> '2024-01-31'
    CURRENT_TIMESTAMP, CURRENT_DATE     these words, without digits, for all synonyms
    another expression  its text without the outer parentheses, never evaluated

Source: `setCharsetCollationFlenDecimal`, `adjustBlobTypesFlen`, `OverwriteCollationWithBinaryFlag`,
`processColumnFlags`, `getDefaultValue` and `convertTimestampDefaultValToUTC` of pingcap/tidb
pkg/ddl/add_column.go, `defaultLengthAndDecimal` of pkg/parser/mysql/util.go. TiDB also writes texts
in the spelling of the column.

Not known from the text: conversions of non-strict SQL modes (VARCHAR(70000) becomes a text), the
collation that `default_collation_for_utf8mb4` may have set, the zone of the session (the
changefeed's takes its place), and how TiDB spells an expression again. Bytes of a text's default
that are not UTF-8 are replaced; no such statement succeeds in a strict SQL mode.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from functools import partial
from typing import Final, TypeAlias

from ticdc_assets.base.errors import CastError
from ticdc_assets.model.mysql_types import (
    CLOCK_LENGTHS,
    TEXT_LIMITS,
    Kind,
    fractional_digits,
    kind_of,
)
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema
from ticdc_assets.model.values import moments, shapes
from ticdc_assets.model.values.canonical import datetime_text, parse_datetime
from ticdc_assets.model.values.casts import cast_of
from ticdc_assets.model.values.defaults import NOW, TODAY
from ticdc_assets.model.values.floats import double_text
from ticdc_assets.model.values.zones import find_zone, to_utc
from ticdc_assets.registry.ddl.statement import (
    ChangeKind,
    ColumnDefinition,
    DdlStatement,
    DefaultForm,
    DefaultValue,
    GeneratedKind,
)

BINARY: Final = "binary"
"""Charset and collation of everything that is not text."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The character set and collation of new text columns that name none."""

    charset: str
    collation: str


DATABASE_DEFAULTS: Final = Defaults("utf8mb4", "utf8mb4_bin")
"""The defaults of a database that names none."""

_COLLATIONS: Final[Mapping[str, str]] = {
    BINARY: BINARY,
    "gbk": "gbk_chinese_ci",
    "gb18030": "gb18030_chinese_ci",
}
"""TiDB's default collations that are not the charset's `_bin`."""


def default_collation(charset: str) -> str:
    """Return TiDB's default collation of a charset."""
    return _COLLATIONS.get(charset, f"{charset}_bin")


def _tidb_name(name: str) -> str:
    # TiDB knows utf8mb3 and its collations under their old names only.
    return "utf8" + name[7:] if name.startswith("utf8mb3") else name


def named_defaults(charset: str | None, collation: str | None, otherwise: Defaults) -> Defaults:
    """Return the defaults that a charset and a collation, either of which may be missing, mean.

    A collation alone brings its charset, a charset alone its default collation.
    """
    if collation is not None:
        collation = _tidb_name(collation)
        return Defaults(_tidb_name(charset or collation.partition("_")[0]), collation)
    if charset is None or charset == "default":
        return otherwise
    charset = _tidb_name(charset)
    return Defaults(charset, default_collation(charset))


def defaults_after(statement: DdlStatement, before: Defaults) -> Defaults:
    """Return the defaults of a database or a table after a statement about it.

    `before` are those it had; for CREATE TABLE those of its database, for CREATE DATABASE
    `DATABASE_DEFAULTS`.
    """
    charset, collation = statement.charset, statement.collation
    for change in statement.changes:
        if change.kind is ChangeKind.TABLE_CHARSET:
            charset, collation = change.charset or charset, change.collation or collation
    defaults = named_defaults(charset, collation, before)
    for change in statement.changes:
        if change.kind is ChangeKind.CONVERT_CHARSET:
            defaults = named_defaults(change.charset, change.collation, defaults)
    return defaults


BINARY_TWINS: Final[Mapping[str, str]] = {
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}
"""The names of text types whose charset is `binary`."""

LABELLED_TYPES: Final = frozenset({"enum", "set"})
TEXT_TYPES: Final = frozenset(BINARY_TWINS) | LABELLED_TYPES
"""The types that have a character set."""

INTEGER_LENGTHS: Final[Mapping[str, tuple[int, int]]] = {
    "tinyint": (4, 3),
    "smallint": (6, 5),
    "mediumint": (9, 8),
    "int": (11, 10),
    "bigint": (20, 20),
}
"""Display widths where none is written: signed, unsigned."""

FIXED_LENGTHS: Final[Mapping[str, int]] = {
    "date": 10,
    "year": 4,
    "json": 2**32 - 1,
    **TEXT_LIMITS,
    **{name.replace("text", "blob"): limit for name, limit in TEXT_LIMITS.items()},
}
"""Lengths that follow from the type alone."""

_DEFAULT_LENGTHS: Final[Mapping[str, int]] = {
    "bit": 1,
    "binary": 1,
    "char": 1,
    "decimal": 10,
    "double": 22,
    "float": 12,
    "vector": -1,
}

_MAX_BYTES_OF_CHARACTER: Final[Mapping[str, int]] = {
    "utf8mb4": 4,
    "gb18030": 4,
    "utf32": 4,
    "utf16": 4,
    "utf8": 3,
    "utf8mb3": 3,
    "gbk": 2,
    "ucs2": 2,
}

_NEVER_ZERO: Final = frozenset({"bit", "decimal"})


def column_schema(
    definition: ColumnDefinition, *, defaults: Defaults, timezone: str
) -> ColumnSchema:
    """Return the column that TiDB creates for `definition` in a table with these defaults.

    The zone is that of the session that ran the statement, for defaults of TIMESTAMP columns.
    """
    text = named_defaults(definition.charset, definition.collation, defaults)
    if definition.binary_collation and definition.collation is None:
        text = Defaults(text.charset, default_collation(text.charset))
    mysql_type = _sized_type(definition, text.charset)
    if mysql_type in BINARY_TWINS and text.charset == BINARY:
        mysql_type = BINARY_TWINS[mysql_type]
    if mysql_type not in TEXT_TYPES:
        text = Defaults(BINARY, BINARY)
    nullable = definition.nullable and not definition.auto_increment
    column = ColumnSchema(
        name=definition.name,
        mysql_type=mysql_type,
        charset=text.charset,
        collation=text.collation,
        length=_length(definition, mysql_type),
        decimal=definition.decimal or 0,
        elements=definition.elements,
        unsigned=definition.unsigned or mysql_type in ("bit", "year"),
        zerofill=definition.zerofill or mysql_type == "year",
        nullable=nullable,
        virtual=definition.generated is GeneratedKind.VIRTUAL,
    )
    if definition.default is None and mysql_type == "year" and not nullable:
        return replace(column, default="0000")
    return replace(column, default=sent_default(definition.default, column, timezone))


def _sized_type(definition: ColumnDefinition, charset: str) -> str:
    """Return the type; TEXT(n) is the smallest text that holds n characters of any kind."""
    mysql_type, length = definition.mysql_type, definition.length
    if mysql_type not in ("text", "blob") or length is None:
        return mysql_type
    width = 1 if mysql_type == "blob" else _MAX_BYTES_OF_CHARACTER.get(charset, 1)
    sizes = ((255, "tiny"), (65535, ""), (16777215, "medium"))
    return next((size for most, size in sizes if length * width <= most), "long") + mysql_type


def _length(definition: ColumnDefinition, mysql_type: str) -> int:
    fixed = FIXED_LENGTHS.get(mysql_type)
    if fixed is not None:
        return fixed
    if mysql_type in CLOCK_LENGTHS:
        return clock_length(mysql_type, definition.decimal or 0)
    if mysql_type in LABELLED_TYPES:
        return labels_length(mysql_type, definition.elements)
    length = definition.length
    if length is not None and (length or mysql_type not in _NEVER_ZERO):
        return length
    widths = INTEGER_LENGTHS.get(mysql_type)
    if widths is not None:
        return widths[definition.unsigned]
    return _DEFAULT_LENGTHS.get(mysql_type, 0)


_bare = partial(ColumnSchema, charset=BINARY, collation=BINARY)
HIDDEN_COLUMNS: Final[Mapping[str, ColumnSchema]] = {
    column.name: column
    for column in (
        _bare(name="_tidb_softdelete_time", mysql_type="timestamp", length=26, decimal=6),
        _bare(name="_tidb_origin_ts", mysql_type="bigint", length=20, unsigned=True),
    )
}
"""Columns that TiDB adds to tables with SOFTDELETE and ACTIVE_ACTIVE.

It adds them even if only the database has the option: no DDL text names them, rows have them. They
are NULL in older rows.

Source: pkg/common/event/active_active.go and downstreamadapter/dispatcher/basic_dispatcher.go of
pingcap/ticdc.
"""

PRIMARY: Final = "PRIMARY"
ROW_ID: Final = "primary"
"""TiCDC's name of a primary key that is the row id: a clustered one of one integer column."""


def finished_indexes(
    indexes: Iterable[IndexSchema], columns: Iterable[ColumnSchema]
) -> tuple[IndexSchema, ...]:
    """Return the indexes of a table with `columns` as TiCDC sends them.

    Each is nullable as its columns are. Only a primary key of one integer column is the row id,
    which TiDB does not list: TiCDC adds it as the last.
    """
    by_name = {column.name: column for column in columns}
    finished: list[IndexSchema] = []
    for index in indexes:
        members = [by_name[name] for name in index.columns if name in by_name]
        may_be_row_id = len(members) == 1 and members[0].mysql_type in INTEGER_LENGTHS
        is_misnamed = index.primary and index.name == ROW_ID and not may_be_row_id
        name = PRIMARY if is_misnamed else index.name
        finished.append(replace(index, name=name, nullable=any(item.nullable for item in members)))
    return tuple(sorted(finished, key=lambda index: index.primary and index.name == ROW_ID))


def free_index_name(wanted: str, used: Collection[str]) -> str:
    """Return the name that TiDB gives an index without one: `wanted`, or `wanted_2` ...

    `wanted` is the name of its first column; `used` are those of other indexes, in lower case.
    """
    name, number = wanted, 2
    if wanted.lower() == PRIMARY.lower():
        name, number = f"{wanted}_2", 3
    while name.lower() in used:
        name, number = f"{wanted}_{number}", number + 1
    return name


def clock_length(mysql_type: str, digits: int) -> int:
    """Return the length of DATETIME, TIMESTAMP or TIME with `digits` fractional digits."""
    return CLOCK_LENGTHS[mysql_type] + (digits + 1 if digits else 0)


def labels_length(mysql_type: str, labels: tuple[str, ...]) -> int:
    """Return the length of ENUM or SET: the most bytes that a value can have, in UTF-8."""
    sizes = [len(label.encode("utf-8", "surrogatepass")) for label in labels]
    if mysql_type == "enum":
        return max(sizes, default=0)
    return sum(sizes) + max(len(sizes) - 1, 0)


_MAX_DIGITS: Final = 400
"""Longer numbers are not the default of any column; nothing is computed with them."""

CURRENT_TIMESTAMP: Final = "CURRENT_TIMESTAMP"

Sent: TypeAlias = str | int | bytes | None


def sent_default(default: DefaultValue | None, column: ColumnSchema, timezone: str) -> Sent:
    """Return a clause as the default of `column`, which has none yet.

    The zone is that of the session that ran the statement; UTC replaces an unknown zone.
    """
    text = None if default is None else default.value
    if default is None or text is None:
        return None
    match default.form:
        case DefaultForm.NULL:
            return None
        case DefaultForm.EXPRESSION:
            kind = kind_of(column)
            if kind in (Kind.DATETIME, Kind.TIMESTAMP) and NOW.fullmatch(text):
                return CURRENT_TIMESTAMP
            return "CURRENT_DATE" if kind is Kind.DATE and TODAY.fullmatch(text) else text
        case DefaultForm.STRING if kind_of(column) is Kind.BIT:
            return _number_of_bytes(text.encode("utf-8", "surrogatepass"))
        case DefaultForm.STRING:
            return _of_literal(text, _TEXT, column, timezone)
        case DefaultForm.NUMBER:
            return _of_number(text, column, timezone)
        case DefaultForm.HEX:
            return _of_bytes(bytes.fromhex(text), column, timezone)
        case DefaultForm.BITS if len(text) > 8 * _MAX_DIGITS:
            return text
        case DefaultForm.BITS:
            raw = int(text or "0", 2).to_bytes(max((len(text) + 7) // 8, 1))
            return _of_bytes(raw, column, timezone)


_CODECS: Final = {"gbk": "gbk", "gb18030": "gb18030"}


def _of_bytes(raw: bytes, column: ColumnSchema, timezone: str) -> Sent:
    kind = kind_of(column)
    if kind is Kind.BIT:
        return _number_of_bytes(raw)
    if kind is Kind.BINARY:
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return raw
        # In text, the character for lost bytes would count as such.
        return raw if "\ufffd" in text else text
    if kind in (Kind.TEXT, Kind.ENUM, Kind.SET, Kind.JSON, Kind.VECTOR, Kind.UNKNOWN):
        return raw.decode(_CODECS.get(column.charset, "utf-8"), "replace")
    number = _number_of_bytes(raw)
    return "" if number is None else _of_number(str(number), column, timezone)


def _number_of_bytes(raw: bytes) -> int | None:
    # No BIT and no integer has more than eight bytes.
    return int.from_bytes(raw) if len(raw.lstrip(b"\0")) <= 8 else None


_TEXT: Final = ColumnSchema(name="", mysql_type="longtext", charset="utf8mb4")
_BIGINT: Final = ColumnSchema(name="", mysql_type="bigint")
_BY_NUMBER: Final = frozenset({Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP, Kind.ENUM, Kind.SET})
"""Kinds for which a number means another value than its digits as a text."""


def _of_number(digits: str, column: ColumnSchema, timezone: str) -> Sent:
    text = _number_text(digits)
    is_whole = shapes.INTEGER.fullmatch(text) is not None
    if kind_of(column) is Kind.BIT:
        return int(text) if is_whole else None
    by_number = is_whole and kind_of(column) in _BY_NUMBER
    return _of_literal(text, _BIGINT if by_number else _TEXT, column, timezone)


def _number_text(digits: str) -> str:
    """Return a number as TiDB prints a literal: integers and decimals exactly, floats in full."""
    if len(digits) > _MAX_DIGITS or shapes.NUMBER.fullmatch(digits) is None:
        return digits
    if "e" in digits.lower():
        number = float(digits)
        return double_text(number) if number - number == 0 else digits
    sign = "-" if digits.startswith("-") else ""
    whole, _, fraction = digits.lstrip("+-").partition(".")
    whole = whole.lstrip("0") or "0"
    if not fraction:
        return whole if whole == "0" else sign + whole
    return f"{sign}{whole}.{fraction}"


def _of_literal(text: str, source: ColumnSchema, column: ColumnSchema, timezone: str) -> str:
    value: str | None = text
    if kind_of(column) is Kind.TIMESTAMP:
        value = _timestamp(text, source, column, timezone)
    elif source is _BIGINT:
        value = _cast(text, source, column)
    return text if value is None else value


def _cast(text: str, source: ColumnSchema, column: ColumnSchema) -> str | None:
    try:
        return cast_of(source, column, "UTC")(text)
    except CastError:
        return None


def _timestamp(text: str, source: ColumnSchema, column: ColumnSchema, timezone: str) -> str | None:
    digits = fractional_digits(column)
    as_datetime = replace(column, mysql_type="datetime")
    local_text = _cast(text, source, as_datetime)
    if local_text is None or moments.is_zero(local_text):
        return local_text
    zone = find_zone(timezone) or UTC
    local = parse_datetime(local_text)
    shown = None if local is None else moments.timestamp_text(local, zone=zone, places=digits)
    # A local time that a clock change skips is shown as the moment of the change.
    shown_local = None if shown is None else parse_datetime(shown)
    instant = None if shown_local is None else to_utc(shown_local, zone)
    return None if instant is None else datetime_text(instant.replace(tzinfo=None), digits)
