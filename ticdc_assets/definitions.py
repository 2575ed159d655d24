"""What Dagster loads: the definitions of every changefeed that is configured."""

import dagster as dg

from ticdc_assets.config import load_settings
from ticdc_assets.defs.changefeeds import all_definitions
from ticdc_assets.garbage import look_seldom

look_seldom()


@dg.definitions
def definitions() -> dg.Definitions:
    """Return the definitions of the changefeeds that TICDC_CHANGEFEEDS names.

    An entry with mistakes is a failing check; the other changefeeds are as ever.
    """
    return all_definitions(load_settings(partly=True))
