"""Values of many MiB: how much memory they take must not follow how many there are."""

import os
import subprocess
import sys
from pathlib import Path

from ticdc_assets.wire.compression import Compression
from ticdc_assets_tests.extremes import MIB, large_table, write_compressed

_DECODE_LARGE = """
import sys
import pyarrow as pa
from pathlib import Path
from ticdc_assets.capture import read_capture
from ticdc_assets.lake.change_files import _written
from ticdc_assets.lake.decoding import CHANGE_LOG_COLUMNS, _decoder
from ticdc_assets.config import load_settings
folder = Path(sys.argv[1])
changefeed = load_settings().changefeed("f")
with read_capture(folder / "large.jsonl") as capture:
    records = list(capture)
size = len(records)
batch = pa.RecordBatch.from_pydict({
    "batch": [1] * size, "landed_at": pa.array([0] * size, pa.timestamp("us", tz="UTC")),
    "topic": ["t"] * size, "partition": pa.array([0] * size, pa.int32()),
    "offset": list(range(size)), "key": pa.array([None] * size, pa.binary()),
    "value": pa.array([record.value for record in records], pa.binary()),
})
found = _written(_decoder(changefeed, 1)([batch]), folder / "log", CHANGE_LOG_COLUMNS)
assert found.errors == 0 and sum(row["rows"] for row in found.totals) == size, found
lines = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))
"""


def test_memory_does_not_follow_how_well_messages_are_compressed(tmp_path: Path) -> None:
    (tmp_path / "changefeeds.yaml").write_text(
        "changefeeds: [{name: f, format: simple-json, compression: lz4, timezone: UTC, "
        "source: {capture: large.jsonl}}]"
    )
    # 384 MiB of text in 2 MB; all at once they took 2.5 GB.
    write_compressed(tmp_path / "large.jsonl", large_table(range(12), 32 * MIB), Compression.LZ4)
    assert (tmp_path / "large.jsonl").stat().st_size < 3 * MIB
    done = subprocess.run(
        [sys.executable, "-c", _DECODE_LARGE, str(tmp_path)],
        env=dict(os.environ) | {"TICDC_CHANGEFEEDS": str(tmp_path / "changefeeds.yaml")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) // 1024 < 800
