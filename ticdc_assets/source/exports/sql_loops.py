"""Compiled loops over SQL files of exports, which find rows of INSERT and their fields.

In: bytes, and whether backslashes escape. Out: places. Any bytes give places, or a number for the
fault of a row.
"""

# numba hides the types of what it compiles.
# pyright: reportArgumentType=false

from typing import Final

from ticdc_assets.base.compiled import compiled
from ticdc_assets.source.exports.value_loops import (
    BEHIND_TEXT,
    DOUBLED,
    ESCAPED,
    GOOD,
    HEXADECIMAL,
    NO_VALUE,
    NULL,
    OPEN_TEXT,
    TOO_FEW,
    TOO_MANY,
    VERBATIM,
    Bytes,
    Fields,
    Places,
    Rows,
)

_BACKSLASH: Final = ord("\\")
_NEWLINE: Final = ord("\n")
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
    """Find rows of INSERT statements, parentheses included.

    Args:
        data: the bytes; they begin between two rows, or between statements.
        state: `HEAD` or `ROWS`.
        backslash: whether backslashes escape in texts.
        line: number of their first line.
        rows: receives the rows.
        heads: receives for each head of a statement the number of rows before it, its begin and
            end.

    Returns:
        How many rows were found, how many numbers were put in `heads`, where the search ended, and
        the state and the line number there.
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
def _is_values(data: Bytes, at: int, size: int) -> bool:
    if at + 6 > size:
        return False
    word = b"values"
    for number in range(6):
        if (data[at + number] | 32) != word[number]:
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
                mark = byte
                at += 1
                first = at
                is_open = True
                while at < end:
                    if backslash and data[at] == _BACKSLASH:
                        form = ESCAPED
                        at += 2
                        continue
                    if data[at] == mark:
                        if at + 1 < end and data[at + 1] == mark:
                            form = ESCAPED if form == ESCAPED else DOUBLED
                            at += 2
                            continue
                        is_open = False
                        break
                    at += 1
                if is_open or at > end:
                    fault = OPEN_TEXT
                    break
                last = at
                at += 1
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
                if last - first > 2 and _is_hex(data, first):
                    form = HEXADECIMAL
                    first += 2
                elif last - first == 4 and _is_null(data, first):
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
            elif column < width:
                fault = TOO_FEW
                break
        faults[row] = fault


@compiled
def _is_hex(data: Bytes, at: int) -> bool:
    return data[at] == ord("0") and (data[at + 1] | 32) == ord("x")


@compiled
def _is_null(data: Bytes, at: int) -> bool:
    word = b"null"
    for number in range(4):  # noqa: SIM110 - generators do not compile
        if (data[at + number] | 32) != word[number]:
            return False
    return True
