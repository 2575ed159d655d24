"""Findings, moments and spans of time in words. Pure: the same value gives the same text."""

from collections.abc import Iterable
from datetime import datetime

LISTED = 20
"""Findings listed in one sentence or table; the rest is counted."""

_UNITS = ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h"))


def duration(seconds: float) -> str:
    """Return a length of time in a unit that people would use."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    for limit, unit, name in _UNITS:
        if seconds < limit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds / 86_400:,.1f} days"


def listed(findings: Iterable[str], separator: str = ", ") -> str:
    """Return findings in one text: the first ones in full, the rest as a count."""
    texts = list(findings)
    more = f" and {len(texts) - LISTED} more" if len(texts) > LISTED else ""
    return separator.join(texts[:LISTED]) + more


def lag_text(seconds: float, *, is_finished: bool) -> str:
    """Return how far a table is behind now or, if finished, behind the end."""
    if not is_finished:
        return duration(seconds)
    return f"{duration(seconds)} before the end" if seconds else "finished"


def iso(moment: datetime | None) -> str | None:
    """Return a moment to the millisecond, as in JSON; None for None."""
    return None if moment is None else moment.isoformat(timespec="milliseconds")
