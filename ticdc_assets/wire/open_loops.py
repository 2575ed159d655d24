"""Open Protocol in exactly the bytes that TiCDC writes, read by compiled loops.

In: keys and values, each texts behind their lengths, see `json_loops`. Out: the fields of each row,
its images written with the values as text, and the columns that were met (`OpenRoom`). Regular are
records that hold rows alone, with nothing that says that columns were cut.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportReturnType=false

from typing import Final, NamedTuple

import numpy as np

from ticdc_assets.compiled import compiled, inlined
from ticdc_assets.values.word_loops import Words, copied
from ticdc_assets.wire.json_loops import (
    CLOSE,
    COMMA,
    DELETE,
    HALF,
    INSERT,
    OPEN,
    QUOTE,
    UPDATE,
    Ints,
    Octets,
    Sheet,
    expected,
    hashed,
    is_utf8,
    length_at,
    natural,
    passed,
    same_bytes,
    unescaped_end,
)
from ticdc_assets.wire.open_value_loops import REFUSED_WAY, value_written

_VERSION_WORD: Final = np.uint64(1 << 56)
_KEY_HEAD: Final = expected(b'{"ts":')[0]
_KEY_DATABASE: Final = expected(b',"scm":"')[0]
_KEY_TABLE: Final = expected(b'","tbl":"')[0]
_KEY_ROW_ID: Final = expected(b'","rid":', b'","rid":-')
_KEY_NAME_END: Final = expected(b'"')[0]
_KEY_PARTITION: Final = expected(b',"ptn":')[0]
_KEY_END: Final = expected(b',"t":1}')[0]
_NEW_IMAGE: Final = expected(b'{"u":{')[0]
_OLD_IMAGE: Final = expected(b',"p":{')[0]
_DELETED_IMAGE: Final = expected(b'{"d":{')[0]
_CODE: Final = expected(b'":{"t":')[0]
_HANDLE_KEY: Final = expected(b',"h":true')[0]
_FLAGS: Final = expected(b',"f":')[0]
_VALUE: Final = expected(b',"v":')[0]
_NULL_ALONE: Final = expected(b"null")[0]
_END: Final = expected(b"}")[0]
_SHORTEST_COLUMN: Final = len(b'"n":{"t":1,"f":0,"v":')
_SHORTEST_ROW: Final = len(b'{"u":{"n":{"t":1,"f":0,"v":1}}}')
_MOST_FLAGS: Final = 2**16 - 1
_FEW_COLUMNS: Final = 2**10

OPEN_FIELDS: Final = 12
"""Number of the record, index in it, kind, commit ts, begin and end of the names of the database
and the table in the key, partition or -1, column that is the last of its image, ends of what was
written of the images before and after."""

COLUMN_FIELDS: Final = 6
"""A column behind others of its image: the one before it, begin and end of all that stands before
its value, end of its name and the colon behind, first column known behind it, way of its values."""

UNSURE_FIELDS: Final = 4
"""Number of the row, way, begin and end of a number that may not be in its shortest form."""


@inlined
def _open_key(octets: Octets, words: Words, start: int, end: int, fields: Ints) -> bool:
    """Return whether the key of a row stands between two places, and fill its fields."""
    fields[3], at = natural(octets, passed(words, start, _KEY_HEAD), end)
    fields[4] = passed(words, at, _KEY_DATABASE)
    fields[5] = unescaped_end(octets, words, fields[4], end)
    fields[6] = passed(words, fields[5], _KEY_TABLE)
    fields[7] = name_end = unescaped_end(octets, words, fields[6], end)
    at = passed(words, name_end, _KEY_ROW_ID[0])
    if at >= 0:
        negative = passed(words, name_end, _KEY_ROW_ID[1])
        _, at = natural(octets, max(at, negative), end)
    else:
        at = passed(words, name_end, _KEY_NAME_END)
    fields[8] = -1
    partition = passed(words, at, _KEY_PARTITION)
    if partition >= 0:
        fields[8], at = natural(octets, partition, end)
    return passed(words, at, _KEY_END) == end and is_utf8(octets, words, start, end)


@inlined
def _open_column(
    octets: Octets,
    words: Words,
    at: int,
    end: int,
    ways: Octets,
    binary: int,
    columns: Ints,
    slots: Ints,
    used: Ints,
    before: int,
) -> int:
    """Return the number of the column at a place, behind another; 0 if there is none."""
    if octets[at] != QUOTE:
        return 0
    name_end = unescaped_end(octets, words, at + 1, end)
    code, place = natural(octets, passed(words, name_end, _CODE), end)
    place = max(place, passed(words, place, _HANDLE_KEY))
    flags, place = natural(octets, passed(words, place, _FLAGS), end)
    behind = passed(words, place, _VALUE)
    if behind < 0 or behind > end or code > 255 or flags > _MOST_FLAGS:
        return 0
    way = ways[2 * code + (flags & binary != 0)]
    if way == REFUSED_WAY:
        return 0
    mask = len(slots) - 1
    slot = np.int64(hashed(words, at, behind, np.uint64(before)) >> HALF) & mask
    size = behind - at
    while slots[slot] != 0:
        column = slots[slot]
        begin = columns[column, 1]
        if (
            columns[column, 0] == before
            and columns[column, 2] - begin == size
            and same_bytes(words, begin, at, size, end)
        ):
            return column
        slot = (slot + 1) & mask
    column = used[0]
    if column == len(columns):
        used[3] = 1
        return 0
    used[0] += 1
    slots[slot] = column
    columns[column, 0], columns[column, 1], columns[column, 2] = before, at, behind
    columns[column, 3], columns[column, 4], columns[column, 5] = name_end + 2, 0, way
    if columns[before, 4] == 0:
        columns[before, 4] = column
    return column


@inlined
def _open_image(
    octets: Octets,
    words: Words,
    at: int,
    end: int,
    ways: Octets,
    binary: int,
    columns: Ints,
    slots: Ints,
    row: int,
    unsure: Ints,
    used: Ints,
    scratch: Octets,
    scratch_words: Words,
    written: Octets,
    written_words: Words,
    place: int,
) -> tuple[int, int, int]:
    """Write the image whose first column stands at a place.

    Returns:
        The place behind it, -1 if it is not regular; the place behind what was written; and the
        number of its last column, which tells all before it.
    """
    last, between = np.int64(0), OPEN
    while at >= 0:
        column = columns[last, 4]
        begin = columns[column, 1]
        if column == 0 or not same_bytes(words, begin, at, columns[column, 2] - begin, end):
            column = _open_column(octets, words, at, end, ways, binary, columns, slots, used, last)
            if column == 0:
                return -1, place, 0
            begin = columns[column, 1]
        at += columns[column, 2] - begin
        written[place] = between
        place = copied(words, begin, columns[column, 3], written_words, place + 1)
        last, between = column, COMMA
        null = passed(words, at, _NULL_ALONE)
        if null >= 0:
            place = copied(words, at, null, written_words, place)
            at = null
        else:
            at, place = value_written(
                octets,
                words,
                at,
                end,
                columns[column, 5],
                row,
                unsure,
                used,
                scratch,
                scratch_words,
                written,
                written_words,
                place,
            )
        if at < 0 or octets[at] != CLOSE:
            return -1, place, 0
        if octets[at + 1] == CLOSE:
            written[place] = CLOSE
            return at + 2, place + 1, last
        at = at + 2 if octets[at + 1] == COMMA else -1
    return -1, place, 0


class Texts(NamedTuple):
    """Texts one behind the other.

    Attributes:
        octets: their bytes, with padding.
        words: the eight bytes at each place.
        starts: where each begins.
        ends: where it ends.
    """

    octets: Octets
    words: Words
    starts: Ints
    ends: Ints


class OpenRoom(NamedTuple):
    """What is found in records of Open Protocol.

    Attributes:
        rows: `OPEN_FIELDS` of each row.
        columns: `COLUMN_FIELDS` of each column; that with the number 0 is none.
        slots: for finding columns.
        unsure: `UNSURE_FIELDS` of numbers that are written as sent, but have to be looked at again.
        used: how many columns, unsure numbers and rows there are; 1 if there are more columns.
    """

    rows: Ints
    columns: Ints
    slots: Ints
    unsure: Ints
    used: Ints


def open_room(size: int) -> OpenRoom:
    """Return room for what is found in so many bytes of values, with few columns."""
    return OpenRoom(
        rows=np.empty((size // _SHORTEST_ROW + 1, OPEN_FIELDS), np.int64),
        unsure=np.empty((size // _SHORTEST_COLUMN + 1, UNSURE_FIELDS), np.int64),
        used=np.empty(4, np.int64),
        **_for_columns(_FEW_COLUMNS),
    )


def with_more_columns(room: OpenRoom) -> OpenRoom:
    """Return the same room for four times as many columns."""
    return room._replace(**_for_columns(4 * len(room.columns)))


def _for_columns(count: int) -> dict[str, Ints]:
    # Slots are a power of two, and more than twice as many as columns.
    return {
        "columns": np.empty((count, COLUMN_FIELDS), np.int64),
        "slots": np.empty(1 << (2 * count).bit_length(), np.int64),
    }


@compiled
def open_records(
    keys: Texts,
    values: Texts,
    ways: Octets,
    binary: int,
    room: OpenRoom,
    before_paper: Sheet,
    after_paper: Sheet,
    scratch_paper: Sheet,
) -> None:
    """Read records of Open Protocol that hold rows alone.

    A record is regular if all of it is, and its key is not much longer than its value. If there are
    more columns than the room has, not all records are read.

    Args:
        keys: the keys.
        values: the value of each.
        ways: of each type code the way of a column without and with the flag `binary`.
        binary: that flag.
        room: gets what is found.
        before_paper: gets the images before; five times as long as the values, as three control
            characters are four bytes of base64 and 18 of JSON.
        after_paper: gets the images after, in the same way.
        scratch_paper: as long as the values.
    """
    # The loops inside get arrays: they would take their time to get them out of tuples each time.
    key_octets, key_words, key_starts, key_ends = keys
    octets, words, starts, ends = values
    rows, columns, slots, unsure, used = room
    before, before_words = before_paper
    after, after_words = after_paper
    scratch, scratch_words = scratch_paper
    columns[:], slots[:] = 0, 0
    used[0], used[1], used[2], used[3] = 1, 0, 0, 0
    count, before_place, after_place = np.int64(0), np.int64(0), np.int64(0)
    for number in range(len(starts)):
        at, end = starts[number], ends[number]
        key_at, key_end = key_starts[number], key_ends[number]
        if key_end - key_at > 4 * (end - at) or key_end - key_at < 8:
            continue
        if key_words[key_at] != _VERSION_WORD:
            continue
        key_at += 8
        row, unsure_before = count, used[1]
        old_place, place = before_place, after_place
        good = key_at < key_end
        while good and key_at < key_end:
            key_size, size = length_at(key_octets, key_at, key_end), length_at(octets, at, end)
            if key_size < 0 or size < _SHORTEST_ROW:
                good = False
                break
            fields = rows[row]
            start, part_end = at + 8, at + 8 + size
            good = _open_key(key_octets, key_words, key_at + 8, key_at + 8 + key_size, fields)
            kind, image = INSERT, passed(words, start, _NEW_IMAGE)
            if image >= 0:
                behind, place, last = _open_image(
                    octets,
                    words,
                    image,
                    part_end,
                    ways,
                    binary,
                    columns,
                    slots,
                    row,
                    unsure,
                    used,
                    scratch,
                    scratch_words,
                    after,
                    after_words,
                    place,
                )
                image = passed(words, behind, _OLD_IMAGE)
                kind = UPDATE if image >= 0 else INSERT
            else:
                kind, image = DELETE, passed(words, start, _DELETED_IMAGE)
                behind, last = -1, 0
            if image >= 0:
                behind, old_place, old_last = _open_image(
                    octets,
                    words,
                    image,
                    part_end,
                    ways,
                    binary,
                    columns,
                    slots,
                    row,
                    unsure,
                    used,
                    scratch,
                    scratch_words,
                    before,
                    before_words,
                    old_place,
                )
                # Other columns may add to the shape.
                good = good and (kind == DELETE or old_last == last)
                last = old_last
            good = good and passed(words, behind, _END) == part_end
            good = good and is_utf8(octets, words, start, part_end)
            fields[0], fields[1], fields[2], fields[9] = number, row - count, kind, last
            fields[10], fields[11] = old_place, place
            row += 1
            key_at += 8 + key_size
            at = part_end
        if good and at == end:
            count, before_place, after_place = row, old_place, place
        elif used[3]:
            return
        else:
            used[1] = unsure_before
    used[2] = count
