"""Commits with ids, by which this package recognises its own commits.

In: a table, and the metadata of its next commit. Out: what gives that commit a unique id; and the
commits in a table's log.

Every commit of this package has an id in its JSON object (`COMMIT_ID`). A commit without an id is
*foreign*; under a lease, so is one with another lease's number: it comes from a run that was
stalled while this one took over. A foreign commit matters unless its actions leave rows and schema
as they are, as those of OPTIMIZE and VACUUM do.

Logs are read as JSON lines: for one version and its actions that is cheaper than opening the table,
and delta-rs does not return the actions of one commit.
"""

import json
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
from ticdc_assets.delta.damage import reading
from ticdc_assets.delta.delta_files import commit_actions, versions_after, versions_of
from ticdc_assets.delta.fencing import (
    APP_ID,
    LEASE,
    guard_of,
    next_version,
    require_lease,
    require_newest,
)
from ticdc_assets.storage.paths import LOG, AnyPath, located

METADATA_KEY = "userMetadata"
"""The key under which a commit carries its JSON object."""

COMMIT_ID = "commit"
"""The key of a commit's id in its JSON object."""


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
        self._version: int | None = None
        named: dict[str, Any] = {COMMIT_ID: uuid.uuid4().hex}
        guard = guard_of(table)
        if guard is not None:
            guard.require()
            named[LEASE] = guard.number
            self._version = next_version(guard.number)
        self.text = json.dumps({**(metadata or {}), **named}, sort_keys=True)
        """The JSON object that the commit carries."""

    @property
    def is_fenced(self) -> bool:
        """Whether it is made under a lease."""
        return self._version is not None

    def transaction(self, seen: Mapping[str, int], where: str = "") -> tuple[str, int] | None:
        """Return the transaction identifier that the commit carries; None without a lease.

        Args:
            seen: the newest version of each identifier in the version that the commit builds on.
            where: that version, for people.

        Raises:
            LeaseLostError: the table has a commit of a newer lease.
        """
        if self._version is None:
            return None
        require_newest(self._version, seen.get(APP_ID), where or str(self._table))
        return APP_ID, self._version

    def _transaction_after(self, there: DeltaTable | None) -> tuple[str, int] | None:
        if there is None:
            return self.transaction({})
        seen = there.transaction_version(APP_ID)
        where = f"{there.table_uri}: version {there.version()}"
        return self.transaction({} if seen is None else {APP_ID: seen}, where)

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
        if (own := self._transaction_after(there)) is not None:
            carried.append(Transaction(*own))
        try:
            yield CommitProperties(
                custom_metadata={METADATA_KEY: self.text}, app_transactions=carried or None
            )
        except CommitFailedError:
            if self.is_fenced and there is not None:
                there.update_incremental()
                self._transaction_after(there)
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
    return max(versions_of(table), default=-1)


def commits_after(table: AnyPath, version: int) -> list[LoggedCommit]:
    """Return the commits after `version`, oldest first."""
    return [read_commit(table, number) for number in versions_after(table, version)]


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
    newest = None
    for newest in versions_after(table, version - 1):
        if newest > version and read_commit(table, newest).changes_rows:
            return None
    return newest


def first_removal(table: AnyPath, version: int) -> datetime | None:
    """Return when a file that `version` needs was first removed; None if none was."""
    times = (read_commit(table, number).removed_ms for number in versions_after(table, version))
    first = next((time for time in times if time is not None), None)
    return None if first is None else datetime.fromtimestamp(first / 1000, UTC)


def read_commit(table: AnyPath, version: int) -> LoggedCommit:
    """Read the log entry of a version.

    Raises:
        LakeDamagedError: it is missing or malformed.
        StoreUnavailableError: its store does not answer.
    """
    info: dict[str, Any] = {}
    changes, added, removed, times = False, list[str](), list[str](), list[int]()
    with reading(table):
        actions = commit_actions(table, version)
    for action in actions:
        info = action.get("commitInfo", info)
        for kind, paths in (("add", added), ("remove", removed)):
            if kind in action:
                paths.append(unquote(action[kind]["path"]))
                changes |= action[kind].get("dataChange", True)
        if "remove" in action:
            times.append(action["remove"].get("deletionTimestamp") or 0)
        changes |= action.keys() & _SCHEMA_ACTIONS != set()
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


_SCHEMA_ACTIONS = {"metaData", "protocol"}


def named_files(table: AnyPath) -> set[str]:
    """Return the paths of all data files that any version of a table's log names."""
    named: set[str] = set()
    for commit in (read_commit(table, number) for number in versions_of(table)):
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
        value = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
