"""What schema steps and partition DDL do to the versions of a history's rows.

In: a row under one schema version of a table, and the table's `MirrorPlan`. Out: the row under the
schema at the end of the plan (`CarriedRow`), and what ends it.

It differs from `carrying` for a value that a later schema step cannot carry over. A mirror does not
need the value, because the row has changed since (TiDB would have refused the DDL otherwise). In a
history the value belongs to an old version: there the column is NULL and `CarriedRow.texts` has the
value's last text, so the version is complete. The same holds for a value that would have been cast
as in a lenient SQL mode, if its version ended before the DDL; a version of that time has TiDB's
cast of the value. The end of the version decides between the two (`CarriedRow.kept`, `texts_at`).

Carrying is pure.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final, TypeAlias

from ticdc_assets.base.errors import ImageError
from ticdc_assets.changelog.carrying import CarriedRow, KeptText, RowCarrier
from ticdc_assets.changelog.plan import HandoverPart, MirrorPlan, Removal
from ticdc_assets.model.schemas import TableSchema
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


def texts_at(kept: Iterable[KeptText], valid_to: int | None) -> dict[str, str]:
    """Return the texts, by column, that a version has instead of values cast by a later DDL.

    `kept` is in the order of the DDL; `valid_to` is the first cut without the version, None if it
    is current.
    """
    texts: dict[str, str] = {}
    if valid_to is not None:
        for ddl_ts, name, text in kept:
            if valid_to <= ddl_ts:
                texts.setdefault(name, text)
    return texts


KeepingCarry: TypeAlias = Callable[[CarriedRow], CarriedRow]
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
        casts: False for a version that ended before the steps: no value is cast leniently.
    """
    compiled = [
        _keeping_step(step, timezone, exact, casts)
        for step, exact in zip(steps, key_names(steps, key), strict=True)
        if step.changes_rows
    ]

    def carry(row: CarriedRow) -> CarriedRow:
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

    def carry(before: CarriedRow) -> CarriedRow:
        # A lost text is of an older type than the one this step casts from.
        known = {name: text for name, text in before.row.items() if name not in before.texts}
        notes = StepNotes()
        row = transform(known, notes)
        texts = {renamed[name]: text for name, text in before.texts.items() if name in renamed} | {
            name: text for name, text, _ in notes.lost
        }
        kept = [(ts, renamed[name], text) for ts, name, text in before.kept if name in renamed]
        for name in notes.cast:
            text = known[names[name]]
            assert ddl_ts is not None
            assert text is not None
            kept.append((ddl_ts, name, text))
        return CarriedRow(row=row | texts, texts=texts, kept=tuple(kept))

    return carry


class VersionCarrier:
    """Carries versions of one schema to the end of a plan, as a part of a handover if there is one.

    Partition DDL below `since_ts` has ended its versions already.
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
        removals = any(removal.ts >= since_ts for removal in plan.removals)
        key = plan.schema.handle_key
        self._fit = keeping_carry(first, timezone)
        self._carry = keeping_carry(steps, timezone, key=key)
        # A version that has ended did so before its remaining steps.
        self._carry_ended = keeping_carry(steps, timezone, key=key, casts=False)
        self._removing = [
            RowCarrier(schema, taken, timezone, since_ts=since_ts)
            for taken in (plan, replace(plan, steps=()))
            if removals
        ]
        self.changes_rows = removals or any(step.changes_rows for step in [*first, *steps])

    def carry(self, row: CanonicalRow, texts: CanonicalRow, *, ended: bool) -> CarriedRow:
        """Return a version's row under the final schema.

        `texts` says which texts in it do not fit the types of their columns.
        """
        fitting = self._fit(CarriedRow(row=row, texts=texts))
        return self._carry_ended(fitting) if ended else self._carry(fitting)

    def keep(self, row: CanonicalRow, commit_ts: int) -> CarriedRow:
        """Return a row that a schema step does not carry over; errors as of `RowCarrier.carry`."""
        # A step refused the row: its own schema shows in which partition it was.
        removing = [carrier.carry(row, commit_ts).removed for carrier in self._removing[-1:]]
        removed = next(iter(removing), None)
        return replace(self._carry(CarriedRow(row=row)), removed=removed)

    def end(self, row: CanonicalRow, valid_from: int) -> "VersionEnd":
        """Return what ends a version that is current so far, first in the cut `valid_from`."""
        for carrier in self._removing:
            try:
                return end_by(carrier.carry(self._fit(CarriedRow(row=row)).row, valid_from).removed)
            except ImageError:
                continue
        return NO_END


VersionEnd: TypeAlias = tuple[int, str] | tuple[None, None]
"""The first cut without a version, and what ends it; None and None for a version that lasts."""

NO_END: Final[VersionEnd] = (None, None)


def end_by(removal: Removal | None) -> VersionEnd:
    """Return the end of versions whose rows partition DDL removed."""
    if removal is None:
        return NO_END
    return first_cut_after(removal.ts), f"{removal.action} partition"


def surely_given(given: Callable[[CanonicalRow], bool], row: CanonicalRow) -> bool:
    """Return the answer of `hands_over` for a row; no for a row that it refuses."""
    try:
        return given(row)
    except ImageError:
        return False
