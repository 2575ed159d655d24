"""Messages in JSON that mean the same in other bytes, as those of another TiCDC may be.

In: a record in the bytes of today's TiCDC, and in what it shall differ. Out: the record with that
difference wherever the format has a place for it: in each message, and in each object inside it
whose members the format names. Numbers and texts stay as they were written. What stands in images
and schemas is data and only gets blanks. A record that is no message is returned as it is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.record import Record

NEW_MEMBER: Final = (
    "inALaterVersion",
    msgspec.Raw(rb'{"a":[1.50,{"b":"]\"\u00e9\\"},[]],"c":null}'),
)
"""What no version of TiCDC has written yet."""

_Members = dict[str, msgspec.Raw]


class Difference(StrEnum):
    """In what a message differs."""

    BLANKS = "blanks"
    ORDER = "members in another order"
    LAST = "a new member at the end"
    MIDDLE = "a new member in the middle"
    NESTED = "a new member inside"


NESTED: Final[Mapping[WireFormat, tuple[tuple[str, ...], ...]]] = {
    WireFormat.SIMPLE_JSON: (("checksum",),),
    WireFormat.CANAL_JSON: (("_tidb",),),
    WireFormat.OPEN_PROTOCOL: (("u", "*"), ("p", "*"), ("d", "*")),
}
"""The objects inside a message whose members the format names; `*` is any member."""


def differing(record: Record, wire_format: WireFormat, difference: Difference) -> Record:
    """Return a record of a format in JSON that differs in bytes alone."""

    def other(document: bytes) -> bytes:
        return _differing(document, NESTED[wire_format], difference)

    try:
        if wire_format is not WireFormat.OPEN_PROTOCOL:
            return Record(key=record.key, value=record.value and other(record.value))
        key, value = record.key or b"", record.value or b""
        return Record(
            key=key[:8] + framed(map(other, parts(key[8:]))), value=framed(map(other, parts(value)))
        )
    except (msgspec.DecodeError, RecursionError):
        return record


def parts(content: bytes) -> Iterator[bytes]:
    """Yield what stands behind lengths, as in Open Protocol."""
    place = 0
    while place < len(content):
        end = place + 8 + int.from_bytes(content[place : place + 8])
        yield content[place + 8 : end]
        place = end


def framed(contents: Iterable[bytes]) -> bytes:
    """Return contents, each behind its length."""
    return b"".join(len(content).to_bytes(8) + content for content in contents)


def _differing(
    document: bytes, nested: tuple[tuple[str, ...], ...], difference: Difference
) -> bytes:
    if not document:
        return document  # the value of a watermark of Open Protocol
    if difference is Difference.BLANKS:
        return b"\n" + msgspec.json.format(document, indent=2) + b"\t\r"
    change = _CHANGES[difference]
    members = _decode(document)
    for path in nested:
        members = _inside(members, path, lambda inner: change(inner, True))
    return msgspec.json.encode(change(members, False))


def _inside(
    members: _Members, path: tuple[str, ...], change: Callable[[_Members], _Members]
) -> _Members:
    """Return members with those changed that stand at a path in them."""
    if not path:
        return change(members)
    return {
        name: msgspec.Raw(msgspec.json.encode(_inside(_decode(raw), path[1:], change)))
        if path[0] in (name, "*") and bytes(raw) != b"null"
        else raw
        for name, raw in members.items()
    }


def _reversed(members: _Members, _inner: bool) -> _Members:
    return dict(reversed(members.items()))


def _with_last(members: _Members, inner: bool) -> _Members:
    return members if inner else {**members, f"{NEW_MEMBER[0]}Still": NEW_MEMBER[1]}


def _with_middle(members: _Members, inner: bool) -> _Members:
    items = list(members.items())
    half = len(items) // 2
    return members if inner else dict([*items[:half], NEW_MEMBER, *items[half:]])


def _with_nested(members: _Members, inner: bool) -> _Members:
    return {**members, **dict([NEW_MEMBER])} if inner else members


_CHANGES: Final[Mapping[Difference, Callable[[_Members, bool], _Members]]] = {
    Difference.ORDER: _reversed,
    Difference.LAST: _with_last,
    Difference.MIDDLE: _with_middle,
    Difference.NESTED: _with_nested,
}
_decode: Final = msgspec.json.Decoder(_Members).decode
