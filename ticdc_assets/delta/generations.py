"""Generations: which one of a changefeed is published.

The newest cut names it: publishing a cut of another generation switches readers to it, by one
append. A piece of work looks up the generation once (`lake`). If another one is published
meanwhile, `log.cuts` refuses to mix the two. Only the writer of a changefeed publishes, so nothing
changes under a writer.
"""

from contextlib import suppress

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.delta.control import commit_metadata
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath, names_in

GENERATION = "generation"
"""The key of a cut's generation in the commits of `cuts`."""


def paths_of(root: AnyPath, changefeed: str) -> LakePaths:
    """Return the tables of a changefeed as its newest cut names them; no Spark.

    They are the newest generation's if the cuts cannot be read, which raises the error later.
    """
    first = LakePaths(root=root, changefeed=changefeed)
    try:
        name = commit_metadata(first.cuts).get(GENERATION)
    except LakeDamagedError:
        name = None
        with suppress(OSError):  # the folder may be another user's
            name = max(names_in(first.generations), default=None)
    return first if name is None else first.of(name)
