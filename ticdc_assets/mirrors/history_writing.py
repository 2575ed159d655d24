"""Writing histories: the versions of a table's rows become a Delta version that a cut names.

In: the plan of a table at a cut, the change log (`history.HistoryFolding`), and the history at the
last cut. Out: a Delta version of the history at the cut's TSO, which the cut names together with
the mirror's version (`MirrorCut.history_version`), so both are published together.

How a history is made, cheapest first:

- carried: nothing changed.
- change: the current versions of changed keys are found in the files (`table_writing`), and the
  changes since the last cut are folded after them. Only these versions and new ones are written. A
  schema change that touches no row changes the table's metadata (`in_place`).
- overwrite: the versions of the last cut go through the DDL since (schema steps, TRUNCATE,
  partition DDL), the changes are folded after them, and all rows are new. This is used for DDL that
  touches rows, and for many changes of a table without a key.
- fold: the same from all changes in the change log, for a history that is new or whose past changed
  (`MirrorPlan.past_digest`, late rows).

Why running it again is safe: each way is one Delta commit from the version that the last published
cut names. The commit takes back versions of a killed run.

Not here: histories of dropped tables. The last cut that had such a table names its history.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.changelog.plan import MirrorPlan
from ticdc_assets.delta.commits import same_rows_at
from ticdc_assets.mirrors.change_folding import ChangeFolding, is_touched
from ticdc_assets.mirrors.history import HistoryFolding, goes_on_from
from ticdc_assets.mirrors.in_place import goes_on
from ticdc_assets.mirrors.table_writing import TableWriter, table_writer
from ticdc_assets.mirrors.truncation_points import Base
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.rows.finding import keys_of
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.history_operations import current_operations
from ticdc_assets.rows.mirror_rows import may_be_rescued
from ticdc_assets.rows.rows_of_work import Rows


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
    ) -> dict[str, Any]:
        """Bring the history of one table to the cut; return the fields of `MirrorCut` for it.

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
        if not goes_on_from(plan, base):
            return self._overwrite(plan, base, published)
        if not changed and not is_touched(plan, base):
            # A manual compaction keeps the rows; a vacuum will remove the files they had before.
            same = same_rows_at(self._lake.paths.history(plan.mirror_id), version)
            if same is not None:
                return self._made(plan, base, version=same, rows=_rows_of(base), unread=0)
        writer = self._writer(plan, published)
        if goes_on(
            self._changes,
            writer,
            HistoryLayout,
            plan,
            base,
            version=version,
            rows=_rows_of(base),
            until=self._tso,
        ):
            return self._change(plan, base, writer)
        return self._overwrite(plan, base, published)

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

    def _overwrite(
        self, plan: MirrorPlan, base: Base | None, published: int | None
    ) -> dict[str, Any]:
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
    ) -> dict[str, Any]:
        return {
            "history_version": version,
            "history_rows": rows,
            "history_unread": unread + ((base.mirror.history_unread or 0) if base else 0),
            "history_digest": plan.past_digest,
            "history_since": self._since(plan, base),
        }

    def _change(self, plan: MirrorPlan, base: Base, writer: TableWriter) -> dict[str, Any]:
        """Add the versions that began since the last cut, and end those before them."""
        schema, layout = plan.schema, HistoryLayout(schema=plan.schema)
        operations = self._folding.operations(plan, above=base.tso, until=self._tso)
        changed, counts = _changed(operations, schema)
        names = [column.name for column in schema.columns]
        wanted = schema.handle_key or names
        keys = keys_of(
            pa.table([*changed.columns[1:]], [*wanted, layout.rescued]),
            wanted,
            {column.name for column in schema.columns if may_be_rescued(column)},
            layout.rescued,
        )
        found = writer.find(keys, count=len(counts), current=layout.valid_to)
        # Of equal rows without a key the oldest end.
        found, rows, numbers = writer.first(found, counts, layout.valid_from)
        current = current_operations(
            rows.rename_columns(layout.places), changed["key"].take(pa.array(numbers)), schema
        )
        table = writer.table, writer.layout()
        versions = self._folding.after(current, operations, schema, table)
        begun = versions.rows.table
        version = writer.change(
            found,
            () if begun is None else (begun,),
            versions.rows.files,
            self._metadata(plan),
        )
        count = _rows_of(base) - current.num_rows + versions.begun
        return self._made(plan, base, version=version, rows=count, unread=versions.unread)

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


def _changed(operations: Rows, schema: TableSchema) -> tuple[pa.Table, np.ndarray]:
    """Return the keys whose current versions operations may end, and how many each.

    Without a key only a delete ends a version, and one for each copy of a row.

    Returns:
        The key as text, the columns of the key and the rescued data; and counts.
    """
    names = [column.name for column in schema.columns]
    places = [f"c{names.index(name)}" for name in schema.handle_key or names]
    rows = operations.select(["key", *places, "rescued", "is_delete"]).table_here()
    may_end = ds.field("key") != "!"
    rows = rows.filter(may_end if schema.handle_key else may_end & ds.field("is_delete"))
    codes = rows["key"].combine_chunks().dictionary_encode().indices.to_numpy()
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return rows.drop_columns("is_delete").take(pa.array(first)).combine_chunks(), counts
