"""Ranges of elements walked in step: the first element of each, then the second, and so on.

In: how many elements each range has. Out: steps; each has the ranges with one more element, the
longest first, so that they are always the first ranges. The result for an element goes to its place
among all elements of all ranges, one range after the other.

A walk that is left with few ranges after many steps ends: no count of elements makes it long. A
range that is not walked to its end is not good, and left to the reference decoder.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ticdc_assets.wire.byte_columns import Flags, Ints

_MANY_STEPS: Final = 64
_FEW: Final = 16


class Walk:
    """A walk through ranges.

    Args:
        counts: how many elements each range has.

    Attributes:
        order: the ranges, the longest first.
        good: which of them, in this order, are walked to their end; a caller may clear it for
            others.
    """

    def __init__(self, counts: Ints) -> None:
        self.order = np.argsort(-counts, kind="stable")
        self.good: Flags = np.ones(len(counts), np.bool_)
        self._firsts = (np.cumsum(counts) - counts)[self.order]
        descending = counts[self.order]
        steps = int(descending[0]) if len(counts) else 0
        self._lengths = np.searchsorted(-descending, -np.arange(steps), side="left").tolist()

    def steps(self) -> Iterator[tuple[int, Ints]]:
        """Yield how many ranges have one more element, and where the result for each goes."""
        for step, length in enumerate(self._lengths):
            if step >= _MANY_STEPS and length < _FEW:
                self.good[:length] = False
                return
            yield length, self._firsts[:length] + step

    def restored(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return results for the ranges in `order` in the order of the ranges."""
        found = np.empty_like(values)
        found[self.order] = values
        return found
