"""Values that fall into a partition."""

import random
from typing import Final

from ticdc_assets_tests.demo.simulator.partitions import LISTS, Method, Partitioning

RANGES: Final = frozenset(
    {Method.RANGE, Method.RANGE_YEAR, Method.RANGE_COLUMNS, Method.RANGE_COLUMNS_DATE}
)
_OF_DAYS: Final = frozenset({Method.RANGE_YEAR, Method.RANGE_COLUMNS_DATE})
_SPAN: Final = 12
"""How far values of an open end reach."""
_FIRST_YEAR: Final = 2019


def some_value(rng: random.Random, of: Partitioning, number: int) -> str | None:
    """Return some value of the column that falls into the partition of that number."""
    if of.method in LISTS:
        return rng.choice(of.partitions[number].values)
    if of.method is Method.HASH:
        return str(rng.choice((1, -1)) * (number + len(of.partitions) * rng.randrange(_SPAN)))
    days = of.method in _OF_DAYS
    # Bounds of days are years, or first days of years.
    texts = [str(part.below) for part in of.partitions if part.below is not None]
    bounds = [int(text[:4] if days else text) for text in texts] or [_FIRST_YEAR if days else 0]
    while True:
        found = rng.randrange(min(bounds) - _SPAN, max(bounds) + _SPAN)
        text = _some_day(rng, found) if days else str(found)
        if of.place(text) == number:
            return text


def _some_day(rng: random.Random, year: int) -> str:
    day = rng.choice(("01-01", "12-31", f"{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"))
    return f"{year:04d}-{day}"
