"""Running: batches in a worker of its own, watched for what no `except` catches.

In: a target, a seed, and how long. Out: a `Report`, and a file for each failure that is not like
three before it. A worker that ends (a crash, no memory) or stands still is a failure of the input
that was under way: the worker writes down the number of each before it looks at it, and the input
is made again from the seed. The next worker goes on behind it.

Not handled: making a failing input smaller.
"""

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, TypeAlias

from fuzz.findings import Failure, Findings, Target, batch_of, write_failure
from fuzz.limits import limited_memory, peak_megabytes

Make: TypeAlias = Callable[[], Target]
"""Makes a target: in each worker once more."""

SAME_KIND: Final = 3
"""Failures of one kind that are written down; the others are counted."""
MOST_DEATHS: Final = 5
"""Workers that may end before it is given up."""

_REPORT_SECONDS: Final = 0.5
_START_SECONDS: Final = 120.0
_STILL_SECONDS: Final = 60.0
_NOWHERE: Final = -2


@dataclass(slots=True, kw_only=True)
class Report:
    """What a run of one target found.

    Attributes:
        name: name of the target.
        source: where its seeds are from.
        seconds: how long it took.
        findings: what was found, but the failures.
        failures: how many failures there were, by kind.
        files: the files that were written.
    """

    name: str
    source: str
    seconds: float = 0.0
    findings: Findings = field(default_factory=Findings)
    failures: Counter[str] = field(default_factory=Counter[str])
    files: list[Path] = field(default_factory=list[Path])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long a target is fuzzed.

    Attributes:
        inputs: stop after this many; None for no such bound.
        seconds: stop after this time; None for no such bound.
        still_seconds: a worker that has been at one input for so long is stopped.
    """

    inputs: int | None = None
    seconds: float | None = None
    still_seconds: float = _STILL_SECONDS

    def reached(self, inputs: int, seconds: float) -> bool:
        """Return whether it is enough."""
        return (self.inputs is not None and inputs >= self.inputs) or (
            self.seconds is not None and seconds >= self.seconds
        )


def random_seed() -> int:
    """Return a seed that was not there before."""
    return SystemRandom().randrange(10**9)


def run(
    make: Make,
    *,
    seed: int,
    bounds: Bounds,
    folder: Path,
    progress: Callable[[Report], None],
) -> Report:
    """Fuzz a target and return what was found.

    Args:
        make: makes the target; a function that another Python can import.
        seed: of all inputs.
        bounds: how long.
        folder: where failing inputs are written.
        progress: told about every half second.
    """
    target = make()
    report = Report(name=target.name, source=target.source)
    began = time.monotonic()
    watch = _Watch(make, target, seed=seed, folder=folder, report=report)
    deaths, first = 0, 0
    while deaths < MOST_DEATHS:
        report.seconds = time.monotonic() - began
        if bounds.reached(report.findings.inputs, report.seconds):
            break
        ended_at = watch.follow(first, bounds, began, progress)
        if ended_at is None:
            break
        deaths += 1
        first = ended_at + 1
    report.seconds = time.monotonic() - began
    return report


class _Watch:
    """Starts workers and watches them."""

    def __init__(
        self, make: Make, target: Target, *, seed: int, folder: Path, report: Report
    ) -> None:
        self._make = make
        self._target = target
        self._seed = seed
        self._folder = folder
        self._report = report
        self._context = multiprocessing.get_context("spawn")

    def follow(
        self, first: int, bounds: Bounds, began: float, progress: Callable[[Report], None]
    ) -> int | None:
        """Run a worker from batch `first`; return the batch it ended in, None if in none."""
        place = self._context.RawArray("q", (first, _NOWHERE))
        ours, theirs = self._context.Pipe(duplex=False)
        worker = self._context.Process(
            target=_work,
            args=(self._make, self._seed, first, place, theirs),
            name=f"fuzz {self._target.name}",
            daemon=True,
        )
        worker.start()
        theirs.close()
        try:
            return self._watched(worker, ours, place, bounds, began, progress)
        finally:
            if worker.is_alive():
                worker.kill()
            worker.join()
            ours.close()

    def _watched(
        self,
        worker: BaseProcess,
        pipe: Connection,
        place: Any,
        bounds: Bounds,
        began: float,
        progress: Callable[[Report], None],
    ) -> int | None:
        report = self._report
        seen, since = tuple(place), time.monotonic()
        while True:
            if pipe.poll(_REPORT_SECONDS):
                try:
                    self._take(pipe.recv())
                except EOFError:
                    worker.join()
                    return self._ended(tuple(place), f"the worker ended with {worker.exitcode}")
            report.seconds = time.monotonic() - began
            progress(report)
            if bounds.reached(report.findings.inputs, report.seconds):
                return None
            now = tuple(place)
            if now != seen:
                seen, since = now, time.monotonic()
            patience = _START_SECONDS if now[1] == _NOWHERE else bounds.still_seconds
            if time.monotonic() - since > patience:
                worker.kill()
                return self._ended(now, f"the worker stood still for {patience:.0f} s")

    def _take(self, message: tuple[Findings, list[tuple[int, Failure]]]) -> None:
        findings, failures = message
        self._report.findings.add(findings)
        for number, failure in failures:
            self._write(number, failure)

    def _ended(self, place: tuple[int, ...], text: str) -> int:
        number, index = place
        if index == _NOWHERE:
            raise RuntimeError(f"{text} before the first input")
        self._write(number, Failure(kind=text, text=text, number=index))
        return number

    def _write(self, number: int, failure: Failure) -> None:
        report = self._report
        report.failures[failure.kind] += 1
        if report.failures[failure.kind] <= SAME_KIND:
            report.files.append(
                write_failure(
                    self._folder,
                    failure,
                    batch_of(self._target, self._seed, number),
                    name=self._target.name,
                    seed=self._seed,
                    number=number,
                )
            )


def _work(make: Make, seed: int, first: int, place: Any, pipe: Connection) -> None:
    """Look at batch after batch, until the program that watches has enough."""
    target = make()
    number = first

    def note(index: int) -> None:
        place[1] = index

    findings, failures = Findings(), list[tuple[int, Failure]]()
    sent = time.monotonic()
    while True:
        place[0] = number
        batch = batch_of(target, seed, number)
        note(-1)
        with limited_memory(batch.size):
            found = target.check(batch, note)
        findings.add(found)
        failures += ((number, failure) for failure in found.failures)
        number += 1
        if time.monotonic() - sent > _REPORT_SECONDS:
            findings.peak_megabytes = max(findings.peak_megabytes, peak_megabytes())
            try:
                pipe.send((findings, failures))
            except OSError:
                return  # nobody watches any more
            findings, failures = Findings(), []
            sent = time.monotonic()
