"""The writers of a table's mirror and history.

In: a table's schema and name, and the settings of its changefeed. Out: the `TableWriter` of its
mirror or of its history. Nothing is read or written.
"""

from ticdc_assets.base.names import joined_name
from ticdc_assets.delta.lake import Lake
from ticdc_assets.mirrors.table_writing import TableWriter
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.storage.paths import AnyPath


def mirror_writer(
    lake: Lake,
    schema: TableSchema,
    name: tuple[str, str],
    mirror_id: str,
    *,
    published: int | None = None,
) -> TableWriter:
    """Return the writer of a mirror.

    Args:
        lake: the changefeed's lake.
        schema: the mirror's new schema.
        name: (database, table) upstream.
        mirror_id: id of the mirror.
        published: the newest version that a cut names; None if none does.
    """
    layout, table = MirrorLayout(schema=schema), lake.paths.mirror(mirror_id)
    label = joined_name(*name)
    return _writer(lake, table, layout, name, label, published)


def history_writer(
    lake: Lake,
    schema: TableSchema,
    name: tuple[str, str],
    mirror_id: str,
    *,
    published: int | None = None,
) -> TableWriter:
    """Return the writer of a history; see `mirror_writer`."""
    layout, table = HistoryLayout(schema=schema), lake.paths.history(mirror_id)
    label = f"the history of {joined_name(*name)}"
    return _writer(lake, table, layout, name, label, published)


def _writer(
    lake: Lake,
    table: AnyPath,
    layout: MirrorLayout | HistoryLayout,
    name: tuple[str, str],
    label: str,
    published: int | None,
) -> TableWriter:
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
