"""Values compressed as TiCDC's `large-message-handle-compression` does it.

In: a record. Out: a record that `wire.compression.decompressed` gives back. The bytes are not those
of TiCDC's compressors, which are others; the content is.
"""

import pyarrow as pa

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
