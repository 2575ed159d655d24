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
    layout = MirrorLayout(schema=schema)
    return TableWriter(
        spark,
        paths.mirror(mirror_id),
        layout.arrow,
        key=schema.handle_key,
        rescued=layout.rescued,
        told=joined_name(*name),
        retention=changefeed.retention,
        portable=changefeed.readers.portable.includes(*name),
        published=published,
    )


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
    layout = HistoryLayout(schema=schema)
    return TableWriter(
        spark,
        paths.history(mirror_id),
        layout.arrow,
        key=schema.handle_key,
        rescued=layout.rescued,
        told=f"the history of {joined_name(*name)}",
        retention=changefeed.retention,
        portable=changefeed.readers.portable.includes(*name),
        published=published,
    )
