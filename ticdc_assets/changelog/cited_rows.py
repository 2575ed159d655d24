"""The rows that cite a schema version: to which tables they belong, and which are held.

In: the groups of rows, the schemas, and the tables of a plan while it is being built. Out: each
table has the versions that its own rows cite, the groups that wait for a schema (`held`) and those
that lie in its time under a version that is not its own (`wrong_version`). Groups of no table are
returned.
Nothing is read from elsewhere: the same groups and tables give the same.
"""

from collections.abc import Sequence

from ticdc_assets.changelog.lineages import (
    Lineage,
    name_of,
)
from ticdc_assets.changelog.plan import (
    HeldGroup,
    RowGroup,
    TableName,
)
from ticdc_assets.registry.history import (
    SchemaHistory,
)


def attach_groups(
    groups: Sequence[RowGroup],
    history: SchemaHistory,
    cut_ts: int,
    *,
    lineages: Sequence[Lineage],
    snapshots: Sequence[Lineage],
) -> list[HeldGroup]:
    """Give each group to the tables it lies in; return the held ones of no table.

    Args:
        groups: the row changes in numbers, by the commit ts where they begin.
        history: the schemas.
        cut_ts: the TSO of the plan.
        lineages: the tables.
        snapshots: tables as they were at some moment, oldest first.
    """
    owners = {table_id: lineage.mirror_id for lineage in lineages for table_id in lineage.ids}
    past = set(snapshots)
    # TiDB gives one version to the schemas of several tables: only (table, version) is one.
    made_by: dict[tuple[TableName, int], set[str]] = {}
    by_name: dict[TableName, list[Lineage]] = {}
    for lineage in (*snapshots, *lineages):
        for version, schema in lineage.versions.items():
            made_by.setdefault((name_of(schema), version), set()).add(lineage.mirror_id)
        for name in {(item.database, item.table) for item in lineage.bindings}:
            by_name.setdefault(name, []).append(lineage)
    unbound: list[HeldGroup] = []
    unknown: list[tuple[RowGroup, list[Lineage]]] = []
    for group in groups:
        if group.schema_version is None:
            continue  # read with the version in force, which is never missing
        max_ts = min(group.max_ts, cut_ts)
        lying_in = [
            lineage
            for lineage in by_name.get(group.name, ())
            # A snapshot needs no more than the rows between its floor and its moment.
            if (lineage not in past or lineage.held_above < max_ts)
            # The schemas of before an export say nothing of a table that begins with it.
            and (lineage.exported is None or lineage.floor_ts < max_ts)
            and lineage.bound_between(group.name, group.min_ts, max_ts)
        ]
        schema = history.at(group.database, group.table, group.schema_version)
        if schema is None:
            unknown.append((group, lying_in))
            continue
        # A name that moved on may bring rows of one table near another one: whose version it
        # is tell the DDL that made it, else the table's id.
        near = {lineage.mirror_id for lineage in lying_in}
        makers = made_by.get((group.name, schema.version), set()) & near
        if not makers:
            owner = owners.get(schema.table_id)
            makers = {owner} if owner in near else near
        for lineage in lying_in:
            if lineage.mirror_id not in makers:
                continue
            if lineage.received is not None and max_ts <= lineage.received.ts:
                lineage.past_versions.add(schema.version)
            else:
                lineage.versions.setdefault(schema.version, schema)
        # Rows of the others' time, if there are some, are nobody's: they are held, not lost.
        for lineage in lying_in:
            if (
                lineage.alive
                and lineage not in past
                and schema.version not in lineage.versions
                and schema.version not in lineage.past_versions
                and max_ts > lineage.held_above
            ):
                lineage.wrong_version.append(_held_group(group, schema.version))
    for group, lying_in in unknown:
        assert group.schema_version is not None
        held = _held_group(group, group.schema_version)
        waiting = [
            lineage
            for lineage in lying_in
            if group.schema_version not in lineage.versions
            and min(group.max_ts, cut_ts) > lineage.held_above
        ]
        alive = [lineage for lineage in waiting if lineage.alive]
        if alive:
            alive[0].held.append(held)
        elif not lying_in:
            unbound.append(held)
        for snapshot in waiting:
            if snapshot in past:
                # So that its digest differs from the one it has when the schema is there.
                snapshot.held.append(held)
    return unbound


def _held_group(group: RowGroup, version: int) -> HeldGroup:
    return HeldGroup(
        database=group.database,
        table=group.table,
        schema_version=version,
        min_ts=group.min_ts,
        max_ts=group.max_ts,
        rows=group.rows,
    )
