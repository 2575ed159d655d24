"""Records of Open Protocol that differ from TiCDC's in bytes alone, in TiCDC's bytes.

In: keys and values, each texts behind their lengths, and the names of members that Open Protocol
looks at in a key, a value and a column. Out: of each record of rows alone the same members in the
order of the names, without blanks and without other members, behind new lengths. Columns keep their
names and their order. `rewriting_loops` says what a text must be for that, and why the new record
means the same; each text of a record must be so, and one must change.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportReturnType=false

from typing import Final, NamedTuple

import numpy as np

from ticdc_assets.compiled import compiled
from ticdc_assets.values.word_loops import Words, copied
from ticdc_assets.wire.json_loops import (
    CLOSE,
    COMMA,
    OPEN,
    QUOTE,
    Ints,
    Octets,
    Sheet,
    length_at,
    unescaped_end,
)
from ticdc_assets.wire.open_loops import Texts
from ticdc_assets.wire.rewriting_loops import (
    Names,
    members_copied,
    object_written,
    text_copied,
)

_VERSION_SIZE: Final = 8
_LENGTH_SIZE: Final = 8
GAP: Final = 16
"""Bytes that may be written too much behind a text: a word of a value or of a column's name."""


class OpenNames(NamedTuple):
    """The members that Open Protocol looks at.

    Attributes:
        key: those of a key.
        value: those of a value, each an object with a member for each column.
        column: those of a column.
    """

    key: Names
    value: Names
    column: Names


class Again(NamedTuple):
    """Where records are written again.

    Attributes:
        keys: gets their keys; as long as all keys.
        values: gets their values; as long as all values.
        numbers: gets which record each is.
        key_ends: gets where its key ends.
        value_ends: gets where its value ends.
    """

    keys: Sheet
    values: Sheet
    numbers: Ints
    key_ends: Ints
    value_ends: Ints


@compiled
def _columns_copied(
    octets: Octets, words: Words, at: int, end: int, names: Names, found: Ints, place: int
) -> tuple[int, bool]:
    """Copy an object of columns, which has no blanks, to a place behind it on the same sheet.

    `found` has room for begin and end of each of a column's members; at `place` there is room for
    twice the object and `GAP`.

    Returns:
        The place behind the copy, -1 if the object is not to be written again; and whether the
        members of each column have TiCDC's order.
    """
    ordered = True
    if octets[at] != OPEN:
        return -1, ordered
    # The copies of a column's values come behind all that is written, by words.
    values = place + end - at + GAP
    between = OPEN
    at += 1
    while octets[at] == QUOTE:
        behind = unescaped_end(octets, words, at + 1, end) + 1
        if behind <= 0:
            return -1, ordered
        octets[place] = between
        # With the colon.
        place = copied(words, at, behind + 1, words, place + 1)
        at, _, own_order = members_copied(
            octets, words, behind + 1, end, names, found, words, values
        )
        if at < 0:
            return -1, ordered
        ordered = ordered and own_order
        place = object_written(names, found, words, octets, words, place)
        between = COMMA
        at += octets[at] == COMMA
    if octets[at] != CLOSE or at + 1 != end or between == OPEN:
        return -1, ordered
    octets[place] = CLOSE
    return place + 1, ordered


@compiled
def _length_written(octets: Octets, place: int, size: int) -> None:
    """Write a length at a place."""
    for number in range(_LENGTH_SIZE):
        octets[place + _LENGTH_SIZE - 1 - number] = size & 0xFF
        size >>= 8


@compiled
def _text_written(
    octets: Octets,
    words: Words,
    start: int,
    end: int,
    names: Names,
    found: Ints,
    column: Names,
    column_found: Ints,
    scratch: Sheet,
    text: Octets,
    text_words: Words,
    place: int,
) -> tuple[int, bool]:
    """Write a text again, behind its length.

    `names` are those of its members, and `column` those of a column's members if they are objects
    of columns; else none of these is kept. `found` and `column_found` have room for begin and end
    of each. `scratch` is four times as long as the text, and `GAP`.

    Returns:
        The place behind it, -1 if it is not to be written again; and whether it is the same.
    """
    sheet, sheet_words = scratch
    used, same = text_copied(octets, words, start, end, names, found, sheet_words)
    if used < 0:
        return -1, same
    if column.kept:
        for number in range(names.kept):
            if found[number, 0] < 0:
                continue
            behind, own_order = _columns_copied(
                sheet,
                sheet_words,
                found[number, 0],
                found[number, 1],
                column,
                column_found,
                used,
            )
            if behind < 0:
                return -1, same
            found[number, 0], found[number, 1] = used, behind
            used = behind
            same = same and own_order
    behind = object_written(names, found, sheet_words, text, text_words, place + _LENGTH_SIZE)
    size = behind - place - _LENGTH_SIZE
    _length_written(text, place, size)
    return behind, same and size == end - start


@compiled
def open_rewritten(
    keys: Texts, values: Texts, names: OpenNames, scratch: Sheet, again: Again
) -> int:
    """Write records again, one behind the other, and return how many.

    Args:
        keys: the keys.
        values: the value of each.
        names: the names of their members.
        scratch: four times as long as the longest key or value, and `GAP`.
        again: gets the records.
    """
    key_octets, key_words, key_starts, key_ends = keys
    octets, words, starts, ends = values
    key_text, key_text_words = again.keys
    text, text_words = again.values
    key_found = np.empty((names.key.kept, 2), np.int64)
    found = np.empty((names.value.kept, 2), np.int64)
    column_found = np.empty((names.column.kept, 2), np.int64)
    no_columns = Names(names.column.texts, 0)
    count, key_place, place = 0, np.int64(0), np.int64(0)
    for number in range(len(starts)):
        at, end = starts[number], ends[number]
        key_at, key_end = key_starts[number], key_ends[number]
        if key_end - key_at <= _VERSION_SIZE:
            continue
        behind = place
        key_behind = copied(key_words, key_at, key_at + _VERSION_SIZE, key_text_words, key_place)
        key_at += _VERSION_SIZE
        same = True
        while key_at < key_end:
            key_size, size = length_at(key_octets, key_at, key_end), length_at(octets, at, end)
            if key_size <= 0 or size <= 0:
                break
            key_at, at = key_at + _LENGTH_SIZE, at + _LENGTH_SIZE
            key_behind, key_same = _text_written(
                key_octets,
                key_words,
                key_at,
                key_at + key_size,
                names.key,
                key_found,
                no_columns,
                column_found,
                scratch,
                key_text,
                key_text_words,
                key_behind,
            )
            if key_behind < 0:
                break
            behind, value_same = _text_written(
                octets,
                words,
                at,
                at + size,
                names.value,
                found,
                names.column,
                column_found,
                scratch,
                text,
                text_words,
                behind,
            )
            if behind < 0:
                break
            same = same and key_same and value_same
            key_at, at = key_at + key_size, at + size
        if key_at != key_end or at != end or same:
            continue
        again.numbers[count] = number
        again.key_ends[count], again.value_ends[count] = key_behind, behind
        count += 1
        key_place, place = key_behind, behind
    return count
