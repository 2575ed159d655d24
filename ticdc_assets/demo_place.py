"""The demo's place: what `make demo` left in a folder, for the commands that go on with it.

In: the folder. Out: the configuration of the demo, and the environment of this process pointing to
its tables and its Dagster instance. Nothing is written, so it may be asked for again and again.
"""

import os
from pathlib import Path

from ticdc_assets.config import CHANGEFEEDS_VARIABLE, LAKE_VARIABLE, Settings, load_settings
from ticdc_assets.errors import ConfigError

CHANGEFEED = "shop"
"""The demo's changefeed."""

DIRECTORY = ".demo"
"""The folder of the demo, where nobody says another one."""


def use_demo(directory: Path | None = None) -> Settings:
    """Point this process at the demo's configuration, lake and Dagster instance.

    Args:
        directory: the demo's folder; `.demo` in the current one if None.

    Raises:
        ConfigError: there is no demo.
    """
    directory = (directory or Path(DIRECTORY)).resolve()
    if not (directory / "changefeeds.yaml").is_file():
        raise ConfigError(f"there is no demo in {directory}; run: ticdc-assets demo (or make demo)")
    os.environ[CHANGEFEEDS_VARIABLE] = str(directory / "changefeeds.yaml")
    os.environ[LAKE_VARIABLE] = str(directory / "lake")
    os.environ["DAGSTER_HOME"] = str(directory / "dagster_home")
    return load_settings()
