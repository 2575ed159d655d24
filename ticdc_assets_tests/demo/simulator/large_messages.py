"""Large messages of the stand-in changefeed: rows cut to their handle key, and claim checks.

In: a row change as its format carries it. Out: the same, or, where its message would be larger
than Kafka takes, the row cut to its handle key, as TiCDC sends it; with a claim check the whole
message is first written into a folder, under a new name, and the cut row cites that file. A file
holds `{"key", "value"}`, each base64 or null, or the bare value (`raw_value`); values are
compressed inside as those of messages are.

A row sent again, after a restart, is written again under another name, as TiCDC does; nothing that
was written is ever changed. The same seed gives the same names.

Not handled: DDL that is too large, which fails TiCDC's changefeed (here it is sent).

Source: `AppendRowChangedEvent` of each format's encoder under pkg/sink/codec, and `WriteMessage` in
pkg/sink/kafka/claimcheck/claim_check.go of pingcap/tiflow at 017624f.
"""

import random
import uuid
from base64 import b64encode
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ticdc_assets.demo.simulator.encoders.compression import compressed
from ticdc_assets.demo.simulator.encoders.go_json import dumps
from ticdc_assets.model.events import Event, Image, Op, RowChange
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.compression import Compression
from ticdc_assets.wire.record import Record

RECORD_OVERHEAD: Final = 36
"""Bytes that TiCDC counts for a record besides its key and value."""

_WITHOUT: Final = frozenset({WireFormat.CRAFT})
_WITHOUT_RAW_VALUE: Final = frozenset({WireFormat.OPEN_PROTOCOL})


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeMessages:
    """What becomes of messages that are too large.

    Attributes:
        max_message_bytes: size from which a message is too large, its overhead included.
        claim_check: folder for whole messages, made when it is needed; None for no claim checks:
            what is left out is lost.
        raw_value: whether a file is the bare value (not Open Protocol).
    """

    max_message_bytes: int
    claim_check: Path | None = None
    raw_value: bool = False


class LargeMessageWriter:
    """Cuts rows whose messages are too large.

    Args:
        wire_format: format of the messages.
        encode: makes records of events.
        compression: how values are compressed.
        options: what becomes of large messages.
        seed: of the names of files.

    Raises:
        ValueError: the format has no large messages, or none of this kind.
    """

    def __init__(
        self,
        wire_format: WireFormat,
        encode: Callable[[Sequence[Event]], Sequence[Record]],
        compression: Compression,
        options: LargeMessages,
        *,
        seed: int,
    ) -> None:
        if wire_format in _WITHOUT:
            raise ValueError(f"{wire_format} has no large messages")
        if options.raw_value and wire_format in _WITHOUT_RAW_VALUE:
            raise ValueError(f"{wire_format} has no claim checks of bare values")
        self._format = wire_format
        self._encode = encode
        self._compression = compression
        self._options = options
        # Apart from all else that is random, so that a size changes names only.
        self._rng = random.Random(f"{seed} claim checks")

    def sent(self, row: RowChange, handle_key: Collection[str]) -> RowChange:
        """Return `row` as it is sent: itself, or cut to its handle key.

        Raises:
            ValueError: it is too large, and stays so or has no handle key.
        """
        whole = self._record(row)
        if not self._is_large(whole):
            return row
        cut = self._cut(row, handle_key, self._written(whole))
        if not handle_key or self._is_large(self._record(cut)):
            raise ValueError(
                f"a row of {row.database}.{row.table} is too large even as its handle key "
                f"{list(handle_key)}"
            )
        return cut

    @property
    def max_message_bytes(self) -> int:
        """Size from which a message is too large."""
        return self._options.max_message_bytes

    def _record(self, row: RowChange) -> Record:
        (record,) = self._encode([row])
        return compressed(self._format, record, self._compression)

    def _is_large(self, record: Record) -> bool:
        size = len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD
        return size > self._options.max_message_bytes

    def _cut(self, row: RowChange, handle_key: Collection[str], location: str | None) -> RowChange:
        def cut(image: Image | None) -> Image | None:
            return image and {name: image[name] for name in handle_key if name in image}

        row = replace(
            row,
            before=cut(row.before),
            after=cut(row.after),
            handle_key_only=True,
            claim_check_location=location,
        )
        if self._format is WireFormat.OPEN_PROTOCOL and row.op is Op.UPDATE and not row.before:
            # Of the columns before it only changed ones were left, and no key is one of them: the
            # member without columns is not written, which makes an insert of it.
            return replace(row, op=Op.INSERT, before=None)
        return row

    def _written(self, record: Record) -> str | None:
        """Write a whole message into the claim check's folder and return its location."""
        folder = self._options.claim_check
        if folder is None:
            return None
        name = f"{uuid.UUID(bytes=self._rng.randbytes(16), version=4)}.json"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(
            record.value or b"" if self._options.raw_value else _file_of(record)
        )
        return f"{folder.absolute().as_uri()}/{name}"


def _file_of(record: Record) -> bytes:
    return dumps(
        {
            name: None if part is None else b64encode(part).decode()
            for name, part in (("key", record.key), ("value", record.value))
        }
    )
