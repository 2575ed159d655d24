"""Compiled loops over strings of JSON: characters and bytes in base64, read and written.

In: strings that have been read before, so their escapes are whole. Out: code points, UTF-8, strings
of JSON, bytes. The output has room: a caller knows the most bytes that a character or a byte takes.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Final

import numpy as np

from ticdc_assets.base.compiled import compiled
from ticdc_assets.model.values.text_loops import BASE64
from ticdc_assets.model.values.vector_loops import put_word
from ticdc_assets.model.values.word_loops import copied, stop
from ticdc_assets.wire.tape.json_loops import (
    BACKSLASH,
    LETTER_U,
    QUOTE,
    Octets,
)

UNESCAPED: Final = np.zeros(256, np.uint8)
UNESCAPED[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
"""For each byte after a backslash the byte that both mean, 0 for none."""
_SHORT_ESCAPES: Final = np.zeros(256, np.uint8)
_SHORT_ESCAPES[list(b'"\\\b\f\n\r\t')] = list(b'"\\bfnrt')
_LONG_ESCAPE: Final = int.from_bytes(rb"\u00", "little")
_PAD, _PADS = (np.uint64(int.from_bytes(pads, "little")) for pads in (b"=", b"=="))
_ONE_BYTE, _TWO_BYTES, _THREE_BYTES = np.uint64(8), np.uint64(16), np.uint64(24)
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)


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
            return np.int64(UNESCAPED[letter]), at + 2
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
    """Write the content of the string between two places, and return the place after it.

    Args:
        octets: the bytes.
        at: where the string's first character is.
        end: where its closing quote is.
        written: gets the content.
        place: where.
        again: whether to write a string of JSON again; else its bytes.
    """
    kept = at
    at = stop(octets, at, end)
    while at < end:
        place = copied(octets, kept, at, written, place)
        point, kept = code_point(octets, at)
        if again:
            place = character_written(point, written, place)
        else:
            place = utf8_written(point, written, place)
        at = stop(octets, kept, end)
    return copied(octets, kept, end, written, place)


@compiled
def bytes_in_text(octets: Octets, end: int, written: Octets, place: int) -> int:
    """Write the first bytes of an array, UTF-8, as a string of JSON; return the place after it."""
    kept = np.int64(0)
    at = stop(octets, kept, end)
    while at < end:
        place = copied(octets, kept, at, written, place)
        place = character_written(np.int64(octets[at]), written, place)
        kept = at + 1
        at = stop(octets, kept, end)
    return copied(octets, kept, end, written, place)


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
