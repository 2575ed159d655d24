"""The Simple protocol in JSON: one record in, one event out.

In: a Kafka record whose value is one JSON object. Its key is ignored: TiCDC sends none. Out: a list
of exactly one event, or a `WireError` whose position is a byte (the value is not strict JSON, see
`go_json`) or a JSON path. Decoding depends on the value alone.

This is the readable reference; `json_batch` gives the same meaning faster. The fields of each
message type are a table in `message`, their kinds one in docs/formats/simple.md.

Not handled: values of columns are left as text (base64 and enum indexes included), and compressed
values are refused as bytes that are not JSON.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.model.events import Event, PhysicalValue, ZonedTimestamp
from ticdc_assets.model.json_fields import (
    read_natural,
    read_object,
    read_text,
    required,
    wrong_type,
)
from ticdc_assets.model.schemas import sent_schema
from ticdc_assets.wire import go_json
from ticdc_assets.wire.codes import Presence
from ticdc_assets.wire.fields import READERS, Kind, Reader, read_fields
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.simple.message import (
    FIELDS,
    check_version,
    event_from_fields,
    message_type,
    read_checksum,
)

_TIMESTAMP_MEMBERS: Final = frozenset({"location", "value"})
_IMAGES: Final = {
    kind: frozenset(
        field.name
        for field in fields
        if field.kind is Kind.IMAGE and field.presence is Presence.REQUIRED
    )
    for kind, fields in FIELDS.items()
}
"""The images that a message of each type must have."""


def decode(record: Record) -> list[Event]:
    """Return the one event of `record`.

    Raises:
        WireError: the value is not a message of the Simple protocol in JSON.
        UnsupportedVersionError: the message has another version.
    """
    message = read_object(go_json.parse(record.value), "$")
    check_version(required(message, "version", read_natural))
    kind = message_type(required(message, "type", read_text))
    if message.get("claimCheckLocation") and _IMAGES[kind].isdisjoint(message):
        # Go leaves out the images of a row that was cut to a key which its table does not have.
        message |= {name: {} for name in _IMAGES[kind]}
    fields = read_fields(message, FIELDS[kind], readers=_READERS)
    return [event_from_fields(kind, fields)]


def image_from_value(value: Any, position: str) -> dict[str, PhysicalValue]:
    """Return the row image in the parsed JSON `value`.

    Raises:
        WireError: it is not an object, or a member is not text, null or a zoned timestamp.
    """
    return {
        name: _physical(item, go_json.member(position, name))
        if type(item) is not str and item is not None
        else item
        for name, item in read_object(value, position).items()
    }


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
    Kind.CHECKSUM: read_checksum,
    Kind.SCHEMA: sent_schema,
}
