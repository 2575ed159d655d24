"""Choose the cuts to keep: by age, by hour, and possible base cuts.

In: the published cuts, the configured ages, and the truncations of tables. Out: the cuts to keep.
This is a pure function, so running it again gives the same.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from ticdc_assets.config import Changefeed
from ticdc_assets.log.cuts import Cut, CutHead
from ticdc_assets.mirrors.truncation_points import TruncationPoint

AnyCut = TypeVar("AnyCut", Cut, CutHead)

_EVERY_CUT = timedelta(days=1)
"""How long every cut is kept, unless cuts are kept forever; later one cut for each hour is kept."""


def kept_cuts(
    cuts: Sequence[AnyCut],
    changefeed: Changefeed,
    now: datetime,
    *,
    truncation_point: TruncationPoint,
    raw_truncation_point: TruncationPoint,
) -> list[AnyCut]:
    """Return the cuts to keep, oldest first.

    These are the cuts that are young enough; of those older than a day only the newest of each
    hour. A run that follows its source publishes a cut every few seconds, and each holds a version
    of every mirror. Moments between cuts are read from the change log. Also kept: the newest cut,
    bases, and possible bases (the newest of each day), and cuts that record late rows.
    """
    retention = changefeed.retention
    if retention.cuts is None:
        return list(cuts)
    kept = {cuts[-1].number, *truncation_point.numbers, *raw_truncation_point.numbers}
    young = [cut for cut in cuts if cut.published_at > now - retention.cuts]
    kept |= {cut.number for cut in young if cut.published_at > now - _EVERY_CUT or cut.late}
    kept |= {cut.number for cut in _newest_of_hours(young)}
    for age, below in (
        (retention.change_log, truncation_point.number),
        (retention.raw_messages, raw_truncation_point.number),
    ):
        if age is not None:
            above = [cut for cut in cuts if cut.number > below]
            kept |= {cut.number for cut in newest_of_days(above)}
            kept |= {cut.number for cut in above if cut.late}
    return [cut for cut in cuts if cut.number in kept]


def newest_of_days(cuts: Iterable[AnyCut]) -> list[AnyCut]:
    """Return the newest cut of each UTC day, newest first."""
    days = {cut.published_at.astimezone(UTC).date(): cut for cut in cuts}
    return sorted(days.values(), key=lambda cut: cut.number, reverse=True)


def _newest_of_hours(cuts: Iterable[AnyCut]) -> list[AnyCut]:
    return list({int(cut.published_at.timestamp()) // 3600: cut for cut in cuts}.values())
