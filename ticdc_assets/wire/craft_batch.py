"""The hot path of Craft: all messages of a batch at once, straight to text.

In: record batches with a column `value`. Out: rows, equal to those of `craft.decode`, with the same
reasons and positions of errors; the result depends on the records alone.

This module reads only messages of rows. Size tables and headers of all messages are read as two
streams of numbers; term dictionaries and the heads of column groups (kind, count, names, types and
flags), which rows of a table repeat byte for byte, are deduplicated by Arrow and read once each
(`craft_heads`); the lengths of values are walked column by column, of all column groups together;
and the values of one type are written together (`image_columns`).

How it stays equal: the reference reads a message that looks unusual anywhere as a whole, errors
included. So this module must never accept what the reference refuses, and needs no reasons:

- Sizes must add up as in the reference, so no range runs over another. What is read before that is
  known stays within the buffer, and counts for nothing afterwards.
- A walk that is left with few messages after many steps gives these to the reference, so no count
  can make this long.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring as quoted
from typing import Final

import numpy as np
import pyarrow as pa

from ticdc_assets.wire import craft
from ticdc_assets.wire.byte_columns import (
    Bits,
    Buffer,
    Flags,
    Ints,
    Walk,
    buffer_of,
    distinct,
    spread,
    uvarints,
    zigzag,
)
from ticdc_assets.wire.column_rows import Part, PartRows, exact_rows, without, words
from ticdc_assets.wire.craft_bytes import Reader
from ticdc_assets.wire.craft_heads import Terms, forms_of, heads_of, shapes_of, terms_of
from ticdc_assets.wire.craft_layout import HEADER, VERSION, EventKind, GroupKind, Head
from ticdc_assets.wire.image_columns import Images, Values, finite, image_column, images_of
from ticdc_assets.wire.rows import ExactRows
from ticdc_assets.wire.value_forms import Form

_SHORTEST: Final = 12
"""A message of one row has more bytes than this."""
_FIRST_SIZE: Final = 4
"""The size of the first body, among the numbers of the size tables."""
_LARGE: Final = np.uint64(1 << 40)
"""No size is as large."""
_MORE: Final = 0x80
_NULL: Final = 1
"""The uvarint of the length -1."""
_NUMBER_BYTES: Final = 10
_FLOAT_BYTES: Final = 8

_OPS: Final = tuple(craft.OPS[bool(images & 2), bool(images & 1)].value for images in (1, 2, 3))
"""The operation of a row: 1 less 1 if it has an image after, plus 1 if it has one before."""


def decode_exact(batch: pa.RecordBatch) -> ExactRows | None:
    """Return the rows of those records of `batch` that are messages of rows, as TiCDC writes."""
    return exact_rows(batch, _rows)


@dataclass(frozen=True, slots=True)
class _Stream:
    """Numbers of all messages, one after the other.

    Attributes:
        numbers: the numbers.
        firsts: the first number of each message.
        counts: how many it has.
        good: whether all are numbers.
    """

    numbers: Bits
    firsts: Ints
    counts: Ints
    good: Flags

    def of(self, chosen: Flags) -> "_Stream":
        """Return the numbers of some of the messages."""
        return _Stream(self.numbers, self.firsts[chosen], self.counts[chosen], self.good[chosen])


def _stream(buffer: Buffer, starts: Ints, ends: Ints) -> _Stream:
    """Return the uvarints that fill ranges of bytes; none of the ranges is empty."""
    lengths = ends - starts
    octets = buffer.octets[spread(starts, lengths)]
    last = octets < _MORE
    # A range that ends within a number is not good, and still its number ends there.
    bounds = np.cumsum(lengths)
    good = last[bounds - 1]
    last[bounds - 1] = True
    behind = np.flatnonzero(last) + 1
    begins = np.empty_like(behind)
    begins[:1] = 0
    begins[1:] = behind[:-1]
    numbers, sizes = uvarints(buffer_of(octets), begins)
    counts = np.searchsorted(behind, bounds, side="right")
    counts = np.diff(counts, prepend=0)
    firsts = np.cumsum(counts) - counts
    wrong = (sizes != behind - begins) | (sizes > _NUMBER_BYTES)
    if wrong.any():
        good &= ~np.logical_or.reduceat(wrong, firsts)
    return _Stream(numbers, firsts, counts, good)


@dataclass(frozen=True, slots=True)
class _Messages:
    """Messages with their parts.

    Attributes:
        records: the number of each message's record in the part.
        bodies: where its bodies start.
        terms: where its term dictionary starts.
        tables: where its size tables start.
        counts: how many events it has.
        sizes: the numbers of the size tables.
        headers: the numbers of the headers.
    """

    records: Ints
    bodies: Ints
    terms: Ints
    tables: Ints
    counts: Ints
    sizes: _Stream
    headers: _Stream


def _messages(part: Part) -> _Messages:
    """Return the messages of `part` whose headers and size tables can be read."""
    buffer, octets = part.buffer, part.buffer.octets
    records = np.flatnonzero(
        (part.ends - part.starts > _SHORTEST) & (octets[part.starts] == VERSION)
    )
    starts, ends = part.starts[records], part.ends[records]
    # The length of the size tables, from its end: of one to three bytes.
    last, second, third = (octets[ends - back].astype(np.int64) for back in (1, 2, 3))
    taken = 1 + (last >= _MORE) + ((last >= _MORE) & (second >= _MORE))
    length = last & 0x7F
    length |= np.where(taken > 1, (second & 0x7F) << 7, 0)
    length |= np.where(taken > 2, (third & 0x7F) << 14, 0)
    tables_end = ends - taken
    tables = tables_end - length
    good = (tables > starts) & (length >= _FIRST_SIZE + 3) & ~((taken > 2) & (third >= _MORE))
    records, starts = records[good], starts[good]
    tables, tables_end = tables[good], tables_end[good]

    sizes = _stream(buffer, tables, tables_end)
    numbers = sizes.numbers

    def nth(index: int) -> Bits:
        # There may be fewer numbers than that; the count shows it.
        return numbers[np.minimum(sizes.firsts + index, len(numbers) - 1)]

    counts = np.minimum(nth(3), _LARGE).view(np.int64)
    headers_size = np.minimum(nth(1), _LARGE).view(np.int64)
    terms_size = (headers_size >> 1) + zigzag(np.minimum(nth(2), _LARGE))
    headers_start = starts + 1
    bodies = headers_start + (headers_size >> 1)
    terms = tables - terms_size
    good = (
        sizes.good
        & (nth(0) == 2)
        & (headers_size & 1 == 0)
        & (headers_size > 0)
        & (counts > 0)
        # A body has a size, and a table of at least one number besides its count.
        & (_FIRST_SIZE + 3 * counts <= sizes.counts)
        & (terms_size >= 0)
        & (bodies <= terms)
    )
    records, headers_start, bodies = records[good], headers_start[good], bodies[good]
    terms, tables, counts = terms[good], tables[good], counts[good]
    sizes = sizes.of(good)

    headers = _stream(buffer, headers_start, bodies)
    good = headers.good & (headers.counts == len(HEADER) * counts)
    return _Messages(
        records[good],
        bodies[good],
        terms[good],
        tables[good],
        counts[good],
        sizes.of(good),
        headers.of(good),
    )


def _sums(numbers: Ints, firsts: Ints, counts: Ints) -> Ints:
    """Return the sums so far of `numbers` within each range, wrapping around at 64 bits."""
    sums = np.cumsum(numbers)
    before = sums[firsts] - numbers[firsts]
    return sums - np.repeat(before, counts)


def _plain(numbers: Bits, _firsts: Ints, _counts: Ints) -> Ints:
    return numbers.view(np.int64)


def _deltas(numbers: Bits, firsts: Ints, counts: Ints) -> Ints:
    return _sums(numbers.view(np.int64), firsts, counts)


def _signed_deltas(numbers: Bits, firsts: Ints, counts: Ints) -> Ints:
    return _sums(zigzag(numbers), firsts, counts)


_CHUNKS: Final[Mapping[object, Callable[[Bits, Ints, Ints], Ints]]] = {
    Reader.uvarints: _plain,
    Reader.delta_uvarints: _deltas,
    Reader.delta_varints: _signed_deltas,
}
"""How the reference reads them, here with the first number and the count of each chunk."""


def _before(numbers: Ints, counts: Ints) -> Ints:
    """Return for each of `numbers` the sum of those before it in its range; no range is empty."""
    firsts = np.cumsum(counts) - counts
    return _sums(numbers, firsts, counts) - numbers


def _group_tables(messages: _Messages) -> tuple[Ints, Flags]:
    """Return for each event where its table of column groups is, and which messages are good."""
    numbers = messages.sizes.numbers
    last = len(numbers) - 1
    walk = Walk(messages.counts)
    at = (messages.sizes.firsts + _FIRST_SIZE + messages.counts)[walk.order]
    ends = (messages.sizes.firsts + messages.sizes.counts)[walk.order]
    found = np.zeros(int(messages.counts.sum()), np.int64)
    for length, places in walk.steps():
        here = np.minimum(at[:length], last)
        groups = numbers[here]
        known = (groups == 1) | (groups == 2)
        behind = here + 1 + np.where(known, groups, 1).astype(np.int64)
        walk.good[:length] &= known & (behind <= ends[:length])
        found[places] = here
        at[:length] = behind
    return found, walk.restored(walk.good & (at == ends))


@dataclass(frozen=True, slots=True)
class _Groups:
    """Column groups.

    Attributes:
        dictionaries: the dictionary of each.
        heads: the number of its head.
        values: where the lengths of its values start.
        ends: where it ends.
    """

    dictionaries: Ints
    heads: Ints
    values: Ints
    ends: Ints

    def of(self, chosen: Ints | Flags) -> "_Groups":
        """Return some of the groups."""
        return _Groups(
            self.dictionaries[chosen], self.heads[chosen], self.values[chosen], self.ends[chosen]
        )


def _rows(_first: int, part: Part) -> PartRows:
    buffer = part.buffer
    messages = _messages(part)
    counts = messages.counts
    total = int(counts.sum())
    if not total:
        return messages.records[:0], {}
    owners = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    index = spread(np.zeros_like(counts), counts)
    tables, good = _group_tables(messages)
    headers = {
        field.name: _CHUNKS[field.chunk](
            messages.headers.numbers[spread(messages.headers.firsts + number * counts, counts)],
            firsts,
            counts,
        )
        for number, field in enumerate(HEADER)
    }
    sizes = _signed_deltas(
        messages.sizes.numbers[spread(messages.sizes.firsts + _FIRST_SIZE, counts)], firsts, counts
    )
    codes, raws = distinct(buffer, messages.terms, messages.tables)
    terms = terms_of(raws)
    dictionaries = codes[owners]
    numbers = messages.sizes.numbers
    group_counts = numbers[tables].astype(np.int64)
    one = numbers[np.minimum(tables + 1, len(numbers) - 1)]
    two = numbers[np.minimum(tables + 2, len(numbers) - 1)]
    one_size = (np.minimum(one, _LARGE) >> np.uint64(1)).view(np.int64)
    two_size = np.where(group_counts == 2, one_size + zigzag(np.minimum(two, _LARGE)), 0)
    wrong = (
        (headers["kind"] != EventKind.ROW)
        | (headers["database"] == -1)
        | (headers["table"] == -1)
        | (sizes < 0)
        | (sizes > buffer.size)
        | (one & np.uint64(1) != 0)
        | (two_size < 0)
        | (one_size + two_size != sizes)
    )
    for field in HEADER:
        most = terms.counts[dictionaries] - 1 if field.most is None else field.most
        wrong |= (headers[field.name] < field.least) | (headers[field.name] > most)
    good[owners[wrong]] = False
    # Sizes of bodies that are not good may have any sum.
    sums = np.add.reduceat(np.where(wrong, 0, sizes), firsts)
    good &= messages.bodies + sums == messages.terms
    chosen = good[owners]
    if not chosen.any():
        return messages.records[:0], {}
    counts = counts[good]
    records, bodies = messages.records[good], messages.bodies[good]
    owners = np.repeat(np.arange(len(counts)), counts)
    index, dictionaries = index[chosen], dictionaries[chosen]
    headers = {name: numbers[chosen] for name, numbers in headers.items()}
    sizes, one_size, two_size = sizes[chosen], one_size[chosen], two_size[chosen]
    group_counts = group_counts[chosen]

    named = {
        field.name: terms.numbers[terms.firsts[dictionaries] + headers[field.name]]
        for field in HEADER
        if field.most is None
    }
    nothing = terms.texts.index("") if "" in terms.texts else -1
    wrong = np.zeros(len(owners), np.bool_)
    for codes in named.values():
        wrong |= codes == nothing

    starts = np.repeat(bodies, counts) + _before(sizes, counts)
    events = np.repeat(np.arange(len(owners)), group_counts)
    first_groups = np.cumsum(group_counts) - group_counts
    later = np.ones(len(events), np.bool_)
    later[first_groups] = False
    group_starts = starts[events] + np.where(later, one_size[events], 0)
    group_ends = group_starts + np.where(later, two_size[events], one_size[events])
    found, lengths, heads = heads_of(buffer, dictionaries[events], group_starts, group_ends)
    head_names = np.array([max(head.names) for head in heads] + [0])
    unknown = (found < 0) | (head_names[found] >= terms.counts[dictionaries[events]])
    kinds = np.array([int(head.kind) for head in heads] + [0])[found]
    after = kinds == GroupKind.AFTER
    # An update has its column groups in this order.
    unknown |= (group_counts[events] == 2) & (after == later)
    wrong[events[unknown]] = True
    keep = ~wrong[events]
    groups = _Groups(dictionaries[events], found, group_starts + lengths, group_ends)
    spelled = [quoted(term) for term in terms.texts]
    found_images: dict[str, tuple[Images, Ints]] = {}
    for column, mine in (("after", after), ("before", ~after)):
        chosen = np.flatnonzero(keep & mine)
        images, read = _images(buffer, groups.of(chosen), heads, terms, spelled)
        which = np.full(len(owners), -1)
        which[events[chosen[read]]] = np.arange(len(images.counts))
        bad = np.ones(len(chosen), np.bool_)
        bad[read] = ~images.sound
        wrong[events[chosen[bad]]] = True
        found_images[column] = images, which
    second = np.where(group_counts == 2, found[first_groups + group_counts - 1], -1)
    shapes = shapes_of(dictionaries, found[first_groups], second, (terms, heads, ~wrong))
    wrong |= np.asarray(shapes.is_null())
    commit_ts, table_id = headers["commit_ts"], headers["table_id"]
    has_after = after[first_groups]
    has_before = ~has_after | (group_counts == 2)
    columns = {
        "index": pa.array(index, pa.int32()),
        "op": words(2 * has_after + has_before - 1, _OPS),
        "commit_ts": pa.array(commit_ts),
        "table_id": pa.array(table_id, mask=table_id == -1),
        "shape": shapes,
        **{name: words(codes, terms.texts) for name, codes in named.items()},
    }
    for column, (images, which) in found_images.items():
        columns[column], no_text = image_column(images, np.where(wrong, -1, which))
        wrong[no_text] = True
    return without((records[owners], columns), wrong)


def _images(
    buffer: Buffer, groups: _Groups, heads: Sequence[Head], terms: Terms, spelled: Sequence[str]
) -> tuple[Images, Ints]:
    """Return the images of `groups`, and the numbers of those that have one."""
    head_counts = np.array([len(head.names) for head in heads] + [0])
    counts = head_counts[groups.heads]
    lengths, behind, good = _lengths(buffer, groups, counts)
    owners = np.repeat(np.arange(len(counts)), counts)
    none = lengths == _NULL
    wrong = (lengths & np.uint64(1) != 0) & ~none | (lengths > 2 * buffer.size)
    good[owners[wrong]] = False
    taken = np.where(none | wrong, 0, lengths >> np.uint64(1)).astype(np.int64)
    before = _before(taken, counts) if len(counts) else taken
    bounds = np.cumsum(counts)
    sums = before[bounds - 1] + taken[bounds - 1] if len(counts) else counts
    good &= behind + sums == groups.ends
    read = np.flatnonzero(good)
    if len(read) < len(good):
        chosen = good[owners]
        none, taken, before = none[chosen], taken[chosen], before[chosen]
        groups, counts, behind = groups.of(read), counts[read], behind[read]

    starts = np.repeat(behind, counts) + before
    flat_forms = np.array([form for head in heads for form in forms_of(head)], np.int64)
    flat_names = np.array([name for head in heads for name in head.names], np.int64)
    places = spread((np.cumsum(head_counts) - head_counts)[groups.heads], counts)
    sent = flat_forms[places]
    first_terms = np.repeat(terms.firsts[groups.dictionaries], counts)
    names = terms.numbers[first_terms + flat_names[places]]
    forms = np.where(none, int(Form.NULL), sent)
    wrong = ~none & (sent == Form.NULL)

    def numbers_of(form: Form) -> Bits:
        chosen = np.flatnonzero(forms == form)
        numbers, sizes = uvarints(buffer, starts[chosen])
        wrong[chosen] |= (sizes != taken[chosen]) | (sizes > _NUMBER_BYTES)
        return numbers

    def doubles_of(form: Form) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.float64]]]:
        chosen = np.flatnonzero(forms == form)
        wrong[chosen] |= taken[chosen] != _FLOAT_BYTES
        return chosen, buffer.words[starts[chosen]].view(np.float64)

    signed, unsigned = numbers_of(Form.SIGNED), numbers_of(Form.UNSIGNED)
    chosen, doubles = doubles_of(Form.DOUBLE)
    doubles, others = finite(doubles)
    wrong[chosen] |= others
    _, wide = doubles_of(Form.FLOAT)
    with np.errstate(over="ignore", invalid="ignore"):
        # Anything but a FLOAT is 0, as in the reference.
        floats, _ = finite(wide.astype(np.float32))
    images = images_of(
        buffer,
        Values(
            counts=counts,
            names=names,
            spellings=names,
            spelled=spelled,
            forms=forms,
            starts=starts,
            ends=starts + taken,
            signed=zigzag(signed),
            unsigned=unsigned,
            floats=floats,
            doubles=doubles,
            wrong=wrong,
        ),
    )
    return images, read


def _lengths(buffer: Buffer, groups: _Groups, counts: Ints) -> tuple[Bits, Ints, Flags]:
    """Return the lengths of all values, where they end in each group, and which are good."""
    octets = buffer.octets
    walk = Walk(counts)
    at, ends = groups.values[walk.order], groups.ends[walk.order]
    found = np.zeros(int(counts.sum()), np.uint64)
    for length, places in walk.steps():
        here = at[:length]
        short = octets[here]
        if short.max() < _MORE:
            found[places] = short
            behind = here + 1
        else:
            found[places], sizes = uvarints(buffer, here)
            behind = here + sizes
            walk.good[:length] &= sizes <= _NUMBER_BYTES
        walk.good[:length] &= behind <= ends[:length]
        at[:length] = np.minimum(behind, ends[:length])
    return found, walk.restored(at), walk.restored(walk.good)
