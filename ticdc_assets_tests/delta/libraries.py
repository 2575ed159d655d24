"""Tables as another implementation of Delta's protocol sees them."""

from deltalake import DeltaTable

from ticdc_assets.storage.paths import AnyPath, delta_options


def opened(path: AnyPath) -> DeltaTable:
    """Open the newest version of a table by delta-rs."""
    return DeltaTable(str(path), storage_options=delta_options(path))
