"""Columns for the tests of values, written as in SQL: `column("decimal(10,2) unsigned")`."""

from dataclasses import replace
from typing import Any

from ticdc_assets.demo.simulator import columns
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets_tests.cases import grouped


def column(sql: str, **changes: Any) -> ColumnSchema:
    """Return the column as TiCDC would send it; `changes` are fields set afterwards.

    Labels have no quotes: `enum(a,b)`.
    """
    name, _, size = sql.removesuffix(")").partition("(")
    if name in ("enum", "set"):
        labels = ",".join(f"'{label}'" for label in size.split(","))
        sql = f"{name}({labels})"
    if name in ("geometry", "point"):
        # Types that this package does not know.
        bare = ColumnSchema(name="c", mysql_type=name, charset="binary", collation="binary")
    else:
        bare = columns.column("c", sql)
    return replace(bare, **changes)


def cast_cases(text: str) -> list[tuple[str, str, str, str | None]]:
    """Read `old > new: text = cast | text = refused`; a refusal has no text."""
    cases: list[tuple[str, str, str, str | None]] = []
    for change, sent, made in grouped(text):
        old, new = change.split(" > ")
        cases.append((old, new, sent, None if made == "refused" else made))
    return cases
