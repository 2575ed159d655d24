"""Carrying rows of an earlier schema to the schema at a cut.

In: a row under one schema version of a table, its commit ts, and the table's `MirrorPlan`. Out: the
row under the schema at the cut (`CarriedRow`), through the schema steps in between, with the values
that did not survive them; and whether partition DDL removed it. A row that was handed over to
another table is carried to that table. Carrying is pure.

Mirrors and histories differ in a value that a later schema step cannot carry over. A mirror does
not need the value, because the row has changed since (TiDB would have refused the DDL otherwise).
In a history the value belongs to an old version: there the column is NULL and `CarriedRow.texts`
has the value's last text, so the version is complete. The same holds for a value that would have
been cast as in a lenient SQL mode, if its version ended before the DDL; a version of that time has
TiDB's cast of the value. The end of the version decides between the two (`CarriedRow.kept`,
`texts_at`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from itertools import accumulate, chain
from typing import Final, NamedTuple, TypeAlias

from ticdc_assets.base.errors import CastError, ImageError, PartitionError, shorten
from ticdc_assets.changelog.plan import HandoverPart, MirrorPlan, PartitionRows, Removal
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.values import Cast, TextCast, cast_is_identity, cast_of, lenient_cast_of
from ticdc_assets.registry.evolution import (
    CanonicalRow,
    Casts,
    Origin,
    SchemaStep,
    added_value,
    diff,
    key_names,
)
from ticdc_assets.registry.partitions import partition_test

KeptText: TypeAlias = tuple[int, str, str]
"""Commit ts of a DDL, a column, and its value's text in versions that ended before the DDL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedRow:
    """A row under a later schema.

    Attributes:
        row: its values. On the way, and in a history, those that did not survive a schema step have
            their last texts; in a mirror they are absent.
        removed: the partition DDL that removed it, None if none did.
        fault: why a value did not survive, None if all did; a history has no faults.
        texts: the last texts, by column, of values that did not survive.
        kept: the texts of values that were cast as in a lenient SQL mode, in the order of the DDL.
    """

    row: CanonicalRow
    removed: Removal | None = None
    fault: ImageError | None = None
    texts: CanonicalRow = field(default_factory=dict[str, str | None])
    kept: tuple[KeptText, ...] = ()

    @property
    def casts(self) -> Casts:
        """The columns of these values, each with its DDL; nothing counts of a row with a fault."""
        return () if self.fault is not None else tuple((name, ts) for ts, name, _ in self.kept)

    @property
    def fitting(self) -> CanonicalRow:
        """The values that survived."""
        if not self.texts:
            return self.row
        return {name: text for name, text in self.row.items() if name not in self.texts}


class RowTransform:
    """A step compiled into a function from a row of the old schema to one of the new.

    A column that is absent in the row stays absent, and so does an added virtual one, which no row
    has.

    Args:
        exact: columns of the new schema that get no lenient casts: those of the key, as TiDB
            refuses a DDL that would merge two rows.
        casts: False for rows that ended before the step: none of their values is cast leniently.
    """

    def __init__(
        self,
        step: SchemaStep,
        timezone: str,
        *,
        exact: Collection[str] = frozenset(),
        casts: bool = True,
    ) -> None:
        self._renamed = step.renamed
        self._ddl_ts = step.ddl_ts or 0
        self._kept: list[tuple[str, str]] = []
        self._cast: list[tuple[str, str, Cast, TextCast | None]] = []
        self._added: list[tuple[str, str | None]] = []
        self._absent: list[str] = []
        for item in step.columns:
            column, source = item.column, item.source
            if source is None and column.virtual:
                self._absent.append(column.name)
            elif source is None:
                self._added.append((column.name, added_value(item, timezone, step.at)[0]))
            elif cast_is_identity(source, column):
                self._kept.append((column.name, source.name))
            else:
                convert = cast_of(source, column, timezone)
                lenient = None
                if casts and item.may_cast_leniently and column.name not in exact:
                    lenient = lenient_cast_of(source, column)
                self._cast.append((column.name, source.name, convert, lenient))

    @property
    def origins(self) -> dict[str, Origin] | None:
        """Where each column of the new schema comes from; None if values are cast."""
        if self._cast:
            return None
        sources: dict[str, Origin] = {name: (source, None) for name, source in self._kept}
        added: dict[str, Origin] = {name: (None, value) for name, value in self._added}
        return sources | added | dict.fromkeys(self._absent, (None, None))

    def __call__(self, before: CarriedRow) -> CarriedRow:
        """Return the row under the new schema."""
        # A lost text is of an older type than the one this step casts from.
        old = before.fitting
        row: CanonicalRow = {name: old[source] for name, source in self._kept if source in old}
        fault, lost, lenient_texts = before.fault, dict[str, str | None](), list[KeptText]()
        for name, source, convert, lenient in self._cast:
            if source not in old:
                continue
            text = old[source]
            try:
                row[name] = convert(text)
            except CastError as error:
                try:
                    if lenient is None or text is None:
                        raise
                    row[name] = lenient(text)
                    lenient_texts.append((self._ddl_ts, name, text))
                except CastError:
                    lost[name] = text
                    fault = fault or ImageError(
                        error.reason, error.position, error.expected, error.got
                    )
        for name, default in self._added:
            row[name] = default
        renamed = self._renamed
        texts = {renamed[name]: text for name, text in before.texts.items() if name in renamed}
        texts |= lost
        earlier = [(ts, renamed[name], text) for ts, name, text in before.kept if name in renamed]
        return CarriedRow(
            row=row | texts if texts else row,
            removed=before.removed,
            fault=fault,
            texts=texts,
            kept=(*earlier, *lenient_texts),
        )


_RowTest: TypeAlias = Callable[[CanonicalRow], bool]


class _Removing(NamedTuple):
    """A partition DDL, and the test whether it removed a row of the schema at that place."""

    removal: Removal
    test: _RowTest


_Stage: TypeAlias = RowTransform | _Removing


class UpgradePath:
    """The way of a table's rows to the cut: schema steps and partition DDL.

    A table may have thousands of both, and rows that cite thousands of its versions. So all
    versions share one path, and a test is compiled when the first row needs it.
    """

    def __init__(self, plan: MirrorPlan, timezone: str, *, since_ts: int = 0) -> None:
        self._timezone = timezone
        self._removals = [removal for removal in plan.removals if removal.ts >= since_ts]
        self._versions = list(accumulate((item.version for item in self._removals), max))
        self._from_versions = [step.from_version for step in plan.steps]
        self.stamps = [removal.ts for removal in self._removals]
        self._stages: list[_Stage] = []
        # Where each step is in the stages, and their end.
        self._places: list[int] = []
        schemas = {item.version: item for item in plan.versions}
        keys = key_names(plan.steps, plan.schema.handle_key)
        for number, step in enumerate(plan.steps):
            self._places.append(len(self._stages))
            if step.changes_rows:
                self._stages.append(RowTransform(step, timezone, exact=keys[number]))
            for due in range(self._due_before(number), self._due_before(number + 1)):
                self._stages.append(self.removing(due, schemas[step.to_version]))
        self._places.append(len(self._stages))
        # For so many stages at the end.
        self._origins: list[dict[str, Origin] | None] = [
            {column.name: (column.name, None) for column in plan.schema.columns}
        ]

    def from_version(self, version: int) -> tuple[int, Sequence[_Stage]]:
        """Return the way of rows of a schema version.

        Returns:
            How many of the partition DDLs come before the next step, and everything from that step
            on.
        """
        number = bisect_left(self._from_versions, version)
        return self._due_before(number), self._stages[self._places[number] :]

    def origins(self, version: int) -> dict[str, Origin] | None:
        """Return where each column at the cut comes from in rows of a schema version.

        None if a step casts values, or partition DDL after a step may have removed rows.
        """
        left = len(self._stages) - self._places[bisect_left(self._from_versions, version)]
        while len(self._origins) <= left:
            later, stage = self._origins[-1], self._stages[-len(self._origins)]
            stage_origins = stage.origins if isinstance(stage, RowTransform) else None
            origins = stage_origins and later and _origins_through(later, stage_origins)
            self._origins.append(origins)
        return self._origins[left]

    def _due_before(self, number: int) -> int:
        """Return how many of the partition DDLs come before a step, or the end."""
        if number == len(self._from_versions):
            return len(self._removals)
        return bisect_right(self._versions, self._from_versions[number])

    def removing(self, number: int, schema: TableSchema) -> _Removing:
        """Return a partition DDL with the test whether it removed a row of `schema`."""
        removal = self._removals[number]
        compiled = cache(lambda: _partition_test(removal.rows, schema, self._timezone))

        def test(row: CanonicalRow) -> bool:
            return compiled()(row)

        return _Removing(removal, test)


def _origins_through(later: Mapping[str, Origin], step: Mapping[str, Origin]) -> dict[str, Origin]:
    """Return where columns come from before a step, by where they come from after it."""
    return {name: item if item[0] is None else step[item[0]] for name, item in later.items()}


class RowCarrier:
    """Carries rows of one schema to the schema at the cut, through all schema steps and DDL.

    Args:
        since_ts: partition DDL below it has removed its rows already.
        first: a step that rows take to `schema` before all others.
        path: the way of the plan's rows since `since_ts`, if it is known already.
    """

    def __init__(
        self,
        schema: TableSchema,
        plan: MirrorPlan,
        timezone: str,
        *,
        since_ts: int = 0,
        first: SchemaStep | None = None,
        path: UpgradePath | None = None,
    ) -> None:
        self._schema = schema
        self._path = path or UpgradePath(plan, timezone, since_ts=since_ts)
        self._count, self._stages = self._path.from_version(schema.version)
        self._soon: dict[int, _Stage] = {}
        self._first: list[_Stage] = []
        if first is not None and first.changes_rows:
            self._first.append(RowTransform(first, timezone))

    def kept_above(self) -> int:
        """Return the commit ts above which partition DDL before the next step removed no row."""
        return self._path.stamps[self._count - 1] if self._count else 0

    def origins(self) -> dict[str, Origin] | None:
        """Return where each column at the cut comes from; see `UpgradePath.origins`."""
        return None if self._first else self._path.origins(self._schema.version)

    def carry(self, row: CanonicalRow, commit_ts: int) -> CarriedRow:
        """Return the row under the final schema; earlier partition DDL did not touch it.

        Raises:
            ImageError: the row lacks the columns of its partition.
        """
        carried = CarriedRow(row=row)
        for stage in chain(self._first, self._due(commit_ts), self._stages):
            if isinstance(stage, RowTransform):
                carried = stage(carried)
                continue
            # A row that no longer fitted no longer existed.
            exists = carried.removed is None and carried.fault is None
            if exists and commit_ts <= stage.removal.ts and _asked(stage.test, carried.row):
                carried = replace(carried, removed=stage.removal)
        return replace(carried, row=carried.fitting) if carried.texts else carried

    def _due(self, commit_ts: int) -> Iterator[_Stage]:
        """Yield the partition DDL before the next step that may have removed a row."""
        start = bisect_left(self._path.stamps, commit_ts, 0, self._count)
        for number in range(start, self._count):
            stage = self._soon.get(number)
            if stage is None:
                stage = self._soon[number] = self._path.removing(number, self._schema)
            yield stage


def hands_over(part: HandoverPart, timezone: str) -> Callable[[CanonicalRow], bool]:
    """Return the test whether a row of a part's table was handed over.

    It raises ImageError for a row that lacks the columns of its partition.
    """
    tests = [
        (partition_test(rows.partitions, rows.names, part.plan.schema, timezone), wanted)
        for rows, wanted in ((part.within, True), (part.outside, False))
        if rows is not None
    ]
    return lambda row: all(_asked(test, row) is wanted for test, wanted in tests)


def handover_steps(part: HandoverPart, plan: MirrorPlan) -> list[SchemaStep]:
    """Return the steps from a part's table to the end of the plan of the table that received it."""
    return [diff(part.plan.schema, part.schema), *plan.steps_since(part.schema.version)]


def part_carrier(
    part: HandoverPart, plan: MirrorPlan, timezone: str
) -> Callable[[CanonicalRow], CarriedRow | None]:
    """Return the function from rows of a part's table to those of the table that received them.

    It returns None for a row that was not handed over, or that partition DDL removed since, and
    raises ImageError as `RowCarrier` does. `plan` is that of the receiving table.
    """
    is_given = hands_over(part, timezone)
    first = diff(part.plan.schema, part.schema)
    carrier = RowCarrier(part.schema, plan, timezone, first=first)

    def carry(row: CanonicalRow) -> CarriedRow | None:
        if not is_given(row):
            return None
        # All partition DDL that the plan still has came after the handover.
        carried = carrier.carry(row, 0)
        return carried if carried.removed is None else None

    return carry


def _asked(test: Callable[[CanonicalRow], bool], row: CanonicalRow) -> bool:
    """Return whether a row is in some partitions; a row without their columns is refused."""
    try:
        return test(row)
    except PartitionError as error:
        raise ImageError(
            "unknown_partition", "row", "columns of the row's partition", shorten(str(error), 200)
        ) from error


def _partition_test(rows: PartitionRows, schema: TableSchema, timezone: str) -> _RowTest:
    """Compile a test; one that cannot be compiled refuses each row, and is not compiled again."""
    try:
        return partition_test(rows.partitions, rows.names, schema, timezone)
    except PartitionError as error:
        refusal = error

    def refuse(_: CanonicalRow) -> bool:
        raise refusal

    return refuse


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
        RowTransform(step, timezone, exact=exact, casts=casts)
        for step, exact in zip(steps, key_names(steps, key), strict=True)
        if step.changes_rows
    ]

    def carry(row: CarriedRow) -> CarriedRow:
        for step in compiled:
            row = step(row)
        return replace(row, fault=None)

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
