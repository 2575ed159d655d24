"""The error about a damaged table: which one it is, and how to repair it.

In: the folder of a table and one clause that says what is damaged. Out: the error. The repair
depends on the table's source: mirrors and histories are folded from the change log; the tables of
decoding and applying are made from the landed records and rows of exports; these have no source in
the lake. Where a store does not answer, nothing is known of its tables, and that is the error.
"""

import re
import shlex

from ticdc_assets.engine.paths import GENERATIONS, HISTORIES, MIRRORS, LakePaths
from ticdc_assets.errors import LakeDamagedError, StoreUnavailableError
from ticdc_assets.names import joined_name
from ticdc_assets.storage.paths import AnyPath, RemotePath

SOURCE_TABLE = "raw_messages"
"""The table of landed records."""

_OF_MIRRORS = {MIRRORS: "the mirror", HISTORIES: "the history"}


def damaged(
    table: AnyPath, finding: str, name: tuple[str, str] | None = None, *, is_behind: bool = False
) -> LakeDamagedError:
    """Return the error that says that a table is broken.

    Args:
        table: its folder.
        finding: one clause that says what is broken.
        name: (database, table) of a mirror or a history, if it is known.
        is_behind: whether it is intact, but lacks its end.

    Raises:
        StoreUnavailableError: its store does not answer.
    """
    require_answer(table)
    paths = changefeed_of(table)
    feed = paths.changefeed
    if table.parent.name in _OF_MIRRORS:
        what, shown = _OF_MIRRORS[table.parent.name], f"with id {table.name}"
        repair = "`ticdc-assets doctor` names its table"
        if name is not None:
            shown = "of " + joined_name(*name)
            command = f"ticdc-assets backfill {feed} --table {shlex.quote(joined_name(*name))}"
            # As in Markdown: a command that has a backquote is between two.
            fence = "``" if "`" in command else "`"
            repair = (
                f"{fence}{command}{fence} makes it again from the change log; the next sync does "
                "so too"
            )
        what = f"{what} {shown} of changefeed {feed!r}"
    elif table in (paths.lease, paths.side_lease):
        what = f"{table.name} of changefeed {feed!r}"
        repair = f"end all runs of {feed}, remove {table}, and sync again: a new one is made"
    elif table.name == SOURCE_TABLE and is_behind:
        what = f"{SOURCE_TABLE} of changefeed {feed!r}"
        repair = (
            f"restore it from a newer copy, or, if the source still has the missing records, run "
            f"`ticdc-assets rebuild {feed}`, which lands them again and makes all tables from them"
        )
    elif table.name == SOURCE_TABLE:
        what = f"{SOURCE_TABLE} of changefeed {feed!r}"
        repair = (
            f"restore it from a copy, then check with `ticdc-assets verify {feed}` that the "
            "mirrors can be rebuilt from it; or, if the source still has every record, move "
            f"{paths.base} away and the next sync lands them again"
        )
    elif table in (paths.seeds, paths.snapshot_rows):
        what = f"{table.name} of changefeed {feed!r}"
        repair = (
            f"restore it from a copy, or move {paths.seeds} and {paths.snapshot_rows} away, run "
            f"`ticdc-assets rebuild {feed} --accept-losses`, and seed again from exports"
        )
    else:
        what = f"{table.name} of changefeed {feed!r}"
        repair = (
            f"`ticdc-assets rebuild {feed}` makes all tables again from the landed records, or "
            "restore it from a copy"
        )
    return LakeDamagedError(feed, what, str(table), finding, repair)


def require_answer(table: AnyPath) -> None:
    """Check that the store of a table answers, if it is in one.

    Raises:
        StoreUnavailableError: it does not.
    """
    if not isinstance(table, RemotePath):
        return
    try:
        table.exists()
        bucket = RemotePath(table.store, "")
        refusal = None if bucket.exists() else f"there is no {bucket}"
    except OSError as reason:
        refusal = words_of(reason)
    if refusal is not None:
        raise StoreUnavailableError(str(table), refusal)


def words_of(error: Exception) -> str:
    """Return what an error of a library says first, without colours and within reason."""
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= _ERROR_CHARACTERS else text[: _ERROR_CHARACTERS - 1] + "…"


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ERROR_CHARACTERS = 300


def changefeed_of(table: AnyPath) -> LakePaths:
    """Return the changefeed, with the generation, that a table's folder is in."""
    base = table.parent.parent if table.parent.name in _OF_MIRRORS else table.parent
    if base.parent.name == GENERATIONS:
        home = base.parent.parent
        return LakePaths(root=home.parent, changefeed=home.name).of(base.name)
    return LakePaths(root=base.parent, changefeed=base.name)
