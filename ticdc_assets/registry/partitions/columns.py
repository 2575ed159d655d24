"""Columns of RANGE COLUMNS, LIST COLUMNS and KEY: how their values compare, and how they hash.

In: a column's schema. Out: two readers that agree, one for a row's canonical text and one for a
bound's literal, whose values compare as TiDB compares the column's; or `PartitionError` where that
is uncertain for some value of the column or some version of TiDB.

Certain are integers, DATE, DATETIME, BINARY and VARBINARY, and text whose collation is one of a
short list of binary ones. TiDB ignores trailing spaces when it compares these, except for
`utf8mb4_0900_bin`. A cluster created without the new collations (the default before 6.0) does not:
there a row of LIST COLUMNS or KEY whose text ends in spaces can be in another partition than here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from ticdc_assets.base.errors import PartitionError, shorten
from ticdc_assets.model.mysql_types import (
    Kind,
    declared_length,
    fractional_digits,
    is_char,
    kind_of,
    lacks_size,
)
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.registry.ddl.tokens import HEX, Cursor
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.expressions.columns import parse_moment, read_by
from ticdc_assets.registry.expressions.dates import literal_moment
from ticdc_assets.registry.expressions.reader import integer_bound
from ticdc_assets.registry.expressions.terms import Moment
from ticdc_assets.registry.expressions.texts import BINARY_COLLATIONS

ColumnValue: TypeAlias = int | Moment | str | bytes
"""A value that compares with the others of its column as TiDB compares them."""


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """How the values of one column are read.

    Attributes:
        of_text: a value of a row, from its canonical text.
        of_literal: a value of a bound, at a cursor; None for NULL.
    """

    of_text: Callable[[str], ColumnValue]
    of_literal: Callable[[Cursor], ColumnValue | None]


@lru_cache(maxsize=1024)
def column_reader(column: ColumnSchema) -> ColumnReader:
    """Return the readers of `column`; PartitionError if the order of its values is uncertain."""
    build = _READERS.get(kind_of(column))
    if build is None:
        raise PartitionError(
            f"partitioned by column {shorten(column.name)} of kind {kind_of(column)}"
        )
    return build(column)


def _integers(column: ColumnSchema) -> ColumnReader:
    del column
    return ColumnReader(int, lambda cursor: integer_bound(cursor, "UTC"))


def _literal_text(cursor: Cursor, column: ColumnSchema) -> str:
    """Take a string literal, also one after DATE or TIMESTAMP."""
    if cursor.word() in ("DATE", "TIMESTAMP") and cursor.is_string(1):
        cursor.at += 1
    text = cursor.take_string()
    if text is None:
        raise PartitionError(f"a bound of {shorten(column.name)} is no string")
    return text


def _moments(column: ColumnSchema) -> ColumnReader:
    is_date = kind_of(column) is Kind.DATE
    # TiDB rounds a bound to the column's fraction in some versions and not in others.
    unit = 1_000_000 if lacks_size(column) else 10 ** (6 - fractional_digits(column))

    def of_literal(cursor: Cursor) -> ColumnValue:
        moment = literal_moment(_literal_text(cursor, column), "a bound")
        odd = moment.clock_microseconds if is_date else moment.microsecond % unit
        if moment.lacks_day or odd:
            raise PartitionError(f"a bound of {shorten(column.name)} is no value of the column")
        return moment

    return ColumnReader(parse_moment, of_literal)


_NOT_PADDED: Final = frozenset({"utf8mb4_0900_bin"})


def _texts(column: ColumnSchema) -> ColumnReader:
    collation = column.collation.lower()
    if collation not in BINARY_COLLATIONS:
        raise PartitionError(
            f"partitioned by {shorten(column.name)}, whose collation "
            + (f"{shorten(column.collation)} is no binary one" if collation else "is not known")
        )
    padded = collation not in _NOT_PADDED

    def of_text(text: str) -> ColumnValue:
        return text.rstrip(" ") if padded else text

    def of_literal(cursor: Cursor) -> ColumnValue:
        text = _literal_text(cursor, column)
        # With these the order depends on whether a cluster ignores trailing spaces.
        if text.endswith(" ") or any(char < " " for char in text):
            raise PartitionError(f"a bound of {shorten(column.name)} has unusual characters")
        return text

    return ColumnReader(of_text, of_literal)


def _bytes(column: ColumnSchema) -> ColumnReader:
    # BINARY(n) is filled up with zero bytes, in rows and, in some versions, in bounds.
    filled = is_char(column)

    def cut(value: bytes) -> bytes:
        return value.rstrip(b"\0") if filled else value

    def of_text(text: str) -> ColumnValue:
        return cut(bytes.fromhex(text.removeprefix("0x")))

    def of_literal(cursor: Cursor) -> ColumnValue:
        if cursor.raw().startswith("_") and cursor.kind(1) == HEX:
            cursor.at += 1
        if cursor.kind() != HEX:
            return cut(_literal_text(cursor, column).encode())
        raw = cursor.raw()
        digits = raw[2:] if raw.startswith("0") else raw[2:-1]
        cursor.at += 1
        return cut(bytes.fromhex(digits.zfill((len(digits) + 1) // 2 * 2)))

    return ColumnReader(of_text, of_literal)


_READERS: Final[dict[Kind, Callable[[ColumnSchema], ColumnReader]]] = {
    Kind.INTEGER: _integers,
    Kind.DATE: _moments,
    Kind.DATETIME: _moments,
    Kind.TEXT: _texts,
    Kind.BINARY: _bytes,
}


# ---------------------------------------------------------------------------------- hashes of KEY


def key_hasher(column: ColumnSchema) -> Callable[[CanonicalRow], bytes]:
    """Return the function that gives the bytes of a row's value that KEY hashes."""
    build = _HASHED.get(kind_of(column))
    if build is None:
        raise PartitionError(
            f"partitioned by KEY over column {shorten(column.name)} of kind {kind_of(column)}"
        )
    hashed_of = read_by(column, build(column))
    return lambda row: b"\0" if (hashed := hashed_of(row)) is None else hashed


def _hashed_datetime(column: ColumnSchema) -> Callable[[str], bytes]:
    if lacks_size(column):
        raise PartitionError(
            f"partitioned by KEY over {shorten(column.name)}, whose fraction is not known"
        )
    return str.encode


def _hashed_text(column: ColumnSchema) -> Callable[[str], bytes]:
    of_text = _texts(column).of_text
    return lambda text: str(of_text(text)).encode()


def _hashed_bytes(column: ColumnSchema) -> Callable[[str], bytes]:
    length = declared_length(column)
    if not is_char(column):
        length = 0
    elif length == 0:
        raise PartitionError(
            f"partitioned by KEY over {shorten(column.name)}, whose length is not known"
        )
    return lambda text: bytes.fromhex(text.removeprefix("0x")).ljust(length, b"\0")


_HASHED: Final[dict[Kind, Callable[[ColumnSchema], Callable[[str], bytes]]]] = {
    **dict.fromkeys((Kind.INTEGER, Kind.YEAR, Kind.DATE), lambda _: str.encode),
    Kind.DATETIME: _hashed_datetime,
    Kind.TEXT: _hashed_text,
    Kind.BINARY: _hashed_bytes,
}
