"""The name of a table as people read and write it, a count with its noun, and who runs this.

A table is one text, `database.table`. A part that has a dot in it, or begins with a backquote, is
in backquotes, as in SQL, so that the text means one table: `` `a.b`.c ``. `split_name` is the
inverse of `joined_name`.
"""

import os
import re
from typing import Final

from ticdc_assets.base.errors import ConfigError, shorten

_QUOTED: Final = "`(?:[^`]|``)+`"
_NAME: Final = re.compile(
    f"(?P<database>{_QUOTED}|(?!`)[^.]+)[.](?P<table>{_QUOTED}|(?!`).+)", re.DOTALL
)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 topic`, `1,200 topics`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def user_at_host() -> str:
    """Return the user and the machine that run this, as `user@host`."""
    # Imported when somebody accepts a loss, not at every start.
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())  # a container's user need not have a name
    return f"{user}@{socket.gethostname()}"


def joined_name(database: str, table: str) -> str:
    """Return the name of a table; plain parts are not quoted."""
    return f"{_part(database)}.{_part(table)}"


def split_name(text: str) -> tuple[str, str] | None:
    """Return (database, table) of a joined name, or None if `text` is not one.

    A table without quotes may have dots: `a.b.c` is the table `b.c` of the database `a`.
    """
    match = _NAME.fullmatch(text)
    return None if match is None else (_bare(match["database"]), _bare(match["table"]))


def table_named(text: str) -> tuple[str, str]:
    """Return the (database, table) that a person names; ConfigError if it is not one."""
    name = split_name(text)
    if name is None:
        raise ConfigError(
            f"expected DATABASE.TABLE, a name with a dot in backquotes, got {shorten(text)}"
        )
    return name


def _part(name: str) -> str:
    return "`" + name.replace("`", "``") + "`" if "." in name or name.startswith("`") else name


def _bare(part: str) -> str:
    return part[1:-1].replace("``", "`") if part.startswith("`") else part
