"""Rows for a step: how many bytes decide with how many rows whether they come into this process."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ticdc_assets.rows.rows_of_work import Rows, in_buckets, shared_out
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


def test_columns_are_selected_by_their_names_not_by_those_in_files(tmp_path: Path) -> None:
    path = tmp_path / "renamed.parquet"
    pq.write_table(pa.table({"a": [1], "col-1": ["x"]}), path)
    rows = Rows.of_files([path], pa.schema([("b", pa.int64()), ("a", pa.string())]), ["a", "col-1"])
    assert rows.select(["a"]).table_here().to_pylist() == [{"a": "x"}]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("folder", "neighbour"), [("lake*", "lakes"), ("lake[1]", "lake1"), ("{lake,lakes}", "lake")]
)
def test_spark_takes_no_name_of_a_folder_for_a_pattern(
    spark: SparkSession, folder: str, neighbour: str, tmp_path: Path
) -> None:
    for name in (folder, neighbour):
        (tmp_path / name).mkdir()
        rows = _file(tmp_path / name / "rows.parquet", pa.table({"of": [name]}))
        assert [row[0] for row in rows.frame(spark).collect()] == [name]


def test_many_rows_stay_in_their_files(tmp_path: Path) -> None:
    table = pa.table({"id": range(INLINE_ROWS + 1)})
    assert _file(tmp_path / "many.parquet", table).here_if_few().table is None


@pytest.mark.parametrize("buckets", [1, 2, 3, 8])
def test_each_row_is_in_one_bucket_and_equal_numbers_are_together(buckets: int) -> None:
    numbers = [4, 0, 7, 4, 3, 12, 0]
    rows = pa.RecordBatch.from_pydict({"place": range(len(numbers))})
    found = {
        bucket: part["place"].to_pylist()
        for bucket, part in shared_out(rows, np.array(numbers, np.int64), buckets)
    }
    wanted: dict[int, list[int]] = {}
    for place, number in enumerate(numbers):
        wanted.setdefault(number % buckets, []).append(place)
    assert found == wanted
    assert not list(shared_out(rows.slice(0, 0), np.empty(0, np.int64), buckets))


def test_changes_without_a_known_row_are_spread_by_their_identity() -> None:
    keys = [*["=1"] * 20, *["!t/0/1/0"] * 20]
    identities = [*[None] * 20, *(b"row %d" % number for number in range(20))]
    operations = pa.RecordBatch.from_pydict({"key": keys, "identity": identities})
    places: dict[str, set[int]] = {}
    for bucket, part in in_buckets(operations, 16):
        for key in part["key"].to_pylist():
            places.setdefault(key, set()).add(bucket)
    assert len(places["=1"]) == 1
    assert len(places["!t/0/1/0"]) > 4
