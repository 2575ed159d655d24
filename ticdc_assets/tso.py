"""TSO arithmetic: a TSO is physical milliseconds << 18 plus an 18-bit logical counter.

Source: client-go `oracle/oracle.go`. TSO values here are plain `int`; they are below 2**63.
"""

from datetime import UTC, datetime, timedelta

LOGICAL_BITS = 18
MAX_TSO = 2**63 - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def physical_ms(tso: int) -> int:
    """Return the physical part of `tso` in epoch milliseconds."""
    return tso >> LOGICAL_BITS


def from_physical_ms(epoch_ms: int, logical: int = 0) -> int:
    """Return the TSO of `epoch_ms` (epoch milliseconds) with the given logical counter."""
    return (epoch_ms << LOGICAL_BITS) | logical


def to_datetime(tso: int) -> datetime:
    """Return the physical time of `tso` as an aware UTC datetime."""
    return _EPOCH + timedelta(milliseconds=physical_ms(tso))


def from_datetime(at: datetime) -> int:
    """Return the lowest TSO of the millisecond of the aware datetime `at`."""
    return from_physical_ms((at - _EPOCH) // timedelta(milliseconds=1))
