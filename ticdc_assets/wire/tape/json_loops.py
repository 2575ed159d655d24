"""Compiled loops over JSON: the class of each byte, where strings end, numbers, UTF-8.

In: the bytes of many texts one after the other, with `texts.PADDING`, and places in them.
Out: places, and numbers. All loops have these arguments: `octets` are bytes, `at` or `start` is
where something begins and `end` where it or its text ends; `written` are the bytes of the output,
and `place` is a place there.

A place is -1 where something unexpected was read.

Nothing is read outside the padded bytes: a place only grows, and less than `PADDING` is read after
the end of a text. The place after such a read is beyond the end, and shows it.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportReturnType=false

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.model.values.vector_loops import among, first_bit, word_at
from ticdc_assets.model.values.word_loops import number_at, number_of, table_of

Octets: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Places: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]

QUOTE, BACKSLASH, OPEN, CLOSE, COLON, COMMA, ZERO, NINE, MINUS, LETTER_U = (
    ord(char) for char in '"\\{}:,09-u'
)
OPEN_ARRAY, CLOSE_ARRAY, POINT = (ord(char) for char in "[].")
LONGEST_NUMBER: Final = 18
"""Most digits of a number that are read: as many as always fit in 64 bits with a sign."""

ONE: Final = np.uint64(1)
MIX: Final = np.uint64(0x9E3779B97F4A7C15)
HALF, BYTE, ZERO_WORD = np.uint64(32), np.uint64(8), np.uint64(0)


class Texts(NamedTuple):
    """Texts one after the other.

    Attributes:
        octets: their bytes, with padding.
        starts: where each begins.
        ends: where it ends.
    """

    octets: Octets
    starts: Ints
    ends: Ints


BLANK: Final = table_of(b" \t\n\r")
_LAST_BLANK: Final = ord(" ")


@inlined
def blanks_end(octets: Octets, at: int, end: int) -> int:
    """Return the first place from one on that is not a blank, the end at most."""
    while octets[at] <= _LAST_BLANK and at < end and BLANK[octets[at]]:
        at += 1
    return at


@compiled
def natural(octets: Octets, at: int, end: int) -> int:
    """Return the number of the digits between two places.

    It is -1 if there is something else, or more than `LONGEST_NUMBER` digits.
    """
    size = end - at
    if not 0 < size <= LONGEST_NUMBER:
        return -1
    # The first digits up to a multiple of eight, then eight at a time.
    first = size & 7
    number = number_at(octets, at, first) if first else np.int64(0)
    for place in range(at + first, end, 8):
        eight = number_of(word_at(octets, place))
        if number < 0 or eight < 0:
            return -1
        number = number * 100_000_000 + eight
    return number


@compiled
def is_utf8(octets: Octets, at: int, end: int) -> bool:
    """Return whether the bytes between two places are UTF-8."""
    while at < end:
        others = among(octets, at, 0x80, 0x80)
        if others == 0:
            at += 32
            continue
        at += first_bit(others)
        if at >= end:
            break
        byte = octets[at]
        if byte < 0xC2 or byte > 0xF4:
            return False
        size = 2 + (byte >= 0xE0) + (byte >= 0xF0)
        if at + size > end:
            return False
        second = octets[at + 1]
        if (
            (byte == 0xE0 and second < 0xA0)
            or (byte == 0xED and second > 0x9F)
            or (byte == 0xF0 and second < 0x90)
            or (byte == 0xF4 and second > 0x8F)
        ):
            return False
        for number in range(1, size):
            if octets[at + number] & 0xC0 != 0x80:
                return False
        at += size
    return True


@inlined
def hashed(octets: Octets, start: int, end: int, seed: np.uint64) -> np.uint64:
    """Return a hash of the bytes between two places."""
    size = end - start
    whole = size & -8
    for step in range(0, whole, 8):
        seed = (seed ^ word_at(octets, start + step)) * MIX
        seed ^= seed >> HALF
    counting = (ONE << (BYTE * np.uint64(size & 7))) - ONE
    seed = (seed ^ (word_at(octets, start + whole) & counting) ^ np.uint64(size)) * MIX
    return seed ^ (seed >> HALF)
