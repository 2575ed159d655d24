"""Tables that begin with the rows of an export, while a plan is being built.

In: the schema history, in which an export of a table is a DDL event of its own
(`events.SNAPSHOT_DDL`) at its TSO, and the TSO of a cut. Out: which of these events are in the cut,
the schema that a table has from there on, and which mirrors lack rows until a later cut. It is a
pure function.

At the TSO of an export a table has its rows, and those of the changes above it. So changes at or
below the TSO do not count, as below a TRUNCATE, but a DDL at it does: the export was read after the
DDL.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ticdc_assets.changelog.lineages import Lineage
from ticdc_assets.changelog.plan import (
    LACKS_EXPORT,
    Caveat,
    ExportedRows,
    MirrorPlan,
    SeededTable,
    TableName,
)
from ticdc_assets.model.events import DdlEvent
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.evolution import diff
from ticdc_assets.registry.history import (
    INFERRED_SOURCES,
    RegisteredDdl,
    SchemaHistory,
    SchemaSource,
    is_snapshot,
)

_NOT_SENT = INFERRED_SOURCES | {SchemaSource.SNAPSHOT}


class ExportedTables:
    """The exports of one plan, with the numbers of their rows."""

    def __init__(
        self, history: SchemaHistory, cut_ts: int, rows: Mapping[SeededTable, int]
    ) -> None:
        self._cut_ts = cut_ts
        self._rows = rows
        self._above: dict[TableName, int] = {}
        exported: set[TableName] = set()
        for ddl in history.ddls:
            if not is_snapshot(ddl.event):
                continue
            name = (ddl.event.database, ddl.event.table)
            exported.add(name)
            if ddl.event.commit_ts > cut_ts:
                self._above.setdefault(name, ddl.event.commit_ts)
        self._sent: dict[TableName, list[TableSchema]] = {}
        for version in history.versions if exported else ():
            name = version.schema.name
            if name in exported and version.source not in _NOT_SENT:
                self._sent.setdefault(name, []).append(version.schema)

    @property
    def above(self) -> tuple[tuple[TableName, int], ...]:
        """Names with rows in exports above the cut, each with the lowest TSO of these."""
        return tuple(sorted(self._above.items()))

    def in_cut(self, ddls: Iterable[RegisteredDdl]) -> list[RegisteredDdl]:
        """Return the DDL in the cut, with the exports at its TSO."""
        return [ddl for ddl in ddls if ddl.event.commit_ts < self._cut_ts + is_snapshot(ddl.event)]

    def schema(self, event: DdlEvent) -> TableSchema | None:
        """Return the schema of an exported table: as it was sent, if that means the same."""
        exported = event.schema
        if exported is None:
            return None
        sent = [
            item for item in self._sent.get(exported.name, ()) if item.version <= event.commit_ts
        ]
        newest = max(sent, key=lambda schema: schema.version, default=None)
        if newest is None or not _mean_the_same(newest, exported):
            return exported
        # Then rows need no step from one spelling of a schema to the other.
        return replace(newest, version=exported.version)

    def begin(self, lineage: Lineage, ddl: RegisteredDdl, schema: TableSchema) -> None:
        """Let a table begin again, with this schema and the rows of an export."""
        ts, seed, (database, table) = ddl.event.commit_ts, ddl.coordinates.partition, schema.name
        lineage.begins_anew(ts)
        rows = self._rows.get((database, table, seed), 0)
        lineage.exported = ExportedRows(ts=ts, seed=seed, database=database, table=table, rows=rows)
        lineage.is_whole = True
        # A history, too, begins with the export.
        lineage.earlier = None
        lineage.ddls.clear()
        lineage.versions = {schema.version: schema}
        for note in ddl.notes:
            lineage.add_caveat(note, ddl.event)

    def with_completeness(self, plan: MirrorPlan, lineage: Lineage) -> MirrorPlan:
        """Add that a table lacks rows, if only an export above the cut has all of them."""
        until = None if lineage.is_whole else self._above.get(plan.name)
        if until is None:
            return plan
        caveat = Caveat(reason=f"{LACKS_EXPORT} {until}", since_ts=plan.floor_ts)
        return replace(plan, incomplete_until=until, caveats=(*plan.caveats, caveat))


def _mean_the_same(sent: TableSchema, exported: TableSchema) -> bool:
    """Return whether a sent schema and that of an export have the same rows and key."""
    there, back = diff(sent, exported), diff(exported, sent)
    keys = [{name.lower() for name in schema.handle_key} for schema in (sent, exported)]
    return not there.changes_rows and not back.changes_rows and keys[0] == keys[1]
