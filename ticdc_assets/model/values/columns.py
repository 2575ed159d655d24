"""Columns of values as images hold them, to the typed columns of mirrors.

In: for each row where a column's text is in an array of bytes, and its form (`Places`). Out:
`TypedColumn`: the Arrow array of `arrow_type(column)`, and which rows are exact. For an exact row
the array has what `canonical_of` and `typed_of` return one by one, and neither refused the value
nor returned `UNFIT`. For any other row it has nothing: the caller converts the row by these
functions.

Compiled loops read nearly all kinds. Vectors and the widest decimals go through the converters
here, value by value.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta, tzinfo
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.base.errors import ImageError
from ticdc_assets.model.mysql_types import (
    Kind,
    arrow_type,
    decimal_size,
    exceeds_int64,
    fractional_digits,
    integer_range,
    kind_of,
    lacks_size,
)
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import column_loops, shapes, text_loops
from ticdc_assets.model.values.canonical import canonical_of
from ticdc_assets.model.values.column_loops import NULL, ZONED, Column
from ticdc_assets.model.values.floats import MAX_FLOAT32
from ticdc_assets.model.values.typed import typed_array
from ticdc_assets.model.values.zones import changefeed_zone, offset_of_hour

Flags: TypeAlias = npt.NDArray[np.bool_]

_MOST_LOOPED_DIGITS: Final = 36
"""Digits of a DECIMAL that the loop reads: two numbers of 18."""

_MICROSECOND: Final = timedelta(microseconds=1)
_HOUR: Final = 3_600_000_000
_FIRST: Final = int(np.datetime64("0001-01-01", "us").astype(np.int64))
_LAST: Final = int(np.datetime64("9999-12-31T23:59:59.999999", "us").astype(np.int64))
"""The years that Python and Spark have, in microseconds since 1970."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Places:
    """Where the values of one column are.

    Attributes:
        column: the places, with seven bytes more than they need at least.
        texts: copies texts without escapes: offsets, bytes, and which rows are absent, NULL or such
            a text (a ZONED text is not).
    """

    column: Column
    texts: Callable[[], tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], Flags]]

    def strings(self) -> "tuple[pa.Array[Any], Flags]":
        """Return the texts as strings, null where there is no text, and which rows are exact."""
        offsets, content, exact = self.texts()
        present = (self.column.forms > NULL) & exact
        strings = pa.StringArray.from_buffers(
            len(offsets) - 1,
            pa.py_buffer(offsets),
            pa.py_buffer(content),
            _validity(present),
        )
        return strings, exact


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TypedColumn:
    """A typed column.

    Attributes:
        array: the values, null for NULL, for absent values, and for rows that are not exact.
        exact: which rows the array holds.
        is_verbatim: whether the canonical text of exact rows is the text as sent.
    """

    array: "pa.Array[Any]"
    exact: Flags
    is_verbatim: bool


_Typed: TypeAlias = Callable[[Places], TypedColumn]


def typed_column(column: ColumnSchema, timezone: str) -> Callable[[Places], TypedColumn]:
    """Compile the converter from the places of `column`'s values to its typed column.

    Raises:
        ConfigError: `timezone` is needed (a TIMESTAMP column) and is no zone.
    """
    kind = kind_of(column)
    if lacks_size(column):
        return _UNSIZED[kind]
    if kind is Kind.TIMESTAMP:
        return _moments(column, changefeed_zone(timezone))
    build = _BUILDERS.get(kind)
    by_loop = None if build is None else build(column)
    return by_loop or _one_by_one(column, timezone)


def _validity(present: Flags) -> pa.Buffer | None:
    """Return which rows of an array are not null, as Arrow stores it: None if none is null."""
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


def _empty(places: Places, kind: type[Any]) -> tuple[Any, Flags]:
    count = len(places.column.forms)
    return np.empty(count, kind), np.empty(count, np.bool_)


def _of_numbers(
    numbers: npt.NDArray[Any],
    wanted: pa.DataType,
    places: Places,
    exact: Flags,
    *,
    is_verbatim: bool = True,
) -> TypedColumn:
    """Return numbers as a column of a type that holds them as they are."""
    validity = _validity((places.column.forms > NULL) & exact)
    array = pa.Array.from_buffers(wanted, len(exact), [validity, pa.py_buffer(numbers)])
    return TypedColumn(array=array, exact=exact, is_verbatim=is_verbatim)


def _read_integers(places: Places, low: int, high: int) -> tuple[npt.NDArray[np.uint64], Flags]:
    numbers, exact = _empty(places, np.uint64)
    column_loops.integers(places.column, np.uint64(-low), np.uint64(high), numbers, exact)
    return numbers, exact


def _integers(column: ColumnSchema) -> _Typed | None:
    low, high = integer_range(column)
    if high - low >= 2**64:
        return None
    wanted = arrow_type(column)
    is_wide, is_year = exceeds_int64(column), kind_of(column) is Kind.YEAR

    def typed(places: Places) -> TypedColumn:
        numbers, exact = _read_integers(places, low, high)
        if is_year:
            exact &= (numbers == 0) | (numbers >= 1901)
        if not is_wide:
            narrow = numbers.view(np.int64).astype(wanted.to_pandas_dtype())
            return _of_numbers(narrow, wanted, places, exact)
        both = np.zeros(2 * len(numbers), np.uint64)
        both[0::2] = numbers
        return _of_numbers(both, wanted, places, exact)

    return typed


def _decimals(column: ColumnSchema) -> _Typed | None:
    precision, scale = decimal_size(column) or (0, 0)
    if precision > _MOST_LOOPED_DIGITS:
        return None
    wanted = arrow_type(column)

    def typed(places: Places) -> TypedColumn:
        count = len(places.column.forms)
        numbers, exact = np.empty(2 * count, np.uint64), np.empty(count, np.bool_)
        column_loops.decimals(places.column, precision - scale, scale, numbers, exact)
        return _of_numbers(numbers, wanted, places, exact)

    return typed


def _floats(column: ColumnSchema) -> _Typed:
    wanted = arrow_type(column)
    highest = MAX_FLOAT32 if kind_of(column) is Kind.FLOAT else np.finfo(np.float64).max

    def typed(places: Places) -> TypedColumn:
        numbers, exact = _empty(places, np.float64)
        longer = np.empty(len(exact), np.bool_)
        column_loops.floats(places.column, numbers, exact, longer)
        if longer.any():
            strings, _ = places.strings()
            numbers[longer] = strings.filter(pa.array(longer)).cast(pa.float64()).to_numpy()
            exact |= longer
        with np.errstate(over="ignore"):
            narrow = numbers.astype(wanted.to_pandas_dtype())
        exact &= np.abs(narrow) <= highest
        return _of_numbers(narrow, wanted, places, exact, is_verbatim=False)

    return typed


def _moments(column: ColumnSchema, zone: tzinfo | None = None) -> _Typed:
    """Return the converter of DATE and DATETIME, or of TIMESTAMP in a zone."""
    wanted, digits = arrow_type(column), fractional_digits(column)
    has_clock = kind_of(column) is not Kind.DATE

    def typed(places: Places) -> TypedColumn:
        local, exact = _empty(places, np.int64)
        column_loops.moments(places.column, has_clock, digits, local, exact)
        if zone is None:
            exact &= places.column.forms != ZONED
            numbers = local if has_clock else local.astype(np.int32)
        else:
            numbers = _in_utc(local, exact, exact & (places.column.forms > NULL), zone)
        return _of_numbers(numbers, wanted, places, exact)

    return typed


def _in_utc(local: Any, exact: Flags, present: Flags, zone: tzinfo) -> Any:
    """Return local times in UTC; those in an hour of another offset are no longer exact."""
    fixed = zone.utcoffset(None)
    if fixed is not None:
        local -= fixed // _MICROSECOND
        exact &= (local >= _FIRST) & (local <= _LAST)
        return local
    hours, numbers = np.unique(local[present] // _HOUR, return_inverse=True)
    texts = np.datetime_as_string(hours.astype("datetime64[h]")).tolist()
    by_hour = [offset_of_hour(zone, text.replace("T", " ")) for text in texts]
    offsets = np.array([(offset or timedelta()) // _MICROSECOND for offset in by_hour], np.int64)
    local[present] -= offsets[numbers]
    exact[present] = np.array([offset is not None for offset in by_hour], np.bool_)[numbers]
    return local


def _texts(places: Places) -> TypedColumn:
    array, exact = places.strings()
    return TypedColumn(array=array, exact=exact, is_verbatim=True)


def _checked(pattern: re.Pattern[str]) -> _Typed:
    """Return the converter of texts that are kept as they are if they match."""

    def typed(places: Places) -> TypedColumn:
        array, exact = places.strings()
        matches = pc.match_substring_regex(array, rf"^(?:{pattern.pattern})\z")
        # A row that is not exact need not be null: nothing reads it.
        exact &= pc.fill_null(matches, True).to_numpy(zero_copy_only=False)
        return TypedColumn(array=array, exact=exact, is_verbatim=True)

    return typed


def _binaries(places: Places) -> TypedColumn:
    count = len(places.column.forms)
    sizes = np.where(places.column.forms > NULL, places.column.ends - places.column.begins, 0)
    offsets, exact = np.empty(count + 1, np.int32), np.empty(count, np.bool_)
    content = np.empty(int(sizes.sum()) // 4 * 3 + 3, np.uint8)
    text_loops.base64(places.column, offsets, content, exact)
    present = (places.column.forms > NULL) & exact
    array = pa.Array.from_buffers(
        pa.binary(), count, [_validity(present), pa.py_buffer(offsets), pa.py_buffer(content)]
    )
    return TypedColumn(array=array, exact=exact, is_verbatim=False)


def _labels(column: ColumnSchema) -> _Typed:
    label_of = canonical_of(column, "UTC")
    count = len(column.elements)
    highest = count if kind_of(column) is Kind.ENUM else 2 ** min(count, 64) - 1

    def typed(places: Places) -> TypedColumn:
        numbers, exact = _read_integers(places, 0, highest)
        present = (places.column.forms > NULL) & exact
        distinct, indices = np.unique(numbers, return_inverse=True)
        labels = pa.array([label_of(str(number)) for number in distinct.tolist()], pa.string())
        array = labels.take(pa.array(indices, mask=~present))
        return TypedColumn(array=array, exact=exact, is_verbatim=False)

    return typed


def _documents(places: Places) -> TypedColumn:
    offsets, content, exact = places.texts()
    is_json = np.empty(len(exact), np.bool_)
    out_offsets, out = np.empty_like(offsets), np.empty_like(content)
    text_loops.json_texts(content, offsets, places.column.forms, out_offsets, out, is_json)
    exact &= is_json
    present = (places.column.forms > NULL) & exact
    array = pa.StringArray.from_buffers(
        len(exact), pa.py_buffer(out_offsets), pa.py_buffer(out), _validity(present)
    )
    return TypedColumn(array=array, exact=exact, is_verbatim=False)


def _one_by_one(column: ColumnSchema, timezone: str) -> _Typed:
    convert = canonical_of(column, timezone)

    def canonical(text: str | None, exact: bool) -> tuple[str | None, bool]:
        try:
            return (convert(text), True) if exact else (None, False)
        except ImageError:
            return None, False

    def typed(places: Places) -> TypedColumn:
        strings, exact = places.strings()
        converted = list(map(canonical, strings.to_pylist(), exact.tolist()))
        array, unfit = typed_array(column, timezone, [text for text, _ in converted])
        exact = np.array([good for _, good in converted], np.bool_)
        if unfit is not None:
            exact &= ~np.array(unfit, np.bool_)
        return TypedColumn(array=array, exact=exact, is_verbatim=False)

    return typed


_BUILDERS: dict[Kind, Callable[[ColumnSchema], _Typed | None]] = {
    **dict.fromkeys((Kind.INTEGER, Kind.BIT, Kind.YEAR), _integers),
    Kind.DECIMAL: _decimals,
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), _floats),
    **dict.fromkeys((Kind.DATE, Kind.DATETIME), _moments),
    Kind.TIME: lambda column: _checked(shapes.time_pattern(fractional_digits(column))),
    **dict.fromkeys((Kind.TEXT, Kind.UNKNOWN), lambda _: _texts),
    Kind.BINARY: lambda _: _binaries,
    **dict.fromkeys((Kind.ENUM, Kind.SET), _labels),
    Kind.JSON: lambda _: _documents,
}

_UNSIZED: dict[Kind, _Typed] = {
    Kind.DECIMAL: _checked(shapes.PLAIN_DECIMAL),
    **dict.fromkeys((Kind.DATETIME, Kind.TIMESTAMP), _checked(shapes.datetime_pattern(None))),
    Kind.TIME: _checked(shapes.time_pattern(None)),
    # Up to 9,999 of the 65,535 labels of an ENUM, and less than 10^19 of a SET.
    Kind.ENUM: _checked(re.compile("0|[1-9][0-9]{0,3}")),
    Kind.SET: _checked(re.compile("0|[1-9][0-9]{0,18}")),
}
