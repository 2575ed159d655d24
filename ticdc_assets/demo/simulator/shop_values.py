"""What the shop writes into a column: values that look like those of a real shop.

In: dice, a column, and the time in the shop's zone. Out: a value in canonical text, by the name of
the column where it has a meaning here, else by its type: names, places, prices, times of today.
The same dice give the same value. The odd values of each type (`odd_value`), which break readers,
are in the table `shop.ODD_VALUES` alone.
"""

import json
import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, TypeAlias

from ticdc_assets.demo.simulator.columns import (
    BINARY_TYPES,
    INTEGER_TYPES,
    TEXT_TYPES,
    binary_text,
    moment_text,
    text_with_digits,
    text_with_scale,
)
from ticdc_assets.model.mysql_types import CLOCK_LENGTHS, integer_range
from ticdc_assets.model.schemas import ColumnSchema

_Generator: TypeAlias = Callable[[random.Random, ColumnSchema, datetime], str]

FIRST_NAMES: Final = (
    "Mia", "Lukas", "Amina", "Sofia", "Mei", "José", "Priya", "Noah", "Zoë", "Kenji", "Fatou",
    "Emma", "Mateo", "Ingrid", "Ravi", "Chloe", "Omar", "Hana", "Liam", "Ana", "李娜", "Björn",
)  # fmt: skip
LAST_NAMES: Final = (
    "Wagner", "Tanaka", "Diallo", "Reyes", "Vogel", "O'Brien", "Patel", "Novak", "Silva", "Kim",
    "Larsen", "Rossi", "Haddad", "Moreau", "Sato", "García", "Fischer", "Nguyen", "Okafor", "Berg",
)  # fmt: skip
CITIES: Final = (
    "Hamburg", "Osaka", "Dakar", "Valencia", "Leipzig", "Dublin", "Pune", "Brno", "Porto", "Busan",
    "Bergen", "Bologna", "Lyon", "São Paulo", "Lagos", "Uppsala", "Zürich", "上海",
)  # fmt: skip
WAREHOUSES: Final = ("Rotterdam", "Hamburg", "Shanghai", "Santos")
PRODUCTS: Final = ("TEA", "MUG", "POT", "TIN", "CUP", "JAR", "KIT", "BAG")

_NOTES: Final = (
    "leave it at the door", "ring twice", "gift wrap, please", "call before delivery",
    "second floor", "fragile", "back in stock soon", "for the office", "thank you!",
)  # fmt: skip
_BODIES: Final = (
    "Arrived early and well packed.", "Nice colour, a bit small.", "Would buy it again.",
    "The lid was loose; the shop sent another one.", "Exactly as described.", "Good value.",
)  # fmt: skip
_AGENTS: Final = (
    "Mozilla/5.0 (X11; Linux x86_64) Firefox/143.0", "Mozilla/5.0 (iPhone) Safari/605.1.15",
    "Mozilla/5.0 (Windows NT 10.0) Chrome/140.0", "ShopApp/4.2 (Android 16)",
)  # fmt: skip
_BIOS: Final = (
    "likes green tea", "collects mugs", "buys for a café", "new in town", "tea, books, two cats",
)  # fmt: skip
_PAGES: Final = ("/", "/sale", "/tea", "/mugs", "/cart", "/search?q=teapot")

WORDS: Final = (
    "alpha", "Straße", "naïve", "crème brûlée", "数据库", "データ", "İstanbul", "🚀", "👩‍👩‍👧",
    "O'Brien", '"quoted"', "back\\slash", "tab\there", "new\nline", "<b>&amp;</b>", "100%", "NULL",
    "", "null", "a,b;c", "`tick`", "-- no", "'; DROP TABLE x; --", "\u2028", "  lead", "0x00",
)  # fmt: skip
ODD: Final[Mapping[str, tuple[str, ...]]] = {
    "float": ("0", "1.5", "-0.125", "16777216", "0.1", "-559.75", "100000"),
    "double": ("0", "0.1", "-2.5", "1000000000000000000000", "123456789.12345679", "0.000001"),
    "date": ("1000-01-01", "9999-12-31", "2024-02-29", "1970-01-01"),
    "datetime": ("1000-01-01 00:00:00", "9999-12-31 23:59:59", "2024-02-29 12:34:56.789012"),
    "timestamp": ("1975-01-03 00:00:00.000001", "2024-12-31 23:59:59.999999"),
    "time": ("-838:59:59", "838:59:59", "00:00:00.000001", "-00:00:01.5"),
    "year": ("0", "1901", "2155"),
    "json": ('{"a":[1,2.5,{"c":null}],"é":"🚀"}', "[]", "{}", "null", "true", '"O\'Brien"',
             '{"big":9007199254740993,"small":-1}'),
    "vector": ("[0.1,-2.5,0]", "[30000000000,1,-0.5]"),
}  # fmt: skip
"""Values of types that break readers."""

ALWAYS: Final = frozenset(
    {"name", "email", "city", "created", "updated", "total", "amount", "fee", "paid_at", "qty"}
    | {"price", "stars", "kind", "at", "sku", "title", "balance"}
)
"""Columns that may be NULL and never are in a real shop."""


def price(rng: random.Random) -> Decimal:
    """Return a price as shops like them: 0.49 to 149.99."""
    return Decimal(rng.randrange(0, 150)) + rng.choice((Decimal("0.49"), Decimal("0.99")))


def plain_value(rng: random.Random, schema: ColumnSchema, now: datetime) -> str:
    """Return a value of a column, not NULL, in canonical text; `now` is in the zone of moments."""
    of_name = _BY_NAME.get(schema.name)
    if of_name is not None and schema.mysql_type in TEXT_TYPES:
        return of_name(rng)[: schema.length]
    return _BY_TYPE[schema.mysql_type](rng, schema, now)


def odd_value(rng: random.Random, schema: ColumnSchema, now: datetime) -> str:
    """Return an extreme or unusual value of a column, not NULL, in canonical text."""
    base, length = schema.mysql_type, schema.length
    if base in INTEGER_TYPES:
        return str(rng.choice((*integer_range(schema), 0, 1)))
    if base == "decimal":
        nines = f"{'9' * (length - schema.decimal)}.{'9' * schema.decimal}"
        few = [text_with_scale(Decimal(text), schema.decimal) for text in ("-0.5", "0", "12.75")]
        return rng.choice((nines, f"-{nines}", *few))
    if base == "bit":
        return str(rng.choice((0, 2**length - 1)))
    if base in TEXT_TYPES:
        texts = [text for text in WORDS if text.isascii() or schema.charset == "utf8mb4"]
        return rng.choice(texts)[:length]
    if base in BINARY_TYPES:
        content = rng.choice((b"", b"\0\xff", rng.randbytes(8)))
        return binary_text(content.ljust(length if base == "binary" else 0, b"\0"))
    if base in CLOCK_LENGTHS:
        return text_with_digits(rng.choice(ODD[base]), schema.decimal)
    return rng.choice(ODD[base]) if base in ODD else plain_value(rng, schema, now)


def number_text(number: Decimal) -> str:
    """Return a number as a FLOAT or DOUBLE column stores it."""
    return f"{number.normalize():f}" if number else "0"


def full_name(rng: random.Random) -> str:
    """Return the name of a person."""
    return f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}"


def _one_of(*texts: str) -> Callable[[random.Random], str]:
    return lambda rng: rng.choice(texts)


_BY_NAME: Final[Mapping[str, Callable[[random.Random], str]]] = {
    "name": full_name,
    "sku": lambda rng: f"{rng.choice(PRODUCTS)}-{rng.randrange(1, 100):04d}",
    "city": _one_of(*CITIES),
    "note": _one_of(*_NOTES),
    "body": _one_of(*_BODIES),
    "agent": _one_of(*_AGENTS),
    "bio": _one_of(*_BIOS),
    "kind": _one_of("home", "search", "product", "checkout"),
    "title": _one_of("Spring sale", "Two for one", "Free shipping", "Tea week"),
    "warehouse": _one_of(*WAREHOUSES),
}
"""Texts by the name of their column."""


def _integer(rng: random.Random, schema: ColumnSchema, _: datetime) -> str:
    if schema.length == 1:
        return str(rng.randrange(2))
    return str(rng.randint(1, 5 if schema.name == "stars" else 100))


def _decimal(rng: random.Random, schema: ColumnSchema, _: datetime) -> str:
    if schema.name in ("discount", "fee"):
        return text_with_scale(Decimal(rng.randrange(1, 40)) / 100, schema.decimal)
    return text_with_scale(price(rng), schema.decimal)


def _fraction(rng: random.Random, _: ColumnSchema, __: datetime) -> str:
    return number_text(Decimal(rng.randrange(5, 500)) / 100)


def _moment(rng: random.Random, schema: ColumnSchema, now: datetime) -> str:
    """Return a moment of the last hours, and of today."""
    hours = timedelta(hours=4)
    today = now - now.replace(hour=0, minute=0, second=0, microsecond=0)
    back = timedelta(microseconds=rng.randrange(4 * 3_600_000_000))
    # Soon after midnight, the hours of the day so far.
    return moment_text(now - back * (min(today, hours) / hours), schema.decimal)


def _birthday(rng: random.Random, _: ColumnSchema, now: datetime) -> str:
    return f"{now - timedelta(days=rng.randrange(18 * 365, 80 * 365)):%Y-%m-%d}"


def _span(rng: random.Random, schema: ColumnSchema, _: datetime) -> str:
    seconds, micros = rng.randrange(5, 1800), rng.randrange(10**6)
    text = f"00:{seconds // 60:02d}:{seconds % 60:02d}.{micros:06d}"
    return text_with_digits(text, schema.decimal)


def _year(rng: random.Random, _: ColumnSchema, now: datetime) -> str:
    return str(now.year - rng.randrange(8))


def _word(rng: random.Random, schema: ColumnSchema, _: datetime) -> str:
    return f"{rng.choice(PRODUCTS).lower()} {rng.randrange(1000)}"[: schema.length]


def _bytes(rng: random.Random, schema: ColumnSchema, _: datetime) -> str:
    if schema.name in ("photo", "img", "banner"):
        content = b"\xff\xd8\xff\xe0" + rng.randbytes(8)
    else:
        content = f"INV-{rng.randrange(10**6):06d}".encode()
    size = schema.length if schema.mysql_type == "binary" else 0
    return binary_text(content[: schema.length].ljust(size, b"\0"))


def _labels(rng: random.Random, schema: ColumnSchema, _: datetime) -> str:
    return ",".join(label for label in schema.elements if rng.random() < 0.4)


def _json(rng: random.Random, schema: ColumnSchema, _: datetime) -> str:
    if schema.name == "profile":
        document = {"language": rng.choice(("de", "en", "ja", "pt")), "news": rng.random() < 0.5}
    else:
        document = {"ms": rng.randrange(20, 900), "page": rng.choice(_PAGES)}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _vector(rng: random.Random, schema: ColumnSchema, _: datetime) -> str:
    elements = (number_text(Decimal(rng.randrange(-99, 100)) / 100) for _ in range(schema.length))
    return f"[{','.join(elements)}]"


_BY_TYPE: Final[Mapping[str, _Generator]] = {
    **dict.fromkeys(INTEGER_TYPES, _integer),
    **dict.fromkeys(TEXT_TYPES, _word),
    **dict.fromkeys(BINARY_TYPES, _bytes),
    **dict.fromkeys(("float", "double"), _fraction),
    **dict.fromkeys(("datetime", "timestamp"), _moment),
    "decimal": _decimal,
    "bit": lambda rng, schema, _: str(rng.randrange(min(8, 2**schema.length))),
    "date": _birthday,
    "time": _span,
    "year": _year,
    "enum": lambda rng, schema, _: rng.choice(schema.elements),
    "set": _labels,
    "json": _json,
    "vector": _vector,
}
