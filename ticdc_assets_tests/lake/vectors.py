"""Delta tables with deletion vectors, written by the writer of mirrors, for tests of readers.

In: batches of rows to insert or replace, and keys to delete. Out: a table with one commit a batch.
A batch writes its rows into one new file, and marks the rows that it replaces or deletes in the
deletion vectors of the older files. It rewrites no file, whatever its size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pyarrow as pa

from ticdc_assets.config import Retention
from ticdc_assets.delta import files
from ticdc_assets.mirrors import file_fates
from ticdc_assets.mirrors.table_writing import TableWriter
from ticdc_assets.rows.finding import keys_of
from ticdc_assets.spark.session import LazySession

KEY: Final = "id"
"""The column of keys."""

_ROWS_OF_A_GROUP: Final = 100
"""Several groups: a reader that skips some has to count their rows all the same."""


@dataclass(frozen=True)
class Batch:
    """What one commit changes.

    Attributes:
        rows: rows to insert, or to replace by their key. Their schema is the table's from here on:
            it may add columns, and have wider types than before.
        deleted: keys of rows to delete.
    """

    rows: pa.Table
    deleted: Sequence[int] = ()


def make_table(table: Path, batches: Sequence[Batch], *, mapped: bool = False) -> None:
    """Make a Delta table with deletion vectors.

    Args:
        table: its folder.
        batches: one for each version, from 0 on.
        mapped: whether its columns have other names in the files (column mapping by name).
    """
    with (
        patch.multiple(file_fates, SMALL_ROWS=0, SMALL_BYTES=0, MOST_DELETED=1.0),
        patch.object(files, "GROUP_ROWS", _ROWS_OF_A_GROUP),
    ):
        version = _begun(table, batches[0].rows, mapped=mapped)
        names = batches[0].rows.schema.names
        for batch in batches[1:]:
            writer = _writer(table, batch.rows.schema)
            writer.begin(version)
            now = batch.rows.schema.names
            writer.alter({name: name if name in names else None for name in now})
            names = now
            gone = [*batch.deleted, *batch.rows[KEY].to_pylist()]
            kind = batch.rows.schema.field(KEY).type
            keys = keys_of(pa.table({KEY: pa.array(gone, kind)}), [KEY], (), "")
            found = writer.find(keys, count=len(gone))
            version = writer.change(found, [batch.rows], (), {})


def _begun(table: Path, rows: pa.Table, *, mapped: bool) -> int:
    writer = _writer(table, rows.schema)
    if not mapped:
        writer.begin_empty()
        return writer.replace([rows], (), {})
    # As if each column had had another name once.
    former = {name: f"{name} {number}" for number, name in enumerate(rows.schema.names)}
    schema = pa.schema([item.with_name(former[item.name]) for item in rows.schema])
    before = _writer(table, schema, former[KEY])
    before.begin_empty()
    writer._newest, writer._state = before._newest, before._state
    writer.alter(former)
    return writer.replace([rows], (), {})


def _writer(table: Path, schema: pa.Schema, key: str = KEY) -> TableWriter:
    return TableWriter(
        LazySession(),
        table,
        schema,
        key=[key],
        rescued="",
        label="d.t",
        retention=Retention(),
        portable=False,
        published=None,
    )
