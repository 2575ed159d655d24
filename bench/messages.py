"""What is measured on: records in the Simple protocol, from TiCDC's real encoder where there are.

In: a number of records. Out: that many records (fewer if there are no more) of
`<golden>/bench/simple-json.bin`, plain or gzip, where golden is `../shared/golden` or the folder
that TICDC_GOLDEN names; and where there is none, of the simulator's shop. The layout of the file
stands beside it: partition, offset, timestamp, key and value of each record, little endian.
"""

import gzip
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from ticdc_assets.capture import CaptureRecord
from ticdc_assets.simulator.changefeed import StandInChangefeed
from ticdc_assets.simulator.shop import ShopWorkload
from ticdc_assets.simulator.upstream import Upstream

_MAGIC = b"TCDCREC1"
_HEAD = struct.Struct("<IQQ")  # partition, offset, timestamp in ms
_LENGTH = struct.Struct("<i")  # -1: null


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Records, and where they are from."""

    records: list[CaptureRecord]
    source: str

    @property
    def rows(self) -> int:
        """How many are row changes."""
        kinds = (b'"type":"INSERT"', b'"type":"UPDATE"', b'"type":"DELETE"')
        return sum(
            any(kind in (item.value or b"")[:200] for kind in kinds) for item in self.records
        )

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(len(item.value or b"") for item in self.records)

    def repeated(self, times: int) -> "Messages":
        """Return the records several times over, each at an offset of its own."""
        step = max(item.offset for item in self.records) + 1
        return Messages(
            records=[
                replace(item, offset=item.offset + number * step)
                for number in range(times)
                for item in self.records
            ],
            source=self.source,
        )


def load_messages(count: int) -> Messages:
    """Return at most `count` records."""
    root = Path(__file__).resolve().parent.parent
    golden = Path(os.environ.get("TICDC_GOLDEN") or root.parent / "shared" / "golden")
    for name in ("simple-json.bin", "simple-json.bin.gz"):
        path = golden / "bench" / name
        if path.is_file():
            content = (
                gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
            )
            return Messages(
                records=list(islice(_records(content), count)), source="TiCDC's encoder"
            )
    return Messages(records=list(islice(_simulated(count), count)), source="the simulator")


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


def _simulated(count: int) -> Iterator[CaptureRecord]:
    upstream = Upstream()
    workload = ShopWorkload(upstream, 0)
    changefeed = StandInChangefeed(upstream, "bench", partitions=4)
    workload.open()
    # A step is a transaction of one row or more.
    for _ in workload.steps(count):
        pass
    yield from changefeed.tick()
