"""How often Python looks for objects that refer to each other and that nothing else refers to.

Python's default looks after every 700 new objects, and looks at all objects again and again while
their number grows. A command makes half a million by its imports alone, which stay, and planning
thousands of tables makes millions: the looking took a sixth of the CPU time of a small sync. What
is in no cycle is freed at once in any case, and that is nearly all.

Only what this project starts asks for it: its commands and its code location.
"""

import gc

_NEW_OBJECTS = 500_000
"""How many objects may be new before it looks; about 50 MB, if all of them were garbage."""


def look_seldom() -> None:
    """Let Python look for cycles after many new objects; to call this again changes nothing."""
    gc.set_threshold(_NEW_OBJECTS, 10, 100)
