"""How often Python searches for garbage in cycles: objects that only refer to each other.

Python's default searches after every 700 new objects, though the imports of a command alone create
half a million objects, which stay, and visits all of them once more at its end. With ten tables, a
first sync takes 3.2 CPU seconds with these settings and 5.1 without, a sync with nothing new 0.74
and 1.04. Objects in no cycle, nearly all, are freed at once in any case.

Only this project's programs use it: its commands and its code location.
"""

import atexit
import gc

_NEW_OBJECTS = 500_000
"""How many new objects start a search; about 50 MB, if all of them were garbage."""


def look_seldom() -> None:
    """Let Python search for cycles only after many new objects, and not at its end."""
    gc.set_threshold(_NEW_OBJECTS, 10, 100)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
