"""The user's cache: folders for generated code that later processes run.

They are below `$XDG_CACHE_HOME` or `~/.cache`. Their files are executed (compiled loops, Java
classes). So a folder is returned only if no other user can have changed it: this user owns the
folder and all files in it, no other user may write to it, and no other user may replace it.
Otherwise `UnsafeFolderError` says why.
"""

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path


class UnsafeFolderError(Exception):
    """There is no folder that only this user can write."""


def user_folder(*parts: str, env: Mapping[str, str] | None = None) -> Path:
    """Return a folder of the cache, below the package's own; it is created if it is not there.

    It raises UnsafeFolderError if it cannot be created, or somebody else may write there.
    """
    env = os.environ if env is None else env
    try:
        home = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
        levels = [home / "ticdc_assets"]
        for part in parts:
            levels.append(levels[-1] / part)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_own(levels[-1], tuple(levels))
    except (OSError, RuntimeError) as error:
        raise UnsafeFolderError(str(error)) from error
    return levels[-1]


def stored(folder: Path, name: str, make: Callable[[Path], None]) -> Path | None:
    """Return a file of a folder, after making it if it is not there; None if it cannot be made.

    One process at a time makes a file, and others see the whole file or none. Its name identifies
    its content. Of the files with the same ending, the newest three stay: a process that uses an
    older one keeps it. `make` writes the file to a path, or nothing if it cannot.
    """
    path = folder / name
    if path.is_file():
        return path
    with (folder / "lock").open("w") as lock, tempfile.TemporaryDirectory(dir=folder) as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        draft = Path(scratch, name)
        if not path.is_file():
            make(draft)
            if not draft.is_file():
                return None
            draft.replace(path)
            others = sorted(folder.glob(f"*{path.suffix}"), key=lambda item: item.stat().st_mtime)
            for older in others[:-3]:
                older.unlink(missing_ok=True)
    return path


def _make_own(folder: Path, levels: tuple[Path, ...]) -> None:
    """Create a folder, the last of `levels`, that is this user's alone, and check that it is."""
    for level in levels:
        # When mkdir creates several folders, those above would get the usual mode.
        level.mkdir(mode=0o700, exist_ok=True)
        # Where groups may write by default, an older version of this package gave them access.
        status = level.lstat()
        if level != folder and status.st_uid == os.geteuid() and stat.S_ISDIR(status.st_mode):
            level.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)
    for level in (*reversed(levels[0].parents), *levels[:-1]):
        # Only this user and root can replace a folder on the way to it.
        status = level.stat()
        if status.st_uid not in (0, os.geteuid()):
            raise UnsafeFolderError(f"{level}, on the way to it, belongs to another user")
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise UnsafeFolderError(f"everybody may write {level}, which is on the way to it")
    for item in (folder, *folder.rglob("*")):
        status = item.lstat()
        if status.st_uid != os.geteuid() or stat.S_ISLNK(status.st_mode):
            raise UnsafeFolderError(f"{item} does not belong to this user: remove {folder}")
    if stat.S_IMODE(folder.lstat().st_mode) & _OTHERS_WRITE:
        raise UnsafeFolderError(f"others may write {folder}: remove it")
    if not os.access(folder, os.W_OK):
        raise UnsafeFolderError(f"{folder} cannot be written")


_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
