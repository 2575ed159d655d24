"""Columns of canonical text to Arrow arrays of the mirror's typed columns.

In: a list of canonical texts (None for NULL). Out: the Arrow array of `arrow_type(column)`, NULL
where a value is `UNFIT`, and the flags that say where. The same values as `typed_of` gives one by
one: common kinds are cast by Arrow as a whole and then printed back; only if every text comes
back unchanged is the cast taken, otherwise the column is converted value by value.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportAttributeAccessIssue=false

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.model.mysql_types import (
    Kind,
    arrow_type,
    fractional_digits,
    integer_range,
    kind_of,
    lacks_size,
)
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values.typed import UNFIT, typed_of
from ticdc_assets.model.values.zones import local_hours

_FIRST_DAY = "0001-01-01"

_compiled = lru_cache(maxsize=4096)(typed_of)


def typed_array(
    column: ColumnSchema, timezone: str, texts: list[str | None]
) -> tuple[Any, list[bool] | None]:
    """Build the typed Arrow array of `texts`.

    Returns:
        The array, with nulls for NULL and for `UNFIT` values, and one flag for each text, True
        where it was `UNFIT`; None instead of the flags if no text was.

    Raises:
        ConfigError: `timezone` is needed (a TIMESTAMP column) and is no zone.
    """
    wanted = arrow_type(column)
    convert = _compiled(column, timezone)
    cast_all = _strings if lacks_size(column) else _WHOLE.get(kind_of(column))
    if cast_all is not None:
        strings = pa.array(texts, pa.string())
        try:
            typed = cast_all(_Whole(strings, column, timezone, wanted, convert))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            typed = None
        if typed is not None:
            return typed, None
    values = [None if text is None else convert(text) for text in texts]
    unfit = [value is UNFIT for value in values]
    if True not in unfit:
        return pa.array(values, wanted), None
    return pa.array([None if value is UNFIT else value for value in values], wanted), unfit


class _Whole(NamedTuple):
    """A whole column on its way to Arrow; `Any` is a pyarrow array."""

    strings: Any
    column: ColumnSchema
    timezone: str
    wanted: pa.DataType
    convert: Callable[[str], Any]


def _integers(whole: _Whole) -> Any:
    wide = whole.wanted if pa.types.is_decimal(whole.wanted) else pa.int64()
    typed = whole.strings.cast(wide)
    if not _unchanged(whole.strings, typed.cast(pa.string())):
        return None
    # The array may have room for more than the column: its integers are signed, of whole bytes.
    low, high = integer_range(whole.column)
    ends = pc.min_max(typed).as_py()
    if ends["min"] is not None and not low <= ends["min"] <= ends["max"] <= high:
        return None
    return typed.cast(whole.wanted)


def _decimals(whole: _Whole) -> Any:
    if pa.types.is_string(whole.wanted):
        return whole.strings
    return _cast_and_back(whole)


def _cast_and_back(whole: _Whole) -> Any:
    typed = whole.strings.cast(whole.wanted)
    return typed if _unchanged(whole.strings, typed.cast(pa.string())) else None


def _floats(whole: _Whole) -> Any:
    typed = whole.strings.cast(whole.wanted)
    printed = typed.cast(pa.string())
    # Arrow prints the same digits, but large and small numbers with an exponent.
    for text in whole.strings.filter(pc.not_equal(whole.strings, printed)).to_pylist():
        if whole.convert(text) is UNFIT:
            return None
    return typed


def _dates(whole: _Whole) -> Any:
    return _cast_and_back(whole) if _has_years(whole.strings) else None


def _datetimes(whole: _Whole) -> Any:
    if not _has_years(whole.strings):
        return None
    digits = fractional_digits(whole.column)
    typed = whole.strings.cast(pa.timestamp("us"))
    printed = pc.utf8_slice_codeunits(
        typed.cast(pa.string()), start=0, stop=20 + digits if digits else 19
    )
    return typed if _unchanged(whole.strings, printed) else None


def _timestamps(whole: _Whole) -> Any:
    hours = pc.utf8_slice_codeunits(whole.strings, start=0, stop=13).dictionary_encode()
    # Where nearly each value has an hour of its own, converting value by value is as fast.
    if len(hours.dictionary) * 2 > len(hours):
        return None
    local = _datetimes(whole)
    offset_of = local_hours(whole.timezone).offset
    offsets = [offset_of(hour) for hour in hours.dictionary.to_pylist()]
    if local is None or None in offsets:
        return None
    by_value = pa.array(offsets, pa.duration("us")).take(hours.indices)
    return pc.subtract(local, by_value).cast(whole.wanted)


def _strings(whole: _Whole) -> Any:
    return whole.strings


def _unchanged(before: Any, after: Any) -> bool:
    return pc.all(pc.equal(before, after), skip_nulls=True, min_count=0).as_py()


def _has_years(strings: Any) -> bool:
    """Return whether no text is of the year 0, which Arrow has and Python and Spark lack."""
    first = pc.min(strings).as_py()
    return first is None or first >= _FIRST_DAY


_WHOLE: dict[Kind, Callable[[_Whole], Any]] = {
    Kind.INTEGER: _integers,
    Kind.BIT: _integers,
    Kind.YEAR: _integers,
    Kind.DECIMAL: _decimals,
    Kind.FLOAT: _floats,
    Kind.DOUBLE: _floats,
    Kind.DATE: _dates,
    Kind.DATETIME: _datetimes,
    Kind.TIMESTAMP: _timestamps,
    Kind.TIME: _strings,
    Kind.TEXT: _strings,
    Kind.ENUM: _strings,
    Kind.SET: _strings,
    Kind.JSON: _strings,
    Kind.UNKNOWN: _strings,
}
