"""Thousands of tables or columns: a whole sync takes time in proportion, and little memory."""

import resource
from collections.abc import Iterable
from pathlib import Path

import pytest

from ticdc_assets.model.events import Event
from ticdc_assets.wire.compression import Compression
from ticdc_assets_tests.commands import Commands
from ticdc_assets_tests.extremes import FIRST_TS, sync, watermark, wide_table, write_compressed

pytestmark = [pytest.mark.dagster, pytest.mark.slow]

_MOST_MIB = 2048


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _synced(folder: Path, events: Iterable[Event], tables: int) -> float:
    """Sync a capture by the command in a process of its own; return its CPU seconds."""
    folder.mkdir()
    commands = Commands(folder)
    (folder / "changefeeds.yaml").write_text(
        "changefeeds: [{name: f, format: simple-json, timezone: UTC, source: {capture: c.jsonl}}]"
    )
    write_compressed(folder / "c.jsonl", [*events, watermark(FIRST_TS + 10**10)], Compression.NONE)
    began = _cpu_seconds()
    done = sync(folder, "f", commands.env)
    assert done.status == 0, done.output
    assert f"{tables} of {tables} mirrors changed" in done.output
    assert done.peak < _MOST_MIB, done.parts
    return _cpu_seconds() - began


def test_twice_the_tables_take_twice_the_time(tmp_path: Path) -> None:
    times = [
        _synced(
            tmp_path / str(tables),
            (event for number in range(1, tables + 1) for event in wide_table(number, 4, 5)),
            tables,
        )
        for tables in (1000, 2000)
    ]
    assert times[1] < 2.6 * times[0]


def test_twice_the_columns_take_twice_the_time(tmp_path: Path) -> None:
    times = [
        _synced(tmp_path / str(columns), wide_table(1, columns, 50), 1) for columns in (2000, 4000)
    ]
    assert times[1] < 2.6 * times[0]
