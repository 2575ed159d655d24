"""Publishing a cut: one append to the table of cuts, and a file for readers that do not know cuts.

In: a finished cut. Out: a row of `cuts`, which makes readers see it; then `by_name.json` next to
the changefeed's tables. That file has, for each mirror, its database and table, the folder of its
Delta table, and the Delta version that the cut names. A mirror's folder is named by an id, since a
table may be renamed, or created again under its old name. No name from a message ever becomes part
of a path, so there are no links.

Why running it again is safe: a run killed before the append has published nothing. The file is
replaced atomically and names its cut; the next sync replaces a file of an older cut.
"""

import json
import logging
from typing import Any

from ticdc_assets.log.cuts import Cut, append_cut
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import write_at_once

_LOGGER = logging.getLogger(__name__)


def publish(paths: LakePaths, cut: Cut) -> None:
    """Publish `cut`: one append; from then on readers see it."""
    append_cut(paths, cut)
    name_mirrors(paths, cut)


def name_mirrors(paths: LakePaths, cut: Cut) -> None:
    """Write the mirrors of `cut`, the newest one, into the file, unless it already has them."""
    if named_cut(paths) == cut.number:
        return
    try:
        write_at_once(paths.by_name, json.dumps(_manifest(paths, cut), indent=1))
    except OSError as error:
        # The mirrors are published, even if this file cannot be written.
        _LOGGER.warning("%s cannot be brought to cut %d: %s", paths.by_name, cut.number, error)


def named_cut(paths: LakePaths) -> int | None:
    """Return the number of the cut in the file; None if there is none."""
    try:
        return json.loads(paths.by_name.read_bytes())["cut"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _manifest(paths: LakePaths, cut: Cut) -> dict[str, Any]:
    # A failed mirror has the rows of an older cut.
    older = {(item.database, item.table): item.tso for item in cut.failed}
    return {
        "changefeed": paths.changefeed,
        "cut": cut.number,
        "tso": cut.tso,
        "at": cut.moment,
        "mirrors": [
            {
                "database": item.database,
                "table": item.table,
                "path": paths.of(item.generation).mirror_below(item.mirror_id),
                "version": item.version,
                "tso": older.get((item.database, item.table)) or cut.tso,
                "rows": item.rows,
            }
            for item in cut.mirrors
        ],
    }
