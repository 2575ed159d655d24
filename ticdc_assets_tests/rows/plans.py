"""Plans of one table, made by hand."""

from itertools import pairwise

from ticdc_assets.changelog.plan import MirrorPlan, Removal
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema, TableSchema
from ticdc_assets.registry.evolution import diff

_KEY = IndexSchema(name="primary", unique=True, primary=True, nullable=False, columns=("id",))


def table_of(version: int, *columns: ColumnSchema) -> TableSchema:
    """Return a table with these columns after its key, `id`."""
    return TableSchema(
        database="d",
        table="t",
        table_id=1,
        version=version,
        columns=(column("id", "bigint", nullable=False), *columns),
        indexes=(_KEY,),
    )


def plan_of(*versions: TableSchema, removals: tuple[Removal, ...] = ()) -> MirrorPlan:
    """Return the plan of a table that had these schemas, one after the other."""
    return MirrorPlan(
        mirror_id="1",
        database="d",
        table="t",
        table_id=1,
        bindings=(),
        floor_ts=0,
        schema=versions[-1],
        versions=versions,
        steps=tuple(diff(old, new, ddl_ts=new.version) for old, new in pairwise(versions)),
        generated=frozenset(),
        held=(),
        caveats=(),
        removals=removals,
        digest="",
    )
