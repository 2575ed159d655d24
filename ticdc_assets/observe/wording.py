"""Findings, numbers, names, moments and spans of time as people read them.

Pure: the same value gives the same text. Names and other texts from messages may contain any
characters. `visible` shows characters that a reader could not see, or that would change the order
of text, as escapes. Templates make texts safe in HTML, and `plot_text` makes them safe in a plot.
"""

import html
import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime

LISTED = 20
"""Findings listed in one sentence or table; the rest is counted."""

_UNITS = ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h"))

# Formatting characters that join letters and emoji.
_JOINERS = frozenset("\u200c\u200d")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def duration(seconds: float) -> str:
    """Return a length of time in a unit that people would use."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    for limit, unit, name in _UNITS:
        if seconds < limit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds / 86_400:,.1f} days"


def listed(findings: Iterable[str], separator: str = ", ") -> str:
    """Return findings in one line: the first ones in full, the rest as a count."""
    texts = [visible(text) for text in findings]
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


def utc_text(at: datetime, *, millis: bool = False) -> str:
    """Return a time in UTC, without the zone's name."""
    text = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"
    return text[: -3 if millis else -7]


def count_text(number: float) -> str:
    """Return an integer with separated thousands."""
    return f"{round(number):,}"


def rate_text(per_second: float) -> str:
    """Return a rate in a unit that gives a number above 1, if there is one."""
    if per_second >= 10:
        return f"{per_second:,.0f}/s"
    if per_second >= 1 or per_second == 0:
        return f"{per_second:.1f}/s"
    return f"{per_second * 60:.1f}/min"


def visible(text: str) -> str:
    """Return text with invisible or controlling characters as escapes."""
    return "".join(
        char
        if char in _JOINERS or unicodedata.category(char) not in _HIDDEN
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def plot_text(text: str) -> str:
    """Return text for a plot's label, where plotly reads some HTML."""
    # Isolated, so that a right-to-left name does not reorder the text next to it.
    return f"\u2068{html.escape(visible(text), quote=False)}\u2069"


def shortened(text: str, limit: int) -> str:
    """Return text, truncated with an ellipsis if it is longer than `limit` characters."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def one_line(text: str) -> str:
    """Return text with its line ends and tabs as spaces."""
    return re.sub(r"[\r\n\t]+", " ", text).strip()
