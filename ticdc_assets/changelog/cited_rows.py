"""The groups of rows: to which tables they belong, and which are held.

In: the groups of rows, the schemas, and the tables of a plan while it is being built. Out: each
table has the versions that its own rows cite, the groups that wait for a schema (`held`) and the
groups of its time under a version of another table (`wrong_version`). Rows of a time in which no
table had their name are returned: no table takes them, so they are held. Pure.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TypeAlias

from ticdc_assets.changelog.lineages import Lineage
from ticdc_assets.changelog.plan import Binding, RowGroup, TableName
from ticdc_assets.registry.history import SchemaHistory, folded

_Groups: TypeAlias = tuple[RowGroup, ...]


class GroupsByName:
    """Groups of rows, by the commit ts where they begin (`every`) and by the names they cite."""

    def __init__(self, groups: Iterable[RowGroup]) -> None:
        self.every = sorted(groups, key=lambda group: (group.min_ts, group.name))
        named: dict[TableName, list[RowGroup]] = {}
        for group in self.every:
            named.setdefault(group.name, []).append(group)
        # With the highest commit ts of the groups up to each.
        self._named = {
            name: (members, list(accumulate((group.max_ts for group in members), max)))
            for name, members in named.items()
        }

    def of(self, lineage: Lineage, after_ts: int) -> Iterator[RowGroup]:
        """Yield the groups that may have rows of a table's time above `after_ts`, by its names.

        A table that is truncated each hour has a group and a past for each hour: to look at all
        groups for each past would take the square of that.
        """
        ends = [item.until_ts for item in lineage.bindings]
        until_ts = None if None in ends else max(end for end in ends if end is not None)
        after_ts = max(after_ts, min(item.after_ts for item in lineage.bindings))
        for name in {(item.database, item.table) for item in lineage.bindings}:
            groups, highest = self._named.get(name, ([], []))
            end = len(groups)
            if until_ts is not None:
                end = bisect_right(groups, until_ts, key=lambda group: group.min_ts)
            yield from groups[bisect_right(highest, after_ts) : end]


def attach_groups(
    groups: GroupsByName,
    history: SchemaHistory,
    cut_ts: int,
    *,
    lineages: Sequence[Lineage],
    snapshots: Sequence[Lineage],
) -> tuple[_Groups, _Groups]:
    """Give each group to the tables of its time.

    `snapshots` are tables as they were at some moment, oldest first.

    Returns:
        The groups all of whose rows are of a time in which no table has their name; and those some
        of whose rows may be of such a time, while others are of a table's time.
    """
    # FLASHBACK and EXCHANGE PARTITION may give an id to a second table.
    owners: dict[int, list[tuple[str, int]]] = {}
    for lineage in lineages:
        for table_id, lost_ts in lineage.ids.items():
            until_ts = cut_ts if lost_ts is None else lost_ts
            owners.setdefault(table_id, []).append((lineage.mirror_id, until_ts))
    past = set(snapshots)
    # TiDB gives one version to the schemas of several tables: only (table, version) is unique.
    made_by: dict[tuple[TableName, int], set[str]] = {}
    # By the identity of the group.
    lying: dict[int, list[Lineage]] = {}
    for lineage in (*snapshots, *lineages):
        for version, schema in lineage.versions.items():
            name = folded(schema.name)
            made_by.setdefault((name, version), set()).add(lineage.mirror_id)
        # A snapshot needs only the rows between its floor and its moment.
        above_ts = lineage.held_above if lineage in past else -1
        for group in groups.of(lineage, above_ts):
            max_ts = min(group.max_ts, cut_ts)
            if above_ts < max_ts and lineage.bound_between(group.name, group.min_ts, max_ts):
                lying.setdefault(id(group), []).append(lineage)
    unknown: list[tuple[RowGroup, list[Lineage]]] = []
    for group in groups.every:
        if group.schema_version is None:
            continue  # read with the version in force, which is never missing
        max_ts = min(group.max_ts, cut_ts)
        lying_in = lying.get(id(group), [])
        schema = history.at(group.database, group.table, group.schema_version)
        if schema is None:
            schema = history.in_another_database(group.table, group.schema_version)
            table_id = None if schema is None else schema.table_id
            of_id = {item.mirror_id for item in lying_in if table_id in item.ids}
            if of_id:
                lying_in = [item for item in lying_in if item.mirror_id in of_id]
            else:
                schema = None
        if schema is None:
            unknown.append((group, lying_in))
            continue
        # Under a name that moved on, rows of one table may be near those of another: the DDL of the
        # version, or else the table's id, says which table they belong to.
        near = {lineage.mirror_id for lineage in lying_in}
        makers = made_by.get((folded(group.name), schema.version), set()) & near
        if not makers:
            spans = owners.get(schema.table_id, ())
            makers = near & {owner for owner, until_ts in spans if group.min_ts <= until_ts} or near
        for lineage in lying_in:
            if lineage.mirror_id not in makers:
                continue
            if max_ts <= lineage.floor_ts:
                # After it came a TRUNCATE, an export or other rows.
                lineage.past_versions.add(schema.version)
            else:
                lineage.versions.setdefault(schema.version, schema)
        # Rows of the others' time, if there are any, belong to no table: they are held, not lost.
        for lineage in lying_in:
            if (
                lineage.alive
                and lineage not in past
                and schema.version not in lineage.versions
                and schema.version not in lineage.past_versions
                and max_ts > lineage.held_above
            ):
                lineage.wrong_version.append(group.citation)
    for group, lying_in in unknown:
        for lineage in lying_in:
            # A snapshot too, so that its digest changes when the schema arrives.
            if (
                (lineage.alive or lineage in past)
                and group.schema_version not in lineage.versions
                and min(group.max_ts, cut_ts) > lineage.held_above
            ):
                lineage.held.append(group.citation)
    return _untaken(groups.every, cut_ts, lineages)


def _untaken(
    groups: Iterable[RowGroup], cut_ts: int, lineages: Iterable[Lineage]
) -> tuple[_Groups, _Groups]:
    """Return the rows of times in which no table had their name, one group a time and version."""
    bindings: dict[TableName, list[Binding]] = {}
    for lineage in lineages:
        for item in lineage.bindings:
            bindings.setdefault((item.database, item.table), []).append(item)
    free: dict[TableName, list[tuple[int, int]]] = {}
    held: dict[tuple[TableName, int | None, int], RowGroup] = {}
    strays: dict[tuple[TableName, int | None, int], RowGroup] = {}
    for group in groups:
        spans = free.get(group.name)
        if spans is None:
            spans = free[group.name] = _free_spans(bindings.get(group.name, ()), cut_ts)
        last_ts = min(group.max_ts, cut_ts)
        begin = bisect_left(spans, group.min_ts, key=lambda span: span[1])
        for first, last in spans[begin:]:
            if first > last_ts:
                break
            is_whole = first <= group.min_ts and last_ts <= last
            part = replace(
                group.citation,
                min_ts=max(first, group.min_ts),
                max_ts=group.max_ts if is_whole else min(last, last_ts),
            )
            into, key = held if is_whole else strays, (group.name, group.schema_version, first)
            into[key] = part.joined(into.get(key))
    # Where some are uncertain, all of the time are counted together.
    for key in strays.keys() & held.keys():
        strays[key] = strays[key].joined(held.pop(key))
    return tuple(held.values()), tuple(strays.values())


def _free_spans(bindings: Iterable[Binding], until_ts: int) -> list[tuple[int, int]]:
    """Return the first and last commit ts of each time up to `until_ts` that no binding covers."""
    spans: list[tuple[int, int]] = []
    covered_ts = -1
    for item in sorted(bindings, key=lambda item: item.after_ts):
        if item.after_ts > covered_ts:
            spans.append((covered_ts + 1, item.after_ts))
        covered_ts = max(covered_ts, until_ts if item.until_ts is None else item.until_ts)
    if covered_ts < until_ts:
        spans.append((covered_ts + 1, until_ts))
    return spans
