"""The hot path: Arrow batches of Kafka records to Arrow batches of changes.

In: record batches with the columns topic, partition, offset, key, value. Out: one row an event, in
the order of the records, with the columns of `rows.CHANGE_SCHEMA`; a record that is not a message
gives exactly one row of kind `error`. The meaning is that of `wire.decode`, down to the reason and
position of errors; the result depends on the records alone, and splitting a batch anywhere changes
nothing.

Decoding takes a few times the memory of the decompressed messages. So it takes as many records at a
time as have together `PIECE_BYTES`, or one larger record (`compression.MAX_DECOMPRESSED` at most):
its memory does not depend on how many records a batch has, nor on how well they are compressed.

Each format has two readers: the reference, which reads one record, and a batch reader, which reads
most records of a batch at once, a column at a time (`decode_exact`). The reference reads the few
records that the batch reader leaves, and all while it does not pay to load the compiled loops. The
rows are the same, to the last byte of their texts.

Not handled: typing of values, and schemas of rows.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from itertools import starmap
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.base.errors import WireError
from ticdc_assets.base.loops import loops_pay
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.compression import Compression, decompressed
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import (
    CHANGE_SCHEMA,
    PIECE_BYTES,
    SourcedRows,
    read_by,
    takeable,
)

_ROW_BYTES: Final = 500
"""A record counts as a row for each so many bytes: in Open Protocol and Craft it has up to 16."""


def decode_batch(
    wire_format: WireFormat,
    batch: pa.RecordBatch,
    *,
    compression: Compression = Compression.NONE,
) -> pa.RecordBatch:
    """Return the events of `batch` as rows of `CHANGE_SCHEMA`, all in one batch.

    Its records have the columns topic, partition, offset, key and value; more are ignored.
    """
    pieces = list(decode_pieces(wire_format, batch, compression=compression))
    if len(pieces) == 1:
        return pieces[0]
    return pa.concat_batches(pieces or [pa.RecordBatch.from_pylist([], CHANGE_SCHEMA)])


def decode_pieces(
    wire_format: WireFormat,
    batch: pa.RecordBatch,
    *,
    compression: Compression = Compression.NONE,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the same a piece at a time, of about `piece_bytes` of keys and decompressed values."""
    # By `starmap`, which keeps no piece: else two would be in memory at a time.
    yield from starmap(
        partial(_decoded, wire_format, compression),
        _pieces(wire_format, compression, batch, piece_bytes),
    )


def _pieces(
    wire_format: WireFormat, compression: Compression, batch: pa.RecordBatch, piece_bytes: int
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, int]]:
    """Yield the records of `batch`, as many at a time as fit `piece_bytes`, but at least one.

    Each piece twice, with its bytes: as it is, and decompressed for the batch reader. There a value
    is null that cannot be decompressed, or that is too long for it.
    """
    if compression is Compression.NONE:
        sizes = _sizes(batch)
        for start, stop in runs_within(sizes, piece_bytes):
            piece = batch.slice(start, stop - start)
            yield piece, piece, int(sizes[start:stop].sum())
        return
    keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
    contents: list[bytes | None] = []
    start, size = 0, 0
    for stop, (key, value) in enumerate(zip(keys, values, strict=True), 1):
        content = _content(wire_format, compression, Record(key=key, value=value))
        size += len(key or b"") + len(content or b"")
        contents.append(None if content is None or len(content) > PIECE_BYTES else content)
        del content
        if size >= piece_bytes or stop == batch.num_rows:
            records = batch.slice(start, stop - start)
            number = records.schema.get_field_index("value")
            read = pa.array(contents, pa.binary())
            piece = records, records.set_column(number, "value", read), size
            contents.clear()
            del records, read
            start, size = stop, 0
            yield piece
            del piece


def _content(wire_format: WireFormat, compression: Compression, record: Record) -> bytes | None:
    """Return the decompressed value of a record, None if it cannot be decompressed.

    The error is not kept: it keeps the frames it came through, and so the buffers of its codec,
    many times the size of its value.
    """
    try:
        return decompressed(wire_format, record, compression).value
    except WireError:
        return None


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


def _decoded(
    wire_format: WireFormat,
    compression: Compression,
    records: pa.RecordBatch,
    contents: pa.RecordBatch,
    size: int,
) -> pa.RecordBatch:
    """Return the rows of records of `size` bytes, which are decompressed in `contents`.

    They are those of the batch reader, and those of the reference.
    """
    reference = partial(decode, wire_format, compression=compression)
    is_left = np.ones(records.num_rows, np.bool_)
    if not loops_pay(max(records.num_rows, size // _ROW_BYTES)):
        return read_by(reference, records, np.flatnonzero(is_left)).rows
    exact = BATCH_READERS[wire_format](contents)
    is_left[exact.sources] = False
    left = np.flatnonzero(is_left)
    return exact.joined(read_by(reference, records, left)).rows if len(left) else exact.rows


def _at_once(module: str, batch: pa.RecordBatch) -> SourcedRows:
    """Return the rows of the batch reader of a module, which is imported at its first call."""
    return import_module(f"ticdc_assets.wire.{module}").decode_exact(batch)


BATCH_READERS: Final[Mapping[WireFormat, Callable[[pa.RecordBatch], SourcedRows]]] = {
    WireFormat.SIMPLE_JSON: partial(_at_once, "simple.json_batch"),
    WireFormat.SIMPLE_AVRO: partial(_at_once, "simple.avro_batch"),
    WireFormat.CANAL_JSON: partial(_at_once, "canal.batch"),
    WireFormat.CRAFT: partial(_at_once, "craft.batch"),
    WireFormat.OPEN_PROTOCOL: partial(_at_once, "open.batch"),
}
"""The batch readers; they leave some records to the reference."""
