"""Which column changes leave every value as it is.

A change that is listed here needs no work on a mirror; any other goes through `cast_of`, which also
checks. A change missing here costs time only.
"""

from collections.abc import Callable
from typing import Final

from ticdc_assets.model.mysql_types import (
    Kind,
    base_type,
    decimal_size,
    declared_length,
    fractional_digits,
    integer_range,
    is_char,
    is_unsigned,
    lacks_size,
)
from ticdc_assets.model.schemas import ColumnSchema

TEXT_LIMITS: Final = {
    "tinytext": 2**8 - 1,
    "text": 2**16 - 1,
    "mediumtext": 2**24 - 1,
    "longtext": 2**32 - 1,
}
"""The most bytes of each TEXT type."""

_DEFAULT_LENGTHS: Final = {"float": 12, "double": 22}
_UNIVERSAL_CHARSETS: Final = frozenset({"", "utf8mb4", "latin1"})


def float_scale(column: ColumnSchema) -> int | None:
    """Return the D of FLOAT(M,D): None without a D, -1 if it was not sent."""
    if column.decimal > 0:
        return column.decimal
    length = declared_length(column)
    return None if length in (0, _DEFAULT_LENGTHS[base_type(column)]) else -1


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


def _widens_integer(old: ColumnSchema, new: ColumnSchema) -> bool:
    low, high = integer_range(old)
    new_low, new_high = integer_range(new)
    return new_low <= low and high <= new_high


def _widens_float(old: ColumnSchema, new: ColumnSchema) -> bool:
    return float_scale(new) is None and not (is_unsigned(new) and not is_unsigned(old))


def _widens_decimal(old: ColumnSchema, new: ColumnSchema) -> bool:
    old_size, new_size = decimal_size(old), decimal_size(new)
    if old_size is None or new_size is None or (is_unsigned(new) and not is_unsigned(old)):
        return False
    return old_size[1] == new_size[1] and old_size[0] <= new_size[0]


def _widens_fraction(old: ColumnSchema, new: ColumnSchema) -> bool:
    if lacks_size(old) or lacks_size(new):
        return False
    return fractional_digits(old) == fractional_digits(new)


def _widens_text(old: ColumnSchema, new: ColumnSchema) -> bool:
    if new.charset not in (old.charset, *_UNIVERSAL_CHARSETS) or (
        is_char(new) and not is_char(old)
    ):
        return False
    # TiDB compares only the lengths, characters with bytes, and then leaves the values alone.
    length = text_length(new)
    return not length or 0 < text_length(old) <= length


def text_length(column: ColumnSchema) -> int:
    """Return the length of a text column: characters, for the TEXT types bytes; 0 if unknown."""
    return TEXT_LIMITS.get(base_type(column)) or declared_length(column)


def _widens_binary(old: ColumnSchema, new: ColumnSchema) -> bool:
    if is_char(new):
        return is_char(old) and declared_length(old) == declared_length(new)
    length = declared_length(new)
    return not length or 0 < declared_length(old) <= length


def _widens_enum(old: ColumnSchema, new: ColumnSchema) -> bool:
    return bool(old.elements) and set(old.elements) <= set(new.elements)


def _widens_set(old: ColumnSchema, new: ColumnSchema) -> bool:
    labels = set(old.elements)
    return (
        bool(labels) and tuple(label for label in new.elements if label in labels) == old.elements
    )


def _always(old: ColumnSchema, new: ColumnSchema) -> bool:
    del old, new
    return True


def _widens_vector(old: ColumnSchema, new: ColumnSchema) -> bool:
    return declared_length(new) in (0, declared_length(old))


WIDENS: dict[Kind, Callable[[ColumnSchema, ColumnSchema], bool]] = {
    Kind.INTEGER: _widens_integer,
    Kind.BIT: _widens_integer,
    Kind.YEAR: _always,
    Kind.DECIMAL: _widens_decimal,
    Kind.FLOAT: _widens_float,
    Kind.DOUBLE: _widens_float,
    Kind.DATE: _always,
    Kind.DATETIME: _widens_fraction,
    Kind.TIMESTAMP: _widens_fraction,
    Kind.TIME: _widens_fraction,
    Kind.TEXT: _widens_text,
    Kind.BINARY: _widens_binary,
    Kind.ENUM: _widens_enum,
    Kind.SET: _widens_set,
    Kind.JSON: _always,
    Kind.VECTOR: _widens_vector,
}
