"""Compiled loops that read JSON of any shape: texts to a tape, and the tape to members.

In: texts, see `json_loops`. Out: a *tape*, which has a node for each value and each name of a
member, in the order of the text (`NODE`); so the nodes of a member's value follow that of its name,
and `next` skips them. Members are then looked up without reading the text again, in any order,
whatever is between them.

A text is taken if it is strict JSON in UTF-8, as `go_json` reads it, with at most `MAX_DEPTH`
nested arrays and objects. Any other text has no root, and is left to the reference.

A text has no more nodes than bytes: each begins at another byte.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.model.values.vector_loops import word_at
from ticdc_assets.model.values.word_loops import (
    copied,
    escapes_end,
    literal_end,
    number_end,
    same,
    stop,
)
from ticdc_assets.wire.codes import MAX_DEPTH, Presence
from ticdc_assets.wire.tape.json_loops import (
    BYTE,
    CLOSE,
    CLOSE_ARRAY,
    COLON,
    COMMA,
    LONGEST_NUMBER,
    MINUS,
    MIX,
    NINE,
    ONE,
    OPEN,
    OPEN_ARRAY,
    QUOTE,
    ZERO,
    Ints,
    Octets,
    Places,
    Texts,
    blanks_end,
    is_utf8,
    natural,
    text_written,
)

NULL, FALSE, TRUE, INTEGER, NUMBER, TEXT, ESCAPED, OBJECT, ARRAY, BARE, WHOLE = range(1, 12)
"""The kinds of node.

A number with a fraction or an exponent is not an integer, and a text may have escapes. The last two
are of messages that are not JSON (`binary.node_loops`): the content of a string without escapes,
which has no quotes around it, and a whole value of an image.
"""

NODE: Final = np.dtype(
    [("start", np.int32), ("end", np.int32), ("next", np.int32), ("kind", np.int32)]
)
"""Where a value begins and ends, a text without its quotes; the node after all of it; its kind."""

Nodes: TypeAlias = Any
"""An array of nodes, or one node; also arrays of other fields, whose types no checker knows."""

NONE: Final = -1
"""In place of a node: there is none."""

FOUR_BYTES: Final = np.uint64(0xFFFFFFFF)
_SLOT_BITS: Final = np.uint64(57)
SLOTS: Final = 128
"""How many slots are searched for a name."""


@inlined
def _string(octets: Octets, at: int, end: int, node: Nodes) -> int:
    """Put the string whose quote is at a place on the tape; return the place after it, or -1."""
    start = at + 1
    closing, kind = stop(octets, start, end), TEXT
    if closing >= end:
        return -1
    if octets[closing] != QUOTE:
        kind = ESCAPED
        closing = escapes_end(octets, closing, end)
        if closing < 0:
            return -1
    node.start, node.end, node.kind = start, closing, kind
    return closing + 1


class Names(NamedTuple):
    """Names to look up.

    Attributes:
        octets: their bytes, with padding.
        starts: where each begins.
        sizes: how many bytes it has.
        slots: a table of 1 plus their numbers, by the `_slot` of a name.
    """

    octets: Octets
    starts: Ints
    sizes: Ints
    slots: Octets


@inlined
def _slot(octets: Octets, at: int, size: int) -> int:
    word = word_at(octets, at)
    if size < 8:
        word &= (ONE << (BYTE * np.uint64(size))) - ONE
    return np.int64(((word ^ np.uint64(size)) * MIX) >> _SLOT_BITS)


@inlined
def _number_of(octets: Octets, at: int, size: int, names: Names) -> int:
    """Return the number of the name at a place, -1 if it is none of the names."""
    slot = _slot(octets, at, size)
    while names.slots[slot] != 0:
        number = np.int64(names.slots[slot]) - 1
        if names.sizes[number] == size and same(
            octets, at, names.octets, names.starts[number], size
        ):
            return number
        slot = (slot + 1) & (SLOTS - 1)
    return -1


@inlined
def _members_of(
    octets: Octets, nodes: Nodes, top: int, names: Names, member_nodes: Places, number: int
) -> bool:
    """Put an object's members into a column of `member_nodes`; return whether they are clear."""
    for name in range(len(member_nodes)):
        member_nodes[name, number] = NONE
    if top < 0 or nodes[top].kind != OBJECT:
        return False
    behind = nodes[top].next
    at = top + 1
    while at < behind:
        node = nodes[at]
        if node.kind == ESCAPED:
            for name in range(len(member_nodes)):
                member_nodes[name, number] = NONE
            return False
        name = _number_of(octets, node.start, node.end - node.start, names)
        if name >= 0:
            member_nodes[name, number] = at + 1 if nodes[at + 1].kind != NULL else NONE
        at = nodes[at + 1].next
    return True


@compiled
def members(
    octets: Octets, nodes: Nodes, objects: Places, names: Names, member_nodes: Places
) -> None:
    """Find the node of each name's value in objects, `NONE` for none.

    Of several of one name the last counts. A null counts as none. An object becomes `NONE` where
    members are unclear, as a name has an escape and may be any name.
    """
    for number in range(len(objects)):
        top = objects[number]
        if not _members_of(octets, nodes, top, names, member_nodes, number):
            objects[number] = NONE


@compiled
def tokenized(texts: Texts, names: Names, nodes: Nodes, roots: Places, member_nodes: Places) -> int:
    """Read texts onto a tape, and return how many nodes it has.

    There is room for as many nodes as bytes. `roots` gets the first node of each text, `NONE` if it
    is not a JSON object with clear members; `member_nodes` these members, see `members`.
    """
    octets, starts, ends = texts
    count = 0
    for number in range(len(starts)):
        first, end = count, ends[number]
        roots[number] = NONE
        at = blanks_end(octets, starts[number], end)
        # Until an array or object ends, its next node is the one around it.
        depth, in_object, inner, good = 0, False, np.int64(NONE), at < end
        while good:
            # One value, after its name if it is a member's.
            good = False
            if in_object:
                if at >= end or octets[at] != QUOTE:
                    break
                at = _string(octets, at, end, nodes[count])
                if at < 0:
                    break
                nodes[count].next = count + 1
                count += 1
                at = blanks_end(octets, at, end)
                if octets[at] != COLON:
                    break
                at = blanks_end(octets, at + 1, end)
            if at >= end:
                break
            byte = octets[at]
            if byte == QUOTE:
                at = _string(octets, at, end, nodes[count])
                nodes[count].next = count + 1
                count += 1
            elif byte in (OPEN, OPEN_ARRAY):
                if depth == MAX_DEPTH:
                    break
                node = nodes[count]
                node.start = at
                node.kind = OBJECT if byte == OPEN else ARRAY
                node.next = inner
                inner = np.int64(count)
                depth += 1
                count += 1
                at = blanks_end(octets, at + 1, end)
                in_object = byte == OPEN
                if octets[at] != (CLOSE if in_object else CLOSE_ARRAY):
                    good = True
                    continue
                depth -= 1
                at += 1
                inner = np.int64(node.next)
                node.end, node.next = at, count
                in_object = inner >= 0 and nodes[inner].kind == OBJECT
            else:
                start = at
                if byte == MINUS or ZERO <= byte <= NINE:
                    at, is_integer = number_end(octets, at, end)
                    kind = INTEGER if is_integer else NUMBER
                else:
                    at, which = literal_end(octets, at)
                    kind = NULL + which
                node = nodes[count]
                node.start, node.end, node.next, node.kind = start, at, count + 1, kind
                count += 1
            if at < 0:
                break
            # The arrays and objects that end after it, up to the next value.
            good = True
            while depth > 0:
                at = blanks_end(octets, at, end)
                byte = octets[at]
                at += 1
                if byte == COMMA:
                    at = blanks_end(octets, at, end)
                    break
                if byte != (CLOSE if in_object else CLOSE_ARRAY):
                    good = False
                    break
                depth -= 1
                node = nodes[inner]
                inner = np.int64(node.next)
                node.end, node.next = at, count
                in_object = inner >= 0 and nodes[inner].kind == OBJECT
            if depth == 0:
                at = blanks_end(octets, at, end)
                break
        good = good and depth == 0 and at == end
        good = good and is_utf8(octets, starts[number], end)
        top = first if good else NONE
        if _members_of(octets, nodes, top, names, member_nodes, number):
            roots[number] = first
        else:
            count = first
    return count


@compiled
def names_put(octets: Octets, starts: Ints, sizes: Ints, slots: Octets) -> None:
    """Put names that are at places into slots."""
    for number in range(len(starts)):
        slot = _slot(octets, starts[number], sizes[number])
        while slots[slot] != 0:
            slot = (slot + 1) & (SLOTS - 1)
        slots[slot] = number + 1


@compiled
def words_of(octets: Octets, nodes: Nodes, at: Places, names: Names, word_numbers: Ints) -> None:
    """Return which of some words a text is: its number, `NONE` for all others."""
    for number in range(len(at)):
        word_numbers[number] = NONE
        if at[number] >= 0:
            node = nodes[at[number]]
            if node.kind == TEXT:
                size = node.end - node.start
                word_numbers[number] = _number_of(octets, node.start, size, names)


_NOT_LOOKED_AT, _ABSENT, _REQUIRED = 0, int(Presence.ABSENT), int(Presence.REQUIRED)
"""The presence of a field; 0 if nobody looks at the field."""

RULE: Final = np.dtype(
    [("presence", np.int8), ("filled", np.bool_), ("kinds", np.int32), ("most", np.int64)]
)
"""The rule of a field.

Its presence, whether it is not empty, a bit for each kind that it may have, and the greatest
number, -1 if it is not a number.
"""


@compiled
def fields_checked(
    octets: Octets,
    nodes: Nodes,
    member_nodes: Places,
    types: Ints,
    rules: Nodes,
    values: Ints,
    good: Octets,
) -> None:
    """Check objects against the rules of their types, which are negative for none.

    `member_nodes` has the node of each field in each object, see `members`; `rules` the `RULE` of
    each type and field. `values` gets the number of each field, or its node; -1 if it is not there,
    or nobody reads it. `good` gets which objects follow the rules.
    """
    for number in range(len(types)):
        kind = types[number]
        is_good = kind >= 0
        for field in range(len(member_nodes)):
            values[field, number] = NONE
            if not is_good:
                continue
            rule, at = rules[kind, field], member_nodes[field, number]
            if at < 0:
                is_good = rule.presence != _REQUIRED
            elif rule.presence == _ABSENT:
                is_good = False
            elif rule.presence != _NOT_LOOKED_AT:
                node = nodes[at]
                value = np.int64(at)
                is_good = rule.kinds >> node.kind & 1 != 0
                if rule.most >= 0:
                    value = natural(octets, node.start, node.end)
                    is_good = is_good and 0 <= value <= rule.most
                elif rule.filled:
                    is_good = is_good and node.end > node.start
                elif node.kind == INTEGER:
                    # A row id: nobody reads it, and the reference knows whether a longer one fits.
                    is_good = is_good and node.end - node.start <= LONGEST_NUMBER
                values[field, number] = value
        good[number] = is_good


@compiled
def strings_written(texts: Texts, nodes: Nodes, at: Places, written: Octets, ends: Ints) -> None:
    """Write the content of texts one after the other; `ends` gets where each ends."""
    octets, _, _ = texts
    place = np.int64(0)
    for number in range(len(at)):
        if at[number] >= 0:
            node = nodes[at[number]]
            if node.kind == ESCAPED:
                place = text_written(octets, node.start, node.end, written, place, False)
            else:
                place = copied(octets, node.start, node.end, written, place)
        ends[number] = place
