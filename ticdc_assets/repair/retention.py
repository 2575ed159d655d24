"""Retention: remove old changes by table, old records by landing day, old cuts and landings.

In: the configured ages and the published cuts. Out: changes removed from `change_log`, landing days
removed from `raw_messages`, and old cuts removed from `cuts`. The rules:

- A *base* is the newest cut old enough that `lacking_tables.BaseCuts` finds no flaw in. A table
  that lacks nothing at the base is truncated there: all of its changes at or below the base go, and
  its mirror in the base cut replaces them.
- A table that lacks something there is not truncated: all of its changes above the older base that
  it rests on stay, or all changes if it rests on none.
- A landing day of `raw_messages` goes when all of it is at or below a base at which no table lacks
  anything, and had landed when that cut was made. The totals of the day show this
  (`change_groups`); no record is read.
- Cuts that a table rests on stay.
- Rows of `landings` that are older than cuts are kept go; the newest one stays.

Each of the two tables has its truncation point as a property (`truncation_points`), set by the
commit that removes the rows. So the point exists if and only if the rows are gone; a run may be
killed anywhere, and the next one continues. That commit repeats the metadata of the previous one,
which stores the position. Landed rows of exports (`snapshot_rows`) go after the commit that moves
the point of `raw_messages`; a run killed in between leaves them to the next run.

A table that the configuration leaves out is in no base cut. Its changes are removed with those of
other tables, and a mirror made later is marked.

Not handled: a row that lands after its place was removed looks like a replay; folding counts it,
and its table is not truncated further. Age counts from the publishing of a cut, so a changefeed
that publishes none keeps everything.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import WriterProperties

from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.base.progress import tell
from ticdc_assets.config import Retention
from ticdc_assets.delta.commits import NamedCommit
from ticdc_assets.delta.control import commit_metadata, open_table, read_rows, read_table
from ticdc_assets.delta.delta_files import log_state
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.change_statistics import ChangeStatistics, read_groups, read_statistics
from ticdc_assets.log.cuts import Cut, CutHead, read_cuts, read_heads
from ticdc_assets.log.decoding import landed_up_to
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

ROWS_OF_GROUP = 128
"""The fewest rows a reader of a control table reads at once: a row may have thousands of tables."""

_DECIDING = ("kind", "batch", "commit_ts", "database", "table")
"""The columns of the change log that decide whether a row stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingDay:
    """A landing day of `raw_messages`, and whether it stays.

    Attributes:
        day: the day (UTC).
        records: its records.
        stays: why it stays, in one clause; None if it goes.
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
    tables: Mapping[str, int] | None = None
    days: tuple[LandingDay, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """Which tables are not truncated, and why less was removed than the ages allow."""
        return (*(item.sentence for item in self.truncation_point.kept), *self.notes)

    def lines(self) -> Iterator[str]:
        """Yield the lines for people: one for each table and each day, then the reasons."""
        for name, point in (
            ("change_log", self.truncation_point),
            ("raw_messages", self.raw_truncation_point),
        ):
            if point.cut is not None:
                yield f"{name}: truncated below cut {point.number} at {point.cut.moment}"
            else:
                yield f"{name}: nothing was ever truncated"
        for table, rows in sorted((self.tables or {}).items()):
            yield f"change_log: {table}: {counted(rows, 'row')} to remove"
        yield from (f"raw_messages: {item.clause}" for item in self.days)
        yield from self.reasons


def retain(lake: Lake, *, now: datetime | None = None, dry_run: bool = False) -> Retaining:
    """Remove the rows and cuts beyond the configured ages. The caller holds the writer lock.

    Args:
        lake: the changefeed's lake.
        now: the time at which ages are measured.
        dry_run: whether only to report what would be removed.
    """
    now = now or datetime.now(UTC)
    statistics, cuts = read_statistics(lake.paths), read_heads(lake.paths)
    run = _Retention(lake, now, dry_run=dry_run)
    # Older cuts have another change log.
    cuts = [cut for cut in cuts if cut.generation == lake.paths.generation]
    if not cuts:
        return run.done()
    if not _is_decoded(lake.paths, statistics):
        run.notes.append("nothing is truncated: a sync must first finish a killed run")
    else:
        bases = BaseCuts(lake, statistics, cuts, run.point)
        ages = lake.changefeed.retention
        # Both come before any removal: the change log shows which cuts have late rows.
        base = run.base(bases, cuts, ages.change_log, run.point, "change_log")
        raw_base = run.base(
            bases, cuts, ages.raw_messages, run.raw_point, "raw_messages", of_all=True
        )
        lacking = () if base is None else bases.lacking(base)
        if base is not None:
            tell("removing old changes from change_log")
            run.truncate_change_log(base, lacking)
        if raw_base is not None:
            tell("removing old records from raw_messages")
            run.truncate_raw_messages(raw_base)
        run.remove_exported()
    run.remove_cuts()
    run.remove_landings()
    return run.done()


def _is_decoded(paths: LakePaths, statistics: ChangeStatistics) -> bool:
    """Whether everything landed is decoded and counted: some of it may have come late."""
    there = (statistics.batch, landed_batch(paths), landed_seed(paths))
    return there == (*decoded_position(paths), decoded_seed(paths))


class _Retention:
    """One retention, and its result so far."""

    def __init__(self, lake: Lake, now: datetime, *, dry_run: bool) -> None:
        self._lake = lake
        self._now = now
        self._dry_run = dry_run
        self.point = read_truncation_point(lake.paths)
        self.raw_point = read_raw_truncation_point(lake.paths)
        self.notes: list[str] = []
        self._changes = self._records = self._cuts = self._landings = 0
        self._tables: dict[str, int] | None = {} if dry_run else None
        self._days: tuple[LandingDay, ...] = ()

    def done(self) -> Retaining:
        """Return the result."""
        return Retaining(
            truncation_point=self.point,
            raw_truncation_point=self.raw_point,
            changes=self._changes,
            records=self._records,
            cuts=self._cuts,
            landings=self._landings,
            tables=self._tables,
            days=self._days,
            notes=tuple(self.notes),
        )

    def base(
        self,
        bases: BaseCuts,
        cuts: Sequence[CutHead],
        age: timedelta | None,
        point: TruncationPoint,
        table: str,
        *,
        of_all: bool = False,
    ) -> Cut | None:
        """Return the newest usable cut that is old enough and above the last base, or None.

        Args:
            bases: judges cuts.
            cuts: the published cuts.
            age: its minimum age; None for no base.
            point: up to where the table was truncated.
            table: `change_log` or `raw_messages`.
            of_all: whether no table may lack anything at it.
        """
        if age is None:
            return None
        candidates = [
            cut for cut in cuts if cut.published_at <= self._now - age and cut.number > point.number
        ]
        reason = None
        for head in _newest_of_days(candidates):
            (cut,) = read_cuts(self._lake.paths, number=head.number)
            flaw = bases.flaw(cut)
            if flaw is None and of_all:
                flaw = "; ".join(item.clause for item in bases.lacking(cut)) or None
            if flaw is None:
                return cut
            reason = reason or f"cut {cut.number} cannot be a base cut: {flaw}"
        if reason is not None:
            self.notes.append(f"{table} is not truncated further: {reason}")
        return None

    # The change log ---------------------------------------------------------------------------

    def truncate_change_log(self, base: Cut, lacking: Iterable[LackingTable]) -> None:
        """Remove rows at or below the base, except those of tables that lack something there."""
        log, kept = self._lake.paths.change_log, self._kept(lacking)
        moved = self._moved(base, kept)
        at, kind, batch = (ds.field(name) for name in ("commit_ts", "kind", "batch"))
        stays = [cites(span) for item in kept for span in item.spans]
        rows = kind.isin(list(OF_MIRRORS)) & (at <= base.tso)
        if stays:
            rows &= ~surely(reduce(or_, stays))
        # Watermarks identify replays of the rows that stay.
        watermarks = (kind == WATERMARK) & (at <= moved.lowest)
        registered = commit_metadata(self._lake.paths.schema_registry).get("batch", 0)
        bootstraps = (kind == BOOTSTRAP) & (batch <= min(base.batch, registered))
        gone = surely(rows | watermarks | bootstraps)
        waits = read_rows(self._lake.paths.checksums, ds.field("waiting") > 0, columns=["batch"])
        if waiting := [row["batch"] for row in waits]:
            # Batches whose checksums are compared again, as a whole.
            gone &= ~batch.isin(waiting)
        # No row above the base is removed, except bootstraps.
        may_go = (at <= base.tso) | bootstraps
        if self._dry_run:
            self._count(self._removing(log).going(may_go, gone, _DECIDING))
        else:
            self._changes = self._removing(log, moved).remove(may_go, gone, _DECIDING)
        if self._changes:
            self.point = moved
        else:
            self._note(base, kept)

    def _kept(self, lacking: Iterable[LackingTable]) -> tuple[KeptTable, ...]:
        """Return the tables that are not truncated, with their bases."""
        before = {item.key: item for item in self.point.kept}
        kept: list[KeptTable] = []
        for item in lacking:
            known = before.get(item.key) or self._kept_by_name(item)
            kept.append(
                KeptTable(
                    mirror_id=item.mirror_id,
                    database=item.database,
                    table=item.table,
                    base=self.point.number if known is None else known.base,
                    reason=item.reason,
                    since=self._now if known is None else known.since,
                    spans=item.spans,
                )
            )
        return tuple(kept)

    def _kept_by_name(self, table: LackingTable) -> KeptTable | None:
        """Return what was kept for a table that no base has, by a name without a table."""
        if table.mirror_id is None or self.point.base_of(table.mirror_id) is not None:
            return None
        names = {(span.database, span.table) for span in table.spans}
        found = (item for item in self.point.kept if item.mirror_id is None and item.name in names)
        return min(found, key=self.point.place_of_kept, default=None)

    def _moved(self, base: Cut, kept: tuple[KeptTable, ...]) -> TruncationPoint:
        """Return the truncation point with another base."""
        numbers = {item.base for item in kept}
        known = dict(self.point.older)
        if self.point.cut is not None:
            known[self.point.number] = self.point.cut
        older = {number: cut for number, cut in known.items() if number in numbers}
        return TruncationPoint(batch=base.batch, cut=base, kept=kept, older=older)

    def _note(self, base: Cut, kept: tuple[KeptTable, ...]) -> None:
        """Record which tables are not truncated if no row is removed.

        As long as a table lacks something, the base does not move: nothing is gone above it.
        """
        before, moved = self.point, self._moved(base, kept)
        if kept:
            # Other tables may still rest on an older base.
            keys = {item.key for item in kept}
            rest = (
                item for item in before.kept if item.key not in keys and item.base != before.number
            )
            moved = replace(before, kept=(*kept, *rest))
        elif not before.kept:
            return
        if properties_of(moved) == properties_of(before):
            return
        self.point = moved
        if not self._dry_run:
            self._removing(self._lake.paths.change_log, moved).remove_files(())

    def _count(self, rows: pa.Table) -> None:
        """Count rows to remove, by table."""
        self._changes = rows.num_rows
        groups = rows.group_by(["kind", "database", "table"]).aggregate([([], "count_all")])
        tables = dict[str, int]()
        for row in groups.to_pylist():
            name = f"{row['kind']}s"
            if row["kind"] in OF_MIRRORS:
                name = joined_name(row["database"], row["table"])
            tables[name] = tables.get(name, 0) + row["count_all"]
        self._tables = tables

    def _removing(self, table: AnyPath, point: TruncationPoint | None = None) -> Rewriter:
        """Return what removes a table's rows in one commit, which sets its truncation point."""
        return Rewriter(
            spark=self._lake.spark,
            table=table,
            does=f"removing rows of {table.name}",
            properties={} if point is None else properties_of(point),
        )

    # The raw messages -------------------------------------------------------------------------

    def truncate_raw_messages(self, base: Cut) -> None:
        """Remove the landing days that are completely at or below the base."""
        landed = landed_up_to(self._lake.paths, base.batch)
        if landed is None:
            self.notes.append("raw_messages is not truncated: its batches are no longer known")
            return
        raw = self._lake.paths.raw_messages
        files = _files_by_day(raw)
        greatest = _greatest(self._lake.paths, base.tso)
        self._days = tuple(
            LandingDay(
                day=day,
                records=sum(file.records for file in own),
                stays=_why_day_stays(base, greatest.get(day), landed, own),
            )
            for day, own in sorted(files.items())
        )
        gone = [item for item in self._days if item.stays is None]
        if not gone:
            return
        self._records = sum(item.records for item in gone)
        self.raw_point = TruncationPoint(batch=landed, cut=base)
        if not self._dry_run:
            names = {file.path for item in gone for file in files[item.day]}
            self._removing(raw, self.raw_point).remove_files(names)

    def remove_exported(self) -> None:
        """Remove the landed rows of exports at or below the base of the raw messages.

        A seed with rows in quarantine keeps all of its rows: a fix may make them readable.
        """
        if self.raw_point.cut is None:
            return
        seeds = read_seeds(self._lake.paths)
        tsos = {item.tso for item in seeds}
        waiting = {
            row["partition"]
            for row in read_quarantine(self._lake.paths)
            if row["database"] is not None and row["commit_ts"] in (None, *tsos)
        }
        numbers = sorted(
            {
                item.seed
                for item in seeds
                if item.tso <= self.raw_point.tso and item.seed not in waiting
            }
        )
        if not numbers or open_table(self._lake.paths.snapshot_rows) is None:
            return
        gone, removing = (
            ds.field("batch").isin(numbers),
            self._removing(self._lake.paths.snapshot_rows),
        )
        if self._dry_run:
            self._records += removing.going(gone, gone, ("batch",)).num_rows
        else:
            self._records += removing.remove(gone, gone, ("batch",))

    # Cuts -------------------------------------------------------------------------------------

    def remove_cuts(self) -> None:
        """Remove the cuts that are too old and not needed."""
        paths, cuts = self._lake.paths, read_heads(self._lake.paths)
        ages = self._lake.changefeed.retention
        numbers = kept_cuts(cuts, ages, self._now, self.point, self.raw_point)
        gone = [cut.number for cut in cuts if cut.number not in numbers]
        self._cuts = len(gone)
        if gone and not self._dry_run:
            last = max(gone)
            stays = ", ".join(str(number) for number in sorted(numbers) if number < last)
            _delete(paths.cuts, last, f" and number not in ({stays})" if stays else "")

    def remove_landings(self) -> None:
        """Remove the landings that are older than cuts are kept, but never the newest one."""
        landings, age = self._lake.paths.landings, self._lake.changefeed.retention.cuts
        if age is None:
            return
        is_old = ds.field("landed_at") < pa.scalar(self._now - age)
        old = read_table(landings, is_old, columns=["number"])
        if old is None or not old.num_rows:
            return
        numbers = old["number"].to_numpy()
        last = min(int(numbers.max()), commit_metadata(landings)["number"] - 1)
        self._landings = int((numbers <= last).sum())
        if self._landings and not self._dry_run:
            _delete(landings, last)


def _delete(path: AnyPath, last: int, condition: str = "") -> None:
    """Delete the rows of a control table up to a number that meet an SQL condition."""
    table = open_table(path)
    assert table is not None
    # Rows that stay are not read: those of a day may be more than fit into memory.
    with NamedCommit(path, commit_metadata(path)).on(table) as properties:
        table.delete(
            f"number <= {last}{condition}",
            writer_properties=WriterProperties(max_row_group_size=ROWS_OF_GROUP),
            commit_properties=properties,
        )


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

    Args:
        cuts: the published cuts, oldest first.
        ages: the configured ages.
        now: the time at which ages are measured.
        points: the truncation points of the change log and of the raw messages.
    """
    if ages.cuts is None:
        return {cut.number for cut in cuts}
    kept = {cuts[-1].number}.union(*(point.numbers for point in points))
    young = [cut for cut in cuts if cut.published_at > now - ages.cuts]
    kept |= {cut.number for cut in young if cut.published_at > now - _EVERY_CUT or cut.late}
    kept.update({int(cut.published_at.timestamp()) // 3600: cut.number for cut in young}.values())
    for age, point in zip((ages.change_log, ages.raw_messages), points, strict=True):
        if age is not None:
            above = [cut for cut in cuts if cut.number > point.number]
            kept |= {cut.number for cut in _newest_of_days(above)}
            kept |= {cut.number for cut in above if cut.late}
    return kept.intersection(cut.number for cut in cuts)


def _newest_of_days(cuts: Iterable[Cut | CutHead]) -> list[Cut | CutHead]:
    """Return the newest cut of each UTC day, newest first."""
    days = {cut.published_at.astimezone(UTC).date(): cut for cut in cuts}
    return sorted(days.values(), key=lambda cut: cut.number, reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RawFile:
    """A file of `raw_messages`; `batch` is its newest batch, None if its log does not have it."""

    path: str
    records: int
    batch: int | None


def _files_by_day(raw: AnyPath) -> dict[date, list[_RawFile]]:
    days: dict[date, list[_RawFile]] = {}
    for action in log_state(raw).files:
        stats = json.loads(action.get("stats") or "{}")
        file = _RawFile(
            path=action["path"],
            records=stats.get("numRecords", 0),
            batch=stats.get("maxValues", {}).get("batch"),
        )
        day = date.fromisoformat(action["partitionValues"]["landed_day"])
        days.setdefault(day, []).append(file)
    return days


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


def _why_day_stays(
    base: Cut, greatest: int | None, landed: int, files: Iterable[_RawFile]
) -> str | None:
    """Return why a landing day stays; None if it goes.

    Args:
        base: the base cut.
        greatest: the greatest commit ts or watermark of the day; None without any.
        landed: newest landed batch that the base was made from.
        files: the files of the day.
    """
    if greatest is not None and greatest > base.tso:
        last = moment_text(greatest, es_only=base.es_only)
        return f"it goes on to {last}, above cut {base.number}"
    if any(file.batch is None or file.batch > landed for file in files):
        return f"records of it landed after cut {base.number} was made"
    return None
