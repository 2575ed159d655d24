"""Exact rows of a batch as columns, built from the rows of its parts.

In: a batch of records, and a function that reads the exact records among some adjacent ones: their
numbers, one a row, and the columns of the rows. Out: the exact rows of the batch.

A batch is read in parts of at most `PART_BYTES`, so that the memory besides the bytes stays
bounded; a longer message is never exact. The parts do not show in the result.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.model.events import Op
from ticdc_assets.wire.json_loops import Flags, Ints, Octets, Texts
from ticdc_assets.wire.json_tape import workspace
from ticdc_assets.wire.rows import PART_BYTES, ROW, WATERMARK, SourcedRows
from ticdc_assets.wire.simple_message import CHECKSUM

PartRows: TypeAlias = "tuple[Ints, Mapping[str, pa.Array[Any]]]"
"""For each exact row of a part the number of its record there, in order; and their columns."""


def exact_rows(
    batch: pa.RecordBatch, read: Callable[[Texts, pa.RecordBatch], PartRows], *, room: int = 0
) -> SourcedRows | None:
    """Return the exact rows of the records of `batch`, None if there are none.

    Args:
        batch: records with a column `value`.
        read: reads the exact records of a part, by their values (in `workspace("value")`) and
            records.
        room: for how many bytes there is room after the values, for each byte of them.
    """
    sources: list[Ints] = []
    parts: list[Mapping[str, pa.Array[Any]]] = []
    to_octets = partial(workspace("value").padded, room=room)
    for first, part in parts_of(batch.column("value"), to_octets):
        numbers, columns = read(part, batch.slice(first, len(part.starts)))
        if len(numbers):
            sources.append(first + numbers)
            parts.append(columns)
    if not parts:
        return None
    return SourcedRows.of(
        batch,
        np.concatenate(sources),
        parts[0]
        if len(parts) == 1
        else {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]},
    )


_KINDS: Final = pa.array([WATERMARK, ROW])
_OPS: Final = pa.array([Op.INSERT.value, Op.UPDATE.value, Op.DELETE.value])


def row_columns(
    rows: Flags,
    *,
    op: Ints,
    index: "pa.Array[Any] | None" = None,
    handle_key_only: Flags,
    es_only: Flags | None = None,
    **columns: "pa.Array[Any]",
) -> "Mapping[str, pa.Array[Any]]":
    """Return the columns of row changes and watermarks.

    Args:
        rows: which are row changes; the others are watermarks.
        op: what each did: 0 for an insert, 1 for an update, 2 for a delete.
        index: the number of each in its record; all 0 if None.
        handle_key_only: whether its columns were cut.
        es_only: whether its commit ts has no logical part; all have one if None.
        columns: the other columns, null where a watermark has none.
    """
    marks = ~rows
    no = np.zeros(len(rows), np.bool_)
    return {
        "index": pa.array(np.zeros(len(rows), np.int32)) if index is None else index,
        "kind": _KINDS.take(pa.array(rows.view(np.int8))),
        "op": _OPS.take(pa.array(op, mask=marks)),
        "handle_key_only": pa.array(handle_key_only, mask=marks),
        "es_only": pa.array(no if es_only is None else es_only, mask=marks),
        **columns,
    }


def checksum_texts(there: Flags, members: Sequence[Ints | Flags]) -> "pa.Array[Any]":
    """Return checksums as texts, as `rows` writes them, by their `CHECKSUM` members.

    Null where there is none.
    """
    if not there.any():
        return pa.nulls(len(there), pa.string())
    parts: list[Any] = []
    for field, values in zip(CHECKSUM, members, strict=True):
        parts += f'{"," if parts else "{"}"{field.name}":', pa.array(values).cast(pa.string())
    texts = pc.binary_join_element_wise(*parts, "}", "")
    return pc.if_else(pa.array(there), texts, pa.scalar(None, pa.string()))


def parts_of(
    column: "pa.Array[Any]", to_octets: Callable[[Octets], Octets]
) -> Iterator[tuple[int, Texts]]:
    """Yield the values of a binary column in parts, each with the number of its first record.

    Where a value is null or too long, there is an empty text.
    """
    octets, offsets, ends = _places(column)
    count, first = len(ends), 0
    while first < count:
        most = int(offsets[first]) + PART_BYTES
        last = int(np.searchsorted(offsets, most, side="right")) - 1
        last = min(max(last, first + 1), count)
        low, high = int(offsets[first]), int(offsets[last])
        starts, stops = offsets[first:last] - low, ends[first:last] - low
        if high - low > PART_BYTES:
            high, stops = low, starts
        yield first, Texts(to_octets(octets[low:high]), starts, stops)
        first = last


def part_of(column: "pa.Array[Any]", to_octets: Callable[[Octets], Octets]) -> Texts:
    """Return all values of a binary column as one part, however long they are."""
    octets, offsets, ends = _places(column)
    low, high = int(offsets[0]), int(offsets[-1])
    return Texts(to_octets(octets[low:high]), offsets[:-1] - low, ends - low)


def _places(column: "pa.Array[Any]") -> tuple[Octets, Ints, Ints]:
    """Return the bytes of a binary column, where its values start, and their ends if not null.

    The end of the last value follows its start.
    """
    column = column.cast(pa.large_binary())
    count = len(column)
    _, raw_offsets, content = column.buffers()
    if not count or raw_offsets is None:
        return np.empty(0, np.uint8), np.zeros(1, np.int64), np.empty(0, np.int64)
    offsets = np.frombuffer(raw_offsets, np.int64, count=column.offset + count + 1)[column.offset :]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    ends = np.where(valid, offsets[1:], offsets[:-1])
    return np.frombuffer(content or b"", np.uint8), offsets, ends
