"""How a partitioned table of the stand-in upstream divides its rows, and how that reads in SQL.

In: a method, a column and partitions with their bounds. Out: the partition of a row, some value of
a partition, the text of PARTITION BY. A row's place is worked out from values as
Python has them, with MySQL's rules written once more here: NULL goes to the lowest range, into the
list that names it, and to the first of HASH partitions; HASH is the absolute value's remainder.

Not handled: KEY and DEFAULT partitions, expressions but YEAR, several columns, subpartitions.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from ticdc_assets.demo.simulator.columns import charset_literal, quoted

Comparable: TypeAlias = int | str
"""What a bound and a value are compared as: numbers as numbers, dates and text as text."""


class Method(Enum):
    """How rows are divided, of each the ordinary kinds of values: as SQL, and as compared."""

    RANGE = "RANGE ({})", int
    RANGE_YEAR = "RANGE (YEAR({}))", lambda text: int(text[:4])
    RANGE_COLUMNS = "RANGE COLUMNS ({})", int
    RANGE_COLUMNS_DATE = "RANGE COLUMNS ({})", str
    LIST = "LIST ({})", int
    LIST_COLUMNS = "LIST COLUMNS ({})", str
    HASH = "HASH ({})", int

    def head(self, column: str) -> str:
        """Return how PARTITION BY begins for a column."""
        return f"PARTITION BY {self.value[0].format(quoted(column))}"

    def compared(self, text: str) -> Comparable:
        """Return what a value of the column is compared as."""
        return self.value[1](text)


LISTS: Final = frozenset({Method.LIST, Method.LIST_COLUMNS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition.

    Attributes:
        name: its name.
        below: RANGE: the bound that its values stay below, None for MAXVALUE.
        values: LIST: the values in it, as canonical text, None for NULL.
        physical_id: TiDB's id of it; 0 until the table is there.
    """

    name: str
    below: Comparable | None = None
    values: tuple[str | None, ...] = ()
    physical_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioning:
    """How a table is divided.

    Attributes:
        method: how.
        column: the column that decides; canonical text of the kind that the method compares.
        partitions: the partitions, in their order.
    """

    method: Method
    column: str
    partitions: tuple[Partition, ...]

    def place(self, value: str | None) -> int | None:
        """Return the number of the partition for a value of the column, None if there is none."""
        if self.method is Method.HASH:
            return 0 if value is None else abs(int(value)) % len(self.partitions)
        if self.method in LISTS:
            return next((n for n, part in enumerate(self.partitions) if value in part.values), None)
        if value is None:
            return 0
        compared = self.method.compared(value)
        return next(
            (n for n, part in enumerate(self.partitions) if _is_below(compared, part.below)), None
        )

    def physical_id(self, row: Mapping[str, str | None]) -> int:
        """Return the id of the partition that takes a row.

        Raises:
            ValueError: none does.
        """
        number = self.place(row[self.column])
        if number is None:
            raise ValueError(f"no partition takes {row[self.column]!r}")
        return self.partitions[number].physical_id

    def number(self, name: str) -> int:
        """Return the number of the partition called `name`, in any case.

        Raises:
            ValueError: there is none.
        """
        for number, part in enumerate(self.partitions):
            if part.name.lower() == name.lower():
                return number
        raise ValueError(f"no partition {name!r}")

    def with_new_ids(self, new_id: Callable[[], int], names: Iterable[str] = ()) -> "Partitioning":
        """Return it with new physical ids for the partitions `names`, or for all."""
        numbers = {self.number(name) for name in names} or set(range(len(self.partitions)))
        return replace(
            self,
            partitions=tuple(
                replace(part, physical_id=new_id()) if number in numbers else part
                for number, part in enumerate(self.partitions)
            ),
        )

    def sql(self) -> str:
        """Return the text of PARTITION BY."""
        head = self.method.head(self.column)
        if self.method is Method.HASH:
            return f"{head} PARTITIONS {len(self.partitions)}"
        return f"{head} ({','.join(map(self._definition_sql, self.partitions))})"

    def definitions_sql(self, partitions: Iterable[Partition]) -> str:
        """Return the text of definitions of partitions in a change, in parentheses."""
        return f"({', '.join(map(self._definition_sql, partitions))})"

    def _definition_sql(self, part: Partition) -> str:
        head = f"PARTITION {quoted(part.name)} VALUES"
        if self.method in LISTS:
            return f"{head} IN ({', '.join(map(self._value_sql, part.values))})"
        if part.below is None:
            return f"{head} LESS THAN (MAXVALUE)"
        return f"{head} LESS THAN ({self._bound_sql(part.below)})"

    def _value_sql(self, value: str | None) -> str:
        return "NULL" if value is None else self._bound_sql(self.method.compared(value))

    def _bound_sql(self, bound: Comparable) -> str:
        return str(bound) if isinstance(bound, int) else charset_literal(bound)


def _is_below(value: Comparable, bound: Comparable | None) -> bool:
    if bound is None:
        return True
    if isinstance(value, int) and isinstance(bound, int):
        return value < bound
    return str(value) < str(bound)


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
