"""Refusals of the machine as one sentence: no space, a read-only or forbidden folder, no memory.

In: any exception, from the library that hit the refusal first: Python, Arrow, Rust, SQLite, a JVM.
Out: one sentence that names the folder, if known, and says what to do; None for other exceptions.
Such a refusal loses nothing: each step commits completely or not at all, and the next run continues
from the tables.
"""

import errno
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from ticdc_assets.base.errors import PrerequisiteError
from ticdc_assets.base.isolation import RUST_PANIC

_NO_SPACE = ("no space left on device", "disk is full", "disk quota exceeded", "os error 28")
_READ_ONLY = ("read-only file system", "readonly database", "os error 30")
_FORBIDDEN = ("permission denied", "os error 13")
_UNOPENED = "unable to open database file"
_NO_MEMORY = ("cannot allocate memory", "java heap space", "outofmemoryerror", "malloc of size")

_LITTLE = 1024 * 1024
"""A device with fewer free bytes than this counts as full."""


def refusal(error: BaseException, folders: Iterable[Path]) -> str | None:
    """Return what the machine refused, or None if an exception and its causes say something else.

    The folders are where this program writes; they are checked to find the full device.
    """
    for item in _chain(error):
        number = item.errno if isinstance(item, OSError) else None
        text = str(item).lower()
        where = item.filename if isinstance(item, OSError) and item.filename else None
        if number in (errno.ENOSPC, errno.EDQUOT) or any(part in text for part in _NO_SPACE):
            return _no_space(where or _listed(_full(folders)))
        if number == errno.EROFS or any(part in text for part in _READ_ONLY):
            return f"{where or _listed(_closed(folders))} cannot be written to: it is read-only"
        if number in (errno.EACCES, errno.EPERM) or any(part in text for part in _FORBIDDEN):
            return f"{where or _listed(_closed(folders))} cannot be used: permission denied"
        if _UNOPENED in text:
            closed = _closed(folders)
            return f"{_listed(closed)} cannot be written to" if closed else None
        if isinstance(item, MemoryError) or any(part in text for part in _NO_MEMORY):
            return "no memory is left for this step; stop other programs, or land less at a time"
    return None


def require_space(folder: Path, failures: Iterable[str] = ()) -> None:
    """Raise PrerequisiteError if the device of `folder` has no space left, or had none.

    Some libraries do not raise on a full device but print a panic; so a program calls this before
    it writes. `failures` say why work in it failed; what that removed since is free again.
    """
    if _full([folder]) or any(part in text.lower() for text in failures for part in _NO_SPACE):
        raise PrerequisiteError(_no_space(folder))


def _no_space(where: object) -> str:
    return (
        f"no space is left on the device of {where}; free some and run the command again: "
        "committed data stays, and nothing is lost"
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes: the one that matters may be wrapped several times."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        item = waiting.pop()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        # Only its text says why Rust code panicked.
        if isinstance(item, Exception) or type(item).__name__ == RUST_PANIC:
            yield item
        waiting += (item.__context__, item.__cause__)


def _full(folders: Iterable[Path]) -> list[Path]:
    full: list[Path] = []
    for folder in map(nearest_existing, folders):
        try:
            if shutil.disk_usage(folder).free < _LITTLE:
                full.append(folder)
        except OSError:
            continue
    return full


def _closed(folders: Iterable[Path]) -> list[str]:
    """Return the folders in which no file can be created, each with the reason."""
    closed: list[str] = []
    for folder in map(nearest_existing, folders):
        probe = folder / ".ticdc-assets-probe"
        try:
            probe.touch()
            probe.unlink()
        except OSError as error:
            closed.append(f"{folder} ({error.strerror})")
    return closed


def nearest_existing(folder: Path) -> Path:
    """Return a folder, or the nearest existing one above it, with its whole path.

    Anything else of that name, for example a file, is returned too.
    """
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _listed(folders: Iterable[object]) -> str:
    return " and ".join(dict.fromkeys(map(str, folders))) or "a folder of this program"
