"""The hot path of Craft.

In: record batches with a column `value`. Out: `Rows`, equal to what `craft.decode` says, to the
last reason and position; the result depends on the records alone.

How it stays equal: only messages of rows are taken here, and whatever looks unusual anywhere in one
is given to the reference as a whole, errors included. So this module must never accept what the
reference refuses, and needs no reasons:

- A column group starts with a head: kind, count, names, types and flags. Rows of a table repeat it
  byte for byte, as they do the term dictionary, so the head is compared with those seen before and
  what it says is looked up. A head is complete in itself (each number says where it ends), so of
  the heads with one start no other can match too. One not seen before is read by the reference's
  own functions.
- Sizes must add up as in the reference. A slice that runs over the end of its range is seen when
  the range must end where its last value does.
- Values are read by the reference's functions, or looked up by their bytes.

What is remembered of a batch is bounded and dies with it; what is remembered of numbers, with the
process.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import pyarrow as pa

from ticdc_assets.errors import WireError
from ticdc_assets.events import Op
from ticdc_assets.tso import MAX_TSO
from ticdc_assets.wire import craft
from ticdc_assets.wire.craft_bytes import MAX_UINT64, Reader, reversed_uvarint
from ticdc_assets.wire.craft_layout import (
    VERSION,
    ColumnGroup,
    EventKind,
    GroupKind,
    read_columns,
    read_terms,
)
from ticdc_assets.wire.craft_values import (
    codec_of,
    read_binary,
    read_float,
    read_signed,
    read_text,
    read_unsigned,
)
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import ROW, Common, Rows, decoded_rows, shape_text

_REMEMBERED_NUMBERS: Final = 1 << 16
_REMEMBERED_BYTES: Final = 1 << 24
_REMEMBERED_ENTRY: Final = 1 << 10
"""What an entry takes besides its bytes."""
_MOST_ALIKE: Final = 8
"""Heads with one start that are compared one after the other."""


def decode_rows(batch: pa.RecordBatch) -> Rows:
    """Return the rows of the records of `batch`."""
    values: list[bytes | None] = batch.column("value").to_pylist()
    rows = Rows()
    tables = _Tables()
    for number, value in enumerate(values):
        commons = None if value is None else _plain_rows(value, tables)
        if commons is None:
            rows.add(number, decoded_rows(craft.decode, Record(key=None, value=value)))
        else:
            rows.sources.extend([number] * len(commons))
            rows.common.extend(commons)
    return rows


class _UnusualError(Exception):
    """The message is for the reference."""


class _Numbers(dict[bytes, str]):
    """Texts of values by their bytes: those of short values are remembered."""

    def __init__(self, read: Callable[[bytes], str], longest: int) -> None:
        super().__init__()
        self._read = read
        self._longest = longest

    def __missing__(self, raw: bytes) -> str:
        text = self._read(raw)
        if len(raw) <= self._longest and len(self) < _REMEMBERED_NUMBERS:
            self[raw] = text
        return text


def _quick_number(raw: bytes) -> int:
    """Return the uvarint that `raw` is, -1 if the reference should look at it."""
    length = len(raw)
    if not 0 < length < len(_TOPS):
        return -1
    number = int.from_bytes(raw, "little")
    if number & _TOPS[length] != _TOPS[length - 1]:
        return -1
    # All groups of 7 bits move together at once, then pairs of groups, then fours.
    number = number & _EVEN_SEVENS | number >> 1 & _ODD_SEVENS
    number = number & _EVEN_FOURTEENS | number >> 2 & _ODD_FOURTEENS
    return number & _LOW_HALF | number >> 4 & _HIGH_HALF


_TOPS: Final = tuple(int.from_bytes(b"\x80" * length, "little") for length in range(9))
"""The top bits of so many bytes: a uvarint has those of all but its last."""
_EVEN_SEVENS: Final = 0x007F_007F_007F_007F
_ODD_SEVENS: Final = _EVEN_SEVENS << 7
_EVEN_FOURTEENS: Final = 0x0000_3FFF_0000_3FFF
_ODD_FOURTEENS: Final = _EVEN_FOURTEENS << 14
_LOW_HALF: Final = 0x0000_0000_0FFF_FFFF
_HIGH_HALF: Final = _LOW_HALF << 28


def _quick_unsigned(raw: bytes) -> str:
    number = _quick_number(raw)
    return read_unsigned(raw, 0) if number < 0 else str(number)


def _quick_signed(raw: bytes) -> str:
    number = _quick_number(raw)
    return read_signed(raw, 0) if number < 0 else str((number >> 1) ^ -(number & 1))


_QUICK: Final[Mapping[Callable[[bytes, int], str], Callable[[bytes], str]]] = {
    read_text: bytes.decode,
    read_binary: lambda raw: read_binary(raw, 0),
    read_signed: _Numbers(_quick_signed, 3).__getitem__,
    read_unsigned: _Numbers(_quick_unsigned, 3).__getitem__,
    read_float: _Numbers(lambda raw: read_float(raw, 0), 8).__getitem__,
}
"""What reads values here in the place of the reference's reader."""


@dataclass(frozen=True, slots=True)
class _Head:
    """What the head of a column group says.

    Attributes:
        raw: its bytes.
        group: what they say.
        readers: what reads the values of each column.
        shape: the shape of a row with this group alone, as text.
    """

    raw: bytes
    group: ColumnGroup
    readers: tuple[Callable[[bytes], str], ...]
    shape: str


@dataclass(slots=True)
class _Dictionary:
    """The terms of a message, and the heads of column groups that were seen with them.

    Attributes:
        terms: the terms.
        heads: heads by what they start with.
        shapes: shapes of updates as text, by the bytes of both heads.
    """

    terms: tuple[str, ...]
    heads: dict[bytes, tuple[_Head, ...]] = field(default_factory=dict[bytes, tuple[_Head, ...]])
    shapes: dict[tuple[bytes, bytes], str] = field(default_factory=dict[tuple[bytes, bytes], str])


class _Tables:
    """What was seen of the tables of a batch, up to a bound in bytes."""

    def __init__(self) -> None:
        self._dictionaries: dict[bytes, _Dictionary] = {}
        self._bytes = 0

    def dictionary(self, value: bytes, start: int, end: int) -> _Dictionary:
        """Return the term dictionary in these bytes of `value`."""
        raw = value[start:end]
        found = self._dictionaries.get(raw)
        if found is None:
            found = _Dictionary(read_terms(Reader(raw, 0, len(raw))))
            self._remember(len(raw), found)
            self._dictionaries[raw] = found
        return found

    def head(self, dictionary: _Dictionary, value: bytes, start: int, end: int) -> _Head:
        """Return the head of the column group in these bytes of `value`."""
        # Names come next, most of them in one byte each.
        first = value[start : start + 2 + value[start + 1]]
        heads = dictionary.heads.get(first, ())
        for head in heads:
            if value.startswith(head.raw, start):
                return head
        reader = Reader(value, start, end)
        group = read_columns(reader, dictionary.terms)
        head = _Head(
            value[start : reader.position],
            group,
            tuple(map(_reader, group.types, group.flags)),
            shape_text(craft.shape_of(group, None, partial=group.kind is GroupKind.BEFORE)),
        )
        self._remember(len(first) + len(head.raw) + 2 * len(head.shape), dictionary)
        dictionary.heads[first] = (head, *heads[: _MOST_ALIKE - 1])
        return head

    def update_shape(self, dictionary: _Dictionary, after: _Head, before: _Head) -> str:
        """Return the shape of an update with both heads."""
        found = dictionary.shapes.get((after.raw, before.raw))
        if found is None:
            found = shape_text(craft.shape_of(after.group, before.group, partial=False))
            self._remember(len(after.raw) + len(before.raw) + len(found), dictionary)
            dictionary.shapes[after.raw, before.raw] = found
        return found

    def _remember(self, size: int, dictionary: _Dictionary) -> None:
        """Count `size` bytes more, and forget all of before if they are too many."""
        size += _REMEMBERED_ENTRY
        self._bytes += size
        if self._bytes > _REMEMBERED_BYTES:
            self._dictionaries.clear()
            # The message that is being read keeps its dictionary.
            dictionary.heads.clear()
            dictionary.shapes.clear()
            self._bytes = size


def _reader(code: int, flags: int) -> Callable[[bytes], str]:
    codec = codec_of(code, flags)
    if codec is None:
        raise _UnusualError
    read = codec.read
    return _QUICK.get(read) or (lambda raw: read(raw, 0))


def _plain_rows(value: bytes, tables: _Tables) -> list[Common] | None:
    """Return the common columns of the rows of a message, None if the reference must read it."""
    try:
        return _rows(value, tables)
    except (_UnusualError, WireError, IndexError, UnicodeDecodeError):
        return None


def _rows(value: bytes, tables: _Tables) -> list[Common]:
    if value[0] != VERSION:
        raise _UnusualError
    length, tables_end = reversed_uvarint(value, 1)
    tables_start = tables_end - length
    if tables_start < 1:
        raise _UnusualError
    sizes = _uvarints(value[tables_start:tables_end])
    count = sizes[3]
    headers_size, terms_size = sizes[1] >> 1, (sizes[1] >> 1) + _signed(sizes[2])
    position = 1 + headers_size
    terms_start = tables_start - terms_size
    headers = _uvarints(value[1:position])
    if (
        sizes[0] != 2
        or sizes[1] & 1
        or not 0 <= terms_size <= tables_start - position
        or not 0 < count * _HEADER_CHUNKS == len(headers)
    ):
        raise _UnusualError
    dictionary = tables.dictionary(value, terms_start, tables_start)
    terms = dictionary.terms
    last = len(terms) - 1
    rows: list[Common] = []
    commit_ts = partition = database = table = size = 0
    partitions, databases, names = 2 * count, 3 * count, 4 * count
    groups = 4 + count
    for index in range(count):
        # Differences that wrap around lead to the reference, but for those of the commit ts, which
        # may go back from row to row.
        commit_ts = (commit_ts + headers[index]) & MAX_UINT64
        number = headers[partitions + index]
        partition += (number >> 1) ^ -(number & 1)
        number = headers[databases + index]
        database += (number >> 1) ^ -(number & 1)
        number = headers[names + index]
        table += (number >> 1) ^ -(number & 1)
        number = sizes[4 + index]
        size += (number >> 1) ^ -(number & 1)
        number, first = sizes[groups], sizes[groups + 1] >> 1
        second = 0 if number == 1 else first + _signed(sizes[groups + 2])
        if (
            commit_ts > MAX_TSO
            or headers[count + index] != EventKind.ROW
            or not -1 <= partition <= MAX_TSO
            or not 0 <= database <= last
            or not 0 <= table <= last
            or not 1 <= number <= 2
            or sizes[groups + 1] & 1
            or second < 0
            or first + second != size
        ):
            raise _UnusualError
        groups += 1 + number
        database_name, table_name = terms[database], terms[table]
        if not database_name or not table_name:
            raise _UnusualError
        head = tables.head(dictionary, value, position, position + first)
        image = _image(value, head, position, position + first)
        position += first
        before = after = None
        shape = head.shape
        if number == 1:
            if head.group.kind is GroupKind.AFTER:
                op, after = _INSERT, image
            else:
                op, before = _DELETE, image
        else:
            other = tables.head(dictionary, value, position, position + second)
            if head.group.kind is not GroupKind.AFTER or other.group.kind is GroupKind.AFTER:
                raise _UnusualError
            op, after = _UPDATE, image
            before = _image(value, other, position, position + second)
            if head.group.names != other.group.names:
                shape = tables.update_shape(dictionary, head, other)
            position += second
        rows.append(
            (
                index,
                ROW,
                op,
                commit_ts,
                None,
                database_name,
                table_name,
                None if partition == -1 else partition,
                None,
                before,
                after,
                False,
                None,
                None,
                shape,
                False,
            )
        )
    if position != terms_start or groups != len(sizes):
        raise _UnusualError
    return rows


def _image(value: bytes, head: _Head, start: int, end: int) -> bytes:
    """Return the image of the column group in these bytes of `value`, as JSON text."""
    position = start + len(head.raw)
    count = len(head.readers)
    lengths: Sequence[int] = value[position : position + count]
    position += count
    if not value[position - count : position].isascii():
        lengths, position = _lengths(value, position - count, count)
    texts: list[str | None] = []
    for read, length in zip(head.readers, lengths, strict=False):
        # A length is twice as large here; the odd ones are negative.
        if length & 1:
            if length != _NULL:
                raise _UnusualError
            texts.append(None)
        else:
            last = position + (length >> 1)
            texts.append(read(value[position:last]))
            position = last
    # This also sees what ran over the end: the position never goes back.
    if position != end:
        raise _UnusualError
    return _encode(dict(zip(head.group.names, texts, strict=True)))


def _lengths(value: bytes, position: int, count: int) -> tuple[list[int], int]:
    """Return `count` uvarints at `position`, and where they end."""
    numbers: list[int] = []
    for _ in range(count):
        number = value[position]
        position += 1
        if number >= _MORE:
            byte = value[position]
            position += 1
            number += (byte - 1) << 7
            if byte >= _MORE:
                # Lengths from 8 KiB.
                reader = Reader(value, position - 2, len(value))
                number = reader.uvarint()
                position = reader.position
        numbers.append(number)
    return numbers, position


def _uvarints(raw: bytes) -> Sequence[int]:
    """Return the uvarints that `raw` is full of."""
    if raw.isascii():
        return raw
    numbers: list[int] = []
    number = shift = 0
    for byte in raw:
        number |= (byte & 0x7F) << shift
        if byte < _MORE:
            numbers.append(number)
            number = shift = 0
        else:
            shift += 7
            if shift > _LARGEST_SHIFT:
                raise _UnusualError
    if shift or max(numbers) > MAX_UINT64:
        raise _UnusualError
    return numbers


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


_HEADER_CHUNKS: Final = 5
_MORE: Final = 0x80
_LARGEST_SHIFT: Final = 63
_NULL: Final = 1
"""The uvarint of the length -1."""

_INSERT: Final = Op.INSERT.value
_UPDATE: Final = Op.UPDATE.value
_DELETE: Final = Op.DELETE.value

_encode: Final = msgspec.json.Encoder().encode
