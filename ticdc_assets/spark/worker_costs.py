"""Keep what PySpark does around each task of its Python workers cheap.

In: nothing; a worker calls `settle` at the end of its tasks. Out: between two tasks, PySpark lets
all importers forget what they know, and collects all garbage. An importer of a zip file then reads
the file's directory again, one for each package of `pyspark.zip` and one for each jar; and the
collector visits each object of each imported module. Together that was a quarter of the workers'
CPU time while catching up. Here, the directory of a zip file is read again if the file has changed,
and the collector leaves out what the imported modules are made of.

Why running it again is safe: it does nothing unless modules were imported since.
"""

import gc
import sys
from contextlib import suppress
from pathlib import Path
from zipimport import ZipImportError, zipimporter

_modules = 0


def settle() -> None:
    """Settle what was imported since the last time, if anything was."""
    global _modules
    if len(sys.modules) == _modules:
        return
    _keep_directories()
    # Else garbage of now would stay for ever.
    gc.collect()
    gc.freeze()
    _modules = len(sys.modules)


class _ZipFile(zipimporter):
    """Imports from a zip file, whose directory it reads again if the file has changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._stamp = self._stat()

    def invalidate_caches(self) -> None:
        """Read the directory again, if the file has changed."""
        stamp = self._stat()
        if stamp != self._stamp:
            self._stamp = stamp
            super().invalidate_caches()

    def _stat(self) -> tuple[int, int]:
        try:
            found = Path(self.archive).stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_size


def _keep_directories() -> None:
    """Let zip files be imported from by `_ZipFile`, those known already too."""
    sys.path_hooks[:] = [_ZipFile if hook is zipimporter else hook for hook in sys.path_hooks]
    for path, finder in list(sys.path_importer_cache.items()):
        if type(finder) is zipimporter:
            # One that is gone by now is left to Python.
            with suppress(ZipImportError):
                sys.path_importer_cache[path] = _ZipFile(path)
