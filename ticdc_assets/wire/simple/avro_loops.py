"""Compiled loops for the Simple protocol in Avro: the fields of rows, and the columns of images.

In: messages whose layout is the table in `avro_reference`. Out: the fields before the images, read
one after the other by a list of rules; and the entries of images for `tape.image_loops`, as nodes.
A message that is not as TiCDC writes it has no place after what was read.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Final

import numpy as np

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.wire.binary.node_loops import (
    COLUMN_BYTES,
    NULL_NODE,
    USED_NODES,
    USED_WRITTEN,
    Target,
    bytes_put,
    float_put,
    integer_put,
    number_put,
    signed,
    text_put,
    uvarint,
    varint,
    zoned_put,
)
from ticdc_assets.wire.codes import Form
from ticdc_assets.wire.tape.image_loops import ROOT, Columns, Images, column_of
from ticdc_assets.wire.tape.json_loops import ONE, Ints, Octets, Texts, is_utf8
from ticdc_assets.wire.tape.token_loops import NONE, TEXT, Nodes

NUMBER_FIELD, FLAG_FIELD, TEXT_FIELD = range(3)

RULE: Final = np.dtype([("kind", np.int32), ("skips", np.int32), ("most", np.int64)])
"""How a field is read.

Its kind, how many of the following fields are not there if it is 0 (it is the branch of an optional
field), and the greatest number.
"""

MOST_ENTRIES: Final = 65_536
_TWO: Final = np.uint64(2)


@inlined
def _ranged(octets: Octets, at: int, end: int) -> tuple[int, int]:
    """Return where bytes begin and end whose length is at a place; both are -1 if they do not."""
    size, at = uvarint(octets, at, end)
    if at < 0 or size & ONE != 0 or size >> ONE > np.uint64(end - at):
        return -1, -1
    return at, at + np.int64(size >> ONE)


@compiled
def fields_read(
    texts: Texts, target: Target, start: Octets, rules: Nodes, values: Ints, places: Ints
) -> None:
    """Read the fields before the images, by the `RULE` of each; `start` is how each row begins.

    `values` gets the number of each field in each message, or the node of its text; `NONE` where it
    is not there. `places` gets the place after the last field, -1 if it is not such a row.
    """
    octets, starts, ends = texts
    for number in range(len(starts)):
        at, end, skipped = starts[number], ends[number], np.int64(0)
        for byte in start:
            at = at + 1 if 0 <= at < end and octets[at] == byte else -1
        for field in range(len(rules)):
            values[field, number] = NONE
            if skipped > 0:
                skipped -= 1
                continue
            rule, value = rules[field], np.int64(NONE)
            if rule.kind == TEXT_FIELD:
                first, at = _ranged(octets, at, end)
                if at >= 0 and is_utf8(octets, first, at):
                    value = np.int64(target.used[USED_NODES])
                    target.used[USED_NODES] += 1
                    node = target.nodes[value]
                    node.start, node.end, node.kind = first, at, TEXT
            elif rule.kind == NUMBER_FIELD:
                value, at = varint(octets, at, end)
            elif 0 <= at < end:
                value = np.int64(octets[at])
                at += 1
            if not 0 <= value <= rule.most:
                at = -1
            if value == 0:
                skipped = np.int64(rule.skips)
            values[field, number] = value
        places[number] = at


@compiled
def entries_listed(
    target: Target,
    forms: Octets,
    ends: Ints,
    places: Ints,
    columns: Columns,
    images: Images,
) -> None:
    """Find the column of each entry of an image, and put its value on the tape.

    `forms` has the form of the values of each branch. `places` gets the place after each image that
    is there, -1 if it is not as TiCDC writes it, or has a name twice. `columns` gets the new
    columns, `images` all but the objects, which are the places of the images.
    """
    octets, nodes = target.octets, target.nodes
    objects, cells, bounds, lasts, plains, goods = images
    trie, slots, used = columns
    count = np.int64(0)
    for number in range(len(objects)):
        bounds[number] = count
        at, end = np.int64(objects[number]), ends[number]
        if at >= 0:
            twice, at = uvarint(octets, at, end)
            has_entries = twice != 0
            if twice & ONE != 0 or twice > _TWO * np.uint64(MOST_ENTRIES):
                at = -1
            left = np.int64(twice >> ONE)
            # No other image has these nodes.
            mark = target.used[USED_NODES]
            while left > 0 and at >= 0:
                left -= 1
                first, at = _ranged(octets, at, end)
                if at < 0:
                    break
                name = text_put(target, first, at, True)
                value, at = _value_put(target, forms, at, end)
                if name < 0 or value < 0 or at < 0:
                    at = np.int64(-1)
                    break
                # Entries have no order, so there is one column of each name, after the root.
                start, stop = nodes[name].start, nodes[name].end
                column = column_of(octets, start, stop, 0, ROOT, trie, slots, used)
                if trie[column].child == mark:
                    at = np.int64(-1)
                    break
                trie[column].child = mark
                cell = cells[count]
                cell.name, cell.value, cell.column = name, value, column
                target.used[USED_WRITTEN] += COLUMN_BYTES
                count += 1
            # A map that is not empty ends with an empty block.
            if has_entries and at >= 0:
                at = at + 1 if at < end and octets[at] == 0 else np.int64(-1)
            if at < 0:
                count = np.int64(bounds[number])
            places[number] = at
        lasts[number], plains[number] = ROOT, False
        goods[number] = objects[number] < 0 or at >= 0
    bounds[len(objects)] = count


@inlined
def _value_put(target: Target, forms: Octets, at: int, end: int) -> tuple[int, int]:
    """Put the value of an entry on the tape; return its node, and the place after it."""
    octets = target.octets
    twice, at = uvarint(octets, at, end)
    branch, value = np.int64(twice >> ONE), np.int64(NONE)
    if at < 0 or twice & ONE != 0 or branch >= len(forms):
        return value, -1
    form = forms[branch]
    if form == Form.NULL:
        value = np.int64(NULL_NODE)
    elif form in (Form.SIGNED, Form.UNSIGNED):
        number, at = uvarint(octets, at, end)
        if form == Form.SIGNED:
            value = integer_put(target, signed(number))
        else:
            value = number_put(target, np.uint64(signed(number)), False)
    elif form in (Form.FLOAT, Form.DOUBLE):
        size = 4 if form == Form.FLOAT else 8
        if end - at < size:
            return value, -1
        value = float_put(target, at, size, form == Form.FLOAT, False)
        at += size
    elif form in (Form.TEXT, Form.BASE64):
        first, at = _ranged(octets, at, end)
        if at >= 0 and form == Form.TEXT:
            value = text_put(target, first, at, False)
        elif at >= 0:
            value = bytes_put(target, first, at)
    elif form == Form.ZONED:
        first, last = _ranged(octets, at, end)
        second, at = _ranged(octets, last, end)
        if at >= 0:
            value = zoned_put(target, first, last, second, at)
    return value, at
