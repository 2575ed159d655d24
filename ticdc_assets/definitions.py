"""What Dagster loads: every changefeed that is configured, and what `dg` puts into `defs/`.

In: the changefeeds file, and the modules and components of the folder `defs`. Out: one set of
definitions. Loading reads small tables and writes nothing.
"""

from pathlib import Path

from ticdc_assets.base.starting import hide_pandas, look_seldom

_ROOM = Path(__file__).parent / "defs"
_HAS_MORE = any(path.name not in ("__init__.py", "__pycache__") for path in _ROOM.iterdir())
"""Whether somebody added definitions."""

# Before the imports: they make most of the objects, and arrays.
look_seldom()
if not _HAS_MORE:
    # Only code that is added here can have objects of pandas.
    hide_pandas()

import dagster as dg  # noqa: E402

from ticdc_assets.config import load_settings  # noqa: E402
from ticdc_assets.delta.opening import keeping  # noqa: E402
from ticdc_assets.orchestration.changefeeds import all_definitions  # noqa: E402


@dg.definitions
def definitions() -> dg.Definitions:
    """Return the definitions of the changefeeds that TICDC_CHANGEFEEDS names, and of `defs/`.

    An entry with mistakes is a failing check; the other changefeeds load as usual.
    """
    # Dagster asks twice while it loads a location.
    with keeping("definitions"):
        changefeed_definitions = all_definitions(load_settings(partly=True))
    # Loading the folder needs the project file of `dg`.
    if not _HAS_MORE:
        return changefeed_definitions
    return dg.Definitions.merge(
        changefeed_definitions, dg.load_from_defs_folder(path_within_project=_ROOM)
    )
