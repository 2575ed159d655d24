"""Compiled loops that take many bytes at a time.

In: arrays of bytes, and places in them, see `vector_loops`. Out: where something ends, whether two
texts are the same, what digits mean; and copies.

They read more than the bytes that count, and write more than they copy: up to
`vector_loops.PADDING` bytes after them.
"""

# numba hides the types of what it compiles.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Final

import numpy as np
import numpy.typing as npt

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.model.values.vector_loops import among, copy, differing, first_bit, word_at

Bytes = npt.NDArray[np.uint8]

_ONES: Final = np.uint64(0x0101010101010101)
ZEROS: Final = _ONES * np.uint64(ord("0"))
"""Eight digits 0."""

_QUOTE, _BACKSLASH, _BLANK, _ZERO, _MINUS, _PLUS, _POINT, _LETTER_E = (
    ord(char) for char in '"\\ 0-+.e'
)
_ONE: Final = np.uint64(1)
_BYTE: Final = np.uint64(8)
_UPPER_HALVES: Final = np.uint64(0xF0F0F0F0F0F0F0F0)
_SIXES: Final = _ONES * np.uint64(6)
_LOWER_HALVES: Final = np.uint64(0x0F0F0F0F0F0F0F0F)
_EVEN_BYTES: Final = np.uint64(0x00FF00FF00FF00FF)
_EVEN_PAIRS: Final = np.uint64(0x0000FFFF0000FFFF)
_TENS: Final = np.uint64(10 * 2**8 + 1)
_HUNDREDS: Final = np.uint64(100 * 2**16 + 1)
_TEN_THOUSANDS: Final = np.uint64(10_000 * 2**32 + 1)
_SIXTEEN, _THIRTY_TWO = np.uint64(16), np.uint64(32)


def table_of(chars: bytes) -> Bytes:
    """Return a table that has 1 for these bytes and 0 for others."""
    table = np.zeros(256, np.uint8)
    table[list(chars)] = 1
    return table


_ESCAPED: Final = table_of(b'"\\/bfnrt')
HEX: Final = table_of(b"0123456789abcdefABCDEF")
_HIGH: Final = table_of(b"89abAB")
_LOW: Final = table_of(b"cdefCDEF")
_LETTER_U: Final = ord("u")

_NULL, _TRUE, _FALSE = (
    np.uint64(int.from_bytes(word, "little")) for word in (b"null", b"true", b"false")
)
_FOUR_BYTES, _FIVE_BYTES = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFFFF)

NO_DIGITS: Final = -1
"""The result of `number_of` for a word that is not eight digits."""


@inlined
def stop(octets: Bytes, at: int, end: int) -> int:
    """Return the place of the first quote, backslash or control character.

    If there is none before the end, the result is the end, or a place after it.
    """
    while at < end:
        stops = among(octets, at, _QUOTE, 1) | among(octets, at, _BACKSLASH, 1)
        stops |= among(octets, at, 0, _BLANK)
        if stops != 0:
            return at + first_bit(stops)
        at += 32
    return end


@inlined
def _is_escape(octets: Bytes, at: int) -> bool:
    """Return whether four digits of an escape are at a place."""
    return HEX[octets[at]] and HEX[octets[at + 1]] and HEX[octets[at + 2]] and HEX[octets[at + 3]]


@compiled
def escapes_end(octets: Bytes, at: int, end: int) -> int:
    """Return the place of the closing quote of a string, from an escape in it on.

    A surrogate is followed by its other half.
    """
    while at < end:
        byte = octets[at]
        if byte == _QUOTE:
            return at
        if byte != _BACKSLASH:
            return -1
        byte = octets[at + 1]
        if byte == _LETTER_U:
            if not _is_escape(octets, at + 2):
                return -1
            if octets[at + 2] | 0x20 == 0x64 and not 0x30 <= octets[at + 3] <= 0x37:
                if not _HIGH[octets[at + 3]]:
                    return -1
                at += 6
                if (
                    octets[at] != _BACKSLASH
                    or octets[at + 1] != _LETTER_U
                    or not _is_escape(octets, at + 2)
                    or octets[at + 2] | 0x20 != 0x64
                    or not _LOW[octets[at + 3]]
                ):
                    return -1
            at += 6
        elif _ESCAPED[byte]:
            at += 2
        else:
            return -1
        at = stop(octets, at, end)
    return -1


@inlined
def digits_end(octets: Bytes, at: int, end: int) -> int:
    """Return the place of the first byte that is not a digit; if there is none, the end."""
    while at < end:
        # The bytes after 9, around to those before 0.
        others = among(octets, at, _ZERO + 10, 256 - 10)
        if others != 0:
            return min(at + first_bit(others), end)
        at += 32
    return end


@inlined
def number_end(octets: Bytes, at: int, end: int) -> tuple[int, bool]:
    """Return the place after a number of JSON, -1 for none, and whether it is an integer."""
    at += octets[at] == _MINUS
    start, at = at, digits_end(octets, at, end)
    good, is_integer = start < at and (octets[start] != _ZERO or at - start == 1), True
    if at < end and octets[at] == _POINT:
        start, at = at + 1, digits_end(octets, at + 1, end)
        good, is_integer = good and start < at, False
    if at < end and octets[at] | 0x20 == _LETTER_E:
        at += 1
        at += at < end and (octets[at] == _MINUS or octets[at] == _PLUS)
        start, at = at, digits_end(octets, at, end)
        good, is_integer = good and start < at, False
    return at if good else -1, is_integer


@inlined
def literal_end(octets: Bytes, at: int) -> tuple[int, int]:
    """Return the place after null (0), false (1) or true (2) and which it is; -1 for none."""
    word = word_at(octets, at)
    if word & _FOUR_BYTES == _NULL:
        return at + 4, 0
    if word & _FIVE_BYTES == _FALSE:
        return at + 5, 1
    return at + 4 if word & _FOUR_BYTES == _TRUE else -1, 2


@inlined
def copied(octets: Bytes, start: int, end: int, written: Bytes, place: int) -> int:
    """Copy the bytes between two places to another place, and return the place after them."""
    # The next copy overwrites what this one writes too much. Most copies are short.
    copy(octets, start, written, place)
    for step in range(32, end - start, 32):
        copy(octets, start + step, written, place + step)
    return place + end - start


@inlined
def same(octets: Bytes, at: int, others: Bytes, other: int, size: int) -> bool:
    """Return whether as many bytes at a place equal those at a place of `others`."""
    while size > 32:
        if differing(octets, at, others, other) != 0:
            return False
        at, other, size = at + 32, other + 32, size - 32
    counting = (_ONE << np.uint64(size)) - _ONE
    return np.uint64(differing(octets, at, others, other)) & counting == 0


@compiled
def number_of(word: np.uint64) -> int:
    """Return the number that eight digits make, the first of them lowest, or `NO_DIGITS`."""
    if ((word & _UPPER_HALVES) ^ ZEROS) | (((word + _SIXES) & _UPPER_HALVES) ^ ZEROS) != 0:
        return NO_DIGITS
    # Pairs of digits, then pairs of pairs, then pairs of those.
    word = ((word & _LOWER_HALVES) * _TENS) >> _BYTE
    word = ((word & _EVEN_BYTES) * _HUNDREDS) >> _SIXTEEN
    return np.int64(((word & _EVEN_PAIRS) * _TEN_THOUSANDS) >> _THIRTY_TWO)


@compiled
def number_at(octets: Bytes, at: int, size: int) -> int:
    """Return the number that one to eight digits at a place make, or `NO_DIGITS`."""
    word = word_at(octets, at)
    if size < 8:
        bits = _BYTE * np.uint64(size)
        word = (word << (np.uint64(64) - bits)) | (ZEROS >> bits)
    return number_of(word)


@compiled
def gathered(
    octets: Bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], written: Bytes
) -> None:
    """Write the pieces between places one after the other."""
    place = np.int64(0)
    for number in range(len(starts)):
        place = copied(octets, starts[number], ends[number], written, place)
