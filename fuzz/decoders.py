"""Fuzzing of a wire format's decoders, which have to agree on any bytes.

In: batches of damaged messages, some of them compressed, some of them large. Out: findings. It is a
failure if the reference decoder gives anything but events or a `WireError` of the usual form, if
the batch decoder says anything else than the reference, or if either takes too long.

Memory is watched from outside (`limits`).
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from time import thread_time
from typing import Any, Final, TypeAlias

import pyarrow as pa

import ticdc_assets.base.compiled  # noqa: F401  so batches are read with loops (`loops_pay`)
from fuzz.binary_damage import damaged_structure, json_texts
from fuzz.damage import BYTES, damaged
from fuzz.findings import Batch, Failure, Findings, Note, findings_of
from fuzz.growing import grown
from fuzz.limits import least_seconds, seconds_allowed
from fuzz.seeds import Seeds
from ticdc_assets.base.errors import WireError
from ticdc_assets.model.events import Bootstrap, DdlEvent, Event, Op, RowChange, Watermark
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.batch import decode_batch
from ticdc_assets.wire.compression import Compression, supports
from ticdc_assets.wire.record import Record
from ticdc_assets_tests.demo.simulator.compressing import compressed
from ticdc_assets_tests.wire.comparing import as_stored, batch_of, outcomes_of, wrong_error

Outcome: TypeAlias = list[Event] | tuple[str, str, str, str] | None
"""What a decoder says; None where it failed."""
Reference: TypeAlias = Callable[..., list[Event]]
"""Is called like `wire.decode`."""
Columnar: TypeAlias = Callable[..., pa.RecordBatch]
"""Is called like `wire.batch.decode_batch`."""

BATCH_RECORDS: Final = 200
LARGE_EVERY: Final = 50
"""One batch of so many is a large input."""
LARGE_AT: Final = 25
LARGEST: Final = 20
"""Large inputs have up to 2 to the power of this bytes."""

_TEXTS: Final = 500


class DecoderTarget:
    """The decoders of one wire format.

    Args:
        wire_format: the format.
        seeds: messages to damage.
        reference: the reference decoder.
        columnar: the batch decoder.

    Attributes:
        name: name of the format.
        source: where the seeds are from.
    """

    def __init__(
        self,
        wire_format: WireFormat,
        seeds: Seeds,
        *,
        reference: Reference = decode,
        columnar: Columnar = decode_batch,
    ) -> None:
        self.name = wire_format.value
        self.source = seeds.source
        self._format = wire_format
        self._seeds = seeds
        self._reference = reference
        self._columnar = columnar
        self._values = [record.value for record in seeds.records if record.value]
        self._keys = [record.key for record in seeds.records if record.key] or [b"key"]
        texts = json_texts(wire_format, seeds.records)
        self._texts = texts[:: max(1, len(texts) // _TEXTS)]
        self._compressions = [
            compression for compression in Compression if supports(wire_format, compression)
        ]
        # The first batch loads modules and compiles loops: no input causes that time and memory.
        decode_batch(wire_format, batch_of(seeds.records))

    # --- inputs ---

    def batch(self, generator: Random, number: int) -> Batch:
        """Return batch `number`: large, compressed or plain."""
        if number % LARGE_EVERY == LARGE_AT:
            size = int(2 ** generator.uniform(14, LARGEST))
            seed = generator.choice(self._seeds.records)
            return Batch(records=[grown(generator, self._format, seed, size)], large=True)
        # Two of five batches are compressed where the format can be.
        compression = Compression.NONE
        if len(self._compressions) > 1 and number % 5 >= 3:
            compression = self._compressions[number % 5 - 2]
        records = [self._input(generator, compression) for _ in range(BATCH_RECORDS)]
        return Batch(records=records, compression=compression)

    def _input(self, generator: Random, compression: Compression) -> Record:
        if compression is Compression.NONE:
            return self._damaged(generator, generator.choice(self._seeds.records))
        others = self._seeds.compressed.get(compression)
        if others and generator.random() < 0.3:
            return self._damaged_bytes(generator, generator.choice(others))
        record = generator.choice(self._seeds.records)
        if generator.random() < 0.5:
            return self._compressed(self._damaged(generator, record), compression)
        return self._damaged_bytes(generator, self._compressed(record, compression))

    def _compressed(self, record: Record, compression: Compression) -> Record:
        try:
            return compressed(self._format, record, compression)
        except WireError:
            return record  # its frames are damaged; then it goes as it is

    def _damaged(self, generator: Random, record: Record) -> Record:
        what = generator.random()
        if what < 0.02:
            return record
        if what < 0.6:
            record = damaged_structure(generator, self._format, record, self._texts)
            if what < 0.53:
                return record
        return self._damaged_bytes(generator, record)

    def _damaged_bytes(self, generator: Random, record: Record) -> Record:
        what = generator.random()
        if what < 0.02:
            odd = generator.choice((None, b"", *BYTES))
            return Record(key=record.key, value=odd)
        if what < 0.04:
            return Record(key=generator.choice((None, b"", *BYTES)), value=record.value)
        if what < 0.15:
            key = damaged(generator, record.key or b"", self._keys)
            return Record(key=key, value=record.value)
        return Record(key=record.key, value=damaged(generator, record.value or b"", self._values))

    # --- checks ---

    def check(self, batch: Batch, note: Note) -> Findings:
        """Decode a batch in both ways and compare."""
        before = pa.total_allocated_bytes()
        findings = findings_of(batch, lambda findings: self._check(batch, note, findings))
        kept = pa.total_allocated_bytes() - before
        if kept > 0:
            # An error that keeps the frames it came through keeps their buffers, too.
            text = f"{kept} bytes of Arrow's memory are kept after {batch.size} bytes of input"
            findings.failures.append(Failure(kind="memory is kept", text=text, number=-1))
        return findings

    def _check(self, batch: Batch, note: Note, findings: Findings) -> None:
        outcomes = [
            self._decoded(record, batch.compression, number, note, findings)
            for number, record in enumerate(batch.records)
        ]
        note(-1)
        self._compare(batch, outcomes, findings)

    def _decoded(
        self,
        record: Record,
        compression: Compression,
        number: int,
        note: Note,
        findings: Findings,
    ) -> Outcome:
        """Return what the reference says of one input."""
        note(number)
        size = len(record.key or b"") + len(record.value or b"")
        outcome: Outcome = None
        fault: tuple[str, str] | None = None
        began = thread_time()
        try:
            outcome = self._reference(self._format, record, compression=compression)
        except WireError as error:
            outcome = (error.reason, error.position, error.expected, error.got)
        except Exception as error:  # noqa: BLE001 - this is what the program looks for
            fault = ("reference raises " + where(error), traceback.format_exc())
        seconds = thread_time() - began
        findings.inputs += 1
        findings.took(seconds, size)
        if isinstance(outcome, tuple):
            findings.reasons[str(outcome[0])] += 1
            wrong = wrong_error(outcome)
        elif outcome is not None:
            findings.accepted += 1
            wrong = wrong_events(outcome)
        else:
            wrong = None
        if wrong is not None:
            fault = (f"reference gives {wrong}", f"{wrong}: {outcome!r:.2000}")
        allowed = seconds_allowed(size)
        seconds = least_seconds(
            seconds,
            allowed,
            lambda: self._reference(self._format, record, compression=compression),
        )
        if seconds > allowed:
            fault = ("reference is slow", f"{seconds:.2f} s for {size} bytes")
        if fault is not None:
            findings.failures.append(Failure(kind=fault[0], text=fault[1], number=number))
        return outcome

    def _compare(self, batch: Batch, outcomes: Sequence[Outcome], findings: Findings) -> None:
        """Hold what the batch decoder says against `outcomes`."""

        def decoded() -> pa.RecordBatch:
            return self._columnar(
                self._format, batch_of(batch.records), compression=batch.compression
            )

        began = thread_time()
        try:
            changes = decoded()
            seconds = thread_time() - began
            found = outcomes_of(changes, len(batch.records))
        except Exception as error:  # noqa: BLE001 - this is what the program looks for
            kind, text = "batch raises " + where(error), traceback.format_exc()
            if len(batch.records) == 1:
                findings.failures.append(Failure(kind=kind, text=text, number=0))
                return
            before = len(findings.failures)
            for number, record in enumerate(batch.records):
                alone = Findings()
                single = Batch(records=[record], compression=batch.compression)
                self._compare(single, [outcomes[number]], alone)
                findings.failures += (replace(each, number=number) for each in alone.failures)
            if len(findings.failures) == before:
                findings.failures.append(
                    Failure(kind=f"{kind}, only together", text=text, number=-1)
                )
            return
        allowed = seconds_allowed(batch.size)
        seconds = least_seconds(seconds, allowed, decoded)
        if seconds > allowed:
            text = f"{seconds:.2f} s for {batch.size} bytes in {len(batch.records)} records"
            findings.failures.append(Failure(kind="batch is slow", text=text, number=-1))
        if len(batch.records) == 1:
            findings.took(seconds, batch.size)
        for number, (outcome, fast) in enumerate(zip(outcomes, found, strict=True)):
            wanted = as_stored(outcome) if isinstance(outcome, list) else outcome
            if wanted is not None and wanted != fast:
                text = f"reference: {wanted!r:.3000}\nbatch:     {fast!r:.3000}"
                kind = f"different: {_kind(wanted)}, in the batch {_kind(fast)}"
                findings.failures.append(Failure(kind=kind, text=text, number=number))


def wrong_events(events: Any) -> str | None:
    """Return what is wrong with a list of events, None if nothing is."""
    if type(events) is not list or not events:
        return "no list of events"
    for event in events:
        check = _EVENT_CHECKS.get(type(event))
        if check is None:
            return "something that is no event"
        wrong = check(event)
        if wrong is not None:
            return wrong
    return None


def _wrong_row(row: RowChange) -> str | None:
    if (row.after is None) != (row.op is Op.DELETE):
        return "a row whose image after does not fit its change"
    if row.op is Op.INSERT and row.before is not None:
        return "an insert with an image before"
    if row.op is Op.DELETE and row.before is None:
        return "a delete without an image"
    if not 0 <= row.commit_ts <= MAX_TSO:
        return "a commit ts that is none"
    if row.shape is None and row.schema_version is None:
        return "a row with neither shape nor schema version"
    if row.shape is not None:
        named = {column.name for column in row.shape.columns}
        if not {*(row.before or ()), *(row.after or ())} <= named:
            return "a row whose shape lacks columns"
    return None


def _wrong_ddl(ddl: DdlEvent) -> str | None:
    return None if 0 <= ddl.commit_ts <= MAX_TSO else "a commit ts that is none"


def _wrong_watermark(watermark: Watermark) -> str | None:
    return None if 0 <= watermark.watermark_ts <= MAX_TSO else "a watermark that is none"


_EVENT_CHECKS: Mapping[type[Any], Callable[[Any], str | None]] = {
    RowChange: _wrong_row,
    DdlEvent: _wrong_ddl,
    Bootstrap: lambda _: None,
    Watermark: _wrong_watermark,
}


def _kind(outcome: Outcome) -> str:
    if not outcome:
        return "nothing"
    return outcome[0] if isinstance(outcome, tuple) else type(outcome[0]).__name__


def where(error: Exception) -> str:
    """Return the type of an error, and the line of the package where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "ticdc_assets" in frame.filename] or frames
    last = own[-1]
    return f"{type(error).__name__} in {last.filename.rpartition('/')[2]}:{last.lineno}"
