"""The changes of an ALTER TABLE.

In: a `Cursor` at the start of a change. Out: `AlterChange` values. A change that no rule reads is
noted as a whole and skipped up to the next comma.

A change that touches neither rows nor columns (ALGORITHM, FORCE, TTL, SOFTDELETE ...) is `other`:
understood, and nothing to do. Words that this module does not know are never taken for such a
change.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ticdc_assets.registry.ddl.definitions import (
    is_index,
    take_charset_name,
    take_charset_words,
    take_column,
    take_column_definition,
    take_default,
    take_if_exists,
    take_index,
)
from ticdc_assets.registry.ddl.partitions import (
    take_definitions,
    take_names,
    take_options,
    take_partitioning,
)
from ticdc_assets.registry.ddl.statement import (
    AlterChange,
    ChangeKind,
    PartitionAction,
    PartitionChange,
)
from ticdc_assets.registry.ddl.tokens import Cursor

_Changes = tuple[AlterChange, ...]
_OTHER: Final[_Changes] = (AlterChange(kind=ChangeKind.OTHER),)


def drop_index_change(name: str, *, conditional: bool) -> AlterChange:
    """Return the change that drops the index called `name`."""
    # The primary key is an index called PRIMARY, and no other index can be.
    primary = name.isascii() and name.upper() == "PRIMARY"
    return AlterChange(
        kind=ChangeKind.DROP_PRIMARY_KEY if primary else ChangeKind.DROP_INDEX,
        name=None if primary else name,
        conditional=conditional,
    )


def take_changes(cursor: Cursor) -> tuple[AlterChange, ...]:
    """Take one change, the several that one parenthesis holds, or options without commas."""
    start = cursor.at
    options = take_options(cursor)
    if options is not None:
        return _change(ChangeKind.TABLE_CHARSET, **options._asdict()) if any(options) else _OTHER
    word = cursor.take_any(_CHANGES)
    changes = _CHANGES[word](cursor) if word else ()
    if not changes:
        # Even if a part of it was read, the whole change was not understood.
        cursor.at = start
        cursor.unexpected()
    return changes


def _change(kind: ChangeKind, **fields: Any) -> _Changes:
    return (AlterChange(kind=kind, **fields),)


# ---------------------------------------------------------------------------- columns and indexes


def _add(cursor: Cursor) -> _Changes:
    if not cursor.take("COLUMN"):
        if cursor.take("PARTITION"):
            return _add_partition(cursor)
        if is_index(cursor):
            return _add_index(cursor)
    conditional = take_if_exists(cursor)
    group = cursor.take_group()
    if group is None:
        return _add_column(cursor, conditional=conditional)
    return take_elements(group, conditional=conditional)


def take_elements(cursor: Cursor, *, conditional: bool = False) -> _Changes:
    """Take columns and indexes with commas between them; return the changes that add them."""
    changes: list[AlterChange] = []
    while not cursor.done:
        if is_index(cursor):
            changes += _add_index(cursor)
        else:
            changes += _add_column(cursor, conditional=conditional)
        if not cursor.done and not cursor.is_char(","):
            cursor.unexpected()
        if cursor.take_char(",") and cursor.done:
            cursor.missing()
    return tuple(changes)


def _add_column(cursor: Cursor, *, conditional: bool) -> _Changes:
    column = take_column(cursor)
    if column is None:
        return ()
    after = _take_position(cursor)
    kind = ChangeKind.ADD_COLUMN
    return _change(kind, name=column.name, column=column, after=after, conditional=conditional)


def _add_index(cursor: Cursor) -> _Changes:
    change = take_index(cursor)
    return () if change is None else (change,)


def _take_position(cursor: Cursor) -> str | None:
    """Take `FIRST` or `AFTER column`, as `AlterChange.after` has it."""
    if cursor.take("FIRST"):
        return ""
    if cursor.word() == "AFTER" and cursor.is_name(1):
        cursor.at += 1
        return cursor.take_column_name()
    return None


def _redefine(kind: ChangeKind, cursor: Cursor) -> _Changes:
    """Take what follows MODIFY or CHANGE, which has the new name too."""
    cursor.take("COLUMN")
    conditional = take_if_exists(cursor)
    old = new = cursor.take_column_name()
    if kind is ChangeKind.CHANGE_COLUMN:
        new = cursor.take_column_name()
    column = None if old is None or new is None else take_column_definition(cursor, new)
    if column is None:
        return ()
    return _change(
        kind,
        name=old,
        new_name=new if kind is ChangeKind.CHANGE_COLUMN else None,
        column=column,
        after=_take_position(cursor),
        conditional=conditional,
    )


def _drop(cursor: Cursor) -> _Changes:
    if cursor.take("PRIMARY", "KEY"):
        return _change(ChangeKind.DROP_PRIMARY_KEY)
    if cursor.take("PARTITION"):
        return _named_partitions(PartitionAction.DROP, cursor)
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
    return _change(kind, name=name, conditional=conditional)


def _rename(cursor: Cursor) -> _Changes:
    for words, kind in _RENAMES:
        if cursor.word() in words and cursor.is_name(1):
            cursor.at += 1
            conditional = take_if_exists(cursor)
            old = cursor.take_column_name()
            new = cursor.take_column_name() if cursor.take("TO") else None
            if old is None or new is None:
                return ()
            return _change(kind, name=old, new_name=new, conditional=conditional)
    if not cursor.take_any(("TO", "AS")):
        cursor.take_char("=")
    table = cursor.take_table_name()
    return () if table is None else _change(ChangeKind.RENAME_TABLE, table=table)


_RENAMES: Final = (
    (("COLUMN",), ChangeKind.RENAME_COLUMN),
    (("INDEX", "KEY"), ChangeKind.RENAME_INDEX),
)


def _alter(cursor: Cursor) -> _Changes:
    if cursor.take("INDEX"):
        is_other = cursor.take_name() is not None and cursor.take_any(_VISIBILITY)
        return _OTHER if is_other else ()
    cursor.take("COLUMN")
    conditional = take_if_exists(cursor)
    name = cursor.take_column_name()
    if name is None:
        return ()
    if cursor.take("DROP", "DEFAULT"):
        return _change(ChangeKind.DROP_DEFAULT, name=name, conditional=conditional)
    if not cursor.take("SET"):
        return ()
    if cursor.take_any(_VISIBILITY):
        return _OTHER
    default = take_default(cursor) if cursor.take("DEFAULT") else None
    if default is None:
        return ()
    return _change(ChangeKind.SET_DEFAULT, name=name, default=default, conditional=conditional)


_VISIBILITY: Final = ("VISIBLE", "INVISIBLE")


def _convert(cursor: Cursor) -> _Changes:
    if not cursor.take("TO") or not take_charset_words(cursor):
        return ()
    charset = None if cursor.take("DEFAULT") else take_charset_name(cursor)
    collation = take_charset_name(cursor) if cursor.take("COLLATE") else None
    return _change(ChangeKind.CONVERT_CHARSET, charset=charset, collation=collation)


# -------------------------------------------------------------------------------------- partitions


def _partition_change(
    action: PartitionAction, *, conditional: bool = False, **fields: Any
) -> _Changes:
    change = PartitionChange(action=action, **fields)
    return _change(ChangeKind.PARTITION, partition=change, conditional=conditional)


def _skip_binlog(cursor: Cursor) -> None:
    cursor.take_any(("NO_WRITE_TO_BINLOG", "LOCAL"))


def _named_partitions(action: PartitionAction, cursor: Cursor) -> _Changes:
    conditional = take_if_exists(cursor)
    _skip_binlog(cursor)
    change = partial(_partition_change, action, conditional=conditional)
    if cursor.take("ALL"):
        return change(all_partitions=True)
    names = take_names(cursor)
    return change(names=names) if names else ()


def _add_partition(cursor: Cursor) -> _Changes:
    conditional = take_if_exists(cursor)
    _skip_binlog(cursor)
    change = partial(_partition_change, PartitionAction.ADD, conditional=conditional)
    if cursor.take("PARTITIONS"):
        count = cursor.take_integer()
        return () if count is None else change(count=count)
    definitions = take_definitions(cursor)
    names = tuple(definition.name for definition in definitions)
    return change(names=names, definitions=definitions) if definitions else ()


def _coalesce(cursor: Cursor) -> _Changes:
    _skip_binlog(cursor)
    count = cursor.take_integer()
    return () if count is None else _partition_change(PartitionAction.COALESCE, count=count)


def _reorganize(cursor: Cursor) -> _Changes:
    _skip_binlog(cursor)
    names = () if cursor.word() == "INTO" else take_names(cursor)
    definitions = take_definitions(cursor) if cursor.take("INTO") else ()
    if names and not definitions:
        return ()
    return _partition_change(PartitionAction.REORGANIZE, names=names, definitions=definitions)


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
    name = _take_exchanged(cursor)
    other = cursor.take_table_name() if cursor.take("WITH", "TABLE") else None
    if name is None or other is None:
        return ()
    if cursor.take_any(("WITH", "WITHOUT")) and not cursor.take("VALIDATION"):
        cursor.at -= 1
    return _partition_change(PartitionAction.EXCHANGE, names=(name,), other=other)


def _remove(cursor: Cursor) -> _Changes:
    if cursor.take("PARTITIONING"):
        return _partition_change(PartitionAction.REMOVE_PARTITIONING)
    return _OTHER if cursor.take("TTL") else ()


def _partition(cursor: Cursor) -> _Changes:
    clause = take_partitioning(cursor) if cursor.take("BY") else None
    action = PartitionAction.PARTITION_BY
    return () if clause is None else _partition_change(action, partitioning=clause)


# ------------------------------------------------- changes that touch neither rows nor columns


def _other(cursor: Cursor) -> _Changes:
    """Take a change whatever its words."""
    cursor.skip_item()
    return _OTHER


def _setting(cursor: Cursor) -> _Changes:
    """Take `ALGORITHM = INSTANT` and the like, which another change may follow without comma."""
    cursor.take_char("=")
    cursor.skip_token()
    return _OTHER


def _of_partition(take: Callable[[Cursor], _Changes]) -> Callable[[Cursor], _Changes]:
    """Return the function of a change whose next word is PARTITION."""
    return lambda cursor: take(cursor) if cursor.take("PARTITION") else ()


_CHANGES: Final[dict[str, Callable[[Cursor], _Changes]]] = {
    "ADD": _add,
    "ALTER": _alter,
    "CHANGE": partial(_redefine, ChangeKind.CHANGE_COLUMN),
    "COALESCE": _of_partition(_coalesce),
    "CONVERT": _convert,
    "DROP": _drop,
    "EXCHANGE": _of_partition(_exchange),
    "MODIFY": partial(_redefine, ChangeKind.MODIFY_COLUMN),
    "PARTITION": _partition,
    "REMOVE": _remove,
    "RENAME": _rename,
    "REORGANIZE": _of_partition(_reorganize),
    "TRUNCATE": _of_partition(partial(_named_partitions, PartitionAction.TRUNCATE)),
    **dict.fromkeys(("ALGORITHM", "LOCK"), _setting),
    **dict.fromkeys(("DISABLE", "ENABLE", "FORCE", "WITH", "WITHOUT"), _other),
}
