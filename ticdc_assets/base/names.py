"""The name of a table as people read and write it: database and table, joined by a dot.

In: a database and a table. Out: one text, `database.table`. A part that has a dot in it, or begins
with a backquote, is in backquotes, as in SQL, so that the text means one table: `` `a.b`.c ``.
Pure, and `split_name` is the inverse of `joined_name`.
"""

import re
from typing import Final

_QUOTED: Final = "`(?:[^`]|``)+`"
_NAME: Final = re.compile(
    f"(?P<database>{_QUOTED}|(?!`)[^.]+)[.](?P<table>{_QUOTED}|(?!`).+)", re.DOTALL
)


def joined_name(database: str, table: str) -> str:
    """Return the name of a table; plain parts are not quoted."""
    return f"{_part(database)}.{_part(table)}"


def split_name(text: str) -> tuple[str, str] | None:
    """Return (database, table) of a joined name, or None if `text` is not one.

    A table without quotes may have dots: `a.b.c` is the table `b.c` of the database `a`.
    """
    found = _NAME.fullmatch(text)
    return None if found is None else (_bare(found["database"]), _bare(found["table"]))


def _part(name: str) -> str:
    return "`" + name.replace("`", "``") + "`" if "." in name or name.startswith("`") else name


def _bare(part: str) -> str:
    return part[1:-1].replace("``", "`") if part.startswith("`") else part
