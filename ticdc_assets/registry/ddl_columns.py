"""Column definitions, as CREATE TABLE and ALTER TABLE write them.

In: a `Cursor` at a definition. Out: `ColumnDefinition`, or None where there is none, and the
indexes of its attributes. Words that are not understood are noted on the cursor's tokens; the words
around them still count. Type words become those of the Simple protocol (`ddl_types`), so that a
definition and a schema that TiCDC sent can be compared.

Not here: what only the server's settings decide. A TIMESTAMP without NULL is nullable (TiDB's
explicit_defaults_for_timestamp).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ticdc_assets.registry.ddl_indexes import take_enforced, take_references
from ticdc_assets.registry.ddl_literals import take_call, take_charset_name, take_default
from ticdc_assets.registry.ddl_statement import (
    ColumnDefinition,
    GeneratedKind,
    IndexDefinition,
    IndexKind,
)
from ticdc_assets.registry.ddl_tokens import Cursor
from ticdc_assets.registry.ddl_types import Fields, take_type


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnClause:
    """A column definition and the index that its own attributes create, if any."""

    column: ColumnDefinition
    indexes: tuple[IndexDefinition, ...]


def take_column(cursor: Cursor) -> ColumnClause | None:
    """Take `name type attribute...`; None, with a note, if no name or type comes next."""
    name = cursor.take_column_name()
    if name is None:
        cursor.missing()
        return None
    return take_column_definition(cursor, name)


def take_column_definition(cursor: Cursor, name: str) -> ColumnClause | None:
    """Take `type attribute...` of the column called `name`, the type as it is written."""
    fields = take_type(cursor)
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
    column = ColumnDefinition(name=name, **fields)
    indexes: list[IndexDefinition] = []
    part = (name,)
    if column.primary_key:
        indexes.append(
            IndexDefinition(
                name=None, kind=IndexKind.PRIMARY, parts=part, clustered=column.clustered
            )
        )
    if column.unique:
        indexes.append(IndexDefinition(name=None, kind=IndexKind.UNIQUE, parts=part))
    return ColumnClause(column=column, indexes=tuple(indexes))


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


_charset = _taken("charset", take_charset_name)


def _character_set(cursor: Cursor, fields: Fields) -> bool:
    return cursor.take("SET") and _charset(cursor, fields)


def _not(cursor: Cursor, fields: Fields) -> bool:
    if not cursor.take("NULL"):
        return False
    fields["nullable"] = False
    return True


def _primary(cursor: Cursor, fields: Fields) -> bool:
    return cursor.take("KEY") and _key(cursor, fields)


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


def _generated(cursor: Cursor, fields: Fields) -> bool:
    return cursor.take("ALWAYS", "AS") and _as(cursor, fields)


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


def _serial(cursor: Cursor, fields: Fields) -> bool:
    if not cursor.take("DEFAULT", "VALUE"):
        return False
    fields.update(auto_increment=True, unique=True, nullable=False)
    return True


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
    "CHARACTER": _character_set,
    "CHAR": _character_set,
    "CHARSET": _charset,
    "COLLATE": _taken("collation", take_charset_name),
    "ASCII": _says(charset="latin1"),
    "UNICODE": _says(charset="ucs2"),
    # In MySQL CHAR BYTE means bytes; TiDB, from which TiCDC reads, ignores the word.
    "BYTE": _says(),
    "BINARY": _says(binary_collation=True),
    "NOT": _not,
    "NULL": _says(),
    "DEFAULT": _taken("default", take_default),
    "ON": _skips(_take_update),
    "AUTO_INCREMENT": _says(auto_increment=True),
    "AUTO_RANDOM": _skips(_take_bits),
    "PRIMARY": _primary,
    "KEY": _key,
    "UNIQUE": _unique,
    "COMMENT": _skips(_take_text),
    "GENERATED": _generated,
    "AS": _as,
    "VIRTUAL": _generated_kind(GeneratedKind.VIRTUAL),
    "STORED": _generated_kind(GeneratedKind.STORED),
    "PERSISTENT": _generated_kind(GeneratedKind.STORED),
    "SERIAL": _serial,
    "COLUMN_FORMAT": _skips(_take_word),
    "STORAGE": _skips(_take_word),
    "ENGINE_ATTRIBUTE": _skips(_take_value),
    "SECONDARY_ENGINE_ATTRIBUTE": _skips(_take_value),
    "SRID": _skips(_take_value),
    "VISIBLE": _says(),
    "INVISIBLE": _says(),
    "REFERENCES": _skips(take_references),
    "CONSTRAINT": _constraint,
    "CHECK": _skips(_take_check),
}
