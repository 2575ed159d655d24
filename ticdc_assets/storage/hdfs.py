"""HDFS as a file system of Arrow, by a client that needs neither Java nor libhdfs.

It is the package hdfs-native, which is the client inside delta-rs too. Addresses of name services,
the user and Kerberos come from where Hadoop's own clients have them: the files in
`HADOOP_CONF_DIR`, `HADOOP_USER_NAME`, and the cache of tickets. Arrow's own file system for HDFS
starts a JVM in each Python process (docs/decisions/0069-the-lake-is-a-uri.md).

Others see a file while it is written, so a writer that replaces a file writes another one and moves
it (`storage.paths`). Not handled: links, times of access, rights; appending to a file.
"""

import errno
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from hdfs_native import Client, FileReader, FileStatus, FileWriter, WriteOptions
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileSystemHandler, FileType, PyFileSystem

_FOLDER_RIGHTS: Final = 0o755
_PIECE: Final = 4 << 20


def hdfs_files(root: str) -> FileSystem:
    """Return the file system of an HDFS, not connected yet; OSError if its service is unknown."""
    return PyFileSystem(HdfsHandler(root))


@contextmanager
def _os_errors() -> Generator[None]:
    """Turn the client's errors into OSError: that is what a file system raises."""
    try:
        yield
    except RuntimeError as error:
        # The name node's whole stack follows the first line.
        raise OSError(str(error).partition("\\n")[0].partition("\n")[0]) from error


class _Reader(FileReader):
    """A file that is read."""

    def read(self, size: int = -1) -> bytes:
        with _os_errors():
            return super().read(size)


class _Writer(FileWriter):
    """A file that is written."""

    def write(self, buf: Any) -> int:
        with _os_errors():
            return super().write(buf)

    def close(self) -> None:
        with _os_errors():
            super().close()


class HdfsHandler(FileSystemHandler):
    """The calls that Arrow makes to a file system, with hdfs-native.

    It may be pickled: it connects again where it arrives.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        with _os_errors():
            self._client = Client(root)

    def __reduce__(self) -> tuple[Any, ...]:
        return HdfsHandler, (self._root,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HdfsHandler) and other._root == self._root

    def __ne__(self, other: object) -> bool:
        return not self == other

    def get_type_name(self) -> str:
        """Return the name of the kind of file system."""
        return "hdfs-native"

    def normalize_path(self, path: str) -> str:
        """Return a path as it is."""
        return path

    # What is there -------------------------------------------------------------------------------

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        """Return what is at each of some paths."""
        entries: list[FileInfo] = []
        for path in paths:
            try:
                with _os_errors():
                    entries.append(_info_of(self._client.get_file_info(path)))
            except FileNotFoundError:
                entries.append(FileInfo(path, FileType.NotFound))
        return entries

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """Return what is in a folder, or below it."""
        base = selector.base_dir
        try:
            with _os_errors():
                status = self._client.get_file_info(base)
                if not status.isdir:
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), base)
                return [
                    _info_of(item) for item in self._client.list_status(base, selector.recursive)
                ]
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise

    # Changes -------------------------------------------------------------------------------------

    def create_dir(self, path: str, recursive: bool) -> None:
        """Create a folder, if it is not there."""
        with _os_errors():
            self._client.mkdirs(path, _FOLDER_RIGHTS, recursive)

    def delete_dir(self, path: str) -> None:
        """Remove a folder with all that is in it, at once."""
        self._delete(path, recursive=True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Remove what is in a folder."""
        selector = FileSelector(path, allow_not_found=missing_dir_ok)
        for info in self.get_file_info_selector(selector):
            self._delete(info.path, recursive=True)

    def delete_root_dir_contents(self) -> None:
        """Refuse to remove everything."""
        raise OSError(f"{self._root}: a whole HDFS is never removed")

    def delete_file(self, path: str) -> None:
        """Remove a file."""
        self._delete(path, recursive=False)

    def _delete(self, path: str, *, recursive: bool) -> None:
        with _os_errors():
            if not self._client.delete(path, recursive):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def move(self, src: str, dest: str) -> None:
        """Give a file or a folder another name at once, in place of a file or an empty folder."""
        with _os_errors():
            self._client.rename(src, dest, overwrite=True)

    def move_new(self, src: str, dest: str) -> None:
        """Give a file another name at once, if nothing has that name; FileExistsError if it has.

        Arrow does not call this: its file systems move in place of what is there.
        """
        with _os_errors():
            self._client.rename(src, dest, overwrite=False)

    def copy_file(self, src: str, dest: str) -> None:
        """Copy a file; the copy gets its name when it is whole."""
        staged = f"{dest}.copied"
        with (
            _os_errors(),
            _Reader(self._client.inner.read(src)) as source,
            self._created(staged) as target,
        ):
            shutil.copyfileobj(source, target, _PIECE)
        self.move(staged, dest)

    def _created(self, path: str) -> "_Writer":
        options = WriteOptions(overwrite=True, create_parent=True)
        return _Writer(self._client.inner.create(path, options))

    # Files ---------------------------------------------------------------------------------------

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file to read it from its beginning."""
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file to read it at any position."""
        with _os_errors():
            return pa.PythonFile(_Reader(self._client.inner.read(path)), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        """Open a file to write it, in place of one of this name; folders above it are created."""
        with _os_errors():
            return pa.PythonFile(self._created(path), mode="w")

    def open_append_stream(self, path: str, metadata: object) -> pa.NativeFile:
        """Refuse to append: this package never does."""
        raise OSError(f"{self._root}{path}: files are written once")


def _info_of(status: "FileStatus") -> FileInfo:
    return FileInfo(
        status.path,
        FileType.Directory if status.isdir else FileType.File,
        size=None if status.isdir else status.length,
        mtime_ns=status.modification_time * 1_000_000,
    )
