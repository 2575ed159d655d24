"""Schemas from DDL text: after CREATE TABLE, and after ALTER TABLE.

In: a `DdlStatement`, for a change also the schema before it. Out: an `Inferred`: the `TableSchema`
after it, as the Simple protocol would send it, and notes on what could not be applied. It is pure,
so replays and rebuilds agree, and total: no statement and no schema raises.

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
* an index over expressions has the columns among its parts only, and one over some rows only
  (WHERE) is not unique: neither identifies rows. TiDB's hidden columns for expressions are not
  there;
* TiDB's own index for a foreign key is left out.

The caller handles names of tables: RENAME changes nothing here. Schemas have no partitions,
comments, placement and the like.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from ticdc_assets.base.errors import shorten
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema, TableSchema
from ticdc_assets.registry.ddl_statement import (
    AlterChange,
    ChangeKind,
    ColumnDefinition,
    ColumnPosition,
    DdlStatement,
    IndexDefinition,
    IndexKind,
)
from ticdc_assets.registry.ddl_tokens import shown_sql
from ticdc_assets.registry.inferred_columns import (
    BINARY,
    BINARY_TWINS,
    PRIMARY,
    ROW_ID,
    TEXT_TYPES,
    Defaults,
    column_schema,
    finished_indexes,
    free_index_name,
    named_defaults,
    table_defaults,
)
from ticdc_assets.registry.inferred_defaults import sent_default


@dataclass(frozen=True, slots=True)
class Inferred:
    """A schema that a text implies.

    Attributes:
        schema: the schema after the statement.
        notes: one sentence for each piece that was not understood or could not be applied.
    """

    schema: TableSchema
    notes: tuple[str, ...] = ()


def created_schema(
    statement: DdlStatement,
    *,
    database: str,
    table: str,
    table_id: int,
    version: int,
    defaults: Defaults,
    timezone: str,
) -> Inferred:
    """Return the schema of a CREATE TABLE (of one with LIKE: a table without columns).

    Args:
        statement: the statement.
        database: database of the table.
        table: name of the table.
        table_id: id of the new schema.
        version: version of the new schema.
        defaults: the database's defaults; the statement's options come first.
        timezone: zone of the session that ran it, for defaults of TIMESTAMP columns.
    """
    work = _Table(table_defaults(statement, defaults), timezone)
    for definition in statement.columns[:_MOST_CHANGES]:
        if work.named(definition.name) is None:
            work.add(work.built(definition), None)
        else:
            work.note(f"column {shorten(definition.name)} is defined twice")
    taken = {index.name.lower() for index in statement.indexes if index.name is not None}
    for index in statement.indexes[:_MOST_CHANGES]:
        work.add_index(index, created=True, taken=taken)
    if statement.query is not None:
        work.note("columns that come from a query are not known")
    return work.finished(
        TableSchema(
            database=database,
            table=table,
            table_id=table_id,
            version=version,
            columns=(),
            indexes=(),
        ),
        statement,
    )


def altered_schema(
    schema: TableSchema,
    statement: DdlStatement,
    *,
    version: int,
    defaults: Defaults,
    timezone: str,
) -> Inferred:
    """Return `schema` after the changes of ALTER TABLE, CREATE INDEX or DROP INDEX.

    Args:
        schema: the schema before the statement.
        statement: the statement; one without changes leaves all but the version as it was.
        version: version of the schema after it.
        defaults: the table's defaults (`table_defaults`); CHARACTER SET DEFAULT means them too.
        timezone: zone of the session that ran it, for defaults of TIMESTAMP columns.
    """
    work = _Table(defaults, timezone)
    work.take_over(schema)
    # A column that is dropped takes an index over it alone with it.
    for change in sorted(
        statement.changes[:_MOST_CHANGES], key=lambda item: item.kind not in _FIRST
    ):
        apply = _CHANGES.get(change.kind)
        if apply is not None:
            apply(work, change)
    if len(statement.changes) > _MOST_CHANGES:
        work.note(f"only the first {_MOST_CHANGES} changes were read")
    return work.finished(replace(schema, version=version), statement)


# ------------------------------------------------------------------------------- the working table


_FIRST: Final = frozenset({ChangeKind.DROP_INDEX, ChangeKind.DROP_PRIMARY_KEY})


@dataclass(slots=True, eq=False)
class _Column:
    """A column while changes are applied."""

    schema: ColumnSchema

    @property
    def folded(self) -> str:
        return self.schema.name.lower()


@dataclass(slots=True, eq=False)
class _Index:
    """An index while changes are applied; it holds on to its columns through renames."""

    name: str
    unique: bool
    primary: bool
    columns: list[_Column]


_MOST_COLUMNS: Final = 4096
_MOST_INDEXES: Final = 512
"""The most that TiDB allows; a statement that defines more did not succeed."""

_MOST_CHANGES: Final = 4 * _MOST_COLUMNS
_MOST_NOTES: Final = 100


@dataclass(slots=True)
class _Table:
    """The columns and indexes while a statement is applied; `by_name` has the columns too."""

    defaults: Defaults
    timezone: str
    columns: list[_Column] = field(default_factory=list[_Column])
    indexes: list[_Index] = field(default_factory=list[_Index])
    notes: list[str] = field(default_factory=list[str])
    converted: Defaults | None = None
    by_name: dict[str, _Column] = field(default_factory=dict[str, _Column])

    def take_over(self, schema: TableSchema) -> None:
        """Start from `schema`."""
        for sent in schema.columns:
            self.add(sent, None)
        for index in schema.own_indexes:
            columns = [column for name in index.columns if (column := self.named(name))]
            self.indexes.append(_Index(index.name, index.unique, index.primary, columns))

    def note(self, text: str) -> None:
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    def built(self, definition: ColumnDefinition) -> ColumnSchema:
        return column_schema(definition, defaults=self.defaults, timezone=self.timezone)

    # Columns ----------------------------------------------------------------------------------

    def named(self, name: str) -> _Column | None:
        return self.by_name.get(name.lower())

    def known(self, change: AlterChange) -> _Column | None:
        """Return the column of `change`, or note that there is none."""
        column = None if change.name is None else self.named(change.name)
        if column is None and not change.conditional:
            self.note(f"{_words(change)}: no column {shorten(change.name)}")
        return column

    def add(self, schema: ColumnSchema, position: ColumnPosition | None) -> None:
        """Add a new column at `position`, or last, if there is room for it."""
        if len(self.columns) >= _MOST_COLUMNS:
            self.note(f"a table has at most {_MOST_COLUMNS} columns")
            return
        column = _Column(schema)
        self.columns.append(column)
        self.by_name[column.folded] = column
        self.place(column, position)

    def redefine(self, column: _Column, schema: ColumnSchema, change: AlterChange) -> bool:
        """Replace the schema of `column`, and return True; note that its new name is taken."""
        if self.named(schema.name) not in (None, column):
            self.note(f"{_words(change)}: {shorten(schema.name)} was there already")
            return False
        del self.by_name[column.folded]
        column.schema = schema
        self.by_name[column.folded] = column
        return True

    def place(self, column: _Column, position: ColumnPosition | None) -> None:
        """Move `column` to `position`, if there is one."""
        if position is None:
            return
        after = None
        if position.after is not None:
            after = self.named(position.after)
            if after is None or after is column:
                self.note(f"AFTER: no column {shorten(position.after)}")
                return
        self.columns.remove(column)
        self.columns.insert(0 if after is None else self.columns.index(after) + 1, column)

    def remove(self, column: _Column) -> None:
        """Take `column` out of the table and its indexes; an index without columns goes too."""
        self.columns.remove(column)
        del self.by_name[column.folded]
        for index in self.indexes[:]:
            if column in index.columns:
                index.columns.remove(column)
                if not index.columns:
                    self.indexes.remove(index)

    # Indexes ----------------------------------------------------------------------------------

    def index_named(self, name: str) -> _Index | None:
        folded = name.lower()
        return next((index for index in self.indexes if index.name.lower() == folded), None)

    def free_index_name(self, wanted: str, taken: set[str]) -> str:
        return free_index_name(wanted, taken | {index.name.lower() for index in self.indexes})

    def add_primary(self, columns: list[_Column], *, clustered: bool) -> None:
        """Make `columns` the primary key; TiDB lists no index for a clustered integer key."""
        self.indexes = [index for index in self.indexes if not index.primary]
        name = ROW_ID if clustered else PRIMARY
        self.indexes.append(_Index(name, True, True, columns))

    def add_index(
        self, index: IndexDefinition, *, created: bool, taken: set[str] | None = None
    ) -> None:
        """Add an index of CREATE TABLE (`created`) or of a later statement."""
        if len(self.indexes) >= _MOST_INDEXES:
            self.note(f"a table has at most {_MOST_INDEXES} indexes")
            return
        found: dict[int, _Column] = {}
        for name in index.columns:
            column = self.named(name)
            if column is None:
                self.note(f"index {shorten(index.name)}: no column {shorten(name)}")
                return
            found[id(column)] = column
        columns = list(found.values())
        whole = len(index.columns) == len(index.parts)
        if index.kind is IndexKind.PRIMARY:
            if not columns or not whole:
                self.note("a primary key over expressions is not understood")
                return
            self.add_primary(columns, clustered=created and index.clustered is not False)
            return
        name = index.name
        if name is None:
            # CREATE checks all parts for an expression, ALTER the first.
            parts = index.parts if created else index.parts[:1]
            named = bool(columns) and None not in parts
            wanted = columns[0].schema.name if named else "expression_index"
            name = self.free_index_name(wanted, taken or set())
        else:
            old = self.index_named(name)
            if old is not None:
                self.note(f"index {shorten(name)} was there already")
                self.indexes.remove(old)
        unique = index.kind is IndexKind.UNIQUE and whole and index.condition is None
        self.indexes.append(_Index(name, unique, False, columns))

    # The end ----------------------------------------------------------------------------------

    def finished(self, schema: TableSchema, statement: DdlStatement) -> Inferred:
        """Return `schema` with the columns and indexes of this table."""
        if statement.unparsed is not None:
            self.note(f"not understood: {shown_sql(statement.unparsed, 160)}")
        if self.converted is not None:
            for column in self.columns:
                column.schema = _in_charset(column.schema, self.converted)
        key = {column.folded for index in self.indexes if index.primary for column in index.columns}
        columns = tuple(
            replace(column.schema, nullable=False)
            if column.folded in key and column.schema.nullable
            else column.schema
            for column in self.columns
        )
        indexes = [
            IndexSchema(
                name=index.name,
                unique=index.unique,
                primary=index.primary,
                nullable=False,
                columns=tuple(column.schema.name for column in index.columns),
            )
            for index in self.indexes
        ]
        return Inferred(
            replace(schema, columns=columns, indexes=finished_indexes(indexes, columns)),
            tuple(self.notes),
        )


def _words(change: AlterChange) -> str:
    return change.kind.value.replace("_", " ")


# -------------------------------------------------------------------------------------- the changes


def _add_column(table: _Table, change: AlterChange) -> None:
    definition = change.column
    if definition is None:
        return
    present = table.named(definition.name)
    if present is None:
        table.add(table.built(definition), change.position)
    elif not change.conditional:
        table.note(f"add column: {shorten(definition.name)} was there already")
        table.redefine(present, table.built(definition), change)
        table.place(present, change.position)


def _drop_column(table: _Table, change: AlterChange) -> None:
    column = table.known(change)
    if column is not None:
        table.remove(column)


def _modify_column(table: _Table, change: AlterChange) -> None:
    column = table.known(change)
    if change.column is None or column is None:
        return
    # MODIFY, too, takes the name as it is written: its case may have changed.
    if table.redefine(column, table.built(change.column), change):
        table.place(column, change.position)


def _rename_column(table: _Table, change: AlterChange) -> None:
    column = table.known(change)
    if column is not None and change.new_name is not None:
        table.redefine(column, replace(column.schema, name=change.new_name), change)


def _set_default(table: _Table, change: AlterChange) -> None:
    column = table.known(change)
    if column is not None and change.default is not None:
        bare = replace(column.schema, default=None)
        column.schema = replace(bare, default=sent_default(change.default, bare, table.timezone))


def _drop_default(table: _Table, change: AlterChange) -> None:
    column = table.known(change)
    if column is not None:
        column.schema = replace(column.schema, default=None)


def _add_index(table: _Table, change: AlterChange) -> None:
    index = change.index
    if index is None:
        return
    if change.conditional and index.name is not None:
        present = table.index_named(index.name)
        if present is not None:
            return
    table.add_index(index, created=False)


def _drop_primary_key(table: _Table, change: AlterChange) -> None:
    kept = [index for index in table.indexes if not index.primary]
    if len(kept) == len(table.indexes) and not change.conditional:
        table.note("drop primary key: there was none")
    table.indexes = kept


def _drop_index(table: _Table, change: AlterChange) -> None:
    index = None if change.name is None else table.index_named(change.name)
    if index is not None:
        table.indexes.remove(index)
    elif not change.conditional:
        table.note(f"drop index: no index {shorten(change.name)}")


def _rename_index(table: _Table, change: AlterChange) -> None:
    index = None if change.name is None else table.index_named(change.name)
    if index is not None and change.new_name is not None:
        index.name = change.new_name
    elif not change.conditional:
        table.note(f"rename index: no index {shorten(change.name)}")


def _convert_charset(table: _Table, change: AlterChange) -> None:
    table.converted = named_defaults(change.charset, change.collation, table.defaults)


def _in_charset(column: ColumnSchema, text: Defaults) -> ColumnSchema:
    if column.mysql_type not in TEXT_TYPES:
        return column
    mysql_type = column.mysql_type
    if text.charset == BINARY:
        mysql_type = BINARY_TWINS.get(mysql_type, mysql_type)
    return replace(column, mysql_type=mysql_type, charset=text.charset, collation=text.collation)


_CHANGES: Final[dict[ChangeKind, Callable[[_Table, AlterChange], None]]] = {
    ChangeKind.ADD_COLUMN: _add_column,
    ChangeKind.DROP_COLUMN: _drop_column,
    ChangeKind.MODIFY_COLUMN: _modify_column,
    ChangeKind.CHANGE_COLUMN: _modify_column,
    ChangeKind.RENAME_COLUMN: _rename_column,
    ChangeKind.SET_DEFAULT: _set_default,
    ChangeKind.DROP_DEFAULT: _drop_default,
    ChangeKind.ADD_PRIMARY_KEY: _add_index,
    ChangeKind.DROP_PRIMARY_KEY: _drop_primary_key,
    ChangeKind.ADD_INDEX: _add_index,
    ChangeKind.DROP_INDEX: _drop_index,
    ChangeKind.RENAME_INDEX: _rename_index,
    ChangeKind.CONVERT_CHARSET: _convert_charset,
}
"""The changes that a schema shows; all others leave it as it is."""
