import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ticdc_assets.demo.simulator.columns import (
    as_typed,
    column,
    column_sql,
    default_value,
    modified_value,
    random_value,
    rewrites_rows,
    type_sql,
    zero_value,
)
from ticdc_assets.model.values import canonical_of, physical_of
from ticdc_assets_tests.demo.simulator.builders import ALL_TYPES


def test_columns_are_those_that_the_real_encoder_sends(golden_dir: Callable[..., Path]) -> None:
    seen = set()
    with gzip.open(golden_dir("simple-json", "shop") / "events.jsonl.gz", "rt") as file:
        for line in file:
            for sent in (json.loads(line).get("schema") or {"columns": ()})["columns"]:
                if sent["columnType"] == "unspecified":  # a column of a view
                    continue
                sql_type = re.sub(
                    r"^((?:tiny|small|medium|big)?int)\(\d\d?\)", r"\1", sent["columnType"]
                )
                sql_type = sql_type if sent["columnType"] != "tinyint(1)" else "tinyint(1)"
                if sent["charset"] not in ("binary", "utf8mb4"):
                    sql_type += f" charset {sent['charset']}"
                built = column("x", sql_type)
                assert built.mysql_type == sent["mysqlType"]
                assert built.charset == sent["charset"]
                assert built.length == sent["length"], sql_type
                assert built.elements == tuple(sent.get("elements") or ())
                assert built.unsigned == sent["unsigned"]
                assert built.zerofill == sent["zerofill"]
                if built.mysql_type not in ("float", "double"):
                    assert built.decimal == sent["decimal"], sql_type
                seen.add(sql_type)
    assert len(seen) > 50


@pytest.mark.parametrize("sql_type", ALL_TYPES)
def test_a_type_survives_its_own_sql(sql_type: str) -> None:
    built = column("x", sql_type)
    again = type_sql(built).replace("character set", "charset")
    assert column("x", again) == built


@pytest.mark.parametrize("sql_type", ALL_TYPES)
def test_random_values_are_canonical(sql_type: str) -> None:
    rng = random.Random(sql_type)
    built = column("x", sql_type)
    canonical = canonical_of(built, "Asia/Shanghai")
    physical = physical_of(built, "Asia/Shanghai")
    for _ in range(200):
        text = random_value(rng, built, timezone="Asia/Shanghai")
        assert canonical(physical(text)) == text


@pytest.mark.parametrize("sql_type", ALL_TYPES)
def test_zero_values_are_canonical(sql_type: str) -> None:
    built = column("x", sql_type)
    text = zero_value(built)
    assert canonical_of(built, "UTC")(physical_of(built, "UTC")(text)) == text


@pytest.mark.parametrize(
    ("sql_type", "sent", "in_rows", "in_sql"),
    [
        ("timestamp(6)", "2024-03-11 00:51:01.461270", "2024-03-11 08:51:01.461270", None),
        ("bit(10)", 682, "682", "b'1010101010'"),
        ("varbinary(64)", "vb", "0x7662", "_UTF8MB4'vb'"),
        ("binary(4)", "vb", "0x76620000", "_UTF8MB4'vb'"),
        ("decimal(20,4)", "1.5", "1.5000", "_UTF8MB4'1.5'"),
        ("varchar(9)", "it's", "it's", "_UTF8MB4'it''s'"),
        ("datetime(3)", "2024-01-01 00:00:00", "2024-01-01 00:00:00.000", None),
    ],
)
def test_defaults(sql_type: str, sent: str | int, in_rows: str, in_sql: str | None) -> None:
    built = column("x", sql_type, default=sent)
    assert default_value(built, "Asia/Shanghai") == in_rows
    if in_sql is not None:
        assert column_sql(built, "Asia/Shanghai").endswith(f"DEFAULT {in_sql}")


def test_a_timestamp_default_is_written_in_the_zone_of_the_session() -> None:
    built = column("x", "timestamp", default="2024-03-11 00:51:01")
    text = column_sql(built, "Asia/Shanghai")
    assert text == "`x` TIMESTAMP NULL DEFAULT _UTF8MB4'2024-03-11 08:51:01'"
    assert as_typed(text) == "`x` timestamp null default '2024-03-11 08:51:01'"


@pytest.mark.parametrize(
    ("old", "new", "value", "after"),
    [
        ("int", "bigint", "-7", "-7"),
        ("int", "varchar(40)", "-7", "-7"),
        ("int", "decimal(12,2)", "-7", "-7.00"),
        ("decimal(12,2)", "decimal(20,4)", "1.25", "1.2500"),
        ("decimal(12,2)", "decimal(12,1)", "-1.25", "-1.3"),
        ("decimal(12,2)", "int", "2.50", "3"),
        ("decimal(12,2)", "decimal(12,0)", "-0.40", "0"),
        ("varchar(20)", "text", "x", "x"),
        ("datetime", "datetime(3)", "2024-01-01 00:00:00", "2024-01-01 00:00:00.000"),
        ("binary(2)", "binary(4)", "0x0102", "0x01020000"),
        ("int", "bigint", None, None),
    ],
)
def test_modified_values(old: str, new: str, value: str | None, after: str | None) -> None:
    assert modified_value(value, column("x", old), column("x", new)) == after


def test_a_modification_without_a_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="no rule"):
        modified_value("[1]", column("x", "vector(1)"), column("x", "int"))


# What TiDB does with the column ids of the golden set.
@pytest.mark.parametrize(
    ("old", "new", "rewrites"),
    [
        ("int", "bigint", False),
        ("bigint", "varchar(40)", True),
        ("decimal(12,2)", "decimal(20,4)", True),
        ("varchar(30)", "varchar(60)", False),
        ("enum('a','b')", "enum('a','b','c')", False),
        ("enum('a','b')", "enum('b','a')", True),
        ("int", "int unsigned", True),
    ],
)
def test_what_rewrites_rows(old: str, new: str, *, rewrites: bool) -> None:
    assert rewrites_rows(column("x", old), column("x", new)) is rewrites


@pytest.mark.parametrize("text", ["", "blurb", "int(", "varchar(a)"])
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a column type|invalid literal"):
        column("x", text)
