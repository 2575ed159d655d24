"""The reference of histories: every version of every row up to a cut, in plain Python.

In: events with their coordinates, in any order. Out: for each table that exists at the cut its
`RowVersion`s. This is the meaning the lake's history tables are tested against; like `fold` it is
written to be read, holds everything in memory and does nothing in parallel.

A version is valid for the cuts in [valid_from, valid_to). A row change at commit ts T is in the cut
at T, so versions begin and end at T by it. DDL at T is in the cuts above T only (a row of the same
commit ts was committed before it), so what it ends is valid up to T + 1.

Of several changes of a row at one commit ts the last one counts. In a table without a key a version
is one copy of a row, and a delete ends the oldest copy there is. A change that was sent as its
handle key alone begins no version where the row is there: its values are not known from then on,
which `RowVersion.partial_ts` says.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

from ticdc_assets.base.errors import ImageError
from ticdc_assets.changelog.carrying import (
    NO_END,
    KeptText,
    VersionCarrier,
    VersionEvent,
    end_by,
    first_cut_after,
    hands_over,
    surely_given,
    texts_at,
)
from ticdc_assets.changelog.plan import HandoverPart, MirrorPlan, TableName
from ticdc_assets.changelog.planning import build_plan
from ticdc_assets.changelog.resolve import ResolvedChange, RowResolver
from ticdc_assets.model.events import Event, RowChange
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.history import Coordinates
from ticdc_assets_tests.reference.fold import collect_history, group_rows, ordered_changes


@dataclass(frozen=True, slots=True, kw_only=True)
class RowVersion:
    """A row as it was for a while.

    Attributes:
        key: identity of the row; in a table without a key the whole row.
        row: its values as canonical text, under the schema at the end.
        valid_from: first cut that has it.
        valid_to: first cut that has it no longer, None if there is none.
        op: how it came.
        ended_by: how it ended.
        partial_ts: commit ts of the last change of which only the key is known.
        ends_at: first cut that will not have it because of partition DDL, if nothing ends it
            before.
        removed_by: that partition DDL.
        kept: as of `CarriedRow`.
    """

    key: str
    row: CanonicalRow
    valid_from: int
    op: str
    valid_to: int | None = None
    ended_by: str | None = None
    partial_ts: int | None = None
    ends_at: int | None = None
    removed_by: str | None = None
    kept: tuple[KeptText, ...] = ()

    def ended(self, at: int, by: str) -> "RowVersion":
        """Return the version, ended at a cut unless partition DDL ended it before."""
        if self.ends_at is not None and self.ends_at <= at:
            at, by = self.ends_at, self.removed_by or by
        row = self.row | texts_at(self.kept, at)
        return replace(
            self, row=row, kept=(), valid_to=at, ended_by=by, ends_at=None, removed_by=None
        )


def fold_history(
    events: Iterable[tuple[Coordinates, Event]], cut_ts: int, timezone: str
) -> dict[TableName, list[RowVersion]]:
    """Return the versions of the rows of every table of the cut, in the order they began."""
    everything = list(events)
    plan = build_plan(
        collect_history(everything, timezone), group_rows(everything), cut_ts, timezone
    )
    rows = [
        (coordinates, event)
        for coordinates, event in everything
        if isinstance(event, RowChange) and event.commit_ts <= cut_ts
    ]
    folder = _HistoryFolder(rows, timezone)
    return {
        mirror.name: sorted(folder.versions(mirror), key=lambda item: (item.valid_from, item.key))
        for mirror in plan.mirrors
    }


class _HistoryFolder:
    def __init__(self, rows: list[tuple[Coordinates, RowChange]], timezone: str) -> None:
        self._rows = rows
        self._timezone = timezone

    def versions(self, plan: MirrorPlan) -> list[RowVersion]:
        """Return the versions of one table."""
        resolver = RowResolver(plan, self._timezone, keeps_lost=True)
        ended: list[RowVersion] = []
        there: dict[str, list[RowVersion]] = {}
        for version in self._earlier(plan, resolver):
            if version.valid_to is None:
                there.setdefault(version.key, []).append(version)
            else:
                ended.append(version)
        for copies in there.values():
            copies.sort(key=lambda item: item.valid_from)
        take_effect = _by_key if resolver.keyed else _in_bag
        # What does not fit is in quarantine.
        changes = ordered_changes(plan, self._rows, resolver, lambda place, error: None)
        stamps = sorted({sequence[0] for sequence, _, _ in changes})
        for ts in stamps:
            take_effect(ts, [change for item, _, change in changes if item[0] == ts], there, ended)
        for version in (version for copies in there.values() for version in copies):
            if version.ends_at is None or version.removed_by is None:
                ended.append(version)
            else:
                ended.append(version.ended(version.ends_at, version.removed_by))
        return ended

    # What was there before ----------------------------------------------------------------------

    def _earlier(self, plan: MirrorPlan, resolver: RowResolver) -> list[RowVersion]:
        """Return the versions that are there when the first change of the plan comes."""
        own = next((part for part in plan.parts if part.plan.mirror_id == plan.mirror_id), None)
        versions: list[RowVersion] = []
        if plan.earlier is not None:
            carrier = VersionCarrier(plan.earlier.schema, plan, self._timezone, part=own)
            stays = hands_over(own, self._timezone) if own else None
            by = VersionEvent.EXCHANGE if plan.parts else VersionEvent.TRUNCATE
            for version in self.versions(plan.earlier):
                if version.valid_to is None and (
                    stays is None or not surely_given(stays, version.row)
                ):
                    version = version.ended(first_cut_after(plan.floor_ts), by)
                versions.append(_carried(version, carrier, resolver))
        for part in plan.parts:
            if part is not own:
                versions += self._received(part, plan, resolver)
        return versions

    def _received(
        self, part: HandoverPart, plan: MirrorPlan, resolver: RowResolver
    ) -> list[RowVersion]:
        given = hands_over(part, self._timezone)
        carrier = VersionCarrier(part.plan.schema, plan, self._timezone, part=part)
        op = VersionEvent.RECOVER if plan.earlier is None else VersionEvent.EXCHANGE
        begins = first_cut_after(plan.floor_ts)
        return [
            _carried(replace(version, valid_from=begins, op=op), carrier, resolver)
            for version in self.versions(part.plan)
            if version.valid_to is None and surely_given(given, version.row)
        ]


def _carried(version: RowVersion, carrier: VersionCarrier, resolver: RowResolver) -> RowVersion:
    carried = carrier.carry(version.row, {}, ended=version.valid_to is not None)
    is_current = version.valid_to is None
    ends_at, removed_by = carrier.end(version.row, version.valid_from) if is_current else NO_END
    try:
        key = resolver.key_of(carried)
    except ImageError:
        if is_current:
            raise
        key = version.key  # it ended without a value of the key of today
    return replace(
        version, row=carried.row, kept=carried.kept, key=key, ends_at=ends_at, removed_by=removed_by
    )


def _by_key(
    ts: int,
    changes: list[ResolvedChange],
    there: dict[str, list[RowVersion]],
    ended: list[RowVersion],
) -> None:
    """Let the changes of one commit ts take effect, in a table with a key."""
    by_key: dict[str, list[ResolvedChange]] = {}
    for change in changes:
        by_key.setdefault(change.key, []).append(change)
    for key, own in by_key.items():
        present = _present(key, ts, there, ended)
        whole = [change for change in own if not change.partial]
        if whole:
            last = whole[-1]
            if present is not None:
                by = last.op if last.is_delete else VersionEvent.UPDATE
                there.pop(key)
                ended += [present.ended(ts, by)] if present.valid_from < ts else []
                present = None
            if not last.is_delete:
                replaced = any(change.is_delete for change in own)
                present = _begun(last, ts, VersionEvent.UPDATE if replaced else last.op)
                there[key] = [present]
        behind = list(takewhile(lambda change: change.partial, reversed(own)))
        if behind:
            if present is None:
                there[key] = [replace(_begun(behind[0], ts, behind[0].op), partial_ts=ts)]
            else:
                there[key] = [replace(present, partial_ts=ts)]


def _in_bag(
    ts: int,
    changes: list[ResolvedChange],
    there: dict[str, list[RowVersion]],
    ended: list[RowVersion],
) -> None:
    """Let the changes of one commit ts take effect, in a table without a key."""
    for change in changes:
        key = change.key
        present = _present(key, ts, there, ended)
        if not change.is_delete:
            there.setdefault(key, []).append(_begun(change, ts, change.op))
        elif present is not None:
            version = there[key].pop(0)
            ended += [version.ended(ts, change.op)] if version.valid_from < ts else []


def _present(
    key: str, ts: int, there: dict[str, list[RowVersion]], ended: list[RowVersion]
) -> RowVersion | None:
    """Return the oldest version of a row that is there at `ts`; those that DDL took are ended."""
    copies = there.pop(key, [])
    gone = [item for item in copies if item.ends_at is not None and item.ends_at <= ts]
    left = [item for item in copies if item not in gone]
    ended += [item.ended(ts, item.removed_by or "") for item in gone]
    if left:
        there[key] = left
    return left[0] if left else None


def _begun(change: ResolvedChange, ts: int, op: str) -> RowVersion:
    ends_at, removed_by = end_by(change.removed)
    return RowVersion(
        key=change.key,
        row=change.values,
        valid_from=ts,
        op=op,
        ends_at=ends_at,
        removed_by=removed_by,
        kept=change.kept,
    )
