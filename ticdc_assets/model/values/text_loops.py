"""Compiled loops over columns of bytes and of JSON.

In: base64, or documents one after the other, see `column_loops`. Out: copies of what they say, and
which of them are exact.
"""

# numba hides the types of what it compiles.
# pyright: reportArgumentType=false

from typing import Final

import numpy as np

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.model.values.column_loops import (
    MINUS,
    NINE,
    NULL,
    TEXT,
    ZERO,
    Bytes,
    Column,
    Flags,
    Places,
)
from ticdc_assets.model.values.word_loops import copied, escapes_end, number_end, stop

_TRUE, _FALSE = np.frombuffer(b"true", np.uint8), np.frombuffer(b"false", np.uint8)
NULL_WORD: Final = np.frombuffer(b"null", np.uint8)
BASE64: Final = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_SIX_BITS: Final = np.full(256, 64, np.uint8)
_SIX_BITS[BASE64] = np.arange(64)
_PAD, _QUOTE = 61, 34
JSON_DEPTH: Final = 60
"""Nested arrays and objects that `json_texts` reads: one bit of a number each."""


@compiled
def from_base64(data: Bytes, at: int, end: int, out: Bytes, place: int) -> int:
    """Write the bytes of standard base64, and return the place after them, or -1.

    The base64 has all its padding, and no unused bit set. Three bytes for each four of text must
    fit.
    """
    if (end - at) & 3:
        return -1
    while at < end:
        first, second = np.int64(_SIX_BITS[data[at]]), np.int64(_SIX_BITS[data[at + 1]])
        third, fourth = np.int64(_SIX_BITS[data[at + 2]]), np.int64(_SIX_BITS[data[at + 3]])
        at += 4
        size = 3
        if at == end and data[at - 1] == _PAD:
            size, fourth = 2, 0
            if data[at - 2] == _PAD:
                size, third = 1, 0
        if (first | second | third | fourth) & 64:
            return -1
        if (size == 2 and third & 3) or (size == 1 and second & 15):
            return -1
        out[place] = first << 2 | second >> 4
        out[place + 1] = (second << 4 | third >> 2) & 0xFF
        out[place + 2] = (third << 6 | fourth) & 0xFF
        place += size
    return place


@compiled
def base64(column: Column, offsets: Places, out: Bytes, exact: Flags) -> None:
    """Decode base64 as `from_base64` does.

    `offsets` are where in `out` each value begins, and the end of the last; three bytes for each
    four of text must fit.
    """
    data, begins, ends, forms = column
    filled = np.int64(0)
    for row in range(len(begins)):
        offsets[row] = filled
        exact[row] = forms[row] <= NULL
        if forms[row] == TEXT:
            behind = from_base64(data, begins[row], ends[row], out, filled)
            if behind >= 0:
                exact[row] = True
                filled = behind
    offsets[len(begins)] = filled


@inlined
def _string_end(data: Bytes, place: int, end: int) -> int:
    """Return the place after the JSON string that begins here, -1 if there is none."""
    closing = stop(data, place + 1, end)
    if closing < end and data[closing] != _QUOTE:
        closing = escapes_end(data, closing, end)
    return closing + 1 if 0 <= closing < end else -1


@compiled
def stands(data: Bytes, place: int, end: int, text: Bytes) -> bool:
    """Return whether `text` is at a place, and ends before or at `end`."""
    if end - place < len(text):
        return False
    same = True
    for number in range(len(text)):
        same = same and data[place + number] == text[number]
    return same


@compiled
def word_end(data: Bytes, place: int, end: int) -> int:
    """Return the place after `true`, `false` or `null`, -1 if none begins here."""
    if stands(data, place, end, _TRUE) or stands(data, place, end, NULL_WORD):
        return place + 4
    return place + 5 if stands(data, place, end, _FALSE) else -1


@compiled
def json_texts(
    data: Bytes,
    offsets: Places,
    forms: Bytes,
    out_offsets: Places,
    out: Bytes,
    exact: Flags,
) -> None:
    """Copy JSON documents no deeper than `JSON_DEPTH`, without blanks between their tokens.

    `offsets` and `out_offsets` are where in `data` and `out` each begins, and the end of the last.
    Absent and NULL values are not read. The copies are no longer than the documents.
    """
    filled = np.int64(0)
    for row in range(len(offsets) - 1):
        out_offsets[row] = filled
        exact[row] = forms[row] <= NULL
        if forms[row] <= NULL:
            continue
        place, end = offsets[row], offsets[row + 1]
        start = filled
        # Bit by bit, the innermost lowest, whether it is an object (1) or an array (0).
        depth, stack = 0, 0
        # What may come next: 0 a value, 1 what follows a value, 2 a value or `]`, 3 a name or `}`,
        # 4 a name, 5 a colon.
        state = 0
        good = True
        while place < end:
            byte = data[place]
            if byte == 32 or byte == 10 or byte == 13 or byte == 9:
                place += 1
                continue
            begin = place
            if state == 1:
                place += 1
                if depth == 0:
                    good = False
                elif byte == 44:
                    state = 4 if stack & 1 else 0
                elif (byte == 125 and stack & 1) or (byte == 93 and not stack & 1):
                    depth -= 1
                    stack >>= 1
                else:
                    good = False
            elif state == 5:
                place += 1
                good = byte == 58
                state = 0
            elif (state == 3 and byte == 125) or (state == 2 and byte == 93):
                place += 1
                depth -= 1
                stack >>= 1
                state = 1
            elif state >= 3:
                place = _string_end(data, place, end) if byte == 34 else -1
                state = 5
            elif byte == 123 or byte == 91:
                place += 1
                depth += 1
                stack = (stack << 1) | (1 if byte == 123 else 0)
                good = depth <= JSON_DEPTH
                state = 3 if byte == 123 else 2
            else:
                state = 1
                if byte == 34:
                    place = _string_end(data, place, end)
                elif byte == MINUS or (byte >= ZERO and byte <= NINE):
                    place, _ = number_end(data, place, end)
                else:
                    place = word_end(data, place, end)
            if not good or place < 0:
                good = False
                break
            filled = copied(data, begin, place, out, filled)
        if good and state == 1 and depth == 0:
            exact[row] = True
        else:
            filled = start
    out_offsets[len(offsets) - 1] = filled
