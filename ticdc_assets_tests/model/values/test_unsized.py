"""Columns of which no message told the size or the labels: nothing is guessed, nothing is lost."""

from dataclasses import replace

import pyarrow as pa
import pytest

from ticdc_assets.base.errors import CastError, ImageError
from ticdc_assets.model.mysql_types import arrow_type, lacks_size
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import (
    canonical_of,
    cast_is_identity,
    cast_of,
    default_text,
    lenient_cast_of,
    physical_of,
    text_of,
    typed_array,
    typed_of,
)
from ticdc_assets_tests.cases import cases, grouped
from ticdc_assets_tests.model.values.columns import cast_cases, column

ZONE = "Asia/Shanghai"


def unsized(mysql_type: str) -> ColumnSchema:
    """Return a column as a row without sizes shows it."""
    clock = mysql_type in ("datetime", "timestamp", "time")
    return ColumnSchema(name="c", mysql_type=mysql_type, decimal=-1 if clock else 0)


UNSIZED = ("decimal", "datetime", "timestamp", "time", "enum", "set")

VALUES = """
decimal: -12.50 | 99999999999999999999999999999999999.999999999999999999999999999999
datetime: 2024-01-31 10:11:12 | 2024-01-31 10:11:12.120 | 0000-00-00 00:00:00.000
timestamp: 2024-01-31 10:11:12.000001
time: -838:59:59.10
enum: 0 | 65535
set: 0 | 18446744073709551615
"""


@pytest.mark.parametrize("line", VALUES.strip().splitlines())
def test_values_stay_as_they_were_sent(line: str) -> None:
    mysql_type, _, texts = line.partition(": ")
    schema = unsized(mysql_type)
    assert lacks_size(schema)
    assert arrow_type(schema) == pa.string()
    for sent in texts.split(" | "):
        converters = [canonical_of, typed_of, text_of]
        if mysql_type != "timestamp":
            converters.append(physical_of)
        assert [make(schema, ZONE)(sent) for make in converters] == [sent] * len(converters)
        array, unfit = typed_array(schema, ZONE, [sent, None])
        assert (array.type, array.to_pylist(), unfit) == (pa.string(), [sent, None], None)


@pytest.mark.parametrize("sql", ["decimal(10,0)", "datetime", "timestamp(3)", "time", "enum(a)"])
def test_sized_columns_lack_nothing(sql: str) -> None:
    assert not lacks_size(column(sql))


def test_a_length_tells_the_fraction_as_in_simple_avro() -> None:
    assert not lacks_size(ColumnSchema(name="c", mysql_type="datetime", length=26, decimal=-1))
    assert not lacks_size(ColumnSchema(name="c", mysql_type="datetime(3)", decimal=-1))


@pytest.mark.parametrize(
    ("mysql_type", "sent", "reason"),
    grouped("""
enum: red = invalid_enum | 65536 = out_of_range | -1 = out_of_range
set: a,b = invalid_set | 18446744073709551616 = out_of_range
datetime: yesterday = invalid_datetime
decimal: 1e5 = invalid_decimal
"""),
)
def test_what_is_no_value_is_refused(mysql_type: str, sent: str, reason: str) -> None:
    with pytest.raises(ImageError) as caught:
        canonical_of(unsized(mysql_type), ZONE)(sent)
    assert caught.value.reason == reason


def test_the_top_bit_of_a_set_may_come_as_a_sign() -> None:
    assert canonical_of(unsized("set"), ZONE)("-1") == "18446744073709551615"


@pytest.mark.parametrize("mysql_type", ["enum", "set"])
def test_a_label_is_no_number(mysql_type: str) -> None:
    with pytest.raises(ImageError, match="unknown_label"):
        physical_of(unsized(mysql_type), ZONE)("red")


@pytest.mark.parametrize(
    ("mysql_type", "sized"),
    cases("""
decimal -> decimal(65,30)
datetime -> datetime(6)
datetime -> datetime
timestamp -> timestamp
time -> time(6)
enum -> enum(a,b)
set -> set(a,b)
"""),
)
def test_no_change_of_size_is_taken_for_none(mysql_type: str, sized: str) -> None:
    schema = unsized(mysql_type)
    known = replace(column(sized), charset=schema.charset)
    assert cast_is_identity(schema, schema)
    assert not cast_is_identity(schema, known)
    assert not cast_is_identity(known, schema)


@pytest.mark.parametrize(
    ("mysql_type", "new", "text", "expected"),
    cast_cases("""
decimal > decimal(10,1): 12.55 = 12.6
decimal > varchar(10): 12.50 = 12.50
datetime > datetime: 2024-01-31 10:11:12.5 = 2024-01-31 10:11:13
datetime > date: 2024-01-31 10:11:12.123 = 2024-01-31
timestamp > datetime(3): 2024-01-31 10:11:12 = 2024-01-31 10:11:12.000
time > time(1): 10:11:12.25 = 10:11:12.3
enum > int: 2 = 2
set > bigint unsigned: 5 = 5
# No label is guessed.
enum > enum(a,b): 1 = refused
enum > varchar(10): 1 = refused
enum > json: 1 = refused
enum > varbinary(10): 1 = refused
enum > set(a,b): 1 = refused
set > set(a,b): 1 = refused
set > text: 1 = refused
"""),
)
def test_casts_of_what_is_known(mysql_type: str, new: str, text: str, expected: str | None) -> None:
    cast = cast_of(unsized(mysql_type), column(new), ZONE)
    if expected is None:
        with pytest.raises(CastError):
            cast(text)
    else:
        assert cast(text) == expected


@pytest.mark.parametrize("mysql_type", UNSIZED)
@pytest.mark.parametrize(
    "sql", ["varchar(30)", "text", "int", "decimal(5,2)", "datetime(3)", "time(3)"]
)
def test_no_size_is_guessed(mysql_type: str, sql: str) -> None:
    old, new = column(sql), unsized(mysql_type)
    for cast in (cast_of(old, new, ZONE), lenient_cast_of(old, new)):
        with pytest.raises(CastError):
            cast("1")


@pytest.mark.parametrize(
    ("mysql_type", "expected"),
    cases("""
decimal -> 0
datetime -> 0000-00-00 00:00:00
time -> 00:00:00
enum -> 1
set -> 0
"""),
)
def test_implicit_defaults(mysql_type: str, expected: str) -> None:
    schema = replace(unsized(mysql_type), nullable=False)
    text = default_text(schema, ZONE, at=None)
    assert text == expected
    assert canonical_of(schema, ZONE)(text) == text
