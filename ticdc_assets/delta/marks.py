"""Marks of tables in stores: values that change with each commit.

In: the folder of a table in a store. Out: the name, size and time of the newest entry of its log,
which differ if the table was created again in the same place.

Each mark is a listing of the log, and one sync needs that of each table many times. So within a
block (`listed_once`) a log is listed once, and again after each commit of this process (`forget`).
A process that takes the writer lock of a changefeed begins such a block: until it gives the lock
back, only it commits. Another writer that commits all the same (one whose lease is over) is noticed
at the next commit, whose entry is there already. What reads without the lock sees the tables as
they were when its block began, or later.

Nothing is written.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

from ticdc_assets.delta.delta_files import newest_entry
from ticdc_assets.storage.paths import LOG, AnyPath, RemotePath

_ONCE: ContextVar[bool] = ContextVar("lists once", default=False)
_LOCK = Lock()
_LISTED: dict[AnyPath, Hashable | None] = {}


@contextmanager
def listed_once() -> Iterator[None]:
    """List each log once within this block; nothing that was listed before it counts."""
    with _LOCK:
        _LISTED.clear()
    before = _ONCE.set(True)
    try:
        yield
    finally:
        _ONCE.reset(before)


def forget(path: AnyPath) -> None:
    """List a log again: it has a new entry, or is a new one."""
    with _LOCK:
        _LISTED.pop(path, None)


def mark_of(path: RemotePath) -> Hashable | None:
    """Return the mark of a table; None if it has no log.

    Raises:
        OSError: the store does not answer.
    """
    if not _ONCE.get():
        return newest_entry(path / LOG)
    with _LOCK:
        if path in _LISTED:
            return _LISTED[path]
    mark = newest_entry(path / LOG)
    with _LOCK:
        _LISTED[path] = mark
    return mark
