"""The DEFAULT clause of a column, as TiDB keeps it and the Simple protocol sends it.

In: a `DefaultValue` and the column it belongs to. Out: text, an integer (BIT), bytes (of a binary
column, that are not UTF-8), or None for no default and for NULL: what `values.defaults` reads. The
same clause always gives the same value, and no clause raises: a literal that is not a value of the
column stays as it was written.

    integers        rounded to a whole number                    1.25 -> '1'
    float, double   as Go prints it                              1.50 -> '1.5'
    decimal         the literal's own text, not padded           1.5 -> '1.5', .5 -> '0.5'
    year            the literal's own text                       24 -> '24'
    bit             the number of b'', x'' or an integer; of a text the number of its bytes
    date, datetime  TiDB's text with the declared fraction       '2024-1-1' -> '2024-01-01'
    timestamp       the same, from the session's zone to UTC
    time            the same                                     100 -> '00:01:00'
    enum, set       the labels as declared; a number counts them
    text, binary    the text; binary(n) is padded with zero bytes; x'', 0x and b'' as their bytes
    CURRENT_TIMESTAMP and its synonyms   'CURRENT_TIMESTAMP', without digits
    CURRENT_DATE and its synonyms        'CURRENT_DATE'
    another expression                   its text without the outer parentheses, never evaluated

Source: `getDefaultValue`, `convertTimestampDefaultValToUTC` and `setDefaultValueWithBinaryPadding`
of pingcap/tidb pkg/ddl/add_column.go.

Not known from the text: the zone of the session that ran the statement (the changefeed's takes its
place), and how TiDB spells an expression again. Bytes of a text's default that are not UTF-8 are
replaced; no such statement succeeds in a strict SQL mode.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException
from typing import Final, TypeAlias

from ticdc_assets.base.errors import CastError
from ticdc_assets.model.mysql_types import (
    Kind,
    declared_length,
    fractional_digits,
    is_char,
    kind_of,
)
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import moments, shapes
from ticdc_assets.model.values.canonical import datetime_text, parse_datetime
from ticdc_assets.model.values.casts import cast_of
from ticdc_assets.model.values.defaults import NOW, TODAY
from ticdc_assets.model.values.floats import double_text, float_text, to_float32
from ticdc_assets.model.values.widening import float_scale
from ticdc_assets.model.values.zones import find_zone, to_utc
from ticdc_assets.registry.ddl_statement import DefaultValue, LiteralForm

CURRENT_TIMESTAMP: Final = "CURRENT_TIMESTAMP"
CURRENT_DATE: Final = "CURRENT_DATE"

_MAX_DIGITS: Final = 400
"""Longer numbers are not the default of any column; nothing is computed with them."""

_WIDE: Final = Context(prec=2 * _MAX_DIGITS, rounding=ROUND_HALF_UP)


Sent: TypeAlias = str | int | bytes | None


def sent_default(default: DefaultValue, column: ColumnSchema, timezone: str) -> Sent:
    """Return `default` as the default of `column`.

    Args:
        default: the clause.
        column: the column, without its default.
        timezone: zone of the session that ran the statement; UTC replaces an unknown zone.
    """
    if default.value is None:
        return None
    if default.form is None:
        return _expression(default.value, column)
    return _LITERALS[default.form](default.value, column, timezone)


def _expression(text: str, column: ColumnSchema) -> str:
    kind = kind_of(column)
    if kind in (Kind.DATETIME, Kind.TIMESTAMP) and NOW.fullmatch(text):
        return CURRENT_TIMESTAMP
    if kind is Kind.DATE and TODAY.fullmatch(text):
        return CURRENT_DATE
    return text


# --------------------------------------------------------------------------------------- literals


def _of_string(text: str, column: ColumnSchema, timezone: str) -> Sent:
    kind = kind_of(column)
    if kind is Kind.BIT:
        return _number_of_bytes(text.encode("utf-8", "surrogatepass"))
    if kind is Kind.BINARY:
        return _padded(text, column)
    return _convert(text, _TEXT, column, timezone)


def _of_number(digits: str, column: ColumnSchema, timezone: str) -> Sent:
    text = _number_text(digits)
    if kind_of(column) is Kind.BIT:
        whole = _whole(text)
        return None if whole is None else int(whole)
    if kind_of(column) is Kind.BINARY:
        return _padded(text, column)
    return _convert(text, _BIGINT if shapes.INTEGER.fullmatch(text) else _TEXT, column, timezone)


def _of_hex(digits: str, column: ColumnSchema, timezone: str) -> Sent:
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        return digits
    return _of_bytes(raw, column, timezone)


def _of_bits(digits: str, column: ColumnSchema, timezone: str) -> Sent:
    if len(digits) > 8 * _MAX_DIGITS or digits.strip("01"):
        return digits
    number = int(digits or "0", 2)
    return _of_bytes(number.to_bytes(max((len(digits) + 7) // 8, 1)), column, timezone)


_LITERALS: Final[dict[LiteralForm, Callable[[str, ColumnSchema, str], Sent]]] = {
    LiteralForm.STRING: _of_string,
    LiteralForm.NUMBER: _of_number,
    LiteralForm.HEX: _of_hex,
    LiteralForm.BITS: _of_bits,
}

_CODECS: Final = {"gbk": "gbk", "gb18030": "gb18030"}


def _of_bytes(raw: bytes, column: ColumnSchema, timezone: str) -> Sent:
    kind = kind_of(column)
    if kind is Kind.BIT:
        return _number_of_bytes(raw)
    if kind is Kind.BINARY:
        padded = raw.ljust(_least_size(column), b"\0")
        try:
            text = padded.decode()
        except UnicodeDecodeError:
            return padded
        # In text, the character for lost bytes would count as such.
        return padded if "\ufffd" in text else text
    if kind in (Kind.TEXT, Kind.ENUM, Kind.SET, Kind.JSON, Kind.VECTOR, Kind.UNKNOWN):
        text = raw.decode(_CODECS.get(column.charset, "utf-8"), "replace")
        return _convert(text, _TEXT, column, timezone)
    number = _number_of_bytes(raw)
    return "" if number is None else _of_number(str(number), column, timezone)


def _number_of_bytes(raw: bytes) -> int | None:
    # No BIT and no integer has more than eight bytes.
    return int.from_bytes(raw) if len(raw.lstrip(b"\0")) <= 8 else None


def _padded(text: str, column: ColumnSchema) -> str:
    missing = _least_size(column) - len(text.encode("utf-8", "surrogatepass"))
    return text + "\0" * max(missing, 0)


def _least_size(column: ColumnSchema) -> int:
    """Return the fewest bytes of values of a binary column; BINARY has at most 255."""
    return min(declared_length(column), 255) if is_char(column) else 0


def _number_text(digits: str) -> str:
    """Return a number as TiDB prints a literal: integers and decimals exactly, floats in full."""
    if len(digits) > _MAX_DIGITS:
        return digits
    if shapes.NUMBER.fullmatch(digits) is None:
        return digits
    if "e" in digits.lower():
        number = float(digits)
        return double_text(number) if number - number == 0 else digits
    sign = "-" if digits.startswith("-") else ""
    whole, _, fraction = digits.lstrip("+-").partition(".")
    whole = whole.lstrip("0") or "0"
    if not fraction:
        return whole if whole == "0" else sign + whole
    return f"{sign}{whole}.{fraction}"


# ----------------------------------------------------------------------- values by kind of column


_TEXT: Final = ColumnSchema(name="", mysql_type="longtext", charset="utf8mb4")
_BIGINT: Final = ColumnSchema(name="", mysql_type="bigint")


def _convert(text: str, source: ColumnSchema, column: ColumnSchema, timezone: str) -> str:
    """Return the text in the spelling of the column's kind; most kinds keep it."""
    value: str | None = None
    match kind_of(column):
        case Kind.INTEGER:
            value = _whole(text)
        case Kind.FLOAT | Kind.DOUBLE:
            value = _float(text, column)
        case Kind.DATE | Kind.DATETIME | Kind.TIME | Kind.ENUM | Kind.SET:
            value = _cast(text, source, column)
        case Kind.TIMESTAMP:
            value = _timestamp(text, source, column, timezone)
        case _:
            pass
    return text if value is None else value


def _whole(text: str) -> str | None:
    number = _decimal(text.strip())
    if number is None or number.adjusted() > _MAX_DIGITS:
        return None
    return str(int(number.quantize(Decimal(1), context=_WIDE)))


def _decimal(text: str) -> Decimal | None:
    if len(text) > _MAX_DIGITS or shapes.NUMBER.fullmatch(text) is None:
        return None
    try:
        return Decimal(text)
    except DecimalException:
        return None


def _float(text: str, column: ColumnSchema) -> str | None:
    if _decimal(text.strip()) is None:
        return None
    number = float(text)
    scale = float_scale(column)
    if scale is not None and 0 <= scale <= 30 and abs(number) < 2**53:
        number = round(number * 10.0**scale) / 10.0**scale
    narrow = kind_of(column) is Kind.FLOAT
    number = to_float32(number) if narrow else number
    if number - number != 0:
        return None
    return float_text(number) if narrow else double_text(number)


def _cast(text: str, source: ColumnSchema, column: ColumnSchema) -> str | None:
    """Return the cast of the literal to the column's own type."""
    try:
        return cast_of(source, column, "UTC")(text)
    except CastError:
        return None


def _timestamp(text: str, source: ColumnSchema, column: ColumnSchema, timezone: str) -> str | None:
    digits = fractional_digits(column)
    as_datetime = replace(column, mysql_type="datetime")
    local_text = _cast(text, source, as_datetime)
    if local_text is None or moments.is_zero(local_text):
        return local_text
    zone = find_zone(timezone) or UTC
    local = parse_datetime(local_text)
    shown = None if local is None else moments.timestamp_text(local, zone=zone, places=digits)
    # A local time that a clock change skips is shown as the moment of the change.
    shown_local = None if shown is None else parse_datetime(shown)
    instant = None if shown_local is None else to_utc(shown_local, zone)
    return None if instant is None else datetime_text(instant.replace(tzinfo=None), digits)
