"""Append rows or written files to a table, or replace rows by them, in one commit.

In: files in the folder of a table that no commit names yet, or a few rows, which are written into
one. Out: one commit (`committing`) of the files, a transaction identifier and metadata. New columns
join the table's.

Why appending again is safe: a commit is skipped if the table has seen its identifier. Only other
programs commit in between, and then the commit is made again from their version.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    """The partition columns and the properties that a table gets with its first commit."""

    partition_by: Sequence[str] = ()
    configuration: Mapping[str, str] = field(default_factory=dict[str, str])


BOUNDED = (
    *("batch", "landed_at", "topic", "partition", "offset", "timestamp_ms", "index", "kind"),
    *("op", "commit_ts", "build_ts_ms", "database", "table", "table_id", "schema_version"),
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
    """Append files, possibly none, to a table in one commit; return False if the table has seen it.

    A table that does not exist is created with `layout`. An application (`app_id`) counts its
    commits by `version`. If `replaces` has values of partition columns, the files take the place of
    all rows with them; if it is empty, that of all rows and columns.

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
            wanted = new_state(schema, newest, layout.configuration, layout.partition_by)
        else:
            wanted = grown(newest, schema)
        if replaces is not None:
            replaced = replaces.items()
            other_days = [
                item for item in newest.files if not replaced <= partition_of(item).items()
            ]
            wanted = replace(wanted, files=other_days)
        commit_state(
            path,
            newest,
            wanted,
            files,
            metadata or {},
            operation="WRITE",
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
    replaces = {} if overwrite else None
    append_files(path, files, rows.schema, metadata=metadata, layout=_OF_CONTROL, replaces=replaces)
