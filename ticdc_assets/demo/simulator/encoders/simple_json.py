"""The Simple protocol in JSON: one record an event; and the fields that its Avro has too.

In: events. Out: records whose value is one JSON object, as `wire.simple.json_reference` reads it.
The fields are those of `wire.simple.message.FIELDS`, which has them in the order of TiCDC's struct.

What Go's `omitempty` leaves out is left out, but for an empty image: TiCDC drops it, and such a
message looks like a damaged one, so it is kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from ticdc_assets.demo.simulator.encoders import go_json
from ticdc_assets.model.events import (
    Bootstrap,
    DdlEvent,
    Event,
    Image,
    RowChange,
    Watermark,
    ZonedTimestamp,
)
from ticdc_assets.model.schemas import TableSchema, schema_to_json
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.simple.message import FIELDS, OPS, VERSION, MessageType, message_type

_TYPES_OF_OPS: Final = {op: kind for kind, op in OPS.items()}
_NAMES: Final = ("database", "table", "tableID")
_ALWAYS: Final = frozenset({"version", "type", "commitTs", "buildTs", "data", "old"})
"""Fields that are written though they are empty."""


def encode(events: Sequence[Event]) -> list[Record]:
    """Return the records that TiCDC would send for `events`, one an event."""
    return [Record(key=None, value=_written(event)) for event in events]


def fields_from_event(event: Event) -> dict[str, Any]:
    """Return the fields of the message of `event`, in TiCDC's order."""
    kind = _type_of(event)
    fields = {field.name: getattr(event, field.meaning) for field in FIELDS[kind]}
    names = {name: fields.pop(name) for name in _NAMES if name in fields}
    head = {"version": VERSION, **names, "type": kind.value}
    if kind is MessageType.BOOTSTRAP:
        head["commitTs"] = 0
    return {
        name: value
        for name, value in {**head, **fields}.items()
        if value or (name in _ALWAYS and value is not None)
    }


def _type_of(event: Event) -> MessageType:
    match event:
        case RowChange():
            return _TYPES_OF_OPS[event.op]
        case DdlEvent():
            return message_type(event.ddl_type)
        case Bootstrap():
            return MessageType.BOOTSTRAP
        case Watermark():
            return MessageType.WATERMARK


def _written(event: Event) -> bytes:
    return go_json.dumps(
        {
            name: _WRITERS[name](value) if name in _WRITERS else value
            for name, value in fields_from_event(event).items()
        }
    )


def _image(image: Image) -> dict[str, Any]:
    # Go writes the keys of a map in the order of their bytes, which is that of code points.
    values = ((name, image[name]) for name in sorted(image))
    return {
        name: asdict(value) if isinstance(value, ZonedTimestamp) else value
        for name, value in values
    }


def _schema(schema: TableSchema) -> dict[str, Any]:
    written = schema_to_json(schema)
    for column, default in zip(
        written["columns"], (column.default for column in schema.columns), strict=True
    ):
        if isinstance(default, bytes):
            column["default"] = go_json.replaced(default)
        if not column["dataType"]["length"]:
            # `omitempty`: JSON, VECTOR and the like have no length.
            del column["dataType"]["length"]
    return written


_WRITERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "data": _image,
    "old": _image,
    "checksum": asdict,
    "tableSchema": _schema,
    "preTableSchema": _schema,
}
"""Fields that JSON has no value for."""
