"""Alerts: which problems are new for a target, and the message about them.

In: the current problems of a changefeed, and those already sent to a target. Out: one message with
new, worse, better and ended problems, and the problems sent by then. These are stored only after
the target accepted the message, so a target that is down gets the differences later: nothing is
sent twice, and only problems that came and went in the meantime are left out.

Not handled: alerts about a daemon that does not run. An outside program must watch it, such as
Prometheus with `ticdc-assets metrics`.
"""

import logging
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.config import OptionValue
from ticdc_assets.observe.verdicts import Level

_LISTED: Final = 20
_SENTENCE: Final = 500
_OVER: Final = "ok again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem of a changefeed.

    Attributes:
        name: the check, or the job; it stays the same while the problem lasts.
        link: URL of a page about it; "" if there is none.
        event: the id of the event, for a problem that is a series of events: each is sent, and none
            has an end. "" for a problem that lasts.
    """

    name: str
    level: Level
    sentence: str
    link: str = ""
    event: str = ""

    @property
    def mark(self) -> str:
        """What is stored of it after it was sent: its level and its event."""
        return f"{self.level.word} {self.event}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message to a target about some changes; `level` is OK if all of it is good news."""

    level: Level
    title: str
    body: str
    changes: int


def news(
    changefeed: str, problems: Iterable[Problem], marks: Mapping[str, str], least: Level
) -> tuple[Message | None, dict[str, str]]:
    """Return the message for a target (None if nothing changed) and the marks to store after it.

    `marks` has the mark of each problem sent to the target, by the problem's name; problems below
    the level `least` are not for it.
    """
    now = {item.name: item for item in problems if item.level >= least}
    changed = sorted(
        (item for item in now.values() if marks.get(item.name) != item.mark),
        key=lambda item: (-item.level, item.name),
    )
    over = sorted(name for name, mark in marks.items() if name not in now and " " not in mark)
    after = {name: item.mark for name, item in now.items()}
    if not changed and not over:
        return None, after
    lines = [
        f"{item.level.name} {item.name}: {_shortened(item.sentence)}"
        + (f"\n{item.link}" if item.link else "")
        for item in changed
    ] + [f"OK {name}: {_OVER}" for name in over]
    if len(lines) > _LISTED:
        lines[_LISTED:] = [f"... and {len(lines) - _LISTED} more"]
    by_level = {
        level: [item.name for item in changed if item.level is level]
        for level in (Level.FAIL, Level.WARN)
    }
    # The names if there are few, otherwise their number.
    counts = (
        f"{', '.join(names) if len(names) <= 2 else len(names)} {word}"
        for names, word in zip(
            (*by_level.values(), over), ("failing", "warning", _OVER), strict=True
        )
        if names
    )
    message = Message(
        level=max((item.level for item in changed), default=Level.OK),
        title=f"{changefeed}: {', '.join(counts)}",
        body="\n\n".join(lines),
        changes=len(changed) + len(over),
    )
    return message, after


def _shortened(text: str) -> str:
    return textwrap.shorten(text, _SENTENCE, placeholder=" …")


def understands(target: OptionValue) -> bool:
    """Return whether alerts can be sent to a target's URL."""
    from apprise import Apprise

    return Apprise.instantiate(target.value, suppress_exceptions=True) is not None


def deliver(message: Message, target: OptionValue) -> None:
    """Send a message; the target has accepted it when this returns.

    Raises:
        TicdcError: the target's URL is invalid, or the target did not accept the message.
    """
    from apprise import Apprise, LogCapture, NotifyFormat, NotifyType

    sender = Apprise()
    kinds = {Level.OK: NotifyType.SUCCESS, Level.WARN: NotifyType.WARNING}
    capture: Any = LogCapture(level=logging.WARNING, fmt="%(message)s")
    with capture as log:
        taken = sender.add(target.value) and sender.notify(
            title=message.title,
            body=message.body,
            notify_type=kinds.get(message.level, NotifyType.FAILURE),
            body_format=NotifyFormat.TEXT,
        )
        # The library leaves passwords out of its log, but not out of an invalid URL.
        said = " ".join(log.getvalue().split()).replace(target.value, target.shown)
    if not taken:
        raise TicdcError(
            f"{target.shown} did not accept the alert: {_shortened(said) or 'no reason'}"
        )
