"""The plan of a cut: which mirrors exist at a TSO, and which changes belong to each.

In: the schema history (schemas and DDL; completed by `registry.catalog` where messages carry no
schemas) and, for each (database, table, table id, schema version or shape) that row changes cite,
between which commit ts they lie. All of it is derived from the change log.
Out: a `Plan` at W: for each table that exists at W its `MirrorPlan`: under which names it went
when, after which commit ts its rows count (TRUNCATE), its schema at W and the steps that lead
there, and the groups of rows that are held because their schema is not known.

A cut at W holds every row with commit_ts <= W and every DDL with commit_ts < W; a row whose commit
ts equals a DDL's belongs before that DDL. So an interval of a name is open at its start and closed
at its end.

The plan is a pure function of what is known, recomputed for each cut and kept nowhere: an earlier
arrival order leaves no trace. `MirrorPlan.digest` says all that determines how rows become the
mirror, so that a mirror made at W0 under less knowledge is recognised (the digest at W0 differs
now) and folded again from the change log instead of being continued.

Two kinds of DDL move rows without row events. DROP and TRUNCATE PARTITION remove the rows of some
partitions (`Removal`): the definitions in the DDL history say which; each row change is asked
whether its row was among them. Where a table's rows change hands or their identity (EXCHANGE
PARTITION, another primary key, FLASHBACK of what was truncated) the table begins anew with the rows
that others had at that moment (`Handover`), which are planned like mirrors of that moment. What a
definition does not tell exactly is marked, never guessed.
"""

import hashlib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import TypeAlias

from ticdc_assets.events import DdlEvent
from ticdc_assets.isolation import Failure, attempted
from ticdc_assets.registry.catalog import SeenShape
from ticdc_assets.registry.ddl import (
    DdlAction,
    DdlStatement,
    PartitionAction,
    PartitionChange,
)
from ticdc_assets.registry.ddl_tokens import shown_sql
from ticdc_assets.registry.evolution import SchemaStep, column_renames, diff, unknown_defaults
from ticdc_assets.registry.history import (
    RegisteredDdl,
    SchemaHistory,
    folded_name,
    of_one_partition,
)
from ticdc_assets.registry.partitions import (
    PartitionError,
    TablePartitions,
    changed_partitions,
    emptied_partitions,
    partition_test,
    partitions_of,
)
from ticdc_assets.registry.renames import Rename, settle
from ticdc_assets.schemas import RowShape, TableSchema, schema_to_json

TableName: TypeAlias = tuple[str, str]
"""(database, table)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Row changes that cite one schema of one table, in numbers.

    Attributes:
        database: database cited.
        table: table cited.
        table_id: table id cited (a physical partition's for a partitioned table), None if none.
        schema_version: schema version cited, None if none.
        min_ts: lowest commit ts.
        max_ts: highest commit ts.
        rows: how many.
        shape: what they say of their columns, where they cite no schema.
        partial: whether their images were cut to the handle key.
        large_bytes: bytes of the images of those that are large.
    """

    database: str
    table: str
    table_id: int | None
    schema_version: int | None
    min_ts: int
    max_ts: int
    rows: int
    shape: RowShape | None = None
    partial: bool = False
    large_bytes: int = 0

    @property
    def name(self) -> TableName:
        """(database, table)."""
        return (self.database, self.table)

    @property
    def key(self) -> tuple[object, ...]:
        """What the rows of one group have in common."""
        return (*self.name, self.table_id, self.schema_version, self.shape, self.partial)

    def joined(self, other: "RowGroup | None") -> "RowGroup":
        """Return this group and `other`, which has the same key, as one."""
        if other is None:
            return self
        return replace(
            self,
            min_ts=min(self.min_ts, other.min_ts),
            max_ts=max(self.max_ts, other.max_ts),
            rows=self.rows + other.rows,
            large_bytes=self.large_bytes + other.large_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A table went by this name for commit ts in (after_ts, until_ts]; None is "still does"."""

    database: str
    table: str
    after_ts: int
    until_ts: int | None

    def meets(self, name: TableName, min_ts: int, max_ts: int) -> bool:
        """Return whether the table went by `name` at some commit ts in [min_ts, max_ts]."""
        return (
            (self.database, self.table) == name
            and self.after_ts < max_ts
            and (self.until_ts is None or min_ts <= self.until_ts)
        )


def _met(bindings: Iterable[Binding], name: TableName, min_ts: int, max_ts: int) -> bool:
    return any(binding.meets(name, min_ts, max_ts) for binding in bindings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Why a mirror may differ from its table, and since when."""

    reason: str
    since_ts: int

    def __str__(self) -> str:
        return f"{self.reason}, since {self.since_ts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGroup:
    """Rows at or below the cut that no mirror can take yet.

    Attributes:
        database: database cited.
        table: table cited.
        schema_version: schema version cited. Either it is not known, or it is one that the table
            did not have when the rows were committed (`MirrorPlan.strays`).
        min_ts: lowest commit ts.
        max_ts: highest commit ts.
        rows: how many there are between them, at most.
    """

    database: str
    table: str
    schema_version: int
    min_ts: int
    max_ts: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRows:
    """The rows of some partitions of a table at one moment.

    Attributes:
        partitions: how its rows were spread.
        names: the partitions meant.
    """

    partitions: TablePartitions
    names: tuple[str, ...]

    def described(self) -> object:
        """Return what says which rows these are, for a digest."""
        return [self.partitions.described(), list(self.names)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Partition DDL took rows away: those of `rows` that were there at `ts`.

    Attributes:
        ts: commit ts of the DDL.
        version: schema version in force then, under which the rows are looked at.
        rows: which.
        action: what the DDL did to the partitions, for people.
    """

    ts: int
    version: int
    rows: PartitionRows
    action: PartitionAction


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverPart:
    """Rows that a table begins with: all or some of those that another one had.

    Attributes:
        plan: how the rows come from the change log: a mirror as it was before the handover.
        schema: the schema of the receiving table at that moment.
        within: of these partitions only; None for all rows.
        outside: not of these partitions; None for all rows.
    """

    plan: "MirrorPlan"
    schema: TableSchema
    within: PartitionRows | None = None
    outside: PartitionRows | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """A table begins anew at `ts` with the rows of `parts`, as they were then."""

    ts: int
    parts: tuple[HandoverPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlan:
    """How one mirror comes from the change log.

    Attributes:
        mirror_id: stable name of the table through renames and truncates: its first table id.
        database: database at the cut.
        table: name at the cut.
        table_id: logical table id at the cut.
        bindings: names through time; rows are found by them.
        floor_ts: row changes at or below it do not count (CREATE, TRUNCATE, a handover).
        schema: schema at the cut.
        versions: every schema version its rows may cite, ascending; the last is `schema`'s.
        steps: one step between each two neighbours of `versions`.
        generated: virtual generated columns (never in a row).
        held: groups of rows at or below the cut whose schema is not known.
        strays: groups of rows at or below the cut some of which may go by the table's name and cite
            a schema version of another table: they are counted and held.
        marks: reasons why the mirror may differ from its table.
        removals: rows that partition DDL took away, in the order of time.
        handover: the rows it has at `floor_ts`, None for none.
        digest: hash over everything above that decides how rows become the mirror.
        earlier: the table before `floor_ts`, None if it began then; of no account to the mirror.
        past_digest: hash over this digest and those of all that came before.
    """

    mirror_id: str
    database: str
    table: str
    table_id: int
    bindings: tuple[Binding, ...]
    floor_ts: int
    schema: TableSchema
    versions: tuple[TableSchema, ...]
    steps: tuple[SchemaStep, ...]
    generated: frozenset[str]
    held: tuple[HeldGroup, ...]
    strays: tuple[HeldGroup, ...] = ()
    marks: tuple[Mark, ...]
    removals: tuple[Removal, ...] = ()
    handover: Handover | None = None
    digest: str
    earlier: "MirrorPlan | None" = field(default=None, compare=False, repr=False)
    past_digest: str = ""

    @property
    def name(self) -> TableName:
        """(database, table) at the cut."""
        return (self.database, self.table)

    def meets(self, name: TableName, min_ts: int, max_ts: int) -> bool:
        """Return whether the table went by `name` at some commit ts in [min_ts, max_ts]."""
        return _met(self.bindings, name, min_ts, max_ts)

    def steps_since(self, version: int) -> tuple[SchemaStep, ...]:
        """Return the steps that rows of a schema version have still to take."""
        return tuple(step for step in self.steps if step.from_version >= version)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPlan:
    """A table that exists at the cut and whose plan could not be made.

    Attributes:
        mirror_id: as of `MirrorPlan`.
        database: database at the cut.
        table: name at the cut.
        table_id: logical table id at the cut.
        bindings: names through time.
        floor_ts: row changes at or below it do not count.
        reason: one sentence.
    """

    mirror_id: str
    database: str
    table: str
    table_id: int
    bindings: tuple[Binding, ...]
    floor_ts: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All mirrors of one cut.

    Attributes:
        cut_ts: the TSO.
        mirrors: by (database, table).
        held: held groups that belong to no mirror: tables known only from held rows.
        ignored: DDL that has no effect on mirrors, by action (views, databases, unknown text).
        failed: tables that exist and whose plan could not be made, by (database, table).
        gone: names of tables that do not exist any more, through time.
    """

    cut_ts: int
    mirrors: tuple[MirrorPlan, ...]
    held: tuple[HeldGroup, ...]
    ignored: tuple[tuple[str, int], ...]
    failed: tuple[FailedPlan, ...] = ()
    gone: tuple[Binding, ...] = ()

    def of_tables(self, wanted: Callable[[str, str], bool]) -> "Plan":
        """Return the plan of some tables: those whose database and name at the cut are wanted.

        What another table hands over to one of them stays with it.
        """
        return replace(
            self,
            mirrors=tuple(item for item in self.mirrors if wanted(item.database, item.table)),
            held=tuple(item for item in self.held if wanted(item.database, item.table)),
            failed=tuple(item for item in self.failed if wanted(item.database, item.table)),
        )


def _lenient_columns(steps: Iterable[SchemaStep]) -> list[list[object]]:
    """Return the columns into whose new types values go that do not fit, with when."""
    return [
        [step.to_version, item.column.name]
        for step in steps
        for item in step.columns
        if step.ddl_ts is not None and item.may_cast_leniently
    ]


def seen_shapes(groups: Iterable[RowGroup]) -> list[SeenShape]:
    """Return the shapes that the rows without a schema version had."""
    return [
        SeenShape(
            database=group.database, table=group.table, shape=group.shape, min_ts=group.min_ts
        )
        for group in groups
        if group.shape is not None
    ]


def build_plan(
    history: SchemaHistory, groups: Iterable[RowGroup], cut_ts: int, timezone: str
) -> Plan:
    """Return the plan of the cut at `cut_ts`.

    Args:
        history: schemas and DDL, completed where messages carry no schemas.
        groups: the row changes in numbers.
        cut_ts: the TSO.
        timezone: the changefeed's time zone (IANA name): whether the rows of a partition can be
            told may hang on it.
    """
    below = [group for group in groups if group.min_ts <= cut_ts]
    return _Builder(history, below, cut_ts, timezone).build()


@dataclass(eq=False)
class _Lineage:
    """A table through its renames and truncates, while the plan is being built."""

    mirror_id: str
    ids: set[int]
    table_id: int
    bindings: list[Binding]
    has_id: bool = True
    floor_ts: int = 0
    versions: dict[int, TableSchema] = field(default_factory=dict[int, TableSchema])
    ddls: list[tuple[DdlEvent, DdlStatement]] = field(
        default_factory=list[tuple[DdlEvent, DdlStatement]]
    )
    held: list[HeldGroup] = field(default_factory=list[HeldGroup])
    strays: list[HeldGroup] = field(default_factory=list[HeldGroup])
    marks: list[Mark] = field(default_factory=list[Mark])
    partitions: TablePartitions | None = None
    unknown_partitions: str | None = "its CREATE TABLE was not seen"
    removals: list[Removal] = field(default_factory=list[Removal])
    received: "_Received | None" = None
    earlier: "_Lineage | None" = None

    @property
    def name(self) -> TableName:
        last = self.bindings[-1]
        return (last.database, last.table)

    @property
    def alive(self) -> bool:
        return self.bindings[-1].until_ts is None

    @property
    def schema(self) -> TableSchema:
        """The newest schema known so far."""
        return self.versions[max(self.versions)]

    @property
    def held_above(self) -> int:
        """Held rows above it are of this table: those of before a handover are, too."""
        return self.floor_ts if self.received is None else self.received.held_above

    def known_partitions(self) -> TablePartitions:
        """Return how the rows are spread, or raise PartitionError."""
        if self.partitions is None:
            raise PartitionError(self.unknown_partitions or "no partitions are known of it")
        return self.partitions

    def take_id(self, schema: TableSchema) -> None:
        """Take over the table's id."""
        self.ids.add(schema.table_id)
        self.table_id = schema.table_id
        self.has_id = True

    def lose_id(self) -> None:
        """Forget the id.

        EXCHANGE PARTITION gives it to the partition, and no message tells the new one. The next
        table that is exchanged may get the old one.
        """
        self.ids.clear()
        self.has_id = False

    def bound_between(self, name: TableName, min_ts: int, max_ts: int) -> bool:
        """Whether the table went by `name` at some commit ts in [min_ts, max_ts]."""
        return _met(self.bindings, name, min_ts, max_ts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of a handover, while the plan is being built."""

    lineage: _Lineage
    within: PartitionRows | None = None
    outside: PartitionRows | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Received:
    """The rows that a table began anew with; those held for it before are still counted."""

    ts: int
    parts: tuple[_Part, ...]
    schema: TableSchema
    held_above: int


_PARTITION_ROWS = frozenset(
    {
        PartitionAction.DROP,
        PartitionAction.FIRST,
        PartitionAction.TRUNCATE,
        PartitionAction.EXCHANGE,
    }
)
"""Partition DDL that removes or brings rows without row events."""

_PARTITION_REASON = "partition DDL: the rows it removes or exchanges are not known"


class _Builder:
    def __init__(
        self, history: SchemaHistory, groups: Sequence[RowGroup], cut_ts: int, timezone: str
    ) -> None:
        self._history = history
        self._timezone = timezone
        self._cut_ts = cut_ts
        self._groups = sorted(groups, key=lambda group: (group.min_ts, group.name))
        self._lineages: list[_Lineage] = []
        # Tables as they were at some moment, oldest first: what handovers are made of.
        self._snapshots: list[_Lineage] = []
        self._truncated: dict[int, _Lineage] = {}
        self._finished: dict[_Lineage, MirrorPlan] = {}
        self._names: dict[TableName, _Lineage] = {}
        self._freed: dict[TableName, int] = {}
        self._used_ids: set[str] = set()
        self._ignored: dict[str, int] = {}

    def build(self) -> Plan:
        met = 0
        ddls = [ddl for ddl in self._history.ddls if ddl.event.commit_ts < self._cut_ts]
        position = 0
        while position < len(ddls):
            commit_ts = ddls[position].event.commit_ts
            end = position
            while end < len(ddls) and ddls[end].event.commit_ts == commit_ts:
                end += 1
            met = self._meet_rows(met, commit_ts)
            self._apply_ddls(ddls[position:end])
            position = end
        self._meet_rows(met, self._cut_ts)
        held = self._attach_groups()
        # A snapshot refers to older ones only: none of this goes deep. One that fails fails again
        # where it is needed.
        for snapshot in self._snapshots:
            self._attempt(snapshot)
        mirrors: list[MirrorPlan] = []
        failed: list[FailedPlan] = []
        for lineage in self._lineages:
            if not lineage.alive:
                continue
            plan = self._attempt(lineage)
            if isinstance(plan, Failure):
                failed.append(_failed_plan(lineage, plan))
            else:
                mirrors.append(plan)
        return Plan(
            cut_ts=self._cut_ts,
            mirrors=tuple(sorted(mirrors, key=lambda mirror: mirror.name)),
            held=tuple(held),
            ignored=tuple(sorted(self._ignored.items())),
            failed=tuple(sorted(failed, key=lambda item: (item.database, item.table))),
            gone=tuple(
                binding
                for lineage in self._lineages
                if not lineage.alive
                for binding in lineage.bindings
            ),
        )

    def _attempt(self, lineage: _Lineage) -> MirrorPlan | Failure:
        """Return the plan of one table; what is wrong with it is wrong with that table alone."""
        return attempted(lambda: self._finish(lineage), f"the plan of {'.'.join(lineage.name)}")

    # Rows -------------------------------------------------------------------------------------

    def _meet_rows(self, met: int, until_ts: int) -> int:
        """Let a table begin where its first known row is, for the groups up to `until_ts`.

        Args:
            met: how many groups were met before.
            until_ts: commit ts.

        Returns:
            How many are met now.
        """
        end = bisect_right(self._groups, until_ts, lo=met, key=lambda group: group.min_ts)
        for group in self._groups[met:end]:
            schema = self._schema_of(group)
            if schema is None:
                continue
            present = self._names.get(group.name)
            if present is None:
                self._begin(group.name, schema, after_ts=self._freed.get(group.name, 0))
            elif group.schema_version is None:
                # Only rows tell of this version: it belongs to the table they were met in.
                present.versions[schema.version] = schema
        return end

    def _schema_of(self, group: RowGroup) -> TableSchema | None:
        """Return the schema that the group cites, or that it proves, or None."""
        if group.schema_version is None:
            return self._history.observed(group.database, group.table, group.min_ts)
        return self._history.at(group.database, group.table, group.schema_version)

    def _attach_groups(self) -> list[HeldGroup]:
        """Give each group to the tables it lies in; return the held ones of no table."""
        owners = {
            table_id: lineage.mirror_id for lineage in self._lineages for table_id in lineage.ids
        }
        snapshots = set(self._snapshots)
        # TiDB gives one version to the schemas of several tables: only (table, version) is one.
        made_by: dict[tuple[TableName, int], set[str]] = {}
        by_name: dict[TableName, list[_Lineage]] = {}
        for lineage in (*self._snapshots, *self._lineages):
            for version, schema in lineage.versions.items():
                made_by.setdefault((_name(schema), version), set()).add(lineage.mirror_id)
            for name in {(item.database, item.table) for item in lineage.bindings}:
                by_name.setdefault(name, []).append(lineage)
        unbound: list[HeldGroup] = []
        unknown: list[tuple[RowGroup, list[_Lineage]]] = []
        for group in self._groups:
            if group.schema_version is None:
                continue  # read with the version in force, which is never missing
            max_ts = min(group.max_ts, self._cut_ts)
            lineages = [
                lineage
                for lineage in by_name.get(group.name, ())
                # A snapshot needs no more than the rows between its floor and its moment.
                if (lineage not in snapshots or lineage.held_above < max_ts)
                and lineage.bound_between(group.name, group.min_ts, max_ts)
            ]
            schema = self._history.at(group.database, group.table, group.schema_version)
            if schema is None:
                unknown.append((group, lineages))
                continue
            # A name that moved on may bring rows of one table near another one: whose version it
            # is tell the DDL that made it, else the table's id.
            near = {lineage.mirror_id for lineage in lineages}
            makers = made_by.get((group.name, schema.version), set()) & near
            if not makers:
                owner = owners.get(schema.table_id)
                makers = {owner} if owner in near else near
            for lineage in lineages:
                if lineage.mirror_id in makers:
                    lineage.versions.setdefault(schema.version, schema)
            # Rows of the others' time, if there are some, are nobody's: they are held, not lost.
            for lineage in lineages:
                if (
                    lineage.alive
                    and lineage not in snapshots
                    and schema.version not in lineage.versions
                    and max_ts > lineage.held_above
                ):
                    lineage.strays.append(_held_group(group, schema.version))
        for group, lineages in unknown:
            assert group.schema_version is not None
            held = _held_group(group, group.schema_version)
            waiting = [
                lineage
                for lineage in lineages
                if group.schema_version not in lineage.versions
                and min(group.max_ts, self._cut_ts) > lineage.held_above
            ]
            alive = [lineage for lineage in waiting if lineage.alive]
            if alive:
                alive[0].held.append(held)
            elif not lineages:
                unbound.append(held)
            for snapshot in waiting:
                if snapshot in snapshots:
                    # So that its digest differs from the one it has when the schema is there.
                    snapshot.held.append(held)
        return unbound

    # DDL --------------------------------------------------------------------------------------

    def _apply_ddls(self, ddls: Sequence[RegisteredDdl]) -> None:
        """Apply the DDL of one commit ts; the renames of one statement take effect at once.

        Messages without a commit ts may bring several statements of one millisecond; their order is
        kept.
        """
        renames = [ddl for ddl in ddls if _is_rename(ddl.event)]
        if not any(ddl.event.es_only for ddl in renames):
            self._rename(renames)
            for ddl in ddls:
                if not _is_rename(ddl.event):
                    self._apply_ddl(ddl)
            return
        for is_rename, together in groupby(ddls, key=lambda ddl: _is_rename(ddl.event)):
            if is_rename:
                self._rename(list(together))
                continue
            for ddl in together:
                self._apply_ddl(ddl)

    def _apply_ddl(self, ddl: RegisteredDdl) -> None:
        event = ddl.event
        match event.ddl_type:
            case "CREATE" if event.schema is not None:
                self._create(ddl, event.schema)
            case "CREATE" | "ERASE":
                self._erase(ddl)
            case "TRUNCATE":
                self._truncate(ddl)
            case "QUERY":
                self._query(ddl)
            case _ if event.schema is not None or event.pre_schema is not None:
                self._alter(ddl)
            case _:
                self._ignore(f"{event.ddl_type} without schema")

    def _create(self, ddl: RegisteredDdl, schema: TableSchema) -> None:
        name = _name(schema)
        present = self._names.get(name)
        if present is not None and schema.table_id in present.ids:
            self._note(present, ddl)
            self._partition(present, ddl)
            return
        if present is not None:
            self._unbind(present, ddl.event.commit_ts)
        lineage = self._begin(name, schema, after_ts=ddl.event.commit_ts)
        lineage.floor_ts = ddl.event.commit_ts
        self._note(lineage, ddl)
        self._partition(lineage, ddl)

    def _erase(self, ddl: RegisteredDdl) -> None:
        """End a table: by DROP, or because another one is created that is not understood."""
        event = ddl.event
        schema = event.pre_schema or event.schema
        name = _name(schema) if schema is not None else (event.database, event.table)
        lineage = self._find(schema) if schema is not None else self._names.get(name)
        if lineage is not None:
            if schema is not None:
                lineage.take_id(schema)
            self._unbind(lineage, event.commit_ts)
        elif name[1]:
            self._freed[name] = event.commit_ts
        else:
            self._ignore(f"{event.ddl_type} without schema")

    def _truncate(self, ddl: RegisteredDdl) -> None:
        lineage = self._find_or_begin(ddl.event)
        if lineage is None:
            self._ignore("TRUNCATE without schema")
            return
        if ddl.event.pre_schema is not None:
            lineage.take_id(ddl.event.pre_schema)
        # FLASHBACK may bring these rows back as another table.
        lineage.earlier = self._snapshot(lineage, ddl.event.commit_ts)
        self._truncated[lineage.table_id] = lineage.earlier
        lineage.floor_ts = ddl.event.commit_ts
        lineage.received = None
        lineage.removals.clear()
        # A truncated table has no rows left that could differ.
        lineage.marks.clear()
        self._note(lineage, ddl)

    def _alter(self, ddl: RegisteredDdl) -> None:
        event, statement = ddl.event, ddl.statement
        changes = [change.partition for change in statement.changes if change.partition is not None]
        for change in changes:
            if change.action is PartitionAction.EXCHANGE:
                self._exchange(ddl, change)
                return
        lineage = self._find_or_begin(event)
        if lineage is None:
            return
        before = self._snapshot(lineage, event.commit_ts) if _changes_key(ddl) else None
        self._note(lineage, ddl)
        if before is not None:
            # Which changes are of one row is a matter of the key they were made under.
            self._hand_over(lineage, event.commit_ts, [_Part(lineage=before)], before.schema)
        for change in changes:
            self._repartition(lineage, change, event)

    # Partitions -------------------------------------------------------------------------------

    def _partition(self, lineage: _Lineage, ddl: RegisteredDdl) -> None:
        """Take over how CREATE TABLE spreads the rows."""
        statement = ddl.statement
        lineage.partitions, lineage.unknown_partitions = None, None
        if statement.like is not None:
            name = (statement.like.database or lineage.name[0], statement.like.table)
            like = self._named(name)
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

    def _repartition(self, lineage: _Lineage, change: PartitionChange, event: DdlEvent) -> None:
        """Take over a change of a table's partitions, and the rows it removes."""
        if change.action in _PARTITION_ROWS:
            schema = event.schema or lineage.schema
            rows = self._rows_meant(lineage, change, schema, event)
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

    def _rows_meant(
        self, lineage: _Lineage, change: PartitionChange, schema: TableSchema, event: DdlEvent
    ) -> PartitionRows | None:
        """Return the rows that a change is about; mark the table where that cannot be told."""
        try:
            partitions = lineage.known_partitions()
            names = emptied_partitions(partitions, change)
            rows = PartitionRows(partitions=partitions, names=names)
            partition_test(rows.partitions, names, schema, self._timezone)
        except PartitionError as error:
            self._mark(lineage, f"{_PARTITION_REASON} ({change.action}): {error}", event)
            return None
        return rows

    def _exchange(self, ddl: RegisteredDdl, change: PartitionChange) -> None:
        """Swap the rows of a partition with those of a table.

        TiCDC names both tables in the text. Of the schemas the Simple protocol sends, the one
        after is the partitioned table's and the one before is the other's.
        """
        event = ddl.event
        if event.schema is None or change.other is None:
            self._ignore(f"{event.ddl_type} without schema")
            return
        lineage = self._find(event.schema)
        if lineage is None:
            name = _name(event.schema)
            lineage = self._begin(name, event.schema, after_ts=self._freed.get(name, 0))
        other_name = (change.other.database or lineage.name[0], change.other.table)
        other = self._named(other_name)
        sent = event.pre_schema
        if other is None and sent is not None and _same_name(_name(sent), other_name):
            other = self._find_or_begin(event)
        before = self._snapshot(lineage, event.commit_ts)
        self._note(lineage, ddl, [event.schema])
        rows = self._rows_meant(lineage, change, event.schema, event)
        if other is None:
            reason = f"{_PARTITION_REASON} ({change.action}): the other table is not known"
            self._mark(lineage, reason, event)
            return
        if rows is None:
            self._mark(other, f"{_PARTITION_REASON} ({change.action})", event)
            return
        other_before = self._snapshot(other, event.commit_ts)
        parts = [_Part(lineage=before, outside=rows), _Part(lineage=other_before)]
        self._hand_over(lineage, event.commit_ts, parts, event.schema)
        parts = [_Part(lineage=before, within=rows)]
        self._hand_over(other, event.commit_ts, parts, other.schema)
        other.lose_id()
        lineage.earlier, other.earlier = before, other_before

    # Handovers --------------------------------------------------------------------------------

    def _snapshot(self, lineage: _Lineage, ts: int) -> _Lineage:
        """Return the table as it is at `ts`."""
        bindings = list(lineage.bindings)
        if bindings[-1].until_ts is None:
            bindings[-1] = replace(bindings[-1], until_ts=ts)
        snapshot = replace(
            lineage,
            ids=set(lineage.ids),
            bindings=bindings,
            versions=dict(lineage.versions),
            ddls=list(lineage.ddls),
            held=[],
            strays=[],
            marks=list(lineage.marks),
            removals=list(lineage.removals),
        )
        self._snapshots.append(snapshot)
        return snapshot

    def _hand_over(
        self, lineage: _Lineage, ts: int, parts: Sequence[_Part], schema: TableSchema
    ) -> None:
        """Let a table begin anew with the rows of `parts`."""
        own = [part.lineage for part in parts if part.lineage.mirror_id == lineage.mirror_id]
        lineage.earlier = own[0] if own else None
        lineage.received = _Received(
            ts=ts, parts=tuple(parts), schema=schema, held_above=lineage.held_above
        )
        lineage.floor_ts = ts
        lineage.removals.clear()
        lineage.marks.clear()  # those of the parts are its own

    def _query(self, ddl: RegisteredDdl) -> None:
        event, statement = ddl.event, ddl.statement
        match statement.action:
            case DdlAction.DROP_DATABASE if statement.database is not None:
                database = statement.database.lower()
                for lineage in list(self._names.values()):
                    if lineage.name[0].lower() == database:
                        self._unbind(lineage, event.commit_ts)
            case DdlAction.RECOVER_TABLE | DdlAction.FLASHBACK_TABLE:
                self._recover(ddl)
            case DdlAction.ALTER_TABLE if event.schema is not None:
                self._alter(ddl)
            case _:
                self._ignore(str(statement.action))

    def _recover(self, ddl: RegisteredDdl) -> None:
        event = ddl.event
        if event.schema is None:
            self._ignore(str(ddl.statement.action))
            return
        name = (event.schema.database, event.schema.table)
        gone = next(
            (
                lineage
                for lineage in reversed(self._lineages)
                if not lineage.alive
                and lineage.has_id
                and event.schema.table_id == lineage.table_id
            ),
            None,
        )
        truncated = self._truncated.get(event.schema.table_id)
        if gone is None and truncated is not None:
            lineage = self._begin(name, event.schema, after_ts=event.commit_ts)
            lineage.partitions = truncated.partitions
            lineage.unknown_partitions = truncated.unknown_partitions
            self._hand_over(lineage, event.commit_ts, [_Part(lineage=truncated)], event.schema)
        elif gone is None:
            lineage = self._begin(name, event.schema, after_ts=event.commit_ts)
            self._mark(lineage, "recovered table: its rows before that are not known", event)
        else:
            self._bind(gone, name, event.commit_ts)
            lineage = gone
        self._note(lineage, ddl)

    def _rename(self, ddls: Sequence[RegisteredDdl]) -> None:
        """Rename tables, all of one commit ts at once, so that swaps do not collide.

        TiCDC sends one event per pair, with the schemas as they were before the whole statement;
        the table id tells which table is meant, and `registry.renames` which name it got last.
        """
        pairs: list[tuple[TableSchema, TableSchema]] = []
        for ddl in ddls:
            before, after = ddl.event.pre_schema, ddl.event.schema
            assert before is not None
            assert after is not None
            pairs.append((before, after))
        tables = {_identity(item): item for item in reversed(self._names.values())}
        present = {folded_name(*name): _identity(item) for name, item in self._names.items()}
        meant = self._tables_meant([before for before, _ in pairs], tables)
        settled = settle(
            [Rename(_folded_name(before), _folded_name(after)) for before, after in pairs],
            present,
            [meant[before.table_id] for before, _ in pairs],
            in_order=of_one_partition(ddls),
        )
        moves: dict[_Lineage, RegisteredDdl] = {}
        for number in settled.order:
            ddl, before = ddls[number], pairs[number][0]
            lineage = tables.get(settled.tables[number])
            if lineage is None:
                name = _name(before)
                occupant = self._names.get(name)
                lineage = self._begin(name, before, after_ts=self._freed.get(name, 0))
                tables[settled.tables[number]] = lineage
                if occupant is not None:
                    self._names[name] = occupant
            was = self._snapshot(lineage, ddl.event.commit_ts) if _changes_key(ddl) else None
            self._note(lineage, ddl)
            if was is not None:
                self._hand_over(lineage, ddl.event.commit_ts, [_Part(lineage=was)], was.schema)
            if not settled.certain:
                self._mark(lineage, "which table took which name cannot be told", ddl.event)
            moves[lineage] = ddl
        for lineage, ddl in moves.items():
            self._unbind(lineage, ddl.event.commit_ts)
        for lineage, ddl in moves.items():
            assert ddl.event.schema is not None
            target = _name(ddl.event.schema)
            present_there = self._names.get(target)
            if present_there is not None:
                self._unbind(present_there, ddl.event.commit_ts)
            self._bind(lineage, target, ddl.event.commit_ts)

    def _tables_meant(
        self, schemas: Sequence[TableSchema], tables: Mapping[Hashable, _Lineage]
    ) -> dict[int, Hashable]:
        """Return for each table id of renames which table it means.

        One that is not known by its id is the table of its name, unless that one is renamed, too.
        """
        cited = {schema.table_id for schema in schemas}
        meant: dict[int, Hashable] = {}
        for schema in schemas:
            found = self._names.get(_name(schema))
            if schema.table_id in tables or found is None or _identity(found) in cited:
                continue
            meant.setdefault(schema.table_id, _identity(found))
        return {table_id: meant.get(table_id, table_id) for table_id in cited}

    # Tables -----------------------------------------------------------------------------------

    def _begin(self, name: TableName, schema: TableSchema, *, after_ts: int) -> _Lineage:
        mirror_id = str(schema.table_id)
        number = 2
        while mirror_id in self._used_ids:
            mirror_id = f"{schema.table_id}-{number}"
            number += 1
        self._used_ids.add(mirror_id)
        lineage = _Lineage(
            mirror_id=mirror_id, ids={schema.table_id}, table_id=schema.table_id, bindings=[]
        )
        lineage.versions[schema.version] = schema
        self._lineages.append(lineage)
        self._bind(lineage, name, after_ts)
        return lineage

    def _find(self, schema: TableSchema) -> _Lineage | None:
        """Find the table by its id, else by its name.

        The id wins: within a multi-table rename the names overlap, and where a rename was missed
        the id still tells.
        """
        for lineage in self._names.values():
            if lineage.has_id and lineage.table_id == schema.table_id:
                return lineage
        return self._names.get(_name(schema))

    def _named(self, name: TableName) -> _Lineage | None:
        """Find a table by a name out of a text, which may be written in another case."""
        found = self._names.get(name)
        if found is not None:
            return found
        return next((self._names[item] for item in self._names if _same_name(item, name)), None)

    def _find_or_begin(self, event: DdlEvent) -> _Lineage | None:
        schema = event.pre_schema or event.schema
        if schema is None:
            return None
        lineage = self._find(schema)
        if lineage is None:
            name = _name(schema)
            lineage = self._begin(name, schema, after_ts=self._freed.get(name, 0))
        return lineage

    def _note(
        self, lineage: _Lineage, ddl: RegisteredDdl, schemas: Sequence[TableSchema] = ()
    ) -> None:
        """Take over what a DDL says of the table's structure, by its schemas or these."""
        event, statement = ddl.event, ddl.statement
        for schema in schemas or (event.pre_schema, event.schema):
            if schema is not None:
                lineage.versions.setdefault(schema.version, schema)
        if event.schema is not None:
            lineage.take_id(event.schema)
        if statement.changes or not _keeps_version(event):
            lineage.ddls.append((event, statement))
        if statement.unparsed is not None and event.ddl_type == "ALTER":
            piece = shown_sql(statement.unparsed)
            self._mark(lineage, f"DDL text not understood: {piece}", event)
            if lineage.partitions is not None and "PARTITION" in event.sql.upper():
                lineage.partitions = None
                lineage.unknown_partitions = "a DDL text since is not understood"
        for note in ddl.notes:
            self._mark(lineage, note, event)

    def _mark(self, lineage: _Lineage, reason: str, event: DdlEvent) -> None:
        lineage.marks.append(Mark(reason=reason, since_ts=event.commit_ts))

    def _bind(self, lineage: _Lineage, name: TableName, after_ts: int) -> None:
        lineage.bindings.append(
            Binding(database=name[0], table=name[1], after_ts=after_ts, until_ts=None)
        )
        self._names[name] = lineage

    def _unbind(self, lineage: _Lineage, until_ts: int) -> None:
        last = lineage.bindings[-1]
        lineage.bindings[-1] = Binding(
            database=last.database, table=last.table, after_ts=last.after_ts, until_ts=until_ts
        )
        if self._names.get(lineage.name) is lineage:
            del self._names[lineage.name]
        self._freed[lineage.name] = until_ts

    def _ignore(self, what: str) -> None:
        self._ignored[what] = self._ignored.get(what, 0) + 1

    def _finish(self, lineage: _Lineage) -> MirrorPlan:
        found = self._finished.get(lineage)
        if found is None:
            found = self._finished[lineage] = self._planned(lineage)
        return found

    def _planned(self, lineage: _Lineage) -> MirrorPlan:
        versions = tuple(lineage.versions[version] for version in sorted(lineage.versions))
        steps: list[SchemaStep] = []
        marks = list(lineage.marks)
        numbers = [version.version for version in versions]
        leading: dict[int, list[tuple[DdlEvent, DdlStatement]]] = {}
        for event, statement in lineage.ddls:
            if event.schema is not None:
                # To the version it made, or the first one known behind that.
                place = bisect_left(numbers, event.schema.version)
                leading.setdefault(place, []).append((event, statement))
        for place, (old, new) in enumerate(pairwise(versions), start=1):
            between = leading.get(place, [])
            step = diff(
                old,
                new,
                statements=[statement for _, statement in between],
                # TRUNCATE, RENAME and partition DDL that come later keep the version.
                ddl_ts=between[0][0].commit_ts if between else None,
                inferred=not between,
            )
            if step.inferred and step.changes_rows:
                marks.append(
                    Mark(reason="schema changed without a DDL message", since_ts=new.version)
                )
            marks += [
                Mark(
                    reason=f"the default of added column {name!r} is not understood: older rows "
                    "have NULL",
                    since_ts=new.version,
                )
                for name in unknown_defaults(step)
            ]
            steps.append(step)
        marks += self._partial_marks(lineage)
        handover = self._handover(lineage.received)
        if handover is not None:
            inherited = [mark for part in handover.parts for mark in part.plan.marks]
            marks += inherited
        schema = versions[-1]
        generated = frozenset(column.name for column in schema.columns if column.virtual)
        database, table = lineage.name
        described: dict[str, object] = {
            "id": lineage.mirror_id,
            "bindings": [
                [item.database, item.table, item.after_ts, item.until_ts]
                for item in lineage.bindings
            ],
            "floor": lineage.floor_ts,
            "versions": [
                {**schema_to_json(item), "schema": "", "table": "", "tableID": 0}
                for item in versions
            ],
            "renames": [sorted(column_renames([item]).items()) for _, item in lineage.ddls],
            "held": sorted(
                {(item.database, item.table, item.schema_version) for item in lineage.held}
            ),
            "removals": [[item.ts, item.rows.described()] for item in lineage.removals],
            "handover": handover and _described(handover),
        }
        # Where there is none, the digest is that of the versions that refused such values.
        if lenient := _lenient_columns(steps):
            described["lenient"] = lenient
        digest = hashlib.sha256(
            json.dumps(described, sort_keys=True, ensure_ascii=True).encode()
        ).hexdigest()
        earlier = None if lineage.earlier is None else self._finish(lineage.earlier)
        given = [part.plan for part in handover.parts] if handover is not None else []
        pasts = [digest, *(item and item.past_digest for item in (earlier, *given))]
        return MirrorPlan(
            mirror_id=lineage.mirror_id,
            database=database,
            table=table,
            table_id=lineage.table_id,
            bindings=tuple(lineage.bindings),
            floor_ts=lineage.floor_ts,
            schema=schema,
            versions=versions,
            steps=tuple(steps),
            generated=generated,
            held=tuple(lineage.held),
            strays=tuple(lineage.strays),
            marks=_once(marks),
            removals=tuple(lineage.removals),
            handover=handover,
            digest=digest,
            earlier=earlier,
            past_digest=hashlib.sha256(json.dumps(pasts).encode()).hexdigest(),
        )

    def _handover(self, received: _Received | None) -> Handover | None:
        if received is None:
            return None
        return Handover(
            ts=received.ts,
            parts=tuple(
                HandoverPart(
                    plan=self._finish(part.lineage),
                    schema=received.schema,
                    within=part.within,
                    outside=part.outside,
                )
                for part in received.parts
            ),
        )

    def _partial_marks(self, lineage: _Lineage) -> list[Mark]:
        """Mark a table some of whose row changes were sent as their handle key alone."""
        cut = [
            group
            for group in self._groups
            if group.partial
            and group.max_ts > lineage.floor_ts
            and lineage.bound_between(group.name, group.min_ts, min(group.max_ts, self._cut_ts))
        ]
        if not cut:
            return []
        reason = (
            "row changes were sent as their handle key alone: their other columns are not known"
        )
        return [Mark(reason=reason, since_ts=min(group.min_ts for group in cut))]


def _once(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """Return each reason once, since it holds first, in the order in which they come."""
    first: dict[str, Mark] = {}
    for mark in marks:
        known = first.get(mark.reason)
        if known is None or mark.since_ts < known.since_ts:
            first[mark.reason] = mark
    return tuple(first.values())


def _held_group(group: RowGroup, version: int) -> HeldGroup:
    return HeldGroup(
        database=group.database,
        table=group.table,
        schema_version=version,
        min_ts=group.min_ts,
        max_ts=group.max_ts,
        rows=group.rows,
    )


def _failed_plan(lineage: _Lineage, failure: Failure) -> FailedPlan:
    database, table = lineage.name
    return FailedPlan(
        mirror_id=lineage.mirror_id,
        database=database,
        table=table,
        table_id=lineage.table_id,
        bindings=tuple(lineage.bindings),
        floor_ts=lineage.floor_ts,
        reason=failure.reason,
    )


def _described(handover: Handover) -> object:
    """Return what decides which rows are handed over."""
    return [
        handover.ts,
        [
            [
                part.plan.digest,
                part.schema.version,
                part.within and part.within.described(),
                part.outside and part.outside.described(),
            ]
            for part in handover.parts
        ],
    ]


def _changes_key(ddl: RegisteredDdl) -> bool:
    """Whether rows are told apart by other columns after a DDL than before it."""
    before, after = ddl.event.pre_schema, ddl.event.schema
    if before is None or after is None:
        return False
    renamed = {old.lower(): new for new, old in column_renames([ddl.statement]).items()}
    key = {renamed.get(name.lower(), name.lower()) for name in before.handle_key}
    return key != {name.lower() for name in after.handle_key}


def _keeps_version(event: DdlEvent) -> bool:
    """Whether the table's schema is the same after a DDL, as after TRUNCATE and RENAME."""
    before, after = event.pre_schema, event.schema
    return before is not None and after is not None and before.version == after.version


def _same_name(left: TableName, right: TableName) -> bool:
    return [name.lower() for name in left] == [name.lower() for name in right]


def _is_rename(event: DdlEvent) -> bool:
    return (
        event.ddl_type not in {"CREATE", "ERASE", "QUERY"}
        and event.schema is not None
        and event.pre_schema is not None
        and _name(event.schema) != _name(event.pre_schema)
    )


def _identity(lineage: _Lineage) -> Hashable:
    """Return by what the renames of one moment tell a table: its id, if it is known."""
    return lineage.table_id if lineage.has_id else lineage.mirror_id


def _folded_name(schema: TableSchema) -> TableName:
    return folded_name(schema.database, schema.table)


def _name(schema: TableSchema) -> TableName:
    return (schema.database, schema.table)
