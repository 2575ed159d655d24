"""Applying: the mirrors of all tables at one cut.

In: the change log, the schema registry and the newest published cut. Out: Delta versions of the
mirrors at the new cut's TSO, and then one row in `cuts` that publishes them together.

How a mirror is made (`mirror_making`), cheapest first; all ways give the same state, and tests
compare them with `ticdc_assets_tests/reference/fold.py`:

- *carried*: nothing changed; the cut names the same version.
- *alter*: the schema changed in a way that touches no row, and no row changed: one commit changes
  the table's metadata.
- *change*: the changes since the last cut are folded to one per key. One commit removes the rows
  that they replace, adds the new ones, and alters the schema if that touches no row.
- *rewrite*: the rows of the last cut, after the schema steps since, and the changes are folded
  together, and all rows are new: for a schema change that touches rows, and for many changes of a
  table without a key.
- *fold*: all changes of the table since it was created or truncated are folded, over the rows of
  the base cut if the change log was truncated (`retention`): for a new mirror, and for one whose
  past changed (a schema arrived for held rows, a record was redriven, a change came late), which
  `MirrorPlan.digest` detects.

Why running it again is safe: each way is one Delta commit, made from the version that the newest
published cut names. It undoes later versions, by a killed run or another writer, except compactions
and vacuums, which keep the rows. If another program commits first, it is made again
(`committing.undisturbed`). Nothing is published before every mirror is written, and publishing is
one append. Replays change nothing: a key's last change stays the same.

Values that do not fit their schema go to quarantine, one change each. A mirror that cannot be made
keeps the rows of the last cut that made it, is listed as *failed*, and each later cut folds it. A
damaged mirror is folded as soon as a read notices it. None of these stops a cut; there is none only
if a table that all mirrors are made from is damaged.

Tables that the configuration leaves out have no mirror, no held rows and no quarantined changes in
a cut. The cut records its filter, so a changed filter makes a new cut even if nothing was landed.
The table's name at the cut decides: a table that is included later, or renamed to an included name,
is folded like a new one, from all of its changes.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.base.isolation import Failure, attempted
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.base.progress import Counted
from ticdc_assets.changelog.plan import FailedPlan, MirrorPlan, Plan, SeededTable
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.log_reading import pool_within
from ticdc_assets.log.accepted_gaps import gap_caveats
from ticdc_assets.log.cuts import (
    ChangeAccount,
    Cut,
    FailedMirror,
    MirrorCut,
    Mode,
    choice_text,
    filter_text,
    name_mirrors,
    publish,
    same_content,
)
from ticdc_assets.log.quarantine import count_open, place_of, read_counted, unread_exports
from ticdc_assets.mirrors.accounts import account_changes, count_held, late_rows
from ticdc_assets.mirrors.caveats import (
    cast_caveats,
    caveats_of,
    unknown_caveats,
)
from ticdc_assets.mirrors.change_folding import ChangeFolding
from ticdc_assets.mirrors.change_reading import GATHERED_ROWS
from ticdc_assets.mirrors.mirror_making import MirrorMaker
from ticdc_assets.mirrors.misfits import Misfits
from ticdc_assets.mirrors.standing import Applying, Outcome, Standing, standing
from ticdc_assets.mirrors.truncation_points import caveats_below
from ticdc_assets.mirrors.validity import Knowledge
from ticdc_assets.spark.scratch import WRITING, Scratch, remove_forgotten
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import RemotePath


def parallel_mirrors(paths: LakePaths) -> int:
    """Return how many mirrors are made at a time.

    Planning and commits use CPU, so about one per core; in a store they mostly wait for answers.
    """
    return 4 if isinstance(paths.base, RemotePath) else 2


def apply_changes(
    lake: Lake,
    *,
    until: int | None = None,
    refold: Collection[tuple[str, str]] = (),
    refold_quarantined: bool = False,
    only: tuple[str, str] | None = None,
    complete_ts: int | None = None,
) -> Applying:
    """Cut every mirror at min(until, global watermark) and publish the cut.

    Args:
        lake: the changefeed's lake.
        until: highest TSO of the cut.
        refold: (database, table) of mirrors to fold again from the change log in any case.
        refold_quarantined: whether to fold every mirror again that has row changes in quarantine.
        only: (database, table) of the cut's one mirror, in a separate place.
        complete_ts: TSO up to which the records are complete whatever the watermarks say: that of a
            cut published from the same records.
    """
    again = bool(refold) or (refold_quarantined and count_open(lake.paths).apply > 0)
    state = standing(lake, until=until, refold=again, complete_ts=complete_ts)
    if state.ended is not None:
        return state.ended
    last = state.last
    remove_forgotten(lake.paths)
    scratch = Scratch(lake.paths, WRITING)
    changes = ChangeFolding(lake, batch=state.statistics.batch, scratch=scratch)
    run = _Run(changes, state)
    try:
        cut = run.make(frozenset(refold), only, refold_quarantined=refold_quarantined)
    finally:
        scratch.close()
    if (
        last is not None
        and state.tso == last.tso
        and same_content(cut, last)
        and not cut.unplaced
        # A cut has to record that the records landed since the older cut were checked again.
        and last.rewind is None
    ):
        name_mirrors(lake.paths, last, batch=state.statistics.batch)
        return Applying(
            outcome=Outcome.UNCHANGED,
            reason=f"the mirrors are at {last.moment} and the landed records change nothing",
            cut=last,
            watermark=state.watermark,
        )
    publish(lake.paths, cut)
    changed = sum(item.mode not in (Mode.CARRIED, Mode.FAILED) for item in cut.mirrors)
    failed = f", {len(cut.failed)} failed" if cut.failed else ""
    repaired = tuple(
        f"{error.table} was damaged: {error.finding}"
        for mirror_id, error in run.damages.items()
        if any(item.mirror_id == mirror_id and not item.failed for item in cut.mirrors)
    )
    again = f", {len(repaired)} of them made again because they were damaged" if repaired else ""
    return Applying(
        outcome=Outcome.PUBLISHED,
        reason=(
            f"cut {cut.number} at {cut.moment}: {changed:,} of "
            f"{counted(len(cut.mirrors), 'mirror')} changed"
            f"{again}{failed}"
        ),
        cut=cut,
        watermark=state.watermark,
        repaired=repaired,
    )


_READ_TOGETHER = 500
"""How many mirrors' changes are read at once, at most: a condition on the log names each of them.
"""


class _Run:
    """One apply, from the plan to a cut that is ready to be published."""

    def __init__(self, changes: ChangeFolding, begin: Standing) -> None:
        self._gaps = begin.gaps
        self._lake = lake = changes.lake
        self._statistics = begin.statistics
        self._last = last = begin.last
        self._tso = begin.tso
        self._known = Knowledge.of(lake.paths, lake.changefeed.timezone, begin.statistics)
        self._changes = changes
        self._before = {item.mirror_id: item for item in last.mirrors} if last else {}
        self._failed_before = {item.mirror_id: item for item in last.failed} if last else {}
        self.damages: dict[str, LakeDamagedError] = {}
        """The damage of mirrors that reads noticed, by mirror id."""

    def make(
        self,
        refold: frozenset[tuple[str, str]],
        only: tuple[str, str] | None,
        *,
        refold_quarantined: bool,
    ) -> Cut:
        """Bring every mirror to the cut and return the cut, unpublished."""
        tables = self._lake.changefeed.tables
        all_tables = self._known.plan(self._tso)
        plan = all_tables.of_tables(tables.includes)
        if only is not None:
            plan = plan.of_tables(lambda *name: name == only)
        last, es_only = self._last, self._statistics.es_only
        replays, late, spans = late_rows(self._changes, last, es_only=es_only)
        below = caveats_below(
            self._changes.truncation_point,
            self._known,
            plan,
            lambda: ((it.mirror_id, text) for it in self._before.values() for text in it.caveats),
        )
        lost = gap_caveats(
            self._lake.paths, self._gaps, plan.mirrors, self._statistics.rows, self._tso
        )
        # The mirrors whose past has changed since the last cut.
        stale = {
            mirror.mirror_id
            for mirror in plan.mirrors
            if last is not None
            and (
                mirror.name in refold
                or self._known.flaw(mirror, self._before.get(mirror.mirror_id), last, spans)
            )
        }
        misfits = Misfits(self._changes, all_tables.mirrors, tso=self._tso, last=self._last)
        if refold_quarantined:
            stale |= {item.mirror_id for item in plan.mirrors if misfits.has_open(item)}
        maker = MirrorMaker(self._changes, self._known, misfits, last=self._last, tso=self._tso)
        maker.make_new(plan)
        counted = Counted("applying", len(plan.mirrors))

        def attempt(mirror: MirrorPlan) -> MirrorCut | Failure:
            name = joined_name(*mirror.name)
            counted.begin(name)
            entry = attempted(
                lambda: self._made(maker, mirror, mirror.mirror_id in stale),
                f"the mirror of {name}",
            )
            if isinstance(entry, LakeDamagedError):
                raise entry
            return entry

        results: dict[str, MirrorCut | Failure] = {}
        with pool_within(parallel_mirrors(self._lake.paths)) as pool:
            for above, together in self._read_together(plan.mirrors, stale, maker):
                with self._changes.gather(together, above, self._tso):
                    attempts = pool.map(attempt, together)
                    results |= {
                        mirror.mirror_id: result
                        for mirror, result in zip(together, attempts, strict=True)
                    }
        entries = [results[mirror.mirror_id] for mirror in plan.mirrors]
        unread = unread_exports(self._lake.paths)
        held = count_held(self._changes, plan, self._statistics.rows)
        held_rows = Counter[str | None]()
        for item in held:
            held_rows[item.mirror_id] += item.rows
        mirrors: list[MirrorCut] = []
        failed: list[FailedMirror] = []
        for table, result in [
            *zip(plan.mirrors, entries, strict=True),
            *((item, Failure(reason=item.reason)) for item in plan.failed),
        ]:
            table_result = result
            if isinstance(result, MirrorCut):
                assert isinstance(table, MirrorPlan)
                table_result = attempted(
                    partial(self._mirror_cut, table, result, held_rows, below, lost, unread),
                    f"the cut's entry for {joined_name(table.database, table.table)}",
                )
            if isinstance(table_result, Failure):
                failed.append(self._failed(table, table_result))
                before = self._before.get(table.mirror_id)
                if before is not None:
                    # Its rows in the last cut, under its name now.
                    old_entry = replace(
                        before,
                        database=table.database,
                        table=table.table,
                        mode=str(Mode.FAILED),
                        changes=0,
                        held=held_rows[table.mirror_id],
                        # The history is folded again with its mirror.
                        history_digest=None,
                    )
                    mirrors.append(old_entry)
            else:
                mirrors.append(table_result)
        mirrors.sort(key=lambda item: (item.database, item.table))
        progress = self._statistics.progress().values()
        return Cut(
            number=self._last.number + 1 if self._last else 1,
            tso=self._tso,
            published_at=datetime.now(UTC),
            batch=self._statistics.batch,
            landed=self._statistics.landed,
            seed=self._statistics.seed,
            generation=self._lake.paths.generation,
            mirrors=tuple(mirrors),
            held=tuple(held),
            quarantined=count_open(self._lake.paths).decode,
            replays=replays,
            late=late,
            steps_back=sum(item.steps_back for item in progress),
            ignored=dict(plan.ignored),
            es_only=es_only,
            unplaced=self._changes.count_unplaced(batch=self._last.batch) if self._last else 0,
            tables=filter_text(tables),
            start_ts=self._lake.changefeed.start_ts,
            complete_tables=choice_text(self._lake.changefeed.complete_tables),
            failed=tuple(failed),
            accounts=() if only is not None else self._accounts(all_tables, failed),
        )

    def _read_together(
        self, mirrors: Iterable[MirrorPlan], stale: Collection[str], maker: MirrorMaker
    ) -> Iterator[tuple[int | None, list[MirrorPlan]]]:
        """Yield groups of mirrors whose changes are read at once, and above which commit ts."""
        last_ts = 0 if self._last is None else self._last.tso
        quiet: list[MirrorPlan] = []
        new: list[MirrorPlan] = []
        changed: list[MirrorPlan] = []
        for mirror in mirrors:
            before = self._before.get(mirror.mirror_id)
            if maker.is_ready(mirror):
                quiet.append(mirror)
            elif before is None or mirror.mirror_id in stale or before.floor_ts != mirror.floor_ts:
                new.append(mirror)
            elif self._known.has_changes(mirror, last_ts, self._tso):
                changed.append(mirror)
            else:
                quiet.append(mirror)
        yield None, quiet
        for start in range(0, len(changed), _READ_TOGETHER):
            yield last_ts, changed[start : start + _READ_TOGETHER]
        together: list[MirrorPlan] = []
        rows = 0
        for mirror in new:
            count = self._known.count(mirror)
            if together and (rows + count > GATHERED_ROWS or len(together) == _READ_TOGETHER):
                yield 0, together
                together, rows = [], 0
            together.append(mirror)
            rows += count
        yield 0, together

    def _made(
        self, maker: MirrorMaker, mirror: MirrorPlan, stale: bool
    ) -> MirrorCut | LakeDamagedError:
        """Make a mirror; fold it if it is damaged, because the change log has all of it.

        Returns:
            The damage of a table that all mirrors are made from, if that is the reason.
        """
        try:
            try:
                return maker.make(mirror, stale)
            except LakeDamagedError as error:
                folders = [folder / mirror.mirror_id for folder in self._lake.paths.row_folders]
                if stale or error.path not in map(str, folders):
                    raise
                self.damages[mirror.mirror_id] = error
            return maker.make(mirror, True)
        except LakeDamagedError as error:
            if error.path.startswith(tuple(f"{item}/" for item in self._lake.paths.row_folders)):
                raise
            return error

    def _accounts(self, plan: Plan, failed: Sequence[FailedMirror]) -> tuple[ChangeAccount, ...]:
        """Account for the row changes since the last cut, and for its unaccounted ones."""
        above, batch = (self._last.tso, self._last.batch) if self._last else (0, 0)
        unaccounted = [item.first_ts for item in self._last.unaccounted] if self._last else []
        above = min([above, *(ts - 1 for ts in unaccounted if ts is not None)])
        return account_changes(
            lambda columns: self._changes.rows_since(
                columns, batch=batch, above=above, until=self._tso
            ),
            plan,
            includes=self._lake.changefeed.tables.includes,
            failed={item.mirror_id for item in failed},
            quarantined=set(map(place_of, read_counted(self._lake.paths, void_since=None))),
        )

    # The cut ----------------------------------------------------------------------------------

    def _failed(self, table: MirrorPlan | FailedPlan, failure: Failure) -> FailedMirror:
        """Return the cut's entry for a mirror that it could not make."""
        before = self._failed_before.get(table.mirror_id)
        if before is not None:
            since, tso = before.since, before.tso
        else:
            since, tso = datetime.now(UTC), None
            if self._last is not None and table.mirror_id in self._before:
                tso = self._last.tso
        waiting = attempted(
            lambda: self._changes.count_rows(
                table.bindings, above=max(table.floor_ts, tso or 0), until=self._tso
            ),
            f"counting changes that wait for {joined_name(table.database, table.table)}",
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

    def _mirror_cut(
        self,
        mirror: MirrorPlan,
        entry: MirrorCut,
        held: Mapping[str | None, int],
        below: Mapping[str, str],
        lost: Mapping[str, Sequence[str]],
        unread: Mapping[SeededTable, int],
    ) -> MirrorCut:
        caveats = caveats_of(
            mirror, self._statistics, self._lake.changefeed, below=below, lost=lost, unread=unread
        )
        if not mirror.schema.handle_key:
            caveats.append(
                "no key: a bag of rows, replays that no watermark identifies are counted twice"
            )
        if self._statistics.es_only:
            caveats.append("not a consistent cut: the messages have no commit ts")
        caveats += cast_caveats(entry.casts)
        cut = replace(entry, held=held[mirror.mirror_id], caveats=caveats, mode=str(entry.mode))
        before = self._before.get(mirror.mirror_id)
        unknown = unknown_caveats(self._lake.paths, mirror, self._statistics, cut, before)
        return replace(cut, caveats=[*caveats, *unknown])
