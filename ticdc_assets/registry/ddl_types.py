"""Column types, as DDL writes them, and the types of the Simple protocol that they mean.

In: a `Cursor` at a type. Out: the fields of a `ColumnDefinition` for its type, length, decimals and
labels. An unknown type is noted on the cursor's tokens and kept as it is written.

Not here: what only the server's settings decide. A REAL is a double (REAL_AS_FLOAT is not
transmitted), and NCHAR has the table's charset as in TiDB.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ticdc_assets.registry.ddl_literals import decoded, take_literal, take_numbers
from ticdc_assets.registry.ddl_tokens import BITS, HEX, Cursor

Fields: TypeAlias = dict[str, Any]
"""Fields of a `ColumnDefinition` while its text is read."""

_Take = Callable[[Cursor, Fields], None]
"""Takes what is in the parentheses after a type's words."""


def _nothing(cursor: Cursor, fields: Fields) -> None:
    del cursor, fields


def _length(cursor: Cursor, fields: Fields) -> None:
    numbers = take_numbers(cursor)
    if numbers:
        fields["length"] = numbers[0]


def _fraction(cursor: Cursor, fields: Fields) -> None:
    numbers = take_numbers(cursor)
    if numbers:
        fields["decimal"] = numbers[0]


def _decimal(cursor: Cursor, fields: Fields) -> None:
    numbers = take_numbers(cursor)
    fields["length"] = numbers[0] if numbers else 10
    fields["decimal"] = numbers[1] if len(numbers) > 1 else 0


def _float(cursor: Cursor, fields: Fields) -> None:
    numbers = take_numbers(cursor)
    if len(numbers) > 1:
        fields["length"], fields["decimal"] = numbers[0], numbers[1]
    elif numbers and numbers[0] > 24:
        fields["mysql_type"] = "double"


def _labels(cursor: Cursor, fields: Fields) -> None:
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
    fields["elements"] = tuple(labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TypeRule:
    mysql_type: str
    take: _Take
    length: int | None = None


def _rules() -> dict[str, _TypeRule]:
    rules: dict[str, _TypeRule] = {}

    def add(words: str, mysql_type: str, take: _Take, length: int | None = None) -> None:
        rule = _TypeRule(mysql_type=mysql_type, take=take, length=length)
        rules.update(dict.fromkeys(words.split(), rule))

    add("TINYINT INT1", "tinyint", _length)
    add("BOOL BOOLEAN", "tinyint", _nothing, 1)
    add("SMALLINT INT2", "smallint", _length)
    add("MEDIUMINT MIDDLEINT INT3", "mediumint", _length)
    add("INT INTEGER INT4", "int", _length)
    add("BIGINT INT8 SERIAL", "bigint", _length)
    add("DECIMAL NUMERIC DEC FIXED", "decimal", _decimal)
    add("FLOAT FLOAT4", "float", _float)
    add("DOUBLE FLOAT8 REAL", "double", _float)
    add("BIT", "bit", _length, 1)
    add("DATE", "date", _nothing)
    add("DATETIME", "datetime", _fraction)
    add("TIMESTAMP", "timestamp", _fraction)
    add("TIME", "time", _fraction)
    add("YEAR SQL_TSI_YEAR", "year", _length)
    add("CHAR CHARACTER NCHAR", "char", _length, 1)
    add("VARCHAR VARCHARACTER NVARCHAR VARYING", "varchar", _length)
    add("BINARY", "binary", _length, 1)
    add("VARBINARY", "varbinary", _length)
    add("TINYTEXT", "tinytext", _length)
    add("TEXT", "text", _length)
    add("MEDIUMTEXT LONG", "mediumtext", _length)
    add("LONGTEXT", "longtext", _length)
    add("TINYBLOB", "tinyblob", _length)
    add("BLOB", "blob", _length)
    add("MEDIUMBLOB", "mediumblob", _length)
    add("LONGBLOB", "longblob", _length)
    add("ENUM", "enum", _labels)
    add("SET", "set", _labels)
    add("JSON", "json", _nothing)
    add("VECTOR", "vector", _length)
    geometries = "GEOMETRY POINT LINESTRING POLYGON MULTIPOINT MULTILINESTRING MULTIPOLYGON"
    for word in (*geometries.split(), "GEOMETRYCOLLECTION", "GEOMCOLLECTION"):
        add(word, word.lower(), _nothing)
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


def take_type(cursor: Cursor) -> Fields | None:
    """Take a type and return the fields that it sets; None if no word comes next."""
    first = cursor.word()
    if not first:
        return None
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
            return {"mysql_type": first.lower()}
        cursor.at += 1
        rule = found
    if first == "VECTOR" and cursor.is_char("<"):
        # VECTOR<FLOAT>(3): the element type can only be FLOAT so far.
        for _ in range(3):
            cursor.skip_token()
    fields: Fields = {"mysql_type": rule.mysql_type, "length": rule.length}
    if first == "SERIAL":
        fields.update(unsigned=True, auto_increment=True, unique=True, nullable=False)
    rule.take(cursor, fields)
    return fields
