"""Tables as another implementation of Delta's protocol sees them, or another process."""

from deltalake import DeltaTable

from ticdc_assets.delta import log_reading
from ticdc_assets.storage.paths import AnyPath, delta_options


def opened(path: AnyPath) -> DeltaTable:
    """Open the newest version of a table by delta-rs."""
    return DeltaTable(str(path), storage_options=delta_options(path))


def next_process() -> None:
    """Forget what this process knows of logs."""
    log_reading._STATES.clear()
