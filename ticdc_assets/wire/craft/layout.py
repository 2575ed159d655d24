"""Where the parts of a message of Craft are: from bytes to columns of numbers and slices.

In: the value of a Kafka record. Out: a `Message`: headers, and a range of bytes for each body; or a
`WireError` that names the byte. The result depends on the bytes alone. The layout, with its
primitives and chunks, is tables in docs/formats/craft.md.

Headers, bodies, groups, dictionary and tables must fill their ranges exactly, and the sizes must
add up to the message. TiCDC's own decoder checks little of this and panics. Every count is compared
with the bytes that are left before it is used: n elements take at least n bytes, so no count takes
memory for more than was sent.

A name is spelled once in a message and used by any number of columns, of four bytes each at least.
So the length of names as JSON text, which is how rows have them, is limited to `MAX_NAME_BYTES`:
this bounds the size of a message's rows.

Source: pingcap/tiflow pkg/sink/codec/craft at 017624f, model.go, message_encoder.go,
message_decoder.go.

Not handled: what the parts mean (`reference`) and how a value is written (`values`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Final, NamedTuple

from ticdc_assets.base.errors import UnsupportedVersionError, WireError, shorten
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.wire.binary.reader import LONGEST_NUMBER, MAX_UINT64, ByteReader
from ticdc_assets.wire.record import stored_bytes, text_of

VERSION: Final = 1
"""The only version of the format."""

MAX_NAME_BYTES: Final = 256
"""Bytes of the longest name in a JSON text: a quote takes two, a control character six.

TiDB takes 64 characters of three bytes each at most.
"""

MAX_FLAGS: Final = 255
"""All flags of a column at once."""


class EventKind(IntEnum):
    """What an event is, as its header says."""

    ROW = 1
    DDL = 2
    WATERMARK = 3


class GroupKind(IntEnum):
    """Which image a column group is."""

    AFTER = 1
    BEFORE = 2


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


_TERM: Final = "-1, or one of the terms"


class Field(NamedTuple):
    """One field of the headers of a message.

    Attributes:
        name: the attribute of the header for it.
        chunk: how its numbers are written, one after the other.
        least: the smallest number that it may be.
        most: the largest one; None for a term, whose number is in the dictionary, or -1 for none.
        reason: why another number is refused.
        expected: which numbers are accepted, in words.
    """

    name: str
    chunk: Callable[[Reader, int], list[int]]
    least: int
    most: int | None
    reason: str
    expected: str


HEADER: Final = (
    Field("commit_ts", Reader.delta_uvarints, 0, MAX_TSO, "out_of_range", "0 to 2^63-1"),
    Field("kind", Reader.uvarints, 1, 3, "unknown_kind", "1 (row), 2 (DDL) or 3 (watermark)"),
    Field("table_id", Reader.delta_varints, -1, MAX_TSO, "out_of_range", "-1, or a table id"),
    Field("database", Reader.delta_varints, -1, None, "unknown_term", _TERM),
    Field("table", Reader.delta_varints, -1, None, "unknown_term", _TERM),
)
"""The fields of headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header of one event; `table_id` is that of a partition. None for none."""

    commit_ts: int
    kind: EventKind
    table_id: int | None
    database: str | None
    table: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnGroup:
    """The columns of one image.

    Attributes:
        kind: which image it is.
        names: names of the columns.
        types: type codes of the columns.
        flags: flags of the columns.
        values: bytes of the values, None for NULL.
        position: where the group starts in its message.
        starts: where each value starts in its message.
    """

    kind: GroupKind
    names: tuple[str, ...]
    types: tuple[int, ...]
    flags: tuple[int, ...]
    values: tuple[bytes | None, ...]
    position: int = 0
    starts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Body:
    """Where the body of one event is: its start, and the sizes of its parts.

    The parts of a row are its column groups; any other body is one part.
    """

    position: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """The parts of a message."""

    headers: tuple[Header, ...]
    bodies: tuple[Body, ...]
    terms: tuple[str, ...]


def read_message(value: bytes) -> Message:
    """Return the parts of the message that `value`, which is not empty, is.

    Raises:
        WireError: `value` is not a message.
        UnsupportedVersionError: the message has another version.
    """
    start = Reader(value)
    version = start.uvarint()
    if version != VERSION:
        raise UnsupportedVersionError(
            "unsupported_version", "byte 0", str(VERSION), shorten(version)
        )
    tables_start, tables = _read_size_tables(value, start.position)
    (headers_size, terms_size), sizes, *groups = tables
    body_start = start.position + headers_size
    terms_start = tables_start - terms_size
    if body_start + sum(sizes) != terms_start:
        raise WireError(
            "sizes_differ",
            f"byte {tables_start}",
            f"sizes with the sum {tables_start - start.position}",
            shorten(headers_size + sum(sizes) + terms_size),
        )
    terms = _read_terms(Reader(value, terms_start, tables_start))
    headers = _read_headers(Reader(value, start.position, body_start), len(sizes), terms)
    rows = any(header.kind is EventKind.ROW for header in headers)
    if rows and not all(header.kind is EventKind.ROW for header in headers):
        raise WireError("mixed_kinds", f"byte {start.position}", "only rows or no row", "both")
    if len(groups) != (len(sizes) if rows else 0):
        raise WireError(
            "wrong_tables",
            f"byte {tables_start}",
            f"{2 + len(sizes) if rows else 2} size tables",
            str(len(tables)),
        )
    bodies: list[Body] = []
    for number, size in enumerate(sizes):
        parts = groups[number] if rows else (size,)
        if sum(parts) != size:
            raise WireError(
                "sizes_differ",
                f"byte {tables_start}",
                f"sizes of column groups with the sum {size}",
                shorten(sum(parts)),
            )
        bodies.append(Body(body_start, tuple(parts)))
        body_start += size
    return Message(headers, tuple(bodies), terms)


def read_group(value: bytes, position: int, size: int, terms: Sequence[str]) -> ColumnGroup:
    """Return the column group at `position` of `value`, which takes `size` bytes.

    Raises:
        WireError: no column group is there.
    """
    reader = Reader(value, position, position + size)
    (kind,) = reader.take(1)
    if kind not in _GROUP_KINDS:
        raise WireError(
            "unknown_group", f"byte {position}", "1 (after) or 2 (before)", shorten(kind)
        )
    count = reader.count()
    names_start = reader.position
    numbers, types = reader.delta_varints(count), reader.uvarints(count)
    flags_start = reader.position
    flags = reader.uvarints(count)
    if max(flags) > MAX_FLAGS:
        raise WireError(
            "unknown_flags", f"byte {flags_start}", f"at most {MAX_FLAGS}", shorten(max(flags))
        )
    names = tuple(_term(number, terms, names_start) for number in numbers)
    if len(set(names)) != len(names):
        raise WireError("duplicate_column", f"byte {names_start}", "distinct names", shorten(names))
    values = reader.nullable_strings(count)
    reader.finish()
    return ColumnGroup(
        kind=GroupKind(kind),
        names=names,
        types=tuple(types),
        flags=tuple(flags),
        values=tuple(raw for _, raw in values),
        position=position,
        starts=tuple(start for start, _ in values),
    )


def _read_size_tables(value: bytes, start: int) -> tuple[int, list[list[int]]]:
    """Return where the size tables start, and the sizes in them."""
    length, end = reversed_uvarint(value, start)
    if length > end - start:
        raise WireError(
            "truncated",
            f"byte {end}",
            f"size tables of at most {end - start} bytes",
            shorten(length),
        )
    reader = Reader(value, end - length, end)
    tables: list[list[int]] = []
    while reader.position < end:
        position = reader.position
        sizes = reader.delta_varints(reader.count())
        if min(sizes) < 0:
            raise WireError("out_of_range", f"byte {position}", "sizes from 0", shorten(min(sizes)))
        tables.append(sizes)
    if len(tables) < 2 or len(tables[0]) != 2:
        raise WireError(
            "wrong_tables",
            f"byte {end - length}",
            "a table of two sizes and the table of bodies",
            f"{len(tables)} tables, the first of {len(tables[0]) if tables else 0}",
        )
    return end - length, tables


def _read_terms(reader: Reader) -> tuple[str, ...]:
    """Return the term dictionary that fills the range of `reader`.

    Raises:
        WireError: no dictionary is there.
    """
    # Without terms TiCDC writes no dictionary, the protocol one of the size 0.
    if reader.value[reader.position : reader.end] in (b"", b"\0"):
        return ()
    terms = reader.strings(reader.count())
    reader.finish()
    names = tuple(text_of(raw, position) for position, raw in terms)
    for name, (position, _) in zip(names, terms, strict=True):
        size = stored_bytes(name)
        if size > MAX_NAME_BYTES:
            raise WireError(
                "name_too_long",
                f"byte {position}",
                f"{MAX_NAME_BYTES} bytes in JSON",
                f"{size} bytes",
            )
    return names


def _read_headers(reader: Reader, count: int, terms: Sequence[str]) -> tuple[Header, ...]:
    columns: list[list[int]] = []
    for field in HEADER:
        start = reader.position
        most = len(terms) - 1 if field.most is None else field.most
        columns.append(field.chunk(reader, count))
        for number in columns[-1]:
            if not field.least <= number <= most:
                raise WireError(field.reason, f"byte {start}", field.expected, shorten(number))
    reader.finish()
    commit_ts, kinds, table_ids, databases, tables = columns
    return tuple(
        Header(
            commit_ts=ts,
            kind=EventKind(kind),
            table_id=None if table_id == -1 else table_id,
            database=None if database == -1 else terms[database],
            table=None if table == -1 else terms[table],
        )
        for ts, kind, table_id, database, table in zip(
            commit_ts, kinds, table_ids, databases, tables, strict=True
        )
    )


_GROUP_KINDS: Final = frozenset(map(int, GroupKind))


def _term(number: int, terms: Sequence[str], position: int) -> str:
    if not 0 <= number < len(terms):
        raise WireError(
            "unknown_term", f"byte {position}", f"one of {len(terms)} terms", shorten(number)
        )
    return terms[number]
