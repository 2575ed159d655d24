"""Dates and times as MySQL computes with them: parsing other spellings, rounding, numbers.

Used where a DDL makes values of one type from another (`casts`, `defaults`), with TiDB's rules
(pingcap/tidb pkg/types/time.go). None means that TiDB would refuse the value, or that its result
depends on what no message says (SQL mode, session); the callers turn it into a `CastError`.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo

from ticdc_assets.model.mysql_types import Kind, fractional_digits, kind_of
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import shapes
from ticdc_assets.model.values.canonical import ZERO_DATE, datetime_text
from ticdc_assets.model.values.zones import to_local, to_utc

ZERO_CLOCK = "00:00:00"
ZERO_DATETIME = "0000-00-00 00:00:00"

MAX_SPAN = (838 * 3600 + 59 * 60 + 59) * 1_000_000
"""The longest TIME, 838:59:59, in microseconds."""

_MIN_TIMESTAMP = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
_MAX_TIMESTAMP = datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC)

_DELIMITED = re.compile(
    r"([0-9]{1,4})[-/.^@:]([0-9]{1,2})[-/.^@:]([0-9]{1,2})"
    r"(?:[T \t]+([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?)?"
)
_COMPACT = re.compile(
    r"([0-9]{4}|[0-9]{2})([0-9]{2})([0-9]{2})"
    r"(?:([0-9]{2})([0-9]{2})([0-9]{2})(?:\.([0-9]*))?)?"
)
# After a colon without a number none of these is read; the digits remain.
_SPAN_DAYS = re.compile(
    r"([0-9]++) ++([0-9]++)(?: *: *([0-9]++)(?: *: *([0-9]++)|(?! *:))|(?! *:))"
)
_SPAN_COLONS = re.compile(r"()([0-9]++) *: *([0-9]++)(?: *: *([0-9]++)|(?! *:))")
_SPAN_DIGITS = re.compile(r"([0-9]++)")
FRACTION = re.compile(r"(?:\.([0-9]*))?")


def is_zero(text: str) -> bool:
    """Return whether canonical DATE or DATETIME text is the zero date."""
    return not text.strip("0-: .")


def zero_text(column: ColumnSchema) -> str:
    """Return the zero of a DATE, DATETIME, TIMESTAMP or TIME column."""
    match kind_of(column):
        case Kind.DATE:
            return ZERO_DATE
        case Kind.TIME:
            return shapes.pad_fraction(ZERO_CLOCK, fractional_digits(column))
        case _:
            return shapes.pad_fraction(ZERO_DATETIME, fractional_digits(column))


def full_year(year: int) -> int:
    """Return the four-digit year that MySQL reads in a year of one or two digits."""
    if year < 70:
        return 2000 + year
    return 1900 + year if year < 100 else year


def round_fraction(digits: str, places: int) -> int:
    """Return the microseconds of fraction `digits` rounded half up to `places` digits.

    TiDB reads one digit beyond `places` only. 1,000,000 means that a second is carried.
    """
    head = digits[: places + 1].ljust(places + 1, "0")
    return (int(head) + 5) // 10 * 10 ** (6 - places)


def round_datetime(value: datetime, places: int) -> datetime | None:
    """Return `value` rounded half up to `places` fractional digits; None beyond year 9999."""
    unit = 10 ** (6 - places)
    rounded = (value.microsecond + unit // 2) // unit * unit
    try:
        return value.replace(microsecond=0) + timedelta(microseconds=rounded)
    except OverflowError:
        return None


def parse_datetime_text(text: str, places: int) -> datetime | str | None:
    """Read a string as TiDB reads one for a DATE or DATETIME column.

    Read are `Y-M-D`, `Y-M-D h[:m[:s[.f]]]` (also with `/ . ^ @ :` between the date's parts),
    `YYYYMMDD[hhmmss[.f]]` and `YYMMDD[hhmmss[.f]]`. TiDB knows more spellings (offsets such as
    `+08:00`, odd digit counts); those are not guessed.

    Returns:
        A naive datetime, `ZERO_DATETIME`, or None.
    """
    text = text.strip()
    delimited = _DELIMITED.fullmatch(text)
    match = delimited or _COMPACT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    fraction = match[7] or ""
    if not (year or month or day or hour or minute or second or fraction.strip("0")):
        return ZERO_DATETIME
    if len(match[1]) <= 2:
        year = full_year(year)
    try:
        value = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001  # no zone
        return value + timedelta(microseconds=round_fraction(fraction, places))
    except (ValueError, OverflowError):
        return None


def datetime_of_number(number: int) -> datetime | str | None:
    """Read an integer such as 20240131 or 240131235959 as TiDB does for a DATETIME column."""
    if number == 0:
        return ZERO_DATETIME
    parts = parts_of_number(number)
    try:
        return None if parts is None else datetime(*parts)  # noqa: DTZ001  # no zone
    except (ValueError, OverflowError):
        return None


def parts_of_number(number: int) -> tuple[int, int, int, int, int, int] | None:
    """Return year to second of the integer, None if it is no date."""
    if number < 101:
        return None
    if number < 10_000_101_000_000:
        if number <= 691231:
            number = (number + 20_000_000) * 1_000_000
        elif number < 700101:
            return None
        elif number <= 991231:
            number = (number + 19_000_000) * 1_000_000
        elif number <= 99_991_231:
            number *= 1_000_000
        elif number < 101_000_000:
            return None
        elif number <= 691_231_235_959:
            number += 20_000_000_000_000
        elif number < 700_101_000_000:
            return None
        elif number <= 991_231_235_959:
            number += 19_000_000_000_000
    day, clock = divmod(number, 1_000_000)
    year, month = day // 10000, day // 100 % 100
    return year, month, day % 100, clock // 10000, clock // 100 % 100, clock % 100


def timestamp_text(local: datetime, *, zone: tzinfo, places: int) -> str | None:
    """Return the text of `local` as a TIMESTAMP, or None outside a TIMESTAMP's range.

    A local time that a clock change skips becomes the moment of the change, as in TiDB.
    """
    instant = to_utc(local, zone)
    if instant is None:
        instant = _change_before(local, zone)
    if instant is None or not _MIN_TIMESTAMP <= instant <= _MAX_TIMESTAMP:
        return None
    shown = to_local(instant, zone)
    return None if shown is None else datetime_text(shown, places)


def _change_before(local: datetime, zone: tzinfo) -> datetime | None:
    """Return the instant of the clock change that skipped `local`."""
    try:
        after = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
        before = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
        # In a gap fold 0 counts by the offset before the change, so its instant is after it.
        offset = before.astimezone(zone).utcoffset()
        while after - before > timedelta(seconds=1):
            middle = before + (after - before) // 2
            if middle.astimezone(zone).utcoffset() == offset:
                before = middle
            else:
                after = middle
    except OverflowError:
        return None
    return after.replace(microsecond=0)


def clock_prefix(text: str) -> tuple[int | None, int] | None:
    """Return the seconds of the TIME at the beginning of a text, and the place after its digits.

    Read are `days hours[:minutes[:seconds]]`, `hours:minutes[:seconds]` and `hhmmss`. The seconds
    are None if there is no such clock.
    """
    match = _SPAN_DAYS.match(text) or _SPAN_COLONS.match(text) or _SPAN_DIGITS.match(text)
    if match is None:
        return None
    if match.re is _SPAN_DIGITS:
        number = int(match[1])
        days, hours, minutes, seconds = 0, number // 10000, number // 100 % 100, number % 100
    else:
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    is_clock = minutes <= 59 and seconds <= 59
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds
    return total if is_clock else None, match.end()


def parse_span_text(text: str, places: int) -> int | None:
    """Read a string as TiDB reads one for a TIME column; microseconds, or None.

    A moment counts by its clock, in digits too, if the text is no clock itself (`ParseDuration` in
    pkg/types/time.go of pingcap/tidb).
    """
    text = text.strip()
    negative = text.startswith("-")
    rest = text[1:].lstrip() if negative else text
    clock = clock_prefix(rest)
    fraction = None if clock is None else FRACTION.fullmatch(rest, clock[1])
    if clock is not None and clock[0] is not None and fraction is not None:
        span = clock[0] * 10**6 + round_fraction(fraction[1] or "", places)
        if span <= MAX_SPAN:
            return -span if negative else span
    is_moment = _DELIMITED.fullmatch(rest) is not None and (" " in rest or "T" in rest)
    if negative or not (is_moment or re.match(r"(?:[0-9]{12}|[0-9]{14})(?![0-9])", rest)):
        return None
    moment = parse_datetime_text(rest, 6)
    if isinstance(moment, datetime):
        return round_span(span_of_text(f"{moment:%H:%M:%S.%f}"), places)
    return 0 if moment == ZERO_DATETIME else None


def span_of_text(text: str) -> int:
    """Return the microseconds of canonical TIME text."""
    negative = text.startswith("-")
    clock, _, fraction = text.lstrip("-").partition(".")
    hours, minutes, seconds = clock.split(":")
    span = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 10**6
    span += int(fraction.ljust(6, "0"))
    return -span if negative else span


def span_text(span: int, places: int) -> str:
    """Return canonical TIME text of `span` microseconds."""
    seconds, micros = divmod(abs(span), 10**6)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if places:
        text += f".{micros:06}"[: places + 1]
    return "-" + text if span < 0 else text


def round_span(span: int, places: int) -> int:
    """Return `span` rounded to `places` digits; halves go up, also for a negative TIME."""
    unit = 10 ** (6 - places)
    return (span + unit // 2) // unit * unit
