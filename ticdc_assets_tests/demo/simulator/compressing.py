"""Values compressed as TiCDC's `large-message-handle-compression` does it.

The bytes are not those of TiCDC's compressors; `wire.compression.decompressed` gives the content.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.model.events import Event
from ticdc_assets.wire.compression import Compression, changed
from ticdc_assets.wire.formats import WireFormat
from ticdc_assets.wire.record import Record


def compressed(wire_format: WireFormat, record: Record, compression: Compression) -> Record:
    """Return `record` compressed.

    Raises:
        ValueError: the format has no compression.
    """
    if compression is Compression.NONE:
        return record
    codec = pa.Codec(compression.value)
    return changed(
        wire_format, record, lambda value, _position: codec.compress(value, asbytes=True)
    )


class CompressingChangefeed(StandInChangefeed):
    """The stand-in changefeed that compresses what it sends."""

    def __init__(self, *args: Any, compression: Compression, **options: Any) -> None:
        super().__init__(*args, **options)
        self._compression = compression

    def _encode(self, events: Sequence[Event]) -> Sequence[Record]:
        return [
            compressed(self._wire_format, record, self._compression)
            for record in super()._encode(events)
        ]
