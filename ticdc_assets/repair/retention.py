"""Retention: remove old changes by table, old records by landing day, old cuts and landings.

In: the configured ages and the published cuts. Out: changes removed from `change_log`, landing days
removed from `raw_messages`, and old rows of `cuts` and `landings` removed. The rules:

- A *base* is the newest cut old enough that `lacking_tables.BaseCuts` finds no flaw in. All changes
  at or below it go, and the mirrors in the base cut replace them.
- A table that lacks something there is not truncated: all of its changes above the older base that
  it rests on stay, or all changes if it rests on none.
- A landing day of `raw_messages` goes when all of it is at or below a base at which no table lacks
  anything, and had landed when that cut was made. The totals of the day show this
  (`change_groups`); no record is read.
- Cuts that a table rests on stay, and the newest row of `landings`.

Each of the two tables has its truncation point as a property (`truncation_points`), set by the
commit that removes the rows. So the point exists if and only if the rows are gone; a run may be
killed anywhere, and the next one continues. That commit repeats the metadata of the previous one,
which stores the position. Landed rows of exports (`snapshot_rows`) go after the commit that moves
the point of `raw_messages`; a run killed in between leaves them to the next run.

Not handled: a table that the configuration leaves out is in no base cut. Its changes go too, and a
mirror made later is marked. A row that lands after its place was removed looks like a replay;
folding counts it, and its table is not truncated further. Age counts from the publishing of a cut,
so a changefeed that publishes none keeps everything.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.base.progress import tell
from ticdc_assets.config import Retention
from ticdc_assets.delta.control import commit_metadata, read_rows
from ticdc_assets.delta.delta_protocol import Action, partition_of
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.log_reading import log_state
from ticdc_assets.delta.opening import open_table
from ticdc_assets.log.change_statistics import ChangeStatistics, read_groups, read_statistics
from ticdc_assets.log.cuts import Cut, CutHead, read_cuts, read_heads, voided
from ticdc_assets.log.positions import decoded_position, landed_batch
from ticdc_assets.log.quarantine import read_quarantine
from ticdc_assets.log.seeds import decoded_seed, landed_seed, read_seeds
from ticdc_assets.log.totals import NO_TOPIC
from ticdc_assets.mirrors.truncation_points import (
    KeptTable,
    LackingTable,
    TruncationPoint,
    cites,
    properties_of,
    read_raw_truncation_point,
    read_truncation_point,
)
from ticdc_assets.model.tso import moment_text
from ticdc_assets.repair.lacking_tables import BaseCuts
from ticdc_assets.repair.rewriting import Rewriter, surely
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.rows import BOOTSTRAP, DDL, OF_MIRRORS, WATERMARK

_DECIDING = ("kind", "batch", "commit_ts", "database", "table")
"""The columns of the change log that decide whether a row stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingDay:
    """A landing day of `raw_messages`, and whether it stays.

    If it `stays`, this says why in one clause.
    """

    day: date
    records: int
    stays: str | None

    @property
    def clause(self) -> str:
        """The clause for messages."""
        what = "goes" if self.stays is None else f"stays: {self.stays}"
        return f"{self.day} ({counted(self.records, 'record')}) {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retaining:
    """The result of one retention, or of its dry run.

    Attributes:
        truncation_point: that of the change log, after it.
        raw_truncation_point: that of the raw messages, after it.
        changes: rows removed from the change log.
        records: records and rows of exports removed.
        cuts: cuts removed.
        landings: rows of `landings` removed.
        tables: rows that a dry run would remove from the change log, by table.
        days: the landing days, if there is a base for them.
        notes: why less was removed than the ages allow, each a sentence.
    """

    truncation_point: TruncationPoint
    raw_truncation_point: TruncationPoint
    changes: int = 0
    records: int = 0
    cuts: int = 0
    landings: int = 0
    tables: Mapping[str, int] = field(default_factory=dict[str, int])
    days: tuple[LandingDay, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the lines for people: one for each table and each day, then why data stays."""
        for name, point in (
            ("change_log", self.truncation_point),
            ("raw_messages", self.raw_truncation_point),
        ):
            if point.cut is not None:
                yield f"{name}: truncated below cut {point.number} at {point.cut.moment}"
            else:
                yield f"{name}: nothing was ever truncated"
        for table, rows in sorted(self.tables.items()):
            yield f"change_log: {table}: {counted(rows, 'row')} to remove"
        yield from (f"raw_messages: {item.clause}" for item in self.days)
        yield from (item.sentence for item in self.truncation_point.kept)
        yield from self.notes


def retain(lake: Lake, *, now: datetime | None = None, dry_run: bool = False) -> Retaining:
    """Remove the rows and cuts beyond the configured ages. The caller holds the writer lock.

    A dry run only reports what would be removed.
    """
    run = _Retention(lake, now or datetime.now(UTC), dry_run=dry_run)
    statistics = read_statistics(lake.paths)
    # Older cuts have another change log.
    cuts = [cut for cut in read_heads(lake.paths) if cut.generation == lake.paths.generation]
    if not cuts:
        return run.done
    if not _is_decoded(lake.paths, statistics):
        run.note("nothing is truncated: a sync must first finish a killed run")
    else:
        ages, done = lake.changefeed.retention, run.done
        bases = BaseCuts(lake, statistics, cuts, done.truncation_point)
        # Both come before any removal: the change log shows which cuts have late rows.
        base = run.base(cuts, ages.change_log, done.truncation_point, "change_log", bases.flaw)
        raw_base = run.base(
            cuts, ages.raw_messages, done.raw_truncation_point, "raw_messages", bases.flaw_of_all
        )
        if base is not None:
            run.truncate_change_log(base, bases.lacking(base))
        if raw_base is not None:
            run.truncate_raw_messages(raw_base)
        run.remove_exported()
    run.remove_cuts()
    run.remove_landings()
    return run.done


def _is_decoded(paths: LakePaths, statistics: ChangeStatistics) -> bool:
    """Whether everything landed is decoded and counted: some of it may have come late."""
    there = (statistics.batch, landed_batch(paths), landed_seed(paths))
    return there == (*decoded_position(paths), decoded_seed(paths))


class _Retention:
    """One retention; `done` is its result so far."""

    def __init__(self, lake: Lake, now: datetime, *, dry_run: bool) -> None:
        self._lake = lake
        self._ages = lake.changefeed.retention
        self._now = now
        self._dry_run = dry_run
        self.done = Retaining(
            truncation_point=read_truncation_point(lake.paths),
            raw_truncation_point=read_raw_truncation_point(lake.paths),
        )

    def note(self, text: str) -> None:
        self.done = replace(self.done, notes=(*self.done.notes, text))

    def base(
        self,
        cuts: Sequence[CutHead],
        age: timedelta | None,
        point: TruncationPoint,
        table: str,
        flaw_of: Callable[[Cut], str | None],
    ) -> Cut | None:
        """Return the newest usable cut that is old enough and above the last base, or None."""
        flaws: list[str] = []
        old = [
            cut
            for cut in cuts
            if age is not None and cut.published_at <= self._now - age and cut.number > point.number
        ]
        for head in _newest_of_days(old):
            (cut,) = read_cuts(self._lake.paths, number=head.number)
            flaw = flaw_of(cut)
            if flaw is None:
                return cut
            flaws.append(f"cut {cut.number} cannot be a base cut: {flaw}")
        if flaws:
            self.note(f"{table} is not truncated further: {flaws[0]}")
        return None

    def _remove(self, table: AnyPath, gone: ds.Expression, columns: Sequence[str]) -> int:
        """Remove the rows that meet a condition on some columns; return how many."""
        if open_table(table) is None:
            return 0
        removing = self._removing(table, None)
        if self._dry_run:
            return sum(batch.num_rows for batch in removing.going(gone, gone, columns))
        return removing.remove(gone, gone, columns)

    def _removing(self, table: AnyPath, point: TruncationPoint | None) -> Rewriter:
        """Return what removes a table's rows in one commit, which sets its truncation point."""
        return Rewriter(
            spark=self._lake.spark,
            table=table,
            does=f"removing rows of {table.name}",
            properties={} if point is None else properties_of(point),
        )

    # The change log ---------------------------------------------------------------------------

    def truncate_change_log(self, base: Cut, lacking: Iterable[LackingTable]) -> None:
        """Remove rows at or below the base, except those of tables that lack something there."""
        tell("removing old changes from change_log")
        paths, point = self._lake.paths, self._moved(base, lacking)
        at, kind, batch = (ds.field(name) for name in ("commit_ts", "kind", "batch"))
        rows = kind.isin(list(OF_MIRRORS)) & (at <= base.tso)
        if stays := [cites(span) for item in point.kept for span in item.spans]:
            rows &= ~surely(reduce(or_, stays))
        # Watermarks identify replays of the rows that stay.
        watermarks = (kind == WATERMARK) & (at <= point.lowest)
        registered = commit_metadata(paths.schema_registry).get("batch", 0)
        bootstraps = (kind == BOOTSTRAP) & (batch <= min(base.batch, registered))
        gone = surely(rows | watermarks | bootstraps)
        waits = read_rows(paths.checksums, ds.field("waiting") > 0, columns=["batch"])
        if waiting := [row["batch"] for row in waits]:
            # Batches whose checksums are compared again, as a whole.
            gone &= ~batch.isin(waiting)
        # No row above the base is removed, except bootstraps.
        may_go = (at <= base.tso) | bootstraps
        removing, tables = self._removing(paths.change_log, point), Counter[str]()
        if self._dry_run:
            for batch in removing.going(may_go, gone, _DECIDING):
                tables.update(_rows_of_tables(batch))
            changes = tables.total()
        else:
            changes = removing.remove(may_go, gone, _DECIDING)
        self.done = replace(self.done, truncation_point=point, changes=changes, tables=tables)

    def _moved(self, base: Cut, lacking: Iterable[LackingTable]) -> TruncationPoint:
        """Return the truncation point with another base; tables that lack something keep theirs."""
        point = self.done.truncation_point
        before = {item.key: item for item in point.kept}
        tables: list[KeptTable] = []
        for item in lacking:
            previous = before.get(item.key)
            if previous is None and item.mirror_id and point.base_of(item.mirror_id) is None:
                # It may have been kept by its name, before any table had it.
                names = {(span.database, span.table) for span in item.spans}
                candidates = (it for it in point.kept if it.mirror_id is None and it.name in names)
                previous = min(candidates, key=point.place_of_kept, default=None)
            tables.append(
                KeptTable(
                    mirror_id=item.mirror_id,
                    database=item.database,
                    table=item.table,
                    base=point.number if previous is None else previous.base,
                    reason=item.reason,
                    since=self._now if previous is None else previous.since,
                    spans=item.spans,
                )
            )
        numbers = {item.base for item in tables}
        known_cuts = {**point.older, **({} if point.cut is None else {point.number: point.cut})}
        older = {number: cut for number, cut in known_cuts.items() if number in numbers}
        return TruncationPoint(batch=base.batch, cut=base, kept=tuple(tables), older=older)

    # The raw messages -------------------------------------------------------------------------

    def truncate_raw_messages(self, base: Cut) -> None:
        """Remove the landing days that are completely at or below the base."""
        tell("removing old records from raw_messages")
        paths = self._lake.paths
        landed = base.landed
        if landed is None:
            self.note(
                f"raw_messages is not truncated: cut {base.number}, by an earlier version, does "
                "not say which records it was made from"
            )
            return
        files: dict[date, list[Action]] = {}
        for action in log_state(paths.raw_messages).files:
            day = date.fromisoformat(partition_of(action)["landed_day"])
            files.setdefault(day, []).append(action)
        greatest = _greatest(paths, base.tso)
        days = [
            _landing_day(day, actions, base, greatest.get(day), landed)
            for day, actions in sorted(files.items())
        ]
        gone = [item for item in days if item.stays is None]
        point = self.done.raw_truncation_point
        if gone:
            point = TruncationPoint(batch=landed, cut=base)
            if not self._dry_run:
                names = {file["path"] for item in gone for file in files[item.day]}
                self._removing(paths.raw_messages, point).remove_files(names)
        self.done = replace(
            self.done,
            raw_truncation_point=point,
            days=tuple(days),
            records=sum(item.records for item in gone),
        )

    def remove_exported(self) -> None:
        """Remove the landed rows of exports at or below the base of the raw messages.

        A seed with rows in quarantine keeps all of its rows: a fix may make them readable.
        """
        paths, until = self._lake.paths, self.done.raw_truncation_point.tso
        seeds = {item.seed: item.tso for item in read_seeds(paths) if item.tso <= until}
        waiting = {
            row["partition"]
            for row in (read_quarantine(paths) if seeds else ())
            if row["database"] is not None and row["commit_ts"] in (None, *seeds.values())
        }
        if gone := sorted(seeds.keys() - waiting):
            rows = self._remove(paths.snapshot_rows, ds.field("batch").isin(gone), ("batch",))
            self.done = replace(self.done, records=self.done.records + rows)

    # Cuts -------------------------------------------------------------------------------------

    def remove_cuts(self) -> None:
        paths, cuts = self._lake.paths, read_heads(self._lake.paths)
        points = (self.done.truncation_point, self.done.raw_truncation_point)
        numbers = kept_cuts(cuts, self._ages, self._now, *points)
        gone = {cut.number for cut in cuts if cut.number not in numbers}
        # Void cuts go with the cut of the rewind: without it, nothing says that they are void.
        void = voided(paths)
        gone = gone.union(*(void.get(number, ()) for number in gone))
        removed = self._remove(paths.cuts, ds.field("number").isin(sorted(gone)), ("number",))
        self.done = replace(self.done, cuts=removed)

    def remove_landings(self) -> None:
        """Remove the landings that are older than cuts are kept, but never the newest one."""
        landings, age = self._lake.paths.landings, self._ages.cuts
        if age is not None:
            number, at = ds.field("number"), ds.field("landed_at")
            newest = commit_metadata(landings).get("number", 0)
            gone = (number < newest) & (at < pa.scalar(self._now - age))
            removed = self._remove(landings, gone, ("number", "landed_at"))
            self.done = replace(self.done, landings=removed)


def _rows_of_tables(rows: pa.RecordBatch) -> Mapping[str, int]:
    keys = ["kind", "database", "table"]
    groups = pa.Table.from_batches([rows]).group_by(keys).aggregate([([], "count_all")])
    tables = Counter[str]()
    for row in groups.to_pylist():
        is_row = row["kind"] in OF_MIRRORS
        name = joined_name(row["database"], row["table"]) if is_row else f"{row['kind']}s"
        tables[name] += row["count_all"]
    return tables


_EVERY_CUT = timedelta(days=1)
"""How long every cut is kept, unless cuts are kept forever; later one cut for each hour is kept."""


def kept_cuts(
    cuts: Sequence[Cut | CutHead], ages: Retention, now: datetime, *points: TruncationPoint
) -> set[int]:
    """Return the numbers of the cuts to keep.

    These are the cuts that are young enough; of those older than a day only the newest of each
    hour. A run that follows its source publishes a cut every few seconds, and each holds a version
    of every mirror. Moments between cuts are read from the change log. Also kept: the newest cut,
    bases, and possible bases (the newest of each day), and cuts that record late rows.
    """
    if ages.cuts is None:
        return {cut.number for cut in cuts}
    numbers = {cuts[-1].number}.union(*(point.numbers for point in points))
    young = [cut for cut in cuts if cut.published_at > now - ages.cuts]
    numbers |= {cut.number for cut in young if cut.published_at > now - _EVERY_CUT or cut.late}
    numbers.update(
        {int(cut.published_at.timestamp()) // 3600: cut.number for cut in young}.values()
    )
    for age, point in zip((ages.change_log, ages.raw_messages), points, strict=True):
        if age is not None:
            above = [cut for cut in cuts if cut.number > point.number]
            numbers |= {cut.number for cut in _newest_of_days(above)}
            numbers |= {cut.number for cut in above if cut.late}
    return numbers.intersection(cut.number for cut in cuts)


def _newest_of_days(cuts: Iterable[Cut | CutHead]) -> list[Cut | CutHead]:
    """Return the newest cut of each UTC day, newest first."""
    days = {cut.published_at.astimezone(UTC).date(): cut for cut in cuts}
    return sorted(days.values(), key=lambda cut: cut.number, reverse=True)


def _greatest(paths: LakePaths, tso: int) -> dict[date, int]:
    """Return the greatest commit ts or watermark of each landing day, without exports.

    A DDL at the TSO of a cut is not in it, so it counts as above.
    """
    greatest: dict[date, int] = {}
    for row in read_groups(paths).to_pylist():
        if row["topic"] == NO_TOPIC or row["max_ts"] is None:
            continue
        at = row["max_ts"] + (row["kind"] == DDL and row["max_ts"] == tso)
        greatest[row["landed_day"]] = max(at, greatest.get(row["landed_day"], 0))
    return greatest


def _landing_day(
    day: date, files: Iterable[Action], base: Cut, greatest: int | None, landed: int
) -> LandingDay:
    stats = [json.loads(file.get("stats") or "{}") for file in files]
    # A file without bounds may have any batch.
    batches = [item.get("maxValues", {}).get("batch", landed + 1) for item in stats]
    stays = None
    if greatest is not None and greatest > base.tso:
        last = moment_text(greatest, es_only=base.es_only)
        stays = f"it goes on to {last}, above cut {base.number}"
    elif max(batches) > landed:
        stays = f"records of it landed after cut {base.number} was made"
    return LandingDay(
        day=day, records=sum(item.get("numRecords", 0) for item in stats), stays=stays
    )
