"""Rows for a step: how many bytes decide with how many rows whether they come into this process."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.executing import INLINE_BYTES, INLINE_ROWS

_MIB = 1 << 20


def _file(path: Path, table: pa.Table) -> Rows:
    pq.write_table(table, path)
    return Rows.of_files([path], table.schema)


def test_few_rows_come_into_this_process(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2, 3], "v": ["a", None, "c"]})
    here = _file(tmp_path / "few.parquet", table).here_if_few()
    assert here.table == table


@pytest.mark.parametrize("other", ["", "x"])
def test_few_rows_with_large_values_stay_in_their_files(tmp_path: Path, other: str) -> None:
    """Equal values are in a file only once; it says little of how large its rows are."""
    count = INLINE_BYTES // _MIB + 8
    values = ["y" * _MIB + other * number for number in range(count)]
    rows = _file(tmp_path / "large.parquet", pa.table({"v": values})).here_if_few()
    assert rows.table is None
    assert rows.count == count
    assert 0.9 * count * _MIB < rows.size < 1.1 * count * _MIB


def test_many_rows_stay_in_their_files(tmp_path: Path) -> None:
    table = pa.table({"id": range(INLINE_ROWS + 1)})
    assert _file(tmp_path / "many.parquet", table).here_if_few().table is None
