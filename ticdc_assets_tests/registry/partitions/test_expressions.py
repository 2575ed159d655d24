"""Expressions of partitions: functions against known answers and the standard library, any text."""

import operator
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ticdc_assets.base.errors import PartitionError
from ticdc_assets.registry.ddl.statement import (
    BoundKind,
    PartitionDefinition,
    Partitioning,
    PartitionMethod,
)
from ticdc_assets.registry.expressions.reader import PARTITION_WORDS, read_expression
from ticdc_assets.registry.expressions.terms import integer_of
from ticdc_assets.registry.partitions import partition_test
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.registry.partitions.test_rules import SCHEMA

Row = dict[str, str | None]


def evaluator(text: str, timezone: str = "UTC") -> Callable[[Row], int | None]:
    return integer_of(read_expression(text, SCHEMA, timezone, PARTITION_WORDS), "the test")


VALUES: list[tuple[str, Row, int | None]] = [
    ("1 + 2 * 3 - 4", {}, 3),
    ("(1 + 2) * (3 - -4)", {}, 21),
    ("2 - 3 - 4", {}, -5),
    ("- - 5 - + 2", {}, 3),
    ("-7 div 2", {}, -3),
    ("7 DIV -2", {}, -3),
    ("-7 % 3", {}, -1),
    ("7 mod -3", {}, 1),
    ("mod(-7, 3)", {}, -1),
    ("1 div 0", {}, None),
    ("1 % 0", {}, None),
    ("id * 2 + `Mixed Case`", {"id": "3", "Mixed Case": "1"}, 7),
    ("`t`.`id` + shop.t.id", {"id": "4"}, 8),
    ("id + u", {"id": None, "u": "1"}, None),
    ("u - 1", {"u": "18446744073709551615"}, 2**64 - 2),
    ("-id", {"id": "9"}, -9),
    ("abs(id)", {"id": "-9"}, 9),
    ("ceil(id) + CEILING(id) + floor(id)", {"id": "-9"}, -27),
    ("floor(n)", {"n": "-1.50"}, -2),
    ("ceiling(n)", {"n": "-1.50"}, -1),
    ("floor(n)", {"n": None}, None),
    ("y", {"y": "2024"}, 2024),
    ("year(d) * 100 + month(d)", {"d": "2024-05-06"}, 202405),
    ("year(d)", {"d": "0000-00-00"}, 0),
    ("month(d)", {"d": "2024-00-00"}, 0),
    ("day(d) + dayofmonth(d)", {"d": "2024-05-06"}, 12),
    ("quarter(d)", {"d": "2024-00-00"}, 0),
    ("quarter(d)", {"d": "2024-10-01"}, 4),
    ("to_days(d)", {"d": "0000-00-00"}, None),
    ("to_days(d)", {"d": "2024-05-00"}, None),
    ("to_days(d)", {"d": "0000-01-01"}, 1),
    ("to_days(d)", {"d": "2007-10-07"}, 733321),
    ("to_days(dt)", {"dt": "2007-10-07 23:59:59"}, 733321),
    ("to_days('1997-10-07') - to_days('19971006')", {}, 1),
    ("to_days(19971007)", {}, 729669),
    ("to_seconds(d)", {"d": "2009-11-29"}, 63426672000),
    ("to_seconds(dt)", {"dt": "2009-11-29 13:43:32"}, 63426721412),
    ("to_seconds(dt)", {"dt": "0000-00-00 00:00:00"}, None),
    ("datediff(dt, '2007-12-30')", {"dt": "2007-12-31 23:59:59"}, 1),
    ("datediff('2010-11-30 23:59:59', d)", {"d": "2010-12-31"}, -31),
    ("datediff(d, '2010-01-01')", {"d": "2010-01-00"}, None),
    ("dayofweek(d)", {"d": "2007-02-03"}, 7),
    ("weekday(d)", {"d": "2008-02-03"}, 6),
    ("weekday(d)", {"d": "2024-02-31"}, 5),
    ("weekday(d)", {"d": "0000-00-00"}, None),
    ("dayofyear(d)", {"d": "2007-02-03"}, 34),
    ("dayofyear(d)", {"d": "2024-12-31"}, 366),
    ("yearweek(d)", {"d": "1987-01-01"}, 198652),
    ("yearweek(d)", {"d": "2000-01-01"}, 199952),
    ("yearweek(d, 3)", {"d": "2008-12-31"}, 200901),
    ("yearweek(d)", {"d": "0000-00-00"}, None),
    ("hour(dt) * 10000 + minute(dt) * 100 + second(dt)", {"dt": "2024-01-01 10:20:30"}, 102030),
    ("hour(tm)", {"tm": "-838:59:59.0"}, 838),
    ("minute(tm) + second(tm)", {"tm": "-01:02:03.4"}, 5),
    ("microsecond(tm)", {"tm": "-01:02:03.4"}, 400000),
    ("microsecond(dt3)", {"dt3": "2024-01-01 00:00:00.007"}, 7000),
    ("time_to_sec(tm)", {"tm": "-01:00:01.9"}, -3601),
    ("time_to_sec(dt)", {"dt": "2024-01-01 22:23:00"}, 80580),
    ("hour(d)", {"d": "2024-01-01"}, 0),
    ("extract(year_month from d)", {"d": "2019-07-02"}, 201907),
    ("extract(DAY_MINUTE FROM dt)", {"dt": "2019-07-02 01:02:03"}, 20102),
    ("extract(microsecond from dt3)", {"dt3": "2003-01-02 10:30:00.123"}, 123000),
    ("extract(day_microsecond from dt3)", {"dt3": "2003-01-02 10:30:00.123"}, 2103000123000),
    ("extract(quarter from d)", {"d": "2019-07-02"}, 3),
    ("unix_timestamp('2024-01-01 00:00:00')", {}, 1704067200),
    ("unix_timestamp(ts) + 1", {"ts": "2024-01-01 00:00:00"}, 1704067201),
    ("unix_timestamp(ts)", {"ts": "0000-00-00 00:00:00"}, 0),
    ("unix_timestamp(ts)", {"ts": None}, None),
    ("/* a */ id /*!40101 + 1 */ -- end", {"id": "1"}, 2),
    ('year("d")', {"d": "2024-01-01"}, 2024),
]


@pytest.mark.parametrize(
    ("text", "row", "value"), VALUES, ids=[f"{text} {row}" for text, row, _ in VALUES]
)
def test_values_of_expressions(text: str, row: Row, value: int | None) -> None:
    assert evaluator(text)(row) == value


REFUSED = """
id / 2; id | 1; id ^ 2; id << 1; id = 1; id and 1; not id; ~id; !id; id in (1); if(id, 1, 2);
1.5; 1e3; 0x10; b'1'; 123456789012345678901; 'text'; date '2024-01-01'; null + 'x'; @a; ?; :p;
(id; id); (); +; id +; + + ; * id; id id; abs; abs(; abs(); abs(id, id); abs(,id); abs(id,,id);
abs(d); year(); year(id); year(d, d); year('not a date'); year(20241301); year('2024-02-30');
month(ts); hour(ts); hour('10:00'); hour(id); extract(week from d); extract(year d); extract(year);
extract(hour from tm); extract(year from id); unix_timestamp(); unix_timestamp(dt);
unix_timestamp(d); unix_timestamp('2024-01-01 00:00:00.5'); yearweek(d, id); yearweek(d, 8);
weekofyear(d); week(d); from_days(id); now(); current_timestamp; curdate(); d; dt; tm; s; b; e; j;
f; bit8; n; floor(f); abs(n); n + 1; id + n; `id; 'open; "open; /* open; id; `no such`; t.`no`;
select 1; (select 1); case when id then 1 end; cast(id as signed); interval 1 day;
d + interval 1 day;
id collate utf8mb4_bin; binary id; id div; mod; mod(id); datediff(d); datediff(d, id);
maxvalue; default; *; ,; 1, 2; ;; id -> '$.a'
"""


@pytest.mark.parametrize("text", [item.strip() for item in REFUSED.split(";")])
def test_anything_else_is_refused(text: str) -> None:
    if text == "id":  # what is left of `id; id)`, cut at the semicolon
        return
    with pytest.raises(PartitionError):
        evaluator(text)


@pytest.mark.parametrize(
    "text", ["2024-01-01 00:00:00.0000005", "20240101000000.0000005", "2024-01-01 00:00:00+08:00"]
)
def test_a_literal_that_tidb_would_round_or_shift_is_refused(text: str) -> None:
    with pytest.raises(PartitionError, match="not understood"):
        evaluator(f"to_seconds('{text}')")
    assert evaluator(f"to_seconds('{text[:19].split('.')[0]}')")({}) == 63871286400


def test_a_time_the_zone_skipped_is_refused() -> None:
    text = "unix_timestamp('2024-03-10 02:30:00')"
    assert evaluator(text)({}) == 1710037800
    with pytest.raises(PartitionError, match="does not have"):
        evaluator(text, "America/New_York")


# ------------------------------------------------------------------- against the standard library

MOMENTS = st.datetimes(
    datetime.fromisoformat("0001-01-08"), datetime.fromisoformat("9999-12-31T23:59:59")
)

ORACLES: Final[dict[str, Callable[[datetime], int]]] = {
    "year(dt)": lambda at: at.year,
    "quarter(dt)": lambda at: -(-at.month // 3),
    "dayofyear(dt)": lambda at: at.timetuple().tm_yday,
    "weekday(dt)": lambda at: at.weekday(),
    "dayofweek(dt)": lambda at: at.isoweekday() % 7 + 1,
    "to_days(dt)": lambda at: at.toordinal() + 365,
    "to_seconds(dt)": lambda at: (
        (at.toordinal() + 365) * 86400 + at.hour * 3600 + at.minute * 60 + at.second
    ),
    "time_to_sec(dt)": lambda at: at.hour * 3600 + at.minute * 60 + at.second,
    "yearweek(dt, 3)": lambda at: at.isocalendar().year * 100 + at.isocalendar().week,
    "yearweek(dt, 2)": lambda at: _first_weekday_week(at, 6),
    "yearweek(dt, 7)": lambda at: _first_weekday_week(at, 0),
    "yearweek(dt, 6)": lambda at: _us_week(at),
    "extract(minute_second from dt)": lambda at: at.minute * 100 + at.second,
    "datediff(dt, '2000-01-01')": lambda at: (at - datetime.fromisoformat("2000-01-01")).days,
}


def _first_weekday_week(at: datetime, weekday: int) -> int:
    """The week whose number counts from the year's first such day of the week."""
    start = at - timedelta(days=(at.weekday() - weekday) % 7)
    return start.year * 100 + (start.timetuple().tm_yday - 1) // 7 + 1


def _us_week(at: datetime) -> int:
    """Weeks from Sunday on; week 1 is the first with four days of the year."""
    middle = at - timedelta(days=at.isoweekday() % 7) + timedelta(days=3)
    return middle.year * 100 + (middle.timetuple().tm_yday - 1) // 7 + 1


@pytest.mark.parametrize("text", ORACLES)
@examples(40)
@given(at=MOMENTS)
def test_functions_of_dates_agree_with_the_calendar(text: str, at: datetime) -> None:
    at = at.replace(microsecond=0)
    if at.year == 9999 and at.month == 12:
        at = at.replace(month=11, day=min(at.day, 30))
    assert evaluator(text)({"dt": at.isoformat(" ")}) == ORACLES[text](at)


Tree = int | str | tuple[str, "Tree", "Tree"]
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.one_of(st.integers(-99, 99), st.sampled_from(["id", "u"])),
    lambda inner: st.tuples(st.sampled_from("+-*"), inner, inner),
    max_leaves=12,
)
_ARITHMETIC: Final = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def _text(tree: Tree) -> str:
    if isinstance(tree, tuple):
        sign, left, right = tree
        return f"({_text(left)} {sign} {_text(right)})"
    return str(tree)


def _value(tree: Tree, row: dict[str, int]) -> int:
    if isinstance(tree, tuple):
        sign, left, right = tree
        return _ARITHMETIC[sign](_value(left, row), _value(right, row))
    return row[tree] if isinstance(tree, str) else tree


@examples(80)
@given(tree=TREES, number=st.integers(-(2**63), 2**63 - 1), unsigned=st.integers(0, 2**64 - 1))
def test_arithmetic_is_exact(tree: Tree, number: int, unsigned: int) -> None:
    row = {"id": number, "u": unsigned}
    texts: Row = {name: str(value) for name, value in row.items()}
    try:
        found = evaluator(_text(tree))(texts)
    except PartitionError as error:
        assert "deeply" in error.reason  # noqa: PT017  # depth is the only thing to refuse here
        return
    assert found == _value(tree, row)


# ------------------------------------------------------------------------------------- any text

PIECES = st.sampled_from(
    [
        *"()+-*/%,;.`'\"\\ \n@#",
        *("id", "u", "d", "dt", "ts", "tm", "s", "n", "y", "nobody", "null", "maxvalue", "default"),
        *("year(", "to_days(", "abs(", "mod(", "extract(", "year from ", "unix_timestamp("),
        *("0", "1", "-5", "99999999999999999999", "1e9", "0x1f", "b'1'", "'2024-01-01'", "'x'"),
        *("div", "mod", "interval", "/*!", "*/", "-- ", "_utf8", "date", "é", "😀", "\x00"),
    ]
)
TEXTS = st.one_of(st.text(max_size=30), st.lists(PIECES, max_size=25).map("".join))
TOKENS = st.lists(PIECES, max_size=12).map(" ".join)

DATES = st.one_of(
    st.dates().map(str), st.sampled_from(["0000-00-00", "2024-00-00", "2024-02-31", "0000-12-31"])
)
CLOCKS = st.times().map(lambda at: at.replace(microsecond=0).isoformat())
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1).map(str),
        "u": st.integers(0, 2**64 - 1).map(str),
        "d": DATES,
        "dt": st.tuples(DATES, CLOCKS).map(" ".join),
        "ts": st.datetimes(datetime(1970, 1, 2), datetime(2038, 1, 1)).map(  # noqa: DTZ001
            lambda at: at.isoformat(" ", "seconds")
        ),
        "tm": st.tuples(st.sampled_from(["", "-"]), st.integers(0, 838)).map(
            lambda parts: f"{parts[0]}{parts[1]:02}:59:59.9"
        ),
        "s": st.text(max_size=5),
        "n": st.decimals(-(10**7), 10**7, places=2).map(str),
        "y": st.integers(1901, 2155).map(str),
    }
).flatmap(
    lambda row: st.sets(st.sampled_from(sorted(row))).map(
        lambda nulls: {name: None if name in nulls else value for name, value in row.items()}
    )
)

METHODS = st.sampled_from(list(PartitionMethod))
BOUNDS = st.sampled_from([None, *BoundKind])


@examples(150)
@given(
    method=METHODS,
    expression=st.one_of(TEXTS, TOKENS),
    bounds=st.lists(st.tuples(BOUNDS, st.one_of(TEXTS, TOKENS, st.none())), max_size=3),
    columns=st.lists(st.sampled_from(["id", "s", "d", "dt", "nobody", "n"]), max_size=2),
    row=ROWS,
)
def test_no_text_and_no_row_fails_in_another_way(
    method: PartitionMethod,
    expression: str,
    bounds: list[tuple[BoundKind | None, str | None]],
    columns: list[str],
    row: Row,
) -> None:
    table = Partitioning(
        method=method,
        expression=expression,
        columns=tuple(columns),
        definitions=(
            PartitionDefinition(name="p"),
            *(
                PartitionDefinition(name=f"p{number}", bound_kind=kind, bound=bound)
                for number, (kind, bound) in enumerate(bounds)
            ),
        )[len(bounds) > 0 :],
    )
    try:
        is_in = partition_test(table, table.names[:1], SCHEMA, "Asia/Shanghai")
    except PartitionError as error:
        assert "\n" not in error.reason  # noqa: PT017  # what is raised is what is looked at
        return
    assert is_in(row) in (True, False)


FUNCTIONS = st.sampled_from([*ORACLES, "month(d)", "day(d)", "hour(tm)", "floor(n)", "mod(id, u)"])
EXPRESSIONS = st.lists(
    st.one_of(FUNCTIONS, st.sampled_from(["id", "u", "y", "-7", "unix_timestamp(ts)"])),
    min_size=1,
    max_size=6,
).flatmap(
    lambda items: st.lists(
        st.sampled_from(["+", "-", "*", "div", "%"]), min_size=len(items), max_size=len(items)
    ).map(
        lambda signs: (
            items[0]
            + "".join(f" {sign} {item}" for sign, item in zip(signs, items[1:], strict=False))
        )
    )
)


@examples(70)
@given(expression=EXPRESSIONS, row=ROWS)
def test_what_was_understood_is_total_on_rows_of_the_table(expression: str, row: Row) -> None:
    table = Partitioning(
        method=PartitionMethod.HASH,
        expression=expression,
        columns=(),
        definitions=tuple(PartitionDefinition(name=f"p{number}") for number in range(5)),
    )
    tests = [partition_test(table, (name,), SCHEMA, "+08:00") for name in table.names]
    assert sum(is_in(row) for is_in in tests) == 1


def test_the_longest_and_deepest_expressions_that_are_read_can_be_evaluated() -> None:
    long = " + ".join(["abs(-(id))"] * 20)
    assert evaluator(long)({"id": "-3"}) == 60
    deep = "abs(" * 20 + "-id" + ")" * 20
    assert evaluator(deep)({"id": "4"}) == 4
