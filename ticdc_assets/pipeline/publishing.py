"""Publishing a cut: one append to the table of cuts, and a file for readers that do not know them.

In: a cut that is made. Out: a row of `cuts`, the moment from which on readers see it; then
`by_name.json` beside the changefeed's tables. That file tells of each mirror its database and
table, the folder of its Delta table, and the Delta version that the cut names. A mirror's folder is
called by an id, since a table may be renamed, or made again under its old name; and no name out of
a message ever becomes part of a path, so there are no links.

Why running it again is safe: a run that was killed before the append published nothing. The file is
replaced at once and says of which cut it is; one of an older cut is replaced by the next sync.
"""

import json
import logging
import os
import uuid
from typing import Any

from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.pipeline.cuts import Cut, append_cut

_LOGGER = logging.getLogger(__name__)


def publish(paths: LakePaths, cut: Cut) -> None:
    """Publish `cut`: one append, which is the moment readers see it."""
    append_cut(paths, cut)
    name_mirrors(paths, cut)


def name_mirrors(paths: LakePaths, cut: Cut) -> None:
    """Let the file tell of the mirrors of `cut`, the newest one, if it does not yet."""
    if _named_cut(paths) == cut.number:
        return
    staged = paths.by_name.with_name(f".{paths.by_name.name}-{uuid.uuid4().hex}")
    try:
        staged.write_text(json.dumps(_manifest(paths, cut), indent=1))
        staged.replace(paths.by_name)
    except OSError as error:
        # The mirrors are published, whatever becomes of their names.
        _LOGGER.warning("%s cannot be brought to cut %d: %s", paths.by_name, cut.number, error)
        staged.unlink(missing_ok=True)


def _named_cut(paths: LakePaths) -> int | None:
    """Return the number of the cut that the file is of, None if there is none."""
    try:
        return json.loads(paths.by_name.read_bytes())["cut"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _manifest(paths: LakePaths, cut: Cut) -> dict[str, Any]:
    # A mirror that could not be made has the rows of an older cut.
    behind = {(item.database, item.table): item.tso for item in cut.failed}
    return {
        "changefeed": paths.changefeed,
        "cut": cut.number,
        "tso": cut.tso,
        "at": cut.moment,
        "mirrors": [
            {
                "database": item.database,
                "table": item.table,
                "path": os.path.relpath(item.path(paths), paths.base),
                "version": item.version,
                "tso": behind.get((item.database, item.table)) or cut.tso,
                "rows": item.rows,
            }
            for item in cut.mirrors
        ],
    }
