"""Records in JSON that differ from TiCDC's in their bytes alone: the same in TiCDC's bytes.

In: the values of records, and the members that their format looks at. Out: which of them can be
written again so that they mean the same in the bytes of today's TiCDC, and these texts, for what
reads such texts (`decode_regular` of a format). The result depends on the records alone.

That is for another order, blanks, and new members of a later version. What a record may not have
for that, and why the new text means the same, is said in `rewriting_loops`.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ticdc_assets.wire.byte_columns import Ints, writing
from ticdc_assets.wire.column_rows import Part, parts_of
from ticdc_assets.wire.rows import RegularRows, takeable

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


_NO_MEMBERS: Final = Members(regular=(), others=())


def with_rewritten(
    batch: pa.RecordBatch,
    regular: RegularRows | None,
    members: Members,
    decode_regular: Callable[[pa.RecordBatch], RegularRows | None],
) -> RegularRows | None:
    """Return the regular rows of a batch, and those of records that are regular when written again.

    Args:
        batch: records with the column value.
        regular: the rows of those that are regular as they are.
        members: the members of a message.
        decode_regular: reads the regular ones of a batch.
    """
    rest = np.ones(batch.num_rows, np.bool_)
    if regular is not None:
        rest[regular.sources] = False
    numbers, column = np.flatnonzero(rest), batch.column("value")
    if len(numbers) < batch.num_rows:
        column = takeable(column).take(pa.array(numbers))
    sources: list[Ints] = []
    texts: list[pa.Array[Any]] = []
    for first, part in parts_of(column):
        written, values = _rewritten(part, members)
        sources.append(numbers[first + written])
        texts.append(values)
    if not any(map(len, sources)):
        return regular
    again = pa.RecordBatch.from_arrays([pa.concat_arrays(texts)], names=["value"])
    found = decode_regular(again)
    if found is None:
        return regular
    found = RegularRows(sources=np.concatenate(sources)[found.sources], columns=found.columns)
    return found if regular is None else regular.joined(found)


def _rewritten(part: Part, members: Members) -> "tuple[Ints, pa.Array[Any]]":
    """Return which texts of a part can be written again, and these."""
    from ticdc_assets.wire import rewriting_loops

    inner, inner_members = -1, _NO_MEMBERS
    if members.inside is not None:
        name, inner_members = members.inside
        inner = members.regular.index(name)
    sizes = part.ends - part.starts
    scratch, written = writing(3 * int(sizes.max())), writing(int(sizes.sum()))
    numbers, ends = np.empty(len(sizes), np.int64), np.zeros(len(sizes) + 1, np.int64)
    count = rewriting_loops.rewritten(
        part.buffer.octets,
        part.buffer.words,
        part.starts,
        part.ends,
        _names(members),
        inner,
        _names(inner_members),
        rewriting_loops.Sheet(scratch.octets, scratch.words),
        rewriting_loops.Sheet(written.octets, written.words),
        numbers,
        ends[1:],
    )
    offsets = pa.py_buffer(ends[: count + 1].astype(np.int32))
    texts = pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(written.octets)])
    return numbers[:count], texts


@cache
def _names(members: Members) -> "Names":
    """Return the names of members, as the loops want them."""
    from ticdc_assets.wire import json_loops, rewriting_loops

    texts = [f'"{name}"'.encode() for name in (*members.regular, *members.others)]
    return rewriting_loops.Names(json_loops.expected(*texts or [b""]), len(members.regular))
