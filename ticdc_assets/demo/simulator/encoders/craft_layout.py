"""The bytes of a message of Craft: `wire.craft.layout` backwards.

In: headers, column groups and bodies. Out: the message that TiCDC writes of them. Nothing is
checked: tests write what no encoder would.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from ticdc_assets.wire.craft.layout import (
    HEADER,
    MAX_UINT64,
    VERSION,
    ColumnGroup,
    Header,
    Reader,
    wrapped,
)


def write_rows(headers: Sequence[Header], rows: Sequence[Sequence[ColumnGroup]]) -> bytes:
    """Return the message of `rows`, each of which has a header and one column group at least."""
    terms = dict[str, int]()
    start = _write_headers(headers, terms)
    groups = [[_write_group(group, terms) for group in row] for row in rows]
    sizes = [list(map(len, row)) for row in groups]
    return _join(start, [b"".join(row) for row in groups], terms, sizes)


def write_event(header: Header, body: bytes) -> bytes:
    """Return the message of one event that is no row."""
    terms = dict[str, int]()
    return _join(_write_headers([header], terms), [body], terms, [])


def _id_of(text: str, terms: dict[str, int]) -> int:
    """Return the id of a text in the term dictionary of a message, a new one if it has none yet."""
    return terms.setdefault(text, len(terms))


def _write_headers(headers: Sequence[Header], terms: dict[str, int]) -> bytes:
    def number(value: int | str | None) -> int:
        return -1 if value is None else _id_of(value, terms) if isinstance(value, str) else value

    return b"".join(
        _CHUNKS[field.chunk]([number(getattr(header, field.name)) for header in headers])
        for field in HEADER
    )


def _write_group(group: ColumnGroup, terms: dict[str, int]) -> bytes:
    return b"".join(
        (
            bytes((group.kind,)),
            write_uvarint(len(group.names)),
            write_delta_varints([_id_of(name, terms) for name in group.names]),
            write_uvarints(group.types),
            write_uvarints(group.flags),
            write_nullable(group.values),
        )
    )


def _join(
    headers: bytes, bodies: Sequence[bytes], terms: dict[str, int], groups: Sequence[Sequence[int]]
) -> bytes:
    dictionary = write_uvarint(len(terms)) + write_strings(list(terms)) if terms else b""
    tables = b"".join(
        write_uvarint(len(sizes)) + write_delta_varints(sizes)
        for sizes in ((len(headers), len(dictionary)), tuple(map(len, bodies)), *groups)
    )
    return b"".join(
        (
            write_uvarint(VERSION),
            headers,
            *bodies,
            dictionary,
            tables,
            write_reversed(len(tables)),
        )
    )


def write_uvarint(number: int) -> bytes:
    """Return `number`, 0 to 2^64-1, as a uvarint."""
    if number < 0x80:
        return bytes((number,))
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def write_varint(number: int) -> bytes:
    """Return `number`, -2^63 to 2^63-1, as a varint."""
    return write_uvarint(number * 2 if number >= 0 else -number * 2 - 1)


def write_reversed(number: int) -> bytes:
    """Return `number` as a uvarint with its bytes in reverse order."""
    return write_uvarint(number)[::-1]


def write_uvarints(numbers: Iterable[int]) -> bytes:
    """Return `numbers` as a uvarint chunk."""
    return b"".join(map(write_uvarint, numbers))


def write_delta_uvarints(numbers: Sequence[int]) -> bytes:
    """Return `numbers` as a delta uvarint chunk."""
    return write_uvarints((number - last) & MAX_UINT64 for last, number in pairwise((0, *numbers)))


def write_delta_varints(numbers: Sequence[int]) -> bytes:
    """Return `numbers` as a delta varint chunk."""
    return b"".join(
        write_varint(wrapped(number - last)) for last, number in pairwise((0, *numbers))
    )


def write_string(text: str) -> bytes:
    """Return `text` as a string."""
    raw = text.encode()
    return write_uvarint(len(raw)) + raw


def write_strings(texts: Sequence[str]) -> bytes:
    """Return `texts` as a string chunk."""
    raws = [text.encode() for text in texts]
    return write_uvarints(map(len, raws)) + b"".join(raws)


def write_nullable(raws: Sequence[bytes | None]) -> bytes:
    """Return `raws` as a nullable string chunk."""
    lengths = b"".join(write_varint(-1 if raw is None else len(raw)) for raw in raws)
    return lengths + b"".join(raw for raw in raws if raw is not None)


_CHUNKS: Final[Mapping[object, Callable[[Sequence[int]], bytes]]] = {
    Reader.uvarints: write_uvarints,
    Reader.delta_uvarints: write_delta_uvarints,
    Reader.delta_varints: write_delta_varints,
}
"""Write what is read so."""
