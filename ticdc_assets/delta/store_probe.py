"""Whether a store keeps one commit from replacing another.

In: the lake. Out: one clause that says what is wrong with its store, or nothing. The probe creates
a small table next to the changefeeds, lets two writers that see the same version commit to it, and
removes it. Both commits must exist afterwards: in a store without conditional puts the second
replaces the first, and a lake there would lose commits.

Why running it again is safe: each table has a unique name; no reader uses what a killed run left.
"""

import uuid

import pyarrow as pa
from deltalake import write_deltalake

from ticdc_assets.delta.control import dataset_of, opened, write_table
from ticdc_assets.storage.paths import RemotePath, names_in, remove_tree

PROBE = ".probe-"
"""The prefix of these tables' names."""


def probe_commits(lake: RemotePath) -> str | None:
    """Return what is wrong with the store of a lake; None if nothing is.

    Raises:
        Exception: the libraries' error if the store cannot be reached or written.
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
            return "of two simultaneous commits the second replaced the first"
        if not names_in(table):
            return "a listing does not show what was written"
    finally:
        remove_tree(table, quietly=True)
    return None
