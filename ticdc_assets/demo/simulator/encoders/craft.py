"""Craft: the events of a batch in one record.

In: events whose rows have their shape, with flags. Out: records whose value is a message, as
`wire.craft.reference` reads it, and no key. How values are written is said by `wire.craft.values`;
FLOAT is written right, which TiCDC does not do.
"""

import struct
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ticdc_assets.demo.simulator.encoders.craft_layout import (
    write_event,
    write_rows,
    write_string,
    write_uvarint,
    write_varint,
)
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
from ticdc_assets.wire.craft.layout import ColumnGroup, EventKind, GroupKind, Header
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
