"""Where the folder of the Dagster instance is; nothing of Dagster is imported to know it."""

import os
from pathlib import Path

from ticdc_assets.config import Settings

HOME_VARIABLE = "DAGSTER_HOME"


def home_path(settings: Settings) -> Path:
    """Return the folder of the Dagster instance, whether it is there or not."""
    named = os.environ.get(HOME_VARIABLE)
    return Path(named).absolute() if named else settings.instance_folder
