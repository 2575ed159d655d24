"""Generated columns that files do not have: exact values, refusals, any text."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.registry.ddl.reader import parse_ddl
from ticdc_assets.registry.inference.generated_columns import GeneratedColumns
from ticdc_assets_tests.cases import grouped
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.registry.inference.test_schemas import create

COLUMNS = (
    "`id` bigint NOT NULL, `u` int unsigned, `z` int zerofill, `y` year, `p` decimal(10,2), "
    "`f` double, `f4` float, `v` varchar(40), `ci` varchar(40) COLLATE utf8mb4_general_ci, "
    "`g` varchar(40) CHARACTER SET gbk, `e` enum('new','paid'), `d` date, `dt` datetime(3), "
    "`ts` timestamp, `j` json, `b` varbinary(20)"
)
ROW: dict[str, str | None] = {
    "id": "7",
    "u": "3",
    "z": "0000000012",
    "y": "2024",
    "p": "10.05",
    "f": "1.5",
    "f4": "1.1",
    "v": "Ab c",
    "ci": "Straße",
    "g": "x",
    "e": "paid",
    "d": "2024-02-29",
    "dt": "2024-12-31 23:59:58.250",
    "ts": "2024-01-01 00:00:00",
    "j": '{"a":{"b":[1,"x\\"y"]},"n":5,"t":"42","z":null,"f":1.5,"o":{"k":true}}',
    "b": "0x00ff",
}


def generated_by(sql: str) -> GeneratedColumns:
    """Return the generated columns of a CREATE TABLE, which may be any text."""
    return GeneratedColumns(parse_ddl(sql), create(sql, timezone="UTC").schema, "UTC")


def generated(*definitions: str) -> GeneratedColumns:
    sql = f"CREATE TABLE `t` ({', '.join([COLUMNS, *definitions])})"
    assert parse_ddl(sql).unparsed is None
    return generated_by(sql)


def value(kind: str, expression: str, **row: str | None) -> str | None:
    """What a stored column of this type has; a KeyError if it is not certain."""
    columns = generated(f"`x` {kind} GENERATED ALWAYS AS ({expression}) STORED")
    return columns.complete(ROW | row, ["x"])["x"]


CASES = [
    *grouped(
        r"""
bigint: `id` * 2 => 14 | -`id` + 2 - 1 => -6
int: `id` div 2 => 3 | `id` % 4 => 3 | `p` => 10 | `p` + 0.45 => 11 | floor(`id` / 2) => 3 |
    ceil(`p`) => 11 | greatest(`id`, `u`, 9) => 9 | length(`ci`) => 7 | char_length(`ci`) => 6 |
    locate('c', `v`) => 4 | ifnull(NULL, coalesce(NULL, `u`)) => 3 | nullif(`u`, 3) => NULL |
    `id` between 1 and 9 and `u` in (1, 2, 3) or not `id` => 1 |
    (`v` is not null) + isnull(`v`) + (`v` <> 'x') => 2 | `d` < '2024-03-01' => 1 |
    month(`d`) * 100 + day(`d`) => 229 | datediff(`dt`, `d`) => 306 |
    json_extract(`j`, '$.n') => 5 | `j` ->> '$.t' => 42 | cast(`j` ->> '$.t' as signed) => 42 |
    json_length(`j`) => 6 | round(`id`, -1) => 10 | round(`id`, 2) => 7 | round(`p`, -1) => 10
decimal(12,3): `p` * 1.1 => 11.055
decimal(12,2): `p` * `u` => 30.15
decimal(10,4): `id` / 3 => 2.3333
decimal(10,2): round(`p` / 3, 2) => 3.35
decimal(10,1): truncate(`p`, 1) => 10.0
double: `f` * `u` => 4.5 | `p` * 2 => 20.1 | `f4` * 1 => 1.100000023841858
float: `f4` => 1.1
year: year(`d`) => 2024
bit(4): `id` => 7
varchar(60): concat(`v`, _utf8mb4'-', `id`, '/', `p`) => Ab c-7/10.05 |
    concat_ws('|', `v`, NULL, `e`) => Ab c|paid |
    concat(`d`, ' ', `dt`) => 2024-02-29 2024-12-31 23:59:58.250
varchar(20): upper(`v`) => AB C | lower(trim(concat(' ', `v`))) => ab c |
    substring(`v`, 2, 3) => b c | right(`v`, 1) => c | substring_index('a.b.c', '.', -1) => c |
    lpad(`id`, 3, '0') => 007 | replace(`v`, ' ', '_') => Ab_c | `j` ->> '$.a.b[1]' => x"y |
    `j` -> '$.t' => "42" | json_unquote(json_extract(`j`, '$.o')) => {"k": true} |
    `j` ->> '$.z' => null | `j` -> '$.missing' => NULL
char(6): concat(`v`, '  ') => Ab c
char(32): md5(`v`) => b034d76a0440ea9425ba32c91faa816b
binary(5): `v` => 0x4162206300
tinyint(1): if(`e` = 'paid', 1, 0) => 1
varchar(9): case `e` when 'new' then 'n' when 'paid' then 'p' end => p |
    case when `id` > 9 then 'big' when `id` < 0 then 'neg' end => NULL
date: `d` + interval 1 year => 2025-02-28 | last_day(`dt`) => 2024-12-31 |
    date(`dt`) => 2024-12-31
datetime: date_sub(`d`, interval 1 day) => 2024-02-28 00:00:00
datetime(3): date_add(`dt`, interval 2 second) => 2025-01-01 00:00:00.250
char(7): date_format(`dt`, '%Y-%m') => 2024-12
json: `j` -> '$.a' => {"b":[1,"x\"y"]}
enum('n','p'): left(`e`, 1) => p
decimal(5,1): cast('12.34' as decimal(5,1)) => 12.3
varchar(3): cast(`v` as char(2)) => Ab
# No rule.
varchar(20): soundex(`v`) => refused
int: `v` like 'a%' => refused | `v` regexp 'a' => refused | `id` || `u` => refused |
    cast('12abc' as signed) => refused | cast('1.5' as signed) => refused
bigint: unix_timestamp(`ts`) => refused
date: date(`ts`) => refused
double: 1e3 * `id` => refused
varchar(9): `v` collate utf8mb4_general_ci => refused
# Types that do not go together for certain.
int: `v` + 1 => refused | `v` = 1 => refused | length(`g`) => refused
varchar(20): concat(`f`, '') => refused | concat(`z`, '') => refused
varchar(40): if(`id` > 1, 1, 2.50) => refused
timestamp: `dt` => refused
# Rows.
decimal(20,10): `id` / 3 => refused
tinyint: `id` * 100 => refused
int: round(`id` + 18, -1) => refused | round(`id` * 1000000000000000000, 2) => refused
int unsigned: -`id` => refused
varchar(2): `v` => refused
varchar(9): upper(`ci`) => refused
int: `ci` > 'a' => refused | `v` < 'Ab c ' => refused | json_extract(`j`, '$.t2[*]') => refused |
    `b` => refused | `nothing` => refused | `id` * => refused
enum('n'): `e` => refused
""",
        " => ",
    ),
    ("int", "`id` | 1", "refused"),
]


@pytest.mark.parametrize(("kind", "expression", "expected"), CASES)
def test_a_value_is_that_of_tidb_or_refused(kind: str, expression: str, expected: str) -> None:
    columns = generated(f"`x` {kind} GENERATED ALWAYS AS ({expression}) STORED")
    value = None if expected == "NULL" else expected
    assert columns.complete(ROW, ["x"]) == ({} if expected == "refused" else {"x": value})


def test_null_gives_null_where_it_does_in_sql() -> None:
    assert value("bigint", "`id` * `u`", u=None) is None
    assert value("varchar(20)", "concat(`v`, `id`)", v=None) is None
    assert value("int", "`u` = 1 or `id` = 7", u=None) == "1"
    assert value("int", "`u` = 1 and `id` = 8", u=None) == "0"
    assert value("int", "`u` <=> NULL", u=None) == "1"
    assert value("int", "`id` / 0") is None


def test_columns_follow_those_before_them() -> None:
    columns = generated(
        "`x` int AS (`id` + 1) VIRTUAL",
        "`w` int AS (`x` * 2) STORED",
        "`q` int AS (soundex(`v`)) STORED",
        "`r` int AS (`q` + 1) STORED",
    )
    assert columns.stored == {"w", "q", "r"}
    assert columns.complete(ROW, ["x", "w", "q", "r"]) == {"x": "8", "w": "16"}
    # A value that a file has is used.
    assert columns.complete(ROW | {"q": "1"}, ["x", "w", "r"]) == {"x": "8", "w": "16", "r": "2"}
    refused = columns.named("q")
    assert refused is not None
    assert refused.problem == "function SOUNDEX in an expression is not known"


@given(st.decimals(-1000, 1000, places=2), st.integers(-99, 99).filter(bool))
@examples(200)
def test_a_rounded_quotient_is_the_exact_one(price: Decimal, by: int) -> None:
    columns = generated(f"`x` decimal(12,2) AS (`p` / ({by})) STORED")
    found = columns.complete(ROW | {"p": f"{price:.2f}"}, ["x"])
    exact = (abs(price) * 1000 // abs(by) + 5) // 10 / Decimal(100)
    if found:
        assert abs(Decimal(found["x"] or "")) == exact


@given(st.text(max_size=60))
@examples(300)
def test_any_text_is_read_or_refused(text: str) -> None:
    generated_by(f"CREATE TABLE t (id int, x int AS ({text}) STORED)").complete({"id": "1"}, ["x"])


def test_an_enum_as_a_number_is_not_its_text() -> None:
    """TiDB takes the index of the label: 1 for '10'."""
    columns = generated_by(
        "CREATE TABLE `t` (`e` enum('10','20'), `i` int AS (`e`) STORED, "
        "`c` int AS (cast(`e` as signed)) STORED, `v` varchar(9) AS (`e`) STORED)"
    )
    assert columns.complete({"e": "10"}, ["i", "c", "v"]) == {"v": "10"}
