"""The files of a Delta table: which ones a version has, and whether all of them exist.

In: the folder of a table. Out: the files that a version needs, for code that writes its next
version or reads rows with deletion vectors; or one clause that says what is damaged. This module
replays the log itself, because libraries ignore some damage: delta-rs reads an empty commit as one
that did nothing, and a log that lost its end as an older version.

Nothing is written. The log is read from its last checkpoint on. Data files are looked up, and their
footers are read on request; rows are not read.

Not handled: checkpoints in Delta's second layout, which this package never writes; tables with such
checkpoints are left to the libraries.
"""

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_assets.delta.delta_protocol import (
    Action,
    DeletionVector,
    FileId,
    LogState,
    file_id,
    inline_vector,
    vector_path,
)
from ticdc_assets.storage.paths import (
    LOG,
    AnyPath,
    ListedFile,
    RemotePath,
    files_below,
    located,
    names_in,
)

LAST_CHECKPOINT = "_last_checkpoint"

WRITTEN_NAME = re.compile(r"part-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.snappy\.parquet")
"""Names of the files that this package writes; Spark and delta-rs number theirs."""

_READERS = 8
"""How many entries of a log in a store are read at a time."""

UNNAMED_KEPT = timedelta(hours=1)
"""The minimum age of such a file that is removed because no commit names it."""

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_SECOND_LAYOUT = re.compile(r"\d{20}\.checkpoint\.[0-9a-f-]{36}\.(?:json|parquet)")
_STAGED = re.compile(r"^\.|#|\.tmp$|^_(?:staged_)?commits$|^_sidecars$")
_SHOWN = 100


class BrokenTableError(Exception):
    """A table is broken; the text is the clause that says how."""


class _NoCommitError(BrokenTableError):
    """It has no commit."""


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
    """Return what is broken in a version of a table; None if nothing is.

    Args:
        table: its folder, which must have a log.
        version: the version; the newest if None.
        footers: whether to read the footers of the data files too.
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


def passed_over(table: AnyPath, version: int) -> str | None:
    """Return damage that delta-rs ignores when it reads `version`; None if there is none.

    delta-rs takes an empty commit for one that did nothing, and a folder for no commit. Only the
    commits since the last checkpoint are checked, so this can run whenever a table is opened. In a
    store neither can happen.
    """
    log = table / LOG
    if isinstance(log, RemotePath):
        return None  # an object is complete or absent
    if _commit_path(log, version + 1).is_dir():
        return f"commit {version + 1} of its log is a folder"
    checkpoint = _hint(log)
    first = 0 if checkpoint is None or checkpoint > version else checkpoint + 1
    for number in range(version, first - 1, -1):
        try:
            if _commit_path(log, number).stat().st_size == 0:
                return f"commit {number} of its log is empty"
        except OSError:
            # Below it is a checkpoint that nothing points to, or the library has complained.
            return None
    return None


def is_ahead(table: AnyPath, version: int) -> bool:
    """Return whether a table has a commit after `version`."""
    path = _commit_path(table / LOG, version + 1)
    if isinstance(path, RemotePath):
        # Checking for a missing object takes two requests.
        return path.name in names_in(path.parent)
    return path.exists()


def lost_log(table: AnyPath) -> str | None:
    """Return what is broken in a table whose log has no commit; None if it may be no table yet.

    An interrupted first commit leaves data files without a log, or staged files in the log. An
    empty log next to data files has lost its commits.
    """
    try:
        names = [path.name for path in (table / LOG).iterdir()]
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"its {LOG} cannot be read ({error.strerror})"
    left = [name for name in names if not _STAGED.search(name)]
    has_data = any(LOG not in path.parts for path in table.rglob("*.parquet"))
    return f"its {LOG} has no commit" if left or (has_data and not names) else None


def has_commits(table: AnyPath) -> bool:
    """Return whether a table has a log with a commit or a checkpoint."""
    return any(_counted(names_in(table / LOG)))


def versions_of(table: AnyPath) -> list[int]:
    """Return the versions whose commits are in a table's log, in order."""
    matches = (_COMMIT.fullmatch(name) for name in names_in(table / LOG))
    return sorted(int(name[1]) for name in matches if name)


def versions_after(table: AnyPath, version: int) -> Iterator[int]:
    """Yield the versions after one, in order.

    A run that follows its source makes 40,000 versions a day: a folder's log is not listed.
    """
    if isinstance(table, RemotePath):
        yield from (number for number in versions_of(table) if number > version)
        return
    while _commit_path(table / LOG, version + 1).exists():
        version += 1
        yield version


def live_files(table: AnyPath, version: int | None = None) -> list[LiveFile]:
    """Return the files that a version needs, the newest if None; [] if only libraries can read it.

    Raises:
        BrokenTableError: the log is broken.
    """
    state = _replay(table, version)
    live = () if state is None else state.files
    return [file for action in live for file in _files_of(table, action)]


def log_state(table: AnyPath, version: int | None = None) -> LogState:
    """Return the state of a version of a table; the newest if None, which may be no table yet.

    Raises:
        BrokenTableError: the log is broken, or only libraries can read it.
    """
    try:
        state = _replay(table, version)
    except _NoCommitError:
        if version is None:
            return LogState()
        raise
    if state is None:
        raise BrokenTableError("another program wrote a checkpoint of the second layout")
    if not state.protocol or not state.metadata:
        raise BrokenTableError("its log says nothing of its schema or its protocol")
    return state


def vector_of(table: AnyPath, action: Mapping[str, Any]) -> DeletionVector | None:
    """Return which rows of a file are deleted, from its `add` action; None if none are."""
    vector = action.get("deletionVector")
    if not vector:
        return None
    text, size, gone = vector["pathOrInlineDv"], vector["sizeInBytes"], vector["cardinality"]
    if vector["storageType"] == "i":
        return DeletionVector(size=size, cardinality=gone, data=inline_vector(text))
    if vector["storageType"] == "u":
        text = vector_path(text)
    return DeletionVector(
        size=size, cardinality=gone, path=file_at(table, text), offset=vector.get("offset") or 0
    )


def removable(
    table: AnyPath,
    before: datetime,
    *,
    oldest: int | None = None,
    unnamed: timedelta = UNNAMED_KEPT,
) -> list[AnyPath] | None:
    """Return the files that a VACUUM may remove; None if only libraries can read the log.

    These existed before a moment. The newest version does not need them, no commit since that
    moment removed them, and no version from `oldest` on has them. Also returned are files that this
    package's workers wrote and no commit names: the holder of the writer lock knows that no such
    commit will come. Other programs' files have other names, and may still be committed.

    Args:
        table: folder of the table.
        before: the moment.
        oldest: the oldest version that readers need; only the newest one if None.
        unnamed: the minimum age of a worker's file that no commit names.

    Raises:
        BrokenTableError: the log is broken.
    """
    state = then = _replay(table, None, with_removed=True)
    if oldest is not None:
        # A log that was lost and begun again has no older versions.
        then = _replay(table, max(oldest, min(versions_of(table), default=0)))
    if state is None or then is None:
        return None
    least = before.timestamp() * 1000
    needed = [*state.files, *then.files]
    # A checkpoint leaves out what was removed long ago, which an old base cut may need.
    for number in range(then.version + 1, state.version + 1):
        needed += (item["add"] for item in commit_actions(table, number) if "add" in item)
    needed += (item for item in state.removed if (item.get("deletionTimestamp") or 0) >= least)
    staying = _paths_of(table, needed)
    named = staying | _paths_of(table, state.removed)
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


def _replay(table: AnyPath, version: int | None, *, with_removed: bool = False) -> LogState | None:
    """Replay the log of a table up to a version; None if only libraries can.

    Args:
        table: its folder.
        version: the version; the newest if None.
        with_removed: whether to read the removed files in a checkpoint. There they stay for weeks,
            and a mirror that changes every minute has hundreds of thousands of them.
    """
    log = table / LOG
    try:
        # In a store one listing replaces several lookups.
        if not isinstance(log, RemotePath):
            hint = _hint(log)
            if hint is not None and (version is None or hint <= version):
                checkpoint = log / f"{hint:020}.checkpoint.parquet"
                if checkpoint.is_file():
                    if version is None:
                        version = max(versions_after(table, hint), default=hint)
                    return _replayed(table, (hint, [checkpoint]), version, with_removed)
        return _listed(table, version, with_removed)
    except PermissionError as error:
        raise BrokenTableError(f"{_shown(error.filename)} may not be read") from None
    except OSError as error:
        raise BrokenTableError(
            f"{_shown(error.filename or log)} cannot be read ({error.strerror or error})"
        ) from None


def _listed(table: AnyPath, version: int | None, with_removed: bool) -> LogState | None:
    """Return the live files of a version by a listing of the whole log."""
    log = table / LOG
    there = facts_in(log)
    if not there and not log.is_dir():
        raise _NoCommitError(f"its {LOG} is {'no folder' if log.exists() else 'missing'}")
    commits: set[int] = set()
    checkpoints: dict[int, list[AnyPath]] = {}
    parts: dict[int, int] = {}
    for name in _counted(there):
        if match := _COMMIT.fullmatch(name):
            commits.add(int(match[1]))
        elif match := _CHECKPOINT.fullmatch(name):
            checkpoints.setdefault(int(match[1]), []).append(log / name)
            parts[int(match[1])] = int(match[2] or 1)
        else:
            return None
    whole = {number: paths for number, paths in checkpoints.items() if len(paths) >= parts[number]}
    newest = max(commits | whole.keys(), default=None)
    if newest is None:
        raise _NoCommitError(f"its {LOG} has no commit")
    if version is not None and version > newest:
        raise BrokenTableError(
            f"its newest version is {newest}, but version {version} is published: the end of its "
            "log is missing"
        )
    hint = _hint(log) if LAST_CHECKPOINT in there else None
    if hint is not None and hint not in whole:
        raise BrokenTableError(f"checkpoint {hint}, which its {LAST_CHECKPOINT} names, is missing")
    target = newest if version is None else version
    start = max((number for number in whole if number <= target), default=None)
    checkpoint = None if start is None else (start, whole[start])
    if not isinstance(log, RemotePath) or with_removed:
        return _replayed(table, checkpoint, target, with_removed)
    known = _known_state(log, there, target)
    state = _replayed(table, checkpoint, target, with_removed, known)
    if state is not None and target == newest and target in commits:
        _keep_state(log, there[f"{target:020}.json"], state)
    return state


def _counted(names: Iterable[str]) -> Iterator[str]:
    """Yield the names in a log that define what the table has."""
    for name in names:
        if any(kind.fullmatch(name) for kind in (_COMMIT, _CHECKPOINT, _SECOND_LAYOUT)):
            yield name


Facts: TypeAlias = tuple[int, int | None]
"""What a store says of an object: its bytes, and when it was written (ns since 1970)."""


def facts_in(log: AnyPath) -> dict[str, Facts]:
    """Return the names in a log, with what a store says of them; of those in a folder nothing."""
    if not isinstance(log, RemotePath):
        return dict.fromkeys(names_in(log), (0, None))
    return {path.name: (info.size, info.mtime_ns) for path, info in log.listed(deep=False)}


def newest_entry(log: AnyPath) -> tuple[str, Facts] | None:
    """Return the name of the newest commit in a log, with its facts; None if it has nothing.

    A log without a commit begins with a checkpoint, or is damaged: then the name is empty.
    """
    there = facts_in(log)
    commits = (item for item in there.items() if _COMMIT.fullmatch(item[0]))
    return max(commits, default=("", (0, None))) if there else None


_KEPT_STATES = 64
_STATES: dict[RemotePath, tuple[Facts, LogState]] = {}
"""The newest read states of tables in stores, by log; the most recently used are last.

Each entry of a log is a request, and a table that changes often has many since its checkpoint. A
state is used only while the store still has the entry that it ends with, by its size and time.
"""
_STATES_LOCK = Lock()


def _known_state(log: RemotePath, there: Mapping[str, Facts], target: int) -> LogState | None:
    """Return a state from which a version can be replayed, if one was read before."""
    with _STATES_LOCK:
        facts, state = _STATES.get(log, (None, LogState()))
    is_there = state.version <= target and there.get(f"{state.version:020}.json") == facts
    return state if facts is not None and is_there else None


def _keep_state(log: RemotePath, facts: Facts, state: LogState) -> None:
    with _STATES_LOCK:
        _STATES.pop(log, None)
        _STATES[log] = facts, replace(state, removed=())
        while len(_STATES) > _KEPT_STATES:
            del _STATES[next(iter(_STATES))]


def _replayed(
    table: AnyPath,
    checkpoint: tuple[int, list[AnyPath]] | None,
    version: int,
    with_removed: bool,
    known: LogState | None = None,
) -> LogState | None:
    """Return the result of a checkpoint's actions and of the commits after it.

    It is None if the checkpoint leaves its files to sidecars: only libraries read these.

    Args:
        table: its folder.
        checkpoint: version and files of the checkpoint to begin with, if there is one.
        version: the version to replay up to.
        with_removed: whether to read the removed files in the checkpoint.
        known: an earlier state to begin with, in place of the checkpoint.
    """
    live: dict[FileId, Action] = {}
    removed: list[Action] = []
    transactions: dict[str, int] = {}
    newest: dict[str, Action] = {}

    def take(actions: Iterable[Mapping[str, Any]]) -> None:
        for action in actions:
            if (gone := action.get("remove")) is not None:
                live.pop(file_id(gone), None)
                removed.append(gone)
            elif (new := action.get("add")) is not None:
                live[file_id(new)] = new
            elif (transaction := action.get("txn")) is not None:
                transactions[transaction["appId"]] = transaction["version"]
            else:
                newest.update(action)

    first = 0
    if known is not None:
        first = known.version + 1
        live = {file_id(action): action for action in known.files}
        transactions = dict(known.transactions)
        newest = {"protocol": known.protocol, "metaData": known.metadata}
    elif checkpoint is not None:
        first = checkpoint[0] + 1
        for path in checkpoint[1]:
            take(_checkpoint_actions(path, with_removed))
        if "sidecar" in newest:
            return None
    numbers = range(first, version + 1)
    with ThreadPoolExecutor(_READERS) as pool:
        read = pool.map if isinstance(table, RemotePath) and len(numbers) > 1 else map
        for number, actions in zip(
            numbers, read(partial(commit_actions, table), numbers), strict=True
        ):
            take(actions)
            if number == 0 and "protocol" not in newest:
                raise BrokenTableError("commit 0 of its log is torn: it has no protocol")
    return LogState(
        version=version,
        protocol=newest.get("protocol", {}),
        metadata=newest.get("metaData", {}),
        files=tuple(live.values()),
        transactions=transactions,
        removed=removed,
    )


def commit_actions(table: AnyPath, number: int) -> list[dict[str, Any]]:
    """Return the actions of a commit.

    Raises:
        BrokenTableError: it is missing, empty or torn.
        OSError: it cannot be read.
    """
    path = _commit_path(table / LOG, number)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise BrokenTableError(f"commit {number} of its log is missing") from None
    except IsADirectoryError:
        raise BrokenTableError(f"commit {number} of its log is a folder") from None
    if not content:
        raise BrokenTableError(f"commit {number} of its log is empty")
    actions: list[dict[str, Any]] = []
    for line in content.splitlines():
        if not line.strip():
            continue
        try:
            action = orjson.loads(line)
            for kind, value in action.items():
                if kind in ("add", "remove"):
                    unquote(file_id(value)[0])
                dict(value)
            actions.append(action)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BrokenTableError(
                f"commit {number} of its log is torn: line {len(actions) + 1} is not an action"
            ) from None
    _check_count(actions, number)
    return actions


def _check_count(actions: list[dict[str, Any]], number: int) -> None:
    """Check that a commit names as many files as it counts; it may be torn between two lines."""
    metrics = next((item["commitInfo"] for item in actions if "commitInfo" in item), {})
    said = (metrics.get("operationMetrics") or {}).get("num_added_files")
    there = sum("add" in item for item in actions)
    if metrics.get("operation") == "WRITE" and isinstance(said, int) and there < said:
        raise BrokenTableError(
            f"commit {number} of its log is torn: it names {there} of {said} files"
        )


def _checkpoint_actions(path: AnyPath, with_removed: bool) -> Iterator[dict[str, Any]]:
    """Yield the actions in a file of a checkpoint.

    A writer may omit columns for actions that the table does not have.
    """
    try:
        where, files = located(path)
        with pq.ParquetFile(where, filesystem=files) as file:
            names = {*file.schema_arrow.names} - (set() if with_removed else {"remove"})
            columns = [
                f"{kind}.{member}"
                for kind, members in _CHECKPOINTED.items()
                if kind in names
                for member in members
            ]
            rows = file.read(columns=columns)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        number = int(path.name.partition(".")[0])
        raise BrokenTableError(f"checkpoint {number} of its log cannot be read") from None
    for kind in rows.column_names:
        actions = rows[kind]
        is_there = pc.is_valid(pc.struct_field(actions, _CHECKPOINTED[kind][0]))
        for action in actions.filter(is_there).to_pylist():
            yield {kind: _as_logged(action)}


_CHECKPOINTED = {
    "add": (
        *("path", "size", "partitionValues", "modificationTime", "dataChange", "stats", "tags"),
        "deletionVector",
    ),
    "remove": ("path", "deletionTimestamp", "deletionVector"),
    "protocol": ("minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"),
    "metaData": (
        *("id", "name", "description", "format", "schemaString", "partitionColumns"),
        *("configuration", "createdTime"),
    ),
    "txn": ("appId", "version"),
    "sidecar": ("path",),
}
"""The fields that are read of each action in a checkpoint; the first of them is never null."""

_MAPS = frozenset({"partitionValues", "configuration", "options", "tags"})


def _as_logged(action: Mapping[str, Any]) -> dict[str, Any]:
    """Return an action of a checkpoint in the form of a commit: without nulls."""
    logged: dict[str, Any] = {}
    for name, value in action.items():
        if value is None:
            continue
        if name == "format":
            value = _as_logged(value)
        logged[name] = dict(value) if name in _MAPS else value
    return logged


def _files_of(table: AnyPath, action: Mapping[str, Any]) -> Iterator[LiveFile]:
    yield LiveFile(file_at(table, unquote(action["path"])), action.get("size") or 0)
    vector = vector_of(table, action)
    if vector is not None and vector.path is not None:
        yield LiveFile(vector.path, vector.offset + vector.size, is_data=False)


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


def _hint(log: AnyPath) -> int | None:
    """Return the checkpoint that the log names as its last; None if it names none."""
    try:
        version = json.loads((log / LAST_CHECKPOINT).read_bytes())["version"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return version if isinstance(version, int) else None


def _commit_path(log: AnyPath, number: int) -> AnyPath:
    return log / f"{number:020}.json"


def _shown(path: object) -> str:
    return Path(os.fsdecode(str(path))).name[:_SHOWN]
