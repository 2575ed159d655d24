"""What DDL texts say and sent schemas do not: the order of columns, virtual and partial ones.

In: a `SchemaHistory`. Out: schemas with their columns in upstream's order (`ColumnFacts.ordered`),
and the history with `ColumnSchema.virtual` and `IndexSchema.partial` set (`with_unsent_facts`).
Schemas inferred from texts have all of it already.

The Simple protocol sends columns in the order of their creation, so a column added FIRST or AFTER
another comes last. The texts of the DDL say where it belongs; an export's CREATE TABLE has the
whole order. If a table was altered before its first message and there is no export, its first
schema counts. The order decides only how a mirror looks: values are matched by column names.

The Simple protocol does not send which columns are virtual. It matters because no row has such a
column, and TiCDC uses no key over one. The text of the DDL that defines the column says it, and so
does the name of the hidden column that TiDB adds for an expression in an index.

Nor does it send the WHERE of an index. TiCDC takes a unique index over some rows for the key of a
table without a shorter one, but other rows may have equal values in its columns.

Facts are carried to the later schemas of a table, through renames of the table and of columns and
through other ids. They are a pure function of the history, computed again whenever that grows.
"""

from dataclasses import replace
from typing import Final

from ticdc_assets.model.schemas import TableSchema, is_of_expression
from ticdc_assets.registry.ddl.statement import ChangeKind, DdlAction, DdlStatement
from ticdc_assets.registry.history import (
    INFERRED_SOURCES,
    Name,
    RegisteredDdl,
    SchemaHistory,
    exchange_of,
    folded,
    is_snapshot,
)
from ticdc_assets.registry.inference.schemas import schema_after

_OF_COLUMNS: Final = frozenset(
    {
        ChangeKind.ADD_COLUMN,
        ChangeKind.DROP_COLUMN,
        ChangeKind.MODIFY_COLUMN,
        ChangeKind.CHANGE_COLUMN,
        ChangeKind.RENAME_COLUMN,
        ChangeKind.ADD_INDEX,
        ChangeKind.RENAME_INDEX,
    }
)


def with_unsent_facts(history: SchemaHistory) -> SchemaHistory:
    """Return `history` with what `ColumnFacts` marks, or itself if nothing changes."""
    facts = ColumnFacts(history)
    ddls = [facts.marked_ddl(ddl) for ddl in history.ddls]
    versions = [
        replace(version, schema=facts.marked(version.schema)) for version in history.versions
    ]
    if versions == history.versions and ddls == history.ddls:
        return history
    return history.with_schemas(versions, ddls)


class ColumnFacts:
    """What the DDL of a history say of the columns of all its tables."""

    def __init__(self, history: SchemaHistory) -> None:
        self._inferred = {
            version.key for version in history.versions if version.source in INFERRED_SOURCES
        }
        # Schemas with all facts: after each DDL, and of the first export of each name.
        self._by_id: dict[tuple[int, int], TableSchema] = {}
        self._by_name: dict[Name, dict[int, TableSchema]] = {}
        self._exported: dict[Name, TableSchema] = {}
        # The newest schema of each name, in the order of the DDL: (table id, version).
        self._last: dict[Name, tuple[int, int]] = {}
        for ddl in history.ddls:
            self._follow(ddl)

    def ordered(self, schema: TableSchema) -> TableSchema:
        """Return `schema` with its columns in upstream's order, columns without a place last."""
        facts = None if self._is_inferred(schema) else self._known(schema)
        return schema if facts is None else _ordered(schema, facts)

    def marked(self, schema: TableSchema) -> TableSchema:
        """Return `schema` with its virtual columns and partial indexes marked, and no others."""
        return schema if self._is_inferred(schema) else _marked(schema, self._known(schema))

    def marked_ddl(self, ddl: RegisteredDdl) -> RegisteredDdl:
        """Return a DDL with its schemas marked."""
        before, after = ddl.event.pre_schema, ddl.event.schema
        event = replace(
            ddl.event,
            pre_schema=before and self.marked(before),
            schema=after and self.marked(after),
        )
        return ddl if event == ddl.event else replace(ddl, event=event)

    def _is_inferred(self, schema: TableSchema) -> bool:
        return (schema.database, schema.table, schema.version) in self._inferred

    def _follow(self, ddl: RegisteredDdl) -> None:
        after = ddl.event.schema
        if after is None:
            return
        described = self._described(ddl.statement, ddl.event.pre_schema, after)
        facts = _marked(after, described)
        name = folded(after.name)
        if is_snapshot(ddl.event):
            self._exported.setdefault(name, facts)
            self._correct_last(name, facts)
        else:
            facts = facts if described is None else _ordered(facts, described)
            self._last[name] = (after.table_id, after.version)
        self._by_id[after.table_id, after.version] = facts
        self._by_name.setdefault(name, {})[after.version] = facts

    def _correct_last(self, name: Name, exported: TableSchema) -> None:
        """Give the newest schema of a table what its export says of it.

        The CREATE of the table may not have been seen, and the export has it.
        """
        last = self._last.get(name)
        if last is None:
            return
        facts = self._by_id[last]
        names = {column.name.lower() for column in facts.columns}
        if names.issuperset(column.name.lower() for column in exported.columns):
            corrected = _ordered(_marked(facts, exported), exported)
            self._by_id[last] = self._by_name[name][last[1]] = corrected

    def _described(
        self, statement: DdlStatement, before: TableSchema | None, after: TableSchema
    ) -> TableSchema | None:
        """Return a table after a statement, as the statement and the facts so far describe it."""
        if any(change.kind in _OF_COLUMNS for change in statement.changes):
            facts = self.ordered(self.marked(before or after))
            # Without the schema before, an index that the statement adds is there already.
            table = replace(facts, indexes=()) if before is None else facts
            changed = schema_after(statement, table).schema
            left = () if before is not None else facts.indexes
            return replace(changed, indexes=changed.indexes + left)
        # Of an EXCHANGE PARTITION the schema before is that of another table.
        if before is not None and exchange_of(statement) is None:
            return self._known(before)
        if statement.action is DdlAction.CREATE_TABLE:
            return schema_after(statement, after).schema
        if statement.action is DdlAction.CREATE_TABLE_LIKE and statement.like is not None:
            like = (statement.like.database or after.database, statement.like.table)
            return self._newest(folded(like), after.version)
        return self._known(after)

    def _known(self, schema: TableSchema) -> TableSchema | None:
        """Return the facts of a schema; one whose DDL was not seen has those of the one before."""
        name = folded(schema.name)
        return (
            self._by_id.get((schema.table_id, schema.version))
            or self._newest(name, schema.version)
            # A later export says what the table was all along, as far as is known.
            or self._exported.get(name)
        )

    def _newest(self, name: Name, version: int) -> TableSchema | None:
        versions = self._by_name.get(name, {})
        newest = max((item for item in versions if item <= version), default=None)
        return None if newest is None else versions[newest]


def _ordered(schema: TableSchema, facts: TableSchema) -> TableSchema:
    places = {column.name.lower(): place for place, column in enumerate(facts.columns)}
    columns = tuple(
        sorted(schema.columns, key=lambda column: places.get(column.name.lower(), len(places)))
    )
    return schema if columns == schema.columns else replace(schema, columns=columns)


def _marked(schema: TableSchema, facts: TableSchema | None) -> TableSchema:
    virtual = {column.name.lower() for column in facts.columns if column.virtual} if facts else ()
    partial = {index.name.lower() for index in facts.indexes if index.partial} if facts else ()
    if partial or any(index.partial for index in schema.indexes):
        indexes = tuple(
            replace(index, partial=index.name.lower() in partial) for index in schema.indexes
        )
        schema = replace(schema, indexes=indexes)
    hidden = {
        name for index in schema.indexes for name in index.columns if is_of_expression(index, name)
    }
    if not virtual and not hidden and not any(column.virtual for column in schema.columns):
        return schema
    columns = tuple(
        replace(column, virtual=column.name.lower() in virtual or column.name in hidden)
        for column in schema.columns
    )
    return schema if columns == schema.columns else replace(schema, columns=columns)
