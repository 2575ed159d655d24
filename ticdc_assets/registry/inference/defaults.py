"""The DEFAULT clause of a column, in the form in which the Simple protocol sends defaults.

In: a `DefaultValue` and the column it belongs to. Out: text, an integer (BIT), bytes (of a binary
column, that are not UTF-8), or None for no default and for NULL: what `values.defaults` reads. It
casts texts to the column. The same clause always gives the same value, and no clause raises: a
literal that is not a value of the column stays as it was written.

    text                the text itself
    numbers             integers and decimals exactly, floats in full         007.10 -> '7.10'
    bit                 the number of b'', x'' or an integer; of a text the number of its bytes
    x'', 0x and b''     as their bytes; for columns of numbers as a number
    timestamp           from the session's zone to UTC
    a number of date, datetime, enum, set   the date, the labels        20240131 -> '2024-01-31'
    CURRENT_TIMESTAMP, CURRENT_DATE     these words, without digits, for all synonyms
    another expression  its text without the outer parentheses, never evaluated

Source: `getDefaultValue` and `convertTimestampDefaultValToUTC` of pingcap/tidb
pkg/ddl/add_column.go. TiDB also writes texts in the spelling of the column.

Not known from the text: the zone of the session that ran the statement (the changefeed's takes its
place), and how TiDB spells an expression again. Bytes of a text's default that are not UTF-8 are
replaced; no such statement succeeds in a strict SQL mode.
"""

from dataclasses import replace
from datetime import UTC
from typing import Final, TypeAlias

from ticdc_assets.base.errors import CastError
from ticdc_assets.model.mysql_types import Kind, fractional_digits, kind_of
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import moments, shapes
from ticdc_assets.model.values.canonical import datetime_text, parse_datetime
from ticdc_assets.model.values.casts import cast_of
from ticdc_assets.model.values.defaults import NOW, TODAY
from ticdc_assets.model.values.floats import double_text
from ticdc_assets.model.values.zones import find_zone, to_utc
from ticdc_assets.registry.ddl.statement import DefaultValue, LiteralForm

_MAX_DIGITS: Final = 400
"""Longer numbers are not the default of any column; nothing is computed with them."""

CURRENT_TIMESTAMP: Final = "CURRENT_TIMESTAMP"

Sent: TypeAlias = str | int | bytes | None


def sent_default(default: DefaultValue, column: ColumnSchema, timezone: str) -> Sent:
    """Return a clause as the default of `column`, which has none yet.

    The zone is that of the session that ran the statement; UTC replaces an unknown zone.
    """
    text = default.value
    if text is None:
        return None
    match default.form:
        case None:
            kind = kind_of(column)
            if kind in (Kind.DATETIME, Kind.TIMESTAMP) and NOW.fullmatch(text):
                return CURRENT_TIMESTAMP
            return "CURRENT_DATE" if kind is Kind.DATE and TODAY.fullmatch(text) else text
        case LiteralForm.STRING if kind_of(column) is Kind.BIT:
            return _number_of_bytes(text.encode("utf-8", "surrogatepass"))
        case LiteralForm.STRING:
            return _of_literal(text, _TEXT, column, timezone)
        case LiteralForm.NUMBER:
            return _of_number(text, column, timezone)
        case LiteralForm.HEX:
            return _of_bytes(bytes.fromhex(text), column, timezone)
        case LiteralForm.BITS if len(text) > 8 * _MAX_DIGITS:
            return text
        case LiteralForm.BITS:
            raw = int(text or "0", 2).to_bytes(max((len(text) + 7) // 8, 1))
            return _of_bytes(raw, column, timezone)


_CODECS: Final = {"gbk": "gbk", "gb18030": "gb18030"}


def _of_bytes(raw: bytes, column: ColumnSchema, timezone: str) -> Sent:
    kind = kind_of(column)
    if kind is Kind.BIT:
        return _number_of_bytes(raw)
    if kind is Kind.BINARY:
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return raw
        # In text, the character for lost bytes would count as such.
        return raw if "\ufffd" in text else text
    if kind in (Kind.TEXT, Kind.ENUM, Kind.SET, Kind.JSON, Kind.VECTOR, Kind.UNKNOWN):
        return raw.decode(_CODECS.get(column.charset, "utf-8"), "replace")
    number = _number_of_bytes(raw)
    return "" if number is None else _of_number(str(number), column, timezone)


def _number_of_bytes(raw: bytes) -> int | None:
    # No BIT and no integer has more than eight bytes.
    return int.from_bytes(raw) if len(raw.lstrip(b"\0")) <= 8 else None


_TEXT: Final = ColumnSchema(name="", mysql_type="longtext", charset="utf8mb4")
_BIGINT: Final = ColumnSchema(name="", mysql_type="bigint")
_BY_NUMBER: Final = frozenset({Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP, Kind.ENUM, Kind.SET})
"""Kinds for which a number means another value than its digits as a text."""


def _of_number(digits: str, column: ColumnSchema, timezone: str) -> Sent:
    text = _number_text(digits)
    is_whole = shapes.INTEGER.fullmatch(text) is not None
    if kind_of(column) is Kind.BIT:
        return int(text) if is_whole else None
    by_number = is_whole and kind_of(column) in _BY_NUMBER
    return _of_literal(text, _BIGINT if by_number else _TEXT, column, timezone)


def _number_text(digits: str) -> str:
    """Return a number as TiDB prints a literal: integers and decimals exactly, floats in full."""
    if len(digits) > _MAX_DIGITS or shapes.NUMBER.fullmatch(digits) is None:
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


def _of_literal(text: str, source: ColumnSchema, column: ColumnSchema, timezone: str) -> str:
    value: str | None = text
    if kind_of(column) is Kind.TIMESTAMP:
        value = _timestamp(text, source, column, timezone)
    elif source is _BIGINT:
        value = _cast(text, source, column)
    return text if value is None else value


def _cast(text: str, source: ColumnSchema, column: ColumnSchema) -> str | None:
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
