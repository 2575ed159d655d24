"""Column types, as DDL writes them, and the types of the Simple protocol that they mean.

In: a `Cursor` at a type. Out: the fields of a `ColumnDefinition` for its type, length, decimals and
labels. An unknown type is noted on the cursor's tokens and kept as it is written.

Not here: what only the server's settings decide. A REAL is a double (REAL_AS_FLOAT is not
transmitted), and NCHAR has the table's charset as in TiDB.
"""

from typing import Any, Final, TypeAlias

from ticdc_assets.model.mysql_types import KINDS, SYNONYMS
from ticdc_assets.registry.ddl_literals import decoded, take_literal, take_numbers
from ticdc_assets.registry.ddl_tokens import BITS, HEX, Cursor

Fields: TypeAlias = dict[str, Any]
"""Fields of a `ColumnDefinition` while its text is read."""

_GEOMETRIES: Final = """
    geometry point linestring polygon multipoint multilinestring multipolygon geometrycollection
    geomcollection
"""
_TYPES: Final = {**{name: name for name in (*KINDS, *_GEOMETRIES.split())}, **SYNONYMS}
_MOST_WORDS: Final = max(len(name.split()) for name in _TYPES)

_DEFAULT_LENGTHS: Final = {"bit": 1, "char": 1, "binary": 1}
"""Lengths that the language fills in."""


def take_type(cursor: Cursor) -> Fields | None:
    """Take a type and return the fields that it sets; None if no word comes next."""
    first = cursor.word()
    if not first:
        return None
    words = [cursor.word(ahead).lower() for ahead in range(_MOST_WORDS)]
    names = (" ".join(words[:count]) for count in range(_MOST_WORDS, 0, -1))
    name = next((name for name in names if name in _TYPES), None)
    if name is None:
        start = cursor.at
        cursor.at += 1
        cursor.take_group()
        cursor.tokens.note(
            cursor.tokens.starts[start], cursor.tokens.ends[max(start, cursor.at - 1)]
        )
        return {"mysql_type": words[0]}
    cursor.at += len(name.split())
    mysql_type = _TYPES[name]
    if mysql_type == "vector" and cursor.is_char("<"):
        # VECTOR<FLOAT>(3): the element type can only be FLOAT so far.
        for _ in range(3):
            cursor.skip_token()
    fields: Fields = {"mysql_type": mysql_type, "length": _DEFAULT_LENGTHS.get(mysql_type)}
    if name == "serial":
        fields.update(unsigned=True, auto_increment=True, unique=True, nullable=False)
    elif name in ("bool", "boolean"):
        fields["length"] = 1
    _take_size(cursor, fields)
    return fields


def _take_size(cursor: Cursor, fields: Fields) -> None:
    """Take what is in the parentheses after a type's words."""
    mysql_type = fields["mysql_type"]
    if mysql_type in ("enum", "set"):
        _take_labels(cursor, fields)
        return
    numbers = take_numbers(cursor)
    match mysql_type:
        case "decimal":
            length, decimal = ([*numbers, 0] if numbers else [10, 0])[:2]
            fields.update(length=length, decimal=decimal)
        case "float" | "double" if len(numbers) > 1:
            fields.update(length=numbers[0], decimal=numbers[1])
        case "float" | "double":
            if numbers and numbers[0] > 24:
                fields["mysql_type"] = "double"
        case "datetime" | "timestamp" | "time" if numbers:
            fields["decimal"] = numbers[0]
        case _ if numbers:
            fields["length"] = numbers[0]
        case _:
            pass


def _take_labels(cursor: Cursor, fields: Fields) -> None:
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
