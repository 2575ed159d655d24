"""Bytes read from front to back, for the reference readers of Avro and Craft.

In: a range of bytes. Out: numbers and slices, or a `WireError` that names the byte. Every length is
compared with the bytes that are left before it is used.

    uvarint       7 bits a byte, the lowest first; all bytes but the last have the top bit set
    varint        a uvarint of the zigzag number: 0, -1, 1, -2 are 0, 1, 2, 3

Numbers that take more bytes than they need are accepted, as in Go; those of more than 64 bits are
refused.
"""

from typing import Final, NoReturn

from ticdc_assets.base.errors import WireError, shorten

MAX_UINT64: Final = 2**64 - 1

LONGEST_NUMBER: Final = 10
"""Bytes of a number of 64 bits."""


class ByteReader:
    """Reads `value` from `position` to `end`, its own by default, and not a byte more.

    It only moves forward.
    """

    __slots__ = ("end", "position", "value")

    def __init__(self, value: bytes, position: int = 0, end: int | None = None) -> None:
        self.value = value
        self.position = position
        self.end = len(value) if end is None else end

    def uvarint(self) -> int:
        """Read an unsigned number of 64 bits."""
        value, start = self.value, self.position
        number = shift = 0
        for position in range(start, min(self.end, start + LONGEST_NUMBER)):
            byte = value[position]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                if number > MAX_UINT64:
                    break
                self.position = position + 1
                return number
            shift += 7
        else:
            if self.end - start < LONGEST_NUMBER:
                self.truncated(start, "the end of a number")
        got = shorten(value[start : start + LONGEST_NUMBER])
        raise WireError("number_too_long", f"byte {start}", "a number of 64 bits", got)

    def varint(self) -> int:
        """Read a signed number of 64 bits."""
        number = self.uvarint()
        return (number >> 1) ^ -(number & 1)

    def take(self, length: int, expected: str = "") -> bytes:
        """Read `length` bytes, which are `expected`."""
        start = self.position
        if not 0 <= length <= self.end - start:
            self.truncated(start, expected or f"{shorten(length)} bytes")
        self.position = start + length
        return self.value[start : self.position]

    def finish(self) -> None:
        """Refuse bytes that are left."""
        if self.position != self.end:
            raise WireError(
                "trailing_bytes",
                f"byte {self.position}",
                f"the end at byte {self.end}",
                shorten(self.value[self.position : min(self.end, self.position + 16)]),
            )

    def truncated(self, position: int, expected: str) -> NoReturn:
        """Refuse that there are fewer bytes at `position` than there must be."""
        raise WireError(
            "truncated", f"byte {position}", expected, f"{self.end - position} bytes left"
        )
