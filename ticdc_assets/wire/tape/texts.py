"""Many texts one after the other, as Arrow arrays.

In: bytes and places in them, or numbers. Out: Arrow arrays of their texts.

Numbers are written by Arrow; its FLOAT and DOUBLE have the same shortest digits as canonical text,
except powers of two and exponents, which `values.floats` writes.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.model.values.floats import double_text, float_text
from ticdc_assets.model.values.word_loops import gathered
from ticdc_assets.wire.tape.json_loops import Flags, Ints, Octets, Texts

PADDING: Final = 256
"""Zeros after the bytes: more than is read in one go from any place."""


def room_for(size: int) -> Octets:
    """Return room for texts of together `size` bytes, and `PADDING`."""
    return np.frombuffer(pa.allocate_buffer(size + PADDING), np.uint8)


def texts_in(octets: Octets, ends: Ints, present: Flags | None = None) -> "pa.Array[Any]":
    """Return texts in UTF-8 that were written one after the other, by where each ends.

    Those that are not `present` are null, and empty.
    """
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    valid = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.StringArray.from_buffers(
        len(ends), pa.py_buffer(offsets), pa.py_buffer(octets), valid
    )


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


def gathered_texts(octets: Octets, starts: Ints, ends: Ints) -> "pa.Array[Any]":
    """Return the bytes of each range of padded bytes as text, which has to be UTF-8."""
    ends_written = np.cumsum(ends - starts)
    written = room_for(int(ends_written[-1]) if len(starts) else 0)
    gathered(octets, starts, ends, written)
    return texts_in(written, ends_written)


def object_texts(there: Flags, members: "Mapping[str, pa.Array[Any]]") -> "pa.Array[Any]":
    """Return objects of JSON with these members, numbers and booleans; null where there is none."""
    if not there.any():
        return pa.nulls(len(there), pa.string())
    parts: list[Any] = []
    for name, values in members.items():
        parts += f'{"," if parts else "{"}"{name}":', values.cast(pa.string())
    texts = pc.binary_join_element_wise(*parts, "}", "")
    return pc.if_else(pa.array(there), texts, pa.scalar(None, pa.string()))


def float_texts(numbers: np.ndarray[Any, np.dtype[np.float32]]) -> "pa.Array[Any]":
    """Return the canonical texts of finite FLOATs."""
    return _floating_texts(numbers, numbers.view(np.uint32) & 0x7F_FFFF == 0, float_text)


def double_texts(numbers: np.ndarray[Any, np.dtype[np.float64]]) -> "pa.Array[Any]":
    """Return the canonical texts of finite DOUBLEs."""
    return _floating_texts(numbers, numbers.view(np.uint64) << np.uint64(12) == 0, double_text)


def _floating_texts(
    numbers: np.ndarray[Any, Any], powers: Flags, text: Callable[[float], str]
) -> "pa.Array[Any]":
    texts = pa.array(numbers).cast(pa.string())
    # Around a power of two the numbers below are closer than those above.
    others = (powers & (numbers != 0)) | pc.match_substring(texts, "e").to_numpy(
        zero_copy_only=False
    )
    if others.any():
        replaced = [text(number) for number in numbers[others].tolist()]
        texts = pc.replace_with_mask(texts, pa.array(others), pa.array(replaced, pa.string()))
    return texts.cast(pa.binary())
