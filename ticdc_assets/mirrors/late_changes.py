"""Changes at or below the last cut that landed after it: replays and late rows.

In: the change log and the last cut. Out: the numbers of replays and of late rows, and the spans of
the late rows by table. Nothing is written.

Hashes of a record's content (`_SAID`) identify replays. Only they are held, so the size of the
images does not matter.
"""

import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.delta.queries import asking
from ticdc_assets.log.cuts import Cut
from ticdc_assets.mirrors.change_folding import ChangeFolding
from ticdc_assets.mirrors.validity import LateRows
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
