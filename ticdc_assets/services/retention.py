"""Retention: remove old rows and cuts of a changefeed, and keep a base cut.

In: the configured ages, the published cuts, and open rows (held rows, quarantine). Out: rows below
a *base cut* removed from `change_log` and `raw_messages`, old cuts removed from `cuts`, and a
`TruncationPoint` for each of the two tables, which names its base cut.

The base cut is a published cut that would be the same today: no row came late to it, no schema
arrived for its held rows, none of its quarantined changes was redriven; no changes wait of rows
that a table took over (a new key, EXCHANGE PARTITION). Its mirrors contain all changes at or below
it, so folds, reads as of a TSO and proofs start from those rows. Its held and quarantined rows,
which it lacks, are kept. For a table with a key, all changes from the first such row on are kept,
because only they show the later state of a key; folding them over the base cut's rows again changes
nothing. For a table without a key, exactly those rows are kept, as a change would count twice.

The truncation point is the transaction identifier of the commit that removed the rows (application
`retention`, version: the number of the base cut). So it exists if and only if they are removed; a
run may be killed anywhere, and the next one continues. The commit repeats the metadata of the
previous one, which stores the position. Landed rows of exports (`snapshot_rows`) go after the
commit that moves the point of `raw_messages`; a run killed in between leaves them to the next move.

A record of `raw_messages` is removed if it is decodable, not in quarantine, and all its events are
at or below the base cut of `raw_messages` and not among those that the base cut lacks. This is
found by decoding it again, so it does not depend on the remaining change log.

A table without a mirror is in no base cut. Its changes are removed with those of other tables, and
a mirror made later is marked. A cut that lacks a table which is mirrored now cannot be a base cut.

Not handled: a row that lands after its place was removed looks like a replay; folding counts it.
Age counts from the publishing of a cut, so a changefeed that publishes none keeps everything.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from ticdc_assets.changelog.plan import MirrorPlan, Plan
from ticdc_assets.config import Changefeed
from ticdc_assets.engine.control import commit_metadata, read_rows, read_table, write_table
from ticdc_assets.engine.executing import executor
from ticdc_assets.engine.files import WrittenFile
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.scratch import WRITING, Scratch
from ticdc_assets.names import joined_name
from ticdc_assets.pipeline.ahead import is_ahead
from ticdc_assets.pipeline.change_files import (
    CHANGE_LOG_SCHEMA,
    RECORD_COLUMNS,
    Batches,
    parts_of,
    rows_in,
)
from ticdc_assets.pipeline.change_statistics import ChangeStatistics, read_statistics
from ticdc_assets.pipeline.cuts import CUT_SCHEMA, Cut, read_cuts
from ticdc_assets.pipeline.decoding import (
    accepted_clocks,
    landed_up_to,
    record_decoder,
)
from ticdc_assets.pipeline.positions import decoded_position, landed_batch
from ticdc_assets.pipeline.quarantine import (
    CLOSED_BY,
    Closing,
    cited_names,
    place_of,
    read_quarantine,
)
from ticdc_assets.pipeline.schema_tables import SCHEMA_KINDS
from ticdc_assets.pipeline.seeds import decoded_seed, landed_seed, read_seeds
from ticdc_assets.pipeline.truncation_points import (
    APPLICATION,
    TruncationPoint,
    read_raw_truncation_point,
    read_truncation_point,
)
from ticdc_assets.pipeline.validity import Knowledge
from ticdc_assets.progress import tell
from ticdc_assets.rows.rows_of_work import KeptRows, kept, kept_rows
from ticdc_assets.services.kept_cuts import kept_cuts, newest_of_days
from ticdc_assets.services.lacking_rows import (
    LackingRows,
    faults_of,
    in_time_of,
    lacking_of,
    lacking_of_none,
)
from ticdc_assets.services.removing import Others, Removing, Without, surely
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets.wire.rows import COORDINATES, ERROR, OF_MIRRORS, PLACE

_DECIDING = (
    *PLACE,
    *("kind", "batch", "commit_ts", "database", "table", "schema_version"),
)
"""The columns of the change log by which a row stays or goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retaining:
    """What one retention did, or would do.

    Attributes:
        truncation_point: that of the change log, after it.
        raw_truncation_point: that of the raw messages, after it.
        changes: rows removed from the change log.
        records: records removed from the raw messages.
        cuts: cuts removed.
        notes: why less was removed than the ages allow, each a sentence.
    """

    truncation_point: TruncationPoint
    raw_truncation_point: TruncationPoint
    changes: int = 0
    records: int = 0
    cuts: int = 0
    notes: tuple[str, ...] = ()


def retain(
    spark: SparkSession,
    paths: LakePaths,
    changefeed: Changefeed,
    *,
    now: datetime | None = None,
    dry_run: bool = False,
) -> Retaining:
    """Remove what the configured ages let go. The caller holds the writer lock.

    Args:
        spark: the session.
        paths: tables of the changefeed.
        changefeed: its configuration.
        now: the time that ages are counted up to.
        dry_run: whether only to count.
    """
    now = now or datetime.now(UTC)
    truncation_point, raw_truncation_point = (
        read_truncation_point(paths),
        read_raw_truncation_point(paths),
    )
    statistics, cuts = read_statistics(paths), read_cuts(paths)
    if not cuts:
        return Retaining(
            truncation_point=truncation_point, raw_truncation_point=raw_truncation_point
        )
    retention = changefeed.retention
    notes: list[str] = []
    changes = records = 0
    if not _is_decoded(paths, statistics):
        notes.append("nothing is truncated: a sync must first finish a killed run")
    else:
        run = _CutOff(spark, paths, changefeed, statistics, cuts, truncation_point, dry_run)
        # Both before anything is removed: the change log tells to which cuts rows came late.
        base = run.base(now, retention.change_log, truncation_point, "change_log", notes)
        raw_base = run.base(
            now, retention.raw_messages, raw_truncation_point, "raw_messages", notes
        )
        if base is not None:
            tell("removing old changes from change_log")
            changes = run.truncate_change_log(base)
            truncation_point = _moved(base, truncation_point, changes)
        if raw_base is not None:
            tell("removing old records from raw_messages")
            records = run.truncate_raw_messages(raw_base, notes)
            raw_truncation_point = _moved(raw_base, raw_truncation_point, records)
    removed = _remove_cuts(
        paths, changefeed, now, truncation_point, raw_truncation_point, dry_run=dry_run
    )
    return Retaining(
        truncation_point=truncation_point,
        raw_truncation_point=raw_truncation_point,
        changes=changes,
        records=records,
        cuts=removed,
        notes=tuple(notes),
    )


def _is_decoded(paths: LakePaths, statistics: ChangeStatistics) -> bool:
    """Whether all that landed is decoded and counted: some of it may have come late."""
    there = (statistics.batch, landed_batch(paths), landed_seed(paths))
    return there == (*decoded_position(paths), decoded_seed(paths))


def _moved(base: Cut, before: TruncationPoint, removed: int) -> TruncationPoint:
    return TruncationPoint(tso=base.tso, batch=base.batch, cut=base) if removed else before


# Truncating -------------------------------------------------------------------------------------


class _CutOff:
    """One retention: finds bases and removes what is below them."""

    def __init__(
        self,
        spark: SparkSession,
        paths: LakePaths,
        changefeed: Changefeed,
        statistics: ChangeStatistics,
        cuts: Sequence[Cut],
        truncation_point: TruncationPoint,
        dry_run: bool,
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._changefeed = changefeed
        self._cuts = cuts
        self._truncation_point = truncation_point
        self._dry_run = dry_run
        self._known = Knowledge.of(paths, changefeed.timezone, statistics)
        # By the ids: a table may have been left out of older cuts by another name.
        self._mirrored = {mirror.mirror_id for mirror in cuts[-1].mirrors}
        self._registered = commit_metadata(paths.schema_registry).get("batch", 0)
        self._newest_schemas = statistics.newest_batch(SCHEMA_KINDS)
        self._compared = _compared(paths, statistics)
        self._has_unapplied = cuts[-1].batch < statistics.batch
        self._tsos = {item.tso for item in read_seeds(paths)}
        self._faults = [
            row for row in read_quarantine(paths, open_only=False) if row["stage"] == "apply"
        ]

    # The base ---------------------------------------------------------------------------------

    def base(
        self,
        now: datetime,
        age: timedelta | None,
        truncation_point: TruncationPoint,
        table: str,
        notes: list[str],
    ) -> Cut | None:
        """Return the newest usable cut that is old enough and above the last base, or None."""
        if age is None:
            return None
        candidates = [
            cut
            for cut in self._cuts
            if cut.published_at <= now - age and cut.number > truncation_point.number
        ]
        reason = None
        for cut in newest_of_days(candidates):
            found = self._flaw(cut)
            if found is None:
                return cut
            reason = reason or f"cut {cut.number} cannot be a base cut: {found}"
        if reason is not None:
            notes.append(f"{table} is not truncated further: {reason}")
        return None

    def _flaw(self, cut: Cut) -> str | None:
        """Return why a cut would not be made the same today, None if it would."""
        if cut.failed:
            return f"{len(cut.failed)} of its mirrors could not be made"
        if cut.unaccounted:
            return "some of its row changes are not accounted for"
        if is_ahead(cut.tso, cut.made_at, self._changefeed.max_ahead_seconds):
            return "its TSO is ahead of the clock at its publishing"
        if cut.batch > self._compared:
            return "its row checksums were not compared yet"
        # A batch without DDL and bootstraps leaves the registry as it is.
        if 0 < self._registered < min(cut.batch, self._newest_schemas):
            return "its schemas were not registered yet"
        if self._came_late(cut):
            return "rows came late to it"
        if self._known.is_corrected(cut):
            return "its rows were decoded again since, and differed"
        then = self._known.plan(cut.tso)
        left_out = {
            mirror.mirror_id
            for mirror in then.mirrors
            if mirror.mirror_id not in self._mirrored
            and not self._changefeed.tables.includes(mirror.database, mirror.table)
        }
        now, has = (
            {item.mirror_id: item.digest for item in mirrors if item.mirror_id not in left_out}
            for mirrors in (then.mirrors, cut.mirrors)
        )
        if cut.tables is not None and now.keys() - has.keys():
            return "tables that it left out are mirrored now"
        if now != has:
            return "the schemas or histories of its tables changed since"
        if any(
            row["commit_ts"] <= cut.tso
            and row["redriven_at"] is not None
            and row.get(CLOSED_BY) != Closing.LATER_CHANGE
            and row["redriven_at"] > cut.made_at
            for row in self._faults
        ):
            return "row changes that it had in quarantine were redriven since"
        return self._waits_below(cut, then)

    def _waits_below(self, cut: Cut, then: Plan) -> str | None:
        """Return which table of a cut lacks changes of rows that were handed over to it.

        Behind a base the fold starts from the table's own rows: what was handed over is in them,
        and nothing can be added to it.
        """
        given = [
            (mirror, plan)
            for mirror in then.mirrors
            for plan in mirror.sources()
            if plan is not mirror
        ]
        # Most cuts have no such table, and to find the faults the change log is read.
        faults = self._open_faults(cut) if given else []
        for mirror, plan in given:
            if plan.held or faults_of(plan, faults) or self._has_strays(plan, cut):
                return (
                    f"changes of rows that {joined_name(*mirror.name)} took over "
                    "wait for their schema or in quarantine"
                )
        return None

    def _has_strays(self, plan: MirrorPlan, cut: Cut) -> bool:
        """Whether changes in a table's time cite a schema version that it did not have."""
        strays = [
            item.condition(ds.field)
            for group in plan.wrong_version
            for item in in_time_of(plan, group, cut.tso)
        ]
        if not strays:
            return False
        found = read_table(self._paths.change_log, reduce(or_, strays), columns=["batch"])
        return found is not None and found.num_rows > 0

    def _came_late(self, cut: Cut) -> bool:
        """Whether rows landed after the cut that are at or below it and may be no replays."""
        later = [item for item in self._cuts if item.number > cut.number]
        is_told = any(item.late for item in later)
        # Of a batch that no cut has yet, after a killed sync or a rewind, no cut tells anything.
        if not is_told and not self._has_unapplied and not cut.es_only:
            return False
        if cut.number < self._truncation_point.number:
            return True  # the rows that would tell are gone
        found = read_table(
            self._paths.change_log,
            (ds.field("kind") == "row")
            & (ds.field("batch") > cut.batch)
            & (ds.field("commit_ts") <= cut.tso),
            columns=["batch"],
        )
        return found is not None and found.num_rows > 0

    def _lacking(self, base: Cut) -> list[LackingRows]:
        """Return what the base lacks and what is needed to place it."""
        plan = self._known.plan(base.tso)
        faults = self._open_faults(base)
        had = {mirror.mirror_id for mirror in base.mirrors}
        held = {(item.mirror_id, item.schema_version) for item in base.held}
        lacking = lacking_of_none(plan, base)
        for mirror in plan.mirrors:
            if mirror.mirror_id in had:
                lacking += lacking_of(mirror, faults, held, base.tso)
        return lacking

    def _open_faults(self, base: Cut) -> list[dict[str, Any]]:
        """Return the row changes in quarantine at or below the base, as the change log has them."""
        found = [
            row
            for row in self._faults
            if row["redriven_at"] is None and row["commit_ts"] <= base.tso
        ]
        names = cited_names(self._paths, found)
        return [row | names[place] for row in found if (place := place_of(row)) in names]

    # The change log ---------------------------------------------------------------------------

    def truncate_change_log(self, base: Cut) -> int:
        """Remove what is at or below the base and in it; return how many rows."""
        at, kind, batch = (ds.field(name) for name in ("commit_ts", "kind", "batch"))
        lacking = self._lacking(base)
        needed = reduce(or_, (item.condition(ds.field) for item in lacking), ds.scalar(False))
        # Watermarks tell replays of what stays.
        first = min((item.min_ts for item in lacking), default=base.tso + 1)
        rows = kind.isin(list(OF_MIRRORS)) & (at <= base.tso) & ~surely(needed)
        watermarks = (kind == "watermark") & (at < first) & (at <= base.tso)
        bootstraps = (kind == "bootstrap") & (batch <= min(base.batch, self._registered))
        gone = surely(rows | watermarks | bootstraps)
        waiting = _waiting(self._paths)
        if waiting:
            # Batches that are compared with their checksums once more, whole.
            gone &= ~batch.isin(waiting)
        # No row above the base goes, but for bootstraps.
        may_go = (at <= base.tso) | bootstraps
        return self._removing(self._paths.change_log, base).remove(may_go, Without(gone), _DECIDING)

    # The raw messages -------------------------------------------------------------------------

    def truncate_raw_messages(self, base: Cut, notes: list[str]) -> int:
        """Remove the records that are in the base in all that they say; return how many.

        Rows of exports go after them: the commit on the records says from where on all is there.
        """
        landed = landed_up_to(self._paths, base.batch)
        if landed is None:
            notes.append("raw_messages is not truncated: its batches are no longer known")
            return 0
        with closing(Scratch(self._paths, WRITING)) as scratch:
            gone = self._in_base(base, landed, scratch)
            records_gone = gone.rows().count
            if not records_gone:
                return 0
            if self._dry_run:
                return records_gone + self._cut_snapshot_rows(base)
            others = Others.than(gone.tables(), landed)
        removed = self._removing(self._paths.raw_messages, base).remove(
            ds.field("batch") <= landed, others, ("batch", *COORDINATES)
        )
        return removed + self._cut_snapshot_rows(base) if removed else 0

    def _removing(self, table: AnyPath, base: Cut | None = None) -> Removing:
        """Return what removes rows of a table by one commit, which makes `base` its base."""
        return Removing(
            spark=self._spark,
            table=table,
            transactions=() if base is None else ((APPLICATION, base.number),),
            dry_run=self._dry_run,
        )

    def _cut_snapshot_rows(self, base: Cut) -> int:
        """Remove the landed rows of exports that are in the base; return how many.

        Of a seed with rows in quarantine all stay: what is wrong with them may be corrected.
        """
        waiting = {
            row["partition"]
            for row in read_quarantine(self._paths)
            if row["database"] is not None and row["commit_ts"] in (None, *self._tsos)
        }
        gone = {
            (item.seed, item.tso)
            for item in read_seeds(self._paths)
            if item.tso <= base.tso and item.seed not in waiting
        }
        if not gone:
            return 0
        numbers = sorted(number for number, _ in gone)
        gone = ds.field("batch").isin(numbers)
        return self._removing(self._paths.snapshot_rows).remove(gone, Without(gone), ("batch",))

    def _in_base(self, base: Cut, landed: int, scratch: Scratch) -> KeptRows:
        """Return the coordinates of records that are in the base in all that they say.

        Args:
            base: the base.
            landed: the newest landed batch whose records are looked at.
            scratch: where the coordinates come if they may be many.
        """
        # What a claim check completes is in the same row, at the same commit ts.
        changefeed = replace(self._changefeed, claim_check=None)
        decode = record_decoder(changefeed, 0, clocks=accepted_clocks(self._paths))
        at = ds.field("commit_ts")
        needed: ds.Expression = reduce(
            or_,
            (item.condition(ds.field) for item in self._lacking(base)),
            (ds.field("kind") == ERROR)
            | (at > base.tso)
            | ((ds.field("kind") == "ddl") & (at == base.tso)),
        )
        # What may be decoded by now is in no cut before somebody re-drives it.
        open_rows = [row for row in read_quarantine(self._paths) if row["stage"] == "decode"]
        waiting = pa.Table.from_pylist(open_rows, schema=_COORDINATES)
        chosen = Batches(0, landed)

        def gone(some: Iterable[tuple[AnyPath, int]]) -> Iterator[WrittenFile | pa.Table | None]:
            for piece in some:
                # All rows of a record come in one batch.
                found = [
                    _records_without(rows, needed, waiting)
                    for rows in decode(rows_in(piece, chosen, RECORD_COLUMNS))
                ]
                if found:
                    yield kept(pa.concat_tables(found), into)

        parts = parts_of(self._paths.raw_messages, chosen)
        runs_on = executor(
            self._spark,
            self._paths.change_log,
            "finding records of the base",
            rows=parts.rows,
            size=parts.size,
        )
        into = None if runs_on.holds else scratch.folder()
        found = runs_on.run(gone, parts.pieces, tasks=parts.tasks(runs_on.workers))
        return kept_rows(found, _COORDINATES, COORDINATES, into)


def _records_without(rows: pa.RecordBatch, needed: ds.Expression, waiting: pa.Table) -> pa.Table:
    """Return the coordinates of decoded records that do not wait and of which no row is needed."""
    table = pa.Table.from_batches([rows])
    stay = pa.concat_tables([table.filter(needed).select(list(COORDINATES)), waiting])
    records, stay = (found.group_by(list(COORDINATES)).aggregate([]) for found in (table, stay))
    return records.join(stay, list(COORDINATES), join_type="left anti", use_threads=False)


_COORDINATES = pa.schema([CHANGE_LOG_SCHEMA.field(name) for name in COORDINATES])


def _compared(paths: LakePaths, statistics: ChangeStatistics) -> int:
    """Return up to which batch the row checksums were compared."""
    if not statistics.checksums:
        return statistics.batch
    return commit_metadata(paths.checksums).get("batch", 0)


def _waiting(paths: LakePaths) -> list[int]:
    return [row["batch"] for row in read_rows(paths.checksums) if row["waiting"]]


# Cuts -------------------------------------------------------------------------------------------


def _remove_cuts(
    paths: LakePaths,
    changefeed: Changefeed,
    now: datetime,
    truncation_point: TruncationPoint,
    raw_truncation_point: TruncationPoint,
    *,
    dry_run: bool,
) -> int:
    cuts = read_cuts(paths)
    kept = kept_cuts(
        cuts,
        changefeed,
        now,
        truncation_point=truncation_point,
        raw_truncation_point=raw_truncation_point,
    )
    removed = len(cuts) - len(kept)
    if removed and not dry_run:
        rows = read_table(paths.cuts, ds.field("number").isin([cut.number for cut in kept]))
        assert rows is not None
        write_table(
            paths.cuts,
            pa.Table.from_pylist(rows.to_pylist(), schema=CUT_SCHEMA),
            overwrite=True,
            metadata=commit_metadata(paths.cuts),
        )
    return removed
