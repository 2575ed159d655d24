"""What this project's own programs, its commands and its code location, do when they start.

Python searches for garbage in cycles (objects that only refer to each other) after every 700 new
objects, though the imports of a command alone create half a million, which stay, and visits all of
them once more at its end. With ten tables, a first sync takes 3.2 CPU seconds with `look_seldom`
and 5.1 without, a sync with nothing new 0.74 and 1.04. Objects in no cycle are freed at once in any
case.

pyarrow imports pandas when it first builds an array, to check whether its input is an object of
pandas. Commands have no such object, and a sync with nothing new takes 0.74 CPU seconds without
that import instead of 0.90. Programs that import this package may have objects of pandas: they are
left alone. pyarrow imports pandas again when it has to return such an object.
"""

import atexit
import gc
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import pyarrow as pa

_NEW_OBJECTS = 500_000
"""How many new objects start a search; about 50 MB, if all of them were garbage."""


def look_seldom() -> None:
    """Let Python search for cycles only after many new objects, and not at its end."""
    gc.set_threshold(_NEW_OBJECTS, 10, 100)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


_PANDAS = "pandas"


class _Hiding(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        if fullname == _PANDAS:
            raise ModuleNotFoundError(f"{_PANDAS} is hidden", name=_PANDAS)


def hide_pandas() -> None:
    """Let pyarrow's one check for pandas fail, so that it does not import pandas."""
    if _PANDAS not in sys.modules:
        hiding = _Hiding()
        sys.meta_path.insert(0, hiding)
        pa.array([])  # pyarrow checks here, and caches the result
        sys.meta_path.remove(hiding)
