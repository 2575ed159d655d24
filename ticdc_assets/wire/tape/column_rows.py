"""Values of records for the loops, and columns of the rows that batch readers read.

In: the values of a batch of records; and what was read of them, an array each. Out: the bytes of
the values; and the columns of rows that all batch readers write in the same way.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.model.events import Op
from ticdc_assets.wire.rows import PIECE_BYTES, ROW, WATERMARK, takeable
from ticdc_assets.wire.simple.message import CHECKSUM
from ticdc_assets.wire.tape.json_loops import Flags, Ints, Octets, Texts
from ticdc_assets.wire.tape.reading import workspace

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


def values_of(batch: pa.RecordBatch, *, room: int = 0) -> Texts:
    """Return the values of records in `workspace("value")`, one that is null or too long as empty.

    Args:
        batch: records with a column `value`.
        room: for how many bytes there is room after the values, for each byte of them.
    """
    column = takeable(batch.column("value"))
    is_long = pc.greater(pc.binary_length(column), PIECE_BYTES)
    if pc.any(is_long).as_py():
        column = pc.if_else(is_long, pa.scalar(None, column.type), column)
    return texts_of(column, partial(workspace("value").padded, room=room))


def texts_of(column: "pa.Array[Any]", to_octets: Callable[[Octets], Octets]) -> Texts:
    """Return the values of a binary column, null as empty."""
    column = column.cast(pa.large_binary())
    count = len(column)
    _, raw_offsets, content = column.buffers()
    if not count or raw_offsets is None:
        nothing = np.empty(0, np.int64)
        return Texts(to_octets(np.empty(0, np.uint8)), nothing, nothing)
    offsets = np.frombuffer(raw_offsets, np.int64, count=column.offset + count + 1)[column.offset :]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    ends = np.where(valid, offsets[1:], offsets[:-1])
    low, high = int(offsets[0]), int(offsets[-1])
    octets = np.frombuffer(content or b"", np.uint8)[low:high]
    return Texts(to_octets(octets), offsets[:-1] - low, ends - low)
