"""Canal-JSON: one record an event.

In: events whose rows have their shape. Out: records whose value is one JSON object, as
`wire.canal_json` reads it.
"""

import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, assert_never, cast

from ticdc_assets.base.errors import shorten
from ticdc_assets.demo.simulator.encoders import go_json
from ticdc_assets.demo.simulator.encoders.java_types import java_sql_type
from ticdc_assets.model.events import (
    Bootstrap,
    DdlEvent,
    Event,
    Image,
    Op,
    PhysicalValue,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.tso import LOGICAL_BITS, MAX_TSO, physical_ms
from ticdc_assets.wire.canal_json import OPS, WATERMARK_TYPE, is_binary_type
from ticdc_assets.wire.column_types import OTHER_DDL
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.simple_message import DDL_TYPES

_TYPES_OF_OPS: Final = {op: word for word, op in OPS.items()}
_LOGICAL: Final = (1 << LOGICAL_BITS) - 1


def encode(events: Sequence[Event]) -> list[Record]:
    """Return the records that TiCDC would send for `events`, one an event.

    What TiCDC has no place for in this format (ids, schemas, checksums, the zone of a timestamp)
    is left out, as TiCDC does. Whether the extension is written is said by `es_only`.

    Raises:
        ValueError: the format has no such event, or would lose what the event means.
    """
    return [Record(key=None, value=_written(event)) for event in events]


def _written(event: Event) -> bytes:
    message_of = _MESSAGES_OF.get(type(event))
    if message_of is None:
        _refuse(f"Canal-JSON has no {type(event).__name__}")
    # TiCDC writes this format with other JSON libraries than the others.
    return go_json.with_long_escapes(go_json.dumps(message_of(event)))


def _row_message(event: Event) -> dict[str, Any]:
    row = cast(RowChange, event)
    shape = row.shape
    if shape is None:
        _refuse("a row without shape")
    if not row.database or not row.table:
        _refuse("a row without names of its database and table")
    if row.es_only and (row.handle_key_only or row.claim_check_location):
        _refuse("a cut row needs the TiDB extension")
    data, old = (row.before, None) if row.op is Op.DELETE else (row.after, row.before)
    if data is None or (old is not None) is not (row.op is Op.UPDATE):
        _refuse(f"images that do not fit {row.op}")
    # A column stands in `sqlType` and `mysqlType` if it stands in an image.
    types = {
        column.name: column.mysql_type
        for column in shape.columns
        if column.name in data or (old is not None and column.name in old)
    }
    key = shape.primary_key
    return {
        **_head(row.database, row.table, None if key is None else list(key)),
        "type": _TYPES_OF_OPS[row.op],
        **_times(row.commit_ts, row.build_ts_ms, es_only=row.es_only),
        "sql": "",
        "sqlType": {name: java_sql_type(types[name], data.get(name)) for name in types} or None,
        "mysqlType": types,
        "old": None if old is None else [_sent_image(old, types)],
        "data": [_sent_image(data, types)],
        **({} if row.es_only else {"_tidb": _row_extension(row)}),
    }


def _row_extension(row: RowChange) -> dict[str, Any]:
    extension: dict[str, Any] = {"commitTs": row.commit_ts}
    if row.claim_check_location:
        extension["claimCheckLocation"] = row.claim_check_location
    elif row.handle_key_only:
        extension["onlyHandleKey"] = True
    return extension


def _ddl_message(event: Event) -> dict[str, Any]:
    ddl = cast(DdlEvent, event)
    if ddl.ddl_type not in DDL_TYPES:
        _refuse(f"{shorten(ddl.ddl_type)} is no type of a DDL")
    if not ddl.sql:
        _refuse("a DDL without its text")
    return {
        **_head(ddl.database, ddl.table, None, is_ddl=True),
        "type": ddl.ddl_type,
        **_times(ddl.commit_ts, ddl.build_ts_ms, es_only=ddl.es_only),
        "sql": ddl.sql,
        **_NO_ROWS,
        **({} if ddl.es_only else {"_tidb": {"commitTs": ddl.commit_ts}}),
    }


def _bootstrap_message(event: Event) -> dict[str, Any]:
    bootstrap = cast(Bootstrap, event)
    if bootstrap.schema is not None:
        _refuse("Canal-JSON has no place for the schema of a bootstrap")
    return {
        **_head("", "", None, is_ddl=True),
        "type": OTHER_DDL,
        **_times(0, bootstrap.build_ts_ms, es_only=True),
        "sql": "",
        **_NO_ROWS,
        "_tidb": {},
    }


def _watermark_message(event: Event) -> dict[str, Any]:
    watermark = cast(Watermark, event)
    return {
        **_head("", "", None),
        "type": WATERMARK_TYPE,
        **_times(watermark.watermark_ts, watermark.build_ts_ms, es_only=False),
        "sql": "",
        **_NO_ROWS,
        "_tidb": {"watermarkTs": watermark.watermark_ts},
    }


_NO_ROWS: Final = dict.fromkeys(("sqlType", "mysqlType", "data", "old"))
_MESSAGES_OF: Final[Mapping[type[Event], Callable[[Event], dict[str, Any]]]] = {
    RowChange: _row_message,
    DdlEvent: _ddl_message,
    Bootstrap: _bootstrap_message,
    Watermark: _watermark_message,
}


def _head(
    database: str, table: str, primary_key: list[str] | None, *, is_ddl: bool = False
) -> dict[str, Any]:
    return {
        "id": 0,
        "database": database,
        "table": table,
        "pkNames": primary_key,
        "isDdl": is_ddl,
    }


def _times(commit_ts: int, build_ts_ms: int | None, *, es_only: bool) -> dict[str, int]:
    if not 0 <= commit_ts <= MAX_TSO:
        _refuse(f"{commit_ts} is no TSO")
    if es_only and commit_ts & _LOGICAL:
        _refuse(f"without the TiDB extension the logical part of {commit_ts} would be lost")
    if build_ts_ms is None:
        _refuse("an event without its build ts")
    return {"es": physical_ms(commit_ts), "ts": build_ts_ms}


def _sent_image(image: Image, types: Mapping[str, str]) -> dict[str, str | None]:
    for name in image:
        if name not in types:
            _refuse(f"the shape lacks column {shorten(name)}")
    return {
        name: _sent_value(image[name], mysql_type)
        for name, mysql_type in types.items()
        if name in image
    }


def _sent_value(value: PhysicalValue, mysql_type: str) -> str | None:
    match value:
        case None:
            return None
        case ZonedTimestamp():
            return value.value
        case str():
            if not is_binary_type(mysql_type):
                return value
            return binascii.a2b_base64(value, strict_mode=True).decode("latin-1")
        case _:
            assert_never(value)


def _refuse(cause: str) -> NoReturn:
    raise ValueError(cause)
