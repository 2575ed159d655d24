"""Partitions of the stand-in upstream: places, ids, and what travels of them.

Statements that change partitions are tried by the storms: mirrors equal the truth after them.
"""

import pytest

from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.commits import CommittedTransaction
from ticdc_assets.demo.simulator.partitions import Method, Partition, Partitioning
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.events import Op, RowChange
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.demo.simulator.partition_changes import hash_partitions
from ticdc_assets_tests.demo.simulator.variants import Variant

T: TableName = ("d", "t")
RANGES = Partitioning(
    method=Method.RANGE,
    column="id",
    partitions=(Partition(name="p0", below=10), Partition(name="p1", below=20)),
)


def divided() -> Upstream:
    upstream = Upstream()
    upstream.create_database("d")
    upstream.create_table(
        T, (column("id", "int", nullable=False),), primary_key=("id",), partitioning=RANGES
    )
    with upstream.transaction() as transaction:
        for number in (1, 5, 12):
            transaction.insert(T, {"id": str(number)})
    return upstream


@pytest.mark.parametrize(
    ("method", "partitions", "places"),
    [
        (Method.RANGE, RANGES.partitions, {None: 0, "-5": 0, "9": 0, "10": 1, "20": None}),
        (
            Method.RANGE_YEAR,
            (Partition(name="a", below=2024), Partition(name="b")),
            {"2023-12-31": 0, "2024-01-01": 1, None: 0},
        ),
        (
            Method.RANGE_COLUMNS_DATE,
            (Partition(name="a", below="2024-01-01"),),
            {"2023-12-31": 0, "2024-01-01": None},
        ),
        (
            Method.LIST_COLUMNS,
            (Partition(name="a", values=("eu", None)), Partition(name="b", values=("EU",))),
            {"eu": 0, "EU": 1, None: 0, "us": None},
        ),
        (Method.HASH, hash_partitions(3), {"-4": 1, "4": 1, "3": 0, None: 0}),
    ],
)
def test_places(
    method: Method, partitions: tuple[Partition, ...], places: dict[str | None, int | None]
) -> None:
    by = Partitioning(method=method, column="c", partitions=partitions)
    assert {value: by.place(value) for value in places} == places


def test_rows_travel_with_the_id_of_their_partition() -> None:
    upstream = divided()
    with upstream.transaction() as transaction:
        transaction.update(T, ("1",), changes={"id": "15"})
    moved, divisions = upstream.history[-1], upstream.stored(T).partitioning
    assert isinstance(moved, CommittedTransaction)
    assert divisions is not None
    first, second = (partition.physical_id for partition in divisions.partitions)
    assert [(row.op, row.physical_id) for row in moved.rows] == [
        (Op.DELETE, first),
        (Op.INSERT, second),
    ]
    for wire_format in WireFormat:
        variant = Variant(wire_format)
        events = variant.events(variant.changefeed(upstream).tick())
        found = {event.table_id for _, event in events if isinstance(event, RowChange)}
        sends_none = wire_format is WireFormat.CANAL_JSON
        assert found == ({None} if sends_none else {first, second})


def test_a_row_without_a_partition_is_refused() -> None:
    upstream = divided()
    with pytest.raises(ValueError, match="no partition"), upstream.transaction() as transaction:
        transaction.insert(T, {"id": "20"})
