"""Which column changes leave every value as it is.

A change that is listed here needs no work on a mirror; any other goes through `cast_of`, which also
checks. A change missing here costs time only.
"""

from dataclasses import replace
from typing import Final

from ticdc_assets.model.mysql_types import (
    TEXT_LIMITS,
    Kind,
    base_type,
    decimal_size,
    declared_length,
    fractional_digits,
    integer_range,
    is_char,
    is_unsigned,
    kind_of,
    lacks_size,
)
from ticdc_assets.model.schemas import ColumnSchema

_DEFAULT_LENGTHS: Final = {"float": 12, "double": 22}
_UNIVERSAL_CHARSETS: Final = frozenset({"", "utf8mb4", "latin1"})


def float_scale(column: ColumnSchema) -> int | None:
    """Return the D of FLOAT(M,D): None without a D, -1 if it was not sent."""
    if column.decimal > 0:
        return column.decimal
    length = declared_length(column)
    return None if length in (0, _DEFAULT_LENGTHS[base_type(column)]) else -1


def of_any_scale(column: ColumnSchema) -> ColumnSchema:
    """Return a FLOAT(M,D) or DOUBLE(M,D) whose D was not sent as one without M and D.

    It holds the values of any D; other columns stay as they are.
    """
    if kind_of(column) not in (Kind.FLOAT, Kind.DOUBLE) or float_scale(column) != -1:
        return column
    return replace(column, length=0)


def same_type(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether the two columns hold the same values in the same way."""

    def shape(column: ColumnSchema) -> tuple[object, ...]:
        return (
            base_type(column),
            column.charset,
            column.length,
            column.decimal,
            column.elements,
            is_unsigned(column),
        )

    return shape(old) == shape(new)


def widens(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether `new`, of the same kind, holds all values of `old` as they are."""
    match kind_of(old):
        case Kind.INTEGER | Kind.BIT:
            (low, high), (new_low, new_high) = integer_range(old), integer_range(new)
            return new_low <= low and high <= new_high
        case Kind.DECIMAL:
            old_size, new_size = decimal_size(old), decimal_size(new)
            if old_size is None or new_size is None or _loses_sign(old, new):
                return False
            return old_size[1] == new_size[1] and old_size[0] <= new_size[0]
        case Kind.FLOAT | Kind.DOUBLE:
            if _loses_sign(old, new):
                return False
            scales = float_scale(old), float_scale(new)
            if scales[1] is None:
                return True
            if -1 in scales:
                # Without a DDL that says otherwise, D is as it was.
                return declared_length(old) == declared_length(new)
            return _keeps_digits(old, new)
        case Kind.DATETIME | Kind.TIMESTAMP | Kind.TIME:
            if lacks_size(old) or lacks_size(new):
                return False
            return fractional_digits(old) == fractional_digits(new)
        case Kind.TEXT:
            if new.charset not in (old.charset, *_UNIVERSAL_CHARSETS):
                return False
            # TiDB does not convert a TEXT that is no longer than the CHAR.
            if is_char(new) and not is_char(old) and base_type(old) not in TEXT_LIMITS:
                return False
            # TiDB compares only the lengths, characters with bytes, and leaves the values alone.
            length = text_length(new)
            return not length or 0 < text_length(old) <= length
        case Kind.BINARY:
            old_length, length = declared_length(old), declared_length(new)
            if is_char(new) and not base_type(old).endswith("blob"):
                return is_char(old) and old_length == length
            return not length or 0 < old_length <= length
        case Kind.ENUM:
            return bool(old.elements) and set(old.elements) <= set(new.elements)
        case Kind.SET:
            kept = tuple(label for label in new.elements if label in old.elements)
            return bool(old.elements) and kept == old.elements
        case Kind.VECTOR:
            return declared_length(new) in (0, declared_length(old))
        case Kind.YEAR | Kind.DATE | Kind.JSON:
            return True
        case Kind.UNKNOWN:
            return False


def _keeps_digits(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether TiDB rounds no value for a known D, as neither length nor D gets smaller."""
    length = declared_length(old)
    return (
        is_unsigned(old) == is_unsigned(new)
        and new.decimal >= max(old.decimal, 1)
        and 0 < length <= declared_length(new)
    )


def _loses_sign(old: ColumnSchema, new: ColumnSchema) -> bool:
    return is_unsigned(new) and not is_unsigned(old)


def text_length(column: ColumnSchema) -> int:
    """Return the length of a text column: characters, for the TEXT types bytes; 0 if unknown."""
    return TEXT_LIMITS.get(base_type(column)) or declared_length(column)
