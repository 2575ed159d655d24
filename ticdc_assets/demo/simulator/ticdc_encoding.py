"""Bytes of the new TiCDC where they differ: Open Protocol, and what is added to Canal-JSON.

In: events as `ticdc_forms` makes them. Out: the records that pingcap/ticdc sends for them. They are
a function of the events alone.

Of Open Protocol the columns are in the order of the table, the key has its members in another
order and no row id, a DDL names its table even where it has none, and `<`, `>` and `&` are not
escaped. Two faults of its encoder are written where a row says so (`SentRow`): the flags of its
columns are others than those that decide how values are written, and an old value that becomes
NULL has no name in `p`.

Source: pkg/sink/codec/open/codec.go and encoder.go, pkg/util/json_writer.go and
pkg/sink/codec/canal/canal_json_encoder.go in pingcap/ticdc.

Not handled: the keys of clustered primary keys of other types than integers and text, which TiKV
encodes by type.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, cast

import orjson

from ticdc_assets.demo.simulator.columns import INTEGER_TYPES
from ticdc_assets.demo.simulator.encoders import canal_json, open_protocol
from ticdc_assets.demo.simulator.encoders.column_types import type_code
from ticdc_assets.demo.simulator.encoders.go_json import with_long_escapes
from ticdc_assets.demo.simulator.encoders.open_values import json_value
from ticdc_assets.demo.simulator.transaction import CommittedRow
from ticdc_assets.model.events import (
    DdlEvent,
    Event,
    Image,
    Op,
    PhysicalValue,
    RowChange,
    Watermark,
)
from ticdc_assets.model.schemas import ColumnFlag, SentColumn, TableSchema
from ticdc_assets.wire.open_protocol import DDL, ROW, WATERMARK
from ticdc_assets.wire.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRow(RowChange):
    """A row change with what the new TiCDC writes beyond its meaning.

    Attributes:
        row_key: Canal-JSON: the key of the row in TiKV, base64; "" where it is not sent.
        stale_flags: Open Protocol: the flags that are sent, by column; None for the true ones.
            Columns without any have 0.
        damages_old_values: Open Protocol: whether `p` has the faults that
            `MessageOptions.damaged_old_values` names.
    """

    row_key: str = ""
    stale_flags: Mapping[str, int] | None = None
    damages_old_values: bool = False


# --- Canal-JSON ---


def encode_canal(events: Sequence[Event]) -> list[Record]:
    """Return the records of events in Canal-JSON: row keys in `_tidb`, and DDL without content."""
    return [_canal_record(event) for event in events]


def _canal_record(event: Event) -> Record:
    if isinstance(event, DdlEvent) and not event.sql:
        # TiCDC's encoder refuses nothing: this is a bootstrap, which the format does not have.
        (record,) = canal_json.encode([replace(event, sql="-")])
        value = cast(bytes, record.value).replace(b'"sql":"-"', b'"sql":""')
        return Record(key=None, value=value.replace(b'"_tidb":{"commitTs":0}', b'"_tidb":{}'))
    if not isinstance(event, SentRow):
        (record,) = canal_json.encode([event])
        return record
    (record,) = canal_json.encode([_row_of(event)])
    value = cast(bytes, record.value)
    if event.row_key and not event.es_only:
        # The extension is the last member, and never empty.
        value = value[:-2] + b',"rowkey":"%s"}}' % event.row_key.encode()
    return Record(key=None, value=value)


def _row_of(event: SentRow) -> RowChange:
    return RowChange(**{item.name: getattr(event, item.name) for item in fields(RowChange)})


def row_key(row: CommittedRow, schema: TableSchema) -> str:
    """Return the key of a row in TiKV, in base64.

    It is real for rows known by an integer and by TiDB's hidden row id.
    """
    primary = next((index for index in schema.own_indexes if index.primary), None)
    key = b"t" + _encoded_integer(row.physical_id) + b"_r"
    if primary is not None and primary.name == "PRIMARY":
        key += b"".join(map(_encoded_handle, row.key))
    else:
        digits = row.key[-1] if row.key else "0"
        key += _encoded_integer(int(digits) if digits.lstrip("-").isdecimal() else 0)
    return b64encode(key).decode()


def _encoded_integer(number: int) -> bytes:
    return ((number + 2**63) % 2**64).to_bytes(8)


def _encoded_handle(text: str) -> bytes:
    if text.lstrip("-").isdecimal() and len(text) < _INTEGER_DIGITS:
        return b"\x03" + _encoded_integer(int(text))
    content = text.encode()
    groups = bytearray(b"\x01")
    for start in range(0, len(content) + 1, 8):
        group = content[start : start + 8]
        groups += group.ljust(8, b"\0") + bytes((255 - (8 - len(group)),))
    return bytes(groups)


_INTEGER_DIGITS: Final = 20

# --- Open Protocol ---


def encode_open(
    events: Sequence[Event],
    *,
    max_batch_size: int = open_protocol.DEFAULT_BATCH_SIZE,
    max_message_bytes: int = open_protocol.DEFAULT_MESSAGE_BYTES,
) -> list[Record]:
    """Return the records of events in Open Protocol, rows that follow each other in one.

    Raises:
        ValueError: an event is none that the format can carry, or a row lacks its shape.
    """
    return open_protocol.batched(
        ((event, _WRITERS[type(event)](event)) for event in events),
        max_batch_size=max_batch_size,
        max_message_bytes=max_message_bytes,
    )


def _write_watermark(event: Event) -> tuple[bytes, bytes]:
    watermark = cast(Watermark, event)
    return _dumps({"ts": watermark.watermark_ts, "t": WATERMARK}), b""


def _write_ddl(event: Event) -> tuple[bytes, bytes]:
    ddl = cast(DdlEvent, event)
    key = {"ts": ddl.commit_ts, "scm": ddl.database, "tbl": ddl.table, "t": DDL}
    return _dumps(key), _dumps({"q": ddl.sql, "t": int(ddl.action_code or 0)})


def _write_row(event: Event) -> tuple[bytes, bytes]:
    row = cast(RowChange, event)
    if row.shape is None:
        raise ValueError(f"a row of {row.database}.{row.table} needs its shape")
    location = row.claim_check_location
    key: dict[str, Any] = {
        "ts": row.commit_ts,
        "scm": row.database,
        "tbl": row.table,
        "t": ROW,
        **({"ohk": True} if row.handle_key_only else {}),
        **({} if location is None else {"ccl": location}),
        **({} if row.table_id is None else {"ptn": row.table_id}),
    }
    before, after = row.before or {}, row.after or {}
    images = {
        Op.INSERT: {"u": after},
        Op.UPDATE: {"u": after, "p": before},
        Op.DELETE: {"d": before},
    }[row.op]
    columns = {column.name: column for column in row.shape.columns}
    written = (
        _text(name) + b":{" + b",".join(_columns_of(row, name, image, columns)) + b"}"
        for name, image in images.items()
    )
    text = _dumps(key)
    if location is not None and row.handle_key_only:
        # TiCDC writes the member twice: for the cut, and for the claim check.
        text = text.replace(b'"ccl":', b'"ohk":false,"ccl":', 1)
    return text, b"{" + b",".join(written) + b"}"


_WRITERS: Final[Mapping[type[Event], Callable[[Event], tuple[bytes, bytes]]]] = {
    RowChange: _write_row,
    SentRow: _write_row,
    DdlEvent: _write_ddl,
    Watermark: _write_watermark,
}


def _columns_of(
    row: RowChange, member: str, image: Image, columns: Mapping[str, SentColumn]
) -> list[bytes]:
    """Return the members of an image, each as it is written."""
    stale = row.stale_flags if isinstance(row, SentRow) else None
    damaged = member == "p" and isinstance(row, SentRow) and row.damages_old_values
    written: list[bytes] = []
    for name, value in image.items():
        column = columns.get(name)
        code = None if column is None else type_code(column.mysql_type)
        if column is None or column.flags is None or code is None:
            raise ValueError(f"the column {name!r} needs its type and flags")
        flags = int(column.flags)
        becomes_null = damaged and value is not None and (row.after or {}).get(name) is None
        sent = None if damaged and not becomes_null and _is_empty(value, column) else value
        body = _dumps(
            {
                "t": code,
                **({"h": True} if flags & ColumnFlag.HANDLE_KEY else {}),
                "f": flags if stale is None else stale.get(name, 0),
                "v": json_value(sent, code, flags),
            }
        )
        written.append(body[1:-1] if becomes_null else _text(name) + b":" + body)
    return written


_ZERO: Final = re.compile(r"-?[0.:\- ]*")
_ZEROS_ARE_NULL: Final = frozenset(
    {"decimal", "date", "datetime", "timestamp", "time", "enum", "set"}
)


def _is_empty(value: PhysicalValue, column: SentColumn) -> bool:
    """Tell whether an old value is one that TiCDC writes as NULL: empty, or zero."""
    if not isinstance(value, str) or column.mysql_type in INTEGER_TYPES:
        return False
    if column.mysql_type in _ZEROS_ARE_NULL:
        return _ZERO.fullmatch(value) is not None
    return value in ("", "[]") and column.mysql_type != "json"


def _dumps(value: Any) -> bytes:
    # jsoniter escapes nothing for HTML.
    return with_long_escapes(orjson.dumps(value))


def _text(name: str) -> bytes:
    return _dumps(name)
