"""Golden rows of any format against the truth of their values, JSON columns left aside.

The truth has JSON without the spaces that TiDB writes; the option folders have no such column.
"""

from base64 import b64encode
from typing import Any

from ticdc_assets.events import DdlEvent, Event, Image, RowChange, Watermark, ZonedTimestamp
from ticdc_assets.wire import WireFormat

FOLDER_NAMES = {WireFormat.OPEN_PROTOCOL: "open"}
"""What golden folders call a format, where it is not the format's own name."""


def folder_of(wire_format: WireFormat, option: str) -> str:
    """Return the golden folder of a format with one option."""
    return f"options/{FOLDER_NAMES.get(wire_format, wire_format.value)}-{option}"


def meaning(event: Event) -> dict[str, Any]:
    """Return of `event` what the truth knows whatever the format."""
    match event:
        case RowChange():
            return {
                "type": "row",
                "op": event.op.value,
                "commit_ts": event.commit_ts,
                "database": event.database,
                "table": event.table,
                "before": _values(event.before),
                "after": _values(event.after),
            }
        case DdlEvent():
            return {"type": "ddl", "commit_ts": event.commit_ts, "sql": event.sql}
        case Watermark():
            return {"type": "watermark", "commit_ts": event.watermark_ts}
        case _:
            return {"type": "bootstrap", "table": event.schema.table}


def wanted(line: dict[str, Any]) -> dict[str, Any]:
    """Return the same of a line of the truth."""
    match line["type"]:
        case "row":
            names = ("type", "op", "commit_ts", "database", "table")
            images = {side: _wanted_values(line[side]) for side in ("before", "after")}
            return {name: line[name] for name in names} | images
        case "ddl":
            return {name: line[name] for name in ("type", "commit_ts", "sql")}
        case "watermark":
            return {name: line[name] for name in ("type", "commit_ts")}
        case _:
            return {name: line[name] for name in ("type", "table")}


def _values(image: Image | None) -> dict[str, str | None] | None:
    if image is None:
        return None
    return {
        name: value.value if isinstance(value, ZonedTimestamp) else value
        for name, value in image.items()
    }


def _wanted_values(columns: list[dict[str, Any]] | None) -> dict[str, str | None] | None:
    return None if columns is None else {column["name"]: _wanted(column) for column in columns}


def _wanted(column: dict[str, Any]) -> str | None:
    value: str | None = column["value"]
    if value is None:
        return None
    if "index" in column:
        return str(column["index"])
    if any(word in column["mysql_type"] for word in ("binary", "blob")):
        return b64encode(bytes.fromhex(value.removeprefix("0x"))).decode()
    return value
