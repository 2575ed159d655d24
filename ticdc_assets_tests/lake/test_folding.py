"""Folding here and in Spark: the same rows, counts and faults, whatever the effects."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_assets.lake.effects import effect_schema
from ticdc_assets.lake.folding import Folding, fold_here, folded_in_spark
from ticdc_assets.schemas import IndexSchema, TableSchema
from ticdc_assets.simulator.columns import column

pytestmark = pytest.mark.spark

SCHEMA = TableSchema(
    database="d",
    table="t",
    table_id=1,
    version=1,
    columns=(column("id", "bigint", nullable=False), column("v", "varchar(9)")),
    indexes=(
        IndexSchema(name="primary", unique=True, primary=True, nullable=False, columns=("id",)),
    ),
)


def casts_of(kind: str) -> st.SearchStrategy[list[tuple[str, int, int]] | None]:
    if kind not in {"put", "before"}:
        return st.none()
    item = st.tuples(st.just("v"), st.integers(0, 5), st.just(1))
    return st.none() | st.lists(item, min_size=1, max_size=2, unique=True)


@st.composite
def effects(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Effects on a few keys: puts, deletes, puts of the key alone, faults, and rows before them.

    Values of puts may have been cast by two DDL.
    """
    found: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 12))):
        key = draw(st.integers(0, 2))
        kind = draw(st.sampled_from(["put", "put", "delete", "partial", "fault", "before"]))
        ts = 0 if kind == "before" else draw(st.integers(1, 4))
        if kind == "before" and any(item["sequence"]["rank"] < 0 for item in found):
            continue
        found.append(
            {
                "key": f"={key}",
                "sequence": {
                    "commit_ts": ts,
                    "rank": -1 if kind == "before" else int(kind != "delete"),
                    "topic": "t",
                    "partition": 0,
                    "offset": number,
                    "index": 0,
                },
                "is_delete": kind == "delete",
                "is_new": kind == "before" or draw(st.booleans()),
                "is_partial": kind == "partial",
                "missing": None,
                "reason": "unfit" if kind == "fault" else None,
                "position": "after.v" if kind == "fault" else None,
                "expected": None,
                "got": None,
                "casts": draw(casts_of(kind)),
                "c0": key,
                "c1": None if kind in {"delete", "partial", "fault"} else f"v{number}",
                "extra": [("", str(ts))] if kind == "partial" else None,
            }
        )
    return found


def told(folding: Folding) -> tuple[Any, ...]:
    """Return all that a folding says, in an order of its own."""
    table = folding.frame.toArrow()
    names = ["key", "reason", "position", "copies", "keeps_row", "is_delete", "c1", "extra"]
    rows = []
    for row in table.to_pylist():
        values = {name: row[name] for name in names}
        if row["reason"] is not None:
            # Of a fault only the place counts.
            values |= {"c1": None, "extra": None, "keeps_row": None}
        rows.append((row["sequence"]["offset"], repr(values)))
    return sorted(rows), folding.counts, folding.never_sent


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(items=effects())
def test_both_ways_of_folding_agree(items: list[dict[str, Any]], spark: SparkSession) -> None:
    schema = effect_schema(SCHEMA)
    batch = pa.RecordBatch.from_pylist(items, schema=schema)
    here = told(fold_here(spark, [batch], SCHEMA))
    frame = spark.createDataFrame(
        pa.Table.from_batches([batch]), schema=from_arrow_schema(schema, prefer_timestamp_ntz=True)
    )
    with folded_in_spark(frame, SCHEMA, may_cast=True) as folded:
        assert told(folded) == here
