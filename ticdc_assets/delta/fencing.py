"""Fencing: what a commit carries so that a writer whose lease is over cannot make it.

In: the leases that this process holds (`guarded`), and a table. Out: for each commit a `Fence`: the
number of the lease, for the commit's JSON object, and a transaction identifier, by which Delta
itself refuses the commits of older numbers. Without a lease there is no fence.

The identifier's version is the lease's number with a counter of this process in the lower bits, so
it only goes up. Delta refuses a delta-rs commit if another commit with the identifier came after
the version that it builds on; `transaction` checks that version. Compactions by delta-rs check no
identifier, but they leave rows unchanged.

Why running it again is safe: the counter is the only state.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from deltalake import DeltaTable, Transaction

from ticdc_assets.base.errors import BusyError, LeaseLostError
from ticdc_assets.delta.lease import HeldLease
from ticdc_assets.storage.paths import AnyPath

APP_ID = "ticdc_assets-lease"
"""The transaction identifier of all commits under a lease."""

LEASE = "lease"
"""The key of the lease's number in a commit's JSON object."""

_SHIFT = 32
_COUNTER = count()


@dataclass(frozen=True, slots=True)
class Fence:
    """What one commit carries.

    Args:
        number: of the lease.
        version: of the transaction identifier.
    """

    number: int
    version: int

    def transaction(self, table: DeltaTable | None) -> Transaction:
        """Return the transaction identifier of a commit that builds on an open table's version.

        Args:
            table: the table at the version that the commit builds on; None if the commit creates
                it.

        Raises:
            LeaseLostError: the table has a commit of a newer lease.
        """
        if table is not None:
            where = f"{table.table_uri}: version {table.version()}"
            self.require_newest(table.transaction_version(APP_ID), where)
        return Transaction(APP_ID, self.version)

    def require_newest(self, seen: int | None, where: str) -> None:
        """Make sure that no newer lease has written to a table.

        Args:
            seen: the newest version of the identifier in the table; None if it has none.
            where: the table, for people.

        Raises:
            LeaseLostError: a newer lease has written to it.
        """
        number = None if seen is None else seen >> _SHIFT
        if number is not None and number > self.number:
            raise LeaseLostError(
                f"{where} was written under lease {number}, this run has lease {self.number}: "
                "another run took over while this one was stalled; nothing was committed, sync "
                "again"
            )


def number_in(table: DeltaTable) -> int | None:
    """Return the number of the newest lease that wrote to an open table; None if none did."""
    seen = table.transaction_version(APP_ID)
    return None if seen is None else seen >> _SHIFT


_GUARDS: dict[str, HeldLease] = {}
"""The leases that this process holds, by the folder of their tables."""


@contextmanager
def guarded(base: AnyPath, guard: HeldLease) -> Iterator[None]:
    """Make all commits to tables below `base` under a lease, within this block.

    Raises:
        BusyError: this process writes to them already, under a lease that may be over.
    """
    if str(base) in _GUARDS:
        raise BusyError(f"this process already writes to {base}; try again when it has ended")
    _GUARDS[str(base)] = guard
    try:
        yield
    finally:
        del _GUARDS[str(base)]


def guard_of(table: AnyPath) -> HeldLease | None:
    """Return the lease under which this process writes to a table; None if it needs none."""
    if not _GUARDS:
        return None
    guards = (_GUARDS.get(str(place)) for place in (table, *table.parents))
    return next((guard for guard in guards if guard is not None), None)


def fence_of(table: AnyPath) -> Fence | None:
    """Return what the next commit to a table carries; None without a lease.

    Raises:
        LeaseLostError: the lease is over, or may be.
    """
    guard = guard_of(table)
    if guard is None:
        return None
    guard.require()
    return Fence(guard.number, guard.number << _SHIFT | next(_COUNTER))


def require_lease(table: AnyPath) -> None:
    """Make sure that a table's lease is held now, if the table needs one.

    Raises:
        LeaseLostError: the lease is over, or may be.
    """
    guard = guard_of(table)
    if guard is not None:
        guard.require()
