"""The changes of an ALTER TABLE.

In: a `Cursor` at the start of a change. Out: `AlterChange` values. A change that no rule reads is
noted as a whole and skipped up to the next comma.

A change that touches neither rows nor columns (ALGORITHM, FORCE, CACHE, TTL, SOFTDELETE ...) is
`other`: understood, and nothing to do. Words that this module does not know are never taken for
such a change.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ticdc_assets.registry.ddl_columns import (
    ColumnClause,
    take_charset_name,
    take_column,
    take_column_definition,
)
from ticdc_assets.registry.ddl_indexes import (
    IndexClause,
    stands_index,
    take_enforced,
    take_if_exists,
    take_index,
)
from ticdc_assets.registry.ddl_literals import take_default
from ticdc_assets.registry.ddl_partitions import (
    take_definitions,
    take_names,
    take_option,
    take_options,
    take_partitioning,
)
from ticdc_assets.registry.ddl_statement import (
    AlterChange,
    ChangeKind,
    ColumnPosition,
    PartitionAction,
    PartitionChange,
)
from ticdc_assets.registry.ddl_tokens import Cursor


def drop_index_change(name: str, *, conditional: bool) -> AlterChange:
    """Return the change that drops the index called `name`."""
    # The primary key is an index called PRIMARY, and no other index can be.
    primary = name.isascii() and name.upper() == "PRIMARY"
    return AlterChange(
        kind=ChangeKind.DROP_PRIMARY_KEY if primary else ChangeKind.DROP_INDEX,
        name=None if primary else name,
        conditional=conditional,
    )


def take_tiflash(cursor: Cursor) -> bool:
    """Take what follows SET: `TIFLASH REPLICA n LOCATION LABELS 'a', 'b'`."""
    cursor.take("HYPO")
    if not cursor.take("TIFLASH", "REPLICA") or cursor.take_integer() is None:
        return False
    if cursor.take("LOCATION", "LABELS"):
        while cursor.take_string() is not None and cursor.is_char(",") and cursor.is_string(1):
            cursor.at += 1
    return True


def take_changes(cursor: Cursor) -> tuple[AlterChange, ...]:
    """Take one change, or the several that one parenthesis holds."""
    start = cursor.at
    option = take_option(cursor)
    if option is not None:
        return (AlterChange(kind=ChangeKind.OTHER, option=option),)
    word = cursor.take_any(_CHANGES)
    found = _CHANGES[word](cursor) if word else ()
    if not found:
        # Even if a part of it was read, the whole change was not understood.
        cursor.at = start
        cursor.unexpected()
    return found


_Changes = tuple[AlterChange, ...]


def _add(cursor: Cursor) -> _Changes:
    column = cursor.take("COLUMN")
    if not column:
        if cursor.take("PARTITION"):
            return _add_partition(cursor)
        if _stands_statistics(cursor):
            cursor.skip_item()
            return (AlterChange(kind=ChangeKind.OTHER),)
        if stands_index(cursor):
            clause = take_index(cursor)
            return () if clause is None else (_index_change(clause),)
    conditional = take_if_exists(cursor)
    group = cursor.take_group()
    if group is None:
        clause = take_column(cursor)
        if clause is None:
            return ()
        return (_add_column(clause, _take_position(cursor), conditional=conditional),)
    changes: list[AlterChange] = []
    while not group.done:
        if stands_index(group):
            element = take_index(group)
            found = None if element is None else _index_change(element)
        else:
            clause = take_column(group)
            found = None if clause is None else _add_column(clause, conditional=conditional)
        if found is not None:
            changes.append(found)
        if not group.done and not group.is_char(","):
            group.unexpected()
        if group.take_char(",") and group.done:
            group.missing()
    return tuple(changes)


def _add_column(
    clause: ColumnClause, position: ColumnPosition | None = None, *, conditional: bool
) -> AlterChange:
    return AlterChange(
        kind=ChangeKind.ADD_COLUMN,
        name=clause.column.name,
        column=clause.column,
        position=position,
        conditional=conditional,
    )


def _index_change(clause: IndexClause) -> AlterChange:
    if clause.index is None:
        kind = ChangeKind.OTHER
    elif clause.index.primary:
        kind = ChangeKind.ADD_PRIMARY_KEY
    else:
        kind = ChangeKind.ADD_INDEX
    return AlterChange(
        kind=kind, name=clause.name, index=clause.index, conditional=clause.conditional
    )


def _stands_statistics(cursor: Cursor) -> bool:
    """Whether STATS_EXTENDED is TiDB's clause here and not a column's name."""
    return cursor.word() == "STATS_EXTENDED" and (
        cursor.word(1) == "IF" or cursor.word(2) in ("CARDINALITY", "DEPENDENCY", "CORRELATION")
    )


def _take_position(cursor: Cursor) -> ColumnPosition | None:
    if cursor.take("FIRST"):
        return ColumnPosition(after=None)
    if cursor.word() == "AFTER" and cursor.is_name(1):
        cursor.at += 1
        return ColumnPosition(after=cursor.take_column_name())
    return None


def _modify(cursor: Cursor) -> _Changes:
    cursor.take("COLUMN")
    conditional = take_if_exists(cursor)
    name = cursor.take_column_name()
    clause = None if name is None else take_column_definition(cursor, name)
    if clause is None:
        return ()
    return (
        AlterChange(
            kind=ChangeKind.MODIFY_COLUMN,
            name=name,
            column=clause.column,
            position=_take_position(cursor),
            conditional=conditional,
        ),
    )


def _change(cursor: Cursor) -> _Changes:
    cursor.take("COLUMN")
    conditional = take_if_exists(cursor)
    old = cursor.take_column_name()
    new = cursor.take_column_name()
    clause = None if old is None or new is None else take_column_definition(cursor, new)
    if clause is None:
        return ()
    return (
        AlterChange(
            kind=ChangeKind.CHANGE_COLUMN,
            name=old,
            new_name=new,
            column=clause.column,
            position=_take_position(cursor),
            conditional=conditional,
        ),
    )


def _drop(cursor: Cursor) -> _Changes:
    if cursor.take("PRIMARY", "KEY"):
        return (AlterChange(kind=ChangeKind.DROP_PRIMARY_KEY),)
    if cursor.take("PARTITION"):
        return _named_partitions(PartitionAction.DROP)(cursor)
    if cursor.word() == "STATS_EXTENDED" and (cursor.word(1) == "IF" or cursor.is_name(1)):
        cursor.skip_item()
        return (AlterChange(kind=ChangeKind.OTHER),)
    kind = ChangeKind.DROP_COLUMN
    if cursor.take_any(("INDEX", "KEY")):
        kind = ChangeKind.DROP_INDEX
    elif cursor.take("FOREIGN", "KEY") or cursor.take_any(("CHECK", "CONSTRAINT")):
        kind = ChangeKind.OTHER
    else:
        cursor.take("COLUMN")
    conditional = take_if_exists(cursor)
    is_column = kind is ChangeKind.DROP_COLUMN
    name = cursor.take_column_name() if is_column else cursor.take_name()
    if name is None:
        return ()
    if is_column:
        cursor.take_any(("RESTRICT", "CASCADE"))
    if kind is ChangeKind.DROP_INDEX:
        return (drop_index_change(name, conditional=conditional),)
    return (AlterChange(kind=kind, name=name, conditional=conditional),)


def _rename_change(cursor: Cursor) -> _Changes:
    for words, kind in _RENAMES:
        if cursor.word() in words and cursor.is_name(1):
            cursor.at += 1
            conditional = take_if_exists(cursor)
            old = cursor.take_column_name()
            new = cursor.take_column_name() if cursor.take("TO") else None
            if old is None or new is None:
                return ()
            return (AlterChange(kind=kind, name=old, new_name=new, conditional=conditional),)
    if not cursor.take_any(("TO", "AS")):
        cursor.take_char("=")
    table = cursor.take_table_name()
    return () if table is None else (AlterChange(kind=ChangeKind.RENAME_TABLE, table=table),)


_RENAMES: Final = (
    (("COLUMN",), ChangeKind.RENAME_COLUMN),
    (("INDEX", "KEY"), ChangeKind.RENAME_INDEX),
)


def _alter(cursor: Cursor) -> _Changes:
    if cursor.take("INDEX"):
        is_other = cursor.take_name() is not None and cursor.take_any(("VISIBLE", "INVISIBLE"))
        return (AlterChange(kind=ChangeKind.OTHER),) if is_other else ()
    if cursor.take_any(("CHECK", "CONSTRAINT")):
        is_other = cursor.take_name() is not None and take_enforced(cursor)
        return (AlterChange(kind=ChangeKind.OTHER),) if is_other else ()
    cursor.take("COLUMN")
    conditional = take_if_exists(cursor)
    name = cursor.take_column_name()
    if name is None:
        return ()
    if cursor.take("DROP", "DEFAULT"):
        return (AlterChange(kind=ChangeKind.DROP_DEFAULT, name=name, conditional=conditional),)
    if not cursor.take("SET"):
        return ()
    if cursor.take_any(("VISIBLE", "INVISIBLE")):
        return (AlterChange(kind=ChangeKind.OTHER, name=name, conditional=conditional),)
    default = take_default(cursor) if cursor.take("DEFAULT") else None
    if default is None:
        return ()
    return (
        AlterChange(
            kind=ChangeKind.SET_DEFAULT, name=name, default=default, conditional=conditional
        ),
    )


def _convert(cursor: Cursor) -> _Changes:
    if not cursor.take("TO") or not (
        cursor.take("CHARACTER", "SET") or cursor.take("CHAR", "SET") or cursor.take("CHARSET")
    ):
        return ()
    charset = None if cursor.take("DEFAULT") else take_charset_name(cursor)
    collation = take_charset_name(cursor) if cursor.take("COLLATE") else None
    return (AlterChange(kind=ChangeKind.CONVERT_CHARSET, charset=charset, collation=collation),)


def _other(cursor: Cursor) -> _Changes:
    """Take a change that touches neither rows nor columns, whatever its words."""
    cursor.skip_item()
    return (AlterChange(kind=ChangeKind.OTHER),)


def _set(cursor: Cursor) -> _Changes:
    return (AlterChange(kind=ChangeKind.OTHER),) if take_tiflash(cursor) else ()


def _tablespace(cursor: Cursor) -> _Changes:
    """Take `DISCARD TABLESPACE`, `IMPORT PARTITION p, q TABLESPACE`."""
    if cursor.take("PARTITION") and not cursor.take("ALL"):
        take_names(cursor)
    return (AlterChange(kind=ChangeKind.OTHER),) if cursor.take("TABLESPACE") else ()


def _order(cursor: Cursor) -> _Changes:
    if not cursor.take("BY"):
        return ()
    while cursor.take_column_name() is not None:
        cursor.take_any(("ASC", "DESC"))
        if not cursor.is_char(",") or cursor.word(1) in _CHANGES or not cursor.is_name(1):
            break
        cursor.at += 1
    return (AlterChange(kind=ChangeKind.OTHER),)


def _setting(cursor: Cursor) -> _Changes:
    """Take `ALGORITHM = INSTANT` and the like, which another change may follow without comma."""
    cursor.take_char("=")
    cursor.skip_token()
    return (AlterChange(kind=ChangeKind.OTHER),)


def _word(cursor: Cursor) -> _Changes:
    del cursor
    return (AlterChange(kind=ChangeKind.OTHER),)


# --------------------------------------------------------------------------- partitions of ALTER


def _partition_change(change: PartitionChange) -> _Changes:
    return (AlterChange(kind=ChangeKind.PARTITION, partition=change),)


def _skip_binlog(cursor: Cursor) -> None:
    cursor.take_any(("NO_WRITE_TO_BINLOG", "LOCAL"))


def _named_partitions(action: PartitionAction) -> Callable[[Cursor], _Changes]:
    def changes(cursor: Cursor) -> _Changes:
        conditional = take_if_exists(cursor)
        _skip_binlog(cursor)
        everything = cursor.take("ALL")
        names = () if everything else take_names(cursor)
        if not everything and not names:
            return ()
        change = PartitionChange(action=action, names=names, all_partitions=everything)
        return (replace(_partition_change(change)[0], conditional=conditional),)

    return changes


def _of_partition(action: PartitionAction) -> Callable[[Cursor], _Changes]:
    named = _named_partitions(action)

    def changes(cursor: Cursor) -> _Changes:
        return named(cursor) if cursor.take("PARTITION") else ()

    return changes


def _add_partition(cursor: Cursor) -> _Changes:
    conditional = take_if_exists(cursor)
    _skip_binlog(cursor)
    if cursor.take("PARTITIONS"):
        count = cursor.take_integer()
        if count is None:
            return ()
        change = PartitionChange(action=PartitionAction.ADD, count=count)
    else:
        definitions = take_definitions(cursor)
        if not definitions:
            return ()
        change = PartitionChange(
            action=PartitionAction.ADD,
            names=tuple(definition.name for definition in definitions),
            definitions=definitions,
        )
    return (replace(_partition_change(change)[0], conditional=conditional),)


def _coalesce(cursor: Cursor) -> _Changes:
    if not cursor.take("PARTITION"):
        return ()
    _skip_binlog(cursor)
    count = cursor.take_integer()
    if count is None:
        return ()
    return _partition_change(PartitionChange(action=PartitionAction.COALESCE, count=count))


def _reorganize(cursor: Cursor) -> _Changes:
    if not cursor.take("PARTITION"):
        return ()
    _skip_binlog(cursor)
    names = () if cursor.word() == "INTO" else take_names(cursor)
    definitions = take_definitions(cursor) if cursor.take("INTO") else ()
    if names and not definitions:
        return ()
    return _partition_change(
        PartitionChange(action=PartitionAction.REORGANIZE, names=names, definitions=definitions)
    )


def _take_exchanged(cursor: Cursor) -> str | None:
    """Take a partition's name as TiCDC writes it: in quotes, also if the client's text had some."""
    name = cursor.take_name()
    if name != "":
        return name
    start = cursor.at
    while not cursor.done and not (cursor.raw() == "``" and cursor.word(1) == "WITH"):
        cursor.skip_token()
    text = cursor.text(start)
    return text.replace("``", "`") if text and cursor.take_name() == "" else None


def _exchange(cursor: Cursor) -> _Changes:
    name = _take_exchanged(cursor) if cursor.take("PARTITION") else None
    other = cursor.take_table_name() if cursor.take("WITH", "TABLE") else None
    if name is None or other is None:
        return ()
    if cursor.take_any(("WITH", "WITHOUT")) and not cursor.take("VALIDATION"):
        cursor.at -= 1
    return _partition_change(
        PartitionChange(action=PartitionAction.EXCHANGE, names=(name,), other=other)
    )


def _remove(cursor: Cursor) -> _Changes:
    if cursor.take("PARTITIONING"):
        return _partition_change(PartitionChange(action=PartitionAction.REMOVE_PARTITIONING))
    return (AlterChange(kind=ChangeKind.OTHER),) if cursor.take("TTL") else ()


def _partition(cursor: Cursor) -> _Changes:
    if cursor.take("BY"):
        partitioning = take_partitioning(cursor)
        if partitioning is None:
            return ()
        return _partition_change(
            PartitionChange(action=PartitionAction.PARTITION_BY, partitioning=partitioning)
        )
    if cursor.take_name() is None:
        return ()
    # PARTITION p ATTRIBUTES = ..., PARTITION p PLACEMENT POLICY = ...
    return (AlterChange(kind=ChangeKind.OTHER),) if take_options(cursor) else ()


def _maintained(cursor: Cursor) -> _Changes:
    """Take `CHECK PARTITION p` and the like, which leave all rows where they are."""
    if not cursor.take("PARTITION"):
        return ()
    take_if_exists(cursor)
    _skip_binlog(cursor)
    is_other = cursor.take("ALL") or take_names(cursor)
    return (AlterChange(kind=ChangeKind.OTHER),) if is_other else ()


def _analyzed(cursor: Cursor) -> _Changes:
    found = _maintained(cursor)
    cursor.skip_item()
    return found


_CHANGES: Final[dict[str, Callable[[Cursor], _Changes]]] = {
    "ADD": _add,
    "ALGORITHM": _setting,
    "ALTER": _alter,
    "ANALYZE": _analyzed,
    "CACHE": _word,
    "CHANGE": _change,
    "CHECK": _maintained,
    "COALESCE": _coalesce,
    "COMPACT": _other,
    "CONVERT": _convert,
    "DISABLE": _other,
    "DISCARD": _tablespace,
    "DROP": _drop,
    "ENABLE": _other,
    "EXCHANGE": _exchange,
    "FORCE": _word,
    "IMPORT": _tablespace,
    "LOCK": _setting,
    "MODIFY": _modify,
    "NOCACHE": _word,
    "OPTIMIZE": _maintained,
    "ORDER": _order,
    "PARTITION": _partition,
    "READ": _other,
    "REBUILD": _maintained,
    "REMOVE": _remove,
    "RENAME": _rename_change,
    "REORGANIZE": _reorganize,
    "REPAIR": _maintained,
    "SECONDARY_LOAD": _word,
    "SECONDARY_UNLOAD": _word,
    "SET": _set,
    "STATS_OPTIONS": _setting,
    "TRUNCATE": _of_partition(PartitionAction.TRUNCATE),
    "WITH": _other,
    "WITHOUT": _other,
}
