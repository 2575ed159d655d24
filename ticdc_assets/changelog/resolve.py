"""From a row change as sent to its effect on its mirror.

In: one row change (op, commit ts, cited schema version, images as sent) and the `MirrorPlan` of its
table. A row that cites no version is read with the version in force at its commit ts. Out:
`ResolvedChange`s: put or delete, the row's identity, and its values as canonical text under the
mirror's schema at the cut, that is, carried through every schema step after the version that the
row cites. So the order in which rows and schema changes are applied does not matter: every change
arrives in the final shape, and the last one of a key wins. Resolving is pure.

The last one: commit ts first; within one commit ts of a table deletes before puts (the halves of a
split update may be in two partitions, which have no order); then topic, partition, offset and
index, so that the order is total and a replay gives the same one. The lake's folding uses the same
fields. Without commit ts (Canal-JSON without the TiDB extension) a millisecond takes its place, in
which one row may change several times: there only the place in the topic orders deletes and puts.

Partition DDL removes rows without row events. So each row is tested, under the schema of that
moment, and the change has the DDL's commit ts if the row was removed (`ResolvedChange.removed`).

A value that the row spells by other flags than its column's is respelled by the schema that it is
read with (`inference.respelling`); this needs the row's shape. The shape also says whether a
`before` image lacks columns that changed. With a key this does not matter; without one such an
image identifies no row, and is refused.

A column that a `before` image lacks did not change: it is taken from the `after` image. A change
sent as its handle key alone puts what is known; see `ResolvedChange.partial`. Without a known key
such an image does not identify a row and is refused: Canal-JSON, which names primary keys only, may
reduce a DELETE to a unique key that no DDL defined.

An image that does not fit the schema it cites raises `ImageError`, or is a change with a `fault`
where its key can be read; the caller quarantines that change alone. A row that fits, but has a
value that a later schema step cannot carry over, is a change with a `fault`; a value that the step
casts as TiDB does in a lenient SQL mode is in `ResolvedChange.casts`. Both only matter if nothing
comes between the row and the step: in the strict mode TiDB lets a column be narrowed when the
existing rows fit.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NotRequired, TypedDict

from ticdc_assets.base.errors import ImageError, shorten
from ticdc_assets.changelog.carrying import (
    CarriedRow,
    KeptText,
    RowCarrier,
    UpgradePath,
    VersionCarrier,
)
from ticdc_assets.changelog.plan import MirrorPlan, Removal
from ticdc_assets.model.events import Image, Op, PhysicalValue
from ticdc_assets.model.schemas import RowShape, TableSchema
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.model.values import canonical_of, key_text
from ticdc_assets.registry.evolution import CanonicalRow, Casts, SchemaStep
from ticdc_assets.registry.inference.respelling import Respelling, respellings


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedChange:
    """One row operation on a mirror.

    Attributes:
        key: identity of the row as one string; in a table without a key the whole row.
        values: canonical text by column of the mirror: of the row put, or of the row deleted.
        partial: True for a put with the key alone: it adds a row that is not there, and leaves an
            existing row as it was.
        missing: columns of the mirror that the row put lacks (virtual generated ones).
        fault: why the row does not survive a later schema step, None if it does; `values` lacks
            those columns. The fault of a put is void if the row changes again.
        casts: (column, commit ts of the DDL) of the values that did not fit when their column was
            modified and were cast leniently. They count if the row existed then (`standing_casts`).
        removed: the partition DDL that removed this row; None if none did. The row's end follows a
            put then. In a table without a key a delete of such a row ends a removed row, too.
    """

    key: str
    op: Op
    values: CanonicalRow
    is_delete: bool
    partial: bool = False
    missing: tuple[str, ...] = ()
    fault: ImageError | None = None
    casts: Casts = ()
    removed: Removal | None = None
    texts: CanonicalRow = field(default_factory=dict[str, str | None])
    kept: tuple[KeptText, ...] = ()


class SentImages(TypedDict):
    """The keyword arguments of `RowResolver.resolve`."""

    commit_ts: int
    before: Image | None
    after: Image | None
    partial: NotRequired[bool]
    shape: NotRequired[RowShape | None]


def standing_casts(casts: Casts, next_ts: int | None) -> Casts:
    """Return the casts of a put that were executed before the row's next change at `next_ts`.

    A row at a DDL's commit ts was committed before it.
    """
    return tuple(item for item in casts if next_ts is None or item[1] < next_ts)


def casts_after(
    casts: Mapping[tuple[str, int], int], steps: Iterable[SchemaStep]
) -> Counter[tuple[str, int]]:
    """Return counted casts by the names of their columns after `steps`, if the columns last."""
    counted = Counter(casts)
    for step in steps:
        renamed = step.renamed
        counted = Counter(
            {(renamed[name], ts): count for (name, ts), count in counted.items() if name in renamed}
        )
    return counted


class RowResolver:
    """Resolves row changes of one mirror.

    Args:
        keeps_lost: whether the changes are those of a history, which has the texts of values that
            no longer fit (`changelog.carrying`); then no change has a fault.
    """

    def __init__(self, plan: MirrorPlan, timezone: str, *, keeps_lost: bool = False) -> None:
        self._plan = plan
        self._keeps_lost = keeps_lost
        self._key = plan.schema.handle_key
        self._key_columns = [
            column for name in self._key for column in plan.schema.columns if column.name == name
        ]
        self._columns = plan.schema.columns
        self._timezone = timezone
        self._path = UpgradePath(plan, timezone)
        # By number; a table may have thousands, and rows cite few of them.
        self._versions: dict[int, _Version] = {}
        self._schema_versions = [schema.version for schema in plan.versions]
        self._numbers = {version: number for number, version in enumerate(self._schema_versions)}

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
        shape: RowShape | None = None,
    ) -> list[ResolvedChange]:
        """Return the operations of one row change, deletes first.

        A row that cites no version has the one of its commit ts. `partial` says that the images
        were cut to the handle key. The shape is needed if `MirrorPlan.reads_shapes`.

        Raises:
            ImageError: an image does not fit the schema version, or lacks the key.
        """
        if shape is not None and shape.damaged and not self._key:
            expected = "the whole row, as no key of its table is known"
            got = "an image with columns that have no name"
            raise ImageError("damaged_image", "before", expected, got)
        if partial and not self._key:
            raise ImageError(
                "partial_image", "handleKeyOnly", "whole images", "images cut to the handle key"
            )
        version = self._version(self.number_of(schema_version, commit_ts))
        changes: list[ResolvedChange] = []
        old_key: str | None = None
        if before is not None and op is not Op.INSERT:
            if after is not None and len(before) < len(after):
                before = {**after, **before}
            row, missing = version.read(before, "before", shape)
            if schema_version is None and not self._key:
                version.require_whole(missing)
            # A row with a key ends whatever else is known of it.
            carried = version.carry(row, MAX_TSO if self._key else commit_ts, "before")
            old_key = self.key_of(carried, "before")
            fault = None if self._key else carried.fault
            changes.append(_change(op, old_key, carried, fault=fault, is_delete=True))
        if after is not None and op is not Op.DELETE:
            try:
                row, _ = version.read(after, "after", shape)
            except ImageError as error:
                refused = self._refused(error, op, version, after, commit_ts, old_key, shape)
                if refused is None:
                    raise
                return [refused]
            carried = version.carry(row, commit_ts, "after")
            key = self.key_of(carried, "after")
            if key == old_key and self._key:
                # The row keeps its identity: the put replaces it, and no delete is needed. A bag
                # counts copies: there the deleted copy makes room for the new one.
                changes.clear()
            more = {"partial": partial, "missing": self._lacked(carried.row, partial=partial)}
            fault = carried.fault
            changes.append(_change(op, key, carried, fault=fault, is_delete=False, **more))
        return changes

    def _refused(
        self,
        error: ImageError,
        op: Op,
        version: "_Version",
        after: Image,
        commit_ts: int,
        old_key: str | None,
        shape: RowShape | None,
    ) -> ResolvedChange | None:
        """Return a put whose image cannot be read as a put with a fault, if its key can be read.

        So the fault is void once the row changes again. This does not apply to a put that moved its
        row to another key: its old row must go too.
        """
        if not self._key or self._keeps_lost:
            return None
        try:
            row, _ = version.read(after, "after", shape, lenient=True)
            carried = version.carry(row, commit_ts, "after")
            key = self.key_of(carried, "after")
        except ImageError:
            return None
        if old_key not in (None, key):
            return None
        return _change(op, key, replace(carried, kept=()), fault=error, is_delete=False)

    def _lacked(self, row: CanonicalRow, *, partial: bool) -> tuple[str, ...]:
        if len(row) == len(self._columns):
            return ()
        # A cut image does not show which columns are never sent.
        return tuple(
            column.name
            for column in self._columns
            if column.name not in row and (column.virtual or not partial)
        )

    def number_of(self, schema_version: int | None, commit_ts: int) -> int:
        """Return the number of the plan's schema version that a row is read with.

        Raises:
            ImageError: the row cites a version that is not in the plan.
        """
        if schema_version is None:
            # A row at a DDL's commit ts was committed before it.
            return max(bisect_left(self._schema_versions, commit_ts) - 1, 0)
        number = self._numbers.get(schema_version)
        if number is None:
            expected = f"one of {shorten(self._schema_versions)}"
            raise ImageError("unknown_version", "schemaVersion", expected, str(schema_version))
        return number

    def version(self, number: int) -> tuple[TableSchema, RowCarrier]:
        """Return a schema version of the plan, and what carries its rows."""
        return self._plan.versions[number], self._version(number).carrier

    def takes_as_sent(self, shape: RowShape) -> bool:
        """Return whether rows of `shape` are undamaged and no value of them is respelled."""
        return not shape.damaged and not any(
            self._version(number).respelling(shape) for number in range(len(self._schema_versions))
        )

    @property
    def versions(self) -> Sequence[int]:
        """The schema versions of the plan, ascending.

        Rows without a version are read with the highest one below their commit ts.
        """
        return self._schema_versions

    def _version(self, number: int) -> "_Version":
        version = self._versions.get(number)
        if version is None:
            schema = self._plan.versions[number]
            carrier = RowCarrier(schema, self._plan, self._timezone, path=self._path)
            keeping = self._plan if self._keeps_lost else None
            version = self._versions[number] = _Version(schema, self._timezone, carrier, keeping)
        return version

    def key_of(self, carried: CarriedRow, image: str = "row") -> str:
        """Return the identity of a row under the mirror's schema.

        Raises:
            ImageError: the row, which is this image, has no value in a column of the key, or the
                value does not survive.
        """
        row = carried.row
        if not self._key:
            text = key_text([row.get(column.name) for column in self._columns], self._columns)
            # A value that does not survive still identifies the row, so that a delete finds it.
            return text if carried.fault is None else f"{text}\0{sorted(carried.texts.items())!r}"
        values: list[str] = []
        for name in self._key:
            value = row.get(name)
            if value is None:
                raise carried.fault or ImageError(
                    "no_key", f"{image}.{name}", "a value of the handle key", "NULL or nothing"
                )
            values.append(value)
        return key_text(values, self._key_columns)


def _change(op: Op, key: str, carried: CarriedRow, **more: Any) -> ResolvedChange:
    return ResolvedChange(
        key=key,
        op=op,
        values=carried.row,
        casts=carried.casts,
        removed=carried.removed,
        texts=carried.texts,
        kept=carried.kept,
        **more,
    )


_MOST_SHAPES = 4096
"""Most shapes whose respellings a version caches."""


class SchemaReader:
    """Reads images that cite one schema version."""

    def __init__(self, schema: TableSchema, timezone: str) -> None:
        self._converters: list[tuple[str, Callable[[PhysicalValue], str | None]]] = [
            (column.name, canonical_of(column, timezone)) for column in schema.columns
        ]
        self._schema = schema
        self._names = frozenset(column.name for column in schema.columns)

    def respelling(self, shape: RowShape | None) -> dict[str, Respelling]:
        """Return how values of rows of `shape` are respelled, by column."""
        return {} if shape is None else respellings(shape, self._schema)

    def read(
        self,
        image: Mapping[str, PhysicalValue],
        side: str,
        shape: RowShape | None,
        *,
        lenient: bool = False,
    ) -> tuple[CanonicalRow, tuple[str, ...]]:
        """Return the canonical row under this schema, and the columns the image lacks.

        With `lenient` the row has the columns that can be read.

        Raises:
            ImageError: the image, which is called `side`, does not fit the schema.
        """
        respelling = self.respelling(shape)
        row: CanonicalRow = {}
        missing: list[str] = []
        for name, convert in self._converters:
            try:
                value = image[name]
            except KeyError:
                missing.append(name)
                continue
            try:
                if name in respelling:
                    value = respelling[name](value)
                row[name] = convert(value)
            except ImageError as error:
                if lenient:
                    continue
                place = f"{side}.{name}"
                raise ImageError(error.reason, place, error.expected, error.got) from error
        if len(row) != len(image) and not lenient:
            extra = sorted(name for name in image if name not in self._names)
            expected = f"a column of schema version {self._schema.version}"
            raise ImageError("unknown_column", f"{side}.{extra[0]}", expected, shorten(extra))
        return row, tuple(missing)

    def require_whole(self, missing: Sequence[str]) -> None:
        """Refuse an old image of a table without a key that lacks columns: it matches no row.

        All images lack the virtual columns.
        """
        virtual = {column.name for column in self._schema.columns if column.virtual}
        lacking = [name for name in missing if name not in virtual]
        if lacking:
            expected = "the whole row, as no key of its table is known"
            got = f"an image without {shorten(lacking)}"
            raise ImageError("partial_image", f"before.{lacking[0]}", expected, got)


class _Version(SchemaReader):
    """Reads images that cite one schema version of a plan, and carries them to the cut.

    `keeping` is the plan of a history, which has the texts of values that no longer fit.
    """

    def __init__(
        self, schema: TableSchema, timezone: str, carrier: RowCarrier, keeping: MirrorPlan | None
    ) -> None:
        super().__init__(schema, timezone)
        self.carrier = carrier
        self._timezone = timezone
        self._keeping = keeping
        # By identity of the shape, which many rows of a log share; the value keeps it alive.
        self._respellings: dict[int, tuple[RowShape | None, dict[str, Respelling]]] = {}

    def respelling(self, shape: RowShape | None) -> dict[str, Respelling]:
        """Return the same as a reader, which is computed once for each shape."""
        cached = self._respellings.get(id(shape))
        if cached is None:
            if len(self._respellings) >= _MOST_SHAPES:
                self._respellings.clear()
            cached = self._respellings[id(shape)] = (shape, super().respelling(shape))
        return cached[1]

    def carry(self, row: CanonicalRow, commit_ts: int, side: str) -> CarriedRow:
        """Return the row under the final schema."""
        try:
            carried = self.carrier.carry(row, commit_ts)
            if self._keeper is None:
                fault = carried.fault
                return carried if fault is None else replace(carried, fault=_on_side(fault, side))
            if carried.fault is None and not carried.casts:
                return carried
        except ImageError as error:
            if self._keeper is None:
                raise _on_side(error, side) from error
        # A delete names the row that it ends, whatever partition DDL does to the row later.
        return self._keeper.keep(row, MAX_TSO if side == "before" else commit_ts)

    @cached_property
    def _keeper(self) -> VersionCarrier | None:
        return self._keeping and VersionCarrier(self._schema, self._keeping, self._timezone)


def _on_side(error: ImageError, side: str) -> ImageError:
    return ImageError(error.reason, f"{side}.{error.position}", error.expected, error.got)


DELETE_RANK = 0
PUT_RANK = 1
REMOVED_RANK = 2
"""The rank of a row's end by partition DDL, which is right after its put."""


def rank_of(*, is_delete: bool, es_only: bool) -> int:
    """Return the rank of a change among those of its commit ts."""
    return DELETE_RANK if is_delete or es_only else PUT_RANK
