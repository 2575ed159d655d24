"""From a row change as sent to its effect on the history of its row.

In: one row change and the `MirrorPlan` of its table. Out: `HistoryChange`s: put or delete, the
row's identity, and its values under the schema at the end of the plan.

It differs from `resolve` for a value that a later schema step cannot carry over. A mirror does not
need the value, because the row has changed since (TiDB would have refused the DDL otherwise). In a
history the value belongs to an old version: there the column is NULL and `HistoryChange.lost` has
the value's last text, so the version is complete. The same holds for a value that would have been
cast as in a lenient SQL mode, if its version ended before the DDL; a version of that time has
TiDB's cast of the value. The end of the version decides between the two (`HistoryChange.kept`,
`texts_at`).

An image that does not fit the schema it cites raises `ImageError`, as in `resolve`. Resolving is
pure.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NotRequired, TypeAlias, TypedDict, Unpack

from ticdc_assets.base.errors import ImageError
from ticdc_assets.changelog.carrying import CarriedRow, RowCarrier
from ticdc_assets.changelog.plan import HandoverPart, MirrorPlan, Removal
from ticdc_assets.changelog.resolve import ResolvedChange, RowResolver
from ticdc_assets.model.events import Image, Op
from ticdc_assets.model.schemas import RowShape, TableSchema
from ticdc_assets.registry.evolution import (
    CanonicalRow,
    RowTransform,
    SchemaStep,
    StepNotes,
    diff,
    key_names,
)


class VersionEvent(StrEnum):
    """How a version of a row began or ended, where it was not a statement of a DDL."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"
    EXCHANGE = "exchange partition"
    RECOVER = "recover"
    KEPT = "kept"
    """How the version came is no longer known: the records of it were removed."""


KeptText: TypeAlias = tuple[int, str, str]
"""Commit ts of a DDL, a column, and its value's text in versions that ended before the DDL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryChange:
    """One operation on the history of a row.

    Attributes:
        key: identity of the row as one string; in a table without a key the whole row.
        values: canonical text by column of the schema at the end of the plan.
        lost: the texts of values that a schema step could not carry over, by column; they are in
            `values` as well.
        kept: the texts of values that were cast as in a lenient SQL mode, for a version that ended
            before the DDL.
        op: the kind of change: insert, update or delete.
        is_delete: whether the row goes.
        partial: True for a put with the key alone.
        ends_at: first cut without the version that a put begins, because of partition DDL.
        ended_by: that partition DDL.
    """

    key: str
    values: CanonicalRow
    op: str
    is_delete: bool
    lost: CanonicalRow = field(default_factory=dict[str, str | None])
    kept: tuple[KeptText, ...] = ()
    partial: bool = False
    ends_at: int | None = None
    ended_by: str | None = None


def texts_at(kept: Iterable[KeptText], valid_to: int | None) -> dict[str, str]:
    """Return the texts, by column, that a version has instead of values cast by a later DDL.

    Args:
        kept: the version's texts, in the order of the DDL.
        valid_to: first cut without the version, None if it is current.
    """
    texts: dict[str, str] = {}
    if valid_to is not None:
        for ddl_ts, name, text in kept:
            if valid_to <= ddl_ts:
                texts.setdefault(name, text)
    return texts


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepingRow:
    """A row of a history on its way through schema steps.

    Attributes:
        row: its values; those that a step could not carry over are their last texts.
        lost: these texts, by column.
        kept: texts of values that were cast as in a lenient SQL mode, in the order of the DDL.
    """

    row: CanonicalRow
    lost: CanonicalRow = field(default_factory=dict[str, str | None])
    kept: tuple[KeptText, ...] = ()


KeepingCarry: TypeAlias = Callable[[KeepingRow], KeepingRow]
"""From a row before schema steps to the row after them."""


def first_cut_after(ddl_ts: int) -> int:
    """Return the first cut that includes a DDL: rows of its own commit ts precede it."""
    return ddl_ts + 1


def keeping_carry(
    steps: Sequence[SchemaStep],
    timezone: str,
    *,
    key: Collection[str] = (),
    casts: bool = True,
) -> KeepingCarry:
    """Compile `steps` into a function that keeps the text of values that they cannot carry over.

    The returned row has such a text in its column, though it does not fit the column's new type.

    Args:
        steps: the steps.
        timezone: the changefeed's time zone (IANA name).
        key: the final key, whose values stay apart.
        casts: whether values are cast as in a lenient SQL mode; not those of a version that ended
            before the steps.
    """
    compiled = [
        _keeping_step(step, timezone, exact, casts)
        for step, exact in zip(steps, key_names(steps, key), strict=True)
        if step.changes_rows
    ]

    def carry(row: KeepingRow) -> KeepingRow:
        for step in compiled:
            row = step(row)
        return row

    return carry


def _keeping_step(
    step: SchemaStep, timezone: str, exact: Collection[str], casts: bool
) -> KeepingCarry:
    ddl_ts, renamed = step.ddl_ts, step.renamed
    if not casts:
        step = replace(
            step, columns=tuple(replace(item, is_modified=False) for item in step.columns)
        )
    transform = RowTransform(step, timezone, exact=exact)
    names = {name: source for source, name in renamed.items()}

    def carry(before: KeepingRow) -> KeepingRow:
        # A lost text is of an older type than the one this step casts from.
        known = {name: text for name, text in before.row.items() if name not in before.lost}
        notes = StepNotes()
        row = transform(known, notes)
        lost = {renamed[name]: text for name, text in before.lost.items() if name in renamed} | {
            name: text for name, text, _ in notes.lost
        }
        kept = [(ts, renamed[name], text) for ts, name, text in before.kept if name in renamed]
        for name in notes.cast:
            text = known[names[name]]
            assert ddl_ts is not None
            assert text is not None
            kept.append((ddl_ts, name, text))
        return KeepingRow(row=row | lost, lost=lost, kept=tuple(kept))

    return carry


class SentImages(TypedDict):
    """The keyword arguments of `RowResolver.resolve`."""

    commit_ts: int
    before: Image | None
    after: Image | None
    partial: NotRequired[bool]
    shape: NotRequired[RowShape | None]


class HistoryResolver:
    """Resolves row changes for the history of one table.

    Args:
        plan: the table's plan.
        timezone: the changefeed's time zone (IANA name).
    """

    def __init__(self, plan: MirrorPlan, timezone: str) -> None:
        self._plan = plan
        self._timezone = timezone
        self._strict = RowResolver(plan, timezone)
        self._keeping: dict[int, tuple[RowResolver, KeepingCarry, RowCarrier]] = {}
        self._actions = removal_actions(plan.removals)

    @property
    def keyed(self) -> bool:
        """Whether rows have an identity."""
        return self._strict.keyed

    def key_of(self, row: CanonicalRow) -> str:
        """Return the identity of a row under the final schema, texts of lost values included.

        Raises:
            ImageError: the row has no value in a column of the key.
        """
        return self._strict.key_of(CarriedRow(row=row))

    def resolve(
        self, op: Op, schema_version: int | None, **images: Unpack[SentImages]
    ) -> list[HistoryChange]:
        """Return the operations of one row change, deletes first; arguments as in `RowResolver`.

        Raises:
            ImageError: an image does not fit the schema version, or lacks the key.
        """
        try:
            changes = self._strict.resolve(op, schema_version, **images)
        except ImageError:
            changes = None
        if changes is None or any(change.fault is not None or change.casts for change in changes):
            return self._resolve_keeping(op, schema_version, images)
        return [self._change(change, op, change.key, change.removed_ts) for change in changes]

    def _change(
        self,
        change: ResolvedChange,
        op: Op,
        key: str,
        removed_ts: int | None,
        carried: KeepingRow | None = None,
    ) -> HistoryChange:
        carried = carried or KeepingRow(row=change.values)
        # A delete names the row that it ends, whatever partition DDL does to the row later.
        removed_ts = None if change.is_delete else removed_ts
        return HistoryChange(
            key=key,
            values=carried.row,
            lost=carried.lost,
            kept=carried.kept,
            op=str(op),
            is_delete=change.is_delete,
            partial=change.partial,
            ends_at=None if removed_ts is None else first_cut_after(removed_ts),
            ended_by=None if removed_ts is None else self._actions[removed_ts],
        )

    def _resolve_keeping(
        self, op: Op, schema_version: int | None, images: SentImages
    ) -> list[HistoryChange]:
        """Resolve under the cited schema alone, then carry the values that can be carried."""
        commit_ts = images["commit_ts"]
        number = self._strict.number_of(schema_version, commit_ts)
        if number not in self._keeping:
            self._keeping[number] = self._kept(number)
        resolver, carry, carrier = self._keeping[number]
        changes: list[HistoryChange] = []
        for change in resolver.resolve(op, schema_version, **images):
            if change.fault is not None:
                raise change.fault  # no step is left: the image itself cannot be read
            removed_ts = None
            if not change.is_delete:
                removed_ts = carrier.carry(change.values, commit_ts).removed_ts
            carried = carry(KeepingRow(row=change.values))
            key = self.key_of(carried.row)
            changes.append(self._change(change, op, key, removed_ts, carried))
        return changes

    def _kept(self, number: int) -> tuple[RowResolver, KeepingCarry, RowCarrier]:
        plan, schema = self._plan, self._plan.versions[number]
        alone = replace(
            plan,
            schema=schema,
            versions=plan.versions[: number + 1],
            steps=plan.steps[:number],
            removals=(),
            parts=(),
            earlier=None,
        )
        return (
            RowResolver(alone, self._timezone),
            keeping_carry(plan.steps[number:], self._timezone, key=plan.schema.handle_key),
            RowCarrier(schema, replace(plan, steps=()), self._timezone),
        )


class VersionCarrier:
    """Carries versions of one schema to the end of a plan.

    Args:
        schema: the schema that the versions have.
        plan: the plan whose end they are carried to.
        timezone: the changefeed's time zone (IANA name).
        part: the part by which they are handed over, if they are.
        since_ts: partition DDL below it has ended its versions already.
    """

    def __init__(
        self,
        schema: TableSchema,
        plan: MirrorPlan,
        timezone: str,
        *,
        part: HandoverPart | None = None,
        since_ts: int = 0,
    ) -> None:
        first = [] if part is None else [diff(schema, part.schema)]
        schema = schema if part is None else part.schema
        steps = plan.steps_since(schema.version)
        removals = [removal for removal in plan.removals if removal.ts >= since_ts]
        key = plan.schema.handle_key
        self._fit = keeping_carry(first, timezone)
        self._carry = keeping_carry(steps, timezone, key=key)
        # A version that has ended did so before its remaining steps.
        self._carry_ended = keeping_carry(steps, timezone, key=key, casts=False)
        self._actions = removal_actions(removals)
        # A step may refuse a row: its own schema shows then in which partition it was.
        self._removing = [
            RowCarrier(schema, taken, timezone, since_ts=since_ts)
            for taken in (plan, replace(plan, steps=()))
            if removals
        ]
        self.changes_rows = bool(removals) or any(step.changes_rows for step in [*first, *steps])

    def carry(self, row: CanonicalRow, lost: CanonicalRow, *, ended: bool) -> KeepingRow:
        """Return a version's row under the final schema.

        Args:
            row: the row.
            lost: which texts in it are of lost values.
            ended: whether the version has ended.
        """
        fitting = self._fit(KeepingRow(row=row, lost=lost))
        return self._carry_ended(fitting) if ended else self._carry(fitting)

    def end(self, row: CanonicalRow, valid_from: int) -> tuple[int, str] | None:
        """Return the first cut without a version that is current so far, and what ends it.

        Args:
            row: the version's row before it is carried.
            valid_from: first cut that has it.
        """
        for carrier in self._removing:
            try:
                removed_ts = carrier.carry(
                    self._fit(KeepingRow(row=row)).row, valid_from
                ).removed_ts
            except ImageError:
                continue
            if removed_ts is None:
                return None
            return first_cut_after(removed_ts), self._actions[removed_ts]
        return None


def removal_actions(removals: Iterable[Removal]) -> dict[int, str]:
    """Return the action of each partition DDL by commit ts."""
    return {removal.ts: f"{removal.action} partition" for removal in removals}


def surely_given(given: Callable[[CanonicalRow], bool], row: CanonicalRow) -> bool:
    """Return the answer of `hands_over` for a row; no for a row that it refuses."""
    try:
        return given(row)
    except ImageError:
        return False
