"""What a sync reads of changes that did not fit, and what it counts of them."""

from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ticdc_assets.delta.control import read_rows, write_table
from ticdc_assets.log import quarantine
from ticdc_assets.log.quarantine import (
    CLOSED_BY,
    FAULT_SCHEMA,
    Closing,
    close_rows,
    place_of,
    read_counted,
)
from ticdc_assets.storage.lake_paths import LakePaths

NOW = datetime(2026, 5, 17, 12, 0, tzinfo=UTC)


def faults() -> list[dict[str, Any]]:
    """Return a fault of each stage, moment of closing, and reason of closing."""
    moments = (None, *(NOW + timedelta(microseconds=step) for step in (-1, 0, 1)))
    kinds = product(("decode", "apply"), moments, (None, *map(str, Closing)))
    return [
        dict.fromkeys(FAULT_SCHEMA.names)
        | {
            "topic": "t",
            "partition": 0,
            "offset": 100 - number,
            "index": 0,
            "stage": stage,
            "redriven_at": at,
            CLOSED_BY: closing,
            "commit_ts": number,
        }
        for number, (stage, at, closing) in enumerate(kinds)
    ]


@pytest.mark.parametrize("since", [None, NOW])
def test_only_faults_that_a_cut_counts_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, since: datetime | None
) -> None:
    paths = LakePaths(root=tmp_path, changefeed="feed")
    assert read_counted(paths, void_since=since) == []
    rows = pa.Table.from_pylist(faults(), schema=FAULT_SCHEMA)
    write_table(paths.quarantine, rows, overwrite=False, metadata={})
    # delta-rs writes the file anew, with texts as it has them.
    at = place_of({"topic": "t", "partition": 0, "offset": 100, "index": 0})
    close_rows(paths, "decode", [at], Closing.REDRIVE)
    wanted = [
        row
        for row in faults()
        if row["stage"] == "apply"
        and (
            row["redriven_at"] is None
            or (
                since is not None
                and row[CLOSED_BY] == Closing.LATER_CHANGE
                and row["redriven_at"] > since
            )
        )
    ]
    read: list[dict[str, Any]] = []

    def spy(*given: Any, **named: Any) -> list[dict[str, Any]]:
        found = read_rows(*given, **named)
        read.extend(found)
        return found

    monkeypatch.setattr(quarantine, "read_rows", spy)
    assert read_counted(paths, void_since=since) == wanted[::-1]
    assert len(read) == len(wanted) == 1 + len(Closing) + (since is not None)
