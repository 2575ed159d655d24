"""Which columns of sent schemas are virtual generated ones.

In: a `SchemaHistory` as it was sent. Out: the same history with `ColumnSchema.virtual` set in the
schemas of the Simple protocol, which does not send it. It matters because no row has such a column,
and TiCDC uses no key over one.

It comes from two places: the text of a DDL that defines the column, carried along to later schemas
of the table through renames of the table and the column; and the name of the hidden column that
TiDB adds for an expression in an index. Schemas inferred from text have it already.

It is a pure function of the history, repeated whenever that grows. Results of earlier runs, which
the registry keeps with the schemas, are ignored: a late text changes the answer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from ticdc_assets.model.schemas import TableSchema, is_of_expression
from ticdc_assets.registry.carried_facts import CarriedFacts
from ticdc_assets.registry.ddl_statement import DdlStatement, GeneratedKind
from ticdc_assets.registry.evolution import column_renames
from ticdc_assets.registry.history import (
    INFERRED_SOURCES,
    RegisteredDdl,
    SchemaHistory,
    is_snapshot,
)

_Names: TypeAlias = frozenset[str]
"""Columns of one schema, in lower case."""


def with_virtual_columns(history: SchemaHistory) -> SchemaHistory:
    """Return `history` with its virtual columns marked, or itself if there are none."""
    virtual_columns = _VirtualColumns(history)
    ddls = [virtual_columns.follow(ddl) for ddl in history.ddls]
    versions = [
        version
        if version.source in INFERRED_SOURCES
        else replace(version, schema=virtual_columns.marked(version.schema))
        for version in history.versions
    ]
    if versions == history.versions and ddls == history.ddls:
        return history
    return history.with_schemas(versions, ddls)


class _VirtualColumns:
    """The virtual columns by the DDL up to some moment."""

    def __init__(self, history: SchemaHistory) -> None:
        self._names = CarriedFacts[_Names](frozenset())
        # Schemas that were inferred from texts have their virtual columns from there.
        self._inferred = {
            version.key for version in history.versions if version.source in INFERRED_SOURCES
        }

    def follow(self, ddl: RegisteredDdl) -> RegisteredDdl:
        """Process the next DDL; return it with its schemas marked."""
        before, after = ddl.event.pre_schema, ddl.event.schema
        if before is None and after is None:
            return ddl
        if any(self._is_inferred(schema) for schema in (before, after)):
            return ddl
        marked_before = None if before is None else self.marked(before)
        marked_after = None
        if after is not None:
            names = self._names.before(ddl.beyond_schemas, before, after)
            names, exported = _after(ddl.beyond_schemas, names), is_snapshot(ddl.event)
            self._names.remember(after, names, exported=exported)
            marked_after = self.marked(after)
        if marked_before == before and marked_after == after:
            return ddl
        event = replace(ddl.event, pre_schema=marked_before, schema=marked_after)
        return replace(ddl, event=event)

    def _is_inferred(self, schema: TableSchema | None) -> bool:
        return schema is not None and (
            (schema.database, schema.table, schema.version) in self._inferred
        )

    def marked(self, schema: TableSchema) -> TableSchema:
        """Return `schema` with its virtual columns marked."""
        names = self._names.of(schema)
        hidden = {
            name
            for index in schema.indexes
            for name in index.columns
            if is_of_expression(index, name)
        }
        if not names and not hidden and not any(column.virtual for column in schema.columns):
            return schema
        columns = tuple(
            replace(column, virtual=virtual) if column.virtual is not virtual else column
            for column in schema.columns
            for virtual in (column.name.lower() in names or column.name in hidden,)
        )
        return schema if columns == schema.columns else replace(schema, columns=columns)


def _after(statement: DdlStatement, names: Iterable[str]) -> _Names:
    """Return the virtual columns after a statement, of a table that had `names`."""
    renamed: Mapping[str, str] = {
        old.lower(): new for new, old in column_renames([statement]).items()
    }
    result = {renamed.get(name, name) for name in names}
    for column in statement.defined_columns:
        if column.generated is GeneratedKind.VIRTUAL:
            result.add(column.name.lower())
        else:
            result.discard(column.name.lower())
    return frozenset(result)
