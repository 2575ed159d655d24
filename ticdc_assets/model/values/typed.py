"""Canonical text to the Python values of the mirror's typed columns, and back.

The law of this module: if `typed_of(text)` is not `UNFIT`, then `text_of` of it is `text` again
(for FLOAT and DOUBLE zero the sign may be lost on the way through storage). So a mirror stores NULL
where a value is `UNFIT`, keeps its text next to it, and never shows another value.

`UNFIT` values are: days that do not exist (zero dates, 2024-02-30), the year 0, local times that a
clock change skipped, decimals or fractions with more digits than declared, a negative zero DECIMAL.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

import pyarrow as pa

from ticdc_assets.base.errors import ImageError
from ticdc_assets.model.mysql_types import (
    MAX_TYPED_DIGITS,
    Kind,
    arrow_type,
    decimal_size,
    exceeds_int64,
    fractional_digits,
    integer_range,
    kind_of,
    lacks_size,
)
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import shapes
from ticdc_assets.model.values.canonical import datetime_text, parse_datetime
from ticdc_assets.model.values.floats import double_text, float_text, to_float32
from ticdc_assets.model.values.physical import binary_bytes
from ticdc_assets.model.values.zones import changefeed_zone, offset_of_hour, to_utc


class Unfit(Enum):
    """The type of `UNFIT`."""

    UNFIT = "unfit"


UNFIT: Final = Unfit.UNFIT
"""The value that the typed column cannot hold exactly."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # DATETIME has no zone
_EPOCH_UTC = _EPOCH.replace(tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()

_is_date = shapes.DATE.fullmatch


def typed_of(column: ColumnSchema, timezone: str) -> Callable[[str], Any]:
    """Compile the converter from canonical text of `column` to typed values or `UNFIT`.

    Typed values are int, float, str, bytes, `Decimal` (DECIMAL up to 38 digits, BIGINT UNSIGNED,
    BIT(64)), `date`, naive `datetime` (DATETIME), aware `datetime` in UTC (TIMESTAMP) and a list of
    floats (VECTOR): what Arrow takes for `arrow_type(column)`. For a column that `lacks_size` they
    are the canonical text itself.

    Raises:
        ConfigError: `timezone` is needed (a TIMESTAMP column) and is not a zone.
    """
    return str if lacks_size(column) else _converters(column)[0](column, timezone)


_compiled: Final = lru_cache(maxsize=4096)(typed_of)


def typed_array(
    column: ColumnSchema, timezone: str, texts: list[str | None]
) -> tuple[Any, list[bool] | None]:
    """Build the Arrow array of `arrow_type(column)` with what `typed_of` gives one by one.

    Histories go this way, and the few rows that the compiled loops of `values.columns` leave: their
    rows are resolved one by one, which costs twenty times as much as this.

    Returns:
        The array, with nulls for NULL and for `UNFIT` values, and one flag for each text, True
        where it was `UNFIT`; None instead of the flags if no text was.

    Raises:
        ConfigError: `timezone` is needed (a TIMESTAMP column) and is no zone.
    """
    wanted, convert = arrow_type(column), _compiled(column, timezone)
    values = [None if text is None else convert(text) for text in texts]
    unfit = [value is UNFIT for value in values]
    if True not in unfit:
        return pa.array(values, wanted), None
    return pa.array([None if value is UNFIT else value for value in values], wanted), unfit


def text_of(column: ColumnSchema, timezone: str) -> Callable[[Any], str]:
    """Compile the converter from typed values of `column` to canonical text.

    It takes what Arrow's `as_py()` and `to_pylist()` give for `arrow_type(column)`. A DATETIME or
    TIMESTAMP may also be an int of microseconds since 1970 (a TIMESTAMP's in UTC), a DATE an int of
    days; a naive `datetime` of a TIMESTAMP is taken as UTC. NULL is not a typed value.

    Raises:
        ConfigError: `timezone` is needed (a TIMESTAMP column) and is not a zone.
    """
    return str if lacks_size(column) else _converters(column)[1](column, timezone)


def _typed_integer(column: ColumnSchema) -> Callable[[str], Any]:
    low, high = integer_range(column)
    wide = exceeds_int64(column)

    def typed(text: str) -> Any:
        if shapes.INTEGER.fullmatch(text) is None:
            return UNFIT
        number = int(text)
        if not low <= number <= high or str(number) != text:
            return UNFIT
        return Decimal(number) if wide else number

    return typed


def _typed_decimal(column: ColumnSchema) -> Callable[[str], Any]:
    size = decimal_size(column)
    if size is None or size[0] > MAX_TYPED_DIGITS:
        return str
    is_canonical = shapes.decimal_pattern(*size).fullmatch

    def typed(text: str) -> Any:
        if is_canonical(text) is None:
            return UNFIT
        value = Decimal(text)
        return UNFIT if not value and text[0] == "-" else value

    return typed


def _decimal_text(value: Any) -> str:
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _exact_number(
    text: str,
    *,
    short: int,
    narrow: Callable[[float], float],
    print_number: Callable[[float], str],
) -> Any:
    if shapes.SHORTEST.fullmatch(text) is None:
        return UNFIT
    number = narrow(float(text))
    # So few digits always survive; longer texts are printed again to be sure.
    if len(text) <= short or (number - number == 0 and print_number(number) == text):
        return number
    return UNFIT


_typed_float: Final = partial(_exact_number, short=6, narrow=to_float32, print_number=float_text)
_typed_double: Final = partial(_exact_number, short=15, narrow=float, print_number=double_text)


def _typed_date(text: str) -> Any:
    if _is_date(text) is None:
        return UNFIT
    try:
        return date.fromisoformat(text)
    except ValueError:
        return UNFIT


def _date_text(value: Any) -> str:
    if isinstance(value, int):
        value = date.fromordinal(_EPOCH_DAY + value)
    return value.isoformat()


def _typed_datetime(column: ColumnSchema) -> Callable[[str], Any]:
    is_canonical = shapes.datetime_pattern(fractional_digits(column)).fullmatch

    def typed(text: str) -> Any:
        if is_canonical(text) is None:
            return UNFIT
        return parse_datetime(text) or UNFIT

    return typed


def _datetime_text(column: ColumnSchema) -> Callable[[Any], str]:
    digits = fractional_digits(column)

    def text(value: Any) -> str:
        if isinstance(value, int):
            value = _EPOCH + timedelta(microseconds=value)
        return datetime_text(value, digits)

    return text


def _typed_timestamp(column: ColumnSchema, timezone: str) -> Callable[[str], Any]:
    zone = changefeed_zone(timezone)
    is_canonical = shapes.datetime_pattern(fractional_digits(column)).fullmatch

    def typed(text: str) -> Any:
        if is_canonical(text) is None:
            return UNFIT
        local = parse_datetime(text)
        if local is None:
            return UNFIT
        offset = offset_of_hour(zone, text[:13])
        if offset is None:
            return to_utc(local, zone) or UNFIT
        return local.replace(tzinfo=UTC) - offset

    return typed


def _timestamp_text(column: ColumnSchema, timezone: str) -> Callable[[Any], str]:
    zone = changefeed_zone(timezone)
    digits = fractional_digits(column)

    def text(value: Any) -> str:
        if isinstance(value, int):
            value = _EPOCH_UTC + timedelta(microseconds=value)
        elif value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
        return datetime_text(value.astimezone(zone).replace(tzinfo=None), digits)

    return text


def _typed_binary(column: ColumnSchema) -> Callable[[str], Any]:
    def typed(text: str) -> Any:
        try:
            return binary_bytes(text, column)
        except ImageError:
            return UNFIT

    return typed


def _typed_vector(text: str) -> Any:
    if text[:1] != "[" or text[-1:] != "]":
        return UNFIT
    if text == "[]":
        return []
    values = [_typed_float(item) for item in text[1:-1].split(",")]
    return UNFIT if UNFIT in values else values


_Build: TypeAlias = Callable[[ColumnSchema, str], Callable[[Any], Any]]


def _always(convert: Callable[[Any], Any]) -> _Build:
    return lambda _column, _timezone: convert


def _sized(build: Callable[[ColumnSchema], Callable[[Any], Any]]) -> _Build:
    return lambda column, _timezone: build(column)


_TEXTS: Final = (_always(str), _always(str))
_CONVERTERS: Final[Mapping[Kind, tuple[_Build, _Build]]] = {
    **dict.fromkeys(
        (Kind.INTEGER, Kind.BIT, Kind.YEAR),
        (_sized(_typed_integer), _always(lambda value: str(int(value)))),
    ),
    Kind.DECIMAL: (_sized(_typed_decimal), _always(_decimal_text)),
    Kind.FLOAT: (_always(_typed_float), _always(float_text)),
    Kind.DOUBLE: (_always(_typed_double), _always(double_text)),
    Kind.DATE: (_always(_typed_date), _always(_date_text)),
    Kind.DATETIME: (_sized(_typed_datetime), _sized(_datetime_text)),
    Kind.TIMESTAMP: (_typed_timestamp, _timestamp_text),
    Kind.BINARY: (_sized(_typed_binary), _always(lambda value: "0x" + value.hex())),
    Kind.VECTOR: (
        _always(_typed_vector),
        _always(lambda value: f"[{','.join(map(float_text, value))}]"),
    ),
}
"""By kind the compilers to typed values, and back; the values of other kinds are texts."""


def _converters(column: ColumnSchema) -> tuple[_Build, _Build]:
    return _CONVERTERS.get(kind_of(column), _TEXTS)
