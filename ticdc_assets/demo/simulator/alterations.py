"""What ALTER TABLE does to a table of the stand-in upstream, and what TiDB calls each statement.

In: a table (a copy that may be changed) and an action. Out: the table with its columns, indexes
and rows after it, and the action's clause of the statement. Of every statement that is run here
`ActionCode` has TiDB's number, which Open Protocol and Craft send, and the word of the others.

This repeats what `registry.inference.schemas` and `registry.evolution` do, on purpose: mirrors are
compared with what is done here, so a fault in one of the two shows.

Not handled: changes of values of which TiDB's result is not known (`model.values.casts`).
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from typing import ClassVar

from ticdc_assets.demo.simulator.columns import (
    column_sql,
    default_sql,
    default_value,
    modified_value,
    quoted,
    rewrites_rows,
)
from ticdc_assets.demo.simulator.stored_table import StoredTable
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import default_text
from ticdc_assets.wire.column_types import ddl_word


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
        return ddl_word(self)


class AlterAction:
    """One change of an ALTER TABLE.

    Attributes:
        code: TiDB's number of an ALTER TABLE with this change alone.
    """

    code: ClassVar[ActionCode]

    def __call__(self, table: StoredTable, timezone: str, at: datetime) -> str:
        """Change a table and return the clause of ALTER TABLE.

        TIMESTAMPs are written in `timezone`; `at` is the moment of the statement.

        Raises:
            ValueError: the action does not fit the table.
        """
        return self._change(table, timezone, at)

    def _change(self, table: StoredTable, timezone: str, at: datetime) -> str:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn(AlterAction):
    """ADD COLUMN, as the last one if neither `first` nor `after` says another place.

    A place changes the order of the table, not the order in which TiCDC sends columns.
    """

    code = ActionCode.ADD_COLUMN
    column: ColumnSchema
    first: bool = False
    after: str | None = None

    def _change(self, table: StoredTable, timezone: str, at: datetime) -> str:
        column = self.column
        if table.schema.column(column.name) is not None:
            raise ValueError(f"{table.name}: column {column.name!r} exists")
        if column.default is None:
            # NULL, or the type's zero.
            value = default_text(column, timezone, at=None)
        else:
            value = default_value(column, timezone, at=at)
        table.schema = replace(table.schema, columns=(*table.schema.columns, column))
        table.order = (*table.order, column.name)
        table.rows = {key: {**row, column.name: value} for key, row in table.rows.items()}
        return f"ADD COLUMN {column_sql(column, timezone)}{_moved(table, column.name, self)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumn(AlterAction):
    """DROP COLUMN, with the index on it if it has one of its own."""

    code = ActionCode.DROP_COLUMN
    name: str

    def _change(self, table: StoredTable, timezone: str, at: datetime) -> str:
        existing_column(table, self.name)
        wider = [index.columns for index in table.secondary if len(index.columns) > 1]
        if any(self.name in columns for columns in (table.primary_key, *wider)):
            raise ValueError(f"{table.name}: {self.name!r} is part of a key")
        table.secondary = tuple(i for i in table.secondary if i.columns != (self.name,))
        table.schema = replace(
            table.schema, columns=tuple(c for c in table.schema.columns if c.name != self.name)
        )
        table.order = tuple(name for name in table.order if name != self.name)
        table.rows = {
            key: {name: value for name, value in row.items() if name != self.name}
            for key, row in table.rows.items()
        }
        return f"DROP COLUMN {quoted(self.name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn(AlterAction):
    """RENAME COLUMN."""

    code = ActionCode.MODIFY_COLUMN
    name: str
    new_name: str

    def _change(self, table: StoredTable, timezone: str, at: datetime) -> str:
        replace_column(
            table, self.name, replace(existing_column(table, self.name), name=self.new_name)
        )
        return f"RENAME COLUMN {quoted(self.name)} TO {quoted(self.new_name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyColumn(AlterAction):
    """MODIFY COLUMN, or CHANGE COLUMN where `name` is not the column's new name.

    What does not fit the new type is clipped, as in a lenient SQL mode. The column moves if `first`
    or `after` says so.
    """

    code = ActionCode.MODIFY_COLUMN
    name: str
    column: ColumnSchema
    first: bool = False
    after: str | None = None

    def _change(self, table: StoredTable, timezone: str, at: datetime) -> str:
        old, new = existing_column(table, self.name), self.column
        if old.name in table.primary_key:
            new = replace(new, nullable=False)
        convert = modified_value(old, new, timezone)
        modified = {key: convert(row[old.name]) for key, row in table.rows.items()}
        if not new.nullable and None in modified.values():
            raise ValueError(f"{table.name}: {old.name!r} holds NULL")
        replace_column(table, old.name, new)
        table.rows = {key: {**row, new.name: modified[key]} for key, row in table.rows.items()}
        if rewrites_rows(old, new):
            others = tuple(c for c in table.schema.columns if c.name != new.name)
            table.schema = replace(table.schema, columns=(*others, new))
        definition = f"{column_sql(new, timezone)}{_moved(table, new.name, self)}"
        if new.name == old.name:
            return f"MODIFY COLUMN {definition}"
        return f"CHANGE COLUMN {quoted(old.name)} {definition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDefault(AlterAction):
    """ALTER COLUMN ... SET DEFAULT, or DROP DEFAULT for None; rows stay as they are."""

    code = ActionCode.SET_DEFAULT
    name: str
    default: str | int | None

    def _change(self, table: StoredTable, timezone: str, at: datetime) -> str:
        column = replace(existing_column(table, self.name), default=self.default)
        replace_column(table, self.name, column)
        if self.default is None:
            return f"ALTER COLUMN {quoted(self.name)} DROP DEFAULT"
        return f"ALTER COLUMN {quoted(self.name)} SET DEFAULT {default_sql(column, timezone)}"


def existing_column(table: StoredTable, name: str) -> ColumnSchema:
    """Return a column of a table.

    Raises:
        ValueError: it has no such column.
    """
    column = table.schema.column(name)
    if column is None:
        raise ValueError(f"{table.name}: no column {name!r}")
    return column


def _moved(table: StoredTable, name: str, action: AddColumn | ModifyColumn) -> str:
    """Move a column in the order of the table if `action` says so; return the clause for it."""
    others = [other for other in table.order if other != name]
    if action.after is not None:
        place = others.index(existing_column(table, action.after).name) + 1
        clause = f" AFTER {quoted(action.after)}"
    elif action.first:
        place, clause = 0, " FIRST"
    else:
        return ""
    table.order = (*others[:place], name, *others[place:])
    return clause


def replace_column(table: StoredTable, old: str, column: ColumnSchema) -> None:
    """Put `column` in the place of the column called `old`, with its values, in keys too."""
    if column.name != old and table.schema.column(column.name) is not None:
        raise ValueError(f"{table.name}: column {column.name!r} exists")
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
