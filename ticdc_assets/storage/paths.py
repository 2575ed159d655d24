"""Paths of a lake: those of a folder are `pathlib.Path`, those of a URI are `RemotePath`.

A `RemotePath` behaves as `pathlib.Path` does as far as this package uses it; functions do what
`pathlib` has no method for.

A store has objects, not folders: a folder is there if an object is below it, and a rename is a
copy. An object is there whole or not at all. HDFS is a file system: folders stay when they are
empty, and renames are atomic, as on a disk.

A tree is moved there by copies first and deletions second (`move`), so a run killed in between
leaves the tree whole in one of both places, and never a table that looks like an older one.
"""

import errno
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, TypeAlias, cast

from ticdc_assets.storage.stores import Storage, Store, store_of

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem


@dataclass(frozen=True, slots=True)
class RemoteStat:
    """What a store says of an object, as `os.stat_result` does."""

    st_size: int
    st_mtime: float


@dataclass(frozen=True, slots=True, order=True, repr=False)
class RemotePath:
    """A path in a store, with the interface of `pathlib.Path`: `key` is names joined by slashes."""

    store: Store
    key: str

    def __str__(self) -> str:
        return f"{self.store.root}/{self.key}" if self.key else self.store.root

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    # Names ---------------------------------------------------------------------------------------

    def __truediv__(self, other: str | PurePosixPath) -> "RemotePath":
        return self.joinpath(str(other))

    def joinpath(self, *parts: str) -> "RemotePath":
        """Return the path of something below this one; a whole URI of the store replaces it."""
        key = self.key
        for part in parts:
            if part.startswith(f"{self.store.root}/"):
                key = part.removeprefix(f"{self.store.root}/").strip("/")
            else:
                key = "/".join(filter(None, (key, part.strip("/"))))
        return RemotePath(self.store, key)

    @property
    def name(self) -> str:
        """The last part, "" of the store itself."""
        return self.key.rpartition("/")[2]

    @property
    def parts(self) -> tuple[str, ...]:
        """The store, and the names below it."""
        return self.store.root, *PurePosixPath(self.key).parts

    @property
    def parent(self) -> "RemotePath":
        """The folder that it is in; the store is in itself."""
        return RemotePath(self.store, self.key.rpartition("/")[0])

    @property
    def parents(self) -> "tuple[RemotePath, ...]":
        """The folders that it is in, the innermost first; the store is the last."""
        folders = [self.parent]
        while folders[-1].key:
            folders.append(folders[-1].parent)
        return tuple(folders)

    def with_name(self, name: str) -> "RemotePath":
        """Return the path of something else in the same folder."""
        return self.parent / name

    def relative_to(self, other: "AnyPath") -> PurePosixPath:
        """Return the part of the path below a folder; ValueError if it is not below it."""
        above = f"{other}/"
        if not f"{self}/".startswith(above):
            raise ValueError(f"{self} is not below {other}")
        return PurePosixPath(str(self)[len(above) :])

    def absolute(self) -> "RemotePath":
        """Return itself."""
        return self

    def as_uri(self) -> str:
        """Return the URI."""
        return str(self)

    # What is there -------------------------------------------------------------------------------

    @property
    def inside(self) -> str:
        """The path as Arrow's file system of the store takes it."""
        return self.store.inside(self.key)

    @property
    def files(self) -> "FileSystem":
        """Arrow's file system of the store."""
        return self.store.files

    def _info(self) -> "FileInfo":
        return cast("FileInfo", self.files.get_file_info(self.inside))

    def exists(self) -> bool:
        """Return whether there is an object of this name, or one below it."""
        return self._info().type.name != "NotFound"

    def is_dir(self) -> bool:
        """Return whether there is an object below it."""
        return self._info().type.name == "Directory"

    def is_file(self) -> bool:
        """Return whether there is an object of this name."""
        return self._info().is_file

    def stat(self) -> RemoteStat:
        """Return the store's facts about the object; FileNotFoundError if there is none."""
        info = self._info()
        if not info.is_file:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return RemoteStat(st_size=info.size, st_mtime=(info.mtime_ns or 0) / 1e9)

    def listed(self, *, deep: bool) -> "list[tuple[RemotePath, FileInfo]]":
        """Return what is in the folder, or below it, with the store's facts about each object."""
        from pyarrow.fs import FileSelector

        selector = FileSelector(self.inside, allow_not_found=True, recursive=deep)
        infos = cast("list[FileInfo]", self.files.get_file_info(selector))
        if not infos:
            # A bucket that is not there would look like an empty lake.
            self.store.require_there()
        skipped = len(self.inside)
        return [(self / info.path[skipped:], info) for info in infos]

    # Reading and writing -------------------------------------------------------------------------

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open the object to read bytes, at any position."""
        if mode != "rb":
            raise ValueError(f"{self} can only be opened to read, not by {mode!r}")
        return cast("IO[bytes]", self.files.open_input_file(self.inside))

    def read_bytes(self) -> bytes:
        """Return what is in the object."""
        with self.files.open_input_file(self.inside) as file:
            return cast("bytes", file.read())

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the text of the object."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, data: bytes) -> int:
        """Write the object, in place of one of this name: nobody sees half of it."""
        if not self.store.has_folders:
            self._write(data)
            return len(data)
        staged = self.with_name(staged_name(self.name))
        try:
            staged._write(data)
            self.files.move(staged.inside, self.inside)
        except OSError:
            staged.unlink(missing_ok=True)
            raise
        return len(data)

    def _write(self, data: bytes) -> None:
        with self.files.open_output_stream(self.inside, compression=None) as stream:
            stream.write(data)

    def write_text(self, data: str, encoding: str = "utf-8") -> int:
        """Write a text as `write_bytes` does."""
        return self.write_bytes(data.encode(encoding))

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        try:
            self.files.delete_file(self.inside)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder is there as soon as something is in it."""


AnyPath: TypeAlias = Path | RemotePath
"""A path of this machine, or one in a store."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a listing.

    Attributes:
        below: its path, relative to the folder that was listed.
        size: its bytes.
        modified: when it was written (s since 1970).
    """

    path: AnyPath
    below: PurePosixPath
    size: int
    modified: float


def remote_path(uri: str, storage: Storage, env: Mapping[str, str] | None = None) -> RemotePath:
    """Return the path of the URI of a lake; the environment is this process's if `env` is None.

    Raises:
        ConfigError: it is not the URI of a lake, or its store has too few or too many settings.
    """
    return RemotePath(*store_of(uri, storage, os.environ if env is None else env))


def at(text: str, near: AnyPath) -> AnyPath:
    """Return the path of a text, on the machine or in the store of `near`."""
    if isinstance(near, RemotePath):
        return RemotePath(near.store, text.removeprefix(near.store.root).strip("/"))
    return Path(text)


def below(path: AnyPath, folder: AnyPath) -> PurePosixPath:
    """Return the part of a path below a folder; ValueError if it is not below it."""
    if isinstance(path, RemotePath):
        return path.relative_to(folder)
    return PurePosixPath(path.relative_to(cast("Path", folder)))


def delta_options(path: AnyPath) -> dict[str, str] | None:
    """Return delta-rs's storage options for a table, None in a folder."""
    return path.store.delta_options() if isinstance(path, RemotePath) else None


def located(path: AnyPath) -> "tuple[str | Path, FileSystem | None]":
    """Return a path as Arrow takes it: its text and its file system, None for this machine's."""
    return (path.inside, path.files) if isinstance(path, RemotePath) else (path, None)


def subtree(folder: AnyPath) -> "FileSystem":
    """Return Arrow's file system of what is below a folder."""
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    if isinstance(folder, RemotePath):
        return SubTreeFileSystem(folder.inside, folder.files)
    return SubTreeFileSystem(str(folder), LocalFileSystem())


def names_in(folder: AnyPath) -> list[str]:
    """Return the names of what is in a folder; [] if it is not a folder."""
    if isinstance(folder, RemotePath):
        return [path.name for path, _ in folder.listed(deep=False)]
    try:
        # There may be many thousands, and only their names count.
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []


def files_below(folder: AnyPath) -> Iterator[ListedFile]:
    """Yield the files below a folder, in no order."""
    if isinstance(folder, RemotePath):
        for path, info in folder.listed(deep=True):
            if info.is_file:
                yield ListedFile(path, below(path, folder), info.size, (info.mtime_ns or 0) / 1e9)
        return
    for path in folder.rglob("*"):
        if path.is_file():
            stat = path.stat()
            yield ListedFile(path, below(path, folder), stat.st_size, stat.st_mtime)


def remove_tree(path: AnyPath, *, quietly: bool = False) -> None:
    """Remove what is at a path, if anything is: a file, or a folder with all that is in it.

    Of a link, only the link is removed. What cannot be removed `quietly` stays.
    """
    with suppress(OSError if quietly else FileNotFoundError):
        if not isinstance(path, RemotePath):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=quietly)
            else:
                path.unlink()
            return
        try:
            path.files.delete_dir(path.inside)
        except FileNotFoundError:
            return
        except OSError:
            if path.is_file():
                path.unlink(missing_ok=True)
            # A store that keeps folders refuses to remove one before what is in it.
            elif any(files_below(path)):
                raise


def move(folder: AnyPath, target: AnyPath) -> None:
    """Move a folder to a place where nothing is.

    In a store of objects everything is copied before anything is deleted, and logs are deleted
    first, oldest entry first: a table that is half deleted lacks its first commits, which every
    reader notices, and never its last ones.
    """
    if not isinstance(folder, RemotePath) or not isinstance(target, RemotePath):
        cast("Path", folder).rename(cast("Path", target))
        return
    if folder.store.has_folders:
        target.files.create_dir(target.parent.inside)
        folder.files.move(folder.inside, target.inside)
        return
    parts = sorted(
        (item.below for item in files_below(folder)),
        key=lambda part: (LOG not in (folder.name, *part.parts), str(part)),
    )
    for part in parts:
        copy(folder / part, target / part)
    for part in parts:
        (folder / part).unlink(missing_ok=True)
    remove_tree(folder)


LOG = "_delta_log"
"""The folder of a Delta table's log."""


def copy(path: AnyPath, target: AnyPath) -> None:
    """Copy a file to another name on the same machine or in the same store."""
    if isinstance(path, RemotePath) and isinstance(target, RemotePath):
        path.files.copy_file(path.inside, target.inside)
    else:
        shutil.copyfile(cast("Path", path), cast("Path", target))


def staged_name(name: str) -> str:
    """Return a name that nobody else uses, for a file until it is whole and gets its own name."""
    return f".{name}-{uuid.uuid4().hex}"


def write_at_once(path: AnyPath, text: str) -> None:
    """Replace a text: readers see the old text or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(path, RemotePath):
        path.write_text(text)
        return
    staged = path.with_name(staged_name(path.name))
    try:
        staged.write_text(text, encoding="utf-8")
        staged.replace(path)
    except OSError:
        staged.unlink(missing_ok=True)
        raise
