"""Going on from a version of a mirror or a history: is writing what changed enough?

In: a table at the version of the last cut, and the plan at the next one. Out: a writer that has
begun there, with the columns at the next cut. If the schema changed in a way that touches no row
(renames, drops, widening, new NULL columns), only the table's metadata change. All rows are written
again if rows change (a default that is not NULL, a cast that changes text, a type that Delta does
not widen, partition DDL), or if there are very many changes without a key.

Rescued data is stored by column name, so a renamed, dropped or widened column must have no entry in
it. Nothing is written here.
"""

from collections.abc import Mapping

import pyarrow as pa

from ticdc_assets.changelog.carrying import RowCarrier
from ticdc_assets.changelog.plan import MirrorPlan
from ticdc_assets.mirrors.change_folding import ChangeFolding, is_removed_from, is_touched
from ticdc_assets.mirrors.table_writing import TableWriter
from ticdc_assets.mirrors.truncation_points import Base
from ticdc_assets.mirrors.versions import has_rescued
from ticdc_assets.registry.evolution import Origin
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.mirror_rows import MirrorLayout, may_be_rescued

KEYLESS_BYTES = 64 << 20
"""Bytes of changes above which a mirror or a history without a key is rewritten.

Its rows are their own keys, and this process holds the keys of changed rows.
"""

_WIDER: dict[pa.DataType, frozenset[pa.DataType]] = {
    pa.int8(): frozenset({pa.int8(), pa.int16(), pa.int32(), pa.int64()}),
    pa.int16(): frozenset({pa.int16(), pa.int32(), pa.int64()}),
    pa.int32(): frozenset({pa.int32(), pa.int64()}),
    pa.float32(): frozenset({pa.float32(), pa.float64()}),
}
"""Types that Delta widens to, where the values' text stays the same; the type itself too."""


def goes_on(
    changes: ChangeFolding,
    writer: TableWriter,
    layout: type[MirrorLayout | HistoryLayout],
    plan: MirrorPlan,
    base: Base,
    *,
    version: int,
    rows: int,
    until: int,
) -> bool:
    """Begin with the rows of the last cut; return whether only what changed has to be written.

    Args:
        changes: reads the changes.
        writer: writes the table.
        layout: the layout of the table.
        plan: its plan at the next cut.
        base: the mirror in the last cut.
        version: the table's version in it.
        rows: how many rows that has.
        until: TSO of the next cut.
    """
    writer.begin(version)
    if is_touched(plan, base):
        old, new = layout(schema=base.mirror.table_schema), layout(schema=plan.schema)
        zone = changes.lake.changefeed.timezone
        carrier = RowCarrier(old.schema, plan, zone, since_ts=base.tso)
        origin = _origin(old, new, carrier.origins())
        if origin is None or is_removed_from(plan, base.tso):
            return False
        types = {name: new.arrow.field(name).type for name in origin}
        moved = {
            item.name
            for item in old.arrow
            if origin.get(item.name) != item.name or types[item.name] != item.type
        }
        # These need Delta features that not every reader has.
        if moved and not writer.takes_features(rows):
            return False
        if isinstance(old, MirrorLayout):
            # A history has the texts of any values that a later type could not hold.
            moved &= {item.name for item in old.schema.columns if may_be_rescued(item)}
        if moved and has_rescued(writer.table, version, old.rescued, moved):
            return False
        writer.alter(origin)
    return (
        bool(plan.schema.handle_key) or changes.changes(plan, base.tso, until).size <= KEYLESS_BYTES
    )


def _origin(
    old: MirrorLayout | HistoryLayout,
    new: MirrorLayout | HistoryLayout,
    origins: Mapping[str, Origin] | None,
) -> dict[str, str | None] | None:
    """Return for each column its column before, None if it is new; None if rows change.

    Args:
        old: the columns that the table has.
        new: the columns at the cut.
        origins: where the upstream columns come from (`RowCarrier.origins`); None if values are
            cast.
    """
    own = new.names[len(new.schema.columns) :]
    if own != old.names[len(old.schema.columns) :]:
        return None
    if origins is None or any(value is not None for _, value in origins.values()):
        return None
    origin: dict[str, str | None] = {
        column.name: origins[column.name][0] for column in new.schema.columns
    }
    origin |= {name: name for name in own}
    types = {item.name: item.type for item in old.arrow}
    for item in new.arrow:
        source = origin[item.name]
        if source is not None and item.type not in _WIDER.get(types[source], {types[source]}):
            return None
    return origin
