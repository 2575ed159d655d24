"""Captures of very large messages, and the most memory that a program and all below it take."""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.model.events import Bootstrap, Event, Image, RowChange, Watermark
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.source.capture import CaptureRecord, CaptureWriter
from ticdc_assets.wire import WireFormat
from ticdc_assets.wire.compression import Compression
from ticdc_assets_tests.demo.simulator.compressing import compressed
from ticdc_assets_tests.events import ddl_event, row_event
from ticdc_assets_tests.text_tables import created

MIB = 1 << 20
FIRST_TS = 440_000_000_000_000_000
LONGEST_SECONDS = 900

LARGE_VALUES = created(
    "create table large (id bigint primary key, v longtext)",
    version=FIRST_TS,
    table="large",
    table_id=1,
)


def large_value(number: int, size: int) -> str:
    """A text of `size` bytes that compresses well."""
    return f"{number:09d}" + "x" * (size - 9)


def large_inserts(numbers: Iterable[int], size: int) -> Iterable[RowChange]:
    """Inserts of rows whose value has `size` bytes."""
    for number in numbers:
        values = {"id": str(number), "v": large_value(number, size)}
        yield _insert(LARGE_VALUES, FIRST_TS + 1 + number, values)


def _insert(schema: TableSchema, ts: int, values: Image) -> RowChange:
    return row_event(
        ts,
        after=values,
        build_ts_ms=1,
        database=schema.database,
        table=schema.table,
        table_id=schema.table_id,
        schema_version=schema.version,
    )


def large_table(numbers: Iterable[int], size: int) -> Iterable[Event]:
    """A table and inserts into it."""
    yield Bootstrap(build_ts_ms=1, schema=LARGE_VALUES)
    yield from large_inserts(numbers, size)


def watermark(ts: int) -> Watermark:
    return Watermark(watermark_ts=ts, build_ts_ms=1)


def write_compressed(
    path: Path, events: Iterable[Event], compression: Compression, *, first: int = 0
) -> None:
    """Write or continue a capture of Simple JSON, one event at a time."""
    with CaptureWriter(path) as writer:
        for offset, event in enumerate(events, first):
            (record,) = encode(WireFormat.SIMPLE_JSON, [event])
            record = compressed(WireFormat.SIMPLE_JSON, record, compression)
            writer.append(
                CaptureRecord(
                    topic="t",
                    partition=0,
                    offset=offset,
                    timestamp_ms=1_700_000_000_000,
                    key=record.key,
                    value=record.value,
                )
            )


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A program that ended.

    Attributes:
        status: its exit status.
        output: what it wrote.
        peak: most memory in MiB of it and all below it at a time.
        parts: of which these processes, by name, had so much.
    """

    status: int
    output: str
    peak: int
    parts: dict[str, int] = field(default_factory=dict[str, int])


def watched(command: Sequence[str], *, env: dict[str, str], cwd: Path) -> Finished:
    """Run a program in a process group of its own and look at its memory ten times a second."""
    began = time.monotonic()
    peak, parts = 0, dict[str, int]()
    log = cwd / f"watched-{time.monotonic_ns()}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=dict(os.environ) | env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.poll() is None:
                now = _memory(process.pid)
                if sum(now.values()) > peak:
                    peak, parts = sum(now.values()), now
                if time.monotonic() - began > LONGEST_SECONDS:
                    raise TimeoutError(f"{command} took more than {LONGEST_SECONDS} s")
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
    return Finished(status=process.returncode, output=log.read_text(), peak=peak, parts=parts)


def _memory(pid: int) -> dict[str, int]:
    """Return the memory of a process and of all below it, in MiB; shared pages are shared out."""
    found: dict[str, int] = {}
    # Any of them may end while it is looked at.
    with suppress(psutil.NoSuchProcess):
        top = psutil.Process(pid)
        for member in (top, *top.children(recursive=True)):
            with suppress(psutil.Error):
                found[f"{member.name()} {member.pid}"] = member.memory_full_info().pss // MIB
    return found


def sync(folder: Path, changefeed: str, env: dict[str, str]) -> Finished:
    """Run the installed command's `sync` as a program, watched."""
    return watched(
        [sys.executable, "-m", "ticdc_assets.cli", "sync", changefeed], env=env, cwd=folder
    )


def wide_table(number: int, columns: int, rows: int) -> Iterable[Event]:
    """A table with a key and so many columns, and inserts into it."""
    ts = FIRST_TS + number * 1_000_000
    names = [f"c{place}" for place in range(1, columns)]
    table = f"t{number}"
    defined = ["id bigint primary key", *(f"{name} varchar(20)" for name in names)]
    sql = f"create table {table} ({', '.join(defined)})"
    schema = created(sql, version=ts, table=table, table_id=100 + number)
    yield ddl_event(ts, sql, ddl_type="CREATE", build_ts_ms=1, table=table, schema=schema)
    for row in range(rows):
        values = {"id": str(row), **{name: f"{name} of {row}" for name in names}}
        yield _insert(schema, ts + 1 + row, values)
