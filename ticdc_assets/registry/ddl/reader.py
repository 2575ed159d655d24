"""Understanding DDL text: what a statement did, beyond what schemas can say.

In: the SQL of a DDL message, any text at all. Out: one frozen `DdlStatement`; never an exception.
The same text always gives the same value, so replays and rebuilds agree.

The schemas that some formats send with a DDL say what the columns are. Only the text says which
column became which (CHANGE, RENAME COLUMN), which columns are virtual and never arrive in rows,
which partitions lost their rows, and what a statement without a table did. For formats that send no
schema there is only the text, so column and index definitions are read in full.

A piece that is not understood is skipped up to the next comma, never guessed, and the first such
piece is in `unparsed`. The pieces around it count. A text of several statements gives the first,
and the rest is `unparsed` (`parse_ddl_script` reads them all).

Not done: expressions, bounds and queries are not evaluated, names are not resolved against a
session's database, and statements and changes that TiCDC never sends (`ddlWhiteListMap` in
pkg/filter/ddl.go of pingcap/ticdc: users, sequences, placement policies, FLASHBACK CLUSTER, SET
TIFLASH REPLICA ...) are `unknown`. Time is linear in the length of the text; nesting is never
followed by recursion.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from ticdc_assets.registry.ddl.alter import drop_index_change, take_changes, take_elements
from ticdc_assets.registry.ddl.definitions import (
    INDEX_WORDS,
    own_indexes,
    take_if_exists,
    take_index_body,
    take_index_name,
)
from ticdc_assets.registry.ddl.partitions import Charset, take_options, take_partitioning
from ticdc_assets.registry.ddl.statement import (
    AlterChange,
    ChangeKind,
    DdlAction,
    DdlStatement,
    TableName,
    TableRename,
)
from ticdc_assets.registry.ddl.tokens import UNPARSED_LIMIT, Cursor, Tokens, tokenize


def parse_ddl(sql: str) -> DdlStatement:
    """Return the first statement of `sql`; total, see the module's text."""
    tokens = tokenize(sql)
    ranges = tokens.statements()
    if not ranges:
        return DdlStatement(action=DdlAction.UNKNOWN, unparsed=sql[:UNPARSED_LIMIT])
    statement = _statement(Cursor(tokens, *ranges[0]))
    if len(ranges) > 1:
        tokens.note(tokens.starts[ranges[1][0]], len(sql))
    return _with_problem(statement, tokens)


def parse_ddl_script(sql: str) -> tuple[DdlStatement, ...]:
    """Return each statement of `sql`, in order; () for a text without any."""
    tokens = tokenize(sql)
    whole_problem = tokens.problem
    ranges = tokens.statements()
    statements: list[DdlStatement] = []
    for number, (start, end) in enumerate(ranges):
        # An executable comment that never closes counts against the last statement.
        tokens.problem = whole_problem if number == len(ranges) - 1 else None
        statement = _statement(Cursor(tokens, start, end))
        statements.append(_with_problem(statement, tokens))
    return tuple(statements)


def _with_problem(statement: DdlStatement, tokens: Tokens) -> DdlStatement:
    problem = tokens.problem
    return statement if problem is None else replace(statement, unparsed=problem[1])


def _statement(cursor: Cursor) -> DdlStatement:
    start = cursor.at
    word = cursor.take_any(_STATEMENTS)
    statement = _STATEMENTS[word](cursor) if word else None
    if statement is None:
        cursor.at = start
        statement = DdlStatement(action=DdlAction.UNKNOWN)
    cursor.expect_done()
    return statement


# ------------------------------------------------------------------ statements about one object


def _of_table(
    action: DdlAction,
    name: TableName | None,
    *,
    changes: tuple[AlterChange, ...] = (),
    renames: tuple[TableRename, ...] = (),
) -> DdlStatement:
    return DdlStatement(
        action=action,
        database=None if name is None else name.database,
        table=None if name is None else name.table,
        tables=() if name is None else (name,),
        changes=changes,
        renames=renames,
    )


def _named_table(cursor: Cursor) -> TableName | None:
    name = cursor.take_table_name()
    if name is None:
        cursor.missing()
    return name


def _named_tables(cursor: Cursor) -> tuple[TableName, ...]:
    names: list[TableName] = []
    while (name := _named_table(cursor)) is not None:
        names.append(name)
        if not cursor.take_char(","):
            break
    return tuple(names)


def _drop_many(action: DdlAction, cursor: Cursor) -> DdlStatement:
    take_if_exists(cursor)
    names = _named_tables(cursor)
    cursor.take_any(("RESTRICT", "CASCADE"))
    return replace(_of_table(action, next(iter(names), None)), tables=names)


def _drop_index(cursor: Cursor) -> DdlStatement:
    cursor.take("INDEX")
    conditional = take_if_exists(cursor)
    name = cursor.take_name()
    if name is None or not cursor.take("ON"):
        cursor.missing()
        return _of_table(DdlAction.DROP_INDEX, None)
    table = _named_table(cursor)
    _skip_algorithm_and_lock(cursor)
    change = drop_index_change(name, conditional=conditional)
    return _of_table(DdlAction.DROP_INDEX, table, changes=(change,))


def _skip_algorithm_and_lock(cursor: Cursor) -> None:
    while cursor.take_any(("ALGORITHM", "LOCK")):
        cursor.take_char("=")
        cursor.skip_token()


_SPECIAL_INDEXES: Final = INDEX_WORDS - {"INDEX", "KEY"}


def _create_index(cursor: Cursor) -> DdlStatement | None:
    word = cursor.take_any(_SPECIAL_INDEXES) or cursor.word()
    if not cursor.take("INDEX"):
        return None
    conditional = take_if_exists(cursor)
    name = take_index_name(cursor)
    if not cursor.take("ON"):
        cursor.missing()
        return _of_table(DdlAction.CREATE_INDEX, None)
    table = _named_table(cursor)
    index = take_index_body(cursor, name, word)
    _skip_algorithm_and_lock(cursor)
    if index is None:
        return _of_table(DdlAction.CREATE_INDEX, table)
    kind = ChangeKind.ADD_INDEX
    change = AlterChange(kind=kind, name=name, index=index, conditional=conditional)
    return _of_table(DdlAction.CREATE_INDEX, table, changes=(change,))


def _create_view(cursor: Cursor) -> DdlStatement:
    """Take a view's name; its other words concern no rows."""
    take_if_exists(cursor)
    statement = _of_table(DdlAction.CREATE_VIEW, _named_table(cursor))
    cursor.at = cursor.end
    return statement


def _create_view_as(cursor: Cursor) -> DdlStatement | None:
    """Take `DEFINER = ... VIEW` and the view."""
    while not cursor.take("VIEW"):
        if cursor.done:
            return None
        cursor.skip_token()
    return _create_view(cursor)


def _truncate(cursor: Cursor) -> DdlStatement:
    cursor.take("TABLE")
    return _of_table(DdlAction.TRUNCATE_TABLE, _named_table(cursor))


def _rename(cursor: Cursor) -> DdlStatement | None:
    if not cursor.take_any(("TABLE", "TABLES")):
        return None
    take_if_exists(cursor)
    renames: list[TableRename] = []
    while True:
        old = _named_table(cursor)
        if old is None or not cursor.take("TO"):
            cursor.missing()
            break
        new = _named_table(cursor)
        if new is None:
            break
        renames.append(TableRename(old=old, new=new))
        if not cursor.take_char(","):
            break
    first = _of_table(DdlAction.RENAME_TABLE, renames[0].old if renames else None)
    return replace(first, tables=tuple(pair.old for pair in renames), renames=tuple(renames))


def _recover(cursor: Cursor) -> DdlStatement | None:
    if not cursor.take("TABLE"):
        return None
    if cursor.take("BY", "JOB"):
        if cursor.take_integer() is None:
            cursor.missing()
        return _of_table(DdlAction.RECOVER_TABLE, None)
    name = _named_table(cursor)
    cursor.take_integer()
    return _of_table(DdlAction.RECOVER_TABLE, name)


def _flashback(cursor: Cursor) -> DdlStatement | None:
    if not cursor.take("TABLE"):
        return None
    old = _named_table(cursor)
    new = _named_table(cursor) if cursor.take("TO") else None
    renames = () if old is None or new is None else (TableRename(old=old, new=new),)
    return _of_table(DdlAction.FLASHBACK_TABLE, old, renames=renames)


# -------------------------------------------------------------------------------------- databases


def _database(action: DdlAction, cursor: Cursor) -> DdlStatement:
    take_if_exists(cursor)
    name: str | None = None
    # ALTER may leave the name out; TiDB's parser quotes one.
    if action is not DdlAction.ALTER_DATABASE or cursor.word() not in _DATABASE_OPTIONS:
        name = cursor.take_name()
        if name is None:
            cursor.missing()
    cursor.take_any(("RESTRICT", "CASCADE"))
    charset, collation = take_options(cursor) or Charset()
    return DdlStatement(action=action, database=name, charset=charset, collation=collation)


_DATABASE_OPTION_LIST: Final = """
ACTIVE_ACTIVE CHARACTER CHARSET COLLATE DEFAULT ENCRYPTION PLACEMENT SOFTDELETE
"""
_DATABASE_OPTIONS: Final = frozenset(_DATABASE_OPTION_LIST.split())


# ---------------------------------------------------------------------------------- CREATE TABLE


def _create_table(cursor: Cursor) -> DdlStatement:
    take_if_exists(cursor)
    name = _named_table(cursor)
    statement = _of_table(DdlAction.CREATE_TABLE, name)
    if name is None:
        return statement
    like = _like(cursor)
    if like is not None:
        return replace(statement, action=DdlAction.CREATE_TABLE_LIKE, like=like)
    group = None if _is_query(cursor, 1) else cursor.take_group()
    if group is not None and group.done:
        group.missing()
    elements = () if group is None else take_elements(group)
    columns = [element.column for element in elements if element.column is not None]
    indexes = [element.index for element in elements if element.index is not None]
    charset, collation = take_options(cursor, commas=True) or Charset()
    partitioning = take_partitioning(cursor) if cursor.take("PARTITION", "BY") else None
    while cursor.take("SPLIT"):
        _skip_split(cursor)
    query: str | None = None
    cursor.take_any(("IGNORE", "REPLACE"))
    if cursor.take("AS") or _is_query(cursor, 0) or _is_query(cursor, 1):
        query = cursor.text()
        cursor.at = cursor.end
    elif group is None:
        cursor.missing()
    for column in columns:
        indexes.extend(own_indexes(column))
    key = {name.lower() for index in indexes if index.primary for name in index.columns}
    columns = [
        replace(column, nullable=False) if column.name.lower() in key else column
        for column in columns
    ]
    return replace(
        statement,
        columns=tuple(columns),
        indexes=tuple(indexes),
        charset=charset,
        collation=collation,
        partitioning=partitioning,
        query=query,
    )


def _skip_split(cursor: Cursor) -> None:
    """Go past what says at which keys the regions of a new table are split."""
    cursor.take("REGION")
    if cursor.take("INDEX"):
        cursor.take_name()
    elif not cursor.take("PRIMARY", "KEY"):
        cursor.take("TABLE")
    cursor.take_any(("BETWEEN", "BY"))
    while cursor.take_group() is not None:
        if not cursor.take_char(","):
            cursor.take("AND")
    if cursor.take("REGIONS"):
        cursor.take_integer()


def _like(cursor: Cursor) -> TableName | None:
    if cursor.take("LIKE"):
        return _named_table(cursor)
    if cursor.is_char("(") and cursor.word(1) == "LIKE":
        group = cursor.take_group()
        if group is not None and group.take("LIKE"):
            other = _named_table(group)
            group.expect_done()
            return other
    return None


def _is_query(cursor: Cursor, ahead: int) -> bool:
    if ahead and not cursor.is_char("("):
        return False
    return cursor.word(ahead) in ("SELECT", "WITH", "VALUES", "TABLE")


# ----------------------------------------------------------------------------------- ALTER TABLE


def _alter_table(cursor: Cursor) -> DdlStatement:
    take_if_exists(cursor)
    name = _named_table(cursor)
    changes: list[AlterChange] = []
    renames: list[TableRename] = []
    while name is not None and not cursor.done:
        start = cursor.at
        new_changes = take_changes(cursor)
        if cursor.at == start:
            cursor.unexpected()
        for change in new_changes:
            changes.append(change)
            if change.kind is ChangeKind.RENAME_TABLE and change.table is not None:
                renames.append(TableRename(old=name, new=change.table))
        if cursor.take_char(",") and cursor.done:
            cursor.missing()
    return _of_table(DdlAction.ALTER_TABLE, name, changes=tuple(changes), renames=tuple(renames))


# -------------------------------------------------------------------------------- leading words


def _create(cursor: Cursor) -> DdlStatement | None:
    cursor.take("OR", "REPLACE")
    if not cursor.take("TEMPORARY") and cursor.word(1) == "TEMPORARY":
        cursor.take_any(("GLOBAL", "LOCAL"))
        cursor.take("TEMPORARY")
    return _dispatched(cursor, _CREATED)


def _drop_statement(cursor: Cursor) -> DdlStatement | None:
    if not cursor.take("TEMPORARY"):
        cursor.take("GLOBAL", "TEMPORARY")
    return _dispatched(cursor, _DROPPED)


def _alter_statement(cursor: Cursor) -> DdlStatement | None:
    cursor.take("IGNORE")
    return _dispatched(cursor, _ALTERED)


_Statement = Callable[[Cursor], DdlStatement | None]


def _dispatched(cursor: Cursor, table: dict[str, _Statement]) -> DdlStatement | None:
    word = cursor.word()
    statement = table.get(word)
    if statement is None:
        return None
    if word in _OBJECTS:
        cursor.at += 1
    return statement(cursor)


_OBJECTS: Final = frozenset(("TABLE", "TABLES", "DATABASE", "SCHEMA", "VIEW"))

_CREATED: Final[dict[str, _Statement]] = {
    "TABLE": _create_table,
    **dict.fromkeys(("DATABASE", "SCHEMA"), partial(_database, DdlAction.CREATE_DATABASE)),
    "INDEX": _create_index,
    **dict.fromkeys(_SPECIAL_INDEXES, _create_index),
    "VIEW": _create_view,
    **dict.fromkeys(("ALGORITHM", "DEFINER", "SQL"), _create_view_as),
}
_DROPPED: Final[dict[str, _Statement]] = {
    **dict.fromkeys(("TABLE", "TABLES"), partial(_drop_many, DdlAction.DROP_TABLE)),
    **dict.fromkeys(("DATABASE", "SCHEMA"), partial(_database, DdlAction.DROP_DATABASE)),
    "VIEW": partial(_drop_many, DdlAction.DROP_VIEW),
    "INDEX": _drop_index,
}
_ALTERED: Final[dict[str, _Statement]] = {
    "TABLE": _alter_table,
    **dict.fromkeys(("DATABASE", "SCHEMA"), partial(_database, DdlAction.ALTER_DATABASE)),
}
_STATEMENTS: Final[dict[str, _Statement]] = {
    "CREATE": _create,
    "DROP": _drop_statement,
    "ALTER": _alter_statement,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "RECOVER": _recover,
    "FLASHBACK": _flashback,
}
