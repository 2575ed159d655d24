"""Loops over bytes, compiled to machine code.

In: a function of numbers and numpy arrays. Out: the same function, compiled by numba when it is
first called with arguments of new types.

What was compiled is kept in a folder of the user's, so only the first process on a machine waits
for it. The folder's name is told by the text of all modules with such functions, so what changed is
compiled again, whatever its time stamp says. These modules are called `*_loops.py`, and a compiled
function uses functions and constants of such modules only. Where no such folder can be had (a home
that cannot be written), each process compiles for itself.

numba takes half a second to import: modules with compiled functions are imported by those who need
them, when they need them.
"""

# numba has no type information.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

import numba
from numba.core import config

_P = ParamSpec("_P")
_R = TypeVar("_R")


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return `function`, compiled when it is called; numbers overflow as the machine's do."""
    folder = _folder()
    if folder is None:
        return cast("Callable[_P, _R]", numba.njit(nogil=True, boundscheck=False)(function))
    # numba reads it when a function is decorated, and then not again.
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
    digest = hashlib.sha256(texts).hexdigest()[:16]
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home) / "ticdc_assets" / "compiled" / digest
        # What lies there is run: nobody else may write it.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None
