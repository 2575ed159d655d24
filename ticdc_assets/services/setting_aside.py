"""Setting aside: move the tables made from the landed records away, so they are made again.

In: the tables of a changefeed. Out: a folder beside them with all tables except what landed:
`raw_messages`, `seeds` and `snapshot_rows` (and `landings`, unless they are damaged). The next sync
finds undecoded records and rows of exports, and decodes, registers and applies all of them, as
`verify` does in its side place. It needs the source only for records that did not land, and for
the partitions where `landings` is damaged.

Why running it again is safe: nothing is removed. A killed run has moved some of the tables; the
others are then reported as damaged, or are made again, and the next run moves them too.

Not handled: a changefeed from which retention removed records. Their changes exist only in the
tables, so this is refused.
"""

from datetime import UTC, datetime

from ticdc_assets.config import Writer
from ticdc_assets.engine.fencing import require_lease
from ticdc_assets.engine.lock import writer_lock
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.errors import NotFoundError
from ticdc_assets.pipeline.damage import table_damage
from ticdc_assets.pipeline.truncation_points import has_lost_records
from ticdc_assets.storage.paths import AnyPath, move


def keeps_landings(paths: LakePaths) -> bool:
    """Return whether `landings` stays: else only the source can say which partitions there are."""
    return paths.landings.exists() and table_damage(paths.landings) is None


def set_aside(paths: LakePaths, writer: Writer) -> AnyPath:
    """Move every table that can be made again into a folder of its own, and return that.

    Args:
        paths: tables of the changefeed.
        writer: how writers are kept apart.

    Raises:
        LakeDamagedError: the records, or rows of exports, that they would be made from are broken.
        NotFoundError: nothing landed, or records were removed by retention.
        BusyError: somebody writes to the tables.
    """
    with writer_lock(paths, writer):
        keep = {paths.raw_messages, paths.seeds, paths.snapshot_rows}
        for table in paths.tables:
            damage = table_damage(table) if table in keep else None
            if damage is not None:
                raise damage
        if not paths.raw_messages.is_dir():
            raise NotFoundError(f"nothing of changefeed {paths.changefeed!r} has landed yet")
        if has_lost_records(paths):
            raise NotFoundError(
                f"the tables of changefeed {paths.changefeed!r} cannot be made again: retention "
                "removed records that they were made from; restore the lake from a copy"
            )
        if keeps_landings(paths):
            keep.add(paths.landings)
        folder = paths.base / "set_aside" / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        folder.mkdir(parents=True)
        for table in (*paths.tables, *paths.row_folders):
            if table not in keep and table.exists():
                require_lease(table)
                move(table, folder / table.name)
    return folder
