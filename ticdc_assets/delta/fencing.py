"""Fencing: what a commit carries so that a writer whose lease is over cannot make it.

In: the leases that this process holds (`guarded`), and a table. Out: for each commit a transaction
identifier with the number of the lease, by which the commits of older numbers are refused. Without
a lease there is none.

The identifier's version is the lease's number with a counter of this process in the lower bits, so
it only goes up. A log entry is put only where none exists (`committing`), and `leased_transaction`
checks the version that it builds on, so no commit of a newer lease can come before it unseen.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from ticdc_assets.base.errors import BusyError, LeaseLostError
from ticdc_assets.delta.delta_protocol import LogState
from ticdc_assets.delta.lease import HeldLease
from ticdc_assets.storage.paths import AnyPath

APP_ID = "ticdc_assets-lease"
"""The transaction identifier of all commits under a lease."""

_SHIFT = 32
_COUNTER = count()


def number_in(table: LogState) -> int | None:
    """Return the number of the newest lease that wrote to a table; None if none did."""
    seen = table.transactions.get(APP_ID)
    return None if seen is None else number_of(seen)


def number_of(version: int) -> int:
    """Return the number of the lease in the identifier's version."""
    return version >> _SHIFT


_GUARDS: dict[str, HeldLease] = {}
"""The leases that this process holds, by the folder of their tables."""


@contextmanager
def guarded(base: AnyPath, guard: HeldLease) -> Iterator[None]:
    """Make all commits to tables below `base` under a lease, within this block, or raise BusyError.

    This process may write to them already, under a lease that may be over.
    """
    if str(base) in _GUARDS:
        raise BusyError(f"this process already writes to {base}; try again when it has ended")
    _GUARDS[str(base)] = guard
    try:
        yield
    finally:
        del _GUARDS[str(base)]


def _guard_of(table: AnyPath) -> HeldLease | None:
    """Return the lease under which this process writes to a table; None if it needs none."""
    if not _GUARDS:
        return None
    guards = (_GUARDS.get(str(place)) for place in (table, *table.parents))
    return next((guard for guard in guards if guard is not None), None)


def leased_transaction(table: AnyPath, seen: int | None) -> list[tuple[str, int]]:
    """Return the transaction identifier of the next commit to a table; none without a lease.

    `seen` is the newest version of `APP_ID` in the version that the commit builds on.

    Raises:
        LeaseLostError: the lease is over, or the table has a commit of a newer lease.
    """
    guard = _guard_of(table)
    if guard is None:
        return []
    guard.require()
    if seen is not None and number_of(seen) > guard.number:
        raise LeaseLostError(
            f"{table} was written under lease {number_of(seen)}, this run has lease "
            f"{guard.number}: another run took over while this one was stalled; nothing was "
            "committed, sync again"
        )
    return [(APP_ID, guard.number << _SHIFT | next(_COUNTER))]


def require_lease(table: AnyPath) -> None:
    """Raise LeaseLostError if a table needs a lease that is over, or may be."""
    guard = _guard_of(table)
    if guard is not None:
        guard.require()
