"""Schemas from DDL text: after CREATE TABLE, and after ALTER TABLE.

In: a `DdlStatement` and the schema before it. Out: an `Inferred`: the `TableSchema` after it, as
the Simple protocol would send it, and notes on what could not be applied. It is pure, so replays
and rebuilds agree, and total: no statement and no schema raises.

The changes of one statement are applied one after the other, dropped indexes first: TiDB refuses a
statement that changes one column or one index twice (`checkOperateSameColAndIdx` in
pkg/ddl/multi_schema_change.go of pingcap/tidb). A DDL event proves that its statement succeeded
upstream. So a change that does not fit the schema (an unknown column) shows that the schema was
incomplete; it is skipped and noted, and its new column or index replaces one that should not have
been there.

Where this differs from the schemas that TiCDC sends:

* columns are in the order of the table (the Simple protocol sends them by column id);
* D of FLOAT(M,D) and DOUBLE(M,D) is in `decimal` (TiCDC leaves it out);
* a NOT NULL unique key is not listed a second time as an index `primary` (see `schemas`);
* `nullable` of an index is that of its columns (golden/QUIRKS.md B11);
* an index over expressions has the columns among its parts only and is not unique: it identifies
  no rows. TiDB's hidden columns for expressions are not there;
* TiDB's own index for a foreign key is left out.

The caller handles names of tables: RENAME changes nothing here. Schemas have no partitions,
comments, placement and the like.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from ticdc_assets.base.errors import shorten
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema, TableSchema
from ticdc_assets.registry.ddl.statement import (
    AlterChange,
    ChangeKind,
    ColumnDefinition,
    DdlAction,
    DdlStatement,
    IndexDefinition,
)
from ticdc_assets.registry.ddl.tokens import shown_sql
from ticdc_assets.registry.inference.columns import (
    BINARY,
    BINARY_TWINS,
    DATABASE_DEFAULTS,
    PRIMARY,
    ROW_ID,
    TEXT_TYPES,
    Defaults,
    column_schema,
    defaults_after,
    finished_indexes,
    free_index_name,
    named_defaults,
    sent_default,
)


@dataclass(frozen=True, slots=True)
class Inferred:
    """A schema that a text implies, and notes on the pieces that were not understood or applied."""

    schema: TableSchema
    notes: tuple[str, ...] = ()


def schema_after(
    statement: DdlStatement,
    table: TableSchema,
    *,
    defaults: Defaults = DATABASE_DEFAULTS,
    timezone: str = "UTC",
) -> Inferred:
    """Return the schema of a table after a statement.

    Args:
        statement: CREATE TABLE, ALTER TABLE, CREATE INDEX or DROP INDEX; others change nothing.
        table: the schema before the statement, with the version after it. Columns and indexes do
            not matter to CREATE TABLE.
        defaults: the table's defaults, which CHARACTER SET DEFAULT means too; for CREATE TABLE
            those of its database.
        timezone: zone of the session that ran it, for defaults of TIMESTAMP columns.
    """
    if statement.action is DdlAction.CREATE_TABLE:
        work = _Table(defaults_after(statement, defaults), timezone)
        for definition in statement.columns[:_MOST_CHANGES]:
            if work.named(definition.name) is None:
                work.add(work.built(definition))
            else:
                work.note(f"column {shorten(definition.name)} is defined twice")
        taken = {index.name.lower() for index in statement.indexes if index.name is not None}
        for index in statement.indexes[:_MOST_CHANGES]:
            work.add_index(index, created=True, taken=taken)
        if statement.query is not None:
            work.note("columns that come from a query are not known")
    else:
        work = _Table(defaults, timezone)
        for column in table.columns:
            work.add(column)
        work.indexes = list(table.own_indexes)
        # A column that is dropped takes an index over it alone with it.
        changes = statement.changes[:_MOST_CHANGES]
        for change in sorted(changes, key=lambda item: item.kind not in _FIRST):
            work.apply(change)
        if len(statement.changes) > _MOST_CHANGES:
            work.note(f"only the first {_MOST_CHANGES} changes were read")
    if statement.unparsed is not None:
        work.note(f"not understood: {shown_sql(statement.unparsed, 160)}")
    return work.finished(table)


# ------------------------------------------------------------------------------- the working table


_FIRST: Final = frozenset({ChangeKind.DROP_INDEX, ChangeKind.DROP_PRIMARY_KEY})
_REDEFINING: Final = frozenset(
    {
        ChangeKind.MODIFY_COLUMN,
        ChangeKind.CHANGE_COLUMN,
        ChangeKind.RENAME_COLUMN,
        ChangeKind.SET_DEFAULT,
        ChangeKind.DROP_DEFAULT,
    }
)

_MOST_COLUMNS: Final = 4096
_MOST_INDEXES: Final = 512
"""The most that TiDB allows; a statement that defines more did not succeed."""

_MOST_CHANGES: Final = 4 * _MOST_COLUMNS
_MOST_NOTES: Final = 100


@dataclass(slots=True)
class _Table:
    """The columns and indexes while a statement is applied.

    `columns` has the columns by their names in lower case, `order` these names in their order.
    """

    defaults: Defaults
    timezone: str
    columns: dict[str, ColumnSchema] = field(default_factory=dict[str, ColumnSchema])
    order: list[str] = field(default_factory=list[str])
    indexes: list[IndexSchema] = field(default_factory=list[IndexSchema])
    notes: list[str] = field(default_factory=list[str])
    converted: Defaults | None = None

    def note(self, text: str) -> None:
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    def built(self, definition: ColumnDefinition) -> ColumnSchema:
        return column_schema(definition, defaults=self.defaults, timezone=self.timezone)

    # Columns ----------------------------------------------------------------------------------

    def named(self, name: str) -> ColumnSchema | None:
        return self.columns.get(name.lower())

    def known(self, change: AlterChange) -> ColumnSchema | None:
        """Return the column of `change`, or note that there is none."""
        column = None if change.name is None else self.named(change.name)
        if column is None and not change.conditional:
            self.note(f"{_words(change)}: no column {shorten(change.name)}")
        return column

    def add(self, column: ColumnSchema, after: str | None = None) -> None:
        """Add a new column where `AlterChange.after` says, or last, if there is room for it."""
        if len(self.order) >= _MOST_COLUMNS:
            self.note(f"a table has at most {_MOST_COLUMNS} columns")
            return
        self.columns[column.name.lower()] = column
        self.order.append(column.name.lower())
        self.place(column, after)

    def redefine(self, old: ColumnSchema, new: ColumnSchema, change: AlterChange) -> None:
        """Replace a column and move it as `change` says; note that its new name is taken."""
        name, new_name = old.name.lower(), new.name.lower()
        if new_name != name and new_name in self.columns:
            self.note(f"{_words(change)}: {shorten(new.name)} was there already")
            return
        del self.columns[name]
        self.columns[new_name] = new
        self.order[self.order.index(name)] = new_name
        if new.name != old.name:
            names = {old.name: new.name}
            self.indexes = [
                replace(index, columns=tuple(names.get(item, item) for item in index.columns))
                for index in self.indexes
            ]
        self.place(new, change.after)

    def place(self, column: ColumnSchema, after: str | None) -> None:
        if after is None:
            return
        name, other = column.name.lower(), after.lower()
        if other == name or (other and other not in self.columns):
            self.note(f"AFTER: no column {shorten(after)}")
            return
        self.order.remove(name)
        self.order.insert(self.order.index(other) + 1 if other else 0, name)

    def remove(self, column: ColumnSchema) -> None:
        """Take `column` out of the table and its indexes; an index without columns goes too."""
        self.order.remove(column.name.lower())
        del self.columns[column.name.lower()]
        alone = (column.name,)
        self.indexes = [
            replace(index, columns=tuple(name for name in index.columns if name != column.name))
            for index in self.indexes
            if index.columns != alone
        ]

    # Indexes ----------------------------------------------------------------------------------

    def index_named(self, name: str) -> IndexSchema | None:
        folded = name.lower()
        return next((index for index in self.indexes if index.name.lower() == folded), None)

    def add_index(
        self, index: IndexDefinition, *, created: bool, taken: Collection[str] = ()
    ) -> None:
        """Add an index of CREATE TABLE (`created`) or of a later statement."""
        if len(self.indexes) >= _MOST_INDEXES:
            self.note(f"a table has at most {_MOST_INDEXES} indexes")
            return
        missing = [name for name in index.columns if self.named(name) is None]
        if missing:
            self.note(f"index {shorten(index.name)}: no column {shorten(missing[0])}")
            return
        columns = tuple(dict.fromkeys(self.columns[name.lower()].name for name in index.columns))
        whole = len(index.columns) == len(index.parts)
        name = index.name
        if index.primary:
            if not columns or not whole:
                self.note("a primary key over expressions is not understood")
                return
            self.indexes = [other for other in self.indexes if not other.primary]
            # TiDB lists no index for a clustered integer key.
            name = ROW_ID if created and index.clustered is not False else PRIMARY
        elif name is None:
            # CREATE checks all parts for an expression, ALTER the first.
            parts = index.parts if created else index.parts[:1]
            wanted = columns[0] if columns and None not in parts else "expression_index"
            used = {other.name.lower() for other in self.indexes}
            name = free_index_name(wanted, used.union(taken))
        else:
            old = self.index_named(name)
            if old is not None:
                self.note(f"index {shorten(name)} was there already")
                self.indexes.remove(old)
        self.indexes.append(
            IndexSchema(
                name=name,
                unique=index.primary or (index.unique and whole),
                primary=index.primary,
                nullable=False,
                columns=columns,
                partial=index.condition is not None and not index.primary,
            )
        )

    # Changes ----------------------------------------------------------------------------------

    def apply(self, change: AlterChange) -> None:
        """Apply a change that a schema shows; all others leave it as it is."""
        match change.kind:
            case ChangeKind.ADD_COLUMN if change.column is not None:
                present = self.named(change.column.name)
                if present is None:
                    self.add(self.built(change.column), change.after)
                elif not change.conditional:
                    self.note(f"add column: {shorten(change.column.name)} was there already")
                    self.redefine(present, self.built(change.column), change)
            case ChangeKind.DROP_COLUMN:
                if (column := self.known(change)) is not None:
                    self.remove(column)
            case kind if kind in _REDEFINING:
                if (column := self.known(change)) is not None:
                    self.redefine(column, self.redefined(column, change), change)
            case ChangeKind.ADD_INDEX if change.index is not None:
                name = change.index.name
                is_there = name is not None and self.index_named(name) is not None
                if not (change.conditional and is_there):
                    self.add_index(change.index, created=False)
            case ChangeKind.DROP_PRIMARY_KEY:
                secondary = [index for index in self.indexes if not index.primary]
                if len(secondary) == len(self.indexes) and not change.conditional:
                    self.note("drop primary key: there was none")
                self.indexes = secondary
            case ChangeKind.DROP_INDEX | ChangeKind.RENAME_INDEX:
                index = None if change.name is None else self.index_named(change.name)
                if index is not None:
                    named = [replace(index, name=name) for name in filter(None, [change.new_name])]
                    place = self.indexes.index(index)
                    self.indexes[place : place + 1] = named
                elif not change.conditional:
                    self.note(f"{_words(change)}: no index {shorten(change.name)}")
            case ChangeKind.CONVERT_CHARSET:
                self.converted = named_defaults(change.charset, change.collation, self.defaults)
            case _:
                pass

    def redefined(self, column: ColumnSchema, change: AlterChange) -> ColumnSchema:
        if change.column is not None:
            # MODIFY, too, takes the name as it is written: its case may have changed.
            return self.built(change.column)
        if change.new_name is not None:
            return replace(column, name=change.new_name)
        new = replace(column, default=None)
        if change.default is None:
            return new
        return replace(new, default=sent_default(change.default, new, self.timezone))

    # The end ----------------------------------------------------------------------------------

    def finished(self, schema: TableSchema) -> Inferred:
        columns = [self.columns[name] for name in self.order]
        if self.converted is not None:
            columns = [_in_charset(column, self.converted) for column in columns]
        key = {name for index in self.indexes if index.primary for name in index.columns}
        whole = tuple(
            replace(column, nullable=False) if column.name in key and column.nullable else column
            for column in columns
        )
        return Inferred(
            replace(schema, columns=whole, indexes=finished_indexes(self.indexes, whole)),
            tuple(self.notes),
        )


def _words(change: AlterChange) -> str:
    return change.kind.value.replace("_", " ")


def _in_charset(column: ColumnSchema, text: Defaults) -> ColumnSchema:
    if column.mysql_type not in TEXT_TYPES:
        return column
    mysql_type = column.mysql_type
    if text.charset == BINARY:
        mysql_type = BINARY_TWINS.get(mysql_type, mysql_type)
    return replace(column, mysql_type=mysql_type, charset=text.charset, collation=text.collation)
