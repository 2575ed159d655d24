"""How often Python looks for objects that refer to each other and that nothing else refers to.

Python's default looks after every 700 new objects, and looks at all objects again and again while
their number grows. A command makes half a million by its imports alone, which stay, and planning
thousands of tables makes millions. As it ends it looks at all of them once more and frees them one
by one, though the process is about to end. Of ten tables, a first sync takes 3.2 CPU seconds so and
5.1 else, one with nothing new 0.74 and 1.04, a check of the definitions 2.2 and 3.3. What is in no
cycle is freed at once in any case, and that is nearly all.

Only what this project starts asks for it: its commands and its code location. At the end files are
flushed and temporary folders removed as ever, by who opened them or by `atexit`.
"""

import atexit
import gc
import sys

_NEW_OBJECTS = 500_000
"""How many objects may be new before it looks; about 50 MB, if all of them were garbage."""


def pass_over_all() -> None:
    """Let Python look at none of the objects that are there now: they are to stay."""
    gc.freeze()


def look_seldom() -> None:
    """Let Python look for cycles after many new objects, and not at its end; it may be repeated."""
    gc.set_threshold(_NEW_OBJECTS, 10, 100)
    atexit.unregister(_end_at_once)
    atexit.register(_end_at_once)


def _end_at_once() -> None:
    # DuckDB's library looks by itself at the end, and prints what was not freed.
    if "_duckdb" not in sys.modules:
        pass_over_all()
