import pyarrow as pa
import pytest

from ticdc_assets.model.mysql_types import (
    Kind,
    arrow_type,
    decimal_size,
    fractional_digits,
    integer_range,
    kind_of,
)
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets_tests.cases import cases
from ticdc_assets_tests.model.values.columns import column


@pytest.mark.parametrize(
    ("kind", "types"),
    cases("""
integer -> int @ binary; INT UNSIGNED; integer; int(10) unsigned zerofill; bool; boolean; tinyint(1)
bit -> bit(10)
year -> year
decimal -> numeric(10,2); decimal
float -> float unsigned
double -> real; double precision
date -> date
datetime -> datetime(6)
timestamp -> timestamp
time -> time
text -> char @ utf8mb4; varchar(20) @ gbk; var_string @ latin1; character varying(3) @ ascii;
    longtext @ utf8mb4
binary -> char @ binary; varchar @ binary; text @ binary; varbinary(3) @ binary; mediumblob
enum -> enum('a','b c') @ utf8mb4
set -> set @ utf8mb4
json -> json @ binary
vector -> vector @ binary; vector<float>(3) @ binary; tidbvectorfloat32
unknown -> geometry @ binary; (; point in space;
"""),
)
def test_kind_is_told_by_type_and_charset(kind: str, types: str) -> None:
    for item in types.split(";"):
        mysql_type, _, charset = item.strip().partition(" @ ")
        schema = ColumnSchema(name="c", mysql_type=mysql_type, charset=charset)
        assert kind_of(schema) is Kind(kind), item


ARROW_TYPES = {
    pa.int8(): "tinyint; bit(1); bit(7)",
    pa.int16(): "tinyint unsigned; smallint; bit(8); bit(15); year",
    pa.int32(): "smallint unsigned; mediumint; mediumint unsigned; int; bit(16); bit(31)",
    pa.int64(): "int unsigned; bigint; bit(32); bit(63)",
    pa.decimal128(20, 0): "bigint unsigned; bit(64)",
    pa.decimal128(10, 2): "decimal(10,2)",
    pa.decimal128(38, 38): "decimal(38,38)",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us"): "datetime",
    pa.timestamp("us", tz="UTC"): "timestamp(6)",
    pa.binary(): "binary(3)",
    pa.list_(pa.float32()): "vector(3)",
    pa.string(): (
        "decimal(39,0); decimal(65,30); time(3); varchar(3); enum(a,b); set(a,b); json; geometry"
    ),
}


@pytest.mark.parametrize("wanted", ARROW_TYPES, ids=str)
def test_arrow_type_holds_the_declared_range(wanted: pa.DataType) -> None:
    for sql in ARROW_TYPES[wanted].split("; "):
        assert arrow_type(column(sql)) == wanted, sql


@pytest.mark.parametrize(
    ("sql", "low", "high"),
    [
        ("tinyint", -128, 127),
        ("mediumint unsigned", 0, 16777215),
        ("bigint", -(2**63), 2**63 - 1),
        ("bigint unsigned", 0, 2**64 - 1),
        ("bit(3)", 0, 7),
        ("bit(64)", 0, 2**64 - 1),
        ("year", 0, 2155),
    ],
)
def test_integer_ranges(sql: str, low: int, high: int) -> None:
    assert integer_range(column(sql)) == (low, high)


@pytest.mark.parametrize(
    ("schema", "digits"),
    [
        (column("datetime"), 0),
        (column("datetime(3)"), 3),
        (column("datetime(6)", decimal=0), 6),
        (column("time(6)", decimal=0), 6),
        (column("time", decimal=-1), 0),
        (column("timestamp(1)", decimal=0), 1),
        (ColumnSchema(name="c", mysql_type="datetime(4)"), 4),
        (ColumnSchema(name="c", mysql_type="datetime", length=-1, decimal=-1), 0),
        (column("datetime", length=1000), 0),
        (column("varchar(3)"), 0),
    ],
)
def test_fraction_is_told_by_the_length_where_the_scale_is_lost(
    schema: ColumnSchema, digits: int
) -> None:
    assert fractional_digits(schema) == digits


@pytest.mark.parametrize(
    ("schema", "size"),
    [
        (column("decimal(10,2)"), (10, 2)),
        (column("decimal(10,0)", decimal=-1), (10, 0)),
        (ColumnSchema(name="c", mysql_type="decimal(7,3) unsigned"), (7, 3)),
        (ColumnSchema(name="c", mysql_type="decimal(7)"), (7, 0)),
        (ColumnSchema(name="c", mysql_type="decimal"), None),
        (column("decimal(2,1)", decimal=5), None),
    ],
)
def test_decimal_size(schema: ColumnSchema, size: tuple[int, int] | None) -> None:
    assert decimal_size(schema) == size
    arrow = arrow_type(schema)
    assert arrow == (pa.string() if size is None else pa.decimal128(*size))
