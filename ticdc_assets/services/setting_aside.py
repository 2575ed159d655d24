"""Setting aside: what was made from the landed records makes room to be made again.

In: the tables of a changefeed. Out: a folder beside them that has all but `raw_messages` (and
`landings`, unless they are broken). The next sync finds records that nothing was made from, and
decodes, registers and applies all of them, as `verify` does in its side place.

Why running it again is safe: nothing is removed. A run killed in between has moved some of the
tables; the others are then said to be broken, or are made from what is there, and the next one
moves them too.

Not handled: a changefeed of whose records retention removed some. What came of these is in the
tables only, so it is refused.
"""

from datetime import UTC, datetime
from pathlib import Path

from ticdc_assets.engine.lock import writer_lock
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.errors import NotFoundError
from ticdc_assets.pipeline.damage import table_damage
from ticdc_assets.pipeline.truncation_points import has_lost_records


def set_aside(paths: LakePaths) -> Path:
    """Move every table that can be made again into a folder of its own, and return that.

    Raises:
        LakeDamagedError: the records that they would be made from are broken.
        NotFoundError: nothing landed, or records were removed by retention.
        BusyError: somebody writes to the tables.
    """
    with writer_lock(paths):
        damage = table_damage(paths.raw_messages)
        if damage is not None:
            raise damage
        if not paths.raw_messages.is_dir():
            raise NotFoundError(f"nothing of changefeed {paths.changefeed!r} has landed yet")
        if has_lost_records(paths):
            raise NotFoundError(
                f"the tables of changefeed {paths.changefeed!r} cannot be made again: retention "
                "removed records that they were made from; restore the lake from a copy"
            )
        keep = {paths.raw_messages}
        if table_damage(paths.landings) is None:
            keep.add(paths.landings)
        folder = paths.base / "set_aside" / f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        folder.mkdir(parents=True)
        for table in (*paths.tables, paths.base / "mirrors", paths.base / "histories"):
            if table not in keep and table.exists():
                table.rename(folder / table.name)
    return folder
