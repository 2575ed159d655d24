"""pyarrow without pandas, until somebody imports pandas.

pyarrow imports pandas when it first makes an array, to tell whether it is given one of pandas'
objects. That takes half a second of CPU, in programs that have no such object. Here pyarrow looks
for pandas once while it cannot be found, so it takes nothing for such an object. As soon as
somebody imports pandas, pyarrow is told, so everything is as it would be without this module.

A process that has imported pandas already is left alone. To call this again changes nothing.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

import pyarrow as pa

_PANDAS = "pandas"


def postpone_pandas() -> None:
    """Keep pyarrow from importing pandas before anybody else does."""
    if _PANDAS in sys.modules or any(isinstance(item, _Noticing) for item in sys.meta_path):
        return
    noticing = _Noticing()
    sys.meta_path.insert(0, noticing)
    pa.array([])  # it looks for pandas once, and remembers what it found
    noticing.hides = False


class _Noticing(MetaPathFinder):
    """Notices the import of pandas: first it hides pandas, then it finds it as ever."""

    def __init__(self) -> None:
        self.hides = True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _PANDAS:
            return None
        if self.hides:
            raise ModuleNotFoundError(f"{_PANDAS} is hidden", name=_PANDAS)
        sys.meta_path.remove(self)
        spec = find_spec(_PANDAS)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader)
        return spec


class _Telling(Loader):
    """Loads pandas as ever, and tells pyarrow.

    Args:
        loader: loads it.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        # What is made into an object of pandas takes pandas, and from then on it is known.
        pa.array([]).to_pandas()
