"""Changes that do not fit their schema: put them into quarantine, and close them later.

In: a folding of a mirror, and the quarantined changes of older cuts. Out: rows of `quarantine`, one
per change. A change is not added twice. A change is closed if a fold of all changes no longer
refuses it, or if a later full change of its row has replaced it.

A change belongs to the mirror whose table had the cited name at the change's commit ts, whatever
the table's name was when the change was refused, and is now.

Why running it again is safe: a change with an open row gets no second one, and closing a closed row
changes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from threading import Lock
from typing import Any, TypeAlias

import pyarrow as pa

from ticdc_assets.changelog.plan import MirrorPlan, TableName
from ticdc_assets.log.cuts import Cut
from ticdc_assets.log.quarantine import (
    Closing,
    Place,
    append_faults,
    apply_faults,
    cited_names,
    close_rows,
    place_of,
    place_of_fault,
    places_of_faults,
    read_counted,
)
from ticdc_assets.mirrors.change_folding import ChangeFolding
from ticdc_assets.rows.fold_runs import Folded
from ticdc_assets.rows.mirror_rows import change_operations

Doubts: TypeAlias = dict[Place, list[tuple[str, int]]]
"""The keys of quarantined changes' operations and their commit ts, by the change's place."""


class Misfits:
    """The quarantine of one apply; mirrors that are made at the same time share it."""

    def __init__(
        self,
        changes: ChangeFolding,
        plans: Iterable[MirrorPlan],
        *,
        tso: int,
        last: Cut | None,
    ) -> None:
        self._lake = changes.lake
        self._changes = changes
        self._tso = tso
        self._last_tso = 0 if last is None else last.tso
        self._plans = plans
        # The changes that the last cut has in quarantine. A run that ended before it published its
        # cut may have closed some.
        void_since = None if last is None else last.made_at
        self._counted = read_counted(self._lake.paths, void_since=void_since)
        self._lock = Lock()

    @cached_property
    def _faults(self) -> Mapping[str, list[dict[str, Any]]]:
        """The changes that the last cut has in quarantine, by the id of the mirror."""
        by_mirror: dict[str, list[dict[str, Any]]] = {}
        if not self._counted:
            return by_mirror
        cited = cited_names(self._lake.paths, self._counted)
        by_name: dict[TableName, list[MirrorPlan]] = {}
        for plan in self._plans:
            for name in {(binding.database, binding.table) for binding in plan.bindings}:
                by_name.setdefault(name, []).append(plan)
        for row in self._counted:
            was, ts = (row["database"], row["table"]), row["commit_ts"]
            cites = row | cited.get(place_of(row), {})
            name = (cites["database"], cites["table"])
            owners = [plan for plan in by_name.get(name, ()) if plan.meets(name, ts, ts)]
            # A change of a dropped table goes with the table that has its name now, which never
            # reads it.
            for plan in owners or [plan for plan in by_name.get(was, ()) if plan.name == was]:
                by_mirror.setdefault(plan.mirror_id, []).append(row)
        return by_mirror

    def has_open(self, mirror: MirrorPlan) -> bool:
        """Return whether a mirror would have rows from its quarantined changes if they fitted."""
        return any(
            row["redriven_at"] is None
            for source in mirror.sources()
            for row in self._faults.get(source.mirror_id, ())
        )

    def quarantine(self, mirror: MirrorPlan, folded: Folded, is_fold: bool) -> None:
        """Quarantine the changes that did not fit, unless they already are.

        A fold reads every change of the mirror, so the changes that it no longer refuses are
        closed.
        """
        faults = self._faults.get(mirror.mirror_id, ()) if is_fold else ()
        if not folded.counts.errors and not faults:
            return
        batch = self._changes.batch
        with self._lock:
            quarantined = set(map(place_of_fault, read_counted(self._lake.paths, void_since=None)))
            refused: set[Place] = set()

            def new() -> Iterator[pa.Table]:
                for faults in folded.faults.tables():
                    rows = apply_faults(faults, mirror.database, mirror.table, batch)
                    places = places_of_faults(rows)
                    refused.update(places)
                    yield rows.filter(
                        pa.array([place not in quarantined for place in places], pa.bool_())
                    )

            append_faults(self._lake.paths, new(), app_id="apply")
            # The fold did not read the changes again whose rows were handed over, only these rows.
            begin = mirror.floor_ts if mirror.parts else 0
            fixed = [
                place
                for row in faults
                if (row["partition"] < 0 or begin < row["commit_ts"] <= self._tso)
                and (place := place_of_fault(row)) in quarantined
                and place not in refused
            ]
            close_rows(self._lake.paths, "apply", fixed, Closing.REDRIVE)

    def doubts(self, mirror: MirrorPlan) -> Doubts:
        """Return a mirror's changes that older cuts had in quarantine: at each place its keys."""
        faults = [
            row
            for row in self._faults.get(mirror.mirror_id, ())
            if mirror.floor_ts < row["commit_ts"] <= self._last_tso
        ]
        rows = self._changes.rows_at(faults) if faults and mirror.schema.handle_key else None
        doubts: Doubts = {}
        if rows is None:
            return doubts
        convert = change_operations(mirror, self._lake.changefeed.timezone)
        for batch in convert(rows.to_batches()):
            for operation in batch.select(["key", "sequence", "reason"]).to_pylist():
                if operation["reason"] is not None:
                    sequence = operation["sequence"]
                    doubts.setdefault(place_of(sequence), []).append(
                        (operation["key"], sequence["commit_ts"])
                    )
        return doubts

    def close_void(self, folded: Folded, doubts: Doubts) -> int:
        """Close quarantined changes of rows that a later whole change has replaced.

        Returns:
            How many quarantined changes of older cuts are void.
        """
        void = [
            place
            for place, keys in doubts.items()
            if all(folded.newest.get(key, 0) > commit_ts for key, commit_ts in keys)
        ]
        with self._lock:
            close_rows(self._lake.paths, "apply", void, Closing.LATER_CHANGE)
        return len(void)
