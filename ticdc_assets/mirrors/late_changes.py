"""Changes at or below the last cut that landed after it: replays, late rows, rows below truncation.

In: the change log, the last cut, and the truncation of the change log. Out: the numbers of replays
and of late rows, by spans of the tables; the number of rows below the truncation; and the caveats
of mirrors that lack such changes. Nothing is written.

Hashes of a record's content (`_SAID`) identify replays. Only they are held, so the size of the
images does not matter.
"""

from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.changelog.plan import Plan
from ticdc_assets.delta.queries import asking
from ticdc_assets.log.cuts import Cut
from ticdc_assets.mirrors.change_folding import ChangeFolding
from ticdc_assets.mirrors.truncation_points import marks_below, tso_below
from ticdc_assets.mirrors.validity import Knowledge, LateRows
from ticdc_assets.model.tso import MAX_TSO, from_physical_ms, physical_ms
from ticdc_assets.wire.rows import ROW

_SAID = ("commit_ts", "database", "table", "table_id", "op", "schema_version", "before", "after")
"""The columns that a record and its replay have in common."""

_HASHED = ", ".join(f'"{name}"' for name in _SAID)

_BY_TABLE = f"""
    WITH hashed AS MATERIALIZED (
        SELECT
            "database", "table", commit_ts, batch > $batch AS is_new,
            hash({_HASHED}) AS one, hash('other', {_HASHED}) AS other,
        FROM changes
    )
    SELECT
        "database", "table",
        count(*) FILTER (is_replay),
        count(*) FILTER (NOT is_replay AND commit_ts < $open_ts),
        min(commit_ts) FILTER (NOT is_replay),
        max(commit_ts) FILTER (NOT is_replay),
    FROM (
        SELECT *, (one, other) IN (SELECT (one, other) FROM hashed WHERE NOT is_new) AS is_replay
        FROM hashed WHERE is_new
    )
    GROUP BY ALL ORDER BY ALL
"""
"""For each table the numbers of replays and of late rows, and the span of what is not a replay."""


def late_rows(
    changes: ChangeFolding, last: Cut | None, *, es_only: bool
) -> tuple[int, int, list[LateRows]]:
    """Separate replays from late rows among those landed since the last cut, at or below it.

    A row is a replay if the change log already has one with the same images and commit ts. Any
    other row is late: it takes its place, although its cut was published. Without commit ts, rows
    of the millisecond that the last cut ended in are neither: two equal changes in it may be
    different ones.

    Args:
        changes: reads the changes.
        last: the last cut; None before the first.
        es_only: whether changes have no commit ts.

    Returns:
        How many were replays, how many were late, and the spans to fold in.
    """
    if last is None or changes.batch <= last.batch:
        return 0, 0, []
    batch, tso = last.batch, last.tso
    first = changes.first_late(batch, tso)
    if first is None:
        return 0, 0, []
    # The last millisecond of a cut without TSO, else nothing.
    open_ts = from_physical_ms(physical_ms(tso)) if es_only else MAX_TSO
    stamps = ds.field("commit_ts")
    is_old = (stamps >= first) & (stamps < open_ts)
    rows = changes.rows(
        [*_SAID, "kind", "batch"],
        (ds.field("kind") == ROW) & (stamps <= tso) & ((ds.field("batch") > batch) | is_old),
    )
    folder = None if rows.table is not None else changes.scratch.folder()
    with asking(folder) as engine:
        engine.register("changes", pa.RecordBatchReader.from_batches(rows.schema, rows.read()))
        found = engine.execute(_BY_TABLE, {"batch": batch, "open_ts": open_ts}).fetchall()
    spans = [
        LateRows(name=(database, table), min_ts=min_ts, max_ts=max_ts)
        for database, table, _, _, min_ts, max_ts in found
        if min_ts is not None
    ]
    return sum(row[2] for row in found), sum(row[3] for row in found), spans


def caveats_below(
    changes: ChangeFolding,
    known: Knowledge,
    plan: Plan,
    earlier: Callable[[], Iterable[tuple[str, str]]],
) -> dict[str, str]:
    """Return the caveats of mirrors that lack facts learnt after a truncation, by mirror id.

    Args:
        changes: reads the changes.
        known: the known schemas and changes.
        plan: the mirrors.
        earlier: returns the caveats of mirrors in cuts, oldest first, each after the mirror's id. A
            mirror keeps such a caveat as long as it has rows of that time.
    """
    truncation_point = changes.truncation_point
    if truncation_point.cut is None:
        return {}
    found = marks_below(truncation_point, known, plan.mirrors)
    floors = {mirror.mirror_id: mirror.floor_ts for mirror in plan.mirrors}
    for mirror_id, caveat in earlier():
        since, floor_ts = tso_below(caveat), floors.get(mirror_id)
        if since is not None and floor_ts is not None and floor_ts <= since <= plan.cut_ts:
            found[mirror_id] = caveat
    return found
