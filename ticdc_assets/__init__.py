"""TiCDC change streams in Kafka, as consistent Delta Lake mirrors and Dagster assets."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ticdc_assets.orchestration.component import ChangefeedComponent

__all__ = ["ChangefeedComponent"]


def __getattr__(name: str) -> Any:
    # Only a project with components pays for the import of Dagster and PySpark.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ticdc_assets.orchestration import component

    return getattr(component, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
