"""The hot path: Arrow batches of Kafka records to Arrow batches of changes.

In: record batches with the columns topic, partition, offset, key, value. Out: one row an event, in
the order of the records, with the columns of `rows.CHANGE_SCHEMA`; a record that is not a message
gives exactly one row of kind `error`. The meaning is that of `wire.decode`, down to the reason and
position of errors; the result depends on the records alone, and splitting a batch anywhere changes
nothing.

Decoding takes a few times the memory of the decompressed messages. So `decode_pieces` takes as many
records at a time as have together `PIECE_BYTES`, or one larger record
(`compression.MAX_DECOMPRESSED` at most): its memory does not depend on how many records a batch
has, nor on how well they are compressed.

Each format has two readers: the reference, which reads one record, and a batch reader, which reads
most records of a batch at once, a column at a time (`decode_exact`). The reference reads the few
records that the batch reader leaves.

Not handled: typing of values, and schemas of rows.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.base.errors import WireError
from ticdc_assets.base.loops import loops_pay
from ticdc_assets.wire import DECODERS, WireFormat
from ticdc_assets.wire.compression import Compression, decompressed
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import (
    CHANGE_SCHEMA,
    COORDINATES,
    PART_BYTES,
    Rows,
    SourcedRows,
    decoded_rows,
    error_row,
    exact_and_others,
    takeable,
)

PIECE_BYTES: Final = 16 << 20
"""Bytes of content that are decoded together, at most."""

FEW_RECORDS: Final = 300
"""Batches of at most so many records are read by the reference alone, which takes milliseconds.

So are larger ones while it does not pay to load the compiled loops. The rows are the same, to the
last byte of their texts.
"""


def decode_batch(
    wire_format: WireFormat,
    batch: pa.RecordBatch,
    *,
    compression: Compression = Compression.NONE,
) -> pa.RecordBatch:
    """Return the events of `batch` as rows of `CHANGE_SCHEMA`, all at once.

    Args:
        wire_format: how the records are written.
        batch: records with the columns topic, partition, offset, key and value; more are ignored.
        compression: how their values were compressed.
    """
    pieces = list(
        decode_pieces(wire_format, batch, compression=compression, piece_bytes=sys.maxsize)
    )
    return pieces[0] if pieces else pa.RecordBatch.from_pylist([], CHANGE_SCHEMA)


def decode_pieces(
    wire_format: WireFormat,
    batch: pa.RecordBatch,
    *,
    compression: Compression = Compression.NONE,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the events of `batch` as rows of `CHANGE_SCHEMA`, a piece at a time.

    Args:
        wire_format: how the records are written.
        batch: records with the columns topic, partition, offset, key and value; more are ignored.
        compression: how their values were compressed.
        piece_bytes: about how many bytes of keys and decompressed values a piece has.
    """
    for records in _pieces(batch, piece_bytes):
        if compression is Compression.NONE:
            yield _decoded(wire_format, records).rows
            continue
        # By `map`, which keeps no piece: else two would be in memory at a time.
        yield from map(
            partial(_decoded_piece, wire_format, records),
            _decompressed(wire_format, records, compression, piece_bytes),
        )


def _pieces(batch: pa.RecordBatch, piece_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of `batch`, as many at a time as fit `piece_bytes`, but at least one."""
    for start, stop in runs_within(_sizes(batch), piece_bytes):
        yield batch.slice(start, stop - start)


def _sizes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the bytes of each record's key and value."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for name in ("key", "value"):
        lengths = pc.binary_length(takeable(batch.column(name)))
        sizes += pc.fill_null(lengths, 0).to_numpy()
    return sizes


def runs_within(sizes: npt.NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Yield where runs of items begin and end: of at most `most` together, or of one item."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield start, stop
        start = stop


class _Alone(threading.local):
    """How many records the reference read in this thread."""

    count = 0


_ALONE: Final = _Alone()


def read_alone() -> int:
    """Return how many records of large batches the reference read since the last call.

    It counts those of this thread. In a format as TiCDC writes it these are DDL and bootstraps; if
    they are many, the batch reader does not know the messages, and decoding takes ten times as
    long.
    """
    found, _ALONE.count = _ALONE.count, 0
    return found


def _decoded(wire_format: WireFormat, batch: pa.RecordBatch) -> SourcedRows:
    """Return the rows of records: those of the batch reader, and those of the reference."""
    decode = DECODERS[wire_format]
    if batch.num_rows <= FEW_RECORDS or not loops_pay(batch.num_rows):
        return exact_and_others(batch, None, decode)
    exact = BATCH_READERS[wire_format](batch)
    _ALONE.count += batch.num_rows - (0 if exact is None else exact.records)
    return exact_and_others(batch, exact, decode)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Piece:
    """Some records of a batch.

    Attributes:
        numbers: the numbers of the compressed records.
        records: these records, decompressed.
        finished: the rows of the others: errors, and records that were decoded alone.
    """

    numbers: npt.NDArray[np.int64]
    records: pa.RecordBatch
    finished: Rows


def _decoded_piece(wire_format: WireFormat, batch: pa.RecordBatch, piece: _Piece) -> pa.RecordBatch:
    """Return the rows of some records of `batch`, in its order."""
    decoded = _decoded(wire_format, piece.records)
    rows = SourcedRows(sources=piece.numbers[decoded.sources], rows=decoded.rows)
    return rows.joined(piece.finished.sourced(batch)).rows


def _decompressed(
    wire_format: WireFormat, batch: pa.RecordBatch, compression: Compression, piece_bytes: int
) -> Iterator[_Piece]:
    """Yield the decompressed records of `batch`, in pieces.

    At `piece_bytes` of content decompression stops until the next piece. The errors themselves are
    not kept: each keeps the frames it came through, and so the buffers of its codec, many times the
    size of its value.
    """
    numbers: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    finished = Rows()
    size = 0

    def taken() -> _Piece:
        nonlocal numbers, keys, values, finished, size
        kept = np.array(numbers, np.int64)
        columns = [
            *batch.select(list(COORDINATES)).take(pa.array(kept)).columns,
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
        ]
        records = pa.RecordBatch.from_arrays(columns, names=[*COORDINATES, "key", "value"])
        piece = _Piece(numbers=kept, records=records, finished=finished)
        numbers, keys, values, finished, size = [], [], [], Rows(), 0
        return piece

    for number, (key, value) in enumerate(
        zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True)
    ):
        try:
            record = decompressed(wire_format, Record(key=key, value=value), compression)
        except WireError as error:
            finished.add(number, [error_row(error)])
            continue
        content = len(record.key or b"") + len(record.value or b"")
        if content > PART_BYTES:
            # At once by the reference, without a copy among the others.
            finished.add(number, decoded_rows(DECODERS[wire_format], record))
        else:
            numbers.append(number)
            keys.append(record.key)
            values.append(record.value)
        size += content
        del record
        if size >= piece_bytes:
            yield taken()
    if numbers or finished.sources:
        yield taken()


def _at_once(module: str, batch: pa.RecordBatch) -> SourcedRows | None:
    """Return the rows of the batch reader of a module, which is imported at its first call."""
    return import_module(f"ticdc_assets.wire.{module}").decode_exact(batch)


BATCH_READERS: Final[Mapping[WireFormat, Callable[[pa.RecordBatch], SourcedRows | None]]] = {
    WireFormat.SIMPLE_JSON: partial(_at_once, "simple_json_batch"),
    WireFormat.SIMPLE_AVRO: partial(_at_once, "simple_avro_batch"),
    WireFormat.CANAL_JSON: partial(_at_once, "canal_json_batch"),
    WireFormat.CRAFT: partial(_at_once, "craft_batch"),
    WireFormat.OPEN_PROTOCOL: partial(_at_once, "open_protocol_batch"),
}
"""The batch readers; they leave some records to the reference."""
