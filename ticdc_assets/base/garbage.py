"""How often Python searches for garbage in cycles: objects that only refer to each other.

Python's default searches after every 700 new objects, though the imports of a command alone create
half a million objects, which stay, and visits all of them once more at its end. With ten tables, a
first sync takes 3.2 CPU seconds with these settings and 5.1 without, a sync with nothing new 0.74
and 1.04. Objects in no cycle, nearly all, are freed at once in any case.

Only this project's programs use it: its commands and its code location. At the end files are
flushed and temporary folders removed as usual, by their owners or by `atexit`.
"""

import atexit
import gc

_NEW_OBJECTS = 500_000
"""How many new objects start a search; about 50 MB, if all of them were garbage."""


def pass_over_all() -> None:
    """Let Python ignore all objects that exist now in its searches: they are to stay."""
    gc.freeze()


def look_seldom() -> None:
    """Let Python search for cycles only after many new objects, and not at its end.

    It may be repeated.
    """
    gc.set_threshold(_NEW_OBJECTS, 10, 100)
    atexit.unregister(pass_over_all)
    atexit.register(pass_over_all)
