"""The position of the mirrors before an apply, and whether there is anything to do.

In: the control tables of the pipeline, and how far the mirrors should go. Out: a `Standing` with
the TSO of the next cut, or with the apply's outcome if it has nothing to do. No Spark is started,
and no mirror is written. What a killed run left to do after its cut is finished, so running it
again gives the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ticdc_assets.changelog.progress import GlobalWatermark
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.accepted_gaps import AcceptedGap, close_accepted
from ticdc_assets.log.change_statistics import ChangeStatistics, read_statistics
from ticdc_assets.log.cuts import Cut, choice_text, filter_text, name_mirrors, newest_cut
from ticdc_assets.log.positions import decoded_position, landed_batch
from ticdc_assets.log.quarantine import reopen_applied
from ticdc_assets.log.watermark import read_watermark
from ticdc_assets.model.tso import es_cut, moment_text, physical_ms
from ticdc_assets.storage.lake_paths import LakePaths


def reopen_rewound(paths: LakePaths, cut: Cut) -> None:
    """Open the quarantined changes again that only the void cuts before a rewound cut had applied.

    The mirrors no longer have them.
    """
    if cut.rewind is not None:
        reopen_applied(paths, commit_ts=cut.tso, since=cut.made_at)


class Outcome(StrEnum):
    """How an apply ended."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"
    WAITING = "waiting"
    AHEAD = "ahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applying:
    """What one apply did.

    Attributes:
        outcome: how it ended.
        reason: one clause that says why, in numbers.
        cut: the newest published cut; None before the first.
        watermark: the global watermark.
        repaired: the damage of the mirrors that were made again, each a sentence.
    """

    outcome: Outcome
    reason: str
    cut: Cut | None
    watermark: GlobalWatermark
    repaired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The position of the mirrors before an apply.

    `tso` is the one to bring the mirrors to; `ended` is the outcome of an apply with nothing to do.
    """

    statistics: ChangeStatistics
    last: Cut | None
    watermark: GlobalWatermark
    gaps: Sequence[AcceptedGap]
    tso: int
    ended: Applying | None


def standing(
    lake: Lake, *, until: int | None = None, refold: bool = False, complete_ts: int | None = None
) -> "Standing":
    """Return the mirrors' position, and the outcome of an apply with nothing to do; no Spark.

    The caller holds the changefeed's writer lock. The arguments are those of `apply_changes`;
    `refold` is whether mirrors are folded again in any case.
    """
    statistics = read_statistics(lake.paths)
    last = newest_cut(lake.paths)
    watermark = read_watermark(lake, statistics=statistics, cut=last)
    tso = 0 if last is None else last.tso
    gaps = close_accepted(lake.paths, es_only=statistics.es_only)
    # A run may have been killed after its cut.
    applied = 0
    if last is not None:
        applied = name_mirrors(lake.paths, last)
        reopen_rewound(lake.paths, last)

    def position(outcome: Outcome | None, reason: str = "") -> Standing:
        ended = None
        if outcome is not None:
            ended = Applying(outcome=outcome, reason=reason, cut=last, watermark=watermark)
        return Standing(
            statistics=statistics, last=last, watermark=watermark, gaps=gaps, tso=tso, ended=ended
        )

    if last is not None and until is not None and until < last.tso:
        wanted = moment_text(until, es_only=last.es_only)
        return position(
            Outcome.AHEAD, f"the mirrors are at {last.moment}, beyond {wanted}; nothing was changed"
        )
    # Without commit ts, completeness is unknown: everything that landed is applied.
    limit = statistics.newest_change if statistics.es_only else watermark.watermark_ts
    waits = bool(watermark.waiting) and not statistics.es_only
    undecoded = landed_batch(lake.paths) > decoded_position(lake.paths)[1]
    if undecoded and not statistics.es_only:
        # A topic that seems to be at rest may have begun in them, below the decoded watermarks.
        limit = None if last is None else last.tso
    if complete_ts is not None:
        limit, waits = max(limit or 0, complete_ts), False
    if limit is None or waits:
        waiting = ", ".join(f"{topic}/{partition}" for topic, partition in watermark.waiting)
        return position(
            Outcome.WAITING,
            f"no watermark yet from {waiting}"
            if waiting
            else "nothing of the source is decoded yet: run "
            f"`ticdc-assets sync {lake.changefeed.name}`",
        )
    if statistics.es_only:
        limit = es_cut(physical_ms(limit))
    tso = limit if until is None else min(until, limit)
    if last is not None and tso < last.tso:
        return position(
            Outcome.WAITING,
            f"the global watermark {moment_text(tso, es_only=last.es_only)}, from "
            f"{'/'.join(map(str, watermark.slowest or ('?',)))}, is before the newest cut at "
            f"{last.moment}",
        )
    if (
        last is not None
        and (tso, statistics.batch) == (last.tso, applied)
        and not refold
        and not last.failed
        and not any(gap.accepted_at > last.made_at for gap in gaps)
        # A history may have been switched on since.
        and not any(
            item.history_version is None
            and lake.changefeed.keeps_history(item.database, item.table)
            for item in last.mirrors
        )
        and last.tables == filter_text(lake.changefeed.tables)
        # It decides which mirrors may lack changes after an export.
        and last.start_ts == lake.changefeed.start_ts
        # It decides which mirrors may lack rows from before the changefeed.
        and last.complete_tables == choice_text(lake.changefeed.complete_tables)
    ):
        what = "records that landed are not decoded yet" if undecoded else "nothing new was landed"
        return position(Outcome.UNCHANGED, f"the mirrors are at {last.moment} and {what}")
    return position(None)
