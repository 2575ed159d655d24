"""The primitives and chunks of Craft: bytes to numbers and slices.

In: a range of bytes. Out: the values there, or a `WireError` that names the byte. Every count is
compared with the bytes that are left before it is used: n elements take at least n bytes, so no
count takes memory for more than was sent.

    uvarint       see `binary.reader`, as is varint
    reversed      a uvarint with its bytes in reverse order, read from the end
    float64       8 bytes, the lowest first
    string        uvarint length, bytes
    chunk         the elements one after the other; their count is elsewhere
    delta chunk   the first element, then differences, which wrap around at 64 bits
    string chunk  all lengths as uvarints, then all bytes
    nullable      the same with varints as lengths, -1 for null

Source: pingcap/tiflow pkg/sink/codec/craft/message_encoder.go and message_decoder.go at 017624f.
"""

from itertools import accumulate
from typing import Final

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.wire.binary.reader import LONGEST_NUMBER, MAX_UINT64, ByteReader
from ticdc_assets.wire.record import text_of

_SIGN: Final = 2**63


class Reader(ByteReader):
    """Reads primitives and chunks of a range of bytes."""

    __slots__ = ()

    def uvarints(self, count: int) -> list[int]:
        """Read a uvarint chunk."""
        self._check(count)
        return [self.uvarint() for _ in range(count)]

    def varints(self, count: int) -> list[int]:
        """Read a varint chunk."""
        self._check(count)
        return [self.varint() for _ in range(count)]

    def delta_uvarints(self, count: int) -> list[int]:
        """Read a delta uvarint chunk."""
        return list(
            accumulate(self.uvarints(count), lambda sum_, delta: (sum_ + delta) & MAX_UINT64)
        )

    def delta_varints(self, count: int) -> list[int]:
        """Read a delta varint chunk."""
        return list(accumulate(self.varints(count), lambda sum_, delta: wrapped(sum_ + delta)))

    def string(self) -> str:
        """Read a string."""
        length = self.uvarint()
        start = self.position
        return text_of(self.take(length), start)

    def strings(self, count: int) -> list[tuple[int, bytes]]:
        """Read a string chunk; each element with its position."""
        return [(self.position, self.take(length)) for length in self.uvarints(count)]

    def nullable_strings(self, count: int) -> list[tuple[int, bytes | None]]:
        """Read a nullable string chunk; each element with its position."""
        return [
            (self.position, None if length == -1 else self.take(length))
            for length in self.varints(count)
        ]

    def count(self) -> int:
        """Read how many elements of a chunk follow, at least one."""
        start = self.position
        count = self.uvarint()
        if count == 0:
            raise WireError("empty_chunk", f"byte {start}", "one element at least", "0")
        self._check(count)
        return count

    def _check(self, count: int) -> None:
        if count > self.end - self.position:
            self.truncated(self.position, f"{count} elements")


def reversed_uvarint(value: bytes, start: int) -> tuple[int, int]:
    """Return the number whose bytes end `value` in reverse order, and where they start."""
    number = shift = 0
    end = len(value)
    for position in range(end - 1, max(start, end - LONGEST_NUMBER) - 1, -1):
        byte = value[position]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise WireError(
        "truncated", f"byte {end - 1}", "the length of the size tables", shorten(value[-10:])
    )


def wrapped(number: int) -> int:
    """Return `number` as a signed number of 64 bits holds it."""
    return ((number + _SIGN) & MAX_UINT64) - _SIGN
