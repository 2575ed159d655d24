"""Rows of the quarantine are closed, and only their files are written again."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from ticdc_assets.delta.appending import write_table
from ticdc_assets.delta.log_reading import log_state
from ticdc_assets.log.quarantine import (
    FAULT_SCHEMA,
    Closing,
    close_rows,
    place_of,
    read_quarantine,
    reopen_applied,
)
from ticdc_assets.storage.lake_paths import LakePaths


def fault(offset: int, stage: str) -> dict[str, Any]:
    coordinates = {"topic": "ticdc", "partition": 0, "offset": offset, "index": 0}
    told = {"reason": "bad", "quarantined_at": datetime.now(UTC), "commit_ts": offset, "batch": 1}
    return dict.fromkeys(FAULT_SCHEMA.names) | coordinates | told | {"stage": stage}


def test_only_files_with_closed_rows_are_written_again(tmp_path: Path) -> None:
    paths = LakePaths(root=tmp_path, changefeed="feed")

    def files() -> list[str]:
        return [item["path"] for item in log_state(paths.quarantine).files]

    def open_offsets() -> list[int]:
        return [row["offset"] for row in read_quarantine(paths)]

    close_rows(paths, "decode", [("ticdc", 0, 1, 0)], Closing.REDRIVE)
    assert not paths.quarantine.exists()
    for offset in (1, 3, 5):
        rows = [fault(offset, "decode"), fault(offset + 1, "apply")]
        table = pa.Table.from_pylist(rows, FAULT_SCHEMA)
        write_table(paths.quarantine, table, overwrite=False, metadata={"batch": offset})
    first, _, last = before = files()
    began = datetime.now(UTC)
    places = {row["offset"]: place_of(row) for row in read_quarantine(paths)}
    # Of the other stage, and of no row.
    close_rows(paths, "decode", [places[2], ("ticdc", 0, 9, 0)], Closing.REDRIVE)
    assert files() == before
    close_rows(paths, "decode", [places[3]], Closing.REDRIVE)
    assert open_offsets() == [1, 2, 4, 5, 6]
    assert files()[:2] == [first, last]
    assert len(files()) == 3
    assert log_state(paths.quarantine).memory == {"batch": 5}
    close_rows(paths, "apply", [places[4]], Closing.LATER_CHANGE)
    assert open_offsets() == [1, 2, 5, 6]
    reopen_applied(paths, commit_ts=4, since=began)
    assert open_offsets() == [1, 2, 4, 5, 6]
    assert files()[:2] == [first, last]
    closed = [row for row in read_quarantine(paths, open_only=False) if row["redriven_at"]]
    assert [(row["offset"], row["closed_by"]) for row in closed] == [(3, "redrive")]
