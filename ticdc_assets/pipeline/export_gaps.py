"""Changes that may be missing between an export and the start of the changefeed.

In: the plan of a mirror that begins with an export, and the TSO where the changefeed's messages
begin. Out: the caveat of a mirror that may lack changes committed in between, or None. Pure.

A changefeed created with `--start-ts` at or below the TSO of the export has sent all later changes.
The setting `start_ts` has that TSO. Without it, the lowest watermark is used: if it is at or below
the export's TSO, nothing is missing; if it is above, changes may be missing.
"""

from ticdc_assets.changelog.plan import Caveat, MirrorPlan
from ticdc_assets.pipeline.change_statistics import ChangeStatistics


def export_gap(
    mirror: MirrorPlan, statistics: ChangeStatistics, start_ts: int | None
) -> Caveat | None:
    """Return the caveat of a mirror that may lack changes behind the export it begins with.

    Args:
        mirror: its plan.
        statistics: the change log in numbers.
        start_ts: the TSO that the changefeed was created with, None if nobody said it.
    """
    begin = statistics.first_watermark if start_ts is None else start_ts
    for plan in mirror.sources():
        exported = plan.exported
        if exported is not None and begin is not None and begin > exported.ts:
            told = "the first watermark is at" if start_ts is None else "the changefeed starts at"
            reason = (
                f"a gap behind the export: {told} {begin}, so changes from {exported.ts} to there "
                "may be missing"
            )
            return Caveat(reason=reason, since_ts=exported.ts)
    return None
