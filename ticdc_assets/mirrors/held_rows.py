"""Held rows: the row changes of a cut that no mirror can take yet, counted.

In: the plan of a cut, the change log, and its totals. Out: one `HeldRows` for each table and schema
version that rows wait for: rows whose schema has not arrived, and rows that cite a name while no
table has it. Where a total may count rows of a table too, the rows are counted in the change log.
Nothing is written, and running it again gives the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ticdc_assets.changelog.plan import Binding, MirrorPlan, Plan, RowGroup
from ticdc_assets.log.cuts import HeldRows
from ticdc_assets.mirrors.change_folding import ChangeFolding


def count_held(
    changes: ChangeFolding, plan: Plan, totals: Iterable[Mapping[str, Any]]
) -> list[HeldRows]:
    """Return the held rows at or below a cut, by table and schema version.

    Args:
        changes: reads the changes.
        plan: the plan of the cut.
        totals: the totals of the change log, with the times when rows landed.
    """
    landed: dict[tuple[object, ...], datetime] = {}
    for row in totals:
        if row["kind"] == "row":
            place = (row["database"], row["table"], row["schema_version"])
            at = row["first_landed_at"]
            landed[place] = min(at, landed.get(place, at))
    held: dict[tuple[object, ...], HeldRows] = {}
    for mirror_id, group, rows in _counted(changes, plan):
        if not rows:
            continue
        place = (group.database, group.table, group.schema_version)
        known = held.get((*place, mirror_id))
        held[*place, mirror_id] = HeldRows(
            database=group.database,
            table=group.table,
            schema_version=group.schema_version,
            mirror_id=mirror_id,
            rows=rows + (known.rows if known else 0),
            min_ts=min(group.min_ts, known.min_ts if known else group.min_ts),
            since=landed[place],
        )
    return sorted(held.values(), key=lambda item: item.order)


def _counted(changes: ChangeFolding, plan: Plan) -> Iterator[tuple[str | None, RowGroup, int]]:
    """Yield groups with the mirror that they wait for (or None), and how many rows wait."""

    def count(bindings: Sequence[Binding], group: RowGroup, *, above: int = 0) -> int:
        return changes.count_rows(
            bindings, above=above, until=plan.cut_ts, version=group.schema_version
        )

    for mirror in plan.mirrors:
        for group in _by_citation(mirror.held):
            bindings = _meeting(mirror, group)
            is_known = group.max_ts <= plan.cut_ts and any(_covers(it, group) for it in bindings)
            yield mirror.mirror_id, group, group.rows if is_known else count(bindings, group)
        for group in _by_citation(mirror.wrong_version):
            # Another table may own some or all of the group's rows.
            rows = count(_meeting(mirror, group), group, above=mirror.floor_ts)
            yield mirror.mirror_id, group, rows
    for group in plan.held:
        is_known = group.max_ts <= plan.cut_ts
        yield None, group, group.rows if is_known else count([_time_of(group)], group)
    times = [_time_of(group) for group in plan.strays]
    # Most tables that were dropped and created again have no rows in between.
    if times and changes.count_rows(times, above=0, until=plan.cut_ts):
        for group, time in zip(plan.strays, times, strict=True):
            yield None, group, count([time], group)


def _by_citation(groups: Iterable[RowGroup]) -> Iterable[RowGroup]:
    """Return one group for all that cite one version of one name; partitions have one each."""
    joined: dict[tuple[object, ...], RowGroup] = {}
    for group in groups:
        joined[group.key] = group.joined(joined.get(group.key))
    return joined.values()


def _meeting(mirror: MirrorPlan, group: RowGroup) -> list[Binding]:
    place = ((group.database, group.table), group.min_ts, group.max_ts)
    return [item for item in mirror.bindings if item.meets(*place)]


def _covers(binding: Binding, group: RowGroup) -> bool:
    return binding.after_ts < group.min_ts and (
        binding.until_ts is None or group.max_ts <= binding.until_ts
    )


def _time_of(group: RowGroup) -> Binding:
    """Return the name and the time of rows that no table takes."""
    return Binding(
        database=group.database, table=group.table, after_ts=group.min_ts - 1, until_ts=group.max_ts
    )
