"""Partitions at equal intervals: TiDB's INTERVAL clause and its changes.

In: the text of INTERVAL (...) FIRST PARTITION ... LAST PARTITION ..., or the existing partitions
and a new bound. Out: the partitions with the names and bounds that TiDB gives them, or
`PartitionError`. TiDB does not keep the interval: it computes it from the bounds, and so does this
module.

TiDB writes most of these statements out as plain lists of partitions before TiCDC sees them; this
module reads them for versions that do not.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Final, TypeAlias

from ticdc_assets.base.errors import PartitionError, shorten
from ticdc_assets.registry.ddl_statement import BoundKind, PartitionDefinition
from ticdc_assets.registry.ddl_tokens import Cursor, shown_sql
from ticdc_assets.registry.partition_columns import take_text
from ticdc_assets.registry.partition_expressions import cursor_over, integer_bound
from ticdc_assets.registry.partition_functions import literal_moment
from ticdc_assets.registry.partition_terms import Moment

MAX_PARTITIONS: Final = 8192
"""The most partitions TiDB allows; a text with more is an error or an attack."""

Bound: TypeAlias = int | datetime
Step: TypeAlias = Callable[[Bound, int], Bound]
"""The bound that comes so many intervals after another."""

_BOUND_NAME: Final = "P_LT_"
_NULL_NAME: Final = "P_NULL"
_MAXVALUE_NAME: Final = "P_MAXVALUE"
_LOWEST_INTEGER: Final = str(-(2**63))
_LOWEST_DATE: Final = "'0000-01-01'"
_LOWEST_OF_TYPES: Final = frozenset((0, *(-(2**bits) for bits in (7, 15, 23, 31, 63))))

_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_LENGTHS: Final = {
    "WEEK": timedelta(weeks=1),
    "DAY": timedelta(days=1),
    "HOUR": timedelta(hours=1),
    "MINUTE": timedelta(minutes=1),
    "SECOND": timedelta(seconds=1),
}
_LONG: Final = timedelta(days=28)


def interval_partitions(text: str) -> tuple[PartitionDefinition, ...]:
    """Return the partitions of an INTERVAL clause."""
    cursor = cursor_over(text)
    group = cursor.take_group() if cursor.take("INTERVAL") else None
    if group is None:
        raise PartitionError(f"the interval {shown_sql(text)} is not understood")
    step, is_date = _take_step(group)
    first = _take_bound(cursor, "FIRST")
    last = _take_bound(cursor, "LAST")
    if isinstance(first, int) == is_date or isinstance(last, int) == is_date:
        raise PartitionError(f"the interval {shown_sql(text)} does not fit its bounds")
    definitions = list(_generated(first, last, step, start=0))
    while not cursor.done:
        if cursor.take("NULL", "PARTITION"):
            lowest = _LOWEST_DATE if is_date else _LOWEST_INTEGER
            definitions.insert(0, _less_than(_NULL_NAME, lowest))
        elif cursor.take("MAXVALUE", "PARTITION"):
            definitions.append(_less_than(_MAXVALUE_NAME, "MAXVALUE"))
        else:
            raise PartitionError(f"the interval {shown_sql(text)} is not understood")
    return tuple(definitions)


def below_first(definitions: Sequence[PartitionDefinition], bound: str) -> tuple[str, ...]:
    """Return the names that FIRST PARTITION LESS THAN (bound) drops.

    The partition with this bound becomes the first; a partition for NULL stays before it.
    """
    wanted = read_bound(cursor_over(bound))
    bounds = [_bound_of(definition) for definition in definitions]
    if wanted not in bounds:
        raise PartitionError(f"no partition ends at {shown_sql(bound)}")
    start = 1 if _is_null_partition(definitions[0]) else 0
    return tuple(definition.name for definition in definitions[start : bounds.index(wanted)])


def up_to_last(
    definitions: Sequence[PartitionDefinition], bound: str
) -> tuple[PartitionDefinition, ...]:
    """Return the partitions that LAST PARTITION LESS THAN (bound) adds."""
    wanted = read_bound(cursor_over(bound))
    bounds: list[Bound] = []
    for definition in definitions:
        found = _bound_of(definition)
        if found is None:
            raise PartitionError("LAST PARTITION of a table with a MAXVALUE partition")
        bounds.append(found)
    if _is_null_partition(definitions[0]):
        del bounds[0]
    step = _step_between(bounds)
    if wanted is None or isinstance(wanted, int) != isinstance(bounds[-1], int):
        raise PartitionError(f"the bound {shown_sql(bound)} is of another kind than the others")
    return tuple(_generated(bounds[-1], wanted, step, start=1))


@lru_cache(maxsize=2 * MAX_PARTITIONS)
def folded_name(name: str) -> str:
    """Return a partition's name for comparison: without case.

    For a DATETIME column TiDB ends the names of partitions with the time of day, and the clause
    does not say the column's type: midnight is left out here.
    """
    folded = name.lower()
    midnight = _MIDNIGHT.fullmatch(folded)
    return midnight[1] if midnight else folded


_MIDNIGHT: Final = re.compile(r"(p_lt_[0-9]{4}-[0-9]{2}-[0-9]{2}) 00:00:00(?:\.0{1,6})?")


# ---------------------------------------------------------------------------------------- bounds


def read_bound(cursor: Cursor) -> Bound | None:
    """Take one bound, an integer, a date or MAXVALUE (None), to the end of the cursor."""
    if cursor.take("MAXVALUE"):
        bound: Bound | None = None
    else:
        text = take_text(cursor)
        if text is None:
            bound = integer_bound(cursor, "UTC")
            if bound is None:
                raise PartitionError("a bound of an interval is NULL")
        else:
            bound = _datetime_of(literal_moment(text, "an interval"))
    if not cursor.done:
        raise PartitionError(f"the bound {shown_sql(cursor.text())} is not understood")
    return bound


def _datetime_of(moment: Moment) -> datetime:
    if moment.lacks_day or moment.year == 0:
        raise PartitionError("a bound of an interval is no day of the calendar")
    return datetime(*moment)  # noqa: DTZ001  # a DATETIME has no zone


def _bound_of(definition: PartitionDefinition) -> Bound | None:
    if definition.bound_kind is not BoundKind.LESS_THAN or definition.bound is None:
        raise PartitionError("partitions at intervals that are no RANGE")
    if definition.bound == _LOWEST_DATE:
        return datetime.min  # noqa: DTZ901  # lower than any bound
    return read_bound(cursor_over(definition.bound))


def _is_null_partition(definition: PartitionDefinition) -> bool:
    bound = _bound_of(definition)
    if bound == datetime.min:  # noqa: DTZ901
        return True
    if bound not in _LOWEST_OF_TYPES or definition.name.upper().startswith(_BOUND_NAME):
        return False
    if bound == -(2**63) or definition.name.upper() == _NULL_NAME:
        return True
    raise PartitionError("whether the first partition is the one for NULL is not certain")


def _take_bound(cursor: Cursor, word: str) -> Bound:
    group = cursor.take_group() if cursor.take(word, "PARTITION", "LESS", "THAN") else None
    bound = None if group is None else read_bound(group)
    if bound is None:
        raise PartitionError(f"an interval without its {word} PARTITION LESS THAN")
    return bound


def _less_than(name: str, bound: str) -> PartitionDefinition:
    return PartitionDefinition(name=name, bound_kind=BoundKind.LESS_THAN, bound=bound)


# ----------------------------------------------------------------------------------------- steps


def _take_step(cursor: Cursor) -> tuple[Step, bool]:
    """Take `100` or `1 MONTH`; return whether it is an interval of dates, too."""
    text = cursor.take_string()
    if text is not None:
        count = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0
    else:
        count = cursor.take_integer() or 0
    if count < 1:
        raise PartitionError("an interval that is no positive number")
    unit = cursor.word()
    if cursor.done:
        return partial(_integer_after, interval=count), False
    cursor.at += 1
    if not cursor.done or (unit not in _MONTHS and unit not in _LENGTHS):
        raise PartitionError(f"an interval of unit {shorten(unit)}")
    if unit in _MONTHS:
        return partial(_months_after, interval=count * _MONTHS[unit]), True
    if count > _MOST_SECONDS:
        raise PartitionError("an interval that is too long")
    return partial(_time_after, interval=count * (_LENGTHS[unit] // _SECOND)), True


_SECOND: Final = timedelta(seconds=1)
_MOST_SECONDS: Final = 10**12


def _integer_after(bound: Bound, count: int, *, interval: int) -> Bound:
    if not isinstance(bound, int):
        raise PartitionError("an interval of numbers between dates")
    return bound + count * interval


def _months_after(bound: Bound, count: int, *, interval: int) -> Bound:
    """Return the day so many months later, or the last of its month if that has no such day."""
    if isinstance(bound, int):
        raise PartitionError("an interval of dates between numbers")
    year, month = divmod(bound.year * 12 + bound.month - 1 + count * interval, 12)
    if year > 9999:
        raise PartitionError("an interval that leaves the calendar")
    return bound.replace(
        year=year, month=month + 1, day=min(bound.day, monthrange(year, month + 1)[1])
    )


def _time_after(bound: Bound, count: int, *, interval: int) -> Bound:
    if isinstance(bound, int):
        raise PartitionError("an interval of dates between numbers")
    try:
        return bound + timedelta(seconds=count * interval)
    except OverflowError:
        raise PartitionError("an interval that leaves the calendar") from None


def _step_between(bounds: Sequence[Bound]) -> Step:
    """Return the interval between bounds, by TiDB's rules; PartitionError if there is none."""
    if len(bounds) < 2:
        raise PartitionError("one partition alone does not have an interval")
    first, last, count = bounds[0], bounds[-1], len(bounds) - 1
    step: Step
    if isinstance(first, int) and isinstance(last, int):
        step = partial(_integer_after, interval=(last - first) // count)
    elif isinstance(first, datetime) and isinstance(last, datetime):
        mean = (last - first) // count
        # TiDB tries seconds below 28 days, and months from there on.
        months = mean // (_LONG if count <= 3 else timedelta(days=30))
        step = (
            partial(_time_after, interval=mean // _SECOND)
            if mean < _LONG
            else partial(_months_after, interval=months)
        )
    else:
        raise PartitionError("bounds of two kinds")
    if any(step(first, number) != bound for number, bound in enumerate(bounds)):
        raise PartitionError("the partitions are not at equal intervals")
    return step


def _generated(first: Bound, last: Bound, step: Step, *, start: int) -> list[PartitionDefinition]:
    """Return the partitions that end at `first` and so many intervals later, up to `last`."""
    found: list[PartitionDefinition] = []
    for number in range(start, MAX_PARTITIONS + 1):
        bound = step(first, number)
        if isinstance(bound, int):
            found.append(_less_than(f"{_BOUND_NAME}{bound}", str(bound)))
        else:
            text = _printed(bound)
            found.append(_less_than(f"{_BOUND_NAME}{text}", f"'{text}'"))
        if bound == last:
            return found
        if _is_after(bound, last):
            raise PartitionError("an interval that does not meet its last bound")
    raise PartitionError(f"more than {MAX_PARTITIONS} partitions")


def _is_after(bound: Bound, last: Bound) -> bool:
    if isinstance(bound, int) or isinstance(last, int):
        return isinstance(bound, int) and isinstance(last, int) and bound > last
    return bound > last


def _printed(bound: datetime) -> str:
    date, _, clock = bound.isoformat(" ").partition(" ")
    return date if clock == "00:00:00" else f"{date} {clock}"
