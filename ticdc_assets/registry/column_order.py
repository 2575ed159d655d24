"""The upstream order of a table's columns, for schemas that were sent in another order.

In: the DDL of a `SchemaHistory`. Out: schemas with their columns in upstream's order. The Simple
protocol sends columns in the order of their creation, so a column added FIRST or AFTER another
comes last. The texts of the DDL say where it belongs; an export's CREATE TABLE has the whole order.
If a table was altered before its first message and there is no export, its first schema counts.

It is a pure function of the history. Values are matched by the names of columns, so the order of a
mirror's columns decides nothing else.
"""

from collections.abc import Sequence
from dataclasses import replace

from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.carried_facts import CarriedFacts
from ticdc_assets.registry.ddl_statement import ChangeKind, DdlStatement
from ticdc_assets.registry.evolution import column_renames
from ticdc_assets.registry.history import (
    INFERRED_SOURCES,
    RegisteredDdl,
    SchemaHistory,
    is_snapshot,
)

_PLACING = frozenset({ChangeKind.ADD_COLUMN, ChangeKind.MODIFY_COLUMN, ChangeKind.CHANGE_COLUMN})


class ColumnOrders:
    """The orders of the columns of all tables of a history."""

    def __init__(self, history: SchemaHistory) -> None:
        self._told = CarriedFacts[tuple[str, ...]](())
        # Schemas inferred from texts are in their order already.
        self._inferred = {
            version.key for version in history.versions if version.source in INFERRED_SOURCES
        }
        for ddl in history.ddls:
            self._follow(ddl)

    def _follow(self, ddl: RegisteredDdl) -> None:
        before, after = ddl.event.pre_schema, ddl.event.schema
        if after is None:
            return
        exported = is_snapshot(ddl.event)
        order = _names(after) if exported else ()
        if not order:
            order = self._told.before(ddl.beyond_schemas, before, after)
            order = _after(ddl.beyond_schemas, order or _names(before or after), _names(after))
        self._told.remember(after, order, exported=exported)

    def ordered(self, schema: TableSchema) -> TableSchema:
        """Return `schema` with its columns in upstream's order, columns without a place last."""
        if (schema.database, schema.table, schema.version) in self._inferred:
            return schema
        places = {name: place for place, name in enumerate(self._told.of(schema))}
        if not places:
            return schema
        columns = tuple(
            sorted(schema.columns, key=lambda column: places.get(column.name.lower(), len(places)))
        )
        return schema if columns == schema.columns else replace(schema, columns=columns)


def _names(schema: TableSchema) -> tuple[str, ...]:
    return tuple(column.name.lower() for column in schema.columns)


def _after(statement: DdlStatement, before: Sequence[str], sent: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns in their order after a statement, in lower case.

    Args:
        statement: the statement.
        before: the names before it, in upstream's order.
        sent: the names after it, as they were sent.
    """
    renamed = {old.lower(): new for new, old in column_renames([statement]).items()}
    order = [renamed.get(name, name) for name in before]
    for change in statement.changes:
        if change.kind not in _PLACING or change.name is None:
            continue
        name = (change.new_name or change.name).lower()
        if name not in order:
            order.append(name)
        elif change.kind is ChangeKind.ADD_COLUMN:
            continue  # IF NOT EXISTS leaves an existing column where it is
        if change.position is not None:
            follows = change.position.after
            _move(order, name, None if follows is None else follows.lower())
    known, there = set(order), set(sent)
    order += [name for name in sent if name not in known]
    return tuple(name for name in order if name in there)


def _move(order: list[str], name: str, follows: str | None) -> None:
    """Move a name after another, or to the front; it stays if the other is not there."""
    if follows is not None and (follows not in order or follows == name):
        return
    order.remove(name)
    order.insert(0 if follows is None else order.index(follows) + 1, name)
