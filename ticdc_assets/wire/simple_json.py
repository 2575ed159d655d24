"""The Simple protocol in JSON: one record in, one event out, and back byte for byte.

In: a Kafka record whose value is one JSON object. Its key is not looked at: TiCDC sends none, and
a record with one is as good. Out: a list of exactly one event, or a `WireError` whose position is
a byte (the value is no strict JSON, see `go_json`) or a JSON path. Decoding is a function of the
value alone, so doing it again gives the same.

This is the readable reference; `batch` gives the same meaning faster. The fields of each message
type are a table in `simple_message`. How the kinds of field are written here:

    integer   JSON integer, 0 to 2^63-1 (TiCDC's TSO and ids); never a string, a float, true
    text      JSON string
    boolean   true or false
    image     object: column name to string, null, or exactly {"location": text, "value": text}
    checksum  object: version (integer), corrupted (boolean), current, previous (0 to 2^32-1)
    schema    object, see `schemas.sent_schema`

Not handled: values of columns are left as text (base64 and enum indexes included), and
compressed values are refused as what they are here, bytes that are no JSON.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, cast

from ticdc_assets.errors import WireError, shorten
from ticdc_assets.events import Checksum, Event, Image, PhysicalValue, ZonedTimestamp
from ticdc_assets.schemas import TableSchema, schema_to_json, sent_schema
from ticdc_assets.wire import go_json
from ticdc_assets.wire.fields import Kind
from ticdc_assets.wire.json_fields import (
    READERS,
    Reader,
    read_fields,
    read_natural,
    read_object,
    read_text,
    required,
    wrong_type,
)
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.simple_message import (
    CHECKSUM,
    FIELDS,
    check_version,
    event_from_fields,
    fields_from_event,
    message_type,
)

_TIMESTAMP_MEMBERS: Final = frozenset({"location", "value"})


def decode(record: Record) -> list[Event]:
    """Return the one event that `record` holds.

    Raises:
        WireError: the value is no message of the Simple protocol in JSON.
        UnsupportedVersionError: it is one of another version.
    """
    message = read_object(go_json.parse(record.value), "$")
    check_version(required(message, "version", read_natural))
    kind = message_type(required(message, "type", read_text))
    fields = read_fields(message, FIELDS[kind], readers=_READERS)
    return [event_from_fields(kind, fields)]


def encode(events: Sequence[Event]) -> list[Record]:
    """Return the records that TiCDC would send for `events`, one an event.

    Raises:
        ValueError: an event holds what JSON in UTF-8 cannot (a lone surrogate).
    """
    return [Record(key=None, value=_written(event)) for event in events]


def _written(event: Event) -> bytes:
    fields = fields_from_event(event)
    return go_json.dumps({name: _to_json(name, value) for name, value in fields.items()})


def image_from_value(value: Any, position: str) -> dict[str, PhysicalValue]:
    """Return the row image in the parsed JSON `value`.

    Raises:
        WireError: it is no object, or a member is no text, null or zoned timestamp.
    """
    return {
        name: _physical(item, go_json.member(position, name))
        if type(item) is not str and item is not None
        else item
        for name, item in read_object(value, position).items()
    }


def _checksum(value: Any, position: str) -> Checksum:
    return Checksum(**read_fields(read_object(value, position), CHECKSUM, position))


def _physical(value: Any, position: str) -> ZonedTimestamp:
    if type(value) is not dict:
        raise wrong_type(position, "text, null or {location, value}", value)
    members = cast(dict[str, Any], value)
    if members.keys() != _TIMESTAMP_MEMBERS:
        raise WireError(
            "wrong_members", position, "exactly location and value", shorten(sorted(members))
        )
    return ZonedTimestamp(
        location=read_text(members["location"], f"{position}.location"),
        value=read_text(members["value"], f"{position}.value"),
    )


_READERS: Final[Mapping[Kind, Reader]] = {
    **READERS,
    Kind.IMAGE: image_from_value,
    Kind.CHECKSUM: _checksum,
    Kind.SCHEMA: sent_schema,
}


def _to_json(name: str, value: Any) -> Any:
    writer = _WRITERS.get(name)
    return value if writer is None else writer(value)


def _image_to_json(image: Image) -> dict[str, Any]:
    # Go writes the keys of a map in the order of their bytes, which is that of code points.
    values = ((name, image[name]) for name in sorted(image))
    return {
        name: asdict(value) if isinstance(value, ZonedTimestamp) else value
        for name, value in values
    }


def _schema_to_json(schema: TableSchema) -> dict[str, Any]:
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
    "data": _image_to_json,
    "old": _image_to_json,
    "checksum": asdict,
    "tableSchema": _schema_to_json,
    "preTableSchema": _schema_to_json,
}
"""Fields that are no regular JSON value of their own."""
