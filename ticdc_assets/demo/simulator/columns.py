"""Columns of the stand-in upstream: from a type's SQL to a `ColumnSchema`, and values by type.

In: a column as SQL writes it (`"decimal(12,2)"`). Out: the `ColumnSchema` TiCDC would send for
it (lengths, character sets, defaults as they travel), its SQL back, its default and its zero in
canonical text, the text a row has after MODIFY COLUMN, and random values. SQL is written as TiDB's
parser writes it (`Restore` in pingcap/tidb pkg/parser/ast/ddl.go): the new TiCDC sends such texts.
`as_typed` returns them as people type them.

All of it is written here once more, small and apart from the package's own reading of MySQL's
types, because the simulator's truth must not rest on the code that it is there to check.

Not handled: generated columns, expressions as defaults but CURRENT_TIMESTAMP, and MODIFY COLUMN
between kinds for which `modified_value` has no rule (it raises).
"""

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final
from zoneinfo import ZoneInfo

from ticdc_assets.model.schemas import ColumnSchema, IndexSchema

_TYPE: Final = re.compile(
    r"(?P<base>[a-z]+)\s*(?:\((?P<arguments>.*)\))?(?P<attributes>[a-z0-9_ ]*)", re.DOTALL
)
_CANONICAL_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")
_SQL_PART: Final = re.compile(
    r"(?P<kept>'(?:[^']|'')*'|`(?:[^`]|``)*`|/\*.*?\*/)|[^'`/]+|/", re.DOTALL
)

_INTEGER_BITS: Final[Mapping[str, int]] = {
    "tinyint": 8,
    "smallint": 16,
    "mediumint": 24,
    "int": 32,
    "bigint": 64,
}
_INTEGER_LENGTHS: Final[Mapping[str, tuple[int, int]]] = {
    "tinyint": (4, 3),
    "smallint": (6, 5),
    "mediumint": (9, 8),
    "int": (11, 10),
    "bigint": (20, 20),
}
_FIXED_LENGTHS: Final[Mapping[str, int]] = {
    "float": 12,
    "double": 22,
    "date": 10,
    "year": 4,
    "json": 2**32 - 1,
    "tinytext": 2**8 - 1,
    "text": 2**16 - 1,
    "mediumtext": 2**24 - 1,
    "longtext": 2**32 - 1,
    "tinyblob": 2**8 - 1,
    "blob": 2**16 - 1,
    "mediumblob": 2**24 - 1,
    "longblob": 2**32 - 1,
}
_CLOCK_LENGTHS: Final[Mapping[str, int]] = {"datetime": 19, "timestamp": 19, "time": 10}
_DEFAULT_LENGTHS: Final[Mapping[str, int]] = {"char": 1, "binary": 1, "bit": 1, "decimal": 10}
TEXT_TYPES: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
BINARY_TYPES: Final = frozenset(
    {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
)  # fmt: skip
INTEGER_TYPES: Final = frozenset(_INTEGER_BITS)
_LABELLED: Final = frozenset({"enum", "set"})
_CHARSET: Final = "_UTF8MB4"
NUMBER_TYPES: Final = frozenset(_INTEGER_BITS) | {"decimal", "float", "double"}
_EXACT: Final = Context(prec=100)

CURRENT_TIMESTAMP: Final = "CURRENT_TIMESTAMP"
"""The default of a DATETIME or TIMESTAMP column that is the moment of the statement."""


def column(
    name: str, sql_type: str, *, nullable: bool = True, default: str | int | None = None
) -> ColumnSchema:
    """Return the schema of a column of the given SQL type.

    Args:
        name: column name.
        sql_type: type in lower case, e.g. `"bigint unsigned"`, `"enum('a','it''s')"`,
            `"varchar(20) charset latin1"`.
        nullable: False for NOT NULL.
        default: default as it travels: text, an integer for BIT, UTC for TIMESTAMP.

    Raises:
        ValueError: the type is not one of TiDB's.
    """
    match = _TYPE.fullmatch(sql_type.strip())
    if match is None:
        raise ValueError(f"not a column type: {sql_type!r}")
    base, arguments = match["base"], match["arguments"]
    attributes = match["attributes"].split()
    zerofill = "zerofill" in attributes
    unsigned = zerofill or "unsigned" in attributes
    labels: tuple[str, ...] = ()
    numbers: list[int] = []
    if base in _LABELLED:
        labels = tuple(label.replace("''", "'") for label in _LABEL.findall(arguments or ""))
    elif arguments is not None:
        numbers = [int(number) for number in arguments.split(",")]
    length, decimal = _length_and_decimal(base, numbers, unsigned=unsigned, labels=labels)
    charset, collation = "binary", "binary"
    if base in TEXT_TYPES or base in _LABELLED:
        charset = (
            attributes[attributes.index("charset") + 1] if "charset" in attributes else "utf8mb4"
        )
        collation = "gbk_chinese_ci" if charset == "gbk" else f"{charset}_bin"
    return ColumnSchema(
        name=name,
        mysql_type=base,
        charset=charset,
        collation=collation,
        length=length,
        decimal=decimal,
        elements=labels,
        unsigned=unsigned or base in ("bit", "year"),
        zerofill=zerofill or base == "year",
        nullable=nullable,
        default=default,
    )


def _length_and_decimal(
    base: str, numbers: list[int], *, unsigned: bool, labels: tuple[str, ...]
) -> tuple[int, int]:
    if base in _INTEGER_LENGTHS:
        return (numbers[0] if numbers else _INTEGER_LENGTHS[base][unsigned]), 0
    if base in _CLOCK_LENGTHS:
        digits = numbers[0] if numbers else 0
        return _CLOCK_LENGTHS[base] + (digits + 1 if digits else 0), digits
    if base == "enum":
        return max(map(len, labels), default=0), 0
    if base == "set":
        return len(",".join(labels)), 0
    if base in ("float", "double"):
        # TiCDC sends no scale for them, FLOAT(10,3) or not.
        return (numbers[0] if numbers else _FIXED_LENGTHS[base]), 0
    if base in _FIXED_LENGTHS:
        return _FIXED_LENGTHS[base], 0
    if base in _DEFAULT_LENGTHS or base in ("varchar", "varbinary", "vector"):
        length = numbers[0] if numbers else _DEFAULT_LENGTHS.get(base, 0)
        return length, numbers[1] if len(numbers) > 1 else 0
    raise ValueError(f"not a column type: {base!r}")


def quoted(name: str) -> str:
    """Return `name` as a quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """Return `text` as an SQL string, as TiDB's parser writes it: a backslash escapes nothing."""
    return "'" + text.replace("'", "''") + "'"


def charset_literal(text: str) -> str:
    """Return `text` as an SQL string with its character set."""
    return _CHARSET + text_literal(text)


def _recased(sql: str, change: Callable[[str], str]) -> str:
    """Return a statement with its words changed, but not its names, texts and comments."""
    return _SQL_PART.sub(lambda part: part[0] if part["kept"] else change(part[0]), sql)


def as_shown(sql: str) -> str:
    """Return a statement that is written here as SHOW CREATE TABLE prints it."""
    return _recased(sql, lambda words: words.lower().removesuffix(_CHARSET.lower()))


def as_typed(sql: str) -> str:
    """Return a statement that is written here as a person types it, who escapes backslashes."""
    return _SQL_PART.sub(
        lambda part: part[0].replace("\\", "\\\\") if part[0][0] == "'" else part[0],
        as_shown(sql),
    )


def type_sql(schema: ColumnSchema) -> str:
    """Return the SQL type of a column as a person types it, e.g. `decimal(12,2)`."""
    base = schema.mysql_type
    if base in _LABELLED:
        text = f"{base}({','.join(map(text_literal, schema.elements))})"
    elif base == "decimal":
        text = f"decimal({schema.length},{schema.decimal})"
    elif base in _CLOCK_LENGTHS:
        text = f"{base}({schema.decimal})" if schema.decimal else base
    elif base in ("char", "varchar", "binary", "varbinary", "bit", "vector"):
        text = f"{base}({schema.length})"
    elif base == "tinyint" and schema.length == 1:
        text = "tinyint(1)"
    else:
        text = base
    if base in NUMBER_TYPES and schema.unsigned:
        text += " zerofill" if schema.zerofill else " unsigned"
    if schema.charset not in ("binary", "utf8mb4"):
        text += f" character set {schema.charset}"
    return text


def column_sql(schema: ColumnSchema, timezone: str) -> str:
    """Return the definition of a column as it is in CREATE TABLE or ALTER TABLE.

    Args:
        schema: the column.
        timezone: zone of the SQL session, in which a TIMESTAMP default is written.
    """
    kind = _recased(type_sql(schema), str.upper).replace(" ZEROFILL", " UNSIGNED ZEROFILL")
    text = f"{quoted(schema.name)} {kind}"
    if not schema.nullable:
        text += " NOT NULL"
    elif schema.mysql_type == "timestamp":
        text += " NULL"
    if schema.default is not None:
        text += f" DEFAULT {default_sql(schema, timezone)}"
    return text


def default_sql(schema: ColumnSchema, timezone: str) -> str:
    """Return a column's default as an SQL literal, for a session in the zone `timezone`."""
    if schema.default is None:
        return "NULL"
    if schema.default == CURRENT_TIMESTAMP:
        return f"{CURRENT_TIMESTAMP}({schema.decimal or ''})"
    if schema.mysql_type == "bit":
        return f"b'{int(schema.default):b}'"
    if schema.mysql_type == "timestamp":
        return charset_literal(default_value(schema, timezone) or "")
    return charset_literal(str(schema.default))


def default_value(schema: ColumnSchema, timezone: str, *, at: datetime | None = None) -> str | None:
    """Return a column's default in canonical text, None for NULL or none.

    Args:
        schema: the column, with its default as it travels.
        timezone: zone in which TIMESTAMPs are written in canonical text.
        at: the moment of the statement, for a default that is this moment.

    Raises:
        ValueError: the default is the moment of the statement, and that was not given.
    """
    if schema.default is None:
        return None
    if schema.default == CURRENT_TIMESTAMP:
        if at is None:
            raise ValueError(f"{schema.name!r} is the moment of the statement: give a value")
        return moment_text(at.astimezone(ZoneInfo(timezone)), schema.decimal)
    text = str(schema.default)
    base = schema.mysql_type
    if base == "decimal":
        return text_with_scale(Decimal(text), schema.decimal)
    if base in BINARY_TYPES:
        return binary_text(text.encode().ljust(schema.length if base == "binary" else 0, b"\0"))
    if base == "timestamp" and not text.startswith("0000"):
        at = datetime.fromisoformat(text).replace(tzinfo=UTC).astimezone(ZoneInfo(timezone))
        return moment_text(at, schema.decimal)
    if base in _CLOCK_LENGTHS:
        return text_with_digits(text, schema.decimal)
    return text


def zero_value(schema: ColumnSchema) -> str:
    """Return what rows get from ADD COLUMN ... NOT NULL without a default, in canonical text."""
    base = schema.mysql_type
    if base == "enum":
        return schema.elements[0]
    if base == "decimal":
        return text_with_scale(Decimal(0), schema.decimal)
    if base == "binary":
        return binary_text(bytes(schema.length))
    if base in _CLOCK_LENGTHS:
        zero = "00:00:00" if base == "time" else "0000-00-00 00:00:00"
        return text_with_digits(zero, schema.decimal)
    zeros = {"date": "0000-00-00", "json": "null", "vector": "[]", "set": ""}
    if base in zeros:
        return zeros[base]
    if base in BINARY_TYPES:
        return "0x"
    return "" if base in TEXT_TYPES else "0"


def modified_value(value: str | None, old: ColumnSchema, new: ColumnSchema) -> str | None:
    """Return the text a value has after MODIFY COLUMN.

    Raises:
        ValueError: there is no rule for these two types.
    """
    if value is None:
        return None
    source, target = old.mysql_type, new.mysql_type
    if target == "decimal" and source in NUMBER_TYPES:
        return text_with_scale(Decimal(value), new.decimal)
    if target in _INTEGER_BITS and source in NUMBER_TYPES:
        return text_with_scale(Decimal(value), 0)
    if target in _INTEGER_BITS and source == "varchar" and _CANONICAL_INTEGER.fullmatch(value):
        return value
    if target == "date" and source == "datetime" and not old.decimal:
        return value[:10]
    if target == "datetime" and source == "date":
        return text_with_digits(f"{value} 00:00:00", new.decimal)
    if target == source and target in _CLOCK_LENGTHS and new.decimal >= old.decimal:
        return text_with_digits(value, new.decimal)
    if target == source == "binary":
        return value + "00" * (new.length - old.length)
    same_family = any(
        source in family and target in family
        for family in (
            TEXT_TYPES,
            BINARY_TYPES - {"binary"},
            frozenset({"float", "double"}),
            _LABELLED,
        )
    )
    printed = NUMBER_TYPES | _LABELLED | {"date", "datetime", "json"}
    to_text = target in TEXT_TYPES and source in printed
    if same_family or to_text or source == target:
        return value
    raise ValueError(f"no rule to modify {type_sql(old)} to {type_sql(new)}")


def lenient_value(value: str | None, schema: ColumnSchema) -> str | None:
    """Return what a lenient SQL mode stores of a modified value; strict mode takes it as it is.

    Integers and DECIMAL are clipped, texts and bytes cut, an ENUM without the label is empty.
    """
    if value is None or fits(value, schema):
        return value
    base = schema.mysql_type
    if base in _INTEGER_BITS:
        bits = _INTEGER_BITS[base] - (not schema.unsigned)
        low = 0 if schema.unsigned else -(2**bits)
        return str(max(low, min(int(value), 2**bits - 1)))
    if base == "decimal":
        sign, digits = "-" * value.startswith("-"), "9" * schema.length
        whole = schema.length - schema.decimal
        return sign + (digits[:whole] or "0") + ("." + digits[whole:]) * bool(schema.decimal)
    if base in ("binary", "varbinary"):
        return value[: 2 + 2 * schema.length]
    return "" if base == "enum" else value[: schema.length]


def fits(value: str | None, schema: ColumnSchema) -> bool:
    """Return whether strict mode takes a modified value for a column, by its range or length."""
    base = schema.mysql_type
    if value is None:
        return schema.nullable
    if base in _INTEGER_BITS:
        bits = _INTEGER_BITS[base]
        low, high = (0, 2**bits) if schema.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        return low <= int(value) < high
    if base == "decimal":
        return abs(Decimal(value)) < 10 ** (schema.length - schema.decimal)
    if base in ("char", "varchar"):
        return len(value) <= schema.length
    if base in ("binary", "varbinary"):
        return len(value) // 2 - 1 <= schema.length
    if base == "enum":
        return value in schema.elements
    return True


def rewrites_rows(old: ColumnSchema, new: ColumnSchema) -> bool:
    """Return whether MODIFY COLUMN rewrites rows: the column then gets a new id, the highest."""
    if old.unsigned != new.unsigned:
        return True
    if old.mysql_type != new.mysql_type:
        widens = (
            old.mysql_type in _INTEGER_BITS
            and new.mysql_type in _INTEGER_BITS
            and _INTEGER_BITS[old.mysql_type] < _INTEGER_BITS[new.mysql_type]
        )
        longer = (
            old.mysql_type in TEXT_TYPES
            and new.mysql_type in TEXT_TYPES
            and new.length >= old.length
        )
        return not (widens or longer)
    if old.mysql_type in _LABELLED:
        return new.elements[: len(old.elements)] != old.elements
    if old.mysql_type == "decimal" or old.mysql_type in _CLOCK_LENGTHS:
        return (old.length, old.decimal) != (new.length, new.decimal)
    return new.length < old.length


def moment_text(at: datetime, digits: int) -> str:
    """Return a moment as TiDB prints it, with the given number of fractional digits."""
    text = at.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{at.microsecond:06d}"[: 20 + digits] if digits else text


def text_with_digits(text: str, digits: int) -> str:
    """Return a moment or a time with so many fractional digits, the others cut off."""
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.ljust(digits, '0')[:digits]}" if digits else whole


def text_with_scale(number: Decimal, scale: int) -> str:
    """Return a number with so many decimals, rounded half up."""
    unit = Decimal(1).scaleb(-scale)
    rounded = number.quantize(unit, rounding=ROUND_HALF_UP, context=_EXACT)
    # MySQL has no negative zero.
    return f"{abs(rounded) if rounded.is_zero() else rounded:f}"


def binary_text(value: bytes) -> str:
    """Return bytes in canonical text."""
    return "0x" + value.hex()


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


_WORDS: Final = (
    "alpha", "Straße", "naïve", "crème brûlée", "数据库", "データ", "İstanbul", "🚀", "👩‍👩‍👧",
    "O'Brien", '"quoted"', "back\\slash", "tab\there", "new\nline", "<b>&amp;</b>", "100%", "NULL",
    "", "null", "a,b;c", "`tick`", "-- no", "'; DROP TABLE x; --", "\u2028", "  lead", "0x00",
)  # fmt: skip
_FLOATS: Final = ("0", "1.5", "-0.125", "16777216", "0.1", "-559.75", "100000")
_DOUBLES: Final = ("0", "0.1", "-2.5", "1000000000000000000000", "123456789.12345679", "0.000001")


def random_text(rng: random.Random, limit: int) -> str:
    """Return up to a few words of text in several scripts, at most `limit` characters."""
    text = " ".join(rng.choice(_WORDS) for _ in range(rng.randint(1, 5)))
    # CHAR columns lose trailing blanks upstream; stripping for all types keeps one rule.
    return text[:limit].rstrip()


def random_timestamp(rng: random.Random, schema: ColumnSchema, *, timezone: str) -> str:
    """Return a moment in the months in which no zone turns its clocks."""
    at = datetime(rng.randint(1975, 2037), rng.choice((1, 2, 6, 7, 12)), 3, tzinfo=UTC)
    at += timedelta(days=rng.randrange(24), microseconds=rng.randrange(86_400_000_000))
    return moment_text(at.astimezone(ZoneInfo(timezone)), schema.decimal)


def _integer(rng: random.Random, schema: ColumnSchema) -> str:
    bits = _INTEGER_BITS[schema.mysql_type]
    low, high = (0, 2**bits - 1) if schema.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return str(rng.choice((low, high, 0, 1, rng.randint(low, high), rng.randint(low, high))))


def _decimal(rng: random.Random, schema: ColumnSchema) -> str:
    digits = schema.length - rng.choice((0, schema.length // 2))
    number = Decimal(rng.randrange(10 ** max(digits, 1)))
    if not schema.unsigned and rng.random() < 0.4:
        number = -number
    return text_with_scale(_EXACT.scaleb(number, -schema.decimal), schema.decimal)


def _float(rng: random.Random, schema: ColumnSchema) -> str:
    text = rng.choice((*_FLOATS, f"{rng.randrange(80_000) / 8:.3f}".rstrip("0").rstrip(".")))
    return text.lstrip("-") if schema.unsigned else text


def _double(rng: random.Random, schema: ColumnSchema) -> str:
    text = rng.choice((*_DOUBLES, f"{rng.randrange(10**9) / 64:.6f}".rstrip("0").rstrip(".")))
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


def _json(rng: random.Random, _: ColumnSchema) -> str:
    document = rng.choice(
        (
            {"n": rng.randrange(1000), "s": rng.choice(_WORDS)},
            {"a": [1, 2.5, {"c": None}], "é": "🚀"},
            [],
            {},
            None,
            True,
            rng.choice(_WORDS),
            {"big": 9007199254740993, "small": -1},
        )
    )
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _vector(rng: random.Random, schema: ColumnSchema) -> str:
    elements = (rng.choice(("0.1", "-2.5", "1", "0", "30000000000")) for _ in range(schema.length))
    return f"[{','.join(elements)}]"


_GENERATORS: Final[Mapping[str, Callable[[random.Random, ColumnSchema], str]]] = {
    **dict.fromkeys(_INTEGER_BITS, _integer),
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
    "json": _json,
    "vector": _vector,
}


def index_sql(index: IndexSchema) -> str:
    """Return an index as CREATE TABLE defines it."""
    kind = "UNIQUE" if index.unique else "INDEX"
    return f"{kind} {quoted(index.name)}({names_sql(index.columns)})"


def names_sql(columns: Iterable[str]) -> str:
    """Return names of columns as a statement lists them."""
    return ", ".join(map(quoted, columns))


def charset_sql(charset: str) -> str:
    """Return the clause of a database's character set, "" for none."""
    return f" CHARACTER SET = {charset}" if charset else ""


def path_sql(name: tuple[str, str]) -> str:
    """Return (database, table) as a statement names it."""
    return f"{quoted(name[0])}.{quoted(name[1])}"
