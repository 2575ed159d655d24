"""Compiled loops for Canal-JSON: which messages describe their table equally.

In: messages on a tape (`tape.token_loops`), and the nodes of the members that describe a table.
Out: the last column of a list (`tape.image_loops`) for each message: messages with the same last
column have the same description. TiCDC writes the types of columns in another order in each
message, so the list has them in the order of their hashes.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false

from typing import Final

import numpy as np

from ticdc_assets.base.compiled import compiled
from ticdc_assets.wire.tape.image_loops import ROOT, Columns, column_of
from ticdc_assets.wire.tape.json_loops import ZERO_WORD, Octets, Places, hashed
from ticdc_assets.wire.tape.token_loops import ESCAPED, NONE, TEXT, Nodes

TYPE: Final = np.dtype([("hash", np.uint64), ("node", np.int64)])
"""The hash of a column's name, and the node of the name; 0 for none."""


@compiled
def described(
    octets: Octets,
    nodes: Nodes,
    parts: Places,
    types: Places,
    columns: Columns,
    room: Nodes,
    lasts: Places,
) -> None:
    """Find the description of each message: its last column, `NONE` if a type is not a text.

    `parts` has a row of nodes for each of the other members that describe a table, `types` the
    object of types; `NONE` for none. `columns` gets the new columns. `room` is for `TYPE`, four
    times as many as types of a message and eight.
    """
    trie, slots, used = columns
    for message in range(len(types)):
        lasts[message], top = NONE, np.int64(types[message])
        if top < 0:
            continue
        behind = np.int64(nodes[top].next)
        mask = 7
        while mask < behind - top:
            mask = 2 * mask + 1
        for slot in range(mask + 1):
            room[slot].node = 0
        at, good = top + 1, True
        while good and at < behind:
            node, digest = at, hashed(octets, nodes[at].start, nodes[at].end, ZERO_WORD)
            good = nodes[at + 1].kind in (TEXT, ESCAPED)
            at = np.int64(nodes[at + 1].next)
            slot = np.int64(digest) & mask
            # Of two types that need a slot the one with the smaller hash gets it, so that no order
            # of types leads to other slots.
            while room[slot].node != 0:
                if room[slot].hash > digest:
                    digest, room[slot].hash = room[slot].hash, digest
                    node, room[slot].node = np.int64(room[slot].node), node
                slot = (slot + 1) & mask
            room[slot].hash, room[slot].node = digest, node
        if not good:
            continue
        last = np.int64(ROOT)
        for part in range(len(parts)):
            if parts[part, message] >= 0:
                member = nodes[parts[part, message]]
                last = column_of(
                    octets, member.start, member.end, part + 1, last, trie, slots, used
                )
        for slot in range(mask + 1):
            if room[slot].node != 0:
                start, end = nodes[room[slot].node].start, nodes[room[slot].node + 1].end
                last = column_of(octets, start, end, 0, last, trie, slots, used)
        lasts[message] = last
