"""What DDL texts say and sent schemas do not: the order of columns, virtual and partial ones.

In: a `SchemaHistory`. Out: schemas with their columns in upstream's order (`ColumnFacts.ordered`),
and the history with `ColumnSchema.virtual` and `IndexSchema.partial` set (`with_virtual_columns`).
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

from dataclasses import dataclass, replace
from typing import Final

from ticdc_assets.model.schemas import TableSchema, is_of_expression
from ticdc_assets.registry.ddl.statement import (
    ChangeKind,
    DdlAction,
    DdlStatement,
    GeneratedKind,
)
from ticdc_assets.registry.history import (
    INFERRED_SOURCES,
    RegisteredDdl,
    SchemaHistory,
    exchange_of,
    folded,
    is_snapshot,
)
from ticdc_assets.registry.inference.columns import DATABASE_DEFAULTS
from ticdc_assets.registry.inference.schemas import altered_schema


@dataclass(frozen=True, slots=True)
class _Facts:
    """Names of one schema in lower case: its columns in order, virtual ones, partial indexes."""

    order: tuple[str, ...] = ()
    virtual: frozenset[str] = frozenset()
    partial: frozenset[str] = frozenset()


_NOTHING: Final = _Facts()
_OF_COLUMNS: Final = frozenset(
    {
        ChangeKind.ADD_COLUMN,
        ChangeKind.DROP_COLUMN,
        ChangeKind.MODIFY_COLUMN,
        ChangeKind.CHANGE_COLUMN,
        ChangeKind.RENAME_COLUMN,
    }
)


def with_virtual_columns(history: SchemaHistory) -> SchemaHistory:
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
        self._by_id: dict[tuple[int, int], _Facts] = {}
        self._by_name: dict[tuple[str, str], dict[int, _Facts]] = {}
        self._exported: dict[tuple[str, str], _Facts] = {}
        # The newest schema of each name, in the order of the DDL: (table id, version).
        self._last: dict[tuple[str, str], tuple[int, int]] = {}
        for ddl in history.ddls:
            self._follow(ddl)

    def ordered(self, schema: TableSchema) -> TableSchema:
        """Return `schema` with its columns in upstream's order, columns without a place last."""
        places = {name: place for place, name in enumerate(self._of(schema).order)}
        if not places or self._is_inferred(schema):
            return schema
        columns = tuple(
            sorted(schema.columns, key=lambda column: places.get(column.name.lower(), len(places)))
        )
        return schema if columns == schema.columns else replace(schema, columns=columns)

    def marked(self, schema: TableSchema) -> TableSchema:
        """Return `schema` with its virtual columns and partial indexes marked, and no others."""
        if self._is_inferred(schema):
            return schema
        facts = self._of(schema)
        names = facts.virtual
        if facts.partial or any(index.partial for index in schema.indexes):
            indexes = tuple(
                replace(index, partial=index.name.lower() in facts.partial)
                for index in schema.indexes
            )
            schema = replace(schema, indexes=indexes)
        hidden = {
            name
            for index in schema.indexes
            for name in index.columns
            if is_of_expression(index, name)
        }
        if not names and not hidden and not any(column.virtual for column in schema.columns):
            return schema
        columns = tuple(
            replace(column, virtual=column.name.lower() in names or column.name in hidden)
            for column in schema.columns
        )
        return schema if columns == schema.columns else replace(schema, columns=columns)

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
        statement, after = ddl.beyond_schemas, ddl.event.schema
        if after is None:
            return
        sent = _names(after)
        if any(change.kind in _OF_COLUMNS for change in statement.changes):
            before = ddl.event.pre_schema or after
            facts = _facts_after(self.ordered(self.marked(before)), statement)
        else:
            facts = self._before(statement, ddl.event.pre_schema, after)
        order = sent if is_snapshot(ddl.event) else (*facts.order, *sent)
        present = set(sent)
        facts = _Facts(
            tuple(name for name in dict.fromkeys(order) if name in present),
            facts.virtual
            | {
                column.name.lower()
                for column in statement.columns
                if column.generated is GeneratedKind.VIRTUAL
            },
            _partial_after(facts.partial, statement, after),
        )
        self._by_id[after.table_id, after.version] = facts
        name = folded(after.name)
        self._by_name.setdefault(name, {})[after.version] = facts
        if not is_snapshot(ddl.event):
            self._last[name] = (after.table_id, after.version)
            return
        self._exported.setdefault(name, facts)
        last = self._last.get(name)
        if last is not None and present.issubset(self._by_id[last].order):
            # The table had this schema then. Its CREATE may not have been seen, and the export has
            # it.
            known = self._by_id[last]
            self._by_id[last] = self._by_name[name][last[1]] = _Facts(
                tuple(dict.fromkeys((*facts.order, *known.order))),
                facts.virtual | known.virtual,
                facts.partial | known.partial,
            )

    def _before(
        self, statement: DdlStatement, before: TableSchema | None, after: TableSchema
    ) -> _Facts:
        """Return the facts of a table just before a statement: of a new one, those it begins with.

        Args:
            statement: the statement.
            before: the schema before it, None if none was sent.
            after: the schema after it.
        """
        # Of an EXCHANGE PARTITION it is that of another table.
        if before is not None and exchange_of(statement) is None:
            return self._of(before)
        if statement.action is DdlAction.CREATE_TABLE:
            return _NOTHING
        if statement.action is not DdlAction.CREATE_TABLE_LIKE or statement.like is None:
            return self._of(after)
        name = folded((statement.like.database or after.database, statement.like.table))
        return self._newest(name, after.version) or _NOTHING

    def _of(self, schema: TableSchema) -> _Facts:
        """Return the facts of a schema; one whose DDL was not seen has those of the one before."""
        name = folded(schema.name)
        return (
            self._by_id.get((schema.table_id, schema.version))
            or self._newest(name, schema.version)
            # A later export says what the table was all along, as far as is known.
            or self._exported.get(name, _NOTHING)
        )

    def _newest(self, name: tuple[str, str], version: int) -> _Facts | None:
        """Return the newest facts of a table up to a version."""
        versions = self._by_name.get(name, {})
        newest = max((item for item in versions if item <= version), default=None)
        return None if newest is None else versions[newest]


def _names(schema: TableSchema) -> tuple[str, ...]:
    return tuple(column.name.lower() for column in schema.columns)


def _facts_after(table: TableSchema, statement: DdlStatement) -> _Facts:
    """Return the facts of a table with its columns in order after the changes of a statement."""
    # Neither charsets nor the zone matter for names.
    changed = altered_schema(
        table, statement, version=table.version, defaults=DATABASE_DEFAULTS, timezone="UTC"
    ).schema
    virtual = frozenset(column.name.lower() for column in changed.columns if column.virtual)
    partial = frozenset(index.name.lower() for index in changed.indexes if index.partial)
    return _Facts(_names(changed), virtual, partial)


def _partial_after(
    before: frozenset[str], statement: DdlStatement, after: TableSchema
) -> frozenset[str]:
    """Return the partial indexes after a statement, of which `before` were there."""
    names = set(before)
    defined = list(statement.indexes)
    for change in statement.changes:
        if change.kind is ChangeKind.RENAME_INDEX and (change.name or "").lower() in names:
            names.add((change.new_name or "").lower())
        if change.index is not None:
            defined.append(change.index)
    for index in defined:
        if index.condition is not None and index.name is not None:
            names.add(index.name.lower())
        elif index.condition is not None:
            # TiDB named it.
            columns = [name.lower() for name in index.columns]
            names |= {
                other.name.lower()
                for other in after.indexes
                if not other.primary and [name.lower() for name in other.columns] == columns
            }
    return frozenset(names & {index.name.lower() for index in after.indexes})
