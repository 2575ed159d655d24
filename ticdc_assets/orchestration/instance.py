"""The Dagster instance that records the runs of commands and of the UI: its folder and settings."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path

import dagster as dg
import yaml
from dagster import DagsterInstance

from ticdc_assets.base.errors import PrerequisiteError
from ticdc_assets.base.isolation import first_sentence
from ticdc_assets.config import HOME_VARIABLE, LAKE_VARIABLE, Settings
from ticdc_assets.orchestration.event_log import opened_instance

INSTANCE_FILE = "dagster.yaml"

LOCATION_NAME = "ticdc_assets"
"""The code location of the UI; links, sensors and their cursors contain it."""


def dagster_home(settings: Settings) -> Path:
    """Return the folder of the Dagster instance; create it, with its settings, if missing."""
    home = settings.home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        # Exclusive: existing settings stay, even if they are empty.
        with suppress(FileExistsError), (home / INSTANCE_FILE).open("x", encoding="utf-8") as file:
            file.write(instance_settings())
    except OSError as error:
        raise PrerequisiteError(
            f"the folder of the Dagster instance, {home}, cannot be written to "
            f"({error.strerror}); set {LAKE_VARIABLE} or {HOME_VARIABLE} to another folder"
        ) from error
    return home


def instance_settings() -> str:
    """Return the text of the dagster.yaml that comes with the package."""
    return files("ticdc_assets.orchestration").joinpath(INSTANCE_FILE).read_text(encoding="utf-8")


@contextmanager
def open_instance(settings: Settings) -> Iterator[DagsterInstance]:
    """Open the Dagster instance of `dagster_home(settings)`.

    Raises:
        PrerequisiteError: its folder cannot be written, or its settings are wrong.
    """
    home = str(dagster_home(settings))
    before = os.environ.get(HOME_VARIABLE)
    # The processes of a run use the variable, for example for compute logs.
    os.environ[HOME_VARIABLE] = home
    try:
        try:
            instance = opened_instance(home)
        except (dg.DagsterError, yaml.YAMLError) as error:
            raise PrerequisiteError(
                f"{home}/{INSTANCE_FILE}, the settings of the Dagster instance, cannot be used: "
                f"{first_sentence(error)}"
            ) from error
        with instance:
            yield instance
    finally:
        if before is None:
            os.environ.pop(HOME_VARIABLE, None)
