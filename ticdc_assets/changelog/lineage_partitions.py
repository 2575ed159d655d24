"""What partition DDL does to a lineage: its partitions, and which rows are removed.

In: a `Lineage` and DDL of its table. Out: the lineage knows its partitions, or why it does not, and
has a `Removal` for the rows that DROP and TRUNCATE PARTITION removed without row events, by the
definitions in the DDL history. Inexact definitions are marked, never guessed. The same DDL in the
same order leave the same lineage.
"""

from collections.abc import Callable

from ticdc_assets.base.errors import PartitionError
from ticdc_assets.changelog.lineages import (
    Lineage,
)
from ticdc_assets.changelog.plan import (
    PartitionRows,
    Removal,
    TableName,
)
from ticdc_assets.model.events import DdlEvent
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.ddl_statement import (
    DdlAction,
    DdlStatement,
    PartitionAction,
    PartitionChange,
)
from ticdc_assets.registry.partitions import (
    changed_partitions,
    emptied_partitions,
    partition_test,
    partitions_of,
)

_PARTITION_ROWS = frozenset(
    {PartitionAction.DROP, PartitionAction.TRUNCATE, PartitionAction.EXCHANGE}
)
"""Partition DDL that removes or brings rows without row events."""

PARTITION_REASON = "partition DDL: the rows it removes or exchanges are not known"


def spread_by_create(
    lineage: Lineage, statement: DdlStatement, named: Callable[[TableName], Lineage | None]
) -> None:
    """Set the partitions from CREATE TABLE.

    Args:
        lineage: the table.
        statement: the DDL that creates it.
        named: finds the table of CREATE TABLE LIKE.
    """
    lineage.partitions, lineage.unknown_partitions = None, None
    if statement.like is not None:
        name = (statement.like.database or lineage.name[0], statement.like.table)
        like = named(name)
        if like is None:
            lineage.unknown_partitions = "it was created like a table that is not known"
        else:
            lineage.partitions = like.partitions
            lineage.unknown_partitions = like.unknown_partitions
    elif statement.unparsed is not None or statement.action is not DdlAction.CREATE_TABLE:
        lineage.unknown_partitions = "its CREATE TABLE is not understood"
    elif statement.partitioning is not None:
        try:
            lineage.partitions = partitions_of(statement.partitioning)
        except PartitionError as error:
            lineage.unknown_partitions = str(error)


def repartition(
    lineage: Lineage, change: PartitionChange, event: DdlEvent, *, timezone: str
) -> None:
    """Apply a change of a table's partitions, and remove its rows."""
    if change.action in _PARTITION_ROWS:
        schema = event.schema or lineage.schema
        rows = rows_meant(lineage, change, schema, event=event, timezone=timezone)
        if rows is not None and rows.names:
            lineage.removals.append(
                Removal(
                    ts=event.commit_ts,
                    version=schema.version,
                    rows=rows,
                    action=change.action,
                )
            )
    try:
        if change.partitioning is not None:
            lineage.partitions = partitions_of(change.partitioning)
            lineage.unknown_partitions = None
        elif change.action is PartitionAction.REMOVE_PARTITIONING:
            lineage.partitions, lineage.unknown_partitions = None, None
        elif lineage.partitions is not None:
            lineage.partitions = changed_partitions(lineage.partitions, change)
    except PartitionError as error:
        lineage.partitions, lineage.unknown_partitions = None, str(error)


def rows_meant(
    lineage: Lineage,
    change: PartitionChange,
    schema: TableSchema,
    *,
    event: DdlEvent,
    timezone: str,
) -> PartitionRows | None:
    """Return the rows that a change concerns; mark the table if they are not known."""
    try:
        partitions = lineage.known_partitions()
        names = emptied_partitions(partitions, change)
        rows = PartitionRows(partitions=partitions, names=names)
        partition_test(rows.partitions, names, schema, timezone)
    except PartitionError as error:
        lineage.add_caveat(f"{PARTITION_REASON} ({change.action}): {error}", event)
        return None
    return rows
