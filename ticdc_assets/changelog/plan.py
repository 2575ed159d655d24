"""The plan of a cut, as values: which mirrors exist at a TSO, and which changes belong to each.

In: what `planning` derives from the schema history and the row groups. Out: a `Plan` at W: for each
table that exists at W its `MirrorPlan`: its names through time, the commit ts after which its rows
count (TRUNCATE), its schema at W and the steps that lead there, and the groups of rows that are
held because their schema is not known. The values never change.

A cut at W holds every row with commit_ts <= W and every DDL with commit_ts < W; a row whose commit
ts equals a DDL's belongs before that DDL. So an interval of a name is open at its start and closed
at its end.

`MirrorPlan.digest` covers everything that determines how rows become the mirror. So a mirror that
was folded at W0 with less knowledge is recognised (the digest at W0 differs now), and folded again
from the change log instead of being continued.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ticdc_assets.model.schemas import RowShape, TableSchema
from ticdc_assets.registry.catalog import SeenShape
from ticdc_assets.registry.ddl.statement import PartitionAction, Partitioning
from ticdc_assets.registry.evolution import SchemaStep

TableName: TypeAlias = tuple[str, str]
"""(database, table)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Row changes that cite one schema of one table, in numbers: how many, and their commit ts.

    Attributes:
        table_id: table id cited (for a partitioned table a physical partition's), None if none.
        schema_version: schema version cited, None if none.
        shape: their shape, where they cite no schema.
        partial: whether their images were cut to the handle key.
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

    @property
    def name(self) -> TableName:
        """(database, table)."""
        return (self.database, self.table)

    @property
    def key(self) -> tuple[object, ...]:
        """The common part of the rows of one group."""
        return (*self.name, self.table_id, self.schema_version, self.shape, self.partial)

    @property
    def citation(self) -> "RowGroup":
        """The group by its name and version alone, as rows are held."""
        return replace(self, table_id=None, shape=None, partial=False)

    def joined(self, other: "RowGroup | None") -> "RowGroup":
        """Return this group and `other`, which has the same key, as one."""
        if other is None:
            return self
        return replace(
            self,
            min_ts=min(self.min_ts, other.min_ts),
            max_ts=max(self.max_ts, other.max_ts),
            rows=self.rows + other.rows,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A table had this name for commit ts in (after_ts, until_ts]; None means that it still has."""

    database: str
    table: str
    after_ts: int
    until_ts: int | None

    def meets(self, name: TableName, min_ts: int, max_ts: int) -> bool:
        """Return whether the table had the name `name` at some commit ts in [min_ts, max_ts]."""
        return (
            (self.database, self.table) == name
            and self.after_ts < max_ts
            and (self.until_ts is None or min_ts <= self.until_ts)
        )


def any_meets(bindings: Iterable[Binding], name: TableName, min_ts: int, max_ts: int) -> bool:
    """Return whether a table of these names had the name `name` at some commit ts in between."""
    return any(binding.meets(name, min_ts, max_ts) for binding in bindings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """Why a mirror may differ from its table, and since when."""

    reason: str
    since_ts: int

    def __str__(self) -> str:
        return f"{self.reason}, since {self.since_ts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRows:
    """The rows of some partitions (`names`) of a table at one moment."""

    partitions: Partitioning
    names: tuple[str, ...]

    def described(self) -> object:
        """Return a text that identifies these rows, for a digest."""
        return [self.partitions.described(), list(self.names)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Partition DDL at commit ts `ts` removed those of `rows` that existed then.

    They are tested under the schema version that was in force.
    """

    ts: int
    version: int
    rows: PartitionRows
    action: PartitionAction


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverPart:
    """Rows that a table begins with: all or some rows of another table.

    Attributes:
        plan: how the rows come from the change log: a mirror as it was before the handover.
        schema: the schema of the receiving table at that moment.
        within: only rows of these partitions; None for all rows.
        outside: no rows of these partitions; None for all rows.
    """

    plan: "MirrorPlan"
    schema: TableSchema
    within: PartitionRows | None = None
    outside: PartitionRows | None = None


LACKS_EXPORT = "incomplete: rows that did not change since are in an export only, at TSO"
"""Begin of the caveat of a mirror that lacks the rows of an export above the cut."""

LACKS_EARLIER = "rows from before "
"""Begin of the caveat of a mirror that may lack rows from before the changefeed."""


def lacks_rows(caveats: Iterable[str]) -> bool:
    """Return whether a caveat says that whole rows of a table are missing, or may be."""
    return any(caveat.startswith((LACKS_EXPORT, LACKS_EARLIER)) for caveat in caveats)


SeededTable: TypeAlias = tuple[str, str, int]
"""(database, table, number of the seed): the citation of an export's rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedRows:
    """The rows of an export that a table begins with, by the names and the seed that they cite.

    `ts` is the export's TSO. Rows from quarantine may come later than the number of rows says.
    """

    ts: int
    seed: int
    database: str
    table: str
    rows: int

    def described(self) -> object:
        """Return a text that identifies these rows, for a digest."""
        return [self.ts, self.seed, self.database, self.table, self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """A table that exists at a cut.

    Attributes:
        mirror_id: stable name of the table through renames and truncates: its first table id.
        table_id: logical table id at the cut.
        bindings: names through time, by which rows are selected.
        floor_ts: row changes at or below it do not count (CREATE, TRUNCATE, a handover, an export).
    """

    mirror_id: str
    database: str
    table: str
    table_id: int
    bindings: tuple[Binding, ...]
    floor_ts: int

    @property
    def name(self) -> TableName:
        """(database, table) at the cut."""
        return (self.database, self.table)

    def meets(self, name: TableName, min_ts: int, max_ts: int) -> bool:
        """Return whether the table had the name `name` at some commit ts in [min_ts, max_ts]."""
        return any_meets(self.bindings, name, min_ts, max_ts)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlan(TablePlan):
    """How one mirror comes from the change log.

    Attributes:
        versions: every schema version its rows may cite, ascending; the last is `schema`'s.
        steps: one step between each two neighbours of `versions`.
        generated: virtual generated columns (never in a row).
        held: groups (`RowGroup.citation`) of rows at or below the cut whose schema is not known.
        wrong_version: groups like `held`, some of whose rows may have the table's name and cite a
            schema version of another table: they are counted and held.
        incomplete_until: TSO of an export above the cut without which rows are missing, None if
            none is known.
        is_whole: whether all of its rows are known: a message created or emptied the table, or it
            begins with an export. Else rows from before the changefeed may be missing.
        digest: hash of everything above that decides how rows become the mirror.
        earlier: the table before `floor_ts`, None if it began then; it does not matter to the
            mirror.
        past_digest: hash of this digest and those of all earlier tables.
        reads_shapes: whether rows need their shapes to be read: their values are spelled by other
            flags than those of their columns, or images are damaged. It is not in the digest, as
            each row has its shape.
    """

    schema: TableSchema
    versions: tuple[TableSchema, ...]
    steps: tuple[SchemaStep, ...]
    generated: frozenset[str]
    held: tuple[RowGroup, ...]
    wrong_version: tuple[RowGroup, ...] = ()
    caveats: tuple[Caveat, ...]
    removals: tuple[Removal, ...] = ()
    parts: tuple[HandoverPart, ...] = ()
    exported: ExportedRows | None = None
    incomplete_until: int | None = field(default=None, compare=False)
    is_whole: bool = field(default=True, compare=False)
    digest: str
    earlier: "MirrorPlan | None" = field(default=None, compare=False, repr=False)
    past_digest: str = ""
    reads_shapes: bool = field(default=False, compare=False)

    @property
    def pasts(self) -> "list[MirrorPlan]":
        """The plans that its history goes on from: of its table, and of rows handed over to it."""
        return [*filter(None, [self.earlier]), *(part.plan for part in self.parts)]

    def sources(
        self, goes_on: Callable[["MirrorPlan"], bool] = lambda _: True
    ) -> Iterator["MirrorPlan"]:
        """Yield the plans that its rows come from by handovers, itself first and each once.

        A table may be exchanged again and again: the way back is long, and its branches join. It
        ends at plans for which `goes_on` is false.
        """
        waiting: list[MirrorPlan] = [self]
        seen: set[int] = set()
        while waiting:
            plan = waiting.pop()
            if id(plan) in seen:
                continue
            seen.add(id(plan))
            yield plan
            if goes_on(plan):
                waiting += (part.plan for part in reversed(plan.parts))

    def takes(self, name: TableName, commit_ts: int) -> bool:
        """Return whether a row change belongs to it, or to rows that were handed over to it."""
        return any(
            plan.floor_ts < commit_ts and plan.meets(name, commit_ts, commit_ts)
            for plan in self.sources()
        )

    def steps_since(self, version: int) -> tuple[SchemaStep, ...]:
        """Return the remaining steps of rows of a schema version."""
        return tuple(step for step in self.steps if step.from_version >= version)


def earlier_first(
    plan: MirrorPlan, before: Callable[[MirrorPlan], Iterable[MirrorPlan]]
) -> list[MirrorPlan]:
    """Return a plan and all plans that it comes from, each once, after those that it comes from."""
    ordered: dict[int, MirrorPlan] = {}
    stack = [(plan, False)]
    while stack:
        item, is_ready = stack.pop()
        if id(item) in ordered:
            continue
        if is_ready:
            ordered[id(item)] = item
            continue
        stack.append((item, True))
        stack += ((older, False) for older in before(item))
    return list(ordered.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedPlan(TablePlan):
    """A table that exists at the cut and whose plan could not be made, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All mirrors of one cut.

    Attributes:
        held: groups (`RowGroup.citation`) of rows that cite a name while no table has it: tables
            that no message created.
        ignored: DDL without effect on mirrors, by action (views, databases, unknown text).
        gone: names of tables that no longer exist, through time.
        exported_above: names with rows in exports above the cut, each with the lowest TSO of these.
        strays: groups like `held`, some of whose rows may be of a table's time: counting the rows
            shows how many are held, if any.
    """

    cut_ts: int
    mirrors: tuple[MirrorPlan, ...]
    held: tuple[RowGroup, ...]
    ignored: tuple[tuple[str, int], ...]
    failed: tuple[FailedPlan, ...] = ()
    gone: tuple[Binding, ...] = ()
    exported_above: tuple[tuple[TableName, int], ...] = ()
    strays: tuple[RowGroup, ...] = ()

    def of_tables(self, wanted: Callable[[str, str], bool]) -> "Plan":
        """Return the plan of some tables: those whose database and name at the cut are wanted.

        Rows that another table hands over to one of them stay in its plan.
        """
        return replace(
            self,
            mirrors=tuple(item for item in self.mirrors if wanted(item.database, item.table)),
            held=tuple(item for item in self.held if wanted(item.database, item.table)),
            strays=tuple(item for item in self.strays if wanted(item.database, item.table)),
            failed=tuple(item for item in self.failed if wanted(item.database, item.table)),
        )


def seen_shapes(groups: Iterable[RowGroup]) -> list[SeenShape]:
    """Return the shapes of the rows without a schema version."""
    return [
        SeenShape(
            database=group.database, table=group.table, shape=group.shape, min_ts=group.min_ts
        )
        for group in groups
        if group.shape is not None
    ]
