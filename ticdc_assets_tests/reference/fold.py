"""The reference of applying: the state of every table at a cut, in plain Python.

In: events with their coordinates, in any order. Out: for each table its rows in canonical text.
This is the meaning the lake's MERGE and overwrite are tested against; it is written to be read,
holds everything in memory and does nothing in parallel. The lake shares with it the plan and the
resolver, and must agree with it on everything else: selecting rows by name and time, the order,
keys, bags and the last change winning.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from ticdc_assets.base.errors import ImageError, InputError
from ticdc_assets.changelog.carrying import handover_steps, part_carrier
from ticdc_assets.changelog.plan import (
    HandoverPart,
    MirrorPlan,
    Plan,
    RowGroup,
    TableName,
    seen_shapes,
)
from ticdc_assets.changelog.planning import build_plan
from ticdc_assets.changelog.resolve import (
    ResolvedChange,
    RowResolver,
    casts_after,
    rank_of,
    standing_casts,
)
from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, Image, Op, RowChange, Watermark
from ticdc_assets.model.schemas import RowShape
from ticdc_assets.registry.catalog import complete
from ticdc_assets.registry.evolution import CanonicalRow, Casts
from ticdc_assets.registry.history import Coordinates, SchemaHistory

SequenceKey: TypeAlias = tuple[int, int, str, int, int, int]
"""(commit_ts, rank, topic, partition, offset, index): the sort key of a change."""


@dataclass(kw_only=True)
class FoldedTable:
    """One table at the cut.

    Attributes:
        plan: its plan.
        rows: rows by key; for a table without a key by the whole row, see `copies`.
        copies: how often each row is there (always 1 with a key).
        unknown_deletes: deletes of rows that were not there.
        quarantined: changes that did not fit, with their coordinates.
        casts: how many values did not fit when their column was modified and were cast as TiDB does
            in a lenient SQL mode, by column and commit ts of the DDL.
    """

    plan: MirrorPlan
    rows: dict[str, CanonicalRow] = field(default_factory=dict[str, CanonicalRow])
    copies: Counter[str] = field(default_factory=Counter[str])
    unknown_deletes: int = 0
    quarantined: list[tuple[Coordinates, InputError]] = field(
        default_factory=list[tuple[Coordinates, InputError]]
    )
    casts: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])

    def listed(self) -> list[CanonicalRow]:
        """Return the rows, copies repeated."""
        return [row for key, row in self.rows.items() for _ in range(self.copies[key])]


def collect_history(events: Iterable[tuple[Coordinates, Event]], timezone: str) -> SchemaHistory:
    """Return the schema history that `events` tell, completed where they carry no schemas."""
    everything = list(events)
    history = _sent_history(everything)
    return complete(history, seen_shapes(group_rows(everything)), timezone)


def _sent_history(events: Iterable[tuple[Coordinates, Event]]) -> SchemaHistory:
    history = SchemaHistory()
    for coordinates, event in events:
        match event:
            case DdlEvent():
                history.add_ddl(event, coordinates)
            case Bootstrap(schema=schema) if schema is not None:
                history.add_bootstrap(schema, coordinates)
            case RowChange() | Watermark() | Bootstrap():
                pass
    return history


def group_rows(events: Iterable[tuple[Coordinates, Event]]) -> list[RowGroup]:
    """Return the row changes in numbers, one group per schema or shape cited."""
    groups: dict[tuple[object, ...], RowGroup] = {}
    for _, event in events:
        if not isinstance(event, RowChange) or event.op is Op.SNAPSHOT:
            continue
        group = RowGroup(
            database=event.database,
            table=event.table,
            table_id=event.table_id,
            schema_version=event.schema_version,
            min_ts=event.commit_ts,
            max_ts=event.commit_ts,
            rows=1,
            shape=event.shape if event.schema_version is None else None,
            partial=event.handle_key_only,
        )
        groups[group.key] = group.joined(groups.get(group.key))
    return list(groups.values())


def fold(
    events: Iterable[tuple[Coordinates, Event]], cut_ts: int, timezone: str
) -> tuple[Plan, dict[TableName, FoldedTable]]:
    """Return the plan and the tables of the cut at `cut_ts`."""
    everything = list(events)
    history = collect_history(everything, timezone)
    plan = build_plan(history, group_rows(everything), cut_ts, timezone)
    rows = [
        (coordinates, event)
        for coordinates, event in everything
        if isinstance(event, RowChange) and event.commit_ts <= cut_ts
    ]
    folder = _Folder(rows, timezone)
    return plan, {mirror.name: folder.table(mirror) for mirror in plan.mirrors}


def belongs(mirror: MirrorPlan, place: Coordinates, event: RowChange) -> bool:
    """Whether a row change is one of the mirror's, by its name at its commit ts."""
    if event.op is Op.SNAPSHOT:
        found = mirror.exported
        return found is not None and (found.ts, found.seed, found.database, found.table) == (
            *(event.commit_ts, place.partition),
            *(event.database, event.table),
        )
    return event.commit_ts > mirror.floor_ts and any(
        (binding.database, binding.table) == (event.database, event.table)
        and event.commit_ts > binding.after_ts
        and (binding.until_ts is None or event.commit_ts <= binding.until_ts)
        for binding in mirror.bindings
    )


class Effect(Protocol):
    """What a resolver makes of a row change."""

    @property
    def is_delete(self) -> bool:
        """Whether the row goes."""
        ...


EffectT_co = TypeVar("EffectT_co", bound=Effect, covariant=True)


class Resolver(Protocol[EffectT_co]):
    """Resolves row changes, as `RowResolver` does."""

    def resolve(
        self,
        op: Op,
        schema_version: int | None,
        *,
        commit_ts: int,
        before: Image | None,
        after: Image | None,
        partial: bool = False,
        shape: RowShape | None = None,
    ) -> Sequence[EffectT_co]:
        """Return what one row change does."""
        ...


def ordered_changes(
    plan: MirrorPlan,
    rows: Iterable[tuple[Coordinates, RowChange]],
    resolver: Resolver[EffectT_co],
    refuse: Callable[[Coordinates, InputError], None],
) -> list[tuple[SequenceKey, Coordinates, EffectT_co]]:
    """Return what the row changes of a table do, in the order in which it takes effect.

    Args:
        plan: the table's plan.
        rows: row changes of any tables.
        resolver: what resolves those of the table.
        refuse: is told of each change that does not fit.
    """
    versions = {schema.version for schema in plan.versions}
    changes: list[tuple[SequenceKey, Coordinates, EffectT_co]] = []
    for place, event in rows:
        if not belongs(plan, place, event):
            continue
        if event.schema_version is not None and event.schema_version not in versions:
            continue  # held
        try:
            resolved = resolver.resolve(
                event.op,
                event.schema_version,
                commit_ts=event.commit_ts,
                before=event.before,
                after=event.after,
                partial=event.handle_key_only,
                shape=event.shape,
            )
        except InputError as error:
            refuse(place, error)
            continue
        for change in resolved:
            sequence = (
                event.commit_ts,
                rank_of(is_delete=change.is_delete, es_only=event.es_only),
                place.topic,
                place.partition,
                place.offset,
                place.index,
            )
            changes.append((sequence, place, change))
    return sorted(changes, key=lambda item: item[0])


HANDED_OVER = Coordinates(topic="", partition=-1, offset=-1, index=-1)
"""Where a row is said to be from that was handed over, and no longer fits."""


class _Folder:
    """Folds tables, and those whose rows were handed over to them."""

    def __init__(self, rows: list[tuple[Coordinates, RowChange]], timezone: str) -> None:
        self._rows = rows
        self._timezone = timezone
        self._folded: dict[str, FoldedTable] = {}

    def table(self, mirror: MirrorPlan) -> FoldedTable:
        """Return the state of one table."""
        if mirror.digest not in self._folded:
            self._folded[mirror.digest] = self._fold(mirror)
        return self._folded[mirror.digest]

    def _fold(self, mirror: MirrorPlan) -> FoldedTable:
        table = FoldedTable(plan=mirror)
        resolver = RowResolver(mirror, self._timezone)
        faults = _Faults(keyed=resolver.keyed)
        casts = _Casts(keyed=resolver.keyed)
        for part in mirror.parts:
            self._take_over(table, part, resolver, faults, casts)
        for commit_ts, coordinates, change in self._changes(table, resolver):
            key = change.key
            if change.removed is not None and not resolver.keyed:
                continue  # the row, and who deleted it before, are gone
            casts.take(commit_ts, change)
            if change.is_delete:
                faults.end(key)
                if change.fault is not None:
                    continue
                if table.copies[key] == 0:
                    table.unknown_deletes += 1
                    continue
                table.copies[key] -= 1
                if table.copies[key] == 0:
                    del table.rows[key]
            elif change.removed is not None:
                faults.end(key)
                table.rows.pop(key, None)
                table.copies[key] = 0
            elif change.fault is not None:
                faults.begin(key, coordinates, change.fault)
            elif not (change.partial and table.copies[key]):
                faults.end(key)
                table.rows[key] = change.values
                table.copies[key] = 1 if resolver.keyed else table.copies[key] + 1
        table.quarantined += [item for items in faults.of.values() for item in items]
        table.casts = casts.counted()
        return table

    def _take_over(
        self,
        table: FoldedTable,
        part: HandoverPart,
        resolver: RowResolver,
        faults: "_Faults",
        casts: "_Casts",
    ) -> None:
        """Put the rows of a part into the table."""
        given = self.table(part.plan)
        table.quarantined += given.quarantined
        casts.inherit(casts_after(given.casts, handover_steps(part, table.plan)))
        carry = part_carrier(part, table.plan, self._timezone)
        for key, row in given.rows.items():
            try:
                carried = carry(row)
                if carried is None:
                    continue
                new_key = resolver.key_of(carried)
            except InputError as error:
                table.quarantined.append((HANDED_OVER, error))
                continue
            if carried.fault is not None:
                for _ in range(given.copies[key]):
                    faults.begin(new_key, HANDED_OVER, carried.fault)
                continue
            table.rows[new_key] = carried.row
            casts.begin(new_key, carried.casts, given.copies[key])
            copies = 1 if resolver.keyed else table.copies[new_key] + given.copies[key]
            table.copies[new_key] = copies

    def _changes(
        self, table: FoldedTable, resolver: RowResolver
    ) -> list[tuple[int, Coordinates, ResolvedChange]]:
        """Return the changes of the table, with their commit ts, in the order they take effect."""

        def refuse(place: Coordinates, error: InputError) -> None:
            table.quarantined.append((place, error))

        found = ordered_changes(table.plan, self._rows, resolver, refuse)
        return [(sequence[0], place, change) for sequence, place, change in found]


class _Casts:
    """Counts the values that were cast in a lenient SQL mode: those of rows that stood then."""

    def __init__(self, *, keyed: bool) -> None:
        self._keyed = keyed
        self._counted: Counter[tuple[str, int]] = Counter()
        self._of: dict[str, Casts] = {}

    def inherit(self, casts: Counter[tuple[str, int]]) -> None:
        """Count what was cast in the table that handed its rows over."""
        self._counted.update(casts)

    def begin(self, key: str, casts: Casts, copies: int = 1) -> None:
        """Take in a row that is put."""
        if self._keyed:
            self._of[key] = casts
        else:
            self._counted.update(dict.fromkeys(casts, copies))

    def take(self, commit_ts: int, change: ResolvedChange) -> None:
        """Take in a change. In a bag the old image of a row says what the row had counted."""
        if not self._keyed:
            count = self._counted.subtract if change.is_delete else self._counted.update
            count(change.casts)
            return
        self._counted.update(standing_casts(self._of.pop(change.key, ()), commit_ts))
        if not change.is_delete and change.removed is None:
            self.begin(change.key, change.casts)

    def counted(self) -> Counter[tuple[str, int]]:
        """Return the counts when all changes are in."""
        for casts in self._of.values():
            self._counted.update(casts)
        self._of.clear()
        return +self._counted


class _Faults:
    """Rows with values that no longer fit, for as long as nothing came after them."""

    def __init__(self, *, keyed: bool) -> None:
        self._keyed = keyed
        self.of: dict[str, list[tuple[Coordinates, ImageError]]] = {}

    def begin(self, key: str, place: Coordinates, fault: ImageError) -> None:
        if self._keyed:
            self.of[key] = []
        self.of.setdefault(key, []).append((place, fault))

    def end(self, key: str) -> None:
        """Let go of one row. With a key there is only one: of several faults the last counts."""
        items = self.of.get(key)
        if items:
            items.pop()
