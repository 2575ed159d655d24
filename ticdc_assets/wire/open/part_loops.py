"""Compiled loops for Open Protocol: the parts of records, and the columns of images.

In: keys and values, each with texts after their lengths; and images on a tape, whose columns are
objects. Out: where the parts are; and the members of images for `tape.image_loops`, with the
description of its column as the label of each.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Final

import numpy as np

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.model.values.vector_loops import word_at
from ticdc_assets.wire.tape.image_loops import ROOT, Columns, Images, column_of
from ticdc_assets.wire.tape.json_loops import Octets, Texts, natural
from ticdc_assets.wire.tape.token_loops import ESCAPED, FALSE, INTEGER, NULL, OBJECT, TRUE, Nodes

PART: Final = np.dtype(
    [
        ("record", np.int32),
        ("index", np.int32),
        ("key_start", np.int32),
        ("key_end", np.int32),
        ("start", np.int32),
        ("end", np.int32),
    ]
)
"""The number of a record, that of the part in it, and where it is in the key and in the value."""

_VERSION_WORD: Final = np.uint64(1 << 56)
_TYPE, _HANDLE_KEY, _FLAGS, _VALUE = (ord(name) for name in "thfv")
MOST_FLAGS: Final = 2**16 - 1
FLAGS_SHIFT: Final = 8
HANDLE_KEY_SHIFT: Final = 24
"""Where flags and handle key are in a label, after the type code."""


@inlined
def _length_at(octets: Octets, at: int, end: int) -> int:
    """Return the length at a place if it fits before the end, else -1."""
    if at + 8 > end:
        return -1
    length = 0
    for place in range(at, at + 8):
        length = length << 8 | octets[place]
        if length > end - at:
            return -1
    return length if length <= end - at - 8 else -1


@compiled
def parts_of_records(keys: Texts, values: Texts, parts: Nodes) -> int:
    """Find the parts of records, and return how many there are.

    A record that is not well-formed has none. `parts` gets `PART` of each; each takes at least
    eight bytes of the key.
    """
    count = 0
    for record in range(len(keys.starts)):
        at, end = values.starts[record], values.ends[record]
        key_at, key_end = keys.starts[record], keys.ends[record]
        if key_end - key_at <= 8 or word_at(keys.octets, key_at) != _VERSION_WORD:
            continue
        first = count
        key_at += 8
        while key_at < key_end:
            key_size = _length_at(keys.octets, key_at, key_end)
            size = _length_at(values.octets, at, end)
            if key_size < 0 or size < 0:
                count = first
                break
            part = parts[count]
            part.record, part.index = record, count - first
            part.key_start, part.key_end = key_at + 8, key_at + 8 + key_size
            part.start, part.end = at + 8, at + 8 + size
            key_at, at = part.key_end, part.end
            count += 1
        if at != end:
            count = first
    return count


@compiled
def columns_listed(texts: Texts, nodes: Nodes, columns: Columns, images: Images) -> None:
    """Find the column of each member of an object; the member is an object too.

    `columns` gets the new columns, `images` all but the objects; those that have other members are
    not good.
    """
    octets, _, _ = texts
    objects, cells, bounds, lasts, plains, goods = images
    trie, slots, used = columns
    count = np.int64(0)
    for number in range(len(objects)):
        bounds[number] = count
        top, last, good = objects[number], np.int64(ROOT), True
        if top >= 0:
            good = nodes[top].kind == OBJECT
            at, behind = top + 1, nodes[top].next
            while good and at < behind:
                value, label = _column(octets, nodes, at + 1)
                good = value >= 0
                if not good:
                    break
                cell = cells[count]
                name = nodes[at]
                last = column_of(octets, name.start, name.end, label, last, trie, slots, used)
                cell.name, cell.value, cell.column = at, value, last
                count += 1
                at = nodes[at + 1].next
            if not good:
                count, last = np.int64(bounds[number]), np.int64(ROOT)
        lasts[number], plains[number], goods[number] = last, False, good
    bounds[len(objects)] = count


@inlined
def _column(octets: Octets, nodes: Nodes, column: int) -> tuple[int, int]:
    """Return the node of the value of a column, -1 if it is not a column, and its label."""
    if nodes[column].kind != OBJECT:
        return -1, 0
    code, flags, is_handle_key, value = np.int64(-1), np.int64(0), np.int64(0), np.int64(-1)
    at, behind = column + 1, nodes[column].next
    while at < behind:
        name, node = nodes[at], nodes[at + 1]
        if name.kind == ESCAPED:
            return -1, 0
        if name.end - name.start == 1:
            letter = octets[name.start]
            if letter == _VALUE:
                value = np.int64(at + 1)
            elif letter == _TYPE:
                code = natural(octets, node.start, node.end) if node.kind == INTEGER else -1
            elif letter == _FLAGS:
                flags = np.int64(0)
                if node.kind != NULL:
                    flags = natural(octets, node.start, node.end) if node.kind == INTEGER else -1
            elif letter == _HANDLE_KEY:
                if node.kind not in (TRUE, FALSE, NULL):
                    return -1, 0
                is_handle_key = np.int64(node.kind == TRUE)
        at = node.next
    if not 0 <= code <= 255 or not 0 <= flags <= MOST_FLAGS:
        return -1, 0
    return value, code | flags << FLAGS_SHIFT | is_handle_key << HANDLE_KEY_SHIFT
