"""Compiled loops for Canal-JSON: which messages describe their table equally.

In: messages on a tape (`tape_loops`), and the nodes of the members that describe a table. Out: the
number of a *description* for each message. TiCDC writes the types of columns in another order in
each message, so two messages have the same description if all other bytes are the same, and each
type of one is a type of the other.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Final, NamedTuple

import numpy as np

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.model.values.word_loops import same
from ticdc_assets.wire.json_loops import HALF, ZERO_WORD, Ints, Octets, Places, hashed
from ticdc_assets.wire.tape_loops import ESCAPED, NONE, OBJECT, TEXT, Nodes

DESCRIPTION: Final = np.dtype(
    [("message", np.int32), ("first", np.int32), ("mask", np.int32), ("count", np.int32)]
)
"""The columns of a description.

The first message that has it; the first of the slots of its types; the mask of a slot's number; how
many types there are.
"""

TYPE: Final = np.dtype([("name", np.int32), ("value", np.int32), ("met", np.int32)])
"""The nodes of a column's name and type, 0 for none, and 1 plus the last message with them."""


class Descriptions(NamedTuple):
    """The descriptions so far.

    Attributes:
        all: `DESCRIPTION` of each.
        slots: `TYPE` of their columns.
        numbered: zeros, a power of two and twice as many as messages: 1 plus the numbers of
            descriptions, by their hash.
        used: how many there are.
    """

    all: Nodes
    slots: Nodes
    numbered: Places
    used: Ints


def room_for(messages: int, slots: Nodes) -> Descriptions:
    """Return room for the descriptions of so many messages.

    Args:
        messages: how many.
        slots: more than twice as many as types, by powers of two, and at least eight a message.
    """
    return Descriptions(
        all=np.empty(messages, DESCRIPTION),
        slots=slots,
        numbered=np.zeros(1 << (2 * messages).bit_length(), np.int32),
        used=np.zeros(1, np.int64),
    )


@compiled
def described(
    octets: Octets, nodes: Nodes, parts: Places, types: Places, found: Descriptions, which: Places
) -> None:
    """Find the description of each message.

    Args:
        octets: the bytes.
        nodes: the tape.
        parts: the nodes of the members that describe a table, without the types: one row each,
            `NONE` for none.
        types: the object of its types.
        found: gets the descriptions.
        which: gets the number of each message's description, `NONE` if it has no types.
    """
    used = np.int64(0)
    last = NONE
    for message in range(len(types)):
        which[message] = NONE
        if types[message] < 0 or nodes[types[message]].kind != OBJECT:
            continue
        # Nearly always it is the description of the message before.
        if last >= 0 and _is(octets, nodes, parts, types, found, last, message):
            which[message] = last
            continue
        seed = ZERO_WORD
        for part in range(len(parts)):
            node = parts[part, message]
            seed ^= np.uint64(part)
            if node >= 0:
                seed = hashed(octets, nodes[node].start, nodes[node].end, seed)
        place = np.int64(seed >> HALF) & (len(found.numbered) - 1)
        last = NONE
        while found.numbered[place] != 0:
            known = found.numbered[place] - 1
            if _is(octets, nodes, parts, types, found, known, message):
                last = known
                break
            place = (place + 1) & (len(found.numbered) - 1)
        if last < 0:
            size = _put(octets, nodes, types[message], found, used)
            if size == 0:
                continue
            last = found.used[0]
            found.used[0] += 1
            found.all[last].message = message
            used += size
            found.numbered[place] = last + 1
        which[message] = last


@inlined
def _slot_of(octets: Octets, node: Nodes, mask: int) -> int:
    return np.int64(hashed(octets, node.start, node.end, ZERO_WORD) >> HALF) & mask


@inlined
def _same(octets: Octets, one: Nodes, other: Nodes) -> bool:
    size = one.end - one.start
    return (
        size == other.end - other.start
        and one.kind == other.kind
        and same(octets, one.start, octets, other.start, size)
    )


@compiled
def _put(octets: Octets, nodes: Nodes, types: int, found: Descriptions, first: int) -> int:
    """Put types into slots from a place on; return how many slots, 0 if one is not a text."""
    behind, count = nodes[types].next, 0
    at = types + 1
    while at < behind:
        if nodes[at + 1].kind not in (TEXT, ESCAPED):
            return 0
        count += 1
        at += 2
    mask = 7
    while mask < 2 * count:
        mask = 2 * mask + 1
    for slot in range(first, first + mask + 1):
        found.slots[slot].name = found.slots[slot].met = 0
    at = types + 1
    while at < behind:
        slot = first + _slot_of(octets, nodes[at], mask)
        while found.slots[slot].name != 0:
            slot = first + ((slot - first + 1) & mask)
        found.slots[slot].name, found.slots[slot].value = at, at + 1
        at += 2
    description = found.all[found.used[0]]
    description.first, description.mask, description.count = first, mask, count
    return mask + 1


@inlined
def _is(
    octets: Octets,
    nodes: Nodes,
    parts: Places,
    types: Places,
    found: Descriptions,
    known: int,
    message: int,
) -> bool:
    """Return whether a message has a description."""
    description = found.all[known]
    first = description.message
    for part in range(len(parts)):
        one, other = parts[part, first], parts[part, message]
        if one < 0 or other < 0:
            if one != other:
                return False
        elif not _same(octets, nodes[one], nodes[other]):
            return False
    at, behind, count = types[message] + 1, nodes[types[message]].next, 0
    while at < behind:
        slot = description.first + _slot_of(octets, nodes[at], description.mask)
        while True:
            entry = found.slots[slot]
            if entry.name == 0:
                return False
            if _same(octets, nodes[entry.name], nodes[at]):
                break
            slot = description.first + ((slot - description.first + 1) & description.mask)
        # A type that is marked already is there twice.
        if entry.met == message + 1 or not _same(octets, nodes[entry.value], nodes[at + 1]):
            return False
        entry.met = message + 1
        count += 1
        at = nodes[at + 1].next
    return count == description.count
