"""From a row change as sent to what it does to the history of its row.

In: one row change and the `MirrorPlan` of its table. Out: `HistoryChange`s: put or delete, the
row's identity, and its values under the schema at the end of the plan.

The difference to `resolve` is what becomes of a value that a later schema step cannot carry over.
A mirror does without it, because the row has changed since (a table that held such a value would
have refused the DDL). In a history it stands in an old version: there the column is NULL and the
value's last text is kept beside it (`HistoryChange.lost`), so nothing of the version is missing.

An image that does not fit the schema it cites raises `ImageError`, as in `resolve`. Resolving is
pure, so doing it again gives the same answer.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from ticdc_assets.changelog.plan import HandoverPart, MirrorPlan, Removal
from ticdc_assets.changelog.resolve import ResolvedChange, RowCarrier, RowResolver
from ticdc_assets.errors import CastError, ImageError
from ticdc_assets.events import Image, Op
from ticdc_assets.registry.evolution import CanonicalRow, SchemaStep, added_value, diff
from ticdc_assets.schemas import TableSchema
from ticdc_assets.values import cast_is_identity, cast_of, key_text


class VersionEvent(StrEnum):
    """How a version of a row began or ended, where no word of the DDL says it."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"
    EXCHANGE = "exchange partition"
    RECOVER = "recover"
    KEPT = "kept"
    """How it came is not known any more: what told it is no longer kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryChange:
    """One effect on the history of a row.

    Attributes:
        key: identity of the row as one string; in a table without a key the whole row.
        values: canonical text by column of the schema at the end of the plan.
        lost: the texts of values that a schema step could not carry over, by column; they stand in
            `values` as well.
        op: what the change was: insert, update or delete.
        is_delete: whether the row goes.
        partial: True for a put that knows the key alone.
        ends_at: first cut without the version that a put begins, because of partition DDL.
        ended_by: that partition DDL.
    """

    key: str
    values: CanonicalRow
    op: str
    is_delete: bool
    lost: CanonicalRow = field(default_factory=dict[str, str | None])
    partial: bool = False
    ends_at: int | None = None
    ended_by: str | None = None


LenientCarry: TypeAlias = Callable[[CanonicalRow, CanonicalRow], tuple[CanonicalRow, CanonicalRow]]
"""From a row, and which texts in it are of lost values, to the same after schema steps."""


def first_cut_after(ddl_ts: int) -> int:
    """Return the first cut that a DDL has taken effect in: rows of its own commit ts precede it."""
    return ddl_ts + 1


def lenient_carry(steps: Iterable[SchemaStep], timezone: str) -> LenientCarry:
    """Compile `steps` into a function that keeps the text of a value they cannot carry over.

    The row it returns has such a text in its column. The column's new type does not fit it, so
    nothing but the text can be made of it.
    """
    compiled = [_lenient_step(step, timezone) for step in steps if step.changes_rows]

    def carry(row: CanonicalRow, lost: CanonicalRow) -> tuple[CanonicalRow, CanonicalRow]:
        for step in compiled:
            row, lost = step(row, lost)
        return row, lost

    return carry


def _lenient_step(step: SchemaStep, timezone: str) -> LenientCarry:
    columns: list[tuple[str, str, Callable[[str | None], str | None] | None]] = []
    added: list[tuple[str, str | None]] = []
    for item in step.columns:
        name, source = item.column.name, item.source
        if source is None:
            added.append((name, added_value(item.column, timezone, step.at)))
        elif cast_is_identity(source, item.column):
            columns.append((name, source.name, None))
        else:
            columns.append((name, source.name, cast_of(source, item.column, timezone)))

    def carry(row: CanonicalRow, lost: CanonicalRow) -> tuple[CanonicalRow, CanonicalRow]:
        result: CanonicalRow = {}
        still_lost: CanonicalRow = {}
        for name, source, convert in columns:
            if source not in row:
                continue
            text = row[source]
            if source in lost:
                # Its text is of an older type than the one this step casts from.
                result[name] = still_lost[name] = text
            elif convert is None:
                result[name] = text
            else:
                try:
                    result[name] = convert(text)
                except (CastError, ValueError, ArithmeticError):
                    result[name] = still_lost[name] = text
        result.update(added)
        return result, still_lost

    return carry


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
        names = plan.schema.handle_key or [column.name for column in plan.schema.columns]
        columns = {column.name: column for column in plan.schema.columns}
        self._identity = [columns[name] for name in names]
        self._lenient: dict[int, tuple[RowResolver, LenientCarry, RowCarrier]] = {}
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
        values = [row.get(column.name) for column in self._identity]
        if self.keyed and None in values:
            name = self._identity[values.index(None)].name
            raise ImageError("no_key", name, "a value of the handle key", "NULL or nothing")
        return key_text(values, self._identity)

    def resolve(
        self,
        op: Op,
        schema_version: int | None,
        *,
        commit_ts: int,
        before: Image | None,
        after: Image | None,
        partial: bool = False,
    ) -> list[HistoryChange]:
        """Return what one row change does, deletes first; the arguments are `RowResolver`'s.

        Raises:
            ImageError: an image does not fit the schema version, or lacks the key.
        """
        try:
            changes = self._strict.resolve(
                op,
                schema_version,
                commit_ts=commit_ts,
                before=before,
                after=after,
                partial=partial,
            )
        except ImageError:
            changes = None
        if changes is None or any(change.fault is not None for change in changes):
            return self._resolve_leniently(
                op,
                schema_version,
                commit_ts=commit_ts,
                before=before,
                after=after,
                partial=partial,
            )
        return [self._change(change, op, change.key, change.removed_ts) for change in changes]

    def _change(
        self,
        change: ResolvedChange,
        op: Op,
        key: str,
        removed_ts: int | None,
        carried: tuple[CanonicalRow, CanonicalRow] | None = None,
    ) -> HistoryChange:
        values, lost = carried or (change.values, {})
        # A delete names the row that it ends, whatever partition DDL did to that later.
        removed_ts = None if change.is_delete else removed_ts
        return HistoryChange(
            key=key,
            values=values,
            lost=lost,
            op=str(op),
            is_delete=change.is_delete,
            partial=change.partial,
            ends_at=None if removed_ts is None else first_cut_after(removed_ts),
            ended_by=None if removed_ts is None else self._actions[removed_ts],
        )

    def _resolve_leniently(
        self,
        op: Op,
        schema_version: int | None,
        *,
        commit_ts: int,
        before: Image | None,
        after: Image | None,
        partial: bool,
    ) -> list[HistoryChange]:
        """Resolve under the cited schema alone, then carry what can be carried."""
        number = self._strict.number_of(schema_version, commit_ts)
        if number not in self._lenient:
            self._lenient[number] = self._leniently(number)
        resolver, carry, carrier = self._lenient[number]
        changes: list[HistoryChange] = []
        for change in resolver.resolve(
            op,
            schema_version,
            commit_ts=commit_ts,
            before=before,
            after=after,
            partial=partial,
        ):
            removed_ts = None
            if not change.is_delete:
                removed_ts = carrier.carry(change.values, commit_ts).removed_ts
            carried = carry(change.values, {})
            key = self.key_of(carried[0])
            changes.append(self._change(change, op, key, removed_ts, carried))
        return changes

    def _leniently(self, number: int) -> tuple[RowResolver, LenientCarry, RowCarrier]:
        plan, schema = self._plan, self._plan.versions[number]
        alone = replace(
            plan,
            schema=schema,
            versions=plan.versions[: number + 1],
            steps=plan.steps[:number],
            removals=(),
            handover=None,
            earlier=None,
        )
        return (
            RowResolver(alone, self._timezone),
            lenient_carry(plan.steps[number:], self._timezone),
            RowCarrier(schema, replace(plan, steps=()), self._timezone),
        )


class VersionCarrier:
    """Carries versions of one schema to the end of a plan.

    Args:
        schema: the schema that the versions have.
        plan: the plan whose end they are carried to.
        timezone: the changefeed's time zone (IANA name).
        part: how they are handed over, if they are.
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
        self._fit = lenient_carry(first, timezone)
        self._carry = lenient_carry(steps, timezone)
        self._actions = removal_actions(removals)
        # A step may stop a row: whose partition it was in, its own schema tells then.
        self._removing = [
            RowCarrier(schema, taken, timezone, since_ts=since_ts)
            for taken in (plan, replace(plan, steps=()))
            if removals
        ]
        self.changes_rows = bool(removals) or any(step.changes_rows for step in [*first, *steps])

    def carry(self, row: CanonicalRow, lost: CanonicalRow) -> tuple[CanonicalRow, CanonicalRow]:
        """Return a row, and which texts in it are of lost values, under the final schema."""
        return self._carry(*self._fit(row, lost))

    def end(self, row: CanonicalRow, valid_from: int) -> tuple[int, str] | None:
        """Return the first cut without a version that nothing ended yet, and what ends it.

        Args:
            row: the version's row before it is carried.
            valid_from: first cut that has it.
        """
        for carrier in self._removing:
            try:
                removed_ts = carrier.carry(self._fit(row, {})[0], valid_from).removed_ts
            except ImageError:
                continue
            if removed_ts is None:
                return None
            return first_cut_after(removed_ts), self._actions[removed_ts]
        return None


def removal_actions(removals: Iterable[Removal]) -> dict[int, str]:
    """Return by commit ts what the partition DDL was."""
    return {removal.ts: f"{removal.action} partition" for removal in removals}


def surely_given(given: Callable[[CanonicalRow], bool], row: CanonicalRow) -> bool:
    """Return whether `hands_over` says so of a row; of one that does not tell it says no."""
    try:
        return given(row)
    except ImageError:
        return False
