"""Loops over bytes, compiled to machine code.

In: a function of numbers and numpy arrays. Out: the same function, compiled by numba when it is
first called with arguments of new types.

What was compiled is kept in a folder of the user's, so only the first process on a machine waits
for it. The folder's name is told by the text of all modules with such functions, so what changed is
compiled again, whatever its time stamp says. These modules are called `*_loops.py`, and a compiled
function uses functions and constants of such modules only.

What lies in that folder is run, so it is a folder that nobody else can write (`user_cache`). Where
no such folder can be had, each process compiles for itself and says so once in the log.

numba takes half a second to import: modules with compiled functions are imported by those who need
them, when they need them.
"""

# numba has no type information.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import ParamSpec, TypeVar, cast

import numba
from numba.core import config

from ticdc_assets.user_cache import UnsafeFolderError, user_folder

_P = ParamSpec("_P")
_R = TypeVar("_R")

_LOGGER = logging.getLogger(__name__)
_LOCK = Lock()


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return `function`, compiled when it is called; numbers overflow as the machine's do."""
    # numba has one folder for the whole process; it reads it when a function is decorated, and then
    # not again.
    with _LOCK:
        folder = _folder()
        if folder is None:
            return cast("Callable[_P, _R]", numba.njit(nogil=True, boundscheck=False)(function))
        with _setting("CACHE_DIR", str(folder)):
            made = numba.njit(nogil=True, boundscheck=False, cache=True)(function)
    return cast("Callable[_P, _R]", made)


@contextmanager
def _setting(name: str, value: str) -> Iterator[None]:
    before = getattr(config, name)
    setattr(config, name, value)
    try:
        yield
    finally:
        setattr(config, name, before)


@cache
def _folder() -> Path | None:
    """Return the folder for what is compiled, None if there can be none."""
    modules = sorted(Path(__file__).parent.rglob("*_loops.py"))
    texts = b"".join(module.read_bytes() for module in modules)
    try:
        return user_folder("compiled", hashlib.sha256(texts).hexdigest()[:16])
    except UnsafeFolderError as error:
        _LOGGER.warning(
            "compiled loops are not kept, each process compiles them anew, which takes some "
            "seconds: %s",
            error,
        )
        return None
