"""From a table's lineage to the plan of its mirror.

In: a `Lineage` with all DDL and rows below a cut, and the row groups. Out: its `MirrorPlan` with
the steps between its schema versions, its caveats, its handover and its digest, or the `FailedPlan`
of a table for which that was not possible. It is a pure function.
"""

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from ticdc_assets.base.isolation import Failure
from ticdc_assets.changelog.cited_rows import GroupsByName
from ticdc_assets.changelog.lineages import Lineage
from ticdc_assets.changelog.plan import Caveat, FailedPlan, HandoverPart, MirrorPlan
from ticdc_assets.model.events import DdlEvent
from ticdc_assets.model.schemas import TableSchema, schema_to_json
from ticdc_assets.registry.ddl.statement import DdlStatement
from ticdc_assets.registry.evolution import SchemaStep, column_renames, diff, unknown_defaults
from ticdc_assets.registry.inference.column_facts import ColumnFacts
from ticdc_assets.registry.inference.respelling import respellings


class LineagePlans:
    """Builds the plans of the lineages of one cut, each once."""

    def __init__(self, groups: GroupsByName, cut_ts: int, orders: ColumnFacts) -> None:
        self._groups = groups
        self._orders = orders
        self._cut_ts = cut_ts
        self._finished: dict[Lineage, MirrorPlan] = {}
        # By the identity of schemas and statements: all pasts of a table have the same.
        self._steps: dict[tuple[int, ...], _Step] = {}
        self._texts: dict[int, str] = {}
        self._renames: dict[int, list[tuple[str, str]]] = {}

    def finish(self, lineage: Lineage) -> MirrorPlan:
        """Return the plan of a table, after the plans of tables whose rows it was handed.

        A snapshot only refers to older ones, so the recursion is not deep.
        """
        plan = self._finished.get(lineage)
        if plan is None:
            plan = self._finished[lineage] = self._planned(lineage)
        return plan

    def _planned(self, lineage: Lineage) -> MirrorPlan:
        versions = tuple(lineage.versions[version] for version in sorted(lineage.versions))
        numbers = [version.version for version in versions]
        leading: dict[int, list[tuple[DdlEvent, DdlStatement]]] = {}
        for event, statement in lineage.ddls:
            if event.schema is not None:
                # To its own version, or the first known one after it.
                place = bisect_left(numbers, event.schema.version)
                leading.setdefault(place, []).append((event, statement))
        steps = [
            self._step(old, new, leading.get(place, ()))
            for place, (old, new) in enumerate(pairwise(versions), start=1)
        ]
        # Steps before a TRUNCATE changed no rows that are left. Rows above an export that cite an
        # older schema take the step to that of the export.
        below_ts = lineage.floor_ts - (lineage.exported is not None)
        caveats = [
            *lineage.caveats,
            *(item for step in steps for item in step.caveats if item.since_ts > below_ts),
        ]
        caveats += self._partial_caveats(lineage)
        caveats += self._lacking_caveats(lineage, versions)
        parts = tuple(
            HandoverPart(
                plan=self.finish(item.lineage),
                schema=item.schema,
                within=item.within,
                outside=item.outside,
            )
            for item in lineage.received
        )
        caveats += [caveat for part in parts for caveat in part.plan.caveats]
        # Rows are read with the schemas as sent; the mirror has the columns of its table.
        schema = self._orders.ordered(versions[-1])
        generated = frozenset(column.name for column in schema.columns if column.virtual)
        described: dict[str, object] = {
            "id": lineage.mirror_id,
            "bindings": [
                [item.database, item.table, item.after_ts, item.until_ts]
                for item in lineage.bindings
            ],
            "floor": lineage.floor_ts,
            "renames": [self._renames_of(item) for _, item in lineage.ddls],
            "held": sorted({(*item.name, item.schema_version) for item in lineage.held}),
            "removals": [[item.ts, item.rows.described()] for item in lineage.removals],
            "handover": [lineage.floor_ts, [*map(_described, parts)]] if parts else None,
        }
        if lineage.exported is not None:
            described["exported"] = lineage.exported.described()
        if lenient := [column for step in steps for column in step.lenient]:
            described["lenient"] = lenient
        text = json.dumps(described, sort_keys=True, ensure_ascii=True)
        # The last member by its name.
        text = f'{text[:-1]}, "versions": [{", ".join(map(self._text_of, versions))}]}}'
        digest = hashlib.sha256(text.encode()).hexdigest()
        earlier = None if lineage.earlier is None else self.finish(lineage.earlier)
        pasts = [digest, earlier and earlier.past_digest]
        pasts += [part.plan.past_digest for part in parts]
        return MirrorPlan(
            **_identity(lineage),
            schema=schema,
            versions=versions,
            steps=tuple(step.step for step in steps),
            generated=generated,
            held=tuple(lineage.held),
            wrong_version=tuple(lineage.wrong_version),
            caveats=_once(caveats),
            removals=tuple(lineage.removals),
            parts=parts,
            exported=lineage.exported,
            is_whole=lineage.is_whole,
            digest=digest,
            earlier=earlier,
            past_digest=hashlib.sha256(json.dumps(pasts).encode()).hexdigest(),
            reads_shapes=self._reads_shapes(lineage, versions),
        )

    def _step(
        self, old: TableSchema, new: TableSchema, ddls: Sequence[tuple[DdlEvent, DdlStatement]]
    ) -> "_Step":
        key = (id(old), id(new), *(id(item) for ddl in ddls for item in ddl))
        entry = self._steps.get(key)
        if entry is None:
            # Later TRUNCATE, RENAME and partition DDL keep the version.
            ddl_ts = ddls[0][0].commit_ts if ddls else None
            statements = [statement for _, statement in ddls]
            step = diff(old, new, statements=statements, ddl_ts=ddl_ts)
            entry = self._steps[key] = _Step(step)
        return entry

    def _text_of(self, version: TableSchema) -> str:
        text = self._texts.get(id(version))
        if text is None:
            fields = {**schema_to_json(version), "schema": "", "table": "", "tableID": 0}
            text = self._texts[id(version)] = json.dumps(fields, sort_keys=True, ensure_ascii=True)
        return text

    def _renames_of(self, statement: DdlStatement) -> list[tuple[str, str]]:
        renames = self._renames.get(id(statement))
        if renames is None:
            renames = self._renames[id(statement)] = sorted(column_renames([statement]).items())
        return renames

    def _reads_shapes(self, lineage: Lineage, versions: Sequence[TableSchema]) -> bool:
        """Return whether rows of the table may be misread without their shapes."""
        return any(
            group.shape is not None
            and lineage.bound_between(group.name, group.min_ts, min(group.max_ts, self._cut_ts))
            and (
                group.shape.damaged
                or any(respellings(group.shape, version) for version in versions)
            )
            for group in self._groups.of(lineage, lineage.held_above)
        )

    def _lacking_caveats(self, lineage: Lineage, versions: Sequence[TableSchema]) -> list[Caveat]:
        """Add a caveat to a table if some of its row changes lack a column that others have.

        A column selector that was set later, or a DROP COLUMN that was not seen: such rows have
        NULL, though no message says that the value is NULL.
        """
        numbers = [schema.version for schema in versions]
        since: dict[str, int] = {}
        sent: set[str] = (
            set() if lineage.exported is None else {column.name for column in versions[0].columns}
        )
        for group in self._groups.of(lineage, lineage.held_above):
            if group.shape is None or group.shape.partial or group.partial:
                continue
            # Rows surely exist at both ends of a group; in between the name may have been that of
            # another table.
            ends = [
                ts
                for ts in (group.min_ts, group.max_ts)
                if lineage.floor_ts < ts <= self._cut_ts
                and lineage.bound_between(group.name, ts, ts)
            ]
            if not ends:
                continue
            names = {column.name for column in group.shape.columns}
            sent |= names
            # A row at the commit ts of a DDL was committed before it.
            schema = versions[max(bisect_left(numbers, ends[0]) - 1, 0)]
            for column in schema.columns:
                if not column.virtual and column.name not in names:
                    since[column.name] = min(since.get(column.name, ends[0]), ends[0])
        left = {column.name for column in versions[-1].columns}
        return [
            Caveat(
                reason=f"row changes lack column {name!r}: its value in their rows is not known",
                since_ts=ts,
            )
            for name, ts in sorted(since.items())
            if name in sent and name in left
        ]

    def _partial_caveats(self, lineage: Lineage) -> list[Caveat]:
        """Add a caveat to a table if some of its row changes were sent as handle key alone."""
        cut = [
            group
            for group in self._groups.of(lineage, lineage.held_above)
            if group.partial
            and group.max_ts > lineage.floor_ts
            and lineage.bound_between(group.name, group.min_ts, min(group.max_ts, self._cut_ts))
        ]
        reason = (
            "row changes were sent as their handle key alone: their other columns are not known"
        )
        return [Caveat(reason=reason, since_ts=min(item.min_ts for item in cut))] if cut else []


def _identity(lineage: Lineage) -> dict[str, Any]:
    """Return the fields of a `TablePlan`."""
    database, table = lineage.name
    return {
        "mirror_id": lineage.mirror_id,
        "database": database,
        "table": table,
        "table_id": lineage.table_id,
        "bindings": tuple(lineage.bindings),
        "floor_ts": lineage.floor_ts,
    }


def failed_plan(lineage: Lineage, failure: Failure) -> FailedPlan:
    """Return the plan of a table that could not be planned."""
    return FailedPlan(**_identity(lineage), reason=failure.reason)


def _once(caveats: Iterable[Caveat]) -> tuple[Caveat, ...]:
    """Return each reason once, with its first time, in their order."""
    first: dict[str, Caveat] = {}
    for caveat in caveats:
        earliest = first.get(caveat.reason)
        if earliest is None or caveat.since_ts < earliest.since_ts:
            first[caveat.reason] = caveat
    return tuple(first.values())


def _described(part: HandoverPart) -> object:
    """Return a text of everything that decides which rows are handed over."""
    return [
        part.plan.digest,
        part.schema.version,
        part.within and part.within.described(),
        part.outside and part.outside.described(),
    ]


class _Step:
    """A step between two versions, and what it says of the plans that have it.

    `caveats` say what is not known of its rows, `lenient` has the version and name of each column
    whose new type may not fit some values.
    """

    def __init__(self, step: SchemaStep) -> None:
        self.step = step
        reasons = ["schema changed without a DDL message"] if step.lacks_ddl else []
        reasons += [
            f"the default of added column {name!r} is not understood: older rows have NULL"
            for name in unknown_defaults(step)
        ]
        self.caveats = [Caveat(reason=item, since_ts=step.to_version) for item in reasons]
        self.lenient = [
            [step.to_version, item.column.name]
            for item in step.columns
            if step.ddl_ts is not None and item.may_cast_leniently
        ]
