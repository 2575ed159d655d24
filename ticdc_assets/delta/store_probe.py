"""Whether a store keeps one commit from taking another one's place.

In: the lake. Out: one clause that says what is wrong with its store, or nothing. A small table is
made beside the changefeeds, two writers that see the same version commit to it, and it is removed.
Both commits have to be there: a store that does not know conditional puts takes the second for the
first, and a lake in it would lose commits.

Why running it again is safe: each table has a name of its own; what a killed run left is of nobody.
"""

import uuid

import pyarrow as pa
from deltalake import write_deltalake

from ticdc_assets.delta.control import dataset_of, opened, write_table
from ticdc_assets.storage.paths import RemotePath, names_in, remove_tree

PROBE = ".probe-"
"""How the names of such tables begin."""


def probe_commits(lake: RemotePath) -> str | None:
    """Return what is wrong with the store of a lake, None if nothing is.

    Raises:
        Exception: what the libraries say of a store that cannot be reached or written.
    """
    table = lake / f"{PROBE}{uuid.uuid4().hex}"
    rows = pa.table({"probe": pa.array([1], pa.int64())})
    try:
        write_table(table, rows, overwrite=False, metadata={})
        first, second = opened(table), opened(table)
        for writer in (first, second):
            write_deltalake(writer, rows, mode="append")
        found = opened(table)
        if found.version() != 2 or dataset_of(found, table).count_rows() != 3:
            return "of two commits at once the second took the place of the first"
        if not names_in(table):
            return "what was written is not listed"
    finally:
        remove_tree(table, quietly=True)
    return None
