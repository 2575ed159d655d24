"""Schema changes of a mirror that write no rows: renames, drops, widening, new NULL columns.

In: the schema of a mirror's table, the schema at the cut, and where its columns come from. Out: for
each column of the latter its column before, or None if rows change (a default that is not NULL, a
cast that changes text, a type that Delta does not widen); then all rows are written again.

Rescued data is stored by column name, so a renamed or dropped column must have no entry in it: the
caller first checks the entries of `Alterations.rescued`. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from ticdc_assets.model.mysql_types import arrow_type
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.evolution import Origin
from ticdc_assets.rows.mirror_rows import MirrorLayout, may_be_rescued

_WIDER: dict[pa.DataType, frozenset[pa.DataType]] = {
    pa.int8(): frozenset({pa.int16(), pa.int32(), pa.int64()}),
    pa.int16(): frozenset({pa.int32(), pa.int64()}),
    pa.int32(): frozenset({pa.int64()}),
    pa.float32(): frozenset({pa.float64()}),
}
"""Types that Delta widens to, where the values' text stays the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alterations:
    """How a table's columns come from one schema to another.

    Attributes:
        origin: for each column of the mirror afterwards its column before; None if it is new.
        rescued: columns of the old schema that must have no entry in the rescued data.
        needs_features: whether it needs Delta features that not every reader has.
    """

    origin: Mapping[str, str | None]
    rescued: tuple[str, ...]
    needs_features: bool


def alterations(
    base: TableSchema, final: TableSchema, origins: Mapping[str, Origin] | None
) -> Alterations | None:
    """Return how the columns of `base` become those of `final`, or None if rows change.

    Args:
        base: the schema that the table has.
        final: the schema at the cut.
        origins: where the columns of `final` come from (`RowCarrier.origins`); None if values are
            cast.
    """
    old, new = MirrorLayout(schema=base), MirrorLayout(schema=final)
    if (old.commit_ts, old.rescued) != (new.commit_ts, new.rescued):
        return None
    if origins is None or any(value is not None for _, value in origins.values()):
        return None
    origin = {column.name: origins[column.name][0] for column in final.columns}
    columns = {column.name: column for column in base.columns}
    kept = {source: name for name, source in origin.items() if source is not None}
    is_widened = False
    for column in final.columns:
        source = origin[column.name]
        before = None if source is None else arrow_type(columns[source])
        if before is not None and before != (after := arrow_type(column)):
            if after not in _WIDER.get(before, ()):
                return None
            is_widened = True
    moved = [name for name in columns if kept.get(name) != name]
    return Alterations(
        origin={**origin, new.commit_ts: old.commit_ts, new.rescued: old.rescued},
        rescued=tuple(name for name in moved if may_be_rescued(columns[name])),
        needs_features=is_widened or bool(moved),
    )
