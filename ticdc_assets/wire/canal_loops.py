"""Canal-JSON in exactly the bytes that TiCDC writes, read by compiled loops.

In: messages, see `json_loops`, read in two goes. Out: first what stands before the images, with the
descriptions of tables that messages say (`canal_heads`); and when each description is known to be a
table's, its rows, whose images are written with binary values in base64 (`canal_rows`). Regular are
inserts, updates and deletes of one row with whole images; the image before an update may have some
of the columns, in their order, as with the option `content-compatible`.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportReturnType=false

from typing import Final

import numpy as np

from ticdc_assets.compiled import compiled, inlined
from ticdc_assets.values.word_loops import LAST_BYTE, Words, copied
from ticdc_assets.wire.character_loops import code_point, in_base64
from ticdc_assets.wire.json_loops import (
    BYTE,
    CLOSE,
    COLON,
    COMMA,
    DELETE,
    HALF,
    INSERT,
    IRREGULAR,
    MINUS,
    MIX,
    ONE,
    OPEN,
    QUOTE,
    UPDATE,
    ZERO_WORD,
    Ints,
    Octets,
    expected,
    hashed,
    is_utf8,
    natural,
    passed,
    same_bytes,
    string_end,
)

_CANAL_HEAD: Final = expected(b'{"id":0,"database":"')[0]
_TABLE: Final = expected(b'","table":"')[0]
_PRIMARY_KEY: Final = expected(b'","pkNames":')[0]
_EMPTY_ARRAY: Final = expected(b"[]")[0]
_ARRAY: Final = expected(b'["')[0]
_ARRAY_NEXT: Final = expected(b'","')[0]
_ARRAY_END: Final = expected(b'"]')[0]
_NULL_ALONE: Final = expected(b"null")[0]
_NO_DDL: Final = expected(b',"isDdl":false,"type":"')[0]
_CANAL_INSERT, _CANAL_UPDATE, _CANAL_DELETE = expected(
    b'INSERT","es":', b'UPDATE","es":', b'DELETE","es":'
)
_CANAL_BUILD_TS: Final = expected(b',"ts":')[0]
_SQL_TYPES: Final = expected(b',"sql":"","sqlType":{')[0]
_TEXT: Final = expected(b'":"')[0]
_MYSQL_TYPES: Final = expected(b',"mysqlType":{')[0]
_NO_OLD_ROW: Final = expected(b',"old":null')[0]
_OLD_ROW: Final = expected(b',"old":[')[0]
_NEW_ROW: Final = expected(b',"data":[')[0]
_ROW_END: Final = expected(b"]")[0]
_EXTENSION: Final = expected(b',"_tidb":{"commitTs":')[0]
_EXTENSION_END: Final = expected(b"}}")[0]
_ROW_KEY: Final = expected(b',"rowkey":"')[0]
_ROW_KEY_END: Final = expected(b'"}}')[0]
_END: Final = expected(b"}")[0]

HEAD_FIELDS: Final = 7
"""Kind, es, build ts, place behind the types, description, where the message begins and ends."""

DESCRIPTION_FIELDS: Final = 10
"""Begin and end of all before `isDdl`, of the inside of `sqlType` and of that of `mysqlType` with
its brace; count of columns; number of the first of its names, of the first of its slots, and mask
of a number of a slot."""

ROW_FIELDS: Final = 8
"""Number of the message, kind, commit ts, build ts, description, whether there is only `es`, ends
of what was written of the images before and after."""


@inlined
def _primary_key_end(octets: Octets, words: Words, at: int, end: int) -> int:
    """Return the place behind an array of strings, or null."""
    none = max(passed(words, at, _NULL_ALONE), passed(words, at, _EMPTY_ARRAY))
    if none >= 0:
        return none
    at = passed(words, at, _ARRAY)
    while at >= 0:
        closing = string_end(octets, words, at, end)
        at = passed(words, closing, _ARRAY_NEXT)
        if at < 0:
            return passed(words, closing, _ARRAY_END)
    return -1


@inlined
def _sql_types(
    octets: Octets, words: Words, at: int, end: int, names: Ints, used: int
) -> tuple[int, int]:
    """Return the place behind an object of numbers, whose first name is at a place, and its size.

    The names are put behind the `used` ones, with their quotes and colon.
    """
    count = 0
    while at >= 0 and octets[at] == QUOTE:
        closing = string_end(octets, words, at + 1, end)
        if closing < 0 or octets[closing + 1] != COLON:
            return -1, 0
        names[used + count, 0], names[used + count, 1] = at, closing + 2
        count += 1
        at = closing + 2
        _, at = natural(octets, at + (octets[at] == MINUS), end)
        if at >= 0 and octets[at] == CLOSE:
            return at + 1, count
        at = at + 1 if at >= 0 and octets[at] == COMMA else -1
    return -1, 0


@inlined
def _slot_of(words: Words, start: int, end: int, mask: int) -> int:
    """Return the number of the slot where a name is looked for first."""
    # Beginning and end of a long one; nothing is read before the first byte, as all have a head.
    size = end - start
    counting = ~ZERO_WORD
    if size < 8:
        counting = (ONE << (BYTE * np.uint64(size))) - ONE
    mixed = (words[start] & counting) * MIX ^ np.uint64(size)
    if size > 8:
        mixed ^= words[end - 8]
    mixed *= MIX
    return np.int64(mixed >> HALF) & mask


@inlined
def _types_in_slots(
    octets: Octets, words: Words, at: int, end: int, slots: Ints, first: int, mask: int
) -> tuple[int, int]:
    """Put the members of an object of texts into slots, and return the place behind it.

    The slots, which are those of all descriptions, get begin and end of each member. `first` is the
    first free one, `mask` that of a slot's number: from there on more are free than it says.

    Returns:
        The place, and how many members there are.
    """
    count = 0
    for slot in range(first, first + mask + 1):
        slots[slot, 0] = slots[slot, 2] = 0
    while at >= 0 and octets[at] == QUOTE:
        closing = string_end(octets, words, at + 1, end)
        value = string_end(octets, words, passed(words, closing, _TEXT), end)
        if value < 0 or count == mask:
            return -1, 0
        slot = _slot_of(words, at + 1, closing, mask)
        while slots[first + slot, 0] != 0:
            slot = (slot + 1) & mask
        slots[first + slot, 0], slots[first + slot, 1] = at, value + 1
        count += 1
        at = value + 2
        if octets[value + 1] == CLOSE:
            return at, count
        if octets[value + 1] != COMMA:
            return -1, 0
    return -1, 0


@inlined
def _same_types(
    octets: Octets, words: Words, at: int, end: int, description: Ints, slots: Ints, stamp: int
) -> int:
    """Return the place behind an object of the same members as that of a description.

    `stamp` is another one for each object that is compared, and marks the members that were met.
    """
    if at < 0:
        return -1
    size = description[5] - description[4]
    if same_bytes(words, description[4], at, size, end):
        return at + size
    first, mask, count = description[8], description[9], 0
    while octets[at] == QUOTE:
        closing = string_end(octets, words, at + 1, end)
        if closing < 0:
            return -1
        slot = _slot_of(words, at + 1, closing, mask)
        while True:
            begin = slots[first + slot, 0]
            if begin == 0:
                return -1
            size = slots[first + slot, 1] - begin
            if same_bytes(words, begin, at, size, end):
                break
            slot = (slot + 1) & mask
        if slots[first + slot, 2] == stamp:
            return -1
        slots[first + slot, 2] = stamp
        count += 1
        at += size + 1
        if octets[at - 1] == CLOSE:
            return at if count == description[6] else -1
        if octets[at - 1] != COMMA:
            return -1
    return -1


def canal_room(size: int, count: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return what `canal_heads` writes into besides, for so many bytes and messages.

    Returns:
        Zeros for what is known by what is read of a message, a power of two of them and twice as
        many as messages; for the descriptions; for their names, of which each takes five bytes, and
        two may be begun that are none; and for their slots, up to four times as many as names and
        eight for each description.
    """
    names = size // 5 + 2
    return (
        np.zeros(1 << (2 * count).bit_length(), np.int64),
        np.zeros((count, DESCRIPTION_FIELDS), np.int64),
        np.zeros((names, 2), np.int64),
        np.zeros((4 * names + 8 * count, 3), np.int64),
    )


@compiled
def canal_heads(
    octets: Octets,
    words: Words,
    starts: Ints,
    ends: Ints,
    found: Ints,
    recent: Ints,
    numbered: Ints,
    descriptions: Ints,
    names: Ints,
    slots: Ints,
) -> tuple[int, int]:
    """Read messages of Canal-JSON up to their images.

    Types of columns come in another order in each message; those that say the same are one
    description, if the rest up to `isDdl` and the order of `sqlType` is the same too.

    Args:
        octets: the bytes, with padding.
        words: the eight bytes at each place.
        starts: where each message begins.
        ends: where it ends.
        found: gets `HEAD_FIELDS` of each message, in zeros.
        recent: 256 zeros.
        numbered: see `canal_room`, as for the next.
        descriptions: gets `DESCRIPTION_FIELDS` of each description.
        names: gets the begin and end of the names of all descriptions.
        slots: zeros.

    Returns:
        How many descriptions there are, and how many names.
    """
    # `numbered` has the number of a description and 1 by what is read of a message before its
    # types, and `recent` the last one of a table.
    size = len(numbered)
    # A regular 0 would be another type, for which all is compiled again.
    known, used, slots_used = np.int64(0), np.int64(0), np.int64(0)
    for number in range(len(starts)):
        start, end = starts[number], ends[number]
        fields = found[number]
        at = string_end(octets, words, passed(words, start, _CANAL_HEAD), end)
        at = string_end(octets, words, passed(words, at, _TABLE), end)
        head_end = _primary_key_end(octets, words, passed(words, at, _PRIMARY_KEY), end)
        word = passed(words, head_end, _NO_DDL)
        kind, at = INSERT, passed(words, word, _CANAL_INSERT)
        if at < 0:
            kind, at = UPDATE, passed(words, word, _CANAL_UPDATE)
        if at < 0:
            kind, at = DELETE, passed(words, word, _CANAL_DELETE)
        fields[1], at = natural(octets, at, end)
        fields[2], at = natural(octets, passed(words, at, _CANAL_BUILD_TS), end)
        at = passed(words, at, _SQL_TYPES)
        if at < 0:
            continue
        mixed = hashed(words, start, head_end, ZERO_WORD)
        guess = np.int64(mixed >> LAST_BYTE)
        which = recent[guess] - 1
        behind = -1
        if which >= 0:
            behind = _as_described(
                octets, words, start, head_end, at, end, descriptions[which], slots, number + 1
            )
        if behind < 0:
            sql_end, count = _sql_types(octets, words, at, end, names, used)
            if sql_end < 0:
                continue
            mixed = hashed(words, at, sql_end, mixed)
            place = np.int64(mixed >> HALF) & (size - 1)
            while numbered[place] != 0:
                which = numbered[place] - 1
                behind = _as_described(
                    octets, words, start, head_end, at, end, descriptions[which], slots, number + 1
                )
                if behind >= 0:
                    break
                place = (place + 1) & (size - 1)
            if behind < 0:
                types = passed(words, sql_end, _MYSQL_TYPES)
                mask = 7
                while mask < 2 * count:
                    mask = 2 * mask + 1
                behind, members = _types_in_slots(
                    octets, words, types, end, slots, slots_used, mask
                )
                if behind < 0 or members != count:
                    continue
                which = known
                known += 1
                description = descriptions[which]
                description[0], description[1] = start, head_end
                description[2], description[3] = at, sql_end
                description[4], description[5] = types, behind
                description[6], description[7] = count, used
                description[8], description[9] = slots_used, mask
                used += count
                slots_used += mask + 1
                numbered[place] = known
        recent[guess] = which + 1
        fields[0], fields[3], fields[4] = kind, behind, which
        fields[5], fields[6] = start, end
    return known, used


@inlined
def _as_described(
    octets: Octets,
    words: Words,
    start: int,
    head_end: int,
    at: int,
    end: int,
    description: Ints,
    slots: Ints,
    stamp: int,
) -> int:
    """Return the place behind the types of a message that are those of a description, or -1."""
    size = description[1] - description[0]
    if size != head_end - start or not same_bytes(words, description[0], start, size, end):
        return -1
    size = description[3] - description[2]
    if not same_bytes(words, description[2], at, size, end):
        return -1
    types = passed(words, at + size, _MYSQL_TYPES)
    return _same_types(octets, words, types, end, description, slots, stamp)


@inlined
def _latin1(octets: Octets, at: int, end: int, written: Octets) -> int:
    """Write the bytes that the characters of a string are, and return how many, or -1."""
    place = 0
    while at < end:
        point, at = code_point(octets, at)
        if point > 0xFF:
            return -1
        written[place] = point
        place += 1
    return place


@inlined
def _canal_image(
    octets: Octets,
    words: Words,
    at: int,
    end: int,
    names: Ints,
    binary: Octets,
    first: int,
    count: int,
    whole: bool,
    scratch: Octets,
    written: Octets,
    written_words: Words,
    place: int,
) -> tuple[int, int]:
    """Write the image at a place, with binary values in base64.

    `names` says where names stand elsewhere, `binary` which are those of binary columns; those of
    the table are `count` from `first` on, and `whole` is whether the image must have all of them.
    `scratch` is where bytes are written. There is no image at -1.

    Returns:
        The place behind it, -1 if it is none of these columns; and the place behind what was
        written.
    """
    if at < 0:
        return -1, place
    kept, before = at, OPEN
    for number in range(first, first + count):
        begin = names[number, 0]
        size = names[number, 1] - begin
        if octets[at] != before or not same_bytes(words, begin, at + 1, size, end):
            if whole:
                return -1, place
            continue
        before = COMMA
        at += 1 + size
        if octets[at] == QUOTE:
            start = at + 1
            at = string_end(octets, words, start, end)
            if at < 0:
                return -1, place
            if binary[number]:
                place = copied(words, kept, start, written_words, place)
                size = _latin1(octets, start, at, scratch)
                if size < 0:
                    return -1, place
                place = in_base64(scratch, size, written, place)
                kept = at
            at += 1
        else:
            at = passed(words, at, _NULL_ALONE)
            if at < 0:
                return -1, place
    if before == OPEN:
        # It has no column at all.
        if octets[at] != OPEN:
            return -1, place
        at += 1
    if octets[at] != CLOSE:
        return -1, place
    return at + 1, copied(words, kept, at + 1, written_words, place)


@compiled
def canal_rows(
    octets: Octets,
    words: Words,
    heads: Ints,
    descriptions: Ints,
    names: Ints,
    binary: Octets,
    refused: Octets,
    last_es: int,
    logical: int,
    found: Ints,
    scratch: Octets,
    before: Octets,
    before_words: Words,
    after: Octets,
    after_words: Words,
) -> int:
    """Read the images of messages of Canal-JSON, and return of how many rows.

    Args:
        octets: the bytes, with padding.
        words: the eight bytes at each place.
        heads: `HEAD_FIELDS` of each message.
        descriptions: `DESCRIPTION_FIELDS` of each description.
        names: the begin and end of the names of all descriptions.
        binary: which of these names are those of binary columns.
        refused: which descriptions are none.
        last_es: the greatest `es` that is part of a TSO.
        logical: bits of the logical part of a TSO.
        found: gets `ROW_FIELDS` of each row, those that are regular.
        scratch: as long as the bytes that are read.
        before: gets the images before, with padding; twice as long as the bytes that are read.
        before_words: the same by words.
        after: gets the images after, in the same way.
        after_words: the same by words.
    """
    count, old_end, new_end = 0, np.int64(0), np.int64(0)
    for number in range(len(heads)):
        head = heads[number]
        kind, es, at, which, start, end = head[0], head[1], head[3], head[4], head[5], head[6]
        if kind == IRREGULAR or refused[which]:
            continue
        first, size = descriptions[which, 7], descriptions[which, 6]
        old_place, place = old_end, new_end
        if kind == UPDATE:
            at = passed(words, at, _OLD_ROW)
            at, old_place = _canal_image(
                octets,
                words,
                at,
                end,
                names,
                binary,
                first,
                size,
                False,
                scratch,
                before,
                before_words,
                old_place,
            )
            at = passed(words, at, _ROW_END)
        else:
            at = passed(words, at, _NO_OLD_ROW)
        at = passed(words, at, _NEW_ROW)
        if kind == DELETE:
            at, old_place = _canal_image(
                octets,
                words,
                at,
                end,
                names,
                binary,
                first,
                size,
                True,
                scratch,
                before,
                before_words,
                old_place,
            )
        else:
            at, place = _canal_image(
                octets,
                words,
                at,
                end,
                names,
                binary,
                first,
                size,
                True,
                scratch,
                after,
                after_words,
                place,
            )
        at = passed(words, at, _ROW_END)
        tail = passed(words, at, _EXTENSION)
        if tail >= 0:
            commit_ts, tail = natural(octets, tail, end)
            at = passed(words, tail, _EXTENSION_END)
            if at < 0:
                at = string_end(octets, words, passed(words, tail, _ROW_KEY), end)
                at = passed(words, at, _ROW_KEY_END)
        else:
            if es > last_es:
                continue
            commit_ts = es << logical
            at = passed(words, at, _END)
        if at != end or not is_utf8(octets, words, start, end):
            continue
        found[count, 0], found[count, 1], found[count, 2] = number, kind, commit_ts
        found[count, 3], found[count, 4], found[count, 5] = head[2], which, tail < 0
        found[count, 6], found[count, 7] = old_place, place
        count += 1
        old_end, new_end = old_place, place
    return count
