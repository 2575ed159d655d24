"""Compiled loops over one column of numbers, days and times: forms of texts, and digits.

In: bytes, and for each row where its text begins and ends and its form (`values.columns`). Out:
numbers, and whether the text is exact: canonical already, and held exactly by the typed column.
Of any other text a loop only says that it is not exact; `values.canonical` and `values.typed` know
what it means. `text_loops` has those of bytes and JSON.

The loops take a `Column`, and set `out`, and `exact`: whether a row is absent, NULL, or exact.

Only the bytes from `begins[row]` to `ends[row]` count; the caller keeps these inside the bytes,
with `vector_loops.PADDING` more after them. All arrays are contiguous; places are int32, forms
uint8, flags bool.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ticdc_assets.base.compiled import compiled
from ticdc_assets.model.values.vector_loops import word_at
from ticdc_assets.model.values.word_loops import NO_DIGITS, ZEROS, number_at, number_of

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


class Column(NamedTuple):
    """Where the texts of one column are.

    Attributes:
        data: the bytes.
        begins: for each row where its text begins.
        ends: where it ends.
        forms: the form of its text: `ABSENT`, `NULL`, `TEXT`, `ESCAPED` (text with escapes as in
            JSON) or `ZONED` (the text of a timestamp in a zone that counts as the changefeed's).
    """

    data: Bytes
    begins: Places
    ends: Places
    forms: Bytes


ABSENT: Final = 0
NULL: Final = 1
TEXT: Final = 2
ESCAPED: Final = 3
ZONED: Final = 4

MINUS, POINT, ZERO, NINE = 45, 46, 48, 57


@compiled
def digits_at(data: Bytes, place: int, count: int) -> int:
    """Return the number that `count` digits make, -1 if they are not digits."""
    number = 0
    for at in range(place, place + count):
        if data[at] < ZERO or data[at] > NINE:
            return -1
        number = number * 10 + (data[at] - ZERO)
    return number


# ----------------------------------------------------------------------------------------- numbers

_HUNDRED_MILLION: Final = np.uint64(10**8)
_MOST_EIGHTS: Final = np.uint64((2**64 - 1) // 10**8)
_MOST_LEFT: Final = (2**64 - 1) % 10**8


@compiled
def integers(
    column: Column,
    lowest: np.uint64,
    highest: np.uint64,
    out: npt.NDArray[np.uint64],
    exact: Flags,
) -> None:
    """Read integers in canonical text, from the magnitude `lowest` below zero to `highest`.

    `out` has negative numbers as two's complement.
    """
    data, begins, ends, forms = column
    for row in range(len(begins)):
        out[row] = np.uint64(0)
        if forms[row] <= NULL:
            exact[row] = True
            continue
        exact[row] = False
        place, end = begins[row], ends[row]
        if forms[row] != TEXT or place >= end:
            continue
        negative = data[place] == MINUS
        if negative:
            place += 1
        size = end - place
        if size < 1 or size > 20 or (data[place] == ZERO and (size > 1 or negative)):
            continue
        # The digits left over from eights come first, then eight at a time.
        head = (size - 1) % 8 + 1
        digits = number_at(data, place, head)
        number = np.uint64(digits)
        good = digits != NO_DIGITS
        place += head
        while good and place < end:
            digits = number_of(word_at(data, place))
            # 2^64 has twenty digits.
            good = digits != NO_DIGITS and (
                size < 20
                or place + 8 < end
                or number < _MOST_EIGHTS
                or (number == _MOST_EIGHTS and digits <= _MOST_LEFT)
            )
            number = number * _HUNDRED_MILLION + np.uint64(digits)
            place += 8
        if not good or number > (lowest if negative else highest):
            continue
        out[row] = ~number + np.uint64(1) if negative else number
        exact[row] = True


@compiled
def decimals(
    column: Column, whole: int, scale: int, out: npt.NDArray[np.uint64], exact: Flags
) -> None:
    """Read decimals in canonical text of at most 36 digits; a negative zero is not exact.

    `whole` is the most digits before the point, `scale` the digits after it. `out` has two numbers
    a row: the unscaled value in 128 bits, the lower ones first.
    """
    data, begins, ends, forms = column
    half = np.uint64(32)
    low_half = np.uint64(0xFFFFFFFF)
    weight = np.uint64(10**18)
    for row in range(len(begins)):
        out[2 * row] = np.uint64(0)
        out[2 * row + 1] = np.uint64(0)
        if forms[row] <= NULL:
            exact[row] = True
            continue
        exact[row] = False
        place, end = begins[row], ends[row]
        if forms[row] != TEXT or place >= end:
            continue
        negative = data[place] == MINUS
        if negative:
            place += 1
        point = end - scale - 1 if scale else end
        size = point - place
        if size < 1 or (size > whole and not (size == 1 and data[place] == ZERO)):
            continue
        if size > 1 and data[place] == ZERO:
            continue
        if scale and data[point] != POINT:
            continue
        # The last 18 digits, and those before them: `whole` and `scale` are 36 at most together.
        upper, lower = np.uint64(0), np.uint64(0)
        left = size + scale
        good = True
        while place < end:
            if place != point:
                if data[place] < ZERO or data[place] > NINE:
                    good = False
                    break
                digit = np.uint64(data[place]) - np.uint64(ZERO)
                if left > 18:
                    upper = upper * np.uint64(10) + digit
                else:
                    lower = lower * np.uint64(10) + digit
                left -= 1
            place += 1
        if not good or (negative and upper == 0 and lower == 0):
            continue
        # upper * weight + lower in 128 bits, by halves.
        first = (upper & low_half) * (weight & low_half)
        second = (upper >> half) * (weight & low_half) + (first >> half)
        third = (upper & low_half) * (weight >> half) + (second & low_half)
        high = (upper >> half) * (weight >> half) + (second >> half) + (third >> half)
        low = (third << half) | (first & low_half)
        low = low + lower
        if low < lower:
            high = high + np.uint64(1)
        if negative:
            low = ~low + np.uint64(1)
            high = ~high + (np.uint64(1) if low == 0 else np.uint64(0))
        out[2 * row] = low
        out[2 * row + 1] = high
        exact[row] = True


@compiled
def floats(column: Column, out: npt.NDArray[np.float64], exact: Flags, longer: Flags) -> None:
    """Read numbers whose nearest double one division gives: up to 2^53, up to 22 decimals.

    `longer` flags the other texts that are digits with or without a point, but too many.
    """
    data, begins, ends, forms = column
    for row in range(len(begins)):
        out[row] = 0.0
        longer[row] = False
        if forms[row] <= NULL:
            exact[row] = True
            continue
        exact[row] = False
        place, end = begins[row], ends[row]
        if forms[row] != TEXT or place >= end:
            continue
        negative = data[place] == MINUS
        if negative:
            place += 1
        if end - place < 1 or data[place] == POINT or data[end - 1] == POINT:
            continue
        number, behind, points = 0, 0, 0
        good, fits = True, end - place <= 23
        while place < end:
            byte = data[place]
            if byte == POINT:
                points += 1
            elif byte >= ZERO and byte <= NINE:
                fits = fits and number < 900_719_925_474_099
                if fits:
                    number = number * 10 + (byte - ZERO)
                    behind += points
            else:
                good = False
                break
            place += 1
        if not good or points > 1:
            continue
        if not fits or behind > 22:
            longer[row] = True
            continue
        value = np.float64(number) / 10.0**behind
        out[row] = -value if negative else value
        exact[row] = True


# ---------------------------------------------------------------------------------- days and times


def _word(text: bytes) -> np.uint64:
    return np.frombuffer(text, "<u8")[0]


_HYPHENS, _HYPHENS_MASK = _word(b"\0\0\0\0-\0\0-"), _word(b"\0\0\0\0\xff\0\0\xff")
_CLOCK, _CLOCK_MASK = _word(b" \0\0:\0\0:\0"), _word(b"\xff\0\0\xff\0\0\xff\0")


@compiled
def moments(
    column: Column, has_clock: bool, digits: int, out: npt.NDArray[np.int64], exact: Flags
) -> None:
    """Read days, or days and times, that exist in the years 1 to 9999.

    `digits` are those of the fraction of a second. `out` has days since 1970, or microseconds.
    """
    data, begins, ends, forms = column
    wanted = 10
    if has_clock:
        wanted = 20 + digits if digits else 19
    for row in range(len(begins)):
        out[row] = 0
        if forms[row] <= NULL:
            exact[row] = True
            continue
        exact[row] = False
        place = begins[row]
        if forms[row] == ESCAPED or ends[row] - place != wanted:
            continue
        # `YYYY-MM-` with zeros for the hyphens.
        word = word_at(data, place)
        if word & _HYPHENS_MASK != _HYPHENS:
            continue
        number = number_of((word & ~_HYPHENS_MASK) | (ZEROS & _HYPHENS_MASK))
        year, month = number // 10_000, number // 10 % 1000
        day = digits_at(data, place + 8, 2)
        if year < 1 or month < 1 or month > 12 or day < 1 or day > 31:
            continue
        if day == 31 and (month == 4 or month == 6 or month == 9 or month == 11):
            continue
        if month == 2:
            leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
            if day > (29 if leap else 28):
                continue
        # Years begin in March, so that the leap day is the last.
        shifted = year - 1 if month <= 2 else year
        of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
        days = 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400 + of_year - 719468
        if not has_clock:
            out[row] = days
            exact[row] = True
            continue
        # ` hh:mm:s`, again with zeros.
        word = word_at(data, place + 10)
        if word & _CLOCK_MASK != _CLOCK:
            continue
        number = number_of((word & ~_CLOCK_MASK) | (ZEROS & _CLOCK_MASK))
        hour, minute = number // 100_000, number // 100 % 1000
        second = digits_at(data, place + 17, 2)
        if number < 0 or hour > 23 or minute > 59 or second < 0 or second > 59:
            continue
        fraction = 0
        if digits:
            fraction = digits_at(data, place + 20, digits)
            if fraction < 0 or data[place + 19] != POINT:
                continue
            for _ in range(6 - digits):
                fraction *= 10
        out[row] = (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + fraction
        exact[row] = True
