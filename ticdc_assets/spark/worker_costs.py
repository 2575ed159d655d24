"""Make PySpark's work around each task of its Python workers cheap.

A worker calls `settle` at the end of its tasks. Between tasks PySpark makes all importers clear
their caches, so each reads the directory of its zip file again, and collects all garbage, so the
collector visits each object of each imported module: a quarter of the workers' CPU time while
catching up. Here, a zip file's directory is read again only if the file has changed, and the
collector skips the objects of imported modules.

Why running it again is safe: it does nothing unless modules were imported since.
"""

import gc
import sys
from contextlib import suppress
from pathlib import Path
from zipimport import ZipImportError, zipimporter

_modules = 0


def settle() -> None:
    """Settle the modules imported since the last call, if any."""
    global _modules
    if len(sys.modules) == _modules:
        return
    sys.path_hooks[:] = [_ZipFile if hook is zipimporter else hook for hook in sys.path_hooks]
    for path, finder in list(sys.path_importer_cache.items()):
        if type(finder) is zipimporter:
            # Python handles a file that no longer exists.
            with suppress(ZipImportError):
                sys.path_importer_cache[path] = _ZipFile(path)
    # Otherwise current garbage would stay forever.
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
            stat = Path(self.archive).stat()
        except OSError:
            return 0, 0
        return stat.st_mtime_ns, stat.st_size
