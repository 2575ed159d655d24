"""The files of a Delta table: those that a version needs, and those that nobody needs.

Or one clause that says what is damaged. Nothing is written. Data files are looked up, and their
footers are read on request; rows are not read.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_assets.delta.delta_protocol import Action, DeletionVector, inline_vector, vector_path
from ticdc_assets.delta.log_reading import (
    BrokenTableError,
    commit_actions,
    existing_state,
    names_of,
    removed_files,
    versions_of,
)
from ticdc_assets.storage.paths import LOG, AnyPath, ListedFile, RemotePath, files_below, located

WRITTEN_NAME = re.compile(r"part-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.snappy\.parquet")
"""Names of the files that this package writes; Spark and delta-rs number theirs."""

UNNAMED_KEPT = timedelta(hours=1)
"""The minimum age of such a file that is removed because no commit names it."""

_STAGED = re.compile(r"^\.|#|\.tmp$|^_(?:staged_)?commits$|^_sidecars$")


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that a version of a table needs.

    Args:
        path: where it is.
        size: its bytes; for a file of deletion vectors the smallest possible size.
        is_data: whether it is a Parquet file with rows.
    """

    path: AnyPath
    size: int
    is_data: bool = True


def broken(table: AnyPath, version: int | None = None, *, footers: bool) -> str | None:
    """Return what is broken in a version of a table, which must have a log; None if nothing is.

    With `footers`, those of its data files are read too.
    """
    try:
        needed = live_files(table, version)
        if isinstance(table, RemotePath) and len(needed) > 1:
            # One listing covers a thousand files, instead of one request for each.
            there = {item.path: item.size for item in files_below(table)}
            needed = [file for file in needed if footers or there.get(file.path) != file.size]
        for file in needed:
            _check_file(file, footer=footers)
    except BrokenTableError as error:
        return str(error)
    return None


def lost_log(table: AnyPath) -> str | None:
    """Return what is broken in a table whose log has no commit; None if it may be no table yet.

    An interrupted first commit leaves data files without a log, or staged files in the log. An
    empty log next to data files has lost its commits.
    """
    log = table / LOG
    names = names_of(log)
    if not names and (isinstance(log, RemotePath) or not log.exists()):
        return None
    left = [name for name in names if not _STAGED.search(name)]
    has_data = not names and any(item.below.suffix == ".parquet" for item in files_below(table))
    return f"its {LOG} has no commit" if left or has_data else None


def live_files(table: AnyPath, version: int | None = None) -> list[LiveFile]:
    """Return the files that a version needs by its whole log; raises as `existing_state`."""
    actions = existing_state(table, version, is_whole=True).files
    return [file for action in actions for file in _files_of(table, action)]


def vector_of(table: AnyPath, action: Mapping[str, Any]) -> DeletionVector | None:
    """Return which rows of a file are deleted, from its `add` action; None if none are."""
    vector = action.get("deletionVector")
    if not vector:
        return None
    text, size, gone = vector["pathOrInlineDv"], vector["sizeInBytes"], vector["cardinality"]
    if vector["storageType"] == "i":
        return DeletionVector(size=size, cardinality=gone, data=inline_vector(text))
    # A file elsewhere is named by a URI.
    text = vector_path(text) if vector["storageType"] == "u" else unquote(text)
    return DeletionVector(
        size=size, cardinality=gone, path=file_at(table, text), offset=vector.get("offset") or 0
    )


def removable(
    table: AnyPath,
    before: datetime,
    *,
    oldest: int | None = None,
    unnamed: timedelta = UNNAMED_KEPT,
) -> list[AnyPath]:
    """Return the files that a VACUUM may remove.

    These existed before a moment. The newest version does not need them, no commit since that
    moment removed them, and no version from `oldest` on has them. Also returned are files of some
    age (`unnamed`) that this package's workers wrote and no commit names: the holder of the writer
    lock knows that no such commit will come. Other programs' files have other names, and may still
    be committed.

    Raises:
        BrokenTableError: the log is broken.
    """
    state = then = existing_state(table)
    removed = removed_files(table)
    if oldest is not None:
        # A log that was lost and begun again has no older versions.
        then = existing_state(table, max(oldest, min(versions_of(table), default=0)))
    least = before.timestamp() * 1000
    needed = [*state.files, *then.files]
    # A checkpoint leaves out what was removed long ago, which an old base cut may need.
    for number in range(then.version + 1, state.version + 1):
        needed += (item["add"] for item in commit_actions(table, number) if "add" in item)
    needed += (item for item in removed if (item.get("deletionTimestamp") or 0) >= least)
    staying = _paths_of(table, needed)
    named = staying | _paths_of(table, removed)
    left = (datetime.now(UTC) - unnamed).timestamp() * 1000

    def is_left(item: ListedFile) -> bool:
        is_ours = WRITTEN_NAME.fullmatch(item.path.name) is not None
        return is_ours and item.path not in named and item.modified * 1000 < left

    return [
        item.path
        for item in files_below(table)
        if not any(part[0] in "._" for part in item.below.parts)
        and item.path not in staying
        and (item.modified * 1000 < least or is_left(item))
    ]


def _paths_of(table: AnyPath, actions: Iterable[Action]) -> set[AnyPath]:
    return {file.path for action in actions for file in _files_of(table, action)}


def _files_of(table: AnyPath, action: Mapping[str, Any]) -> Iterator[LiveFile]:
    yield LiveFile(file_of(table, action), action.get("size") or 0)
    vector = vector_of(table, action)
    if vector is not None and vector.path is not None:
        yield LiveFile(vector.path, vector.offset + vector.size, is_data=False)


def name_of(action: Mapping[str, Any]) -> str:
    """Return the path of a data file as a log names it, from an `add` or a `remove`."""
    return unquote(action["path"])


def file_of(table: AnyPath, action: Mapping[str, Any]) -> AnyPath:
    """Return where the data file of an `add` or a `remove` is."""
    return file_at(table, name_of(action))


def file_at(table: AnyPath, text: str) -> AnyPath:
    """Return where a file is that a log names; the log may name it by its absolute path."""
    return table / text.removeprefix("file://").removeprefix("file:")


def _check_file(file: LiveFile, *, footer: bool) -> None:
    what = f"{'data file' if file.is_data else 'deletion vector'} {file.path.name}"
    try:
        status = file.path.stat()
    except FileNotFoundError:
        raise BrokenTableError(f"{what} is missing") from None
    except OSError as error:
        raise BrokenTableError(f"{what} cannot be read ({error.strerror})") from None
    if isinstance(status, os.stat_result) and not stat.S_ISREG(status.st_mode):
        raise BrokenTableError(f"{what} is not a file but a folder")
    if status.st_size != file.size if file.is_data else status.st_size < file.size:
        raise BrokenTableError(f"{what} has {status.st_size} bytes where {file.size} were written")
    if isinstance(file.path, Path) and not os.access(file.path, os.R_OK):
        raise BrokenTableError(f"{what} may not be read")
    if footer and file.is_data:
        where, files = located(file.path)
        try:
            pq.read_metadata(where, filesystem=files)
        except (pa.ArrowException, OSError):
            raise BrokenTableError(f"{what} has no readable footer") from None
