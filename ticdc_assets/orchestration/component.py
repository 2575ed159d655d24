"""A changefeed as a Dagster component: an entry of a `defs.yaml` in a user's project.

In: the keys of an entry of `changefeeds.yaml`, and `lake`. Out: the same definitions as from that
file. The schema of the attributes comes from the settings' models, so each key is described once;
the same code as for the file reads them, so each mistake is reported with its key.
"""

import os
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field, create_model

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.config import (
    Changefeed,
    Settings,
    lake_path,
    parse_changefeeds,
    require_literal,
)
from ticdc_assets.config.reading import Keys, fields_of
from ticdc_assets.config.sources import SourceKeys
from ticdc_assets.orchestration.changefeeds import definitions_of
from ticdc_assets.orchestration.steps import steps_of

_Value = str | int | float | bool | list[Any] | dict[str, Any] | None


def _attributes(kind: Any, name: str, **more: Any) -> type[BaseModel]:
    """Return a model of the keys that a model of the settings reads, with what each means."""
    keys: dict[str, Any] = {}
    for field, (key, said) in fields_of(kind).items():
        if key in keys:
            continue  # names and patterns of topics are one list
        is_section = any(isinstance(mark, Keys) for mark in said.metadata)
        inner = SourceKeys if field == "source" else said.annotation if is_section else None
        value_type: Any = _Value if inner is None else _attributes(inner, f"{name}_{key}")
        hinted = value_type if said.is_required() else value_type | None
        default = ... if said.is_required() else None
        keys[key] = (hinted, Field(default, description=said.description))
    return create_model(name, __config__=ConfigDict(extra="forbid"), **keys, **more)


_LAKE = (str | None, Field(None, description="folder of all tables; by default that of TICDC_LAKE"))
_MODEL = _attributes(Changefeed, "ChangefeedAttributes", lake=_LAKE)


class ChangefeedComponent(dg.Component, dg.Resolvable):
    """One TiCDC changefeed: its assets, checks, jobs, schedules and sensors.

    The attributes are the keys of an entry of the changefeeds file, and `lake`.
    """

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._attributes = attributes

    @classmethod
    def model(cls) -> type[BaseModel]:
        """Return the model of the attributes."""
        return _MODEL

    @classmethod
    def resolve_from_model(
        cls, context: dg.ResolutionContext, model: BaseModel
    ) -> "ChangefeedComponent":
        """Return the component; templates, such as `{{ env.SERVERS }}`, have their values then."""
        return cls(context.resolve_value(model.model_dump(exclude_unset=True)))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of the changefeed; it raises as `read_attributes`."""
        settings = read_attributes(self._attributes, context.path)
        return definitions_of([steps_of(settings, item) for item in settings.changefeeds])


def read_attributes(attributes: Mapping[str, Any], folder: Path) -> Settings:
    """Return the settings that attributes are; paths are relative to the component's folder.

    Raises:
        ConfigError: an attribute is wrong; the text has every mistake found.
    """
    entry = {key: value for key, value in attributes.items() if key != "lake"}
    lake = _texts(attributes["lake"]) if "lake" in attributes else None
    path = folder / "defs.yaml"
    try:
        changefeeds = parse_changefeeds({"changefeeds": [_texts(entry)]}, path=path, env=os.environ)
    except ConfigError as error:
        raise ConfigError(str(error).replace("changefeeds[0]", "attributes")) from None
    if lake == "":
        raise ConfigError(f"{path}: lake: expected a folder, got nothing")
    if lake is not None and "://" in lake:
        raise ConfigError(
            f"{path}: lake: expected a folder; a lake in a store is named by TICDC_LAKE, and "
            "reached as the changefeeds file says"
        )
    root = lake_path() if lake is None else (folder / Path(lake).expanduser()).absolute()
    require_literal(root, f"{path}: lake")
    return Settings(changefeeds=changefeeds, lake=root, path=path)


def _texts(value: Any) -> Any:
    """Return values with texts for scalars, as the reader of the changefeeds file gives them."""
    match value:
        case dict():
            return {str(key): _texts(item) for key, item in value.items()}
        case list() | tuple():
            return [_texts(item) for item in value]
        case bool():
            return str(value).lower()
        case date():
            return value.isoformat()
        case None:
            return ""  # as from the file; a template of a variable that is not set gives it
        case _:
            return str(value)
