"""Records in JSON that differ from TiCDC's in their bytes alone: the same in TiCDC's bytes.

In: records, and the members that their format looks at. Out: which of them can be written again so
that they mean the same in the bytes of today's TiCDC, and these records, for what reads such
(`decode_regular` of a format). The result depends on the records alone.

That is for another order, blanks, and new members of a later version. What a record may not have
for that, and why the new text means the same, is said in `rewriting_loops`. In Open Protocol, whose
columns are objects too, `open_rewriting_loops` goes through texts with the same loops.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from ticdc_assets.wire.byte_columns import Ints, Writing, writing
from ticdc_assets.wire.column_rows import Part, part_of, parts_of
from ticdc_assets.wire.rows import RegularRows, picked

if TYPE_CHECKING:
    from ticdc_assets.wire.rewriting_loops import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The members that a format looks at in an object; any other one is skipped.

    Attributes:
        regular: those that its regular messages may have, in TiCDC's order.
        others: those that say that a message is none of these.
        inside: the members of one of the regular ones that is an object, by its name.
    """

    regular: tuple[str, ...]
    others: tuple[str, ...]
    inside: "tuple[str, Members] | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenMembers:
    """The members that Open Protocol looks at.

    Attributes:
        key: those of a key.
        value: those of a value; each is an object with a member for each column.
        column: those of a column.
    """

    key: Members
    value: Members
    column: Members


Rewriting: TypeAlias = Callable[[pa.RecordBatch], "tuple[Ints, pa.RecordBatch]"]
"""Writes records again: gives the numbers of those for which it can, and these."""

_NO_MEMBERS: Final = Members(regular=(), others=())


def with_rewritten(
    batch: pa.RecordBatch,
    regular: RegularRows | None,
    rewriting: Rewriting,
    decode_regular: Callable[[pa.RecordBatch], RegularRows | None],
    *,
    few: int = 0,
) -> RegularRows | None:
    """Return the regular rows of a batch, and those of records that are regular when written again.

    Args:
        batch: records with the columns key and value.
        regular: the rows of those that are regular as they are.
        rewriting: writes those of the format again.
        decode_regular: reads the regular ones of a batch.
        few: so many others, or fewer, are not written again.
    """
    rest = np.ones(batch.num_rows, np.bool_)
    if regular is not None:
        rest[regular.sources] = False
    numbers = np.flatnonzero(rest)
    if len(numbers) <= few:
        return regular
    if len(numbers) < batch.num_rows:
        batch = picked(batch, numbers, ("key", "value"))
    written, again = rewriting(batch)
    found = decode_regular(again) if len(written) else None
    if found is None:
        return regular
    found = RegularRows(sources=numbers[written][found.sources], columns=found.columns)
    return found if regular is None else regular.joined(found)


def rewritten_values(members: Members, batch: pa.RecordBatch) -> "tuple[Ints, pa.RecordBatch]":
    """Return which records can be written again whose value is one text, and their values.

    Args:
        members: the members of a value.
        batch: records with the column value.
    """
    numbers: list[Ints] = []
    values: list[pa.Array[Any]] = []
    for first, part in parts_of(batch.column("value")):
        found, texts = _rewritten(part, members)
        numbers.append(first + found)
        values.append(texts)
    return _joined(numbers, value=values)


def rewritten_open(members: OpenMembers, batch: pa.RecordBatch) -> "tuple[Ints, pa.RecordBatch]":
    """Return which records of Open Protocol can be written again, and these.

    Args:
        members: the members of keys, values and columns.
        batch: records with the columns key and value.
    """
    numbers: list[Ints] = []
    keys: list[pa.Array[Any]] = []
    values: list[pa.Array[Any]] = []
    for first, part in parts_of(batch.column("value")):
        own = part_of(batch.column("key").slice(first, len(part.starts)))
        found, key_texts, texts = _rewritten_open(own, part, members)
        numbers.append(first + found)
        keys.append(key_texts)
        values.append(texts)
    return _joined(numbers, key=keys, value=values)


def _joined(
    numbers: "Sequence[Ints]", **columns: "list[pa.Array[Any]]"
) -> "tuple[Ints, pa.RecordBatch]":
    nothing = pa.array([], pa.binary())
    arrays = [pa.concat_arrays([nothing, *arrays]) for arrays in columns.values()]
    return (
        np.concatenate([np.empty(0, np.int64), *numbers]),
        pa.RecordBatch.from_arrays(arrays, names=list(columns)),
    )


def _rewritten(part: Part, members: Members) -> "tuple[Ints, pa.Array[Any]]":
    """Return which texts of a part can be written again, and these."""
    from ticdc_assets.wire import json_loops, rewriting_loops

    inner, inner_members = -1, _NO_MEMBERS
    if members.inside is not None:
        name, inner_members = members.inside
        inner = members.regular.index(name)
    sizes = part.ends - part.starts
    scratch, written = writing(3 * int(sizes.max())), writing(int(sizes.sum()))
    numbers, ends = np.empty(len(sizes), np.int64), np.empty(len(sizes), np.int64)
    count = rewriting_loops.rewritten(
        part.buffer.octets,
        part.buffer.words,
        part.starts,
        part.ends,
        _names(members),
        inner,
        _names(inner_members),
        json_loops.Sheet(scratch.octets, scratch.words),
        json_loops.Sheet(written.octets, written.words),
        numbers,
        ends,
    )
    return numbers[:count], _texts(written, ends[:count])


def _rewritten_open(
    keys: Part, part: Part, members: OpenMembers
) -> "tuple[Ints, pa.Array[Any], pa.Array[Any]]":
    """Return which records of a part can be written again, their keys and their values."""
    from ticdc_assets.wire import json_loops, open_loops, open_rewriting_loops

    key_sizes, sizes = keys.ends - keys.starts, part.ends - part.starts
    longest = max(int(key_sizes.max()), int(sizes.max()))
    scratch = writing(4 * longest + open_rewriting_loops.GAP)
    key_texts, texts = writing(int(key_sizes.sum())), writing(int(sizes.sum()))
    again = open_rewriting_loops.Again(
        json_loops.Sheet(key_texts.octets, key_texts.words),
        json_loops.Sheet(texts.octets, texts.words),
        *(np.empty(len(sizes), np.int64) for _ in range(3)),
    )
    count = open_rewriting_loops.open_rewritten(
        open_loops.Texts(keys.buffer.octets, keys.buffer.words, keys.starts, keys.ends),
        open_loops.Texts(part.buffer.octets, part.buffer.words, part.starts, part.ends),
        open_rewriting_loops.OpenNames(
            _names(members.key), _names(members.value), _names(members.column)
        ),
        json_loops.Sheet(scratch.octets, scratch.words),
        again,
    )
    return (
        again.numbers[:count],
        _texts(key_texts, again.key_ends[:count]),
        _texts(texts, again.value_ends[:count]),
    )


def _texts(written: Writing, ends: Ints) -> "pa.Array[Any]":
    """Return texts that were written one behind the other."""
    offsets = np.concatenate([np.zeros(1, np.int32), ends.astype(np.int32)])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(written.octets)]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


@cache
def _names(members: Members) -> "Names":
    """Return the names of members, as the loops want them."""
    from ticdc_assets.wire import json_loops, rewriting_loops

    texts = [f'"{name}"'.encode() for name in (*members.regular, *members.others)]
    return rewriting_loops.Names(json_loops.expected(*texts or [b""]), len(members.regular))
