"""Versions of rows: the fold of operations on a history.

In: operations as an Arrow table, all of each key. Out: versions, each from one cut to another. The
fold is pure; `folding` is that of mirrors. Tests compare the versions with
`ticdc_assets_tests/reference/history_fold.py`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.changelog.carrying import KeptText, VersionEvent, texts_at
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.rows.folding import in_order, without_replays
from ticdc_assets.rows.history_layout import column_places, version_schema
from ticdc_assets.rows.mirror_rows import marked
from ticdc_assets.rows.row_operations import RESCUED_TYPE

_Operation: TypeAlias = dict[str, Any]
"""An operation without its values: the columns `_LIGHT`, `commit_ts`, and `row`, its number."""

_LIGHT = (
    *("key", "op", "is_delete", "is_partial", "valid_to", "ended_by"),
    *("ends_at", "removed_by", "kept"),
)


@dataclass(slots=True, eq=False)
class _Version:
    """A version while it is folded; `row` is the number of the operation with its values."""

    row: int
    valid_from: int | None = None
    op: str | None = None
    valid_to: int | None = None
    ended_by: str | None = None
    partial_ts: str | None = None
    ends_at: int | None = None
    removed_by: str | None = None
    kept: tuple[KeptText, ...] = ()

    @classmethod
    def of(cls, operation: _Operation) -> "_Version":
        """Return the version that an operation begins; it may have ended already."""
        texts = tuple(tuple(item.values()) for item in operation["kept"] or ())
        names = ("row", "op", "valid_to", "ended_by", "ends_at", "removed_by")
        values = {name: operation[name] for name in names}
        return cls(valid_from=operation["commit_ts"], kept=texts, **values)

    def is_removed(self, ts: int) -> bool:
        """Return whether DDL ends it up to a cut; then it has its end."""
        if self.ends_at is None or self.ends_at > ts:
            return False
        self.valid_to, self.ended_by = self.ends_at, self.removed_by
        return True

    def ended(self, at: int, by: str) -> "Iterator[_Version]":
        """Yield it with its end, unless no cut has it."""
        if self.valid_from is None or self.valid_from < at:
            self.valid_to, self.ended_by = at, by
            yield self


def fold_versions(operations: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the versions that operations on a history make.

    Args:
        operations: as `history_operation_schema` has them, in any order; without a key they have
            `folding.with_origins`.
        schema: the table's schema.

    Returns:
        Rows with the columns of `version_schema`. One without `valid_from` is a change that could
        not be read.
    """
    if not schema.handle_key:
        operations = without_replays(operations)
    operations = operations.combine_chunks()
    follow = _versions_by_key if schema.handle_key else _versions_of_bag
    versions: list[_Version] = []
    for key, key_operations in groupby(_ordered(operations), key=itemgetter("key")):
        if key == "!":
            versions += (_Version(item["row"]) for item in key_operations)
        elif key == "":
            versions += map(_Version.of, key_operations)
        else:
            versions += follow(key_operations)
    return _built(operations, versions, schema)


def _ordered(operations: pa.Table) -> Iterator[_Operation]:
    """Yield operations by key, in the order of sequence, without their values."""
    if operations.num_rows:
        order = in_order(operations)
        light = operations.select(_LIGHT).append_column(
            "commit_ts", pc.struct_field(operations["sequence"], "commit_ts")
        )
        rows = light.take(pa.array(order)).to_pylist()
        for number, row in zip(order.tolist(), rows, strict=True):
            yield row | {"row": number}


def _versions_of_bag(operations: Iterable[_Operation]) -> Iterator[_Version]:
    """Yield the versions of a row without a key: each is a copy; a delete ends the oldest."""
    there: list[_Version] = []
    for operation in operations:
        ts = operation["commit_ts"]
        yield from (version for version in there if version.is_removed(ts))
        there = [version for version in there if version.valid_to is None]
        if not operation["is_delete"]:
            there.append(_Version.of(operation))
        elif there:
            yield from there.pop(0).ended(ts, operation["op"])
    for version in there:
        version.is_removed(MAX_TSO)
        yield version


def _versions_by_key(operations: Iterable[_Operation]) -> Iterator[_Version]:
    """Yield the versions of a key: the last of its changes at one commit ts counts."""
    there: _Version | None = None
    for ts, changes in groupby(operations, key=itemgetter("commit_ts")):
        if there is not None and there.is_removed(ts):
            yield there
            there = None
        last: _Operation | None = None
        partial: _Operation | None = None
        is_replaced = False
        for change in changes:
            if change["is_partial"]:
                partial = change
            else:
                last, partial = change, None
            is_replaced |= bool(change["is_delete"])
        if last is not None:
            if there is not None:
                yield from there.ended(ts, last["op"] if last["is_delete"] else VersionEvent.UPDATE)
            there = None if last["is_delete"] else _Version.of(last)
            if there is not None and is_replaced:
                there.op = VersionEvent.UPDATE
        if partial is not None:
            there = there or _Version.of(partial)
            there.partial_ts = str(ts)
    if there is not None:
        there.is_removed(MAX_TSO)
        yield there


def _built(operations: pa.Table, versions: list[_Version], schema: TableSchema) -> pa.Table:
    """Return versions as rows, with the values of their operations."""
    places = column_places(schema)
    rows = operations.select([*places, "rescued"]).take(
        pa.array([version.row for version in versions], pa.int64())
    )
    rescued = marked(rows, "rescued", [version.partial_ts for version in versions])["rescued"]
    arrays: dict[str, Any] = {name: rows[name] for name in places}
    texts = [texts_at(version.kept, version.valid_to) for version in versions]
    if any(texts):
        rescued = pa.array(
            [
                [item for item in entries or () if item[0] not in by_name] + list(by_name.items())
                or None
                for entries, by_name in zip(rescued.to_pylist(), texts, strict=True)
            ],
            RESCUED_TYPE,
        )
        for name, column in zip(places, schema.columns, strict=True):
            numbers = [None if column.name in by_name else row for row, by_name in enumerate(texts)]
            if None in numbers:
                arrays[name] = arrays[name].take(pa.array(numbers, pa.int64()))
    arrays["rescued"] = rescued
    target = version_schema(schema)
    for field in target:
        if field.name not in arrays:
            values = [getattr(version, field.name) for version in versions]
            arrays[field.name] = pa.array(values, field.type)
    return pa.table([arrays[name] for name in target.names], schema=target)
