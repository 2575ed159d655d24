"""Canal-JSON: one record an event.

In: events whose rows have their shape. Out: records whose value is one JSON object, as
`wire.canal.reference` reads it. The new TiCDC sends DDL without text, which are its bootstraps.

Source: getJavaSQLType in pingcap/tiflow pkg/sink/codec/canal at 017624f.
"""

import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

from ticdc_assets.demo.simulator.encoders import go_json
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
from ticdc_assets.model.mysql_types import base_type
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.tso import physical_ms
from ticdc_assets.wire.canal.reference import OPS, WATERMARK_TYPE, is_binary_type
from ticdc_assets.wire.column_types import OTHER_DDL
from ticdc_assets.wire.record import Record

_TYPES_OF_OPS: Final = {op: word for word, op in OPS.items()}


def encode(events: Sequence[Event]) -> list[Record]:
    """Return the records that TiCDC would send for `events`, one an event.

    What TiCDC has no place for in this format (ids, schemas, checksums, the zone of a timestamp)
    is left out, as TiCDC does. `es_only` of an event says whether the extension is written.
    """
    # TiCDC writes this format with other JSON libraries than the others.
    return [
        Record(key=None, value=go_json.with_long_escapes(go_json.dumps(_message(event))))
        for event in events
    ]


def _message(event: Event) -> dict[str, Any]:
    match event:
        case RowChange():
            return _row_message(event)
        case DdlEvent():
            return _ddl_message(event)
        case Bootstrap():
            return {
                **_head("", "", None, is_ddl=True),
                "type": OTHER_DDL,
                **_times(0, event.build_ts_ms),
                "sql": "",
                **_NO_ROWS,
                "_tidb": {},
            }
        case Watermark():
            return {
                **_head("", "", None),
                "type": WATERMARK_TYPE,
                **_times(event.watermark_ts, event.build_ts_ms),
                "sql": "",
                **_NO_ROWS,
                "_tidb": {"watermarkTs": event.watermark_ts},
            }


def _row_message(row: RowChange) -> dict[str, Any]:
    shape = row.shape
    assert shape is not None
    data, old = (row.before, None) if row.op is Op.DELETE else (row.after, row.before)
    assert data is not None
    # A column is in `sqlType` and `mysqlType` if it is in an image.
    types = {
        column.name: column.mysql_type
        for column in shape.columns
        if column.name in data or (old is not None and column.name in old)
    }
    key = shape.primary_key
    return {
        **_head(row.database, row.table, None if key is None else list(key)),
        "type": _TYPES_OF_OPS[row.op],
        **_times(row.commit_ts, row.build_ts_ms),
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


def _ddl_message(ddl: DdlEvent) -> dict[str, Any]:
    extension = {"commitTs": ddl.commit_ts} if ddl.sql else {}
    return {
        **_head(ddl.database, ddl.table, None, is_ddl=True),
        "type": ddl.ddl_type,
        **_times(ddl.commit_ts, ddl.build_ts_ms),
        "sql": ddl.sql,
        **_NO_ROWS,
        **({} if ddl.es_only else {"_tidb": extension}),
    }


_NO_ROWS: Final = dict.fromkeys(("sqlType", "mysqlType", "data", "old"))


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


def _times(commit_ts: int, build_ts_ms: int | None) -> dict[str, int | None]:
    return {"es": physical_ms(commit_ts), "ts": build_ts_ms}


def _sent_image(image: Image, types: Mapping[str, str]) -> dict[str, str | None]:
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


# Types of Java ------------------------------------------------------------------------------------

_VARCHAR: Final = 12
_JAVA_SQL_TYPES: Final[Mapping[str, int]] = {
    "bit": -7,
    "set": -7,
    "tinyint": -6,
    "bigint": -5,
    "null": 0,
    "char": 1,
    "decimal": 3,
    "int": 4,
    "mediumint": 4,
    "enum": 4,
    "smallint": 5,
    "float": 7,
    "double": 8,
    "date": 91,
    "newdate": 91,
    "time": 92,
    "datetime": 93,
    "timestamp": 93,
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
        2004,
    ),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), 2005),
}
"""Numbers of java.sql.Types by base type; VARCHAR for all others: varchar, year, json, vector."""
_PROMOTIONS: Final[Mapping[str, tuple[int, int]]] = {
    "tinyint": (2**7 - 1, 5),
    "smallint": (2**15 - 1, 4),
    "int": (2**31 - 1, -5),
    "bigint": (2**63 - 1, 3),
}
"""The signed maximum of a type, and the number that an unsigned value above it has."""


def java_sql_type(mysql_type: str, value: PhysicalValue) -> int:
    """Return the number of the Java type that `sqlType` says for `value` of a column.

    An unsigned integer above the signed maximum of its type has the number of a wider one.
    """
    base = base_type(ColumnSchema(name="", mysql_type=mysql_type))
    number = _JAVA_SQL_TYPES.get(base, _VARCHAR)
    promotion = _PROMOTIONS.get(base)
    if promotion is None or not isinstance(value, str) or "unsigned" not in mysql_type.split():
        return number
    maximum, wider = promotion
    return wider if int(value) > maximum else number
