"""Thousands of tables or columns: a whole sync takes them, and little memory."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from ticdc_assets.base.names import counted
from ticdc_assets.model.events import Event
from ticdc_assets.wire.compression import Compression
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.extremes import FIRST_TS, sync, watermark, wide_table, write_compressed

pytestmark = [pytest.mark.dagster, pytest.mark.slow]

_MOST_MIB = 2048


@pytest.mark.parametrize(
    ("tables", "events"),
    [
        (2000, (event for number in range(1, 2001) for event in wide_table(number, 4, 5))),
        (1, wide_table(1, 4000, 50)),
    ],
    ids=["tables", "columns"],
)
def test_thousands_are_synced(tables: int, events: Iterable[Event], tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    commands.add_capture("f", tmp_path / "c.jsonl")
    write_compressed(
        tmp_path / "c.jsonl", [*events, watermark(FIRST_TS + 10**10)], Compression.NONE
    )
    done = sync(tmp_path, "f", commands.env)
    assert done.status == 0, done.output
    assert f"{tables:,} of {counted(tables, 'mirror')} changed" in done.output
    assert done.peak < _MOST_MIB, done.parts
