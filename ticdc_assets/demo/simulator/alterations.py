"""What ALTER TABLE does to a table of the stand-in upstream, and what TiDB calls each statement.

In: a table (a copy that may be changed) and an action. Out: the table with its columns, indexes
and rows after it, and the action's clause of the statement. Of every statement that is run here
`ActionCode` has TiDB's number, which Open Protocol and Craft send, and the word of the others.

Not handled: what `columns.modified_value` has no rule for; it raises.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from typing import Any, Final, TypeAlias

from ticdc_assets.demo.simulator.columns import (
    column_sql,
    default_sql,
    default_value,
    lenient_value,
    modified_value,
    names_sql,
    quoted,
    rewrites_rows,
    zero_value,
)
from ticdc_assets.demo.simulator.stored_table import StoredTable
from ticdc_assets.model.schemas import ColumnSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn:
    """ADD COLUMN, as the last one if neither `first` nor `after` says another place.

    A place changes the order of the table, not the order in which TiCDC sends columns.
    """

    column: ColumnSchema
    first: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumn:
    """DROP COLUMN, with the index on it if it has one of its own."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn:
    """RENAME COLUMN."""

    name: str
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyColumn:
    """MODIFY COLUMN, or CHANGE COLUMN where `name` is not the column's new name.

    What does not fit the new type is clipped, as in a lenient SQL mode. The column moves if `first`
    or `after` says so.
    """

    name: str
    column: ColumnSchema
    first: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDefault:
    """ALTER COLUMN ... SET DEFAULT, or DROP DEFAULT for None; rows stay as they are."""

    name: str
    default: str | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPrimaryKey:
    """ADD PRIMARY KEY, not clustered: rows keep their place; the columns become NOT NULL."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPrimaryKey:
    """DROP PRIMARY KEY, of a key that is not clustered; its columns stay NOT NULL."""


AlterAction: TypeAlias = (
    AddColumn
    | DropColumn
    | RenameColumn
    | ModifyColumn
    | SetDefault
    | AddPrimaryKey
    | DropPrimaryKey
)


class ActionCode(IntEnum):
    """TiDB's numbers for the statements that are run here."""

    CREATE_DATABASE = 1
    DROP_DATABASE = 2
    CREATE_TABLE = 3
    DROP_TABLE = 4
    ADD_COLUMN = 5
    DROP_COLUMN = 6
    ADD_INDEX = 7
    DROP_INDEX = 8
    TRUNCATE_TABLE = 11
    MODIFY_COLUMN = 12
    RENAME_TABLE = 14
    SET_DEFAULT = 15
    TABLE_COMMENT = 17
    ADD_PARTITION = 19
    DROP_PARTITION = 20
    CREATE_VIEW = 21
    TRUNCATE_PARTITION = 23
    DROP_VIEW = 24
    RECOVER_TABLE = 25
    ALTER_DATABASE = 26
    ADD_PRIMARY_KEY = 32
    DROP_PRIMARY_KEY = 33
    EXCHANGE_PARTITION = 42
    CREATE_TABLES = 60
    MULTI_CHANGE = 61
    REORGANIZE_PARTITION = 64
    PARTITION_BY = 71
    REMOVE_PARTITIONING = 72

    @property
    def word(self) -> str:
        """What the Simple protocol and Canal-JSON call it."""
        return _WORDS.get(self, "ALTER")


_WORDS: Final[Mapping[ActionCode, str]] = {
    ActionCode.CREATE_DATABASE: "QUERY",
    ActionCode.DROP_DATABASE: "QUERY",
    ActionCode.ALTER_DATABASE: "QUERY",
    ActionCode.CREATE_TABLE: "CREATE",
    ActionCode.CREATE_TABLES: "QUERY",
    ActionCode.DROP_TABLE: "ERASE",
    ActionCode.ADD_INDEX: "CINDEX",
    ActionCode.DROP_INDEX: "DINDEX",
    ActionCode.TRUNCATE_TABLE: "TRUNCATE",
    ActionCode.RENAME_TABLE: "RENAME",
    ActionCode.CREATE_VIEW: "QUERY",
    ActionCode.DROP_VIEW: "QUERY",
    ActionCode.RECOVER_TABLE: "QUERY",
    ActionCode.ADD_PRIMARY_KEY: "CINDEX",
    ActionCode.DROP_PRIMARY_KEY: "DINDEX",
    ActionCode.EXCHANGE_PARTITION: "QUERY",
}
"""The words; every other number is an ALTER."""

ALTER_CODES: Final[Mapping[type[AlterAction], ActionCode]] = {
    AddColumn: ActionCode.ADD_COLUMN,
    DropColumn: ActionCode.DROP_COLUMN,
    RenameColumn: ActionCode.MODIFY_COLUMN,
    ModifyColumn: ActionCode.MODIFY_COLUMN,
    SetDefault: ActionCode.SET_DEFAULT,
    AddPrimaryKey: ActionCode.ADD_PRIMARY_KEY,
    DropPrimaryKey: ActionCode.DROP_PRIMARY_KEY,
}
"""The number of an ALTER TABLE with one change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The circumstances of a statement.

    Attributes:
        timezone: zone in which TIMESTAMPs are written in canonical text and in SQL.
        at: the moment of the statement.
    """

    timezone: str
    at: datetime


def alter(table: StoredTable, action: AlterAction, session: Session) -> str:
    """Change `table` as `action` says and return the action's clause of ALTER TABLE.

    Raises:
        ValueError: the action does not fit the table.
    """
    return _ACTIONS[type(action)](table, action, session)


def _undivided(table: StoredTable, name: str) -> None:
    """Refuse to change the column that decides over partitions, as TiDB does."""
    if table.partitioning is not None and table.partitioning.column == name:
        raise ValueError(f"{table.schema.table}: partitions depend on {name!r}")


def _existing(table: StoredTable, name: str) -> ColumnSchema:
    column = table.schema.column(name)
    if column is None:
        raise ValueError(f"{table.schema.table}: no column {name!r}")
    return column


def _moved(table: StoredTable, name: str, action: AddColumn | ModifyColumn) -> str:
    """Move a column in the order of the table if `action` says so; return the clause for it."""
    others = [other for other in table.order if other != name]
    if action.after is not None:
        place = others.index(_existing(table, action.after).name) + 1
        clause = f" AFTER {quoted(action.after)}"
    elif action.first:
        place, clause = 0, " FIRST"
    else:
        return ""
    table.order = (*others[:place], name, *others[place:])
    return clause


def _add_column(table: StoredTable, action: AddColumn, session: Session) -> str:
    column = action.column
    if table.schema.column(column.name) is not None:
        raise ValueError(f"{table.schema.table}: column {column.name!r} exists")
    value = default_value(column, session.timezone, at=session.at)
    if value is None and not column.nullable:
        value = zero_value(column)
    table.schema = replace(table.schema, columns=(*table.schema.columns, column))
    table.order = (*table.order, column.name)
    table.rows = {key: {**row, column.name: value} for key, row in table.rows.items()}
    return f"ADD COLUMN {column_sql(column, session.timezone)}{_moved(table, column.name, action)}"


def _drop_column(table: StoredTable, action: DropColumn, _: Session) -> str:
    _existing(table, action.name)
    _undivided(table, action.name)
    wider = [index.columns for index in table.secondary if len(index.columns) > 1]
    if any(action.name in columns for columns in (table.primary_key, *wider)):
        raise ValueError(f"{table.schema.table}: {action.name!r} is part of a key")
    table.secondary = tuple(i for i in table.secondary if i.columns != (action.name,))
    table.schema = replace(
        table.schema, columns=tuple(c for c in table.schema.columns if c.name != action.name)
    )
    table.order = tuple(name for name in table.order if name != action.name)
    table.rows = {
        key: {name: value for name, value in row.items() if name != action.name}
        for key, row in table.rows.items()
    }
    return f"DROP COLUMN {quoted(action.name)}"


def _replace_column(table: StoredTable, old: str, column: ColumnSchema) -> None:
    """Put `column` in the place of the column called `old`, with its values, in keys too."""
    if column.name != old and table.schema.column(column.name) is not None:
        raise ValueError(f"{table.schema.table}: column {column.name!r} exists")
    table.schema = replace(
        table.schema, columns=tuple(column if c.name == old else c for c in table.schema.columns)
    )
    table.order = tuple(column.name if name == old else name for name in table.order)
    table.primary_key = tuple(column.name if c == old else c for c in table.primary_key)
    table.secondary = tuple(
        replace(index, columns=tuple(column.name if c == old else c for c in index.columns))
        for index in table.secondary
    )
    table.rows = {
        key: {column.name if name == old else name: value for name, value in row.items()}
        for key, row in table.rows.items()
    }


def _rename_column(table: StoredTable, action: RenameColumn, _: Session) -> str:
    _undivided(table, action.name)
    renamed = replace(_existing(table, action.name), name=action.new_name)
    _replace_column(table, action.name, renamed)
    return f"RENAME COLUMN {quoted(action.name)} TO {quoted(action.new_name)}"


def _modify_column(table: StoredTable, action: ModifyColumn, session: Session) -> str:
    old, new = _existing(table, action.name), action.column
    _undivided(table, action.name)
    if old.name in table.primary_key:
        new = replace(new, nullable=False)
    modified = {
        key: lenient_value(modified_value(row[old.name], old, new), new)
        for key, row in table.rows.items()
    }
    if not new.nullable and None in modified.values():
        raise ValueError(f"{table.schema.table}: {old.name!r} holds NULL")
    _replace_column(table, old.name, new)
    table.rows = {key: {**row, new.name: modified[key]} for key, row in table.rows.items()}
    if rewrites_rows(old, new):
        others = tuple(c for c in table.schema.columns if c.name != new.name)
        table.schema = replace(table.schema, columns=(*others, new))
    definition = f"{column_sql(new, session.timezone)}{_moved(table, new.name, action)}"
    if new.name == old.name:
        return f"MODIFY COLUMN {definition}"
    return f"CHANGE COLUMN {quoted(old.name)} {definition}"


def _set_default(table: StoredTable, action: SetDefault, session: Session) -> str:
    column = replace(_existing(table, action.name), default=action.default)
    _replace_column(table, action.name, column)
    if action.default is None:
        return f"ALTER COLUMN {quoted(action.name)} DROP DEFAULT"
    return f"ALTER COLUMN {quoted(action.name)} SET DEFAULT {default_sql(column, session.timezone)}"


def _add_primary_key(table: StoredTable, action: AddPrimaryKey, _: Session) -> str:
    if table.primary_key:
        raise ValueError(f"{table.schema.table}: there is a primary key")
    for name in action.columns:
        column = _existing(table, name)
        if any(row[name] is None for row in table.rows.values()):
            raise ValueError(f"{table.schema.table}: {name!r} holds NULL")
        _replace_column(table, name, replace(column, nullable=False))
    table.primary_key, table.clustered = action.columns, False
    clause = f"ADD PRIMARY KEY({names_sql(action.columns)})"
    return f"{clause} /*T![clustered_index] NONCLUSTERED */"


def _drop_primary_key(table: StoredTable, _: DropPrimaryKey, __: Session) -> str:
    if not table.primary_key or table.clustered:
        raise ValueError(f"{table.schema.table}: no primary key that could be dropped")
    table.primary_key = ()
    return "DROP PRIMARY KEY"


_ACTIONS: Final[Mapping[type[AlterAction], Callable[[StoredTable, Any, Session], str]]] = {
    AddColumn: _add_column,
    DropColumn: _drop_column,
    RenameColumn: _rename_column,
    ModifyColumn: _modify_column,
    SetDefault: _set_default,
    AddPrimaryKey: _add_primary_key,
    DropPrimaryKey: _drop_primary_key,
}
