"""How a cost grows: the power of its growth, from what it was at some sizes.

In: pairs of a size and a cost. Out: the line through them with logarithmic axes (`Fit`), whose
slope is the power: 1 for a cost that doubles with the size, 0 for one that does not follow it.

A fixed cost hides growth at small sizes. Where a cost may grow, the line goes through large sizes
only: those from a twentieth of the largest on (`REACH`), or the two largest if these are further
apart. Where a size should not matter, it goes through all of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression

REACH = 20
"""How many times the smallest size that counts is in the largest, at most, where a cost grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The line through costs with logarithmic axes.

    Attributes:
        power: its slope.
        factor: the cost of size 1 on it.
        least: the smallest size that it was fitted to.
        most: the largest.
    """

    power: float
    factor: float
    least: float
    most: float

    def at(self, size: float) -> float:
        """Return the cost of a size on the line."""
        return self.factor * size**self.power


def fitted(points: Sequence[tuple[float, float]], *, reach: float) -> Fit | None:
    """Return the line through points, None if there are not two sizes with a cost.

    Args:
        points: sizes and costs.
        reach: how many times the smallest size that counts is in the largest, at most.
    """
    known = sorted((size, cost) for size, cost in points if size > 0 and cost > 0)
    sizes = sorted({size for size, _ in known})
    if len(sizes) < 2:
        return None
    first = min(sizes[-2], sizes[-1] / reach)
    large = [(math.log(size), math.log(cost)) for size, cost in known if size >= first]
    line = linear_regression([size for size, _ in large], [cost for _, cost in large])
    return Fit(
        power=line.slope,
        factor=math.exp(line.intercept),
        least=math.exp(large[0][0]),
        most=sizes[-1],
    )
