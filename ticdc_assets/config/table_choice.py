"""Some tables of a changefeed, chosen by patterns of their names.

In: patterns as an entry of the file or a command names them. Out: whether a table is among them.
Pure: the same patterns choose the same tables.
"""

import re
from functools import lru_cache
from typing import Final

from pydantic.dataclasses import dataclass

from ticdc_assets.config.sources import MODEL


@dataclass(frozen=True, slots=True, config=MODEL)
class TableChoice:
    """Some tables of a changefeed.

    Args:
        patterns: `database.table`; in both parts `*` stands for any characters.
    """

    patterns: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def includes(self, database: str, table: str) -> bool:
        """Return whether a table is one of them; case does not matter, as it does not upstream."""
        return any(
            _like(database, pattern.partition(".")[0]) and _like(table, pattern.partition(".")[2])
            for pattern in self.patterns
        )


ALL_TABLES: Final = TableChoice(("*.*",))
"""Every table."""


def _like(name: str, pattern: str) -> bool:
    return _expression(pattern).fullmatch(name.lower()) is not None


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    text = ".*".join(re.escape(part) for part in pattern.lower().split("*"))
    return re.compile(text, re.DOTALL)
