"""The lease's log: a Delta table without rows, whose commits are the entries.

In: the folder of the table. Out: `DeltaLog`, a `lease.Log`. An entry is a commit with the state as
its JSON object and with a transaction identifier. Delta refuses a commit if another one with that
identifier came after the version that it builds on; so of two entries after the same one, it
refuses one. This holds wherever delta-rs writes: in a folder, and in an object store with
conditional puts.

The table has no rows: each would be a file to write, read and vacuum every few seconds. Delta
writes a checkpoint every ten entries and removes older entries after an hour, so the log does not
grow.

Why opening it again is safe: two processes that create the table create the same one. The handle is
the only state.
"""

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.delta.commits import METADATA_KEY, object_of
from ticdc_assets.delta.control import create_empty, open_table
from ticdc_assets.delta.damage import damaged, reading
from ticdc_assets.delta.fencing import APP_ID, LEASE, number_in
from ticdc_assets.delta.lease import Entry, Holder, LeaseState
from ticdc_assets.storage.paths import AnyPath

_SCHEMA = pa.schema([("none", pa.int64())])  # a table needs a column

_CONFIGURATION = {
    "delta.checkpointInterval": "10",
    "delta.logRetentionDuration": "interval 1 hours",
}


class DeltaLog:
    """The log of a lease; the table is created if it does not exist.

    Args:
        path: folder of the table.
        guarded: tables that are written under the lease.

    Raises:
        LakeDamagedError: the table is broken.
    """

    def __init__(self, path: AnyPath, guarded: Iterable[AnyPath]) -> None:
        self._path = path
        self._guarded = tuple(guarded)
        self._table = _opened_or_made(path)
        self._newest = Entry(version=self._table.version(), state=_newest_state(path, self._table))

    def newest(self) -> Entry:
        """Return the newest entry."""
        with reading(self._path):
            try:
                self._table.update_incremental()
            except DeltaError:
                # The entries to read may be removed: the handle lags by more than the log keeps.
                self._table = open_table(self._path) or self._table
        version = self._table.version()
        if version != self._newest.version:
            self._newest = Entry(version=version, state=_newest_state(self._path, self._table))
        return self._newest

    def put(self, state: LeaseState, behind: Entry) -> bool:
        """Put an entry after another one; return False if that is not the newest."""
        if self._table.version() != behind.version:
            return False
        properties = CommitProperties(
            custom_metadata={METADATA_KEY: json.dumps({LEASE: _stored(state)}, sort_keys=True)},
            app_transactions=[Transaction(APP_ID, state.number)],
        )
        with reading(self._path):
            try:
                self._table.create_write_transaction(
                    [], "append", self._table.schema(), commit_properties=properties
                )
            except CommitFailedError:
                return False
        return True

    def first_number(self) -> int:
        """Return a number that is greater than those of all leases that tables have seen.

        A killed run may have written to mirrors only, under a lease one above the highest in the
        tables that are read here.
        """
        seen = [0]
        for path in self._guarded:
            with suppress(LakeDamagedError):
                table = open_table(path)
                number = None if table is None else number_in(table)
                seen.append(0 if number is None else number + 1)
        return max(seen) + 1


def _opened_or_made(path: AnyPath) -> DeltaTable:
    try:
        there = open_table(path)
    except LakeDamagedError:
        # Another process may be creating it: its log exists, its first commit does not yet.
        time.sleep(_MAKING_SECONDS)
        there = open_table(path)
    return there or create_empty(path, _SCHEMA, configuration=_CONFIGURATION)


_MAKING_SECONDS = 1.0


def read_lease(path: AnyPath) -> LeaseState | None:
    """Return the newest entry of the log at `path`; None if no process ever took the lease.

    Raises:
        LakeDamagedError: the table is broken.
    """
    table = open_table(path)
    return None if table is None else _newest_state(path, table)


def _newest_state(path: AnyPath, table: DeltaTable) -> LeaseState | None:
    with reading(path):
        for limit in (1, 50, None):
            for commit in table.history(limit):
                found = object_of(commit.get(METADATA_KEY)).get(LEASE)
                if isinstance(found, dict):
                    return _read(path, found)
    return None


def _stored(state: LeaseState) -> dict[str, Any]:
    return {
        **asdict(state),
        "taken_at": state.taken_at.isoformat(),
        "renewed_at": state.renewed_at.isoformat(),
    }


def _read(path: AnyPath, stored: Mapping[str, Any]) -> LeaseState:
    try:
        return LeaseState(
            **{
                **stored,
                "holder": Holder(**stored["holder"]),
                "taken_at": datetime.fromisoformat(stored["taken_at"]),
                "renewed_at": datetime.fromisoformat(stored["renewed_at"]),
            }
        )
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, "its newest entry is not a lease's") from error
