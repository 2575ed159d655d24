"""Index and constraint definitions, as CREATE TABLE, ALTER TABLE and CREATE INDEX write them.

In: a `Cursor` at a definition. Out: the `AlterChange` that adds it, or the `IndexDefinition`, or
None where there is none. Foreign keys and checks are read to their end and give no index: they do
not concern a mirror's rows. Words that are not understood are noted on the cursor's tokens.
"""

from typing import Final

from ticdc_assets.registry.ddl.literals import take_numbers
from ticdc_assets.registry.ddl.statement import (
    AlterChange,
    ChangeKind,
    IndexDefinition,
    IndexKind,
)
from ticdc_assets.registry.ddl.tokens import Cursor


def take_enforced(cursor: Cursor) -> bool:
    """Take `[NOT] ENFORCED`."""
    return cursor.take("NOT", "ENFORCED") or cursor.take("ENFORCED")


def take_references(cursor: Cursor) -> bool:
    """Take what follows REFERENCES: the table, its columns and the actions."""
    if cursor.take_table_name() is None:
        return False
    cursor.take_group()
    if cursor.take("MATCH"):
        cursor.take_any(("FULL", "PARTIAL", "SIMPLE"))
    while cursor.take("ON", "DELETE") or (
        # ON UPDATE CURRENT_TIMESTAMP belongs to the column again.
        cursor.word(2) in _REFERENCE_ACTIONS and cursor.take("ON", "UPDATE")
    ):
        if not cursor.take_any(_REFERENCE_ACTIONS):
            return False
        cursor.take_any(("NULL", "DEFAULT", "ACTION"))
    return True


_REFERENCE_ACTIONS: Final = ("RESTRICT", "CASCADE", "SET", "NO")

INDEX_KINDS: Final = {
    "INDEX": IndexKind.NON_UNIQUE,
    "KEY": IndexKind.NON_UNIQUE,
    "UNIQUE": IndexKind.UNIQUE,
    "FULLTEXT": IndexKind.NON_UNIQUE,
    "SPATIAL": IndexKind.NON_UNIQUE,
    "VECTOR": IndexKind.NON_UNIQUE,
    "COLUMNAR": IndexKind.NON_UNIQUE,
    "HYBRID": IndexKind.NON_UNIQUE,
}


def is_index(cursor: Cursor) -> bool:
    """Whether an index or constraint definition, not a column, comes next."""
    word = cursor.word()
    if word in ("VECTOR", "COLUMNAR", "HYBRID"):
        # These are not reserved words: `vector` alone is a column's name.
        return cursor.word(1) in ("INDEX", "KEY")
    return word in INDEX_KINDS or word in ("PRIMARY", "CONSTRAINT", "FOREIGN", "CHECK")


def take_index(cursor: Cursor) -> AlterChange | None:
    """Take an index or constraint definition of CREATE TABLE or ALTER TABLE ... ADD.

    Returns:
        The change that adds it, without an index for foreign keys and checks.
    """
    symbol: str | None = None
    if cursor.take("CONSTRAINT") and cursor.word() not in _CONSTRAINED:
        symbol = cursor.take_name()
    if cursor.take("CHECK"):
        if cursor.take_group() is None:
            cursor.missing()
            return None
        take_enforced(cursor)
        return AlterChange(kind=ChangeKind.OTHER, name=symbol)
    if cursor.take("FOREIGN", "KEY"):
        conditional = take_if_exists(cursor)
        name = cursor.take_name()
        if cursor.take_group() is None or not (
            cursor.take("REFERENCES") and take_references(cursor)
        ):
            cursor.missing()
            return None
        return AlterChange(kind=ChangeKind.OTHER, name=symbol or name, conditional=conditional)
    if cursor.take("PRIMARY", "KEY"):
        kind = IndexKind.PRIMARY
    elif word := cursor.take_any(INDEX_KINDS):
        kind = INDEX_KINDS[word]
        if word not in ("INDEX", "KEY"):
            cursor.take_any(("INDEX", "KEY"))
    else:
        cursor.missing()
        return None
    conditional = take_if_exists(cursor)
    name = take_index_name(cursor)
    if kind is IndexKind.PRIMARY:
        name = None
    elif symbol is not None:
        # In MySQL the name of the index would count.
        name = symbol
    index = take_index_body(cursor, name, kind)
    if index is None:
        return None
    return AlterChange(kind=ChangeKind.ADD_INDEX, name=name, index=index, conditional=conditional)


_CONSTRAINED: Final = ("CHECK", "FOREIGN", "PRIMARY", "UNIQUE")


def take_if_exists(cursor: Cursor) -> bool:
    """Take `IF EXISTS` or `IF NOT EXISTS`."""
    return cursor.take("IF", "EXISTS") or cursor.take("IF", "NOT", "EXISTS")


def take_index_name(cursor: Cursor) -> str | None:
    """Take an index name, if there is one before the parentheses, and USING after it."""
    # USING may come without a name; TYPE may not, so a first `type` is the name.
    name = None if cursor.word() == "USING" else cursor.take_name()
    if cursor.word() in ("USING", "TYPE") and cursor.is_name(1):
        cursor.at += 2
    return name


def take_index_body(cursor: Cursor, name: str | None, kind: IndexKind) -> IndexDefinition | None:
    """Take the parts and options of an index."""
    group = cursor.take_group()
    if group is None:
        cursor.missing()
        return None
    parts: list[str | None] = []
    while not group.done:
        part = _take_part(group)
        if not part or (not group.take_char(",") and not group.done):
            group.expect_done()
        parts += part
    if not parts:
        group.missing()
        return None
    clustered: bool | None = None
    condition: str | None = None
    while word := cursor.take_any(_INDEX_OPTIONS):
        if word in ("CLUSTERED", "NONCLUSTERED"):
            clustered = word == "CLUSTERED"
        elif word == "WHERE":
            start = cursor.at
            cursor.skip_item()
            condition = cursor.text(start)
        elif word == "WITH":
            cursor.take("PARSER")
            cursor.take_name()
        elif word not in _WORDS_ALONE:
            cursor.take_char("=")
            if cursor.take_string() is None:
                cursor.skip_token()
    return IndexDefinition(
        name=name,
        kind=kind,
        parts=tuple(parts),
        clustered=clustered,
        condition=condition,
    )


_WORDS_ALONE: Final = ("ADD_COLUMNAR_REPLICA_ON_DEMAND", "GLOBAL", "INVISIBLE", "LOCAL", "VISIBLE")
_OPTION_LIST: Final = """
CLUSTERED COMMENT ENGINE_ATTRIBUTE KEY_BLOCK_SIZE NONCLUSTERED PARAMETER PRE_SPLIT_REGIONS
SECONDARY_ENGINE_ATTRIBUTE TYPE USING WHERE WITH
"""
_INDEX_OPTIONS: Final = frozenset((*_WORDS_ALONE, *_OPTION_LIST.split()))


def _take_part(cursor: Cursor) -> tuple[str | None] | tuple[()]:
    """Take one part of an index: its column, None for an expression; () if there is none."""
    column: str | None = None
    if cursor.take_group() is None:
        column = cursor.take_column_name()
        if column is None:
            return ()
        take_numbers(cursor)
    cursor.take_any(("ASC", "DESC"))
    return (column,)
