"""Create a file where none is: how a commit written by hand enters a Delta log.

Of all writers, on any hosts, that create the same path at the same time, one succeeds and each
other one gets FileExistsError.

- A folder: the bytes are written under a hidden name, synced and linked to the path. `link` fails
  if the path is taken, also between hosts on NFS. A folder gets its name together with its first
  file, by a rename. Log cleaning removes the hidden file of a killed process.
- S3, Azure and Google: one PUT with a condition (`If-None-Match: *`, or Google's generation 0).
- HDFS: the bytes are written under a hidden name and renamed without overwriting.

The answer of a store can get lost: the library then sends the PUT again, and the store refuses it
because of the first one. And S3 may refuse two PUTs at once (409) although no file is there yet. So
after each refusal or error `create` reads the path back. The same bytes are this writer's file, as
they contain an id that nobody else has; other bytes are another writer's. If no file is there,
`create` puts again.
"""

import errno
import os
import re
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from ticdc_assets.storage.paths import AnyPath, RemotePath, names_in, remove_tree, staged_name

if TYPE_CHECKING:
    from ticdc_assets.storage.hdfs import HdfsHandler

_PAUSES_S: Final = (0.1, 1.0, 3.0, None)
"""How long `create` waits after each put that left no file (s); None means that it was the last."""
_PATIENCE_S: Final = 180.0
"""For how long `create` puts again; each put also has the library's own retries and time limits."""

_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)

_REFUSED_BY_STATUS: Final = re.compile(r"status code: 4(?!08)\d\d")
"""How obstore reports that a store refused a request; a text it does not match is unclear."""


class UnclearPutError(OSError):
    """Nobody knows whether a store wrote a file, which may appear later.

    Creating the same bytes again is safe. Removing what these bytes name is not.
    """


class _RefusedError(OSError):
    """A store refused to write a file because one is there, or because another PUT is under way."""


def create(path: AnyPath, data: bytes) -> None:
    """Write a whole file, with bytes that no other writer has, where none is; see the module.

    Folders above it are created.

    Raises:
        FileExistsError: a file with other bytes is there.
        UnclearPutError: nobody knows whether the file was written.
        OSError: the file was not written: the credentials (PermissionError), the folder, the bucket
            or the file system do not allow it.
        PrerequisiteError: the package that reaches an HDFS is not installed.
    """
    deadline = time.monotonic() + _PATIENCE_S
    for pause in _PAUSES_S:
        try:
            _put(path, data)
        except OSError as error:
            failure = error
        else:
            return
        is_unclear = isinstance(failure, _RefusedError | UnclearPutError)
        there = None
        try:
            there = read_whole(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            if not is_unclear:
                raise failure from error
            raise UnclearPutError(
                f"{path} may have been written ({failure}), and cannot be read ({error})"
            ) from failure
        if there == data:
            return
        if there is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from failure
        if not is_unclear:
            raise failure
        if pause is None or time.monotonic() + pause > deadline:
            raise UnclearPutError(
                f"{path} was not written, or will appear later: {failure}"
            ) from failure
        time.sleep(pause)


def _put(path: AnyPath, data: bytes) -> None:
    if isinstance(path, Path):
        _put_in_folder(path, data)
    elif path.store.has_folders:
        _put_in_hdfs(path, data)
    else:
        import obstore

        with _os_errors(path):
            obstore.put(path.store.objects, path.key, data, mode="create")


def read_whole(path: AnyPath) -> bytes:
    """Return what is in a file, by one request: Arrow looks up an object before it reads it."""
    if isinstance(path, Path) or path.store.has_folders:
        return path.read_bytes()
    import obstore

    with _os_errors(path):
        return bytes(obstore.get(path.store.objects, path.key).bytes())


def probe_store(lake: RemotePath) -> str | None:
    """Return what is wrong with the store of a lake; None if nothing is.

    In a store without conditional puts a second commit replaces the first one, and a lake there
    would lose commits. The probe creates a file next to the changefeeds twice, and removes it. It
    raises the errors of `create`.
    """
    path = lake / f".probe-{uuid.uuid4().hex}"
    try:
        path.write_bytes(b"first")
        with suppress(FileExistsError):
            create(path, b"second")
            return "of two simultaneous commits the second replaced the first"
        if path.name not in names_in(lake):
            return "a listing does not show what was written"
    finally:
        with suppress(OSError):
            path.unlink()
    return None


# A folder -----------------------------------------------------------------------------------------


def _put_in_folder(path: Path, data: bytes) -> None:
    folder = place = path.parent
    if not folder.exists():
        # It comes with its first file: without one it would look as if it had lost all.
        place = folder.with_name(staged_name(folder.name))
        place.mkdir(parents=True)
    staged = place / staged_name(path.name)
    try:
        with staged.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _link(staged, place / path.name)
        if place != folder:
            staged.unlink()
            try:
                place.rename(folder)
            except OSError as error:
                # XFS says that a folder with files exists, other file systems that it is not empty.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise _RefusedError(f"another writer made {folder}") from error
    finally:
        remove_tree(staged if place == folder else place, quietly=True)
    # Names in a folder reach the disk where its file system can sync them.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def _link(staged: Path, path: Path) -> None:
    try:
        os.link(staged, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise OSError(
            error.errno,
            f"the file system of the lake has no hard links ({error.strerror}), and without them "
            "one commit could replace another; move the lake to a file system that has them, or to "
            "a store",
            str(path),
        ) from error


# Stores of objects --------------------------------------------------------------------------------


@contextmanager
def _os_errors(path: RemotePath) -> Generator[None]:
    """Raise the file system's exceptions for errors of obstore, which are not Python's."""
    from obstore import exceptions

    try:
        yield
    except FileNotFoundError as error:
        # The file, or a bucket or a user that the store does not know.
        raise FileNotFoundError(errno.ENOENT, _first_line(error), str(path)) from error
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
        raise _RefusedError(_first_line(error)) from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, _first_line(error), str(path)) from error
    except exceptions.BaseError as error:
        said = _first_line(error)
        invalid = exceptions.InvalidPathError | exceptions.NotSupportedError
        if isinstance(error, invalid) or _REFUSED_BY_STATUS.search(said):
            raise OSError(errno.EINVAL, said, str(path)) from error
        raise UnclearPutError(said) from error


def _first_line(error: Exception) -> str:
    """Return the first line of an error, with the code of the store's answer but not its text."""
    text = str(error)
    line = text.partition("\n")[0].partition(": <")[0]
    code = _CODE.search(text)
    return line if code is None else f"{line} ({code[1]})"


_CODE: Final = re.compile(r"<Code>(\w+)</Code>")


# HDFS ---------------------------------------------------------------------------------------------


def _put_in_hdfs(path: RemotePath, data: bytes) -> None:
    handler = cast("HdfsHandler", cast("Any", path.files).handler)
    staged = path.with_name(staged_name(path.name))
    try:
        with path.files.open_output_stream(staged.inside, compression=None) as stream:
            stream.write(data)
        try:
            handler.move_new(staged.inside, path.inside)
        except (FileExistsError, PermissionError):
            raise
        except OSError as error:
            raise UnclearPutError(_first_line(error)) from error
    finally:
        with suppress(OSError):
            staged.unlink(missing_ok=True)
