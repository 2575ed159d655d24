"""Internal queries over rows in this process or in files of this run.

DuckDB runs them, because it joins and groups more rows than fit into memory. No text of a message
is ever part of a query. Only rows that do not fit into memory are written, to a folder that is
removed afterwards, so running a query again is safe.
"""

import glob
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow.dataset as ds

from ticdc_assets.storage.paths import AnyPath, RemotePath, located

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


def view_files(
    connection: "duckdb.DuckDBPyConnection", name: str, files: Sequence[AnyPath]
) -> None:
    """Give a connection the view `name` of one or more Parquet files of one lake."""
    if isinstance(files[0], RemotePath):
        # Arrow reads them: DuckDB would need an extension, and the credentials again.
        places = [located(path)[0] for path in files]
        connection.register(
            name, ds.dataset(places, format="parquet", filesystem=located(files[0])[1])
        )
    else:
        # DuckDB takes names for patterns.
        literal = [glob.escape(str(path)) for path in files]
        connection.read_parquet(literal).create_view(name)
