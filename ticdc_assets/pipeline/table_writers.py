"""What writes the mirror and the history of a table.

In: a table's schema and name, and the settings of its changefeed. Out: the `TableWriter` of its
mirror or of its history. Nothing is read or written.
"""

from ticdc_assets.config import Changefeed
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.session import Session
from ticdc_assets.names import joined_name
from ticdc_assets.pipeline.table_writing import TableWriter
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.schemas import TableSchema
from ticdc_assets.storage.paths import AnyPath


def mirror_writer(
    spark: Session,
    paths: LakePaths,
    changefeed: Changefeed,
    schema: TableSchema,
    name: tuple[str, str],
    mirror_id: str,
    *,
    published: int | None = None,
) -> TableWriter:
    """Return what writes a mirror.

    Args:
        spark: the session, which is asked for nothing if the work is small.
        paths: tables of the changefeed.
        changefeed: its configuration.
        schema: the schema that the mirror is to have.
        name: (database, table) upstream.
        mirror_id: id of the mirror.
        published: the newest version that a cut names, None if none does.
    """
    layout, table = MirrorLayout(schema=schema), paths.mirror(mirror_id)
    told = joined_name(*name)
    return _writer(spark, table, changefeed, layout, name, told, published)


def history_writer(
    spark: Session,
    paths: LakePaths,
    changefeed: Changefeed,
    schema: TableSchema,
    name: tuple[str, str],
    mirror_id: str,
    *,
    published: int | None = None,
) -> TableWriter:
    """Return what writes a history; see `mirror_writer`."""
    layout, table = HistoryLayout(schema=schema), paths.history(mirror_id)
    told = f"the history of {joined_name(*name)}"
    return _writer(spark, table, changefeed, layout, name, told, published)


def _writer(
    spark: Session,
    table: AnyPath,
    changefeed: Changefeed,
    layout: MirrorLayout | HistoryLayout,
    name: tuple[str, str],
    told: str,
    published: int | None,
) -> TableWriter:
    return TableWriter(
        spark,
        table,
        layout.arrow,
        key=layout.schema.handle_key,
        rescued=layout.rescued,
        told=told,
        retention=changefeed.retention,
        portable=changefeed.readers.portable.includes(*name),
        published=published,
    )
