"""Tables as another implementation of Delta's protocol sees them, or another process."""

from deltalake import DeltaTable

from ticdc_assets.delta import log_reading
from ticdc_assets.delta.fencing import APP_ID, number_of
from ticdc_assets.storage.paths import AnyPath, delta_options


def opened(path: AnyPath) -> DeltaTable:
    """Open the newest version of a table by delta-rs."""
    return DeltaTable(str(path), storage_options=delta_options(path))


def next_process() -> None:
    """Forget what this process knows of logs."""
    log_reading._STATES.clear()


def lease_of(table: AnyPath, version: int) -> int | None:
    """Return the number of the lease that a commit was made under; None without a lease."""
    found = (item.get("txn", {}) for item in log_reading.commit_actions(table, version))
    return next((number_of(item["version"]) for item in found if item.get("appId") == APP_ID), None)
