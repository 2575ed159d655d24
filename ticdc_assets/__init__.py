"""TiCDC change streams in Kafka, as consistent Delta Lake mirrors and Dagster assets.

This is the public API. Every other module may move between two versions. A name is imported when a
program first uses it, so `import ticdc_assets` needs neither Spark nor Dagster.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ticdc_assets.base.errors import MirrorCaveatWarning
    from ticdc_assets.orchestration.component import ChangefeedComponent
    from ticdc_assets.reading.histories import read_history
    from ticdc_assets.reading.mirrors import locate_mirror, read_mirror
    from ticdc_assets.reading.views import create_views
    from ticdc_assets.spark.session import get_spark

    __version__: str

__all__ = [
    "ChangefeedComponent",
    "MirrorCaveatWarning",
    "__version__",
    "create_views",
    "get_spark",
    "locate_mirror",
    "read_history",
    "read_mirror",
]

_MODULES = {
    "ChangefeedComponent": "ticdc_assets.orchestration.component",
    "MirrorCaveatWarning": "ticdc_assets.base.errors",
    "create_views": "ticdc_assets.reading.views",
    "get_spark": "ticdc_assets.spark.session",
    "locate_mirror": "ticdc_assets.reading.mirrors",
    "read_history": "ticdc_assets.reading.histories",
    "read_mirror": "ticdc_assets.reading.mirrors",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # Importing it takes as long as Python's start: a command can be stopped before.
        from importlib.metadata import version

        return version("ticdc-assets")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
