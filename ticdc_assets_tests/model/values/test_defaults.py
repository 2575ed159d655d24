"""What ADD COLUMN gives to existing rows."""

from datetime import UTC, datetime

import pytest

from ticdc_assets.base.errors import CastError
from ticdc_assets.model.values import default_text
from ticdc_assets_tests.model.values.columns import column

AT = datetime(2024, 7, 1, 20, 30, 15, 678000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("sql", "default", "expected"),
    [
        ("int", "-7", "-7"),
        ("int unsigned", "007", "7"),
        ("bigint unsigned", "18446744073709551615", "18446744073709551615"),
        ("decimal(20,4)", "1.5", "1.5000"),
        ("decimal(12,2)", "0.00", "0.00"),
        ("float", "1.50", "1.5"),
        ("double", "1e3", "1000"),
        # No schema says the 2; the default has been rounded.
        ("double(10,2)", "0.5", "0.5"),
        ("bit(10)", 682, "682"),
        ("year", "24", "2024"),
        ("date", "2010-10-10", "2010-10-10"),
        ("date", "0000-00-00", "0000-00-00"),
        ("datetime", "2024-01-01 00:00:00", "2024-01-01 00:00:00"),
        ("datetime(3)", "2024-01-01", "2024-01-01 00:00:00.000"),
        ("time(3)", "-01:02:03.456", "-01:02:03.456"),
        ("time(3)", "10:11:12", "10:11:12.000"),
        # Sent in UTC, shown in the changefeed's zone.
        ("timestamp(6)", "2024-03-11 00:51:01.461270", "2024-03-11 08:51:01.461270"),
        ("timestamp(3)", "2024-12-31 20:00:00", "2025-01-01 04:00:00.000"),
        ("timestamp", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        ("varchar(255)", "dé🚀fault", "dé🚀fault"),
        ("varchar(255)", "", ""),
        ("varchar(255)", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP"),
        ("char(5)", "a  ", "a"),
        ("varbinary(64)", "vb", "0x7662"),
        ("binary(4)", "vb", "0x76620000"),
        ("binary(4)", b"\xff", "0xff000000"),
        ("binary(1)", b"\xff\xfe", "0xfffe"),
        ("varbinary(64)", b"\xff\0", "0xff00"),
        ("blob", b"\xef\xbf\xbd", "0xefbfbd"),
        ("enum(red,green)", "green", "green"),
        ("set(a,b,c)", "c,a", "a,c"),
        ("set(a,b,c)", "", ""),
        ("json", '{"a": 1}', '{"a":1}'),
        ("geometry", "x", "x"),
        # 20:30:15.678 in UTC is 04:30:15.678 of the next day in Shanghai.
        ("timestamp", "CURRENT_TIMESTAMP", "2024-07-02 04:30:15"),
        ("timestamp(3)", "CURRENT_TIMESTAMP(3)", "2024-07-02 04:30:15.678"),
        ("datetime(6)", "current_timestamp(6)", "2024-07-02 04:30:15.678000"),
        ("datetime", "NOW()", "2024-07-02 04:30:15"),
        ("date", "CURRENT_DATE", "2024-07-02"),
    ],
)
def test_default(sql: str, default: str | int | bytes, expected: str) -> None:
    schema = column(sql, default=default)
    assert default_text(schema, "Asia/Shanghai", at=AT) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("int", "0"),
        ("bit(8)", "0"),
        ("year", "0"),
        ("decimal(10,2)", "0.00"),
        ("decimal(10,0)", "0"),
        ("float", "0"),
        ("date", "0000-00-00"),
        ("datetime(2)", "0000-00-00 00:00:00.00"),
        ("timestamp", "0000-00-00 00:00:00"),
        ("time(1)", "00:00:00.0"),
        ("varchar(3)", ""),
        ("binary(3)", "0x000000"),
        ("varbinary(3)", "0x"),
        ("blob", "0x"),
        ("enum(x,y)", "x"),
        ("set(x,y)", ""),
        ("json", "null"),
        ("vector(3)", "[]"),
        ("geometry", ""),
    ],
)
def test_without_a_default_null_or_the_implicit_one(sql: str, expected: str) -> None:
    assert default_text(column(sql, nullable=True), "UTC", at=None) is None
    assert default_text(column(sql, nullable=False), "UTC", at=None) == expected


@pytest.mark.parametrize(
    ("sql", "default"),
    [
        ("int", "uuid()"),
        ("date", "2024-00-10"),
        ("bit(3)", 8),
        ("bit(3)", "b'1'"),
        ("enum(a,b)", "z"),
        ("varbinary(3)", "\ufffd"),
        ("varchar(3)", b"\xff"),
        ("timestamp", "CURRENT_TIMESTAMP"),
        ("timestamp", "9999-12-31 23:59:59"),
    ],
)
def test_a_default_that_is_not_known_is_an_error(sql: str, default: str | int | bytes) -> None:
    with pytest.raises(CastError):
        default_text(column(sql, default=default), "Asia/Shanghai", at=None)
