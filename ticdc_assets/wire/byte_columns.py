"""Many places of one buffer at once: numbers of 7-bit groups, words, and ranges in step.

In: a buffer of bytes and arrays of positions in it. Out: arrays of the numbers or words there, one
element for each position. A number that costs about a microsecond in a Python loop costs some
nanoseconds here, so the fast decoders of the binary formats walk all messages of a batch together.

This module refuses nothing and reads nothing outside the buffer: the buffer ends with `PADDING`
zeros, and a caller keeps its positions within the bytes before them. A caller notices a number that
runs over the end of its message by comparing the position after it with that end. Reading keeps no
state.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Bits: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
Octets: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

PADDING: Final = 256
"""Zeros after the bytes: more than is read in one go from any place."""

NO_NUMBER: Final = 11
"""The result of `uvarints` for a number of more than 64 bits."""

_ONE: Final = np.uint64(1)
_TOPS: Final = np.uint64(0x8080_8080_8080_8080)
_EVEN_SEVENS: Final = np.uint64(0x007F_007F_007F_007F)
_ODD_SEVENS: Final = np.uint64(0x7F00_7F00_7F00_7F00)
_EVEN_FOURTEENS: Final = np.uint64(0x0000_3FFF_0000_3FFF)
_ODD_FOURTEENS: Final = np.uint64(0x3FFF_0000_3FFF_0000)
_LOW_HALF: Final = np.uint64(0x0000_0000_0FFF_FFFF)
_HIGH_HALF: Final = np.uint64(0x0FFF_FFFF_0000_0000)
_TWO: Final = np.uint64(2)
_FOUR: Final = np.uint64(4)
_SEVEN: Final = np.uint64(7)


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that are read at many places at once.

    Attributes:
        octets: the bytes, and the padding.
        words: for each place the eight bytes from there on, the first byte lowest.
        size: how many bytes there are before the padding.
    """

    octets: Octets
    words: Bits
    size: int


def buffer_of(octets: Octets) -> Buffer:
    """Return `octets` as a buffer."""
    padded = np.zeros(len(octets) + PADDING, np.uint8)
    padded[: len(octets)] = octets
    return Buffer(padded, words_of(padded), len(octets))


def words_of(octets: Octets) -> Bits:
    """Return the eight bytes at each place but the last ones as numbers, the first byte lowest."""
    return np.ndarray(shape=(len(octets) - 7,), dtype=np.dtype("<u8"), buffer=octets, strides=(1,))


def uvarints(buffer: Buffer, places: Ints) -> tuple[Bits, Ints]:
    """Return the number at each of `places`, and how many bytes it takes."""
    words = buffer.words[places]
    stops = ~words & _TOPS
    within = stops ^ (stops - _ONE)
    sizes = (np.bitwise_count(within) >> 3).astype(np.int64)
    numbers = _squeezed(words & within)
    longer = np.flatnonzero(stops == 0)
    if longer.size:
        ninth = buffer.octets[places[longer] + 8]
        tenth = buffer.octets[places[longer] + 9]
        ten = ninth >= _MORE
        numbers[longer] |= (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
        numbers[longer] |= np.where(ten, tenth & 1, 0).astype(np.uint64) << np.uint64(63)
        sizes[longer] = np.where(ten, np.where(tenth > 1, NO_NUMBER, 10), 9)
    return numbers, sizes


def _squeezed(words: Bits) -> Bits:
    """Return the groups of 7 bits of `words` without the bits between them."""
    # All groups move together at once, then pairs of groups, then fours.
    words = (words & _EVEN_SEVENS) | ((words & _ODD_SEVENS) >> _ONE)
    words = (words & _EVEN_FOURTEENS) | ((words & _ODD_FOURTEENS) >> _TWO)
    return (words & _LOW_HALF) | ((words & _HIGH_HALF) >> _FOUR)


def zigzag(numbers: Bits) -> Ints:
    """Return the signed numbers of zigzag numbers."""
    return (numbers >> _ONE).view(np.int64) ^ -(numbers & _ONE).view(np.int64)


def in_shortest_form(numbers: Bits, sizes: Ints) -> Flags:
    """Return whether each number takes no more bytes than it needs."""
    shifts = (sizes.view(np.uint64) - _ONE) * _SEVEN
    return (sizes == 1) | (numbers >> shifts != 0)


def spread(firsts: Ints, counts: Ints) -> Ints:
    """Return `first`, `first + 1` and so on, `count` of them, one range after the other."""
    total = int(counts.sum())
    ends = np.cumsum(counts)
    return np.repeat(firsts - (ends - counts), counts) + np.arange(total)


@dataclass(frozen=True, slots=True)
class Writing:
    """Texts while they are written one after the other, with `PADDING` after them.

    Attributes:
        octets: the bytes.
    """

    octets: Octets

    def texts(self, ends: Ints, present: Flags | None = None) -> "pa.Array[Any]":
        """Return the texts, which have to be UTF-8.

        Args:
            ends: where each ends.
            present: which are there; the others are null, and empty. None if all are.
        """
        offsets = np.zeros(len(ends) + 1, np.int32)
        offsets[1:] = ends
        valid = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.StringArray.from_buffers(
            len(ends), pa.py_buffer(offsets), pa.py_buffer(self.octets), valid
        )


def writing(size: int) -> Writing:
    """Return room for texts of together `size` bytes."""
    return Writing(np.frombuffer(pa.allocate_buffer(size + PADDING), np.uint8))


class _Octets(Protocol):
    @property
    def octets(self) -> Octets: ...


def gathered_texts(
    buffer: _Octets, starts: Ints, ends: Ints, present: Flags | None = None
) -> "pa.Array[Any]":
    """Return the bytes of each range as text, which has to be UTF-8.

    Args:
        buffer: the buffer with the bytes.
        starts: where each range starts.
        ends: where it ends.
        present: which ranges are there, the others are null, and empty; None if all are.
    """
    from ticdc_assets.model.values.word_loops import gathered

    ends_written = np.cumsum(ends - starts)
    written = writing(int(ends_written[-1]) if len(starts) else 0)
    gathered(
        buffer.octets, np.ascontiguousarray(starts), np.ascontiguousarray(ends), written.octets
    )
    return written.texts(ends_written, present)


def slices(buffer: Buffer, starts: Ints, ends: Ints) -> "pa.Array[Any]":
    """Return an array whose odd elements are the bytes of each range; the others lie between.

    Args:
        buffer: the bytes.
        starts: where each range starts, not before the range before it ends.
        ends: where it ends.
    """
    offsets = np.zeros(2 * len(starts) + 1, np.int32)
    offsets[1::2] = starts
    offsets[2::2] = ends
    return pa.Array.from_buffers(
        pa.binary(),
        2 * len(starts),
        [None, pa.py_buffer(offsets), pa.py_buffer(buffer.octets)],
    )


def distinct(buffer: Buffer, starts: Ints, ends: Ints) -> tuple[Ints, list[bytes]]:
    """Return for each range of bytes its number, and the distinct ones by number."""
    odd = pa.array(np.arange(1, 2 * len(starts), 2))
    found = slices(buffer, starts, ends).take(odd).dictionary_encode()
    return found.indices.to_numpy().astype(np.int64), found.dictionary.to_pylist()


_MORE: Final = 0x80
"""The bit that says that a number goes on."""


_MANY_STEPS: Final = 64
_FEW: Final = 16


class Walk:
    """A walk through ranges of elements in step: the first element of each, then the second.

    Each step has the ranges with one more element, the longest first, so that they are always the
    first ranges. The result for an element goes to its place among all elements of all ranges, one
    range after the other.

    A walk that is left with few ranges after many steps ends: no count of elements makes it long. A
    range that is not walked to its end is not good, and left to the reference decoder.

    Args:
        counts: how many elements each range has.

    Attributes:
        order: the ranges, the longest first.
        good: which of them, in this order, are walked to their end; a caller may clear it for
            others.
    """

    def __init__(self, counts: Ints) -> None:
        self.order = np.argsort(-counts, kind="stable")
        self.good: Flags = np.ones(len(counts), np.bool_)
        self._firsts = (np.cumsum(counts) - counts)[self.order]
        descending = counts[self.order]
        steps = int(descending[0]) if len(counts) else 0
        self._lengths = np.searchsorted(-descending, -np.arange(steps), side="left").tolist()

    def steps(self) -> Iterator[tuple[int, Ints]]:
        """Yield how many ranges have one more element, and where the result for each goes."""
        for step, length in enumerate(self._lengths):
            if step >= _MANY_STEPS and length < _FEW:
                self.good[:length] = False
                return
            yield length, self._firsts[:length] + step

    def restored(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return results for the ranges in `order` in the order of the ranges."""
        found = np.empty_like(values)
        found[self.order] = values
        return found
