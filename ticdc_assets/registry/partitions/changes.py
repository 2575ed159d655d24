"""How the rows of a table are spread over its partitions, and which rows a change concerns.

In: PARTITION BY clauses and partition changes as `ddl.reader` reads them. Out: `Partitioning`,
the partitions at one moment, advanced by one change after another; the names of the partitions
whose rows a change removes; and a test whether a row is in one of them.

TiCDC sends no row events for DROP, TRUNCATE and EXCHANGE PARTITION, so this is the only way to know
their rows. A guess would make the mirror differ silently: whatever cannot be computed exactly for
every row raises `PartitionError`, with a reason for people.

The same history always gives the same partitions. Not done: subpartitions, which TiDB ignores; KEY
over types whose hash is uncertain; strings whose collation is not binary; virtual columns, which no
row has.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ticdc_assets.base.errors import PartitionError
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.ddl.statement import (
    PartitionAction,
    PartitionChange,
    PartitionDefinition,
    Partitioning,
    PartitionMethod,
)
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.partitions.rules import PARTITION_RULES

MAX_PARTITIONS: Final = 8192
"""The most partitions TiDB allows; a text with more is an error or an attack."""

_COUNTED: Final = frozenset({PartitionMethod.HASH, PartitionMethod.KEY})


def partitions_of(partitioning: Partitioning) -> Partitioning:
    """Return the partitions of a PARTITION BY clause."""
    definitions = partitioning.definitions
    if partitioning.method in _COUNTED:
        count = partitioning.count
        definitions = _numbered(definitions, max(1, count or 0, len(definitions)))
    return _checked(replace(partitioning, count=None, definitions=definitions))


def _numbered(
    definitions: tuple[PartitionDefinition, ...], count: int
) -> tuple[PartitionDefinition, ...]:
    """Return `definitions` filled up to `count` with TiDB's names."""
    if count > MAX_PARTITIONS:
        raise PartitionError(f"more than {MAX_PARTITIONS} partitions")
    added = range(len(definitions), count)
    return definitions + tuple(PartitionDefinition(name=f"p{number}") for number in added)


def _checked(partitions: Partitioning) -> Partitioning:
    names = {name.lower() for name in partitions.names}
    if not names:
        raise PartitionError("no partitions are listed")
    if len(names) != len(partitions.definitions):
        raise PartitionError("two partitions have one name")
    if len(names) > MAX_PARTITIONS:
        raise PartitionError(f"more than {MAX_PARTITIONS} partitions")
    return partitions


# -------------------------------------------------------------------------------------- changes


def changed_partitions(
    partitions: Partitioning | None, change: PartitionChange
) -> Partitioning | None:
    """Return the partitions after `change`; None if the table has none, or if they are unknown.

    Args:
        partitions: those before, None likewise.
        change: the change.
    """
    if change.partitioning is not None:
        return partitions_of(change.partitioning)
    if partitions is None or change.action is PartitionAction.REMOVE_PARTITIONING:
        return None
    changed = _CHANGES.get(change.action)
    return partitions if changed is None else _checked(changed(partitions, change))


def emptied_partitions(partitions: Partitioning, change: PartitionChange) -> tuple[str, ...]:
    """Return the names of the partitions whose rows `change` removes, or swaps (EXCHANGE)."""
    if change.action not in EMPTYING:
        return ()
    if change.all_partitions:
        return partitions.names
    places = partitions.places(change.names)
    return tuple(partitions.definitions[place].name for place in places)


EMPTYING: Final = frozenset(
    {PartitionAction.DROP, PartitionAction.TRUNCATE, PartitionAction.EXCHANGE}
)
"""Partition DDL that removes or brings rows without row events."""


def _add(partitions: Partitioning, change: PartitionChange) -> Partitioning:
    definitions = partitions.definitions + change.definitions
    if partitions.method in _COUNTED:
        more = change.count or 0
        definitions = _numbered(definitions, len(definitions) + more)
    elif not change.definitions:
        raise PartitionError("ADD PARTITION without partitions")
    return replace(partitions, definitions=definitions)


def _drop(partitions: Partitioning, change: PartitionChange) -> Partitioning:
    dropped = set(emptied_partitions(partitions, change))
    kept = tuple(
        definition for definition in partitions.definitions if definition.name not in dropped
    )
    return replace(partitions, definitions=kept)


def _coalesce(partitions: Partitioning, change: PartitionChange) -> Partitioning:
    count = change.count or 0
    if partitions.method not in _COUNTED or not 0 < count < len(partitions.definitions):
        raise PartitionError("COALESCE PARTITION does not fit the partitions that are known")
    return replace(partitions, definitions=partitions.definitions[:-count])


def _reorganize(partitions: Partitioning, change: PartitionChange) -> Partitioning:
    if not change.names:
        return partitions
    places = partitions.places(change.names)
    first, after = places[0], places[-1] + 1
    leaving = frozenset(places)
    kept = [
        definition
        for place, definition in enumerate(partitions.definitions)
        if place not in leaving
    ]
    if partitions.method in _RANGES and after - first != len(places):
        raise PartitionError("REORGANIZE PARTITION of partitions that are not side by side")
    kept[first:first] = change.definitions
    return replace(partitions, definitions=tuple(kept))


_RANGES: Final = frozenset({PartitionMethod.RANGE, PartitionMethod.RANGE_COLUMNS})


_CHANGES: Final[dict[PartitionAction, Callable[[Partitioning, PartitionChange], Partitioning]]] = {
    PartitionAction.ADD: _add,
    PartitionAction.DROP: _drop,
    PartitionAction.COALESCE: _coalesce,
    PartitionAction.REORGANIZE: _reorganize,
}


# ----------------------------------------------------------------------------------------- rows


def partition_test(
    partitions: Partitioning, names: tuple[str, ...], schema: TableSchema, timezone: str
) -> Callable[[CanonicalRow], bool]:
    """Compile the test whether a row is in one of the partitions called `names`.

    Args:
        partitions: the table's partitions.
        names: names of partitions, in any case.
        schema: the schema that the rows have.
        timezone: the changefeed's time zone.

    Returns:
        A function that raises `PartitionError` for a row without a column it needs. A row that fits
        no partition is in none.

    Raises:
        PartitionError: it is not known exactly for every row.
    """
    wanted = frozenset(partitions.places(names))
    sent = tuple(column for column in schema.columns if not column.virtual)
    rule = PARTITION_RULES[partitions.method](partitions, replace(schema, columns=sent), timezone)

    def is_in(row: CanonicalRow) -> bool:
        try:
            return rule(row) in wanted
        except (ValueError, OverflowError):
            raise PartitionError("a row's value is none of its column's type") from None

    return is_in
