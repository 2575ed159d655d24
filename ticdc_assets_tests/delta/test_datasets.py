"""Datasets of portable tables: which files a condition leaves out, and that rows are all there."""

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake

from ticdc_assets.delta.control import dataset_of
from ticdc_assets.delta.log_reading import log_state

DAY = date(2026, 11, 24)
SCHEMA = pa.schema(
    [
        ("batch", pa.int64()),
        ("commit_ts", pa.int64()),
        ("text", pa.string()),
        ("landed_day", pa.date32()),
    ]
)
ROWS: list[list[tuple[Any, ...]]] = [
    [(1, 10, "a", DAY), (1, 19, "b", DAY)],
    [(2, None, "c", DAY), (2, 25, None, DAY)],
    [(3, None, None, None)],
    [(4, 15, "d", date(2026, 11, 25)), (5, 35, "e", date(2026, 11, 25))],
]
"""The rows of each file."""


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    for rows in ROWS:
        columns = [
            pa.array([row[number] for row in rows], item.type) for number, item in enumerate(SCHEMA)
        ]
        write_deltalake(
            str(tmp_path),
            pa.table(columns, schema=SCHEMA),
            mode="append",
            partition_by=["landed_day"],
        )
    return DeltaTable(str(tmp_path))


def rows_of(found: pa.Table) -> list[str]:
    return sorted(map(str, found.select(SCHEMA.names).to_pylist()))


@pytest.mark.parametrize(
    ("condition", "files"),
    [
        (None, 4),
        (ds.field("batch") == 2, 1),
        (ds.field("batch") > 2, 2),
        (ds.field("batch").isin([1, 5]), 2),
        (ds.field("commit_ts") > 25, 2),
        ((ds.field("commit_ts") > 30) | (ds.field("batch") > 3), 2),
        (ds.field("commit_ts") <= 15, 3),
        (ds.field("commit_ts").is_null(), 4),
        (ds.field("landed_day") == DAY, 2),
        (ds.field("landed_day").is_null(), 1),
        (ds.field("text") == "b", 4),
    ],
)
def test_a_condition_leaves_out_files_and_no_rows(
    table: DeltaTable, tmp_path: Path, condition: ds.Expression | None, files: int
) -> None:
    found = dataset_of(log_state(tmp_path), tmp_path)
    every = table.to_pyarrow_dataset()
    assert rows_of(found.to_table(filter=condition)) == rows_of(every.to_table(filter=condition))
    assert found.count_rows(filter=condition) == every.count_rows(filter=condition)
    # Of the file whose commit ts are all null no bounds are known: it may have any.
    assert len(_paths(found, condition)) == files


def test_a_table_of_no_files_has_its_columns(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), SCHEMA.empty_table())
    found = dataset_of(log_state(tmp_path), tmp_path)
    assert found.schema.names == SCHEMA.names
    assert found.to_table().num_rows == 0


def _paths(found: ds.Dataset, condition: ds.Expression | None) -> Sequence[str]:
    return [fragment.path for fragment in found.get_fragments(filter=condition)]


def test_bounds_of_decimals_leave_out_no_rows(tmp_path: Path) -> None:
    """Bounds of delta-rs end where 64 bits end, and a mirror may have such a column."""
    number = Decimal(2**64 - 1)
    rows = pa.table({"number": pa.array([number], pa.decimal128(20))})
    write_deltalake(str(tmp_path), rows)
    found = dataset_of(log_state(tmp_path), tmp_path)
    assert found.to_table(filter=ds.field("number") == number) == rows
