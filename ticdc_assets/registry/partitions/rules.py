"""Which partition a row is in: one compiled rule for each way to partition a table.

In: how the table is partitioned, its schema, the changefeed's time zone. Out: a function from a row
to the number of its partition, None for no partition. Refusals happen when the rule is compiled
(`PartitionError`); the function itself fails only on a row that lacks a column it needs.

The rules are TiDB's where it differs from MySQL: LINEAR is ignored, and HASH reads an unsigned
integer as a signed one of 64 bits.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final
from zlib import crc32

from ticdc_assets.base.errors import PartitionError, shorten
from ticdc_assets.model.schemas import ColumnSchema, TableSchema
from ticdc_assets.registry.ddl.statement import (
    BoundKind,
    PartitionDefinition,
    Partitioning,
    PartitionMethod,
)
from ticdc_assets.registry.ddl.tokens import Cursor
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.expressions.columns import find_column, read_by
from ticdc_assets.registry.expressions.dates import is_repeated
from ticdc_assets.registry.expressions.reader import (
    PARTITION_WORDS,
    cursor_over,
    integer_bound,
    read_expression,
)
from ticdc_assets.registry.expressions.terms import (
    integer_of,
    number_of,
    repeated_times,
    whole_number,
)
from ticdc_assets.registry.partitions.columns import ColumnValue, column_reader, key_hasher

Rule = Callable[[CanonicalRow], int | None]

_BOUNDS_KEPT: Final = 1 << 16
"""Bounds that are cached: those of a few years of days, in several tables.

A table has at most 8192 partitions.
"""


# ------------------------------------------------------------------------------- HASH and KEY


def _hash_rule(table: Partitioning, schema: TableSchema, timezone: str) -> Rule:
    value_of = integer_of(
        read_expression(table.expression, schema, timezone, PARTITION_WORDS), "HASH"
    )
    count = len(table.definitions)

    def rule(row: CanonicalRow) -> int | None:
        value = value_of(row)
        if value is None:
            return 0
        signed = (value + 2**63) % 2**64 - 2**63
        return abs(signed) % count

    return rule


def _key_rule(table: Partitioning, schema: TableSchema, timezone: str) -> Rule:
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


# ------------------------------------------------------------- RANGE and LIST, also over COLUMNS

_Part = tuple[int] | tuple[int, ColumnValue]
_Key = tuple[_Part, ...]
"""The values by which a row is placed: one for each column, or that of the expression."""

_NULL: Final[_Part] = (0,)
_MAXVALUE: Final[_Part] = (2,)


def _part(value: ColumnValue | None) -> _Part:
    return _NULL if value is None else (1, value)


def _range_rule(table: Partitioning, schema: TableSchema, timezone: str) -> Rule:
    columns, key_of, repeats = _spread(table, schema, timezone)
    bounds = [_less_than(definition, columns, timezone) for definition in table.definitions]
    if any(low >= high for low, high in pairwise(bounds)):
        raise PartitionError("the partitions' bounds do not increase")
    if repeats and any(
        isinstance(value, int) and is_repeated(value, timezone)
        for bound in bounds
        for _, value in (part for part in bound if len(part) == 2)
    ):
        raise PartitionError("a bound is a moment whose time of day came twice")

    def rule(row: CanonicalRow) -> int | None:
        place = bisect_right(bounds, key_of(row))
        return place if place < len(bounds) else None

    return rule


def _list_rule(table: Partitioning, schema: TableSchema, timezone: str) -> Rule:
    columns, key_of, repeats = _spread(table, schema, timezone)
    if repeats:
        raise repeated_times("LIST")
    places: dict[_Key, int] = {}
    rest: int | None = None
    for place, definition in enumerate(table.definitions):
        keys, is_default = _listed(definition, columns, timezone)
        if is_default:
            if rest is not None:
                raise PartitionError("two partitions are DEFAULT")
            rest = place
        for key in keys:
            if places.setdefault(key, place) != place:
                raise PartitionError("a value is listed for two partitions")

    def rule(row: CanonicalRow) -> int | None:
        return places.get(key_of(row), rest)

    return rule


def _spread(
    table: Partitioning, schema: TableSchema, timezone: str
) -> tuple[tuple[ColumnSchema, ...], Callable[[CanonicalRow], _Key], bool]:
    """Return the columns of RANGE COLUMNS or LIST COLUMNS, () for an expression, and a row's key.

    The third value is whether the expression is the moment of a TIMESTAMP whose text may mean two.
    """
    if table.method in (PartitionMethod.RANGE, PartitionMethod.LIST):
        what = table.method.name
        term = read_expression(table.expression, schema, timezone, PARTITION_WORDS)
        number = number_of(term, what, may_repeat=True)
        value_of = whole_number(number, what)
        return (), lambda row: (_part(value_of(row)),), number.repeats
    columns = tuple(find_column(schema, name) for name in table.columns)
    if not columns:
        raise PartitionError("the columns that partition the table are not understood")
    values = [read_by(column, column_reader(column).of_text) for column in columns]
    return columns, lambda row: tuple(_part(value_of(row)) for value_of in values), False


# A table whose oldest partition is dropped each day has a rule for each day, over nearly the same
# partitions.
@lru_cache(maxsize=_BOUNDS_KEPT)
def _less_than(
    definition: PartitionDefinition, columns: tuple[ColumnSchema, ...], timezone: str
) -> _Key:
    """Return the bound of a partition."""
    if definition.bound_kind is not BoundKind.LESS_THAN or definition.bound is None:
        raise PartitionError(f"partition {shorten(definition.name)} has no VALUES LESS THAN")
    cursor = cursor_over(definition.bound)
    if cursor.take("MAXVALUE") and cursor.done:
        return (_MAXVALUE,)  # alone, it means all columns
    cursor.at = 0
    bound = _take_key(cursor, columns, timezone)
    if _NULL in bound:
        raise PartitionError(f"the bound of partition {shorten(definition.name)} is NULL")
    _expect_done(cursor, definition)
    return bound


@lru_cache(maxsize=_BOUNDS_KEPT)
def _listed(
    definition: PartitionDefinition, columns: tuple[ColumnSchema, ...], timezone: str
) -> tuple[tuple[_Key, ...], bool]:
    """Return the values of VALUES IN, and whether DEFAULT is one of them."""
    if definition.bound_kind is BoundKind.DEFAULT:
        return (), True
    if definition.bound_kind is not BoundKind.IN or definition.bound is None:
        raise PartitionError(f"partition {shorten(definition.name)} has no VALUES IN")
    cursor = cursor_over(definition.bound)
    keys: list[_Key] = []
    is_default = False
    while not cursor.done:
        start = cursor.at
        cursor.skip_item()
        item = Cursor(cursor.tokens, start, cursor.at)
        if item.take("DEFAULT"):
            is_default = True
        else:
            group = item.take_group() if columns else None
            key = _take_key(item if group is None else group, columns, timezone)
            if _MAXVALUE in key:
                raise PartitionError("MAXVALUE is in a list of values")
            keys.append(key)
            if group is not None:
                _expect_done(group, definition)
        _expect_done(item, definition)
        cursor.take_char(",")
    return tuple(keys), is_default


def _take_key(cursor: Cursor, columns: Sequence[ColumnSchema], timezone: str) -> _Key:
    """Take one value for each column, with commas between them; without columns an integer."""
    if not columns:
        return (_part(integer_bound(cursor, timezone)),)
    parts: list[_Part] = []
    for column in columns:
        if parts and not cursor.take_char(","):
            raise PartitionError("a bound has fewer values than there are columns")
        if cursor.take("MAXVALUE"):
            parts.append(_MAXVALUE)
        elif cursor.take("NULL"):
            parts.append(_NULL)
        else:
            parts.append(_part(column_reader(column).of_literal(cursor)))
    return tuple(parts)


def _expect_done(cursor: Cursor, definition: PartitionDefinition) -> None:
    if not cursor.done or cursor.tokens.problem is not None:
        raise PartitionError(f"the bound of partition {shorten(definition.name)} is not understood")


PARTITION_RULES: Final[dict[PartitionMethod, Callable[[Partitioning, TableSchema, str], Rule]]] = {
    PartitionMethod.HASH: _hash_rule,
    PartitionMethod.KEY: _key_rule,
    PartitionMethod.RANGE: _range_rule,
    PartitionMethod.RANGE_COLUMNS: _range_rule,
    PartitionMethod.LIST: _list_rule,
    PartitionMethod.LIST_COLUMNS: _list_rule,
}
"""By the method the compilers of the function that gives the number of a row's partition."""
