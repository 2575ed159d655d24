"""Values that fall into a partition."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ticdc_assets.demo.simulator.partitions import Method, Partitioning

RANGES: Final = frozenset(
    {Method.RANGE, Method.RANGE_YEAR, Method.RANGE_COLUMNS, Method.RANGE_COLUMNS_DATE}
)
_SPAN: Final = 12
"""How far values of an open end reach."""
_FIRST_YEAR: Final = 2019


def _some_number(rng: random.Random, of: Partitioning, number: int) -> str | None:
    low, high = _bounds(of, number)
    return str(rng.randrange(low, high))


def _some_year(rng: random.Random, of: Partitioning, number: int) -> str | None:
    low, high = _bounds(of, number)
    return _some_day(rng, rng.randrange(low, high))


def _bounds(of: Partitioning, number: int) -> tuple[int, int]:
    """Return a half-open range of numbers in a partition of ranges."""
    below = [part.below for part in of.partitions[: number + 1]]
    high, low = below[-1], below[-2] if number else None
    if isinstance(high, int):
        return (low if isinstance(low, int) else high - _SPAN), high
    years = of.method in (Method.RANGE_YEAR, Method.RANGE_COLUMNS_DATE)
    start = low if isinstance(low, int) else _FIRST_YEAR * years
    return start, start + _SPAN


def _some_date(rng: random.Random, of: Partitioning, number: int) -> str | None:
    # Bounds are first days of years.
    years = tuple(
        replace(part, below=None if part.below is None else int(str(part.below)[:4]))
        for part in of.partitions
    )
    return _some_year(rng, replace(of, partitions=years), number)


def _some_day(rng: random.Random, year: int) -> str:
    day = rng.choice(("01-01", "12-31", f"{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"))
    return f"{year:04d}-{day}"


def _some_listed(rng: random.Random, of: Partitioning, number: int) -> str | None:
    return rng.choice(of.partitions[number].values)


def _some_hashed(rng: random.Random, of: Partitioning, number: int) -> str | None:
    count = len(of.partitions)
    return str(rng.choice((1, -1)) * (number + count * rng.randrange(_SPAN)))


_SOME_VALUES: Final[Mapping[Method, Callable[[random.Random, Partitioning, int], str | None]]] = {
    Method.RANGE: _some_number,
    Method.RANGE_YEAR: _some_year,
    Method.RANGE_COLUMNS: _some_number,
    Method.RANGE_COLUMNS_DATE: _some_date,
    Method.LIST: _some_listed,
    Method.LIST_COLUMNS: _some_listed,
    Method.HASH: _some_hashed,
}


def some_value(rng: random.Random, of: Partitioning, number: int) -> str | None:
    """Return some value of the column that falls into the partition of that number."""
    return _SOME_VALUES[of.method](rng, of, number)
