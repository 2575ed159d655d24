"""Compiled loops for Avro and Craft: numbers of 7-bit groups, and values as nodes of a tape.

In: places in the bytes of messages. Out: numbers; and nodes (`tape.token_loops`) whose text can be
copied into an image. Where the bytes of a value are that text, the node is there; else the text is
written after the messages, where its node is then. The texts of floating numbers are written later,
all together (`tape`).

A place is -1 where something unexpected was read, and stays -1: each function takes the place that
another returned. A number that takes more bytes than it needs is unexpected, too.

Text after the messages: a value of one byte has at most `ROOM` bytes of text, as a control
character has six, and two empty texts in a zone have 26 with the four bytes of their column.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportReturnType=false

from typing import Final, NamedTuple

import numpy as np

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.model.values.vector_loops import word_at
from ticdc_assets.model.values.word_loops import copied, stop
from ticdc_assets.wire.tape.json_loops import (
    MINUS,
    ONE,
    Ints,
    Octets,
    bytes_in_text,
    in_base64,
    is_utf8,
)
from ticdc_assets.wire.tape.token_loops import BARE, FOUR_BYTES, NONE, TEXT, WHOLE, Nodes

ROOM: Final = 8
"""Bytes of text after the messages that a byte of them has at most."""

MORE: Final = 0x80
"""The bit of a byte after which a number goes on."""
_LAST_SHIFT, _SEVEN = np.uint64(63), np.uint64(7)
_TEN, _ZERO = np.uint64(10), np.uint64(ord("0"))
_DOUBLE_EXPONENT, _FLOAT_EXPONENT = np.uint64(0x7FF << 52), np.uint64(0xFF << 23)
_LOCATION, _VALUE, _END = (
    np.frombuffer(text + bytes(32), np.uint8) for text in (b'{"location":"', b'","value":"', b'"}')
)
_LOCATION_SIZE, _VALUE_SIZE, _END_SIZE = len('{"location":"'), len('","value":"'), len('"}')

FLOATING: Final = np.dtype(
    [("node", np.int64), ("bits", np.uint64), ("size", np.int8), ("is_float", np.bool_)]
)
"""A floating number: its node, its bits and bytes as sent, and whether its text is of 32 bits."""

NULL_NODE: Final = 0
"""The node of each NULL."""

USED_NODES, USED_OCTETS, USED_FLOATS, USED_WRITTEN = range(4)

COLUMN_BYTES: Final = 10
"""Bytes of a column in an image besides its name and its value: NULL, and what is between."""


class Target(NamedTuple):
    """What gets the values of messages.

    Attributes:
        octets: the messages, and room after them.
        nodes: room for as many nodes as bytes, and the node of NULL.
        floats: gets `FLOATING` of each floating number.
        used: how much of these is used; and the bytes that images of the columns take together,
            without floating numbers.
    """

    octets: Octets
    nodes: Nodes
    floats: Nodes
    used: Ints


@inlined
def uvarint(octets: Octets, at: int, end: int) -> tuple[np.uint64, int]:
    """Return a number, and the place after it."""
    if at < 0 or at >= end:
        return np.uint64(0), -1
    byte = octets[at]
    at += 1
    number = np.uint64(byte & 0x7F)
    if byte < MORE:
        return number, at
    shift = np.uint64(0)
    while byte >= MORE and shift < _LAST_SHIFT:
        shift += _SEVEN
        byte = octets[at]
        at += 1
        number |= np.uint64(byte & 0x7F) << shift
    if byte == 0 or byte >= MORE or (shift == _LAST_SHIFT and byte > 1) or at > end:
        return number, -1
    return number, at


@inlined
def signed(number: np.uint64) -> int:
    """Return the signed number that a zigzag number means."""
    return np.int64(number >> ONE) ^ -np.int64(number & ONE)


@inlined
def varint(octets: Octets, at: int, end: int) -> tuple[int, int]:
    """Return a zigzag number, and the place after it."""
    number, at = uvarint(octets, at, end)
    return signed(number), at


@inlined
def _put(target: Target, start: int, end: int, kind: int) -> int:
    """Put a node on the tape, and return its number."""
    number = target.used[USED_NODES]
    target.used[USED_NODES] += 1
    target.used[USED_WRITTEN] += end - start
    node = target.nodes[number]
    node.start, node.end, node.next, node.kind = start, end, number + 1, kind
    return number


@compiled
def text_put(target: Target, start: int, end: int, is_name: bool) -> int:
    """Put a text on the tape; return its node, `NONE` if it is not UTF-8."""
    octets = target.octets
    if not is_utf8(octets, start, end):
        return NONE
    if stop(octets, start, end) < end:
        place = target.used[USED_OCTETS]
        target.used[USED_OCTETS] = bytes_in_text(octets[start:end], end - start, octets, place)
        start, end = place, target.used[USED_OCTETS]
    return _put(target, start, end, TEXT if is_name else BARE)


@compiled
def bytes_put(target: Target, start: int, end: int) -> int:
    """Put bytes on the tape, as base64; return their node."""
    octets, place = target.octets, target.used[USED_OCTETS]
    target.used[USED_OCTETS] = in_base64(octets[start:end], end - start, octets, place)
    return _put(target, place, target.used[USED_OCTETS], BARE)


@compiled
def number_put(target: Target, number: np.uint64, is_negative: bool) -> int:
    """Put the digits of a number on the tape, after a minus if it is negative; return its node."""
    octets, start = target.octets, target.used[USED_OCTETS]
    place, rest = start + is_negative, number // _TEN
    octets[start] = MINUS
    end = place + 1
    while rest != 0:
        end += 1
        rest //= _TEN
    target.used[USED_OCTETS] = end
    for at in range(end - 1, place - 1, -1):
        octets[at] = _ZERO + number % _TEN
        number //= _TEN
    return _put(target, start, end, BARE)


@inlined
def integer_put(target: Target, number: int) -> int:
    """Put the digits of a signed number on the tape; return its node."""
    size = np.uint64(number)
    return number_put(target, ~size + ONE if number < 0 else size, number < 0)


@compiled
def float_put(target: Target, start: int, size: int, is_float: bool, is_any: bool) -> int:
    """Put a floating number of 4 or 8 bytes on the tape, with its text to come.

    `is_float` says whether its text is that of a number of 32 bits, `is_any` whether it may be
    infinite, and not a number. Returns its node, `NONE` for a number that may not be.
    """
    bits = word_at(target.octets, start)
    exponent = _DOUBLE_EXPONENT
    if size == 4:
        bits, exponent = bits & FOUR_BYTES, _FLOAT_EXPONENT
    if bits & exponent == exponent and not is_any:
        return NONE
    node = _put(target, 0, 0, BARE)
    floating = target.floats[target.used[USED_FLOATS]]
    target.used[USED_FLOATS] += 1
    floating.node, floating.bits, floating.size, floating.is_float = node, bits, size, is_float
    return node


@compiled
def zoned_put(target: Target, start: int, end: int, value_start: int, value_end: int) -> int:
    """Put a text in a zone on the tape; return its node, `NONE` if it is not UTF-8."""
    octets, place = target.octets, target.used[USED_OCTETS]
    if not is_utf8(octets, start, end) or not is_utf8(octets, value_start, value_end):
        return NONE
    at = copied(_LOCATION, 0, _LOCATION_SIZE, octets, place)
    at = bytes_in_text(octets[start:end], end - start, octets, at)
    at = copied(_VALUE, 0, _VALUE_SIZE, octets, at)
    at = bytes_in_text(octets[value_start:value_end], value_end - value_start, octets, at)
    at = copied(_END, 0, _END_SIZE, octets, at)
    target.used[USED_OCTETS] = at
    return _put(target, place, at, WHOLE)
