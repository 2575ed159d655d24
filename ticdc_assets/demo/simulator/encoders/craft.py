"""Craft: the events of a batch in one record.

In: events whose rows have their shape, with flags. Out: records whose value is a message, as
`wire.craft` reads it, and no key. How values are written is said by `wire.craft_values`; FLOAT is
written right, which TiCDC does not do.
"""

import struct
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ticdc_assets.base.errors import shorten
from ticdc_assets.demo.simulator.encoders import numbers
from ticdc_assets.demo.simulator.encoders.column_types import action_code, type_code
from ticdc_assets.demo.simulator.encoders.craft_layout import (
    write_event,
    write_rows,
    write_string,
    write_uvarint,
    write_varint,
)
from ticdc_assets.model.events import (
    DdlEvent,
    Event,
    Image,
    PhysicalValue,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.mysql_types import base_type
from ticdc_assets.model.schemas import ColumnFlag, ColumnSchema, RowShape, SentColumn
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.wire.column_types import TYPE_NAMES, ddl_word
from ticdc_assets.wire.craft import MAX_ACTION_CODE, OPS
from ticdc_assets.wire.craft_layout import (
    MAX_FLAGS,
    MAX_NAME_BYTES,
    ColumnGroup,
    EventKind,
    GroupKind,
    Header,
)
from ticdc_assets.wire.craft_values import form_of
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.repeating import stored_bytes
from ticdc_assets.wire.value_forms import Form

DEFAULT_BATCH_SIZE: Final = 16
"""TiCDC's default of `max-batch-size`: rows of a message."""

DEFAULT_MESSAGE_BYTES: Final = 10_485_760
"""TiCDC's default of `max-message-bytes`."""

# What TiCDC takes a row for besides its texts, when it looks whether a message is full.
_ROW_ESTIMATE: Final = 32
_COLUMN_ESTIMATE: Final = 16


def encode(
    events: Sequence[Event],
    *,
    max_batch_size: int = DEFAULT_BATCH_SIZE,
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES,
) -> list[Record]:
    """Return the records that TiCDC would send for `events`, in their order.

    Rows next to each other share a message, `max_batch_size` of them at most. A message is closed
    after the row with which TiCDC takes it for longer than `max_message_bytes`.

    Raises:
        ValueError: the format cannot carry an event, or a row has no shape.
    """
    if max_batch_size < 1:
        raise ValueError(f"no batch size: {max_batch_size}")
    records: list[Record] = []
    rows: list[RowChange] = []
    groups: list[list[ColumnGroup]] = []
    estimate = 0

    def close() -> None:
        if rows:
            headers = [_row_header(row) for row in rows]
            records.append(Record(key=None, value=write_rows(headers, groups)))
            rows.clear()
            groups.clear()

    for event in events:
        match event:
            case RowChange():
                if not rows:
                    estimate = 0
                rows.append(event)
                groups.append(_groups_of(event))
                estimate += _estimate(event, groups[-1])
                if len(rows) >= max_batch_size or estimate > max_message_bytes:
                    close()
            case DdlEvent():
                close()
                records.append(Record(key=None, value=_write_ddl(event)))
            case Watermark():
                close()
                header = _header(EventKind.WATERMARK, event.watermark_ts)
                records.append(Record(key=None, value=write_event(header, b"")))
            case _:
                raise ValueError("Craft has no bootstraps")
    close()
    return records


def _write_ddl(ddl: DdlEvent) -> bytes:
    code = action_code(ddl)
    if code is None or not 0 <= code <= MAX_ACTION_CODE or ddl_word(code) != ddl.ddl_type:
        raise ValueError(f"no action code of {ddl.ddl_type!r}: {ddl.action_code!r}")
    if not ddl.sql:
        raise ValueError("a DDL event without text")
    header = _header(EventKind.DDL, ddl.commit_ts, database=ddl.database, table=ddl.table)
    return write_event(header, write_uvarint(code) + write_string(ddl.sql))


def _row_header(row: RowChange) -> Header:
    return _header(
        EventKind.ROW,
        row.commit_ts,
        table_id=row.table_id,
        database=row.database,
        table=row.table,
    )


def _header(
    kind: EventKind,
    commit_ts: int,
    *,
    table_id: int | None = None,
    database: str = "",
    table: str = "",
) -> Header:
    for name in (database, table):
        _check_name(name)
    if not 0 <= commit_ts <= MAX_TSO or (table_id is not None and not 0 <= table_id <= MAX_TSO):
        raise ValueError(f"no TSO or no table id: {commit_ts}, {table_id}")
    return Header(
        kind=kind,
        commit_ts=commit_ts,
        table_id=table_id,
        database=database or None,
        table=table or None,
    )


def _check_name(name: str) -> None:
    if stored_bytes(name) > MAX_NAME_BYTES:
        raise ValueError(f"a name of more than {MAX_NAME_BYTES} bytes in JSON: {shorten(name)}")


def _groups_of(row: RowChange) -> list[ColumnGroup]:
    if row.shape is None:
        raise ValueError("a row without a shape: Craft sends types and flags")
    if row.handle_key_only or row.claim_check_location is not None or row.es_only:
        raise ValueError("Craft has no large messages, and a commit ts in every row")
    if not row.database or not row.table:
        raise ValueError("a row without the names of its database and its table")
    images = {GroupKind.AFTER: row.after, GroupKind.BEFORE: row.before}
    if OPS.get((row.after is not None, row.before is not None)) is not row.op:
        raise ValueError(f"not the images of this change: {row.op.value}")
    return [
        _group_of(kind, image, row.shape) for kind, image in images.items() if image is not None
    ]


def _group_of(kind: GroupKind, image: Image, shape: RowShape) -> ColumnGroup:
    columns = [column for column in shape.columns if column.name in image]
    if not columns or len(columns) != len(image):
        raise ValueError("an image without columns, or with columns that its shape lacks")
    codes = [_code_of(column) for column in columns]
    return ColumnGroup(
        kind=kind,
        names=tuple(column.name for column in columns),
        types=tuple(code for code, _ in codes),
        flags=tuple(flags for _, flags in codes),
        values=tuple(
            _write_value(code, flags, image[column.name])
            for column, (code, flags) in zip(columns, codes, strict=True)
        ),
    )


def _code_of(column: SentColumn) -> tuple[int, int]:
    """Return the type code and the flags of `column`."""
    code, flags = type_code(column.mysql_type), column.flags
    _check_name(column.name)
    if code is None or flags is None or not 0 <= flags <= MAX_FLAGS:
        raise ValueError(f"no type code or no flags: {column!r}")
    base = base_type(ColumnSchema(name=column.name, mysql_type=column.mysql_type))
    if base != TYPE_NAMES[code][bool(flags & ColumnFlag.BINARY)]:
        raise ValueError(f"the flags are those of another type: {column!r}")
    return code, int(flags)


def _write_value(code: int, flags: int, value: PhysicalValue) -> bytes | None:
    if value is None:
        return None
    form = form_of(code, flags)
    assert form is not None, "a code that types have"
    return _WRITERS[form](value.value if isinstance(value, ZonedTimestamp) else value)


def _binary(text: str) -> bytes:
    return b64decode(text, validate=True)


def _unsigned(text: str) -> bytes:
    return write_uvarint(numbers.integer(text, 0, 2**64 - 1))


def _signed(text: str) -> bytes:
    return write_varint(numbers.integer(text, -(2**63), 2**63 - 1))


def _double(text: str) -> bytes:
    return _FLOAT64.pack(numbers.double(text))


def _float(text: str) -> bytes:
    return _FLOAT64.pack(numbers.single(text))


def _nothing(text: str) -> bytes:
    raise ValueError(f"a column of type null has no value: {shorten(text)}")


_FLOAT64: Final = struct.Struct("<d")
_WRITERS: Final[Mapping[Form, Callable[[str], bytes]]] = {
    Form.TEXT: str.encode,
    Form.BASE64: _binary,
    Form.SIGNED: _signed,
    Form.UNSIGNED: _unsigned,
    Form.FLOAT: _float,
    Form.DOUBLE: _double,
    Form.NULL: _nothing,
}


def _estimate(row: RowChange, groups: Sequence[ColumnGroup]) -> int:
    """Return what TiCDC takes the length of `row` for."""
    return (
        _ROW_ESTIMATE
        + len(row.database.encode())
        + len(row.table.encode())
        + sum(
            len(name.encode()) + len(raw or b"") + _COLUMN_ESTIMATE
            for group in groups
            for name, raw in zip(group.names, group.values, strict=True)
        )
    )
