"""Columns of expressions: the terms of their values, and how they store the value of a term.

In: a column; or a term, and the column that stores it. Out: the term of the column's value; or the
function from a row to the canonical text of the stored value, by the same conversions as those of
columns (`values.cast_of`): TiDB converts both alike. A conversion that is uncertain for the type of
the term is refused.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from fractions import Fraction
from functools import partial
from typing import Final, TypeVar

from ticdc_assets.base.errors import PartitionError, shorten
from ticdc_assets.model.mysql_types import Kind, fractional_digits, kind_of, lacks_size
from ticdc_assets.model.schemas import ColumnSchema, TableSchema
from ticdc_assets.model.values import Cast, cast_of
from ticdc_assets.model.values.floats import double_text, to_float32
from ticdc_assets.model.values.moments import span_of_text, span_text
from ticdc_assets.model.values.zones import changefeed_zone, to_utc
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.expressions.dates import EPOCH, MICROSECOND, repeats_times
from ticdc_assets.registry.expressions.numbers import MAX_SCALE, rounded_quotient
from ticdc_assets.registry.expressions.terms import (
    DoubleTerm,
    Evaluate,
    JsonTerm,
    Moment,
    MomentTerm,
    NullLiteral,
    NumberTerm,
    SpanTerm,
    Term,
    TextTerm,
    TimestampTerm,
    mapped,
    number_of,
    refused,
)
from ticdc_assets.registry.expressions.texts import moment_text, number_text, text_term

_UNICODE: Final = frozenset({"utf8mb4", "utf8", "utf8mb3", "ascii"})


def find_column(schema: TableSchema, name: str) -> ColumnSchema:
    """Return the column called `name`, which is compared without case."""
    folded = name.lower()
    for column in schema.columns:
        if column.name.lower() == folded:
            return column
    raise PartitionError(f"no row has the column {shorten(name)} of the expression")


def column_term(column: ColumnSchema, timezone: str) -> Term:
    """Return the term of a column's value."""
    match kind_of(column):
        case Kind.INTEGER | Kind.YEAR as kind:
            # How many digits of a zero-filled number are printed is uncertain.
            is_filled = kind is Kind.YEAR or column.zerofill
            return NumberTerm(read_by(column, int), scale=None if is_filled else 0)
        case Kind.DECIMAL:
            scale = None if lacks_size(column) else max(column.decimal, 0)
            return NumberTerm(read_by(column, Fraction), fractional=True, scale=scale)
        case Kind.FLOAT:
            # An expression has the 32 bits of the column, not its printed digits.
            return DoubleTerm(read_by(column, lambda text: to_float32(float(text))))
        case Kind.DOUBLE:
            return DoubleTerm(read_by(column, float))
        case Kind.DATE:
            return MomentTerm(read_by(column, parse_moment))
        case Kind.DATETIME:
            return MomentTerm(read_by(column, parse_moment), digits=fractional_digits(column))
        case Kind.TIMESTAMP:
            return _timestamp_term(column, timezone)
        case Kind.TIME:
            return SpanTerm(read_by(column, span_of_text))
        case Kind.TEXT | Kind.ENUM | Kind.SET as kind:
            if column.charset.lower() not in _UNICODE:
                raise refused(f"a text in charset {column.charset[:40]}")
            if kind is not Kind.TEXT and not column.elements:
                raise refused("a label that is not known")
            return TextTerm(
                read_by(column, str), column.collation.lower(), is_label=kind is not Kind.TEXT
            )
        case Kind.JSON:
            return JsonTerm(read_by(column, str))
        case kind:
            raise PartitionError(f"column {shorten(column.name)}, of kind {kind}, in an expression")


_Value = TypeVar("_Value")


def read_by(
    column: ColumnSchema, read: Callable[[str], _Value]
) -> Callable[[CanonicalRow], _Value | None]:
    """Return the function that reads the value of `column` in a row from its canonical text."""
    name = column.name

    def value_of(row: CanonicalRow) -> _Value | None:
        try:
            text = row[name]
        except KeyError:
            raise PartitionError(f"a row without its column {shorten(name)}") from None
        return None if text is None else read(text)

    return value_of


def parse_moment(text: str) -> Moment:
    """Return canonical DATE or DATETIME text as a moment."""
    date, _, clock = text.partition(" ")
    year, month, day = date.split("-")
    if not clock:
        return Moment(int(year), int(month), int(day))
    whole, _, fraction = clock.partition(".")
    hour, minute, second = whole.split(":")
    micros = int(fraction[:6].ljust(6, "0"))
    return Moment(int(year), int(month), int(day), int(hour), int(minute), int(second), micros)


def _timestamp_term(column: ColumnSchema, timezone: str) -> Term:
    zone = changefeed_zone(timezone)

    def seconds(text: str) -> int | Fraction:
        moment = parse_moment(text)
        if moment.is_zero:
            return 0
        instant = to_utc(datetime(*moment), zone)  # noqa: DTZ001  # the zone is next to it
        if instant is None:
            raise PartitionError(f"a row whose time is none of zone {shorten(timezone)}")
        micros = (instant - EPOCH) // MICROSECOND
        return Fraction(micros, 1_000_000) if micros % 1_000_000 else micros // 1_000_000

    fractional = lacks_size(column) or fractional_digits(column) > 0
    return TimestampTerm(
        read_by(column, seconds), fractional=fractional, repeats=repeats_times(timezone)
    )


# ---------------------------------------------------------------------------------------- storing


def stored(term: Term, column: ColumnSchema, timezone: str) -> Callable[[CanonicalRow], str | None]:
    """Return the function that gives the canonical text of a term stored in `column`.

    Raises:
        PartitionError: it is uncertain for terms of this type.
    """
    kind = kind_of(column)
    if isinstance(term, NullLiteral):
        return term.evaluate
    if kind not in _STORED.get(type(term), ()):
        raise refused(f"what a column of kind {kind} stores of such a value")
    _refuse_label(term, kind)
    if isinstance(term, TextTerm) or (kind in _TEXTS and not isinstance(term, JsonTerm)):
        text = text_term(term, "storing")
        source = ColumnSchema(name=column.name, mysql_type="longtext", charset="utf8mb4")
        return _cast(text.evaluate, cast_of(source, column, timezone))
    match term:
        case NumberTerm():
            return _stored_number(number_of(term, "storing"), column, timezone)
        case DoubleTerm():
            value_of: Evaluate = mapped(term.evaluate, double_text)
            source = ColumnSchema(name=column.name, mysql_type="double", length=22)
        case MomentTerm():
            digits = term.digits
            value_of = mapped(term.evaluate, lambda value: moment_text(value, digits))
            name = "date" if digits is None else "datetime"
            source = ColumnSchema(name=column.name, mysql_type=name, decimal=digits or 0)
        case SpanTerm():
            digits = fractional_digits(column)
            value_of = mapped(term.evaluate, partial(_span_text, digits=digits))
            source = column
        case JsonTerm():
            value_of = term.evaluate
            source = ColumnSchema(name=column.name, mysql_type="json")
        case _:
            raise refused("storing such a value")
    return _cast(value_of, cast_of(source, column, timezone))


_NUMBERS: Final = frozenset(
    {Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE, Kind.FLOAT, Kind.BIT, Kind.YEAR}
)
_TEXTS: Final = frozenset({Kind.TEXT, Kind.BINARY, Kind.ENUM, Kind.SET})
_MOMENTS: Final = frozenset({Kind.DATE, Kind.DATETIME})
_STORED: Final[Mapping[type[Term], frozenset[Kind]]] = {
    NumberTerm: _NUMBERS | {Kind.TEXT, Kind.BINARY},
    DoubleTerm: frozenset({Kind.DOUBLE, Kind.FLOAT, Kind.DECIMAL, Kind.INTEGER}),
    MomentTerm: _MOMENTS | {Kind.TEXT},
    SpanTerm: frozenset({Kind.TIME}),
    JsonTerm: frozenset({Kind.JSON, Kind.TEXT, Kind.INTEGER, Kind.DOUBLE, Kind.DECIMAL}),
    TextTerm: _TEXTS | _NUMBERS - {Kind.BIT, Kind.YEAR} | _MOMENTS,
}
"""By the type of a term the kinds of columns that store it like a conversion of columns."""


def converted(term: Term, column: ColumnSchema, timezone: str) -> Term:
    """Return the term of a CAST to the type of `column`, which is not a text type.

    A CAST and a column differ for texts that are not written as values of the type; these are
    refused.
    """
    if isinstance(term, DoubleTerm):
        raise refused("CAST of floating point")
    kind = kind_of(column)
    _refuse_label(term, kind)
    if isinstance(term, TextTerm | JsonTerm):
        pattern = _WRITTEN[kind]

        def checked(text: str) -> str:
            if pattern.fullmatch(text) is None:
                raise refused("CAST of such a text")
            return text

        term = TextTerm(mapped(term.evaluate, checked))
    text_of = stored(term, column, timezone)
    match kind:
        case Kind.INTEGER:
            return NumberTerm(mapped(text_of, int))
        case Kind.DECIMAL:
            scale = max(column.decimal, 0)
            return NumberTerm(mapped(text_of, Fraction), fractional=scale > 0, scale=scale)
        case Kind.DATE:
            return MomentTerm(mapped(text_of, parse_moment))
        case _:
            return MomentTerm(mapped(text_of, parse_moment), fractional_digits(column))


def _refuse_label(term: Term, kind: Kind) -> None:
    """Refuse an ENUM or SET as a number: TiDB takes the number of the label, not its text."""
    if isinstance(term, TextTerm) and term.is_label and kind in _NUMBERS:
        raise refused("a label as a number")


_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_WRITTEN: Final = {
    Kind.INTEGER: re.compile(r"-?[0-9]{1,20}"),
    Kind.DECIMAL: re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,30})?"),
    Kind.DATE: re.compile(_DAY),
    Kind.DATETIME: re.compile(_DAY + r"(?: [0-9]{2}:[0-9]{2}:[0-9]{2})?"),
}
"""Texts that a CAST and a column of a kind read in the same way."""


def _stored_number(
    number: NumberTerm, column: ColumnSchema, timezone: str
) -> Callable[[CanonicalRow], str | None]:
    digits = {Kind.INTEGER: 0, Kind.BIT: 0, Kind.YEAR: 0, Kind.DECIMAL: max(column.decimal, 0)}
    places = digits.get(kind_of(column))
    of_quotient = None if places is None else rounded_quotient(number, places)
    casts: dict[int, Cast] = {}

    def text_of(value: int | Fraction) -> str | None:
        scale = _scale_of(value)
        if scale not in casts:
            source = ColumnSchema(name=column.name, mysql_type="decimal", length=65, decimal=scale)
            casts[scale] = cast_of(source, column, timezone)
        return casts[scale](number_text(value, scale))

    return mapped(of_quotient or number.evaluate, text_of)


def _scale_of(value: int | Fraction) -> int:
    rest_of, scale = Fraction(value), 0
    while rest_of.denominator != 1:
        rest_of, scale = rest_of * 10, scale + 1
        if scale > MAX_SCALE:
            raise refused("a number with so many digits")
    return scale


def _span_text(span: int, *, digits: int) -> str:
    unit = 10 ** (6 - digits)
    if span % unit:
        raise refused("a time with more digits than its column")
    return span_text(span, digits)


def _cast(value_of: Evaluate, cast: Cast) -> Callable[[CanonicalRow], str | None]:
    return lambda row: cast(value_of(row))
