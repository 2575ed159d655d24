"""Compiled loops over values of columns in JSON: from the sent value to text in JSON.

In: the node of a value that is not null, and the way of its column. Out: the text, written as a
string of JSON, or that the value does not fit the way. Numbers whose text may not be the shortest
are written as sent and marked, to be checked.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Final

import numpy as np

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.model.values.text_loops import from_base64
from ticdc_assets.model.values.vector_loops import put_word, word_at
from ticdc_assets.model.values.word_loops import HEX, copied, table_of
from ticdc_assets.wire.codes import Spelling
from ticdc_assets.wire.tape.json_loops import (
    BACKSLASH,
    BYTE,
    MINUS,
    NINE,
    ONE,
    POINT,
    QUOTE,
    ZERO,
    Octets,
    bytes_in_text,
    hex_digit,
    in_base64,
    is_utf8,
    latin1,
    text_written,
    utf8_written,
)
from ticdc_assets.wire.tape.token_loops import ESCAPED, INTEGER, NUMBER, TEXT, Nodes

_LETTER_X: Final = ord("x")
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

_LOCATION, _VALUE = (
    tuple(np.uint64(int.from_bytes(text[at : at + 8], "little")) for at in (0, 8))
    for text in (b'{"location":"   ', b'","value":"     ')
)
_QUOTE_WORD, _ZONED_END = (np.uint64(int.from_bytes(text, "little")) for text in (b'"', b'"}'))
_LOCATION_SIZE, _VALUE_SIZE = len('{"location":"'), len('","value":"')
_LOCATION_NAME: Final = np.uint64(int.from_bytes(b"location", "little"))
_VALUE_NAME: Final = np.uint64(int.from_bytes(b"value", "little"))
_FIVE_BYTES: Final = np.uint64(0xFFFFFFFFFF)


@inlined
def _is_integer(octets: Octets, at: int, end: int, signed: bool) -> bool:
    """Return whether an integer of JSON has 64 bits and is not -0."""
    negative = octets[at] == MINUS
    if negative and not signed:
        return False
    start = at + negative
    size, longest = end - start, 19 if negative else 20
    if size > longest or (negative and octets[start] == ZERO):
        return False
    if size < longest:
        return True
    # -2^63 and 2^64 - 1 without their last digit, and that digit.
    most, last = (922337203685477580, 8) if negative else (1844674407370955161, 5)
    if size == 20 and octets[start] != ZERO + 1:
        return False
    number = np.int64(0)
    for place in range(start, end - 1):
        number = number * 10 + octets[place] - ZERO
    return number < most or (number == most and octets[end - 1] <= ZERO + last)


@inlined
def _digits(octets: Octets, at: int, end: int, digits: int) -> tuple[bool, bool]:
    """Return whether a number has no exponent and no needless zeros, and whether it is sure.

    It is sure if no text of fewer digits, and no other of as many, reads as the same binary number:
    always with up to 15 digits in 64 bits, and 6 in 32 bits.
    """
    negative = octets[at] == MINUS
    start = at + negative
    counted, point = 0, end
    for place in range(start, end):
        byte = octets[place]
        if byte == POINT:
            point = place + 1
        elif ZERO <= byte <= NINE:
            counted += counted > 0 or byte != ZERO
        else:
            return False, False
    fraction = end - point
    if fraction > 0 and octets[end - 1] == ZERO:
        return False, False
    if fraction == 0 and negative and counted == 0:
        return False, False
    # Far from the smallest numbers, of which some have fewer digits.
    return True, counted <= digits and end - start <= 24


@inlined
def _unquoted(octets: Octets, end: int) -> int:
    """Replace text quoted by Go by its bytes, and return how many.

    They are the first bytes of an array. For text that Go does not write it is -1, see
    `open.go_quote`.
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
            # The bytes written after the character are not read yet.
            word = word_at(octets, place)
            size = utf8_written(point, octets, place) - place
            counting = (ONE << (BYTE * np.uint64(size))) - ONE
            put_word(octets, place, (word_at(octets, place) & counting) | (word & ~counting))
            place += size
    return place


@inlined
def _string_written(octets: Octets, node: Nodes, written: Octets, place: int) -> int:
    """Write the content of a string, without quotes; return the place after it."""
    if node.kind == TEXT:
        return copied(octets, node.start, node.end, written, place)
    return text_written(octets, node.start, node.end, written, place, True)


@inlined
def zoned_written(octets: Octets, nodes: Nodes, value: int, written: Octets, place: int) -> int:
    """Write a text in a zone; -1 for other objects: it has exactly the two members."""
    location, moment = -1, -1
    at, behind = value + 1, nodes[value].next
    while at < behind:
        name, size = nodes[at], nodes[at].end - nodes[at].start
        word = word_at(octets, name.start)
        if size == 8 and word == _LOCATION_NAME and location < 0:
            location = at + 1
        elif size == 5 and word & _FIVE_BYTES == _VALUE_NAME and moment < 0:
            moment = at + 1
        else:
            return -1
        if nodes[at + 1].kind not in (TEXT, ESCAPED):
            return -1
        at = nodes[at + 1].next
    if location < 0 or moment < 0:
        return -1
    put_word(written, place, _LOCATION[0])
    put_word(written, place + 8, _LOCATION[1])
    place = _string_written(octets, nodes[location], written, place + _LOCATION_SIZE)
    put_word(written, place, _VALUE[0])
    put_word(written, place + 8, _VALUE[1])
    place = _string_written(octets, nodes[moment], written, place + _VALUE_SIZE)
    put_word(written, place, _ZONED_END)
    return place + 2


@inlined
def _from_string(
    octets: Octets,
    node: Nodes,
    way: int,
    written: Octets,
    scratch: Octets,
    place: int,
) -> int:
    """Write the value of a column that is sent as a string; -1 if it does not fit the way."""
    if Spelling.TEXT <= way <= Spelling.NUMBER:
        return _string_written(octets, node, written, place)
    if way == Spelling.LATIN1:
        size = latin1(octets, node.start, node.end, scratch)
        return in_base64(scratch, size, written, place) if size >= 0 else -1
    if way == Spelling.QUOTED:
        start = np.int64(0)
        size = text_written(octets, node.start, node.end, scratch, start, False)
        size = _unquoted(scratch, size)
        return in_base64(scratch, size, written, place) if size >= 0 else -1
    if way not in (Spelling.TEXT_IN_BASE64, Spelling.BYTES_IN_BASE64) or node.kind != TEXT:
        return -1
    size = from_base64(octets, node.start, node.end, scratch, 0)
    if size < 0:
        return -1
    if way == Spelling.BYTES_IN_BASE64:
        return copied(octets, node.start, node.end, written, place)
    if not is_utf8(scratch, np.int64(0), size):
        return -1
    return bytes_in_text(scratch, size, written, place)


@inlined
def _from_number(
    octets: Octets, node: Nodes, way: int, written: Octets, place: int
) -> tuple[int, bool]:
    """Write the value of a column that is sent as a number; whether it is sure, see `_digits`."""
    start, end, sure = node.start, node.end, True
    if way == Spelling.NUMBER:
        # -0 is an integer, and so 0.
        good = node.kind == NUMBER or octets[start] != MINUS or octets[start + 1] != ZERO
    elif way in (Spelling.INTEGER, Spelling.UNSIGNED):
        good = node.kind == INTEGER and _is_integer(octets, start, end, way == Spelling.INTEGER)
    elif way in (Spelling.FLOAT, Spelling.DOUBLE):
        good, sure = _digits(octets, start, end, 6 if way == Spelling.FLOAT else 15)
    else:
        good = False
    return (copied(octets, start, end, written, place) if good else -1), sure


@compiled
def value_written(
    octets: Octets,
    node: Nodes,
    way: int,
    written: Octets,
    scratch: Octets,
    place: int,
) -> tuple[int, bool]:
    """Write a value that is not null as text of JSON.

    Returns the place after the text, -1 if the value does not fit its column; and whether the text
    is surely in the form that it must have.
    """
    sure = True
    put_word(written, place, _QUOTE_WORD)
    place += 1
    if node.kind in (TEXT, ESCAPED):
        place = _from_string(octets, node, way, written, scratch, place)
    elif node.kind in (INTEGER, NUMBER):
        place, sure = _from_number(octets, node, way, written, place)
    else:
        return -1, True
    if place < 0:
        return -1, True
    put_word(written, place, _QUOTE_WORD)
    return place + 1, sure
