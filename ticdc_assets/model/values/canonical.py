"""Physical values to canonical text: what the message said, in the one text all formats share.

In: `PhysicalValue`s of one column, as the Simple protocol in JSON sends them; a BIT or SET may also
be the negative number that Simple Avro makes of its top bit. Out: canonical text
(defined in `model.values`), None for NULL, or `ImageError` with the column's name as its
position.
A converter is compiled once per column; it keeps no state, so it may be called again and from
any worker.

A text that is of the type but not in TiDB's spelling (`+1`, `007`, a missing fraction) is
normalised. A fraction longer than the schema declares is kept: the typed column will not hold
it, but the value stays exact.
"""

import binascii
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeAlias

from ticdc_assets.base.errors import ImageError, shorten
from ticdc_assets.model.events import PhysicalValue, ZonedTimestamp
from ticdc_assets.model.mysql_types import (
    Kind,
    decimal_size,
    fractional_digits,
    integer_range,
    kind_of,
)
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import shapes
from ticdc_assets.model.values.floats import MAX_FLOAT32, double_text, float_text, to_float32
from ticdc_assets.model.values.zones import (
    CHANGEFEED_ZONE_NAMES,
    changefeed_zone,
    find_zone,
    to_local,
    to_utc,
)

TextConverter: TypeAlias = Callable[[str], str]

ZERO_DATE = "0000-00-00"

_BLANKS = " \t\r\n"
_UINT64 = 2**64
_MOST_LABELS = 65535
_MIN_INT64 = -(2**63)


def canonical_of(column: ColumnSchema, timezone: str) -> Callable[[PhysicalValue], str | None]:
    """Compile the converter from physical values of `column` to canonical text.

    TIMESTAMP values are converted to `timezone`, the changefeed's. The converter raises
    `ImageError` for anything but a value of the column's type.

    Raises:
        ConfigError: `timezone` is needed (a TIMESTAMP column) and is no zone.
    """
    kind = kind_of(column)
    if kind is Kind.TIMESTAMP:
        return _timestamp(column, timezone)
    convert = _CONVERTERS[kind](column)

    def canonical(value: PhysicalValue) -> str | None:
        if value is None:
            return None
        if isinstance(value, str):
            return convert(value)
        raise ImageError("wrong_type", column.name, f"{kind} as text", shorten(value))

    return canonical


def _integer(column: ColumnSchema) -> TextConverter:
    low, high = integer_range(column)

    def convert(text: str) -> str:
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is not None and low <= number <= high:
            plain = str(number)
            # int() is lax; only a text that equals its own number skips the full check.
            if plain == text or shapes.INTEGER.fullmatch(text):
                return plain
        if number is None or shapes.INTEGER.fullmatch(text) is None:
            raise ImageError("invalid_integer", column.name, "integer", shorten(text))
        raise ImageError("out_of_range", column.name, f"{low} to {high}", shorten(text))

    return convert


def _bit(column: ColumnSchema) -> TextConverter:
    convert_integer = _integer(column)

    def convert(text: str) -> str:
        return convert_integer(_unsigned(text) if text.startswith("-") else text)

    return convert


def _unsigned(text: str) -> str:
    """Return a negative 64-bit integer without its sign; any other text as it is.

    Simple Avro sends BIT and SET as signed 64-bit integers, so their top bit makes them negative
    (golden/QUIRKS.md B7).
    """
    number = int(text) if shapes.INTEGER.fullmatch(text) else 0
    return str(number + _UINT64) if _MIN_INT64 <= number < 0 else text


def _year(column: ColumnSchema) -> TextConverter:
    convert_integer = _integer(column)

    def convert(text: str) -> str:
        year = convert_integer(text)
        if year != "0" and int(year) < 1901:
            raise ImageError("out_of_range", column.name, "0 or 1901 to 2155", shorten(text))
        return year

    return convert


def _decimal(column: ColumnSchema) -> TextConverter:
    size = decimal_size(column)
    scale = size[1] if size else 0
    is_canonical = shapes.decimal_pattern(*(size or (65, 0))).fullmatch

    def convert(text: str) -> str:
        if is_canonical(text):
            return text
        return normal_decimal(text, scale=scale, column=column)

    return convert


def normal_decimal(text: str, *, scale: int, column: ColumnSchema) -> str:
    """Return decimal `text` without leading zeros or `+`, its fraction padded to `scale`."""
    match = shapes.DECIMAL.fullmatch(text)
    if match is None:
        raise ImageError("invalid_decimal", column.name, "decimal", shorten(text))
    sign = "-" if match[1] == "-" else ""
    fraction = (match[3] or "").ljust(scale, "0")
    whole = match[2] or "0"
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def _float(text: str, column: ColumnSchema) -> str:
    if len(text) <= 6 and shapes.SHORTEST.fullmatch(text):
        return text
    number = to_float32(_number(text, column))
    if not -MAX_FLOAT32 <= number <= MAX_FLOAT32:
        raise ImageError("out_of_range", column.name, "32-bit float", shorten(text))
    return float_text(number)


def _double(text: str, column: ColumnSchema) -> str:
    if len(text) <= 15 and shapes.SHORTEST.fullmatch(text):
        return text
    number = _number(text, column)
    if number - number != 0:
        raise ImageError("out_of_range", column.name, "64-bit float", shorten(text))
    return double_text(number)


def _number(text: str, column: ColumnSchema) -> float:
    if shapes.NUMBER.fullmatch(text) is None:
        raise ImageError("invalid_float", column.name, "number", shorten(text))
    return float(text)


def _date(text: str, column: ColumnSchema) -> str:
    if shapes.DATE.fullmatch(text):
        return text
    raise ImageError("invalid_date", column.name, "YYYY-MM-DD", shorten(text))


def _clocked(
    reason: str, expected: str, pattern: Callable[[int | None], re.Pattern[str]]
) -> Callable[[ColumnSchema], TextConverter]:
    """Return the compiler for a kind with a fraction of a second."""

    def compiled(column: ColumnSchema) -> TextConverter:
        digits = fractional_digits(column)
        is_canonical = pattern(digits).fullmatch
        is_of_kind = pattern(None).fullmatch

        def convert(text: str) -> str:
            if is_canonical(text):
                return text
            if is_of_kind(text):
                return shapes.pad_fraction(text, digits)
            raise ImageError(reason, column.name, expected, shorten(text))

        return convert

    return compiled


_datetime = _clocked("invalid_datetime", "YYYY-MM-DD HH:MM:SS", shapes.datetime_pattern)
_time = _clocked("invalid_time", "[-]HHH:MM:SS", shapes.time_pattern)


def _timestamp(column: ColumnSchema, timezone: str) -> Callable[[PhysicalValue], str | None]:
    zone = changefeed_zone(timezone)
    here = CHANGEFEED_ZONE_NAMES | {timezone}
    convert = _datetime(column)
    digits = fractional_digits(column)

    def from_elsewhere(value: ZonedTimestamp, text: str) -> str:
        if text.startswith(ZERO_DATE):
            return text
        sent_zone = find_zone(value.location)
        if sent_zone is None:
            raise ImageError(
                "unknown_time_zone", column.name, "a time zone", shorten(value.location)
            )
        sent = parse_datetime(text)
        instant = None if sent is None else to_utc(sent, sent_zone)
        local = None if instant is None else to_local(instant, zone)
        if local is None:
            raise ImageError(
                "invalid_datetime", column.name, f"a time in {value.location}", shorten(text)
            )
        return datetime_text(local, max(digits, len(text) - 20))

    def canonical(value: PhysicalValue) -> str | None:
        if value is None:
            return None
        if isinstance(value, str):
            # Only the Simple protocol sends the zone: it is the changefeed's.
            return convert(value)
        text = convert(value.value)
        return text if value.location in here else from_elsewhere(value, text)

    return canonical


def parse_datetime(text: str) -> datetime | None:
    """Return canonical DATE or DATETIME text as a naive datetime; None if there is no such day."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def datetime_text(value: datetime, digits: int) -> str:
    """Return the canonical text of a naive datetime, with `digits` fractional digits."""
    if digits <= 0:
        return value.isoformat(" ", "seconds")
    return value.isoformat(" ", "microseconds")[: 20 + digits]


def _text(text: str, column: ColumnSchema) -> str:
    if shapes.is_encodable(text):
        return text
    raise ImageError("invalid_text", column.name, "text that is Unicode", shorten(text))


def _binary(text: str, column: ColumnSchema) -> str:
    try:
        return "0x" + binascii.a2b_base64(text, strict_mode=True).hex()
    except ValueError:
        raise ImageError("invalid_base64", column.name, "base64", shorten(text)) from None


def _numbered(column: ColumnSchema, highest: int) -> TextConverter:
    """Return the converter of an ENUM or SET whose labels no message has: its number is kept."""

    def convert(text: str) -> str:
        if shapes.INTEGER.fullmatch(text) is None:
            raise ImageError(f"invalid_{kind_of(column)}", column.name, "a number", shorten(text))
        number = int(_unsigned(text))
        if not 0 <= number <= highest:
            raise ImageError("out_of_range", column.name, f"0 to {highest}", shorten(text))
        return str(number)

    return convert


def _enum(column: ColumnSchema) -> TextConverter:
    if not column.elements:
        return _numbered(column, _MOST_LABELS)
    labels = {str(number): label for number, label in enumerate(("", *column.elements))}

    def convert(text: str) -> str:
        label = labels.get(text)
        if label is not None:
            return label
        if shapes.INTEGER.fullmatch(text) is None:
            raise ImageError("invalid_enum", column.name, "index of a label", shorten(text))
        label = labels.get(str(int(text)))
        if label is None:
            raise ImageError(
                "unknown_enum_index", column.name, f"0 to {len(labels) - 1}", shorten(text)
            )
        return label

    return convert


_SET_CACHE_SIZE = 4096


def _set(column: ColumnSchema) -> TextConverter:
    if not column.elements:
        return _numbered(column, _UINT64 - 1)
    labels = column.elements[:64]
    cached: dict[str, str] = {}

    def convert(text: str) -> str:
        joined = cached.get(text)
        if joined is not None:
            return joined
        if shapes.INTEGER.fullmatch(text) is None:
            raise ImageError("invalid_set", column.name, "bit mask of labels", shorten(text))
        mask = int(_unsigned(text))
        if not 0 <= mask < 2 ** len(labels):
            raise ImageError(
                "unknown_set_member", column.name, f"0 to {2 ** len(labels) - 1}", shorten(text)
            )
        joined = ",".join(label for bit, label in enumerate(labels) if mask >> bit & 1)
        if len(cached) < _SET_CACHE_SIZE:
            cached[text] = joined
        return joined

    return convert


def _json(text: str, column: ColumnSchema) -> str:
    if shapes.is_json(text) and shapes.is_encodable(text):
        return shapes.compact_json(text)
    if shapes.is_too_deep(text):
        expected = f"JSON of at most {shapes.MAX_JSON_DEPTH} nested arrays and objects"
        raise ImageError("too_deep", column.name, expected, shorten(text))
    raise ImageError("invalid_json", column.name, "JSON", shorten(text))


def _vector(text: str, column: ColumnSchema) -> str:
    inner = text.strip(_BLANKS)
    if len(inner) < 2 or inner[0] != "[" or inner[-1] != "]":
        raise ImageError("invalid_vector", column.name, "[number,...]", shorten(text))
    inner = inner[1:-1].strip(_BLANKS)
    try:
        items = [_float(item.strip(_BLANKS), column) for item in inner.split(",")] if inner else []
    except ImageError:
        raise ImageError("invalid_vector", column.name, "[number,...]", shorten(text)) from None
    return f"[{','.join(items)}]"


def _naming(
    convert: Callable[[str, ColumnSchema], str],
) -> Callable[[ColumnSchema], TextConverter]:
    """Return the compiler for a kind that needs no more of a column than its name, for errors."""
    return lambda column: lambda text: convert(text, column)


_CONVERTERS: Mapping[Kind, Callable[[ColumnSchema], TextConverter]] = {
    Kind.INTEGER: _integer,
    Kind.BIT: _bit,
    Kind.YEAR: _year,
    Kind.DECIMAL: _decimal,
    Kind.FLOAT: _naming(_float),
    Kind.DOUBLE: _naming(_double),
    Kind.DATE: _naming(_date),
    Kind.DATETIME: _datetime,
    Kind.TIME: _time,
    **dict.fromkeys((Kind.TEXT, Kind.UNKNOWN), _naming(_text)),
    Kind.BINARY: _naming(_binary),
    Kind.ENUM: _enum,
    Kind.SET: _set,
    Kind.JSON: _naming(_json),
    Kind.VECTOR: _naming(_vector),
}
