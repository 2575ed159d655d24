"""Canonical text to typed values and back, and whole columns to Arrow."""

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ticdc_assets.model.mysql_types import arrow_type
from ticdc_assets.model.values import UNFIT, text_of, typed_array, typed_of
from ticdc_assets_tests.model.values.columns import column

NEW_YORK = "America/New_York"

CASES = [
    ("tinyint", "-128", -128),
    ("int", "0", 0),
    ("bigint", "9223372036854775807", 2**63 - 1),
    ("bigint unsigned", "18446744073709551615", Decimal(2**64 - 1)),
    ("bit(64)", "18446744073709551615", Decimal(2**64 - 1)),
    ("bit(10)", "682", 682),
    ("year", "0", 0),
    ("decimal(10,2)", "1.50", Decimal("1.50")),
    ("decimal(10,2)", "0.00", Decimal("0.00")),
    ("decimal(38,10)", "-0.0000000001", Decimal("-0.0000000001")),
    ("decimal(65,30)", "1.5", "1.5"),
    ("float", "0.1", 0.10000000149011612),
    ("float", "1234567.9", 1234567.875),
    ("float", "-0", -0.0),
    ("double", "0.30000000000000004", 0.1 + 0.2),
    ("double", "1" + "0" * 400, UNFIT),
    ("date", "2024-02-29", date(2024, 2, 29)),
    ("date", "0001-01-01", date(1, 1, 1)),
    ("date", "9999-12-31", date(9999, 12, 31)),
    ("datetime", "2024-03-10 02:30:00", datetime(2024, 3, 10, 2, 30)),  # noqa: DTZ001
    ("datetime(1)", "2024-03-10 02:30:00.5", datetime(2024, 3, 10, 2, 30, 0, 500000)),  # noqa: DTZ001
    ("datetime(6)", "9999-12-31 23:59:59.999999", datetime.max),  # noqa: DTZ901
    ("datetime", "0001-01-01 00:00:00", datetime.min),  # noqa: DTZ901
    ("timestamp", "2024-01-01 00:00:00", datetime(2024, 1, 1, 5, tzinfo=UTC)),
    ("timestamp(3)", "2024-07-01 00:00:00.125", datetime(2024, 7, 1, 4, 0, 0, 125000, tzinfo=UTC)),
    ("timestamp", "2024-11-03 01:30:00", datetime(2024, 11, 3, 5, 30, tzinfo=UTC)),
    ("time", "-838:59:59", "-838:59:59"),
    ("varchar(3)", "é", "é"),
    ("varbinary(3)", "0x", b""),
    ("varbinary(3)", "0xff00", b"\xff\0"),
    ("enum(a,b)", "a", "a"),
    ("set(a,b)", "", ""),
    ("json", "{}", "{}"),
    ("vector(3)", "[]", []),
    ("vector(3)", "[1,-2.5,0.1]", [1.0, -2.5, 0.10000000149011612]),
    ("geometry", "POINT(1 1)", "POINT(1 1)"),
]


UNFIT_TEXTS = """
int: 007 | 2147483648 | x
int unsigned: -5
tinyint unsigned: 300
smallint unsigned: 65536
mediumint: 9000000
mediumint unsigned: -1
bigint unsigned: -5 | 18446744073709551616
bit(3): 100
bit(64): -1
year: 2156
decimal(10,2): -0.00 | 1.5 | 1.500
decimal(4,2): 100.00
float: 1234567.875
double: 0.1000000000000000055
date: 0000-00-00 | 2024-00-10 | 2024-02-30 | 0000-01-01 | 2024-W01-1
datetime: 2024-03-10 02:30:00.5 | 0000-00-00 00:00:00 | 0000-01-01 00:00:00
timestamp: 2024-03-10 02:30:00 | 0000-00-00 00:00:00 | 9999-12-31 23:59:59
varbinary(3): 0xFF00 | 0xf f0 | ff
vector(3): [1,2 | [1,x]
"""
"""Columns, and texts that they do not hold; in Arrow some have room for more."""


@pytest.mark.parametrize(
    ("sql", "text", "expected"),
    [
        *CASES,
        *(
            (line.partition(": ")[0], text, UNFIT)
            for line in UNFIT_TEXTS.split("\n")[1:-1]
            for text in line.partition(": ")[2].split(" | ")
        ),
    ],
)
def test_typed_value(sql: str, text: str, expected: Any) -> None:
    schema = column(sql)
    typed = typed_of(schema, NEW_YORK)(text)
    assert typed == expected
    assert type(typed) is type(expected)
    if typed is not UNFIT:
        assert text_of(schema, NEW_YORK)(typed) == text
    # A column in Arrow holds what its values are.
    array, unfit = typed_array(schema, NEW_YORK, [text, None])
    assert array.type == arrow_type(schema)
    if expected is UNFIT:
        assert unfit == [True, False]
        assert array.to_pylist() == [None, None]
    else:
        assert unfit is None
        assert array.to_pylist() == [expected, None]
        assert text_of(schema, NEW_YORK)(array[0].as_py()) == text


def test_one_unfit_value_leaves_its_neighbours_typed() -> None:
    schema = column("date")
    array, unfit = typed_array(schema, NEW_YORK, ["2024-01-01", "0000-00-00", None, "2024-01-02"])
    assert unfit == [False, True, False, False]
    assert array.to_pylist() == [date(2024, 1, 1), None, None, date(2024, 1, 2)]


@pytest.mark.parametrize(
    ("timezone", "day"),
    [
        ("UTC", "2024-03-10"),
        ("+05:45", "2024-03-10"),
        (NEW_YORK, "2024-03-10"),
        (NEW_YORK, "2024-11-03"),
        # Half an hour of change, in the middle of an hour.
        ("Australia/Lord_Howe", "2024-10-06"),
        ("Australia/Lord_Howe", "2024-04-07"),
        # A whole day skipped.
        ("Pacific/Apia", "2011-12-30"),
    ],
)
def test_many_timestamps_of_one_day_are_as_each_by_itself(timezone: str, day: str) -> None:
    schema = column("timestamp")
    convert = typed_of(schema, timezone)
    for hour in range(24):
        texts = [f"{day} {hour:02}:{minute:02}:30" for minute in range(60)]
        typed = [convert(text) for text in texts]
        for text, value in zip(texts, typed, strict=True):
            assert value is UNFIT or text_of(schema, timezone)(value) == text
        skipped = {
            (NEW_YORK, "2024-03-10"): 60 if hour == 2 else 0,
            ("Australia/Lord_Howe", "2024-10-06"): 30 if hour == 2 else 0,
            ("Pacific/Apia", "2011-12-30"): 60,
        }
        assert sum(value is UNFIT for value in typed) == skipped.get((timezone, day), 0)


@pytest.mark.parametrize("sql", ["int", "decimal(5,2)", "date", "datetime", "text", "blob", "json"])
def test_empty_and_all_null_columns(sql: str) -> None:
    schema = column(sql)
    assert typed_array(schema, NEW_YORK, []) == (pa.array([], arrow_type(schema)), None)
    assert typed_array(schema, NEW_YORK, [None]) == (pa.array([None], arrow_type(schema)), None)


@pytest.mark.parametrize(
    ("sql", "value", "text"),
    [
        ("date", 0, "1970-01-01"),
        ("date", -719162, "0001-01-01"),
        ("datetime(6)", 1, "1970-01-01 00:00:00.000001"),
        ("datetime", -62135596800000000, "0001-01-01 00:00:00"),
        ("timestamp", 18000000000, "1970-01-01 00:00:00"),
        ("timestamp", datetime(1970, 1, 1, 5), "1970-01-01 00:00:00"),  # noqa: DTZ001
        ("bigint unsigned", 5, "5"),
        ("decimal(12,10)", Decimal("0E-10"), "0.0000000000"),
    ],
)
def test_text_of_takes_what_storage_gives_back(sql: str, value: Any, text: str) -> None:
    assert text_of(column(sql), NEW_YORK)(value) == text


def test_unfit_is_one_object_also_after_pickling() -> None:
    assert pickle.loads(pickle.dumps(UNFIT)) is UNFIT
