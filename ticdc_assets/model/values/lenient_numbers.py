"""What a lenient SQL mode stores of a value that does not fit INTEGER, YEAR, BIT, DECIMAL or FLOAT.

Numbers are clipped to the nearest value of the column, texts are read as far as they are numbers,
and anything else is 0 (pingcap/tidb pkg/types/convert.go and pkg/types/mydecimal.go). None means
that the DDL would have failed in every SQL mode, or that the outcome is not known.
"""

import re
from collections.abc import Callable
from decimal import Decimal
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
from ticdc_assets.model.values import json_texts, moments
from ticdc_assets.model.values.cast_numbers import (
    MAX_DECIMAL_DIGITS,
    float_number,
    rounded_decimal,
    shifted_decimal,
    whole_number,
)
from ticdc_assets.model.values.datum import (
    Datum,
    Moment,
    Span,
    TextCast,
    datum_of,
    through_datum,
)
from ticdc_assets.model.values.floats import MAX_FLOAT32, double_text, float_text, to_float32
from ticdc_assets.model.values.widening import float_scale

_MAX_INT64: Final = 2**63 - 1
_MAX_DOUBLE: Final = float.fromhex("0x1.fffffffffffffp+1023")
_BEYOND: Final = 10**30
"""A number beyond every integer type."""

_NUMBER_PREFIX = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")
_DECIMAL_PREFIX = re.compile(
    r"[ \t]*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]\s*([+-]?[0-9]*))?"
)


def to_integer(old: ColumnSchema, new: ColumnSchema) -> TextCast:
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


def to_year(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is YEAR."""
    from_text = kind_of(old) in (Kind.TEXT, Kind.BINARY, Kind.JSON)

    def make(datum: Datum) -> str | None:
        two_digits = False
        if isinstance(datum, Moment):
            year: int | None = int(datum.text[:4])
        else:
            year = _whole(datum, signed=True, high=_MAX_INT64)
            two_digits = isinstance(datum, str) and len(datum) != 4 and datum.strip()[:1] == "0"
        if year is None or not -(2**63) <= year <= _MAX_INT64:
            return "0" if from_text and year is not None else None
        if year < 0 or (year == 0 and not two_digits):
            return "0"
        return str(min(max(moments.full_year(year), 1901), 2155))

    return _through_number(old, new, make)


def to_bit(old: ColumnSchema, new: ColumnSchema) -> TextCast:
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
            return whole_prefix(datum)
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


def whole_prefix(text: str) -> int:
    """Return the integer at the beginning of `text` as TiDB's `StrToInt` reads it; 0 for none."""
    found = _NUMBER_PREFIX.match(text.strip())
    if found is None:
        return 0
    exponent = int(found[1] or 0) if len(found[1] or "") < 20 else _BEYOND
    mantissa = found[0].lower().partition("e")[0]
    digits = len(mantissa.partition(".")[0])
    beyond = -_BEYOND if mantissa.startswith("-") else _BEYOND
    # TiDB counts digits here, zeros too.
    if found[1] is not None and exponent >= 0 and digits + exponent > 21:
        return beyond
    if digits + exponent < -1:
        return 0
    number = rounded_decimal(shifted_decimal(Decimal(mantissa), exponent))
    return beyond if number is None else int(number)


def to_decimal(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is DECIMAL."""
    size = decimal_size(new)
    if size is None:
        return _through_number(old, new, lambda _: None)
    precision, scale = size
    unsigned = is_unsigned(new)
    most = shifted_decimal(Decimal(10**precision - 1), -scale)
    least, zero = most.copy_negate(), Decimal(0)

    def make(datum: Datum) -> str | None:
        number = _exact(datum)
        if unsigned and number < 0:
            number = zero
        if number.adjusted() <= MAX_DECIMAL_DIGITS:
            number = rounded_decimal(number, scale) or zero
        clipped = min(max(number, least), most)
        return format(clipped if clipped else zero.scaleb(-scale), "f")

    return _through_number(old, new, make)


def _exact(datum: Datum) -> Decimal:
    match datum:
        case int() | Decimal():
            return Decimal(datum)
        case float():
            return Decimal(repr(datum))
        case str():
            return _decimal_prefix(datum)
        case Moment() | Span():
            return datum.number()


def _decimal_prefix(text: str) -> Decimal:
    """Return the number at the beginning of `text` as TiDB's `MyDecimal.FromString` reads it."""
    found = _DECIMAL_PREFIX.match(text)
    if found is None:
        return Decimal(0)
    exponent = (found[2] or "").strip("+")
    number = Decimal(found[1])
    if not number or exponent in ("", "-"):
        return number
    # Beyond these every number is 0, or more than any column holds.
    places = int(exponent) if len(exponent) < 20 else 0
    if len(exponent) >= 20 or number.adjusted() + places < -MAX_DECIMAL_DIGITS:
        return Decimal(0)
    return shifted_decimal(number, min(places, 10 * MAX_DECIMAL_DIGITS))


def to_float(old: ColumnSchema, new: ColumnSchema) -> TextCast:
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
    found = _NUMBER_PREFIX.match(text.strip())
    return float(found[0]) if found is not None else 0.0


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
