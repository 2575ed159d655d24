"""Column types, as DDL writes them, and the types of the Simple protocol that they mean.

In: a `Cursor` that stands on a type. Out: an `UnfinishedColumn` with its type, length, decimals and
labels. A type that is not known is noted on the cursor's tokens and kept as it is written. Reading
the same text again gives the same.

Not here: what only the server's settings decide. A REAL is a double (REAL_AS_FLOAT is not
transmitted), and NCHAR has the table's charset as in TiDB.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ticdc_assets.registry.ddl_literals import decoded, take_literal, take_numbers
from ticdc_assets.registry.ddl_statement import (
    NO_DEFAULT,
    DefaultValue,
    GeneratedKind,
)
from ticdc_assets.registry.ddl_tokens import BITS, HEX, Cursor


class _Numbers(StrEnum):
    """What the parentheses after a type word hold."""

    NOTHING = "nothing"
    LENGTH = "length"
    FRACTION = "fraction"
    DECIMAL = "decimal"
    FLOAT = "float"
    LABELS = "labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class _TypeRule:
    mysql_type: str
    numbers: _Numbers = _Numbers.NOTHING
    length: int | None = None


def _rules() -> dict[str, _TypeRule]:
    rules: dict[str, _TypeRule] = {}

    def add(words: str, mysql_type: str, numbers: _Numbers, length: int | None = None) -> None:
        rule = _TypeRule(mysql_type=mysql_type, numbers=numbers, length=length)
        rules.update(dict.fromkeys(words.split(), rule))

    add("TINYINT INT1", "tinyint", _Numbers.LENGTH)
    add("BOOL BOOLEAN", "tinyint", _Numbers.NOTHING, 1)
    add("SMALLINT INT2", "smallint", _Numbers.LENGTH)
    add("MEDIUMINT MIDDLEINT INT3", "mediumint", _Numbers.LENGTH)
    add("INT INTEGER INT4", "int", _Numbers.LENGTH)
    add("BIGINT INT8 SERIAL", "bigint", _Numbers.LENGTH)
    add("DECIMAL NUMERIC DEC FIXED", "decimal", _Numbers.DECIMAL)
    add("FLOAT FLOAT4", "float", _Numbers.FLOAT)
    add("DOUBLE FLOAT8 REAL", "double", _Numbers.FLOAT)
    add("BIT", "bit", _Numbers.LENGTH, 1)
    add("DATE", "date", _Numbers.NOTHING)
    add("DATETIME", "datetime", _Numbers.FRACTION)
    add("TIMESTAMP", "timestamp", _Numbers.FRACTION)
    add("TIME", "time", _Numbers.FRACTION)
    add("YEAR SQL_TSI_YEAR", "year", _Numbers.LENGTH)
    add("CHAR CHARACTER NCHAR", "char", _Numbers.LENGTH, 1)
    add("VARCHAR VARCHARACTER NVARCHAR VARYING", "varchar", _Numbers.LENGTH)
    add("BINARY", "binary", _Numbers.LENGTH, 1)
    add("VARBINARY", "varbinary", _Numbers.LENGTH)
    add("TINYTEXT", "tinytext", _Numbers.LENGTH)
    add("TEXT", "text", _Numbers.LENGTH)
    add("MEDIUMTEXT LONG", "mediumtext", _Numbers.LENGTH)
    add("LONGTEXT", "longtext", _Numbers.LENGTH)
    add("TINYBLOB", "tinyblob", _Numbers.LENGTH)
    add("BLOB", "blob", _Numbers.LENGTH)
    add("MEDIUMBLOB", "mediumblob", _Numbers.LENGTH)
    add("LONGBLOB", "longblob", _Numbers.LENGTH)
    add("ENUM", "enum", _Numbers.LABELS)
    add("SET", "set", _Numbers.LABELS)
    add("JSON", "json", _Numbers.NOTHING)
    add("VECTOR", "vector", _Numbers.LENGTH)
    geometries = "GEOMETRY POINT LINESTRING POLYGON MULTIPOINT MULTILINESTRING MULTIPOLYGON"
    for word in (*geometries.split(), "GEOMETRYCOLLECTION", "GEOMCOLLECTION"):
        add(word, word.lower(), _Numbers.NOTHING)
    return rules


_TYPES: Final = _rules()

# Types of several words, longest first, by their first word: the words and the rule they mean.
_LONG_TYPES: Final[dict[str, tuple[tuple[tuple[str, ...], str], ...]]] = {
    "DOUBLE": ((("DOUBLE", "PRECISION"), "DOUBLE"),),
    "CHAR": ((("CHAR", "VARYING"), "VARCHAR"),),
    "CHARACTER": ((("CHARACTER", "VARYING"), "VARCHAR"),),
    "NCHAR": (
        (("NCHAR", "VARYING"), "VARCHAR"),
        (("NCHAR", "VARCHAR"), "VARCHAR"),
        (("NCHAR", "VARCHARACTER"), "VARCHAR"),
    ),
    "NATIONAL": (
        (("NATIONAL", "CHAR", "VARYING"), "VARCHAR"),
        (("NATIONAL", "CHARACTER", "VARYING"), "VARCHAR"),
        (("NATIONAL", "VARCHAR"), "VARCHAR"),
        (("NATIONAL", "VARCHARACTER"), "VARCHAR"),
        (("NATIONAL", "CHAR"), "CHAR"),
        (("NATIONAL", "CHARACTER"), "CHAR"),
    ),
    "LONG": (
        (("LONG", "VARBINARY"), "MEDIUMBLOB"),
        (("LONG", "CHAR", "VARYING"), "MEDIUMTEXT"),
        (("LONG", "CHARACTER", "VARYING"), "MEDIUMTEXT"),
        (("LONG", "VARCHAR"), "MEDIUMTEXT"),
        (("LONG", "VARCHARACTER"), "MEDIUMTEXT"),
    ),
}


@dataclass(slots=True)
class UnfinishedColumn:
    """A column while its attributes are read."""

    mysql_type: str = ""
    length: int | None = None
    decimal: int | None = None
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None
    collation: str | None = None
    binary_collation: bool = False
    elements: tuple[str, ...] = ()
    nullable: bool = True
    default: DefaultValue = NO_DEFAULT
    auto_increment: bool = False
    primary_key: bool = False
    unique: bool = False
    generated: GeneratedKind | None = None
    clustered: bool | None = None


def take_type(cursor: Cursor, column: UnfinishedColumn) -> bool:
    """Take a type into `column`; False if no word stands here."""
    first = cursor.word()
    if not first:
        return False
    for words, meaning in _LONG_TYPES.get(first, ()):
        if cursor.take(*words):
            rule = _TYPES[meaning]
            break
    else:
        found = _TYPES.get(first)
        if found is None:
            start = cursor.at
            cursor.at += 1
            cursor.take_group()
            cursor.tokens.note(
                cursor.tokens.starts[start], cursor.tokens.ends[max(start, cursor.at - 1)]
            )
            column.mysql_type = first.lower()
            return True
        cursor.at += 1
        rule = found
    if first == "VECTOR" and cursor.is_char("<"):
        # VECTOR<FLOAT>(3): the element type can only be FLOAT so far.
        for _ in range(3):
            cursor.skip_token()
    if first == "SERIAL":
        column.unsigned = column.auto_increment = column.unique = True
        column.nullable = False
    column.mysql_type = rule.mysql_type
    column.length = rule.length
    _NUMBERS[rule.numbers](cursor, column)
    return True


def _no_numbers(cursor: Cursor, column: UnfinishedColumn) -> None:
    del cursor, column


def _length(cursor: Cursor, column: UnfinishedColumn) -> None:
    numbers = take_numbers(cursor)
    if numbers:
        column.length = numbers[0]


def _fraction(cursor: Cursor, column: UnfinishedColumn) -> None:
    numbers = take_numbers(cursor)
    if numbers:
        column.decimal = numbers[0]


def _decimal(cursor: Cursor, column: UnfinishedColumn) -> None:
    numbers = take_numbers(cursor)
    column.length = numbers[0] if numbers else 10
    column.decimal = numbers[1] if len(numbers) > 1 else 0


def _float(cursor: Cursor, column: UnfinishedColumn) -> None:
    numbers = take_numbers(cursor)
    if len(numbers) > 1:
        column.length, column.decimal = numbers[0], numbers[1]
    elif numbers and numbers[0] > 24:
        column.mysql_type = "double"


def _labels(cursor: Cursor, column: UnfinishedColumn) -> None:
    group = cursor.take_group()
    if group is None:
        cursor.missing()
        return
    labels: list[str] = []
    while not group.done:
        start = group.at
        label = group.take_string()
        if label is None and group.kind() in (HEX, BITS):
            literal = take_literal(group)
            label = None if literal is None else decoded(literal)
        if label is None or (not group.take_char(",") and not group.done):
            group.at = start
            group.expect_done()
            break
        # Both servers cut trailing blanks off labels.
        labels.append(label.rstrip(" "))
    column.elements = tuple(labels)


_NUMBERS: Final[dict[_Numbers, Callable[[Cursor, UnfinishedColumn], None]]] = {
    _Numbers.NOTHING: _no_numbers,
    _Numbers.LENGTH: _length,
    _Numbers.FRACTION: _fraction,
    _Numbers.DECIMAL: _decimal,
    _Numbers.FLOAT: _float,
    _Numbers.LABELS: _labels,
}
