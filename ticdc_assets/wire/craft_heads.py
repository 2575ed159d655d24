"""What rows of a table repeat in Craft: term dictionaries, heads of column groups, shapes.

In: the bytes of column groups and dictionaries, of many messages at once. Out: each different
dictionary, head and shape, read once, and its number for each column group and row. A head is
complete in itself: it is accepted if it can be read up to its last byte; others are marked and left
to the reference. Reading keeps no state.
"""

# numpy and pyarrow hide what comes from them: it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ticdc_assets.base.errors import WireError
from ticdc_assets.wire import craft
from ticdc_assets.wire.byte_columns import Buffer, Flags, Ints, distinct
from ticdc_assets.wire.column_rows import words
from ticdc_assets.wire.craft_bytes import Reader
from ticdc_assets.wire.craft_layout import ColumnGroup, GroupKind, Head, read_head, read_terms
from ticdc_assets.wire.craft_values import form_of
from ticdc_assets.wire.rows import shape_text
from ticdc_assets.wire.value_forms import Form

_MOST_ALIKE: Final = 8
"""Most heads of different lengths that are tried among groups that look alike."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of all dictionaries.

    Attributes:
        texts: the distinct terms.
        numbers: the numbers of the terms of each dictionary, one after the other.
        firsts: the first of each dictionary.
        counts: how many it has; 0 also if it cannot be read.
    """

    texts: list[str]
    numbers: Ints
    firsts: Ints
    counts: Ints


def forms_of(head: Head) -> tuple[Form | None, ...]:
    """Return the forms of the values of a column group, None for those of unknown types."""
    return tuple(map(form_of, head.types, head.flags))


def _group(head: Head, terms: Terms, dictionary: int) -> ColumnGroup:
    """Return the column group with its names from the terms of `dictionary`."""
    first = int(terms.firsts[dictionary])
    return ColumnGroup(
        kind=head.kind,
        names=tuple(terms.texts[int(terms.numbers[first + name])] for name in head.names),
        types=head.types,
        flags=head.flags,
        values=(),
    )


def heads_of(
    buffer: Buffer, dictionaries: Ints, starts: Ints, ends: Ints
) -> tuple[Ints, Ints, list[Head]]:
    """Return the head of each column group, -1 if it was not read, its length, and all heads."""
    octets = buffer.octets
    # Groups with one dictionary and equal column counts nearly always have heads of one length.
    first = octets[starts].astype(np.int64) << 8 | octets[starts + 1]
    keys = dictionaries << 16 | first
    seen: dict[int, list[bytes]] = {}
    heads: list[Head] = []
    found, sizes = np.full(len(starts), -1), np.zeros(len(starts), np.int64)
    pending = np.arange(len(starts))
    for _ in range(_MOST_ALIKE):
        _, samples, alike = np.unique(keys[pending], return_index=True, return_inverse=True)
        lengths = [
            _head_length(octets[begin:end].tobytes(), seen)
            for begin, end in zip(
                starts[pending[samples]].tolist(), ends[pending[samples]].tolist(), strict=True
            )
        ]
        begins = starts[pending]
        sizes[pending] = np.minimum(np.array(lengths, np.int64)[alike], ends[pending] - begins)
        codes, raws = distinct(buffer, begins, begins + sizes[pending])
        numbers = np.full(len(raws), -1)
        for number, raw in enumerate(raws):
            reader = Reader(raw, 0, len(raw))
            head = _read_head(reader) if raw else None
            if head is not None and reader.position == len(raw):
                numbers[number] = len(heads)
                heads.append(head)
        found[pending] = numbers[codes]
        # A sample may be damaged, or of another length than those like it.
        unread = found[pending] < 0
        unread[samples] = False
        pending = pending[unread]
        if not len(pending):
            break
    return found, sizes, heads


def _head_length(group: bytes, seen: dict[int, list[bytes]]) -> int:
    """Return the length of the head of a column group, 0 if it cannot be read.

    Args:
        group: the column group, two bytes at least.
        seen: heads by their first two bytes; a new one is added.
    """
    known = seen.setdefault(int.from_bytes(group[:2]), [])
    for head in known:
        if group.startswith(head):
            return len(head)
    reader = Reader(group, 0, len(group))
    if _read_head(reader) is None:
        return 0
    if len(known) < _MOST_ALIKE:
        known.append(group[: reader.position])
    return reader.position


def _read_head(reader: Reader) -> Head | None:
    """Return the head at `reader`, None if the reference must read it."""
    try:
        head = read_head(reader)
    except WireError:
        return None
    return None if min(head.names) < 0 or None in forms_of(head) else head


def terms_of(raws: Sequence[bytes]) -> Terms:
    """Return the terms of dictionaries; an unreadable dictionary has none."""
    known: dict[str, int] = {}
    numbers: list[int] = []
    counts: list[int] = []
    for raw in raws:
        try:
            terms = read_terms(Reader(raw, 0, len(raw)))
        except WireError:
            terms = ()
        counts.append(len(terms))
        numbers.extend(known.setdefault(term, len(known)) for term in terms)
    sizes = np.array(counts, np.int64)
    # One more, so that also the first of no terms can be looked up.
    return Terms(list(known), np.array([*numbers, 0]), np.cumsum(sizes) - sizes, sizes)


def shapes_of(
    dictionaries: Ints, first: Ints, second: Ints, seen: tuple[Terms, Sequence[Head], Flags]
) -> "pa.Array[Any]":
    """Return the shapes of rows with these heads; -1 means that there is no second head.

    Args:
        dictionaries: the dictionary of each row.
        first: its first head.
        second: its second head.
        seen: the terms and heads, and which of the rows are good.

    Returns:
        Null for rows that are not good or have columns that no table has.
    """
    terms, heads, good = seen
    count = len(heads) + 1
    keys = (dictionaries * count + first + 1) * count + second + 1
    distinct_keys, codes = np.unique(keys[good], return_inverse=True)
    texts: dict[str, int] = {}
    known: dict[tuple[object, ...], int] = {}
    numbers: list[int] = []
    for key in distinct_keys.tolist():
        key, other = divmod(key, count)
        dictionary, number = divmod(key, count)
        group = _group(heads[number - 1], terms, dictionary)
        before = _group(heads[other - 1], terms, dictionary) if other else None
        if before is not None and before.names == group.names:
            before = None
        alike = (
            group.kind,
            group.names,
            group.types,
            group.flags,
            before and (before.names, before.types, before.flags),
        )
        found = known.get(alike)
        if found is None:
            partial = group.kind is GroupKind.BEFORE
            try:
                text = shape_text(craft.shape_of(group, before, partial=partial))
            except WireError:
                found = known[alike] = -1
            else:
                found = known[alike] = texts.setdefault(text, len(texts))
        numbers.append(found)
    result = np.full(len(keys), -1)
    result[good] = np.array(numbers, np.int64)[codes]
    return words(result, list(texts))
