"""Messages that differ from TiCDC's in bytes alone, written again in TiCDC's bytes.

In: messages of one JSON object each, one behind the other with padding (`byte_columns.Buffer`), and
the names of members that a format looks at. Out: of each message that is such an object the same
members in the order of the names, without blanks between their tokens, and without the members that
have no name here. What the loops of a format then say of the new text (`simple_loops`,
`canal_loops`) holds for the message.

How it stays equal to the reference: the whole message is strict JSON in UTF-8, as every value of it
is walked to its end, whether it is kept or not. It is not written again, and left to others, if
there is anything that this walk does not know: a name with an escape, one that is known and stands
there twice, one that says that the message is of another kind, an escaped surrogate, or more than
`_MOST_DEPTH` arrays and objects in each other. A message that would be the same again is left out
too.

Nothing is read behind the padding: each step begins before the end of the message, and reads no
more than a text of `expected` from there.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportReturnType=false

from typing import Final, NamedTuple

import numpy as np

from ticdc_assets.compiled import compiled
from ticdc_assets.values.text_loops import number_end, word_end
from ticdc_assets.values.word_loops import LAST_BYTE, ONES, Words, copied
from ticdc_assets.wire.json_loops import (
    CLOSE,
    CLOSE_ARRAY,
    COLON,
    COMMA,
    MINUS,
    NINE,
    ONE,
    OPEN,
    OPEN_ARRAY,
    QUOTE,
    Ints,
    Octets,
    Sheet,
    is_utf8,
    passed,
    string_end,
    table_of,
    unescaped_end,
)

_BLANK: Final = table_of(b" \t\n\r")
_SPACE: Final = ord(" ")
_SPACES: Final = ONES * np.uint64(_SPACE)
_VALUE, _NAME, _COLON, _END, _ENDED = 1, 2, 4, 8, 24
"""What may come next, bit by bit: a value, a name, the colon behind one, the end of what is open;
behind a value such an end, or a comma."""
_MOST_DEPTH: Final = 60
"""Arrays and objects in each other in a member: one bit of a number each, and fewer than the
reference reads."""


class Names(NamedTuple):
    """The members that a format looks at in an object.

    Attributes:
        texts: their names in quotes, texts of `expected`, in TiCDC's order.
        kept: how many of them are written again; the others say that the message is another.
    """

    texts: Words
    kept: int


@compiled
def blanks_end(octets: Octets, words: Words, at: int, end: int) -> int:
    """Return the place behind the blanks at a place, if there are any."""
    while at < end and _BLANK[octets[at]]:
        at += 1
        others = words[at] ^ _SPACES
        if others == 0:
            at += 8
        else:
            # As many bytes as are spaces in a row.
            at += np.int64((((others ^ (others - ONE)) & ONES) * ONES) >> LAST_BYTE) - 1
    return min(at, end)


@compiled
def _value(
    octets: Octets, words: Words, at: int, end: int, written: Words, place: int
) -> tuple[int, int]:
    """Copy the value at a place without the blanks between its tokens.

    Returns:
        The place behind it, -1 if it is no strict JSON or too deep; and the place behind the copy.
    """
    kept, depth, state = at, 0, _VALUE
    # Bit by bit, the innermost lowest, which of the arrays and objects around are objects.
    objects = np.int64(0)
    while at < end:
        byte = octets[at]
        if byte == QUOTE:
            if state & _NAME:
                state = _COLON
            elif state & _VALUE:
                state = _ENDED
            else:
                break
            at = string_end(octets, words, at + 1, end)
            if at < 0:
                break
            at += 1
        elif byte == COLON:
            if state != _COLON:
                break
            state = _VALUE
            at += 1
            continue
        elif byte == COMMA:
            if state != _ENDED:
                break
            state = _NAME if objects & 1 else _VALUE
            at += 1
            continue
        elif byte in (CLOSE, CLOSE_ARRAY):
            if not state & _END or (byte == CLOSE) != objects & 1:
                break
            depth -= 1
            objects >>= 1
            state = _ENDED
            at += 1
        elif byte <= _SPACE:
            place = copied(words, kept, at, written, place)
            kept = blanks_end(octets, words, at, end)
            if kept == at:
                break
            at = kept
            continue
        elif not state & _VALUE:
            break
        elif byte in (OPEN, OPEN_ARRAY):
            if depth == _MOST_DEPTH:
                break
            depth += 1
            objects = objects << 1 | (byte == OPEN)
            state = (_NAME if byte == OPEN else _VALUE) | _END
            at += 1
            continue
        else:
            state = _ENDED
            if byte == MINUS or byte <= NINE:
                at = number_end(octets, at, end)
            else:
                at = word_end(octets, at, end)
            if at < 0:
                break
        if depth == 0 and state == _ENDED:
            return at, copied(words, kept, at, written, place)
    return -1, place


@compiled
def _number_of(words: Words, at: int, end: int, texts: Words, likely: int) -> int:
    """Return which of some texts stands between two places, or -1.

    `likely` is the number of the one to begin with.
    """
    for step in range(len(texts)):
        number = (likely + step) % len(texts)
        if passed(words, at, texts[number]) == end:
            return number
    return -1


@compiled
def members_copied(
    octets: Octets,
    words: Words,
    at: int,
    end: int,
    names: Names,
    found: Ints,
    written: Words,
    place: int,
) -> tuple[int, int, bool]:
    """Copy the values of those members of an object that have a name, without blanks.

    Args:
        octets: the bytes.
        words: the eight bytes at each place.
        at: where the object begins.
        end: where the message ends.
        names: the names.
        found: gets begin and end of the copy for each name that is kept, -1 for what is not there.
        written: where it is copied to, by words.
        place: at which place.

    Returns:
        The place behind the object, -1 if it is not to be written again; the place behind the
        copies; and whether these members have TiCDC's order.
    """
    texts, kept = names
    found[:] = -1
    last, ordered = np.int64(-1), True
    if at >= end or octets[at] != OPEN:
        return -1, place, ordered
    at = blanks_end(octets, words, at + 1, end)
    while at < end and octets[at] == QUOTE:
        behind = unescaped_end(octets, words, at + 1, end) + 1
        if behind <= 0:
            break
        which = _number_of(words, at, behind, texts, last + 1)
        at = blanks_end(octets, words, behind, end)
        if at >= end or octets[at] != COLON:
            break
        if which >= kept or (which >= 0 and found[which, 0] >= 0):
            break
        at = blanks_end(octets, words, at + 1, end)
        at, copy_end = _value(octets, words, at, end, written, place)
        if at < 0:
            break
        if which >= 0:
            found[which, 0], found[which, 1] = place, copy_end
            place = copy_end
            ordered = ordered and which > last
            last = which
        at = blanks_end(octets, words, at, end)
        if at >= end:
            break
        if octets[at] == CLOSE:
            return at + 1, place, ordered
        if octets[at] != COMMA:
            break
        at = blanks_end(octets, words, at + 1, end)
    return -1, place, ordered


@compiled
def text_copied(
    octets: Octets, words: Words, start: int, end: int, names: Names, found: Ints, written: Words
) -> tuple[int, bool]:
    """Copy the values of those members of a text of one object that have a name, without blanks.

    Args:
        octets: the bytes.
        words: the eight bytes at each place.
        start: where the text begins.
        end: where it ends.
        names: the names.
        found: as of `members_copied`.
        written: where it is copied to from the first place on, by words.

    Returns:
        The place behind the copies, -1 if the text is not to be written again; and whether these
        members have TiCDC's order.
    """
    at = blanks_end(octets, words, start, end)
    at, used, ordered = members_copied(octets, words, at, end, names, found, written, np.int64(0))
    if (
        at < 0
        or blanks_end(octets, words, at, end) != end
        or not is_utf8(octets, words, start, end)
    ):
        return -1, ordered
    return used, ordered


@compiled
def object_written(
    names: Names, found: Ints, values: Words, octets: Octets, words: Words, place: int
) -> int:
    """Write an object of the members that were found, and return the place behind it.

    Args:
        names: the names.
        found: begin and end of the value of each, -1 for what is not there.
        values: where these stand, by words.
        octets: where it is written.
        words: the same by words.
        place: at which place.
    """
    texts, kept = names
    between = OPEN
    for number in range(kept):
        if found[number, 0] < 0:
            continue
        octets[place] = between
        for step in range(texts.shape[2]):
            words[place + 1 + 8 * step] = texts[number, 0, step]
        place += 1 + np.int64(texts[number, 2, 0])
        octets[place] = COLON
        place = copied(values, found[number, 0], found[number, 1], words, place + 1)
        between = COMMA
    if between == OPEN:
        octets[place] = OPEN
        place += 1
    octets[place] = CLOSE
    return place + 1


@compiled
def rewritten(
    octets: Octets,
    words: Words,
    starts: Ints,
    ends: Ints,
    names: Names,
    inner: int,
    inner_names: Names,
    scratch: Sheet,
    written: Sheet,
    numbers: Ints,
    text_ends: Ints,
) -> int:
    """Write messages again, one behind the other, and return how many.

    Args:
        octets: the bytes, with padding.
        words: the eight bytes at each place.
        starts: where each message begins.
        ends: where it ends.
        names: the names of its members.
        inner: the number of a member that is an object with names of its own, or -1.
        inner_names: these names.
        scratch: three times as long as the longest message.
        written: gets the texts; as long as all messages.
        numbers: gets which message each text is of.
        text_ends: gets where it ends.
    """
    sheet, sheet_words = scratch
    text, text_words = written
    found = np.empty((names.kept, 2), np.int64)
    inner_found = np.empty((inner_names.kept, 2), np.int64)
    count, place = 0, np.int64(0)
    for number in range(len(starts)):
        start, end = starts[number], ends[number]
        used, ordered = text_copied(octets, words, start, end, names, found, sheet_words)
        if used < 0:
            continue
        if inner >= 0 and found[inner, 0] >= 0:
            value, value_end = found[inner, 0], found[inner, 1]
            behind, used, inner_ordered = members_copied(
                sheet, sheet_words, value, value_end, inner_names, inner_found, sheet_words, used
            )
            if behind != value_end:
                continue
            ordered = ordered and inner_ordered
            found[inner, 0] = used
            found[inner, 1] = object_written(
                inner_names, inner_found, sheet_words, sheet, sheet_words, used
            )
        behind = object_written(names, found, sheet_words, text, text_words, place)
        if ordered and behind - place == end - start:
            continue
        numbers[count], text_ends[count] = number, behind
        count += 1
        place = behind
    return count
