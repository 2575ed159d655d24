"""Folders for files of one run that no commit names.

In: the tables of a changefeed. Out: folders beside them, removed when the run ends. What a killed
run left is removed by the next writer (`remove_forgotten`), so running again is safe.
"""

import atexit
import shutil
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from threading import Lock

from ticdc_assets.engine.paths import LakePaths


class Scratch:
    """A folder for files of one run, beside the changefeed's tables.

    Who only reads a lake may not be allowed to write to it, and gets one of the system's.

    Args:
        paths: tables of the changefeed.
        prefix: how the folder's name begins: `WRITING` or `READING`.
    """

    def __init__(self, paths: LakePaths, prefix: str) -> None:
        self._paths = paths
        self._prefix = prefix
        self._lock = Lock()
        self._root: Path | None = None

    def folder(self) -> Path:
        """Return a new folder."""
        with self._lock:
            if self._root is None:
                self._root = self._made()
                atexit.register(self.close)
            folder = self._root / uuid.uuid4().hex
        folder.mkdir()
        return folder

    def _made(self) -> Path:
        root = self._paths.base / f"{self._prefix}{uuid.uuid4().hex}"
        try:
            root.mkdir()
        except OSError:
            return Path(tempfile.mkdtemp(prefix="ticdc-assets-"))
        return root

    def close(self) -> None:
        """Remove the folders; there may be new ones afterwards."""
        with self._lock:
            root, self._root = self._root, None
        if root is not None:
            atexit.unregister(self.close)
            shutil.rmtree(root, ignore_errors=True)


WRITING = ".scratch-"
"""Folders of the one writer of a lake."""

READING = ".reading-"
"""Folders of those who read it meanwhile."""

_FORGOTTEN_SECONDS = 86_400


def remove_forgotten(paths: LakePaths) -> None:
    """Remove folders that killed runs left; the one writer of a lake does so as it begins."""
    for folder in paths.base.glob(f"{WRITING}*"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in paths.base.glob(f"{READING}*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _FORGOTTEN_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
