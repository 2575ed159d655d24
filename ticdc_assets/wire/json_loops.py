"""Compiled loops that those of the three formats in JSON share: strings, numbers, fixed texts.

In: the bytes of many messages one behind the other, with padding (`byte_columns.Buffer`), and
places in them. Out: places, and numbers that were read. The loops of a format (`simple_loops`,
`canal_loops`, `open_loops`) read a message once, from its first byte to its last: what stands
between its strings is compared with what TiCDC writes, and its strings are what JSON allows: UTF-8
without control characters, with JSON's escapes, none of them half of a surrogate pair. Whatever
differs in one byte is not regular, and left to others.

What all loops are given is said here alone: `octets` are bytes and `words` the eight bytes at each
place, `at` or `start` is where something begins and `end` where it or its message ends; `written`
and `written_words` are the same of what is written, and `place` is where.

A place is -1 where something else stood than what was expected, and what is read from there is -1
again.

Nothing is read outside the padded bytes. A place only grows: by a string or a number, which end
before the end of the message and refuse to begin there or behind it, and between two of these by
less than half of `PADDING`. A message is regular only if reading it stopped exactly at its end, so
one that runs into the next is none.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportReturnType=false

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ticdc_assets.compiled import compiled
from ticdc_assets.values.word_loops import TOPS, Words, stop

Octets: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

IRREGULAR, INSERT, UPDATE, DELETE, WATERMARK = range(5)
"""What a message is."""

QUOTE, BACKSLASH, OPEN, CLOSE, COLON, COMMA, ZERO, NINE, MINUS, PAD, LETTER_U = (
    ord(char) for char in '"\\{}:,09-=u'
)
OPEN_ARRAY, CLOSE_ARRAY = (ord(char) for char in "[]")
_LONGEST_NUMBER: Final = 18
"""Digits that are read of a number: as many as always fit in 64 bits with a sign."""

ONE: Final = np.uint64(1)
_EIGHT: Final = 8
MIX: Final = np.uint64(0x9E3779B97F4A7C15)
HALF, BYTE, ZERO_WORD = np.uint64(32), np.uint64(8), np.uint64(0)


class Sheet(NamedTuple):
    """What is written to.

    Attributes:
        octets: its bytes, with padding.
        words: the eight bytes at each place.
    """

    octets: Octets
    words: Words


def expected(*texts: bytes) -> Words:
    """Return texts as words: what the bytes are, which of them count, and how many there are."""
    size = max(len(text) + _EIGHT - 1 for text in texts) // _EIGHT
    found = np.zeros((len(texts), 3, size), np.uint64)
    for number, text in enumerate(texts):
        found[number, 0] = np.frombuffer(text.ljust(size * _EIGHT, b"\0"), "<u8")
        counting = (b"\xff" * len(text)).ljust(size * _EIGHT, b"\0")
        found[number, 1] = np.frombuffer(counting, "<u8")
        found[number, 2] = len(text)
    return found


def table_of(chars: bytes) -> Octets:
    """Return a table that has 1 for these bytes and 0 for others."""
    found = np.zeros(256, np.uint8)
    found[list(chars)] = 1
    return found


_ESCAPED: Final = table_of(b'"\\/bfnrt')
HEX: Final = table_of(b"0123456789abcdefABCDEF")
_SURROGATE: Final = table_of(b"89abcdefABCDEF")


@compiled
def passed(words: Words, at: int, text: Words) -> int:
    """Return the place behind a text, one of `expected`, that stands at a place, or -1."""
    if at < 0:
        return -1
    for number in range(text.shape[1]):
        if words[at + 8 * number] & text[1, number] != text[0, number]:
            return -1
    return at + np.int64(text[2, 0])


@compiled
def string_end(octets: Octets, words: Words, at: int, end: int) -> int:
    """Return the place of the closing quote of the string whose first character is at a place."""
    if at < 0:
        return -1
    while True:
        at = stop(words, at, end)
        if at >= end:
            return -1
        byte = octets[at]
        if byte == QUOTE:
            return at
        if byte != BACKSLASH:
            return -1
        at += 1
        byte = octets[at]
        if byte == LETTER_U:
            if not (
                HEX[octets[at + 1]]
                and HEX[octets[at + 2]]
                and HEX[octets[at + 3]]
                and HEX[octets[at + 4]]
            ):
                return -1
            if octets[at + 1] | 0x20 == 0x64 and _SURROGATE[octets[at + 2]]:
                return -1
            at += 5
        elif _ESCAPED[byte]:
            at += 1
        else:
            return -1


@compiled
def natural(octets: Octets, at: int, end: int) -> tuple[int, int]:
    """Return the number that begins at a place, without a leading zero, and the place behind it.

    The place is -1 if there is none, or a longer one than `_LONGEST_NUMBER`.
    """
    if at < 0 or at >= end:
        return 0, -1
    number, start = 0, at
    while ZERO <= octets[at] <= NINE and at - start <= _LONGEST_NUMBER:
        number = number * 10 + octets[at] - ZERO
        at += 1
    size = at - start
    if size == 0 or size > _LONGEST_NUMBER or (size > 1 and octets[start] == ZERO):
        return 0, -1
    return number, at


@compiled
def is_utf8(octets: Octets, words: Words, at: int, end: int) -> bool:
    """Return whether what stands between two places is UTF-8."""
    while at < end:
        if words[at] & TOPS == 0:
            at += 8
            continue
        byte = octets[at]
        if byte < 0x80:
            at += 1
            continue
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


@compiled
def unescaped_end(octets: Octets, words: Words, at: int, end: int) -> int:
    """Return the place of the closing quote of a string that is not empty and has no escape."""
    if at < 0:
        return -1
    closing = stop(words, at, end)
    return closing if at < closing < end and octets[closing] == QUOTE else -1


@compiled
def length_at(octets: Octets, at: int, end: int) -> int:
    """Return the length that stands at a place and fits in before the end, or -1."""
    if at < 0 or at + 8 > end:
        return -1
    length = 0
    for place in range(at, at + 8):
        length = length << 8 | octets[place]
        if length > end - at:
            return -1
    return length if length <= end - at - 8 else -1


@compiled
def same_bytes(words: Words, one: int, other: int, size: int, end: int) -> bool:
    """Return whether the same bytes stand at two places, before the end of the other."""
    if other + size > end:
        return False
    whole = size & -8
    for step in range(0, whole, 8):
        if words[one + step] != words[other + step]:
            return False
    counting = (ONE << (BYTE * np.uint64(size & 7))) - ONE
    return ((words[one + whole] ^ words[other + whole]) & counting) == ZERO_WORD


@compiled
def hashed(words: Words, start: int, end: int, seed: np.uint64) -> np.uint64:
    """Return a number for what stands between two places."""
    size = end - start
    whole = size & -8
    for step in range(0, whole, 8):
        seed = (seed ^ words[start + step]) * MIX
        seed ^= seed >> HALF
    counting = (ONE << (BYTE * np.uint64(size & 7))) - ONE
    seed = (seed ^ (words[start + whole] & counting) ^ np.uint64(size)) * MIX
    return seed ^ (seed >> HALF)
