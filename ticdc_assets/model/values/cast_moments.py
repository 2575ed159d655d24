"""Casts to DATE, DATETIME, TIMESTAMP and TIME."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from ticdc_assets.model.mysql_types import Kind, fractional_digits, kind_of
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import moments, shapes
from ticdc_assets.model.values.canonical import ZERO_DATE, datetime_text, parse_datetime
from ticdc_assets.model.values.datum import (
    Datum,
    Moment,
    Span,
    TextCast,
    through_datum,
    unquoted_datum_of,
)
from ticdc_assets.model.values.zones import changefeed_zone


def to_date(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from `old` to `new`, which is DATE."""
    return _to_moment(old, new, lambda value: value.date().isoformat())


def to_datetime(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from `old` to `new`, which is DATETIME."""
    digits = fractional_digits(new)

    def make(value: datetime) -> str | None:
        rounded = moments.round_datetime(value, digits)
        return None if rounded is None else datetime_text(rounded, digits)

    return _to_moment(old, new, make)


def to_timestamp(old: ColumnSchema, new: ColumnSchema, timezone: str) -> TextCast:
    """Compile the cast from `old` to `new`, which is TIMESTAMP."""
    zone = changefeed_zone(timezone)
    digits = fractional_digits(new)

    def make(value: datetime) -> str | None:
        rounded = moments.round_datetime(value, digits)
        if rounded is None:
            return None
        return moments.timestamp_text(rounded, zone=zone, places=digits)

    return _to_moment(old, new, make)


def _to_moment(
    old: ColumnSchema, new: ColumnSchema, make: Callable[[datetime], str | None]
) -> TextCast:
    is_date = kind_of(new) is Kind.DATE
    digits = 0 if is_date else fractional_digits(new)
    zero = ZERO_DATE if is_date else shapes.pad_fraction(moments.ZERO_DATETIME, digits)

    def make_moment(datum: Datum) -> str | None:
        match datum:
            case Moment():
                value = _moment_value(datum)
            case str():
                value = moments.parse_datetime_text(datum, digits)
            case int():
                value = moments.datetime_of_number(datum)
            case float() | Decimal() | Span():
                value = None
        if value is None:
            return None
        return zero if isinstance(value, str) else make(value)

    return through_datum(
        old, new, expected=f"a {new.mysql_type}", make=make_moment, read=unquoted_datum_of(old)
    )


def _moment_value(moment: Moment) -> datetime | str | None:
    if moments.is_zero(moment.text):
        return moments.ZERO_DATETIME
    return parse_datetime(moment.text)


_NUMBERS = (Kind.INTEGER, Kind.YEAR, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE)


def to_time(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile the cast from `old` to `new`, which is TIME."""
    digits = fractional_digits(new)

    def make(datum: Datum) -> str | None:
        match datum:
            case Span():
                span = moments.round_span(moments.span_of_text(datum.text), digits)
            case Moment():
                clock = datum.text[11:] or moments.ZERO_CLOCK
                span = moments.round_span(moments.span_of_text(clock), digits)
            case str():
                span = moments.parse_span_text(datum, digits)
            case int() | float() | Decimal():
                span = None
        return None if span is None else moments.span_text(span, digits)

    # TiDB reads a number here by its digits, as it reads a string.
    if kind_of(old) in _NUMBERS:
        old = replace(old, mysql_type="longtext", charset="")
    return through_datum(old, new, expected="a time", make=make, read=unquoted_datum_of(old))
