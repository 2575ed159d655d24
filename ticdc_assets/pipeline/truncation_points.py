"""Truncation points: the point up to which a table was truncated, and its effect on readers.

In: a table from which `retention` may have removed rows. Out: its `TruncationPoint`, the base cut
whose mirrors replace the removed rows; a caveat for each mirror whose base would be different
today; and the batches that landed below the point and are not replays. No Spark session is started
and nothing is written, so reading again is safe.

The point is the transaction identifier of the commit that removed the rows (application
`retention`, version: the number of the base cut). So it exists if and only if they are removed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import pyarrow.dataset as ds
from deltalake import DeltaTable

from ticdc_assets.changelog.plan import MirrorPlan, Plan, RowGroup
from ticdc_assets.engine.control import open_table
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.errors import NotFoundError
from ticdc_assets.pipeline.cuts import Cut, MirrorCut, read_cuts
from ticdc_assets.pipeline.quarantine import place_of, read_quarantine
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.rows import PLACE

APPLICATION = "retention"
"""Application of the transaction identifiers that name base cuts."""


@dataclass(frozen=True, kw_only=True)
class TruncationPoint:
    """Up to where a table was truncated.

    Attributes:
        tso: TSO of the base cut: at or below it only what the base lacks is still there; 0 if
            nothing was ever removed.
        batch: newest batch of the change log that the base was made from.
        cut: the base cut, None if nothing was ever removed.
    """

    tso: int = 0
    batch: int = 0
    cut: Cut | None = None

    @property
    def number(self) -> int:
        """The number of the base cut, 0 if there is none."""
        return self.cut.number if self.cut is not None else 0

    def mirror(self, mirror_id: str) -> MirrorCut | None:
        """Return a mirror as the base has it, or None."""
        return self._mirrors.get(mirror_id)

    @cached_property
    def _mirrors(self) -> dict[str, MirrorCut]:
        # Asked for each table, of which there may be thousands.
        mirrors = self.cut.mirrors if self.cut is not None else ()
        return {item.mirror_id: item for item in mirrors}


def read_truncation_point(paths: LakePaths) -> TruncationPoint:
    """Return up to where the change log was truncated; needs no Spark."""
    return truncation_point_of(paths, open_table(paths.change_log))


def read_raw_truncation_point(paths: LakePaths) -> TruncationPoint:
    """Return up to where the raw messages were truncated; needs no Spark."""
    return truncation_point_of(paths, open_table(paths.raw_messages))


def has_lost_records(paths: LakePaths) -> bool:
    """Return whether records were removed from the raw messages; needs no other table."""
    return base_number(paths.raw_messages) is not None


def truncation_point_of(paths: LakePaths, table: DeltaTable | None) -> TruncationPoint:
    """Return up to where the version that is open of one of the two tables was truncated.

    Who reads the table beside retention needs both of one version: a point that is older than the
    rows says that rows are there which are gone.

    Raises:
        NotFoundError: it was truncated further meanwhile, and the base cut is gone.
    """
    number = None if table is None else table.transaction_version(APPLICATION)
    if number is None:
        return TruncationPoint()
    for cut in read_cuts(paths, number=number):
        return TruncationPoint(tso=cut.tso, batch=cut.batch, cut=cut)
    raise NotFoundError(
        f"what is read of changefeed {paths.changefeed!r} was truncated meanwhile: try again"
    )


def base_number(table: AnyPath) -> int | None:
    """Return the number of a table's base cut, None if nothing was ever removed from it."""
    opened = open_table(table)
    return None if opened is None else opened.transaction_version(APPLICATION)


_BELOW = "what came late lies below what is kept, since "


def caveat_below(tso: int) -> str:
    """Return the caveat of a mirror that may lack what was learnt too late, up to a TSO."""
    return f"{_BELOW}{tso}"


def tso_below(caveat: str) -> int | None:
    """Return the TSO of a caveat of `caveat_below`, or None if it is another caveat."""
    text = caveat.removeprefix(_BELOW)
    return None if text == caveat else int(text)


def is_told_below(caveats: Iterable[str]) -> bool:
    """Return whether a caveat of `caveat_below` is among some."""
    return any(tso_below(caveat) is not None for caveat in caveats)


def marks_below(
    truncation_point: TruncationPoint,
    plan_there: Plan,
    mirrors: Iterable[MirrorPlan],
    groups: Iterable[RowGroup],
) -> dict[str, str]:
    """Return a caveat for each mirror whose base would not be made the same today.

    Args:
        truncation_point: up to where the change log was truncated.
        plan_there: the plan at the truncation point, by what is known now.
        mirrors: the mirrors to be marked.
        groups: the row changes there ever were.
    """
    base = truncation_point.cut
    if base is None:
        return {}
    now = {mirror.mirror_id: mirror.digest for mirror in plan_there.mirrors}
    below = [group for group in groups if group.min_ts <= truncation_point.tso]
    held = {(item.database, item.table) for item in plan_there.held} | {
        (item.database, item.table) for item in base.held if item.mirror_id is None
    }

    def is_lost(plan: MirrorPlan) -> bool:
        """Whether no mirror of the base has the rows of a plan."""
        until = plan.bindings[-1].until_ts
        lived_on = until is None or until > truncation_point.tso
        is_there = lived_on and truncation_point.mirror(plan.mirror_id) is not None
        return plan.floor_ts > truncation_point.tso or not is_there

    def is_gone(plan: MirrorPlan) -> bool:
        """Whether changes that rows came from are gone and no mirror of the base has the rows."""
        return any(
            source.meets(group.name, group.min_ts, min(group.max_ts, truncation_point.tso))
            and group.name not in held
            for source in plan.sources(is_lost)
            if source.floor_ts <= truncation_point.tso and is_lost(source)
            for group in below
        )

    caveats: dict[str, str] = {}
    for mirror in mirrors:
        was = truncation_point.mirror(mirror.mirror_id)
        if was is not None and mirror.floor_ts <= truncation_point.tso:
            # What the base holds was kept for the day its schema comes. It cannot be added to rows
            # that were handed over since it waits.
            is_begun_anew = mirror.handover is not None and mirror.floor_ts != was.floor_ts
            is_kept = was.held > 0 and not is_begun_anew
            is_told = is_kept or now.get(mirror.mirror_id) == was.digest
        else:
            is_told = not is_gone(mirror)
        if not is_told:
            # The caveat is kept until the rows of then count no more.
            caveats[mirror.mirror_id] = caveat_below(max(truncation_point.tso, mirror.floor_ts))
    return caveats


def redriven_batches(
    paths: LakePaths, log: ds.Dataset, truncation_point: TruncationPoint
) -> tuple[int, ...]:
    """Return the batches of re-driven records with row changes at or below the log's point.

    They landed before it and were decoded after it, so they are no replays. A record whose row is
    still open in quarantine counts too: a run was killed before it closed the row. Needs no Spark.
    """
    if truncation_point.cut is None:
        return ()
    places = {
        place_of(row) for row in read_quarantine(paths, open_only=False) if row["stage"] == "decode"
    }
    if not places:
        return ()
    late = log.to_table(
        columns=["batch", *PLACE],
        filter=(ds.field("kind") == "row")
        & (ds.field("batch") > truncation_point.batch)
        & (ds.field("commit_ts") <= truncation_point.tso),
    )
    return tuple(sorted({row["batch"] for row in late.to_pylist() if place_of(row) in places}))
