"""Random values of every type, in canonical text; extremes come up often."""

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Final
from zoneinfo import ZoneInfo

from ticdc_assets.demo.simulator.columns import (
    BINARY_TYPES,
    INTEGER_TYPES,
    TEXT_TYPES,
    binary_text,
    moment_text,
    text_with_digits,
    text_with_scale,
)
from ticdc_assets.demo.simulator.shop_values import ODD, WORDS
from ticdc_assets.model.mysql_types import integer_range
from ticdc_assets.model.schemas import ColumnSchema

_EXACT: Final = Context(prec=100)


def random_value(rng: random.Random, schema: ColumnSchema, *, timezone: str) -> str:
    """Return a random value of a column, not NULL, in canonical text.

    Extremes of the type come up often: they are what breaks readers.

    Args:
        rng: source of randomness.
        schema: the column.
        timezone: zone in which TIMESTAMPs are written in canonical text.

    Raises:
        ValueError: the type is not one of TiDB's.
    """
    if schema.mysql_type == "timestamp":
        return random_timestamp(rng, schema, timezone=timezone)
    generate = _GENERATORS.get(schema.mysql_type)
    if generate is None:
        raise ValueError(f"no values for type {schema.mysql_type!r}")
    return generate(rng, schema)


def random_text(rng: random.Random, limit: int) -> str:
    """Return up to a few words of text in several scripts, at most `limit` characters."""
    text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 5)))
    # CHAR columns lose trailing blanks upstream; stripping for all types keeps one rule.
    return text[:limit].rstrip()


def random_timestamp(rng: random.Random, schema: ColumnSchema, *, timezone: str) -> str:
    """Return a moment in the months in which no zone turns its clocks."""
    at = datetime(rng.randint(1975, 2037), rng.choice((1, 2, 6, 7, 12)), 3, tzinfo=UTC)
    at += timedelta(days=rng.randrange(24), microseconds=rng.randrange(86_400_000_000))
    return moment_text(at.astimezone(ZoneInfo(timezone)), schema.decimal)


def _integer(rng: random.Random, schema: ColumnSchema) -> str:
    low, high = integer_range(schema)
    return str(rng.choice((low, high, 0, 1, rng.randint(low, high), rng.randint(low, high))))


def _decimal(rng: random.Random, schema: ColumnSchema) -> str:
    digits = schema.length - rng.choice((0, schema.length // 2))
    number = Decimal(rng.randrange(10 ** max(digits, 1)))
    if not schema.unsigned and rng.random() < 0.4:
        number = -number
    return text_with_scale(_EXACT.scaleb(number, -schema.decimal), schema.decimal)


def _float(rng: random.Random, schema: ColumnSchema) -> str:
    text = rng.choice((*ODD["float"], f"{rng.randrange(80_000) / 8:.3f}".rstrip("0").rstrip(".")))
    return text.lstrip("-") if schema.unsigned else text


def _double(rng: random.Random, schema: ColumnSchema) -> str:
    text = rng.choice((*ODD["double"], f"{rng.randrange(10**9) / 64:.6f}".rstrip("0").rstrip(".")))
    return text.lstrip("-") if schema.unsigned else text


def _bit(rng: random.Random, schema: ColumnSchema) -> str:
    return str(rng.choice((0, 2**schema.length - 1, rng.getrandbits(schema.length))))


def _date(rng: random.Random, _: ColumnSchema) -> str:
    fixed = ("1000-01-01", "9999-12-31", "2024-02-29", "1970-01-01")
    at = datetime(1900, 1, 1, tzinfo=UTC) + timedelta(days=rng.randrange(60_000))
    return rng.choice((*fixed, at.strftime("%Y-%m-%d"), at.strftime("%Y-%m-%d")))


def _datetime(rng: random.Random, schema: ColumnSchema) -> str:
    at = datetime(1900, 1, 1, tzinfo=UTC) + timedelta(
        days=rng.randrange(60_000), microseconds=rng.randrange(86_400_000_000)
    )
    fixed = text_with_digits("9999-12-31 23:59:59", schema.decimal)
    return rng.choice((fixed, *[moment_text(at, schema.decimal)] * 5))


def _time(rng: random.Random, schema: ColumnSchema) -> str:
    sign = rng.choice(("", "", "-"))
    hours = rng.choice((1, 23, 100, 838, rng.randrange(1, 838)))
    text = f"{sign}{hours:02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}"
    fraction = 0 if hours == 838 else rng.randrange(10**6)
    return text_with_digits(f"{text}.{fraction:06d}", schema.decimal)


def _year(rng: random.Random, _: ColumnSchema) -> str:
    return str(rng.choice((0, 1901, 2155, rng.randint(1902, 2154))))


def _text(rng: random.Random, schema: ColumnSchema) -> str:
    limit = min(schema.length, 200)
    if schema.charset in ("ascii", "latin1"):
        return "".join(chr(rng.randint(33, 126)) for _ in range(rng.randint(0, min(limit, 24))))
    if schema.charset == "gbk":
        return "".join(rng.choice("数据库中文abc12") for _ in range(rng.randint(0, min(limit, 24))))
    return random_text(rng, limit)


def _bytes(rng: random.Random, schema: ColumnSchema) -> str:
    if schema.mysql_type == "binary":
        content = rng.randbytes(rng.randint(0, schema.length)).ljust(schema.length, b"\0")
    else:
        content = rng.randbytes(rng.randint(0, min(schema.length, 48)))
    return binary_text(content)


def _enum(rng: random.Random, schema: ColumnSchema) -> str:
    return rng.choice(schema.elements)


def _set(rng: random.Random, schema: ColumnSchema) -> str:
    return ",".join(label for label in schema.elements if rng.random() < 0.5)


def _vector(rng: random.Random, schema: ColumnSchema) -> str:
    elements = (rng.choice(("0.1", "-2.5", "1", "0", "30000000000")) for _ in range(schema.length))
    return f"[{','.join(elements)}]"


_GENERATORS: Final[Mapping[str, Callable[[random.Random, ColumnSchema], str]]] = {
    **dict.fromkeys(INTEGER_TYPES, _integer),
    **dict.fromkeys(TEXT_TYPES, _text),
    **dict.fromkeys(BINARY_TYPES, _bytes),
    "decimal": _decimal,
    "float": _float,
    "double": _double,
    "bit": _bit,
    "date": _date,
    "datetime": _datetime,
    "time": _time,
    "year": _year,
    "enum": _enum,
    "set": _set,
    "json": lambda rng, _: rng.choice(ODD["json"]),
    "vector": _vector,
}
