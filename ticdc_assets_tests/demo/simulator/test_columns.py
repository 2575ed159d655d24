"""SQL of columns, which random values are canonical, and which changes rewrite rows."""

import pytest

from ticdc_assets.demo.simulator.columns import (
    as_typed,
    column,
    column_sql,
    rewrites_rows,
    type_sql,
)
from ticdc_assets_tests.demo.simulator.builders import ALL_TYPES


@pytest.mark.parametrize("sql_type", [*ALL_TYPES, "vector"])
def test_a_type_survives_its_own_sql(sql_type: str) -> None:
    built = column("x", sql_type)
    again = type_sql(built).replace("character set", "charset")
    assert column("x", again) == built


@pytest.mark.parametrize(
    ("sql_type", "sent", "in_sql"),
    [
        ("bit(10)", 682, "b'1010101010'"),
        ("varbinary(64)", "vb", "_UTF8MB4'vb'"),
        ("decimal(20,4)", "1.5", "_UTF8MB4'1.5'"),
        ("varchar(9)", "it's", "_UTF8MB4'it''s'"),
    ],
)
def test_defaults(sql_type: str, sent: str | int, in_sql: str) -> None:
    built = column("x", sql_type, default=sent)
    assert column_sql(built, "Asia/Shanghai").endswith(f"DEFAULT {in_sql}")


def test_backslashes_are_doubled_as_by_each_writer() -> None:
    built = column("x", r"enum('\\a','b')", default="\\a")
    text = column_sql(built, "UTC")
    assert text == r"`x` ENUM('\a','b') DEFAULT _UTF8MB4'\\a'"
    assert as_typed(text) == r"`x` enum('\\a','b') default '\\a'"


def test_a_timestamp_default_is_written_in_the_zone_of_the_session() -> None:
    built = column("x", "timestamp", default="2024-03-11 00:51:01")
    text = column_sql(built, "Asia/Shanghai")
    assert text == "`x` TIMESTAMP NULL DEFAULT _UTF8MB4'2024-03-11 08:51:01'"
    assert as_typed(text) == "`x` timestamp null default '2024-03-11 08:51:01'"


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
        ("text", "longtext", False),
    ],
)
def test_what_rewrites_rows(old: str, new: str, *, rewrites: bool) -> None:
    assert rewrites_rows(column("x", old), column("x", new)) is rewrites


@pytest.mark.parametrize("text", ["", "blurb", "int(", "varchar(a)"])
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a column type"):
        column("x", text)
