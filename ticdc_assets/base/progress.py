"""Progress of work, reported to listeners.

Sentences of working functions ("applying shop.orders, 3 of 14 tables") reach the listeners of this
process: the command line, which prints them if a command takes long, and the log of a Dagster run.
Nothing depends on them. Reports of Spark's workers stay in their processes.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from typing import TypeAlias

from ticdc_assets.base.names import counted

Listener: TypeAlias = Callable[[str], None]

_listeners: list[Listener] = []


@contextmanager
def listened(listener: Listener) -> Generator[None]:
    """Let `listener` receive the reports made within, next to the present listeners."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell(text: str) -> None:
    """Report the current work, from any thread; names in it are as the messages have them."""
    for listener in _listeners:
        listener(text)


class Counted:
    """Reports which of several things is being worked on, and how many there are; thread-safe.

    `doing` is the verb, as in `applying`, and `of` what one of them is.
    """

    def __init__(self, doing: str, total: int, of: str = "table") -> None:
        self._doing = doing
        self._all = counted(total, of)
        self._numbers = count(1)

    def begin(self, name: str) -> None:
        """Report that the work on one of them begins."""
        tell(f"{self._doing} {name}, {next(self._numbers)} of {self._all}")
