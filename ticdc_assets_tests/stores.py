"""Lakes of tests in stores: each kind has a module of its own (`s3`, `hdfs`)."""

from typing import Any, Protocol

from ticdc_assets.storage.paths import RemotePath


class StoreLake(Protocol):
    """A lake in a store of tests."""

    @property
    def path(self) -> RemotePath:
        """Where it is."""
        ...

    @property
    def block(self) -> dict[str, Any]:
        """The block `storage` of the changefeeds file; empty if its store is told nothing."""
        ...

    @property
    def secrets(self) -> dict[str, str]:
        """The variables that the block names."""
        ...
