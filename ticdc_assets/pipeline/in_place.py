"""Schema changes of a mirror that write no rows: renames, drops, widening, new NULL columns.

In: the schema of a mirror's table and the steps to the schema at the cut. Out: the ALTER TABLE
statements for these steps, or None if rows change (a default that is not NULL, a cast that changes
text, a type that Delta does not widen); such a mirror is rewritten.

With column mapping, names and dropped columns are metadata, and with type widening, types are too;
both are on from a mirror's first version. Each statement is a separate Delta commit. A run killed
between two of them leaves versions that no cut names, and the next run first restores the published
version, so running it again is safe.

Rescued data is stored by column name, so a renamed or dropped column must have no entry in it: the
caller first checks the entries of `Alterations.rescued`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from ticdc_assets.engine.frames import quoted
from ticdc_assets.mysql_types import arrow_type
from ticdc_assets.registry.evolution import SchemaStep, added_value
from ticdc_assets.rows.mirror_rows import MirrorLayout, spark_type_name
from ticdc_assets.rows.row_identity import may_be_rescued
from ticdc_assets.schemas import TableSchema
from ticdc_assets.values import cast_is_identity

_WIDER: dict[pa.DataType, frozenset[pa.DataType]] = {
    pa.int8(): frozenset({pa.int16(), pa.int32(), pa.int64()}),
    pa.int16(): frozenset({pa.int32(), pa.int64()}),
    pa.int32(): frozenset({pa.int64()}),
    pa.float32(): frozenset({pa.float64()}),
}
"""Types that Delta widens to, where the values' text stays the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alterations:
    """How a table's metadata comes from one schema to another.

    Attributes:
        clauses: what follows ALTER TABLE, in order.
        rescued: columns of the old schema that must have no entry in the rescued data.
    """

    clauses: tuple[str, ...]
    rescued: tuple[str, ...]


def alterations(
    base: TableSchema, final: TableSchema, steps: Sequence[SchemaStep], timezone: str
) -> Alterations | None:
    """Return how a table of schema `base` becomes one of `final`, or None if rows change.

    Args:
        base: the schema that the table has.
        final: the schema at the cut.
        steps: the steps in between.
        timezone: the changefeed's time zone (IANA name).
    """
    old, new = MirrorLayout(schema=base), MirrorLayout(schema=final)
    if (old.commit_ts, old.rescued) != (new.commit_ts, new.rescued):
        return None
    origin = _origins(base, steps, timezone)
    if origin is None or origin.keys() != {column.name for column in final.columns}:
        return None
    columns = {column.name: column for column in base.columns}
    kept = {source: name for name, source in origin.items() if source is not None}
    clauses = [f"DROP COLUMN {quoted(name)}" for name in columns if name not in kept]
    clauses += _renames({old: new for old, new in kept.items() if old != new}, set(columns))
    rescued = [name for name in columns if kept.get(name) != name]
    for column in final.columns:
        source = origin[column.name]
        if source is None:
            continue
        before, after = arrow_type(columns[source]), arrow_type(column)
        if before == after:
            continue
        if after not in _WIDER.get(before, ()):
            return None
        clauses.append(f"ALTER COLUMN {quoted(column.name)} TYPE {spark_type_name(column).upper()}")
    present = [kept[name] for name in columns if name in kept]
    clauses += _placements(final, origin, present)
    return Alterations(
        clauses=tuple(clauses),
        rescued=tuple(name for name in rescued if may_be_rescued(columns[name])),
    )


def rescued_renamed(former: str, schema: TableSchema) -> str:
    """Return the clause that gives the column of rescued data its name of today."""
    return f"RENAME COLUMN {quoted(former)} TO {quoted(MirrorLayout(schema=schema).rescued)}"


def _origins(
    base: TableSchema, steps: Sequence[SchemaStep], timezone: str
) -> dict[str, str | None] | None:
    """Return the column of `base` that each final one is, None for a new one that is NULL."""
    origin: dict[str, str | None] = {column.name: column.name for column in base.columns}
    for step in steps:
        found: dict[str, str | None] = {}
        for item in step.columns:
            if item.source is None:
                if added_value(item.column, timezone, step.at) is not None:
                    return None
                found[item.column.name] = None
            elif cast_is_identity(item.source, item.column) and item.source.name in origin:
                found[item.column.name] = origin[item.source.name]
            else:
                return None
        origin = found
    return origin


def _renames(renames: dict[str, str], taken: set[str]) -> list[str]:
    """Return the renames, by way of names that nobody has: so swaps and changes of case work."""
    free = (name for number in count() if (name := f"__renamed_{number}") not in taken)
    through = [(old, next(free), new) for old, new in renames.items()]
    return [
        *(f"RENAME COLUMN {quoted(old)} TO {quoted(name)}" for old, name, _ in through),
        *(f"RENAME COLUMN {quoted(name)} TO {quoted(new)}" for _, name, new in through),
    ]


def _placements(final: TableSchema, origin: dict[str, str | None], present: list[str]) -> list[str]:
    """Return what adds the new columns and brings all into their order, from `present`."""
    clauses: list[str] = []
    order = list(present)
    for number, column in enumerate(final.columns):
        name = column.name
        place = "FIRST" if number == 0 else f"AFTER {quoted(final.columns[number - 1].name)}"
        if origin[name] is None:
            clauses.append(f"ADD COLUMN {quoted(name)} {spark_type_name(column).upper()} {place}")
            order.insert(number, name)
        elif order[number] != name:
            clauses.append(f"ALTER COLUMN {quoted(name)} {place}")
            order.remove(name)
            order.insert(number, name)
    return clauses
