"""From a row change as sent to what it does to its mirror.

In: one row change (op, commit ts, cited schema version, images as sent) and the `MirrorPlan` of
its table. A row that cites no version is read with the one in force at its commit ts.
Out: `ResolvedChange`s: put or delete, the row's identity, and its values as canonical text under
the mirror's schema at the cut, that is, carried through every schema step after the version the
row cites. So the order in which rows and schema changes are applied does not matter: every change
arrives in the final shape, and the last one of a key wins.

A column that a `before` image lacks did not change: it is taken from the `after` image. A change
sent as its handle key alone puts what is known; see `ResolvedChange.partial`. Where no key is known
such an image does not say which row it is of and is refused: Canal-JSON, which names primary keys
only, may cut a DELETE to a unique key that no DDL has told of.

An image that does not fit the schema it cites raises `ImageError`; the caller quarantines that
change alone. Resolving is pure, so doing it again gives the same answer.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ticdc_assets.changelog.plan import MirrorPlan
from ticdc_assets.errors import CastError, ImageError, shorten
from ticdc_assets.events import Image, Op, PhysicalValue
from ticdc_assets.registry.evolution import CanonicalRow, row_transform
from ticdc_assets.schemas import TableSchema
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
    """

    key: str
    values: CanonicalRow
    is_delete: bool
    partial: bool = False
    missing: tuple[str, ...] = ()


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
        transforms = [row_transform(step, timezone) for step in plan.steps]
        self._versions = {
            schema.version: _Version(
                schema,
                [
                    transform
                    for step, transform in zip(
                        plan.steps[position:], transforms[position:], strict=True
                    )
                    if step.changes_rows
                ],
                timezone,
            )
            for position, schema in enumerate(plan.versions)
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
            CastError: a value does not survive a later schema step.
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
            old_key = self._key_of(row, "before")
            changes.append(ResolvedChange(key=old_key, values=row, is_delete=True))
        if after is not None and op is not Op.DELETE:
            row, missing = version.read(after, "after")
            key = self._key_of(row, "after")
            if key == old_key:
                # The row keeps its identity: the put replaces it, no delete is needed.
                changes.clear()
            changes.append(
                ResolvedChange(
                    key=key,
                    values=row,
                    is_delete=False,
                    partial=partial,
                    # A cut image says nothing of which columns are never sent.
                    missing=() if partial else missing,
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

    def key_of(self, row: CanonicalRow) -> str:
        """Return the identity of a row that is in the mirror's final shape."""
        return self._key_of(row, "row")

    def _key_of(self, row: CanonicalRow, image: str) -> str:
        if not self._key:
            return key_text([row.get(column.name) for column in self._columns], self._columns)
        values: list[str] = []
        for name in self._key:
            value = row.get(name)
            if value is None:
                raise ImageError(
                    "no_key", f"{image}.{name}", "a value of the handle key", "NULL or nothing"
                )
            values.append(value)
        return key_text(values, self._key_columns)


class _Version:
    """Reads images that cite one schema version."""

    def __init__(
        self,
        schema: TableSchema,
        transforms: Sequence[Callable[[CanonicalRow], CanonicalRow]],
        timezone: str,
    ) -> None:
        self._converters: list[tuple[str, Callable[[PhysicalValue], str | None]]] = [
            (column.name, canonical_of(column, timezone)) for column in schema.columns
        ]
        self._names = frozenset(column.name for column in schema.columns)
        self._version = schema.version
        self._transforms = transforms

    def read(
        self, image: Mapping[str, PhysicalValue], side: str
    ) -> tuple[CanonicalRow, tuple[str, ...]]:
        """Return the canonical row under the final schema, and the columns the image lacks."""
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
        for transform in self._transforms:
            try:
                row = transform(row)
            except CastError as error:
                raise ImageError(
                    error.reason, f"{side}.{error.position}", error.expected, error.got
                ) from error
        return row, tuple(missing)
