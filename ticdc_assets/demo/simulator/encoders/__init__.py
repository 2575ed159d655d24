"""What TiCDC's encoders write: events to the records of each format, byte for byte.

In: events, with what their format needs (`message_forms` adds it). Out: the records that TiCDC
would send. The bytes are a function of the events alone.

The formats, their fields and their types are those of `wire`, which reads what is written here.

Not handled: what an event has in which format (`message_forms`), and events that a format cannot
carry: of these the result, or the error, has no meaning.
"""

from collections.abc import Sequence

from ticdc_assets.demo.simulator.encoders import (
    canal_json,
    craft,
    open_protocol,
    simple_avro,
    simple_json,
)
from ticdc_assets.model.events import Event
from ticdc_assets.wire.formats import WireFormat
from ticdc_assets.wire.record import Record


def encode(
    wire_format: WireFormat, events: Sequence[Event], *, ticdc: bool = False
) -> list[Record]:
    """Return the records that TiCDC would send for `events`, in their order.

    Args:
        wire_format: their format.
        events: the events.
        ticdc: whether the new TiCDC writes; it makes no difference to the formats but two.
    """
    match wire_format:
        case WireFormat.SIMPLE_JSON:
            return simple_json.encode(events)
        case WireFormat.SIMPLE_AVRO:
            return simple_avro.encode(events, ticdc=ticdc)
        case WireFormat.OPEN_PROTOCOL:
            return open_protocol.encode(events, ticdc=ticdc)
        case WireFormat.CANAL_JSON:
            return canal_json.encode(events)
        case WireFormat.CRAFT:
            return craft.encode(events)
