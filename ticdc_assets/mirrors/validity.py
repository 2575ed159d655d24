"""Would a cut have the same mirrors if it were made today?

In: the current schema history, totals of the change log and corrections; and a published cut. Out:
for each mirror of the cut, the reason why it would be different today, or None. Applying uses this
before it continues from the newest cut, a read as of a TSO before it continues from the cut below,
and retention before it makes a cut the base cut.

A mirror would be the same if its plan is the same (digests of names, schemas, steps, held rows), if
no row change at or below the cut landed after it, and if none of its row changes was corrected
since. Only the given values are read, and the same values give the same answer.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ticdc_assets.changelog.plan import (
    MirrorPlan,
    Plan,
    RowGroup,
    SeededTable,
    TableName,
    earlier_first,
)
from ticdc_assets.changelog.planning import build_plan
from ticdc_assets.log.change_statistics import ChangeStatistics, Correction, read_statistics
from ticdc_assets.log.cuts import Cut, MirrorCut
from ticdc_assets.log.schema_tables import completed_history
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.registry.history import SchemaHistory
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.wire.rows import ROW, WATERMARK


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRows:
    """Row changes that landed after a cut and are at or below it.

    `name` is (database, table) that they cite; `batch` is 0 for any.
    """

    name: TableName
    min_ts: int
    max_ts: int
    batch: int = 0


def late_in(rows: pa.Table) -> list[LateRows]:
    """Return late row changes by name, and by batch if they have that column."""
    keys = [name for name in ("database", "table", "batch") if name in rows.column_names]
    groups = rows.group_by(keys).aggregate([("commit_ts", "min"), ("commit_ts", "max")])
    return [
        LateRows(
            name=(row["database"], row["table"]),
            min_ts=row["commit_ts_min"],
            max_ts=row["commit_ts_max"],
            batch=row.get("batch", 0),
        )
        for row in groups.to_pylist()
    ]


class Knowledge:
    """The facts known now about the changes of a changefeed."""

    def __init__(
        self,
        history: SchemaHistory,
        row_groups: Sequence[RowGroup],
        corrections: Collection[Correction],
        timezone: str,
        exported: Mapping[SeededTable, int],
    ) -> None:
        self._exported = exported
        self.history = history
        self.row_groups = row_groups
        self._corrections = [item for item in corrections if item.kind in (ROW, WATERMARK)]
        self._timezone = timezone
        self._plans: dict[int, Plan] = {}
        self._digests: dict[int, dict[str, str]] = {}
        self._undoing_at: dict[tuple[int, int], list[Correction]] = {}
        self._by_name: dict[TableName, list[RowGroup]] = {}
        for group in row_groups:
            self._by_name.setdefault(group.name, []).append(group)

    @classmethod
    def of(
        cls, paths: LakePaths, timezone: str, statistics: ChangeStatistics | None = None
    ) -> "Knowledge":
        """Read the known facts; needs no Spark."""
        statistics = read_statistics(paths) if statistics is None else statistics
        row_groups = statistics.row_groups
        history = completed_history(paths, statistics, timezone)
        return cls(
            history, row_groups, statistics.corrections, timezone, statistics.exported_rows()
        )

    def plan(self, tso: int) -> Plan:
        """Return how each table comes from the change log at a TSO."""
        if tso not in self._plans:
            self._plans[tso] = build_plan(
                self.history, self.row_groups, tso, self._timezone, self._exported
            )
        return self._plans[tso]

    def digests(self, tso: int) -> Mapping[str, str]:
        """Return the digests of all mirrors at a TSO, by their ids."""
        if tso not in self._digests:
            mirrors = self.plan(tso).mirrors
            self._digests[tso] = {mirror.mirror_id: mirror.digest for mirror in mirrors}
        return self._digests[tso]

    def flaw(
        self, mirror: MirrorPlan, was: MirrorCut | None, cut: Cut, late: Iterable[LateRows]
    ) -> str | None:
        """Return why a mirror of a cut would be different today; None if it would not.

        Args:
            mirror: its plan, at or above the cut.
            was: the mirror in the cut, if it has it.
            cut: the cut.
            late: the row changes that landed after the cut and are at or below it. Those that
                were handed over to the mirror count too, and those of a kept history's past.
        """
        if was is None:
            return "it is not in the cut"
        if was.failed:
            return "it could not be made"
        if was.digest != self.digests(cut.tso).get(mirror.mirror_id):
            return "the schema or the history of the table changed since"
        late = list(late)
        if not late and not self._undoing(cut):
            return None
        if was.history_version is None:
            plans = list(mirror.sources())
        else:
            plans = earlier_first(mirror, lambda item: item.pasts)
        if any(plan.meets(rows.name, rows.min_ts, rows.max_ts) for rows in late for plan in plans):
            return "row changes came late"
        if self.is_corrected(cut, plans):
            return "its row changes were decoded again since, and differed"
        return None

    def is_corrected(self, cut: Cut, plans: Iterable[MirrorPlan]) -> bool:
        """Return whether row changes of some tables at or below a cut were corrected since."""
        undoing = self._undoing(cut)
        return bool(undoing) and any(_concerns(plan, item) for plan in plans for item in undoing)

    def _undoing(self, cut: Cut) -> list[Correction]:
        """Return the corrections since a cut; each mirror needs it."""
        place = (cut.batch, cut.tso)
        if place not in self._undoing_at:
            self._undoing_at[place] = [item for item in self._corrections if item.undoes(*place)]
        return self._undoing_at[place]

    def has_changes(self, mirror: MirrorPlan, above: int, until: int) -> bool:
        """Return whether a mirror may have row changes in (above, until]."""
        return above < until and any(
            mirror.meets(group.name, max(group.min_ts, above + 1), min(group.max_ts, until))
            for group in self.groups_of(mirror)
            if group.max_ts > above and group.min_ts <= until
        )

    def count(self, mirror: MirrorPlan) -> int:
        """Return how many changes and exported rows a mirror may have, at most."""
        count = sum(group.rows for group in self.groups_of(mirror))
        return count + (mirror.exported.rows if mirror.exported is not None else 0)

    def groups_of(self, mirror: MirrorPlan) -> list[RowGroup]:
        """Return the row changes that a mirror may have."""
        names = {(binding.database, binding.table): None for binding in mirror.bindings}
        return [
            group
            for name in names
            for group in self._by_name.get(name, ())
            if mirror.meets(name, group.min_ts, group.max_ts)
        ]


def _concerns(mirror: MirrorPlan, correction: Correction) -> bool:
    if correction.database is None or correction.table is None:
        return not mirror.schema.handle_key
    return mirror.meets((correction.database, correction.table), correction.min_ts, MAX_TSO)
