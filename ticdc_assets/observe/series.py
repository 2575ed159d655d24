"""Time series of a changefeed, from its small control tables; no Spark session.

In: `cuts`, `landings` and `quarantine`. Out: points in time order: each landing with its backlog,
each cut with its changes and held rows, and the number of open rows in quarantine. Between two cuts
the replication lag grows every second, and it drops when the next cut is published. So `lag_series`
is a saw-tooth with both ends of each drop, not a line through the drops.

Each table is read at one version, so a cut may be newer than the landings. Mirrors are counted only
for the newest cuts, up to `MIRROR_BUDGET` entries.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ticdc_assets.config import TableFilter
from ticdc_assets.delta.control import read_table
from ticdc_assets.log.cuts import Cut, Mode, read_entries, void_numbers
from ticdc_assets.log.faults import is_mirrored_fault
from ticdc_assets.model.tso import lag_ms, lag_seconds
from ticdc_assets.storage.lake_paths import LakePaths

MIRROR_BUDGET = 3_000_000
"""How many entries of mirrors (cuts times tables) are counted at most."""


@dataclass(frozen=True, slots=True)
class Series:
    """Values over time, in epoch milliseconds that never descend."""

    times: tuple[float, ...] = ()
    values: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPoint:
    """A cut as a point in time.

    Attributes:
        held: row changes that waited for their schema.
        replays: replayed row changes that it ignored.
        late: row changes that landed after their cut.
        changes: keys it changed; None if mirrors were not counted.
        modes: number of mirrors by how the cut made them; {} if they were not counted.
    """

    number: int
    tso: int
    published_at: datetime
    held: int
    replays: int
    late: int
    changes: int | None = None
    modes: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def published_ms(self) -> float:
        """When it was published, in epoch milliseconds."""
        return self.published_at.timestamp() * 1000

    @property
    def lag_seconds(self) -> float:
        """Its lag when it was published; 0 if it was ahead of the clock."""
        return lag_seconds(self.tso, self.published_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingPoint:
    """A landing as a point in time, with the records it landed and those it left in the source."""

    landed_at: datetime
    records: int
    backlog: int

    @property
    def landed_ms(self) -> float:
        """When, in epoch milliseconds."""
        return self.landed_at.timestamp() * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineReason:
    """One reason for quarantine at a stage, with its open rows and those redriven with success."""

    stage: str
    reason: str
    open: int
    redriven: int
    newest_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineFigures:
    """Quarantine over time.

    Attributes:
        open: rows that are open now.
        series: how many were open over time.
        reasons: those with most open rows first.
        newest: the newest open rows (`_SHOWN`), newest first, without the record's content.
    """

    open: int
    series: Series
    reasons: tuple[QuarantineReason, ...]
    newest: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutHistory:
    """Cuts over time.

    Attributes:
        points: cuts published since the wanted moment, and the one before, oldest first.
        counted_from: number of the first point whose mirrors were counted; None if none was.
        table_changes: keys changed by (database, table), over the counted points.
    """

    points: tuple[CutPoint, ...]
    counted_from: int | None
    table_changes: Mapping[tuple[str, str], int]


_CUT_COLUMNS = ["number", "tso", "published_at", "held", "replays", "late"]


def read_cut_history(
    paths: LakePaths, since: datetime, *, newest: Cut | None, budget: int = MIRROR_BUDGET
) -> CutHistory:
    """Return the cuts published since a moment, and the newest one before it.

    They end at the cut `newest`, None before the first; at most `budget` entries of mirrors (cuts
    times tables) are counted.
    """
    if newest is None:
        return CutHistory(points=(), counted_from=None, table_changes={})
    # A cut published between the two reads belongs to the next page.
    void = void_numbers(paths)
    condition = (ds.field("number") <= newest.number) & ~ds.field("number").isin(sorted(void))
    rows = _cut_rows(paths, condition & (ds.field("published_at") >= pa.scalar(since)))
    first = min((row["number"] for row in rows), default=newest.number + 1) - 1
    while first in void:
        first -= 1
    rows += _cut_rows(paths, ds.field("number") == first)
    rows.sort(key=lambda row: row["number"])
    changes: dict[int, int] = {}
    modes: dict[int, dict[str, int]] = {}
    tables: dict[tuple[str, str], int] = {}
    counted = max(1, budget // max(1, len(newest.mirrors)))
    oldest = max(rows[0]["number"], newest.number - counted + 1)
    for number, mode, mirrors, changed in _by_mode(paths, oldest, newest.number, tables):
        modes.setdefault(number, {})[mode] = mirrors
        changes[number] = changes.get(number, 0) + (0 if mode == Mode.CARRIED else changed)
    points = tuple(
        CutPoint(
            **row,
            changes=changes.get(row["number"], 0) if row["number"] >= oldest else None,
            modes=modes.get(row["number"], {}),
        )
        for row in rows
    )
    return CutHistory(points=points, counted_from=oldest, table_changes=tables)


def _cut_rows(paths: LakePaths, condition: ds.Expression) -> list[dict[str, Any]]:
    table = read_table(paths.cuts, condition, columns=_CUT_COLUMNS)
    if table is None:
        return []
    held = list_sums(table["held"], lambda rows: pc.struct_field(rows, "rows"))
    return table.drop_columns(["held"]).append_column("held", pa.array(held)).to_pylist()


def _by_mode(
    paths: LakePaths, oldest: int, newest: int, tables: dict[tuple[str, str], int]
) -> Iterable[tuple[int, str, int, int]]:
    """Yield (cut, mode, mirrors, keys changed); add the changed keys to `tables`.

    Only the counted fields of a cut's mirrors are read: schemas are most of the bytes.
    """
    for entries in read_entries(paths, ("database", "table", "mode", "changes"), least=oldest):
        flat = entries.filter(pc.field("number") <= newest)
        for row in (
            flat.group_by(["number", "mode"])
            .aggregate([("changes", "sum"), ("changes", "count")])
            .to_pylist()
        ):
            yield row["number"], row["mode"], row["changes_count"], row["changes_sum"] or 0
        changed = flat.filter(pc.not_equal(flat["mode"], pa.scalar(str(Mode.CARRIED))))
        for row in (
            changed.group_by(["database", "table"]).aggregate([("changes", "sum")]).to_pylist()
        ):
            name = (row["database"], row["table"])
            tables[name] = tables.get(name, 0) + (row["changes_sum"] or 0)


def read_landings(paths: LakePaths, since: datetime) -> tuple[LandingPoint, ...]:
    """Return the landings since a moment, oldest first."""
    table = read_table(
        paths.landings,
        ds.field("landed_at") >= pa.scalar(since),
        columns=["number", "landed_at", "records", "partitions"],
    )
    if table is None:
        return ()
    backlogs = list_sums(table["partitions"], _backlogs)
    landings = table.drop_columns(["partitions"]).append_column("backlog", pa.array(backlogs))
    rows = landings.sort_by("number").drop_columns(["number"]).to_pylist()
    return tuple(LandingPoint(**row) for row in rows)


def _backlogs(partitions: pa.StructArray) -> pa.Array:
    """Return how many records of each partition are not landed, as `PartitionOffsets.backlog`."""
    end, landed, earliest = (
        pc.struct_field(partitions, name) for name in ("end", "landed", "earliest")
    )
    begin = pc.max_element_wise(landed, earliest)
    return pc.max_element_wise(pc.subtract(end, begin), pa.scalar(0, pa.int64()))


def list_sums(lists: pa.ChunkedArray, value: Callable[[pa.StructArray], pa.Array]) -> list[int]:
    """Return, for each list of structs, the sum of `value` over the structs."""
    whole = lists.combine_chunks()
    numbers = value(pc.list_flatten(whole)).fill_null(0)
    rows = pc.list_parent_indices(whole)
    return np.bincount(rows, weights=numbers, minlength=len(whole)).astype(int).tolist()


_PLACE = ("topic", "partition", "offset", "index", "stage")
_SHOWN = (
    *(*_PLACE, "reason", "position", "expected"),
    *("database", "table", "commit_ts", "quarantined_at"),
)


def read_quarantine_figures(
    paths: LakePaths, since: datetime, *, tables: TableFilter | None = None, examples: int = 20
) -> QuarantineFigures:
    """Return what is and was in quarantine, and so many `examples` of its newest open rows.

    The series starts at `since`. Only faults of `tables`, those that are mirrored, count.
    """
    keys = ["stage", "reason", "quarantined_at", "redriven_at", "database", "table"]
    table = read_table(paths.quarantine, columns=keys)
    groups: list[dict[str, Any]] = []
    if table is not None:
        # Rows that came or were closed together are one group, so these are few.
        grouped = table.group_by(keys).aggregate([([], "count_all")]).to_pylist()
        groups = [row for row in grouped if is_mirrored_fault(row, tables)]
    by_reason: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in groups:
        by_reason.setdefault((row["stage"], row["reason"]), []).append(row)
    reasons = [
        QuarantineReason(
            stage=stage,
            reason=reason,
            open=sum(row["count_all"] for row in rows if row["redriven_at"] is None),
            redriven=sum(row["count_all"] for row in rows if row["redriven_at"] is not None),
            newest_at=max(row["quarantined_at"] for row in rows),
        )
        for (stage, reason), rows in sorted(by_reason.items())
    ]
    return QuarantineFigures(
        open=sum(item.open for item in reasons),
        series=_open_over_time(groups, since),
        reasons=tuple(sorted(reasons, key=lambda item: -item.open)),
        newest=_newest_open(paths, tables, examples),
    )


def _newest_open(
    paths: LakePaths, tables: TableFilter | None, limit: int
) -> tuple[Mapping[str, Any], ...]:
    is_open = ds.field("redriven_at").is_null()
    table = read_table(paths.quarantine, is_open, columns=list(_SHOWN))
    newest: list[dict[str, Any]] = []
    order: list[tuple[str, str]] = [("quarantined_at", "descending")]
    order += [(name, "ascending") for name in _PLACE]
    for batch in () if table is None else table.sort_by(order).to_batches(max_chunksize=1000):
        newest += [row for row in batch.to_pylist() if is_mirrored_fault(row, tables)]
        if len(newest) >= limit:
            break
    return tuple(newest[:limit])


def _open_over_time(groups: Iterable[dict[str, Any]], since: datetime) -> Series:
    """Return how many rows were open from `since` on; a value holds until the next."""
    steps = Counter[float]()
    for row in groups:
        for column, sign in (("quarantined_at", 1), ("redriven_at", -1)):
            if row[column] is not None:
                steps[row[column].timestamp() * 1000] += sign * row["count_all"]
    begin = since.timestamp() * 1000
    before = sum(count for at, count in steps.items() if at < begin)
    shown = sorted((at, count) for at, count in steps.items() if at >= begin)
    if before:
        shown.insert(0, (begin, before))
    return Series(tuple(at for at, _ in shown), tuple(accumulate(count for _, count in shown)))


def lag_series(points: Sequence[CutPoint], since: datetime, now: datetime) -> Series:
    """Return the replication lag in seconds over time, from `since` or the first cut to `now`.

    It grows by a second each second; each cut has two points: the lag just before it was published
    and just after.
    """
    begin, end = since.timestamp() * 1000, now.timestamp() * 1000
    ends: list[tuple[float, int]] = []
    for before, point in pairwise((None, *points, None)):
        # A clock that was set back does not reverse the line.
        latest = ends[-1][0] if ends else begin
        at = max(latest, end if point is None else point.published_ms)
        if before is not None and (point is not None or not ends or at > latest):
            ends += [(moment, before.tso) for moment in ((at,) if ends else (begin, at))]
        if point is not None and point.published_ms >= begin:
            ends.append((at, point.tso))
    return Series(
        tuple(at for at, _ in ends), tuple(round(lag_ms(tso, at) / 1000, 3) for at, tso in ends)
    )


_SPANS = ((600, 10), (3600, 60), (86_400, 600), (math.inf, 3600))
"""For each largest age (in seconds), the seconds of a rate's mean."""


def rate_series(events: Iterable[tuple[float, int]], since: datetime, now: datetime) -> Series:
    """Return counts per second, as means that hold until the next point; the last point is now.

    Of the events, (epoch milliseconds, count) in any order, those before `since` are left out. The
    spans of `_SPANS` leave a few hundred points, however many events.
    """
    begin, end = since.timestamp(), now.timestamp()
    shown = [(at / 1000, count) for at, count in events if begin <= at / 1000 <= end]
    if not shown:
        return Series()
    times, counts = zip(*shown, strict=True)
    edges = [end]
    for age, width in _SPANS:
        while edges[-1] > max(begin, min(times), end - age):
            edges.append(edges[-1] - width)
    if len(edges) == 1:
        # All events are of this moment: there is no time span for a rate yet.
        return Series()
    edges.reverse()
    totals, _ = np.histogram(times, edges, weights=counts)
    rates = np.round(totals / np.diff(edges), 4).tolist()
    # A value holds until the next point, so the end repeats the last.
    return Series(tuple(edge * 1000 for edge in edges), (*rates, rates[-1]))


def step_series(values: Iterable[tuple[float, float]], now: datetime) -> Series:
    """Return values that hold until the next one, up to `now`; repeated values are left out."""
    steps: list[tuple[float, float]] = []
    for at, value in sorted(values, key=lambda item: item[0]):
        if not steps or value != steps[-1][1]:
            steps.append((at, value))
    end = now.timestamp() * 1000
    if steps and end > steps[-1][0]:
        steps.append((end, steps[-1][1]))
    return Series(tuple(at for at, _ in steps), tuple(value for _, value in steps))


def thinned(series: Series, limit: int = 2000) -> Series:
    """Return at most `limit` of the points, with the extremes of every part of the time.

    The time is divided into equal parts. The first, lowest, highest and last point of each stay; a
    plot of that many pixels shows no more.
    """
    if len(series) <= limit:
        return series
    times, values = np.array(series.times), np.array(series.values)
    edges = np.linspace(times[0], times[-1], max(1, limit // 4) + 1)
    indices: set[int] = set()
    inner = np.searchsorted(times, edges[1:-1], side="right")
    for start, stop in pairwise(np.unique([0, *inner, len(times)]).tolist()):
        part = values[start:stop]
        indices |= {start, start + int(part.argmin()), start + int(part.argmax()), stop - 1}
    order = sorted(indices)
    return Series(tuple(times[order].tolist()), tuple(values[order].tolist()))
