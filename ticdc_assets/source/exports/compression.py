"""The bytes of compressed files of exports, in chunks of bounded size.

In: a file that is compressed as Dumpling does: gzip, Zstandard, or Snappy's framing format. Out:
its bytes, and whether they are its last. A damaged file raises `OSError` or an Arrow error.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.fs as fs

from ticdc_assets.base.errors import WireError
from ticdc_assets.wire.compression import read_snappy

_CHUNK_BYTES = 8 << 20
_MOST_FRAME_BYTES = 1 << 16
"""The most bytes of a frame before compression, as the format says."""

_COMPRESSED, _AS_IT_IS, _BEGIN = 0x00, 0x01, 0xFF
_LEAST_SKIPPED = 0x80


def chunks_of(
    filesystem: fs.FileSystem, path: str, compression: str
) -> Iterator[tuple[bytes, bool]]:
    """Yield the decompressed bytes of a file, and whether they are its last."""
    is_snappy = compression == "snappy"
    before = b""
    with filesystem.open_input_stream(path, compression=None if is_snappy else compression) as file:
        chunks = _unframed(file) if is_snappy else iter(lambda: bytes(file.read(_CHUNK_BYTES)), b"")
        for chunk in chunks:
            if before:
                yield before, False
            before = chunk
    if before:
        yield before, True


def _unframed(stream: pa.NativeFile) -> Iterator[bytes]:
    """Yield the contents of Snappy's frames, which Arrow does not read as a stream."""
    held: list[bytes] = []
    size = 0
    while head := stream.read(4):
        kind, length = head[0], int.from_bytes(head[1:4], "little")
        body = bytes(stream.read(length))
        if len(head) < 4 or len(body) < length:
            raise OSError("the file ends within a frame of Snappy")
        if kind == _COMPRESSED:
            try:
                content = read_snappy(body[4:], _MOST_FRAME_BYTES)
            except WireError as error:
                raise OSError(f"a frame of Snappy is damaged ({error})") from error
        elif kind == _AS_IT_IS:
            content = body[4:]
        elif kind == _BEGIN or kind >= _LEAST_SKIPPED:
            continue
        else:
            raise OSError(f"a frame of Snappy has the unknown kind {kind}")
        held.append(content)
        size += len(content)
        if size >= _CHUNK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
