"""Which partition a row is in: one compiled rule for each way to partition a table.

In: how the table is partitioned, its schema, the changefeed's time zone. Out: a function from a row
to the number of its partition, None for no partition. Refusals happen when the rule is compiled
(`PartitionError`); the function itself fails only on a row that lacks a column it needs.

A table whose oldest partition is dropped each day has a rule for each day, over nearly the same
partitions. So the meaning of each bound is cached by its definition (`_BOUNDS_KEPT`); there is no
other state, and it changes no answer.

The rules are TiDB's where it differs from MySQL: LINEAR is ignored, and HASH reads an unsigned
integer as a signed one of 64 bits.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final
from zlib import crc32

from ticdc_assets.base.errors import PartitionError, shorten
from ticdc_assets.model.schemas import ColumnSchema, TableSchema
from ticdc_assets.registry.ddl_statement import BoundKind, PartitionDefinition, PartitionMethod
from ticdc_assets.registry.ddl_tokens import Cursor, shown_sql
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.partition_columns import (
    ColumnReader,
    ColumnValue,
    column_reader,
    key_hasher,
)
from ticdc_assets.registry.partition_expressions import (
    cursor_over,
    find_column,
    integer_bound,
    read_expression,
    text_of_column,
)
from ticdc_assets.registry.partition_functions import is_repeated
from ticdc_assets.registry.partition_terms import Integer, integer_of, number_of, whole_number

Rule = Callable[[CanonicalRow], int | None]

_BOUNDS_KEPT: Final = 1 << 14
"""Bounds that are cached for each way to read them: those of a few years of days, several times.

A table has at most 8192 partitions.
"""

_WAYS_KEPT: Final = 64
"""Ways to read bounds that are cached: by time zone, or by the columns that partition a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePartitions:
    """How a table's rows are spread at one moment.

    Attributes:
        method: hash, key, range, list and their COLUMNS forms.
        expression: text between the parentheses of PARTITION BY.
        columns: the columns, for KEY and the COLUMNS forms.
        definitions: all partitions in their order.
    """

    method: PartitionMethod
    expression: str
    columns: tuple[str, ...]
    definitions: tuple[PartitionDefinition, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The partitions' names in their order."""
        return tuple(definition.name for definition in self.definitions)

    def described(self) -> object:
        """Return a JSON value that differs for different partitions."""
        return {
            "method": self.method.value,
            "expression": self.expression,
            "columns": list(self.columns),
            "partitions": [
                [definition.name, definition.bound_kind, definition.bound]
                for definition in self.definitions
            ],
        }

    def places(self, names: Collection[str]) -> list[int]:
        """Return the numbers, ascending, of the partitions of these names, in any case."""
        place_of = {name.lower(): place for place, name in enumerate(self.names)}
        for name in names:
            if name.lower() not in place_of:
                raise PartitionError(f"no partition {shorten(name)} is known")
        return sorted({place_of[name.lower()] for name in names})


def partition_rule(table: TablePartitions, schema: TableSchema, timezone: str) -> Rule:
    """Return the function that gives the number of a row's partition, None for no partition.

    Raises:
        PartitionError: it is not known exactly for every row.
    """
    return _RULES[table.method](table, schema, timezone)


# ---------------------------------------------------------------- HASH, RANGE, LIST of integers


def _hash_rule(table: TablePartitions, schema: TableSchema, timezone: str) -> Rule:
    value_of = integer_of(read_expression(table.expression, schema, timezone), "HASH")
    count = len(table.definitions)

    def rule(row: CanonicalRow) -> int | None:
        value = value_of(row)
        if value is None:
            return 0
        signed = (value + 2**63) % 2**64 - 2**63
        return abs(signed) % count

    return rule


def _range_rule(table: TablePartitions, schema: TableSchema, timezone: str) -> Rule:
    number = number_of(read_expression(table.expression, schema, timezone), "RANGE")
    value_of: Integer = whole_number(number, "RANGE")
    bounds: list[int] = []
    rest: int | None = None
    less_than = _integer_less_than(timezone)
    for place, definition in enumerate(table.definitions):
        bound = less_than(definition)
        if rest is not None or (bound is not None and bounds and bound <= bounds[-1]):
            raise PartitionError("the partitions' bounds do not increase")
        if bound is None:
            rest = place
        else:
            bounds.append(bound)
    if number.repeats and any(is_repeated(bound, timezone) for bound in bounds):
        raise PartitionError("a bound is a moment whose time of day came twice")

    def rule(row: CanonicalRow) -> int | None:
        value = value_of(row)
        place = 0 if value is None else bisect_right(bounds, value)
        return place if place < len(bounds) else rest

    return rule


@lru_cache(maxsize=_WAYS_KEPT)
def _integer_less_than(timezone: str) -> Callable[[PartitionDefinition], int | None]:
    """Return the function that reads the bound of a partition, None for MAXVALUE."""

    @lru_cache(maxsize=_BOUNDS_KEPT)
    def less_than(definition: PartitionDefinition) -> int | None:
        cursor = cursor_over(less_than_text(definition))
        if cursor.take("MAXVALUE"):
            bound = None
        else:
            bound = integer_bound(cursor, timezone)
            if bound is None:
                raise PartitionError(f"the bound of partition {shorten(definition.name)} is NULL")
        _expect_done(cursor, definition)
        return bound

    return less_than


def less_than_text(definition: PartitionDefinition) -> str:
    """Return the text of LESS THAN of a partition."""
    if definition.bound_kind is not BoundKind.LESS_THAN or definition.bound is None:
        raise PartitionError(f"partition {shorten(definition.name)} has no VALUES LESS THAN")
    return definition.bound


def _expect_done(cursor: Cursor, definition: PartitionDefinition) -> None:
    if not cursor.done or cursor.tokens.problem is not None:
        raise PartitionError(f"the bound of partition {shorten(definition.name)} is not understood")


def list_items(definition: PartitionDefinition) -> tuple[list[Cursor], bool]:
    """Return a cursor over each value of VALUES IN, and whether DEFAULT is one of them."""
    if definition.bound_kind is BoundKind.DEFAULT:
        return [], True
    if definition.bound_kind is not BoundKind.IN or definition.bound is None:
        raise PartitionError(f"partition {shorten(definition.name)} has no VALUES IN")
    cursor = cursor_over(definition.bound)
    items: list[Cursor] = []
    is_default = False
    while not cursor.done:
        start = cursor.at
        cursor.skip_item()
        item = Cursor(cursor.tokens, start, cursor.at)
        if item.word() == "DEFAULT" and cursor.at == start + 1:
            is_default = True
        else:
            items.append(item)
        if not cursor.done:
            cursor.at += 1
    return items, is_default


def _list_rule(table: TablePartitions, schema: TableSchema, timezone: str) -> Rule:
    value_of = integer_of(read_expression(table.expression, schema, timezone), "LIST")
    places, rest = _places(table.definitions, _integers_in(timezone))

    def rule(row: CanonicalRow) -> int | None:
        return places.get(value_of(row), rest)

    return rule


_Listed = tuple[tuple[object, ...], bool]
"""The values of VALUES IN, and whether DEFAULT is one of them."""


@lru_cache(maxsize=_WAYS_KEPT)
def _integers_in(timezone: str) -> Callable[[PartitionDefinition], _Listed]:
    """Return the function that reads the integers of VALUES IN."""

    def read(item: Cursor) -> int | None:
        return integer_bound(item, timezone)

    return _listed_by(read)


def _listed_by(read: Callable[[Cursor], object]) -> Callable[[PartitionDefinition], _Listed]:
    @lru_cache(maxsize=_BOUNDS_KEPT)
    def listed(definition: PartitionDefinition) -> _Listed:
        items, is_default = list_items(definition)
        values: list[object] = []
        for item in items:
            values.append(read(item))
            _expect_done(item, definition)
        return tuple(values), is_default

    return listed


def _places(
    definitions: Sequence[PartitionDefinition], listed: Callable[[PartitionDefinition], _Listed]
) -> tuple[Mapping[object, int], int | None]:
    """Return the partition of each listed value, and the one of all others."""
    places: dict[object, int] = {}
    rest: int | None = None
    for place, definition in enumerate(definitions):
        values, is_default = listed(definition)
        if is_default:
            if rest is not None:
                raise PartitionError("two partitions are DEFAULT")
            rest = place
        for value in values:
            if places.setdefault(value, place) != place:
                raise PartitionError("a value is listed for two partitions")
    return places, rest


# ------------------------------------------------------------ RANGE COLUMNS, LIST COLUMNS and KEY

_Part = tuple[int] | tuple[int, ColumnValue]
_NULL: Final[_Part] = (0,)
_MAXVALUE: Final[_Part] = (2,)


def _range_columns_rule(table: TablePartitions, schema: TableSchema, timezone: str) -> Rule:
    del timezone
    columns = _columns(table, schema)
    key_of = _key_of(columns)
    bounds = list(map(_parts_less_than(columns), table.definitions))
    if any(low >= high for low, high in pairwise(bounds)):
        raise PartitionError("the partitions' bounds do not increase")

    def rule(row: CanonicalRow) -> int | None:
        place = bisect_right(bounds, key_of(row))
        return place if place < len(bounds) else None

    return rule


@lru_cache(maxsize=_WAYS_KEPT)
def _parts_less_than(
    columns: tuple[ColumnSchema, ...],
) -> Callable[[PartitionDefinition], tuple[_Part, ...]]:
    """Return the function that reads the bound of a partition by columns."""
    readers = [column_reader(column) for column in columns]

    def read(reader: ColumnReader, cursor: Cursor) -> _Part:
        return _MAXVALUE if cursor.take("MAXVALUE") else (1, reader.of_literal(cursor))

    @lru_cache(maxsize=_BOUNDS_KEPT)
    def less_than(definition: PartitionDefinition) -> tuple[_Part, ...]:
        cursor = cursor_over(less_than_text(definition))
        bound: tuple[_Part, ...]
        if cursor.take("MAXVALUE") and cursor.done:
            bound = (_MAXVALUE,)  # alone, it means all columns
        else:
            cursor.at = 0
            bound = _take_parts(cursor, readers, read)
        _expect_done(cursor, definition)
        return bound

    return less_than


def _list_columns_rule(table: TablePartitions, schema: TableSchema, timezone: str) -> Rule:
    del timezone
    columns = _columns(table, schema)
    key_of = _key_of(columns)
    places, rest = _places(table.definitions, _parts_in(columns))

    def rule(row: CanonicalRow) -> int | None:
        return places.get(key_of(row), rest)

    return rule


@lru_cache(maxsize=_WAYS_KEPT)
def _parts_in(columns: tuple[ColumnSchema, ...]) -> Callable[[PartitionDefinition], _Listed]:
    """Return the function that reads the values of VALUES IN by columns."""
    readers = [column_reader(column) for column in columns]

    def read(reader: ColumnReader, cursor: Cursor) -> _Part:
        return _NULL if cursor.take("NULL") else (1, reader.of_literal(cursor))

    def read_item(item: Cursor) -> tuple[_Part, ...]:
        group = item.take_group()
        if group is None:
            return _take_parts(item, readers, read)
        parts = _take_parts(group, readers, read)
        if not group.done:
            raise PartitionError(f"the value {shown_sql(group.text())} is not understood")
        return parts

    return _listed_by(read_item)


def _columns(table: TablePartitions, schema: TableSchema) -> tuple[ColumnSchema, ...]:
    columns = tuple(find_column(schema, name) for name in table.columns)
    if not columns:
        raise PartitionError("the columns that partition the table are not understood")
    return columns


def _key_of(columns: Sequence[ColumnSchema]) -> Callable[[CanonicalRow], tuple[_Part, ...]]:
    """Return the function that gives a row's values."""
    takers = [(text_of_column(column), column_reader(column).of_text) for column in columns]

    def key_of(row: CanonicalRow) -> tuple[_Part, ...]:
        texts = [(text_of(row), of_text) for text_of, of_text in takers]
        return tuple(_NULL if text is None else (1, of_text(text)) for text, of_text in texts)

    return key_of


def _take_parts(
    cursor: Cursor, readers: Sequence[ColumnReader], read: Callable[[ColumnReader, Cursor], _Part]
) -> tuple[_Part, ...]:
    """Take one value for each column, with commas between them."""
    parts: list[_Part] = []
    for reader in readers:
        if parts and not cursor.take_char(","):
            raise PartitionError("a bound has fewer values than there are columns")
        parts.append(read(reader, cursor))
    return tuple(parts)


def _key_rule(table: TablePartitions, schema: TableSchema, timezone: str) -> Rule:
    del timezone
    names = table.columns or _primary_key(schema)
    hashers = [key_hasher(find_column(schema, name)) for name in names]
    count = len(table.definitions)

    def rule(row: CanonicalRow) -> int | None:
        return crc32(b"".join(hasher(row) for hasher in hashers)) % count

    return rule


def _primary_key(schema: TableSchema) -> tuple[str, ...]:
    for index in schema.own_indexes:
        if index.primary:
            return index.columns
    raise PartitionError("partitioned by KEY () and the primary key is not known")


_RULES: Final[dict[PartitionMethod, Callable[[TablePartitions, TableSchema, str], Rule]]] = {
    PartitionMethod.HASH: _hash_rule,
    PartitionMethod.KEY: _key_rule,
    PartitionMethod.RANGE: _range_rule,
    PartitionMethod.RANGE_COLUMNS: _range_columns_rule,
    PartitionMethod.LIST: _list_rule,
    PartitionMethod.LIST_COLUMNS: _list_columns_rule,
}
