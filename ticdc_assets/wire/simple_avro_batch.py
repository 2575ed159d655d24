"""The hot path of the Simple protocol in Avro: all rows of a batch at once, straight to text.

In: record batches with a column `value`. Out: rows, equal to those of `simple_avro.decode`, with
the same reasons and positions of errors; the result depends on the records alone.

This module reads only rows, as TiCDC writes them; the layout is the table in `simple_avro`. It
reads the fields before the images for all rows together, one field after the other. The columns of
an image have no order, so it walks images entry by entry, again for all rows together: the first
entry of every image, then the second, and so on. The walk only locates each entry and its value;
the values are read afterwards, all values of one type together (`image_columns`).

How it stays equal: the reference reads each message with something that TiCDC does not write,
errors included. That is:

- messages of other kinds and versions (watermarks, DDL and bootstraps are few)
- a number out of its range or not in its shortest form, a negative length or count, an unknown
  branch or symbol, an empty name, text that is not UTF-8, a float that is not finite, a value of
  2 MiB or more
- an image in more than one block, with a name twice, or that the op does not have
- a message that ends too early or too late: no position goes past the end of its message

The position never moves back, and a walk that is left with few images after many steps gives these
to the reference, so no count can make this long.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportAttributeAccessIssue=false

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from json.encoder import encode_basestring as quoted
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.wire import avro
from ticdc_assets.wire.byte_columns import (
    Bits,
    Buffer,
    Flags,
    Ints,
    Walk,
    distinct,
    in_shortest_form,
    uvarints,
    zigzag,
)
from ticdc_assets.wire.column_rows import Part, PartRows, exact_rows, without, words
from ticdc_assets.wire.fields import LARGEST, Field, Kind, Presence
from ticdc_assets.wire.image_columns import Images, Values, finite, image_column, images_of
from ticdc_assets.wire.rows import ExactRows
from ticdc_assets.wire.simple_avro import (
    BRANCHES,
    DML,
    DML_SYMBOLS,
    FORMS,
    MESSAGE_BRANCH,
    MESSAGE_TYPES,
)
from ticdc_assets.wire.simple_message import CHECKSUM, FIELDS, OPS, VERSION, MessageType
from ticdc_assets.wire.value_forms import Form

_TYPES: Final = tuple(map(MessageType, DML_SYMBOLS))
_OPS: Final = tuple(OPS[kind].value for kind in _TYPES)
_FIELDS: Final = {field.name: field for field in FIELDS[MessageType.UPDATE]}
_MEMBERS: Final = {field.name: field for field in CHECKSUM}

# The bytes of the type and the branch of a message, of its payload and of the version.
_DML: Final = MESSAGE_TYPES.index("DML")
_START: Final = bytes(2 * number for number in (MESSAGE_BRANCH, _DML, _DML, VERSION))
_START_WORD: Final = np.uint64(int.from_bytes(_START, "little"))
_START_MASK: Final = np.uint64((1 << 8 * len(_START)) - 1)

_NULL: Final = 0
_SOME: Final = 2
"""The branches of an optional field, as bytes."""


def _by_presence(presence: Presence) -> Mapping[str, Flags]:
    """Return for each field, by the number of a message's type, whether it has this presence."""
    tables = [{field.name: field.presence for field in FIELDS[kind]} for kind in _TYPES]
    return {name: np.array([table[name] is presence for table in tables]) for name in _FIELDS}


_REQUIRED: Final = _by_presence(Presence.REQUIRED)
_ABSENT: Final = _by_presence(Presence.ABSENT)


def _by_branch(says: Callable[[Form, avro.AvroType], int], other: int = 0) -> Ints:
    """Return an array with the result of `says` for each byte of a branch."""
    found = np.full(256, other, np.int64)
    for number, (form, kind) in enumerate(BRANCHES.items()):
        found[2 * number] = says(form, kind)
    return found


def _first(kind: avro.AvroType) -> avro.AvroType:
    """Return the first type of a value."""
    return _first(kind.fields[0][1]) if isinstance(kind, avro.RecordType) else kind


_UNKNOWN: Final = -1
_FORM: Final = _by_branch(lambda form, _: form, _UNKNOWN)
_FIXED: Final = _by_branch(lambda _, kind: kind.least if isinstance(kind, avro.Floating) else 0)
"""The bytes of a value of fixed size."""
_SIZED: Final = _by_branch(lambda _, kind: isinstance(_first(kind), avro.String | avro.Bytes))
"""Whether a value starts with its length."""
_NUMBERED: Final = _SIZED | _by_branch(lambda _, kind: isinstance(_first(kind), avro.Integer))
"""Whether a value starts with a number, which may be its length."""
_ZONED: Final = 2 * FORMS.index(Form.ZONED)

_LONGEST_LENGTH: Final = 3
"""The bytes of the longest length that is accepted."""


def decode_exact(batch: pa.RecordBatch) -> ExactRows | None:
    """Return the rows of those records of `batch` that are row changes as TiCDC writes them."""
    return exact_rows(batch, _rows)


class _Cursor:
    """A position in each of some messages, and whether it is still as TiCDC writes it."""

    def __init__(self, buffer: Buffer, at: Ints, end: Ints) -> None:
        self.buffer = buffer
        self.at = at
        self.end = end
        self.good: Flags = np.ones(len(at), np.bool_)

    def move(self, at: Ints) -> None:
        """Go to `at`, if that is within the message."""
        self.good &= at <= self.end
        self.at = np.minimum(at, self.end)

    def numbers(self) -> Ints:
        """Read a zigzag number of each message."""
        bits, sizes = uvarints(self.buffer, self.at)
        self.good &= in_shortest_form(bits, sizes)
        self.move(self.at + sizes)
        return zigzag(bits)

    def naturals(self, most: int = 2**63 - 1) -> Ints:
        """Read a number of each message that is not negative."""
        numbers = self.numbers()
        self.good &= (numbers >= 0) & (numbers <= most)
        return numbers

    def texts(self) -> tuple[Ints, Ints]:
        """Return where a text of each message starts and ends."""
        lengths = np.clip(self.numbers(), -1, self.buffer.size)
        starts = self.at
        self.good &= lengths >= 0
        self.move(starts + np.maximum(lengths, 0))
        return starts, self.at

    def present(self) -> Flags:
        """Read the branch of an optional field, and return where it has a value."""
        branches = self.buffer.octets[self.at]
        self.good &= (branches == _NULL) | (branches == _SOME)
        self.move(self.at + 1)
        return branches == _SOME

    def flags(self) -> Flags:
        """Read a boolean of each message."""
        octets = self.buffer.octets[self.at]
        self.good &= octets <= 1
        self.move(self.at + 1)
        return octets == 1

    def of(self, chosen: Ints) -> "_Cursor":
        """Return the cursor of the messages `chosen` alone."""
        return _Cursor(self.buffer, self.at[chosen], self.end[chosen])

    def join(self, cursor: "_Cursor", chosen: Ints) -> None:
        """Continue where `cursor`, that of the messages `chosen`, is."""
        self.good[chosen] &= cursor.good
        self.at[chosen] = cursor.at


def _rows(_first: int, part: Part) -> PartRows:
    buffer = part.buffer
    starting = buffer.words[part.starts] & _START_MASK == _START_WORD
    records = np.flatnonzero(starting & (part.ends - part.starts > len(_START)))
    cursor = _Cursor(buffer, part.starts[records] + len(_START), part.ends[records])
    symbols = np.zeros(len(records), np.int64)
    columns: dict[str, pa.Array[Any]] = {}
    for name, kind in DML.fields:
        if name == "type":
            symbols = np.clip(cursor.naturals(len(_OPS) - 1), 0, len(_OPS) - 1)
            columns["op"] = words(symbols, _OPS)
        elif isinstance(kind, avro.Optional):
            field = _FIELDS[name]
            columns[field.meaning] = _optional(cursor, field, kind.type, symbols)
        else:
            field = _FIELDS[name]
            columns[field.meaning] = _READERS[field.kind](cursor, kind)
    cursor.good &= cursor.at == cursor.end
    return without((records, columns), ~cursor.good)


def _optional(cursor: _Cursor, field: Field, kind: avro.AvroType, symbols: Ints) -> "pa.Array[Any]":
    """Read a field that may be null of messages with the types `symbols`."""
    present = cursor.present()
    right = np.where(present, ~_ABSENT[field.name][symbols], ~_REQUIRED[field.name][symbols])
    cursor.good &= right
    present &= cursor.good
    chosen = np.flatnonzero(present)
    some = cursor.of(chosen)
    column = _READERS[field.kind](some, kind)
    cursor.join(some, chosen)
    column = _among_nulls(column, present)
    # A flag that is not sent is not set.
    return column.fill_null(False) if field.kind is Kind.BOOLEAN else column


def _among_nulls(column: "pa.Array[Any]", present: Flags) -> "pa.Array[Any]":
    """Return a column with the values of `column` where `present` is true, and nulls elsewhere."""
    if not len(column):
        return pa.nulls(len(present), column.type)
    places = np.cumsum(present)
    if column.type != pa.string():
        return column.take(pa.array(places - 1, mask=~present))
    # The texts stay where they are.
    _, offsets, texts = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[np.append(0, places)]
    valid = present.copy()
    valid[present] = column.is_valid()
    buffers = [pa.py_buffer(np.packbits(valid, bitorder="little")), pa.py_buffer(bounds), texts]
    return pa.Array.from_buffers(pa.string(), len(present), buffers)


def _natural(cursor: _Cursor, kind: avro.AvroType, *, most: int) -> "pa.Array[Any]":
    assert isinstance(kind, avro.Integer)
    return pa.array(cursor.naturals(min(most, kind.high)))


def _flag(cursor: _Cursor, _kind: avro.AvroType) -> "pa.Array[Any]":
    return pa.array(cursor.flags())


def _text(cursor: _Cursor, _kind: avro.AvroType) -> "pa.Array[Any]":
    starts, ends = cursor.texts()
    codes, raws = distinct(cursor.buffer, starts, ends)
    texts, wrong = _texts(raws)
    cursor.good &= ~np.isin(codes, wrong)
    # Go writes an empty text as a missing one.
    return words(np.where(starts < ends, codes, -1), texts)


def _name(cursor: _Cursor, kind: avro.AvroType) -> "pa.Array[Any]":
    names = _text(cursor, kind)
    cursor.good &= names.is_valid()
    return names


def _texts(raws: list[bytes]) -> tuple[list[str], list[int]]:
    """Return `raws` in UTF-8, and the numbers of those that are not UTF-8, which become empty."""
    texts: list[str] = []
    wrong: list[int] = []
    for raw in raws:
        try:
            texts.append(str(raw, "utf-8"))
        except UnicodeDecodeError:
            wrong.append(len(texts))
            texts.append("")
    return texts, wrong


def _checksum(cursor: _Cursor, kind: avro.AvroType) -> "pa.Array[Any]":
    assert isinstance(kind, avro.RecordType)
    parts: list[Any] = []
    for name, inner in kind.fields:
        member = _READERS[_MEMBERS[name].kind](cursor, inner)
        parts += (f'{"," if parts else "{"}"{name}":', member.cast(pa.string()))
    return pc.binary_join_element_wise(*parts, "}", "")


def _image(cursor: _Cursor, _kind: avro.AvroType) -> "pa.Array[Any]":
    entries = _walk(cursor)
    images = _read(cursor.buffer, entries)
    numbers = np.full(len(cursor.at), -1)
    numbers[entries.owners] = np.where(images.sound, np.arange(len(entries.owners)), -1)
    cursor.good[entries.owners] &= images.sound
    column, wrong = image_column(images, numbers)
    cursor.good[wrong] = False
    return column


_Reader: TypeAlias = "Callable[[_Cursor, avro.AvroType], pa.Array[Any]]"
_READERS: Final[Mapping[Kind, _Reader]] = {
    **{kind: partial(_natural, most=most) for kind, most in LARGEST.items()},
    Kind.TEXT: _text,
    Kind.NAME: _name,
    Kind.BOOLEAN: _flag,
    Kind.IMAGE: _image,
    Kind.CHECKSUM: _checksum,
}
"""Read a field of each message of a cursor, as the reference's readers of the same kinds do."""


@dataclass(frozen=True, slots=True)
class _Entries:
    """Where the entries of images are.

    Attributes:
        owners: the numbers of the images that were read to their end.
        counts: how many each of them has.
        starts: where each entry starts, with the length of its name.
        branches: where the branch of its value is, after its name.
    """

    owners: Ints
    counts: Ints
    starts: Ints
    branches: Ints


def _walk(cursor: _Cursor) -> _Entries:
    """Return the entries of the images at `cursor` that are good."""
    octets, words = cursor.buffer.octets, cursor.buffer.words
    counts = cursor.naturals(avro.MAX_ITEMS)
    # An entry takes at least two bytes.
    cursor.good &= 2 * counts <= cursor.end - cursor.at
    counts = np.where(cursor.good, counts, 0)
    walk = Walk(counts)
    at, end = cursor.at[walk.order], cursor.end[walk.order]
    total = int(counts.sum())
    starts, branches = np.empty(total, np.int64), np.empty(total, np.int64)
    for length, place in walk.steps():
        here = at[:length]
        size = octets[here].astype(np.int64)
        name = here + 1
        wrong = size & 1 != 0
        if size.max() > _ONE_BYTE:
            longer = size > _ONE_BYTE
            second = octets[name].astype(np.int64)
            size = np.where(longer, size & _ONE_BYTE | second << 7, size)
            name += longer
            # No name of MySQL has more than 64 characters, 256 bytes.
            wrong |= longer & ((second == 0) | (size > _LONGEST_NAME))
            size = np.minimum(size, _LONGEST_NAME)
        branch_at = np.minimum(name + (size >> 1), end[:length])
        branch = octets[branch_at]
        word = words[branch_at + 1]
        stop = ~word & _TOPS
        within = stop ^ (stop - _ONE)
        taken = (np.bitwise_count(within) >> 3).astype(np.int64)
        word = (word & within & _THREE_BYTES).view(np.int64)
        amount = word & 0x7F | (word >> 1) & 0x3F80 | (word >> 2) & 0x1F_C000
        if not stop.all():
            longest = np.flatnonzero(stop == 0)
            taken[longest] = 9 + (octets[branch_at[longest] + 9] >= _ONE_BYTE + 1)
        sized = _SIZED[branch]
        wrong |= (_FORM[branch] < 0) | (sized & ((taken > _LONGEST_LENGTH) | (amount & 1)) != 0)
        behind = branch_at + 1 + _FIXED[branch] + _NUMBERED[branch] * taken + sized * (amount >> 1)
        zoned = np.flatnonzero(branch == _ZONED)
        if len(zoned):
            second_at = np.minimum(behind[zoned], end[zoned])
            bits, taken = uvarints(cursor.buffer, second_at)
            lengths_of = np.minimum(bits, np.uint64(cursor.buffer.size * 2 + 2)).view(np.int64)
            wrong[zoned] |= (lengths_of & 1 != 0) | ~in_shortest_form(bits, taken)
            behind[zoned] = second_at + taken + (lengths_of >> 1)
        wrong |= behind > end[:length]
        walk.good[:length] &= ~wrong
        starts[place] = here
        branches[place] = branch_at
        at[:length] = np.minimum(behind, end[:length])
    cursor.at = walk.restored(at)
    cursor.good &= walk.restored(walk.good)
    kept = cursor.good
    if not kept.all():
        chosen = np.repeat(kept, counts)
        counts = counts[kept]
        starts, branches = starts[chosen], branches[chosen]
    some = np.flatnonzero(kept)
    # A map that is not empty ends with an empty block.
    ended = some[counts > 0]
    cursor.good[ended] &= octets[cursor.at[ended]] == 0
    cursor.at[ended] += 1
    cursor.good &= cursor.at <= cursor.end
    cursor.at = np.minimum(cursor.at, cursor.end)
    return _Entries(some, counts, starts, branches)


_ONE_BYTE: Final = 0x7F
"""The largest number of one byte."""
_LONGEST_NAME: Final = 512
"""The length of the longest name, as it is written."""
_ONE: Final = np.uint64(1)
_TOPS: Final = np.uint64(0x8080_8080_8080_8080)
_THREE_BYTES: Final = np.uint64(0x7F_7F7F)


def _read(buffer: Buffer, entries: _Entries) -> Images:
    """Return the images of `entries`; one with a value that TiCDC does not write is unsound."""
    places = entries.branches + 1
    forms = _FORM[buffer.octets[entries.branches]]
    # The length is part of a name, so that no name is the beginning of another.
    names, raws = distinct(buffer, entries.starts, entries.branches)
    spelled, wrong_names = _texts([raw[1:] if raw[0] <= _ONE_BYTE else raw[2:] for raw in raws])
    wrong = np.isin(names, wrong_names)

    def numbers_of(chosen: Ints) -> tuple[Bits, Ints]:
        bits, sizes = uvarints(buffer, places[chosen])
        wrong[chosen] |= ~in_shortest_form(bits, sizes)
        return bits, sizes

    starts, ends = np.zeros_like(places), np.zeros_like(places)
    chosen = np.flatnonzero((forms == Form.TEXT) | (forms == Form.BASE64) | (forms == Form.ZONED))
    bits, sizes = numbers_of(chosen)
    starts[chosen] = places[chosen] + sizes
    ends[chosen] = starts[chosen] + (bits >> _ONE).view(np.int64)
    spelling, spellings = [quoted(name) for name in spelled], names.copy()
    chosen = np.flatnonzero(forms == Form.ZONED)
    if len(chosen):
        zones, raws = distinct(buffer, starts[chosen], ends[chosen])
        locations, failed = _texts(raws)
        wrong[chosen] |= np.isin(zones, failed)
        bits, sizes = uvarints(buffer, ends[chosen])
        starts[chosen] = ends[chosen] + sizes
        ends[chosen] = starts[chosen] + (bits >> _ONE).view(np.int64)
        both, found = np.unique(names[chosen] * len(locations) + zones, return_inverse=True)
        spellings[chosen] = len(spelling) + found
        for name, zone in zip(*np.divmod(both, len(locations)), strict=True):
            location = quoted(locations[zone])
            spelling.append(f'{spelling[name]}:{{"location":{location},"value"')
    signed, _ = numbers_of(np.flatnonzero(forms == Form.SIGNED))
    unsigned, _ = numbers_of(np.flatnonzero(forms == Form.UNSIGNED))
    chosen = np.flatnonzero(forms == Form.FLOAT)
    floats, others = finite(buffer.words[places[chosen]].astype(np.uint32).view(np.float32))
    wrong[chosen] |= others
    chosen = np.flatnonzero(forms == Form.DOUBLE)
    doubles, others = finite(buffer.words[places[chosen]].view(np.float64))
    wrong[chosen] |= others

    return images_of(
        buffer,
        Values(
            counts=entries.counts,
            names=names,
            spellings=spellings,
            spelled=spelling,
            forms=forms,
            starts=starts,
            ends=ends,
            signed=zigzag(signed),
            unsigned=zigzag(unsigned).view(np.uint64),
            floats=floats,
            doubles=doubles,
            wrong=wrong,
        ),
    )
