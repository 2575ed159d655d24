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

Source: `setCharsetCollationFlenDecimal`, `adjustBlobTypesFlen`, `OverwriteCollationWithBinaryFlag`
and `processColumnFlags` of pingcap/tidb pkg/ddl/add_column.go, `defaultLengthAndDecimal` of
pkg/parser/mysql/util.go.

Not known from the text: conversions of non-strict SQL modes (VARCHAR(70000) becomes a text), and
the collation that `default_collation_for_utf8mb4` may have set.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ticdc_assets.model.mysql_types import CLOCK_LENGTHS, TEXT_LIMITS
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema
from ticdc_assets.registry.ddl.statement import (
    ChangeKind,
    ColumnDefinition,
    DdlStatement,
    DefaultKind,
    GeneratedKind,
)
from ticdc_assets.registry.inference.defaults import sent_default

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
    if definition.default.kind is DefaultKind.NONE and mysql_type == "year" and not nullable:
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
        own = [by_name[name] for name in index.columns if name in by_name]
        may_be_row_id = len(own) == 1 and own[0].mysql_type in INTEGER_LENGTHS
        is_misnamed = index.primary and index.name == ROW_ID and not may_be_row_id
        name = PRIMARY if is_misnamed else index.name
        finished.append(replace(index, name=name, nullable=any(item.nullable for item in own)))
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
