"""The log of a Delta table: what a version of the table is.

In: the folder of a table. Out: the state of a version (`LogState`), for all code that reads the
table or writes its next version; or one clause that says what is damaged. Libraries ignore some
damage: delta-rs reads an empty commit as one that did nothing, and a log that lost its end as an
older version.

A process replays a log once, from its last checkpoint, and later reads only the entries after the
newest state that it has. It uses that state only while the log still has the entry that the state
ends with, by its size and its time. So damage to an older entry is noticed by the next process,
and by `doctor`.

In a store each listing is a request, and one sync needs that of each log many times. So within a
block (`listed_once`) a log is listed once; commits of this process are added to it (`note_commit`),
and after a refused one it is listed again (`forget`). The writer lock of a changefeed begins such a
block: until it is given back, only its holder commits. A commit of another writer, whose lease is
over, is noticed at the next commit. What reads without the lock sees the tables as they were when
its block began, or later.

Nothing is written. Not handled: checkpoints in Delta's second layout, which this package never
writes.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_assets.delta.delta_protocol import Action, FileId, LogState, file_id, memory_of
from ticdc_assets.storage.creating import read_whole
from ticdc_assets.storage.paths import LOG, AnyPath, RemotePath, located, names_in

LAST_CHECKPOINT = "_last_checkpoint"

_READERS = 8
"""How many entries of a log in a store are read at a time."""

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_SECOND_LAYOUT = re.compile(r"\d{20}\.checkpoint\.[0-9a-f-]{36}\.(?:json|parquet)")


class BrokenTableError(Exception):
    """A table is broken; the text is the clause that says how."""


class NoCommitError(BrokenTableError):
    """It has no commit."""


# Listing ----------------------------------------------------------------------------------------


Facts: TypeAlias = tuple[int, ...]
"""What differs between two files of one name: bytes, time (ns since 1970), and node."""

_UNKNOWN = -1
"""The time of an entry that this process wrote to a store, until it is listed."""

_LOCK = Lock()
_ONCE: ContextVar[bool] = ContextVar("lists once", default=False)
_LISTED: dict[RemotePath, dict[str, Facts]] = {}


@contextmanager
def listed_once() -> Iterator[None]:
    """List each log in a store once within this block; nothing that was listed before it counts."""
    with _LOCK:
        _LISTED.clear()
    before = _ONCE.set(True)
    try:
        yield
    finally:
        _ONCE.reset(before)


def pool_within(threads: int) -> ThreadPoolExecutor:
    """Return a pool of threads that are in this block too, if this thread is in one."""
    return ThreadPoolExecutor(threads, initializer=_ONCE.set, initargs=(_ONCE.get(),))


def forget(table: AnyPath) -> None:
    """List the log of a table again: it has a new entry, or is a new one."""
    if isinstance(table, RemotePath):
        with _LOCK:
            _LISTED.pop(table / LOG, None)


def _listing(log: RemotePath) -> dict[str, Facts]:
    """Return what is in a log in a store, by name."""
    if _ONCE.get():
        with _LOCK:
            if log in _LISTED:
                return _LISTED[log]
    there = {path.name: (info.size, info.mtime_ns or 0) for path, info in log.listed(deep=False)}
    if _ONCE.get():
        with _LOCK:
            _LISTED[log] = there
    return there


def names_of(log: AnyPath) -> Collection[str]:
    """Return the names in a log; none if there is no log."""
    return _listing(log) if isinstance(log, RemotePath) else names_in(log)


def has_commits(table: AnyPath) -> bool:
    """Return whether a table has a log with a commit or a checkpoint."""
    kinds = (_COMMIT, _CHECKPOINT, _SECOND_LAYOUT)
    return any(kind.fullmatch(name) for name in names_of(table / LOG) for kind in kinds)


def versions_of(table: AnyPath) -> list[int]:
    """Return the versions whose commits are in a table's log, in order."""
    matches = (_COMMIT.fullmatch(name) for name in names_of(table / LOG))
    return sorted(int(name[1]) for name in matches if name)


def versions_after(table: AnyPath, version: int) -> Iterator[int]:
    """Yield the versions after one, in order.

    A run that follows its source makes 40,000 versions a day: a folder's log is not listed.
    """
    if isinstance(table, RemotePath):
        yield from (number for number in versions_of(table) if number > version)
        return
    while commit_path(table / LOG, version + 1).exists():
        version += 1
        yield version


# States -----------------------------------------------------------------------------------------


_KEPT_STATES = 64
_STATES: dict[AnyPath, tuple[Facts, LogState]] = {}
"""The newest states that were read, by table, with the facts of the entries that they end with.

The most recently used are last.
"""


def log_state(table: AnyPath, version: int | None = None) -> LogState:
    """Return the state of a version of a table; the newest if None, which may be no table yet.

    It raises the errors of `existing_state`.
    """
    try:
        return existing_state(table, version)
    except NoCommitError:
        if version is None:
            return LogState()
        raise


def existing_state(
    table: AnyPath, version: int | None = None, *, is_whole: bool = False
) -> LogState:
    """Return the state of a version of a table that exists; the newest if None.

    With `is_whole` the log is replayed from its checkpoint on, whatever was read before.

    Raises:
        BrokenTableError: the log is broken, or only libraries can read it; `NoCommitError` if there
            is no commit.
        OSError: its store does not answer.
    """
    with _LOCK:
        facts, cached = ((), None) if is_whole else _STATES.get(table, ((), None))
    with _reported(table):
        newest = None if cached is None else _newest_after(table, cached.version, facts)
        target = newest if version is None else version
        if cached is None or newest is None or target is None or target < cached.version:
            segment = _found(table, version)
            newest = segment.newest
            # That of the checkpoint, or that before the first commit.
            actions = segment.checkpointed([name for name in _CHECKPOINTED if name != "remove"])
            state = _taken(LogState(protocol={}), actions, segment.first)
            state = _advanced(table, state, segment.target)
        elif target > newest:
            raise _too_new(target, newest)
        else:
            state = _advanced(table, cached, target)
    if not state.protocol or not state.metadata:
        raise BrokenTableError("its log says nothing of its schema or its protocol")
    if state.version == newest:
        _keep(table, state)
    return state


@contextmanager
def _reported(table: AnyPath) -> Iterator[None]:
    """Raise BrokenTableError in place of an error of a folder; a store may only not answer."""
    try:
        yield
    except OSError as error:
        if isinstance(table, RemotePath):
            raise
        shown = Path(str(error.filename or LOG)).name
        if isinstance(error, PermissionError):
            raise BrokenTableError(f"{shown} may not be read") from None
        raise BrokenTableError(f"{shown} cannot be read ({error.strerror or error})") from None


def removed_files(table: AnyPath) -> list[Action]:
    """Return the action `remove` of files, as far as the newest checkpoint and later commits go.

    They stay in checkpoints for weeks, and a mirror that changes every minute has hundreds of
    thousands, so a state has none. It raises the errors of `existing_state`.
    """
    with _reported(table):
        segment = _found(table, None)
        numbers = range(segment.first + 1, segment.newest + 1)
        commits = (item for number in numbers for item in commit_actions(table, number))
        actions = chain(segment.checkpointed(["remove"]), commits)
        return [item["remove"] for item in actions if "remove" in item]


def note_commit(table: AnyPath, newest: LogState, entry: bytes) -> None:
    """Keep the state after a commit of this process to the newest one; nothing is read."""
    version = newest.version + 1
    state = _taken(newest, _actions_in(entry, version), version)
    if isinstance(table, RemotePath):
        log = table / LOG
        facts = len(entry), _UNKNOWN
        with _LOCK:
            if log in _LISTED:
                _LISTED[log] = {**_LISTED[log], commit_path(log, version).name: facts}
    _keep(table, state)


def _keep(table: AnyPath, state: LogState) -> None:
    with _LOCK:
        cached = _STATES.pop(table, None)
        if cached is not None and cached[1] is state:
            _STATES[table] = cached
            return
    facts = _facts(table, state.version)
    if facts is not None:
        with _LOCK:
            _STATES[table] = facts, state
            while len(_STATES) > _KEPT_STATES:
                del _STATES[next(iter(_STATES))]


def _facts(table: AnyPath, version: int) -> Facts | None:
    """Return the facts of the entry of a version; None if there is no such entry."""
    path = commit_path(table / LOG, version)
    if isinstance(path, RemotePath):
        return _listing(path.parent).get(path.name)
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def _newest_after(table: AnyPath, version: int, facts: Facts) -> int | None:
    """Return the newest version; None if the log no longer has the entry with these facts."""
    there = _facts(table, version)
    if there != facts and (there is None or facts != (there[0], _UNKNOWN)):
        return None
    return max(versions_after(table, version), default=version)


class _Found(NamedTuple):
    """What is in a log.

    Attributes:
        newest: the newest version.
        target: the version to read.
        first: the newest version at or below it that has a checkpoint, -1 for none.
        checkpoint: the files of that checkpoint.
    """

    newest: int
    target: int
    first: int
    checkpoint: Sequence[AnyPath]

    def checkpointed(self, kinds: Collection[str]) -> Iterator[dict[str, Any]]:
        """Yield the actions of some kinds in that checkpoint."""
        return (item for path in self.checkpoint for item in _checkpoint_actions(path, kinds))


def _found(table: AnyPath, version: int | None) -> _Found:
    """List the log of a table to read a version; the newest if None."""
    log = table / LOG
    there = set(names_of(log))
    if not there and (isinstance(log, RemotePath) or not log.exists()):
        raise NoCommitError(f"its {LOG} is missing")
    if not there and not log.is_dir():
        raise BrokenTableError(f"its {LOG} is not a folder")
    commits: set[int] = set()
    checkpoints: dict[tuple[int, int], list[AnyPath]] = {}
    for name in there:
        if match := _COMMIT.fullmatch(name):
            commits.add(int(match[1]))
        elif match := _CHECKPOINT.fullmatch(name):
            checkpoints.setdefault((int(match[1]), int(match[2] or 0)), []).append(log / name)
        elif _SECOND_LAYOUT.fullmatch(name):
            raise _second_layout()
    # A version may have several, and one of several parts may lack some of them.
    whole = {number: paths for (number, parts), paths in checkpoints.items() if len(paths) >= parts}
    newest = max(commits | whole.keys(), default=None)
    if newest is None:
        raise NoCommitError(f"its {LOG} has no commit")
    target = newest if version is None else version
    if target > newest:
        raise _too_new(target, newest)
    # An object does not vanish, and to read one is a request.
    if LAST_CHECKPOINT in there and not isinstance(log, RemotePath):
        hint: object = None
        with suppress(OSError, ValueError, KeyError, TypeError):
            hint = json.loads((log / LAST_CHECKPOINT).read_bytes())["version"]
        # A writer that was killed after a newer checkpoint did not name it.
        if isinstance(hint, int) and hint > max(whole, default=-1):
            raise BrokenTableError(
                f"checkpoint {hint}, which its {LAST_CHECKPOINT} names, is missing"
            )
    first = max((number for number in whole if number <= target), default=-1)
    return _Found(newest, target, first, whole.get(first, ()))


def _too_new(version: int, newest: int) -> BrokenTableError:
    return BrokenTableError(
        f"its newest version is {newest}, but version {version} is published: the end of its "
        "log is missing"
    )


def _second_layout() -> BrokenTableError:
    return BrokenTableError("another program wrote a checkpoint of the second layout")


def _advanced(table: AnyPath, state: LogState, version: int) -> LogState:
    """Return the state of a later version: that of an earlier one, and the commits after it."""
    numbers = range(state.version + 1, version + 1)
    if not numbers:
        return state
    with ThreadPoolExecutor(_READERS) as pool:
        read = pool.map if isinstance(table, RemotePath) and len(numbers) > 1 else map
        commits = list(read(partial(commit_actions, table), numbers))
    if state.version < 0 and not any("protocol" in action for action in commits[0]):
        raise BrokenTableError("commit 0 of its log is torn: it has no protocol")
    actions = (action for commit in commits for action in commit)
    return _taken(state, actions, version)


def _taken(state: LogState, actions: Iterable[Mapping[str, Any]], version: int) -> LogState:
    """Return the state of a version after the actions that led to it from an earlier one."""
    live: dict[FileId, Action] = {file_id(item): item for item in state.files}
    transactions = dict(state.transactions)
    newest: dict[str, Action] = {"protocol": state.protocol, "metaData": state.metadata}
    memory = state.memory
    for action in actions:
        if (gone := action.get("remove")) is not None:
            live.pop(file_id(gone), None)
        elif (new := action.get("add")) is not None:
            live[file_id(new)] = new
        elif (transaction := action.get("txn")) is not None:
            transactions[transaction["appId"]] = transaction["version"]
        elif (info := action.get("commitInfo")) is not None:
            memory = memory_of(info) or memory
        elif "sidecar" in action:
            raise _second_layout()
        else:
            newest.update(action)
    return LogState(
        version=version,
        protocol=newest["protocol"],
        metadata=newest["metaData"],
        files=tuple(live.values()),
        transactions=transactions,
        memory=memory,
    )


# Entries ----------------------------------------------------------------------------------------


def commit_actions(table: AnyPath, number: int) -> list[dict[str, Any]]:
    """Return the actions of a commit; BrokenTableError if it is missing, empty or torn."""
    path = commit_path(table / LOG, number)
    try:
        content = read_whole(path)
    except FileNotFoundError:
        raise BrokenTableError(f"commit {number} of its log is missing") from None
    except IsADirectoryError:
        raise BrokenTableError(f"commit {number} of its log is a folder") from None
    if not content:
        raise BrokenTableError(f"commit {number} of its log is empty")
    return _actions_in(content, number)


def _actions_in(content: bytes, number: int) -> list[dict[str, Any]]:
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
    # It may be torn between two lines: then it names fewer files than it counts.
    metrics = next((item["commitInfo"] for item in actions if "commitInfo" in item), {})
    said = (metrics.get("operationMetrics") or {}).get("num_added_files")
    there = sum("add" in item for item in actions)
    if metrics.get("operation") == "WRITE" and isinstance(said, int) and there < said:
        raise BrokenTableError(
            f"commit {number} of its log is torn: it names {there} of {said} files"
        )
    return actions


def _checkpoint_actions(path: AnyPath, kinds: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the actions of some kinds in a file of a checkpoint."""
    try:
        where, files = located(path)
        with pq.ParquetFile(where, filesystem=files) as file:
            # A writer may omit columns for actions that the table does not have.
            columns = [
                f"{kind}.{member}"
                for kind in kinds
                if kind in file.schema_arrow.names
                for member in _CHECKPOINTED[kind]
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
    return {
        name: _as_logged(value) if name == "format" else dict(value) if name in _MAPS else value
        for name, value in action.items()
        if value is not None
    }


def commit_path(log: AnyPath, number: int) -> AnyPath:
    """Return where the entry of a version is in a log."""
    return log / f"{number:020}.json"
