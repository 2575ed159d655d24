"""Planning a cut: from the schema history and the rows that cite it to the plan.

In: the schema history, completed by `registry.catalog`: each DDL is a part that concerns one table,
with its kind and the schemas before and after. And for each (database, table, table id, schema
version or shape) that row changes cite, their lowest and highest commit ts. All of it is derived
from the change log. Out: a `Plan` at W, as `plan` describes it.

The plan is a pure function of its input, recomputed for each cut: the order of arrival leaves no
trace.

Two kinds of DDL move rows without row events. DROP and TRUNCATE PARTITION remove the rows of some
partitions (`lineages`). Where a table's rows change hands or their identity (EXCHANGE
PARTITION, another primary key, FLASHBACK of truncated rows) the table begins again with the rows of
other tables at that moment (a handover), which are planned like mirrors of that moment. Inexact
definitions are marked, never guessed.

An export of a table is a DDL event of its own (`events.SNAPSHOT_DDL`) at its TSO. There the table
begins again with the export's rows and those of the changes above it. So changes at or below the
TSO do not count, as below a TRUNCATE, but a DDL at it does: the export was read after the DDL.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, groupby
from types import MappingProxyType

from ticdc_assets.base.isolation import Failure, attempted
from ticdc_assets.base.names import joined_name
from ticdc_assets.changelog.cited_rows import GroupsByName, attach_groups
from ticdc_assets.changelog.lineage_plans import LineagePlans, failed_plan
from ticdc_assets.changelog.lineages import (
    PARTITION_REASON,
    GivenId,
    Lineage,
    LineagePart,
    changes_key,
    keeps_version,
    repartition,
    rows_meant,
    spread_by_create,
)
from ticdc_assets.changelog.plan import (
    LACKS_EXPORT,
    Binding,
    Caveat,
    ExportedRows,
    FailedPlan,
    MirrorPlan,
    Plan,
    RowGroup,
    SeededTable,
    TableName,
)
from ticdc_assets.model.events import DdlEvent
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.registry.ddl.parts import name_in_text, recovered_name
from ticdc_assets.registry.ddl.statement import DdlAction, DdlKind
from ticdc_assets.registry.ddl.tokens import shown_sql
from ticdc_assets.registry.evolution import diff
from ticdc_assets.registry.history import (
    INFERRED_SOURCES,
    RegisteredDdl,
    SchemaHistory,
    SchemaSource,
    exchange_of,
    folded,
    is_snapshot,
)
from ticdc_assets.registry.inference.column_facts import ColumnFacts


def build_plan(
    history: SchemaHistory,
    groups: Iterable[RowGroup],
    cut_ts: int,
    timezone: str,
    exported: Mapping[SeededTable, int] = MappingProxyType({}),
) -> Plan:
    """Return the plan of the cut at `cut_ts`.

    Args:
        history: schemas and DDL, completed (`registry.catalog.complete`).
        groups: the row changes in numbers.
        cut_ts: the TSO.
        timezone: the changefeed's time zone (IANA name), on which partitions may depend.
        exported: how many rows of exports there are.
    """
    below = [group for group in groups if group.min_ts <= cut_ts]
    return _Builder(history, below, cut_ts, timezone, exported).build()


class _Builder:
    def __init__(
        self,
        history: SchemaHistory,
        groups: Sequence[RowGroup],
        cut_ts: int,
        timezone: str,
        exported: Mapping[SeededTable, int],
    ) -> None:
        self._history = history
        self._timezone = timezone
        self._cut_ts = cut_ts
        self._groups = GroupsByName(groups)
        self._lineages: list[Lineage] = []
        # Tables as they were at some moment, oldest first: the parts of handovers.
        self._snapshots: list[Lineage] = []
        self._truncated: dict[int, Lineage] = {}
        self._plans = LineagePlans(self._groups, cut_ts, ColumnFacts(history))
        # By name without case: upstream compares names so, and TiCDC may write one in another case
        # from a RENAME on, or from its restart (`Lineage.take_spellings`).
        self._names: dict[TableName, Lineage] = {}
        self._freed: dict[TableName, int] = {}
        # Tables that were empty at a DDL and whose schema no message has.
        self._empty: dict[TableName, RegisteredDdl] = {}
        self._used_ids: set[str] = set()
        self._ignored: dict[str, int] = {}
        self._exported = exported
        # Names with rows in exports above the cut, each with the lowest TSO of these.
        self._exported_above: dict[TableName, int] = {}
        for ddl in history.ddls:
            if is_snapshot(ddl.event) and ddl.event.commit_ts > cut_ts:
                name = (ddl.event.database, ddl.event.table)
                self._exported_above.setdefault(name, ddl.event.commit_ts)

    def build(self) -> Plan:
        start = 0
        ddls = [
            ddl
            for ddl in self._history.ddls
            if ddl.event.commit_ts < self._cut_ts + is_snapshot(ddl.event)
        ]
        for commit_ts, together in groupby(ddls, key=lambda ddl: ddl.event.commit_ts):
            start = self._meet_rows(start, commit_ts)
            self._apply_ddls(list(together))
        self._meet_rows(start, self._cut_ts)
        cited: dict[TableName, dict[TableName, list[RowGroup]]] = {}
        for group in self._groups.every:
            spellings = cited.setdefault(folded(group.name), {})
            spellings.setdefault(group.name, []).append(group)
        for lineage in (*self._lineages, *self._snapshots):
            lineage.take_spellings(cited, self._cut_ts)
        tables = {"lineages": self._lineages, "snapshots": self._snapshots}
        self._mark_misnamed()
        held, strays = attach_groups(self._groups, self._history, self._cut_ts, **tables)
        # A snapshot only refers to older ones, so the recursion is not deep. A snapshot that fails
        # fails again where it is needed.
        for snapshot in self._snapshots:
            self._attempt(snapshot)
        mirrors: list[MirrorPlan] = []
        failed: list[FailedPlan] = []
        for lineage in self._lineages:
            if not lineage.alive:
                continue
            plan = self._attempt(lineage)
            if isinstance(plan, Failure):
                failed.append(failed_plan(lineage, plan))
            else:
                mirrors.append(self._with_completeness(plan, lineage))
        return Plan(
            cut_ts=self._cut_ts,
            mirrors=tuple(sorted(mirrors, key=lambda mirror: mirror.name)),
            held=held,
            strays=strays,
            ignored=tuple(sorted(self._ignored.items())),
            failed=tuple(sorted(failed, key=lambda table: table.name)),
            gone=tuple(chain(*(item.bindings for item in self._lineages if not item.alive))),
            exported_above=tuple(sorted(self._exported_above.items())),
        )

    def _attempt(self, lineage: Lineage) -> MirrorPlan | Failure:
        """Return the plan of one table; an error concerns that table alone."""
        what = f"the plan of {joined_name(*lineage.name)}"
        return attempted(lambda: self._plans.finish(lineage), what)

    # Rows -------------------------------------------------------------------------------------

    def _meet_rows(self, start: int, until_ts: int) -> int:
        """Let tables begin at their first known rows.

        The first `start` groups were processed before; returns how many are now.
        """
        groups = self._groups.every
        end = bisect_right(groups, until_ts, lo=start, key=lambda group: group.min_ts)
        for group in groups[start:end]:
            schema = self._schema_of(group)
            if schema is None:
                continue
            present = self._named(group.name)
            if present is None:
                lineage = self._begin(group.name, schema)
                emptied = self._empty.pop(folded(group.name), None)
                if emptied is not None:
                    lineage.is_whole = True
                    self._note(lineage, emptied)
            elif group.schema_version is None:
                # Only rows show this version: it belongs to the table whose rows they are.
                present.versions[schema.version] = schema
        return end

    def _schema_of(self, group: RowGroup) -> TableSchema | None:
        """Return the schema that the group cites, or that it proves, or None."""
        if group.schema_version is None:
            return self._history.observed(group.database, group.table, group.min_ts)
        schema = self._history.at(group.database, group.table, group.schema_version)
        if schema is not None:
            return schema
        schema = self._history.in_another_database(group.table, group.schema_version)
        if schema is None or self._identified(schema.table_id):
            return None  # no message says that a table that is known took the cited name
        return replace(schema, database=group.database, table=group.table)

    # DDL --------------------------------------------------------------------------------------

    def _apply_ddls(self, ddls: Sequence[RegisteredDdl]) -> None:
        """Apply the DDL of one commit ts; the renames of one statement take effect at once."""
        for renaming, together in groupby(ddls, key=lambda ddl: ddl.kind is DdlKind.RENAME):
            if renaming:
                self._rename(list(together))
            else:
                for ddl in together:
                    self._apply_ddl(ddl)

    def _apply_ddl(self, ddl: RegisteredDdl) -> None:
        event = ddl.event
        match ddl.kind:
            case DdlKind.CREATE if event.schema is not None:
                self._create(ddl, event.schema)
            case DdlKind.CREATE | DdlKind.DROP:
                self._erase(ddl)
            case DdlKind.TRUNCATE:
                self._truncate(ddl)
            case DdlKind.SNAPSHOT if event.schema is not None:
                self._seed(ddl, event.schema)
            case DdlKind.EXCHANGE:
                self._exchange(ddl)
            case DdlKind.ALTER:
                self._alter(ddl)
            case DdlKind.RECOVER:
                self._recover(ddl)
            case DdlKind.DROP_DATABASE if ddl.statement.database is not None:
                database = ddl.statement.database.lower()
                for lineage in list(self._names.values()):
                    if lineage.name[0].lower() == database:
                        self._unbind(lineage, event.commit_ts)
            case _:
                self._other(ddl)

    def _other(self, ddl: RegisteredDdl) -> None:
        """Count DDL that concerns no table; mark the table of a text that is not understood."""
        event, action = ddl.event, ddl.statement.action
        self._ignore(str(action))
        lineage = self._named((event.database, event.table))
        if action is DdlAction.UNKNOWN and lineage is not None:
            lineage.add_caveat(f"DDL text not understood: {shown_sql(event.sql)}", event)

    def _create(self, ddl: RegisteredDdl, schema: TableSchema) -> None:
        name = schema.name
        present = self._named(name)
        if present is not None:
            self._unbind(present, ddl.event.commit_ts)
        lineage = self._begin(name, schema, after_ts=ddl.event.commit_ts)
        lineage.begins_anew(ddl.event.commit_ts)
        lineage.is_whole = True
        self._note(lineage, ddl)
        spread_by_create(lineage, ddl.statement, self._named)

    def _erase(self, ddl: RegisteredDdl) -> None:
        """End a table: by DROP, or as another is created by a text that is not understood."""
        event = ddl.event
        schema = event.pre_schema or event.schema
        name = schema.name if schema is not None else (event.database, event.table)
        lineage = self._find(schema) if schema is not None else self._named(name)
        if lineage is not None:
            if schema is not None:
                lineage.take_id(schema)
            self._unbind(lineage, event.commit_ts)
        elif name[1]:
            self._freed[folded(name)] = event.commit_ts
        else:
            self._ignore(f"{ddl.kind} without schema")
        self._empty.pop(folded(name), None)
        if ddl.kind is DdlKind.CREATE:
            self._empty[folded(name)] = ddl

    def _truncate(self, ddl: RegisteredDdl) -> None:
        lineage = self._find_or_begin(ddl.event)
        if lineage is None:
            self._ignore("truncate without schema")
            self._empty[folded((ddl.event.database, ddl.event.table))] = ddl
            return
        if ddl.event.pre_schema is not None:
            lineage.take_id(ddl.event.pre_schema)
        # FLASHBACK may bring these rows back as another table.
        lineage.earlier = self._snapshot(lineage, ddl.event.commit_ts)
        self._truncated[lineage.table_id] = lineage.earlier
        # A truncated table has no rows left that could differ.
        lineage.begins_anew(ddl.event.commit_ts)
        lineage.is_whole = True
        self._note(lineage, ddl)

    def _seed(self, ddl: RegisteredDdl, schema: TableSchema) -> None:
        """Let the table of a name begin again with the rows of an export."""
        name, ts, seed = schema.name, ddl.event.commit_ts, ddl.coordinates.partition
        sent = [item for item in self._sent.get(name, ()) if item.version <= ts]
        newest = max(sent, key=lambda item: item.version, default=None)
        if newest is not None and _mean_the_same(newest, schema):
            # Then rows need no step from one spelling of the schema to the other.
            schema = replace(newest, version=schema.version)
        lineage = self._named(name) or self._begin(name, schema)
        lineage.begins_anew(ts)
        rows, (database, table) = self._exported.get((*name, seed), 0), name
        lineage.exported = ExportedRows(ts=ts, seed=seed, database=database, table=table, rows=rows)
        lineage.is_whole = True
        # A history, too, begins with the export.
        lineage.earlier = None
        lineage.ddls.clear()
        lineage.versions = {schema.version: schema}
        for note in ddl.notes:
            lineage.add_caveat(note, ddl.event)
        spread_by_create(lineage, ddl.statement, self._named)

    @cached_property
    def _sent(self) -> dict[TableName, list[TableSchema]]:
        """The schemas that messages sent, by name: needed only if there are exports."""
        sent: dict[TableName, list[TableSchema]] = {}
        for version in self._history.versions:
            if version.source not in INFERRED_SOURCES | {SchemaSource.SNAPSHOT}:
                sent.setdefault(version.schema.name, []).append(version.schema)
        return sent

    def _with_completeness(self, plan: MirrorPlan, lineage: Lineage) -> MirrorPlan:
        """Add that a table lacks rows, if only an export above the cut has all of them."""
        until = None if lineage.is_whole else self._exported_above.get(plan.name)
        if until is None:
            return plan
        caveat = Caveat(reason=f"{LACKS_EXPORT} {until}", since_ts=plan.floor_ts)
        return replace(plan, incomplete_until=until, caveats=(*plan.caveats, caveat))

    def _alter(self, ddl: RegisteredDdl) -> None:
        event = ddl.event
        lineage = self._find_or_begin(event)
        if lineage is None:
            self._ignore(f"{ddl.kind} without schema")
            return
        name = (event.database, event.table)
        if name != lineage.name and _same_name(name, lineage.name):
            # Rows cite the name in this case from now on.
            self._unbind(lineage, event.commit_ts)
            self._bind(lineage, name, event.commit_ts)
        self._restructure(lineage, ddl)
        for change in ddl.statement.changes:
            if change.partition is not None:
                repartition(lineage, change.partition, event, timezone=self._timezone)

    def _restructure(self, lineage: Lineage, ddl: RegisteredDdl) -> None:
        """Record the schemas of a DDL; the table begins again if its key is another one now."""
        ts = ddl.event.commit_ts
        before = self._snapshot(lineage, ts) if changes_key(ddl) else None
        self._note(lineage, ddl)
        if before is not None:
            # Which changes are of one row depends on the key at their time.
            self._hand_over(lineage, ts, [LineagePart(lineage=before, schema=before.schema)])

    def _exchange(self, ddl: RegisteredDdl) -> None:
        """Swap the rows of a partition with those of a table.

        TiCDC names both tables in the text. Of the schemas the Simple protocol sends, the one
        after is the partitioned table's and the one before is the other's.
        """
        event, change = ddl.event, exchange_of(ddl.statement)
        if change is None or change.other is None:
            self._ignore(f"{ddl.kind} without schema")
            return
        if event.schema is None:
            # Rows of an unknown table went to the other one.
            other = self._named(name_in_text(change.other, event.database))
            if other is not None:
                reason = f"{PARTITION_REASON} ({change.action}): the other table is not known"
                other.add_caveat(reason, event)
            self._ignore(f"{ddl.kind} without schema")
            return
        lineage = self._find(event.schema) or self._begin(event.schema.name, event.schema)
        other_name = (change.other.database or lineage.name[0], change.other.table)
        other = self._named(other_name)
        sent = event.pre_schema
        if sent is not None and _same_name(sent.name, other_name):
            other = other or self._find(sent) or self._begin(sent.name, sent)
            other.versions.setdefault(sent.version, sent)
        lineage.exchanges.append(event.commit_ts)
        if other is not None:
            other.exchanges.append(event.commit_ts)
        before = self._snapshot(lineage, event.commit_ts)
        self._note(lineage, ddl, [event.schema])
        rows = rows_meant(lineage, change, event.schema, event=event, timezone=self._timezone)
        if other is None:
            reason = f"{PARTITION_REASON} ({change.action}): the other table is not known"
            lineage.add_caveat(reason, event)
            return
        if rows is None:
            other.add_caveat(f"{PARTITION_REASON} ({change.action})", event)
            return
        other_before = self._snapshot(other, event.commit_ts)
        parts = [
            LineagePart(lineage=before, schema=event.schema, outside=rows),
            LineagePart(lineage=other_before, schema=event.schema),
        ]
        self._hand_over(lineage, event.commit_ts, parts)
        parts = [LineagePart(lineage=before, schema=other.schema, within=rows)]
        self._hand_over(other, event.commit_ts, parts)
        # The rows of pingcap/ticdc cite the version of the partitioned table from now on. It may be
        # below that of the table's last DDL, which such rows have passed all the same.
        database, table = other.name
        version = event.schema.version
        cited = replace(other.schema, database=database, table=table, version=version)
        other.versions.setdefault(version, cited)
        other.ddls.clear()
        other.lose_id(event.commit_ts)
        if sent is not None and sent.has_id and _same_name(sent.name, other_name):
            other.given.append(
                GivenId(table_id=sent.table_id, partitioned=lineage, ts=event.commit_ts)
            )
        lineage.earlier, other.earlier = before, other_before

    def _mark_misnamed(self) -> None:
        """Mark tables of which rows came under the name that their id had before an exchange.

        So does the new TiCDC where one server reads a table's rows and another sends them, until
        it moves the table (`updateTableInfoByDDL`, downstreamadapter/eventcollector).
        """
        lineages = [lineage for lineage in self._lineages if lineage.given]
        if not lineages:
            return
        later = (ddl.event.commit_ts for ddl in self._history.ddls)
        # What DDL above the cut make of the names is not planned yet.
        end_ts = next((ts for ts in later if ts >= self._cut_ts), MAX_TSO)
        with_id: dict[int | None, list[RowGroup]] = {}
        for group in self._groups.every:
            with_id.setdefault(group.table_id, []).append(group)
        for lineage in lineages:
            for given in lineage.given:
                # The next exchange may give the id to a table again.
                until_ts = end_ts
                for exchanges in (lineage.exchanges, given.partitioned.exchanges):
                    following = bisect_right(exchanges, given.ts)
                    until_ts = min([until_ts, *exchanges[following : following + 1]])
                rows_ts = [
                    ts
                    for group in with_id.get(given.table_id, ())
                    # Between them a group may have no rows.
                    for ts in (group.min_ts, group.max_ts)
                    if given.ts < ts <= until_ts and lineage.bound_between(group.name, ts, ts)
                ]
                for table in (lineage, given.partitioned):
                    # Rows before a handover count: other tables may have them now.
                    if max(rows_ts, default=0) > table.held_above:
                        table.caveats.append(Caveat(reason=MISNAMED_REASON, since_ts=given.ts))

    # Handovers --------------------------------------------------------------------------------

    def _snapshot(self, lineage: Lineage, ts: int) -> Lineage:
        bindings = list(lineage.bindings)
        if bindings[-1].until_ts is None:
            bindings[-1] = replace(bindings[-1], until_ts=ts)
        snapshot = replace(
            lineage,
            ids={},  # nothing looks for a past by its id
            bindings=bindings,
            versions=dict(lineage.versions),
            past_versions=set(lineage.past_versions),
            ddls=list(lineage.ddls),
            held=[],
            wrong_version=[],
            caveats=list(lineage.caveats),
            removals=list(lineage.removals),
        )
        self._snapshots.append(snapshot)
        return snapshot

    @staticmethod
    def _hand_over(lineage: Lineage, ts: int, parts: Sequence[LineagePart]) -> None:
        """Let a table begin again with the rows of `parts`, which have the same schema."""
        earlier = [part.lineage for part in parts if part.lineage.mirror_id == lineage.mirror_id]
        lineage.earlier = earlier[0] if earlier else None
        held_above = lineage.held_above
        lineage.begins_anew(ts)  # the caveats of the parts are its own
        lineage.held_above = held_above
        lineage.forget_versions(parts[0].schema.version)
        lineage.received = tuple(parts)
        lineage.is_whole = all(part.lineage.is_whole for part in parts)

    def _recover(self, ddl: RegisteredDdl) -> None:
        event = ddl.event
        if event.schema is None:
            self._ignore(str(ddl.statement.action))
            return
        name = (event.schema.database, event.schema.table)
        ended = [item for item in self._lineages if not item.alive]
        same_id = [item for item in ended if item.has_id and item.table_id == event.schema.table_id]
        gone = same_id[-1] if same_id else None
        truncated = self._truncated.get(event.schema.table_id)
        if gone is None and truncated is None:
            # No message has the id of a table after EXCHANGE PARTITION. Its name identifies it: the
            # last table that was dropped or truncated under the name.
            last = self._last_ended((*ended, *self._truncated.values()), ddl)
            gone, truncated = (last, None) if last in ended else (None, last)
        if gone is None and truncated is not None:
            lineage = self._begin(name, event.schema, after_ts=event.commit_ts)
            lineage.partitions = truncated.partitions
            lineage.unknown_partitions = truncated.unknown_partitions
            part = LineagePart(lineage=truncated, schema=event.schema)
            self._hand_over(lineage, event.commit_ts, [part])
        elif gone is None:
            lineage = self._begin(name, event.schema, after_ts=event.commit_ts)
            lineage.add_caveat("recovered table: its rows before that are not known", event)
        else:
            self._bind(gone, name, event.commit_ts)
            lineage = gone
        self._note(lineage, ddl)

    @staticmethod
    def _last_ended(ended: Iterable[Lineage], ddl: RegisteredDdl) -> Lineage | None:
        name = recovered_name(ddl)
        if name is None:
            return None
        named = [item for item in ended if _same_name(item.name, name)]
        return max(named, key=lambda item: item.bindings[-1].until_ts or 0, default=None)

    def _rename(self, ddls: Sequence[RegisteredDdl]) -> None:
        """Rename tables, all of one statement at once, so that swaps do not collide.

        `registry.catalog` has put the steps in the order of their effect; the table id of the
        schema before says which table each step is of.
        """
        with_schemas = [
            ddl for ddl in ddls if ddl.event.schema is not None and ddl.event.pre_schema
        ]
        for _ in range(len(ddls) - len(with_schemas)):
            self._ignore("rename without schema")
        tables = {_identity(item): item for item in reversed(self._names.values())}
        before = [ddl.event.pre_schema for ddl in with_schemas if ddl.event.pre_schema is not None]
        cited = {schema.table_id for schema in before}
        moves: dict[Lineage, RegisteredDdl] = {}
        for ddl, schema in zip(with_schemas, before, strict=True):
            lineage = tables.get(schema.table_id)
            if lineage is None:
                # An unknown id means the table of its name, unless that table is renamed, too.
                lineage = occupant = self._named(schema.name)
                if lineage is None or _identity(lineage) in cited:
                    lineage = self._begin(schema.name, schema)
                    if occupant is not None:
                        self._names[folded(schema.name)] = occupant
                tables[schema.table_id] = lineage
            self._restructure(lineage, ddl)
            moves[lineage] = ddl
        for lineage, ddl in moves.items():
            self._unbind(lineage, ddl.event.commit_ts)
        for lineage, ddl in moves.items():
            assert ddl.event.schema is not None
            database, table = ddl.event.schema.name
            if database.lower() == lineage.name[0].lower():
                # The old TiCDC writes it in lower case here.
                database = lineage.name[0]
            target = (database, table)
            present_there = self._named(target)
            if present_there is not None:
                self._unbind(present_there, ddl.event.commit_ts)
            self._bind(lineage, target, ddl.event.commit_ts)

    # Tables -----------------------------------------------------------------------------------

    def _begin(
        self, name: TableName, schema: TableSchema, *, after_ts: int | None = None
    ) -> Lineage:
        """Begin a table; by default where the last table of its name ended."""
        mirror_id = str(schema.table_id)
        number = 2
        while mirror_id in self._used_ids:
            mirror_id = f"{schema.table_id}-{number}"
            number += 1
        self._used_ids.add(mirror_id)
        lineage = Lineage(
            mirror_id=mirror_id, ids={schema.table_id: None}, table_id=schema.table_id, bindings=[]
        )
        lineage.versions[schema.version] = schema
        self._lineages.append(lineage)
        freed_ts = self._freed.get(folded(name), 0)
        self._bind(lineage, name, freed_ts if after_ts is None else after_ts)
        return lineage

    def _find(self, schema: TableSchema) -> Lineage | None:
        """Find the table by its name, else by its id: after a missed rename the id is still right.

        A recreated or restored cluster gives the ids again, to other tables.
        """
        return self._named(schema.name) or self._identified(schema.table_id)

    def _identified(self, table_id: int) -> Lineage | None:
        return next(
            (
                lineage
                for lineage in self._names.values()
                if lineage.has_id and lineage.table_id == table_id
            ),
            None,
        )

    def _named(self, name: TableName) -> Lineage | None:
        return self._names.get(folded(name))

    def _find_or_begin(self, event: DdlEvent) -> Lineage | None:
        schema = event.pre_schema or event.schema
        if schema is None:
            return None
        return self._find(schema) or self._begin(schema.name, schema)

    def _note(
        self, lineage: Lineage, ddl: RegisteredDdl, schemas: Sequence[TableSchema] = ()
    ) -> None:
        """Record a DDL's schemas, or the given ones, as the table's structure."""
        event, statement = ddl.event, ddl.statement
        for schema in schemas or (event.pre_schema, event.schema):
            if schema is not None:
                lineage.versions.setdefault(schema.version, schema)
        if event.schema is not None:
            lineage.take_id(event.schema)
        if statement.changes or not keeps_version(event):
            lineage.ddls.append((event, statement))
        if statement.unparsed is not None and ddl.kind in _ALTERING:
            piece = shown_sql(statement.unparsed)
            lineage.add_caveat(f"DDL text not understood: {piece}", event)
            if lineage.partitions is not None and "PARTITION" in event.sql.upper():
                lineage.partitions = None
                lineage.unknown_partitions = "a DDL text since is not understood"
        for note in ddl.notes:
            lineage.add_caveat(note, event)

    def _bind(self, lineage: Lineage, name: TableName, after_ts: int) -> None:
        lineage.bindings.append(
            Binding(database=name[0], table=name[1], after_ts=after_ts, until_ts=None)
        )
        self._names[folded(name)] = lineage

    def _unbind(self, lineage: Lineage, until_ts: int) -> None:
        lineage.bindings[-1] = replace(lineage.bindings[-1], until_ts=until_ts)
        name = folded(lineage.name)
        if self._names.get(name) is lineage:
            del self._names[name]
        self._freed[name] = until_ts

    def _ignore(self, what: str) -> None:
        self._ignored[what] = self._ignored.get(what, 0) + 1


MISNAMED_REASON = "EXCHANGE PARTITION: rows of the partition came under the table's name"

_ALTERING = frozenset({DdlKind.ALTER, DdlKind.RENAME, DdlKind.EXCHANGE})
"""Kinds of DDL whose whole text must be understood."""


def _same_name(left: TableName, right: TableName) -> bool:
    return folded(left) == folded(right)


def _identity(lineage: Lineage) -> Hashable:
    """Return what identifies a table among the renames of one moment: its id, if it is known."""
    return lineage.table_id if lineage.has_id else lineage.mirror_id


def _mean_the_same(sent: TableSchema, exported: TableSchema) -> bool:
    """Return whether a sent schema and that of an export have the same rows and key."""
    there, back = diff(sent, exported), diff(exported, sent)
    keys = [{name.lower() for name in schema.handle_key} for schema in (sent, exported)]
    return not there.changes_rows and not back.changes_rows and keys[0] == keys[1]
