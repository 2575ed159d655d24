"""Compiled loops over JSON: blanks, numbers, UTF-8, characters of strings, bytes in base64.

In: the bytes of many texts one after the other, with `texts.PADDING`, and places in them; of
strings only such that have been read before, so their escapes are whole. Out: places, numbers, code
points; UTF-8, strings of JSON and bytes, for which the output has room. All loops have these
arguments: `octets` are bytes, `at` or `start` is where something begins and `end` where it or its
text ends; `written` are the bytes of the output, and `place` is a place there.

A place is -1 where something unexpected was read.

Nothing is read outside the padded bytes: a place only grows, and less than `PADDING` is read after
the end of a text. The place after such a read is beyond the end, and shows it.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.model.values.text_loops import BASE64
from ticdc_assets.model.values.vector_loops import among, first_bit, put_word, word_at
from ticdc_assets.model.values.word_loops import copied, number_at, number_of, stop, table_of

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


_UNESCAPED: Final = np.zeros(256, np.uint8)
_UNESCAPED[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
"""For each byte after a backslash the byte that both mean, 0 for none."""
_SHORT_ESCAPES: Final = np.zeros(256, np.uint8)
_SHORT_ESCAPES[list(b'"\\\b\f\n\r\t')] = list(b'"\\bfnrt')
_LONG_ESCAPE: Final = int.from_bytes(rb"\u00", "little")
_PAD, _PADS = (np.uint64(int.from_bytes(pads, "little")) for pads in (b"=", b"=="))
_ONE_BYTE, _TWO_BYTES, _THREE_BYTES = np.uint64(8), np.uint64(16), np.uint64(24)
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)


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


@compiled
def hex_digit(byte: int) -> int:
    """Return the value of a hexadecimal digit."""
    # Letters have 9 less in their low bits.
    return (np.int64(byte) & 15) + (9 if byte > 0x40 else 0)


@compiled
def _hex_word(octets: Octets, at: int) -> int:
    """Return the value of four hexadecimal digits."""
    point = np.int64(0)
    for place in range(at, at + 4):
        point = point << 4 | hex_digit(octets[place])
    return point


@compiled
def code_point(octets: Octets, at: int) -> tuple[int, int]:
    """Return the character of a string in UTF-8 at a place, and the place after it."""
    byte = np.int64(octets[at])
    if byte < 0x80:
        if byte != BACKSLASH:
            return byte, at + 1
        letter = octets[at + 1]
        if letter != LETTER_U:
            return np.int64(_UNESCAPED[letter]), at + 2
        point = _hex_word(octets, at + 2)
        if point & ~0x3FF != 0xD800:
            return point, at + 6
        return 0x10000 + (point - 0xD800 << 10) + _hex_word(octets, at + 8) - 0xDC00, at + 12
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | (octets[at + 1] & 0x3F), at + 2
    if byte < 0xF0:
        point = (byte & 0x0F) << 12 | (octets[at + 1] & 0x3F) << 6 | (octets[at + 2] & 0x3F)
        return point, at + 3
    point = (byte & 0x07) << 18 | (octets[at + 1] & 0x3F) << 12
    return point | (octets[at + 2] & 0x3F) << 6 | (octets[at + 3] & 0x3F), at + 4


@compiled
def latin1(octets: Octets, at: int, end: int, written: Octets) -> int:
    """Write the bytes that a string's characters mean in Latin-1, and return how many, or -1."""
    place = 0
    while at < end:
        point, at = code_point(octets, at)
        if point > 0xFF:
            return -1
        written[place] = point
        place += 1
    return place


@compiled
def utf8_written(point: int, written: Octets, place: int) -> int:
    """Write a code point in UTF-8, and return the place after it."""
    if point < 0x80:
        put_word(written, place, np.uint64(point))
        return place + 1
    last = 0x80 | point & 0x3F
    if point < 0x800:
        put_word(written, place, np.uint64(0xC0 | point >> 6 | last << 8))
        return place + 2
    third = 0x80 | point >> 6 & 0x3F
    if point < 0x10000:
        put_word(written, place, np.uint64(0xE0 | point >> 12 | third << 8 | last << 16))
        return place + 3
    second = 0x80 | point >> 12 & 0x3F
    put_word(written, place, np.uint64(0xF0 | point >> 18 | second << 8 | third << 16 | last << 24))
    return place + 4


@compiled
def character_written(point: int, written: Octets, place: int) -> int:
    """Write a code point in a string of JSON, and return the place after it."""
    if point >= 0x20 and point != QUOTE and point != BACKSLASH:
        return utf8_written(point, written, place)
    short = np.int64(_SHORT_ESCAPES[point])
    if short:
        put_word(written, place, np.uint64(BACKSLASH | short << 8))
        return place + 2
    digits = np.int64(_DIGITS[point >> 4]) << 32 | np.int64(_DIGITS[point & 15]) << 40
    put_word(written, place, np.uint64(_LONG_ESCAPE | digits))
    return place + 6


@compiled
def text_written(
    octets: Octets, at: int, end: int, written: Octets, place: int, again: bool
) -> int:
    """Write the content of a string up to its closing quote, and return the place after it.

    It is written as a string of JSON `again`, or else as its bytes.
    """
    start = at
    at = stop(octets, at, end)
    while at < end:
        place = copied(octets, start, at, written, place)
        point, start = code_point(octets, at)
        if again:
            place = character_written(point, written, place)
        else:
            place = utf8_written(point, written, place)
        at = stop(octets, start, end)
    return copied(octets, start, end, written, place)


@compiled
def bytes_in_text(octets: Octets, end: int, written: Octets, place: int) -> int:
    """Write the first bytes of an array, UTF-8, as a string of JSON; return the place after it."""
    start = np.int64(0)
    at = stop(octets, start, end)
    while at < end:
        place = copied(octets, start, at, written, place)
        place = character_written(np.int64(octets[at]), written, place)
        start = at + 1
        at = stop(octets, start, end)
    return copied(octets, start, end, written, place)


@compiled
def _four(written: Octets, place: int, three: int) -> None:
    """Write three bytes as base64."""
    put_word(
        written,
        place,
        np.uint64(BASE64[three >> 18])
        | np.uint64(BASE64[three >> 12 & 63]) << _ONE_BYTE
        | np.uint64(BASE64[three >> 6 & 63]) << _TWO_BYTES
        | np.uint64(BASE64[three & 63]) << _THREE_BYTES,
    )


@compiled
def in_base64(octets: Octets, end: int, written: Octets, place: int) -> int:
    """Write the first bytes of an array as base64, and return the place after it."""
    whole = end - end % 3
    for at in range(0, whole, 3):
        three = np.int64(octets[at]) << 16 | np.int64(octets[at + 1]) << 8 | octets[at + 2]
        _four(written, place, three)
        place += 4
    if whole == end:
        return place
    three, two = np.int64(octets[whole]) << 16, end - whole == 2
    if two:
        three |= np.int64(octets[whole + 1]) << 8
    _four(written, place, three)
    put_word(written, place + 3, _PAD)
    if not two:
        put_word(written, place + 2, _PADS)
    return place + 4
