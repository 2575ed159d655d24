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
from fuzz.binary_damage import damaged_structure
from fuzz.ddl_texts import DdlTarget
from fuzz.decoders import DecoderTarget, wrong_error, wrong_events
from fuzz.findings import Batch, Failure, Findings, batch_of, read_failure, write_failure
from fuzz.growing import grown
from fuzz.running import Bounds, run, run_batches
from fuzz.seeds import DdlSeeds, Seeds, load_ddl_seeds, load_seeds
from fuzz.targets import make_target
from ticdc_assets.base.errors import WireError
from ticdc_assets.model.events import Event, Op, RowChange, Watermark
from ticdc_assets.registry.ddl import parse_ddl
from ticdc_assets.registry.ddl_statement import DdlStatement
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
    for batch, found in run_batches(target, seed=SEED, batches=batches):
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


# --- inputs ---


@pytest.mark.parametrize("name", ["craft", "ddl"])
@pytest.mark.thorough
def test_a_seed_gives_the_same_inputs_again(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TICDC_GOLDEN", str(tmp_path / "none"))
    one, other = make_target(name), make_target(name)
    assert one.source == "the simulator"
    assert batch_of(one, 1, 3) == batch_of(other, 1, 3)
    assert batch_of(one, 1, 3) != batch_of(one, 2, 3)
    assert batch_of(one, 1, 3) != batch_of(one, 1, 4)
    (large,) = batch_of(one, 1, 25).records
    assert len(large.value or b"") + len(large.key or b"") > 1000


FRAMING_REASONS = {"length_beyond_end", "truncated", "sizes_differ", "invalid_length"}


@pytest.mark.parametrize("wire_format", WireFormat)
def test_damaged_structure_gets_past_the_lengths(wire_format: WireFormat) -> None:
    generator = Random(1)
    seeds = seeds_of(wire_format).records
    reasons: list[str] = []
    for _ in range(300):
        record = damaged_structure(generator, wire_format, generator.choice(seeds))
        try:
            decode(wire_format, record)
        except WireError as error:
            reasons.append(error.reason)
    assert len(reasons) > 60
    assert sum(reason in FRAMING_REASONS for reason in reasons) < len(reasons) // 4


# --- it can fail ---


def good() -> Batch:
    """Messages that nobody has damaged."""
    return Batch(records=seeds_of(CRAFT).records[:40])


def broken_reference(broken: Callable[[Record], Any]) -> DecoderTarget:
    """A decoder that does something else with one message."""
    wrong = good().records[7]

    def reference(wire_format: WireFormat, record: Record, **options: Any) -> Any:
        return broken(record) if record == wrong else decode(wire_format, record, **options)

    return target_of(CRAFT, reference=reference)


def raises(error: Exception) -> Callable[..., Any]:
    def broken(*_: Any, **__: Any) -> Any:
        raise error

    return broken


@pytest.mark.parametrize(
    "error",
    [KeyError("x"), RecursionError(), MemoryError(), UnicodeDecodeError("u", b"", 0, 1, "")],
)
def test_an_exception_of_the_reference_is_caught(error: Exception) -> None:
    ((kind, number),) = kinds(broken_reference(raises(error)), good()).items()
    assert kind.startswith(f"reference raises {type(error).__name__} in ")
    assert number == 7


@pytest.mark.parametrize(
    "parts",
    [
        ("Not a slug", "byte 1", "x", "y"),
        ("reason", "somewhere", "x", "y"),
        ("reason", "byte 1 and more", "x", "y"),
        ("reason", "$" + "a" * 1000, "x", "y"),
        ("reason", "byte 1", "", "y"),
        ("reason", "byte 1", "x", ""),
        ("reason", "byte 1", "x", "y" * 201),
        ("reason", "$", "x", "\ud800"),
        ("reason", "$", "x", 1),
    ],
)
def test_an_error_out_of_bounds_is_caught(parts: tuple[Any, ...]) -> None:
    assert wrong_error(("reason", "key byte 1", "x", "y")) is None
    assert wrong_error(parts) is not None
    found = kinds(broken_reference(raises(WireError(*parts))), good())
    assert any(kind.startswith("reference gives an error") for kind in found)


ROW = RowChange(
    op=Op.INSERT,
    commit_ts=1,
    build_ts_ms=None,
    database="d",
    table="t",
    table_id=1,
    schema_version=1,
    before=None,
    after={"a": "1"},
)


@pytest.mark.parametrize(
    "events",
    [
        None,
        [],
        (ROW,),
        ["x"],
        [replace(ROW, after=None)],
        [replace(ROW, before={})],
        [replace(ROW, op=Op.DELETE, after=None)],
        [replace(ROW, commit_ts=-1)],
        [replace(ROW, schema_version=None)],
        [Watermark(watermark_ts=2**63, build_ts_ms=None)],
    ],
    ids=repr,
)
def test_what_is_no_event_is_caught(events: Any) -> None:
    assert wrong_events([ROW, replace(ROW, op=Op.UPDATE, before={})]) is None
    assert wrong_events(events) is not None


def broken_batch(change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> DecoderTarget:
    def columnar(wire_format: WireFormat, batch: pa.RecordBatch, **options: Any) -> pa.RecordBatch:
        return change(decode_batch(wire_format, batch, **options))

    return target_of(CRAFT, columnar=columnar)


def with_values(batch: pa.RecordBatch, name: str, change: Callable[[Any], Any]) -> pa.RecordBatch:
    rows = [row | {name: change(row[name])} for row in batch.to_pylist()]
    return pa.RecordBatch.from_pylist(rows, schema=batch.schema)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("table", lambda value: value and value + "x"),
        ("commit_ts", lambda value: value and value + 1),
        ("after", lambda value: value and value.replace('"', '"x', 1)),
        ("shape", lambda value: value and value.replace("int", "bigint", 1)),
        ("sql", lambda value: value and value + " "),
        ("op", lambda value: value and "insert"),
        ("kind", lambda value: "watermark"),
        ("index", lambda value: value + 1),
        ("topic", lambda _: "other"),
        ("offset", lambda value: value - 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_batch_that_says_something_else_is_caught(name: str, change: Any) -> None:
    assert kinds(broken_batch(lambda rows: with_values(rows, name, change)), good())


def test_a_batch_with_another_error_is_caught() -> None:
    bad = Batch(records=[Record(key=None, value=b"\x09")])
    for name in ("error_reason", "error_position", "error_expected", "error_got"):
        target = broken_batch(lambda rows, name=name: with_values(rows, name, lambda _: "x"))
        assert kinds(target_of(CRAFT), bad) == {}
        assert len(kinds(target, bad)) == 1


def test_a_batch_that_lacks_rows_is_caught() -> None:
    assert kinds(broken_batch(lambda rows: rows.slice(1)), good())
    assert kinds(broken_batch(lambda rows: rows.drop_columns(["sql"])), good())


def test_batches_of_few_records_are_read_by_the_batch_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = target_of(CRAFT)
    readers = {**batch_module.BATCH_READERS, CRAFT: raises(KeyError("x"))}
    monkeypatch.setattr(batch_module, "BATCH_READERS", readers)
    found = kinds(target, Batch(records=good().records[:2]))
    assert any(kind.startswith("batch raises KeyError in ") for kind in found)


def test_the_input_at_which_a_batch_raises_is_found() -> None:
    wrong = good().records[9].value

    def columnar(wire_format: WireFormat, batch: pa.RecordBatch, **options: Any) -> pa.RecordBatch:
        if wrong in batch.column("value").to_pylist():
            raise KeyError(wrong)
        return decode_batch(wire_format, batch, **options)

    ((kind, number),) = kinds(target_of(CRAFT, columnar=columnar), good()).items()
    assert kind.startswith("batch raises KeyError in ")
    assert number == 9


def test_slowness_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.decoders.seconds_allowed", lambda _: 0.0)
    assert {"reference is slow", "batch is slow"} <= set(kinds(target_of(CRAFT), good()))
    monkeypatch.setattr("fuzz.ddl_texts.seconds_allowed", lambda _: 0.0)
    ddl = DdlTarget(ddl_seeds())
    assert set(kinds(ddl, batch_of(ddl, 1, 0))) == {"is slow"}


def test_memory_that_is_kept_is_caught() -> None:
    kept: list[pa.Buffer] = []

    def keep(record: Record) -> list[Event]:
        kept.append(pa.allocate_buffer(1000))
        return decode(CRAFT, record)

    assert kinds(broken_reference(keep), good()) == {"memory is kept": -1}


def test_a_parser_of_ddl_that_is_not_the_same_twice_is_caught() -> None:
    def parse(sql: str) -> DdlStatement:
        return replace(parse_ddl(sql), query=str(next(turns) % 2))

    turns = iter(range(10_000))
    target = DdlTarget(ddl_seeds(), parse=parse)
    assert set(kinds(target, batch_of(target, 1, 0))) == {"says something else the second time"}


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


def dying_target(kind: str) -> DecoderTarget:
    return target_of(CRAFT, reference=partial(dying_reference, kind))


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
        partial(dying_target, kind),
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
