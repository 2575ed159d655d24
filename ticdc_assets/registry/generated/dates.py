"""Dates of generated columns: formats, intervals, and days of the calendar.

In: terms of dates. Out: terms of the results. A date that is not a day of the calendar is refused.
The functions of the parts of a date are those of partitions.
"""

from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Final

from ticdc_assets.registry.generated.numbers import number_term
from ticdc_assets.registry.partition_functions import (
    literal_moment,
    moment_of_datetime,
)
from ticdc_assets.registry.partition_terms import (
    Functions,
    Moment,
    MomentTerm,
    Term,
    TextLiteral,
    TextTerm,
    both_of,
    mapped,
    refused,
)

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


def _moment_term(term: Term, what: str) -> MomentTerm:
    if isinstance(term, MomentTerm):
        return term
    if isinstance(term, TextLiteral):
        moment = literal_moment(term.text, what)
        is_day = len(term.text.strip()) <= len("2024-01-01")
        return MomentTerm(lambda _row: moment, None if is_day else 0)
    raise refused(f"{what} of what is no date")


def _date_format(name: str, arguments: Sequence[Term]) -> Term:
    moment, pattern = _moment_term(arguments[0], name), arguments[1]
    pieces: list[Callable[[Moment], str]] = []
    text = pattern.text if isinstance(pattern, TextLiteral) else "%?"
    at = 0
    while at < len(text):
        if text[at] == "%":
            form = _FORMATS.get(text[at + 1 : at + 2])
            if form is None:
                raise refused(f"{name} with such a format")
            pieces.append(form)
            at += 2
        else:
            pieces.append(lambda _moment, char=text[at]: char)
            at += 1

    def formatted(value: Moment) -> str:
        _day(value)
        return "".join(piece(value) for piece in pieces)

    return TextTerm(mapped(moment.evaluate, formatted), "")


def _date_of(name: str, arguments: Sequence[Term]) -> Term:
    moment = _moment_term(arguments[0], name)

    def day(value: Moment) -> Moment:
        _day(value)
        return Moment(value.year, value.month, value.day)

    return MomentTerm(mapped(moment.evaluate, day))


def _last_day(name: str, arguments: Sequence[Term]) -> Term:
    moment = _moment_term(arguments[0], name)

    def last(value: Moment) -> Moment:
        _day(value)
        return Moment(value.year, value.month, monthrange(value.year, value.month)[1])

    return MomentTerm(mapped(moment.evaluate, last))


_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_SECONDS: Final = {"HOUR": 3600, "MINUTE": 60, "SECOND": 1}
_DAYS: Final = {"DAY": 1, "WEEK": 7}


def shifted(term: Term, count: Term, unit: str, *, back: bool) -> Term:
    """Return the term of a date plus or minus an interval."""
    what = "INTERVAL"
    moment, number = _moment_term(term, what), number_term(count, what)
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
        return moment_of_datetime(later)

    return MomentTerm(both_of(moment.evaluate, number.evaluate, shift), moment.digits)


DATE_FUNCTIONS: Final[Functions] = {
    "DATE": (1, 1, _date_of),
    "DATE_FORMAT": (2, 2, _date_format),
    "LAST_DAY": (1, 1, _last_day),
}
"""Functions of dates."""
