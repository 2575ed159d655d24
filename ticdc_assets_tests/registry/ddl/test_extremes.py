"""DDL of any size and shape is understood with work that follows its size, and never raises."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import pytest

from ticdc_assets.changelog import lineage_plans
from ticdc_assets.changelog.plan import RowGroup
from ticdc_assets.changelog.planning import build_plan
from ticdc_assets.changelog.resolve import RowResolver
from ticdc_assets.registry.catalog import complete
from ticdc_assets.registry.history import Coordinates, SchemaHistory
from ticdc_assets_tests.events import ddl_event

CREATE = "create table t (id bigint primary key)"
RANGES = "create table t (a int) partition by range ("


def _columns(count: int, rest: str = "int") -> str:
    return ", ".join(f"c{number} {rest}" for number in range(count))


TEXTS: dict[str, Callable[[int], str]] = {
    "parentheses of a default": lambda n: f"create table t (a int default {'(' * n}1{')' * n})",
    "parentheses of an expression": lambda n: (
        f"create table u (a int default {'(' * n}1+1{')' * n})"
    ),
    "parentheses of a check": lambda n: f"create table t (a int, check {'(' * n}1{')' * n})",
    "parentheses without end": lambda n: "create table t " + "(" * n,
    "parentheses that close": lambda n: "create table t (a int" + ")" * n,
    "tables in each other": lambda n: "create table t (a int default (" * (n // 30),
    "additions in each other": lambda n: "alter table t " + "add (" * n,
    "parentheses of a partition": lambda n: (
        f"{RANGES}{'(' * n}a{')' * n}) (partition p values less than ({'(' * n}1{')' * n}))"
    ),
    "functions in each other": lambda n: (
        f"{RANGES}{'abs(' * n}a{')' * n}) (partition p values less than (1))"
    ),
    "not not": lambda n: f"{RANGES}a) (partition p values less than ({'not ' * n}1))",
    "a long sum": lambda n: f"{RANGES}a{'+1' * n}) (partition p values less than (1{'+1' * n}))",
    "comments without end": lambda n: "create table t (a int) " + "/* " * n,
    "comments in each other": lambda n: "/*" * n,
    "executed comments without end": lambda n: "alter table t /*! " + "/*! " * n,
    "features without end": lambda n: "/*T![" * n,
    "executed comments in each other": lambda n: (
        "create table t (a int) " + "/*!40101 " * n + "*/" * n
    ),
    "executed comments": lambda n: "create table t (a int) " + "/*T![auto_id] x */" * n,
    "a text without end": lambda n: "create table t (a varchar(9) comment '" + "x" * n,
    "texts without end": lambda n: "create table t (a varchar(9) comment " + "'x " * n,
    "doubled quotes": lambda n: "create table t (a varchar(9) comment '" + "''" * n,
    "backslashes": lambda n: "create table t (a varchar(9) comment '" + "\\" * n,
    "a name": lambda n: f"create table {'x' * n} (a int)",
    "backticks": lambda n: "create table `" + "``" * n,
    "single quotes": lambda n: "'" * (2 * n + 1),
    "double quotes": lambda n: '"' * (2 * n + 1),
    "hex literals without end": lambda n: "x'a" * n,
    "NUL": lambda n: "drop table a\0b" + "\0" * n,
    "lone surrogates": lambda n: f"create table `\ud800` (\udfff int default '{chr(0xD800) * n}')",
    "right to left": lambda n: f"create table {chr(0x202E) * n} (a\u2067 int)",
    "numbers": lambda n: "1.1e+" * n,
    "signs": lambda n: "alter table t alter a set default " + "-" * n,
    "semicolons": lambda n: ";" * n,
    "dots": lambda n: "alter table t change " + "a." * n,
    "references": lambda n: f"create table t (a int {'references t on delete ' * (n // 8)})",
    "blanks": lambda n: f"create table{' ' * n}t (a int)",
    "a number": lambda n: f"create table t (a decimal({'1' * n}))",
    "lines of comment": lambda n: "create table t (a int)" + " -- x\n" * n,
    "commas": lambda n: f"create table t (a int{',' * n})",
    "columns": lambda n: f"create table t ({_columns(n // 8)})",
    "columns to be added first": lambda n: (
        "alter table t " + ", ".join(f"add column c{number} int first" for number in range(n // 40))
    ),
    "labels": lambda n: (
        "create table t (a enum(" + ",".join(f"'{number}'" for number in range(n // 6)) + "))"
    ),
    "partitions": lambda n: (
        f"{RANGES}a) ("
        + ",".join(f"partition p{number} values less than ({number})" for number in range(n // 40))
        + ")"
    ),
}

MANY: dict[str, Callable[[int], list[str]]] = {
    "tables": lambda n: [f"create table t{number} (id int primary key)" for number in range(n)],
    "columns that come and go": lambda n: [
        CREATE,
        *(
            f"alter table t drop column x{number - 1}"
            if number % 2
            else f"alter table t add column x{number} int"
            for number in range(n)
        ),
    ],
    "truncates": lambda n: [CREATE, *["truncate table t"] * n],
    "renames": lambda n: [
        "create table t0 (id bigint primary key)",
        *(f"rename table t{number} to t{number + 1}" for number in range(n)),
    ],
    "creates and drops": lambda n: [CREATE, "drop table t"] * (n // 2),
}


def understood(statements: Sequence[str]) -> None:
    """Do all that is done with DDL, of which each has a row after it."""
    history, groups = SchemaHistory(), list[RowGroup]()
    for number, sql in enumerate(statements):
        ts = 1_000 + number
        event = ddl_event(ts, sql, ddl_type="QUERY")
        history.add_ddl(event, Coordinates(topic="t", partition=0, offset=number, index=0))
        times: dict[str, Any] = {"schema_version": 1_000, "min_ts": ts + 1, "max_ts": ts + 1}
        groups.append(RowGroup(database="d", table="t", table_id=number, rows=1, **times))
    plan = build_plan(complete(history, [], "UTC"), groups, 10**9, "UTC")
    for mirror in plan.mirrors:
        resolver = RowResolver(mirror, "UTC")
        for number in range(len(mirror.versions[:2])):
            _, carrier = resolver.version(number)
            carrier.origins()


def lines_run(statements: Sequence[str]) -> int:
    """Return how many lines of Python run to understand statements."""
    count = 0

    def traced(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        understood(statements)
    finally:
        sys.settrace(before)
    return count


def assert_in_proportion(statements: Callable[[int], Sequence[str]], size: int) -> None:
    # Patterns are compiled once. What was read is kept, so these are fewer.
    understood(statements(size // 10))
    once, twice = (lines_run(statements(many)) for many in (size, 2 * size))
    assert twice < 2.5 * once + 1_000


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_of_twice_the_size_is_about_twice_the_work(name: str) -> None:
    assert_in_proportion(lambda size: [CREATE, TEXTS[name](size)], 2_000)


@pytest.mark.parametrize("name", MANY)
def test_twice_as_many_statements_are_about_twice_the_work(name: str) -> None:
    assert_in_proportion(MANY[name], 100)


def test_the_pasts_of_a_table_share_their_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    diff, steps = lineage_plans.diff, Counter[str]()

    def counted(*schemas: Any, **more: Any) -> Any:
        steps["made"] += 1
        return diff(*schemas, **more)

    monkeypatch.setattr(lineage_plans, "diff", counted)
    added = [f"alter table t add column x{number} int" for number in range(20)]
    understood([CREATE, *(text for sql in added for text in (sql, "truncate table t"))])
    assert steps["made"] == len(added)


@pytest.mark.parametrize("name", ["parentheses of a default", "parentheses of a partition"])
@pytest.mark.slow
def test_a_text_of_ten_megabytes_is_understood(name: str) -> None:
    understood([CREATE, TEXTS[name](5_000_000)])
