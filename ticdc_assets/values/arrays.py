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
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.mysql_types import Kind, arrow_type, fractional_digits, kind_of
from ticdc_assets.schemas import ColumnSchema
from ticdc_assets.values.typed import UNFIT, typed_of

_FIRST_DAY = "0001-01-01"

_compiled = lru_cache(maxsize=4096)(typed_of)


def typed_array(
    column: ColumnSchema, timezone: str, texts: list[str | None]
) -> tuple[Any, list[bool] | None]:
    """Build the typed Arrow array of `texts`.

    Returns:
        The array, with nulls for NULL and for what is `UNFIT`, and one flag for each text that
        is True where it was `UNFIT`; None instead of the flags if none was.
    """
    wanted = arrow_type(column)
    cast_all = _WHOLE.get(kind_of(column))
    if cast_all is not None:
        strings = pa.array(texts, pa.string())
        try:
            typed = cast_all(strings, column, wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            typed = None
        if typed is not None:
            return typed, None
    convert = _compiled(column, timezone)
    values = [None if text is None else convert(text) for text in texts]
    unfit = [value is UNFIT for value in values]
    if True not in unfit:
        return pa.array(values, wanted), None
    return pa.array([None if value is UNFIT else value for value in values], wanted), unfit


def _unchanged(before: Any, after: Any) -> bool:
    return pc.all(pc.equal(before, after), skip_nulls=True, min_count=0).as_py()


def _integers(strings: Any, column: ColumnSchema, wanted: pa.DataType) -> Any:
    del column
    wide = wanted if pa.types.is_decimal(wanted) else pa.int64()
    typed = strings.cast(wide)
    return typed.cast(wanted) if _unchanged(strings, typed.cast(pa.string())) else None


def _decimals(strings: Any, column: ColumnSchema, wanted: pa.DataType) -> Any:
    del column
    if pa.types.is_string(wanted):
        return strings
    typed = strings.cast(wanted)
    return typed if _unchanged(strings, typed.cast(pa.string())) else None


def _dates(strings: Any, column: ColumnSchema, wanted: pa.DataType) -> Any:
    del column
    typed = strings.cast(wanted)
    return typed if _unchanged(strings, typed.cast(pa.string())) and _has_years(strings) else None


def _datetimes(strings: Any, column: ColumnSchema, wanted: pa.DataType) -> Any:
    digits = fractional_digits(column)
    typed = strings.cast(wanted)
    printed = pc.utf8_slice_codeunits(
        typed.cast(pa.string()), start=0, stop=20 + digits if digits else 19
    )
    return typed if _unchanged(strings, printed) and _has_years(strings) else None


def _has_years(strings: Any) -> bool:
    """Return whether no text is of the year 0, which Arrow has and Python and Spark lack."""
    first = pc.min(strings).as_py()
    return first is None or first >= _FIRST_DAY


def _strings(strings: Any, column: ColumnSchema, wanted: pa.DataType) -> Any:
    del column, wanted
    return strings


_WHOLE: dict[Kind, Callable[[Any, ColumnSchema, pa.DataType], Any]] = {
    Kind.INTEGER: _integers,
    Kind.BIT: _integers,
    Kind.YEAR: _integers,
    Kind.DECIMAL: _decimals,
    Kind.DATE: _dates,
    Kind.DATETIME: _datetimes,
    Kind.TIME: _strings,
    Kind.TEXT: _strings,
    Kind.ENUM: _strings,
    Kind.SET: _strings,
    Kind.JSON: _strings,
    Kind.UNKNOWN: _strings,
}
