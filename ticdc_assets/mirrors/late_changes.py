"""Changes at or below the last cut that landed after it: replays, late rows, rows below truncation.

In: the change log, the last cut, and the truncation of the change log. Out: the numbers of replays
and of late rows, by spans of the tables; the number of rows below the truncation; and the caveats
of mirrors that lack such changes. Nothing is written.

A digest of a record's content (`_SAID`) identifies replays. Only digests move to a bucket, so the
size of the images does not matter there.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.changelog.plan import Plan, TableName
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.cuts import Cut
from ticdc_assets.mirrors.change_folding import ChangeFolding
from ticdc_assets.mirrors.truncation_points import marks_below, tso_below
from ticdc_assets.mirrors.validity import Knowledge, LateRows, late_in
from ticdc_assets.model.tso import MAX_TSO, from_physical_ms, physical_ms
from ticdc_assets.rows.rows_of_work import RowPart, Rows, buckets_for, in_buckets
from ticdc_assets.spark.executing import executor
from ticdc_assets.wire.rows import ROW

_SAID = ("commit_ts", "database", "table", "table_id", "op", "schema_version", "before", "after")
"""The columns that a record and its replay have in common."""

_TOLD_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("database", pa.string()),
        ("table", pa.string()),
        ("commit_ts", pa.int64()),
        ("is_new", pa.bool_()),
    ]
)


def _compared_columns(rows: pa.RecordBatch, batch: int) -> pa.RecordBatch:
    """Return the columns of row changes to compare; rows after a batch are new."""
    said = zip(*(rows.column(name).to_pylist() for name in _SAID), strict=True)
    keys = [blake2b(repr(row).encode(), digest_size=16).hexdigest() for row in said]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.string()),
            *(rows.column(name) for name in ("database", "table", "commit_ts")),
            pc.greater(rows.column("batch"), batch),
        ],
        schema=_TOLD_SCHEMA,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """The result for the new rows of a bucket.

    Attributes:
        replays: rows that the change log already had.
        counted: late rows.
        late: the spans of all rows that are not replays, by table.
    """

    replays: int
    counted: int
    late: list[LateRows]


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
    found = _compared(changes.lake, rows, batch, open_ts)
    spans: dict[TableName, LateRows] = {}
    for part in found:
        for item in part.late:
            known = spans.get(item.name, item)
            spans[item.name] = LateRows(
                name=item.name,
                min_ts=min(known.min_ts, item.min_ts),
                max_ts=max(known.max_ts, item.max_ts),
            )
    replays, late = sum(part.replays for part in found), sum(part.counted for part in found)
    return replays, late, list(spans.values())


def _compared(lake: Lake, rows: Rows, batch: int, open_ts: int) -> list[_Compared]:
    """Compare the rows that came after a batch with the others, in this process or in Spark."""
    runs_on = executor(
        lake.spark, lake.paths.base, "looking for late changes", rows=rows.count, size=rows.size
    )
    buckets = buckets_for(rows.count, 0, runs_on.workers)

    def digests(parts: Iterable[RowPart]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for part in parts:
            for own in part.read():
                yield from in_buckets(_compared_columns(own, batch), buckets)

    def compared(_: int, batches: Iterator[pa.RecordBatch]) -> Iterator[_Compared]:
        every = pa.Table.from_batches(batches, _TOLD_SCHEMA)
        new, old = every.filter(ds.field("is_new")), every.filter(~ds.field("is_new"))
        is_replay = pc.is_in(new["key"], value_set=old["key"].combine_chunks())
        late = new.filter(pc.invert(is_replay))
        yield _Compared(
            replays=new.num_rows - late.num_rows,
            counted=late.filter(ds.field("commit_ts") < open_ts).num_rows,
            late=late_in(late),
        )

    return runs_on.reduce(
        digests, rows.parts(), compared, tasks=max(buckets, runs_on.workers), buckets=buckets
    )


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
