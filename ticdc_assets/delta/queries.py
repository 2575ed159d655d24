"""Internal queries over rows in this process.

DuckDB runs them, because it joins and groups more rows than fit into memory. No text of a message
is ever part of a query. Only rows that do not fit into memory are written, to a folder that is
removed afterwards, so running a query again is safe.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ticdc_assets.storage.paths import AnyPath, RemotePath

if TYPE_CHECKING:
    import duckdb

_MEMORY = "1GB"
"""The most memory that the engine uses before it writes rows to files."""


@contextmanager
def asking(folder: AnyPath | None = None) -> "Iterator[duckdb.DuckDBPyConnection]":
    """Yield a connection without tables; what does not fit into memory is written to a folder.

    It is DuckDB's default if None, and the machine's own folder if this one is in a store.
    """
    # The import takes a quarter of a second, which only callers pay.
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": _MEMORY,
        "autoinstall_known_extensions": "false",
    }
    if folder is not None:
        spilled = tempfile.gettempdir() if isinstance(folder, RemotePath) else folder / "spilled"
        config["temp_directory"] = str(spilled)
    with duckdb.connect(":memory:", config=config) as connection:
        yield connection
