"""Loops over bytes, compiled to machine code.

In: a function of numbers and numpy arrays, in a module called `*_loops.py`, which uses only
functions and constants of such modules. Out: the same function, compiled by numba when it is first
called with arguments of new types.

Compiled code is stored in a folder of the user that no other user may write (`user_cache`), so only
the first process on a machine waits for it; without such a folder each process compiles for itself.
The folder's name depends on the text of all these modules, so code is reused wherever the package
is: in a folder, or in the zip that Spark copies to another place for each application.

One process at a time compiles. Others that need the same code wait, and load what was stored: each
of several workers would compile all of it otherwise, 12 CPU seconds for one format.

numba takes half a second to import: import these modules where and when you need them.
"""

# numba has no type information.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import fcntl
import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Any, ParamSpec, TypeVar, cast

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

    A call passes seven numbers for each array. A function of several arrays that is called for each
    value takes a fifth less time without the call.
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
    with _LOCK, _setting("CACHE_LOCATOR_CLASSES", f"{__name__}.{KeptPlace.__name__}"):
        dispatcher: Any = numba.njit(**options, cache=True)(function)
        dispatcher._cache = _KeptOnce(function)
    return cast("Callable[_P, _R]", dispatcher)


class _Turn:
    """The turn to compile, which one process has at a time; within it, calls are nested.

    numba lets one thread of a process compile at a time, so no two threads call this at once. A
    turn ends with its process at the latest. A process that waited `_TURN_SECONDS` compiles without
    one, and waits no more.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._file: IO[str] | None = None
        self._waits = True

    def begin(self) -> bool:
        """Begin a turn; return whether another process may have had it until now."""
        self._depth += 1
        folder = _folder()
        if self._depth > 1 or folder is None or not self._waits:
            return False
        self._file = (folder / "lock").open("w")
        deadline = time.monotonic() + _TURN_SECONDS
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(_LOOK_SECONDS)
                    continue
                self._waits = False
            return True

    def end(self) -> None:
        """End the turn that began last."""
        self._depth -= 1
        if not self._depth and self._file is not None:
            self._file.close()
            self._file = None


_TURN_SECONDS, _LOOK_SECONDS = 60.0, 0.02
_TURN = _Turn()


class _KeptOnce(FunctionCache):
    """Stores compiled code, and begins a turn before compiling code that is not stored.

    numba looks for stored code before it compiles a function, and stores it afterwards.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return stored code, None if there is none and this process may compile."""
        code = super().load_overload(sig, target_context)
        if code is None and _TURN.begin():
            code = super().load_overload(sig, target_context)
            if code is not None:
                _TURN.end()
        return code

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store code, and end the turn in which it was compiled."""
        try:
            super().save_overload(sig, data)
        finally:
            _TURN.end()


class KeptPlace:
    """Says where numba stores a compiled function: a locator, as numba calls it.

    numba's own locators go by the path of the function's file, which differs in each application of
    Spark.

    Args:
        function: the function before it is compiled.
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


@contextmanager
def _setting(name: str, value: str) -> Generator[None]:
    before = getattr(config, name)
    setattr(config, name, value)
    try:
        yield
    finally:
        setattr(config, name, before)


_LOOPS = ("_loops.py", "compiled.py")


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
