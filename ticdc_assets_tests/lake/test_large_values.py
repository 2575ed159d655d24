"""Values of many MiB: how much memory they take must not follow how many there are."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ticdc_assets.wire.compression import Compression
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.extremes import (
    FIRST_TS,
    MIB,
    large_inserts,
    large_table,
    sync,
    watermark,
    write_compressed,
)

_DECODE_LARGE = """
import sys
import pyarrow as pa
from pathlib import Path
from ticdc_assets.source.capture import CaptureReader
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.log.change_files import write_rows
from ticdc_assets.log.decoding import record_decoder
from ticdc_assets.config import load_settings
folder = Path(sys.argv[1])
changefeed = load_settings().changefeed("f")
with CaptureReader(folder / "large.jsonl") as capture:
    records = list(capture)
size = len(records)
batch = pa.RecordBatch.from_pydict({
    "batch": [1] * size, "landed_at": pa.array([17 * 10**14] * size, pa.timestamp("us", tz="UTC")),
    "topic": ["t"] * size, "partition": pa.array([0] * size, pa.int32()),
    "offset": list(range(size)), "timestamp_ms": [1_700_000_000_000] * size,
    "key": pa.array([None] * size, pa.binary()),
    "value": pa.array([record.value for record in records], pa.binary()),
})
into = LakePaths(root=folder, changefeed="f")
found = write_rows(record_decoder(changefeed, 1)([batch]), batch=1, into=into)
assert found.errors == 0 and sum(found.totals.groups["rows"].to_pylist()) == size, found
lines = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))
"""


@pytest.mark.thorough
def test_memory_does_not_follow_how_well_messages_are_compressed(tmp_path: Path) -> None:
    (tmp_path / "changefeeds.yaml").write_text(
        "changefeeds: [{name: f, format: simple-json, compression: lz4, timezone: UTC, "
        "source: {capture: large.jsonl}}]"
    )
    # 192 MiB of text in 1 MB; all at once 256 MiB took 1.7 GB.
    write_compressed(tmp_path / "large.jsonl", large_table(range(6), 32 * MIB), Compression.LZ4)
    assert (tmp_path / "large.jsonl").stat().st_size < 3 * MIB
    done = subprocess.run(
        [sys.executable, "-c", _DECODE_LARGE, str(tmp_path)],
        env=dict(os.environ) | {"TICDC_CHANGEFEEDS": str(tmp_path / "changefeeds.yaml")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) // 1024 < 800


def _synced(folder: Path, count: int, size: int, compression: Compression) -> int:
    """Sync so many rows with values of so many bytes, and more of them; return the most MiB."""
    commands = Commands(folder)
    (folder / "changefeeds.yaml").write_text(
        f"changefeeds: [{{name: f, format: simple-json, compression: {compression}, "
        "timezone: UTC, source: {capture: large.jsonl}}]"
    )
    capture = folder / "large.jsonl"

    def events():
        yield from large_table(range(count), size)
        yield watermark(FIRST_TS + count + 1)

    write_compressed(capture, events(), compression)
    first = sync(folder, "f", commands.env)
    assert first.status == 0, first.output
    assert "quarantined 0 records" in first.output
    # The mirror that is there is as large.
    more = [
        *large_inserts([count + 10], size),
        watermark(FIRST_TS + count + 20),
    ]
    write_compressed(capture, more, compression, first=count + 2)
    second = sync(folder, "f", commands.env)
    assert second.status == 0, second.output
    (mirror,) = commands.mirrors("f")
    assert mirror["rows"] == count + 1
    logging.getLogger(__name__).info("%d values, %s: %s, %s", count, compression, first, second)
    return max(first.peak, second.peak)


# Two programs and half a minute of CPU: by day the bound of decoding, above, is enough.
@pytest.mark.spark
@pytest.mark.slow
def test_a_sync_of_large_values_is_bounded(tmp_path: Path) -> None:
    # Twelve took 5.7 GB.
    assert _synced(tmp_path, 6, 32 * MIB, Compression.LZ4) < 1_500


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.SNAPPY])
def test_any_number_of_the_largest_messages_is_below_two_gigabytes(
    tmp_path: Path, compression: Compression
) -> None:
    assert _synced(tmp_path, 60, 63 * MIB, compression) < 2_000


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3_000)
def test_a_hundred_values_of_ten_megabytes_are_below_two_gigabytes(tmp_path: Path) -> None:
    assert _synced(tmp_path, 100, 10_000_000, Compression.NONE) < 2_000
