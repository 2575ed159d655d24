"""Versions of a history that go on to a later schema."""

import pyarrow as pa
import pytest

from ticdc_assets.delta.row_schema import filled_batch
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.rows.history_layout import version_schema
from ticdc_assets.rows.history_operations import Passage
from ticdc_assets_tests.rows.plans import plan_of, table_of


def gone_on(versions: pa.RecordBatch, old: TableSchema, *later: TableSchema) -> pa.RecordBatch:
    """Return versions of `old` as they are under the last of `later`."""
    passage = Passage(schema=old, plan=plan_of(old, *later), timezone="UTC")
    (operations,) = passage.operations()([versions])
    schema = version_schema(later[-1])
    values = dict(zip(operations.schema.names, operations.columns, strict=True))
    # An operation has the first cut of its version as its commit ts.
    values["valid_from"] = operations["sequence"].field("commit_ts")
    return filled_batch(schema, operations.num_rows, values)


@pytest.mark.parametrize(
    ("types", "value"),
    [
        (("int", "int unsigned"), -5),
        (("int", "tinyint unsigned"), 300),
        (("int", "mediumint"), 9_000_000),
        (("bigint", "bigint unsigned"), -5),
        (("int", "year"), 2156),
        (("int", "bit(3)"), 100),
    ],
)
def test_a_history_in_pieces_keeps_what_a_column_cannot_hold(
    types: tuple[str, str], value: int
) -> None:
    """A value that no cast brought over is rescued, however many times its version goes on."""
    first, second = (column("a", sql) for sql in types)
    old, middle = table_of(1, first), table_of(2, second)
    new = table_of(3, second, column("b", "int"))
    version = {"c0": 1, "c1": value, "valid_from": 1, "valid_to": 9, "op": "insert"}
    versions = pa.RecordBatch.from_pylist(
        [version | {"ended_by": "delete"}], schema=version_schema(old)
    )
    in_pieces = gone_on(gone_on(versions, old, middle), middle, new)
    assert in_pieces == gone_on(versions, old, middle, new)
    assert in_pieces["c1"].to_pylist() == [None]
    assert in_pieces["rescued"].to_pylist() == [[("a", str(value))]]
