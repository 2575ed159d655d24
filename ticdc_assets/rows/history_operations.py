"""Operations on a history: from changes and older versions, over Arrow batches.

In: Arrow batches of the change log (`history_operations`), or of an older history (`Passage`). Out:
operations, one row per put or delete, typed as the history's columns. Both are functions over
batches, so they run in this process for a few rows and in Spark's workers for many. The reference
is `changelog.resolve`; the same batches give the same operations.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ticdc_assets.base.errors import InputError
from ticdc_assets.changelog.carrying import (
    NO_END,
    KeptText,
    VersionCarrier,
    VersionEnd,
    end_by,
    first_cut_after,
    hands_over,
    surely_given,
)
from ticdc_assets.changelog.plan import HandoverPart, MirrorPlan
from ticdc_assets.changelog.resolve import RowResolver, rank_of
from ticdc_assets.delta.row_schema import filled
from ticdc_assets.model.events import Op
from ticdc_assets.model.mysql_types import arrow_type
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.values import UNFIT, typed_of
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.rows.history_layout import (
    KEPT_TYPE,
    OWN_PLACES,
    column_places,
    history_operation_schema,
)
from ticdc_assets.rows.mirror_rows import (
    NOWHERE,
    PARTIAL,
    ArrowMap,
    MirrorLayout,
    canonical_rows,
    light,
    nowhere,
    operation_batch,
    row_place,
    sent_images,
)


def history_operations(plan: MirrorPlan, timezone: str, only_key: str | None = None) -> ArrowMap:
    """Return the function from change log batches to operations on the history of `plan`'s table.

    Args:
        plan: the plan.
        timezone: the changefeed's time zone (IANA name).
        only_key: leave out rows of other keys, if set.
    """
    plan = light(plan)

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        resolver = RowResolver(plan, timezone, keeps_lost=True)
        target = history_operation_schema(plan.schema)
        for batch in batches:
            operations = [
                operation
                for row in batch.to_pylist()
                for operation in _operations_of(resolver, row)
                if only_key is None or operation["key"] == only_key
            ]
            yield operation_batch(operations, target, plan.schema, timezone)

    return convert


def _operations_of(resolver: RowResolver, row: dict[str, Any]) -> list[dict[str, Any]]:
    place = row_place(row)
    try:
        changes = resolver.resolve(Op(row["op"]), row["schema_version"], **sent_images(row))
    except InputError:
        return [_unread(place)]
    return [
        {
            "key": "=" + change.key,
            "sequence": place
            | {"rank": rank_of(is_delete=change.is_delete, es_only=bool(row["es_only"]))},
            "op": change.op,
            "is_delete": change.is_delete,
            "is_partial": change.partial,
            **_ending(NO_END if change.is_delete else end_by(change.removed)),
            "values": change.values,
            "lost": change.texts,
            "kept": _kept_items(change.kept),
            "partial_ts": str(row["commit_ts"]) if change.partial else None,
        }
        for change in changes
    ]


def _ending(end: VersionEnd) -> dict[str, Any]:
    return dict(zip(("ends_at", "removed_by"), end, strict=True))


def _kept_items(texts: tuple[KeptText, ...]) -> list[dict[str, Any]] | None:
    names = KEPT_TYPE.value_type.names
    return [dict(zip(names, item, strict=True)) for item in texts] or None


def _unread(place: dict[str, Any]) -> dict[str, Any]:
    """Return the operation for a change or version that does not fit."""
    return {"key": "!", "sequence": {"rank": 0, **place}, "is_delete": False, "values": {}}


def current_operations(versions: pa.Table, keys: pa.Array, schema: TableSchema) -> pa.Table:
    """Return the operations that begin versions which are current.

    Args:
        versions: the versions, with the columns of `version_schema`.
        keys: the key of each, as operations have it.
        schema: the table's schema.
    """
    target = history_operation_schema(schema)
    sequence = nowhere(versions["valid_from"].combine_chunks())
    values = dict(zip(versions.column_names, versions.columns, strict=True))
    values |= {"key": keys, "sequence": sequence, "is_delete": False}
    return filled(target, versions.num_rows, values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """How versions continue under a plan.

    Attributes:
        schema: the schema they have.
        plan: the plan under which they continue.
        timezone: the changefeed's time zone (IANA name).
        since_ts: partition DDL below it has ended its versions already.
        part: the part by which their rows are handed over, if they are.
        ends: what ends the versions whose row is not handed over; None if all continue.
        begins: how rows of another table begin again; None if the versions are of this table.
    """

    schema: TableSchema
    plan: MirrorPlan
    timezone: str
    since_ts: int = 0
    part: HandoverPart | None = None
    ends: str | None = None
    begins: str | None = None

    @property
    def keeps_ended(self) -> bool:
        """Whether versions that have ended are the same before and after."""
        # A MODIFY COLUMN may change the order of columns.
        before, after = (
            [(column.name, arrow_type(column)) for column in schema.columns]
            for schema in (self.schema, self.plan.schema)
        )
        return self.begins is None and not self._carrier().changes_rows and before == after

    def operations(self, only_key: str | None = None) -> ArrowMap:
        """Return the function from versions to operations."""
        part = self.part and replace(self.part, plan=light(self.part.plan))
        passage = replace(self, plan=light(self.plan), part=part)
        layout = MirrorLayout(schema=self.schema)
        names = [*(column.name for column in self.schema.columns), layout.rescued]

        def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            go_on = passage._function()
            schema = passage.plan.schema
            target = history_operation_schema(schema)
            for batch in batches:
                columns = batch.select([*column_places(passage.schema), "rescued"])
                rows = canonical_rows(columns.rename_columns(names), layout, passage.timezone)
                operations: list[dict[str, Any]] = []
                for row, version in zip(rows, batch.select(OWN_PLACES).to_pylist(), strict=True):
                    try:
                        operation = go_on(row, version)
                    except InputError:
                        operation = _unread(NOWHERE)
                    if operation and (only_key is None or operation["key"] in ("", only_key)):
                        operations.append(operation)
                yield operation_batch(operations, target, schema, passage.timezone)

        return convert

    def _carrier(self) -> VersionCarrier:
        return VersionCarrier(
            self.schema, self.plan, self.timezone, part=self.part, since_ts=self.since_ts
        )

    def _function(self) -> Callable[[CanonicalRow, dict[str, Any]], dict[str, Any] | None]:
        """Return the function from a version to its operation, None if it has none."""
        resolver, carrier = RowResolver(self.plan, self.timezone), self._carrier()
        given = None if self.part is None else hands_over(self.part, self.timezone)
        typed = {column.name: typed_of(column, self.timezone) for column in self.schema.columns}

        def go_on(row: CanonicalRow, version: dict[str, Any]) -> dict[str, Any] | None:
            valid_to, ended_by = version["valid_to"], version["ended_by"]
            valid_from, op = version["valid_from"], version["op"]
            if self.begins is not None:
                if valid_to is not None or given is None or not given(row):
                    return None
                valid_from, op = first_cut_after(self.plan.floor_ts), self.begins
            elif (
                valid_to is None
                and self.ends is not None
                and not (given is not None and surely_given(given, row))
            ):
                valid_to, ended_by = first_cut_after(self.plan.floor_ts), self.ends
            end = carrier.end(row, valid_from) if valid_to is None else NO_END
            rescued = dict(version["rescued"] or ())
            # The texts that their typed column would hold, if it could.
            lost: CanonicalRow = {
                name: text
                for name, text in rescued.items()
                if name != PARTIAL and name in typed and typed[name](text) is not UNFIT
            }
            carried = carrier.carry(row, lost, ended=valid_to is not None)
            return {
                # A version that has ended gets no more changes.
                "key": "" if valid_to is not None else "=" + resolver.key_of(carried),
                "sequence": NOWHERE | {"commit_ts": valid_from},
                "op": op,
                "is_delete": False,
                "valid_to": valid_to,
                "ended_by": ended_by,
                **_ending(end),
                "values": carried.row,
                "lost": carried.texts,
                "kept": _kept_items(carried.kept),
                "partial_ts": rescued.get(PARTIAL),
            }

        return go_on
