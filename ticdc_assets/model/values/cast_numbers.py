"""Casts to INTEGER, YEAR, BIT, DECIMAL, FLOAT and DOUBLE, in strict and in lenient SQL modes.

In TiDB a double becomes an integer by rounding to even, everything else by rounding halves away
from zero (pingcap/tidb pkg/types/convert.go and pkg/types/mydecimal.go).

A lenient mode clips numbers to the nearest value of the column, reads texts as far as they are
numbers, and makes 0 of anything else. There None means that the DDL would have failed in every SQL
mode, or that the outcome is not known.
"""

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

from ticdc_assets.model.mysql_types import (
    Kind,
    bit_width,
    decimal_size,
    declared_length,
    integer_range,
    is_unsigned,
    kind_of,
)
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import json_texts, moments, shapes
from ticdc_assets.model.values.canonical import datetime_text, parse_datetime
from ticdc_assets.model.values.datum import Datum, Moment, Span, TextCast, datum_of, through_datum
from ticdc_assets.model.values.floats import MAX_FLOAT32, double_text, float_text, to_float32
from ticdc_assets.model.values.widening import float_scale

_WIDE = Context(prec=400, rounding=ROUND_HALF_UP)

_MAX_INT64: Final = 2**63 - 1

MAX_DECIMAL_DIGITS: Final = 80
"""Digits before the point up to which a DECIMAL is computed; TiDB's own has fewer."""


def to_integer(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from `old` to `new`, which is INTEGER."""
    low, high = integer_range(new)

    def make(datum: Datum) -> str | None:
        number = whole_number(datum, signed=low < 0, high=high)
        return str(number) if number is not None and low <= number <= high else None

    return through_datum(old, new, expected=f"{low} to {high}", make=make)


def whole_number(datum: Datum, *, signed: bool, high: int) -> int | None:
    """Return the integer that TiDB makes of `datum`; doubles round to even, the rest half up."""
    match datum:
        case int():
            return datum
        case float():
            number = round(datum)
            # TiDB compares doubles, and the double of the highest BIGINT is one above it.
            return high if signed and number == high + 1 and float(high) == datum else number
        case Decimal():
            if not signed and datum.is_signed():
                return None
            return _round_decimal(datum)
        case str():
            return _parse_whole(datum)
        case Moment():
            return _whole_moment(datum, signed=signed)
        case Span():
            if signed:
                rounded = moments.round_span(moments.span_of_text(datum.text), 0)
                return int(Span(moments.span_text(rounded, 0)).number())
            return None if datum.text.startswith("-") else _round_decimal(datum.number())


def _whole_moment(moment: Moment, *, signed: bool) -> int | None:
    if not signed or "." not in moment.text:
        return _round_decimal(moment.number())
    value = parse_datetime(moment.text)
    rounded = None if value is None else moments.round_datetime(value, 0)
    return None if rounded is None else int(Moment(datetime_text(rounded, 0)).number())


def rounded_decimal(number: Decimal, places: int = 0) -> Decimal | None:
    """Return `number` with `places` digits after the point, halves away from zero."""
    if number.adjusted() > MAX_DECIMAL_DIGITS:
        return None
    return number.quantize(Decimal(1).scaleb(-places), context=_WIDE)


def shifted_decimal(number: Decimal, places: int) -> Decimal:
    """Return `number` times ten to the power of `places`, with all its digits.

    `Decimal.scaleb` would round to the 28 digits of the usual context; a DECIMAL has up to 65.
    """
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # a number of MySQL is finite
    return Decimal((sign, digits, exponent + places))


def _round_decimal(number: Decimal) -> int | None:
    rounded = rounded_decimal(number)
    return None if rounded is None else int(rounded)


def _parse_number(text: str) -> Decimal | None:
    text = text.strip()
    # TiDB, like MySQL, ignores an "e" at the very end.
    number = text[:-1] if text[-1:] in ("e", "E") else text
    if shapes.NUMBER.fullmatch(number) is None or (number != text and "e" in number.lower()):
        return None
    return Decimal(number)


def _before_nul(text: str) -> str:
    """Return the number that TiDB reads from text padded with NULs, as a BINARY column pads it."""
    return text.partition("\0")[0]


def _parse_whole(text: str) -> int | None:
    number = _parse_number(_before_nul(text))
    return None if number is None else _round_decimal(number)


def to_year(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from `old` to `new`, which is YEAR."""

    def make(datum: Datum) -> str | None:
        year = _year(datum, whole_number)
        if year is None or (year == 0 and not _has_two_digits(datum)):
            return None if year is None else "0"
        if 0 <= year < 100:
            year = moments.full_year(year)
        return str(year) if 1901 <= year <= 2155 else None

    return through_datum(old, new, expected="0 or 1901 to 2155", make=make)


def _year(datum: Datum, whole: Callable[..., int | None]) -> int | None:
    """Return the year of a moment, or the integer that `whole` makes of any other datum."""
    if isinstance(datum, Moment):
        return int(datum.text[:4])
    return whole(datum, signed=True, high=_MAX_INT64)


def _has_two_digits(datum: Datum) -> bool:
    """Return whether TiDB reads a text that is 0 as the year 2000."""
    return isinstance(datum, str) and len(datum) != 4 and datum.strip()[:1] == "0"


def to_bit(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from `old` to `new`, which is BIT."""
    high = 2 ** bit_width(new) - 1

    def make(datum: Datum) -> str | None:
        number = whole_number(datum, signed=False, high=high)
        if isinstance(datum, int) and datum < 0:
            number = datum + 2**64
        return str(number) if number is not None and 0 <= number <= high else None

    return through_datum(old, new, expected=f"0 to {high}", make=make)


def to_decimal(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from `old` to `new`, which is DECIMAL."""
    size = decimal_size(new)
    unsigned = is_unsigned(new)

    def make(datum: Datum) -> str | None:
        number = _exact_number(datum)
        if number is None or size is None:
            return None
        rounded = rounded_decimal(number, size[1])
        if rounded is None or (rounded and rounded.adjusted() >= size[0] - size[1]):
            return None
        if number.is_signed() and rounded and unsigned:
            return None
        return format(rounded if rounded else abs(rounded), "f")

    expected = f"decimal({size[0]},{size[1]})" if size else "a declared precision"
    return through_datum(old, new, expected=expected, make=make)


def _exact_number(datum: Datum) -> Decimal | None:
    match datum:
        case int() | Decimal():
            return Decimal(datum)
        case float():
            return Decimal(repr(datum))
        case str():
            stripped = datum.strip()
            # TiDB skips no other space before a DECIMAL.
            if stripped[-1:] in ("e", "E") or not datum.lstrip(" \t").startswith(stripped):
                return None
            return _parse_number(stripped)
        case Moment() | Span():
            return datum.number()


def to_float(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from `old` to `new`, which is FLOAT or DOUBLE."""
    narrow = kind_of(new) is Kind.FLOAT
    scale = float_scale(new)
    unsigned = is_unsigned(new)
    highest = 10.0 ** (declared_length(new) - max(scale, 0)) if scale is not None else 0.0

    def make(datum: Datum) -> str | None:
        number = float_number(datum)
        if number is None or number - number != 0 or (unsigned and number < 0):
            return None
        if scale is not None:
            if not number.is_integer():
                if scale < 0:
                    return None
                number = round(number * 10.0**scale) / 10.0**scale
            if abs(number) >= highest:
                return None
        if not narrow:
            return double_text(number)
        return float_text(to_float32(number)) if abs(number) <= MAX_FLOAT32 else None

    return through_datum(old, new, expected=f"a {new.mysql_type}", make=make)


def float_number(datum: Datum) -> float | None:
    """Return `datum` as a double; None for text that is no number."""
    match datum:
        case int() | float() | Decimal():
            return float(datum)
        case str():
            number = _parse_number(_before_nul(datum))
            return None if number is None else float(number)
        case Moment() | Span():
            return float(datum.number())


# ------------------------------------------------------------------------------- lenient SQL modes

_MAX_DOUBLE: Final = float.fromhex("0x1.fffffffffffffp+1023")
_BEYOND: Final = 10**30
"""A number beyond every integer type."""

_NUMBER_PREFIX = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")
_DECIMAL_PREFIX = re.compile(
    r"[ \t]*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]\s*([+-]?[0-9]*))?"
)


def lenient_integer(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is INTEGER."""
    low, high = integer_range(new)
    # TiDB clips the integers in JSON strings to 64 bits, whatever the column is.
    clips = kind_of(old) is not Kind.JSON

    def make(datum: Datum) -> str | None:
        number = _whole(datum, signed=low < 0, high=high)
        if number is None or (isinstance(datum, str) and not clips and not low <= number <= high):
            return None
        return str(min(max(number, low), high))

    return _through_number(old, new, make)


def lenient_year(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is YEAR."""
    from_text = kind_of(old) in (Kind.TEXT, Kind.BINARY, Kind.JSON)

    def make(datum: Datum) -> str | None:
        year = _year(datum, _whole)
        if year is None or not -(2**63) <= year <= _MAX_INT64:
            return "0" if from_text and year is not None else None
        if year < 0 or (year == 0 and not _has_two_digits(datum)):
            return "0"
        return str(min(max(moments.full_year(year), 1901), 2155))

    return _through_number(old, new, make)


def lenient_bit(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is BIT."""
    high = 2 ** bit_width(new) - 1

    def make(datum: Datum) -> str | None:
        number = _whole(datum, signed=False, high=high)
        if number is None:
            return None
        if isinstance(datum, int) and number < 0:
            number += 2**64
        return str(min(max(number, 0), high))

    return _through_number(old, new, make)


def _whole(datum: Datum, *, signed: bool, high: int) -> int | None:
    """Return the integer, which the caller clips."""
    match datum:
        case str():
            return _whole_prefix(datum)
        case Decimal():
            if datum.is_signed() and not signed:
                return 0
            if datum.adjusted() > MAX_DECIMAL_DIGITS:
                return -_BEYOND if datum.is_signed() else _BEYOND
            return whole_number(datum, signed=signed, high=high)
        case Span() if not signed and datum.text.startswith("-"):
            return 0
        case int() | float() | Moment() | Span():
            return whole_number(datum, signed=signed, high=high)


def _whole_prefix(text: str) -> int:
    """Return the integer at the beginning of `text` as TiDB's `StrToInt` reads it; 0 for none."""
    prefix = _NUMBER_PREFIX.match(text.strip())
    if prefix is None:
        return 0
    exponent = int(prefix[1] or 0) if len(prefix[1] or "") < 20 else _BEYOND
    mantissa = prefix[0].lower().partition("e")[0]
    digits = len(mantissa.partition(".")[0])
    beyond = -_BEYOND if mantissa.startswith("-") else _BEYOND
    # TiDB counts digits here, zeros too.
    if prefix[1] is not None and exponent >= 0 and digits + exponent > 21:
        return beyond
    if digits + exponent < -1:
        return 0
    number = rounded_decimal(shifted_decimal(Decimal(mantissa), exponent))
    return beyond if number is None else int(number)


def lenient_decimal(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is DECIMAL."""
    size = decimal_size(new)
    if size is None:
        return _through_number(old, new, lambda _: None)
    precision, scale = size
    unsigned = is_unsigned(new)
    most = shifted_decimal(Decimal(10**precision - 1), -scale)
    least, zero = most.copy_negate(), Decimal(0)

    def make(datum: Datum) -> str | None:
        number = _decimal_prefix(datum) if isinstance(datum, str) else _exact_number(datum)
        if number is None:
            return None
        if unsigned and number < 0:
            number = zero
        if number.adjusted() <= MAX_DECIMAL_DIGITS:
            number = rounded_decimal(number, scale) or zero
        clipped = min(max(number, least), most)
        return format(clipped if clipped else zero.scaleb(-scale), "f")

    return _through_number(old, new, make)


def _decimal_prefix(text: str) -> Decimal:
    """Return the number at the beginning of `text` as TiDB's `MyDecimal.FromString` reads it."""
    prefix = _DECIMAL_PREFIX.match(text)
    if prefix is None:
        return Decimal(0)
    exponent = (prefix[2] or "").strip("+")
    number = Decimal(prefix[1])
    if not number or exponent in ("", "-"):
        return number
    # Beyond these every number is 0, or more than any column holds.
    places = int(exponent) if len(exponent) < 20 else 0
    if len(exponent) >= 20 or number.adjusted() + places < -MAX_DECIMAL_DIGITS:
        return Decimal(0)
    return shifted_decimal(number, min(places, 10 * MAX_DECIMAL_DIGITS))


def lenient_float(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is FLOAT or DOUBLE."""
    narrow = kind_of(new) is Kind.FLOAT
    scale, length = float_scale(new), declared_length(new)
    unsigned = is_unsigned(new)

    def make(datum: Datum) -> str | None:
        number = _float_prefix(datum) if isinstance(datum, str) else float_number(datum)
        if number is None:
            return None
        number = min(max(number, -_MAX_DOUBLE), _MAX_DOUBLE)
        if scale is not None:
            if scale < 0:
                return "0" if unsigned and number < 0 else None
            most = 10.0 ** (length - scale) - 10.0**-scale
            shifted = number * 10.0**scale
            if abs(shifted) != float("inf"):
                number = round(shifted) / 10.0**scale
            number = min(max(number, -most), most)
        if unsigned and number < 0:
            number = 0.0
        if not narrow:
            return double_text(number)
        return float_text(to_float32(min(max(number, -MAX_FLOAT32), MAX_FLOAT32)))

    return _through_number(old, new, make)


def _float_prefix(text: str) -> float:
    prefix = _NUMBER_PREFIX.match(text.strip())
    return float(prefix[0]) if prefix is not None else 0.0


def _through_number(
    old: ColumnSchema, new: ColumnSchema, make: Callable[[Datum], str | None]
) -> TextCast:
    """Return the lenient cast by way of a datum; what `make` cannot do is a `CastError`."""
    read = _json_scalar if kind_of(old) is Kind.JSON else datum_of(old, errors="replace")
    expected = f"what TiDB makes a {new.mysql_type} in every SQL mode"
    return through_datum(old, new, expected=expected, make=make, read=read)


def _json_scalar(text: str) -> Datum:
    value = json_texts.read_json(text)
    if isinstance(value, bool):
        return int(value)
    # Objects, arrays and null count as 0.
    return value if isinstance(value, int | float | str) else 0
