"""Rows from before the changefeed, which a mirror may lack.

In: the plan of a mirror, the change log in numbers, and the configuration. Out: the caveat of a
mirror that may lack rows, or None. Pure: the same input gives the same caveat.

A changefeed sends changes. No message has a row that did not change since the changefeed began. So
all rows of a table are known only if a message created or emptied the table, or if an export
brought its rows (`Lineage.is_whole`). The setting `complete_tables` names tables that were empty
when the changefeed began.
"""

from ticdc_assets.changelog.plan import LACKS_EARLIER, MirrorPlan
from ticdc_assets.config import Changefeed
from ticdc_assets.log.change_statistics import ChangeStatistics
from ticdc_assets.model.tso import time_with_tso


def earlier_rows(
    mirror: MirrorPlan, statistics: ChangeStatistics, changefeed: Changefeed
) -> str | None:
    """Return the caveat of a mirror that may lack rows from before the changefeed.

    Args:
        mirror: its plan.
        statistics: the change log in numbers.
        changefeed: the configuration.
    """
    if mirror.incomplete_until is not None:
        return None  # an export above the cut has them, and the plan says so
    said = changefeed.complete_tables
    lacking = [
        plan
        for plan in mirror.sources()
        if not plan.is_whole
        # A table that took over rows lacks what their earlier table lacks.
        and not plan.parts
        and not any(said.includes(item.database, item.table) for item in plan.bindings)
    ]
    if not lacking:
        return None
    # A table that took the name of a dropped one has no earlier rows.
    since = max([statistics.first_ts or 0, *(plan.bindings[0].after_ts for plan in lacking)])
    time = time_with_tso(since, es_only=statistics.es_only)
    # An export has a TSO, and only changes with a TSO can be placed above it.
    way_out = "seed it"
    if statistics.es_only:
        way_out = "to seed it, set `enable-tidb-extension=true` in the sink URI"
    return f"{LACKS_EARLIER}{time} may be missing: {way_out}"
