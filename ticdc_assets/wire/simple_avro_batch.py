"""The hot path of the Simple protocol in Avro: all rows of a batch at once, straight to text.

In: record batches with a column `value`. Out: rows, equal to what `simple_avro.decode` says, to the
last reason and position; the result depends on the records alone.

Only rows are read here, and only as TiCDC writes them; the layout is the table in `simple_avro`.
The fields before the images are read of all rows together, one field after the other. The columns
of an image have no order, so images are walked entry by entry, again of all rows together: the
first entry of every image, then the second, and so on. The walk only finds where each entry starts
and where its value does; what the values are is looked up afterwards, of all values of one type
together (`image_columns`).

How it stays equal: a message with anything that TiCDC does not write is given to the reference,
errors included. Not written by TiCDC, and so given away:

- messages of other kinds and versions (watermarks, DDL and bootstraps are few)
- a number out of its range or not in its shortest form, a negative length or count, an unknown
  branch or symbol, an empty name, text that is no UTF-8, a float that is not finite, a value of
  2 MiB or more
- an image in more than one block, with a name twice, or that the op does not have
- a message that ends too early or too late: no position goes behind the end of its message

The position never moves back, and a walk that is left with few images after many steps gives these
to the reference, so no count can make this long.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from dataclasses import dataclass
from json.encoder import encode_basestring as quoted
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ticdc_assets.wire.avro import MAX_ITEMS
from ticdc_assets.wire.byte_columns import (
    Bits,
    Buffer,
    Flags,
    Ints,
    distinct,
    in_shortest_form,
    uvarints,
    zigzag,
)
from ticdc_assets.wire.column_rows import Part, PartRows, regular_rows, without, words
from ticdc_assets.wire.image_columns import Images, Values, image_column, images_of
from ticdc_assets.wire.rows import RegularRows
from ticdc_assets.wire.simple_avro import (
    BYTES,
    DML_SYMBOLS,
    DOUBLE,
    FLOAT,
    LONG,
    NULL,
    STRING,
    UNSIGNED,
    ZONED,
)
from ticdc_assets.wire.simple_message import OPS, MessageType
from ticdc_assets.wire.value_forms import Form

_ROW_START: Final = int.from_bytes(b"\x16\x06\x06\x02", "little")
"""Branch 11 (Message), type DML, branch 3 (DML), version 1."""
_START_BYTES: Final = 4

_NULL: Final = 0
_SOME: Final = 2
"""The branches of an optional field, as they are written."""

_KINDS: Final = tuple(map(MessageType, DML_SYMBOLS))
_OPS: Final = tuple(OPS[kind].value for kind in _KINDS)
_HAS_DATA: Final = np.array([kind is not MessageType.DELETE for kind in _KINDS])
_HAS_OLD: Final = np.array([kind is not MessageType.INSERT for kind in _KINDS])
"""Of each symbol: its op, and whether it has `data` and `old`."""

_MAX_INT32: Final = 2**31 - 1
_MAX_UINT32: Final = 2**32 - 1

_FORMS: Final = {
    NULL: Form.NULL,
    LONG: Form.SIGNED,
    FLOAT: Form.FLOAT,
    DOUBLE: Form.DOUBLE,
    STRING: Form.TEXT,
    BYTES: Form.BASE64,
    ZONED: Form.ZONED,
    UNSIGNED: Form.UNSIGNED,
}


def _by_branch(values: dict[int, int], other: int) -> Ints:
    """Return an array that says of each byte, as a branch is written, what `values` say of it."""
    found = np.full(256, other, np.int64)
    for branch, value in values.items():
        found[2 * branch] = value
    return found


_UNKNOWN: Final = -1
_FORM: Final = _by_branch({branch: int(form) for branch, form in _FORMS.items()}, _UNKNOWN)
_FIXED: Final = _by_branch({FLOAT: 4, DOUBLE: 8}, 0)
"""The bytes of a value that always takes the same."""
_NUMBERED: Final = _by_branch(dict.fromkeys((LONG, STRING, BYTES, ZONED, UNSIGNED), 1), 0)
"""Whether a value starts with a number."""
_SIZED: Final = _by_branch(dict.fromkeys((STRING, BYTES, ZONED), 1), 0)
"""Whether that is the length of what follows."""

_LONGEST_LENGTH: Final = 3
"""The bytes of the longest length that is believed."""
_MANY_STEPS: Final = 64
_FEW_IMAGES: Final = 16


def decode_regular(batch: pa.RecordBatch) -> RegularRows | None:
    """Return the rows of those records of `batch` that are row changes as TiCDC writes them."""
    return regular_rows(batch, _rows)


class _Cursor:
    """A position in each of some messages, and whether it is still as TiCDC writes it."""

    def __init__(self, buffer: Buffer, at: Ints, end: Ints) -> None:
        self.buffer = buffer
        self.at = at
        self.end = end
        self.good: Flags = np.ones(len(at), np.bool_)

    def move(self, at: Ints) -> None:
        """Go to `at`, where that is within the message."""
        self.good &= at <= self.end
        self.at = np.minimum(at, self.end)

    def numbers(self) -> Ints:
        """Read a zigzag number of each message."""
        bits, sizes = uvarints(self.buffer, self.at)
        self.good &= in_shortest_form(bits, sizes)
        self.move(self.at + sizes)
        return zigzag(bits)

    def naturals(self, most: int = 2**63 - 1) -> Ints:
        """Read a number of each that is not negative."""
        numbers = self.numbers()
        self.good &= (numbers >= 0) & (numbers <= most)
        return numbers

    def texts(self) -> tuple[Ints, Ints]:
        """Return where a text of each starts and ends."""
        lengths = np.clip(self.numbers(), -1, self.buffer.size)
        starts = self.at
        self.good &= lengths >= 0
        self.move(starts + np.maximum(lengths, 0))
        return starts, self.at

    def present(self) -> Flags:
        """Read the branch of an optional field, and say where it has a value."""
        branches = self.buffer.octets[self.at]
        self.good &= (branches == _NULL) | (branches == _SOME)
        self.move(self.at + 1)
        return branches == _SOME

    def flags(self) -> Flags:
        """Read a boolean of each."""
        octets = self.buffer.octets[self.at]
        self.good &= octets <= 1
        self.move(self.at + 1)
        return octets == 1

    def of(self, chosen: Ints) -> "_Cursor":
        """Return the cursor of the messages `chosen` alone."""
        return _Cursor(self.buffer, self.at[chosen], self.end[chosen])

    def join(self, cursor: "_Cursor", chosen: Ints) -> None:
        """Go on where `cursor`, that of the messages `chosen`, is."""
        self.good[chosen] &= cursor.good
        self.at[chosen] = cursor.at


def _rows(_first: int, part: Part) -> PartRows:
    buffer = part.buffer
    starting = buffer.words[part.starts] & np.uint64(0xFFFF_FFFF) == _ROW_START
    records = np.flatnonzero(starting & (part.ends - part.starts > _START_BYTES))
    cursor = _Cursor(buffer, part.starts[records] + _START_BYTES, part.ends[records])
    databases = cursor.texts()
    tables = cursor.texts()
    cursor.good &= (databases[0] < databases[1]) & (tables[0] < tables[1])
    table_ids = cursor.naturals()
    symbols = np.clip(cursor.naturals(len(_OPS) - 1), 0, len(_OPS) - 1)
    commit_ts = cursor.naturals()
    build_ts = cursor.naturals()
    versions = cursor.naturals()
    locations = _locations(cursor)
    handle_keys = _handle_keys(cursor)
    checksums = _checksums(cursor)
    data = _images(cursor, _HAS_DATA[symbols])
    old = _images(cursor, _HAS_OLD[symbols])
    cursor.good &= cursor.at == cursor.end

    columns = {
        "op": words(symbols, _OPS),
        "commit_ts": pa.array(commit_ts),
        "build_ts_ms": pa.array(build_ts),
        "database": _names(cursor, databases),
        "table": _names(cursor, tables),
        "table_id": pa.array(table_ids),
        "schema_version": pa.array(versions),
        "before": old,
        "after": data,
        "handle_key_only": pa.array(handle_keys),
        "claim_check_location": locations,
        "checksum": checksums,
    }
    return without((records, columns), ~cursor.good)


def _names(cursor: _Cursor, extents: tuple[Ints, Ints]) -> "pa.Array[Any]":
    """Return the names there; those of messages that are not good any more are not looked at."""
    chosen = np.flatnonzero(cursor.good)
    codes = np.full(len(cursor.at), -1)
    found, raws = distinct(cursor.buffer, extents[0][chosen], extents[1][chosen])
    texts, wrong = _texts(raws)
    codes[chosen] = found
    if wrong:
        cursor.good[chosen] &= ~np.isin(found, wrong)
    return words(codes, texts)


def _texts(raws: list[bytes]) -> tuple[list[str], list[int]]:
    """Return what `raws` are in UTF-8, and the numbers of those that are none, which are empty."""
    texts: list[str] = []
    wrong: list[int] = []
    for raw in raws:
        try:
            texts.append(str(raw, "utf-8"))
        except UnicodeDecodeError:
            wrong.append(len(texts))
            texts.append("")
    return texts, wrong


def _locations(cursor: _Cursor) -> "pa.Array[Any]":
    """Read the claim check locations; most messages have none."""
    codes = np.full(len(cursor.at), -1)
    chosen = np.flatnonzero(cursor.present() & cursor.good)
    if not len(chosen):
        return words(codes, ())
    some = cursor.of(chosen)
    starts, ends = some.texts()
    cursor.join(some, chosen)
    found, raws = distinct(cursor.buffer, starts, ends)
    texts, wrong = _texts(raws)
    # Go writes an empty location as none at all.
    codes[chosen] = np.where(starts < ends, found, -1)
    cursor.good[chosen] &= ~np.isin(found, wrong)
    return words(codes, texts)


def _handle_keys(cursor: _Cursor) -> Flags:
    """Read the flags of cut images; most messages have none."""
    found = np.zeros(len(cursor.at), np.bool_)
    chosen = np.flatnonzero(cursor.present() & cursor.good)
    if len(chosen):
        some = cursor.of(chosen)
        found[chosen] = some.flags()
        cursor.join(some, chosen)
    return found


def _checksums(cursor: _Cursor) -> "pa.Array[Any]":
    """Read the checksums; a changefeed sends them with all rows or with none."""
    codes = np.full(len(cursor.at), -1)
    chosen = np.flatnonzero(cursor.present() & cursor.good)
    if not len(chosen):
        return words(codes, ())
    some = cursor.of(chosen)
    versions = some.naturals(_MAX_INT32).tolist()
    corrupted = some.flags().tolist()
    current = some.naturals(_MAX_UINT32).tolist()
    previous = some.naturals(_MAX_UINT32).tolist()
    cursor.join(some, chosen)
    texts: dict[str, int] = {}
    codes[chosen] = [
        texts.setdefault(
            f'{{"version":{version},"corrupted":{"true" if wrong else "false"},'
            f'"current":{now},"previous":{then}}}',
            len(texts),
        )
        for version, wrong, now, then in zip(versions, corrupted, current, previous, strict=True)
    ]
    return words(codes, list(texts))


def _images(cursor: _Cursor, expected: Flags) -> "pa.Array[Any]":
    """Read the images of the messages that are `expected` to have one."""
    cursor.good &= cursor.present() == expected
    chosen = np.flatnonzero(expected & cursor.good)
    some = cursor.of(chosen)
    entries = _walk(some)
    cursor.join(some, chosen)
    numbers = np.full(len(cursor.at), -1)
    chosen = chosen[entries.owners]
    images = _read(cursor.buffer, entries)
    numbers[chosen] = np.where(images.sound, np.arange(len(chosen)), -1)
    cursor.good[chosen] &= images.sound
    column, wrong = image_column(images, numbers)
    cursor.good[wrong] = False
    return column


@dataclass(frozen=True, slots=True)
class _Entries:
    """Where the entries of images are.

    Attributes:
        owners: the numbers of the images that were read to their end.
        counts: how many each of them has.
        starts: where each entry starts, with the length of its name.
        branches: where the branch of its value is, behind its name.
    """

    owners: Ints
    counts: Ints
    starts: Ints
    branches: Ints


def _walk(cursor: _Cursor) -> _Entries:
    """Return the entries of the images at `cursor`, of those that are good."""
    octets, words = cursor.buffer.octets, cursor.buffer.words
    counts = cursor.naturals(MAX_ITEMS)
    # An entry takes two bytes at least.
    cursor.good &= 2 * counts <= cursor.end - cursor.at
    counts = np.where(cursor.good, counts, 0)
    # The longest images come first, so that those that go on are always the first ones.
    order = np.argsort(-counts, kind="stable")
    sorted_counts = counts[order]
    at, end = cursor.at[order], cursor.end[order]
    good = np.ones(len(order), np.bool_)
    entries = (np.cumsum(counts) - counts)[order]
    total = int(counts.sum())
    starts, branches = np.empty(total, np.int64), np.empty(total, np.int64)
    steps = int(sorted_counts[0]) if len(order) else 0
    lengths = np.searchsorted(-sorted_counts, -np.arange(steps), side="left").tolist()
    for step, length in enumerate(lengths):
        if step >= _MANY_STEPS and length < _FEW_IMAGES:
            good[:length] = False
            break
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
        zoned = np.flatnonzero(branch == 2 * ZONED)
        if len(zoned):
            second_at = np.minimum(behind[zoned], end[zoned])
            bits, taken = uvarints(cursor.buffer, second_at)
            lengths_of = np.minimum(bits, np.uint64(cursor.buffer.size * 2 + 2)).view(np.int64)
            wrong[zoned] |= (lengths_of & 1 != 0) | ~in_shortest_form(bits, taken)
            behind[zoned] = second_at + taken + (lengths_of >> 1)
        wrong |= behind > end[:length]
        good[:length] &= ~wrong
        place = entries[:length] + step
        starts[place] = here
        branches[place] = branch_at
        at[:length] = np.minimum(behind, end[:length])
    cursor.at[order] = at
    cursor.good[order] &= good
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
    """Return the images of `entries`; those with a value that is not as TiCDC writes it unsound."""
    places = entries.branches + 1
    forms = _FORM[buffer.octets[entries.branches]]
    # The length of a name is part of what tells it from others.
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
    floats = buffer.words[places[chosen]].astype(np.uint32).view(np.float32)
    wrong[chosen] |= ~np.isfinite(floats)
    floats[~np.isfinite(floats)] = 0
    chosen = np.flatnonzero(forms == Form.DOUBLE)
    doubles = buffer.words[places[chosen]].view(np.float64)
    wrong[chosen] |= ~np.isfinite(doubles)
    doubles[~np.isfinite(doubles)] = 0

    images = images_of(
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
        ),
    )
    if wrong.any():
        owners = np.repeat(np.arange(len(entries.counts)), entries.counts)
        images.sound[owners[wrong]] = False
    return images
