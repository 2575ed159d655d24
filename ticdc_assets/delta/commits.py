"""Commits with ids, by which this package recognises its own commits.

In: a table, and the metadata of its next commit. Out: the properties with which delta-rs gives that
commit a unique id, or the text of the JSON object for a log entry that this package writes; and the
commits in a table's log.

Every commit of this package has an id in its JSON object (`COMMIT_ID`). A commit without an id is
*foreign*. Under a lease (`fencing`), a commit with another lease's number is foreign too: it comes
from a run that was stalled while this one took over. Its actions decide whether a foreign commit
matters: one that adds and removes no data and changes no schema (OPTIMIZE, VACUUM) leaves the
published rows unchanged.

Older versions of this package wrote no ids. Only such commits after the newest cut count as
foreign: a run was killed before the update. The next sync takes back both kinds.

Logs are read as JSON lines from the lake's folder. For one version and its actions that is cheaper
than opening the table, and delta-rs does not return the actions of one commit.
"""

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.delta.damage import damaged
from ticdc_assets.delta.fencing import APP_ID, LEASE, fence_of, guard_of, require_lease
from ticdc_assets.storage.paths import LOG, AnyPath, located, names_in

METADATA_KEY = "userMetadata"
"""The key under which a commit carries its JSON object."""

COMMIT_ID = "commit"
"""The key of a commit's id in its JSON object."""

_LOG_ENTRY = re.compile(r"[0-9]{20}\.json")


class CommitError(TicdcError):
    """A commit could not be made, or is not the requested one; the newest cut is unchanged."""

    retriable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCommit:
    """One commit as the table's log has it.

    Attributes:
        version: the version that it made.
        operation: what its writer calls it.
        commit_id: its id; None if it is foreign.
        lease: number of the lease that it was made under; None without a lease.
        changes_rows: whether the commit may change data or the schema.
        added: paths of the data files that it adds.
        removed: paths of the data files that it removes.
        removed_ms: when it removed the first of them (ms since 1970); None if it removed none.
    """

    version: int
    operation: str
    commit_id: str | None
    lease: int | None
    changes_rows: bool
    added: tuple[str, ...]
    removed: tuple[str, ...]
    removed_ms: int | None


class NamedCommit:
    """A commit that is about to be made.

    Args:
        table: folder of the table.
        metadata: what the commit carries besides its id.

    Raises:
        LeaseLostError: the lease that this process writes under is over.
    """

    def __init__(self, table: AnyPath, metadata: Mapping[str, Any] | None = None) -> None:
        self._table = table
        self._id = uuid.uuid4().hex
        self._fence = fence_of(table)
        named: dict[str, Any] = {COMMIT_ID: self._id}
        if self._fence is not None:
            named[LEASE] = self._fence.number
        self.text = json.dumps({**(metadata or {}), **named}, sort_keys=True)
        """The JSON object that the commit carries."""

    @property
    def is_fenced(self) -> bool:
        """Whether it is made under a lease."""
        return self._fence is not None

    def transaction(self, seen: Mapping[str, int]) -> tuple[str, int] | None:
        """Return the transaction identifier that the commit carries; None without a lease.

        Args:
            seen: the newest version of each identifier in the version that the commit builds on.

        Raises:
            LeaseLostError: the table has a commit of a newer lease.
        """
        if self._fence is None:
            return None
        self._fence.require_newest(seen.get(APP_ID), str(self._table))
        return APP_ID, self._fence.version

    def require(self) -> None:
        """Make sure that the lease of this commit is still held.

        Raises:
            LeaseLostError: it is over; the commit must not be used.
        """
        require_lease(self._table)

    @contextmanager
    def on(
        self, there: DeltaTable | None, *transactions: Transaction
    ) -> Iterator[CommitProperties]:
        """Provide the properties with which delta-rs makes this commit.

        Args:
            there: the table, opened at the version that the commit builds on; None if there is no
                table yet.
            transactions: transaction identifiers for the commit.

        Raises:
            LeaseLostError: the table has a commit of a newer lease, or got one in the meantime.
        """
        carried = list(transactions)
        if self._fence is not None:
            carried.append(self._fence.transaction(there))
        try:
            yield CommitProperties(
                custom_metadata={METADATA_KEY: self.text}, app_transactions=carried or None
            )
        except CommitFailedError:
            if self._fence is not None and there is not None:
                there.update_incremental()
                self._fence.transaction(there)
            raise


def creating_properties() -> CommitProperties:
    """Return the properties of a commit that makes a table without rows.

    Delta accepts two such commits, one after the other. So they carry no lease's number: a second
    commit adds the rows, and it is refused if it belongs to an older lease.
    """
    return CommitProperties(
        custom_metadata={METADATA_KEY: json.dumps({COMMIT_ID: uuid.uuid4().hex})}
    )


def newest_version(table: AnyPath) -> int:
    """Return the newest version in a table's log; -1 if there is none."""
    return max(_versions(table), default=-1)


def _versions(table: AnyPath) -> list[int]:
    """Return the versions that have log entries, in order."""
    return sorted(int(name[:-5]) for name in names_in(table / LOG) if _LOG_ENTRY.fullmatch(name))


def commits_after(table: AnyPath, version: int, until: int | None = None) -> list[LoggedCommit]:
    """Return the commits after `version`, oldest first; those before `until` if it is given."""
    return [
        read_commit(table, number)
        for number in _versions(table)
        if number > version and (until is None or number < until)
    ]


def foreign_changes(table: AnyPath, commits: Iterable[LoggedCommit]) -> list[LoggedCommit]:
    """Return the foreign ones of a table's `commits` that may have changed rows.

    If this process holds a lease, commits under other leases are foreign too.
    """
    guard = guard_of(table)
    return [
        item
        for item in commits
        if item.changes_rows
        and (item.commit_id is None or (guard is not None and item.lease != guard.number))
    ]


def same_rows_at(table: AnyPath, version: int) -> int | None:
    """Return the newest version if it has the rows of `version`; None if its rows may differ.

    Compactions and vacuums by any program leave rows unchanged.
    """
    versions = _versions(table)
    newest = versions[-1] if versions else -1
    if newest < version:
        return None
    behind = (read_commit(table, number) for number in versions if number > version)
    return None if any(commit.changes_rows for commit in behind) else newest


def first_removal(table: AnyPath, version: int) -> datetime | None:
    """Return when a file that `version` needs was first removed; None if none was."""
    times = (item.removed_ms for item in commits_after(table, version))
    first = min((time for time in times if time is not None), default=None)
    return None if first is None else datetime.fromtimestamp(first / 1000, UTC)


def read_commit(table: AnyPath, version: int) -> LoggedCommit:
    """Read the log entry of a version.

    Raises:
        LakeDamagedError: it is missing or malformed.
        StoreUnavailableError: its store does not answer.
    """
    path = table / LOG / f"{version:020}.json"
    info: dict[str, Any] = {}
    changes, added, removed, times = False, list[str](), list[str](), list[int]()
    try:
        for action in _actions(path):
            if "commitInfo" in action:
                info = action["commitInfo"]
            elif "add" in action:
                added.append(unquote(action["add"]["path"]))
            elif "remove" in action:
                removed.append(unquote(action["remove"]["path"]))
                times.append(int(action["remove"].get("deletionTimestamp") or 0))
            if "add" in action or "remove" in action:
                item = action.get("add") or action["remove"]
                changes |= bool(item.get("dataChange", True))
            changes |= action.keys() & _SCHEMA_ACTIONS != set()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(table, f"commit {version} of its log cannot be read: {error!r}") from error
    carried = object_of(info.get(METADATA_KEY))
    return LoggedCommit(
        version=version,
        operation=str(info.get("operation")),
        commit_id=carried.get(COMMIT_ID),
        lease=carried.get(LEASE),
        changes_rows=changes,
        added=tuple(added),
        removed=tuple(removed),
        removed_ms=min(times, default=None),
    )


def _actions(path: AnyPath) -> list[dict[str, Any]]:
    # Text in a log entry may contain line ends that JSON lines do not count.
    lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
    if not lines:
        raise ValueError("it is empty")
    return [json.loads(line) for line in lines]


_SCHEMA_ACTIONS = {"metaData", "protocol"}


def named_files(table: AnyPath) -> set[str]:
    """Return the paths of all data files that any version of a table's log names."""
    named: set[str] = set()
    for commit in commits_after(table, -1):
        named.update(commit.added)
        named.update(commit.removed)
    for path in (table / LOG).rglob("*.parquet"):
        # Checkpoints, and the parts of large ones.
        where, files = located(path)
        with pq.ParquetFile(where, filesystem=files) as file:
            for batch in file.iter_batches(columns=["add.path", "remove.path"]):
                for kind in batch.schema.names:
                    paths = batch.column(kind).field("path").drop_null()
                    named.update(unquote(item) for item in paths.to_pylist())
    return named


def object_of(text: object) -> dict[str, Any]:
    """Return the JSON object that a commit carries; {} if another program wrote its text."""
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
