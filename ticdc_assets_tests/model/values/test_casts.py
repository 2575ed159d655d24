"""What MODIFY COLUMN makes of values; expected texts are worked by hand from TiDB's rules.

In each table a text of None is a `CastError`.
"""

import pytest

from ticdc_assets.base.errors import CastError, ConfigError
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.model.values import cast_is_identity, cast_of, keep
from ticdc_assets_tests.model.values.columns import cast_cases, column

NEW_YORK = "America/New_York"


def check(old: ColumnSchema, new: ColumnSchema, text: str, expected: str | None) -> None:
    cast = cast_of(old, new, NEW_YORK)
    if expected is None:
        with pytest.raises(CastError) as caught:
            cast(text)
        assert caught.value.position == new.name
        assert caught.value.got.strip("'…")[:10] in repr(text)
    else:
        assert cast(text) == expected
    assert cast(None) is None


def pairs(text: str) -> list[tuple[str, ...]]:
    """Read `old > new; old > new`."""
    return [tuple(item.split(" > ")) for item in " ".join(text.split()).split("; ")]


SAME = pairs("""
    int > bigint; tinyint unsigned > smallint; int unsigned > bigint unsigned; bit(8) > bit(9);
    decimal(10,2) > decimal(12,2); decimal(10,2) unsigned > decimal(12,2); float > float;
    float(10,3) > float(10,3); double(10,3) > double; datetime(3) > datetime(3); year > year;
    varchar(10) > varchar(20); varchar(10) > text; char(10) > varchar(10); tinytext > longtext;
    tinytext > char(255); tinyblob > binary(255); varchar(255) > tinytext; varbinary(3) > blob;
    binary(3) > varbinary(3); binary(3) > binary(3); enum(a,b) > enum(c,b,a); set(a,b) >
    set(a,c,b); json > json; vector(3) > vector; geometry > geometry
""")
NOT_SAME = pairs("""
    bigint > int; int > int unsigned; int unsigned > int; int > decimal(10,0); decimal(10,2) >
    decimal(10,3); decimal(10,2) > decimal(10,2) unsigned; double > double(10,3); double >
    double unsigned; float > double; datetime(3) > datetime(6); datetime > timestamp;
    varchar(20) > varchar(10); varchar(20) > char(20); varchar(256) > tinytext; varchar(20) >
    varbinary(80); binary(3) > binary(4); varbinary(3) > binary(3); enum(a,b) > enum(a);
    set(a,b) > set(b,a); vector(3) > vector(4); geometry > point
""")


@pytest.mark.parametrize(("old", "new"), SAME)
def test_changes_that_keep_every_value(old: str, new: str) -> None:
    assert cast_is_identity(column(old), column(new))
    assert cast_of(column(old), column(new), NEW_YORK) is keep
    assert keep("x") == "x"
    assert keep(None) is None


@pytest.mark.parametrize(("old", "new"), NOT_SAME)
def test_changes_that_may_touch_values(old: str, new: str) -> None:
    assert not cast_is_identity(column(old), column(new))
    assert cast_of(column(old), column(new), NEW_YORK) is not keep


def test_nullability_name_and_default_keep_every_value() -> None:
    old = column("varchar(3)")
    new = column("varchar(3)", name="d", nullable=False, default="x", collation="utf8mb4_bin")
    assert cast_is_identity(old, new)


CASES = [
    *cast_cases(r"""
# To integer.
bigint > int: 2147483647 = 2147483647 | 2147483648 = refused
int > int unsigned: -1 = refused
bigint unsigned > bigint: 9223372036854775808 = refused
year > smallint: 2024 = 2024
year > tinyint: 2024 = refused
bit(8) > int: 255 = 255
decimal(10,2) > int: 2.50 = 3 | -2.50 = -3 | 2.49 = 2
decimal(10,2) > int unsigned: -0.40 = refused
decimal(20,2) > int: 99999999999.00 = refused
double > int: 2.5 = 2 | 3.5 = 4 | -2.5 = -2 | 2147483648 = refused
double > bigint: 9223372036854775808 = 9223372036854775807 | 9223372036854777856 = refused |
    -9223372036854775808 = -9223372036854775808
double > int unsigned: -0.4 = 0
float > bigint: 16777216 = 16777216
varchar(40) > int: 42 = 42 | 2.5 = 3 | -2.5 = -3 | 1.5e3 = 1500 | 5e-1 = 1 | 1e = 1 |
    '' = refused | 12abc = refused | 1e+ = refused | 1e999999 = refused
varchar(40) > int unsigned: -0.4 = 0 | -0.5 = refused | -0 = 0
varbinary(40) > int: 0x3432 = 42 | 0xff = refused
date > int: 2024-01-31 = 20240131 | 0000-00-00 = 0
date > smallint: 2024-01-31 = refused
datetime > bigint: 2024-01-31 23:59:59 = 20240131235959
# A signed column rounds the time and carries, an unsigned one rounds the number.
datetime(3) > bigint: 2024-01-31 23:59:59.500 = 20240201000000
datetime(3) > bigint unsigned: 2024-01-31 23:59:59.500 = 20240131235960
time > int: -12:03:04 = -120304
time(1) > int: 00:59:59.5 = 10000
time(1) > int unsigned: 00:59:59.5 = 5960
time > int unsigned: -00:00:01 = refused
enum(x,y) > int: y = 2 | '' = 0 | z = refused
set(x,y,z) > tinyint: x,z = 5
json > int: true = 1 | 2.5 = 2 | "2.5" = 3 | null = refused | [1] = refused
json > bigint unsigned: 18446744073709551615 = 18446744073709551615
vector(1) > int: [1] = refused
# To year and bit.
int > year: 2024 = 2024 | 0 = 0 | 69 = 2069 | 70 = 1970 | 100 = refused | -1 = refused |
    2156 = refused
varchar(4) > year: 0 = 2000 | 00 = 2000 | 0000 = 0 | 24 = 2024 | x = refused
date > year: 2024-01-31 = 2024
datetime > year: 1900-01-31 00:00:00 = refused | 0000-00-00 00:00:00 = 0
time > year: 00:20:24 = 2024
json > year: 2024 = 2024
int > bit(3): 7 = 7 | 8 = refused
int > bit(64): -1 = 18446744073709551615
int > bit(63): -1 = refused
bit(10) > bit(3): 7 = 7 | 8 = refused
decimal(5,2) > bit(8): 2.50 = 3
double > bit(8): 2.5 = 2 | -1 = refused
enum(x,y) > bit(8): y = 2
varchar(4) > bit(8): 1 = refused
date > bit(8): 2024-01-31 = refused
# To decimal.
decimal(12,2) > decimal(20,4): -1.50 = -1.5000
decimal(12,4) > decimal(12,2): 1.0050 = 1.01 | -1.0050 = -1.01 | 1.0049 = 1.00 | -0.0049 = 0.00
decimal(12,4) > decimal(4,2): 99.9949 = 99.99 | 99.9950 = refused
decimal(12,4) > decimal(12,4) unsigned: -1.0000 = refused
decimal(12,4) > decimal(12,2) unsigned: -0.0001 = 0.00
int > decimal(10,2): 7 = 7.00
int > decimal(3,2): 10 = refused
int > decimal(2,2): 0 = 0.00
bigint unsigned > decimal(20,0): 18446744073709551615 = 18446744073709551615
# FLOAT goes through its double, so 0.1 is 0.10000000149011612.
float > decimal(20,10): 0.1 = 0.1000000015
double > decimal(20,10): 0.1 = 0.1000000000
double > decimal(30,2): 1000000000000000000000 = 1000000000000000000000.00
varchar(40) > decimal(10,2): 1e2 = 100.00 | 1.5x = refused | '' = refused | 1e = refused
date > decimal(10,2): 2024-01-31 = 20240131.00
datetime(3) > decimal(20,2): 2024-01-31 23:59:59.995 = 20240131235960.00
time(2) > decimal(10,1): -01:02:03.45 = -10203.5
enum(x,y) > decimal(3,1): y = 2.0
set(x,y) > decimal(3,1): x,y = 3.0
bit(8) > decimal(5,1): 255 = 255.0
json > decimal(5,1): 2.25 = 2.3 | "2.25" = 2.3 | {} = refused
# To float.
float > double: 0.1 = 0.10000000149011612 | -0 = -0
double > float: 0.1 = 0.1 | 16777217 = 16777216
double > double unsigned: -1 = refused | 1.5 = 1.5
int > float: 16777217 = 16777216
bigint > double: 9007199254740993 = 9007199254740992
decimal(10,4) > double: 1.5000 = 1.5
varchar(40) > double: 1e400 = refused | nan = refused | '' = refused
datetime > double: 2024-01-31 23:59:59 = 20240131235959
time(1) > double: -00:00:01.5 = -1.5
enum(x,y) > float: y = 2
bit(8) > float: 255 = 255
json > double: false = 0
# FLOAT(10,3) sends no 3.
double > float(10,3): 7 = 7 | 0.5 = refused
# To date, datetime and timestamp.
date > datetime(3): 2024-01-31 = 2024-01-31 00:00:00.000
datetime(3) > date: 2024-01-31 23:59:59.999 = 2024-01-31
datetime > datetime(2): 2024-01-31 23:59:59 = 2024-01-31 23:59:59.00
datetime(3) > datetime: 2024-12-31 23:59:59.500 = 2025-01-01 00:00:00 |
    2024-12-31 23:59:59.499 = 2024-12-31 23:59:59 | 9999-12-31 23:59:59.500 = refused |
    0000-00-00 00:00:00.000 = 0000-00-00 00:00:00
# More digits are zeros, whatever the date.
datetime > datetime(3): 2024-00-10 00:00:00 = 2024-00-10 00:00:00.000 |
    2024-02-30 01:02:03 = 2024-02-30 01:02:03.000
timestamp > timestamp(1): 2024-01-31 23:59:59 = 2024-01-31 23:59:59.0
time(1) > time(3): -00:00:01.5 = -00:00:01.500
datetime(6) > datetime(3): 2024-01-01 00:00:00.000500 = 2024-01-01 00:00:00.001
datetime > date: 0000-00-00 00:00:00 = 0000-00-00 | 2024-00-10 00:00:00 = refused
date > timestamp(1): 0000-00-00 = 0000-00-00 00:00:00.0
timestamp > datetime(1): 2024-01-31 23:59:59 = 2024-01-31 23:59:59.0
datetime > timestamp: 2024-01-31 23:59:59 = 2024-01-31 23:59:59
# 1970-01-01 00:00:01 and 2038-01-19 03:14:07 in UTC are the ends of TIMESTAMP.
datetime > timestamp: 1969-12-31 19:00:01 = 1969-12-31 19:00:01 | 1969-12-31 19:00:00 = refused |
    2038-01-18 22:14:07 = 2038-01-18 22:14:07 | 2038-01-18 22:14:08 = refused
# Skipped by the clock change: TiDB takes the moment of the change.
datetime > timestamp: 2024-03-10 02:30:00 = 2024-03-10 03:00:00 |
    2024-03-10 02:59:59 = 2024-03-10 03:00:00
int > date: 20240131 = 2024-01-31 | 240131 = 2024-01-31 | 700101 = 1970-01-01 | 0 = 0000-00-00 |
    100 = refused | 20240231 = refused | -1 = refused
bigint > datetime: 20240131235959 = 2024-01-31 23:59:59 | 240131235959 = 2024-01-31 23:59:59
bigint unsigned > datetime: 18446744073709551615 = refused
year > date: 2024 = refused
varchar(40) > date: 2024-01-31 = 2024-01-31 | 24-1-31 = 2024-01-31 | 20240131 = 2024-01-31 |
    0000-00-00 = 0000-00-00 | 2024-02-30 = refused | 2024-00-10 = refused | '' = refused |
    soon = refused | 2024-01-31 23:59:59.9 = 2024-02-01
varchar(40) > datetime: 2024-01-31T23:59:59.5 = 2024-02-01 00:00:00 |
    2024-01-31 23:59 = 2024-01-31 23:59:00 | 2024-01-31 24:00:00 = refused |
    2024-01-31 23:59:59+08:00 = refused
varchar(40) > datetime(6): 2024-01-31 1:2:3.5 = 2024-01-31 01:02:03.500000
varchar(40) > datetime(1): 20240131235959.25 = 2024-01-31 23:59:59.3
json > date: "2024-01-31" = 2024-01-31 | 20240131 = 2024-01-31 | null = refused
json > datetime: "2024-01-31 23:59:59.000000" = 2024-01-31 23:59:59
decimal(10,0) > date: 20240131 = refused
enum(x,y) > date: x = refused
# The day would be the day of the change.
time > datetime: 10:00:00 = refused
time > date: 10:00:00 = refused
# To time.
time > time(3): -01:02:03 = -01:02:03.000
time(3) > time: 01:02:03.500 = 01:02:04
# Halves go up, so towards zero for a negative TIME.
time(3) > time: -01:02:03.500 = -01:02:03 | -01:02:03.501 = -01:02:04 | -00:00:00.500 = 00:00:00
datetime(3) > time: 2024-01-31 23:59:59.500 = 24:00:00
timestamp > time(2): 2024-01-31 10:11:12 = 10:11:12.00
date > time: 2024-01-31 = 00:00:00
datetime > time: 0000-00-00 00:00:00 = 00:00:00
int > time: 101112 = 10:11:12 | -12 = -00:00:12 | 8385959 = 838:59:59 | 8390000 = refused |
    6100 = refused
decimal(10,2) > time(1): 101112.25 = 10:11:12.3
float > time: 1.5 = 00:00:02
double > time(1): 101112.5 = 10:11:12.5
year > time: 2024 = 00:20:24
varchar(40) > time: 10:11 = 10:11:00 | -10:11:12 = -10:11:12 | 2 10:11:12 = 58:11:12 |
    2 10 = 58:00:00 | 101112 = 10:11:12 | 10:11:12.5 = 10:11:13 | 10:59:59.5 = 11:00:00 |
    2024-01-31 10:11:12 = 10:11:12 | 839:00:00 = refused | 10:61:00 = refused | '' = refused |
    noon = refused | 000000000010:11 = 10:11:00 | 000000101112 = 10:11:12 |
    20240131101112 = 10:11:12 | 240131101112 = 10:11:12 | 20240131236112 = refused |
    999999999999 = refused | 2024-01-31 23:59:59.9 = 24:00:00 | 0000-00-00 00:00:00 = 00:00:00 |
    -20240131101112 = refused
varchar(40) > time(1): 20240131101112.55 = 10:11:12.6
bigint > time: 20240131101112 = 10:11:12 | -20240131101112 = refused
json > time: "10:11:12.000000" = 10:11:12 | 101112 = 10:11:12
enum(x) > time: x = refused
bit(8) > time: 1 = refused
# To text and binary.
int > varchar(10): -7 = -7
int > varchar(1): -7 = refused
bit(8) > varchar(10): 255 = 255
double > varchar(10): 0.1 = 0.1
decimal(10,2) > varchar(10): 1.50 = 1.50
datetime(1) > varchar(30): 2024-01-31 23:59:59.5 = 2024-01-31 23:59:59.5
enum(x,y) > varchar(1): y = y
set(x,y) > varchar(3): x,y = x,y
json > text: {"a":[1,2],"b,:":"x,y:z"} = {"a": [1, 2], "b,:": "x,y:z"}
varchar(10) > varchar(3): é🚀x = é🚀x | éééé = refused
varbinary(10) > varchar(10): 0xc3a9 = é | 0xff = refused
vector(2) > text: [1,2] = refused
int > varbinary(10): 42 = 0x3432
varchar(10) > varbinary(10): é = 0xc3a9
varchar(10) > binary(3): é = 0xc3a900
varchar(10) > binary(1): é = refused
binary(3) > binary(5): 0x610000 = 0x6100000000
binary(3) > binary(2): 0x610000 = refused
varbinary(3) > binary(2): 0x61 = 0x6100
# To enum and set.
enum(a,b) > enum(b,c,a): a = a
enum(a,b) > enum(b): b = b | a = refused | '' = ''
set(a,b) > enum(b): b = b | a,b = refused
varchar(9) > enum(a,b): b = b | B = refused | 2 = b | 0 = refused | 02 = refused | '' = refused
varchar(9) > enum(a,2): 2 = 2
int > enum(a,b): 2 = b | 0 = refused
decimal(3,0) > enum(a,b): 1 = refused
set(a,b) > set(b,a): a,b = b,a
set(a,b) > set(b): b = b | a,b = refused | '' = ''
enum(a,b) > set(b,a): a = a
varchar(9) > set(a,b): b,a = a,b | 3 = a,b | 4 = refused | a, = refused
int > set(a,b): 0 = '' | 3 = a,b | 4 = refused
json > enum(a): "a" = refused
# To JSON.
int > json: -7 = -7
year > json: 2024 = 2024
bigint unsigned > json: 18446744073709551615 = 18446744073709551615
float > json: 0.1 = 0.10000000149011612
double > json: 100 = 100.0 | 1000000000000000 = 1e15 | 123456789012345680 = 1.2345678901234568e17
decimal(10,2) > json: 1.50 = 1.5
date > json: 2024-01-31 = "2024-01-31"
datetime > json: 2024-01-31 00:00:00 = "2024-01-31 00:00:00.000000"
time(3) > json: -01:02:03.456 = "-01:02:03.456000"
text > json: {"b": 1, "a": [1.0, 1e2, "é\u00e9\n"]} = {"a":[1.0,100.0,"éé\n"],"b":1} |
    {"a": 1, "a": 2, "aa": 3} = {"a":2,"aa":3} | 18446744073709551616 = 1.8446744073709552e19 |
    -9223372036854775809 = -9.223372036854776e18 | "\u2028\u001f<\/" = "\u2028\u001f</" |
    1e400 = refused | x = refused | '' = refused
blob > json: 0x5b5d = [] | 0xff = refused
enum(1,x) > json: 1 = 1 | x = refused
bit(8) > json: 1 = refused
"""),
    ("varchar(40)", "int", " +42 ", "42"),
    ("decimal(65,30)", "decimal(65,0)", "9" * 35 + "." + "5" * 30, "1" + "0" * 35),
    ("double", "decimal(10,2)", "0." + "0" * 323 + "5", "0.00"),
    ("varchar(40)", "decimal(10,2)", " 1.005 ", "1.01"),
    ("double", "float", "1" + "0" * 39, None),
    ("varchar(40)", "double", " 1.5e3 ", "1500"),
    ("json", "double", "1e100", "1" + "0" * 100),
    ("varchar(40)", "date", " 2024/1/31 ", "2024-01-31"),
    ("varchar(10)", "varchar(3)", "ab  \t", "ab "),
    ("varchar(10)", "char(5)", "ab  ", "ab"),
    ("text", "tinytext", "é" * 127, "é" * 127),
    ("text", "tinytext", "é" * 128, None),
    ("text", "tinytext", "x" * 255 + " ", None),
    ("binary(3)", "varchar(10)", "0x610000", "a\0\0"),
    ("blob", "tinyblob", "0x" + "00" * 256, None),
    ("json", "blob", '["a",1]', "0x" + b'["a", 1]'.hex()),
    ("varchar(9)", "enum(a,b)", "b ", "b"),
    ("varchar(9)", "enum(a,b)", "9" * 5000, None),
    ("double", "json", "0." + "0" * 15 + "15", "1.5e-16"),
]


@pytest.mark.parametrize(("old", "new", "text", "expected"), CASES)
def test_what_becomes_of_a_value(old: str, new: str, text: str, expected: str | None) -> None:
    check(column(old), column(new), text, expected)


def test_a_caller_who_knows_the_scale_of_a_float_gets_rounded_values() -> None:
    new = column("double(6,2)", decimal=2)
    check(column("double"), new, "1.236", "1.24")
    check(column("double"), new, "9999.99", "9999.99")
    check(column("double"), new, "10000", None)


def test_a_scale_that_is_not_sent_is_as_it_was() -> None:
    known, unknown = column("double(10,2)", decimal=2), column("double(10,2)")
    assert cast_of(known, unknown, NEW_YORK) is keep
    assert cast_of(unknown, known, NEW_YORK) is keep
    check(known, column("double(12,2)"), "1.25", None)


def test_a_float_that_gets_no_shorter_is_not_rounded() -> None:
    """TiDB compares lengths and scales, and leaves the values alone."""
    new = column("float(12,2)", decimal=2)
    assert cast_of(column("float"), new, NEW_YORK) is keep
    assert cast_of(column("float(12,1)", decimal=1), new, NEW_YORK) is keep
    check(column("float(12,3)", decimal=3), new, "1.236", "1.24")
    check(column("float(20,1)", decimal=1), new, "1.5", "1.5")
    check(column("float unsigned"), new, "1.236", "1.24")


@pytest.mark.parametrize(
    ("charset", "text", "expected"),
    [
        ("ascii", "abc", "abc"),
        ("ascii", "é", None),
        ("latin1", "é", "é"),
        ("gbk", "东", "东"),
        ("gbk", "🚀", None),
        ("utf8", "东", "东"),
        ("utf8", "🚀", None),
        ("utf8mb4", "🚀", "🚀"),
    ],
)
def test_a_new_charset_must_have_the_characters(
    charset: str, text: str, expected: str | None
) -> None:
    old = column("varchar(20)", charset="utf8mb4")
    check(old, column("varchar(10)", charset=charset), text, expected)


def test_bytes_of_gbk_text_are_refused_as_tidb_does() -> None:
    check(column("varchar(20)", charset="gbk"), column("varbinary(20)"), "东", None)


def test_labels_are_compared_as_the_collation_does() -> None:
    new = column("enum(Red,blue)", collation="utf8mb4_general_ci")
    check(column("varchar(9)"), new, "RED ", "Red")
    check(column("varchar(9)"), column("enum(a)", collation="utf8mb4_0900_bin"), "a ", None)


def test_vectors_change_their_dimensions_only_if_they_have_them_already() -> None:
    check(column("vector"), column("vector(2)"), "[1,2]", "[1,2]")
    check(column("vector"), column("vector(2)"), "[1,2,3]", None)
    check(column("vector"), column("vector(2)"), "[]", None)
    check(column("text"), column("vector(2)"), "[1,2]", None)


def test_unknown_types_cast_to_nothing() -> None:
    check(column("geometry"), column("text"), "x", None)
    check(column("text"), column("geometry"), "x", None)


def test_a_timestamp_needs_a_zone() -> None:
    with pytest.raises(ConfigError):
        cast_of(column("datetime"), column("timestamp"), "Mars/Olympus")
