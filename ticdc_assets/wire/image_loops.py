"""Compiled loops over images: where each column's value is, values as bytes, and keys of rows.

In: images as the change log has them (`rows.image_from_json`), in one array of bytes. Out: places
in these bytes, or copies. An image that is not exact (a name with an escape, an unknown or repeated
column, white space) is marked, and nothing of it is used.

An image's bytes alone count; after it, after the names and after the output there are
`vector_loops.PADDING` bytes more. All arrays are contiguous; places are int32, forms
(`values.column_loops`) uint8, flags bool.
"""

# numba hides the types of what it compiles.
# pyright: reportArgumentType=false

from typing import Final, NamedTuple

import numpy as np

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.model.values.column_loops import ESCAPED, NULL, TEXT, ZONED, Column
from ticdc_assets.model.values.text_loops import NULL_WORD, stands
from ticdc_assets.model.values.word_loops import copied, escapes_end, same, stop
from ticdc_assets.wire.tape.json_loops import Flags, Octets, Places, text_written

INEXACT: Final = -1
"""In place of the count of columns of an image that is not exact."""

_QUOTE, _BACKSLASH, _COMMA, _COLON, _OPEN, _CLOSE = 34, 92, 44, 58, 123, 125
_LOCATION = np.frombuffer(b'{"location":"', np.uint8)
_VALUE = np.frombuffer(b'","value":"', np.uint8)


@inlined
def _name_end(
    data: Octets, begin: int, last: int, names: Octets, offsets: Places, column: int
) -> int:
    """Return the end of a name if it is that of a column, else -1."""
    if column >= len(offsets) - 1:
        return -1
    offset = offsets[column]
    end = begin + offsets[column + 1] - offset
    if end < last and data[end] == _QUOTE and same(data, begin, names, offset, end - begin):
        return end
    return -1


@compiled
def _is_zone(data: Octets, begin: int, end: int, zones: Octets, offsets: Places) -> bool:
    for number in range(len(offsets) - 1):
        zone = zones[offsets[number] : offsets[number + 1]]
        if len(zone) == end - begin and stands(data, begin, end, zone):
            return True
    return False


class Texts(NamedTuple):
    """The bytes of images, and where each begins and ends."""

    data: Octets
    begins: Places
    ends: Places


class Names(NamedTuple):
    """The names that a table's images may have.

    Attributes:
        data: the columns' names, as JSON texts, one after the other.
        offsets: where each name begins, and the end of the last.
        followers: for the place before the first column, and for each column, the column that
            followed it in an image the last time; as many as columns for none.
        zones: names of zones that a timestamp may have, one after the other.
        zone_offsets: where each begins, and the end of the last.
    """

    data: Octets
    offsets: Places
    followers: Places
    zones: Octets
    zone_offsets: Places


class Members(NamedTuple):
    """The values of images.

    Attributes:
        begins: for each column and image where the column's text begins.
        ends: where it ends.
        forms: the form of its text; all 0 at first.
        counts: how many columns each image has, or `INEXACT`.
    """

    begins: Places
    ends: Places
    forms: Octets
    counts: Places


@compiled
def find_members(images: Texts, table: Names, members: Members) -> None:
    """Find the values of images, and put them into `members`."""
    data, starts, stops = images
    names, name_offsets, followers, zones, zone_offsets = table
    begins, ends, forms, counts = members
    for row in range(len(starts)):
        counts[row] = INEXACT
        place, last = starts[row], stops[row] - 1
        if last <= place or data[place] != _OPEN or data[last] != _CLOSE:
            continue
        place += 1
        count = 0
        before = 0
        good = True
        # Each turn takes one member; `place` stays at or before `last`, where the object ends.
        while good and place < last:
            good = False
            if count:
                if data[place] != _COMMA:
                    break
                place += 1
            if place >= last or data[place] != _QUOTE:
                break
            place += 1
            begin = place
            # Images nearly always have their columns in the same order.
            column = np.int64(followers[before])
            place = _name_end(data, begin, last, names, name_offsets, column)
            if place < 0:
                column = np.int64(0)
                while place < 0 and column < len(name_offsets) - 1:
                    place = _name_end(data, begin, last, names, name_offsets, column)
                    column += place < 0
                followers[before] = column
            if place < 0 or last - place < 2 or data[place + 1] != _COLON:
                break
            if forms[column, row] != 0:
                break
            place += 2
            if place >= last:
                break
            if data[place] == _QUOTE:
                place += 1
                begins[column, row] = place
                form = TEXT
                place = stop(data, place, last)
                while place < last and data[place] == _BACKSLASH:
                    form = ESCAPED
                    place = stop(data, place + 2, last)
                if place >= last or data[place] != _QUOTE:
                    break
                ends[column, row] = place
                forms[column, row] = form
                place += 1
            elif stands(data, place, last, NULL_WORD):
                forms[column, row] = NULL
                place += 4
            elif stands(data, place, last, _LOCATION):
                place += len(_LOCATION)
                begin = place
                while place < last and data[place] != _QUOTE and data[place] != _BACKSLASH:
                    place += 1
                if not _is_zone(data, begin, place, zones, zone_offsets):
                    break
                if not stands(data, place, last, _VALUE):
                    break
                place += len(_VALUE)
                begins[column, row] = place
                while place < last and data[place] != _QUOTE and data[place] != _BACKSLASH:
                    place += 1
                if last - place < 2 or data[place] != _QUOTE or data[place + 1] != _CLOSE:
                    break
                ends[column, row] = place
                forms[column, row] = ZONED
                place += 2
            else:
                break
            count += 1
            before = column + 1
            good = True
        if good and place == last:
            counts[row] = count


@compiled
def texts(column: Column, offsets: Places, out: Octets, exact: Flags) -> None:
    """Copy texts, without their escapes.

    `offsets` is where in `out` each text begins, and the end of the last. `out` has room for all
    their bytes, as an escape is never shorter than its meaning. `exact` gets which are absent,
    NULL, or text.
    """
    data, begins, ends, forms = column
    filled = 0
    for row in range(len(begins)):
        offsets[row] = filled
        form = forms[row]
        exact[row] = form <= ESCAPED
        place, end = begins[row], ends[row]
        if form == TEXT:
            filled = copied(data, place, end, out, filled)
        elif form == ESCAPED:
            # The quote after the text is among its bytes.
            first = stop(data, place, end + 1)
            exact[row] = escapes_end(data, first, end + 1) == end
            if exact[row]:
                filled = text_written(data, place, end, out, filled, False)
    offsets[len(begins)] = filled


@compiled
def keys(
    data: Octets,
    begins: Places,
    ends: Places,
    rows: Places,
    offsets: Places,
    out: Octets,
) -> None:
    """Write the texts of a key's columns, without escapes, as JSON arrays of strings after a `=`.

    `rows` are the rows that are written, in order; `offsets` is where in `out` each begins, and the
    end of the last. `out` has room for the texts, and three bytes for each text and for each row.
    """
    filled = 0
    for number in range(len(rows)):
        offsets[number] = filled
        out[filled] = 61
        out[filled + 1] = 91
        filled += 2
        row = rows[number]
        for column in range(len(begins)):
            if column:
                out[filled] = _COMMA
                filled += 1
            out[filled] = _QUOTE
            filled += 1
            filled = copied(data, begins[column, row], ends[column, row], out, filled)
            out[filled] = _QUOTE
            filled += 1
        out[filled] = 93
        filled += 1
    offsets[len(rows)] = filled
