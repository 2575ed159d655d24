"""How the rows of a table are spread over its partitions, and which rows a change concerns.

In: PARTITION BY clauses and partition changes as `ddl.reader` reads them. Out: `Partitioning`, the
partitions at one moment, advanced by one change after another; the names of the partitions whose
rows a change removes; and a test whether a row is in one of them.

TiCDC sends no row events for DROP, TRUNCATE and EXCHANGE PARTITION, so this is the only way to know
their rows. A guess would make the mirror differ silently: whatever cannot be computed exactly for
every row raises `PartitionError`, with a reason for people, when the test is compiled. The test
fails only on a row that lacks a column it needs. The same history always gives the same partitions.

The rules are TiDB's where it differs from MySQL: LINEAR is ignored, and HASH reads an unsigned
integer as a signed one of 64 bits. Not done: subpartitions, which TiDB ignores; KEY over types
whose hash is uncertain; virtual columns, which no row has.

RANGE COLUMNS, LIST COLUMNS and KEY take integers, DATE, DATETIME, BINARY and VARBINARY, and text
whose collation is one of a short list of binary ones. TiDB ignores trailing spaces when it compares
these, except for `utf8mb4_0900_bin`. A cluster created without the new collations (the default
before 6.0) does not: there a row of LIST COLUMNS or KEY whose text ends in spaces can be in another
partition than here.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias
from zlib import crc32

from ticdc_assets.base.errors import PartitionError, shorten
from ticdc_assets.model.mysql_types import (
    Kind,
    declared_length,
    fractional_digits,
    is_char,
    kind_of,
    lacks_size,
)
from ticdc_assets.model.schemas import ColumnSchema, TableSchema
from ticdc_assets.registry.ddl.definitions import take_literal
from ticdc_assets.registry.ddl.statement import (
    BoundKind,
    DefaultForm,
    DefaultValue,
    PartitionAction,
    PartitionChange,
    PartitionDefinition,
    Partitioning,
    PartitionMethod,
)
from ticdc_assets.registry.ddl.tokens import Cursor
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.expressions.columns import find_column, parse_moment, read_by
from ticdc_assets.registry.expressions.dates import is_repeated, literal_moment
from ticdc_assets.registry.expressions.reader import (
    PARTITION_WORDS,
    cursor_over,
    integer_bound,
    read_expression,
)
from ticdc_assets.registry.expressions.terms import (
    Moment,
    integer_of,
    number_of,
    repeated_times,
    whole_number,
)
from ticdc_assets.registry.expressions.texts import BINARY_COLLATIONS

_MOST_PARTITIONS: Final = 8192
"""The most partitions TiDB allows; a text with more is an error or an attack."""

_COUNTED: Final = frozenset({PartitionMethod.HASH, PartitionMethod.KEY})
_RANGES: Final = frozenset({PartitionMethod.RANGE, PartitionMethod.RANGE_COLUMNS})


def partitions_of(partitioning: Partitioning) -> Partitioning:
    """Return the partitions of a PARTITION BY clause."""
    definitions = partitioning.definitions
    if partitioning.method in _COUNTED:
        definitions = _numbered(definitions, max(1, partitioning.count or 0, len(definitions)))
    return _checked(replace(partitioning, count=None, definitions=definitions))


def _numbered(
    definitions: tuple[PartitionDefinition, ...], count: int
) -> tuple[PartitionDefinition, ...]:
    if count > _MOST_PARTITIONS:
        raise PartitionError(f"more than {_MOST_PARTITIONS} partitions")
    added = range(len(definitions), count)
    return definitions + tuple(PartitionDefinition(name=f"p{number}") for number in added)


def _checked(partitions: Partitioning) -> Partitioning:
    names = {name.lower() for name in partitions.names}
    if not names:
        raise PartitionError("no partitions are listed")
    if len(names) != len(partitions.definitions):
        raise PartitionError("two partitions have one name")
    if len(names) > _MOST_PARTITIONS:
        raise PartitionError(f"more than {_MOST_PARTITIONS} partitions")
    return partitions


# -------------------------------------------------------------------------------------- changes


EMPTYING: Final = frozenset(
    {PartitionAction.DROP, PartitionAction.TRUNCATE, PartitionAction.EXCHANGE}
)
"""Partition DDL that removes or brings rows without row events."""


def emptied_partitions(partitions: Partitioning, change: PartitionChange) -> tuple[str, ...]:
    """Return the names of the partitions whose rows `change` removes, or swaps (EXCHANGE)."""
    if change.action not in EMPTYING:
        return ()
    if change.all_partitions:
        return partitions.names
    return tuple(partitions.names[place] for place in partitions.places(change.names))


def changed_partitions(
    partitions: Partitioning | None, change: PartitionChange
) -> Partitioning | None:
    """Return the partitions after `change`; None if the table has none, or if they are unknown."""
    if change.partitioning is not None:
        return partitions_of(change.partitioning)
    if partitions is None or change.action is PartitionAction.REMOVE_PARTITIONING:
        return None
    definitions, is_counted = partitions.definitions, partitions.method in _COUNTED
    match change.action:
        case PartitionAction.ADD if is_counted:
            definitions += change.definitions
            definitions = _numbered(definitions, len(definitions) + (change.count or 0))
        case PartitionAction.ADD:
            if not change.definitions:
                raise PartitionError("ADD PARTITION without partitions")
            definitions += change.definitions
        case PartitionAction.DROP:
            dropped = set(emptied_partitions(partitions, change))
            definitions = tuple(item for item in definitions if item.name not in dropped)
        case PartitionAction.COALESCE:
            count = change.count or 0
            if not is_counted or not 0 < count < len(definitions):
                raise PartitionError(
                    "COALESCE PARTITION does not fit the partitions that are known"
                )
            definitions = definitions[:-count]
        case PartitionAction.REORGANIZE if change.names:
            places = partitions.places(change.names)
            first, leaving = places[0], frozenset(places)
            if partitions.method in _RANGES and places[-1] + 1 - first != len(places):
                raise PartitionError("REORGANIZE PARTITION of partitions that are not side by side")
            left = [item for place, item in enumerate(definitions) if place not in leaving]
            definitions = (*left[:first], *change.definitions, *left[first:])
        case _:
            return partitions
    return _checked(replace(partitions, definitions=definitions))


# ----------------------------------------------------------------------------------------- rows

_Rule: TypeAlias = Callable[[CanonicalRow], int | None]
"""The number of a row's partition, None for no partition."""


def partition_test(
    partitions: Partitioning, names: tuple[str, ...], schema: TableSchema, timezone: str
) -> Callable[[CanonicalRow], bool]:
    """Compile the test whether a row of `schema` is in one of the partitions called `names`.

    Returns:
        A function that raises `PartitionError` for a row without a column it needs. A row that fits
        no partition is in none.

    Raises:
        PartitionError: it is not known exactly for every row.
    """
    wanted = frozenset(partitions.places(names))
    sent = tuple(column for column in schema.columns if not column.virtual)
    rule = _RULES[partitions.method](partitions, replace(schema, columns=sent), timezone)

    def is_in(row: CanonicalRow) -> bool:
        try:
            return rule(row) in wanted
        except (ValueError, OverflowError):
            raise PartitionError("a row's value is none of its column's type") from None

    return is_in


def _hash_rule(table: Partitioning, schema: TableSchema, timezone: str) -> _Rule:
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


def _key_rule(table: Partitioning, schema: TableSchema, _: str) -> _Rule:
    names = table.columns or next(
        (index.columns for index in schema.own_indexes if index.primary), None
    )
    if names is None:
        raise PartitionError("partitioned by KEY () and the primary key is not known")
    columns = [find_column(schema, name) for name in names]
    hashers = [read_by(column, _key_hasher(column)) for column in columns]
    count = len(table.definitions)

    def rule(row: CanonicalRow) -> int | None:
        hashed = (hasher(row) for hasher in hashers)
        return crc32(b"".join(b"\0" if item is None else item for item in hashed)) % count

    return rule


_ColumnValue: TypeAlias = int | Moment | str | bytes
"""A value that compares with the others of its column as TiDB compares them."""

_Part = tuple[int] | tuple[int, _ColumnValue]
_Key = tuple[_Part, ...]
"""The values by which a row is placed: one for each column, or that of the expression."""

_NULL: Final[_Part] = (0,)
_MAXVALUE: Final[_Part] = (2,)


def _part(value: _ColumnValue | None) -> _Part:
    return _NULL if value is None else (1, value)


def _range_rule(table: Partitioning, schema: TableSchema, timezone: str) -> _Rule:
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


def _list_rule(table: Partitioning, schema: TableSchema, timezone: str) -> _Rule:
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
    return lambda row: places.get(key_of(row), rest)


_RULES: Final[dict[PartitionMethod, Callable[[Partitioning, TableSchema, str], _Rule]]] = {
    PartitionMethod.HASH: _hash_rule,
    PartitionMethod.KEY: _key_rule,
    PartitionMethod.RANGE: _range_rule,
    PartitionMethod.RANGE_COLUMNS: _range_rule,
    PartitionMethod.LIST: _list_rule,
    PartitionMethod.LIST_COLUMNS: _list_rule,
}


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
    values = [read_by(column, _reader(column).of_text) for column in columns]
    return columns, lambda row: tuple(_part(value_of(row)) for value_of in values), False


# --------------------------------------------------------------------------------------- bounds

_BOUNDS_KEPT: Final = 1 << 16
"""Bounds that are cached: those of a few years of days, in several tables.

A table whose oldest partition is dropped each day has a rule for each day, over nearly the same
partitions.
"""


@lru_cache(maxsize=_BOUNDS_KEPT)
def _less_than(
    definition: PartitionDefinition, columns: tuple[ColumnSchema, ...], timezone: str
) -> _Key:
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
            parts.append(_part(_reader(column).of_literal(cursor)))
    return tuple(parts)


def _expect_done(cursor: Cursor, definition: PartitionDefinition) -> None:
    if not cursor.done or cursor.tokens.problem is not None:
        raise PartitionError(f"the bound of partition {shorten(definition.name)} is not understood")


# ---------------------------------------------------------------- values of columns, and hashes


@dataclass(frozen=True, slots=True)
class _Reader:
    """How values of one column are read: from canonical text, and from a bound's literal."""

    of_text: Callable[[str], _ColumnValue]
    of_literal: Callable[[Cursor], _ColumnValue | None]


@lru_cache(maxsize=1024)
def _reader(column: ColumnSchema) -> _Reader:
    """Return the readers of `column`; PartitionError if the order of its values is uncertain."""
    match kind_of(column):
        case Kind.INTEGER:
            return _Reader(int, lambda cursor: integer_bound(cursor, "UTC"))
        case Kind.DATE | Kind.DATETIME:
            return _moments(column)
        case Kind.TEXT:
            return _texts(column)
        case Kind.BINARY:
            return _bytes(column)
        case kind:
            raise PartitionError(f"partitioned by column {shorten(column.name)} of kind {kind}")


def _literal(cursor: Cursor, column: ColumnSchema, *forms: DefaultForm) -> DefaultValue:
    """Take a literal of one of these forms, a string also after DATE or TIMESTAMP."""
    literal = take_literal(cursor)
    if literal is None or literal.form not in forms:
        raise PartitionError(f"a bound of {shorten(column.name)} is no string")
    return literal


def _literal_text(cursor: Cursor, column: ColumnSchema) -> str:
    return _literal(cursor, column, DefaultForm.STRING).value or ""


def _moments(column: ColumnSchema) -> _Reader:
    is_date = kind_of(column) is Kind.DATE
    # TiDB rounds a bound to the column's fraction in some versions and not in others.
    unit = 1_000_000 if lacks_size(column) else 10 ** (6 - fractional_digits(column))

    def of_literal(cursor: Cursor) -> _ColumnValue:
        moment = literal_moment(_literal_text(cursor, column), "a bound")
        odd = moment.clock_microseconds if is_date else moment.microsecond % unit
        if moment.lacks_day or odd:
            raise PartitionError(f"a bound of {shorten(column.name)} is no value of the column")
        return moment

    return _Reader(parse_moment, of_literal)


def _texts(column: ColumnSchema) -> _Reader:
    collation = column.collation.lower()
    if collation not in BINARY_COLLATIONS:
        raise PartitionError(
            f"partitioned by {shorten(column.name)}, whose collation "
            + (f"{shorten(column.collation)} is no binary one" if collation else "is not known")
        )
    padded = collation != "utf8mb4_0900_bin"

    def of_literal(cursor: Cursor) -> _ColumnValue:
        text = _literal_text(cursor, column)
        # With these the order depends on whether a cluster ignores trailing spaces.
        if text.endswith(" ") or any(char < " " for char in text):
            raise PartitionError(f"a bound of {shorten(column.name)} has unusual characters")
        return text

    return _Reader(lambda text: text.rstrip(" ") if padded else text, of_literal)


def _bytes(column: ColumnSchema) -> _Reader:
    # BINARY(n) is filled up with zero bytes, in rows and, in some versions, in bounds.
    filled = is_char(column)

    def cut(value: bytes) -> bytes:
        return value.rstrip(b"\0") if filled else value

    def of_literal(cursor: Cursor) -> _ColumnValue:
        literal = _literal(cursor, column, DefaultForm.STRING, DefaultForm.HEX)
        value = literal.value or ""
        is_hex = literal.form is DefaultForm.HEX
        return cut(bytes.fromhex(value) if is_hex else value.encode())

    return _Reader(lambda text: cut(bytes.fromhex(text.removeprefix("0x"))), of_literal)


def _key_hasher(column: ColumnSchema) -> Callable[[str], bytes]:
    """Return the function from a value's canonical text to the bytes that KEY hashes."""
    what = f"partitioned by KEY over {shorten(column.name)}, whose"
    match kind_of(column):
        case Kind.INTEGER | Kind.YEAR | Kind.DATE:
            return str.encode
        case Kind.DATETIME:
            if lacks_size(column):
                raise PartitionError(f"{what} fraction is not known")
            return str.encode
        case Kind.TEXT:
            of_text = _texts(column).of_text
            return lambda text: str(of_text(text)).encode()
        case Kind.BINARY:
            length = declared_length(column) if is_char(column) else 0
            if is_char(column) and length == 0:
                raise PartitionError(f"{what} length is not known")
            return lambda text: bytes.fromhex(text.removeprefix("0x")).ljust(length, b"\0")
        case kind:
            raise PartitionError(
                f"partitioned by KEY over column {shorten(column.name)} of kind {kind}"
            )
