"""What MODIFY or CHANGE COLUMN makes of the values that are already there.

In: canonical text under the old column. Out: canonical text under the new column, or `CastError`.
The rules are TiDB's own (pingcap/tidb: `Datum.ConvertTo` in pkg/types/datum.go, called for each row
by pkg/ddl/column.go), since the rewritten rows are never sent (golden/QUIRKS.md A7).

An event of the DDL proves that it succeeded upstream: in strict SQL mode, TiDB's default, every
value fitted (`cast_of`). So a value that does not fit proves another mode, in which TiDB stores
what it can make of the value, with a warning (`lenient_cast_of`). `CastError` is for changes that
TiDB does not support, values for which the DDL fails in every mode, and results that depend on what
no message says:

* TIME to a date type (the day of the change), and dates with a zero month or day (SQL mode);
* FLOAT(M,D) and DOUBLE(M,D), whose D is not sent (a caller who knows D puts it in `decimal`):
  whole numbers pass, others are refused;
* labels that are equal under a collation by more than case and trailing spaces;
* anything that depends on a size or on labels that no message has (`lacks_size`): the index of an
  ENUM whose labels are not known is a number, and becomes another type's number but no text.

Between TIMESTAMP and other types TiDB uses the time zone of the session that ran the DDL; it is
taken to be the changefeed's. NULL stays NULL, also where the new column is NOT NULL: upstream had
none then, except for TIMESTAMP, which TiDB fills with the time of the change and does not send.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeAlias

from ticdc_assets.model.mysql_types import Kind, fractional_digits, kind_of, lacks_size
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import (
    cast_moments,
    cast_numbers,
    cast_texts,
    shapes,
)
from ticdc_assets.model.values.datum import TextCast, refusal
from ticdc_assets.model.values.widening import same_type, widens

Cast: TypeAlias = Callable[[str | None], str | None]


def keep(text: str | None) -> str | None:
    """Return `text`: the cast where nothing changes."""
    return text


def cast_is_identity(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether every value of `old` has the same canonical text under `new`."""
    return kind_of(old) is kind_of(new) and (same_type(old, new) or widens(old, new))


def cast_of(old: ColumnSchema, new: ColumnSchema, timezone: str) -> Cast:
    """Compile the conversion of existing values from `old` to `new`.

    Returns:
        `keep` itself if nothing changes (`cast_is_identity`), else a function that raises
        `CastError` for a value that has no certain counterpart under `new`.

    Raises:
        ConfigError: `timezone` is needed (a TIMESTAMP column) and is no zone.
    """
    if cast_is_identity(old, new):
        return keep
    target = kind_of(new)
    if _refuses(old, new):
        convert: TextCast = refusal(old, new)
    elif _only_pads(old, new):
        # TiDB leaves such values alone, also dates that it would not convert.
        convert = partial(shapes.pad_fraction, digits=fractional_digits(new))
    elif target is Kind.TIMESTAMP:
        convert = cast_moments.to_timestamp(old, new, timezone)
    else:
        convert = _CASTS[target][0](old, new)

    def cast(text: str | None) -> str | None:
        return None if text is None else convert(text)

    return cast


def lenient_cast_of(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile what TiDB makes of values that `cast_of` refuses, in a SQL mode that is not strict.

    Returns:
        A function for such values alone, which raises `CastError` for one that the DDL would have
        failed for in every SQL mode, or whose outcome is not known.
    """
    return refusal(old, new) if _refuses(old, new) else _CASTS[kind_of(new)][1](old, new)


_MOMENTS: Final = (Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP)
_LABELLED: Final = (Kind.ENUM, Kind.SET)
_FRACTIONS: Final = (Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE)
_UNSUPPORTED: Final[Mapping[Kind, Collection[Kind]]] = {
    Kind.BIT: (*_MOMENTS, Kind.TIME, Kind.YEAR, Kind.TEXT, Kind.BINARY, Kind.JSON),
    **dict.fromkeys(_LABELLED, (*_MOMENTS, *_FRACTIONS, Kind.TIME, Kind.YEAR, Kind.JSON, Kind.BIT)),
    **dict.fromkeys(_MOMENTS, (*_LABELLED, *_FRACTIONS, Kind.BIT)),
    Kind.TIME: (*_LABELLED, Kind.BIT),
    Kind.JSON: (Kind.BIT,),
}
"""By the kind of the new column the kinds whose change TiDB refuses.

They are in `checkTypeChangeSupported` (pkg/types/etc.go).
"""


def _refuses(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether TiDB refuses the change, or this package cannot know its result."""
    kinds = {kind_of(old), kind_of(new)}
    return (
        Kind.UNKNOWN in kinds
        or (Kind.VECTOR in kinds and len(kinds) > 1)
        or kind_of(old) in _UNSUPPORTED.get(kind_of(new), ())
        or lacks_size(new)
    )


def _only_pads(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether values get no more than zeros after their fraction of a second."""
    return (
        kind_of(old) is kind_of(new)
        and kind_of(new) in (Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME)
        and not lacks_size(old)
        and fractional_digits(old) <= fractional_digits(new)
    )


_Compile: TypeAlias = Callable[[ColumnSchema, ColumnSchema], TextCast]

_CASTS: dict[Kind, tuple[_Compile, _Compile]] = {
    Kind.INTEGER: (cast_numbers.to_integer, cast_numbers.lenient_integer),
    Kind.BIT: (cast_numbers.to_bit, cast_numbers.lenient_bit),
    Kind.YEAR: (cast_numbers.to_year, cast_numbers.lenient_year),
    Kind.DECIMAL: (cast_numbers.to_decimal, cast_numbers.lenient_decimal),
    Kind.FLOAT: (cast_numbers.to_float, cast_numbers.lenient_float),
    Kind.DOUBLE: (cast_numbers.to_float, cast_numbers.lenient_float),
    Kind.DATE: (cast_moments.to_date, cast_moments.lenient_moment),
    Kind.DATETIME: (cast_moments.to_datetime, cast_moments.lenient_moment),
    # Its strict cast needs a time zone.
    Kind.TIMESTAMP: (refusal, cast_moments.lenient_moment),
    Kind.TIME: (cast_moments.to_time, cast_moments.lenient_time),
    Kind.TEXT: (cast_texts.to_text, cast_texts.lenient_text),
    Kind.BINARY: (cast_texts.to_binary, cast_texts.lenient_binary),
    Kind.ENUM: (cast_texts.to_enum, cast_texts.lenient_labels),
    Kind.SET: (cast_texts.to_set, cast_texts.lenient_labels),
    Kind.JSON: (cast_texts.to_json, cast_texts.refuses),
    Kind.VECTOR: (cast_texts.to_vector, cast_texts.refuses),
}
"""By the kind of the new column the strict and the lenient cast."""
