"""What partition DDL does to a table of the stand-in upstream, and how it reads in SQL.

In: a table (a copy that may be changed) and a change. Out: the table with its partitions and rows
after it, and the change's clause of ALTER TABLE. Partitions that are made or emptied get new
physical ids. EXCHANGE PARTITION concerns two tables and is `exchange` here.

Not handled: what `partitions` does not handle, and EXCHANGE of rows that do not fit (WITHOUT
VALIDATION).
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from ticdc_assets.demo.simulator.alterations import ActionCode
from ticdc_assets.demo.simulator.columns import quoted
from ticdc_assets.demo.simulator.stored_table import ROW_ID, Key, Row, StoredTable
from ticdc_assets_tests.demo.simulator.partitions import LISTS, Method, Partition, Partitioning

NewId: TypeAlias = Callable[[], int]


class PartitionChange:
    """A change of partitions.

    Attributes:
        code: TiDB's number of an ALTER TABLE with it.
    """

    code: ClassVar[ActionCode]

    def __call__(self, table: StoredTable, new_id: NewId) -> str:
        """Change `table` and return the clause of ALTER TABLE.

        Raises:
            ValueError: the change does not fit the table.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions(PartitionChange):
    """ADD PARTITION for ranges (above the last) and lists."""

    code = ActionCode.ADD_PARTITION
    partitions: tuple[Partition, ...]

    def __call__(self, table: StoredTable, new_id: NewId) -> str:
        by = divided_by(table)
        added = tuple(replace(part, physical_id=new_id()) for part in self.partitions)
        _check_names(by.partitions + added)
        table.partitioning = replace(by, partitions=by.partitions + added)
        return f"ADD PARTITION {by.definitions_sql(added)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPartitions(PartitionChange):
    """DROP PARTITION: their rows go, and with them the places for such rows."""

    code = ActionCode.DROP_PARTITION
    names: tuple[str, ...]

    def __call__(self, table: StoredTable, new_id: NewId) -> str:
        by = divided_by(table)
        gone = {by.number(name) for name in self.names}
        if by.method is Method.HASH or len(gone) == len(by.partitions):
            raise ValueError(f"{table.schema.table}: cannot drop {self.names}")
        _remove_rows(table, gone)
        kept = tuple(part for number, part in enumerate(by.partitions) if number not in gone)
        table.partitioning = replace(by, partitions=kept)
        return f"DROP PARTITION {_names(self.names)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatePartitions(PartitionChange):
    """TRUNCATE PARTITION: their rows go; `()` is ALL."""

    code = ActionCode.TRUNCATE_PARTITION
    names: tuple[str, ...] = ()

    def __call__(self, table: StoredTable, new_id: NewId) -> str:
        by = divided_by(table)
        names = self.names or tuple(part.name for part in by.partitions)
        _remove_rows(table, {by.number(name) for name in names})
        table.partitioning = by.with_new_ids(new_id, names)
        return f"TRUNCATE PARTITION {_names(self.names) if self.names else 'ALL'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReorganizePartitions(PartitionChange):
    """REORGANIZE PARTITION: neighbours become others; every row has a place in these."""

    code = ActionCode.REORGANIZE_PARTITION
    names: tuple[str, ...]
    into: tuple[Partition, ...]

    def __call__(self, table: StoredTable, new_id: NewId) -> str:
        by = divided_by(table)
        numbers = sorted(by.number(name) for name in self.names)
        first, last = numbers[0], numbers[-1]
        neighbours = numbers == list(range(first, last + 1))
        if by.method is Method.HASH or (not neighbours and by.method not in LISTS):
            raise ValueError(f"{table.schema.table}: cannot reorganize {self.names}")
        parts = [part for number, part in enumerate(by.partitions) if number not in numbers]
        parts[first:first] = [replace(part, physical_id=new_id()) for part in self.into]
        _check_names(parts)
        table.partitioning = replace(by, partitions=tuple(parts))
        return f"REORGANIZE PARTITION {_names(self.names)} INTO {by.definitions_sql(self.into)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeHash(PartitionChange):
    """COALESCE PARTITION, or ADD PARTITION PARTITIONS: as many HASH partitions as `count`."""

    code = ActionCode.REORGANIZE_PARTITION
    count: int

    def __call__(self, table: StoredTable, new_id: NewId) -> str:
        by = divided_by(table)
        before = len(by.partitions)
        if by.method is not Method.HASH or self.count < 1 or self.count == before:
            raise ValueError(f"{table.schema.table}: cannot have {self.count} partitions")
        after = replace(by, partitions=hash_partitions(self.count))
        table.partitioning = after.with_new_ids(new_id)
        if self.count < before:
            return f"COALESCE PARTITION {before - self.count}"
        return f"ADD PARTITION PARTITIONS {self.count - before}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBy(PartitionChange):
    """PARTITION BY: a table, divided or not, is divided like this from now on."""

    code = ActionCode.PARTITION_BY
    partitioning: Partitioning

    def __call__(self, table: StoredTable, new_id: NewId) -> str:
        table.partitioning = self.partitioning.with_new_ids(new_id)
        table.schema = replace(table.schema, table_id=new_id())
        return self.partitioning.sql()


class RemovePartitioning(PartitionChange):
    """REMOVE PARTITIONING."""

    code = ActionCode.REMOVE_PARTITIONING

    def __call__(self, table: StoredTable, new_id: NewId) -> str:
        divided_by(table)
        table.partitioning = None
        table.schema = replace(table.schema, table_id=new_id())
        return "REMOVE PARTITIONING"


def divided_by(table: StoredTable) -> Partitioning:
    """Return how a table is divided.

    Raises:
        ValueError: it is not.
    """
    if table.partitioning is None:
        raise ValueError(f"{table.schema.table} is not partitioned")
    return table.partitioning


def exchange(
    divided: StoredTable, partition: str, other: StoredTable
) -> tuple[StoredTable, StoredTable]:
    """Return both tables after EXCHANGE PARTITION: rows and physical ids have changed places.

    Raises:
        ValueError: the tables are not alike, or a row does not fit the partition.
    """
    by = divided_by(divided)
    number = by.number(partition)
    part = by.partitions[number]
    if other.partitioning is not None or not _are_alike(divided, other):
        raise ValueError(f"{other.schema.table} is not like {divided.schema.table}")
    if any(by.place(row[by.column]) != number for row in other.rows.values()):
        raise ValueError(f"{other.schema.table} has rows that are not of {partition!r}")
    leaving = {k: r for k, r in divided.rows.items() if by.place(r[by.column]) == number}
    staying = {k: r for k, r in divided.rows.items() if k not in leaving}
    parts = list(by.partitions)
    parts[number] = replace(part, physical_id=other.schema.table_id)
    after = replace(divided, rows=staying, partitioning=replace(by, partitions=tuple(parts)))
    _take_over(after, other.rows)
    alone = replace(other, rows={})
    alone.schema = replace(other.schema, table_id=part.physical_id)
    _take_over(alone, leaving)
    return after, alone


def _are_alike(one: StoredTable, other: StoredTable) -> bool:
    return (one.schema.columns, one.primary_key, one.clustered, one.secondary) == (
        other.schema.columns,
        other.primary_key,
        other.clustered,
        other.secondary,
    )


def _take_over(table: StoredTable, rows: Mapping[Key, Row]) -> None:
    """Add rows of another table; those known by a row id get new ones."""
    for key, row in rows.items():
        if not table.schema.handle_key:
            table.rows[ROW_ID, str(table.next_row_id)] = row
            table.next_row_id += 1
        else:
            table.rows[key] = row


def _names(names: Sequence[str]) -> str:
    return ",".join(map(quoted, names))


def _remove_rows(table: StoredTable, numbers: Set[int]) -> None:
    """Remove the rows of some partitions."""
    by = divided_by(table)
    table.rows = {
        key: row for key, row in table.rows.items() if by.place(row[by.column]) not in numbers
    }


def check_places(table: StoredTable) -> None:
    """Refuse a table with a row that has no partition, or a key without the deciding column."""
    divided = table.partitioning
    if divided is None:
        return
    for row in table.rows.values():
        divided.physical_id(row)
    unique = [i.columns for i in table.secondary if i.unique]
    for key in (table.primary_key, *unique):
        if key and divided.column not in key:
            raise ValueError(f"{table.schema.table}: {divided.column!r} is not in key {key}")


def _check_names(partitions: Sequence[Partition]) -> None:
    if len({part.name.lower() for part in partitions}) != len(partitions):
        raise ValueError("two partitions of one name")


def hash_partitions(count: int) -> tuple[Partition, ...]:
    """Return HASH partitions as TiDB names them."""
    return tuple(Partition(name=f"p{number}") for number in range(count))
