"""Where steps run, by the setting, and where they ran, for messages.

In: the setting `compute`, and what the executor reports about each step. Out: whether everything
runs on Spark, and one clause like "2,834 records in this process". Reports have no other effect, so
reporting a step twice only counts it twice.
"""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ticdc_assets.base.names import counted
from ticdc_assets.config import COMPUTE_VARIABLE, Compute

_MILLION = 1_000_000


@contextmanager
def computing(compute: Compute) -> Iterator[None]:
    """Make the steps of this process run there within this block, whatever the setting."""
    before = os.environ.get(COMPUTE_VARIABLE)
    os.environ[COMPUTE_VARIABLE] = compute
    try:
        yield
    finally:
        if before is None:
            del os.environ[COMPUTE_VARIABLE]
        else:
            os.environ[COMPUTE_VARIABLE] = before


class Ran:
    """Counts the records of steps, by where these ran; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}

    def add(self, place: str, work: str, records: int) -> None:
        """Count the records of a step that did some work; other steps may do other work on them."""
        with self._lock:
            self._counts.setdefault(place, Counter())[work] += records

    @property
    def sentence(self) -> str:
        """Return how many records were processed where; "" if no step ran.

        Steps in sequence work on the same records, so the step with the most records counts.
        """
        with self._lock:
            most = {place: max(works.values()) for place, works in self._counts.items()}
        return "; ".join(
            f"{records / _MILLION:.1f} million records {place}"
            if records >= _MILLION
            else f"{counted(records, 'record')} {place}"
            for place, records in sorted(most.items(), reverse=True)
        )


HERE = "in this process"

_watching: list[Ran] = []


@contextmanager
def watched() -> Iterator[Ran]:
    """Yield a counter of the steps that this process runs within this block."""
    ran = Ran()
    _watching.append(ran)
    try:
        yield ran
    finally:
        _watching.remove(ran)


def report(place: str, work: str, records: int) -> None:
    """Report a step to all counters; see `Ran.add`."""
    for ran in _watching:
        ran.add(place, work, records)
