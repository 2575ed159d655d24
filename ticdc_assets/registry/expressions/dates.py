"""Dates and times of expressions: their parts, days of the calendar, formats, intervals and zones.

In: terms of dates and times, and literals. Out: terms of the results. The rules are TiDB's
(pingcap/tidb pkg/expression and pkg/types): a date without a day of the calendar ('0000-00-00',
'2024-05-00') is NULL for functions that count days, and functions of parts return its parts.
Statements that fail on such a date in strict mode store no row, so only the lenient rule matters.
Functions that only generated columns have refuse a row with such a date.

Not done: functions of a TIMESTAMP other than UNIX_TIMESTAMP: they depend on the time zone of
a session.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import combinations
from operator import attrgetter
from typing import Final

from ticdc_assets.base.errors import PartitionError
from ticdc_assets.model.values.moments import datetime_of_number, parse_datetime_text
from ticdc_assets.model.values.zones import changefeed_zone, to_utc
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.registry.expressions.terms import (
    Functions,
    Integer,
    Moment,
    MomentTerm,
    NullLiteral,
    NumberTerm,
    SpanTerm,
    Term,
    TextTerm,
    TimestampTerm,
    both_of,
    constant,
    function,
    integer_result,
    literal_integer,
    literal_text,
    mapped,
    number_of,
    refused,
)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
_DAYS_OF_TIMESTAMPS: Final = 68 * 366


# ------------------------------------------------------------------------------------ arguments

_YEAR_0: Final = re.compile(r"0000-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])")


def literal_moment(text: str, what: str) -> Moment:
    """Return the date and time of a string literal."""
    if _YEAR_0.fullmatch(text):
        return Moment(0, int(text[5:7]), int(text[8:10]))
    fraction = text.strip().rpartition(".")[2] if "." in text else ""
    moment = parse_datetime_text(text, 6)
    if moment is None or (fraction.isdecimal() and len(fraction) > 6):
        raise PartitionError(f"a date in {what} is not understood")
    return Moment(0, 0, 0) if isinstance(moment, str) else _moment_of_datetime(moment)


def _moment_of_datetime(value: datetime) -> Moment:
    clock = value.hour, value.minute, value.second, value.microsecond
    return Moment(value.year, value.month, value.day, *clock)


def moment_term(term: Term, what: str) -> MomentTerm:
    """Return a term as a date, maybe with its time of day; PartitionError for another term."""
    match term:
        case MomentTerm():
            return term
        case TextTerm(literal=str(text)):
            is_day = len(text.strip()) <= len("2024-01-01")
            return MomentTerm(constant(literal_moment(text, what)), None if is_day else 0)
        case NumberTerm(literal=int(value)):
            date_time = datetime_of_number(value)
            if not isinstance(date_time, datetime):
                raise PartitionError(f"the date {value} in {what} is not understood")
            is_day = value < 10**8
            return MomentTerm(constant(_moment_of_datetime(date_time)), None if is_day else 0)
        case NullLiteral():
            return MomentTerm(term.evaluate)
        case TimestampTerm():
            raise PartitionError(f"{what} of a TIMESTAMP depends on the time zone of a session")
        case _:
            raise PartitionError(f"{what} of what is no date in an expression")


def moment_of(term: Term, what: str) -> Callable[[CanonicalRow], Moment | None]:
    """Return the function of a date and time; PartitionError for another term."""
    return moment_term(term, what).evaluate


def _counted_moment(term: Term, what: str) -> Callable[[CanonicalRow], Moment | None]:
    """Return the function of a date that days are counted of: NULL if its month or day is 0."""
    return mapped(moment_of(term, what), lambda moment: None if moment.lacks_day else moment)


def _clock(term: Term, what: str) -> Callable[[CanonicalRow], int | None]:
    """Return the function of the time of day, or of a TIME, in microseconds."""
    match term:
        case SpanTerm():
            return term.evaluate
        case MomentTerm():
            return mapped(term.evaluate, attrgetter("clock_microseconds"))
        case _:
            raise PartitionError(f"{what} of neither a date nor a time")


def _calendar_day(term: Term, what: str) -> Callable[[CanonicalRow], Moment | None]:
    """Return the function of a date; it refuses a row whose date is no day of the calendar."""

    def checked(moment: Moment) -> Moment:
        _day(moment)
        return moment

    return mapped(moment_of(term, what), checked)


def _date_result(
    evaluate: Callable[[CanonicalRow], Moment | None], _: Sequence[Term]
) -> MomentTerm:
    return MomentTerm(evaluate)


# ------------------------------------------------------------------------------------- calendar


def _day_number_of(year: int, month: int, day: int) -> int:
    """Return the days since year 0, as TO_DAYS counts them, also for days outside of a month."""
    days = 365 * year + 31 * (month - 1) + day
    if month <= 2:
        year = max(year - 1, 0)
    else:
        days -= (month * 4 + 23) // 10
    return days + year // 4 - (year // 100 + 1) * 3 // 4


def _day_number(moment: Moment) -> int:
    return _day_number_of(moment.year, moment.month, moment.day)


def _weekday(moment: Moment) -> int:
    """Return 0 for Monday to 6 for Sunday; a day after its month's end is in the next month."""
    # Days of the week repeat every 400 years, and MySQL's count of days is off by one in year 0.
    return (_day_number_of(moment.year + 400, moment.month, moment.day) + 5) % 7


def _days_in_year(year: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or (year % 400 == 0 and year != 0))
    return 366 if leap else 365


def _week_of(moment: Moment, mode: int = 0) -> int:
    """Return YEARWEEK by MySQL's week mode 0 to 7."""
    monday_first = bool(mode & 1)
    # Week 1 is the first with that first day, or else the first with four days of the year.
    whole_week = bool(mode & 4) != (not monday_first)
    number, first = _day_number(moment), _day_number_of(moment.year, 1, 1)
    weekday = (first + 5 + (not monday_first)) % 7
    year = moment.year

    def starts_late(day: int) -> bool:
        return day != 0 if whole_week else day >= 4

    if moment.month == 1 and moment.day <= 7 - weekday:
        year -= 1
        days_before = _days_in_year(year)
        first -= days_before
        weekday = (weekday + 53 * 7 - days_before) % 7
    days = number - (first + 7 - weekday if starts_late(weekday) else first - weekday)
    if days >= 52 * 7 and not starts_late((weekday + _days_in_year(year)) % 7):
        return (year + 1) * 100 + 1
    week = year * 100 + days // 7 + 1
    return week if week >= 0 else 2**32 - 1


def _week_mode(term: Term, what: str) -> Integer:
    mode = literal_integer(term, what)
    if not 0 <= mode <= 7:
        raise PartitionError(f"{what} with mode {mode}")
    return constant(mode)


# ----------------------------------------------------------------------------- units of EXTRACT

_CLOCK: Final = Moment._fields[2:]
"""A day and its parts, which units such as DAY_SECOND name by the first and the last of several."""


def _packed(*names: str) -> Callable[[Moment], int | None]:
    """Return the number whose digits are these parts one after another, e.g. DAY_HOUR."""
    widths = [1_000_000 if name == "microsecond" else 100 for name in names]

    def part(moment: Moment) -> int:
        number = 0
        for name, width in zip(names, widths, strict=True):
            number = number * width + int(getattr(moment, name))
        return number

    return part


_UNITS: Final[dict[str, Callable[[Moment], int | None]]] = {
    "QUARTER": lambda moment: (moment.month + 2) // 3,
    "YEAR_MONTH": _packed("year", "month"),
    **{name.upper(): _packed(name) for name in Moment._fields},
    **{
        f"{_CLOCK[first]}_{_CLOCK[last]}".upper(): _packed(*_CLOCK[first : last + 1])
        for first, last in combinations(range(len(_CLOCK)), 2)
    },
}


def extract(unit: str, argument: Term) -> Term:
    """Return the term of `EXTRACT(unit FROM argument)`."""
    part = _UNITS.get(unit)
    if part is None:
        raise PartitionError(f"EXTRACT of {unit[:40]} in an expression")
    if isinstance(argument, SpanTerm):
        raise PartitionError("EXTRACT from a TIME in an expression")
    return NumberTerm(mapped(moment_of(argument, "EXTRACT"), part))


# ------------------------------------------------------------------------------------- time zones


def unix_timestamp(arguments: Sequence[Term], timezone: str) -> Term:
    """Return the term of UNIX_TIMESTAMP, of texts in the changefeed's time zone."""
    match arguments:
        case [TimestampTerm(evaluate, fractional, repeats)]:
            return NumberTerm(
                evaluate, fractional, repeats=repeats, scale=None if fractional else 0
            )
        case [TextTerm(literal=str(text))]:
            moment = literal_moment(text, "UNIX_TIMESTAMP")
            return NumberTerm(constant(_seconds(moment, timezone)))
        case _:
            raise PartitionError("UNIX_TIMESTAMP of neither a TIMESTAMP column nor a literal")


def _seconds(moment: Moment, timezone: str) -> int:
    if moment.is_zero:
        return 0
    instant = None
    if moment.microsecond == 0:
        instant = to_utc(datetime(*moment[:6]), changefeed_zone(timezone))  # noqa: DTZ001
    if instant is None:
        raise PartitionError("UNIX_TIMESTAMP of a time that the zone does not have")
    return (instant - EPOCH) // timedelta(seconds=1)


@lru_cache(maxsize=64)
def repeats_times(timezone: str) -> bool:
    """Return whether clocks of the zone ever showed one time twice since 1970.

    Such a TIMESTAMP is sent as text that does not say which of the two it was.
    """
    zone = changefeed_zone(timezone)
    days = (EPOCH + timedelta(days=number) for number in range(_DAYS_OF_TIMESTAMPS))
    return len({day.astimezone(zone).utcoffset() for day in days}) > 1


@lru_cache(maxsize=1 << 14)
def is_repeated(seconds: int, timezone: str) -> bool:
    """Return whether this moment's text may mean two times of a row."""
    zone = changefeed_zone(timezone)
    try:
        instant = EPOCH + timedelta(seconds=seconds)
        sides = [(instant - MICROSECOND).astimezone(zone), instant.astimezone(zone)]
    except OverflowError:
        return False
    return all(
        side.replace(fold=0).utcoffset() != side.replace(fold=1).utcoffset() for side in sides
    )


# --------------------------------------------------------------------------- formats and intervals

_FORMATS: Final[dict[str, Callable[[Moment], str]]] = {
    "Y": lambda moment: f"{moment.year:04}",
    "y": lambda moment: f"{moment.year % 100:02}",
    "m": lambda moment: f"{moment.month:02}",
    "c": lambda moment: f"{moment.month}",
    "d": lambda moment: f"{moment.day:02}",
    "e": lambda moment: f"{moment.day}",
    "H": lambda moment: f"{moment.hour:02}",
    "k": lambda moment: f"{moment.hour}",
    "i": lambda moment: f"{moment.minute:02}",
    "s": lambda moment: f"{moment.second:02}",
    "S": lambda moment: f"{moment.second:02}",
    "f": lambda moment: f"{moment.microsecond:06}",
    "T": lambda moment: f"{moment.hour:02}:{moment.minute:02}:{moment.second:02}",
    "j": lambda moment: f"{_day(moment).timetuple().tm_yday:03}",
    "%": lambda _moment: "%",
}


def _day(moment: Moment) -> date:
    try:
        return date(moment.year, moment.month, moment.day)
    except ValueError:
        raise refused("a date that is no day of the calendar") from None


def _format(term: Term, what: str) -> Callable[[CanonicalRow], Sequence[str] | None]:
    """Return the pieces of a literal format: plain texts, and `%` with its letter."""
    pieces: list[str] = re.findall(r"%.?|[^%]+", literal_text(term, what), re.DOTALL)
    if any(piece[0] == "%" and piece[1:] not in _FORMATS for piece in pieces):
        raise refused(f"{what} with such a format")
    return constant(pieces)


def _formatted(moment: Moment, pieces: Sequence[str]) -> str:
    return "".join(_FORMATS[piece[1:]](moment) if piece[0] == "%" else piece for piece in pieces)


def _text_result(evaluate: Callable[[CanonicalRow], str | None], _: Sequence[Term]) -> TextTerm:
    return TextTerm(evaluate)


def _last_day(moment: Moment) -> Moment:
    return Moment(moment.year, moment.month, monthrange(moment.year, moment.month)[1])


_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_SECONDS: Final = {"HOUR": 3600, "MINUTE": 60, "SECOND": 1}
_DAYS: Final = {"DAY": 1, "WEEK": 7}


def shifted(term: Term, count: Term, unit: str, *, back: bool) -> Term:
    """Return the term of a date plus or minus an interval."""
    what = "INTERVAL"
    moment, number = moment_term(term, what), number_of(count, what)
    if number.fractional or unit not in _MONTHS | _SECONDS | _DAYS:
        raise refused(f"an interval of {unit[:40]}")
    if moment.digits is None and unit in _SECONDS:
        raise refused("a date and an interval of its clock")

    def shift(value: Moment, by: int) -> Moment:
        by = -by if back else by
        if unit in _MONTHS:
            months = value.year * 12 + value.month - 1 + by * _MONTHS[unit]
            year, month = divmod(months, 12)
            if not 1 <= year <= 9999:
                raise refused("a date out of its range")
            _day(value)
            day = min(value.day, monthrange(year, month + 1)[1])
            return value._replace(year=year, month=month + 1, day=day)
        clock = (value.hour, value.minute, value.second, value.microsecond)
        day = _day(value)
        seconds = by * (_DAYS[unit] * 86400 if unit in _DAYS else _SECONDS[unit])
        try:
            later = datetime(day.year, day.month, day.day, *clock) + timedelta(seconds=seconds)  # noqa: DTZ001
        except OverflowError:
            raise refused("a date out of its range") from None
        return _moment_of_datetime(later)

    return MomentTerm(both_of(moment.evaluate, number.evaluate, shift), moment.digits)


DATE_FUNCTIONS: Final[Functions] = {
    **{
        name: function(integer_result, _UNITS[name], moment_of)
        for name in ("DAY", "MONTH", "QUARTER", "YEAR")
    },
    "DATEDIFF": function(
        integer_result,
        lambda later, earlier: _day_number(later) - _day_number(earlier),
        _counted_moment,
        _counted_moment,
    ),
    "DAYOFMONTH": function(integer_result, _UNITS["DAY"], moment_of),
    "DAYOFWEEK": function(
        integer_result, lambda moment: (_weekday(moment) + 1) % 7 + 1, _counted_moment
    ),
    "DAYOFYEAR": function(
        integer_result,
        lambda moment: _day_number(moment) - _day_number_of(moment.year, 1, 1) + 1,
        _counted_moment,
    ),
    "HOUR": function(integer_result, lambda span: abs(span) // 3_600_000_000, _clock),
    "MICROSECOND": function(integer_result, lambda span: abs(span) % 1_000_000, _clock),
    "MINUTE": function(integer_result, lambda span: abs(span) // 60_000_000 % 60, _clock),
    "SECOND": function(integer_result, lambda span: abs(span) // 1_000_000 % 60, _clock),
    "TIME_TO_SEC": function(
        integer_result,
        lambda span: span // 1_000_000 if span >= 0 else -(-span // 1_000_000),
        _clock,
    ),
    "TO_DAYS": function(integer_result, _day_number, _counted_moment),
    "TO_SECONDS": function(
        integer_result,
        lambda moment: _day_number(moment) * 86400 + moment.clock_microseconds // 1_000_000,
        _counted_moment,
    ),
    "WEEKDAY": function(integer_result, _weekday, _counted_moment),
    "YEARWEEK": function(integer_result, _week_of, _counted_moment, _week_mode, optional=1),
    "DATE": function(_date_result, lambda moment: Moment(*moment[:3]), _calendar_day),
    "DATE_FORMAT": function(_text_result, _formatted, _calendar_day, _format),
    "LAST_DAY": function(_date_result, _last_day, _calendar_day),
}
"""Functions of dates and times."""
