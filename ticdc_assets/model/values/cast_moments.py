"""Casts to DATE, DATETIME, TIMESTAMP and TIME, in strict and in lenient SQL modes.

In a lenient mode a text, number or moment that is not a date becomes the zero date; a TIME is
clipped to its range, or read as far as it is valid (pingcap/tidb `handleZeroDatetime` in
pkg/table/column.go, `parseDatetime` and `matchDuration` in pkg/types). There None means that the
outcome is not known:

* dates with a zero month or day but for TIMESTAMP: NO_ZERO_IN_DATE decides;
* spellings of dates that `moments` does not read, and that may be dates for TiDB all the same;
* TIME to a date type, which takes the day of the change.

Dates such as 2024-02-30 become zero dates, as in all modes but ALLOW_INVALID_DATES.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from ticdc_assets.model.mysql_types import Kind, fractional_digits, is_unsigned, kind_of
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import moments
from ticdc_assets.model.values.canonical import datetime_text, parse_datetime
from ticdc_assets.model.values.datum import (
    Datum,
    Moment,
    Span,
    TextCast,
    refusing,
    through_datum,
    unquoted_datum_of,
)
from ticdc_assets.model.values.zones import changefeed_zone


def to_moment(old: ColumnSchema, new: ColumnSchema, timezone: str) -> TextCast:
    """Compile the strict cast from `old` to `new`, which is DATE, DATETIME or TIMESTAMP.

    Raises:
        ConfigError: `timezone` is needed (a TIMESTAMP) and is no zone.
    """
    kind, digits, zero = kind_of(new), fractional_digits(new), moments.zero_text(new)
    zone = changefeed_zone(timezone) if kind is Kind.TIMESTAMP else None

    def make(datum: Datum) -> str | None:
        match datum:
            case Moment():
                is_zero = moments.is_zero(datum.text)
                value = moments.ZERO_DATETIME if is_zero else parse_datetime(datum.text)
            case str():
                value = moments.parse_datetime_text(datum, digits)
            case int():
                value = moments.datetime_of_number(datum)
            case float() | Decimal() | Span():
                value = None
        if not isinstance(value, datetime):
            return None if value is None else zero
        if kind is Kind.DATE:
            return value.date().isoformat()
        rounded = moments.round_datetime(value, digits)
        if rounded is None:
            return None
        if zone is None:
            return datetime_text(rounded, digits)
        return moments.timestamp_text(rounded, zone=zone, places=digits)

    expected = f"a {new.mysql_type}"
    return through_datum(old, new, expected=expected, make=make, read=unquoted_datum_of(old))


_NUMBERS = (Kind.INTEGER, Kind.YEAR, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE)
_MAX_NUMBER: Final = 8385959
"""The highest TIME as a number."""


def to_time(old: ColumnSchema, new: ColumnSchema, lenient: bool) -> TextCast:
    """Compile the cast from `old` to `new`, which is TIME."""
    digits = fractional_digits(new)
    from_number = kind_of(old) in _NUMBERS

    def exact(datum: Datum) -> int | None:
        match datum:
            case Span():
                return moments.round_span(moments.span_of_text(datum.text), digits)
            case Moment():
                clock = datum.text[11:] or moments.ZERO_CLOCK
                return moments.round_span(moments.span_of_text(clock), digits)
            case str():
                return moments.parse_span_text(datum, digits)
            case int() | float() | Decimal():
                return None

    def clipped(datum: Datum) -> int | None:
        if not isinstance(datum, str):
            return None
        if from_number:
            number = Decimal(datum)
            if _MAX_NUMBER < number < 10_000_000_000:
                return moments.MAX_SPAN
            if number < -_MAX_NUMBER:
                return None  # TiDB stores NULL
        return _span_prefix(datum, digits)

    def make(datum: Datum) -> str | None:
        span = clipped(datum) if lenient else exact(datum)
        return None if span is None else moments.span_text(span, digits)

    # TiDB reads a number here by its digits, as it reads a string.
    if from_number:
        old = replace(old, mysql_type="longtext", charset="")
    if lenient:
        return _through_text(old, new, make)
    return through_datum(old, new, expected="a time", make=make, read=unquoted_datum_of(old))


# ------------------------------------------------------------------------------- lenient SQL modes


def lenient_moment(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the lenient cast to `new`, which is DATE, DATETIME or TIMESTAMP."""
    kind, digits, zero = kind_of(new), fractional_digits(new), moments.zero_text(new)
    if kind is Kind.TIMESTAMP and kind_of(old) is Kind.INTEGER and is_unsigned(old):
        return refusing(new, _EXPECTED.format(new.mysql_type))

    def make(datum: Datum) -> str | None:
        match datum:
            case str():
                value = moments.parse_datetime_text(datum, digits)
                is_certain = value is not None or _is_no_date(datum, kind)
            case int():
                value = moments.datetime_of_number(datum)
                parts = moments.parts_of_number(datum)
                is_certain = (
                    value is not None or kind is Kind.TIMESTAMP or not _has_zero_part(parts)
                )
            case Moment():
                value = None
                is_certain = kind is Kind.TIMESTAMP
            case Span() | float() | Decimal():
                return None
        if isinstance(value, datetime) and kind is not Kind.TIMESTAMP:
            return None  # rounded beyond the last year
        return zero if is_certain else None

    return _through_text(old, new, make)


def _has_zero_part(parts: tuple[int, ...] | None) -> bool:
    return parts is not None and 0 in parts[1:3] and any(parts)


_DATE = re.compile(r"([0-9]{1,4})[-/.^@:]([0-9]{1,2})[-/.^@:]([0-9]{1,2})(?:[T \t]+(.*))?")
_COMPACT_DATE = re.compile(r"([0-9]{4}|[0-9]{2})([0-9]{2})([0-9]{2})([0-9]{6})?")
_CLOCK = re.compile(r"[0-9]{1,2}(?::[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]*)?)?)?|[0-9]{6}")
_TWO_PARTS = re.compile(r"[0-9]+[-/.^@:][0-9]+")
_LETTER = re.compile(r"[0-9]+(?:[-/.^@:][0-9]+){0,2}[ \t]*[A-SU-Ya-su-y].")


def _is_no_date(text: str, kind: Kind) -> bool:
    """Return whether TiDB surely reads no moment in `text` either, where `moments` reads none."""
    text = text.strip()
    if not text.isascii() or not text[:1].isdigit():
        return not text[:1].isdigit()
    if text.isdigit() and (len(text) < 5 or len(text) == 13 or len(text) > 14):
        return True
    if _TWO_PARTS.fullmatch(text) or _LETTER.match(text):
        return True
    groups = _COMPACT_DATE.fullmatch(text) or _DATE.fullmatch(text)
    if groups is None:
        return False
    year, month, day = int(groups[1]), int(groups[2]), int(groups[3])
    if 0 in (month, day):
        return kind is Kind.TIMESTAMP
    try:
        date(moments.full_year(year) if len(groups[1]) <= 2 else year, month, day)
    except ValueError:
        return True
    # Only the clock is invalid then, which a DATE does not read.
    return kind is not Kind.DATE and _CLOCK.fullmatch(groups[4] or "") is not None


_FALLS_BACK = re.compile(
    r"(?:[0-9]{12}|[0-9]{14})(?![0-9])|[0-9]+[^\w\s][0-9]+[^\w\s][0-9]+[ T]", re.ASCII
)


def _span_prefix(text: str, digits: int) -> int | None:
    """Return the microseconds of the TIME at the beginning of `text`; None if it may be a date."""
    text = text.strip()
    negative = text.startswith("-")
    rest = text[1:].lstrip(" ") if negative else text
    clock = moments.clock_prefix(rest)
    if _FALLS_BACK.match(text):
        return 0 if _is_no_date(text, Kind.DATETIME) else None
    if clock is None or clock[0] is None:
        return 0
    after = len(rest) - len(rest[clock[1] :].lstrip(" "))
    fraction = moments.FRACTION.match(rest, after)
    assert fraction is not None
    is_truncated = fraction.end() < len(rest)
    if is_truncated and len(rest.encode()) >= 12:
        return 0
    span = clock[0] * 10**6 + moments.round_fraction(fraction[1] or "", digits)
    span = min(span, moments.MAX_SPAN)
    return -span if negative else span


_EXPECTED: Final = "a value whose outcome as {} is known"


def _through_text(
    old: ColumnSchema, new: ColumnSchema, make: Callable[[Datum], str | None]
) -> TextCast:
    """Return the lenient cast by way of a datum."""
    read = unquoted_datum_of(old, errors="replace")
    expected = _EXPECTED.format(new.mysql_type)
    return through_datum(old, new, expected=expected, make=make, read=read)
