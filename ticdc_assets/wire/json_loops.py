"""JSON in exactly the bytes that TiCDC writes, read by compiled loops.

In: the bytes of many messages one behind the other, with padding (`byte_columns.Buffer`), and where
each begins and ends. Out: for each message whether it has the plain shape of its format, and the
numbers and places that were read. A message is read once, from its first byte to its last: what
stands between its strings is compared with what TiCDC writes, and its strings are what JSON allows:
UTF-8 without control characters, with JSON's escapes, none of them half of a surrogate pair.
Whatever differs in one byte is not plain, and left to a parser.

A place is -1 where something else stood than what was expected, and what is read from there is -1
again.

Nothing is read outside the padded bytes. A place only grows: by a string or a number, which end
before the end of the message and refuse to begin there or behind it, and between two of these by
less than half of `PADDING`. A message is plain only if reading it stopped exactly at its end, so
one that runs into the next is none.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportReturnType=false

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ticdc_assets.compiled import compiled
from ticdc_assets.values.word_loops import LAST_BYTE, TOPS, Words, copied, stop

Octets: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _COLON, _COMMA, _ZERO, _NINE, _MINUS, _PAD, _LETTER_U = (
    ord(char) for char in '"\\{}:,09-=u'
)
_OPEN_ARRAY, _CLOSE_ARRAY = (ord(char) for char in "[]")
_LONGEST_NUMBER: Final = 18
"""Digits that are read of a number: as many as always fit in 64 bits with a sign."""

_ONE: Final = np.uint64(1)
_EIGHT: Final = 8


def _expected(*texts: bytes) -> Words:
    """Return texts as words: what the bytes are, which of them count, and how many there are."""
    size = max(len(text) + _EIGHT - 1 for text in texts) // _EIGHT
    found = np.zeros((len(texts), 3, size), np.uint64)
    for number, text in enumerate(texts):
        found[number, 0] = np.frombuffer(text.ljust(size * _EIGHT, b"\0"), "<u8")
        counting = (b"\xff" * len(text)).ljust(size * _EIGHT, b"\0")
        found[number, 1] = np.frombuffer(counting, "<u8")
        found[number, 2] = len(text)
    return found


def _table(chars: bytes) -> Octets:
    found = np.zeros(256, np.uint8)
    found[list(chars)] = 1
    return found


_ESCAPED: Final = _table(b'"\\/bfnrt')
_UNESCAPED: Final = np.zeros(256, np.uint8)
_UNESCAPED[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
_BASE64: Final = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_HEX: Final = _table(b"0123456789abcdefABCDEF")
_SURROGATE: Final = _table(b"89abcdefABCDEF")


@compiled
def _behind(words: Words, at: int, text: Words) -> int:
    """Return the place behind a text, one of `_expected`, that stands at a place, or -1."""
    if at < 0:
        return -1
    for number in range(text.shape[1]):
        if words[at + 8 * number] & text[1, number] != text[0, number]:
            return -1
    return at + np.int64(text[2, 0])


@compiled
def _string_end(octets: Octets, words: Words, at: int, end: int) -> int:
    """Return the place of the closing quote of the string whose first character is at a place."""
    if at < 0:
        return -1
    while True:
        at = stop(words, at, end)
        if at >= end:
            return -1
        byte = octets[at]
        if byte == _QUOTE:
            return at
        if byte != _BACKSLASH:
            return -1
        at += 1
        byte = octets[at]
        if byte == _LETTER_U:
            if not (
                _HEX[octets[at + 1]]
                and _HEX[octets[at + 2]]
                and _HEX[octets[at + 3]]
                and _HEX[octets[at + 4]]
            ):
                return -1
            if octets[at + 1] | 0x20 == 0x64 and _SURROGATE[octets[at + 2]]:
                return -1
            at += 5
        elif _ESCAPED[byte]:
            at += 1
        else:
            return -1


@compiled
def _natural(octets: Octets, at: int, end: int) -> tuple[int, int]:
    """Return the number that begins at a place, without a leading zero, and the place behind it.

    The place is -1 if there is none, or a longer one than `_LONGEST_NUMBER`.
    """
    if at < 0 or at >= end:
        return 0, -1
    number, start = 0, at
    while _ZERO <= octets[at] <= _NINE and at - start <= _LONGEST_NUMBER:
        number = number * 10 + octets[at] - _ZERO
        at += 1
    size = at - start
    if size == 0 or size > _LONGEST_NUMBER or (size > 1 and octets[start] == _ZERO):
        return 0, -1
    return number, at


@compiled
def _is_utf8(octets: Octets, words: Words, at: int, end: int) -> bool:
    """Return whether what stands between two places is UTF-8."""
    while at < end:
        if words[at] & TOPS == 0:
            at += 8
            continue
        byte = octets[at]
        if byte < 0x80:
            at += 1
            continue
        if byte < 0xC2 or byte > 0xF4:
            return False
        size = 2 + (byte >= 0xE0) + (byte >= 0xF0)
        if at + size > end:
            return False
        second = octets[at + 1]
        if (
            (byte == 0xE0 and second < 0xA0)
            or (byte == 0xED and second > 0x9F)
            or (byte == 0xF0 and second < 0x90)
            or (byte == 0xF4 and second > 0x8F)
        ):
            return False
        for number in range(1, size):
            if octets[at + number] & 0xC0 != 0x80:
                return False
        at += size
    return True


@compiled
def _name_end(octets: Octets, words: Words, at: int, end: int) -> int:
    """Return the place of the closing quote of a string that is not empty and has no escape."""
    closing = _string_end(octets, words, at, end)
    if closing <= at:
        return -1
    for place in range(at, closing):
        if octets[place] == _BACKSLASH:
            return -1
    return closing


@compiled
def gathered(words: Words, starts: Ints, ends: Ints, written: Words) -> None:
    """Write what stands between places one behind the other.

    Args:
        words: the eight bytes at each place.
        starts: where each begins.
        ends: where each ends.
        written: the eight bytes at each place of what is written, which has padding too.
    """
    place = np.int64(0)
    for number in range(len(starts)):
        place = copied(words, starts[number], ends[number], written, place)


# --- what a parser skips ---

UNFRAMED, BEHIND_VERSION = -1, 8
"""Where the first length is of the texts of a record: nowhere, as it is one text; or there."""


@compiled
def _length(octets: Octets, at: int, end: int) -> int:
    """Return the length that stands at a place and fits in before the end, or -1."""
    if at < 0 or at + 8 > end:
        return -1
    length = 0
    for place in range(at, at + 8):
        length = length << 8 | octets[place]
        if length > end - at:
            return -1
    return length if length <= end - at - 8 else -1


@compiled
def _is_shallow(octets: Octets, words: Words, at: int, end: int, most: int) -> bool:
    """Return whether no more than so many arrays and objects are in each other, if it is JSON."""
    # Nearly always there are not that many at all, and to count them is a tenth of the work. The
    # two brackets that open differ in one bit.
    count = np.int64(0)
    for place in range(at, end):
        count += octets[place] | 0x20 == _OPEN
    if count <= most:
        return True
    depth = 0
    while at < end:
        byte = octets[at]
        at += 1
        if byte == _QUOTE:
            at = stop(words, at, end)
            while at < end and octets[at] != _QUOTE:
                # Behind an escaped character, or one that no parser takes.
                at = stop(words, at + 2, end)
            at += 1
        elif byte in (_OPEN, _OPEN_ARRAY):
            depth += 1
            if depth > most:
                return False
        elif byte in (_CLOSE, _CLOSE_ARRAY):
            depth -= 1
    return True


@compiled
def _is_readable(octets: Octets, words: Words, at: int, end: int, most: int) -> bool:
    """Return whether a text is UTF-8 and nests no deeper than `most`, if it is JSON."""
    return _is_utf8(octets, words, at, end) and _is_shallow(octets, words, at, end, most)


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
                size = _length(octets, at, end)
                good = size >= 0 and _is_readable(octets, words, at + 8, at + 8 + size, most)
                at += 8 + size
        readable[number] &= good


# --- Simple JSON ---

_HEAD: Final = _expected(b'{"version":1,"database":"')[0]
_WATERMARK_HEAD: Final = _expected(b'{"version":1,"type":"WATERMARK","commitTs":')[0]
_TABLE: Final = _expected(b'","table":"')[0]
_TABLE_ID: Final = _expected(b'","tableID":')[0]
_TYPE: Final = _expected(b',"type":"')[0]
_INSERT, _UPDATE, _DELETE = _expected(
    b'INSERT","commitTs":', b'UPDATE","commitTs":', b'DELETE","commitTs":'
)
_BUILD_TS: Final = _expected(b',"buildTs":')[0]
_SCHEMA_VERSION: Final = _expected(b',"schemaVersion":')[0]
_DATA: Final = _expected(b',"data":')[0]
_OLD: Final = _expected(b',"old":')[0]
_BEGIN: Final = _expected(b'{"')[0]
_NEXT: Final = _expected(b',"')[0]
_TEXT: Final = _expected(b'":"')[0]
_NULL: Final = _expected(b'":null')[0]
_MOMENT: Final = _expected(b'":{"location":"')[0]
_MOMENT_VALUE: Final = _expected(b'","value":"')[0]
_MOMENT_END: Final = _expected(b'"}')[0]
_END: Final = _expected(b"}")[0]

NOT_PLAIN, INSERT, UPDATE, DELETE, WATERMARK = range(5)
"""What a message is."""

SIMPLE_FIELDS: Final = 13
"""Kind, commit ts, build ts, table id, schema version; and begin and end of the name of the
database, that of the table, the image before and the image after, 0 and 0 where there is none."""


@compiled
def _simple_image(octets: Octets, words: Words, at: int, end: int) -> int:
    """Return the place behind the image that begins at a place, or -1.

    Its members, one at least, are each a text, null or a zoned timestamp.
    """
    at = _behind(words, at, _BEGIN)
    while at >= 0:
        name_end = _string_end(octets, words, at, end)
        at = _behind(words, name_end, _TEXT)
        if at >= 0:
            at = _string_end(octets, words, at, end)
            at += at >= 0
        else:
            at = _behind(words, name_end, _NULL)
        if at < 0:
            at = _string_end(octets, words, _behind(words, name_end, _MOMENT), end)
            at = _string_end(octets, words, _behind(words, at, _MOMENT_VALUE), end)
            at = _behind(words, at, _MOMENT_END)
        if at >= 0 and octets[at] == _CLOSE:
            return at + 1
        at = _behind(words, at, _NEXT)
    return -1


@compiled
def _simple_message(octets: Octets, words: Words, start: int, end: int, fields: Ints) -> int:
    """Return the kind of a message, and fill its other fields."""
    at = _behind(words, start, _WATERMARK_HEAD)
    if at >= 0:
        fields[1], at = _natural(octets, at, end)
        fields[2], at = _natural(octets, _behind(words, at, _BUILD_TS), end)
        return WATERMARK if _behind(words, at, _END) == end else NOT_PLAIN
    fields[5] = _behind(words, start, _HEAD)
    fields[6] = _name_end(octets, words, fields[5], end)
    fields[7] = _behind(words, fields[6], _TABLE)
    fields[8] = _name_end(octets, words, fields[7], end)
    fields[3], at = _natural(octets, _behind(words, fields[8], _TABLE_ID), end)
    word = _behind(words, at, _TYPE)
    kind, at = INSERT, _behind(words, word, _INSERT)
    if at < 0:
        kind, at = UPDATE, _behind(words, word, _UPDATE)
    if at < 0:
        kind, at = DELETE, _behind(words, word, _DELETE)
    fields[1], at = _natural(octets, at, end)
    fields[2], at = _natural(octets, _behind(words, at, _BUILD_TS), end)
    fields[4], at = _natural(octets, _behind(words, at, _SCHEMA_VERSION), end)
    if kind != DELETE:
        fields[11] = _behind(words, at, _DATA)
        fields[12] = at = _simple_image(octets, words, fields[11], end)
    if kind != INSERT:
        fields[9] = _behind(words, at, _OLD)
        fields[10] = at = _simple_image(octets, words, fields[9], end)
    return kind if _behind(words, at, _END) == end else NOT_PLAIN


@compiled
def simple_messages(octets: Octets, words: Words, starts: Ints, ends: Ints, found: Ints) -> None:
    """Read messages of Simple JSON.

    Args:
        octets: the bytes, with padding.
        words: the eight bytes at each place.
        starts: where each message begins.
        ends: where it ends.
        found: gets `SIMPLE_FIELDS` of each message, in zeros.
    """
    for number in range(len(starts)):
        start, end = starts[number], ends[number]
        kind = _simple_message(octets, words, start, end, found[number])
        if kind != NOT_PLAIN and _is_utf8(octets, words, start, end):
            found[number, 0] = kind


# --- Canal-JSON ---

_CANAL_HEAD: Final = _expected(b'{"id":0,"database":"')[0]
_PRIMARY_KEY: Final = _expected(b'","pkNames":')[0]
_EMPTY_ARRAY: Final = _expected(b"[]")[0]
_ARRAY: Final = _expected(b'["')[0]
_ARRAY_NEXT: Final = _expected(b'","')[0]
_ARRAY_END: Final = _expected(b'"]')[0]
_NULL_ALONE: Final = _expected(b"null")[0]
_NO_DDL: Final = _expected(b',"isDdl":false,"type":"')[0]
_CANAL_INSERT, _CANAL_UPDATE, _CANAL_DELETE = _expected(
    b'INSERT","es":', b'UPDATE","es":', b'DELETE","es":'
)
_CANAL_BUILD_TS: Final = _expected(b',"ts":')[0]
_SQL_TYPES: Final = _expected(b',"sql":"","sqlType":{')[0]
_MYSQL_TYPES: Final = _expected(b',"mysqlType":{')[0]
_NO_OLD_ROW: Final = _expected(b',"old":null')[0]
_OLD_ROW: Final = _expected(b',"old":[')[0]
_NEW_ROW: Final = _expected(b',"data":[')[0]
_ROW_END: Final = _expected(b"]")[0]
_EXTENSION: Final = _expected(b',"_tidb":{"commitTs":')[0]
_EXTENSION_END: Final = _expected(b"}}")[0]

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF, _BYTE, _ZERO_WORD = np.uint64(32), np.uint64(8), np.uint64(0)

HEAD_FIELDS: Final = 7
"""Kind, es, build ts, place behind the types, description, where the message begins and ends."""

DESCRIPTION_FIELDS: Final = 10
"""Begin and end of all before `isDdl`, of the inside of `sqlType` and of that of `mysqlType` with
its brace; count of columns; number of the first of its names, of the first of its slots, and mask
of a number of a slot."""

ROW_FIELDS: Final = 8
"""Number of the message, kind, commit ts, build ts, description, whether there is only `es`, ends
of what was written of the images before and after."""


@compiled
def _same_bytes(words: Words, one: int, other: int, size: int, end: int) -> bool:
    """Return whether the same bytes stand at two places, before the end of the other."""
    if other + size > end:
        return False
    whole = size & -8
    for step in range(0, whole, 8):
        if words[one + step] != words[other + step]:
            return False
    counting = (_ONE << (_BYTE * np.uint64(size & 7))) - _ONE
    return ((words[one + whole] ^ words[other + whole]) & counting) == _ZERO_WORD


@compiled
def _hashed(words: Words, start: int, end: int, seed: np.uint64) -> np.uint64:
    """Return a number for what stands between two places."""
    size = end - start
    whole = size & -8
    for step in range(0, whole, 8):
        seed = (seed ^ words[start + step]) * _MIX
        seed ^= seed >> _HALF
    counting = (_ONE << (_BYTE * np.uint64(size & 7))) - _ONE
    seed = (seed ^ (words[start + whole] & counting) ^ np.uint64(size)) * _MIX
    return seed ^ (seed >> _HALF)


@compiled
def _primary_key_end(octets: Octets, words: Words, at: int, end: int) -> int:
    """Return the place behind an array of strings, or null."""
    none = max(_behind(words, at, _NULL_ALONE), _behind(words, at, _EMPTY_ARRAY))
    if none >= 0:
        return none
    at = _behind(words, at, _ARRAY)
    while at >= 0:
        closing = _string_end(octets, words, at, end)
        at = _behind(words, closing, _ARRAY_NEXT)
        if at < 0:
            return _behind(words, closing, _ARRAY_END)
    return -1


@compiled
def _sql_types(
    octets: Octets, words: Words, at: int, end: int, names: Ints, used: int
) -> tuple[int, int]:
    """Return the place behind an object of numbers, whose first name is at a place, and its size.

    The names are put behind the `used` ones, with their quotes and colon.
    """
    count = 0
    while at >= 0 and octets[at] == _QUOTE:
        closing = _string_end(octets, words, at + 1, end)
        if closing < 0 or octets[closing + 1] != _COLON:
            return -1, 0
        names[used + count, 0], names[used + count, 1] = at, closing + 2
        count += 1
        at = closing + 2
        _, at = _natural(octets, at + (octets[at] == _MINUS), end)
        if at >= 0 and octets[at] == _CLOSE:
            return at + 1, count
        at = at + 1 if at >= 0 and octets[at] == _COMMA else -1
    return -1, 0


@compiled
def _slot_of(words: Words, start: int, end: int, mask: int) -> int:
    """Return the number of the slot where a name is looked for first."""
    # Beginning and end of a long one; nothing is read before the first byte, as all have a head.
    size = end - start
    counting = ~_ZERO_WORD
    if size < 8:
        counting = (_ONE << (_BYTE * np.uint64(size))) - _ONE
    mixed = (words[start] & counting) * _MIX ^ np.uint64(size)
    if size > 8:
        mixed ^= words[end - 8]
    mixed *= _MIX
    return np.int64(mixed >> _HALF) & mask


@compiled
def _types_in_slots(
    octets: Octets, words: Words, at: int, end: int, slots: Ints, first: int, mask: int
) -> tuple[int, int]:
    """Put the members of an object of texts into slots, and return the place behind it.

    Args:
        octets: the bytes.
        words: the eight bytes at each place.
        at: where the first name begins.
        end: where the message ends.
        slots: those of all descriptions; get the begin and end of each member.
        first: the first that is free.
        mask: of a number of a slot; more slots than it says from there on are free.

    Returns:
        The place, and how many members there are.
    """
    count = 0
    for slot in range(first, first + mask + 1):
        slots[slot, 0] = slots[slot, 2] = 0
    while at >= 0 and octets[at] == _QUOTE:
        closing = _string_end(octets, words, at + 1, end)
        value = _string_end(octets, words, _behind(words, closing, _TEXT), end)
        if value < 0 or count == mask:
            return -1, 0
        slot = _slot_of(words, at + 1, closing, mask)
        while slots[first + slot, 0] != 0:
            slot = (slot + 1) & mask
        slots[first + slot, 0], slots[first + slot, 1] = at, value + 1
        count += 1
        at = value + 2
        if octets[value + 1] == _CLOSE:
            return at, count
        if octets[value + 1] != _COMMA:
            return -1, 0
    return -1, 0


@compiled
def _same_types(
    octets: Octets, words: Words, at: int, end: int, description: Ints, slots: Ints, stamp: int
) -> int:
    """Return the place behind an object of the same members as that of a description.

    Args:
        octets: the bytes.
        words: the eight bytes at each place.
        at: where its first name begins.
        end: where the message ends.
        description: what is known.
        slots: those of all descriptions.
        stamp: another one for each object that is compared; marks the members that were met.
    """
    if at < 0:
        return -1
    size = description[5] - description[4]
    if _same_bytes(words, description[4], at, size, end):
        return at + size
    first, mask, count = description[8], description[9], 0
    while octets[at] == _QUOTE:
        closing = _string_end(octets, words, at + 1, end)
        if closing < 0:
            return -1
        slot = _slot_of(words, at + 1, closing, mask)
        while True:
            begin = slots[first + slot, 0]
            if begin == 0:
                return -1
            size = slots[first + slot, 1] - begin
            if _same_bytes(words, begin, at, size, end):
                break
            slot = (slot + 1) & mask
        if slots[first + slot, 2] == stamp:
            return -1
        slots[first + slot, 2] = stamp
        count += 1
        at += size + 1
        if octets[at - 1] == _CLOSE:
            return at if count == description[6] else -1
        if octets[at - 1] != _COMMA:
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
    # A plain 0 would be another type, for which all is compiled again.
    known, used, slots_used = np.int64(0), np.int64(0), np.int64(0)
    for number in range(len(starts)):
        start, end = starts[number], ends[number]
        fields = found[number]
        at = _string_end(octets, words, _behind(words, start, _CANAL_HEAD), end)
        at = _string_end(octets, words, _behind(words, at, _TABLE), end)
        head_end = _primary_key_end(octets, words, _behind(words, at, _PRIMARY_KEY), end)
        word = _behind(words, head_end, _NO_DDL)
        kind, at = INSERT, _behind(words, word, _CANAL_INSERT)
        if at < 0:
            kind, at = UPDATE, _behind(words, word, _CANAL_UPDATE)
        if at < 0:
            kind, at = DELETE, _behind(words, word, _CANAL_DELETE)
        fields[1], at = _natural(octets, at, end)
        fields[2], at = _natural(octets, _behind(words, at, _CANAL_BUILD_TS), end)
        at = _behind(words, at, _SQL_TYPES)
        if at < 0:
            continue
        mixed = _hashed(words, start, head_end, _ZERO_WORD)
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
            mixed = _hashed(words, at, sql_end, mixed)
            place = np.int64(mixed >> _HALF) & (size - 1)
            while numbered[place] != 0:
                which = numbered[place] - 1
                behind = _as_described(
                    octets, words, start, head_end, at, end, descriptions[which], slots, number + 1
                )
                if behind >= 0:
                    break
                place = (place + 1) & (size - 1)
            if behind < 0:
                types = _behind(words, sql_end, _MYSQL_TYPES)
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


@compiled
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
    if size != head_end - start or not _same_bytes(words, description[0], start, size, end):
        return -1
    size = description[3] - description[2]
    if not _same_bytes(words, description[2], at, size, end):
        return -1
    types = _behind(words, at + size, _MYSQL_TYPES)
    return _same_types(octets, words, types, end, description, slots, stamp)


@compiled
def _hex_digit(byte: int) -> int:
    """Return what a hexadecimal digit counts."""
    # Letters have 9 less in their low bits.
    return (np.int64(byte) & 15) + (9 if byte > 0x40 else 0)


@compiled
def _code_point(octets: Octets, at: int) -> tuple[int, int]:
    """Return the character of a string in UTF-8 at a place, and the place behind it.

    The string has been read before; its escapes are none of surrogates.
    """
    byte = np.int64(octets[at])
    if byte < 0x80:
        if byte != _BACKSLASH:
            return byte, at + 1
        letter = octets[at + 1]
        if letter != _LETTER_U:
            return np.int64(_UNESCAPED[letter]), at + 2
        point = np.int64(0)
        for place in range(at + 2, at + 6):
            point = point << 4 | _hex_digit(octets[place])
        return point, at + 6
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | (octets[at + 1] & 0x3F), at + 2
    if byte < 0xF0:
        point = (byte & 0x0F) << 12 | (octets[at + 1] & 0x3F) << 6 | (octets[at + 2] & 0x3F)
        return point, at + 3
    point = (byte & 0x07) << 18 | (octets[at + 1] & 0x3F) << 12
    return point | (octets[at + 2] & 0x3F) << 6 | (octets[at + 3] & 0x3F), at + 4


@compiled
def _four(written: Octets, place: int, three: int) -> None:
    """Write three bytes as base64."""
    written[place] = _BASE64[three >> 18]
    written[place + 1] = _BASE64[three >> 12 & 63]
    written[place + 2] = _BASE64[three >> 6 & 63]
    written[place + 3] = _BASE64[three & 63]


@compiled
def _in_base64(octets: Octets, end: int, written: Octets, place: int) -> int:
    """Write the first bytes of an array as base64, and return the place behind it."""
    whole = end - end % 3
    for at in range(0, whole, 3):
        three = np.int64(octets[at]) << 16 | np.int64(octets[at + 1]) << 8 | octets[at + 2]
        _four(written, place, three)
        place += 4
    if whole == end:
        return place
    three, two = np.int64(octets[whole]) << 16, end - whole == 2
    if two:
        three |= np.int64(octets[whole + 1]) << 8
    _four(written, place, three)
    written[place + 3] = _PAD
    if not two:
        written[place + 2] = _PAD
    return place + 4


@compiled
def _latin1(octets: Octets, at: int, end: int, written: Octets) -> int:
    """Write the bytes that the characters of a string are, and return how many, or -1."""
    place = 0
    while at < end:
        point, at = _code_point(octets, at)
        if point > 0xFF:
            return -1
        written[place] = point
        place += 1
    return place


@compiled
def _canal_image(
    octets: Octets,
    words: Words,
    at: int,
    end: int,
    names: Ints,
    binary: Octets,
    first: int,
    count: int,
    scratch: Octets,
    written: Octets,
    written_words: Words,
    place: int,
) -> tuple[int, int]:
    """Write the image at a place, with binary values in base64.

    Args:
        octets: the bytes.
        words: the eight bytes at each place.
        at: where it begins; -1 if there is none.
        end: where the message ends.
        names: where names stand elsewhere.
        binary: which of these are those of binary columns.
        first: the number of its first name.
        count: how many it has.
        scratch: where their bytes are written.
        written: where it is written.
        written_words: the same by words.
        place: at which place.

    Returns:
        The place behind it, -1 if it is none of these columns; and the place behind what was
        written.
    """
    if at < 0:
        return -1, place
    kept, before = at, _OPEN
    for number in range(first, first + count):
        begin = names[number, 0]
        size = names[number, 1] - begin
        if octets[at] != before or not _same_bytes(words, begin, at + 1, size, end):
            return -1, place
        before = _COMMA
        at += 1 + size
        if octets[at] == _QUOTE:
            start = at + 1
            at = _string_end(octets, words, start, end)
            if at < 0:
                return -1, place
            if binary[number]:
                place = copied(words, kept, start, written_words, place)
                size = _latin1(octets, start, at, scratch)
                if size < 0:
                    return -1, place
                place = _in_base64(scratch, size, written, place)
                kept = at
            at += 1
        else:
            at = _behind(words, at, _NULL_ALONE)
            if at < 0:
                return -1, place
    if octets[at] != _CLOSE:
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
        found: gets `ROW_FIELDS` of each row, those that are plain.
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
        if kind == NOT_PLAIN or refused[which]:
            continue
        first, size = descriptions[which, 7], descriptions[which, 6]
        old_place, place = old_end, new_end
        if kind == UPDATE:
            at = _behind(words, at, _OLD_ROW)
            at, old_place = _canal_image(
                octets,
                words,
                at,
                end,
                names,
                binary,
                first,
                size,
                scratch,
                before,
                before_words,
                old_place,
            )
            at = _behind(words, at, _ROW_END)
        else:
            at = _behind(words, at, _NO_OLD_ROW)
        at = _behind(words, at, _NEW_ROW)
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
                scratch,
                after,
                after_words,
                place,
            )
        at = _behind(words, at, _ROW_END)
        tail = _behind(words, at, _EXTENSION)
        if tail >= 0:
            commit_ts, tail = _natural(octets, tail, end)
            at = _behind(words, tail, _EXTENSION_END)
        else:
            if es > last_es:
                continue
            commit_ts = es << logical
            at = _behind(words, at, _END)
        if at != end or not _is_utf8(octets, words, start, end):
            continue
        found[count, 0], found[count, 1], found[count, 2] = number, kind, commit_ts
        found[count, 3], found[count, 4], found[count, 5] = head[2], which, tail < 0
        found[count, 6], found[count, 7] = old_place, place
        count += 1
        old_end, new_end = old_place, place
    return count


# --- Open Protocol ---

_VERSION_WORD: Final = np.uint64(1 << 56)
_KEY_HEAD: Final = _expected(b'{"ts":')[0]
_KEY_DATABASE: Final = _expected(b',"scm":"')[0]
_KEY_TABLE: Final = _expected(b'","tbl":"')[0]
_KEY_ROW_ID: Final = _expected(b'","rid":', b'","rid":-')
_KEY_NAME_END: Final = _expected(b'"')[0]
_KEY_PARTITION: Final = _expected(b',"ptn":')[0]
_KEY_END: Final = _expected(b',"t":1}')[0]
_NEW_IMAGE: Final = _expected(b'{"u":{')[0]
_OLD_IMAGE: Final = _expected(b',"p":{')[0]
_DELETED_IMAGE: Final = _expected(b'{"d":{')[0]
_CODE: Final = _expected(b'":{"t":')[0]
_HANDLE_KEY: Final = _expected(b',"h":true')[0]
_FLAGS: Final = _expected(b',"f":')[0]
_VALUE: Final = _expected(b',"v":')[0]
_SHORTEST_COLUMN: Final = len(b'"n":{"t":1,"f":0,"v":')
_SHORTEST_ROW: Final = len(b'{"u":{"n":{"t":1,"f":0,"v":1}}}')
_MOST_FLAGS: Final = 2**16 - 1

_POINT, _LETTER_X, _LINE_FEED = ord("."), ord("x"), ord("\n")
_NO_LETTER: Final = np.uint8(0)
_GO_DIGITS: Final = np.zeros(256, np.int64)
_GO_DIGITS[list(b"xuU")] = 2, 4, 8
_SHORT_ESCAPES: Final = np.zeros(256, np.uint8)
_SHORT_ESCAPES[list(b'"\\\b\f\n\r\t')] = list(b'"\\bfnrt')
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_GO_ESCAPED: Final = _table(b'abfnrtv\\"')
_GO_UNESCAPED: Final = np.zeros(256, np.uint8)
_GO_UNESCAPED[list(b'abfnrtv\\"')] = list(b'\a\b\f\n\r\t\v\\"')
_SIX_BITS: Final = np.full(256, 64, np.uint8)
_SIX_BITS[_BASE64] = np.arange(64)
_FIVES: Final = np.array([5**power for power in range(10)], np.int64)

(
    REFUSED_WAY,
    TEXT_WAY,
    INTEGER_WAY,
    UNSIGNED_WAY,
    FLOAT_WAY,
    DOUBLE_WAY,
    NULL_WAY,
    QUOTED_WAY,
    TEXT_IN_BASE64_WAY,
    BYTES_IN_BASE64_WAY,
) = range(10)
"""How the values of a column become text."""

OPEN_FIELDS: Final = 12
"""Number of the record, index in it, kind, commit ts, begin and end of the names of the database
and the table in the key, partition or -1, column that is the last of its image, ends of what was
written of the images before and after."""

COLUMN_FIELDS: Final = 6
"""A column behind others of its image: the one before it, begin and end of all that stands before
its value, end of its name and the colon behind, first column known behind it, way of its values."""

UNSURE_FIELDS: Final = 4
"""Number of the row, way, begin and end of a number that may not be in its shortest form."""


@compiled
def _open_key(octets: Octets, words: Words, start: int, end: int, fields: Ints) -> bool:
    """Return whether the key of a row stands between two places, and fill its fields."""
    fields[3], at = _natural(octets, _behind(words, start, _KEY_HEAD), end)
    fields[4] = _behind(words, at, _KEY_DATABASE)
    fields[5] = _name_end(octets, words, fields[4], end)
    fields[6] = _behind(words, fields[5], _KEY_TABLE)
    fields[7] = name_end = _name_end(octets, words, fields[6], end)
    at = _behind(words, name_end, _KEY_ROW_ID[0])
    if at >= 0:
        negative = _behind(words, name_end, _KEY_ROW_ID[1])
        _, at = _natural(octets, max(at, negative), end)
    else:
        at = _behind(words, name_end, _KEY_NAME_END)
    fields[8] = -1
    partition = _behind(words, at, _KEY_PARTITION)
    if partition >= 0:
        fields[8], at = _natural(octets, partition, end)
    return _behind(words, at, _KEY_END) == end and _is_utf8(octets, words, start, end)


@compiled
def _integer_end(octets: Octets, at: int, end: int, signed: bool) -> int:
    """Return the place behind an integer of 64 bits that is none of -0, or -1."""
    negative = octets[at] == _MINUS
    if negative and not signed:
        return -1
    start = at + negative
    at = start
    while at < end and _ZERO <= octets[at] <= _NINE and at - start <= 20:
        at += 1
    size, longest = at - start, 19 if negative else 20
    if size == 0 or (octets[start] == _ZERO and (size > 1 or negative)) or size > longest:
        return -1
    if size < longest:
        return at
    # -2^63 and 2^64 - 1 without their last digit, and that digit.
    most, last = (922337203685477580, 8) if negative else (1844674407370955161, 5)
    if size == 20 and octets[start] != _ZERO + 1:
        return -1
    number = np.int64(0)
    for place in range(start, at - 1):
        number = number * 10 + octets[place] - _ZERO
    return at if number < most or (number == most and octets[at - 1] <= _ZERO + last) else -1


@compiled
def _number_end(octets: Octets, at: int, end: int, digits: int, more: bool) -> tuple[int, bool]:
    """Return the place behind a number without exponent and needless zeros, and whether it is sure.

    That is, whether no text of fewer digits, and no other of as many, reads as the same binary
    number: always so with up to 15 digits in 64 bits, and 6 in 32 bits; and with 7 if the number is
    exactly one of 32 bits, as two numbers of 6 and 7 digits are farther apart than half of what is
    between two of 32 bits.

    Args:
        octets: the bytes.
        at: where the number begins.
        end: where the message ends.
        digits: how many are sure.
        more: whether one more is if the number is a binary fraction.
    """
    negative = octets[at] == _MINUS
    start = at + negative
    at = start
    # Up to a number that is no more sure; what it says then is not looked at.
    value, counted, fraction = np.int64(0), 0, 0
    while at < end and _ZERO <= octets[at] <= _NINE:
        counted += counted > 0 or octets[at] != _ZERO
        value = value * 10 + octets[at] - _ZERO
        at += 1
    if at == start or (octets[start] == _ZERO and at - start > 1):
        return -1, False
    if at < end and octets[at] == _POINT:
        at += 1
        point = at
        while at < end and _ZERO <= octets[at] <= _NINE:
            counted += counted > 0 or octets[at] != _ZERO
            value = value * 10 + octets[at] - _ZERO
            at += 1
        fraction = at - point
        if fraction == 0 or octets[at - 1] == _ZERO:
            return -1, False
    elif negative and counted == 0:
        return -1, False
    # Far from the smallest numbers, of which some have fewer digits.
    if at - start > 24:
        return at, False
    if counted <= digits:
        return at, True
    exact = more and counted == digits + 1 and fraction < 8 and value % _FIVES[fraction] == 0
    return at, exact


@compiled
def _utf8_written(point: int, written: Octets, place: int) -> int:
    """Write a code point in UTF-8, and return the place behind it."""
    if point < 0x80:
        written[place] = point
        return place + 1
    if point < 0x800:
        written[place] = 0xC0 | point >> 6
    else:
        if point < 0x10000:
            written[place] = 0xE0 | point >> 12
        else:
            written[place] = 0xF0 | point >> 18
            place += 1
            written[place] = 0x80 | (point >> 12 & 0x3F)
        place += 1
        written[place] = 0x80 | (point >> 6 & 0x3F)
    written[place + 1] = 0x80 | (point & 0x3F)
    return place + 2


@compiled
def _character_written(point: int, written: Octets, place: int) -> int:
    """Write a code point in a string of JSON, and return the place behind it."""
    if point >= 0x20 and point != _QUOTE and point != _BACKSLASH:
        return _utf8_written(point, written, place)
    written[place] = _BACKSLASH
    if _SHORT_ESCAPES[point]:
        written[place + 1] = _SHORT_ESCAPES[point]
        return place + 2
    written[place + 1] = _LETTER_U
    written[place + 2] = written[place + 3] = _ZERO
    written[place + 4], written[place + 5] = _DIGITS[point >> 4], _DIGITS[point & 15]
    return place + 6


@compiled
def _text_written(
    octets: Octets,
    words: Words,
    at: int,
    end: int,
    written: Octets,
    written_words: Words,
    place: int,
    again: bool,
) -> int:
    """Write what the string between two places says, and return the place behind it.

    Args:
        octets: the bytes.
        words: the eight bytes at each place.
        at: where the string's first character stands.
        end: where its closing quote stands.
        written: where it is written.
        written_words: the same by words.
        place: at which place.
        again: whether as a string of JSON again; else its bytes.
    """
    kept = at
    at = stop(words, at, end)
    while at < end:
        place = copied(words, kept, at, written_words, place)
        point, kept = _code_point(octets, at)
        if again:
            place = _character_written(point, written, place)
        else:
            place = _utf8_written(point, written, place)
        at = stop(words, kept, end)
    return copied(words, kept, end, written_words, place)


@compiled
def _bytes_in_text(
    octets: Octets, words: Words, end: int, written: Octets, written_words: Words, place: int
) -> int:
    """Write the first bytes of an array, UTF-8, in a string of JSON; return the place behind it."""
    kept = np.int64(0)
    at = stop(words, kept, end)
    while at < end:
        place = copied(words, kept, at, written_words, place)
        place = _character_written(np.int64(octets[at]), written, place)
        kept = at + 1
        at = stop(words, kept, end)
    return copied(words, kept, end, written_words, place)


@compiled
def _from_base64(octets: Octets, at: int, end: int, written: Octets) -> int:
    """Write the bytes whose one standard base64 stands between two places, and return how many."""
    if (end - at) & 3:
        return -1
    place = 0
    while at < end:
        first, second = np.int64(_SIX_BITS[octets[at]]), np.int64(_SIX_BITS[octets[at + 1]])
        third, fourth = np.int64(_SIX_BITS[octets[at + 2]]), np.int64(_SIX_BITS[octets[at + 3]])
        at += 4
        size = 3
        if at == end and octets[at - 1] == _PAD:
            size, fourth = 2, 0
            if octets[at - 2] == _PAD:
                size, third = 1, 0
        if (first | second | third | fourth) & 64:
            return -1
        if (size == 2 and third & 3) or (size == 1 and second & 15):
            return -1
        written[place] = first << 2 | second >> 4
        written[place + 1] = (second << 4 | third >> 2) & 0xFF
        written[place + 2] = (third << 6 | fourth) & 0xFF
        place += size
    return place


@compiled
def _unquoted(octets: Octets, end: int) -> int:
    """Replace text quoted by Go by the bytes that it stands for, and return how many.

    It is the first bytes of an array. Octal digits are not known here.
    """
    at, place = 0, 0
    while at < end:
        byte = octets[at]
        at += 1
        if byte in (_QUOTE, _LINE_FEED):
            return -1
        if byte != _BACKSLASH:
            octets[place] = byte
            place += 1
            continue
        letter = octets[at] if at < end else _NO_LETTER
        at += 1
        if _GO_ESCAPED[letter]:
            octets[place] = _GO_UNESCAPED[letter]
            place += 1
            continue
        size = _GO_DIGITS[letter]
        if size == 0 or at + size > end:
            return -1
        point = np.int64(0)
        for digit in range(at, at + size):
            if not _HEX[octets[digit]]:
                return -1
            point = point << 4 | _hex_digit(octets[digit])
        at += size
        if letter == _LETTER_X:
            octets[place] = point
            place += 1
        elif point > 0x10FFFF or point & ~0x7FF == 0xD800:
            return -1
        else:
            place = _utf8_written(point, octets, place)
    return place


@compiled
def _open_value(
    octets: Octets,
    words: Words,
    at: int,
    end: int,
    way: int,
    row: int,
    unsure: Ints,
    used: Ints,
    scratch: Octets,
    scratch_words: Words,
    written: Octets,
    written_words: Words,
    place: int,
) -> tuple[int, int]:
    """Write the value at a place, none of null, as text of JSON.

    Returns:
        The place behind it, -1 if it is none of its column; and the place behind what was written.
    """
    if at >= end:
        return -1, place
    written[place] = _QUOTE
    place += 1
    behind = -1
    if way in (INTEGER_WAY, UNSIGNED_WAY):
        behind = _integer_end(octets, at, end, way == INTEGER_WAY)
        if behind >= 0:
            place = copied(words, at, behind, written_words, place)
    elif way in (FLOAT_WAY, DOUBLE_WAY):
        behind, sure = _number_end(octets, at, end, 6 if way == FLOAT_WAY else 15, way == FLOAT_WAY)
        if behind >= 0:
            place = copied(words, at, behind, written_words, place)
            if not sure:
                unsure[used[1], 0], unsure[used[1], 1] = row, way
                unsure[used[1], 2], unsure[used[1], 3] = at, behind
                used[1] += 1
    elif octets[at] == _QUOTE and way != NULL_WAY:
        start = at + 1
        closing = _string_end(octets, words, start, end)
        if closing < 0:
            return -1, place
        behind = closing + 1
        if way == TEXT_WAY:
            place = _text_written(
                octets, words, start, closing, written, written_words, place, way == TEXT_WAY
            )
        elif way == QUOTED_WAY:
            size = _text_written(
                octets, words, start, closing, scratch, scratch_words, np.int64(0), way == TEXT_WAY
            )
            size = _unquoted(scratch, size)
            if size < 0:
                return -1, place
            place = _in_base64(scratch, size, written, place)
        else:
            size = _from_base64(octets, start, closing, scratch)
            if size < 0:
                return -1, place
            if way == BYTES_IN_BASE64_WAY:
                place = copied(words, start, closing, written_words, place)
            elif _is_utf8(scratch, scratch_words, np.int64(0), size):
                place = _bytes_in_text(scratch, scratch_words, size, written, written_words, place)
            else:
                return -1, place
    written[place] = _QUOTE
    return behind, place + 1


@compiled
def _open_column(
    octets: Octets,
    words: Words,
    at: int,
    end: int,
    ways: Octets,
    binary: int,
    columns: Ints,
    slots: Ints,
    used: Ints,
    before: int,
) -> int:
    """Return the number of the column at a place, behind another; 0 if there is none."""
    if octets[at] != _QUOTE:
        return 0
    name_end = _name_end(octets, words, at + 1, end)
    code, place = _natural(octets, _behind(words, name_end, _CODE), end)
    place = max(place, _behind(words, place, _HANDLE_KEY))
    flags, place = _natural(octets, _behind(words, place, _FLAGS), end)
    behind = _behind(words, place, _VALUE)
    if behind < 0 or behind > end or code > 255 or flags > _MOST_FLAGS:
        return 0
    way = ways[2 * code + (flags & binary != 0)]
    if way == REFUSED_WAY:
        return 0
    mask = len(slots) - 1
    slot = np.int64(_hashed(words, at, behind, np.uint64(before)) >> _HALF) & mask
    size = behind - at
    while slots[slot] != 0:
        column = slots[slot]
        begin = columns[column, 1]
        if (
            columns[column, 0] == before
            and columns[column, 2] - begin == size
            and _same_bytes(words, begin, at, size, end)
        ):
            return column
        slot = (slot + 1) & mask
    column = used[0]
    used[0] += 1
    slots[slot] = column
    columns[column, 0], columns[column, 1], columns[column, 2] = before, at, behind
    columns[column, 3], columns[column, 4], columns[column, 5] = name_end + 2, 0, way
    if columns[before, 4] == 0:
        columns[before, 4] = column
    return column


@compiled
def _open_image(
    octets: Octets,
    words: Words,
    at: int,
    end: int,
    ways: Octets,
    binary: int,
    columns: Ints,
    slots: Ints,
    row: int,
    unsure: Ints,
    used: Ints,
    scratch: Octets,
    scratch_words: Words,
    written: Octets,
    written_words: Words,
    place: int,
) -> tuple[int, int, int]:
    """Write the image whose first column stands at a place.

    Returns:
        The place behind it, -1 if it is not plain; the place behind what was written; and the
        number of its last column, which tells all before it.
    """
    last, between = np.int64(0), _OPEN
    while at >= 0:
        column = columns[last, 4]
        begin = columns[column, 1]
        if column == 0 or not _same_bytes(words, begin, at, columns[column, 2] - begin, end):
            column = _open_column(octets, words, at, end, ways, binary, columns, slots, used, last)
            if column == 0:
                return -1, place, 0
            begin = columns[column, 1]
        at += columns[column, 2] - begin
        written[place] = between
        place = copied(words, begin, columns[column, 3], written_words, place + 1)
        last, between = column, _COMMA
        null = _behind(words, at, _NULL_ALONE)
        if null >= 0:
            place = copied(words, at, null, written_words, place)
            at = null
        else:
            at, place = _open_value(
                octets,
                words,
                at,
                end,
                columns[column, 5],
                row,
                unsure,
                used,
                scratch,
                scratch_words,
                written,
                written_words,
                place,
            )
        if at < 0 or octets[at] != _CLOSE:
            return -1, place, 0
        if octets[at + 1] == _CLOSE:
            written[place] = _CLOSE
            return at + 2, place + 1, last
        at = at + 2 if octets[at + 1] == _COMMA else -1
    return -1, place, 0


class Texts(NamedTuple):
    """Texts one behind the other.

    Attributes:
        octets: their bytes, with padding.
        words: the eight bytes at each place.
        starts: where each begins.
        ends: where it ends.
    """

    octets: Octets
    words: Words
    starts: Ints
    ends: Ints


class Paper(NamedTuple):
    """What is written to.

    Attributes:
        octets: its bytes, with padding.
        words: the eight bytes at each place.
    """

    octets: Octets
    words: Words


class OpenRoom(NamedTuple):
    """What is found in records of Open Protocol.

    Attributes:
        rows: `OPEN_FIELDS` of each row.
        columns: `COLUMN_FIELDS` of each column; that with the number 0 is none.
        slots: for finding columns.
        unsure: `UNSURE_FIELDS` of numbers that are written as sent, but have to be looked at again.
        used: how many columns, unsure numbers and rows there are.
    """

    rows: Ints
    columns: Ints
    slots: Ints
    unsure: Ints
    used: Ints


def open_room(size: int) -> OpenRoom:
    """Return room for what is found in so many bytes of values."""
    # One more column may be begun. Slots are a power of two of them and twice as many as columns.
    most = size // _SHORTEST_COLUMN + 2
    return OpenRoom(
        rows=np.empty((size // _SHORTEST_ROW + 1, OPEN_FIELDS), np.int64),
        columns=np.zeros((most, COLUMN_FIELDS), np.int64),
        slots=np.zeros(1 << (2 * most).bit_length(), np.int64),
        unsure=np.empty((most, UNSURE_FIELDS), np.int64),
        used=np.array([1, 0, 0]),
    )


@compiled
def open_records(
    keys: Texts,
    values: Texts,
    ways: Octets,
    binary: int,
    room: OpenRoom,
    before_paper: Paper,
    after_paper: Paper,
    scratch_paper: Paper,
) -> None:
    """Read records of Open Protocol that hold rows alone.

    A record is plain if all of it is, and its key is not much longer than its value.

    Args:
        keys: the keys.
        values: the value of each.
        ways: of each type code the way of a column without and with the flag `binary`.
        binary: that flag.
        room: gets what is found.
        before_paper: gets the images before; five times as long as the values, as three control
            characters are four bytes of base64 and 18 of JSON.
        after_paper: gets the images after, in the same way.
        scratch_paper: as long as the values.
    """
    # The loops inside get arrays: they would take their time to get them out of tuples each time.
    key_octets, key_words, key_starts, key_ends = keys
    octets, words, starts, ends = values
    rows, columns, slots, unsure, used = room
    before, before_words = before_paper
    after, after_words = after_paper
    scratch, scratch_words = scratch_paper
    count, before_place, after_place = np.int64(0), np.int64(0), np.int64(0)
    for number in range(len(starts)):
        at, end = starts[number], ends[number]
        key_at, key_end = key_starts[number], key_ends[number]
        if key_end - key_at > 4 * (end - at) or key_end - key_at < 8:
            continue
        if key_words[key_at] != _VERSION_WORD:
            continue
        key_at += 8
        row, unsure_before = count, used[1]
        old_place, place = before_place, after_place
        good = key_at < key_end
        while good and key_at < key_end:
            key_size, size = _length(key_octets, key_at, key_end), _length(octets, at, end)
            if key_size < 0 or size < _SHORTEST_ROW:
                good = False
                break
            fields = rows[row]
            start, part_end = at + 8, at + 8 + size
            good = _open_key(key_octets, key_words, key_at + 8, key_at + 8 + key_size, fields)
            kind, image = INSERT, _behind(words, start, _NEW_IMAGE)
            if image >= 0:
                behind, place, last = _open_image(
                    octets,
                    words,
                    image,
                    part_end,
                    ways,
                    binary,
                    columns,
                    slots,
                    row,
                    unsure,
                    used,
                    scratch,
                    scratch_words,
                    after,
                    after_words,
                    place,
                )
                image = _behind(words, behind, _OLD_IMAGE)
                kind = UPDATE if image >= 0 else INSERT
            else:
                kind, image = DELETE, _behind(words, start, _DELETED_IMAGE)
                behind, last = -1, 0
            if image >= 0:
                behind, old_place, old_last = _open_image(
                    octets,
                    words,
                    image,
                    part_end,
                    ways,
                    binary,
                    columns,
                    slots,
                    row,
                    unsure,
                    used,
                    scratch,
                    scratch_words,
                    before,
                    before_words,
                    old_place,
                )
                # Other columns may add to the shape.
                good = good and (kind == DELETE or old_last == last)
                last = old_last
            good = good and _behind(words, behind, _END) == part_end
            good = good and _is_utf8(octets, words, start, part_end)
            fields[0], fields[1], fields[2], fields[9] = number, row - count, kind, last
            fields[10], fields[11] = old_place, place
            row += 1
            key_at += 8 + key_size
            at = part_end
        if good and at == end:
            count, before_place, after_place = row, old_place, place
        else:
            used[1] = unsure_before
    used[2] = count
