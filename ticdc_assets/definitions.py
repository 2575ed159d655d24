"""What Dagster loads: every changefeed that is configured, and what `dg` puts into `defs/`.

In: the changefeeds file, and the modules and components of the folder `defs`. Out: one set of
definitions. Loading reads small tables and writes nothing.
"""

from pathlib import Path

from ticdc_assets.base.garbage import look_seldom

# Before the imports: they make most of the objects.
look_seldom()

import dagster as dg  # noqa: E402

from ticdc_assets.config import load_settings  # noqa: E402
from ticdc_assets.delta.control import keeping  # noqa: E402
from ticdc_assets.orchestration.changefeeds import all_definitions  # noqa: E402

_ROOM = Path(__file__).parent / "defs"


@dg.definitions
def definitions() -> dg.Definitions:
    """Return the definitions of the changefeeds that TICDC_CHANGEFEEDS names, and of `defs/`.

    An entry with mistakes is a failing check; the other changefeeds load as usual.
    """
    # Dagster asks twice while it loads a location.
    with keeping("definitions"):
        found = all_definitions(load_settings(partly=True))
    if not _has_more():
        return found
    return dg.Definitions.merge(found, dg.load_from_defs_folder(path_within_project=_ROOM))


def _has_more() -> bool:
    """Return whether somebody added definitions: loading the folder takes `dg`'s project file."""
    return any(path.name not in ("__init__.py", "__pycache__") for path in _ROOM.iterdir())
