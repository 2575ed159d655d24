"""Writing histories: the versions of a table's rows become a Delta version that a cut names.

In: the plan of a table at a cut, the change log (`history.HistoryFolding`), and the history at the
last cut. Out: a Delta version of the history at the cut's TSO, which the cut names together with
the mirror's version (`MirrorCut.history_version`), so both are published together.

How a history is made, cheapest first:

- carried: nothing changed.
- change: the changes since the last cut give, for each changed key, its new versions and the end of
  the current one. The current versions of these keys are found in the files, and written again with
  their end (`table_writing`). No other row is touched.
- overwrite: the versions of the last cut go through the DDL since (schema steps, TRUNCATE,
  partition DDL), the changes are folded after them, and all rows are new. This is used for DDL that
  touches rows, and for a table without a key.
- fold: the same from all changes in the change log, for a history that is new or whose past changed
  (`MirrorPlan.past_digest`, late rows).

Why running it again is safe: each way is one Delta commit from the version that the last published
cut names. The commit takes back versions of a killed run.

Not here: histories of dropped tables. The last cut that had such a table names its history.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.changelog.plan import MirrorPlan
from ticdc_assets.delta.commits import same_rows_at
from ticdc_assets.mirrors.change_folding import ChangeFolding
from ticdc_assets.mirrors.history import (
    HistoryFolding,
    Versions,
    begun_versions,
    goes_on_from,
    run_history,
)
from ticdc_assets.mirrors.table_writing import TableWriter, table_writer
from ticdc_assets.mirrors.truncation_points import Base
from ticdc_assets.rows.finding import keys_of
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.history_operations import Passage, history_operations
from ticdc_assets.rows.mirror_rows import MirrorLayout, marked, may_be_rescued


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeHistory:
    """The result of making a history.

    Attributes:
        version: its Delta version.
        rows: its versions of rows.
        unread: how many row changes fit no schema and are missing from it, over all cuts.
        digest: identifies the past that it was made from (`MirrorPlan.past_digest`).
        since: TSO from which on it has all versions: that of the base cut or the export that it
            began with; 0 for the first change.
    """

    version: int
    rows: int
    unread: int
    digest: str
    since: int


class HistoryWriter:
    """Brings the histories of a changefeed to a cut.

    Args:
        changes: reads the changes.
        tso: TSO of the cut.
    """

    def __init__(self, changes: ChangeFolding, *, tso: int) -> None:
        self._lake = changes.lake
        self._changes = changes
        self._folding = HistoryFolding(changes)
        self._tso = tso

    def make(
        self,
        plan: MirrorPlan,
        base: Base | None,
        *,
        changed: bool,
        published: int | None = None,
    ) -> MadeHistory:
        """Bring the history of one table to the cut.

        Args:
            plan: its plan at the cut.
            base: the history in the last cut; None if there is none to continue.
            changed: whether there may be row changes since.
            published: the newest version that a cut names; None if none does.
        """
        if base is None:
            # If the change log was truncated, changes are folded after its base.
            kept = self._changes.truncation_point.base_of(plan.mirror_id)
            return self._overwrite(plan, kept, published)
        version = base.mirror.history_version
        assert version is not None
        touched = self._is_touched(plan, base)
        if not changed and not touched:
            # A manual compaction keeps the rows; a vacuum will remove the files they had before.
            same = same_rows_at(self._lake.paths.history(plan.mirror_id), version)
            if same is not None:
                return self._made(plan, base, version=same, rows=_rows_of(base), unread=0)
        if touched or not plan.schema.handle_key:
            return self._overwrite(plan, base, published)
        writer = self._writer(plan, published)
        writer.begin(version)
        return self._change(plan, base, writer)

    def _writer(self, plan: MirrorPlan, published: int | None) -> TableWriter:
        layout = HistoryLayout(schema=plan.schema)
        return table_writer(self._lake, layout, plan.name, plan.mirror_id, published=published)

    def _since(self, plan: MirrorPlan, base: Base | None) -> int:
        """Return the TSO from which on a history made from `base` has all versions."""
        was = None if base is None else base.mirror
        if was is None or was.history_version is None or was.history_since is None:
            since = self._changes.truncation_point.tso_of(plan.mirror_id)
        else:
            since = was.history_since
        return max(since, _begun_ts(plan))

    def _is_touched(self, plan: MirrorPlan, base: Base) -> bool:
        """Whether something other than row changes happened to the existing versions."""
        before = base.mirror.table_schema
        passage = Passage(
            schema=before, plan=plan, timezone=self._lake.changefeed.timezone, since_ts=base.tso
        )
        return (
            not goes_on_from(plan, base)
            or HistoryLayout(schema=before).names != HistoryLayout(schema=plan.schema).names
            or not passage.keeps_ended
        )

    def _overwrite(self, plan: MirrorPlan, base: Base | None, published: int | None) -> MadeHistory:
        writer = self._writer(plan, published)
        table = self._lake.paths.history(plan.mirror_id), writer.begin_empty()
        versions = self._folding.folded(plan, until=self._tso, base=base, table=table)
        rows = versions.rows.table
        version = writer.replace(
            () if rows is None else (rows,), versions.rows.files, self._metadata(plan)
        )
        return self._made(plan, base, version=version, rows=versions.begun, unread=versions.unread)

    def _made(
        self, plan: MirrorPlan, base: Base | None, *, version: int, rows: int, unread: int
    ) -> MadeHistory:
        return MadeHistory(
            version=version,
            rows=rows,
            unread=unread + ((base.mirror.history_unread or 0) if base else 0),
            digest=plan.past_digest,
            since=self._since(plan, base),
        )

    def _change(self, plan: MirrorPlan, base: Base, writer: TableWriter) -> MadeHistory:
        """Add the versions that began since the last cut, and end those before them."""
        layout = HistoryLayout(schema=plan.schema)
        versions = self._heads(plan, base.tso)
        heads = _heads_in(versions)
        keys = keys_of(
            heads.select(layout.places).rename_columns(layout.names),
            plan.schema.handle_key,
            {column.name for column in plan.schema.columns if may_be_rescued(column)},
            layout.rescued,
        )
        found = writer.find(keys, count=heads.num_rows, current=layout.valid_to)
        is_there = found.counts > 0
        # Without such a version, a head that began is a version itself.
        alone = heads.filter(pa.array(~is_there))
        begun = begun_versions(alone, layout)

        def rows() -> Iterator[pa.Table]:
            for current, numbers in found.rows(is_there, writer):
                yield _ended(current, heads.take(pa.array(numbers)), layout)
            yield begun
            for table in versions.rows.tables():
                yield begun_versions(table.filter(~ds.field("is_head")), layout)

        version = writer.change(found, rows(), (), self._metadata(plan))
        new = versions.begun - heads.num_rows + heads["valid_from"].null_count + begun.num_rows
        count = _rows_of(base) + new
        return self._made(plan, base, version=version, rows=count, unread=versions.unread)

    def _heads(self, plan: MirrorPlan, above: int) -> Versions:
        """Return the versions since a cut, and the ends of those that were current at it."""
        convert = history_operations(plan, self._lake.changefeed.timezone)
        rows = self._changes.changes(plan, above, self._tso)
        return run_history(self._changes, plan.schema, rows, convert, heads=True)

    def _metadata(self, plan: MirrorPlan) -> dict[str, object]:
        return {"tso": self._tso, "database": plan.database, "table": plan.table}


def _begun_ts(plan: MirrorPlan) -> int:
    """Return the TSO of the export that the history of a table begins with; 0 if with none."""
    while plan.earlier is not None:
        plan = plan.earlier
    return 0 if plan.exported is None else plan.exported.ts


def _rows_of(base: Base) -> int:
    """Return how many versions a history in a cut has."""
    return base.mirror.history_rows or 0


def _heads_in(versions: Versions) -> pa.Table:
    """Return the ends and marks of versions that the table already has, one row a key."""
    found = [table.filter(ds.field("is_head")) for table in versions.rows.tables()]
    return pa.concat_tables([versions.rows.schema.empty_table(), *found]).combine_chunks()


def _ended(current: pa.Table, heads: pa.Table, layout: HistoryLayout) -> pa.Table:
    """Return current versions with the end or the mark from their heads."""
    for name, place in ((layout.valid_to, "valid_to"), (layout.ended_by, "ended_by")):
        number = current.schema.get_field_index(name)
        current = current.set_column(number, current.schema.field(number), heads[place])
    marks = heads["partial_ts"].to_pylist()
    if not any(marks):
        return current
    is_marked = np.array([mark is not None for mark in marks])
    rows = current.filter(pa.array(is_marked))
    mirror = MirrorLayout(schema=layout.schema)
    return pa.concat_tables(
        [
            current.filter(pa.array(~is_marked)),
            marked(rows, mirror, [mark for mark in marks if mark is not None]),
        ]
    )
