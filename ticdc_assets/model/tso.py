"""TSO arithmetic: a TSO is physical milliseconds << 18 plus an 18-bit logical counter.

Source: client-go `oracle/oracle.go`. TSO values here are plain `int`; they are below 2**63.

Canal-JSON without the TiDB extension sends no commit ts but `es`, epoch milliseconds. Such changes
have the TSO with physical part `es` and logical part 0, and a cut of them, which holds everything
up to some `es` with its DDL, has logical part 1: it is not a TSO and is shown as a time.
"""

import re
from datetime import UTC, datetime, timedelta

from ticdc_assets.base.errors import ConfigError

LOGICAL_BITS = 18
MAX_TSO = 2**63 - 1
OLDEST_TSO = 946_684_800_000 << LOGICAL_BITS
"""The first TSO of the year 2000. A lower number is another one: seconds, a position in a log."""

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


def lag_ms(tso: int, now_ms: float) -> float:
    """Return how far `tso` is behind a clock, in milliseconds; 0 if it is ahead of it."""
    return max(0, now_ms - physical_ms(tso))


def lag_seconds(tso: int, now: datetime) -> float:
    """Return how far `tso` is behind the aware datetime `now`, in seconds; 0 if it is ahead."""
    return round(lag_ms(tso, now.timestamp() * 1000) / 1000, 3)


def from_datetime(at: datetime) -> int:
    """Return the lowest TSO of the millisecond of the aware datetime `at`."""
    return from_physical_ms((at - _EPOCH) // timedelta(milliseconds=1))


def es_cut(es_ms: int) -> int:
    """Return the cut that holds every row and every DDL up to `es_ms` of changes without TSO."""
    return from_physical_ms(es_ms, 1)


def cut_of(text: str, *, es_only: bool) -> int:
    """Return the cut that `text` names: a TSO, or a time in ISO 8601 (UTC if it names no offset).

    A time means all of its millisecond.

    Args:
        text: as a person wrote it.
        es_only: whether the changes have no commit ts, so that only a time has a meaning.

    Raises:
        ConfigError: `text` is neither, or a TSO where changes have none.
    """
    text = text.strip()
    if _DIGITS.fullmatch(text):
        if es_only:
            raise ConfigError(
                f"this changefeed has no commit ts (Canal-JSON without the TiDB extension), so a "
                f"TSO like {text[:20]} has no meaning for it; give a time, such as "
                "2026-01-31T12:00:00Z"
            )
        digits = text.lstrip("0") or "0"
        # Python refuses to read numbers of thousands of digits.
        if len(digits) <= len(str(MAX_TSO)) and int(digits) <= MAX_TSO:
            return int(digits)
    else:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            at = None
        if at is not None:
            if at.tzinfo is None:
                at = at.replace(tzinfo=UTC)
            lowest = from_datetime(at)
            if 0 <= lowest <= MAX_TSO:
                return lowest + (1 if es_only else (1 << LOGICAL_BITS) - 1)
    raise ConfigError(
        f"expected a TSO (a whole number up to 2^63 - 1) or a time such as "
        f"2026-01-31T12:00:00Z, got {text[:80]!r}"
    )


def moment_text(cut: int, *, es_only: bool) -> str:
    """Return a cut for people: its time with the TSO after it, or the time of its `es`."""
    if es_only:
        return f"es {to_datetime(cut):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
    return time_with_tso(cut)


def time_with_tso(tso: int, *, es_only: bool = False) -> str:
    """Return the time of a TSO with the TSO after it; the time alone where changes have no TSO."""
    time = f"{to_datetime(tso):%Y-%m-%d %H:%M:%S} UTC"
    return time if es_only else f"{time} (TSO {tso})"


_DIGITS = re.compile("[0-9]+")
