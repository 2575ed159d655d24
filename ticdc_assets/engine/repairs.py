"""What is said of a table that is broken: which one it is, and what repairs it.

In: the folder of a table and one clause that says what is broken. Out: the error. What repairs a
table follows from what it is made of: mirrors and histories are folded from the change log, what
decoding and applying keep is made from the landed records, and these are made of nothing that is
still in the lake.
"""

import shlex
from pathlib import Path

from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.errors import LakeDamagedError

SOURCE_TABLE = "raw_messages"
"""The table that all others are made from."""

_OF_MIRRORS = {"mirrors": "the mirror", "histories": "the history"}


def damaged(
    table: Path, finding: str, name: tuple[str, str] | None = None, *, is_behind: bool = False
) -> LakeDamagedError:
    """Return the error that says that a table is broken.

    Args:
        table: its folder.
        finding: one clause that says what is broken.
        name: (database, table) of a mirror or a history, if it is known.
        is_behind: whether it is sound in itself, but lacks its end.
    """
    paths = changefeed_of(table)
    feed = paths.changefeed
    if table.parent.name in _OF_MIRRORS:
        what, shown = _OF_MIRRORS[table.parent.name], f"with id {table.name}"
        repair = "`ticdc-assets doctor` says of which table it is"
        if name is not None:
            shown = "of " + ".".join(name)
            command = f"ticdc-assets backfill {feed} --table {shlex.quote('.'.join(name))}"
            repair = f"`{command}` makes it again from the change log, as the next sync does"
        what = f"{what} {shown} of changefeed {feed!r}"
    elif table.name == SOURCE_TABLE and is_behind:
        what = f"{SOURCE_TABLE} of changefeed {feed!r}"
        repair = (
            f"restore it from a newer copy, or, if the source still has the records behind it, "
            f"`ticdc-assets rebuild {feed}` lands them again and makes everything from them"
        )
    elif table.name == SOURCE_TABLE:
        what = f"{SOURCE_TABLE} of changefeed {feed!r}"
        repair = (
            f"restore it from a copy, then `ticdc-assets verify {feed}` says whether the mirrors "
            f"follow from it; as long as the source still has every record, moving {paths.base} "
            "away makes the next sync land them again"
        )
    else:
        what = f"{table.name} of changefeed {feed!r}"
        repair = (
            f"`ticdc-assets rebuild {feed}` makes everything again from the landed records, or "
            "restore it from a copy"
        )
    return LakeDamagedError(feed, what, str(table), finding, repair)


def changefeed_of(table: Path) -> LakePaths:
    """Return the changefeed, or the side place of one, that a table's folder is in."""
    base = table.parent.parent if table.parent.name in _OF_MIRRORS else table.parent
    if base.parent.name == "verify":
        feed = base.parent.parent
        return LakePaths(root=feed.parent, changefeed=feed.name, side=base.name)
    return LakePaths(root=base.parent, changefeed=base.name)
