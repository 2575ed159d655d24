"""Compiled loops over texts that a parser is to read: whether it may skip what it does not know.

In: records of one text, or of texts behind their lengths. Out: which of them have only texts in
UTF-8 that nest no deeper than is read. Both are properties of the whole text, so a parser that
skips parts of it and does not look at these is held to them here (`json_records`). Whether a text
is JSON at all is not asked.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportReturnType=false

import numpy as np

from ticdc_assets.compiled import compiled
from ticdc_assets.values.word_loops import Words, stop
from ticdc_assets.wire.json_loops import (
    CLOSE,
    CLOSE_ARRAY,
    OPEN,
    OPEN_ARRAY,
    QUOTE,
    Flags,
    Ints,
    Octets,
    is_utf8,
    length_at,
)

UNFRAMED, BEHIND_VERSION = -1, 8
"""Where the first length is of the texts of a record: nowhere, as it is one text; or there."""


@compiled
def _is_shallow(octets: Octets, words: Words, at: int, end: int, most: int) -> bool:
    """Return whether no more than so many arrays and objects are in each other, if it is JSON."""
    # Nearly always there are not that many at all, and to count them is a tenth of the work. The
    # two brackets that open differ in one bit.
    count = np.int64(0)
    for place in range(at, end):
        count += octets[place] | 0x20 == OPEN
    if count <= most:
        return True
    depth = 0
    while at < end:
        byte = octets[at]
        at += 1
        if byte == QUOTE:
            at = stop(words, at, end)
            while at < end and octets[at] != QUOTE:
                # Behind an escaped character, or one that no parser takes.
                at = stop(words, at + 2, end)
            at += 1
        elif byte in (OPEN, OPEN_ARRAY):
            depth += 1
            if depth > most:
                return False
        elif byte in (CLOSE, CLOSE_ARRAY):
            depth -= 1
    return True


@compiled
def _is_readable(octets: Octets, words: Words, at: int, end: int, most: int) -> bool:
    """Return whether a text is UTF-8 and nests no deeper than `most`, if it is JSON."""
    return is_utf8(octets, words, at, end) and _is_shallow(octets, words, at, end, most)


@compiled
def keep_readable(
    octets: Octets,
    words: Words,
    starts: Ints,
    ends: Ints,
    head: int,
    most: int,
    readable: Flags,
) -> None:
    """Take from the readable records those with a text that is none.

    Args:
        octets: the bytes, with padding.
        words: the eight bytes at each place.
        starts: where each record begins.
        ends: where it ends.
        head: how far from there the first length is, or `UNFRAMED`.
        most: how deep a text may nest.
        readable: of each record whether it is readable.
    """
    for number in range(len(starts)):
        at, end = starts[number], ends[number]
        good = at < end
        if head < 0:
            good = good and _is_readable(octets, words, at, end, most)
        else:
            at += head
            while good and at < end:
                size = length_at(octets, at, end)
                good = size >= 0 and _is_readable(octets, words, at + 8, at + 8 + size, most)
                at += 8 + size
        readable[number] &= good
