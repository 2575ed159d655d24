"""Damage to bytes of any kind: what storage, networks, other encoders and attackers make of them.

In: a generator of random numbers and bytes. Out: other bytes. Each function does one kind of
damage, and its result depends on its arguments alone, so that a seed gives the same input again.

Lengths and counts are where a decoder takes memory and walks, so numbers near every limit are
written over places that look like one: eight bytes of which most are 0, a byte that could be the
length of what follows, the end of the message.

Not handled: damage that keeps a format's structure (`json_damage`, `binary_damage`).
"""

import random
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ticdc_assets.demo.simulator.encoders.craft import (
    write_reversed,
    write_uvarint,
    write_varint,
)

Damage: TypeAlias = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
"""Changes bytes; the third argument are other messages to take pieces of."""

NUMBERS = tuple(
    sorted(
        {
            number + step
            for number in (0, 2**7, 2**8, 2**14, 2**15, 2**16, 2**31, 2**32, 2**53, 2**63, 2**64)
            for step in (-1, 0, 1)
            if number + step >= 0
        }
        | {2, 7, 8, 9, 10, 16, 100, 1000, 10**6, 10**9, 10**18, 10**19, 2**62, 2**70, 2**128}
    )
)
"""Numbers near limits."""

BYTES = (
    *(bytes((byte,)) for byte in (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)),
    *(bytes((byte,)) for byte in b'"\\{}[],:0-.eE `\n\r\t;()'),
    b"\xc0\x80",  # an overlong zero
    b"\xed\xa0\x80",  # a lone surrogate
    b"\xf4\x90\x80\x80",  # beyond Unicode
    b"\xc3",  # half a character
    b"\xef\xbb\xbf",  # byte order mark
    b"\xe2\x80\xa8",  # U+2028
    b"\xf0\x9f\x9a\x80",
    *rb"\ud800 \udc00\ud800 \u0000 NaN -Infinity 1e999 -0 null true".split(),
    *b'18446744073709551616 [[[[ {"": //'.split(),
    b"\xff" * 8,
    b"\xff" * 10,
    b"\x80" * 9 + b"\x01",
    b"\x80" * 10,
    b"\0" * 8,
)
"""Pieces that mean something to some decoder."""

_ZEROS = re.compile(rb"\0{5,7}")


def truncate(generator: random.Random, value: bytes, _others: Sequence[bytes]) -> bytes:
    """Cut off the end, or the beginning."""
    place = _place(generator, value)
    return value[:place] if generator.random() < 0.7 else value[place:]


def flip_bits(generator: random.Random, value: bytes, _others: Sequence[bytes]) -> bytes:
    """Flip a few bits."""
    if not value:
        return value
    changed = bytearray(value)
    for _ in range(_few(generator)):
        changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
    return bytes(changed)


def edit_bytes(generator: random.Random, value: bytes, _others: Sequence[bytes]) -> bytes:
    """Replace a few bytes by others, or count them up or down."""
    if not value:
        return value
    changed = bytearray(value)
    for _ in range(_few(generator)):
        place = generator.randrange(len(changed))
        if generator.random() < 0.5:
            changed[place] = generator.randrange(256)
        else:
            changed[place] = (changed[place] + generator.choice((-2, -1, 1, 2, 16))) % 256
    return bytes(changed)


def insert(generator: random.Random, value: bytes, _others: Sequence[bytes]) -> bytes:
    """Insert a piece that means something, or random bytes."""
    place = _place(generator, value)
    return value[:place] + _piece(generator) + value[place:]


def overwrite(generator: random.Random, value: bytes, _others: Sequence[bytes]) -> bytes:
    """Write a piece over what is there; the length stays, except at the end."""
    place, piece = _place(generator, value), _piece(generator)
    return value[:place] + piece + value[place + len(piece) :]


def delete(generator: random.Random, value: bytes, _others: Sequence[bytes]) -> bytes:
    """Delete a slice."""
    start, end = _slice(generator, value)
    return value[:start] + value[end:]


def duplicate(generator: random.Random, value: bytes, _others: Sequence[bytes]) -> bytes:
    """Repeat a slice where it stands."""
    start, end = _slice(generator, value)
    return value[:end] + value[start:end] * _few(generator) + value[end:]


def move(generator: random.Random, value: bytes, _others: Sequence[bytes]) -> bytes:
    """Put a slice elsewhere."""
    start, end = _slice(generator, value)
    rest = value[:start] + value[end:]
    place = _place(generator, rest)
    return rest[:place] + value[start:end] + rest[place:]


def splice(generator: random.Random, value: bytes, others: Sequence[bytes]) -> bytes:
    """Join the beginning of one message and the end of another."""
    other = generator.choice(others)
    place = _place(generator, value)
    if generator.random() < 0.5:
        return value[:place] + other[min(place, len(other)) :]
    return value[:place] + other[_place(generator, other) :]


def absurd_number(generator: random.Random, value: bytes, _others: Sequence[bytes]) -> bytes:
    """Write a number where a length or a count could stand."""
    number = generator.choice(NUMBERS)
    if generator.random() < 0.3:
        number = max(0, len(value) + generator.randrange(-3, 4))
    place = _place(generator, value)
    write, size = generator.choice(_NUMBERS_AS_BYTES)
    written = write(number)
    zeros = [match.start() for match in _ZEROS.finditer(value)]
    if size == 8 and zeros:
        place = generator.choice(zeros)
    elif size == 0:
        place = len(value) - len(written) if generator.random() < 0.5 else len(value)
    elif size == 1:
        place = _likely_length(generator, value, place)
    return value[:place] + written + value[place + generator.choice((0, size, len(written))) :]


def noise(generator: random.Random, _value: bytes, _others: Sequence[bytes]) -> bytes:
    """Return random bytes, or one byte many times."""
    length = int(2 ** generator.uniform(0, 10))
    if generator.random() < 0.3:
        return generator.choice(BYTES) * length
    return generator.randbytes(length)


DAMAGES: Sequence[Damage] = (
    truncate,
    flip_bits,
    edit_bytes,
    insert,
    overwrite,
    delete,
    duplicate,
    move,
    splice,
    absurd_number,
    absurd_number,
)
"""What is done to most inputs; `noise` is for a few."""


def damaged(generator: random.Random, value: bytes, others: Sequence[bytes]) -> bytes:
    """Return `value` after one kind of damage or a few."""
    if generator.random() < 0.02:
        return noise(generator, value, others)
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        value = generator.choice(DAMAGES)(generator, value, others)
    return value


# The size of the number that is written over; 0 for the end of the message.
_NUMBERS_AS_BYTES: Sequence[tuple[Callable[[int], bytes], int]] = (
    (lambda number: (number % 2**64).to_bytes(8), 8),
    (lambda number: (number % 2**32).to_bytes(4, "little"), 4),
    (write_uvarint, 1),
    (write_varint, 1),
    (lambda number: write_varint(-number - 1), 1),
    (write_reversed, 0),
    (lambda number: b"%d" % number, 1),
)


def _likely_length(generator: random.Random, value: bytes, otherwise: int) -> int:
    """Return a place whose byte could be the length of what follows, as such or as a zigzag."""
    for _ in range(8):
        place = generator.randrange(len(value)) if value else 0
        if value and 0 < value[place] < min(0x80, 2 * (len(value) - place)):
            return place
    return otherwise


def _place(generator: random.Random, value: bytes) -> int:
    return generator.randrange(len(value) + 1)


def _slice(generator: random.Random, value: bytes) -> tuple[int, int]:
    start = _place(generator, value)
    return start, min(len(value), start + int(2 ** generator.uniform(0, 7)))


def _few(generator: random.Random) -> int:
    return generator.choice((1, 1, 1, 2, 3, 8))


def _piece(generator: random.Random) -> bytes:
    if generator.random() < 0.7:
        return generator.choice(BYTES)
    return generator.randbytes(generator.randrange(1, 9))
