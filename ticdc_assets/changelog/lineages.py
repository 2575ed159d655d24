"""A table through its renames, truncates and partition DDL, while a plan is being built.

In: the input of `planning` in the order of commit ts: names, schemas, DDL, removed rows. Out: the
same, gathered for one table; `lineage_plans` turns it into a `MirrorPlan`. A lineage lives for one
plan.

DROP and TRUNCATE PARTITION remove rows without row events: the lineage has a `Removal` for them, by
the definitions in the DDL history. It knows its partitions, or why it does not: inexact definitions
are marked, never guessed. The same DDL in the same order leave the same lineage.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ticdc_assets.base.errors import PartitionError
from ticdc_assets.changelog.plan import (
    Binding,
    Caveat,
    ExportedRows,
    PartitionRows,
    Removal,
    RowGroup,
    TableName,
    any_meets,
)
from ticdc_assets.model.events import DdlEvent
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.ddl.statement import (
    DdlAction,
    DdlStatement,
    PartitionAction,
    PartitionChange,
    Partitioning,
)
from ticdc_assets.registry.evolution import column_renames
from ticdc_assets.registry.history import RegisteredDdl, folded
from ticdc_assets.registry.partitions import (
    EMPTYING,
    changed_partitions,
    emptied_partitions,
    partition_test,
    partitions_of,
)

_Ddl: TypeAlias = tuple[DdlEvent, DdlStatement]


@dataclass(eq=False)
class Lineage:
    """A table through its renames and truncates, while the plan is being built.

    Two lineages are equal only if they are one object: a snapshot equals its table in all but time.

    `ids`: its table ids, each with the commit ts at which it lost it (None if it did not).
    `is_whole`: all of its rows are known, from its CREATE or an export on. `held_above`: held rows
    above it belong to this table, those before a handover too. `received`: the rows of other tables
    that it has at `floor_ts`. `exchanges`: commit ts of its EXCHANGE PARTITION, ascending. `given`:
    its ids that these gave partitions.
    """

    mirror_id: str
    ids: dict[int, int | None]
    table_id: int
    bindings: list[Binding]
    has_id: bool = True
    floor_ts: int = 0
    held_above: int = 0
    versions: dict[int, TableSchema] = field(default_factory=dict[int, TableSchema])
    past_versions: set[int] = field(default_factory=set[int])
    ddls: list[_Ddl] = field(default_factory=list[_Ddl])
    held: list[RowGroup] = field(default_factory=list[RowGroup])
    wrong_version: list[RowGroup] = field(default_factory=list[RowGroup])
    caveats: list[Caveat] = field(default_factory=list[Caveat])
    partitions: Partitioning | None = None
    unknown_partitions: str | None = "its CREATE TABLE was not seen"
    removals: list[Removal] = field(default_factory=list[Removal])
    received: "tuple[LineagePart, ...]" = ()
    exported: ExportedRows | None = None
    is_whole: bool = False
    earlier: "Lineage | None" = None
    exchanges: list[int] = field(default_factory=list[int])
    given: "list[GivenId]" = field(default_factory=list["GivenId"])

    @property
    def name(self) -> TableName:
        """The table's last name."""
        last = self.bindings[-1]
        return (last.database, last.table)

    @property
    def alive(self) -> bool:
        """Whether the table still has a name."""
        return self.bindings[-1].until_ts is None

    @property
    def schema(self) -> TableSchema:
        """The newest schema known so far."""
        return self.versions[max(self.versions)]

    def begins_anew(self, ts: int) -> None:
        """Drop the rows before `ts`, and their caveats."""
        self.floor_ts = self.held_above = ts
        self.received = ()
        self.exported = None
        self.removals.clear()
        self.caveats.clear()

    def forget_versions(self, before: int) -> None:
        """Let schema versions below `before` only count for rows before a handover.

        TiDB numbers versions over all tables: after EXCHANGE PARTITION rows may cite a version that
        is older than the table's.
        """
        self.past_versions |= {version for version in self.versions if version < before}
        self.versions = {
            version: schema for version, schema in self.versions.items() if version >= before
        }

    def known_partitions(self) -> Partitioning:
        """Return the table's partitions, or raise PartitionError."""
        if self.partitions is None:
            raise PartitionError(self.unknown_partitions or "no partitions are known of it")
        return self.partitions

    def take_id(self, schema: TableSchema) -> None:
        """Set the table's id."""
        self.ids[schema.table_id] = None
        self.table_id = schema.table_id
        self.has_id = True

    def lose_id(self, ts: int) -> None:
        """Note that the id is no longer that of the table.

        EXCHANGE PARTITION gives it to the partition, and no message has the new id. The next
        exchanged table may get the old one.
        """
        self.ids = {key: ts if lost_ts is None else lost_ts for key, lost_ts in self.ids.items()}
        self.has_id = False

    def take_spellings(
        self, cited: Mapping[TableName, Mapping[TableName, Sequence[RowGroup]]], cut_ts: int
    ) -> None:
        """Add a binding for each other case in which rows cite a name of the table.

        The old TiCDC writes the database of a RENAME TABLE, and of the rows after it, in lower
        case, until the next DDL of the table or its own restart (`FillSchemaName` in
        cdc/entry/schema/snapshot.go of pingcap/tiflow). The new one writes the databases of a
        RENAME of several tables as the client did. `cited` has the groups by their names in lower
        case and as written.
        """
        bindings: list[Binding] = []
        for item in self.bindings:
            spellings = cited.get(folded((item.database, item.table)), {})
            for database, table in sorted(spellings):
                other = replace(item, database=database, table=table)
                if other != item and any(
                    other.meets(group.name, group.min_ts, min(group.max_ts, cut_ts))
                    for group in spellings[database, table]
                ):
                    bindings.append(other)
            # The table's own name stays the last.
            bindings.append(item)
        self.bindings = bindings

    def add_caveat(self, reason: str, event: DdlEvent) -> None:
        """Note a reason for which rows may differ since a DDL."""
        self.caveats.append(Caveat(reason=reason, since_ts=event.commit_ts))

    def bound_between(self, name: TableName, min_ts: int, max_ts: int) -> bool:
        """Whether the table had the name `name` at some commit ts in [min_ts, max_ts]."""
        return any_meets(self.bindings, name, min_ts, max_ts)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenId:
    """EXCHANGE PARTITION at commit ts `ts` gave a table's id to a partition of `partitioned`."""

    table_id: int
    partitioned: Lineage
    ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LineagePart:
    """A `HandoverPart` while the plan is being built."""

    lineage: Lineage
    schema: TableSchema
    within: PartitionRows | None = None
    outside: PartitionRows | None = None


def changes_key(ddl: RegisteredDdl) -> bool:
    """Return whether a DDL changes the columns that identify rows."""
    before, after = ddl.event.pre_schema, ddl.event.schema
    if before is None or after is None:
        return False
    renamed = {old.lower(): new for new, old in column_renames([ddl.statement]).items()}
    key = {renamed.get(name.lower(), name.lower()) for name in before.handle_key}
    return key != {name.lower() for name in after.handle_key}


def keeps_version(event: DdlEvent) -> bool:
    """Return whether the table's schema is the same after a DDL, as after TRUNCATE and RENAME."""
    before, after = event.pre_schema, event.schema
    return before is not None and after is not None and before.version == after.version


_SETTLING = frozenset({PartitionAction.PARTITION_BY, PartitionAction.REMOVE_PARTITIONING})
"""Partition DDL after which the partitions are known, whatever they were."""

PARTITION_REASON = "partition DDL: the rows it removes or exchanges are not known"


def spread_by_create(
    lineage: Lineage, statement: DdlStatement, named: Callable[[TableName], Lineage | None]
) -> None:
    """Set the partitions from CREATE TABLE; `named` finds the table of CREATE TABLE LIKE."""
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
    if change.action in EMPTYING:
        schema = event.schema or lineage.schema
        rows = rows_meant(lineage, change, schema, event=event, timezone=timezone)
        if rows is not None and rows.names:
            ts, version = event.commit_ts, schema.version
            lineage.removals.append(
                Removal(ts=ts, version=version, rows=rows, action=change.action)
            )
    try:
        lineage.partitions = changed_partitions(lineage.partitions, change)
        if change.action in _SETTLING:
            lineage.unknown_partitions = None
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
        partition_test(partitions, names, schema, timezone)
    except PartitionError as error:
        lineage.add_caveat(f"{PARTITION_REASON} ({change.action}): {error}", event)
        return None
    return PartitionRows(partitions=partitions, names=names)
