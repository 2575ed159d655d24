"""The Simple protocol in JSON: one record in, one event out.

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

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from ticdc_assets.errors import WireError, shorten
from ticdc_assets.events import Checksum, Event, PhysicalValue, ZonedTimestamp
from ticdc_assets.schemas import sent_schema
from ticdc_assets.wire import go_json
from ticdc_assets.wire.fields import Field, Kind, Presence
from ticdc_assets.wire.json_fields import (
    optional,
    read_boolean,
    read_name,
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
    message_type,
)

_MAX_UINT32: Final = 2**32 - 1
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
    fields: dict[str, Any] = {}
    for field in FIELDS[kind]:
        value = _PRESENCES[field.presence](message, field)
        if value is not None:
            fields[field.name] = value
    return [event_from_fields(kind, fields)]


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


def _required_field(message: Mapping[str, Any], field: Field) -> Any:
    return required(message, field.name, _KINDS[field.kind])


def _optional_field(message: Mapping[str, Any], field: Field) -> Any:
    return optional(message, field.name, _KINDS[field.kind])


def _absent_field(message: Mapping[str, Any], field: Field) -> None:
    value = message.get(field.name)
    if value is not None:
        raise WireError(
            "unexpected_field", f"$.{field.name}", f"no {field.name} in this type", shorten(value)
        )


def _checksum(value: Any, position: str) -> Checksum:
    members = read_object(value, position)
    return Checksum(
        **{
            field.name: required(members, field.name, _KINDS[field.kind], position)
            for field in CHECKSUM
        }
    )


def _uint32(value: Any, position: str) -> int:
    return read_natural(value, position, _MAX_UINT32)


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


_KINDS: Final[Mapping[Kind, Callable[[Any, str], Any]]] = {
    Kind.INTEGER: read_natural,
    Kind.UINT32: _uint32,
    Kind.TEXT: read_text,
    Kind.NAME: read_name,
    Kind.BOOLEAN: read_boolean,
    Kind.IMAGE: image_from_value,
    Kind.CHECKSUM: _checksum,
    Kind.SCHEMA: sent_schema,
}
_PRESENCES: Final[Mapping[Presence, Callable[[Mapping[str, Any], Field], Any]]] = {
    Presence.REQUIRED: _required_field,
    Presence.OPTIONAL: _optional_field,
    Presence.ABSENT: _absent_field,
}
