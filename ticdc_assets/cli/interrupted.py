"""Ctrl-C: every command ends with one sentence that says what stays.

In: the name of the command that was running. Out: the sentence on standard error, and exit code
130; commands that run until Ctrl-C end with 0. A run may be stopped anywhere: each step commits
completely or not at all, so the sentence says what to type next and never warns.

Nothing is imported here but the standard library, so that Ctrl-C works from the first moment.
"""

import os
import signal
import sys
from typing import Final

EXIT_CODE: Final = 130
"""128 and the number of the signal, as shells have it."""

_READS: Final = "nothing was changed"
_SYNC: Final = "what landed and what was published stays, and the next sync continues from there"
_COMPARES: Final = (
    "the tables of the changefeed are unchanged, and the next verify or rebuild removes what was "
    "built for the comparison"
)

STAYS: Final = {
    "accept-gap": "see with `ticdc-assets status` whether the gap is accepted",
    "accept-loss": "see with `ticdc-assets quarantine` whether the record is given up",
    "alerts": "a message may have been sent; nothing else was changed",
    "backfill": "tables that were folded again stay; run it again for the others",
    "broker": "what its topics have stays in its folder",
    "demo": "run it again, and it starts over",
    "diff": _COMPARES,
    "maintain": "what was removed and compacted stays, and the next maintain does the rest",
    "play": "records that were played stay in Kafka",
    "rebuild": "the mirrors are unchanged or, if they were published, all rebuilt; run it again",
    "record": "records that were recorded stay in the capture; run it again, and it continues",
    "redrive": "records that were not decoded stay in quarantine; run it again",
    "rewind": "all mirrors are at one cut, the one before or the older one; run it again",
    "sample": "files that were written stay; run it again in another folder",
    "seed": "rows that landed stay; run it again, and it continues",
    "sync": _SYNC,
    "ui": "the tables and the recorded runs stay",
    "upstream": "the statement may have been committed; check with `ticdc-assets --demo show`",
    "verify": _COMPARES,
}
"""What stays of a command that was stopped, by its name; the others change nothing."""


def sentence(command: str | None) -> str:
    """Return what is printed if a command is stopped; None for one that had not begun."""
    return f"Stopped: {STAYS.get(command or '', _READS)}."


def ignore_the_next() -> None:
    """Let a second Ctrl-C end this process at once: all that was to be said is said."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(EXIT_CODE))


def stopped_at_start() -> int:
    """Print the sentence of a program that was stopped before its command; return the exit code."""
    ignore_the_next()
    sys.stderr.write(f"\n{sentence(None)}\n")
    return 0 if "--follow" in sys.argv else EXIT_CODE
