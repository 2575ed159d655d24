"""Mirrors whose values TiCDC's encoder may have damaged, though every message was decoded.

In: the plan of a mirror and the wire format of its changefeed. Out: caveats for the cut.

TiCDC's Craft encoder writes the 8 bytes of a FLOAT where it reserved 4, so that the next value may
overwrite the rest. Most damaged values look like any other FLOAT, so their number is not known: the
caveat names all FLOAT columns, also those whose rows an ALTER carried into another type.
"""

from collections.abc import Mapping

from ticdc_assets.changelog.plan import Caveat, MirrorPlan, earlier_first
from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.wire.formats import WireFormat


def damage_caveats(plan: MirrorPlan, wire_format: str) -> tuple[Caveat, ...]:
    """Return the caveat of a mirror with values that came as FLOAT of Craft, if there is one."""
    if wire_format != WireFormat.CRAFT:
        return ()
    floats: dict[int, dict[str, int]] = {}
    for source in earlier_first(plan, lambda item: [part.plan for part in item.parts]):
        floats[id(source)] = _floats(source, floats)
    since = floats[id(plan)]
    names = [column.name for column in plan.schema.columns if column.name in since]
    if not names:
        return ()
    listed = ", ".join(f"`{name}`" for name in names)
    reason = f"FLOAT column(s) {listed}: TiCDC's Craft encoder may have damaged the values"
    return (Caveat(reason=reason, since_ts=min(since[name] for name in names)),)


def _floats(plan: MirrorPlan, before: Mapping[int, Mapping[str, int]]) -> dict[str, int]:
    """Return the columns with values that were sent as FLOAT, and since when.

    `before` has the same for the plans of its parts, by their `id`.
    """
    since: dict[str, int] = {}
    for part in plan.parts:
        # Rows that are handed over have the columns of the receiving table.
        for name, ts in before[id(part.plan)].items():
            since[name] = min(ts, since.get(name, ts))
    ends = [version.version for version in plan.versions[1:]]
    for number, version in enumerate(plan.versions):
        if number:
            sources = {
                step.column.name: since[step.source.name]
                for step in plan.steps[number - 1].columns
                if step.source is not None and step.source.name in since
            }
            since = sources
        if number < len(ends) and ends[number] <= plan.floor_ts:
            continue  # none of its rows are left
        for column in version.columns:
            if kind_of(column) is Kind.FLOAT and not column.virtual:
                since.setdefault(column.name, max(version.version, plan.floor_ts))
    return since
