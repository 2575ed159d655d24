"""Column definitions, as CREATE TABLE and ALTER TABLE write them.

In: a `Cursor` that stands on a definition. Out: `ColumnDefinition`, or None where there is none,
and the indexes that its attributes make. What is not understood is noted on the cursor's tokens;
the words around it still count. Type words become those of the Simple protocol (`ddl_types`), so
that a definition and a schema that TiCDC sent can be compared. Reading the same text again gives
the same.

Not here: what only the server's settings decide. A TIMESTAMP without NULL is nullable (TiDB's
explicit_defaults_for_timestamp).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ticdc_assets.registry.ddl_indexes import take_enforced, take_references
from ticdc_assets.registry.ddl_literals import take_call, take_default
from ticdc_assets.registry.ddl_statement import (
    ColumnDefinition,
    GeneratedKind,
    IndexDefinition,
    IndexKind,
)
from ticdc_assets.registry.ddl_tokens import Cursor
from ticdc_assets.registry.ddl_types import UnfinishedColumn, take_type


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnClause:
    """A column definition and the index that its own attributes make, if any."""

    column: ColumnDefinition
    indexes: tuple[IndexDefinition, ...]


def take_column(cursor: Cursor) -> ColumnClause | None:
    """Take `name type attribute...`; None, with a note, if no name or type stands here."""
    name = cursor.take_column_name()
    if name is None:
        cursor.missing()
        return None
    return take_column_definition(cursor, name)


def take_column_definition(cursor: Cursor, name: str) -> ColumnClause | None:
    """Take `type attribute...` of the column called `name`, the type as it is written."""
    column = UnfinishedColumn()
    if not take_type(cursor, column):
        cursor.missing()
        return None
    while (word := cursor.word()) and (attribute := _ATTRIBUTES.get(word)) is not None:
        start = cursor.at
        cursor.at += 1
        if not attribute(cursor, column):
            cursor.at = start
            break
    if column.charset is None and column.collation is not None:
        column.charset = column.collation.partition("_")[0]
    definition = ColumnDefinition(
        name=name,
        mysql_type=column.mysql_type,
        length=column.length,
        decimal=column.decimal,
        unsigned=column.unsigned,
        zerofill=column.zerofill,
        charset=column.charset,
        collation=column.collation,
        binary_collation=column.binary_collation,
        elements=column.elements,
        nullable=column.nullable,
        default=column.default,
        auto_increment=column.auto_increment,
        primary_key=column.primary_key,
        unique=column.unique,
        generated=column.generated,
    )
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
    return ColumnClause(column=definition, indexes=tuple(indexes))


_Attribute = Callable[[Cursor, UnfinishedColumn], bool]


def _set_unsigned(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del cursor
    column.unsigned = True
    return True


def _set_signed(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del cursor, column
    return True


def _set_zerofill(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del cursor
    column.unsigned = column.zerofill = True
    return True


def take_charset_name(cursor: Cursor) -> str | None:
    """Take `[=] name` of a character set or collation, in lower case."""
    cursor.take_char("=")
    name = cursor.take_string() if cursor.is_string() else cursor.take_name()
    return None if name is None else name.lower()


def _set_charset(cursor: Cursor, column: UnfinishedColumn) -> bool:
    column.charset = take_charset_name(cursor)
    return column.charset is not None


def _set_character_set(cursor: Cursor, column: UnfinishedColumn) -> bool:
    return cursor.take("SET") and _set_charset(cursor, column)


def _set_collation(cursor: Cursor, column: UnfinishedColumn) -> bool:
    column.collation = take_charset_name(cursor)
    return column.collation is not None


def _fixed_charset(charset: str) -> _Attribute:
    def attribute(cursor: Cursor, column: UnfinishedColumn) -> bool:
        del cursor
        column.charset = charset
        return True

    return attribute


def _set_binary(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del cursor
    column.binary_collation = True
    return True


def _set_not(cursor: Cursor, column: UnfinishedColumn) -> bool:
    if not cursor.take("NULL"):
        return False
    column.nullable = False
    return True


def _set_null(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del cursor, column
    return True


def _set_default(cursor: Cursor, column: UnfinishedColumn) -> bool:
    default = take_default(cursor)
    if default is None:
        return False
    column.default = default
    return True


def _set_on(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del column
    return cursor.take("UPDATE") and take_call(cursor)


def _set_auto_increment(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del cursor
    column.auto_increment = True
    return True


def _set_auto_random(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del column
    cursor.take_group()
    return True


def _set_primary(cursor: Cursor, column: UnfinishedColumn) -> bool:
    return cursor.take("KEY") and _set_key(cursor, column)


def _set_key(cursor: Cursor, column: UnfinishedColumn) -> bool:
    word = cursor.take_any(("CLUSTERED", "NONCLUSTERED"))
    column.clustered = word == "CLUSTERED" if word else None
    cursor.take_any(("GLOBAL", "LOCAL"))
    column.primary_key = True
    column.nullable = False
    return True


def _set_unique(cursor: Cursor, column: UnfinishedColumn) -> bool:
    cursor.take_any(("KEY", "INDEX"))
    cursor.take_any(("GLOBAL", "LOCAL"))
    column.unique = True
    return True


def _set_comment(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del column
    cursor.take_char("=")
    return cursor.take_string() is not None


def _set_generated(cursor: Cursor, column: UnfinishedColumn) -> bool:
    return cursor.take("ALWAYS", "AS") and _set_as(cursor, column)


def _set_as(cursor: Cursor, column: UnfinishedColumn) -> bool:
    if cursor.take_group() is None:
        return False
    # Without a word it is virtual; the word that follows may say otherwise.
    column.generated = column.generated or GeneratedKind.VIRTUAL
    return True


def _generated_kind(kind: GeneratedKind) -> _Attribute:
    def attribute(cursor: Cursor, column: UnfinishedColumn) -> bool:
        del cursor
        if column.generated is None:
            return False
        column.generated = kind
        return True

    return attribute


def _set_serial(cursor: Cursor, column: UnfinishedColumn) -> bool:
    if not cursor.take("DEFAULT", "VALUE"):
        return False
    column.auto_increment = column.unique = True
    column.nullable = False
    return True


def _skip_word(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del column
    return bool(cursor.take_any(("FIXED", "DYNAMIC", "DEFAULT", "DISK", "MEMORY")))


def _skip_value(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del column
    cursor.take_char("=")
    return cursor.take_string() is not None or cursor.take_integer() is not None


def _skip_nothing(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del cursor, column
    return True


def _skip_references(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del column
    return take_references(cursor)


def _skip_constraint(cursor: Cursor, column: UnfinishedColumn) -> bool:
    if cursor.word() not in _CONSTRAINT_WORDS:
        cursor.take_name()
    word = cursor.take_any(_CONSTRAINT_WORDS)
    return bool(word) and _ATTRIBUTES[word](cursor, column)


def _skip_check(cursor: Cursor, column: UnfinishedColumn) -> bool:
    del column
    if cursor.take_group() is None:
        return False
    take_enforced(cursor)
    return True


_CONSTRAINT_WORDS: Final = ("CHECK", "PRIMARY", "KEY", "UNIQUE", "REFERENCES", "NOT", "NULL")

_ATTRIBUTES: Final[dict[str, _Attribute]] = {
    "UNSIGNED": _set_unsigned,
    "SIGNED": _set_signed,
    "ZEROFILL": _set_zerofill,
    "CHARACTER": _set_character_set,
    "CHAR": _set_character_set,
    "CHARSET": _set_charset,
    "COLLATE": _set_collation,
    "ASCII": _fixed_charset("latin1"),
    "UNICODE": _fixed_charset("ucs2"),
    # MySQL makes bytes of CHAR BYTE; TiDB, which is what TiCDC reads, ignores the word.
    "BYTE": _skip_nothing,
    "BINARY": _set_binary,
    "NOT": _set_not,
    "NULL": _set_null,
    "DEFAULT": _set_default,
    "ON": _set_on,
    "AUTO_INCREMENT": _set_auto_increment,
    "AUTO_RANDOM": _set_auto_random,
    "PRIMARY": _set_primary,
    "KEY": _set_key,
    "UNIQUE": _set_unique,
    "COMMENT": _set_comment,
    "GENERATED": _set_generated,
    "AS": _set_as,
    "VIRTUAL": _generated_kind(GeneratedKind.VIRTUAL),
    "STORED": _generated_kind(GeneratedKind.STORED),
    "PERSISTENT": _generated_kind(GeneratedKind.STORED),
    "SERIAL": _set_serial,
    "COLUMN_FORMAT": _skip_word,
    "STORAGE": _skip_word,
    "ENGINE_ATTRIBUTE": _skip_value,
    "SECONDARY_ENGINE_ATTRIBUTE": _skip_value,
    "SRID": _skip_value,
    "VISIBLE": _skip_nothing,
    "INVISIBLE": _skip_nothing,
    "REFERENCES": _skip_references,
    "CONSTRAINT": _skip_constraint,
    "CHECK": _skip_check,
}
