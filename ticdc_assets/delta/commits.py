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
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.delta.damage import reading
from ticdc_assets.delta.delta_files import commit_actions, versions_after, versions_of
from ticdc_assets.delta.fencing import (
    APP_ID,
    guard_of,
    next_version,
    number_of,
    require_newest,
)
from ticdc_assets.storage.paths import AnyPath

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
    """

    version: int
    operation: str
    commit_id: str | None
    lease: int | None
    changes_rows: bool


class NamedCommit:
    """A commit that is about to be made.

    Args:
        table: folder of the table.
        metadata: what the commit carries besides its id.

    Raises:
        LeaseLostError: the lease that this process writes under is over.
    """

    def __init__(self, table: AnyPath, metadata: Mapping[str, Any] | None = None) -> None:
        self._version: int | None = None
        guard = guard_of(table)
        if guard is not None:
            guard.require()
            self._version = next_version(guard.number)
        self.text = json.dumps({**(metadata or {}), COMMIT_ID: uuid.uuid4().hex}, sort_keys=True)
        """The JSON object that the commit carries."""

    @property
    def is_fenced(self) -> bool:
        """Whether it is made under a lease."""
        return self._version is not None

    def transaction(self, seen: int | None, where: str) -> tuple[str, int] | None:
        """Return the transaction identifier that the commit carries; None without a lease.

        Args:
            seen: the newest version of `APP_ID` in the version that the commit builds on.
            where: that version, for people.

        Raises:
            LeaseLostError: the table has a commit of a newer lease.
        """
        if self._version is None:
            return None
        require_newest(self._version, seen, where)
        return APP_ID, self._version

    def _transaction_after(self, there: DeltaTable | None) -> tuple[str, int] | None:
        if there is None:
            return None  # a table is made without a lease's number (`creating_properties`)
        where = f"{there.table_uri}: version {there.version()}"
        return self.transaction(there.transaction_version(APP_ID), where)

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


def read_commit(table: AnyPath, version: int) -> LoggedCommit:
    """Read the log entry of a version.

    Raises:
        LakeDamagedError: it is missing or malformed.
        StoreUnavailableError: its store does not answer.
    """
    info: dict[str, Any] = {}
    changes = False
    lease: int | None = None
    with reading(table):
        actions = commit_actions(table, version)
    for action in actions:
        info = action.get("commitInfo", info)
        for kind in ("add", "remove"):
            if kind in action:
                changes |= action[kind].get("dataChange", True)
        if action.get("txn", {}).get("appId") == APP_ID:
            lease = number_of(action["txn"]["version"])
        changes |= action.keys() & _SCHEMA_ACTIONS != set()
    return LoggedCommit(
        version=version,
        operation=str(info.get("operation")),
        commit_id=object_of(info.get(METADATA_KEY)).get(COMMIT_ID),
        lease=lease,
        changes_rows=changes,
    )


_SCHEMA_ACTIONS = {"metaData", "protocol"}


def object_of(text: object) -> dict[str, Any]:
    """Return the JSON object that a commit carries; {} if another program wrote its text."""
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
