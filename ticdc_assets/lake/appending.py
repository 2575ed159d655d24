"""Small batches of the large tables, read and appended without Spark.

In: the number of a landed batch, or rows as an Arrow table. Out: the records of that batch, or one
commit on `raw_messages`, `change_log` or `quarantine`. Spark's fixed cost is nearly all of the time
of a batch of few records, so up to `LOCAL_RECORDS` records and `LOCAL_BYTES` bytes of it take this
way; everything larger is Spark's. The two write the same tables in turns: same columns, partitions,
properties, statistics, transaction identifiers and metadata.

Why appending again is safe: delta-rs writes transaction identifiers, but it takes a commit whose
identifier the table has seen. So that is asked for here before each commit, as Spark does; all
writers of a changefeed hold its lock, so nobody commits in between. The rows, their identifier and
their metadata are one commit.

Not handled: tables that somebody gave deletion vectors, column mapping or any other feature beyond
Delta's first. `is_plain` says so, and they stay Spark's.
"""

# pyarrow has no type information, so what comes from it is unknown to the checker.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import (
    DeltaTable,
    PostCommitHookProperties,
    Transaction,
    WriterProperties,
    write_deltalake,
)

from ticdc_assets.lake.commits import named_properties
from ticdc_assets.lake.committing import commit_written
from ticdc_assets.lake.control import LOG_RETENTION, open_table
from ticdc_assets.lake.files import WrittenFile, read_bounded

LOCAL_RECORDS = 20_000
"""Records up to which a batch is landed and decoded without Spark."""

LOCAL_BYTES = 32 << 20
"""Bytes of keys and values up to which it is."""

LOCAL_ROWS_BYTES = 64 << 20
"""Bytes of decoded rows up to which it is: rows may be larger than the records they came in."""

RECORD_COLUMNS = (
    *("batch", "landed_at", "topic", "partition", "offset"),
    *("timestamp_ms", "key", "value"),
)
"""What decoding reads of a landed record."""

_PAYLOAD = frozenset({"key", "value"})
_READ_RECORDS = 1_000
_ROW_GROUP_BYTES = 16 << 20
_CHECKPOINT_INTERVAL = 10  # Spark's, for tables that state none


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """What a table gets when its first commit creates it.

    Attributes:
        partition_by: names of the partition columns.
        configuration: table properties.
    """

    partition_by: Sequence[str] = ()
    configuration: Mapping[str, str] | None = None


BOUNDED = (
    "batch",
    "landed_at",
    "topic",
    "partition",
    "offset",
    "timestamp_ms",
    "index",
    "kind",
    "op",
    "commit_ts",
    "build_ts_ms",
    "database",
    "table",
    "table_id",
    "schema_version",
)
"""Columns of `raw_messages` and `change_log` whose bounds are kept for each file."""

BY_LANDING_DAY = TableLayout(
    partition_by=("landed_day",),
    configuration={"delta.logRetentionDuration": LOG_RETENTION},
)
"""The layout of `raw_messages` and `change_log`."""


def are_plain(paths: Collection[Path]) -> bool:
    """Return whether the tables at `paths`, as far as they exist, can be written without Spark."""
    tables = [open_table(path) for path in paths]
    return all(table is None or _is_plain(table) for table in tables)


def _is_plain(table: DeltaTable) -> bool:
    protocol = table.protocol()
    return protocol.min_reader_version == 1 and protocol.min_writer_version <= 2


def read_landed(path: Path, batch: int) -> list[pa.RecordBatch] | None:
    """Return the records of a landed batch, in the order of its files; None if it is not small.

    Args:
        path: `raw_messages`.
        batch: number of the batch.
    """
    table = open_table(path)
    if table is None or not _is_plain(table):
        return None
    files = list(_files_of(table, batch))
    # A file that holds other batches too was written by maintenance: Spark knows how to skip in it.
    if sum(records for _, records in files) > LOCAL_RECORDS:
        return None
    found: list[pa.RecordBatch] = []
    size = 0
    for name, _ in files:
        footer = pq.read_metadata(path / name)
        if _payload_bytes(footer) > LOCAL_BYTES:
            return None
        for group in range(footer.num_row_groups):
            for records in read_records(path / name, group, most=_READ_RECORDS):
                rows = pa.Table.from_batches([records]).filter(ds.field("batch") == batch)
                # A value that is there often is in the file once, so what counts is what is read.
                size += sum(rows.column(column).nbytes for column in _PAYLOAD)
                if size > LOCAL_BYTES:
                    return None
                found += rows.to_batches()
    return found


def read_records(path: Path, row_group: int, *, most: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of a row group of a file of `raw_messages`, in batches of bounded size.

    Args:
        path: the file.
        row_group: number of the row group.
        most: records in a batch at most.
    """
    return read_bounded(path, row_group, columns=RECORD_COLUMNS, large=_PAYLOAD, most=most)


def files_of(path: Path, batch: int) -> list[str] | None:
    """Return the files of `raw_messages` at `path` that may hold records of a landed batch.

    None if this table is Spark's alone.
    """
    table = open_table(path)
    if table is None or not _is_plain(table):
        return None
    return [name for name, _ in _files_of(table, batch)]


def _files_of(table: DeltaTable, batch: int) -> Iterator[tuple[str, int]]:
    """Yield path and number of records of each file that may hold records of `batch`."""
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        least, greatest = action.get("min.batch"), action.get("max.batch")
        if least is not None and greatest is not None and not least <= batch <= greatest:
            continue
        records = action.get("num_records")
        yield action["path"], LOCAL_RECORDS + 1 if records is None else records


def _payload_bytes(file: pq.FileMetaData) -> int:
    """Return the bytes of keys and values before compression, as a file's footer has them."""
    return sum(
        column.total_uncompressed_size
        for group in map(file.row_group, range(file.num_row_groups))
        for column in map(group.column, range(group.num_columns))
        if column.path_in_schema in _PAYLOAD
    )


def append_rows(
    path: Path,
    rows: pa.Table,
    *,
    app_id: str,
    version: int,
    metadata: Mapping[str, Any] | None = None,
    layout: TableLayout = TableLayout(),
) -> bool:
    """Append `rows` in one commit, unless the table has seen `version` of `app_id`.

    Args:
        path: the table; it is created if it is not there.
        rows: what to append, maybe nothing.
        app_id: whose versions the commit is one of.
        version: which one.
        metadata: JSON object that the commit carries, if any.
        layout: what the table gets when it is created.

    Returns:
        Whether there was a commit.
    """
    table = open_table(path)
    if table is not None and _has_seen(table, app_id, version):
        return False
    path.mkdir(parents=True, exist_ok=True)
    write_deltalake(
        str(path) if table is None else table,
        rows,
        mode="append",
        partition_by=list(layout.partition_by) or None,
        configuration=None if layout.configuration is None else dict(layout.configuration),
        writer_properties=WriterProperties(
            compression="SNAPPY",
            # Workers share out row groups.
            max_row_group_size=max(1, rows.num_rows * _ROW_GROUP_BYTES // rows.nbytes)
            if rows.nbytes > _ROW_GROUP_BYTES
            else None,
        ),
        commit_properties=named_properties(metadata, Transaction(app_id, version)),
        post_commithook_properties=_HOOKS,
    )
    _add_checkpoint(path)
    return True


def append_files(
    path: Path,
    files: Sequence[WrittenFile],
    schema: pa.Schema,
    *,
    app_id: str,
    version: int,
    metadata: Mapping[str, Any],
    layout: TableLayout,
) -> bool:
    """Append files that are in the table's folder, in one commit; else as `append_rows`.

    Args:
        path: the table; it is created if it is not there.
        files: what to append, maybe nothing.
        schema: the table's columns.
        app_id: whose versions the commit is one of.
        version: which one.
        metadata: JSON object that the commit carries.
        layout: what the table gets when it is created.

    Raises:
        NotThereError: a file is not there, or is another one; nothing was committed.
    """
    table = open_table(path)
    if table is not None and _has_seen(table, app_id, version):
        return False
    commit_written(
        path,
        files,
        schema,
        table=table,
        properties=named_properties(metadata, Transaction(app_id, version)),
        partition_by=layout.partition_by,
        configuration=layout.configuration,
        hooks=_HOOKS,
    )
    _add_checkpoint(path)
    return True


def _has_seen(table: DeltaTable, app_id: str, version: int) -> bool:
    seen = table.transaction_version(app_id)
    return seen is not None and seen >= version


# Checkpoints come as often as Spark writes them; what expires in the log is Spark's.
_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def _add_checkpoint(path: Path) -> None:
    written = open_table(path)
    if written is not None and written.version() and not written.version() % _CHECKPOINT_INTERVAL:
        written.create_checkpoint()
