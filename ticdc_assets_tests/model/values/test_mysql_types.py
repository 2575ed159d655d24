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
from ticdc_assets_tests.model.values.columns import column

WIDE = pa.decimal128(20, 0)


@pytest.mark.parametrize(
    ("mysql_type", "charset", "kind"),
    [
        ("int", "binary", Kind.INTEGER),
        ("INT UNSIGNED", "", Kind.INTEGER),
        ("integer", "", Kind.INTEGER),
        ("int(10) unsigned zerofill", "", Kind.INTEGER),
        ("bool", "", Kind.INTEGER),
        ("boolean", "", Kind.INTEGER),
        ("tinyint(1)", "", Kind.INTEGER),
        ("bit(10)", "", Kind.BIT),
        ("year", "", Kind.YEAR),
        ("numeric(10,2)", "", Kind.DECIMAL),
        ("decimal", "", Kind.DECIMAL),
        ("float unsigned", "", Kind.FLOAT),
        ("real", "", Kind.DOUBLE),
        ("double precision", "", Kind.DOUBLE),
        ("date", "", Kind.DATE),
        ("datetime(6)", "", Kind.DATETIME),
        ("timestamp", "", Kind.TIMESTAMP),
        ("time", "", Kind.TIME),
        ("char", "utf8mb4", Kind.TEXT),
        ("char", "binary", Kind.BINARY),
        ("varchar(20)", "gbk", Kind.TEXT),
        ("var_string", "latin1", Kind.TEXT),
        ("varchar", "binary", Kind.BINARY),
        ("character varying(3)", "ascii", Kind.TEXT),
        ("longtext", "utf8mb4", Kind.TEXT),
        ("text", "binary", Kind.BINARY),
        ("varbinary(3)", "binary", Kind.BINARY),
        ("mediumblob", "", Kind.BINARY),
        ("enum('a','b c')", "utf8mb4", Kind.ENUM),
        ("set", "utf8mb4", Kind.SET),
        ("json", "binary", Kind.JSON),
        ("vector", "binary", Kind.VECTOR),
        ("vector<float>(3)", "binary", Kind.VECTOR),
        ("tidbvectorfloat32", "", Kind.VECTOR),
        ("geometry", "binary", Kind.UNKNOWN),
        ("", "", Kind.UNKNOWN),
        ("(", "", Kind.UNKNOWN),
        ("point in space", "", Kind.UNKNOWN),
    ],
)
def test_kind_is_told_by_type_and_charset(mysql_type: str, charset: str, kind: Kind) -> None:
    assert kind_of(ColumnSchema(name="c", mysql_type=mysql_type, charset=charset)) is kind


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("tinyint", pa.int8()),
        ("tinyint unsigned", pa.int16()),
        ("smallint", pa.int16()),
        ("smallint unsigned", pa.int32()),
        ("mediumint", pa.int32()),
        ("mediumint unsigned", pa.int32()),
        ("int", pa.int32()),
        ("int unsigned", pa.int64()),
        ("bigint", pa.int64()),
        ("bigint unsigned", WIDE),
        ("bit(1)", pa.int8()),
        ("bit(7)", pa.int8()),
        ("bit(8)", pa.int16()),
        ("bit(15)", pa.int16()),
        ("bit(16)", pa.int32()),
        ("bit(31)", pa.int32()),
        ("bit(32)", pa.int64()),
        ("bit(63)", pa.int64()),
        ("bit(64)", WIDE),
        ("year", pa.int16()),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        ("decimal(38,38)", pa.decimal128(38, 38)),
        ("decimal(39,0)", pa.string()),
        ("decimal(65,30)", pa.string()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("date", pa.date32()),
        ("datetime", pa.timestamp("us")),
        ("timestamp(6)", pa.timestamp("us", tz="UTC")),
        ("time(3)", pa.string()),
        ("varchar(3)", pa.string()),
        ("binary(3)", pa.binary()),
        ("enum(a,b)", pa.string()),
        ("set(a,b)", pa.string()),
        ("json", pa.string()),
        ("vector(3)", pa.list_(pa.float32())),
        ("geometry", pa.string()),
    ],
)
def test_arrow_type_holds_the_declared_range(sql: str, expected: pa.DataType) -> None:
    assert arrow_type(column(sql)) == expected


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
