"""Loops over bytes, compiled to machine code.

In: a function of numbers and numpy arrays, in a module called `*_loops.py`, which uses only
functions and constants of such modules, and numbers of modules called `codes.py`. Out: the same
function, compiled by numba when it is first called with arguments of new types.

Compiled code is stored in a folder of the user that no other user may write (`user_cache`). Its
name depends on the text of all these modules, so code is reused wherever the package is: in a
folder, or in the zip that Spark copies to another place for each application.

numba takes half a second to import: import these modules where and when you need them.
"""

# numba has no type information.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import fcntl
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core import config
from numba.core.caching import FunctionCache

from ticdc_assets.base.own_files import own_digest
from ticdc_assets.base.user_cache import UnsafeFolderError, user_folder

_P = ParamSpec("_P")
_R = TypeVar("_R")

_LOGGER = logging.getLogger(__name__)
_LOCK = Lock()


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return `function`, compiled when it is called.

    Numbers overflow as the machine's do. It creates no array: its caller does.
    """
    return _compiled(function, inlined=False)


def inlined(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return `function` in the same way, but as a part of each compiled function that calls it.

    A call passes seven numbers for each array, which takes a fifth of the time of small functions.
    """
    return _compiled(function, inlined=True)


def _compiled(function: Callable[_P, _R], *, inlined: bool) -> Callable[_P, _R]:
    # A function keeps none of its arguments, so it counts no references: that is an atomic addition
    # for each array of each call, and was half of the time of many functions.
    options: dict[str, Any] = {
        "nogil": True,
        "boundscheck": False,
        "forceinline": inlined,
        "_nrt": False,
    }
    if _folder() is None:
        return cast("Callable[_P, _R]", numba.njit(**options)(function))
    # numba has one setting for the whole process; it reads it once, when a function is decorated.
    settings: Any = config
    with _LOCK:
        before = settings.CACHE_LOCATOR_CLASSES
        settings.CACHE_LOCATOR_CLASSES = f"{__name__}.{KeptPlace.__name__}"
        try:
            dispatcher: Any = numba.njit(**options, cache=True)(function)
            dispatcher._cache = _KeptCode(function)
        finally:
            settings.CACHE_LOCATOR_CLASSES = before
    return cast("Callable[_P, _R]", dispatcher)


class _KeptCode(FunctionCache):
    """Stores compiled code; one process at a time writes the index of a function's code."""

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the code of a function for arguments of some types."""
        with (cast("Path", _folder()) / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            super().save_overload(sig, data)


class KeptPlace:
    """Says where numba stores a compiled function: a locator, as numba calls it.

    numba's own go by the path of the function's file, which differs in each application of Spark.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._line = function.__code__.co_firstlineno
        self._module = function.__module__

    def get_cache_path(self) -> str:
        """Return the folder of the compiled code of the function's module."""
        return str(cast("Path", _folder()) / self._module)

    def ensure_cache_path(self) -> None:
        """Create that folder."""
        Path(self.get_cache_path()).mkdir(mode=0o700, exist_ok=True)

    def get_source_stamp(self) -> str:
        """Return a constant stamp: the folder's name depends on all of the source."""
        return own_digest(_LOOPS)

    def get_disambiguator(self) -> str:
        """Return the text that distinguishes the function from others of its name in the module."""
        return str(self._line)

    @classmethod
    def from_function(cls, function: Any, _file: str) -> "KeptPlace":
        """Return the place of a function."""
        return cls(function)


_LOOPS = ("_loops.py", "codes.py", "compiled.py")


@cache
def _folder() -> Path | None:
    """Return the folder for compiled code, None if there can be none."""
    try:
        return user_folder("compiled", own_digest(_LOOPS))
    except UnsafeFolderError as error:
        _LOGGER.warning(
            "compiled loops are not stored; each process compiles them again, which takes some "
            "seconds: %s",
            error,
        )
        return None
