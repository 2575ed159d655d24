"""What TiCDC's encoders write: events to the records of each format, byte for byte.

In: events, with what their format needs (`message_forms` adds it). Out: the records that TiCDC
would send. The bytes are a function of the events alone.

The formats, their fields and their types are those of `wire`, which reads what is written here.

Not handled: what an event has in which format (`message_forms`), and events that a format cannot
carry: of these the result, or the error, has no meaning.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

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


def encode(wire_format: WireFormat, events: Sequence[Event]) -> list[Record]:
    """Return the records that TiCDC would send for `events`, in their order."""
    return ENCODERS[wire_format](events)


ENCODERS: Final[Mapping[WireFormat, Callable[[Sequence[Event]], list[Record]]]] = {
    WireFormat.SIMPLE_JSON: simple_json.encode,
    WireFormat.SIMPLE_AVRO: simple_avro.encode,
    WireFormat.OPEN_PROTOCOL: open_protocol.encode,
    WireFormat.CANAL_JSON: canal_json.encode,
    WireFormat.CRAFT: craft.encode,
}
