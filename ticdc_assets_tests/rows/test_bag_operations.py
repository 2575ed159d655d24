"""Which changes of a table without a key are replays."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from ticdc_assets.rows.bag_operations import bag_operations, watermarks_of
from ticdc_assets.rows.folding import without_replays

PLACE = {"topic": "t", "partition": 0, "index": 0}


def change(offset: int, **other: Any) -> dict[str, Any]:
    row = {"commit_ts": 20, "op": "insert", "before": None, "after": '{"a":"1","b":null}'}
    return {**PLACE, "offset": offset, "database": "Shop", "table": "a", **row, **other}


def as_operations(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sequence = batch.select([*PLACE, "offset"]).to_struct_array()
        yield pa.RecordBatch.from_arrays([sequence], ["sequence"])


@pytest.mark.parametrize(
    ("other", "kept"),
    [
        ({}, [1]),
        ({"database": "shop"}, [1]),  # what TiCDC writes may change its case at a restart
        ({"after": '{"b":null,"a":"1"}'}, [1]),  # Avro's maps have no order
        ({"after": '{"a":"1","b":"1"}'}, [1, 3]),
        ({"commit_ts": 19}, [1, 3]),
    ],
)
def test_a_change_that_comes_again_after_its_watermark(
    other: dict[str, Any], kept: list[int]
) -> None:
    watermark = {**PLACE, "offset": 2, "commit_ts": 30}
    changes = pa.RecordBatch.from_pylist([change(1), change(3, **other)])
    watermarks = watermarks_of([pa.RecordBatch.from_pylist([watermark])])
    operations = bag_operations(as_operations, watermarks)([changes])
    left = without_replays(pa.Table.from_batches(operations))
    assert [row["offset"] for row in left["sequence"].to_pylist()] == kept
