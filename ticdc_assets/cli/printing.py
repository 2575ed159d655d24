"""What commands print: JSON lines for programs, tables for people.

Texts of messages may contain any characters. `shown_text` replaces characters that would control a
terminal, and `print_line` prints one line for every reader.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from ticdc_assets.base.names import counted
from ticdc_assets.observe.wording import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ticdc_assets.repair.comparing import RowDifference


# JSON does not escape these, and many readers end a line at them.
_LINE_ENDS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def print_line(text: str) -> None:
    """Print JSON as one line for every reader; these characters occur only inside strings."""
    click.echo(text.translate(_LINE_ENDS))


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    print_line(json.dumps(value, ensure_ascii=False))


def print_rows(
    title: str, columns: Sequence[str], rows: Sequence[Mapping[str, str | None]], caption: str
) -> None:
    """Print rows as a table, or one below the other if the columns do not fit side by side."""
    from rich.rule import Rule
    from rich.table import Table

    console = _console()
    listing = Table(title=shown_text(title), caption=caption)
    width = 1
    for name in columns:
        cells = [shown_text(name), *(shown_value(row[name]) for row in rows)]
        # In a narrower column, long values would break into too many lines.
        least = min(_LEAST_WIDTH, max(cell.cell_len for cell in cells))
        listing.add_column(cells[0], overflow="fold", min_width=least)
        width += least + 3
    for row in rows:
        listing.add_row(*(shown_value(row[name]) for name in columns))
    if width <= console.width:
        _print_whole(console, listing)
        return
    console.print(shown_text(title), style="table.title")
    for number, row in enumerate(rows, 1):
        record = Table.grid(padding=(0, 2))
        record.add_column(justify="right", overflow="fold", style="bold", max_width=40)
        record.add_column(overflow="fold")
        for name in columns:
            record.add_row(shown_text(name), shown_value(row[name]))
        console.print(Rule(f"row {number}", align="left", characters="-"))
        console.print(record)
    console.print(caption, style="table.caption")


_LEAST_WIDTH = 12


def in_total(count: int, noun: str) -> str:
    """Return the caption of a list that shows some of so many rows, or tables."""
    return f"{counted(count, noun)} in total"


def backlog_text(records: int) -> str:
    """Return how many records have not landed yet, after a clause that names records."""
    return f"{counted(records, 'waits', 'wait')} in the source"


def shown_value(value: str | None) -> "Text":
    """Return a value safe for a terminal; NULL looks different from the text "NULL"."""
    from rich.text import Text

    return Text("NULL", style="dim") if value is None else shown_text(value)


def shown_text(text: str) -> "Text":
    """Return text from messages safe for a terminal: no markup in it, control characters shown."""
    from rich.text import Text

    return Text(visible(text))


def _console() -> "Console":
    from rich.console import Console

    # rich must not replace `:smile:` or colour numbers in values.
    return Console(width=None if sys.stdout.isatty() else 160, emoji=False, highlight=False)


_RIGHT = frozenset(
    {"rows", "exported", "rebuilt", "lag", "partitions", "tables", "waiting records", "balance"}
)
"""The titles of columns of numbers."""


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Iterable["str | Text"]],
    caption: str | None = None,
) -> None:
    """Print rows of texts as a table for people."""
    from rich.table import Table

    listing = Table(title=shown_text(title), caption=caption)
    for name in columns:
        justify = "right" if name in _RIGHT else "left"
        listing.add_column(name, justify=justify, overflow="fold")
    for row in rows:
        listing.add_row(*(shown_text(cell) if isinstance(cell, str) else cell for cell in row))
    _print_whole(_console(), listing)


def _print_whole(console: "Console", listing: "Table") -> None:
    """Print a table; a title or caption that is wider stays one line."""
    from rich.cells import cell_len

    width = console.measure(listing).maximum
    title, caption = listing.title, listing.caption
    if title is not None and cell_len(str(title)) > width:
        console.print(title, style="table.title")
        listing.title = None
    if caption is not None and cell_len(str(caption)) > width:
        listing.caption = None
    console.print(listing)
    if listing.caption is None and caption is not None:
        console.print(caption, style="table.caption")


def print_row_differences(
    name: str, count: int, rows: Sequence["RowDifference"], *, other: str
) -> None:
    """Print some of the `count` rows of a table that differ from the `other` side, if any do."""
    if not rows:
        return
    title = f"{name}: {counted(count, 'row differs', 'rows differ')}"
    if count != len(rows):
        title += f", {len(rows)} of them shown"
    listed: list[tuple[str | Text, ...]] = []
    for row in rows:
        key = ", ".join(
            f"{name}={'NULL' if value is None else value}" for name, value in row.key.items()
        )
        copies = "" if row.copies == 1 else f", {row.copies} times"
        first = (f"{row.finding}{copies}", key)
        if not row.columns:
            listed.append((*first, "", "", ""))
        for item in row.columns:
            values = (shown_value(item.mirror), shown_value(item.rebuilt))
            listed.append((*first, item.name, *values))
            first = ("", "")
    print_table(title, ("row", "key", "column", "mirror", other), listed)
