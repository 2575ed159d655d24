"""Commits that name themselves, so that each is found again by its own name.

In: a table, and what its next commit is to carry. Out: the properties by which delta-rs or Spark
gives that commit a name that no other one has; and afterwards that very commit: its version and
what it counted.

"The newest version" is not what we made if somebody compacts or vacuums a table by hand at the same
time: it may be theirs, and so may be the counts. So every commit of this package has an id in its
JSON object (`COMMIT_ID`), and what was committed is looked up by it. A commit without an id is a
*foreign* one. Whether it matters is told by its actions: one that adds and removes no data and
changes no schema (OPTIMIZE, VACUUM) leaves the rows that we published.

Older versions of this package wrote no ids. Their commits are found by nobody any more: only those
behind the newest cut, of a run that was killed before the update, are taken for foreign ones, and
the next sync takes both kinds back.

Logs are read as JSON lines, as they stand in the lake's folder: for a version and its actions that
is cheaper than a whole table, and delta-rs does not tell the actions of one commit.
"""

import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction

from ticdc_assets.engine.delta_files import vector_path
from ticdc_assets.errors import TicdcError

METADATA_KEY = "userMetadata"
"""Where a commit carries its JSON object."""

COMMIT_ID = "commit"
"""What the id of a commit is called in its JSON object."""

_LOG_ENTRY = re.compile(r"[0-9]{20}\.json")


class CommitError(TicdcError):
    """A commit could not be made, or is not what was asked for; the newest cut stays as it is."""

    retriable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A data file as a commit names it.

    Attributes:
        path: its path, relative to the table's folder.
        size: its size in bytes.
        deletion_vector: path of the file that says which of its rows are gone, None if none are.
    """

    path: str
    size: int
    deletion_vector: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCommit:
    """One commit as the table's log has it.

    Attributes:
        version: the version that it made.
        operation: what its writer calls it.
        commit_id: its id; None if it is a foreign one.
        metrics: what it counted, as far as they are whole numbers.
        changes_rows: whether data or the schema may be other than before.
        added: the data files that it names.
        removed: paths of those that it takes out.
        removed_ms: when it took out the first of them (ms since 1970), None if none.
    """

    version: int
    operation: str
    commit_id: str | None
    metrics: Mapping[str, int]
    changes_rows: bool
    added: tuple[AddedFile, ...]
    removed: tuple[str, ...]
    removed_ms: int | None


class OwnCommit:
    """A commit that is about to be made.

    Args:
        table: folder of the table.
        metadata: what the commit carries beside its id.
    """

    def __init__(self, table: Path, metadata: Mapping[str, Any] | None = None) -> None:
        self._table = table
        self._id = uuid.uuid4().hex
        self._before = newest_version(table)
        self.text = _text(metadata, self._id)
        """The JSON object that the commit carries."""

    @property
    def conf(self) -> dict[str, str]:
        """The settings of a Spark session whose commits are this one."""
        return {"spark.databricks.delta.commitInfo.userMetadata": self.text}

    @property
    def properties(self) -> CommitProperties:
        """The properties of a commit by delta-rs that is this one."""
        return _properties(self.text, ())

    def find(self) -> LoggedCommit | None:
        """Return the newest commit with this id, None if there was nothing to commit."""
        for version in reversed(_versions(self._table)):
            if version <= self._before:
                return None
            commit = read_commit(self._table, version)
            if commit.commit_id == self._id:
                return commit
        return None

    def made(self) -> LoggedCommit:
        """Return the commit; there has to be one."""
        found = self.find()
        if found is None:
            raise CommitError(
                f"{self._table}: expected a commit with the id {self._id} behind version "
                f"{self._before}, there is none; nothing of it is published, sync again"
            )
        return found


def named_properties(
    metadata: Mapping[str, Any] | None, *transactions: Transaction
) -> CommitProperties:
    """Return the properties of a commit by delta-rs that has an id and that nobody looks up.

    Args:
        metadata: what the commit carries beside its id.
        transactions: transaction identifiers that it is to carry.
    """
    return _properties(_text(metadata, uuid.uuid4().hex), transactions)


def _properties(text: str, transactions: Sequence[Transaction]) -> CommitProperties:
    return CommitProperties(
        custom_metadata={METADATA_KEY: text}, app_transactions=list(transactions) or None
    )


def _text(metadata: Mapping[str, Any] | None, commit_id: str) -> str:
    return json.dumps({**(metadata or {}), COMMIT_ID: commit_id}, sort_keys=True)


def newest_version(table: Path) -> int:
    """Return the newest version in a table's log, -1 if there is none."""
    return max(_versions(table), default=-1)


def _versions(table: Path) -> list[int]:
    """Return the versions whose log entries are there, in order."""
    try:
        # There may be many thousands, and only their names count.
        with os.scandir(table / "_delta_log") as entries:
            names = [entry.name for entry in entries if entry.name.endswith(".json")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name[:-5]) for name in names if _LOG_ENTRY.fullmatch(name))


def commits_after(table: Path, version: int, until: int | None = None) -> list[LoggedCommit]:
    """Return the commits behind `version`, oldest first; those before `until` if it is given."""
    return [
        read_commit(table, number)
        for number in _versions(table)
        if number > version and (until is None or number < until)
    ]


def foreign_changes(commits: Iterable[LoggedCommit]) -> list[LoggedCommit]:
    """Return those of `commits` that are not ours and may have changed rows."""
    return [item for item in commits if item.commit_id is None and item.changes_rows]


def same_rows_at(table: Path, version: int) -> int | None:
    """Return the newest version if it has the rows of `version`, None if it may have others.

    Compactions and vacuums, whoever made them, leave rows as they are.
    """
    versions = _versions(table)
    newest = versions[-1] if versions else -1
    if newest < version:
        return None
    behind = (read_commit(table, number) for number in versions if number > version)
    return None if any(commit.changes_rows for commit in behind) else newest


def first_removal(table: Path, version: int) -> datetime | None:
    """Return when a file that `version` needs was taken out first, None if none ever was."""
    times = (item.removed_ms for item in commits_after(table, version))
    first = min((time for time in times if time is not None), default=None)
    return None if first is None else datetime.fromtimestamp(first / 1000, UTC)


def reached(table: Path, base: int, made: LoggedCommit | None) -> int | None:
    """Return the version that commits of ours led to from `base`, None if others changed rows.

    Args:
        table: folder of the table.
        base: the version that they began at.
        made: the last one of them; None if the last step had nothing to commit.
    """
    commits = commits_after(table, base, until=None if made is None else made.version)
    if foreign_changes(commits):
        return None
    if made is not None:
        return made.version
    return commits[-1].version if commits else base


def read_commit(table: Path, version: int) -> LoggedCommit:
    """Read the log entry of a version.

    Raises:
        CommitError: it is not there, or is none.
    """
    path = table / "_delta_log" / f"{version:020}.json"
    info: dict[str, Any] = {}
    changes, added, removed, times = False, list[AddedFile](), list[str](), list[int]()
    try:
        for action in _actions(path):
            if "commitInfo" in action:
                info = action["commitInfo"]
            elif "add" in action:
                added.append(_added(action["add"]))
            elif "remove" in action:
                removed.append(unquote(action["remove"]["path"]))
                times.append(int(action["remove"].get("deletionTimestamp") or 0))
            if "add" in action or "remove" in action:
                item = action.get("add") or action["remove"]
                changes |= bool(item.get("dataChange", True))
            changes |= action.keys() & _SCHEMA_ACTIONS != set()
        metrics = info.get("operationMetrics") or {}
        counted = {name: int(value) for name, value in metrics.items() if str(value).isdigit()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CommitError(f"the log entry {path} cannot be read: {error!r}") from error
    return LoggedCommit(
        version=version,
        operation=str(info.get("operation")),
        commit_id=object_of(info.get(METADATA_KEY)).get(COMMIT_ID),
        metrics=counted,
        changes_rows=changes,
        added=tuple(added),
        removed=tuple(removed),
        removed_ms=min(times, default=None),
    )


def _actions(path: Path) -> list[dict[str, Any]]:
    # Text in it may have line ends that are none of JSON lines'.
    lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
    if not lines:
        raise ValueError("it is empty")
    return [json.loads(line) for line in lines]


def _added(action: Mapping[str, Any]) -> AddedFile:
    vector = action.get("deletionVector") or {}
    return AddedFile(
        path=unquote(action["path"]),
        size=int(action["size"]),
        deletion_vector=(
            vector_path(vector["pathOrInlineDv"]) if vector.get("storageType") == "u" else None
        ),
    )


_SCHEMA_ACTIONS = {"metaData", "protocol"}


def named_files(table: Path) -> set[str]:
    """Return the paths of all data files that a table's log names, in whatever version."""
    named: set[str] = set()
    for commit in commits_after(table, -1):
        named.update(file.path for file in commit.added)
        named.update(commit.removed)
    for path in (table / "_delta_log").rglob("*.parquet"):
        # Checkpoints, and the parts that large ones are made of.
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["add.path", "remove.path"]):
                for kind in batch.schema.names:
                    paths = batch.column(kind).field("path").drop_null()
                    named.update(unquote(item) for item in paths.to_pylist())
    return named


def object_of(text: object) -> dict[str, Any]:
    """Return the JSON object that a commit carries; {} if it is another writer's text."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
