"""Applying: the mirrors of all tables at one cut.

In: the change log, the schema registry and the newest published cut. Out: Delta versions of the
mirrors at the new cut's TSO, and then one row in `cuts` that publishes them together.

How a mirror is made, cheapest first:

- *carried*: nothing of it changed; the cut names the version it has.
- *alter*: the schema changed in a way that touches no row (`in_place`), or an earlier program gave
  the column of rescued data another name; the table's metadata follows. If rows changed too, a
  merge comes after it.
- *merge*: the changes since the last cut are folded to one per key and merged.
- *rewrite*: the rows of the last cut, carried through the schema steps since, and the changes are
  folded together and overwrite it. So it is for a schema change that touches rows that are there,
  for a table without a key, and for a small mirror, which is written without Spark (`overwriting`).
- *fold*: all changes of the table since it was created or truncated are folded, and overwrite it;
  where the change log was cut off, over its rows in the base cut (`retention`).
  So it is for a new mirror, and for one whose past changed: a schema arrived for rows that were
  held, a record was re-driven, a change came late. `MirrorPlan.digest` tells.

All of them come to the same state; `changelog.fold` is the reference they are tested against.

Why running it again is safe: each of them is one Delta commit, made from the version that the
newest published cut names. What a killed run, or a foreign writer, left behind (a mirror whose rows
are ahead of that version) is taken back first, but no compaction or vacuum: they leave the rows as
they are. What was made is looked up by its own commit, and one that a foreign change came before
is made anew (`commits`). Nothing is published before every mirror is there, and publishing is one
append. Replays fold into what is there: a key's last change is the same change.

Values that do not fit their schema go to quarantine, one change each, and never stop a cut. A
mirror that cannot be made, for whatever reason, never stops one either: it keeps the rows of the
last cut that made it, is listed as *failed*, and each later cut folds it from the change log.

The tables that the configuration leaves out have no mirror, no held rows and no quarantined changes
in a cut. The cut says by which filter it was made, so a filter that changed makes a new cut even if
nothing was landed. A table goes by its name at the cut: one that is included later, or is renamed
to a name that is included, is folded like a new one, from all of its changes.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import reduce
from operator import and_
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import Column, SparkSession

from ticdc_assets.changelog.encoder_damage import damage_marks
from ticdc_assets.changelog.plan import (
    Binding,
    FailedPlan,
    HeldGroup,
    MirrorPlan,
    Plan,
)
from ticdc_assets.changelog.progress import GlobalWatermark
from ticdc_assets.config import Changefeed
from ticdc_assets.errors import LakeDamagedError
from ticdc_assets.isolation import Failure, attempted
from ticdc_assets.lake.accepted_gaps import AcceptedGap, close_accepted, gap_marks
from ticdc_assets.lake.accounts import account_changes
from ticdc_assets.lake.change_folding import (
    ChangeFolding,
    hidden_columns,
    is_removed_from,
    is_touched,
)
from ticdc_assets.lake.change_statistics import ChangeGroups, read_groups
from ticdc_assets.lake.commits import reached, same_rows_at
from ticdc_assets.lake.control import is_plain, latest_version, open_table
from ticdc_assets.lake.cuts import (
    FAILED,
    LAYOUT,
    ChangeAccount,
    Cut,
    FailedMirror,
    HeldRows,
    MirrorCut,
    cast_marks,
    casts_listed,
    filter_text,
    newest_cut,
    publish,
)
from ticdc_assets.lake.damage import damaged_mirrors, table_damage
from ticdc_assets.lake.executing import INLINE_ROWS
from ticdc_assets.lake.fold_runs import WRITING, Folded, Scratch, frame_of, remove_forgotten
from ticdc_assets.lake.history import HistoryBase, HistoryWriter, MadeHistory
from ticdc_assets.lake.horizons import BELOW, Horizon, marks_below
from ticdc_assets.lake.in_place import alter, alterations, rescued_renamed
from ticdc_assets.lake.mirror_rows import (
    EXACT_KINDS,
    PARTIAL,
    MirrorLayout,
    change_effects,
    quoted,
)
from ticdc_assets.lake.overwriting import (
    PLAIN_ROWS,
    give_features,
    overwrite,
    overwrite_by_files,
    take_back,
    undisturbed,
    written,
)
from ticdc_assets.lake.paths import LakePaths
from ticdc_assets.lake.quarantine import (
    Closing,
    append_faults,
    apply_faults,
    close_rows,
    read_quarantine,
)
from ticdc_assets.lake.session import MERGING, functions, session_with
from ticdc_assets.lake.spark_commits import SparkCommit
from ticdc_assets.lake.validity import Knowledge, LateRows
from ticdc_assets.lake.versions import former_rescued, mirror_in_spark
from ticdc_assets.lake.watermark import read_watermark
from ticdc_assets.mysql_types import kind_of
from ticdc_assets.schemas import TableSchema, schema_to_json
from ticdc_assets.tso import MAX_TSO, es_cut, from_physical_ms, moment_text, physical_ms
from ticdc_assets.wire.rows import PLACE

_Place: TypeAlias = tuple[object, ...]
_Doubts: TypeAlias = dict[_Place, list[tuple[str, int]]]
"""By the place of a change that is in quarantine the keys of its effects, and their commit ts."""


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
        cut: the newest published cut, None before the first.
        watermark: the global watermark.
        repaired: what was broken of the mirrors that were made again for it, each a sentence.
        renamed: mirrors whose column of rescued data has got its name of today, as
            `database.table`.
    """

    outcome: Outcome
    reason: str
    cut: Cut | None
    watermark: GlobalWatermark
    repaired: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()


SMALL_MIRROR_ROWS = PLAIN_ROWS
"""Rows up to which a mirror is rewritten whole: that costs less than a MERGE."""

LARGE_BYTES = 64 << 20
"""Bytes of large images (`totals.LARGE_ROW_BYTES`) from which on a mirror is made in pieces."""

MOST_ROWS_IN_PIECES = 1_000_000
"""Changes up to which it is: what each is about, without its values, is held in this process."""

PARALLEL_MIRRORS = 2
"""Mirrors worked on at a time: planning and commits are CPU, so about one per core."""


def apply_changes(
    spark: SparkSession,
    paths: LakePaths,
    changefeed: Changefeed,
    *,
    until: int | None = None,
    refold: Collection[tuple[str, str]] = (),
    only: tuple[str, str] | None = None,
    horizon: Horizon | None = None,
    complete_ts: int | None = None,
) -> Applying:
    """Cut every mirror at min(until, global watermark) and publish the cut.

    Args:
        spark: the session.
        paths: tables of the changefeed.
        changefeed: its configuration.
        until: TSO not to go beyond.
        refold: (database, table) of mirrors to fold again from the change log whatever happened.
        only: (database, table) of the one mirror that the cut is to have, in a place of its own.
        horizon: up to where the change log was cut off; as its table says if None.
        complete_ts: TSO up to which all is there whatever the watermarks say: that of a cut that
            was published from the same records.
    """
    groups = read_groups(paths)
    last = newest_cut(paths)
    watermark = read_watermark(paths, groups=groups, cut=last)
    gaps = close_accepted(paths, es_only=groups.es_only)

    def ended(outcome: Outcome, reason: str) -> Applying:
        return Applying(outcome=outcome, reason=reason, cut=last, watermark=watermark)

    if last is not None and until is not None and until < last.tso:
        wanted = moment_text(until, es_only=last.es_only)
        return ended(
            Outcome.AHEAD,
            f"the mirrors are at {last.moment}, beyond {wanted}; nothing was changed",
        )
    # Without commit ts nothing says what is complete: everything that landed is applied.
    limit = groups.newest_change if groups.es_only else watermark.watermark_ts
    waits = bool(watermark.waiting) and not groups.es_only
    if complete_ts is not None:
        limit, waits = max(limit or 0, complete_ts), False
    if limit is None or waits:
        waiting = ", ".join(f"{topic}/{partition}" for topic, partition in watermark.waiting)
        return ended(
            Outcome.WAITING,
            f"no watermark yet from {waiting}" if waiting else "no partition is known yet",
        )
    if groups.es_only:
        limit = es_cut(physical_ms(limit))
    tso = limit if until is None else min(until, limit)
    if last is not None and tso < last.tso:
        return ended(
            Outcome.WAITING,
            f"the global watermark {tso} (from {_place(watermark)}) "
            f"is behind the newest cut {last.tso}",
        )
    damages = damaged_mirrors(paths, last)
    if (
        last is not None
        and (tso, groups.batch) == (last.tso, last.batch)
        and not refold
        and not damages
        and not last.failed
        and not any(gap.accepted_at > last.published_at for gap in gaps)
        and not _lacks_history(last, changefeed)
        and last.tables == filter_text(changefeed.tables)
        and last.layout == LAYOUT
    ):
        return ended(
            Outcome.UNCHANGED, f"the mirrors are at {last.moment} and nothing new was landed"
        )
    remove_forgotten(paths)
    scratch = Scratch(paths, WRITING)
    changes = ChangeFolding(
        spark, paths, changefeed, batch=groups.batch, scratch=scratch, horizon=horizon
    )
    run = _Run(changes, spark, paths, changefeed, groups, last, tso, damages, gaps)
    try:
        cut = run.make(frozenset(refold), only)
    finally:
        scratch.close()
    if (
        last is not None
        and tso == last.tso
        and _same_content(cut, last)
        and not cut.unplaced
        # Somebody has to say that what landed since the older cut was looked at again.
        and last.rewind is None
        and last.layout == LAYOUT
    ):
        return ended(
            Outcome.UNCHANGED,
            f"the mirrors are at {last.moment} and what was landed changes nothing there",
        )
    publish(paths, cut)
    changed = sum(item.mode not in (Mode.CARRIED, FAILED) for item in cut.mirrors)
    failed = f", {len(cut.failed)} failed" if cut.failed else ""
    repaired = tuple(
        f"{error.table} was damaged: {error.finding}"
        for mirror_id, error in damages.items()
        if any(item.mirror_id == mirror_id and not item.failed for item in cut.mirrors)
    )
    again = f", {len(repaired)} of them made again because they were damaged" if repaired else ""
    return Applying(
        outcome=Outcome.PUBLISHED,
        reason=(
            f"cut {cut.number} at {cut.moment}: {changed} of {len(cut.mirrors)} mirrors changed"
            f"{again}{failed}"
        ),
        cut=cut,
        watermark=watermark,
        repaired=repaired,
        renamed=_renamed(cut, last),
    )


def _place(watermark: GlobalWatermark) -> str:
    return "/".join(str(part) for part in watermark.slowest) if watermark.slowest else "?"


def _same_content(cut: Cut, last: Cut) -> bool:
    """Whether `cut` says nothing that `last` does not say."""

    def content(of: Cut) -> tuple[object, ...]:
        mirrors = [
            (
                *(item.mirror_id, item.database, item.table, item.version, item.history_version),
                *(item.held, item.quarantined, item.marks),
            )
            for item in of.mirrors
        ]
        return (mirrors, of.held, of.quarantined, of.tables, of.failed, of.unaccounted)

    return content(cut) == content(last)


def _renamed(cut: Cut, last: Cut | None) -> tuple[str, ...]:
    """Return the mirrors of an older layout that `cut` has made in the layout of today."""
    if last is None or last.layout == LAYOUT:
        return ()
    before = {item.mirror_id for item in last.mirrors}
    return tuple(
        f"{item.database}.{item.table}"
        for item in cut.mirrors
        if item.mirror_id in before and not item.failed
    )


def _lacks_history(cut: Cut, changefeed: Changefeed) -> bool:
    """Whether a history was switched on since a cut."""
    return any(
        item.history_version is None and changefeed.keeps_history(item.database, item.table)
        for item in cut.mirrors
    )


class Mode(StrEnum):
    """How a cut makes a mirror."""

    CARRIED = "carried"
    ALTER = "alter"
    MERGE = "merge"
    REWRITE = "rewrite"
    FOLD = "fold"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A mirror as one task left it."""

    version: int
    rows: int
    hidden: list[str]
    quarantined: int
    mode: Mode
    changes: int
    unknown_deletes: int
    casts: Mapping[tuple[str, int], int]
    history: MadeHistory | None = None


class _Run:
    """One apply, from plan to the cut that is ready to be published."""

    def __init__(
        self,
        changes: ChangeFolding,
        spark: SparkSession,
        paths: LakePaths,
        changefeed: Changefeed,
        groups: ChangeGroups,
        last: Cut | None,
        tso: int,
        damages: Mapping[str, LakeDamagedError],
        gaps: Sequence[AcceptedGap],
    ) -> None:
        self._gaps = gaps
        self._spark = spark
        self._paths = paths
        self._changefeed = changefeed
        self._groups = groups
        self._last = last
        self._tso = tso
        self._known = Knowledge.of(paths, changefeed.timezone, groups)
        # What older cuts had in quarantine.
        self._faults = read_quarantine(paths)
        self._quarantine_lock = Lock()
        self._changes = changes
        self._before = {item.mirror_id: item for item in last.mirrors} if last else {}
        self._failed_before = {item.mirror_id: item for item in last.failed} if last else {}
        self._damages = damages
        # What decided over each history at the last cut, as it is known today.
        self._pasts: dict[str, str] = {}
        self._histories = HistoryWriter(spark, paths, changefeed, self._changes, tso=tso)

    def make(self, refold: frozenset[tuple[str, str]], only: tuple[str, str] | None) -> Cut:
        """Bring every mirror to the cut and return the cut, unpublished."""
        tables = self._changefeed.tables
        all_tables = self._known.plan(self._tso)
        plan = all_tables.of_tables(tables.includes)
        if only is not None:
            plan = replace(
                plan,
                mirrors=tuple(item for item in plan.mirrors if item.name == only),
                failed=tuple(item for item in plan.failed if (item.database, item.table) == only),
            )
        replays, late_rows, late = self._late_rows()
        below = self._below(plan)
        lost = gap_marks(self._paths, self._gaps, plan.mirrors, self._groups.rows, self._tso)
        # A mirror that is broken is made again: the change log has all of it.
        stale = self._stale(plan, refold, late) | self._damages.keys()
        first = self._first_folds(plan, stale)
        with ThreadPoolExecutor(PARALLEL_MIRRORS) as pool:
            made = list(
                pool.map(
                    lambda mirror: attempted(
                        lambda: self._make_both(
                            mirror, mirror.mirror_id in stale, first.get(mirror.mirror_id)
                        ),
                        f"the mirror of {'.'.join(mirror.name)}",
                    ),
                    plan.mirrors,
                )
            )
        made = self._behind(made)
        held = self._held(plan)
        mirrors: list[MirrorCut] = []
        failed: list[FailedMirror] = []
        for table, result in [
            *zip(plan.mirrors, made, strict=True),
            *((item, Failure(reason=item.reason)) for item in plan.failed),
        ]:
            if isinstance(result, Failure):
                failed.append(self._failed(table, result))
                mirrors += self._kept(table, held)
            else:
                assert isinstance(table, MirrorPlan)
                mirrors.append(self._mirror_cut(table, result, held, below, lost))
        mirrors.sort(key=lambda item: (item.database, item.table))
        progress = self._groups.progress().values()
        faults = read_quarantine(self._paths)
        return Cut(
            number=self._last.number + 1 if self._last else 1,
            tso=self._tso,
            published_at=datetime.now(UTC),
            batch=self._groups.batch,
            mirrors=tuple(mirrors),
            held=tuple(held),
            quarantined=sum(row["stage"] == "decode" for row in faults),
            replays=replays,
            late=late_rows,
            steps_back=sum(item.steps_back for item in progress),
            ignored=dict(plan.ignored),
            es_only=self._groups.es_only,
            unplaced=self._unplaced(),
            tables=filter_text(tables),
            failed=tuple(failed),
            accounts=() if only is not None else self._accounts(all_tables, failed, faults),
        )

    def _behind(self, made: Sequence[_Made | Failure]) -> list[_Made | Failure]:
        """Say of mirrors that could not be made that the change log is broken, if it is."""
        damage = None
        if any(isinstance(result, Failure) for result in made):
            damage = table_damage(self._paths.change_log)
        if damage is None:
            return list(made)
        return [
            Failure(reason=str(damage)) if isinstance(result, Failure) else result
            for result in made
        ]

    def _accounts(
        self, plan: Plan, failed: Sequence[FailedMirror], faults: Sequence[Mapping[str, Any]]
    ) -> tuple[ChangeAccount, ...]:
        """Account for the row changes since the last cut, and for those it had no account of."""
        above, batch = (self._last.tso, self._last.batch) if self._last else (0, 0)
        unaccounted = [item.first_ts for item in self._last.unaccounted] if self._last else []
        above = min([above, *(ts - 1 for ts in unaccounted if ts is not None)])
        return account_changes(
            lambda columns: self._changes.rows_since(
                columns, batch=batch, above=above, until=self._tso
            ),
            plan,
            includes=self._changefeed.tables.includes,
            failed={item.mirror_id for item in failed},
            quarantined={
                tuple(row[name] for name in PLACE) for row in faults if row["stage"] == "apply"
            },
        )

    # What changed in the past -----------------------------------------------------------------

    def _stale(
        self, plan: Plan, refold: frozenset[tuple[str, str]], late: Sequence[LateRows]
    ) -> set[str]:
        """Return the ids of mirrors whose past is not what it was at the last cut."""
        if self._last is None:
            return set()
        then = self._known.plan(self._last.tso)
        self._pasts = {mirror.mirror_id: mirror.past_digest for mirror in then.mirrors}
        return {
            mirror.mirror_id
            for mirror in plan.mirrors
            if mirror.name in refold
            or self._known.flaw(mirror, self._before.get(mirror.mirror_id), self._last, late)
        }

    def _late_rows(self) -> tuple[int, int, list[LateRows]]:
        """Tell replays from late rows among what landed since the last cut at or below it.

        A row that is in the change log already, with the same images and commit ts, is a replay.
        Any other one is late: it takes its place, never mind that its cut was published. Without
        commit ts, rows of the millisecond that the last cut ended in are neither: nothing says
        that two like changes in it are one.

        Returns:
            How many were replays, how many were late, and what is to be folded in.
        """
        if self._last is None or self._groups.batch <= self._last.batch:
            return 0, 0, []
        if not self._changes.has_late_rows(self._last.batch, self._last.tso):
            return 0, 0, []
        # The last millisecond of a cut without TSO, else nothing.
        open_ts = from_physical_ms(physical_ms(self._last.tso)) if self._groups.es_only else MAX_TSO
        F = functions(self._spark)
        rows = self._changes.log().where(
            (F.col("kind") == "row")
            & (F.col("commit_ts") <= self._last.tso)
            & self._changes.placed(F.col)
        )
        new = rows.where(F.col("batch") > self._last.batch)
        bounds = new.agg(F.count("*").alias("rows"), F.min("commit_ts").alias("min_ts")).collect()
        count = bounds[0]["rows"]
        if not count:
            return 0, 0, []
        old = rows.where(
            (F.col("batch") <= self._last.batch)
            & (F.col("commit_ts") >= bounds[0]["min_ts"])
            & (F.col("commit_ts") < open_ts)
        )
        same = reduce(
            and_,
            (
                F.col(f"n.{name}").eqNullSafe(F.col(f"o.{name}"))
                for name in (
                    "commit_ts",
                    "database",
                    "table",
                    "table_id",
                    "op",
                    "schema_version",
                    "before",
                    "after",
                )
            ),
        )
        late = (
            new.alias("n")
            .join(old.alias("o"), same, "left_anti")
            .groupBy("database", "table")
            .agg(
                F.min("commit_ts").alias("min_ts"),
                F.max("commit_ts").alias("max_ts"),
                F.count("*").alias("rows"),
                F.count_if(F.col("commit_ts") < open_ts).alias("late"),
            )
            .collect()
        )
        counted = sum(row["late"] for row in late)
        spans = [
            LateRows(
                name=(row["database"], row["table"]), min_ts=row["min_ts"], max_ts=row["max_ts"]
            )
            for row in late
        ]
        return count - sum(row["rows"] for row in late), counted, spans

    def _unplaced(self) -> int:
        """Count what landed since the last cut and lies where the change log was cut off."""
        horizon = self._changes.horizon
        if horizon.cut is None or self._last is None or self._groups.batch <= self._last.batch:
            return 0
        F = functions(self._spark)
        return (
            self._changes.log()
            .where(
                (F.col("kind") == "row")
                & (F.col("batch") > self._last.batch)
                & (F.col("commit_ts") <= horizon.tso)
                & ~self._changes.placed(F.col)
            )
            .count()
        )

    def _below(self, plan: Plan) -> dict[str, str]:
        """Return the marks of mirrors that lack what was learnt after the change log was cut off.

        A mirror keeps its mark for as long as the rows of then count.
        """
        horizon = self._changes.horizon
        if horizon.cut is None:
            return {}
        marks: dict[str, str] = {}
        for mirror in plan.mirrors:
            before = self._before.get(mirror.mirror_id)
            for mark in before.marks if before is not None else ():
                since = mark.removeprefix(f"{BELOW}, since ")
                if since != mark and mirror.floor_ts <= int(since):
                    marks[mirror.mirror_id] = mark
        there = self._known.plan(horizon.tso)
        found = marks_below(horizon, there, plan.mirrors, self._known.row_groups)
        for mirror in self._redriven_below(plan):
            found.setdefault(mirror.mirror_id, f"{BELOW}, since {horizon.tso}")
        return found | marks

    def _redriven_below(self, plan: Plan) -> list[MirrorPlan]:
        """Return the mirrors of re-driven changes whose later fate is in the base cut alone."""
        horizon, batches = self._changes.horizon, self._changes.redriven
        if not batches:
            return []
        F = functions(self._spark)
        rows = (
            self._changes.log()
            .where(
                (F.col("kind") == "row")
                & F.col("batch").isin(list(batches))
                & (F.col("commit_ts") <= horizon.tso)
            )
            .select("database", "table", "commit_ts")
            .collect()
        )
        return [
            mirror
            for mirror in plan.mirrors
            if any(
                row["commit_ts"] > mirror.floor_ts
                and mirror.meets(
                    (row["database"], row["table"]), row["commit_ts"], row["commit_ts"]
                )
                for row in rows
            )
        ]

    def _held(self, plan: Plan) -> list[HeldRows]:
        """Return the held rows at or below the cut, counted exactly."""
        held: list[HeldRows] = []
        owned = [(mirror, group) for mirror in plan.mirrors for group in mirror.held]
        for mirror, group in [*owned, *((None, group) for group in plan.held)]:
            rows = group.rows
            if group.max_ts > self._tso:
                rows = self._changes.count_rows(
                    [_always(group)], above=0, until=self._tso, version=group.schema_version
                )
            held.append(self._held_rows(mirror, group, rows))
        for mirror in plan.mirrors:
            for group in mirror.strays:
                # Some of the group's rows are another table's, maybe all of them.
                rows = self._changes.count_rows(
                    [item for item in mirror.bindings if item.meets(*_span(group))],
                    above=mirror.floor_ts,
                    until=self._tso,
                    version=group.schema_version,
                )
                if rows:
                    held.append(self._held_rows(mirror, group, rows))
        return sorted(held, key=lambda item: (item.database, item.table, item.schema_version))

    def _held_rows(self, mirror: MirrorPlan | None, group: HeldGroup, rows: int) -> HeldRows:
        since = min(
            row["first_landed_at"]
            for row in self._groups.rows
            if row["kind"] == "row"
            and (row["database"], row["table"], row["schema_version"])
            == (group.database, group.table, group.schema_version)
        )
        return HeldRows(
            database=group.database,
            table=group.table,
            schema_version=group.schema_version,
            mirror_id=None if mirror is None else mirror.mirror_id,
            rows=rows,
            min_ts=group.min_ts,
            since=since,
        )

    # One mirror -------------------------------------------------------------------------------

    def _make_both(self, mirror: MirrorPlan, stale: bool, made: _Made | None) -> _Made:
        """Make a mirror if it is not made yet, and its history if one is kept."""
        if made is None:
            made = undisturbed(lambda: self._make_mirror(mirror, stale))
        if not self._changefeed.keeps_history(mirror.database, mirror.table):
            return made
        base = None
        before = self._before.get(mirror.mirror_id)
        past = self._pasts.get(mirror.mirror_id)
        if (
            before is not None
            and self._last is not None
            and before.history_version is not None
            and before.history_digest == past
            and not stale
        ):
            base = HistoryBase(cut=before, tso=self._last.tso, layout=self._last.layout)
        changed = base is None or self._known.has_changes(mirror, base.tso, self._tso)
        published = None if before is None else before.history_version
        history = undisturbed(
            lambda: self._histories.make(mirror, base, changed=changed, published=published)
        )
        return replace(made, history=history)

    def _make_mirror(self, mirror: MirrorPlan, stale: bool) -> _Made:
        before = self._before.get(mirror.mirror_id)
        if before is None or stale or before.floor_ts != mirror.floor_ts:
            return self._overwrite(mirror, before, Mode.FOLD)
        assert self._last is not None
        # Of a killed run what it committed and did not publish, and what other writers changed.
        same = same_rows_at(self._paths.mirror(mirror.mirror_id), before.version)
        is_ahead = same is None
        if same is not None:
            # A compaction by hand leaves the rows; a vacuum will remove the files they had before.
            before = replace(before, version=same)
        touched = (
            is_touched(mirror, before.table_schema, self._last.tso)
            or self._former_rescued(before) is not None
        )
        changed = self._known.has_changes(mirror, self._last.tso, self._tso)
        if not changed and not touched and not is_ahead:
            return self._carried(before)
        if not mirror.schema.handle_key or before.rows <= SMALL_MIRROR_ROWS:
            return self._overwrite(mirror, before, Mode.REWRITE)
        if is_ahead and self._was_plain(before):
            # Spark, which has begun to change it since, cannot take every plain table back.
            return self._overwrite(mirror, before, Mode.REWRITE)
        if is_ahead:
            before = self._taken_back(mirror, before)
        if not changed and not touched:
            return self._carried(before)
        if self._is_large(mirror) and self._changes.has_more_bytes(
            mirror, self._last.tso, self._tso, than=LARGE_BYTES
        ):
            return self._overwrite(mirror, before, Mode.REWRITE)
        give_features(self._spark, self._paths.mirror(mirror.mirror_id))
        if touched and not self._altered(mirror, before):
            return self._overwrite(mirror, before, Mode.REWRITE)
        # If somebody else changed rows in between, what they were at the last cut is what counts.
        merged = self._merge(mirror, before)
        return merged or self._overwrite(mirror, before, Mode.REWRITE)

    def _altered(self, mirror: MirrorPlan, before: MirrorCut) -> bool:
        """Take the table to the schema at the cut without touching its rows, if that is enough."""
        assert self._last is not None
        if is_removed_from(mirror, self._last.tso):
            return False
        schema, zone = before.table_schema, self._changefeed.timezone
        steps = mirror.steps_since(schema.version)
        changes = alterations(schema, mirror.schema, steps, zone)
        if changes is None:
            return False
        if changes.rescued:
            F = functions(self._spark)
            extra = F.col(quoted(MirrorLayout(schema=schema).rescued))
            entries = F.array_intersect(F.map_keys(extra), F.lit(list(changes.rescued)))
            rows = mirror_in_spark(self._spark, self._paths, before)
            if not rows.where(F.size(entries) > 0).isEmpty():
                return False
        former = self._former_rescued(before)
        if former is not None:
            rename = rescued_renamed(former, schema)
            changes = replace(changes, clauses=(rename, *changes.clauses))
        alter(self._spark, self._paths.mirror(mirror.mirror_id), changes.clauses)
        table = self._spark.read.format("delta").load(str(self._paths.mirror(mirror.mirror_id)))
        return table.columns == MirrorLayout(schema=mirror.schema).names

    def _former_rescued(self, before: MirrorCut) -> str | None:
        """Return the former name of the column of rescued data, None if it has today's."""
        if self._last is None or self._last.layout == LAYOUT:
            return None
        return former_rescued(before.path(self._paths), before.version, before.table_schema)

    def _was_plain(self, before: MirrorCut) -> bool:
        """Return whether a mirror is a plain table as a cut has it."""
        table = open_table(before.path(self._paths), before.version)
        return table is not None and is_plain(table)

    def _taken_back(self, mirror: MirrorPlan, before: MirrorCut) -> MirrorCut:
        """Make the mirror's newest version what the last cut has, and return it as it is then.

        The restored version has the content of the published one under a number of its own.
        """
        path = self._paths.mirror(mirror.mirror_id)
        return replace(before, version=take_back(self._spark, path, before.version))

    def _carried(self, before: MirrorCut) -> _Made:
        return _Made(
            version=before.version,
            rows=before.rows,
            hidden=before.hidden,
            quarantined=before.quarantined,
            mode=Mode.CARRIED,
            changes=0,
            unknown_deletes=before.unknown_deletes,
            casts=before.casts,
        )

    def _overwrite(self, mirror: MirrorPlan, before: MirrorCut | None, mode: Mode) -> _Made:
        """Make the mirror whole, from the last cut's rows or from nothing, in one overwrite."""
        base = before if mode is Mode.REWRITE else None
        path = self._paths.mirror(mirror.mirror_id)
        doubts = self._doubts(mirror) if base is not None else {}
        folded = self._folded(
            mirror,
            base,
            in_pieces=self._is_large(mirror),
            table=path if self._takes_files(path) else None,
            watched={key for found in doubts.values() for key, _ in found},
        )
        if folded.counts.lost:
            # A value of the last cut does not survive a schema step: its change must be found.
            return self._overwrite(mirror, before, Mode.FOLD)
        return self._written(mirror, folded, before, mode, doubts)

    def _written(
        self,
        mirror: MirrorPlan,
        folded: Folded,
        before: MirrorCut | None,
        mode: Mode,
        doubts: _Doubts,
    ) -> _Made:
        """Put the rows that a folding leaves in the place of all rows of a mirror."""
        base = before if mode is Mode.REWRITE else None
        start = base or self._changes.start(mirror)
        counts = folded.counts
        published = None if before is None else before.version
        version = self._write(mirror, folded, mode, published)
        self._quarantine(mirror, folded, mode)
        void = self._close_void(folded, doubts)
        return _Made(
            version=version,
            rows=counts.copies,
            hidden=hidden_columns(mirror, folded),
            quarantined=counts.errors + (base.quarantined if base else 0) - void,
            mode=mode,
            changes=counts.changed,
            unknown_deletes=counts.unknown_deletes + (start.unknown_deletes if start else 0),
            casts=counts.casts,
        )

    def _write(self, mirror: MirrorPlan, folded: Folded, mode: Mode, published: int | None) -> int:
        """Write the rows that a folding leaves in one commit; return the mirror's version."""
        table, metadata = self._paths.mirror(mirror.mirror_id), self._metadata(mirror, mode)
        schema, retention = MirrorLayout(schema=mirror.schema).arrow, self._changefeed.retention
        pieces = folded.pieces
        if pieces is not None or folded.rows.folder == table:
            return overwrite_by_files(
                (lambda: folded.rows.files)
                if pieces is None
                else lambda: written(pieces(), schema, table),
                schema,
                table,
                retention,
                metadata=metadata,
                published=published,
            )
        rows = folded.rows.table
        rows = folded.rows.frame(self._spark) if rows is None else rows
        return overwrite(
            self._spark, rows, table, retention, metadata=metadata, published=published
        )

    def _takes_files(self, path: Path) -> bool:
        """Return whether a mirror is plain, or not there, so that workers may write its files."""
        try:
            table = open_table(path)
        except LakeDamagedError:
            return False
        return table is None or is_plain(table)

    def _is_large(self, mirror: MirrorPlan) -> bool:
        """Whether changes of a mirror have values so large that it must be made in pieces."""
        groups = self._known.groups_of(mirror)
        if (
            not mirror.schema.handle_key
            or sum(group.large_bytes for group in groups) <= LARGE_BYTES
            or sum(group.rows for group in groups) > MOST_ROWS_IN_PIECES
        ):
            return False
        try:
            table = open_table(self._paths.mirror(mirror.mirror_id))
        except LakeDamagedError:
            return True  # it gets a new log, and is a plain table then
        return table is None or is_plain(table)

    def _first_folds(self, plan: Plan, stale: Collection[str]) -> dict[str, _Made]:
        """Make the mirrors that have no table yet and many changes, all at once."""
        wanted: list[tuple[MirrorPlan, int]] = []
        for mirror in plan.mirrors:
            if mirror.mirror_id in self._damages:
                continue  # its versions go on where they were
            if mirror.mirror_id in self._before and mirror.mirror_id not in stale:
                continue
            rows = sum(group.rows for group in self._known.groups_of(mirror))
            if (
                rows > INLINE_ROWS
                and not self._is_large(mirror)
                and self._changes.begins_empty(mirror)
                and open_table(self._paths.mirror(mirror.mirror_id)) is None
            ):
                wanted.append((mirror, rows))
        if not wanted:
            return {}
        found = attempted(
            lambda: self._changes.folded_into_files(wanted, until=self._tso),
            f"folding {len(wanted)} new mirrors at once",
        )
        if isinstance(found, Failure) or not found:
            return {}  # they are made one by one, and then it shows which of them fails
        made: dict[str, _Made] = {}
        for (mirror, _), folded in zip(wanted, found, strict=True):
            result = attempted(
                lambda mirror=mirror, folded=folded: self._written(
                    mirror, folded, None, Mode.FOLD, {}
                ),
                f"the mirror of {'.'.join(mirror.name)}",
            )
            if not isinstance(result, Failure):
                made[mirror.mirror_id] = result
        return made

    def _merge(self, mirror: MirrorPlan, before: MirrorCut) -> _Made | None:
        """Merge the changes since the last cut, one per key; None if others changed rows."""
        path = self._paths.mirror(mirror.mirror_id)
        layout = MirrorLayout(schema=mirror.schema)
        doubts = self._doubts(mirror)
        folded = self._folded(
            mirror,
            before,
            with_rows=False,
            for_merge=True,
            watched={key for found in doubts.values() for key, _ in found},
        )
        counts = folded.counts
        self._quarantine(mirror, folded, Mode.MERGE)
        if not counts.changed:
            carried = self._carried(before)
            version = reached(path, before.version, None)
            if version is None:
                return None
            altered = version != before.version
            return replace(
                carried,
                version=version,
                mode=Mode.ALTER if altered else carried.mode,
                hidden=hidden_columns(mirror, folded),
                casts=counts.casts,
                quarantined=before.quarantined + counts.errors,
            )
        F = functions(self._spark)
        names = {name: f"s.s{number}" for number, name in enumerate(layout.names)}
        values: dict[str, str | Column] = {
            quoted(name): F.col(source_name) for name, source_name in names.items()
        }
        own = SparkCommit(self._spark, path, self._metadata(mirror, Mode.MERGE))
        session = session_with(self._spark, {**MERGING, **own.conf})
        # Spark makes Bloom filters only of what seems to be filtered: this is true of all rows.
        always = F.col(names[layout.commit_ts].removeprefix("s.")) >= 0
        source = folded.rows.frame(session).where(always)
        (
            DeltaTable.forPath(session, str(path))
            .alias("t")
            .merge(source.alias("s"), _same_row(session, mirror.schema, layout, names))
            .whenMatchedDelete(F.col("s.deleted"))
            .whenMatchedUpdate(F.col("s.keeps"), set=_marking(session, layout, names))
            .whenMatchedUpdate(set=values)
            .whenNotMatchedInsert(condition=~F.col("s.deleted"), values=values)
            .execute()
        )
        void = self._close_void(folded, doubts)
        made = own.find()
        version = reached(path, before.version, made)
        if version is None:
            return None
        metrics = {} if made is None else made.metrics
        inserted = metrics.get("numTargetRowsInserted", 0)
        deleted = metrics.get("numTargetRowsDeleted", 0)
        return _Made(
            version=version,
            rows=before.rows + inserted - deleted,
            hidden=hidden_columns(mirror, folded),
            quarantined=before.quarantined + counts.errors - void,
            mode=Mode.MERGE,
            changes=counts.changed,
            unknown_deletes=before.unknown_deletes + max(0, counts.taken - deleted),
            casts=counts.casts,
        )

    def _folded(
        self,
        mirror: MirrorPlan,
        base: MirrorCut | None,
        *,
        with_rows: bool = True,
        for_merge: bool = False,
        in_pieces: bool = False,
        table: Path | None = None,
        watched: Collection[str] = (),
    ) -> Folded:
        """Fold the mirror's changes since `base`, and the rows of `base` before them."""
        above = self._last.tso if base is not None and self._last is not None else 0
        return self._changes.folded(
            mirror,
            until=self._tso,
            base=base,
            above=above,
            with_rows=with_rows,
            for_merge=for_merge,
            in_pieces=in_pieces,
            table=table,
            watched=watched,
        )

    def _quarantine(self, mirror: MirrorPlan, folded: Folded, mode: Mode) -> None:
        """Quarantine the changes that did not fit, unless they are there already.

        A fold meets every change of the mirror, so what it no longer refuses is closed.
        """
        errors = folded.counts.errors
        is_there = latest_version(self._paths.quarantine) is not None
        if not errors and not (is_there and mode is Mode.FOLD):
            return
        batch = self._groups.batch
        with self._quarantine_lock:
            known = {
                _place_of(row): row
                for row in read_quarantine(self._paths)
                if row["stage"] == "apply"
            }
            met: set[_Place] = set()

            def new() -> Iterator[pa.Table]:
                for faults in folded.faults.tables():
                    rows = apply_faults(faults, mirror.database, mirror.table, batch)
                    places = [
                        tuple(place)
                        for place in zip(*(rows[name].to_pylist() for name in PLACE), strict=True)
                    ]
                    met.update(places)
                    yield rows.filter(
                        pa.array([place not in known for place in places], pa.bool_())
                    )

            append_faults(
                self._spark,
                self._paths,
                new(),
                app_id=f"apply-{mirror.mirror_id}-{self._tso}",
                version=batch,
            )
            if mode is Mode.FOLD:
                # Of what was handed over nothing was met again.
                begin = mirror.handover.ts if mirror.handover else 0
                fixed = [
                    place
                    for place, row in known.items()
                    if (row["database"], row["table"]) == mirror.name
                    and begin < row["commit_ts"] <= self._tso
                    and place not in met
                ]
                self._close(fixed, Closing.REDRIVE)

    def _close(self, places: Sequence[_Place], closing: Closing) -> None:
        """Close what is in quarantine at some places."""
        if places:
            rows = [dict(zip(PLACE, place, strict=True)) for place in places]
            frame = frame_of(self._spark, pa.Table.from_pylist(rows, schema=_PLACE_SCHEMA))
            close_rows(self._spark, self._paths, "apply", frame, closing)

    def _doubts(self, mirror: MirrorPlan) -> _Doubts:
        """Return what older cuts had in quarantine of a mirror: at each place its keys."""
        last_tso = 0 if self._last is None else self._last.tso
        faults = [
            row
            for row in self._faults
            if row["stage"] == "apply"
            and mirror.floor_ts < row["commit_ts"] <= last_tso
            and mirror.meets((row["database"], row["table"]), row["commit_ts"], row["commit_ts"])
        ]
        rows = self._changes.rows_at(faults) if faults and mirror.schema.handle_key else None
        found: _Doubts = {}
        if rows is None:
            return found
        convert = change_effects(mirror, self._changefeed.timezone)
        for batch in convert(rows.to_batches()):
            for effect in batch.select(["key", "sequence", "reason"]).to_pylist():
                if effect["reason"] is not None:
                    sequence = effect["sequence"]
                    found.setdefault(_place_of(sequence), []).append(
                        (effect["key"], sequence["commit_ts"])
                    )
        return found

    def _close_void(self, folded: Folded, doubts: _Doubts) -> int:
        """Close what is in quarantine of rows that a later whole change has replaced.

        Returns:
            How many changes that older cuts had in quarantine are void.
        """
        void = [
            place
            for place, found in doubts.items()
            if all(folded.newest.get(key, 0) > commit_ts for key, commit_ts in found)
        ]
        with self._quarantine_lock:
            self._close(void, Closing.LATER_CHANGE)
        return len(void)

    # The cut ----------------------------------------------------------------------------------

    def _failed(self, table: MirrorPlan | FailedPlan, failure: Failure) -> FailedMirror:
        """Return what the cut says of a mirror that it could not make."""
        before = self._failed_before.get(table.mirror_id)
        if before is not None:
            since, tso = before.since, before.tso
        else:
            since = datetime.now(UTC)
            has_rows = self._last is not None and table.mirror_id in self._before
            tso = self._last.tso if self._last is not None and has_rows else None
        waiting = attempted(
            lambda: self._changes.count_rows(
                table.bindings, above=max(table.floor_ts, tso or 0), until=self._tso
            ),
            f"counting what waits for {table.database}.{table.table}",
        )
        return FailedMirror(
            mirror_id=table.mirror_id,
            database=table.database,
            table=table.table,
            table_id=table.table_id,
            reason=failure.reason,
            since=since,
            tso=tso,
            waiting=0 if isinstance(waiting, Failure) else waiting,
        )

    def _kept(
        self, table: MirrorPlan | FailedPlan, held: Sequence[HeldRows]
    ) -> Iterator[MirrorCut]:
        """Yield what a mirror that could not be made was at the last cut, under its name now."""
        before = self._before.get(table.mirror_id)
        if before is not None:
            yield replace(
                before,
                database=table.database,
                table=table.table,
                mode=FAILED,
                changes=0,
                held=sum(item.rows for item in held if item.mirror_id == table.mirror_id),
                # The history is folded anew with its mirror.
                history_digest=None,
            )

    def _mirror_cut(
        self,
        mirror: MirrorPlan,
        made: _Made,
        held: Sequence[HeldRows],
        below: Mapping[str, str],
        lost: Mapping[str, Sequence[str]],
    ) -> MirrorCut:
        damage = damage_marks(mirror, self._changefeed.wire_format)
        marks = [str(mark) for mark in (*mirror.marks, *damage)]
        if mirror.mirror_id in below:
            marks.append(below[mirror.mirror_id])
        marks += lost.get(mirror.mirror_id, ())
        if not mirror.schema.handle_key:
            marks.append("no key: a bag of rows, replays that no watermark tells are counted twice")
        if self._groups.es_only:
            marks.append("not a consistent cut: the messages have no commit ts")
        marks += cast_marks(made.casts)
        return MirrorCut(
            mirror_id=mirror.mirror_id,
            database=mirror.database,
            table=mirror.table,
            table_id=mirror.table_id,
            version=made.version,
            rows=made.rows,
            hidden=made.hidden,
            schema=json.dumps(schema_to_json(mirror.schema), ensure_ascii=False),
            floor_ts=mirror.floor_ts,
            digest=mirror.digest,
            held=sum(item.rows for item in held if item.mirror_id == mirror.mirror_id),
            quarantined=made.quarantined,
            marks=marks,
            mode=str(made.mode),
            changes=made.changes,
            unknown_deletes=made.unknown_deletes,
            history_version=made.history.version if made.history else None,
            history_rows=made.history.rows if made.history else None,
            history_unread=made.history.unread if made.history else None,
            history_digest=made.history.digest if made.history else None,
            lenient_casts=casts_listed(made.casts),
        )

    def _metadata(self, mirror: MirrorPlan, mode: Mode) -> dict[str, object]:
        return {
            "tso": self._tso,
            "mode": mode,
            "database": mirror.database,
            "table": mirror.table,
        }


_PLACE_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("index", pa.int32()),
    ]
)


def _place_of(row: Mapping[str, Any]) -> _Place:
    return tuple(row[name] for name in PLACE)


def _span(group: HeldGroup) -> tuple[tuple[str, str], int, int]:
    return (group.database, group.table), group.min_ts, group.max_ts


def _always(group: HeldGroup) -> Binding:
    """Return the name that held rows cite, at any time."""
    return Binding(database=group.database, table=group.table, after_ts=-1, until_ts=None)


# Rows of the table ------------------------------------------------------------------------------


def _marking(
    spark: SparkSession, layout: MirrorLayout, names: dict[str, str]
) -> dict[str, str | Column]:
    """Return the update of a row whose change is known by its key alone: it stays, but marked."""
    F = functions(spark)
    extra = quoted(layout.rescued)
    others = F.map_filter(
        F.coalesce(F.col(f"t.{extra}"), F.create_map().cast("map<string,string>")),
        lambda name, _: name != PARTIAL,
    )
    mark = F.map_filter(F.col(names[layout.rescued]), lambda name, _: name == PARTIAL)
    return {extra: F.map_concat(others, mark)}


def _same_row(
    spark: SparkSession, schema: TableSchema, layout: MirrorLayout, names: dict[str, str]
) -> Column:
    """Return the condition that target `t` and source `s` are the same row.

    A key value that its typed column cannot hold is NULL there and told by the rescued data.
    """
    F = functions(spark)
    conditions: list[Column] = []
    for name in schema.handle_key:
        column = schema.column(name)
        assert column is not None
        target, is_exact = F.col(f"t.{quoted(name)}"), kind_of(column) in EXACT_KINDS
        # Spark compares two expressions for each null-safe equality.
        is_null_safe = column.nullable or not is_exact
        source = F.col(names[name])
        conditions.append(target.eqNullSafe(source) if is_null_safe else target == source)
        if not is_exact:
            exact = F.col(f"t.{quoted(layout.rescued)}")[name]
            conditions.append(exact.eqNullSafe(F.col(names[layout.rescued])[name]))
    return reduce(and_, conditions)
