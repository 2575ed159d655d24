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

from collections.abc import Callable, Mapping, Sequence
from typing import Final

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
from ticdc_assets.wire.rows import Common, Rare, Rows, error_rows


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
    decode_rows = _DECODERS[wire_format]
    if compression is Compression.NONE:
        return decode_rows(batch).to_batch(batch)
    records, errors = _decompressed(wire_format, batch, compression)
    return _with_errors(decode_rows(records), errors).to_batch(batch)


def _decompressed(
    wire_format: WireFormat, batch: pa.RecordBatch, compression: Compression
) -> tuple[pa.RecordBatch, Mapping[int, Sequence[tuple[Common, Rare | None]]]]:
    """Return the records that are so compressed, as they were before, and the others' error rows.

    The errors themselves are not kept: each keeps the frames it came through, and so the buffers of
    its codec, many times the size of its value.
    """
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    errors: dict[int, Sequence[tuple[Common, Rare | None]]] = {}
    for number, (key, value) in enumerate(
        zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    ):
        try:
            record = decompressed(wire_format, Record(key=key, value=value), compression)
        except WireError as error:
            errors[number] = error_rows(error)
        else:
            keys.append(record.key)
            values.append(record.value)
    columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value"]), errors


def _with_errors(rows: Rows, errors: Mapping[int, Sequence[tuple[Common, Rare | None]]]) -> Rows:
    """Return `rows` with the error rows of the records that were left out before them."""
    if not errors:
        return rows
    decoded: dict[int, list[tuple[Common, Rare | None]]] = {}
    for row, (source, common) in enumerate(zip(rows.sources, rows.common, strict=True)):
        decoded.setdefault(source, []).append((common, rows.rare.get(row)))
    kept = iter(decoded.values())
    merged = Rows()
    for number in range(len(decoded) + len(errors)):
        error = errors.get(number)
        merged.add(number, next(kept) if error is None else error)
    return merged


_DECODERS: Final[Mapping[WireFormat, Callable[[pa.RecordBatch], Rows]]] = {
    WireFormat.SIMPLE_JSON: simple_json_batch.decode_rows,
    WireFormat.SIMPLE_AVRO: simple_avro_batch.decode_rows,
    WireFormat.OPEN_PROTOCOL: open_protocol_batch.decode_rows,
    WireFormat.CANAL_JSON: canal_json_batch.decode_rows,
    WireFormat.CRAFT: craft_batch.decode_rows,
}
