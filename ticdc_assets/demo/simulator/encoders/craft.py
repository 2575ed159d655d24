"""Craft: the events of a batch in one record.

In: events whose rows have their shape, with flags. Out: records whose value is a message, as
`wire.craft.reference` reads it, and no key. How values are written is said by `wire.craft.values`;
FLOAT is written right, which TiCDC does not do.
"""

import struct
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from ticdc_assets.demo.simulator.encoders.shared import DEFAULT_BATCH_SIZE, batches, type_code
from ticdc_assets.model.events import (
    Bootstrap,
    DdlEvent,
    Event,
    PhysicalValue,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.values.floats import to_float32
from ticdc_assets.wire.codes import Form
from ticdc_assets.wire.craft.layout import (
    HEADER,
    MAX_UINT64,
    VERSION,
    ColumnGroup,
    EventKind,
    GroupKind,
    Header,
    Reader,
    wrapped,
)
from ticdc_assets.wire.craft.values import form_of
from ticdc_assets.wire.record import Record


def encode(events: Sequence[Event], *, max_batch_size: int = DEFAULT_BATCH_SIZE) -> list[Record]:
    """Return the records that TiCDC would send for `events`, in their order."""
    return [Record(key=None, value=_message(batch)) for batch in batches(events, max_batch_size)]


def _message(batch: Sequence[Event]) -> bytes:
    match batch[0]:
        case RowChange():
            rows = [event for event in batch if isinstance(event, RowChange)]
            headers = [
                _header(EventKind.ROW, row.commit_ts, row.table_id, row.database, row.table)
                for row in rows
            ]
            return write_rows(headers, [_groups_of(row) for row in rows])
        case DdlEvent() as ddl:
            header = _header(EventKind.DDL, ddl.commit_ts, None, ddl.database, ddl.table)
            return write_event(header, write_uvarint(ddl.action_code or 0) + write_string(ddl.sql))
        case Watermark() as watermark:
            return write_event(_header(EventKind.WATERMARK, watermark.watermark_ts), b"")
        case Bootstrap():
            raise TypeError("Craft has no bootstraps")


def _header(
    kind: EventKind,
    commit_ts: int,
    table_id: int | None = None,
    database: str = "",
    table: str = "",
) -> Header:
    return Header(
        kind=kind,
        commit_ts=commit_ts,
        table_id=table_id,
        database=database or None,
        table=table or None,
    )


def _groups_of(row: RowChange) -> list[ColumnGroup]:
    groups: list[ColumnGroup] = []
    for kind, image in ((GroupKind.AFTER, row.after), (GroupKind.BEFORE, row.before)):
        if image is not None:
            assert row.shape is not None
            columns = [column for column in row.shape.columns if column.name in image]
            codes = [(type_code(column.mysql_type), int(column.flags or 0)) for column in columns]
            groups.append(
                ColumnGroup(
                    kind=kind,
                    names=tuple(column.name for column in columns),
                    types=tuple(code for code, _ in codes),
                    flags=tuple(flags for _, flags in codes),
                    values=tuple(
                        _write_value(*code, image[column.name])
                        for column, code in zip(columns, codes, strict=True)
                    ),
                )
            )
    return groups


def _write_value(code: int, flags: int, value: PhysicalValue) -> bytes | None:
    if value is None:
        return None
    form = form_of(code, flags)
    assert form is not None, "a code that types have"
    return _WRITERS[form](value.value if isinstance(value, ZonedTimestamp) else value)


_FLOAT64: Final = struct.Struct("<d")
_WRITERS: Final[Mapping[Form, Callable[[str], bytes]]] = {
    Form.TEXT: str.encode,
    Form.BASE64: b64decode,
    Form.SIGNED: lambda text: write_varint(int(text)),
    Form.UNSIGNED: lambda text: write_uvarint(int(text)),
    Form.FLOAT: lambda text: _FLOAT64.pack(to_float32(float(text))),
    Form.DOUBLE: lambda text: _FLOAT64.pack(float(text)),
}


# Bytes --------------------------------------------------------------------------------------------
# Nothing is checked: tests write what no encoder would.


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
