"""Append rows or written files to a table, or replace rows by them, in one commit.

In: files in the folder of a table that no commit names yet, or a few rows, which are written into
one. Out: one commit on the table (`committing`), with a transaction identifier and metadata. New
columns join the table's.

Why appending again is safe: a commit is skipped if the table has seen its identifier. All writers
of a changefeed hold its lock, so only other programs commit in between, and then the commit is made
again from their version. Under a lease, a late commit of a stalled run is refused. The files, the
identifier and the metadata are one commit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ticdc_assets.delta.committing import commit_state, undisturbed
from ticdc_assets.delta.control import LOG_RETENTION
from ticdc_assets.delta.delta_protocol import LogState, grown, new_state, partition_of
from ticdc_assets.delta.fencing import require_lease
from ticdc_assets.delta.files import FileLayout, WrittenFile, write_rows
from ticdc_assets.delta.opening import open_table
from ticdc_assets.storage.paths import AnyPath


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
    "number",
)
"""Columns whose bounds are recorded for each file."""

DISTINCT = frozenset(
    {
        *("before", "after", "key", "value", "offset", "row", "line"),
        *("sql", "schema", "pre_schema", "claim_check_location"),
    }
)
"""Columns of the large tables whose values rarely repeat."""

BY_LANDING_DAY = TableLayout(
    partition_by=("landed_day",),
    configuration={"delta.logRetentionDuration": LOG_RETENTION},
)
"""The layout of `raw_messages` and `change_log`."""

_OF_CONTROL = TableLayout(configuration={"delta.checkpointInterval": "20"})


def append_files(
    path: AnyPath,
    files: Sequence[WrittenFile],
    schema: pa.Schema,
    *,
    app_id: str | None = None,
    version: int = 0,
    metadata: Mapping[str, Any] | None = None,
    layout: TableLayout = TableLayout(),
    replaces: Mapping[str, str] | None = None,
) -> bool:
    """Append files in one commit, unless the table has seen `version` of `app_id`.

    Args:
        path: the table; it is created if it does not exist.
        files: what to append, possibly nothing.
        schema: the columns of the rows.
        app_id: the application that counts the versions; None if none does.
        version: its version of this commit.
        metadata: JSON object that the commit carries, if any.
        layout: what the table gets when it is created.
        replaces: the values of partition columns; the files take the place of all rows with them.
            All rows and columns are replaced if it is empty.

    Returns:
        Whether there was a commit.

    Raises:
        ConflictError: other programs committed meanwhile, several times.
        LeaseLostError: the table has a commit of a newer lease.
        NotThereError: a file is missing or differs; nothing was committed.
    """

    def append() -> bool:
        newest = open_table(path) or LogState()
        if app_id is not None and newest.transactions.get(app_id, -1) >= version:
            return False
        if newest.version < 0 or replaces == {}:
            configuration = layout.configuration or {}
            wanted = new_state(schema, configuration, newest, partition_by=layout.partition_by)
        else:
            wanted = grown(newest, schema)
        if replaces is not None:
            kept = [item for item in newest.files if not _is_of(item, replaces)]
            wanted = replace(wanted, files=kept)
        commit_state(
            path,
            newest,
            wanted,
            files,
            metadata or {},
            operation="WRITE",
            changes_rows=True,
            transactions=() if app_id is None else ((app_id, version),),
        )
        return True

    return undisturbed(append)


def write_table(
    path: AnyPath, rows: pa.Table, *, overwrite: bool, metadata: Mapping[str, Any]
) -> None:
    """Append `rows`, or replace all rows by them, in one commit that carries `metadata`."""
    require_lease(path)
    files = write_rows(path, FileLayout(schema=rows.schema, bounded=BOUNDED), [rows])
    append_files(
        path,
        files,
        rows.schema,
        metadata=metadata,
        layout=_OF_CONTROL,
        replaces={} if overwrite else None,
    )


def _is_of(action: Mapping[str, Any], partition: Mapping[str, str]) -> bool:
    values = partition_of(action)
    return all(values.get(name) == value for name, value in partition.items())
