"""Partitions of the stand-in upstream: places, statements, ids and what travels of them."""

import pytest

from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.commits import CommittedDdl, CommittedTransaction
from ticdc_assets.demo.simulator.partitions import Method, Partition, Partitioning
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.model.events import Op, RowChange
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.demo.simulator.odd_upstream import OddUpstream
from ticdc_assets_tests.demo.simulator.partition_changes import (
    AddPartitions,
    DropPartitions,
    PartitionBy,
    RemovePartitioning,
    ReorganizePartitions,
    ResizeHash,
    TruncatePartitions,
    hash_partitions,
)
from ticdc_assets_tests.demo.simulator.variants import Variant

T: TableName = ("d", "t")
ALONE: TableName = ("d", "alone")
RANGES = Partitioning(
    method=Method.RANGE,
    column="id",
    partitions=(Partition(name="p0", below=10), Partition(name="p1", below=20)),
)


def divided(by: Partitioning = RANGES) -> OddUpstream:
    upstream = OddUpstream()
    upstream.create_database("d")
    upstream.create_table(
        T, (column("id", "int", nullable=False),), primary_key=("id",), partitioning=by
    )
    with upstream.transaction() as transaction:
        for number in (1, 5, 12):
            transaction.insert(T, {"id": str(number)})
    return upstream


def ids(upstream: OddUpstream, name: TableName = T) -> list[int]:
    found = upstream.stored(name).partitioning
    return [] if found is None else [part.physical_id for part in found.partitions]


def keys(upstream: OddUpstream, name: TableName = T) -> list[str]:
    return sorted(key for (key,) in upstream.rows(name))


def last_ddl(upstream: OddUpstream) -> CommittedDdl:
    commit = upstream.history[-1]
    assert isinstance(commit, CommittedDdl)
    return commit


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
    moved = upstream.history[-1]
    assert isinstance(moved, CommittedTransaction)
    assert [(row.op, row.physical_id) for row in moved.rows] == list(
        zip((Op.DELETE, Op.INSERT), ids(upstream), strict=True)
    )
    for wire_format in WireFormat:
        variant = Variant(wire_format)
        events = variant.events(variant.changefeed(upstream).tick())
        found = {event.table_id for _, event in events if isinstance(event, RowChange)}
        sends_none = wire_format is WireFormat.CANAL_JSON
        assert found == ({None} if sends_none else set(ids(upstream)))


def test_truncate_keeps_the_version_and_gives_new_ids() -> None:
    upstream = divided()
    before, (first, second), ts = upstream.schema(T), ids(upstream), upstream.clock.last
    upstream.alter_partitions(T, TruncatePartitions(names=("P0",)))
    assert upstream.schema(T) == before
    assert ids(upstream)[0] != first
    assert ids(upstream)[1] == second
    assert keys(upstream) == ["12"]
    assert len(upstream.truth(ts)[T]) == 3
    (event,) = last_ddl(upstream).events
    assert (event.ddl_type, event.action_code) == ("ALTER", 23)
    assert event.sql == "ALTER TABLE `d`.`t` TRUNCATE PARTITION `P0`"


def test_partitions_are_added_reorganized_and_dropped() -> None:
    upstream = divided()
    table_id, version = upstream.schema(T).table_id, upstream.schema(T).version
    upstream.alter_partitions(T, AddPartitions(partitions=(Partition(name="rest"),)))
    assert (
        last_ddl(upstream).events[0].sql.endswith("(PARTITION `rest` VALUES LESS THAN (MAXVALUE))")
    )
    into = (Partition(name="a", below=3), Partition(name="b", below=20))
    upstream.alter_partitions(T, ReorganizePartitions(names=("p0", "p1"), into=into))
    assert keys(upstream) == ["1", "12", "5"]
    upstream.alter_partitions(T, DropPartitions(names=("b",)))
    assert keys(upstream) == ["1"]
    assert upstream.schema(T).table_id == table_id
    assert upstream.schema(T).version > version
    # What was between is of the next one now.
    with upstream.transaction() as transaction:
        transaction.insert(T, {"id": "7"})


def test_a_row_without_a_partition_is_refused() -> None:
    upstream = divided()
    with pytest.raises(ValueError, match="no partition"), upstream.transaction() as transaction:
        transaction.insert(T, {"id": "20"})
    into = (Partition(name="p1", below=11),)
    with pytest.raises(ValueError, match="no partition"):
        upstream.alter_partitions(T, ReorganizePartitions(names=("p1",), into=into))


def test_hash_partitions_and_dividing_anew_move_no_row() -> None:
    upstream = divided(Partitioning(method=Method.HASH, column="id", partitions=hash_partitions(2)))
    upstream.alter_partitions(T, ResizeHash(count=4))
    assert last_ddl(upstream).events[0].sql.endswith("ADD PARTITION PARTITIONS 2")
    upstream.alter_partitions(T, ResizeHash(count=1))
    assert last_ddl(upstream).events[0].sql.endswith("COALESCE PARTITION 3")
    for change in (RemovePartitioning(), PartitionBy(partitioning=RANGES)):
        before = upstream.schema(T).table_id
        upstream.alter_partitions(T, change)
        assert upstream.schema(T).table_id != before
        assert keys(upstream) == ["1", "12", "5"]


def test_an_exchange_trades_rows_and_ids() -> None:
    upstream = divided()
    upstream.create_table_like(ALONE, T)
    upstream.alter_partitions(ALONE, RemovePartitioning())
    with upstream.transaction() as transaction:
        transaction.insert(ALONE, {"id": "9"})
    other, (first, second) = upstream.schema(ALONE), ids(upstream)
    upstream.exchange_partition(T, "p0", ALONE)
    assert (keys(upstream), keys(upstream, ALONE)) == (["12", "9"], ["1", "5"])
    assert ids(upstream) == [other.table_id, second]
    assert upstream.schema(ALONE).table_id == first
    assert upstream.schema(ALONE).version == other.version
    (event,) = last_ddl(upstream).events
    assert (event.ddl_type, event.action_code) == ("QUERY", 42)
    assert (event.schema, event.pre_schema) == (upstream.schema(T), other)
    with pytest.raises(ValueError, match="not of"):
        upstream.exchange_partition(T, "p1", ALONE)


def test_what_was_dropped_or_truncated_comes_back() -> None:
    upstream = divided()
    dropped = upstream.schema(T)
    upstream.drop_table(T)
    upstream.recover_table(T)
    assert keys(upstream) == ["1", "12", "5"]
    assert upstream.schema(T).table_id == dropped.table_id
    assert upstream.schema(T).version > dropped.version
    upstream.truncate_table(T)
    upstream.recover_table(T, to="old")
    assert (keys(upstream), keys(upstream, ("d", "old"))) == ([], ["1", "12", "5"])
    (event,) = last_ddl(upstream).events
    assert (event.ddl_type, event.pre_schema) == ("QUERY", None)
    assert event.sql == "FLASHBACK TABLE `d`.`t` TO `old`"
    with pytest.raises(ValueError, match="cannot recover"):
        upstream.recover_table(T, to="older")
