"""Loops over bytes, compiled to machine code.

In: a function of numbers and numpy arrays. Out: the same function, compiled by numba when it is
first called with arguments of new types.

What was compiled is kept in a folder of the user's, so only the first process on a machine waits
for it. The folder's name is told by the text of all modules with such functions, so what changed is
compiled again, whatever its time stamp says. These modules are called `*_loops.py`, and a compiled
function uses functions and constants of such modules only.

What lies in that folder is run, so it is used only if nobody else can have put it there: the folder
and all in it belong to this user, nobody else may write it, and nobody else may put another one in
its place. Where no such folder can be had (a home that cannot be written, or that others may
write), each process compiles for itself and says so once in the log.

numba takes half a second to import: modules with compiled functions are imported by those who need
them, when they need them.
"""

# numba has no type information.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import hashlib
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import ParamSpec, TypeVar, cast

import numba
from numba.core import config

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
    digest = hashlib.sha256(texts).hexdigest()[:16]
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
        folder = home / "ticdc_assets" / "compiled" / digest
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_own(folder, (folder.parent.parent, folder.parent, folder))
    except (OSError, RuntimeError, _NotOursError) as error:
        _LOGGER.warning(
            "compiled loops are not kept, each process compiles them anew, which takes some "
            "seconds: %s",
            error,
        )
        return None
    return folder


class _NotOursError(Exception):
    """Somebody else may put something into the folder, or in its place."""


def _make_own(folder: Path, levels: tuple[Path, ...]) -> None:
    """Make a folder that is this user's alone, and see to it that it is.

    Args:
        folder: the folder.
        levels: those of its path that are ours to make, in order; the folder is the last one.
    """
    for level in levels:
        # Of several folders made at once, those above would get the usual mode.
        level.mkdir(mode=0o700, exist_ok=True)
        # Where groups may write by default, an older version of this package let them.
        found = level.lstat()
        if level != folder and found.st_uid == os.geteuid() and stat.S_ISDIR(found.st_mode):
            level.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS_WRITE)
    for level in (*reversed(levels[0].parents), *levels[:-1]):
        _require_safe_way(level)
    for item in (folder, *folder.rglob("*")):
        found = item.lstat()
        if found.st_uid != os.geteuid() or stat.S_ISLNK(found.st_mode):
            raise _NotOursError(f"{item} does not belong to this user: remove {folder}")
    if stat.S_IMODE(folder.lstat().st_mode) & _OTHERS_WRITE:
        raise _NotOursError(f"others may write {folder}: remove it")
    if not os.access(folder, os.W_OK):
        raise _NotOursError(f"{folder} cannot be written")


def _require_safe_way(folder: Path) -> None:
    """See to it that nobody but this user and root can put another folder in a path's place."""
    found = folder.stat()
    if found.st_uid not in (0, os.geteuid()):
        raise _NotOursError(f"{folder}, on the way to it, belongs to another user")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise _NotOursError(f"everybody may write {folder}, which is on the way to it")


_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
