"""Column definitions, as CREATE TABLE and ALTER TABLE write them.

In: a `Cursor` at a definition. Out: `ColumnDefinition`, or None where there is none; and the
indexes that its attributes create. Words that are not understood are noted on the cursor's tokens;
the words around them still count. Type words become those of the Simple protocol, so that a
definition and a schema that TiCDC sent can be compared; an unknown type is kept as it is written.

Not here: what only the server's settings decide. A TIMESTAMP without NULL is nullable (TiDB's
explicit_defaults_for_timestamp), a REAL is a double (REAL_AS_FLOAT is not transmitted), and NCHAR
has the table's charset as in TiDB.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from ticdc_assets.model.mysql_types import KINDS, SYNONYMS
from ticdc_assets.registry.ddl.indexes import take_enforced, take_references
from ticdc_assets.registry.ddl.literals import (
    decoded,
    take_call,
    take_charset_name,
    take_default,
    take_literal,
    take_numbers,
)
from ticdc_assets.registry.ddl.statement import (
    ColumnDefinition,
    GeneratedKind,
    IndexDefinition,
    IndexKind,
)
from ticdc_assets.registry.ddl.tokens import BITS, HEX, Cursor

Fields: TypeAlias = dict[str, Any]
"""Fields of a `ColumnDefinition` while its text is read."""


def take_column(cursor: Cursor) -> ColumnDefinition | None:
    """Take `name type attribute...`; None, with a note, if no name or type comes next."""
    name = cursor.take_column_name()
    if name is None:
        cursor.missing()
        return None
    return take_column_definition(cursor, name)


def take_column_definition(cursor: Cursor, name: str) -> ColumnDefinition | None:
    """Take `type attribute...` of the column called `name`, the type as it is written."""
    fields = _take_type(cursor)
    if fields is None:
        cursor.missing()
        return None
    while (word := cursor.word()) and (attribute := _ATTRIBUTES.get(word)) is not None:
        start = cursor.at
        cursor.at += 1
        if not attribute(cursor, fields):
            cursor.at = start
            break
    if "charset" not in fields and "collation" in fields:
        fields["charset"] = fields["collation"].partition("_")[0]
    return ColumnDefinition(name=name, **fields)


def own_indexes(column: ColumnDefinition) -> Iterator[IndexDefinition]:
    """Yield the indexes that the attributes of a column create."""
    parts = (column.name,)
    if column.primary_key:
        yield IndexDefinition(
            name=None, kind=IndexKind.PRIMARY, parts=parts, clustered=column.clustered
        )
    if column.unique:
        yield IndexDefinition(name=None, kind=IndexKind.UNIQUE, parts=parts)


_Attribute = Callable[[Cursor, Fields], bool]
"""Takes what follows an attribute's word and sets fields; False if it does not fit."""


def _says(**said: Any) -> _Attribute:
    """Return the attribute that is one word and sets these fields."""

    def attribute(cursor: Cursor, fields: Fields) -> bool:
        del cursor
        fields.update(said)
        return True

    return attribute


def _skips(take: Callable[[Cursor], object]) -> _Attribute:
    """Return the attribute whose words do not concern the column's values."""
    return lambda cursor, _: bool(take(cursor))


def _taken(field: str, take: Callable[[Cursor], object]) -> _Attribute:
    """Return the attribute after whose word the value of `field` is taken."""

    def attribute(cursor: Cursor, fields: Fields) -> bool:
        value = take(cursor)
        if value is not None:
            fields[field] = value
        return value is not None

    return attribute


def _after(words: str, attribute: _Attribute) -> _Attribute:
    """Return the attribute that goes on with these words, and then like another."""
    return lambda cursor, fields: cursor.take(*words.split()) and attribute(cursor, fields)


_charset = _taken("charset", take_charset_name)


def _key(cursor: Cursor, fields: Fields) -> bool:
    word = cursor.take_any(("CLUSTERED", "NONCLUSTERED"))
    cursor.take_any(("GLOBAL", "LOCAL"))
    clustered = word == "CLUSTERED" if word else None
    fields.update(primary_key=True, clustered=clustered, nullable=False)
    return True


def _unique(cursor: Cursor, fields: Fields) -> bool:
    cursor.take_any(("KEY", "INDEX"))
    cursor.take_any(("GLOBAL", "LOCAL"))
    fields["unique"] = True
    return True


def _as(cursor: Cursor, fields: Fields) -> bool:
    group = cursor.take_group()
    if group is None:
        return False
    fields["expression"] = group.text()
    # Without a word it is virtual; the word that follows may say otherwise.
    fields.setdefault("generated", GeneratedKind.VIRTUAL)
    return True


def _generated_kind(kind: GeneratedKind) -> _Attribute:
    def attribute(cursor: Cursor, fields: Fields) -> bool:
        del cursor
        if "generated" not in fields:
            return False
        fields["generated"] = kind
        return True

    return attribute


def _take_update(cursor: Cursor) -> bool:
    return cursor.take("UPDATE") and take_call(cursor)


def _take_text(cursor: Cursor) -> bool:
    cursor.take_char("=")
    return cursor.take_string() is not None


def _take_value(cursor: Cursor) -> bool:
    return _take_text(cursor) or cursor.take_integer() is not None


def _take_word(cursor: Cursor) -> str:
    return cursor.take_any(("FIXED", "DYNAMIC", "DEFAULT", "DISK", "MEMORY"))


def _take_bits(cursor: Cursor) -> bool:
    cursor.take_group()
    return True


def _take_check(cursor: Cursor) -> bool:
    if cursor.take_group() is None:
        return False
    take_enforced(cursor)
    return True


def _constraint(cursor: Cursor, fields: Fields) -> bool:
    if cursor.word() not in _CONSTRAINT_WORDS:
        cursor.take_name()
    word = cursor.take_any(_CONSTRAINT_WORDS)
    return bool(word) and _ATTRIBUTES[word](cursor, fields)


_CONSTRAINT_WORDS: Final = ("CHECK", "PRIMARY", "KEY", "UNIQUE", "REFERENCES", "NOT", "NULL")

_ATTRIBUTES: Final[dict[str, _Attribute]] = {
    "UNSIGNED": _says(unsigned=True),
    "SIGNED": _says(),
    "ZEROFILL": _says(unsigned=True, zerofill=True),
    **dict.fromkeys(("CHARACTER", "CHAR"), _after("SET", _charset)),
    "CHARSET": _charset,
    "COLLATE": _taken("collation", take_charset_name),
    "ASCII": _says(charset="latin1"),
    "UNICODE": _says(charset="ucs2"),
    # TiDB before 6.2 ignored the word.
    "BYTE": _says(charset="binary"),
    "BINARY": _says(binary_collation=True),
    "NOT": _after("NULL", _says(nullable=False)),
    "NULL": _says(),
    "DEFAULT": _taken("default", take_default),
    "ON": _skips(_take_update),
    "AUTO_INCREMENT": _says(auto_increment=True),
    "AUTO_RANDOM": _skips(_take_bits),
    "PRIMARY": _after("KEY", _key),
    "KEY": _key,
    "UNIQUE": _unique,
    "COMMENT": _skips(_take_text),
    "GENERATED": _after("ALWAYS AS", _as),
    "AS": _as,
    "VIRTUAL": _generated_kind(GeneratedKind.VIRTUAL),
    "STORED": _generated_kind(GeneratedKind.STORED),
    "SERIAL": _after("DEFAULT VALUE", _says(auto_increment=True, unique=True, nullable=False)),
    "COLUMN_FORMAT": _skips(_take_word),
    "STORAGE": _skips(_take_word),
    "ENGINE_ATTRIBUTE": _skips(_take_value),
    "SECONDARY_ENGINE_ATTRIBUTE": _skips(_take_value),
    "VISIBLE": _says(),
    "INVISIBLE": _says(),
    "REFERENCES": _skips(take_references),
    "CONSTRAINT": _constraint,
    "CHECK": _skips(_take_check),
}


# ------------------------------------------------------------------------------------------- types


_TYPES: Final = {**{name: name for name in KINDS}, **SYNONYMS}
_MOST_WORDS: Final = max(len(name.split()) for name in _TYPES)


def _take_type(cursor: Cursor) -> Fields | None:
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
    fields: Fields = {"mysql_type": mysql_type}
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
        case "decimal" | "float" | "double" if len(numbers) > 1:
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
