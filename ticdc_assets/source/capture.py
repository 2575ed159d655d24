"""Captures: Kafka records in a file, one JSON object a line, plain or gzip.

    {"topic": text, "partition": integer, "offset": integer, "timestamp": epoch ms (-1: none),
     "key": base64 text or null, "value": base64 text or null, "headers": anything, not read}

Reading gives the records in the order of the file, with memory bounded by the longest line. It has
no state, so reading again gives the same, and more if the file has grown. A file that is still
written to may end within a line or a gzip member: iteration ends before it. A last line without its
newline is read if it is a whole object, which no beginning of an object is. A gzip checksum comes
after its member, so damage is known only after the lines were read.

Writing appends whole lines, by one write for each flush (in a `.gz` one gzip member), so a reader
sees at worst an incomplete tail. Opening an existing capture continues it.

Offsets of a partition must increase through the whole file: a reader that continues after the last
offset would skip records with lower ones, as in two captures joined in the wrong order.

Not handled: two writers at once, headers (they are dropped), other compressions.
"""

import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from gzip import compress
from pathlib import Path
from typing import Annotated, Final, Self

import msgspec
import orjson

from ticdc_assets.base.errors import SourceUnavailableError, TicdcError

MAX_LINE_BYTES: Final = 256 * 1024 * 1024
"""Longest line that is read; Kafka's limit on a record is far lower."""

_CHUNK_BYTES: Final = 256 * 1024
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31  # zlib: window of 15 bits, and a gzip header
_GZIP_LEVEL: Final = 6
_FLUSH_BYTES: Final = 1024 * 1024
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1


class CaptureError(TicdcError):
    """A malformed capture: which file and line, what was expected and what was there.

    Args:
        path: the file.
        line: number of the line, from 1.
        expected: what is accepted there.
        got: the kind of what was there, without its content: errors end up in logs.
    """

    def __init__(self, path: str, line: int, expected: str, got: str) -> None:
        super().__init__(path, line, expected, got)
        self.path = path
        self.line = line
        self.expected = expected
        self.got = got

    def __str__(self) -> str:
        return f"capture {self.path}, line {self.line}: expected {self.expected}, got {self.got}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRecord:
    """One Kafka record with its coordinates.

    Attributes:
        topic: Kafka topic.
        partition: Kafka partition.
        offset: offset in the partition.
        timestamp_ms: the record's timestamp in epoch milliseconds; -1 if it has none.
        key: key, or None for Kafka's null.
        value: value, or None for Kafka's null.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class _Offsets(dict[tuple[str, int], int]):
    """The last offset of each topic and partition of a capture."""

    def take(self, place: "_Place | CaptureRecord", path: Path, line: int) -> None:
        """Take the place of a line, which must be after the last one of its partition."""
        partition = (place.topic, place.partition)
        last = self.get(partition, -1)
        if place.offset <= last:
            expected = (
                f"an offset above {last} in topic {place.topic!r} partition {place.partition}"
            )
            raise CaptureError(str(path), line, expected, str(place.offset))
        self[partition] = place.offset


class CaptureReader(Iterator[CaptureRecord]):
    """An iterator over the records of one capture.

    A line that is not a record raises `CaptureError` and ends the iteration. The file is closed at
    its end, at an error, and by `close` or the end of a `with` block.

    Args:
        path: the capture.
        wanted: called with topic, partition and offset; returns whether to yield the record. Keys
            and values of other records are not decoded. None yields all.

    Attributes:
        line: number of the line read last, from 1; 0 before the first.
        incomplete_tail: whether the end was reached, and a line or gzip member lacks its end.
        open_line: whether the end was reached, and the last record had no newline after it.

    Raises:
        SourceUnavailableError: the file does not exist or cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        *,
        wanted: Callable[[str, int, int], bool] | None = None,
    ) -> None:
        self.path = path
        self.line = 0
        self.incomplete_tail = False
        self.open_line = False
        self._wanted = wanted
        self._offsets = _Offsets()
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise _unavailable(path, error) from error
        self._records = self._read()

    def __next__(self) -> CaptureRecord:
        """Return the next record.

        Raises:
            CaptureError: the next line is not a record.
            SourceUnavailableError: the file cannot be read any more.
        """
        return next(self._records)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the iteration is over."""
        self._records.close()
        self._file.close()

    def _read(self) -> Generator[CaptureRecord, None, None]:
        rest = bytearray()
        with self._file:
            for chunk in self._chunks():
                # Only the new bytes can hold the end of the line: a long line stays linear.
                *lines, end = chunk.split(b"\n")
                if lines:
                    lines[0] = bytes(rest + lines[0])
                    rest.clear()
                for line in lines:
                    record = self._record_of(line)
                    if record is not None:
                        yield record
                rest += end
                if len(rest) > MAX_LINE_BYTES:
                    self.line += 1
                    raise self._error(f"a line of at most {MAX_LINE_BYTES} bytes", "more")
            yield from self._last(bytes(rest))

    def _last(self, rest: bytes) -> Iterator[CaptureRecord]:
        if not rest.strip():
            return
        try:
            parsed = orjson.loads(rest)
        except orjson.JSONDecodeError:
            parsed = None
        # Digits alone may be the beginning of a longer number; a whole object cannot be longer.
        if not isinstance(parsed, dict):
            self.incomplete_tail = True
            return
        record = self._record_of(rest)
        if record is not None:
            yield record
        self.open_line = True

    def _record_of(self, line: bytes) -> CaptureRecord | None:
        """Return the record of a line; None if the line is blank or its record is not wanted."""
        self.line += 1
        if len(line) > MAX_LINE_BYTES:
            raise self._error(f"a line of at most {MAX_LINE_BYTES} bytes", "more")
        if not line or line.isspace():
            return None
        try:
            if self._wanted is not None:
                # In a file that grows, few records are wanted.
                place = _PLACES.decode(line)
                self._offsets.take(place, self.path, self.line)
                if not self._wanted(place.topic, place.partition, place.offset):
                    return None
            line_record = _LINES.decode(line)
            if self._wanted is None:
                self._offsets.take(line_record, self.path, self.line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._error("the object of a record", f"{len(line)} bytes ({error})") from error
        return CaptureRecord(
            topic=line_record.topic,
            partition=line_record.partition,
            offset=line_record.offset,
            timestamp_ms=line_record.timestamp,
            key=line_record.key,
            value=line_record.value,
        )

    def _chunks(self) -> Iterator[bytes]:
        """Yield the content of the file in pieces of bounded size."""
        first = self._next_bytes()
        if first == _GZIP_MAGIC[:1]:
            # No text begins like this: it is the beginning of a gzip file.
            self.incomplete_tail = True
        elif first.startswith(_GZIP_MAGIC):
            yield from self._unzipped(first)
        elif first:
            yield first
            yield from iter(self._next_bytes, b"")

    def _unzipped(self, compressed: bytes) -> Iterator[bytes]:
        """Yield the content of all gzip members, the last of which may lack its end."""
        while compressed:
            member = zlib.decompressobj(_GZIP_WINDOW)
            while not member.eof:
                try:
                    text = member.decompress(compressed, _CHUNK_BYTES)
                except zlib.error as error:
                    self.line += 1
                    raise self._error("a gzip file", str(error)) from error
                if text:
                    yield text
                compressed = member.unconsumed_tail
                if not compressed and not text and not member.eof:
                    compressed = self._next_bytes()
                    if not compressed:
                        self.incomplete_tail = True
                        return
            # Zeros between and after members are padding, as for gzip itself.
            compressed = member.unused_data.lstrip(b"\0")
            while not compressed and (more := self._next_bytes()):
                compressed = more.lstrip(b"\0")

    def _next_bytes(self) -> bytes:
        try:
            return self._file.read(_CHUNK_BYTES)
        except OSError as error:
            raise _unavailable(self.path, error) from error

    def _error(self, expected: str, got: str) -> CaptureError:
        return CaptureError(str(self.path), self.line, expected, got)


class _Place(msgspec.Struct):
    """The fields of a line with the coordinates of its record."""

    topic: Annotated[str, msgspec.Meta(min_length=1)]
    partition: Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT32)]
    offset: Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT64)]


class _Line(_Place):
    """A line: bytes are base64 text."""

    timestamp: Annotated[int, msgspec.Meta(ge=-1, le=_MAX_INT64)]
    key: bytes | None
    value: bytes | None


_PLACES = msgspec.json.Decoder(_Place)
_LINES = msgspec.json.Decoder(_Line)


class CaptureWriter:
    """A context manager that appends records to a capture.

    The file is created if it does not exist; its folder is not. Lines reach the file at `flush`,
    after about a MiB of them, and at the end of the `with` block, even after an error: only whole
    lines are written.

    Args:
        path: the capture; gzip if its name ends in `.gz`.

    Raises:
        CaptureError: the file exists and is not a capture, ends in the middle of a line, or is gzip
            although its name says plain text (or the reverse).
        SourceUnavailableError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._gzip = path.name.endswith(".gz")
        self._lines: list[bytes] = []
        self._waiting = 0
        self._written = 0
        self._offsets = _Offsets()
        self._continue()
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise _unavailable(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def next_offsets(self) -> Mapping[tuple[str, int], int]:
        """The offset after the last record of each topic and partition."""
        return {partition: offset + 1 for partition, offset in self._offsets.items()}

    def append(self, record: CaptureRecord) -> None:
        """Add `record` after all others.

        Raises:
            CaptureError: its partition already has this offset or a later one.
        """
        self._offsets.take(record, self.path, self._written + 1)
        fields = _Line(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.timestamp_ms,
            key=record.key,
            value=record.value,
        )
        line = msgspec.json.encode(fields) + b"\n"
        self._written += 1
        self._lines.append(line)
        self._waiting += len(line)
        if self._waiting >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered lines, so that readers see them."""
        if not self._lines:
            return
        text = b"".join(self._lines)
        self._lines.clear()
        self._waiting = 0
        rest = memoryview(compress(text, _GZIP_LEVEL, mtime=0) if self._gzip else text)
        while rest:
            rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        """Write the buffered lines and close the file."""
        if self._file.closed:
            return
        try:
            self.flush()
        finally:
            self._file.close()

    def _continue(self) -> None:
        """Read the offsets of an existing file, and refuse a file that cannot be continued."""
        try:
            with self.path.open("rb") as file:
                magic = file.read(len(_GZIP_MAGIC))
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unavailable(self.path, error) from error
        if magic and (magic == _GZIP_MAGIC) is not self._gzip:
            names = {True: "gzip", False: "plain text"}
            raise CaptureError(
                str(self.path), 1, f"{names[self._gzip]}, by the name", names[not self._gzip]
            )
        with CaptureReader(self.path) as reader:
            for record in reader:
                self._offsets[record.topic, record.partition] = record.offset
        self._written = reader.line
        if reader.incomplete_tail:
            raise CaptureError(
                str(self.path), reader.line + 1, "whole lines to append to", "an incomplete tail"
            )
        if reader.open_line:
            self._lines.append(b"\n")


def _unavailable(path: Path, error: OSError) -> SourceUnavailableError:
    cause = error.strerror or type(error).__name__
    return SourceUnavailableError(f"capture {path} cannot be read or written: {cause}")
