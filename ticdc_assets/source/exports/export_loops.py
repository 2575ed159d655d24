"""Compiled loops over the files of exports: rows, their fields, and values without escapes.

In: bytes of a CSV or SQL file, and how they are written. Out: places of rows and fields, bytes of
values, and values as they are in images (`wire.rows`). Any bytes give places, or a number for the
fault of a row.
"""

# numba hides the types of what it compiles.
# pyright: reportArgumentType=false

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.model.values.vector_loops import PADDING
from ticdc_assets.model.values.word_loops import copied
from ticdc_assets.wire.tape.json_loops import bytes_in_text

_BACKSLASH: Final = ord("\\")
_NEWLINE: Final = ord("\n")
_RETURN: Final = ord("\r")
_TICK: Final = ord("'")
_QUOTE: Final = ord('"')
_GRAVE: Final = ord("`")
_HASH: Final = ord("#")
_DASH: Final = ord("-")
_SLASH: Final = ord("/")
_STAR: Final = ord("*")
_OPEN: Final = ord("(")
_CLOSE: Final = ord(")")
_COMMA: Final = ord(",")
_SEMICOLON: Final = ord(";")

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


class Style(NamedTuple):
    """How a file is written.

    Attributes:
        separator: between fields.
        quote: around text; empty for nothing.
        terminator: ends a row.
        null: the text of NULL.
        backslash: whether backslashes escape.
    """

    separator: Bytes
    quote: Bytes
    terminator: Bytes
    null: Bytes
    backslash: bool


@compiled
def _is_at(data: Bytes, at: int, end: int, text: Bytes) -> bool:
    """Return whether a text, which is not empty, is at a place."""
    size = len(text)
    if size == 0 or at + size > end:
        return False
    for number in range(size):  # noqa: SIM110 - generators do not compile
        if data[at + number] != text[number]:
            return False
    return True


@inlined
def _end_of_text(
    data: Bytes, at: int, end: int, quote: Bytes, backslash: bool, doubled: bool
) -> tuple[int, int]:
    """Return where a text ends whose content begins at a place, else -1; and its form."""
    form = VERBATIM
    while at < end:
        if backslash and data[at] == _BACKSLASH:
            form = ESCAPED
            at += 2
        elif _is_at(data, at, end, quote):
            if not doubled or not _is_at(data, at + len(quote), end, quote):
                return at, form
            form = ESCAPED if form == ESCAPED else DOUBLED
            at += 2 * len(quote)
        else:
            at += 1
    return -1, form


# CSV ----------------------------------------------------------------------------------------------


@compiled
def csv_rows(
    data: Bytes, is_last: bool, style: Style, line: int, rows: Rows
) -> tuple[int, int, int]:
    """Find rows in bytes that begin with one, and put them without terminators into `rows`.

    `is_last` says whether the file ends after the bytes, `line` is the number of their first line.
    Returns how many rows were found, where the rest begins, and the number of its line.
    """
    separator, quote, terminator, _, backslash = style
    begins, ends, lines = rows
    size, count = len(data), 0
    at, first, first_line = 0, 0, line
    is_open = False
    newline = len(terminator) == 1 and terminator[0] == _NEWLINE
    while at < size:
        byte = data[at]
        if byte == _NEWLINE:
            line += 1
        if backslash and byte == _BACKSLASH:
            if at + 1 < size and data[at + 1] == _NEWLINE:
                line += 1
            at += 2
            continue
        if is_open:
            if _is_at(data, at, size, quote):
                is_open = False
                at += len(quote)
            else:
                at += 1
            continue
        if _is_at(data, at, size, quote):
            # A text begins, or a doubled quote lets it go on.
            is_open = True
            at += len(quote)
            continue
        if _is_at(data, at, size, terminator) or (
            # Tools convert line ends.
            byte == _NEWLINE and terminator[len(terminator) - 1] == _NEWLINE
        ):
            if count == len(begins):
                return count, first, first_line
            end = at
            width = 1 if byte == _NEWLINE else len(terminator)
            if newline and end > first and data[end - 1] == _RETURN:
                end -= 1
            if byte != _NEWLINE:
                for number in range(1, width):
                    if data[at + number] == _NEWLINE:
                        line += 1
            begins[count], ends[count], lines[count] = first, end, first_line
            count += 1
            at += width
            first, first_line = at, line
            continue
        if _is_at(data, at, size, separator):
            at += len(separator)
            continue
        at += 1
    if is_last and first < size and count < len(begins):
        begins[count], ends[count], lines[count] = first, size, first_line
        return count + 1, size, line
    return count, first, first_line


@compiled
def csv_fields(data: Bytes, rows: Places, style: Style, fields: Fields, faults: Bytes) -> None:
    """Find the fields of adjacent rows, and the fault of each row.

    `rows` says where each row begins, and where the last one ends.
    """
    separator, quote, _, null, backslash = style
    begins, ends, forms = fields
    width = begins.shape[0]
    for row in range(len(rows) - 1):
        at, end = rows[row], rows[row + 1]
        column = 0
        fault = GOOD
        while True:
            if column == width:
                fault = TOO_MANY
                break
            form = VERBATIM
            if _is_at(data, at, end, quote):
                first = at + len(quote)
                last, form = _end_of_text(data, first, end, quote, backslash, not backslash)
                if last < 0:
                    fault = OPEN_TEXT
                    break
                at = last + len(quote)
                if at < end and not _is_at(data, at, end, separator):
                    fault = BEHIND_TEXT
                    break
            else:
                first = at
                while at < end and not _is_at(data, at, end, separator):
                    if backslash and data[at] == _BACKSLASH:
                        form = ESCAPED
                        at += 1
                    at += 1
                at = min(at, end)
                last = at
                if last - first == len(null) and (len(null) == 0 or _is_at(data, first, end, null)):
                    form = NULL
            begins[column, row], ends[column, row], forms[column, row] = first, last, form
            column += 1
            if at >= end:
                break
            at += len(separator)
        if fault == GOOD and column < width:
            fault = TOO_FEW
        faults[row] = fault


# SQL ----------------------------------------------------------------------------------------------


HEAD: Final = 0
"""State between rows of an SQL file: before the rows of a statement."""
ROWS: Final = 1
"""State among the rows of a statement."""


@compiled
def sql_rows(
    data: Bytes,
    state: int,
    backslash: bool,
    line: int,
    rows: Rows,
    heads: Places,
) -> tuple[int, int, int, int, int]:
    """Find rows of INSERT statements, parentheses included, and put them into `rows`.

    The bytes begin between two rows or between statements, as `state` says; `line` is the number of
    their first line. `heads` receives for each head of a statement the number of rows before it,
    its begin and end. Returns how many rows were found, how many numbers were put in `heads`, where
    the search ended, and the state and the line number there.
    """
    begins, ends, lines = rows
    size, count, headed = len(data), 0, 0
    at, head = 0, 0
    done, done_state, done_line = 0, state, line
    while at < size:
        byte = data[at]
        if state == ROWS:
            if byte == _NEWLINE:
                line += 1
            if byte == _SEMICOLON:
                state = HEAD
                at += 1
                head = at
                done, done_state, done_line = at, state, line
                continue
            if byte != _OPEN:
                at += 1
                continue
            if count == len(begins):
                break
            first, first_line = at, line
            depth = 0
            is_closed = False
            while at < size:
                byte = data[at]
                if byte in (_TICK, _QUOTE):
                    at, line = _behind_text(data, at, size, backslash, line)
                    continue
                if byte == _NEWLINE:
                    line += 1
                at += 1
                if byte == _OPEN:
                    depth += 1
                elif byte == _CLOSE:
                    depth -= 1
                    if depth == 0:
                        is_closed = True
                        break
            if not is_closed:
                break
            begins[count], ends[count], lines[count] = first, at, first_line
            count += 1
            done, done_state, done_line = at, ROWS, line
            continue
        # The head of a statement, or another statement, or a comment.
        if byte in (_TICK, _QUOTE, _GRAVE):
            at, line = _behind_text(data, at, size, backslash and byte != _GRAVE, line)
            continue
        if byte == _NEWLINE:
            line += 1
        if byte == _SEMICOLON:
            at += 1
            head = at
            done, done_state, done_line = at, HEAD, line
            continue
        if byte == _SLASH and at + 1 < size and data[at + 1] == _STAR:
            at += 3
            while at < size and not (data[at] == _SLASH and data[at - 1] == _STAR):
                if data[at] == _NEWLINE:
                    line += 1
                at += 1
            at += 1
            continue
        if byte == _HASH or (byte == _DASH and _is_comment(data, at, size)):
            while at < size and data[at] != _NEWLINE:
                at += 1
            continue
        if (byte | 32) == ord("v") and _is_values(data, at, size):
            if headed + 3 > len(heads):
                break
            heads[headed], heads[headed + 1], heads[headed + 2] = count, head, at
            headed += 3
            state = ROWS
            at += 6
            done, done_state, done_line = at, ROWS, line
            continue
        at += 1
    return count, headed, done, done_state, done_line


@compiled
def _behind_text(data: Bytes, at: int, size: int, backslash: bool, line: int) -> tuple[int, int]:
    """Return the place after a quoted text, or the end of the bytes, and the line there."""
    quote = data[at]
    at += 1
    while at < size:
        byte = data[at]
        if byte == _NEWLINE:
            line += 1
        if backslash and byte == _BACKSLASH:
            if at + 1 < size and data[at + 1] == _NEWLINE:
                line += 1
            at += 2
            continue
        at += 1
        if byte == quote:
            # The second of two quotes begins a text right here.
            return at, line
    return size, line


@compiled
def _is_word(data: Bytes, at: int, end: int, word: bytes) -> bool:
    """Return whether a word, given in lower case, is at a place in any case."""
    if at + len(word) > end:
        return False
    for number in range(len(word)):  # noqa: SIM110 - generators do not compile
        if (data[at + number] | 32) != word[number]:
            return False
    return True


@compiled
def _is_values(data: Bytes, at: int, size: int) -> bool:
    if not _is_word(data, at, size, b"values"):
        return False
    before = data[at - 1] if at else 32
    after = data[at + 6] if at + 6 < size else 32
    return not _is_of_word(before) and not _is_of_word(after)


@compiled
def _is_of_word(byte: int) -> bool:
    folded = byte | 32
    if ord("a") <= folded <= ord("z") or ord("0") <= byte <= ord("9"):
        return True
    return byte == ord("_") or byte >= 128


@compiled
def _is_comment(data: Bytes, at: int, size: int) -> bool:
    return at + 2 < size and data[at + 1] == _DASH and data[at + 2] <= 32


@compiled
def sql_fields(data: Bytes, rows: Places, backslash: bool, fields: Fields, faults: Bytes) -> None:
    """Find the fields of rows of SQL; the arguments are those of `csv_fields`."""
    begins, ends, forms = fields
    width = begins.shape[0]
    for row in range(len(rows) - 1):
        at, end = rows[row] + 1, rows[row + 1] - 1
        column = 0
        fault = GOOD
        while at < end or column < width:
            while at < end and data[at] <= 32:
                at += 1
            if at >= end and column == width:
                break
            if column == width:
                fault = TOO_MANY
                break
            if at >= end:
                fault = TOO_FEW
                break
            # _binary'...' is a text.
            if data[at] == ord("_"):
                while at < end and _is_of_word(data[at]):
                    at += 1
                while at < end and data[at] <= 32:
                    at += 1
            form = VERBATIM
            byte = data[at] if at < end else 0
            if byte in (_TICK, _QUOTE):
                first = at + 1
                last, form = _end_of_text(data, first, end, data[at:first], backslash, True)
                if last < 0:
                    fault = OPEN_TEXT
                    break
                at = last + 1
            elif (byte | 32) == ord("x") and at + 1 < end and data[at + 1] == _TICK:
                form = HEXADECIMAL
                at += 2
                first = at
                while at < end and data[at] != _TICK:
                    at += 1
                if at >= end:
                    fault = OPEN_TEXT
                    break
                last = at
                at += 1
            else:
                first = at
                while at < end and data[at] != _COMMA and data[at] > 32:
                    at += 1
                last = at
                if first == last:
                    fault = NO_VALUE
                    break
                if (
                    last - first > 2
                    and data[first] == ord("0")
                    and data[first + 1] | 32 == ord("x")
                ):
                    form = HEXADECIMAL
                    first += 2
                elif last - first == 4 and _is_word(data, first, last, b"null"):
                    form = NULL
            begins[column, row], ends[column, row], forms[column, row] = first, last, form
            column += 1
            while at < end and data[at] <= 32:
                at += 1
            if at < end:
                if data[at] != _COMMA:
                    fault = BEHIND_TEXT
                    break
                at += 1
                if at >= end:
                    fault = NO_VALUE
                    break
        faults[row] = fault


# Values -------------------------------------------------------------------------------------------


@compiled
def values(
    data: Bytes,
    begins: Places,
    ends: Places,
    forms: Bytes,
    quote_size: int,
    content: Bytes,
    offsets: Places,
) -> None:
    """Write the values of one column, without the escapes of its file, into `content`.

    That is as long as all fields are. `offsets` receives where each value begins, and where the
    last one ends. The quote of a text is the `quote_size` bytes before it: SQL has two quotes.
    """
    to = 0
    for row in range(len(begins)):
        offsets[row] = to
        if forms[row] == NULL:
            continue
        first = begins[row]
        quote = data[first - quote_size : first]
        to = _value(data, first, ends[row], forms[row], quote, content, to)
    offsets[len(begins)] = to


@compiled
def _value(data: Bytes, at: int, end: int, form: int, quote: Bytes, content: Bytes, to: int) -> int:
    while at < end:
        byte = data[at]
        if form == ESCAPED and byte == _BACKSLASH and at + 1 < end:
            at += 1
            byte = _unescaped(data[at])
        elif form in (ESCAPED, DOUBLED) and _is_at(data, at, end, quote):
            # The first of two quotes.
            at += len(quote) if _is_at(data, at + len(quote), end, quote) else 0
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
    """Write values of one column as they are in the JSON text of images into `content`.

    Values that are not NULL get a text before and after them. `ends` receives where the text of
    each value begins, and where the last one ends. All arrays of bytes end with
    `vector_loops.PADDING` more.
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
