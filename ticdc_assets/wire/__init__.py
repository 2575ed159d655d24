"""Bytes to events, one table entry for each wire format.

In: a Kafka record (key and value). Out: its events, in the order of the message, with physical
values only; or a `WireError` for bytes that are not a message of the format. Any bytes give one or
the other. A decoder uses no registry, clock or disk: the same record always gives the same events.

Not handled: what a value means in MySQL (`values`), and which schema a row needs (`registry`).
"""

from collections.abc import Callable, Mapping
from typing import Final

from ticdc_assets.model.events import Event
from ticdc_assets.wire.canal.reference import decode as decode_canal_json
from ticdc_assets.wire.compression import Compression, decompressed
from ticdc_assets.wire.craft.reference import decode as decode_craft
from ticdc_assets.wire.formats import WireFormat
from ticdc_assets.wire.open.reference import decode as decode_open_protocol
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.simple.avro_reference import decode as decode_simple_avro
from ticdc_assets.wire.simple.json_reference import decode as decode_simple_json


def decode(
    wire_format: WireFormat, record: Record, *, compression: Compression = Compression.NONE
) -> list[Event]:
    """Return the events of `record`, in the order of the message.

    Raises:
        WireError: the record is not a message of the format, or not compressed in this way.
    """
    return DECODERS[wire_format](decompressed(wire_format, record, compression))


DECODERS: Final[Mapping[WireFormat, Callable[[Record], list[Event]]]] = {
    WireFormat.SIMPLE_JSON: decode_simple_json,
    WireFormat.SIMPLE_AVRO: decode_simple_avro,
    WireFormat.OPEN_PROTOCOL: decode_open_protocol,
    WireFormat.CANAL_JSON: decode_canal_json,
    WireFormat.CRAFT: decode_craft,
}
