"""Where a table of a changefeed is, by its name."""

from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath


def named_table(paths: LakePaths, name: str) -> AnyPath:
    """Return the folder of a table, such as `cuts` or `mirrors/7-0`."""
    landed = {table.name: table for table in (*paths.tables, paths.accepted_gaps)}
    return landed.get(name, paths.generation_folder / name)
