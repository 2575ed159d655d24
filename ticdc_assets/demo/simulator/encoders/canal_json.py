"""Canal-JSON: one record an event.

In: events whose rows have their shape. Out: records whose value is one JSON object, as
`wire.canal.reference` reads it. The new TiCDC sends DDL without text, which are its bootstraps.

Source: getJavaSQLType in pingcap/tiflow pkg/sink/codec/canal at 017624f.
"""

import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

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
            names = {"database": event.database, "table": event.table}
            extension = {"commitTs": event.commit_ts} if event.sql else {}
            return _fields(
                event.ddl_type,
                event.commit_ts,
                event.build_ts_ms,
                {**names, "isDdl": True, "sql": event.sql},
                extension=None if event.es_only else extension,
            )
        case Bootstrap():
            return _fields(OTHER_DDL, 0, event.build_ts_ms, {"isDdl": True}, extension={})
        case Watermark():
            ts = event.watermark_ts
            return _fields(WATERMARK_TYPE, ts, event.build_ts_ms, {}, extension={"watermarkTs": ts})


_HEAD: Final[Mapping[str, Any]] = {
    "id": 0,
    "database": "",
    "table": "",
    "pkNames": None,
    "isDdl": False,
}
_NO_ROWS: Final[Mapping[str, Any]] = {
    "sqlType": None,
    "mysqlType": None,
    "data": None,
    "old": None,
}
"""The members of a message in TiCDC's order, as they are where nothing else is said."""


def _fields(
    kind: str,
    commit_ts: int,
    build_ts_ms: int | None,
    members: Mapping[str, Any],
    *,
    rows: Mapping[str, Any] = _NO_ROWS,
    extension: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return a message with some members, without `_tidb` if `extension` is None."""
    times = {"es": physical_ms(commit_ts), "ts": build_ts_ms}
    message = {**_HEAD, "type": kind, **times, "sql": "", **rows, **members}
    return message if extension is None else {**message, "_tidb": extension}


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
    extension: dict[str, Any] = {"commitTs": row.commit_ts}
    if row.claim_check_location:
        extension["claimCheckLocation"] = row.claim_check_location
    elif row.handle_key_only:
        extension["onlyHandleKey"] = True
    key = shape.primary_key
    return _fields(
        _TYPES_OF_OPS[row.op],
        row.commit_ts,
        row.build_ts_ms,
        {
            "database": row.database,
            "table": row.table,
            "pkNames": None if key is None else list(key),
        },
        rows={
            "sqlType": {name: java_sql_type(types[name], data.get(name)) for name in types} or None,
            "mysqlType": types,
            "old": None if old is None else [_sent_image(old, types)],
            "data": [_sent_image(data, types)],
        },
        extension=None if row.es_only else extension,
    )


def _sent_image(image: Image, types: Mapping[str, str]) -> dict[str, str | None]:
    return {
        name: _sent_value(image[name], mysql_type)
        for name, mysql_type in types.items()
        if name in image
    }


def _sent_value(value: PhysicalValue, mysql_type: str) -> str | None:
    if isinstance(value, ZonedTimestamp):
        return value.value
    if value is None or not is_binary_type(mysql_type):
        return value
    return binascii.a2b_base64(value, strict_mode=True).decode("latin-1")


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
