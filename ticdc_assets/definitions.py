"""What Dagster loads: the definitions of every changefeed that is configured."""

from ticdc_assets.base.garbage import look_seldom

# Before the imports: they make most of the objects.
look_seldom()

import dagster as dg  # noqa: E402

from ticdc_assets.config import load_settings  # noqa: E402
from ticdc_assets.delta.control import keeping  # noqa: E402
from ticdc_assets.orchestration.changefeeds import all_definitions  # noqa: E402


@dg.definitions
def definitions() -> dg.Definitions:
    """Return the definitions of the changefeeds that TICDC_CHANGEFEEDS names.

    An entry with mistakes is a failing check; the other changefeeds are as ever.
    """
    # Dagster asks twice while it loads a location.
    with keeping("definitions"):
        return all_definitions(load_settings(partly=True))
