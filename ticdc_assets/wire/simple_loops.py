"""Simple JSON in exactly the bytes that TiCDC writes, read by compiled loops.

In: messages, see `json_loops`. Out: `SIMPLE_FIELDS` of each. Regular are watermarks, and inserts,
updates and deletes with nothing but their images.
"""

# Compiled, numpy's integers are what a variable of an integer is.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportReturnType=false

from typing import Final

from ticdc_assets.compiled import compiled, inlined
from ticdc_assets.values.word_loops import Words
from ticdc_assets.wire.json_loops import (
    CLOSE,
    DELETE,
    INSERT,
    IRREGULAR,
    UPDATE,
    WATERMARK,
    Ints,
    Octets,
    expected,
    is_utf8,
    natural,
    passed,
    string_end,
    unescaped_end,
)

_HEAD: Final = expected(b'{"version":1,"database":"')[0]
_WATERMARK_HEAD: Final = expected(b'{"version":1,"type":"WATERMARK","commitTs":')[0]
_TABLE: Final = expected(b'","table":"')[0]
_TABLE_ID: Final = expected(b'","tableID":')[0]
_TYPE: Final = expected(b',"type":"')[0]
_INSERT, _UPDATE, _DELETE = expected(
    b'INSERT","commitTs":', b'UPDATE","commitTs":', b'DELETE","commitTs":'
)
_BUILD_TS: Final = expected(b',"buildTs":')[0]
_SCHEMA_VERSION: Final = expected(b',"schemaVersion":')[0]
_DATA: Final = expected(b',"data":')[0]
_OLD: Final = expected(b',"old":')[0]
_BEGIN: Final = expected(b'{"')[0]
_NEXT: Final = expected(b',"')[0]
_TEXT: Final = expected(b'":"')[0]
_NULL: Final = expected(b'":null')[0]
_MOMENT: Final = expected(b'":{"location":"')[0]
_MOMENT_VALUE: Final = expected(b'","value":"')[0]
_MOMENT_END: Final = expected(b'"}')[0]
_END: Final = expected(b"}")[0]

SIMPLE_FIELDS: Final = 13
"""Kind, commit ts, build ts, table id, schema version; and begin and end of the name of the
database, that of the table, the image before and the image after, 0 and 0 where there is none."""


@inlined
def _simple_image(octets: Octets, words: Words, at: int, end: int) -> int:
    """Return the place behind the image that begins at a place, or -1.

    Its members, one at least, are each a text, null or a zoned timestamp.
    """
    at = passed(words, at, _BEGIN)
    while at >= 0:
        name_end = string_end(octets, words, at, end)
        at = passed(words, name_end, _TEXT)
        if at >= 0:
            at = string_end(octets, words, at, end)
            at += at >= 0
        else:
            at = passed(words, name_end, _NULL)
        if at < 0:
            at = string_end(octets, words, passed(words, name_end, _MOMENT), end)
            at = string_end(octets, words, passed(words, at, _MOMENT_VALUE), end)
            at = passed(words, at, _MOMENT_END)
        if at >= 0 and octets[at] == CLOSE:
            return at + 1
        at = passed(words, at, _NEXT)
    return -1


@inlined
def _simple_message(octets: Octets, words: Words, start: int, end: int, fields: Ints) -> int:
    """Return the kind of a message, and fill its other fields."""
    at = passed(words, start, _WATERMARK_HEAD)
    if at >= 0:
        fields[1], at = natural(octets, at, end)
        fields[2], at = natural(octets, passed(words, at, _BUILD_TS), end)
        return WATERMARK if passed(words, at, _END) == end else IRREGULAR
    fields[5] = passed(words, start, _HEAD)
    fields[6] = unescaped_end(octets, words, fields[5], end)
    fields[7] = passed(words, fields[6], _TABLE)
    fields[8] = unescaped_end(octets, words, fields[7], end)
    fields[3], at = natural(octets, passed(words, fields[8], _TABLE_ID), end)
    word = passed(words, at, _TYPE)
    kind, at = INSERT, passed(words, word, _INSERT)
    if at < 0:
        kind, at = UPDATE, passed(words, word, _UPDATE)
    if at < 0:
        kind, at = DELETE, passed(words, word, _DELETE)
    fields[1], at = natural(octets, at, end)
    fields[2], at = natural(octets, passed(words, at, _BUILD_TS), end)
    fields[4], at = natural(octets, passed(words, at, _SCHEMA_VERSION), end)
    if kind != DELETE:
        fields[11] = passed(words, at, _DATA)
        fields[12] = at = _simple_image(octets, words, fields[11], end)
    if kind != INSERT:
        fields[9] = passed(words, at, _OLD)
        fields[10] = at = _simple_image(octets, words, fields[9], end)
    return kind if passed(words, at, _END) == end else IRREGULAR


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
        if kind != IRREGULAR and is_utf8(octets, words, start, end):
            found[number, 0] = kind
