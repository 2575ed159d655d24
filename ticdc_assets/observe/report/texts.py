"""Numbers, times and names as people read them. Pure: the same value gives the same text.

Names and other texts from messages may contain any characters. `visible` shows characters that a
reader could not see, or that would change the order of text, as escapes. The templates make texts
safe in HTML, and `plot_text` makes them safe in a plot.
"""

import html
import re
import unicodedata
from datetime import UTC, datetime, timedelta

# Formatting characters that join letters and emoji.
_JOINERS = frozenset("\u200c\u200d")
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    return _LINE_ENDS.sub(" ", text).strip()


_LINE_ENDS = re.compile(r"[\r\n\t]+")


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


def moment_of(epoch_ms: float) -> datetime:
    """Return the moment of epoch milliseconds."""
    return _EPOCH + timedelta(milliseconds=epoch_ms)


def utc_text(at: datetime, *, millis: bool = False) -> str:
    """Return a time in UTC, without the zone's name."""
    text = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"
    return text[: -3 if millis else -7]
