"""Rewinding: make an older cut the newest one again; syncs continue from there.

In: a TSO or the number of a kept cut, and a changefeed whose newest cuts are wrong, for example
because of a watermark far in the future. Out: events too far ahead are moved from the change log to
quarantine (`redecoding.redecode_ahead`), so that they no longer count; and a new cut with the
content of the older one. The cuts between the two are void (`cuts.Rewind`).

A cut names a Delta version of every mirror, so going back moves no row. The next sync undoes later
versions of mirrors, as after a killed run, and applies changes landed since the older cut as new
ones, because the cut names its last batch.

Why running it again is safe: quarantined events are not found again, and publishing is one append.
A run killed before that has only removed timestamps that should not have been accepted. After it,
quarantined changes that only a void cut applied are opened again, by the next apply if need be.

Not handled: cuts that retention removed, and cuts older than the truncation of the change log or of
the raw messages, because the changes after them no longer exist.
"""

from dataclasses import dataclass, replace

from ticdc_assets.base.errors import LakeDamagedError, NotFoundError
from ticdc_assets.base.names import joined_name
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.change_statistics import read_statistics
from ticdc_assets.log.cuts import Cut, Rewind, publish, read_cuts, read_heads, require_cut
from ticdc_assets.log.damage import check_files
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.quarantine import count_open
from ticdc_assets.mirrors.standing import reopen_rewound
from ticdc_assets.mirrors.truncation_points import read_raw_truncation_point, read_truncation_point
from ticdc_assets.model.tso import moment_text
from ticdc_assets.repair.redecoding import redecode_ahead
from ticdc_assets.storage.lake_paths import LakePaths


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewinding:
    """The result of one rewind.

    `older` was restored, `before` was the newest cut, and `cut` is it now; so many events were too
    far ahead and are in quarantine now.
    """

    older: Cut
    before: Cut
    cut: Cut
    quarantined: int


def rewind(lake: Lake, *, by: str, tso: int | None = None, number: int | None = None) -> Rewinding:
    """Go back to the newest kept cut at or below a TSO, or to the cut of a number.

    The caller holds the writer lock. One of `tso` and `number` is given.

    Raises:
        NotFoundError: nothing is published yet, there is no such cut, or it cannot be restored.
    """
    before = require_cut(lake.paths)
    older = _wanted(lake.paths, before, tso=tso, number=number)
    _require_rows(lake.paths, older)
    # This finishes a killed run, and decodes waiting records by the current limit.
    decode_new(lake)
    quarantined = sum(day.quarantined for day in redecode_ahead(lake))
    cut = before
    if older.number != before.number:
        cut = replace(
            older.again(before),
            quarantined=count_open(lake.paths).decode,
            steps_back=sum(
                item.steps_back for item in read_statistics(lake.paths).progress().values()
            ),
            rewind=Rewind(
                number=older.number, from_number=before.number, from_tso=before.tso, by=by
            ),
        )
        publish(lake.paths, cut)
        # The next apply does this if the run is killed here.
        reopen_rewound(lake.paths, cut)
    return Rewinding(older=older, before=before, cut=cut, quarantined=quarantined)


def _wanted(paths: LakePaths, newest: Cut, *, tso: int | None, number: int | None) -> Cut:
    """Return the cut to restore."""
    cuts = read_heads(paths)
    asked = f"cut {number}" if tso is None else moment_text(tso, es_only=newest.es_only)

    def refused(why: str) -> NotFoundError:
        return NotFoundError(f"changefeed {paths.changefeed!r} cannot be rewound to {asked}: {why}")

    if tso is not None and tso > newest.tso:
        raise refused(f"its newest cut {newest.number} is below that, at {newest.moment}")
    candidates = [cut for cut in cuts if (cut.number == number if tso is None else cut.tso <= tso)]
    if not candidates:
        ends = dict.fromkeys(
            f"cut {cut.number} at {moment_text(cut.tso, es_only=cut.es_only)}"
            for cut in (cuts[0], cuts[-1])
        )
        raise refused(f"no such cut is kept; kept: {' to '.join(ends)}")
    (older,) = read_cuts(paths, number=candidates[-1].number)
    if older.generation != newest.generation:
        raise refused(
            f"its tables were rebuilt since; read that cut as it is (`--as-of {older.tso}`)"
        )
    for table, point in (
        ("change_log", read_truncation_point(paths)),
        ("raw_messages", read_raw_truncation_point(paths)),
    ):
        if older.number < point.number and point.cut is not None:
            raise refused(
                f"retention truncated {table} below cut {point.number} at {point.cut.moment}, so "
                "the changes between the two could not be applied again"
            )
    return older


def _require_rows(paths: LakePaths, cut: Cut) -> None:
    """Refuse a cut that names a version which can no longer be read."""
    for mirror in cut.mirrors:
        try:
            check_files(paths, mirror)
        except LakeDamagedError as error:
            raise NotFoundError(
                f"changefeed {paths.changefeed!r} cannot be rewound to cut {cut.number}: "
                f"{joined_name(mirror.database, mirror.table)} at version "
                f"{mirror.version} is damaged ({error.finding})"
            ) from error
