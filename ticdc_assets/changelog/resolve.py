"""From a row change as sent to what it does to its mirror.

In: one row change (op, commit ts, cited schema version, images as sent) and the `MirrorPlan` of
its table. A row that cites no version is read with the one in force at its commit ts.
Out: `ResolvedChange`s: put or delete, the row's identity, and its values as canonical text under
the mirror's schema at the cut, that is, carried through every schema step after the version the
row cites. So the order in which rows and schema changes are applied does not matter: every change
arrives in the final shape, and the last one of a key wins.

Partition DDL takes rows away without row events. So each row is asked, under the schema of that
moment, whether it was one of those; if so, the change says when (`ResolvedChange.removed_ts`).

A column that a `before` image lacks did not change: it is taken from the `after` image. A change
sent as its handle key alone puts what is known; see `ResolvedChange.partial`. Where no key is known
such an image does not say which row it is of and is refused: Canal-JSON, which names primary keys
only, may cut a DELETE to a unique key that no DDL has told of.

An image that does not fit the schema it cites raises `ImageError`; the caller quarantines that
change alone. A row that fits, but has a value which a later schema step cannot carry over, is a
change with a `fault`: it only matters if nothing comes after it, as TiDB lets a column be narrowed
when the rows that are there fit. Resolving is pure, so doing it again gives the same answer.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ticdc_assets.changelog.plan import HandoverPart, MirrorPlan, PartitionRows
from ticdc_assets.errors import ImageError, shorten
from ticdc_assets.events import Image, Op, PhysicalValue
from ticdc_assets.registry.evolution import CanonicalRow, LostValue, diff, row_transform
from ticdc_assets.registry.partitions import PartitionError, partition_test
from ticdc_assets.schemas import TableSchema
from ticdc_assets.tso import MAX_TSO
from ticdc_assets.values import canonical_of, key_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedChange:
    """One effect on a mirror.

    Attributes:
        key: identity of the row as one string; in a table without a key the whole row.
        values: canonical text by column of the mirror: of the row put, or of the row deleted.
        is_delete: whether the row goes.
        partial: True for a put that knows the key alone: it brings a row that is not there, and
            leaves the one that is there as it was.
        missing: columns of the cited schema that the after image lacks (virtual generated ones).
        fault: why the row does not survive a later schema step, None if it does; `values` lacks
            the columns that do not. The fault of a put is void if the row changes again.
        removed_ts: commit ts of the partition DDL that took this row away; None if none did. A put
            is followed by the row's end then. In a table without a key a delete of such a row, too,
            was of one that is gone.
    """

    key: str
    values: CanonicalRow
    is_delete: bool
    partial: bool = False
    missing: tuple[str, ...] = ()
    fault: ImageError | None = None
    removed_ts: int | None = None


class RowResolver:
    """Resolves row changes of one mirror.

    Args:
        plan: the mirror's plan at the cut.
        timezone: the changefeed's time zone (IANA name).
    """

    def __init__(self, plan: MirrorPlan, timezone: str) -> None:
        self._plan = plan
        self._key = plan.schema.handle_key
        self._key_columns = [
            column for name in self._key for column in plan.schema.columns if column.name == name
        ]
        self._columns = plan.schema.columns
        self._versions = {
            schema.version: _Version(schema, plan, timezone) for schema in plan.versions
        }
        self._numbers = [schema.version for schema in plan.versions]

    @property
    def keyed(self) -> bool:
        """Whether rows have an identity; without one the mirror is a bag of rows."""
        return bool(self._key)

    def resolve(
        self,
        op: Op,
        schema_version: int | None,
        *,
        commit_ts: int,
        before: Image | None,
        after: Image | None,
        partial: bool = False,
    ) -> list[ResolvedChange]:
        """Return what one row change does, deletes first.

        Args:
            op: what the change did.
            schema_version: version that the row cites, None if rows cite none.
            commit_ts: its commit ts.
            before: image before the change.
            after: image after the change.
            partial: whether the images were cut to the handle key.

        Raises:
            ImageError: an image does not fit the schema version, or lacks the key.
        """
        if partial and not self._key:
            raise ImageError(
                "partial_image", "handleKeyOnly", "whole images", "images cut to the handle key"
            )
        version = self._version(schema_version, commit_ts)
        changes: list[ResolvedChange] = []
        old_key: str | None = None
        if before is not None and op is not Op.INSERT:
            if after is not None and len(before) < len(after):
                before = {**after, **before}
            row, missing = version.read(before, "before")
            if schema_version is None and not self._key:
                self._require_whole(missing)
            # A row with a key ends whatever else is known of it.
            carried = version.carry(row, MAX_TSO if self._key else commit_ts, "before")
            old_key = self._key_of(carried, "before")
            changes.append(
                ResolvedChange(
                    key=old_key,
                    values=carried.row,
                    is_delete=True,
                    fault=None if self._key else carried.fault,
                    removed_ts=carried.removed_ts,
                )
            )
        if after is not None and op is not Op.DELETE:
            row, missing = version.read(after, "after")
            carried = version.carry(row, commit_ts, "after")
            key = self._key_of(carried, "after")
            if key == old_key and self._key:
                # The row keeps its identity: the put replaces it, no delete is needed. A bag
                # counts: there the one that goes makes place for the one that comes.
                changes.clear()
            changes.append(
                ResolvedChange(
                    key=key,
                    values=carried.row,
                    is_delete=False,
                    partial=partial,
                    # A cut image says nothing of which columns are never sent.
                    missing=() if partial else missing,
                    fault=carried.fault,
                    removed_ts=carried.removed_ts,
                )
            )
        return changes

    def _require_whole(self, missing: Sequence[str]) -> None:
        """Refuse the old image of a table without a key if part of it is missing: no row is it."""
        lacking = [name for name in missing if name not in self._plan.generated]
        if lacking:
            raise ImageError(
                "partial_image",
                f"before.{lacking[0]}",
                "the whole row, as no key of its table is known",
                f"an image without {shorten(lacking)}",
            )

    def _version(self, schema_version: int | None, commit_ts: int) -> "_Version":
        if schema_version is None:
            # A row at a DDL's commit ts was committed before it.
            number = bisect_left(self._numbers, commit_ts) - 1
            return self._versions[self._numbers[max(number, 0)]]
        version = self._versions.get(schema_version)
        if version is None:
            raise ImageError(
                "unknown_version", "schemaVersion", f"one of {self._numbers}", str(schema_version)
            )
        return version

    def key_of(self, carried: "CarriedRow") -> str:
        """Return the identity of a row under the mirror's schema.

        Raises:
            ImageError: the row has no value in a column of the key, or none that survives.
        """
        return self._key_of(carried, "row")

    def _key_of(self, carried: "CarriedRow", image: str) -> str:
        row = carried.row
        if not self._key:
            text = key_text([row.get(column.name) for column in self._columns], self._columns)
            # What does not survive still tells rows apart, so that a delete finds its row.
            return text if carried.fault is None else f"{text}\0{carried.lost!r}"
        values: list[str] = []
        for name in self._key:
            value = row.get(name)
            if value is None:
                raise carried.fault or ImageError(
                    "no_key", f"{image}.{name}", "a value of the handle key", "NULL or nothing"
                )
            values.append(value)
        return key_text(values, self._key_columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedRow:
    """A row under the schema at the cut.

    Attributes:
        row: its values; those that did not survive a schema step are absent.
        removed_ts: commit ts of the partition DDL that took it away, None if none did.
        fault: why a value did not survive, None if all did.
        lost: (schema version, column, value) of those that did not.
    """

    row: CanonicalRow
    removed_ts: int | None = None
    fault: ImageError | None = None
    lost: tuple[tuple[int, str, str | None], ...] = ()


_Stage: TypeAlias = tuple[
    Callable[[CanonicalRow, list[LostValue]], CanonicalRow] | None,
    int,
    Callable[[CanonicalRow], bool] | None,
]
"""A step to the schema version, or commit ts and test of a partition DDL."""


class RowCarrier:
    """Carries rows of one schema to the schema at the cut, through all that happened in between.

    Args:
        schema: the schema that the rows have; its version is one of `plan` or below.
        plan: the plan of the table at the cut.
        timezone: the changefeed's time zone (IANA name).
        since_ts: partition DDL below it has taken its rows already.
    """

    def __init__(
        self,
        schema: TableSchema,
        plan: MirrorPlan,
        timezone: str,
        *,
        since_ts: int = 0,
    ) -> None:
        removals = [removal for removal in plan.removals if removal.ts >= since_ts]
        steps = [step for step in plan.steps if step.from_version >= schema.version]
        schemas = {item.version: item for item in plan.versions}
        self._stages: list[_Stage] = []
        self._timezone = timezone
        for step in steps:
            due = [removal for removal in removals if removal.version <= schema.version]
            removals = removals[len(due) :]
            self._stages += [(None, item.ts, self._test(item.rows, schema)) for item in due]
            if step.changes_rows:
                self._stages.append((row_transform(step, timezone), step.to_version, None))
            schema = schemas.get(step.to_version, schema)
        self._stages += [(None, item.ts, self._test(item.rows, schema)) for item in removals]

    def _test(self, rows: PartitionRows, schema: TableSchema) -> Callable[[CanonicalRow], bool]:
        try:
            return partition_test(rows.partitions, rows.names, schema, self._timezone)
        except PartitionError as error:
            return _refusing(error)

    def carry(self, row: CanonicalRow, commit_ts: int) -> CarriedRow:
        """Return the row under the final schema.

        Args:
            row: the row.
            commit_ts: its commit ts: partition DDL that was before it did not touch it.

        Raises:
            ImageError: the row does not tell its partition.
        """
        removed_ts: int | None = None
        lost: list[tuple[int, str, str | None]] = []
        fault: ImageError | None = None
        for transform, ts, test in self._stages:
            if transform is not None:
                values: list[LostValue] = []
                row = transform(row, values)
                for name, value, error in values:
                    lost.append((ts, name, value))
                    fault = fault or ImageError(
                        error.reason, error.position, error.expected, error.got
                    )
            elif test is None or removed_ts is not None or commit_ts > ts or lost:
                pass  # a row that did not fit any more was not there any more
            elif _asked(test, row):
                removed_ts = ts
        return CarriedRow(row=row, removed_ts=removed_ts, fault=fault, lost=tuple(lost))


def part_carrier(
    part: HandoverPart, plan: MirrorPlan, timezone: str
) -> Callable[[CanonicalRow], CarriedRow | None]:
    """Return the function from rows of a part's table to those of the table that received them.

    Args:
        part: the part.
        plan: the plan, at the cut, of the table that received it.
        timezone: the changefeed's time zone (IANA name).

    Returns:
        A function that returns None for a row that was not handed over, or that partition DDL
        took away since. It raises ImageError as `RowCarrier` does.
    """
    tests: list[tuple[Callable[[CanonicalRow], bool], bool]] = []
    for rows, wanted in ((part.within, True), (part.outside, False)):
        if rows is not None:
            test = partition_test(rows.partitions, rows.names, part.plan.schema, timezone)
            tests.append((test, wanted))
    fit = row_transform(diff(part.plan.schema, part.schema), timezone)
    carrier = RowCarrier(part.schema, plan, timezone)

    def carry(row: CanonicalRow) -> CarriedRow | None:
        if any(_asked(test, row) is not wanted for test, wanted in tests):
            return None
        # All partition DDL that the plan still knows of came after the handover.
        carried = carrier.carry(fit(row, []), 0)
        return carried if carried.removed_ts is None else None

    return carry


def _asked(test: Callable[[CanonicalRow], bool], row: CanonicalRow) -> bool:
    """Ask whether a row is in some partitions; one that does not tell is refused."""
    try:
        return test(row)
    except PartitionError as error:
        raise ImageError(
            "unknown_partition", "row", "what tells the row's partition", shorten(str(error), 200)
        ) from error


def _refusing(error: PartitionError) -> Callable[[CanonicalRow], bool]:
    def test(_: CanonicalRow) -> bool:
        raise error

    return test


class _Version:
    """Reads images that cite one schema version."""

    def __init__(self, schema: TableSchema, plan: MirrorPlan, timezone: str) -> None:
        self._converters: list[tuple[str, Callable[[PhysicalValue], str | None]]] = [
            (column.name, canonical_of(column, timezone)) for column in schema.columns
        ]
        self._names = frozenset(column.name for column in schema.columns)
        self._version = schema.version
        self._carrier = RowCarrier(schema, plan, timezone)

    def read(
        self, image: Mapping[str, PhysicalValue], side: str
    ) -> tuple[CanonicalRow, tuple[str, ...]]:
        """Return the canonical row under this schema, and the columns the image lacks."""
        row: CanonicalRow = {}
        missing: list[str] = []
        for name, convert in self._converters:
            try:
                value = image[name]
            except KeyError:
                missing.append(name)
                continue
            try:
                row[name] = convert(value)
            except ImageError as error:
                raise ImageError(
                    error.reason, f"{side}.{name}", error.expected, error.got
                ) from error
        if len(row) != len(image):
            extra = sorted(name for name in image if name not in self._names)
            raise ImageError(
                "unknown_column",
                f"{side}.{extra[0]}",
                f"a column of schema version {self._version}",
                shorten(extra),
            )
        return row, tuple(missing)

    def carry(self, row: CanonicalRow, commit_ts: int, side: str) -> CarriedRow:
        """Return the row under the final schema."""
        try:
            carried = self._carrier.carry(row, commit_ts)
        except ImageError as error:
            raise _on_side(error, side) from error
        if carried.fault is None:
            return carried
        return replace(carried, fault=_on_side(carried.fault, side))


def _on_side(error: ImageError, side: str) -> ImageError:
    return ImageError(error.reason, f"{side}.{error.position}", error.expected, error.got)
