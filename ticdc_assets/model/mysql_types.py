"""MySQL and TiDB column types: which kind a column is, its limits, and its Arrow type.

In: a `ColumnSchema`. Out: a `Kind` (what the values mean), the limits of the declared type, and
the Arrow type of the mirror's column, which holds every value of the declared type exactly.

Kinds come from one table over the base type. Spellings are forgiving (`integer`, `int unsigned`,
`varchar(20)`, `double precision`), since not every format sends the bare base type. Whether text
is binary is said by the type's name (`blob`, `binary`), as in TiCDC's own decoder, and for the
character types also by the charset `binary`.

A type that is not in the table is `Kind.UNKNOWN`: its values are kept as the text that was sent.
That is never an error, so a type that TiDB adds later costs precision and nothing else.
"""

import re
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache

import pyarrow as pa

from ticdc_assets.model.schemas import ColumnSchema


class Kind(StrEnum):
    """What the values of a column mean, without sizes and charsets."""

    INTEGER = "integer"
    BIT = "bit"
    YEAR = "year"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    DATE = "date"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    TIME = "time"
    TEXT = "text"
    BINARY = "binary"
    ENUM = "enum"
    SET = "set"
    JSON = "json"
    VECTOR = "vector"
    UNKNOWN = "unknown"
    """A type this package does not know: the text is kept as sent."""


INTEGER_BITS: dict[str, int] = {
    "tinyint": 8,
    "smallint": 16,
    "mediumint": 24,
    "int": 32,
    "bigint": 64,
}

_SYNONYM_LISTS: dict[str, str] = {
    "tinyint": "bool, boolean, int1",
    "smallint": "int2",
    "mediumint": "int3, middleint",
    "int": "int4, integer",
    "bigint": "int8, serial",
    "decimal": "numeric, dec, fixed, newdecimal",
    "float": "float4",
    "double": "real, float8, double precision",
    "year": "sql_tsi_year",
    "char": "character, nchar, national char, national character",
    "varchar": """
        varcharacter, nvarchar, varying, var_string, char varying, character varying,
        nchar varying, nchar varchar, nchar varcharacter, national varchar, national varcharacter,
        national char varying, national character varying
    """,
    "mediumtext": """
        long, long varchar, long varcharacter, long char varying, long character varying
    """,
    "mediumblob": "long varbinary",
    "vector": "tidbvectorfloat32, vector<float>",
}
SYNONYMS: dict[str, str] = {
    " ".join(name.split()): mysql_type
    for mysql_type, names in _SYNONYM_LISTS.items()
    for name in names.split(",")
}
"""Base types by their other names, in lower case, as DDL and messages write them."""

KINDS: dict[str, Kind] = {
    **dict.fromkeys(INTEGER_BITS, Kind.INTEGER),
    "bit": Kind.BIT,
    "year": Kind.YEAR,
    "decimal": Kind.DECIMAL,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "date": Kind.DATE,
    "newdate": Kind.DATE,
    "datetime": Kind.DATETIME,
    "timestamp": Kind.TIMESTAMP,
    "time": Kind.TIME,
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), Kind.TEXT),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), Kind.BINARY
    ),
    "enum": Kind.ENUM,
    "set": Kind.SET,
    "json": Kind.JSON,
    "vector": Kind.VECTOR,
}

TEXT_LIMITS: dict[str, int] = {
    "tinytext": 2**8 - 1,
    "text": 2**16 - 1,
    "mediumtext": 2**24 - 1,
    "longtext": 2**32 - 1,
}
"""The most bytes of each TEXT type."""

CLOCK_LENGTHS: dict[str, int] = {"datetime": 19, "timestamp": 19, "time": 10}
"""Lengths without fractional digits, which add a point and themselves."""

MAX_TYPED_DIGITS = 38
"""The widest DECIMAL that Arrow's decimal128, Spark and Delta hold."""

BIGINT_UNSIGNED_TYPE = pa.decimal128(20, 0)
"""Holds 0 to 2^64-1, which no signed integer type does."""

_DEFAULT_LENGTHS = {"float": 12, "double": 22}

_SIZE = re.compile(r"\(\s*([0-9]{1,10})\s*(?:,\s*([0-9]{1,10})\s*)?\)")


def base_type(column: ColumnSchema) -> str:
    """Return the base type in its usual spelling, e.g. `int` for `INTEGER(11) UNSIGNED`."""
    words = column.mysql_type.lower().split("(", 1)[0].split()
    for count in (3, 2, 1):
        name = " ".join(words[:count])
        name = SYNONYMS.get(name, name)
        if name in KINDS:
            return name
    return " ".join(words)


@lru_cache(maxsize=65536)
def kind_of(column: ColumnSchema) -> Kind:
    """Return the kind of `column`; `Kind.UNKNOWN` for a type this package does not know."""
    kind = KINDS.get(base_type(column), Kind.UNKNOWN)
    if kind is Kind.TEXT and column.charset.lower() == "binary":
        return Kind.BINARY
    return kind


def is_unsigned(column: ColumnSchema) -> bool:
    """Return whether `column` is UNSIGNED, by its flag or by its spelled type (or ZEROFILL)."""
    words = column.mysql_type.lower().split()
    return column.unsigned or column.zerofill or "unsigned" in words or "zerofill" in words


def is_char(column: ColumnSchema) -> bool:
    """Return whether `column` is CHAR or BINARY (not VARCHAR, VARBINARY, TEXT or BLOB)."""
    return base_type(column) in ("char", "binary")


def integer_range(column: ColumnSchema) -> tuple[int, int]:
    """Return the lowest and highest value of an INTEGER, BIT or YEAR column."""
    match kind_of(column):
        case Kind.BIT:
            return 0, 2 ** bit_width(column) - 1
        case Kind.YEAR:
            return 0, 2155
        case _:
            bits = INTEGER_BITS[base_type(column)]
            low = 0 if is_unsigned(column) else -(2 ** (bits - 1))
            high = 2**bits if is_unsigned(column) or lacks_sign(column) else 2 ** (bits - 1)
            return low, high - 1


def lacks_sign(column: ColumnSchema) -> bool:
    """Return whether no message says if an integer `column` is UNSIGNED.

    Its type holds the values of both, and its `decimal` is -1.
    """
    return column.decimal < 0 and not is_unsigned(column) and kind_of(column) is Kind.INTEGER


def exceeds_int64(column: ColumnSchema) -> bool:
    """Return whether an INTEGER, BIT or YEAR column needs DECIMAL(20,0) instead of an integer."""
    return integer_range(column)[1] > 2**63 - 1


def bit_width(column: ColumnSchema) -> int:
    """Return the n of BIT(n); 64, which holds any, where it was not sent."""
    length = declared_length(column)
    return length if 1 <= length <= 64 else 64


def declared_length(column: ColumnSchema) -> int:
    """Return the declared length, from the field or the spelled type; 0 if unknown."""
    if column.length > 0:
        return column.length
    size = _SIZE.search(column.mysql_type)
    return int(size[1]) if size else 0


def decimal_size(column: ColumnSchema) -> tuple[int, int] | None:
    """Return precision and scale of a DECIMAL column, or None where they were not sent."""
    if column.length > 0:
        precision, scale = column.length, max(column.decimal, 0)
    else:
        size = _SIZE.search(column.mysql_type)
        if size is None:
            return None
        precision, scale = int(size[1]), int(size[2] or 0)
    return (precision, scale) if scale <= precision else None


def fractional_digits(column: ColumnSchema) -> int:
    """Return the digits of fractional seconds of a DATETIME, TIMESTAMP or TIME column, 0 to 6.

    Simple Avro does not send them for these types (golden/QUIRKS.md B7), so where `decimal` is 0
    the display length has them: DATETIME(6) is 26 wide, that is 19, a point and six digits.
    """
    if column.decimal > 0:
        return min(column.decimal, 6)
    plain = CLOCK_LENGTHS.get(base_type(column))
    if plain is None or column.length <= 0:
        size = _SIZE.search(column.mysql_type)
        return min(int(size[1]), 6) if size and plain is not None else 0
    digits = column.length - plain - 1
    return digits if 1 <= digits <= 6 else 0


def float_scale(column: ColumnSchema) -> int | None:
    """Return the D of FLOAT(M,D): None without a D, -1 if it was not sent."""
    if column.decimal > 0:
        return column.decimal
    length = declared_length(column)
    return None if length in (0, _DEFAULT_LENGTHS[base_type(column)]) else -1


def of_any_scale(column: ColumnSchema) -> ColumnSchema:
    """Return a FLOAT(M,D) or DOUBLE(M,D) whose D was not sent as one without M and D.

    It holds the values of any D; other columns stay as they are.
    """
    if kind_of(column) not in (Kind.FLOAT, Kind.DOUBLE) or float_scale(column) != -1:
        return column
    return replace(column, length=0)


def text_length(column: ColumnSchema) -> int:
    """Return the length of a text column: characters, for the TEXT types bytes; 0 if unknown."""
    return TEXT_LIMITS.get(base_type(column)) or declared_length(column)


def lacks_size(column: ColumnSchema) -> bool:
    """Return whether no message says what the values of `column` depend on.

    That is precision and scale of DECIMAL, the fraction of the time types, the labels of ENUM and
    SET. Such a column keeps values as they were sent: DECIMAL and times as their text, ENUM and SET
    as their number.
    """
    match kind_of(column):
        case Kind.DECIMAL:
            return decimal_size(column) is None
        case Kind.DATETIME | Kind.TIMESTAMP | Kind.TIME:
            # The length gives the fraction where the field itself does not.
            return column.decimal < 0 and declared_length(column) <= 0
        case Kind.ENUM | Kind.SET:
            return not column.elements
        case _:
            return False


_SIGNED_TYPES: tuple[pa.DataType, ...] = (pa.int8(), pa.int16(), pa.int32(), pa.int64())

_ARROW_TYPES: dict[Kind, pa.DataType] = {
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.DATE: pa.date32(),
    Kind.DATETIME: pa.timestamp("us"),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.BINARY: pa.binary(),
    Kind.VECTOR: pa.list_(pa.float32()),
    **dict.fromkeys(
        (Kind.TIME, Kind.TEXT, Kind.ENUM, Kind.SET, Kind.JSON, Kind.UNKNOWN), pa.string()
    ),
}


def arrow_type(column: ColumnSchema) -> pa.DataType:
    """Return the Arrow type of the mirror's column for `column`.

    It holds every value of the declared type exactly: integers go to the smallest signed type;
    DECIMAL beyond 38 digits and columns that `lacks_size` to text.
    """
    kind = kind_of(column)
    if lacks_size(column):
        return pa.string()
    if kind in (Kind.INTEGER, Kind.BIT, Kind.YEAR):
        highest = integer_range(column)[1]
        fitting = (arrow for arrow in _SIGNED_TYPES if highest < 2 ** (arrow.bit_width - 1))
        return next(fitting, BIGINT_UNSIGNED_TYPE)
    if kind is Kind.DECIMAL:
        size = decimal_size(column)
        if size is None or size[0] > MAX_TYPED_DIGITS:
            return pa.string()
        return pa.decimal128(*size)
    return _ARROW_TYPES[kind]
