"""Rows of a mirror that go on to a later plan."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from ticdc_assets.changelog.plan import PartitionRows, Removal
from ticdc_assets.registry.ddl.statement import (
    PartitionAction,
    PartitionDefinition,
    Partitioning,
    PartitionMethod,
)
from ticdc_assets.rows.folding import fold_operations
from ticdc_assets.rows.mirror_rows import PARTIAL, MirrorLayout, marked, mirror_operations
from ticdc_assets_tests.rows.plans import plan_of, table_of


@pytest.mark.parametrize("error_rank", [-1, 0])
@pytest.mark.parametrize("sizes", [[5], [3, 2], [1, 1, 1, 1, 1]])
def test_each_row_that_does_not_tell_its_partition_counts(
    sizes: Sequence[int], error_rank: int
) -> None:
    """Rows come in batches, and in parts that do not know of each other."""
    schema = table_of(1)
    unknown = Partitioning(
        method=PartitionMethod.RANGE,
        expression="no_function(id)",
        columns=(),
        definitions=(PartitionDefinition(name="p"),),
    )
    removal = Removal(
        ts=9,
        version=1,
        rows=PartitionRows(partitions=unknown, names=("p",)),
        action=PartitionAction.DROP,
    )
    convert = mirror_operations(
        schema, plan_of(schema, removals=(removal,)), "UTC", 0, error_rank=error_rank
    )
    names = MirrorLayout(schema=schema)
    rows = [{"id": number, names.commit_ts: 5, names.rescued: None} for number in range(sum(sizes))]
    batches: list[pa.RecordBatch] = []
    for size in sizes:
        batches.append(pa.RecordBatch.from_pylist(rows[:size], schema=names.arrow))
        del rows[:size]
    for parts in ([batches], [[batch] for batch in batches]):
        operations = [batch for part in parts for batch in convert(part)]
        folded = fold_operations(pa.Table.from_batches(operations), keyed=True)
        counts = folded.counts
        assert (counts.errors if error_rank == 0 else counts.lost) == 5
        assert folded.rows["reason"].to_pylist() == ["unknown_partition"] * 5


def test_a_mark_takes_the_place_of_an_earlier_one_and_leaves_the_rest() -> None:
    names = MirrorLayout(schema=table_of(1))
    rescued = [None, [("v", "1"), (PARTIAL, "4")], [("v", "2")]]
    rows = pa.Table.from_pylist(
        [
            {"id": number, names.commit_ts: 5, names.rescued: own}
            for number, own in enumerate(rescued)
        ],
        schema=names.arrow,
    )
    found = marked(rows, names.rescued, ["7", "8", "9"])
    assert found[names.rescued].to_pylist() == [
        [(PARTIAL, "7")],
        [("v", "1"), (PARTIAL, "8")],
        [("v", "2"), (PARTIAL, "9")],
    ]
    assert found.drop_columns([names.rescued]) == rows.drop_columns([names.rescued])
