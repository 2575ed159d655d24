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

from ticdc_assets.model.mysql_types import (
    TEXT_LIMITS,
    Kind,
    base_type,
    decimal_size,
    declared_length,
    float_scale,
    fractional_digits,
    integer_range,
    is_char,
    is_unsigned,
    kind_of,
    lacks_size,
    text_length,
)
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import (
    cast_moments,
    cast_numbers,
    cast_texts,
    shapes,
)
from ticdc_assets.model.values.datum import TextCast, refusal

Cast: TypeAlias = Callable[[str | None], str | None]


def keep(text: str | None) -> str | None:
    """Return `text`: the cast where nothing changes."""
    return text


def cast_is_identity(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether every value of `old` has the same canonical text under `new`.

    Then a change needs no work on a mirror. Any other goes through `cast_of`, which also checks; a
    change missing here costs time only.
    """
    return kind_of(old) is kind_of(new) and (_same_type(old, new) or _widens(old, new))


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
    elif target in _MOMENTS:
        convert = cast_moments.to_moment(old, new, timezone)
    else:
        convert = _CASTS[target](old, new, False)

    def cast(text: str | None) -> str | None:
        return None if text is None else convert(text)

    return cast


def lenient_cast_of(old: ColumnSchema, new: ColumnSchema) -> TextCast:
    """Compile what TiDB makes of values that `cast_of` refuses, in a SQL mode that is not strict.

    Returns:
        A function for such values alone, which raises `CastError` for one that the DDL would have
        failed for in every SQL mode, or whose outcome is not known.
    """
    if _refuses(old, new):
        return refusal(old, new)
    target = kind_of(new)
    if target in _MOMENTS:
        return cast_moments.lenient_moment(old, new)
    return _CASTS[target](old, new, True)


_MOMENTS: Final = (Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP)
_LABELLED: Final = (Kind.ENUM, Kind.SET)
_FRACTIONS: Final = (Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE)
_UNIVERSAL_CHARSETS: Final = frozenset({"", "utf8mb4", "latin1"})
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


_CASTS: Final[Mapping[Kind, Callable[[ColumnSchema, ColumnSchema, bool], TextCast]]] = {
    Kind.INTEGER: cast_numbers.to_integer,
    Kind.BIT: cast_numbers.to_bit,
    Kind.YEAR: cast_numbers.to_year,
    Kind.DECIMAL: cast_numbers.to_decimal,
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), cast_numbers.to_float),
    Kind.TIME: cast_moments.to_time,
    Kind.TEXT: cast_texts.to_text,
    Kind.BINARY: cast_texts.to_binary,
    **dict.fromkeys(_LABELLED, cast_texts.to_labels),
    Kind.JSON: cast_texts.to_json,
    Kind.VECTOR: cast_texts.to_vector,
}
"""The casts by the kind of the new column, strict or lenient, but for `_MOMENTS`."""


def _same_type(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether the two columns hold the same values in the same way."""

    def shape(column: ColumnSchema) -> tuple[object, ...]:
        return (
            base_type(column),
            column.charset,
            column.length,
            column.decimal,
            column.elements,
            is_unsigned(column),
        )

    return shape(old) == shape(new)


def _widens(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether `new`, of the same kind, holds all values of `old` as they are."""
    match kind_of(old):
        case Kind.INTEGER | Kind.BIT:
            (low, high), (new_low, new_high) = integer_range(old), integer_range(new)
            return new_low <= low and high <= new_high
        case Kind.DECIMAL:
            old_size, new_size = decimal_size(old), decimal_size(new)
            if old_size is None or new_size is None or _loses_sign(old, new):
                return False
            return old_size[1] == new_size[1] and old_size[0] <= new_size[0]
        case Kind.FLOAT | Kind.DOUBLE:
            if _loses_sign(old, new):
                return False
            scales = float_scale(old), float_scale(new)
            if scales[1] is None:
                return True
            if -1 in scales:
                # Without a DDL that says otherwise, D is as it was.
                return declared_length(old) == declared_length(new)
            return _keeps_digits(old, new)
        case Kind.DATETIME | Kind.TIMESTAMP | Kind.TIME:
            if lacks_size(old) or lacks_size(new):
                return False
            return fractional_digits(old) == fractional_digits(new)
        case Kind.TEXT:
            if new.charset not in (old.charset, *_UNIVERSAL_CHARSETS):
                return False
            # TiDB does not convert a TEXT that is no longer than the CHAR.
            if is_char(new) and not is_char(old) and base_type(old) not in TEXT_LIMITS:
                return False
            # TiDB compares only the lengths, characters with bytes, and leaves the values alone.
            length = text_length(new)
            return not length or 0 < text_length(old) <= length
        case Kind.BINARY:
            old_length, length = declared_length(old), declared_length(new)
            if is_char(new) and not base_type(old).endswith("blob"):
                return is_char(old) and old_length == length
            return not length or 0 < old_length <= length
        case Kind.ENUM:
            return bool(old.elements) and set(old.elements) <= set(new.elements)
        case Kind.SET:
            common = tuple(label for label in new.elements if label in old.elements)
            return bool(old.elements) and common == old.elements
        case Kind.VECTOR:
            return declared_length(new) in (0, declared_length(old))
        case Kind.YEAR | Kind.DATE | Kind.JSON:
            return True
        case Kind.UNKNOWN:
            return False


def _keeps_digits(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether TiDB rounds no value for a known D, as neither length nor D gets smaller."""
    length = declared_length(old)
    return (
        is_unsigned(old) == is_unsigned(new)
        and new.decimal >= max(old.decimal, 1)
        and 0 < length <= declared_length(new)
    )


def _loses_sign(old: ColumnSchema, new: ColumnSchema) -> bool:
    return is_unsigned(new) and not is_unsigned(old)
