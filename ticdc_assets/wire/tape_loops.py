"""Compiled loops that read JSON of any shape: texts to a tape, and the tape to members.

In: texts, see `json_loops`. Out: a *tape*, which has a node for each value and each name of a
member, in the order of the text (`NODE`); so the nodes of a member's value follow that of its name,
and `next` leads over them. The members that somebody asks for are then found without reading the
text again, in any order, whatever stands between them.

A text is taken if it is strict JSON in UTF-8, as `go_json` reads it, with at most `MAX_DEPTH`
arrays and objects in each other. Any other has no root, and is left to the reference.

A text of so many bytes has no more nodes than bytes: each begins at another byte.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportReturnType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ticdc_assets.compiled import compiled, inlined
from ticdc_assets.values.word_loops import Words, copied, stop
from ticdc_assets.wire.character_loops import text_written
from ticdc_assets.wire.json_loops import (
    BYTE,
    CLOSE,
    CLOSE_ARRAY,
    COLON,
    COMMA,
    LETTER_E,
    MINUS,
    MIX,
    NINE,
    ONE,
    OPEN,
    OPEN_ARRAY,
    PLUS,
    POINT,
    QUOTE,
    ZERO,
    ZERO_WORD,
    Ints,
    Octets,
    Places,
    Sheet,
    Texts,
    blanks_end,
    escapes_end,
    is_utf8,
    natural,
)

NULL, FALSE, TRUE, INTEGER, NUMBER, TEXT, ESCAPED, OBJECT, ARRAY = range(1, 10)
"""What a node is: a number with a fraction or an exponent is no integer, and a text may have
escapes."""

NODE: Final = np.dtype(
    [("start", np.int32), ("end", np.int32), ("next", np.int32), ("kind", np.int32)]
)
"""Where a value begins and ends, a text without its quotes; the node behind all of it; its kind."""

Nodes: TypeAlias = Any
"""An array of nodes, or one of them; so are arrays of other fields, which no checker knows."""

NONE: Final = -1
"""Instead of a node: there is none."""

ABSENT, WRONG = -1, -2
"""Instead of a number: there is none, or another value."""

MAX_DEPTH: Final = 100
_NULL_WORD, _TRUE_WORD = (np.uint64(int.from_bytes(word, "little")) for word in (b"null", b"true"))
_FALSE_WORD: Final = np.uint64(int.from_bytes(b"false", "little"))
_FOUR_BYTES, _FIVE_BYTES = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFFFF)
_SLOT_BITS: Final = np.uint64(57)
SLOTS: Final = 128
"""How many slots names are looked for in."""


@inlined
def _digits_end(octets: Octets, at: int, end: int) -> int:
    """Return the place behind digits, one at least, or -1."""
    start = at
    while at < end and ZERO <= octets[at] <= NINE:
        at += 1
    return at if at > start else -1


@inlined
def _number_end(octets: Octets, at: int, end: int) -> tuple[int, int]:
    """Return the place behind a number and its kind, -1 if none begins at a place."""
    at += octets[at] == MINUS
    start = at
    at = _digits_end(octets, at, end)
    if at < 0 or (octets[start] == ZERO and at - start > 1):
        return -1, NUMBER
    kind = INTEGER
    if at < end and octets[at] == POINT:
        kind = NUMBER
        at = _digits_end(octets, at + 1, end)
        if at < 0:
            return -1, NUMBER
    if at < end and octets[at] | 0x20 == LETTER_E:
        kind = NUMBER
        at += 1
        at += octets[at] == MINUS or octets[at] == PLUS
        at = _digits_end(octets, at, end)
    return at, kind


@inlined
def _literal_end(words: Words, at: int) -> tuple[int, int]:
    """Return the place behind true, false or null and its kind, -1 if none begins at a place."""
    four = words[at] & _FOUR_BYTES
    if four == _NULL_WORD:
        return at + 4, NULL
    if four == _TRUE_WORD:
        return at + 4, TRUE
    if words[at] & _FIVE_BYTES == _FALSE_WORD:
        return at + 5, FALSE
    return -1, NULL


@inlined
def _string(octets: Octets, words: Words, at: int, end: int, nodes: Nodes, count: int) -> int:
    """Put the string whose quote stands at a place on the tape; return the place behind, or -1."""
    start = at + 1
    closing = stop(words, start, end)
    kind = TEXT
    if closing >= end:
        return -1
    if octets[closing] != QUOTE:
        kind = ESCAPED
        closing = escapes_end(octets, words, closing, end)
        if closing < 0:
            return -1
    node = nodes[count]
    node.start, node.end, node.next, node.kind = start, closing, count + 1, kind
    return closing + 1


@compiled
def tokenized(texts: Texts, nodes: Nodes, roots: Places) -> int:
    """Read texts onto a tape, and return how many nodes it has.

    Args:
        texts: the texts.
        nodes: gets the nodes, of which there is room for as many as bytes.
        roots: gets the first node of each text, `NONE` if it is no JSON.
    """
    octets, words, starts, ends = texts
    opened = np.empty(MAX_DEPTH, np.int32)
    count = 0
    for number in range(len(starts)):
        first, end = count, ends[number]
        roots[number] = NONE
        at = blanks_end(octets, starts[number], end)
        depth, in_object, good = 0, False, at < end
        while good:
            # One value, behind its name if it is a member's.
            good = False
            if in_object:
                if at >= end or octets[at] != QUOTE:
                    break
                at = _string(octets, words, at, end, nodes, count)
                if at < 0:
                    break
                count += 1
                at = blanks_end(octets, at, end)
                if octets[at] != COLON:
                    break
                at = blanks_end(octets, at + 1, end)
            if at >= end:
                break
            byte = octets[at]
            if byte == QUOTE:
                at = _string(octets, words, at, end, nodes, count)
                count += 1
            elif byte in (OPEN, OPEN_ARRAY):
                if depth == MAX_DEPTH:
                    break
                node = nodes[count]
                node.start = at
                node.kind = OBJECT if byte == OPEN else ARRAY
                opened[depth] = count
                depth += 1
                count += 1
                at = blanks_end(octets, at + 1, end)
                in_object = byte == OPEN
                if octets[at] != (CLOSE if in_object else CLOSE_ARRAY):
                    good = True
                    continue
                depth -= 1
                at += 1
                node.end, node.next = at, count
            else:
                start = at
                if byte == MINUS or ZERO <= byte <= NINE:
                    at, kind = _number_end(octets, at, end)
                else:
                    at, kind = _literal_end(words, at)
                node = nodes[count]
                node.start, node.end, node.next, node.kind = start, at, count + 1, kind
                count += 1
            if at < 0:
                break
            # What ends behind it, up to the next value.
            good = True
            while depth > 0:
                at = blanks_end(octets, at, end)
                node = nodes[opened[depth - 1]]
                in_object = node.kind == OBJECT
                byte = octets[at]
                at += 1
                if byte == COMMA:
                    at = blanks_end(octets, at, end)
                    break
                if byte != (CLOSE if in_object else CLOSE_ARRAY):
                    good = False
                    break
                depth -= 1
                node.end, node.next = at, count
            if depth == 0:
                at = blanks_end(octets, at, end)
                break
        if good and depth == 0 and at == end and is_utf8(octets, words, starts[number], end):
            roots[number] = first
        else:
            count = first
    return count


class Names(NamedTuple):
    """Names to be found.

    Attributes:
        words: of each its bytes by words, and the bits of these that count.
        sizes: how many bytes it has.
        slots: a table of their numbers and 1, by what `_slot` says of a name.
    """

    words: Words
    sizes: Ints
    slots: Octets


@inlined
def _slot(words: Words, at: int, size: int) -> int:
    word = words[at]
    if size < 8:
        word &= (ONE << (BYTE * np.uint64(size))) - ONE
    return np.int64(((word ^ np.uint64(size)) * MIX) >> _SLOT_BITS)


@inlined
def _number_of(words: Words, at: int, size: int, names: Names) -> int:
    """Return the number of the name at a place, -1 if it is none of these."""
    slot = _slot(words, at, size)
    while names.slots[slot] != 0:
        number = np.int64(names.slots[slot]) - 1
        if names.sizes[number] == size:
            same = True
            for word in range(names.words.shape[2]):
                differing = words[at + 8 * word] ^ names.words[number, 0, word]
                same = same and differing & names.words[number, 1, word] == ZERO_WORD
            if same:
                return number
        slot = (slot + 1) & (SLOTS - 1)
    return -1


@compiled
def names_slots(words: Words, starts: Ints, sizes: Ints) -> Octets:
    """Return the slots of names that stand at places."""
    slots = np.zeros(SLOTS, np.uint8)
    for number in range(len(starts)):
        slot = _slot(words, starts[number], sizes[number])
        while slots[slot] != 0:
            slot = (slot + 1) & (SLOTS - 1)
        slots[slot] = number + 1
    return slots


@compiled
def members(words: Words, nodes: Nodes, objects: Places, names: Names, found: Places) -> None:
    """Find the members of objects that have certain names.

    Of several of one name the last counts. A null counts as none.

    Args:
        words: the eight bytes at each place.
        nodes: the tape.
        objects: the objects' nodes. `NONE` has no member; what is no object, or has a name with an
            escape, which may be any, becomes `NONE`.
        names: the names.
        found: gets the node of each name's value in each object, `NONE` for none.
    """
    found[:] = NONE
    for number in range(len(objects)):
        top = objects[number]
        if top < 0:
            continue
        if nodes[top].kind != OBJECT:
            objects[number] = NONE
            continue
        behind = nodes[top].next
        at = top + 1
        while at < behind:
            node = nodes[at]
            if node.kind == ESCAPED:
                objects[number] = NONE
                found[:, number] = NONE
                break
            name = _number_of(words, node.start, node.end - node.start, names)
            if name >= 0:
                found[name, number] = at + 1 if nodes[at + 1].kind != NULL else NONE
            at = nodes[at + 1].next


@compiled
def words_of(words: Words, nodes: Nodes, at: Places, names: Names, found: Ints) -> None:
    """Say which of some words a text is: its number, `ABSENT` for no node, `WRONG` for others."""
    for number in range(len(at)):
        found[number] = ABSENT
        if at[number] >= 0:
            node = nodes[at[number]]
            found[number] = WRONG
            if node.kind == TEXT:
                word = _number_of(words, node.start, node.end - node.start, names)
                if word >= 0:
                    found[number] = word


@compiled
def naturals(words: Words, nodes: Nodes, at: Places, found: Ints) -> None:
    """Read integers from 0 on, of `LONGEST_NUMBER` digits at most; or `ABSENT`, or `WRONG`."""
    for number in range(len(at)):
        found[number] = ABSENT
        if at[number] >= 0:
            node = nodes[at[number]]
            read = natural(words, node.start, node.end) if node.kind == INTEGER else ABSENT
            found[number] = read if read >= 0 else WRONG


@compiled
def strings_written(texts: Texts, nodes: Nodes, at: Places, sheet: Sheet, ends: Ints) -> None:
    """Write what texts say one behind the other; `ends` gets where each ends."""
    place = np.int64(0)
    for number in range(len(at)):
        if at[number] >= 0:
            node = nodes[at[number]]
            if node.kind == ESCAPED:
                place = text_written(texts, node.start, node.end, sheet, place, False)
            else:
                place = copied(texts.words, node.start, node.end, sheet.words, place)
        ends[number] = place
