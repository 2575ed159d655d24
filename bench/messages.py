"""What is measured on: records of one format, from TiCDC's real encoder where there are.

In: a number of records, and their format. Out: that many records (fewer if there are no more) of
`<golden>/bench/<name>.bin`, plain or gzip, where golden is `../shared/golden` or the folder that
TICDC_GOLDEN names; and where there is none, of the simulator's shop. The layout of the file stands
beside it: partition, offset, timestamp, key and value of each record, little endian.
"""

import gzip
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, islice
from pathlib import Path

from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.shop import ShopWorkload
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.events import RowChange
from ticdc_assets.source.capture import CaptureRecord
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.record import Record

_MAGIC = b"TCDCREC1"
_HEAD = struct.Struct("<IQQ")  # partition, offset, timestamp in ms
_LENGTH = struct.Struct("<i")  # -1: null


@dataclass(frozen=True, kw_only=True)
class Messages:
    """Records, and where they are from."""

    records: list[CaptureRecord]
    source: str
    wire_format: WireFormat = WireFormat.SIMPLE_JSON

    @cached_property
    def rows(self) -> int:
        """How many row changes they hold."""
        return sum(map(self._rows_in, self.records))

    def _rows_in(self, record: CaptureRecord) -> int:
        events = decode(self.wire_format, Record(key=record.key, value=record.value))
        return sum(isinstance(event, RowChange) for event in events)

    def up_to_rows(self, rows: int) -> "Messages":
        """Return the first records, until they hold `rows` row changes."""
        held = accumulate(map(self._rows_in, self.records), initial=0)
        records = [item for item, before in zip(self.records, held, strict=False) if before < rows]
        return replace(self, records=records)

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(len(item.value or b"") for item in self.records)


def load_messages(count: int, wire_format: WireFormat = WireFormat.SIMPLE_JSON) -> Messages:
    """Return at most `count` records of a format."""
    root = Path(__file__).resolve().parent.parent
    golden = Path(os.environ.get("TICDC_GOLDEN") or root.parent / "shared" / "golden")
    stem = _STEMS.get(wire_format, str(wire_format))
    for name in (f"{stem}.bin", f"{stem}.bin.gz"):
        path = golden / "bench" / name
        if path.is_file():
            content = (
                gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
            )
            records, source = _records(content), "TiCDC's encoder"
            break
    else:
        records, source = _simulated(count, wire_format), "the simulator"
    return Messages(records=list(islice(records, count)), source=source, wire_format=wire_format)


_STEMS = {WireFormat.OPEN_PROTOCOL: "open"}
"""Formats whose file has another name."""


def _records(content: bytes) -> Iterator[CaptureRecord]:
    if not content.startswith(_MAGIC):
        raise ValueError(f"expected a file that begins with {_MAGIC!r}")
    place = len(_MAGIC)

    def field() -> bytes | None:
        nonlocal place
        (length,) = _LENGTH.unpack_from(content, place)
        place += _LENGTH.size
        if length < 0:
            return None
        place += length
        return content[place - length : place]

    while place < len(content):
        partition, offset, timestamp_ms = _HEAD.unpack_from(content, place)
        place += _HEAD.size
        key = field()
        yield CaptureRecord(
            topic="bench",
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            key=key,
            value=field(),
        )


def _simulated(count: int, wire_format: WireFormat) -> Iterator[CaptureRecord]:
    upstream = Upstream()
    workload = ShopWorkload(upstream, 0)
    changefeed = StandInChangefeed(upstream, "bench", partitions=4, wire_format=wire_format)
    workload.open()
    # A step is a transaction of one row or more.
    for _ in workload.steps(count):
        pass
    yield from changefeed.tick()
