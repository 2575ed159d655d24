"""The writers of a table's mirror and history.

In: a table's columns and name, and the settings of its changefeed. Out: the `TableWriter` of its
mirror or of its history. Nothing is read or written.
"""

from ticdc_assets.base.names import joined_name
from ticdc_assets.delta.lake import Lake
from ticdc_assets.mirrors.table_writing import TableWriter
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.mirror_rows import MirrorLayout


def table_writer(
    lake: Lake,
    layout: MirrorLayout | HistoryLayout,
    name: tuple[str, str],
    mirror_id: str,
    *,
    published: int | None = None,
) -> TableWriter:
    """Return the writer of a mirror, or of its history.

    Args:
        lake: the changefeed's lake.
        layout: the new columns: those of the mirror, or those of the history.
        name: (database, table) upstream.
        mirror_id: id of the mirror.
        published: the newest version that a cut names; None if none does.
    """
    table, label = lake.paths.mirror(mirror_id), joined_name(*name)
    if isinstance(layout, HistoryLayout):
        table, label = lake.paths.history(mirror_id), f"the history of {label}"
    return TableWriter(
        lake.spark,
        table,
        layout.arrow,
        key=layout.schema.handle_key,
        rescued=layout.rescued,
        label=label,
        retention=lake.changefeed.retention,
        portable=lake.changefeed.readers.portable.includes(*name),
        published=published,
    )
