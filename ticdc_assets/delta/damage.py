"""Damage is noticed where something is read, and raises one error: `LakeDamagedError`.

In: a table and work that reads it (`reading`), or a file of it (`reading_file`). Out: the work's
result; or the error that says which table and which file is damaged, and what repairs it. The
libraries' own messages are many lines long and name no repair, so after one of them this module
examines the table, as `doctor` does. Nothing is examined before it is read.

If a store does not answer, the state of its tables is unknown, and that is the error.
"""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake.exceptions import DeltaError

from ticdc_assets.base.errors import LakeDamagedError, StoreUnavailableError
from ticdc_assets.base.names import joined_name
from ticdc_assets.delta.delta_files import broken
from ticdc_assets.delta.delta_protocol import DeletionVectorError
from ticdc_assets.delta.log_reading import BrokenTableError
from ticdc_assets.storage.lake_paths import GENERATIONS, HISTORIES, MIRRORS, LakePaths
from ticdc_assets.storage.paths import LOG, AnyPath, RemotePath

_OF_MIRRORS = {MIRRORS: "the mirror", HISTORIES: "the history"}


@contextmanager
def reading(table: AnyPath, version: int | None = None) -> Iterator[None]:
    """Run work that reads a version of a table, the newest if None; translate its errors.

    Raises:
        LakeDamagedError: it is broken.
        StoreUnavailableError: its store does not answer.
        OSError: the machine refuses to read it, and it is whole.
    """
    try:
        yield
    except BrokenTableError as error:
        raise damaged(table, str(error)) from error
    except (DeltaError, DeletionVectorError, pa.ArrowException, OSError) as error:
        require_answer(table)
        finding = broken(table, version, footers=True)
        if finding is None and not isinstance(error, (MemoryError, OSError)):
            finding = f"it cannot be read: {words_of(error)}"
        if finding is None:
            raise
        raise damaged(table, finding) from error


@contextmanager
def reading_file(path: AnyPath) -> Iterator[None]:
    """Run work that reads a file with rows; errors of files outside tables pass unchanged.

    It raises the errors of `reading`. The process may know the file alone.
    """
    try:
        yield
    except (DeltaError, DeletionVectorError, pa.ArrowException, OSError) as error:
        table = next((folder for folder in path.parents if (folder / LOG).is_dir()), None)
        # Arrow's errors about a file have no number; neither have its errors about a store.
        is_of_file = not isinstance(error, (MemoryError, OSError)) or (
            isinstance(error, OSError) and error.errno is None and isinstance(path, Path)
        )
        is_missing = isinstance(error, FileNotFoundError)
        if table is None or not (is_of_file or is_missing):
            raise
        finding = "is missing" if is_missing else f"cannot be read: {words_of(error)}"
        raise damaged(table, f"data file {path.name} {finding}") from error


def damaged(table: AnyPath, finding: str, *, is_behind: bool = False) -> LakeDamagedError:
    """Return the error that reports a broken table, which `is_behind` if it only lacks its end.

    It raises StoreUnavailableError if its store does not answer.
    """
    require_answer(table)
    paths = changefeed_of(table)
    what, repair = table.name, _repair(table, paths, is_behind=is_behind)
    if table.parent.name in _OF_MIRRORS:
        name = _name_of(table, paths)
        what = f"{_OF_MIRRORS[table.parent.name]} " + (
            f"with id {table.name}" if name is None else f"of {name}"
        )
        repair = (
            f"`ticdc-assets tables {paths.changefeed} --json` says which table is in this folder"
        )
        if name is not None:
            command = f"ticdc-assets backfill {paths.changefeed} --table {shlex.quote(name)}"
            # As in Markdown, a command that contains a backquote gets two around it.
            fence = "``" if "`" in command else "`"
            repair = (
                f"{fence}{command}{fence} makes it again from the change log; so does a sync that "
                "reads it"
            )
    what = f"{what} of changefeed {paths.changefeed!r}"
    return LakeDamagedError(paths.changefeed, what, str(table), finding, repair)


def _repair(table: AnyPath, paths: LakePaths, *, is_behind: bool) -> str:
    """Return what repairs a table that is neither a mirror nor a history."""
    feed = paths.changefeed
    if table in (paths.lease, paths.side_lease):
        return f"end all runs of {feed}, remove {table}, and sync again: a new one is made"
    if table == paths.raw_messages and is_behind:
        return (
            f"restore it from a newer copy, or, if the source still has the missing records, run "
            f"`ticdc-assets rebuild {feed}`, which lands them again and makes all tables from them"
        )
    if table == paths.raw_messages:
        return (
            f"restore it from a copy, then check with `ticdc-assets verify {feed}` that the "
            "mirrors can be rebuilt from it; or, if the source still has every record, move "
            f"{paths.home} away and the next sync lands them again"
        )
    if table == paths.accepted_gaps:
        return "restore it from a copy"
    if table in (paths.seeds, paths.snapshot_rows):
        return (
            f"restore it from a copy, or move {paths.seeds} and {paths.snapshot_rows} away, run "
            f"`ticdc-assets rebuild {feed} --accept-losses`, and seed again from exports"
        )
    return (
        f"`ticdc-assets rebuild {feed}` makes all tables again from the landed records, or restore "
        "it from a copy"
    )


def require_answer(table: AnyPath) -> None:
    """Raise StoreUnavailableError if a table is in a store that does not answer."""
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
    """Return the first words of a library's error, without colours and shortened."""
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= _ERROR_CHARACTERS else text[: _ERROR_CHARACTERS - 1] + "…"


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ERROR_CHARACTERS = 300


def _name_of(table: AnyPath, paths: LakePaths) -> str | None:
    """Return the name of a mirror's or a history's table in the newest cut; None if it has none."""
    try:
        listed = json.loads(paths.by_name.read_bytes())["mirrors"]
        return next(
            joined_name(item["database"], item["table"])
            for item in listed
            if item["path"].rpartition("/")[2] == table.name
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None


def changefeed_of(table: AnyPath) -> LakePaths:
    """Return the changefeed, with the generation, that a table's folder is in."""
    base = table.parent.parent if table.parent.name in _OF_MIRRORS else table.parent
    if base.parent.name == GENERATIONS:
        home = base.parent.parent
        return LakePaths(root=home.parent, changefeed=home.name).of(base.name)
    return LakePaths(root=base.parent, changefeed=base.name)
