"""Queries of our own over rows that are in this process or in files of this run.

In: a query of this package, and Arrow tables, readers of batches or Parquet files by name. Out: an
Arrow table. DuckDB runs it: it joins and groups more rows than memory holds, in one call.

No text of a message is ever part of a query. Nothing is written but what does not fit into memory,
to a folder that is gone afterwards, so asking again is safe.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

_MEMORY = "1GB"
"""What the engine may hold of rows before it writes them to files."""


@contextmanager
def asking(folder: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection without tables.

    Args:
        folder: where to write what does not fit into memory; DuckDB's own choice if None.
    """
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": _MEMORY,
        "autoinstall_known_extensions": "false",
    }
    if folder is not None:
        config["temp_directory"] = str(folder / "spilled")
    connection = duckdb.connect(":memory:", config=config)
    try:
        yield connection
    finally:
        connection.close()


def asked(text: str, *, folder: Path | None = None, **rows: pa.Table | Sequence[Path]) -> pa.Table:
    """Return what a query gives.

    Args:
        text: the query.
        folder: see `asking`.
        rows: the tables that it names: Arrow tables, or Parquet files, at least one.
    """
    with asking(folder) as connection:
        for name, found in rows.items():
            if isinstance(found, pa.Table):
                connection.register(name, found)
            else:
                connection.read_parquet([str(path) for path in found]).create_view(name)
        return connection.sql(text).to_arrow_table()
