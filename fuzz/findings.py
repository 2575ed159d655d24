"""What is looked at and what was found: batches of inputs, findings, and files of failures.

A failure's file holds the inputs in hex, with what made them: name, seed and number of the batch.
It is read back by `read_failure`, so that it can be looked at again after a change.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol, TypeAlias

from fuzz.limits import memory_growth
from ticdc_assets.wire.compression import Compression
from ticdc_assets.wire.record import Record

Note: TypeAlias = Callable[[int], None]
"""Takes the number of the input that is under way; -1 stands for all of the batch together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Inputs that are looked at together.

    Attributes:
        records: the inputs; of a text only the value is there.
        compression: what a decoder is told of them.
        large: whether this is one large input, whose memory is measured.
    """

    records: Sequence[Record]
    compression: Compression = Compression.NONE
    large: bool = False

    @property
    def size(self) -> int:
        """Bytes of all inputs."""
        return sum(len(record.key or b"") + len(record.value or b"") for record in self.records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something that must not be.

    Attributes:
        kind: what it has in common with others of its kind.
        text: what was seen.
        number: number of the input in its batch, -1 for the batch as a whole.
    """

    kind: str
    text: str
    number: int


@dataclass(slots=True, kw_only=True)
class Findings:
    """What was found in a batch, or in many.

    Attributes:
        inputs: how many were looked at.
        accepted: how many gave events.
        reasons: how many were refused, by reason.
        slowest: CPU seconds of the slowest input.
        slowest_size: its size in bytes.
        growth: most memory that a large input took, as a multiple of its size.
        peak_megabytes: most memory the program took.
        failures: what must not be.
    """

    inputs: int = 0
    accepted: int = 0
    reasons: Counter[str] = field(default_factory=Counter[str])
    slowest: float = 0.0
    slowest_size: int = 0
    growth: float = 0.0
    peak_megabytes: int = 0
    failures: list[Failure] = field(default_factory=list[Failure])

    def took(self, seconds: float, size: int) -> None:
        """Note how long an input took."""
        if seconds > self.slowest:
            self.slowest, self.slowest_size = seconds, size

    def add(self, other: "Findings") -> None:
        """Add what was found elsewhere, but its failures."""
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.reasons += other.reasons
        self.took(other.slowest, other.slowest_size)
        self.growth = max(self.growth, other.growth)
        self.peak_megabytes = max(self.peak_megabytes, other.peak_megabytes)


class Target(Protocol):
    """What is fuzzed."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def source(self) -> str:
        """Where its seeds are from."""
        ...

    def batch(self, generator: Random, number: int) -> Batch:
        """Return batch `number`, which depends on the generator and the number alone."""
        ...

    def check(self, batch: Batch, note: Note) -> Findings:
        """Look at a batch."""
        ...


def findings_of(batch: Batch, look: Callable[[Findings], None]) -> Findings:
    """Return what is found when a batch is looked at; of a large one with the memory it took."""
    findings = Findings()
    if batch.large:
        findings.growth = memory_growth(lambda: look(findings)) / max(1, batch.size)
    else:
        look(findings)
    return findings


def batch_of(target: Target, seed: int, number: int) -> Batch:
    """Return batch `number` of `target` for `seed`: always the same."""
    return target.batch(Random(f"{target.name} {seed} {number}"), number)


def write_failure(
    folder: Path, failure: Failure, batch: Batch, *, name: str, seed: int, number: int
) -> Path:
    """Write the input (or all inputs) of a failure and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    which = "all" if failure.number < 0 else str(failure.number)
    path = folder / f"{name}-{seed}-{number}-{which}.txt"
    records = batch.records if failure.number < 0 else [batch.records[failure.number]]
    lines = [
        f"format {name}",
        f"compression {batch.compression.value}",
        f"seed {seed}",
        f"batch {number}",
        f"input {which}",
        *(f"# {line}" for line in failure.text.splitlines()),
    ]
    for record in records:
        lines += [f"key {_hex(record.key)}", f"value {_hex(record.value)}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="backslashreplace")
    return path


def read_failure(path: Path) -> tuple[str, Batch]:
    """Return the format and the inputs of a file that `write_failure` wrote."""
    fields: dict[str, str] = {}
    records: list[Record] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(" ")
        if name == "value":
            records.append(Record(key=_bytes(fields["key"]), value=_bytes(value)))
        fields[name] = value
    return fields["format"], Batch(records=records, compression=Compression(fields["compression"]))


def _hex(raw: bytes | None) -> str:
    return "null" if raw is None else raw.hex()


def _bytes(text: str) -> bytes | None:
    return None if text == "null" else bytes.fromhex(text)
