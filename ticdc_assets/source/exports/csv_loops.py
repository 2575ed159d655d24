"""Compiled loops over CSV files of exports, which find rows and their fields.

In: bytes, and their style. Out: places. Any bytes give places, or a number for the fault of a row.
"""

from typing import Final, NamedTuple

from ticdc_assets.base.compiled import compiled
from ticdc_assets.source.exports.value_loops import (
    BEHIND_TEXT,
    DOUBLED,
    ESCAPED,
    GOOD,
    NULL,
    OPEN_TEXT,
    TOO_FEW,
    TOO_MANY,
    VERBATIM,
    Bytes,
    Fields,
    Places,
    Rows,
    is_at,
)

_BACKSLASH: Final = ord("\\")
_NEWLINE: Final = ord("\n")
_RETURN: Final = ord("\r")


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
def csv_rows(
    data: Bytes, is_last: bool, style: Style, line: int, rows: Rows
) -> tuple[int, int, int]:
    """Find rows.

    Args:
        data: the bytes; a row begins with them.
        is_last: whether the file ends after the bytes.
        style: how they are written.
        line: number of their first line.
        rows: receives the rows; they end before their terminators.

    Returns:
        How many rows were found, where the rest begins, and the number of its line.
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
            if is_at(data, at, size, quote):
                is_open = False
                at += len(quote)
            else:
                at += 1
            continue
        if is_at(data, at, size, quote):
            # A text begins, or a doubled quote lets it go on.
            is_open = True
            at += len(quote)
            continue
        if is_at(data, at, size, terminator) or (
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
        if is_at(data, at, size, separator):
            at += len(separator)
            continue
        at += 1
    if is_last and first < size and count < len(begins):
        begins[count], ends[count], lines[count] = first, size, first_line
        return count + 1, size, line
    return count, first, first_line


@compiled
def csv_fields(data: Bytes, rows: Places, style: Style, fields: Fields, faults: Bytes) -> None:
    """Find the fields of rows.

    Args:
        data: the rows, one after the other.
        rows: where each begins, and where the last one ends.
        style: how they are written.
        fields: receives the fields.
        faults: receives each row's fault.
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
            if is_at(data, at, end, quote):
                at += len(quote)
                first = at
                is_open = True
                while at < end:
                    if backslash and data[at] == _BACKSLASH:
                        form = ESCAPED
                        at += 2
                        continue
                    if is_at(data, at, end, quote):
                        if not backslash and is_at(data, at + len(quote), end, quote):
                            form = DOUBLED
                            at += 2 * len(quote)
                            continue
                        is_open = False
                        break
                    at += 1
                if is_open or at > end:
                    fault = OPEN_TEXT
                    break
                last = at
                at += len(quote)
                if at < end and not is_at(data, at, end, separator):
                    fault = BEHIND_TEXT
                    break
            else:
                first = at
                while at < end and not is_at(data, at, end, separator):
                    if backslash and data[at] == _BACKSLASH:
                        form = ESCAPED
                        at += 1
                    at += 1
                at = min(at, end)
                last = at
                if last - first == len(null) and (len(null) == 0 or is_at(data, first, end, null)):
                    form = NULL
            begins[column, row], ends[column, row], forms[column, row] = first, last, form
            column += 1
            if at >= end:
                break
            at += len(separator)
        if fault == GOOD and column < width:
            fault = TOO_FEW
        faults[row] = fault
