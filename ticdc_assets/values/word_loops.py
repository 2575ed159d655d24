"""Compiled loops that take eight bytes at a time.

In: bytes as words, the eight bytes at each place as one number, the first byte lowest
(`wire.byte_columns.words_of`), and places among them. Out: where something ends, whether two texts
are the same, what eight digits mean.

A word is read at every place from the first on in steps of eight, so behind the bytes that are
meant there must be seven more that can be read; those that are copied too much need seven more
that can be written.
"""

# numba hides the types of what it compiles.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportArgumentType=false, reportAssignmentType=false
# pyright: reportReturnType=false

from typing import Final

import numpy as np
import numpy.typing as npt

from ticdc_assets.compiled import compiled

Words = npt.NDArray[np.uint64]

ONES: Final = np.uint64(0x0101010101010101)
TOPS: Final = np.uint64(0x8080808080808080)
LAST_BYTE: Final = np.uint64(56)
"""How far the last of a word's bytes is from the first, in bits."""

ZEROS: Final = ONES * np.uint64(ord("0"))
"""Eight digits 0."""

_QUOTES: Final = ONES * np.uint64(ord('"'))
_BACKSLASHES: Final = ONES * np.uint64(ord("\\"))
_SPACES: Final = ONES * np.uint64(ord(" "))
_ONE: Final = np.uint64(1)
_BYTE: Final = np.uint64(8)
_UPPER_HALVES: Final = np.uint64(0xF0F0F0F0F0F0F0F0)
_SIXES: Final = ONES * np.uint64(6)
_LOWER_HALVES: Final = np.uint64(0x0F0F0F0F0F0F0F0F)
_EVEN_BYTES: Final = np.uint64(0x00FF00FF00FF00FF)
_EVEN_PAIRS: Final = np.uint64(0x0000FFFF0000FFFF)
_TENS: Final = np.uint64(10 * 2**8 + 1)
_HUNDREDS: Final = np.uint64(100 * 2**16 + 1)
_TEN_THOUSANDS: Final = np.uint64(10_000 * 2**32 + 1)
_SIXTEEN, _THIRTY_TWO = np.uint64(16), np.uint64(32)

NO_DIGITS: Final = -1
"""What `number_of` says of a word that is not eight digits."""


@compiled
def first_byte(word: np.uint64) -> int:
    """Return which is the first byte of a word that has a bit."""
    return np.int64((((word ^ (word - _ONE)) & ONES) * ONES) >> LAST_BYTE) - 1


@compiled
def others_than_digits(word: np.uint64) -> np.uint64:
    """Return a word with bits in its bytes that are no digits."""
    return ((word & _UPPER_HALVES) ^ ZEROS) | (((word + _SIXES) & _UPPER_HALVES) ^ ZEROS)


@compiled
def stop(words: Words, at: int, end: int) -> int:
    """Return the place of the first quote, backslash or control character; if none, the end."""
    while at < end:
        word = words[at]
        quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
        # The lowest of these bits is right: a borrow only goes up.
        stops = (
            ((quotes - ONES) & ~quotes)
            | ((backslashes - ONES) & ~backslashes)
            | ((word - _SPACES) & ~word)
        ) & TOPS
        if stops != 0:
            return min(at + first_byte(stops), end)
        at += 8
    return end


@compiled
def copied(words: Words, start: int, end: int, written: Words, place: int) -> int:
    """Copy what stands between two places to another, and return the place behind it."""
    # What is written too much is written over by the next.
    for step in range(0, end - start, 8):
        written[place + step] = words[start + step]
    return place + end - start


@compiled
def same(words: Words, at: int, others: Words, other: int, size: int) -> bool:
    """Return whether as many bytes are the same at a place and at another of `others`."""
    step = 0
    while size - step >= 8:
        if words[at + step] != others[other + step]:
            return False
        step += 8
    if step == size:
        return True
    differing = words[at + step] ^ others[other + step]
    return differing << (_BYTE * np.uint64(8 - (size - step))) == 0


@compiled
def number_of(word: np.uint64) -> int:
    """Return the number that eight digits make, the first of them lowest, or `NO_DIGITS`."""
    if others_than_digits(word) != 0:
        return NO_DIGITS
    # Pairs of digits, then of these, then of those.
    word = ((word & _LOWER_HALVES) * _TENS) >> _BYTE
    word = ((word & _EVEN_BYTES) * _HUNDREDS) >> _SIXTEEN
    return np.int64(((word & _EVEN_PAIRS) * _TEN_THOUSANDS) >> _THIRTY_TWO)


@compiled
def number_at(words: Words, at: int, size: int) -> int:
    """Return the number that one to eight digits at a place make, or `NO_DIGITS`."""
    word = words[at]
    if size < 8:
        bits = _BYTE * np.uint64(size)
        word = (word << (np.uint64(64) - bits)) | (ZEROS >> bits)
    return number_of(word)


@compiled
def gathered(
    words: Words, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], written: Words
) -> None:
    """Write what stands between places one behind the other.

    Args:
        words: the eight bytes at each place.
        starts: where each begins.
        ends: where each ends.
        written: the eight bytes at each place of what is written, which has padding too.
    """
    place = np.int64(0)
    for number in range(len(starts)):
        place = copied(words, starts[number], ends[number], written, place)
