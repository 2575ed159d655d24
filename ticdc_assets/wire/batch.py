"""The hot path: Arrow batches of Kafka records to Arrow batches of changes.

In: record batches with the columns topic, partition, offset, key, value. Out: one row an event, in
the order of the records, with the columns of `rows.CHANGE_SCHEMA`; a record that is no message
gives exactly one row of kind `error`. The meaning is that of `wire.decode`, to the last reason and
position; the result depends on the records alone, and splitting a batch anywhere changes nothing.

Each format has a module of its own, which takes the messages of the plain shape that TiCDC writes
and gives all others to the reference decoder.

Not handled: typing of values, and schemas of rows.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

from ticdc_assets.wire import WireFormat, simple_json_batch
from ticdc_assets.wire.rows import Rows


def decode_batch(wire_format: WireFormat, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the events of `batch` as rows of `CHANGE_SCHEMA`.

    Args:
        wire_format: how the records are written.
        batch: records with the columns topic, partition, offset, key and value; more are ignored.
    """
    return _DECODERS[wire_format](batch).to_batch(batch)


_DECODERS: Final[Mapping[WireFormat, Callable[[pa.RecordBatch], Rows]]] = {
    WireFormat.SIMPLE_JSON: simple_json_batch.decode_rows,
}
