"""Compiled loops over values of exports: their bytes without escapes, and their JSON text.

In: bytes of rows, and the places and forms of their fields. Out: the bytes of values, and values as
they are in images (`wire.rows`). Fields are found by `csv_loops` and `sql_loops`.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ticdc_assets.base.compiled import compiled
from ticdc_assets.model.values.vector_loops import PADDING
from ticdc_assets.model.values.word_loops import copied
from ticdc_assets.wire.tape.json_loops import bytes_in_text

_BACKSLASH: Final = ord("\\")
_NEWLINE: Final = ord("\n")
_RETURN: Final = ord("\r")

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

NULL: Final = 0
"""Form of a field: NULL."""
VERBATIM: Final = 1
"""The bytes of the field are its value."""
ESCAPED: Final = 2
"""Backslashes in it escape."""
DOUBLED: Final = 3
"""Quotes in it are doubled."""
HEXADECIMAL: Final = 4
"""The field is the digits of a hexadecimal SQL literal."""

GOOD: Final = 0
TOO_FEW: Final = 1
TOO_MANY: Final = 2
OPEN_TEXT: Final = 3
BEHIND_TEXT: Final = 4
NO_VALUE: Final = 5


class Fields(NamedTuple):
    """The fields of rows.

    Attributes:
        begins: for each column and row where the field begins.
        ends: where it ends.
        forms: how it is written.
    """

    begins: Places
    ends: Places
    forms: Bytes


class Rows(NamedTuple):
    """Rows of a file.

    Attributes:
        begins: where each begins.
        ends: where it ends.
        lines: the number of its first line.
    """

    begins: Places
    ends: Places
    lines: Places


@compiled
def is_at(data: Bytes, at: int, end: int, text: Bytes) -> bool:
    """Return whether a text, which is not empty, is at a place."""
    size = len(text)
    if size == 0 or at + size > end:
        return False
    for number in range(size):  # noqa: SIM110 - generators do not compile
        if data[at + number] != text[number]:
            return False
    return True


@compiled
def values(
    data: Bytes,
    begins: Places,
    ends: Places,
    forms: Bytes,
    quote: Bytes,
    content: Bytes,
    offsets: Places,
) -> None:
    """Write the values of one column without the escapes of its file.

    Args:
        data: the bytes.
        begins: where each field begins.
        ends: where it ends.
        forms: how it is written.
        quote: the quotes that are doubled.
        content: receives the values; as long as all fields are.
        offsets: receives where each value begins, and where the last one ends.
    """
    to = 0
    for row in range(len(begins)):
        offsets[row] = to
        if forms[row] == NULL:
            continue
        to = _value(data, begins[row], ends[row], forms[row], quote, content, to)
    offsets[len(begins)] = to


@compiled
def _value(data: Bytes, at: int, end: int, form: int, quote: Bytes, content: Bytes, to: int) -> int:
    while at < end:
        byte = data[at]
        if form == ESCAPED and byte == _BACKSLASH and at + 1 < end:
            at += 1
            byte = _unescaped(data[at])
        elif form in (ESCAPED, DOUBLED) and is_at(data, at, end, quote):
            # The first of two quotes.
            at += len(quote) if is_at(data, at + len(quote), end, quote) else 0
        content[to] = byte
        to += 1
        at += 1
    return to


@compiled
def _unescaped(byte: int) -> int:
    if byte == ord("0"):
        return 0
    if byte == ord("n"):
        return _NEWLINE
    if byte == ord("r"):
        return _RETURN
    if byte == ord("t"):
        return 9
    if byte == ord("b"):
        return 8
    if byte == ord("Z"):
        return 26
    return byte


@compiled
def quoted(
    data: Bytes,
    offsets: Places,
    is_null: npt.NDArray[np.bool_],
    before: Bytes,
    after: Bytes,
    content: Bytes,
    ends: Places,
) -> None:
    """Write values of one column as they are in the JSON text of images.

    All arrays of bytes end with `vector_loops.PADDING` more.

    Args:
        data: the values, without escapes.
        offsets: where each begins, and where the last one ends.
        is_null: which are NULL.
        before: the text before values that are not NULL.
        after: the text after them.
        content: receives the text; it has room for all of it.
        ends: receives where the text of each value begins, and where the last one ends.
    """
    to = 0
    for row in range(len(is_null)):
        ends[row] = to
        if is_null[row]:
            content[to], content[to + 1] = ord("n"), ord("u")
            content[to + 2], content[to + 3] = ord("l"), ord("l")
            to += 4
            continue
        first = offsets[row]
        to = copied(before, 0, len(before) - PADDING, content, to)
        to = bytes_in_text(data[first:], offsets[row + 1] - first, content, to)
        to = copied(after, 0, len(after) - PADDING, content, to)
    ends[len(is_null)] = to
