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
    float_scale,
    integer_range,
    is_unsigned,
    kind_of,
)
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import json_texts, moments, shapes
from ticdc_assets.model.values.canonical import datetime_text, parse_datetime
from ticdc_assets.model.values.datum import Datum, Moment, Span, TextCast, datum_of, through_datum
from ticdc_assets.model.values.floats import MAX_FLOAT32, double_text, float_text, to_float32

_WIDE = Context(prec=400, rounding=ROUND_HALF_UP)

_MAX_INT64: Final = 2**63 - 1
_MAX_DOUBLE: Final = float.fromhex("0x1.fffffffffffffp+1023")
_BEYOND: Final = 10**30
"""A number beyond every integer type."""

MAX_DECIMAL_DIGITS: Final = 80
"""Digits before the point up to which a DECIMAL is computed; TiDB's own has fewer."""


def to_integer(old: ColumnSchema, new: ColumnSchema, lenient: bool) -> TextCast:
    """Compile the cast from `old` to `new`, which is INTEGER."""
    low, high = integer_range(new)
    # TiDB clips the integers in JSON strings to 64 bits, whatever the column is.
    is_json = kind_of(old) is Kind.JSON

    def make(datum: Datum) -> str | None:
        number = _whole(datum, signed=low < 0, high=high, lenient=lenient)
        if number is None:
            return None
        if lenient and not (is_json and isinstance(datum, str)):
            number = min(max(number, low), high)
        return str(number) if low <= number <= high else None

    return _through_number(old, new, lenient, f"{low} to {high}", make)


def _whole(datum: Datum, *, signed: bool, high: int, lenient: bool) -> int | None:
    """Return the integer that TiDB makes of `datum`; doubles round to even, the rest half up.

    A lenient one may be out of range; the caller clips it.
    """
    match datum:
        case int():
            return datum
        case float():
            number = round(datum)
            # TiDB compares doubles, and the double of the highest BIGINT is one above it.
            return high if signed and number == high + 1 and float(high) == datum else number
        case Decimal():
            if not signed and datum.is_signed():
                return 0 if lenient else None
            if lenient and datum.adjusted() > MAX_DECIMAL_DIGITS:
                return -_BEYOND if datum.is_signed() else _BEYOND
            return _round_decimal(datum)
        case str():
            if lenient:
                return _whole_prefix(datum)
            exact = _parse_number(_before_nul(datum))
            return None if exact is None else _round_decimal(exact)
        case Moment():
            return _whole_moment(datum, signed=signed)
        case Span():
            if signed:
                rounded = moments.round_span(moments.span_of_text(datum.text), 0)
                return int(Span(moments.span_text(rounded, 0)).number())
            if datum.text.startswith("-"):
                return 0 if lenient else None
            return _round_decimal(datum.number())


def _whole_moment(moment: Moment, *, signed: bool) -> int | None:
    if not signed or "." not in moment.text:
        return _round_decimal(moment.number())
    value = parse_datetime(moment.text)
    rounded = None if value is None else moments.round_datetime(value, 0)
    return None if rounded is None else int(Moment(datetime_text(rounded, 0)).number())


def _rounded_decimal(number: Decimal, places: int = 0) -> Decimal | None:
    """Return `number` with `places` digits after the point, halves away from zero."""
    if number.adjusted() > MAX_DECIMAL_DIGITS:
        return None
    return number.quantize(Decimal(1).scaleb(-places), context=_WIDE)


def _shifted_decimal(number: Decimal, places: int) -> Decimal:
    """Return `number` times ten to the power of `places`, with all its digits.

    `Decimal.scaleb` would round to the 28 digits of the usual context; a DECIMAL has up to 65.
    """
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # a number of MySQL is finite
    return Decimal((sign, digits, exponent + places))


def _round_decimal(number: Decimal) -> int | None:
    rounded = _rounded_decimal(number)
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


_NUMBER_PREFIX = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")
_DECIMAL_PREFIX = re.compile(
    r"[ \t]*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]\s*([+-]?[0-9]*))?"
)


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
    number = _rounded_decimal(_shifted_decimal(Decimal(mantissa), exponent))
    return beyond if number is None else int(number)


def to_year(old: ColumnSchema, new: ColumnSchema, lenient: bool) -> TextCast:
    """Compile the cast from `old` to `new`, which is YEAR."""
    from_text = kind_of(old) in (Kind.TEXT, Kind.BINARY, Kind.JSON)

    def make(datum: Datum) -> str | None:
        if isinstance(datum, Moment):
            year = int(datum.text[:4])
        else:
            year = _whole(datum, signed=True, high=_MAX_INT64, lenient=lenient)
        if year is None:
            return None
        if lenient and not -(2**63) <= year <= _MAX_INT64:
            return "0" if from_text else None
        # A text that is 0 is the year 2000, unless it has four digits.
        is_2000 = isinstance(datum, str) and len(datum) != 4 and datum.strip()[:1] == "0"
        if (lenient and year < 0) or (year == 0 and not is_2000):
            return "0"
        year = moments.full_year(year) if year >= 0 else year
        if lenient:
            year = min(max(year, 1901), 2155)
        return str(year) if 1901 <= year <= 2155 else None

    return _through_number(old, new, lenient, "0 or 1901 to 2155", make)


def to_bit(old: ColumnSchema, new: ColumnSchema, lenient: bool) -> TextCast:
    """Compile the cast from `old` to `new`, which is BIT."""
    high = 2 ** bit_width(new) - 1

    def make(datum: Datum) -> str | None:
        number = _whole(datum, signed=False, high=high, lenient=lenient)
        if number is None:
            return None
        if isinstance(datum, int) and number < 0:
            number += 2**64
        if lenient:
            number = min(max(number, 0), high)
        return str(number) if 0 <= number <= high else None

    return _through_number(old, new, lenient, f"0 to {high}", make)


def to_decimal(old: ColumnSchema, new: ColumnSchema, lenient: bool) -> TextCast:
    """Compile the cast from `old` to `new`, which is DECIMAL with a declared precision."""
    precision, scale = decimal_size(new) or (0, 0)
    zero = Decimal(0).scaleb(-scale)
    most = _shifted_decimal(Decimal(10**precision - 1), -scale)
    least = zero if is_unsigned(new) else most.copy_negate()

    def make(datum: Datum) -> str | None:
        if lenient and isinstance(datum, str):
            number = _decimal_prefix(datum)
        else:
            number = _exact_number(datum)
        rounded = None if number is None else _rounded_decimal(number, scale)
        if lenient and number is not None:
            rounded = min(max(number if rounded is None else rounded, least), most)
        if rounded is None or not least <= rounded <= most:
            return None
        return format(rounded or zero, "f")

    return _through_number(old, new, lenient, f"decimal({precision},{scale})", make)


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
    return _shifted_decimal(number, min(places, 10 * MAX_DECIMAL_DIGITS))


def to_float(old: ColumnSchema, new: ColumnSchema, lenient: bool) -> TextCast:
    """Compile the cast from `old` to `new`, which is FLOAT or DOUBLE."""
    highest = MAX_FLOAT32 if kind_of(new) is Kind.FLOAT else _MAX_DOUBLE
    scale, length, unsigned = float_scale(new), declared_length(new), is_unsigned(new)

    def exact(datum: Datum) -> float | None:
        number = _float_number(datum)
        if number is None or number - number != 0 or (unsigned and number < 0):
            return None
        if scale is not None:
            if not number.is_integer():
                if scale < 0:
                    return None
                number = round(number * 10.0**scale) / 10.0**scale
            if abs(number) >= 10.0 ** (length - max(scale, 0)):
                return None
        return number if abs(number) <= highest else None

    def clipped(datum: Datum) -> float | None:
        if isinstance(datum, str):
            prefix = _NUMBER_PREFIX.match(datum.strip())
            number = float(prefix[0]) if prefix is not None else 0.0
        else:
            number = _float_number(datum)
        if number is None:
            return None
        number = min(max(number, -_MAX_DOUBLE), _MAX_DOUBLE)
        if unsigned and number < 0:
            return 0.0
        if scale is not None:
            if scale < 0:
                return None
            most = 10.0 ** (length - scale) - 10.0**-scale
            shifted = number * 10.0**scale
            if abs(shifted) != float("inf"):
                number = round(shifted) / 10.0**scale
            number = min(max(number, -most), most)
        return min(max(number, -highest), highest)

    def make(datum: Datum) -> str | None:
        number = clipped(datum) if lenient else exact(datum)
        if number is None:
            return None
        return float_text(to_float32(number)) if highest == MAX_FLOAT32 else double_text(number)

    return _through_number(old, new, lenient, f"a {new.mysql_type}", make)


def _float_number(datum: Datum) -> float | None:
    """Return `datum` as a double; None for text that is no number."""
    match datum:
        case int() | float() | Decimal():
            return float(datum)
        case str():
            number = _parse_number(_before_nul(datum))
            return None if number is None else float(number)
        case Moment() | Span():
            return float(datum.number())


def _through_number(
    old: ColumnSchema,
    new: ColumnSchema,
    lenient: bool,
    expected: str,
    make: Callable[[Datum], str | None],
) -> TextCast:
    """Return the cast by way of a datum; what `make` cannot do is a `CastError`."""
    if not lenient:
        return through_datum(old, new, expected=expected, make=make)
    read = _json_scalar if kind_of(old) is Kind.JSON else datum_of(old, errors="replace")
    expected = f"what TiDB makes a {new.mysql_type} in every SQL mode"
    return through_datum(old, new, expected=expected, make=make, read=read)


def _json_scalar(text: str) -> Datum:
    value = json_texts.read_json(text)
    if isinstance(value, bool):
        return int(value)
    # Objects, arrays and null count as 0.
    return value if isinstance(value, int | float | str) else 0
