"""Compiled loops over images in JSON: the lists of their columns, and their values as text.

In: images on a tape (`token_loops`). Out: texts as `rows.image_from_json` reads them, the same as
`rows.image_to_json` writes; and lists of columns, each identified by its last column.

Most images have the columns of another image, in the same order. So columns are kept in a tree:
each follows the column before it in its image, and the caller works out what a list of them means
(repeated names, types, flags) once, not once an image. Two columns are the same if the columns
before them, the bytes of their names and their labels are the same.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportReturnType=false

from typing import Final, NamedTuple

import numpy as np

from ticdc_assets.base.compiled import compiled, inlined
from ticdc_assets.model.values.vector_loops import put_word
from ticdc_assets.model.values.word_loops import copied, same
from ticdc_assets.wire.codes import Spelling
from ticdc_assets.wire.tape.json_loops import (
    HALF,
    Flags,
    Ints,
    Octets,
    Places,
    Texts,
    hashed,
    text_written,
)
from ticdc_assets.wire.tape.token_loops import BARE, ESCAPED, NULL, OBJECT, TEXT, WHOLE, Nodes
from ticdc_assets.wire.tape.value_loops import value_written, zoned_written

CELL: Final = np.dtype([("name", np.int32), ("value", np.int32), ("column", np.int32)])
"""Columns of a member of an image: the nodes of its name and its value, and its column."""

COLUMN: Final = np.dtype(
    [
        ("before", np.int32),
        ("start", np.int32),
        ("end", np.int32),
        ("label", np.int32),
        ("child", np.int32),
    ]
)
"""Columns of a column.

The column before it, where its name is, its label, and a column after it, 0 for none.
"""

ROOT: Final = 0
"""The column before all others, which is none of any image."""

UNSURE: Final = np.dtype(
    [("image", np.int32), ("way", np.int32), ("start", np.int32), ("end", np.int32)]
)
"""A number written as sent that may not be in its shortest form: its image and its way."""

ALL_PLAIN: Final = 0x80
"""Flag in the way of a column."""

_NULL_WORD, _OPEN_WORD, _COMMA_WORD, _CLOSE_WORD, _NAME_END, _QUOTE_WORD = (
    np.uint64(int.from_bytes(text, "little")) for text in (b"null", b'{"', b',"', b"}", b'":', b'"')
)


class Images(NamedTuple):
    """Images and their members.

    Attributes:
        objects: the node of each, `NONE` for none.
        cells: `CELL` of all members, image by image.
        bounds: where the cells of each image begin, and the end of the last.
        lasts: the last column of each image, which identifies its list.
        plain: which can be copied as they are, if their values are plain texts.
        good: which are images whose values all fit their columns.
    """

    objects: Places
    cells: Nodes
    bounds: Places
    lasts: Places
    plain: Octets
    good: Flags


class Columns(NamedTuple):
    """The columns of images.

    Attributes:
        columns: `COLUMN` of each.
        slots: zeros, a power of two and more than twice as many.
        used: how many there are.
    """

    columns: Nodes
    slots: Places
    used: Ints


@compiled
def members_listed(
    octets: Octets, nodes: Nodes, firsts: Places, columns: Columns, images: Images
) -> None:
    """Find the column of each member of an object.

    The list of each image begins after the column in `firsts`. `columns` gets the new columns,
    `images` all but the objects; an absent image is good and has no cell.
    """
    objects, cells, bounds, lasts, plains, goods = images
    trie, slots, used = columns
    count = 0
    for number in range(len(objects)):
        bounds[number] = count
        top, last = objects[number], np.int64(firsts[number])
        plain, good = False, True
        if top >= 0 and nodes[top].kind != OBJECT:
            good = False
        elif top >= 0:
            behind = nodes[top].next
            # Texts without escapes and nulls without blanks have one spelling.
            odd, size, at = False, 1, top + 1
            while at < behind:
                name, value = nodes[at], nodes[at + 1]
                last = column_of(octets, name.start, name.end, 0, last, trie, slots, used)
                cell = cells[count]
                cell.name, cell.value, cell.column = at, at + 1, last
                count += 1
                is_text = value.kind == TEXT
                odd |= (name.kind != TEXT) | ((value.kind != NULL) & (not is_text))
                size += name.end - name.start + value.end - value.start + 4 + 2 * is_text
                at = value.next
            plain = not odd and size == nodes[top].end - nodes[top].start and size > 1
        lasts[number], plains[number], goods[number] = last, plain, good
    bounds[len(objects)] = count


@inlined
def column_of(
    octets: Octets,
    start: int,
    end: int,
    label: int,
    last: int,
    trie: Nodes,
    slots: Places,
    used: Ints,
) -> int:
    """Return the column whose name is between two places, with a label, after another column."""
    size = end - start
    # Nearly always it is the column that followed the last time.
    index = np.int64(trie[last].child)
    if index == 0 or not _is(octets, trie[index], last, label, start, size):
        mask = len(slots) - 1
        seed = np.uint64(last) << HALF ^ np.uint64(label)
        slot = np.int64(hashed(octets, start, end, seed) >> HALF) & mask
        index = np.int64(slots[slot])
        while index != 0:
            if _is(octets, trie[index], last, label, start, size):
                break
            slot = (slot + 1) & mask
            index = np.int64(slots[slot])
        if index == 0:
            index = used[0]
            used[0] += 1
            slots[slot] = index
            column = trie[index]
            column.before, column.label, column.child = last, label, 0
            column.start, column.end = start, end
        trie[last].child = index
    return index


@inlined
def _is(octets: Octets, column: Nodes, before: int, label: int, start: int, size: int) -> bool:
    return (
        column.before == before
        and column.label == label
        and column.end - column.start == size
        and same(octets, column.start, octets, start, size)
    )


@compiled
def images_written(
    texts: Texts,
    nodes: Nodes,
    images: Images,
    ways: Octets,
    written: Octets,
    scratch: Octets,
    ends: Ints,
    unsure: Nodes,
) -> int:
    """Write images as JSON, and return how many numbers are unsure.

    An image with a value that does not fit its column is no longer good. It is not written, nor is
    an absent one. The way of a column (`codes.Spelling`) has `ALL_PLAIN` if a string without
    escapes is the text in it and in all columns of its list before it. `scratch` is room for a
    value, `ends` gets the end of each image, `unsure` gets `UNSURE` of numbers.
    """
    octets, _, _ = texts
    objects, cells, bounds, lasts, plains, goods = images
    place, unsure_count = np.int64(0), 0
    for number in range(len(ends)):
        begin, top = place, objects[number]
        if top >= 0 and goods[number] and plains[number] and ways[lasts[number]] & ALL_PLAIN:
            place = copied(octets, nodes[top].start, nodes[top].end, written, place)
        elif top >= 0 and goods[number]:
            between = _OPEN_WORD
            for at in range(bounds[number], bounds[number + 1]):
                cell = cells[at]
                name, value = nodes[cell.name], nodes[cell.value]
                put_word(written, place, between)
                between = _COMMA_WORD
                if name.kind == ESCAPED:
                    place = text_written(octets, name.start, name.end, written, place + 2, True)
                else:
                    place = copied(octets, name.start, name.end, written, place + 2)
                put_word(written, place, _NAME_END)
                place += 2
                way, kind = ways[cell.column] & ~ALL_PLAIN, value.kind
                if kind == TEXT and Spelling.TEXT <= way <= Spelling.NUMBER:
                    place = copied(octets, value.start - 1, value.end + 1, written, place)
                elif kind == NULL and way != Spelling.REFUSED:
                    put_word(written, place, _NULL_WORD)
                    place += 4
                elif kind == BARE:
                    put_word(written, place, _QUOTE_WORD)
                    place = copied(octets, value.start, value.end, written, place + 1)
                    put_word(written, place, _QUOTE_WORD)
                    place += 1
                elif kind == WHOLE:
                    place = copied(octets, value.start, value.end, written, place)
                elif kind == OBJECT and way == Spelling.ZONED:
                    place = zoned_written(octets, nodes, cell.value, written, place)
                else:
                    place, sure = value_written(octets, value, way, written, scratch, place)
                    if not sure:
                        told = unsure[unsure_count]
                        told.image, told.way = number, way
                        told.start, told.end = value.start, value.end
                        unsure_count += 1
                if place < 0:
                    goods[number] = False
                    place = begin
                    break
            else:
                if between == _OPEN_WORD:
                    # An image without columns.
                    put_word(written, place, _OPEN_WORD)
                    place += 1
                put_word(written, place, _CLOSE_WORD)
                place += 1
        ends[number] = place
    return unsure_count
