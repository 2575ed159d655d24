"""Which cuts may become base cuts, and which tables lack something at one.

In: a published cut, and what is known now of its changes. Out: why the cut cannot be a base at all,
or the tables that lack changes at it, each with the reason. A table lacks something if changes of
it are held or in quarantine there, came late to the cut, arrived below the table's own base, or if
its mirror would be made differently today. Nothing is written, and the same lake gives the same.

A record that could not be decoded may belong to any table. So no cut made after it landed is a base
until the record is redriven.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow.dataset as ds

from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.changelog.plan import (
    Binding,
    FailedPlan,
    MirrorPlan,
    RowGroup,
    TableName,
)
from ticdc_assets.delta.control import commit_metadata, read_table
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.ahead import is_ahead
from ticdc_assets.log.change_statistics import ChangeStatistics
from ticdc_assets.log.cuts import Cut, CutHead, MirrorCut, require_cut
from ticdc_assets.log.quarantine import read_quarantine, unread_exports
from ticdc_assets.log.schema_tables import SCHEMA_KINDS
from ticdc_assets.mirrors.caveats import quarantined_rows
from ticdc_assets.mirrors.truncation_points import LackingTable, TruncationPoint, cites
from ticdc_assets.mirrors.validity import Knowledge, LateRows, late_in
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire.rows import ROW


class BaseCuts:
    """Decides which cuts can be bases.

    There is at least one cut.
    """

    def __init__(
        self,
        lake: Lake,
        statistics: ChangeStatistics,
        cuts: Sequence[CutHead],
        truncation_point: TruncationPoint,
    ) -> None:
        self._lake = lake
        self._cuts = cuts
        self._truncation_point = truncation_point
        self._known = Knowledge.of(lake.paths, lake.changefeed.timezone, statistics)
        # By id: a table may have been left out of older cuts under another name.
        self._mirrored = {mirror.mirror_id for mirror in require_cut(lake.paths).mirrors}
        self._registered = commit_metadata(lake.paths.schema_registry).get("batch", 0)
        self._newest_schemas = statistics.newest_batch(SCHEMA_KINDS)
        # The next registering reads all schemas again.
        self._corrected_schemas = max(
            (item.batch for item in statistics.corrections if item.kind in SCHEMA_KINDS), default=0
        )
        self._compared = _compared(lake.paths, statistics)
        self._has_unapplied = cuts[-1].batch < statistics.batch
        self._undecoded = [
            row
            for row in read_quarantine(lake.paths)
            if row["stage"] == "decode" and row["database"] is None
        ]
        self._unread = unread_exports(lake.paths)
        self._lacking: dict[int, tuple[LackingTable, ...]] = {}

    def flaw(self, cut: Cut) -> str | None:
        """Return why a cut cannot be the base of any table; None if it can."""
        if cut.unaccounted:
            return "some of its row changes are not accounted for"
        if is_ahead(cut.tso, cut.made_at, self._lake.changefeed.max_ahead_seconds):
            return "its TSO is ahead of the clock at its publishing"
        if cut.batch > self._compared:
            return "its row checksums were not compared yet"
        # A batch without DDL and bootstraps leaves the registry as it is.
        registered = max(min(cut.batch, self._newest_schemas), self._corrected_schemas)
        if 0 < self._registered < registered:
            return "its schemas were not registered yet"
        undecoded = [row for row in self._undecoded if row["batch"] <= cut.batch]
        if undecoded:
            since = min(row["quarantined_at"] for row in undecoded)
            return (
                f"{counted(len(undecoded), 'record')} in quarantine since "
                f"{since:%Y-%m-%d %H:%M:%S} UTC may have changes of any table (redrive decodes "
                "such records after a fix, accept-loss gives one up)"
            )
        failed = [item for item in self._known.plan(cut.tso).failed if self._is_wanted(item)]
        if failed:
            name = joined_name(failed[0].database, failed[0].table)
            return f"{name} cannot be planned at it: {failed[0].reason}"
        if self._may_have_late(cut) and cut.number < self._truncation_point.number:
            return "rows came late to it"  # the rows that show which tables lack them are gone
        return None

    def flaw_of_all(self, cut: Cut) -> str | None:
        """Return why a cut cannot be the base of all tables; None if it can."""
        return self.flaw(cut) or "; ".join(item.clause for item in self.lacking(cut)) or None

    def lacking(self, cut: Cut) -> tuple[LackingTable, ...]:
        """Return the tables that lack something at a cut, by (database, table).

        Rows that a table took over from another one are part of its rows: then both tables lack
        them.
        """
        if cut.number not in self._lacking:
            by_key = {item.key: item for item in self._lacking_of_none(cut)}
            for item in self._lacking_of_mirrors(cut):
                other = by_key.get(item.key)
                if other is not None:
                    spans = tuple(dict.fromkeys((*other.spans, *item.spans)))
                    item = replace(other, spans=spans)
                by_key[item.key] = item
            ordered = sorted(by_key.values(), key=lambda item: (item.database, item.table))
            self._lacking[cut.number] = tuple(ordered)
        return self._lacking[cut.number]

    def _is_wanted(self, table: MirrorPlan | FailedPlan) -> bool:
        return table.mirror_id in self._mirrored or self._lake.changefeed.tables.includes(
            table.database, table.table
        )

    # Tables -------------------------------------------------------------------------------------

    def _lacking_of_mirrors(self, cut: Cut) -> Iterator[LackingTable]:
        had = {mirror.mirror_id: mirror for mirror in cut.mirrors}
        late = self._late(cut)
        for mirror in self._known.plan(cut.tso).mirrors:
            if not self._is_wanted(mirror):
                continue
            reason = self._reason(mirror, had.get(mirror.mirror_id), cut, late)
            if reason is None:
                continue
            for plan in mirror.sources():
                shown = mirror if plan.mirror_id == mirror.mirror_id else plan
                yield LackingTable(
                    mirror_id=plan.mirror_id,
                    database=shown.database,
                    table=shown.table,
                    reason=reason
                    if shown is mirror
                    else f"{joined_name(*mirror.name)} took over rows of it, and lacks some",
                    spans=tuple(_spans(plan, cut.tso)),
                )

    def _reason(
        self, mirror: MirrorPlan, was: MirrorCut | None, cut: Cut, late: Sequence[LateRows]
    ) -> str | None:
        """Return what a table lacks at a cut; None if nothing."""
        if was is not None and was.held:
            return f"it has {counted(was.held, 'held row change')}"
        if was is not None and was.quarantined:
            return f"it has {counted(was.quarantined, 'quarantined row change')}"
        flaw = self._known.flaw(mirror, was, cut, late)
        if flaw is not None:
            return f"at cut {cut.number}, {flaw}"
        if quarantined_rows(mirror, self._unread) is not None:
            return "rows of its export are in quarantine"
        if any(plan.held or plan.wrong_version for plan in mirror.sources() if plan is not mirror):
            return "it took over rows of which changes may be held"
        if any(map(self._has_unplaced, mirror.sources())):
            return "row changes of it arrived below the cut that it rests on"
        return None

    def _lacking_of_none(self, cut: Cut) -> Iterator[LackingTable]:
        """Yield the names of row changes without a table: such a table may appear later."""
        held_rows = {
            (item.database, item.table, item.schema_version): item.rows
            for item in cut.held
            if item.mirror_id is None
        }
        wanted = self._known.plan(cut.tso).of_tables(self._lake.changefeed.tables.includes)
        # A table may have some rows of these groups: the cut has counted the others.
        strays = [item for item in wanted.strays if _citation(item) in held_rows]
        names: dict[TableName, list[RowGroup]] = {}
        for group in (*wanted.held, *strays):
            names.setdefault((group.database, group.table), []).append(group)
        for (database, table), groups in names.items():
            rows = sum(held_rows.get(key, 0) for key in {_citation(group) for group in groups})
            rows = rows or sum(group.rows for group in groups)
            yield LackingTable(
                mirror_id=None,
                database=database,
                table=table,
                reason=f"it has {counted(rows, 'row change')} that no table takes",
                spans=tuple(
                    Binding(
                        database=database,
                        table=table,
                        after_ts=group.min_ts - 1,
                        until_ts=min(group.max_ts, cut.tso),
                    )
                    for group in groups
                ),
            )

    # Changes that came later ----------------------------------------------------------------------

    def _may_have_late(self, cut: Cut) -> bool:
        """Whether rows that landed after a cut, at or below it, may not be replays."""
        is_told = any(item.late for item in self._cuts if item.number > cut.number)
        # No cut has this batch yet, after a killed sync or a rewind, so no cut counts it.
        return is_told or self._has_unapplied or cut.es_only

    def _late(self, cut: Cut) -> list[LateRows]:
        if not self._may_have_late(cut):
            return []
        return self._landed((ds.field("batch") > cut.batch) & (ds.field("commit_ts") <= cut.tso))

    @cached_property
    def _below(self) -> list[LateRows]:
        """The rows that landed after tables were truncated above them."""
        point, batch, at = self._truncation_point, ds.field("batch"), ds.field("commit_ts")
        if point.cut is None:
            return []
        below = (batch > point.batch) & (at <= point.tso)
        for item in point.kept:
            tso, landed = point.place_of_kept(item)
            for span in item.spans if tso else ():
                below |= cites(span) & (at <= tso) & (batch > landed)
        return self._landed(below)

    def _has_unplaced(self, plan: MirrorPlan) -> bool:
        """Whether row changes of a table landed after it was truncated above them."""
        tso, batch = self._truncation_point.place_of(plan.mirror_id)
        return any(
            rows.batch > batch
            and max(rows.min_ts, plan.floor_ts + 1) <= min(rows.max_ts, tso)
            and plan.meets(rows.name, max(rows.min_ts, plan.floor_ts + 1), min(rows.max_ts, tso))
            for rows in self._below
        )

    def _landed(self, condition: ds.Expression) -> list[LateRows]:
        rows = read_table(
            self._lake.paths.change_log,
            (ds.field("kind") == ROW) & condition,
            columns=["database", "table", "batch", "commit_ts"],
        )
        return [] if rows is None else late_in(rows)


def _spans(plan: MirrorPlan, until_ts: int) -> Iterator[Binding]:
    """Yield the row changes of a table up to a TSO, by the names that it had."""
    for binding in plan.bindings:
        until = until_ts if binding.until_ts is None else min(binding.until_ts, until_ts)
        if until > binding.after_ts:
            yield replace(binding, until_ts=until)
    exported = plan.exported
    if exported is not None and exported.ts <= until_ts:
        yield Binding(
            database=exported.database,
            table=exported.table,
            after_ts=exported.ts - 1,
            until_ts=exported.ts,
        )


def _citation(group: RowGroup) -> tuple[str, str, int | None]:
    return (group.database, group.table, group.schema_version)


def _compared(paths: LakePaths, statistics: ChangeStatistics) -> int:
    """Return the batch up to which row checksums were compared."""
    if not statistics.checksums:
        return statistics.batch
    return commit_metadata(paths.checksums).get("batch", 0)
