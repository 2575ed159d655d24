"""Compiled loops over columns of numbers: texts to integers, decimals and doubles.

In, out, and the arrays: see `column_loops`.
"""

# numba hides the types of what it compiles.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportArgumentType=false

from typing import Final

import numpy as np
import numpy.typing as npt

from ticdc_assets.base.compiled import compiled
from ticdc_assets.model.values.column_loops import (
    MINUS,
    NINE,
    NULL,
    POINT,
    TEXT,
    ZERO,
    Column,
    Flags,
)
from ticdc_assets.model.values.vector_loops import word_at
from ticdc_assets.model.values.word_loops import NO_DIGITS, digits_end, number_at, number_of

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
        found = number_at(data, place, head)
        number = np.uint64(found)
        good = found != NO_DIGITS
        place += head
        while good and place < end:
            found = number_of(word_at(data, place))
            # 2^64 has twenty digits.
            good = found != NO_DIGITS and (
                size < 20
                or place + 8 < end
                or number < _MOST_EIGHTS
                or (number == _MOST_EIGHTS and found <= _MOST_LEFT)
            )
            number = number * _HUNDRED_MILLION + np.uint64(found)
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


@compiled
def decimal_texts(column: Column, exact: Flags) -> None:
    """Set which texts are decimals without a `+`, an exponent, or zeros before them."""
    data, begins, ends, forms = column
    for row in range(len(begins)):
        exact[row] = forms[row] <= NULL
        if forms[row] != TEXT:
            continue
        place, end = begins[row], ends[row]
        if place < end and data[place] == MINUS:
            place += 1
        start = place
        place = digits_end(data, place, end)
        size = place - start
        if size < 1 or (size > 1 and data[start] == ZERO):
            continue
        if place < end:
            if data[place] != POINT or place + 1 == end:
                continue
            place += 1
            place = digits_end(data, place, end)
        exact[row] = place == end
