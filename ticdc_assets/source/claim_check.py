"""Large messages: whole rows from the storage that TiCDC put them in.

In: the location in a cut row's message, and the claim check of the changefeed's configuration. Out:
the events of the whole message, or rows of a batch completed with them. A message that is missing,
unreadable or a different one raises `ClaimCheckError`: its record goes to quarantine and can be
redriven when the file exists. Records wait for a store that does not answer, as for a broker.

Only the configuration decides where a file is. Every writer to the topic can choose the location in
a message, so only its last part counts, which must be a plain name: no message leads out of the
configured folder. TiCDC never writes a file again, so reading it again gives the same.

A raw file is the bare value of the Kafka record. Any other file is a JSON object with the record's
`key` and `value`, each base64 or null. Values are compressed like those of messages. A file is read
up to `MAX_FILE_BYTES`, and its value decompressed up to `compression.MAX_DECOMPRESSED`.

Source: `WriteMessage` in pingcap/tiflow pkg/sink/kafka/claimcheck/claim_check.go and
`assembleClaimCheckRowChangedEvent` in pkg/sink/codec/simple/decoder.go at 017624f.

Not handled: rows cut to the handle key without a claim check (their values are only in the upstream
database), and deleting files that no row cites any more.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import fs

from ticdc_assets.base.errors import (
    ClaimCheckError,
    ConfigError,
    SourceUnavailableError,
    WireError,
    shorten,
)
from ticdc_assets.base.isolation import first_sentence
from ticdc_assets.config import ClaimCheck
from ticdc_assets.model.events import Event, RowChange
from ticdc_assets.storage.stores import files_at
from ticdc_assets.wire import decode
from ticdc_assets.wire.compression import MAX_DECOMPRESSED, Compression
from ticdc_assets.wire.formats import WireFormat
from ticdc_assets.wire.record import Record
from ticdc_assets.wire.rows import Row, SourcedRows, error_row, event_row

MAX_FILE_BYTES: Final = MAX_DECOMPRESSED * 3 // 2
"""The largest file that is read: base64 makes 4 bytes of 3, and a key may be in it too."""

BYTES_AT_ONCE: Final = 16 << 20
"""About how many bytes of whole rows `complete_batches` puts into one batch."""

MISSING: Final = "claim_check_missing"
UNREADABLE: Final = "claim_check_unreadable"
INVALID: Final = "claim_check_invalid"
"""The reasons of a `ClaimCheckError`."""

_POSITION: Final = "claim_check_location"
_REFUSED: Final = re.compile(r"DENIED|\b403\b")
"""How Arrow's file systems report that a store answers and refuses."""
_NOT_IN_NAMES: Final = frozenset("/\\:\0")
_PIECE: Final = 1024 * 1024


class ClaimCheckStore:
    """The storage of one changefeed's large messages. It can be pickled.

    Args:
        claim_check: where the files are and what they hold.
        wire_format: the format of the messages in them.
        compression: how their values are compressed.

    Raises:
        ConfigError: the location cannot be opened.
        SourceUnavailableError: its store does not answer.
    """

    def __init__(
        self,
        claim_check: ClaimCheck,
        wire_format: WireFormat,
        compression: Compression = Compression.NONE,
    ) -> None:
        self._claim_check = claim_check
        self._wire_format = wire_format
        self._compression = compression
        try:
            self._filesystem, folder = files_at(claim_check.location)
        except OSError as error:
            # Arrow looks up the region of a bucket.
            raise _no_answer(claim_check, error) from error
        except (ValueError, pa.ArrowException) as error:
            # Raised without the cause: its text has the location, which may hold credentials.
            raise ConfigError(
                f"claim_check.location {claim_check.shown!r} is neither an absolute path nor a URI "
                f"that Arrow's filesystems open ({type(error).__name__}); the parameters of such a "
                "URI are Arrow's, not TiCDC's"
            ) from None
        self._folder: str = folder.rstrip("/")

    def fetch(self, location_in_message: str) -> list[Event]:
        """Return the events of the message that a row cites by `location_in_message`.

        Raises:
            ClaimCheckError: the file is missing, unreadable, or holds no message.
            SourceUnavailableError: the store does not answer.
        """
        name = location_in_message.rpartition("/")[2]
        if name in ("", ".", "..") or not _NOT_IN_NAMES.isdisjoint(name):
            expected = "a location that ends in the name of a file"
            raise _invalid(expected, shorten(location_in_message))
        content = self._content(name)
        try:
            record = (
                Record(key=None, value=content)
                if self._claim_check.raw_value
                else _record_of(content)
            )
            return decode(self._wire_format, record, compression=self._compression)
        except WireError as error:
            raise _invalid(
                f"a message of {self._wire_format}: {error.expected} at {error.position}",
                f"{error.reason}: {error.got}",
            ) from error

    def _content(self, name: str) -> bytes:
        path = f"{self._folder}/{name}"
        try:
            file = self._filesystem.get_file_info(path)
            if file.type is fs.FileType.NotFound:
                raise _missing(name)
            # Other kinds of files could block, like a pipe.
            if file.type is not fs.FileType.File:
                raise ClaimCheckError(UNREADABLE, _POSITION, "a file", f"a {file.type.name}")
            # A link out of the folder could make any file readable.
            if isinstance(self._filesystem, fs.LocalFileSystem) and not (
                Path(path).resolve().is_relative_to(Path(self._folder or "/").resolve())
            ):
                expected = "a file in the folder of claim_check.location"
                raise ClaimCheckError(UNREADABLE, _POSITION, expected, "a link out")
            return self._read(path)
        except FileNotFoundError as error:
            raise _missing(name) from error
        except (OSError, pa.ArrowException, UnicodeEncodeError) as error:
            if isinstance(error, OSError) and not _is_refusal(error):
                try:
                    self._filesystem.get_file_info(self._folder or "/")
                except OSError as no_answer:
                    # The file may be whole.
                    if not _is_refusal(no_answer):
                        raise _no_answer(self._claim_check, no_answer) from no_answer
            raise ClaimCheckError(
                UNREADABLE, _POSITION, "a file that can be read", shorten(str(error), 120)
            ) from error

    def _read(self, path: str) -> bytes:
        pieces: list[bytes] = []
        size = 0
        # By default Arrow would decompress a file by its name.
        with self._filesystem.open_input_stream(path, compression=None) as stream:
            # Not `read`: it leaks its memory when it fails.
            while piece := stream.read_buffer(_PIECE).to_pybytes():
                size += len(piece)
                if size > MAX_FILE_BYTES:
                    raise _invalid(f"at most {MAX_FILE_BYTES} bytes", "more")
                pieces.append(piece)
        return b"".join(pieces)


def complete_batches(batch: pa.RecordBatch, store: ClaimCheckStore) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batch`, with those that cite a claim check replaced by whole rows.

    Each row is completed separately, so splitting the batch changes nothing. A row that cannot be
    completed becomes one of kind `error`; coordinates, index and order stay. Whole rows were too
    large for Kafka, so many of them may exceed an Arrow column or the memory.

    Args:
        batch: rows of `CHANGE_SCHEMA`.
        store: where the whole rows are.
    """
    start, size = 0, 0
    numbers: list[int] = []
    rows: list[Row] = []
    cited = np.flatnonzero(np.asarray(batch.column(_POSITION).is_valid())).tolist()
    for number in cited:
        (row,) = batch.slice(number, 1).to_pylist()
        try:
            change = (row["commit_ts"], row["database"], row["table"])
            whole = event_row(whole_row(store, row[_POSITION], change), row["index"])
        except ClaimCheckError as error:
            whole = error_row(error, row["index"])
        rows.append(whole)
        numbers.append(number - start)
        size += sum(len(value) for value in whole.values() if isinstance(value, str | bytes))
        del whole
        if size >= BYTES_AT_ONCE and number != cited[-1]:
            part = batch.slice(start, number + 1 - start)
            taken, rows = rows, []
            yield _replaced(part, numbers, taken)
            del taken
            start, size, numbers = number + 1, 0, []
    yield _replaced(batch.slice(start) if start else batch, numbers, rows)


def _replaced(batch: pa.RecordBatch, numbers: list[int], rows: list[Row]) -> pa.RecordBatch:
    """Return `batch` with other rows in place of those with these numbers."""
    if not numbers:
        return batch
    cited = batch.take(pa.array(numbers))
    completed = SourcedRows.of_rows(cited, range(len(rows)), rows).rows
    places = list(range(batch.num_rows))
    for number, place in enumerate(numbers):
        places[place] = batch.num_rows + number
    both = pa.Table.from_batches([batch, completed])
    (whole,) = both.take(pa.array(places, pa.int64())).combine_chunks().to_batches()
    return whole


def whole_row(store: ClaimCheckStore, location: str, change: tuple[int, str, str]) -> RowChange:
    """Return the whole row of a cut row.

    Args:
        store: where the whole rows are.
        location: the location that the cut row cites.
        change: commit ts, database and table of the cut row; the whole one must have the same.

    Raises:
        ClaimCheckError: there is no such row.
    """
    events = store.fetch(location)
    event = events[0]
    if len(events) != 1 or not isinstance(event, RowChange):
        kinds = ", ".join(type(event).__name__ for event in events[:4])
        raise _invalid("exactly one row", f"{len(events)} events: {kinds}")
    if event.handle_key_only or event.claim_check_location is not None:
        raise _invalid("the whole row", "a row cut to its handle key")
    cited = (event.commit_ts, event.database, event.table)
    if cited != change:
        raise _invalid(f"the row of {shorten(change)}", shorten(cited))
    return event


class _File(msgspec.Struct):
    """The record in a file that is not raw: bytes are base64 text."""

    key: bytes | None
    value: bytes | None


_FILES: Final = msgspec.json.Decoder(_File)


def _record_of(content: bytes) -> Record:
    """Return the record in a file that is not raw."""
    try:
        message = _FILES.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        expected = "an object with key and value, each base64 or null,"
        raise WireError("invalid_file", "$", expected, shorten(str(error), 120)) from error
    return Record(key=message.key, value=message.value)


def _is_refusal(error: OSError) -> bool:
    return isinstance(error, PermissionError) or _REFUSED.search(str(error)) is not None


def _no_answer(claim_check: ClaimCheck, error: OSError) -> SourceUnavailableError:
    return SourceUnavailableError(
        f"the storage of large messages, {claim_check.shown}, does not answer: "
        f"{first_sentence(error)}",
        "their records wait, and the next sync goes on; if the location is wrong, correct "
        "claim_check.location",
    )


def _missing(name: str) -> ClaimCheckError:
    return ClaimCheckError(MISSING, _POSITION, f"a file {shorten(name)}", "no file of that name")


def _invalid(expected: str, got: str) -> ClaimCheckError:
    return ClaimCheckError(INVALID, _POSITION, expected, got[:200])
