"""Avro's binary encoding, read strictly: each type is an object that reads its values.

In: bytes, and a type that is known beforehand (messages carry no schema). Out: plain Python values
(`int`, `bool`, `float`, `bytes`, `str`, `dict`, `list`, None, and a pair of branch and value for a
union), or a `WireError` that names the byte.

Every length and every count is checked against the bytes that are left before it is used, and no
array or map is longer than `MAX_ITEMS`. Bytes after the end, and two map entries of one key are
refused: no library writes them. Reading recurs only as deep as the type.

Source: https://avro.apache.org/docs/1.11.1/specification/#binary-encoding
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.wire.binary.reader import ByteReader
from ticdc_assets.wire.record import text_of

MAX_ITEMS: Final = 65_536
"""Most items of one array or map that are read.

It is above every limit of MySQL (columns of a table, labels of an ENUM), and keeps the memory for a
hostile message small.
"""


class Reader(ByteReader):
    """A position in the bytes of a message, which only moves on."""

    __slots__ = ()

    def length(self, expected: str) -> int:
        """Return the next number, the length of what follows.

        Raises:
            WireError: it is negative, or more than the bytes that are left.
        """
        start = self.position
        length = self.varint()
        left = self.end - self.position
        if not 0 <= length <= left:
            raise WireError(
                "invalid_length", f"byte {start}", f"{expected} within {left} bytes", str(length)
            )
        return length

    def blocks(self) -> Iterator[int]:
        """Yield the count of each block of an array or map; the caller reads the items between.

        Raises:
            WireError: a count is more than can follow, or the size of a block is wrong.
        """
        total = 0
        while True:
            start = self.position
            count = self.varint()
            size = self.length("a block") if count < 0 else None
            count = abs(count)
            if count == 0:
                return
            first = self.position
            total += count
            room = min(self.end - first, MAX_ITEMS)
            if count > room or total > MAX_ITEMS:
                raise WireError(
                    "invalid_count", f"byte {start}", f"at most {room} items", str(count)
                )
            yield count
            if size is not None and self.position - first != size:
                raise WireError(
                    "invalid_length",
                    f"byte {start}",
                    f"a block of {self.position - first} bytes",
                    str(size),
                )


class AvroType:
    """A type: reads its values."""

    __slots__ = ()

    def read(self, reader: Reader, /) -> Any:
        """Return the value at the reader's position, and move past it."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Null(AvroType):
    """The type of None."""

    def read(self, _reader: Reader, /) -> None:
        """Read nothing."""


@dataclass(frozen=True, slots=True)
class Boolean(AvroType):
    """The type of True and False."""

    def read(self, reader: Reader, /) -> bool:
        """Read one byte."""
        (byte,) = reader.take(1, "true or false")
        if byte > 1:
            raise WireError("invalid_boolean", f"byte {reader.position - 1}", "0 or 1", str(byte))
        return byte == 1


@dataclass(frozen=True, slots=True)
class Integer(AvroType):
    """The types int and long, and the numbers of enums: integers from `low` to `high`."""

    low: int
    high: int

    def read(self, reader: Reader, /) -> int:
        """Read a zigzag number."""
        start = reader.position
        number = reader.varint()
        if not self.low <= number <= self.high:
            raise WireError(
                "out_of_range", f"byte {start}", f"{self.low} to {self.high}", str(number)
            )
        return number


@dataclass(frozen=True, slots=True)
class Floating(AvroType):
    """The types float and double, by their layout."""

    layout: struct.Struct

    def read(self, reader: Reader, /) -> float:
        """Read little-endian IEEE 754."""
        (number,) = self.layout.unpack(reader.take(self.layout.size, "a float"))
        return number


@dataclass(frozen=True, slots=True)
class Bytes(AvroType):
    """The type of bytes."""

    def read(self, reader: Reader, /) -> bytes:
        """Read a length and the bytes."""
        return reader.take(reader.length("bytes"), "bytes")


@dataclass(frozen=True, slots=True)
class String(AvroType):
    """The type of text."""

    def read(self, reader: Reader, /) -> str:
        """Read a length and UTF-8."""
        raw = reader.take(reader.length("text"), "text")
        return text_of(raw, reader.position - len(raw))


@dataclass(frozen=True, slots=True)
class Enum(AvroType):
    """A type of words, each known by its number."""

    symbols: tuple[str, ...]

    def read(self, reader: Reader, /) -> str:
        """Read the number of a symbol."""
        start = reader.position
        number = reader.varint()
        if not 0 <= number < len(self.symbols):
            raise WireError("unknown_symbol", f"byte {start}", " ".join(self.symbols), str(number))
        return self.symbols[number]


@dataclass(frozen=True, slots=True)
class Union(AvroType):
    """One of several types; a value is the pair of the branch's number and its value."""

    branches: Mapping[int, AvroType]

    def read(self, reader: Reader, /) -> tuple[int, Any]:
        """Read the number of a branch and its value."""
        start = reader.position
        number = reader.varint()
        branch = self.branches.get(number)
        if branch is None:
            expected = " ".join(map(str, self.branches))
            raise WireError("unknown_branch", f"byte {start}", f"branch {expected}", str(number))
        return number, branch.read(reader)


@dataclass(frozen=True, slots=True)
class Optional(AvroType):
    """The union of null and another type; a value is None or one of that type."""

    type: AvroType

    def read(self, reader: Reader, /) -> Any:
        """Read null or a value."""
        return Union({0: NULL, 1: self.type}).read(reader)[1]


@dataclass(frozen=True, slots=True)
class RecordType(AvroType):
    """Fields in their order; a value is a dict of all of them."""

    fields: Sequence[tuple[str, AvroType]]

    def read(self, reader: Reader, /) -> dict[str, Any]:
        """Read the fields one after the other."""
        return {name: kind.read(reader) for name, kind in self.fields}


def record(**fields: AvroType) -> RecordType:
    """Return the record of `fields`, in their order."""
    return RecordType(tuple(fields.items()))


@dataclass(frozen=True, slots=True)
class Array(AvroType):
    """Items of one type, in blocks; a value is a list."""

    items: AvroType

    def read(self, reader: Reader, /) -> list[Any]:
        """Read blocks of items."""
        items: list[Any] = []
        for count in reader.blocks():
            items += [self.items.read(reader) for _ in range(count)]
        return items


@dataclass(frozen=True, slots=True)
class Map(AvroType):
    """Values of one type by name, in blocks; a value is a dict, in the order of the bytes."""

    values: AvroType

    def read(self, reader: Reader, /) -> dict[str, Any]:
        """Read blocks of entries."""
        entries: dict[str, Any] = {}
        for count in reader.blocks():
            for _ in range(count):
                start = reader.position
                name = STRING.read(reader)
                if name in entries:
                    raise WireError(
                        "duplicate_column", f"byte {start}", "distinct names", shorten(name)
                    )
                entries[name] = self.values.read(reader)
        return entries


NULL: Final = Null()
BOOLEAN: Final = Boolean()
INT: Final = Integer(-(2**31), 2**31 - 1)
LONG: Final = Integer(-(2**63), 2**63 - 1)
FLOAT: Final = Floating(struct.Struct("<f"))
DOUBLE: Final = Floating(struct.Struct("<d"))
BYTES: Final = Bytes()
STRING: Final = String()
