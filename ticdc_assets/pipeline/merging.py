"""Expressions of a MERGE into a mirror or a history: how rows are matched and marked.

In: a table's schema, and the positions of its columns in the source. Out: expressions over the
target `t` and the source `s`. Nothing is run.
"""

from collections.abc import Mapping
from functools import reduce
from operator import and_

from pyspark.sql import Column, SparkSession

from ticdc_assets.engine.frames import quoted
from ticdc_assets.engine.session import functions
from ticdc_assets.rows.mirror_rows import PARTIAL, MirrorLayout
from ticdc_assets.rows.row_identity import key_columns, may_be_rescued
from ticdc_assets.schemas import TableSchema


def same_row(spark: SparkSession, schema: TableSchema, places: Mapping[str, str]) -> Column:
    """Return the condition that target and source are the same row.

    Args:
        spark: the session.
        schema: of the table, with a key.
        places: where in the source the key columns and the rescued data are.
    """
    F = functions(spark)
    rescued = MirrorLayout(schema=schema).rescued
    conditions: list[Column] = []
    for column in key_columns(schema):
        target, source = F.col(f"t.{quoted(column.name)}"), F.col(places[column.name])
        exact = may_be_rescued(column)
        # Spark compares two expressions for each null-safe equality.
        is_null_safe = column.nullable or exact
        conditions.append(target.eqNullSafe(source) if is_null_safe else target == source)
        if exact:
            text = F.col(f"t.{quoted(rescued)}")[column.name]
            conditions.append(text.eqNullSafe(F.col(places[rescued])[column.name]))
    return reduce(and_, conditions)


def marked(spark: SparkSession, schema: TableSchema, mark: Column) -> Column:
    """Return the rescued data of the target with the mark of a row that is known in part.

    Args:
        spark: the session.
        schema: of the table.
        mark: a map with the mark alone.
    """
    F = functions(spark)
    there = F.col(f"t.{quoted(MirrorLayout(schema=schema).rescued)}")
    others = F.map_filter(
        F.coalesce(there, F.create_map().cast("map<string,string>")),
        lambda name, _: name != PARTIAL,
    )
    return F.map_concat(others, mark)
