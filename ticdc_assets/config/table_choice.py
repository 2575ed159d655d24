"""Some tables of a changefeed, chosen by patterns of their names.

In: patterns as an entry of the file or a command names them. Out: whether a table is among them.
Pure: the same patterns choose the same tables.
"""

import re
from functools import lru_cache
from typing import Final

from pydantic.dataclasses import dataclass

from ticdc_assets.base.names import split_name
from ticdc_assets.config.sources import MODEL


@dataclass(frozen=True, slots=True, config=MODEL)
class TableChoice:
    """Some tables of a changefeed, by patterns `database.table`, in which `*` is any characters.

    A part with a dot in it is in backquotes.
    """

    patterns: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def includes(self, database: str, table: str) -> bool:
        """Return whether a table is one of them; case does not matter, as it does not upstream."""
        return any(
            _like(database, own_database) and _like(table, own_table)
            for own_database, own_table in map(parts_of, self.patterns)
        )


ALL_TABLES: Final = TableChoice(("*.*",))
"""Every table."""


@lru_cache(maxsize=1024)
def parts_of(pattern: str) -> tuple[str, str]:
    """Return the patterns of the database and of the table, empty where there is none."""
    parts = split_name(pattern)
    if parts is None:
        database, _, table = pattern.partition(".")
        parts = (database, table)
    return parts


def _like(name: str, pattern: str) -> bool:
    return _expression(pattern).fullmatch(name.lower()) is not None


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    text = ".*".join(re.escape(part) for part in pattern.lower().split("*"))
    return re.compile(text, re.DOTALL)
