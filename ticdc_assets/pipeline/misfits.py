"""Changes that do not fit their schema: put them into quarantine, and close them again.

In: a folding of a mirror, and the quarantined changes of older cuts. Out: rows of `quarantine`, one
per change. A change that is already there is not added again. A change is closed if a fold of all
changes no longer refuses it, or if a later full change of its row has replaced it.

Why running it again is safe: rows are appended under an id made of the mirror and the TSO, so a
second append is skipped, and closing a closed row changes nothing.
"""

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import TypeAlias

import pyarrow as pa

from ticdc_assets.changelog.plan import (
    MirrorPlan,
)
from ticdc_assets.config import Changefeed
from ticdc_assets.engine.control import latest_version
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.session import Session
from ticdc_assets.pipeline.change_folding import (
    ChangeFolding,
)
from ticdc_assets.pipeline.quarantine import (
    Closing,
    Place,
    append_faults,
    apply_faults,
    close_rows,
    place_of,
    places_in,
    read_quarantine,
)
from ticdc_assets.rows.fold_runs import Folded
from ticdc_assets.rows.mirror_rows import (
    change_operations,
)

Doubts: TypeAlias = dict[Place, list[tuple[str, int]]]
"""By the place of a change in quarantine the keys of its operations, and their commit ts."""


class Misfits:
    """The quarantine of one apply; mirrors that are made at the same time share it.

    Args:
        spark: the session.
        paths: tables of the changefeed.
        changefeed: its configuration.
        changes: where changes are read.
        batch: newest batch of the change log that is looked at.
        tso: TSO of the cut.
        last_tso: TSO of the last cut, 0 before the first.
    """

    def __init__(
        self,
        spark: Session,
        paths: LakePaths,
        changefeed: Changefeed,
        changes: ChangeFolding,
        *,
        batch: int,
        tso: int,
        last_tso: int,
    ) -> None:
        self._spark = spark
        self._paths = paths
        self._changefeed = changefeed
        self._changes = changes
        self._batch = batch
        self._tso = tso
        self._last_tso = last_tso
        # What older cuts had in quarantine.
        self._faults = read_quarantine(paths)
        self._lock = Lock()

    def quarantine(self, mirror: MirrorPlan, folded: Folded, is_fold: bool) -> None:
        """Quarantine the changes that did not fit, unless they are there already.

        A fold meets every change of the mirror, so what it no longer refuses is closed.
        """
        errors = folded.counts.errors
        is_there = latest_version(self._paths.quarantine) is not None
        if not errors and not (is_there and is_fold):
            return
        batch = self._batch
        with self._lock:
            known = {
                place_of(row): row
                for row in read_quarantine(self._paths)
                if row["stage"] == "apply"
            }
            met: set[Place] = set()

            def new() -> Iterator[pa.Table]:
                for faults in folded.faults.tables():
                    rows = apply_faults(faults, mirror.database, mirror.table, batch)
                    places = places_in(rows)
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
            if is_fold:
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

    def _close(self, places: Sequence[Place], closing: Closing) -> None:
        """Close what is in quarantine at some places."""
        close_rows(self._paths, "apply", places, closing)

    def doubts(self, mirror: MirrorPlan) -> Doubts:
        """Return what older cuts had in quarantine of a mirror: at each place its keys."""
        faults = [
            row
            for row in self._faults
            if row["stage"] == "apply"
            and mirror.floor_ts < row["commit_ts"] <= self._last_tso
            and mirror.meets((row["database"], row["table"]), row["commit_ts"], row["commit_ts"])
        ]
        rows = self._changes.rows_at(faults) if faults and mirror.schema.handle_key else None
        found: Doubts = {}
        if rows is None:
            return found
        convert = change_operations(mirror, self._changefeed.timezone)
        for batch in convert(rows.to_batches()):
            for operation in batch.select(["key", "sequence", "reason"]).to_pylist():
                if operation["reason"] is not None:
                    sequence = operation["sequence"]
                    found.setdefault(place_of(sequence), []).append(
                        (operation["key"], sequence["commit_ts"])
                    )
        return found

    def close_void(self, folded: Folded, doubts: Doubts) -> int:
        """Close what is in quarantine of rows that a later whole change has replaced.

        Returns:
            How many changes that older cuts had in quarantine are void.
        """
        void = [
            place
            for place, found in doubts.items()
            if all(folded.newest.get(key, 0) > commit_ts for key, commit_ts in found)
        ]
        with self._lock:
            self._close(void, Closing.LATER_CHANGE)
        return len(void)
