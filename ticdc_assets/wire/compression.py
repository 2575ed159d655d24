"""Compressed values: what TiCDC's `large-message-handle-compression` does to every message.

In: a record as it came from Kafka, and the compression the changefeed was configured with. Out: the
record as the encoder wrote it, or a `WireError` for bytes that are not compressed in this way.
Nothing in a message says that it is compressed, so it is never guessed. The result depends on the
record alone.

What is compressed depends on the format (`changed`):

    simple-json, simple-avro, canal-json   the whole value of every message, the key never
    open-protocol                          the value of each row and DDL inside the message
    craft                                  nothing: TiCDC has no compression there

A null value stays null: a tombstone is not compressed.

lz4 is the frame format. snappy is the block format: the length of the content as a varint of at
most 5 bytes, then elements. No element makes more than 64 bytes out of 3.

A value's claims are checked before memory is taken for it: the content of an lz4 frame is read
through a stream, up to the limit; a snappy length is compared with the limit and with the most that
its bytes can expand to. All checksums are verified.

Source: `Encode` and `Decode` in pingcap/tiflow pkg/compression/compress.go at 017624f; snappy's
format_description.txt.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import pyarrow as pa

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.wire.formats import WireFormat
from ticdc_assets.wire.open.reference import map_values
from ticdc_assets.wire.record import Record, content_of, moved

MAX_DECOMPRESSED: Final = 64 * 1024 * 1024
"""The largest content that is read, in bytes. Kafka's own messages are some MiB."""

Change: TypeAlias = Callable[[bytes, str], bytes]
"""The change of one piece of a record, given with its position, `byte N`."""


class Compression(StrEnum):
    """How values are compressed, by the name in the configuration (and in TiCDC's)."""

    NONE = "none"
    LZ4 = "lz4"
    SNAPPY = "snappy"


def decompressed(
    wire_format: WireFormat,
    record: Record,
    compression: Compression,
    *,
    limit: int = MAX_DECOMPRESSED,
) -> Record:
    """Return `record` decompressed.

    Raises:
        WireError: a value is not compressed as it should be, or is larger than `limit` bytes.
        ValueError: the format has no compression.
    """
    if compression is Compression.NONE:
        return record
    read = _READERS[compression]
    left = limit

    def change(value: bytes, position: str) -> bytes:
        nonlocal left
        try:
            content = read(value, left)
        except WireError as error:
            raise moved(error, position) from error
        # The limit is for the whole record, however many pieces it has.
        left -= len(content)
        return content

    return changed(wire_format, record, change)


def supports(wire_format: WireFormat, compression: Compression) -> bool:
    """Return whether messages of the format can be compressed in this way."""
    return compression is Compression.NONE or wire_format is not WireFormat.CRAFT


def changed(wire_format: WireFormat, record: Record, change: Change) -> Record:
    """Return `record` with each compressed piece changed.

    Raises:
        ValueError: the format has no compression.
    """
    if wire_format is WireFormat.CRAFT:
        raise ValueError(f"{wire_format} has no compression")
    if wire_format is WireFormat.OPEN_PROTOCOL:
        return map_values(record, change)
    if record.value is None:
        return record
    return Record(key=record.key, value=change(record.value, "byte 0"))


# --- lz4 ---

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_MOST_PER_BYTE: Final = 255
"""Most bytes that one byte of an lz4 frame expands to."""
_AT_ONCE: Final = 1 << 20


def _read_lz4(value: bytes, limit: int) -> bytes:
    if not content_of(value, "an lz4 frame").startswith(_LZ4_MAGIC):
        raise _invalid_lz4(f"the magic number {_LZ4_MAGIC.hex(' ')}", value[:4].hex(" "))
    most = min(len(value) * _MOST_PER_BYTE, limit)
    pieces: list[bytes] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(value), "lz4") as stream:
            # A read takes memory for all the bytes it names, so it names the most that can come.
            # One byte more shows content beyond the limit, or else the end of the frame, where the
            # codec checks the rest. Not `read`: it leaks its memory when it fails.
            while piece := stream.read_buffer(min(most + 1 - size, _AT_ONCE)).to_pybytes():
                size += len(piece)
                if size > most:
                    raise _too_large(limit, f"more than {limit} bytes")
                pieces.append(piece)
    except (OSError, pa.ArrowException) as error:
        # The codec does not say at which byte.
        raise _invalid_lz4("a valid lz4 frame", shorten(str(error), 120)) from error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _invalid_lz4(expected: str, got: str) -> WireError:
    return WireError("invalid_lz4", "byte 0", expected, got)


def _too_large(limit: int, got: str) -> WireError:
    return WireError("too_large", "byte 0", f"at most {limit} bytes of content", got)


# --- snappy ---

_LONGEST_VARINT: Final = 5
_MAX_UINT32: Final = 2**32 - 1


def read_snappy(value: bytes, limit: int) -> bytes:
    """Return the content of a snappy block, at most `limit` bytes.

    Raises:
        WireError: it is not one.
    """
    size, start = _snappy_size(content_of(value, "a snappy block"))
    if size > limit:
        raise _too_large(limit, f"{size} bytes")
    if size * 3 > (len(value) - start) * 64:
        raise WireError(
            "invalid_snappy",
            "byte 0",
            f"a length that {len(value) - start} bytes can expand to",
            f"{size} bytes",
        )
    try:
        # The codec leaves the rest of its output as it is, so it gets exactly the length.
        return pa.Codec("snappy").decompress(value, decompressed_size=size, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        # The codec does not say at which element.
        raise WireError(
            "invalid_snappy",
            f"byte {start}",
            f"elements that make {size} bytes",
            shorten(str(error), 120),
        ) from error


def _snappy_size(value: bytes) -> tuple[int, int]:
    """Return the length of the content and where the elements start."""
    size = 0
    for index, byte in enumerate(value[:_LONGEST_VARINT]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if size <= _MAX_UINT32:
                return size, index + 1
            break
    raise WireError(
        "invalid_snappy",
        "byte 0",
        f"a length of at most {_LONGEST_VARINT} bytes, below 2^32",
        value[:_LONGEST_VARINT].hex(" "),
    )


_READERS: Final[Mapping[Compression, Callable[[bytes, int], bytes]]] = {
    Compression.LZ4: _read_lz4,
    Compression.SNAPPY: read_snappy,
}
