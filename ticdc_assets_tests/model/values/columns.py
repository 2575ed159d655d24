"""Columns for the tests of values, written as in SQL: `column("decimal(10,2) unsigned")`."""

import re
from dataclasses import replace
from typing import Any

from ticdc_assets.demo.simulator import columns
from ticdc_assets.model.schemas import ColumnSchema


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


def grouped(text: str) -> list[tuple[str, str, str]]:
    """Read cases by what they share: that, a text, and what becomes of the text.

    A line is `shared: text = made | text = made`; after a `|` at its end the next one belongs to
    it. `''` is the empty text; a line that begins with `#` is a comment.
    """
    cases: list[tuple[str, str, str]] = []
    lines = re.sub(r"(?m)^#.*\n", "", text.lstrip())
    for line in re.sub(r"\|\n +", "| ", lines).splitlines():
        shared, _, items = line.partition(": ")
        for item in items.split(" | "):
            sent, made = ("" if side == "''" else side for side in item.split(" = "))
            cases.append((shared, sent, made))
    return cases


def cast_cases(text: str) -> list[tuple[str, str, str, str | None]]:
    """Read `old > new: text = cast | text = refused`; a refusal has no text."""
    cases: list[tuple[str, str, str, str | None]] = []
    for change, sent, made in grouped(text):
        old, new = change.split(" > ")
        cases.append((old, new, sent, None if made == "refused" else made))
    return cases
