"""The TSO clock of the stand-in upstream: every TSO once, never going back.

In: nothing, or the wall clock. Out: TSOs. With no wall clock the physical time starts at a given
millisecond and moves only by `step`, so that a run can be repeated exactly.
"""

import time
from collections.abc import Callable
from typing import Final

from ticdc_assets.model import tso

FIXED_START_MS: Final = 1_735_732_800_000
"""2025-01-01T12:00:00Z, where deterministic clocks start."""

_STEP_MS: Final = 20


def wall_clock_ms() -> int:
    """Return the time now in epoch milliseconds."""
    return time.time_ns() // 1_000_000


class TsoClock:
    """Gives TSOs, strictly increasing; without a wall clock `now_ms` it moves only by `step`."""

    def __init__(self, *, now_ms: Callable[[], int] | None = None) -> None:
        self._now_ms = now_ms
        self._physical_ms = FIXED_START_MS if now_ms is None else now_ms()
        self._last = tso.from_physical_ms(self._physical_ms) - 1

    @property
    def last(self) -> int:
        """The highest TSO given so far."""
        return self._last

    @property
    def physical_ms(self) -> int:
        """The physical time now."""
        if self._now_ms is not None:
            self._physical_ms = max(self._physical_ms, self._now_ms())
        return self._physical_ms

    def step(self) -> None:
        """Move the physical time on; a clock on the wall clock moves by itself."""
        if self._now_ms is None:
            self._physical_ms += _STEP_MS

    def next(self) -> int:
        """Return the next TSO."""
        self._last = max(self._last + 1, tso.from_physical_ms(self.physical_ms))
        return self._last
