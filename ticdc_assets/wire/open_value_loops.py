"""Compiled loops over values of Open Protocol: from what TiCDC writes to text in JSON.

In: the place of a value and the way of its column. Out: the text, written as a string of JSON, or
that it is none that the way knows. Numbers whose text may not be the shortest one are written as
sent and told, to be looked at again.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportReturnType=false

from typing import Final

import numpy as np

from ticdc_assets.compiled import inlined
from ticdc_assets.values.text_loops import from_base64
from ticdc_assets.values.word_loops import Words, copied
from ticdc_assets.wire.character_loops import (
    bytes_in_text,
    hex_digit,
    in_base64,
    text_written,
    utf8_written,
)
from ticdc_assets.wire.json_loops import (
    BACKSLASH,
    HEX,
    MINUS,
    NINE,
    QUOTE,
    ZERO,
    Ints,
    Octets,
    is_utf8,
    string_end,
    table_of,
    unescaped_end,
)

_POINT, _LETTER_X = ord("."), ord("x")
_BELL, _RETURN, _BLANK, _DELETE = ord("\a"), ord("\r"), ord(" "), 0x7F
_UPPER_A, _UPPER_F = ord("A"), ord("F")
_NO_LETTER: Final = np.uint8(0)
_GO_DIGITS: Final = np.zeros(256, np.int64)
_GO_DIGITS[list(b"xuU")] = 2, 4, 8
_LEAST_POINT: Final = np.zeros(256, np.int64)
_LEAST_POINT[list(b"uU")] = 0x80, 0x10000
_GO_ESCAPED: Final = table_of(b'abfnrtv\\"')
_GO_UNESCAPED: Final = np.zeros(256, np.uint8)
_GO_UNESCAPED[list(b'abfnrtv\\"')] = list(b'\a\b\f\n\r\t\v\\"')
_FIVES: Final = np.array([5**power for power in range(10)], np.int64)

(
    REFUSED_WAY,
    TEXT_WAY,
    INTEGER_WAY,
    UNSIGNED_WAY,
    FLOAT_WAY,
    DOUBLE_WAY,
    NULL_WAY,
    QUOTED_WAY,
    TEXT_IN_BASE64_WAY,
    BYTES_IN_BASE64_WAY,
) = range(10)
"""How the values of a column become text."""


@inlined
def _integer_end(octets: Octets, at: int, end: int, signed: bool) -> int:
    """Return the place behind an integer of 64 bits that is none of -0, or -1."""
    negative = octets[at] == MINUS
    if negative and not signed:
        return -1
    start = at + negative
    at = start
    while at < end and ZERO <= octets[at] <= NINE and at - start <= 20:
        at += 1
    size, longest = at - start, 19 if negative else 20
    if size == 0 or (octets[start] == ZERO and (size > 1 or negative)) or size > longest:
        return -1
    if size < longest:
        return at
    # -2^63 and 2^64 - 1 without their last digit, and that digit.
    most, last = (922337203685477580, 8) if negative else (1844674407370955161, 5)
    if size == 20 and octets[start] != ZERO + 1:
        return -1
    number = np.int64(0)
    for place in range(start, at - 1):
        number = number * 10 + octets[place] - ZERO
    return at if number < most or (number == most and octets[at - 1] <= ZERO + last) else -1


@inlined
def _number_end(octets: Octets, at: int, end: int, digits: int, more: bool) -> tuple[int, bool]:
    """Return the place behind a number without exponent and needless zeros, and whether it is sure.

    That is, whether no text of fewer digits, and no other of as many, reads as the same binary
    number: always so with up to 15 digits in 64 bits, and 6 in 32 bits; and with 7 if the number is
    exactly one of 32 bits, as two numbers of 6 and 7 digits are farther apart than half of what is
    between two of 32 bits.

    `digits` of them are sure, and one more if `more` and the number is a binary fraction.
    """
    negative = octets[at] == MINUS
    start = at + negative
    at = start
    # Up to a number that is no more sure; what it says then is not looked at.
    value, counted, fraction = np.int64(0), 0, 0
    while at < end and ZERO <= octets[at] <= NINE:
        counted += counted > 0 or octets[at] != ZERO
        value = value * 10 + octets[at] - ZERO
        at += 1
    if at == start or (octets[start] == ZERO and at - start > 1):
        return -1, False
    if at < end and octets[at] == _POINT:
        at += 1
        point = at
        while at < end and ZERO <= octets[at] <= NINE:
            counted += counted > 0 or octets[at] != ZERO
            value = value * 10 + octets[at] - ZERO
            at += 1
        fraction = at - point
        if fraction == 0 or octets[at - 1] == ZERO:
            return -1, False
    elif negative and counted == 0:
        return -1, False
    # Far from the smallest numbers, of which some have fewer digits.
    if at - start > 24:
        return at, False
    if counted <= digits:
        return at, True
    exact = more and counted == digits + 1 and fraction < 8 and value % _FIVES[fraction] == 0
    return at, exact


@inlined
def _unquoted(octets: Octets, end: int) -> int:
    """Replace text quoted by Go by the bytes that it stands for, and return how many.

    It is the first bytes of an array. For text that Go does not write so it is -1, see `go_quote`.
    """
    at, place = 0, 0
    while at < end:
        byte = octets[at]
        at += 1
        if byte < _BLANK or byte in (QUOTE, _DELETE):
            return -1
        if byte != BACKSLASH:
            octets[place] = byte
            place += 1
            continue
        letter = octets[at] if at < end else _NO_LETTER
        at += 1
        if _GO_ESCAPED[letter]:
            octets[place] = _GO_UNESCAPED[letter]
            place += 1
            continue
        size = _GO_DIGITS[letter]
        if size == 0 or at + size > end:
            return -1
        point = np.int64(0)
        for digit in range(at, at + size):
            if not HEX[octets[digit]] or _UPPER_A <= octets[digit] <= _UPPER_F:
                return -1
            point = point << 4 | hex_digit(octets[digit])
        at += size
        if letter == _LETTER_X:
            if _BLANK <= point < _DELETE or _BELL <= point <= _RETURN:
                return -1
            octets[place] = point
            place += 1
        elif point > 0x10FFFF or point & ~0x7FF == 0xD800 or point < _LEAST_POINT[letter]:
            return -1
        else:
            place = utf8_written(point, octets, place)
    return place


@inlined
def value_written(
    octets: Octets,
    words: Words,
    at: int,
    end: int,
    way: int,
    row: int,
    unsure: Ints,
    used: Ints,
    scratch: Octets,
    scratch_words: Words,
    written: Octets,
    written_words: Words,
    place: int,
) -> tuple[int, int]:
    """Write the value at a place, none of null, as text of JSON.

    Returns:
        The place behind it, -1 if it is none of its column; and the place behind what was written.
    """
    if at >= end:
        return -1, place
    written[place] = QUOTE
    place += 1
    behind = -1
    if way in (INTEGER_WAY, UNSIGNED_WAY):
        behind = _integer_end(octets, at, end, way == INTEGER_WAY)
        if behind >= 0:
            place = copied(words, at, behind, written_words, place)
    elif way in (FLOAT_WAY, DOUBLE_WAY):
        behind, sure = _number_end(octets, at, end, 6 if way == FLOAT_WAY else 15, way == FLOAT_WAY)
        if behind >= 0:
            place = copied(words, at, behind, written_words, place)
            if not sure:
                unsure[used[1], 0], unsure[used[1], 1] = row, way
                unsure[used[1], 2], unsure[used[1], 3] = at, behind
                used[1] += 1
    elif octets[at] == QUOTE and way != NULL_WAY:
        start = at + 1
        closing = unescaped_end(octets, words, start, end)
        unescaped = closing >= 0
        if not unescaped:
            closing = string_end(octets, words, start, end)
        if closing < 0:
            return -1, place
        behind = closing + 1
        if way == TEXT_WAY and unescaped:
            place = copied(words, start, closing, written_words, place)
        elif way == TEXT_WAY:
            place = text_written(
                octets, words, start, closing, written, written_words, place, way == TEXT_WAY
            )
        elif way == QUOTED_WAY:
            size = text_written(
                octets, words, start, closing, scratch, scratch_words, np.int64(0), way == TEXT_WAY
            )
            size = _unquoted(scratch, size)
            if size < 0:
                return -1, place
            place = in_base64(scratch, size, written, place)
        else:
            size = from_base64(octets, start, closing, scratch, 0)
            if size < 0:
                return -1, place
            if way == BYTES_IN_BASE64_WAY:
                place = copied(words, start, closing, written_words, place)
            elif is_utf8(scratch, scratch_words, np.int64(0), size):
                place = bytes_in_text(scratch, scratch_words, size, written, written_words, place)
            else:
                return -1, place
    written[place] = QUOTE
    return behind, place + 1
