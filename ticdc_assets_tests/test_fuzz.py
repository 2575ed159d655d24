"""A share of `make fuzz` that is the same on every machine, and the proof that it can fail."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from fuzz import __main__ as program
from fuzz import running
from fuzz.ddl_texts import DdlTarget
from fuzz.decoders import DecoderTarget
from fuzz.findings import Batch, Failure, Findings, batch_of, read_failure, write_failure
from fuzz.growing import grown
from fuzz.running import Bounds, run
from fuzz.seeds import DdlSeeds, Seeds, load_ddl_seeds, load_seeds
from fuzz.targets import make_target
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire import batch as batch_module
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.compression import Compression, supports
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.wire import golden

SEED = 20260801
BATCHES = 15
"""Of 200 inputs each."""

CRAFT = WireFormat.CRAFT


@cache
def seeds_of(wire_format: WireFormat) -> Seeds:
    """The simulator's messages, which every machine has."""
    return load_seeds(wire_format, None)


@cache
def ddl_seeds() -> DdlSeeds:
    return load_ddl_seeds(None)


def target_of(wire_format: WireFormat, **decoders: Any) -> DecoderTarget:
    return DecoderTarget(wire_format, seeds_of(wire_format), **decoders)


def ran(target: Any, batches: int) -> Findings:
    total = Findings()
    for number in range(batches):
        batch = batch_of(target, SEED, number)
        found = target.check(batch, lambda _: None)
        shown = [(each.kind, each.text, batch.records[each.number]) for each in found.failures]
        assert not shown
        total.add(found)
    return total


def kinds(target: Any, batch: Batch) -> dict[str, int]:
    """The failures of a batch, each kind with the number of the first input."""
    failures = target.check(batch, lambda _: None).failures
    return {failure.kind: failure.number for failure in reversed(failures)}


# --- the share ---


@pytest.mark.parametrize("wire_format", WireFormat)
@pytest.mark.thorough
def test_decoders_stand_damage_and_agree(wire_format: WireFormat) -> None:
    found = ran(target_of(wire_format), BATCHES)
    assert found.inputs == BATCHES * 200 == found.accepted + found.reasons.total()
    assert found.accepted > found.inputs // 20
    assert len(found.reasons) > 12
    compressed = [each for each in Compression if each and supports(wire_format, each)]
    for compression in compressed[1:]:
        assert found.reasons[f"invalid_{compression.value}"] > 50


@pytest.mark.parametrize("wire_format", WireFormat)
@pytest.mark.thorough
def test_decoders_stand_what_is_large(wire_format: WireFormat) -> None:
    target, seeds = target_of(wire_format), seeds_of(wire_format).records
    generator = Random(SEED)
    records = [grown(generator, wire_format, generator.choice(seeds), 30_000) for _ in range(20)]
    assert sum(len(record.value or b"") for record in records) > 200_000
    assert kinds(target, Batch(records=records)) == {}
    (record, *_) = records
    assert kinds(target, Batch(records=[record], large=True)) == {}


def test_ddl_text_is_read_whatever_it_is() -> None:
    found = ran(DdlTarget(ddl_seeds()), 5)
    assert found.inputs == 1000
    assert found.accepted > 20
    assert len(found.reasons) >= 5


@golden.needs_golden
@pytest.mark.parametrize("name", ["simple-avro", "craft", "ddl"])
@pytest.mark.thorough
def test_golden_messages_are_seeds(name: str) -> None:
    target = make_target(name)
    assert "TiCDC's encoder" in target.source
    assert ran(target, 1).inputs == 200


# --- it can fail ---


def good() -> Batch:
    """Messages that nobody has damaged."""
    return Batch(records=seeds_of(CRAFT).records[:40])


def raises(*_: Any) -> Any:
    raise KeyError("x")


def with_other_tables(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = [row | {"table": row["table"] and row["table"] + "x"} for row in batch.to_pylist()]
    return pa.RecordBatch.from_pylist(rows, schema=batch.schema)


kept: list[pa.Buffer] = []


@pytest.mark.parametrize(
    ("part", "broken", "kind"),
    [
        ("reference", raises, "reference raises KeyError in "),
        ("reference", lambda _: [], "reference gives no list of events"),
        ("reference", lambda events: kept.append(pa.allocate_buffer(1000)) or events, "memory is"),
        ("columnar", raises, "batch raises KeyError in "),
        ("columnar", with_other_tables, "different: "),
        ("columnar", lambda rows: rows.slice(1), "different: "),
    ],
)
def test_a_broken_decoder_is_caught(part: str, broken: Callable[[Any], Any], kind: str) -> None:
    decoders: dict[str, Callable[..., Any]] = {"reference": decode, "columnar": decode_batch}

    def decoded(*given: Any, **options: Any) -> Any:
        return broken(decoders[part](*given, **options))

    assert kinds(target_of(CRAFT), good()) == {}
    assert any(
        found.startswith(kind) for found in kinds(target_of(CRAFT, **{part: decoded}), good())
    )


def test_batches_of_few_records_are_read_by_the_batch_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = target_of(CRAFT)
    readers = {**batch_module.BATCH_READERS, CRAFT: raises}
    monkeypatch.setattr(batch_module, "BATCH_READERS", readers)
    found = kinds(target, Batch(records=good().records[:2]))
    assert any(kind.startswith("batch raises KeyError in ") for kind in found)


# --- workers ---


def dying_reference(kind: str, wire_format: WireFormat, record: Record, **options: Any) -> Any:
    """Does its worst with every message that has a certain byte in it."""
    if b"\x7f" in (record.value or b""):
        if kind == "exits":
            os._exit(3)
        if kind == "hangs":
            while True:
                time.sleep(0.1)
        bytearray(2**34)
    return decode(wire_format, record, **options)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("exits", "the worker ended with 3"),
        ("hangs", "the worker stood still for 1 s"),
        ("hoards", "reference raises MemoryError in test_fuzz.py:"),
    ],
)
@pytest.mark.thorough
def test_what_no_except_catches_is_caught(
    kind: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "MOST_DEATHS", 1)
    report = run(
        # A worker gets the seeds: to simulate them once more would take longer than all else.
        partial(DecoderTarget, CRAFT, seeds_of(CRAFT), reference=partial(dying_reference, kind)),
        seed=SEED,
        bounds=Bounds(inputs=200, still_seconds=1.0 if kind == "hangs" else 60.0),
        folder=tmp_path,
        progress=lambda _: None,
    )
    # a busy machine may be slow beside it, or swap where memory is taken: that is counted too
    (found,) = (found for found in report.failures if not found.endswith("is slow"))
    assert found.startswith(text), report.failures
    name, batch = read_failure(report.files[0])
    assert name == "craft"
    assert b"\x7f" in (batch.records[0].value or b"")


# --- the program ---


@pytest.mark.thorough
def test_a_failure_is_written_and_looked_at_again(tmp_path: Path) -> None:
    records = [Record(key=None, value=b"\x00\xff"), Record(key=b"", value=None)]
    batch = Batch(records=records, compression=Compression.LZ4)
    failure = Failure(kind="k", text="two\nlines \ud800", number=1)
    target: dict[str, Any] = {"name": "open-protocol", "seed": 5, "number": 6}
    path = write_failure(tmp_path / "new", failure, batch, **target)
    assert path.name == "open-protocol-5-6-1.txt"
    name, found = read_failure(path)
    assert (name, found.records, found.compression) == (
        "open-protocol",
        [records[1]],
        Compression.LZ4,
    )
    path = write_failure(tmp_path, replace(failure, number=-1), batch, **target)
    assert read_failure(path)[1].records == records
    done = CliRunner().invoke(program.main, ["--replay", str(path)])
    assert done.exit_code == 0, done.output
    assert "2 inputs, 0 accepted, refused: " in done.output
    assert "0 failures" in done.output
