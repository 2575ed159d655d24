"""Which columns of the schemas that messages carry are virtual generated ones.

In: a `SchemaHistory` as it was sent. Out: the same history with `ColumnSchema.virtual` set in the
schemas of the Simple protocol, which does not say it. It matters because no row has such a column,
and TiCDC takes no key over one.

Two things tell it: the text of a DDL that defines the column, carried along to later schemas of the
table through renames of the table and the column; and the name of the hidden column that TiDB makes
for an expression in an index. Schemas inferred from text have it from there and are not looked at.

It is a pure function of the history, made anew whenever that grows. What an earlier run said, which
the registry keeps with the schemas, is not looked at: a text that comes late changes the answer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ticdc_assets.registry.ddl import DdlAction, DdlStatement, GeneratedKind
from ticdc_assets.registry.evolution import column_renames
from ticdc_assets.registry.history import (
    INFERRED_SOURCES,
    RegisteredDdl,
    SchemaHistory,
    folded_name,
    is_snapshot,
)
from ticdc_assets.schemas import TableSchema, is_of_expression

_Names: TypeAlias = frozenset[str]
"""Columns of one schema, in lower case."""

_NONE: _Names = frozenset()


def with_virtual_columns(history: SchemaHistory) -> SchemaHistory:
    """Return `history` with its virtual columns marked, or itself if there is nothing to mark."""
    told = _Told()
    ddls = [told.follow(ddl) for ddl in history.ddls]
    versions = [
        version
        if version.source in INFERRED_SOURCES
        else replace(version, schema=told.marked(version.schema))
        for version in history.versions
    ]
    if versions == history.versions and ddls == history.ddls:
        return history
    result = SchemaHistory()
    result.restore(versions, ddls, history.conflicts)
    return result


@dataclass
class _Told:
    """What the DDL up to some moment say, by the ways in which a schema is found again."""

    by_id: dict[tuple[int, int], _Names] = field(default_factory=dict[tuple[int, int], _Names])
    by_name: dict[tuple[str, str], dict[int, _Names]] = field(
        default_factory=dict[tuple[str, str], dict[int, _Names]]
    )
    exported: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])

    def follow(self, ddl: RegisteredDdl) -> RegisteredDdl:
        """Take in the next DDL; return it with its schemas marked."""
        before, after = ddl.event.pre_schema, ddl.event.schema
        if before is None and after is None:
            return ddl
        marked_before = None if before is None else self.marked(before)
        marked_after = None
        if after is not None:
            told = self._of(before) if before is not None else self._source(ddl.statement, after)
            self._remember(after, _after(ddl.statement, told))
            if is_snapshot(ddl.event):
                name = folded_name(after.database, after.table)
                self.exported.setdefault(name, after.version)
            marked_after = self.marked(after)
        if marked_before == before and marked_after == after:
            return ddl
        event = replace(ddl.event, pre_schema=marked_before, schema=marked_after)
        return replace(ddl, event=event)

    def marked(self, schema: TableSchema) -> TableSchema:
        """Return `schema` with its virtual columns marked."""
        told = self._of(schema)
        hidden = {
            name
            for index in schema.indexes
            for name in index.columns
            if is_of_expression(index, name)
        }
        if not told and not hidden and not any(column.virtual for column in schema.columns):
            return schema
        columns = tuple(
            replace(column, virtual=virtual) if column.virtual is not virtual else column
            for column in schema.columns
            for virtual in (column.name.lower() in told or column.name in hidden,)
        )
        return schema if columns == schema.columns else replace(schema, columns=columns)

    def _remember(self, schema: TableSchema, names: _Names) -> None:
        self.by_id[schema.table_id, schema.version] = names
        name = folded_name(schema.database, schema.table)
        self.by_name.setdefault(name, {})[schema.version] = names

    def _of(self, schema: TableSchema) -> _Names:
        found = self.by_id.get((schema.table_id, schema.version))
        if found is not None:
            return found
        # A schema whose DDL was not seen: what was known of the table before it.
        versions = self.by_name.get(folded_name(schema.database, schema.table), {})
        known = max((version for version in versions if version <= schema.version), default=None)
        if known is None:
            # An export that was made later tells what the table was all along, as far as is known.
            known = self.exported.get(folded_name(schema.database, schema.table))
        return _NONE if known is None else versions[known]

    def _source(self, statement: DdlStatement, schema: TableSchema) -> _Names:
        """Return what a table begins with: the columns of the one it is created like, or none."""
        like = statement.like
        if statement.action is not DdlAction.CREATE_TABLE_LIKE or like is None:
            return self._of(schema) if statement.action is not DdlAction.CREATE_TABLE else _NONE
        versions = self.by_name.get(folded_name(like.database or schema.database, like.table), {})
        known = max((version for version in versions if version <= schema.version), default=None)
        return _NONE if known is None else versions[known]


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
