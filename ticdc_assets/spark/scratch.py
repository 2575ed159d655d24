"""Folders for files of one run that no commit names.

In: the tables of a changefeed. Out: folders next to them, removed when the run ends. The next
writer removes what a killed run left (`remove_forgotten`), so running again is safe.
"""

import atexit
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from threading import Lock

from ticdc_assets.base.errors import PrerequisiteError
from ticdc_assets.config import load_spark_settings
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath, RemotePath, files_below, names_in, remove_tree


class Scratch:
    """A folder for files of one run, next to the changefeed's tables.

    Its name begins with `WRITING` or `READING`. A reader without permission to write to the lake
    gets a temporary folder of the system, but not on a cluster, whose workers would write to their
    own machines' folders.
    """

    def __init__(self, paths: LakePaths, prefix: str) -> None:
        self._paths = paths
        self._prefix = prefix
        self._lock = Lock()
        self._root: AnyPath | None = None

    def folder(self) -> AnyPath:
        """Return a new folder.

        Raises:
            PrerequisiteError: this user may not write into the lake, and Spark is on a cluster.
        """
        with self._lock:
            if self._root is None:
                self._root = self._made()
                atexit.register(self.close)
            folder = self._root / uuid.uuid4().hex
        folder.mkdir()
        return folder

    def _made(self) -> AnyPath:
        root = self._paths.base / f"{self._prefix}{uuid.uuid4().hex}"
        try:
            root.mkdir()
            if isinstance(root, RemotePath):
                (root / BEGUN).write_bytes(b"")
        except OSError as error:
            if not load_spark_settings().is_local:
                raise PrerequisiteError(
                    f"{self._paths.base} cannot be written ({error.strerror}), and the workers "
                    "of a Spark cluster need it for temporary files; give this user the right, "
                    "or read the lake locally (TICDC_SPARK_MASTER=local[2])"
                ) from error
            return Path(tempfile.mkdtemp(prefix="ticdc-assets-"))
        return root

    def close(self) -> None:
        """Remove the folders; `folder` may create new ones afterwards."""
        with self._lock:
            root, self._root = self._root, None
        if root is not None:
            atexit.unregister(self.close)
            remove_tree(root, quietly=True)


BEGUN = "begun"
"""The first object of a folder in a store, where a folder alone does not exist."""

WRITING = ".scratch-"
"""Prefix of folders of a lake's one writer."""

READING = ".reading-"
"""Prefix of folders of its readers."""

_FORGOTTEN_SECONDS = 86_400


def remove_forgotten(paths: LakePaths) -> None:
    """Remove folders that killed runs left; a lake's writer calls this when it starts."""
    for place in (paths.base, paths.root):
        for name in names_in(place):
            folder = place / name
            if name.startswith(WRITING):
                remove_tree(folder, quietly=True)
            elif name.startswith(READING):
                with suppress(OSError):
                    if time.time() - _begun(folder) > _FORGOTTEN_SECONDS:
                        remove_tree(folder, quietly=True)


def _begun(folder: AnyPath) -> float:
    """Return when a folder was created (s since 1970).

    In a store, a folder without its first object is a copy, or the rest of a folder that could not
    be removed completely: the time of its last file bounds its creation.
    """
    if not isinstance(folder, RemotePath):
        return folder.stat().st_mtime
    try:
        return (folder / BEGUN).stat().st_mtime
    except FileNotFoundError:
        return max((item.modified for item in files_below(folder)), default=time.time())
