"""Versions of rows: the fold of operations on a history, over Arrow batches.

In: batches of operations, sorted by key and sequence. Out: versions, each from one cut to another.
A function over batches, so it runs in this process for a few rows and in Spark's workers for many;
the same operations give the same versions. Tests compare them with
`ticdc_assets_tests/reference/history_fold.py`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa

from ticdc_assets.changelog.carrying import KeptText, VersionEvent, texts_at
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.rows.history_layout import column_places, version_schema
from ticdc_assets.rows.mirror_rows import ArrowMap, marked
from ticdc_assets.rows.row_operations import RESCUED_TYPE

_Place: TypeAlias = tuple[pa.RecordBatch, int]
"""A batch, and a row's number in it."""


@dataclass(slots=True, eq=False)
class _Version:
    """A version while it is folded."""

    row: _Place
    valid_from: int | None
    op: str | None
    valid_to: int | None = None
    ended_by: str | None = None
    partial_ts: str | None = None
    ends_at: int | None = None
    removed_by: str | None = None
    kept: tuple[KeptText, ...] = ()


def fold_versions(schema: TableSchema) -> ArrowMap:
    """Return the function from operations, sorted by key and sequence, to versions."""
    target = version_schema(schema)

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fold = _KeyFold() if schema.handle_key else _BagFold()
        for batch in chain(batches, [None]):
            if batch is None:
                fold.finish()
            else:
                fold.take(batch)
            if fold.done:
                yield _built(fold.done, schema, target)
                fold.done = []

    return convert


_LIGHT = (
    *("key", "commit_ts", "op", "is_delete", "is_partial", "valid_to", "ended_by"),
    *("ends_at", "removed_by", "kept"),
)


class _Fold:
    """Follows the operations of one key after the other."""

    def __init__(self) -> None:
        self.done: list[_Version] = []
        self._key: str | None = None
        self._there: list[_Version] = []

    def take(self, batch: pa.RecordBatch) -> None:
        """Process operations."""
        rows = batch.select(list(_LIGHT)).to_pylist()
        for number, operation in enumerate(rows):
            row = (batch, number)
            if operation["key"] == "!":
                self.done.append(_Version(row, None, None))
            elif operation["valid_to"] is not None:
                ended = _begun(row, operation)
                ended.valid_to, ended.ended_by = operation["valid_to"], operation["ended_by"]
                self.done.append(ended)
            else:
                if operation["key"] != self._key:
                    self.finish()
                    self._key = operation["key"]
                self._follow(row, operation)
        self._settle_in()

    def finish(self) -> None:
        """End the key: existing versions are current, unless DDL ends them."""
        self._end_removed(MAX_TSO)
        self.done += self._there
        self._there = []

    def _follow(self, row: _Place, operation: dict[str, Any]) -> None:
        raise NotImplementedError

    def _settle_in(self) -> None:
        """Keep only the rows of a batch that are still needed."""
        for version in self._there:
            version.row = _alone(version.row)

    def _end_removed(self, ts: int) -> None:
        """End the versions that DDL removed up to a cut."""
        there: list[_Version] = []
        for version in self._there:
            if version.ends_at is not None and version.ends_at <= ts:
                version.valid_to, version.ended_by = version.ends_at, version.removed_by
                self.done.append(version)
            else:
                there.append(version)
        self._there = there

    def _end(self, version: _Version, at: int, by: str) -> None:
        if version.valid_from is None or version.valid_from < at:
            version.valid_to, version.ended_by = at, by
            self.done.append(version)


class _BagFold(_Fold):
    """For a table without a key: a version is a copy of a row; a delete ends the oldest."""

    def _follow(self, row: _Place, operation: dict[str, Any]) -> None:
        ts = operation["commit_ts"]
        self._end_removed(ts)
        if not operation["is_delete"]:
            self._there.append(_begun(row, operation))
        elif self._there:
            self._end(self._there.pop(0), ts, operation["op"])


class _KeyFold(_Fold):
    """For a table with a key: the last of the changes at one commit ts counts."""

    def __init__(self) -> None:
        super().__init__()
        self._ts: int | None = None
        self._last: tuple[_Place, dict[str, Any]] | None = None
        self._partial: tuple[_Place, dict[str, Any]] | None = None
        self._replaced = False

    def finish(self) -> None:
        self._settle()
        super().finish()

    def _settle_in(self) -> None:
        super()._settle_in()
        self._last = self._last and (_alone(self._last[0]), self._last[1])
        self._partial = self._partial and (_alone(self._partial[0]), self._partial[1])

    def _follow(self, row: _Place, operation: dict[str, Any]) -> None:
        if operation["commit_ts"] != self._ts:
            self._settle()
            self._ts = operation["commit_ts"]
        if operation["is_partial"]:
            self._partial = (row, operation)
        else:
            self._last, self._partial = (row, operation), None
        self._replaced = self._replaced or operation["is_delete"]

    def _settle(self) -> None:
        """Let the changes of one commit ts take effect."""
        ts, last, partial, replaced = self._ts, self._last, self._partial, self._replaced
        self._last = self._partial = None
        self._replaced = False
        if ts is None:
            return
        self._end_removed(ts)
        if last is not None:
            row, operation = last
            by = operation["op"] if operation["is_delete"] else VersionEvent.UPDATE
            if self._there:
                self._end(self._there.pop(), ts, by)
            if not operation["is_delete"]:
                begun = _begun(row, operation)
                begun.op = VersionEvent.UPDATE if replaced else begun.op
                self._there = [begun]
        if partial is not None:
            row, operation = partial
            if not self._there:
                self._there = [_begun(row, operation)]
            self._there[0].partial_ts = str(ts)


def _begun(row: _Place, operation: dict[str, Any]) -> _Version:
    return _Version(
        row,
        operation["commit_ts"],
        operation["op"],
        ends_at=operation["ends_at"],
        removed_by=operation["removed_by"],
        kept=tuple(tuple(item.values()) for item in operation["kept"] or ()),
    )


def _alone(row: _Place) -> _Place:
    batch, number = row
    return (batch, number) if batch.num_rows == 1 else (batch.take(pa.array([number])), 0)


def _built(versions: list[_Version], schema: TableSchema, target: pa.Schema) -> pa.RecordBatch:
    """Return versions as a batch."""
    by_batch: dict[int, list[_Version]] = {}
    for version in versions:
        by_batch.setdefault(id(version.row[0]), []).append(version)
    places = column_places(schema)
    rows = pa.Table.from_batches(
        group[0].row[0].select([*places, "rescued"]).take(pa.array([item.row[1] for item in group]))
        for group in by_batch.values()
    ).combine_chunks()
    ordered = [version for group in by_batch.values() for version in group]
    rescued = marked(rows, "rescued", [version.partial_ts for version in ordered])["rescued"]
    arrays: dict[str, Any] = {name: rows.column(name) for name in places}
    texts = [texts_at(version.kept, version.valid_to) for version in ordered]
    if any(texts):
        rescued = pa.array(
            [
                [item for item in entries or () if item[0] not in own] + list(own.items()) or None
                for entries, own in zip(rescued.to_pylist(), texts, strict=True)
            ],
            RESCUED_TYPE,
        )
        for name, column in zip(places, schema.columns, strict=True):
            kept = [None if column.name in own else row for row, own in enumerate(texts)]
            if None in kept:
                arrays[name] = arrays[name].take(pa.array(kept, pa.int64()))
    arrays["rescued"] = rescued
    for name in target.names:
        if name not in arrays:
            values = [getattr(version, name) for version in ordered]
            arrays[name] = pa.array(values, target.field(name).type)
    table = pa.table([arrays[name] for name in target.names], schema=target)
    return table.to_batches()[0]
