"""The hot path: Arrow batches of Kafka records to Arrow batches of changes.

In: record batches with the columns topic, partition, offset, key, value. Out: one row an event, in
the order of the records, with the columns of `rows.CHANGE_SCHEMA`; a record that is no message
gives exactly one row of kind `error`. The meaning is that of `wire.decode`, to the last reason and
position; the result depends on the records alone, and splitting a batch anywhere changes nothing.

Each format has a module of its own, which takes the messages of the plain shape that TiCDC writes
and gives all others to the reference decoder. Some read most of these at once, a column at a time
(`decode_plain`), and only what is left record by record.

Not handled: typing of values, and schemas of rows.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ticdc_assets.errors import WireError
from ticdc_assets.wire import (
    WireFormat,
    canal_json_batch,
    craft_batch,
    open_protocol_batch,
    simple_avro_batch,
    simple_json_batch,
)
from ticdc_assets.wire.compression import Compression, decompressed
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import (
    COORDINATES,
    PlainRows,
    Rows,
    SourcedRows,
    error_rows,
    plain_and_others,
)


def decode_batch(
    wire_format: WireFormat,
    batch: pa.RecordBatch,
    *,
    compression: Compression = Compression.NONE,
) -> pa.RecordBatch:
    """Return the events of `batch` as rows of `CHANGE_SCHEMA`.

    Args:
        wire_format: how the records are written.
        batch: records with the columns topic, partition, offset, key and value; more are ignored.
        compression: how they were compressed afterwards.
    """
    if compression is Compression.NONE:
        return _decoded(wire_format, batch).rows
    numbers, records, errors = _decompressed(wire_format, batch, compression)
    decoded = _decoded(wire_format, records)
    return (
        SourcedRows(sources=numbers[decoded.sources], rows=decoded.rows)
        .joined(
            SourcedRows(sources=np.array(errors.sources, np.int64), rows=errors.to_batch(batch))
        )
        .rows
    )


def _decoded(wire_format: WireFormat, batch: pa.RecordBatch) -> SourcedRows:
    decode_rows, decode_plain = _DECODERS[wire_format], _PLAIN[wire_format]
    return plain_and_others(batch, decode_plain(batch), decode_rows)


def _decompressed(
    wire_format: WireFormat, batch: pa.RecordBatch, compression: Compression
) -> tuple[npt.NDArray[np.int64], pa.RecordBatch, Rows]:
    """Return the records that are so compressed, as they were before, and the others' error rows.

    The errors themselves are not kept: each keeps the frames it came through, and so the buffers of
    its codec, many times the size of its value.

    Returns:
        The numbers of the records, the records, and the rows of the others.
    """
    numbers: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    errors = Rows()
    for number, (key, value) in enumerate(
        zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    ):
        try:
            record = decompressed(wire_format, Record(key=key, value=value), compression)
        except WireError as error:
            errors.add(number, error_rows(error))
        else:
            numbers.append(number)
            keys.append(record.key)
            values.append(record.value)
    kept = np.array(numbers, np.int64)
    columns = [
        *batch.select(list(COORDINATES)).take(pa.array(kept)).columns,
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
    ]
    return kept, pa.RecordBatch.from_arrays(columns, names=[*COORDINATES, "key", "value"]), errors


_DECODERS: Final[Mapping[WireFormat, Callable[[pa.RecordBatch], Rows]]] = {
    WireFormat.SIMPLE_JSON: simple_json_batch.decode_rows,
    WireFormat.SIMPLE_AVRO: simple_avro_batch.decode_rows,
    WireFormat.OPEN_PROTOCOL: open_protocol_batch.decode_rows,
    WireFormat.CANAL_JSON: canal_json_batch.decode_rows,
    WireFormat.CRAFT: craft_batch.decode_rows,
}

_PLAIN: Final[Mapping[WireFormat, Callable[[pa.RecordBatch], PlainRows | None]]] = {
    WireFormat.SIMPLE_JSON: simple_json_batch.decode_plain,
    WireFormat.SIMPLE_AVRO: simple_avro_batch.decode_plain,
    WireFormat.CANAL_JSON: canal_json_batch.decode_plain,
    WireFormat.CRAFT: craft_batch.decode_plain,
    WireFormat.OPEN_PROTOCOL: open_protocol_batch.decode_plain,
}
"""What reads the plain records of a batch at once, and leaves the others to the decoder of rows."""
