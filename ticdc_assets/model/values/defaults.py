"""What ADD COLUMN gives to the rows that are already there.

In: the added column. Out: canonical text, or None for NULL. TiDB keeps a default as text and casts
it to the column (pkg/table/column.go), so this module is the cast from text, with three exceptions:
a BIT default is an integer, a TIMESTAMP default is in UTC (golden/QUIRKS.md B7), and
CURRENT_TIMESTAMP is the time of the statement. That time is not sent; the DDL's commit time takes
its place, so such values are right only to about the duration of the DDL. The first change of a row
brings the exact value.

Not known from a schema: defaults that are expressions other than CURRENT_TIMESTAMP (they look like
text; `registry.evolution` knows them by the text of the DDL), and bytes of a binary default that
are not UTF-8, which JSON replaced (`CastError`).
"""

import re
from dataclasses import replace
from datetime import UTC, datetime

from ticdc_assets.base.errors import CastError, shorten
from ticdc_assets.model.mysql_types import (
    Kind,
    decimal_size,
    declared_length,
    fractional_digits,
    is_char,
    kind_of,
    of_any_scale,
)
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import moments, shapes
from ticdc_assets.model.values.canonical import datetime_text, parse_datetime
from ticdc_assets.model.values.casts import cast_of
from ticdc_assets.model.values.zones import changefeed_zone, to_local

NOW = re.compile(
    r"(?:current_timestamp|now|localtime|localtimestamp)\s*(?:\(\s*[0-6]?\s*\))?", re.IGNORECASE
)
TODAY = re.compile(r"(?:current_date|curdate)\s*(?:\(\s*\))?", re.IGNORECASE)
"""Defaults that are the time of the statement, or its day."""

_REPLACEMENT = "\ufffd"


def default_text(column: ColumnSchema, timezone: str, *, at: datetime | None) -> str | None:
    """Return the canonical text that existing rows get in an added column.

    It is the default; without one NULL, or for NOT NULL the implicit default of the type. The
    physical time `at` of the DDL (aware) is for defaults that are the current time.

    Raises:
        CastError: the default is not a value of the column, or cannot be known.
        ConfigError: `timezone` is not a zone.
    """
    default = column.default
    kind = kind_of(column)
    if default is None:
        return None if column.nullable else _implicit(column)
    if isinstance(default, bytes):
        return _binary(default, column)
    text = str(default)
    if kind is Kind.UNKNOWN:
        return text
    if kind is Kind.BIT:
        return _cast(text, replace(column, mysql_type="bigint", unsigned=True), column, timezone)
    if kind in (Kind.DATETIME, Kind.TIMESTAMP) and NOW.fullmatch(text):
        return datetime_text(_now(column, timezone, at), fractional_digits(column))
    if kind is Kind.DATE and TODAY.fullmatch(text):
        return _now(column, timezone, at).date().isoformat()
    if is_lossy(column):
        raise CastError("lossy_default", column.name, "bytes that are UTF-8", shorten(text))
    # The default of a FLOAT(M,D) is rounded as it is sent, and no schema is sent with its D.
    column = of_any_scale(column)
    as_text = replace(column, mysql_type="longtext", charset="utf8mb4", length=0, elements=())
    if kind is Kind.TIMESTAMP:
        in_utc = _cast(text, as_text, replace(column, mysql_type="datetime"), timezone)
        return _from_utc(in_utc, column, timezone)
    return _cast(text, as_text, column, timezone)


def is_lossy(column: ColumnSchema) -> bool:
    """Return whether the message of a column's default could not hold its bytes."""
    default = column.default
    return isinstance(default, str) and _REPLACEMENT in default and kind_of(column) is Kind.BINARY


def _binary(content: bytes, column: ColumnSchema) -> str:
    if kind_of(column) is not Kind.BINARY:
        raise CastError("invalid_cast", column.name, f"{kind_of(column)}", shorten(content))
    # Values of BINARY(n) have n bytes.
    size = declared_length(column) if is_char(column) else 0
    return f"0x{content.ljust(size, bytes(1)).hex()}"


def _cast(text: str, source: ColumnSchema, column: ColumnSchema, timezone: str) -> str:
    value = cast_of(source, column, timezone)(text)
    # A cast returns None only for None.
    return "" if value is None else value


def _now(column: ColumnSchema, timezone: str, at: datetime | None) -> datetime:
    local = None if at is None else to_local(at, changefeed_zone(timezone))
    if local is None:
        raise CastError("unknown_time", column.name, "the time of the DDL", shorten(column.default))
    return local


def _from_utc(text: str, column: ColumnSchema, timezone: str) -> str:
    value = None if moments.is_zero(text) else parse_datetime(text)
    if value is None:
        return text
    local = to_local(value.replace(tzinfo=UTC), changefeed_zone(timezone))
    if local is None:
        raise CastError("invalid_cast", column.name, "a timestamp", shorten(text))
    return datetime_text(local, fractional_digits(column))


def _implicit(column: ColumnSchema) -> str:
    """Return what rows get in a NOT NULL column without a default."""
    match kind_of(column):
        case Kind.INTEGER | Kind.BIT | Kind.YEAR | Kind.FLOAT | Kind.DOUBLE:
            return "0"
        case Kind.DECIMAL:
            size = decimal_size(column)
            return shapes.pad_fraction("0", size[1] if size else 0)
        case Kind.DATE | Kind.DATETIME | Kind.TIMESTAMP | Kind.TIME:
            return moments.zero_text(column)
        case Kind.BINARY:
            return "0x" + bytes(declared_length(column) if is_char(column) else 0).hex()
        case Kind.ENUM:
            return column.elements[0] if column.elements else "1"
        case Kind.SET:
            return "" if column.elements else "0"
        case Kind.JSON:
            return "null"
        case Kind.VECTOR:
            return "[]"
        case Kind.TEXT | Kind.UNKNOWN:
            return ""
