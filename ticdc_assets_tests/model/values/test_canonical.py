"""Physical to canonical text, grouped by kind; expected texts are worked by hand."""

import pytest

from ticdc_assets.base.errors import ConfigError, ImageError
from ticdc_assets.model.events import PhysicalValue, ZonedTimestamp
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import canonical_of
from ticdc_assets_tests.cases import grouped
from ticdc_assets_tests.model.values.columns import column

SHANGHAI = "Asia/Shanghai"


def at(location: str, value: str) -> ZonedTimestamp:
    return ZonedTimestamp(location=location, value=value)


def check(schema: ColumnSchema, value: PhysicalValue, expected: str | None) -> None:
    """Check one value; an expected text in <> is the reason of the error instead."""
    canonical = canonical_of(schema, SHANGHAI)
    if expected is not None and expected.startswith("<"):
        with pytest.raises(ImageError) as caught:
            canonical(value)
        assert caught.value.reason == expected.strip("<>")
        assert caught.value.position == schema.name
        assert len(caught.value.got) <= 200
        assert caught.value.quarantine
    else:
        assert canonical(value) == expected


@pytest.mark.parametrize("sql", ["int", "json", "timestamp", "blob", "enum(a)", "geometry"])
def test_null_is_a_value_of_every_column(sql: str) -> None:
    check(column(sql, nullable=False), None, None)


CASES = [
    *grouped(r"""
# Integers.
tinyint: -128 = -128 | 128 = <out_of_range>
tinyint unsigned: 255 = 255 | -1 = <out_of_range>
smallint: 32768 = <out_of_range>
mediumint: 8388608 = <out_of_range>
int: +7 = 7 | -0 = 0 | '' = <invalid_integer> | 1_000 = <invalid_integer> |
    1.0 = <invalid_integer> | 1e3 = <invalid_integer> | ٣ = <invalid_integer> |
    0x10 = <invalid_integer>
int unsigned: 0000000042 = 42
bigint: 9223372036854775807 = 9223372036854775807 | 9223372036854775808 = <out_of_range>
bigint unsigned: 18446744073709551615 = 18446744073709551615 |
    18446744073709551616 = <out_of_range>
# Bits and years.
bit(1): 1 = 1 | 2 = <out_of_range> | -1 = <out_of_range>
bit(64): 18446744073709551615 = 18446744073709551615 | -1 = 18446744073709551615 |
    -9223372036854775808 = 9223372036854775808 | -9223372036854775809 = <out_of_range> | -0 = 0 |
    - = <invalid_integer>
bit(63): -1 = <out_of_range>
year: 2155 = 2155 | 0000 = 0 | 1900 = <out_of_range> | 2156 = <out_of_range>
# Decimals.
decimal(10,4): 3.1415 = 3.1415 | -0.1000 = -0.1000 | 3 = 3.0000 | +003.1 = 3.1000 | .5 = 0.5000 |
    5. = 5.0000 | 1.00001 = 1.00001 | '' = <invalid_decimal> | . = <invalid_decimal> |
    - = <invalid_decimal> | 1e5 = <invalid_decimal> | NaN = <invalid_decimal> |
    1,5 = <invalid_decimal>
decimal(2,1): 12345.6 = 12345.6
decimal(20,0): 99999999999999999999 = 99999999999999999999
decimal(3,3): 0.125 = 0.125
decimal(10,0): ٣ = <invalid_decimal>
# Floats.
float: 0.1 = 0.1 | 3.40282e+38 = 340282000000000000000000000000000000000 |
    0.10000000149011612 = 0.1 | 16777217 = 16777216 | -0 = -0 | -0.0 = -0 | 1e39 = <out_of_range> |
    nan = <invalid_float> | inf = <invalid_float> | 1_0 = <invalid_float>
double: 1e+21 = 1000000000000000000000 | 0.1 = 0.1 | 1.0 = 1 |
    9007199254740993 = 9007199254740992 | 0.30000000000000004 = 0.30000000000000004 |
    1e400 = <out_of_range> | 0x1p3 = <invalid_float> | '' = <invalid_float>
# Dates and times.
date: 2024-02-29 = 2024-02-29 | 0000-00-00 = 0000-00-00 | 2024-00-10 = 2024-00-10 |
    2024-02-30 = 2024-02-30 | 2024-13-01 = <invalid_date> | 2024-1-1 = <invalid_date> |
    20240101 = <invalid_date> | 2024-W01-1 = <invalid_date> |
    2024-01-01 00:00:00 = <invalid_date>
datetime: 2024-03-10 02:30:00 = 2024-03-10 02:30:00 | 0000-00-00 00:00:00 = 0000-00-00 00:00:00 |
    2024-03-10T02:30:00 = <invalid_datetime> | 2024-03-10 24:00:00 = <invalid_datetime> |
    2024-03-10 02:30:60 = <invalid_datetime> | 2024-03-10 02:30:00.1234567 = <invalid_datetime> |
    2024-03-10 02:30:00+08:00 = <invalid_datetime>
datetime(6): 2024-03-10 02:30:00.5 = 2024-03-10 02:30:00.500000
datetime(3): 2024-03-10 02:30:00 = 2024-03-10 02:30:00.000 |
    2024-03-10 02:30:00.1234 = 2024-03-10 02:30:00.1234
time: -838:59:59 = -838:59:59 | 839:00:00 = <invalid_time> | 1:02:03 = <invalid_time> |
    01:60:03 = <invalid_time>
time(3): -01:02:03.456 = -01:02:03.456 | 01:02:03 = 01:02:03.000
# Timestamps.
timestamp: 2024-03-10 02:30:00 = 2024-03-10 02:30:00
# Texts and binaries.
varchar(10): '' = ''
geometry: POINT(1 1) = POINT(1 1)
blob: '' = 0x | /wA= = 0xff00 | /wA = <invalid_base64> | /w=A = <invalid_base64> |
    _wA= = <invalid_base64> | é = <invalid_base64>
binary(2): YQA= = 0x6100
# Labels.
enum(red,x y,é): 1 = red | 3 = é | 0 = '' | +02 = x y | 4 = <unknown_enum_index> |
    -1 = <unknown_enum_index> | red = <invalid_enum>
set(a,b,c): 0 = '' | 5 = a,c | 7 = a,b,c | 8 = <unknown_set_member> | -1 = <unknown_set_member> |
    a = <invalid_set>
# JSON.
json: {"a": 1, "b": [1, 2]} = {"a":1,"b":[1,2]} |
    {"b": 1, "a": "x, y: \" z"} = {"b":1,"a":"x, y: \" z"} |
    [1.0, 1e100, 18446744073709551616] = [1.0,1e100,18446744073709551616] | "\ud800" = "\ud800" |
    null = null | '' = <invalid_json> | { = <invalid_json> | [1,] = <invalid_json> |
    NaN = <invalid_json> | 1 2 = <invalid_json>
# Vectors.
vector(3): [] = [] | [1,-2.5,30000000000] = [1,-2.5,30000000000] | [1,] = <invalid_vector> |
    [1e39] = <invalid_vector> | [null] = <invalid_vector> | 1,2 = <invalid_vector> |
    [ = <invalid_vector> | '' = <invalid_vector>
"""),
    ("int", " 1", "<invalid_integer>"),
    ("int", "9" * 5000, "<invalid_integer>"),
    ("int", at("UTC", "2024-01-01 00:00:00"), "<wrong_type>"),
    ("bit(64)", "-" + "9" * 5000, "<invalid_integer>"),
    ("decimal(10,4)", "1.5 ", "<invalid_decimal>"),
    ("decimal(10,4)", "1.5\n", "<invalid_decimal>"),
    ("double", "5e-324", "0." + "0" * 323 + "5"),
    ("double", "1" * 100_000 + "x", "<invalid_float>"),
    ("timestamp", at(SHANGHAI, "2024-03-10 02:30:00"), "2024-03-10 02:30:00"),
    ("timestamp", at("Local", "2024-03-10 02:30:00"), "2024-03-10 02:30:00"),
    ("timestamp", at("", "2024-03-10 02:30:00"), "2024-03-10 02:30:00"),
    ("timestamp", at("UTC", "2024-03-10 02:30:00"), "2024-03-10 10:30:00"),
    ("timestamp(3)", at("UTC", "2024-12-31 20:00:00.125"), "2025-01-01 04:00:00.125"),
    ("timestamp", at("-05:30", "2024-03-10 02:30:00"), "2024-03-10 16:00:00"),
    # New York is at -05:00 until 2024-03-10 02:00 and at -04:00 from 03:00 on.
    ("timestamp", at("America/New_York", "2024-03-10 01:59:59"), "2024-03-10 14:59:59"),
    ("timestamp", at("America/New_York", "2024-03-10 03:00:00"), "2024-03-10 15:00:00"),
    ("timestamp", at("America/New_York", "2024-03-10 02:30:00"), "<invalid_datetime>"),
    # Shown twice; the earlier, at -04:00, is taken.
    ("timestamp", at("America/New_York", "2024-11-03 01:30:00"), "2024-11-03 13:30:00"),
    ("timestamp", at("UTC", "0000-00-00 00:00:00"), "0000-00-00 00:00:00"),
    ("timestamp", at("UTC", "2024-02-30 00:00:00"), "<invalid_datetime>"),
    ("timestamp", at("UTC", "9999-12-31 23:59:59"), "<invalid_datetime>"),
    ("timestamp", at("Mars/Olympus", "2024-03-10 02:30:00"), "<unknown_time_zone>"),
    ("timestamp", at("../../etc/passwd", "2024-03-10 02:30:00"), "<unknown_time_zone>"),
    ("timestamp", at("/etc/localtime", "2024-03-10 02:30:00"), "<unknown_time_zone>"),
    ("timestamp", at("a" * 5000, "2024-03-10 02:30:00"), "<unknown_time_zone>"),
    ("timestamp", at("a\0b", "2024-03-10 02:30:00"), "<unknown_time_zone>"),
    ("timestamp", at(SHANGHAI, "yesterday"), "<invalid_datetime>"),
    ("varchar(10)", "é🚀\0\n", "é🚀\0\n"),
    ("text", "\ud800", "<invalid_text>"),
    ("text", at("UTC", "x"), "<wrong_type>"),
    ("blob", "/wA=\n", "<invalid_base64>"),
    ("json", '"\\\\"  ', '"\\\\"'),
    ("json", '"<&\u2028\\u00e9"', '"<&\u2028\\u00e9"'),
    ("json", "[" * 90 + "]" * 90, "[" * 90 + "]" * 90),
    ("json", '"a\nb"', "<invalid_json>"),
    ("json", '"\ud800"', "<invalid_json>"),
    ("json", "[" * 1024 + "]" * 1024, "[" * 1024 + "]" * 1024),
    ("json", "[" * 1025 + "]" * 1025, "<too_deep>"),
    ("json", '{"a":' * 1025 + "1" + "}" * 1025, "<too_deep>"),
    ("json", "[" * 200_000, "<too_deep>"),
    ("json", '"' + "[" * 2000, "<invalid_json>"),
    ("json", "[]" * 2000, "<invalid_json>"),
    ("vector(3)", " [ 0.10 , 1e2 ] ", "[0.1,100]"),
]


@pytest.mark.parametrize(("sql", "value", "expected"), CASES)
def test_canonical_text(sql: str, value: PhysicalValue, expected: str) -> None:
    check(column(sql), value, expected)


@pytest.mark.parametrize("timezone", ["", "Local", "Mars/Olympus", "+25:00"])
def test_a_changefeed_without_a_zone_is_a_configuration_error(timezone: str) -> None:
    canonical_of(column("int"), timezone)
    with pytest.raises(ConfigError, match="timezone"):
        canonical_of(column("timestamp"), timezone)


def test_a_set_of_64_labels_uses_the_top_bit() -> None:
    schema = column("set(x)", elements=tuple(f"l{number}" for number in range(64)))
    check(schema, str(2**63 + 1), "l0,l63")
    check(schema, str(2**64), "<unknown_set_member>")
    check(schema, str(-(2**63) + 1), "l0,l63")
    check(schema, str(-(2**63) - 1), "<unknown_set_member>")
