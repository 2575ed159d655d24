"""Compiled loops over columns of days and times.

In, out, and the arrays: see `column_loops`.
"""

# numba hides the types of what it compiles.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportArgumentType=false

import numpy as np
import numpy.typing as npt

from ticdc_assets.base.compiled import compiled
from ticdc_assets.model.values.column_loops import (
    ESCAPED,
    MINUS,
    NULL,
    POINT,
    TEXT,
    Column,
    Flags,
    digits_at,
)
from ticdc_assets.model.values.vector_loops import word_at
from ticdc_assets.model.values.word_loops import ZEROS, number_of

_COLON, _SPACE = 58, 32


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


@compiled
def times(column: Column, digits: int, exact: Flags) -> None:
    """Set which texts are canonical TIME with `digits` of a fraction, -1 for any number."""
    data, begins, ends, forms = column
    for row in range(len(begins)):
        exact[row] = forms[row] <= NULL
        if forms[row] != TEXT:
            continue
        place, end = begins[row], ends[row]
        if place < end and data[place] == MINUS:
            place += 1
        hours = 3 if end - place > 3 and data[place + 3] == _COLON else 2
        behind = end - place - hours - 6
        if behind < 0 or data[place + hours] != _COLON or data[place + hours + 3] != _COLON:
            continue
        hour = digits_at(data, place, hours)
        minute = digits_at(data, place + hours + 1, 2)
        second = digits_at(data, place + hours + 4, 2)
        if hour < 0 or hour > 838 or (hours == 3 and hour < 100):
            continue
        if minute < 0 or minute > 59 or second < 0 or second > 59:
            continue
        if behind:
            point = place + hours + 6
            if behind < 2 or behind > 7 or data[point] != POINT:
                continue
            if digits_at(data, point + 1, behind - 1) < 0:
                continue
        exact[row] = digits < 0 or behind == (digits + 1 if digits else 0)


@compiled
def datetime_texts(column: Column, exact: Flags) -> None:
    """Set which texts are DATETIME with any fraction, zero dates among them."""
    data, begins, ends, forms = column
    for row in range(len(begins)):
        exact[row] = forms[row] <= NULL
        place, size = begins[row], ends[row] - begins[row]
        if forms[row] <= NULL or forms[row] == ESCAPED or size < 19:
            continue
        if data[place + 4] != MINUS or data[place + 7] != MINUS or data[place + 10] != _SPACE:
            continue
        if data[place + 13] != _COLON or data[place + 16] != _COLON:
            continue
        month, day = digits_at(data, place + 5, 2), digits_at(data, place + 8, 2)
        hour = digits_at(data, place + 11, 2)
        minute = digits_at(data, place + 14, 2)
        second = digits_at(data, place + 17, 2)
        if digits_at(data, place, 4) < 0 or month < 0 or month > 12 or day < 0 or day > 31:
            continue
        if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
            continue
        if size > 19 and (size < 21 or size > 26 or data[place + 19] != POINT):
            continue
        exact[row] = size == 19 or digits_at(data, place + 20, size - 20) >= 0
