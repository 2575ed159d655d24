"""Append written files to the large tables, or replace a partition by them, in one commit.

In: files in the folder of `raw_messages`, `change_log` or `quarantine` that no commit names yet.
Out: one commit on the table, with a transaction identifier and metadata.

Why appending again is safe: a commit is skipped if the table has seen its identifier. All writers
of a changefeed hold its lock, so no other commit comes in between. Under a lease, Delta refuses
late commits of a stalled run. The files, the identifier and the metadata are one commit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties, Transaction

from ticdc_assets.delta.commits import NamedCommit
from ticdc_assets.delta.committing import commit_written
from ticdc_assets.delta.control import LOG_RETENTION, open_table
from ticdc_assets.delta.files import WrittenFile
from ticdc_assets.storage.paths import AnyPath

_CHECKPOINT_INTERVAL = 10  # Spark's default


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
"""Columns of `raw_messages` and `change_log` whose bounds are recorded for each file."""

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


def append_files(
    path: AnyPath,
    files: Sequence[WrittenFile],
    schema: pa.Schema,
    *,
    app_id: str,
    version: int,
    metadata: Mapping[str, Any] | None = None,
    layout: TableLayout = TableLayout(),
    replaces: Mapping[str, str] | None = None,
) -> bool:
    """Append files in one commit, unless the table has seen `version` of `app_id`.

    Args:
        path: the table; it is created if it does not exist.
        files: what to append, possibly nothing.
        schema: the table's columns.
        app_id: the application that counts the versions.
        version: its version of this commit.
        metadata: JSON object that the commit carries, if any.
        layout: what the table gets when it is created.
        replaces: the values of partition columns; the files take the place of all rows with them.

    Returns:
        Whether there was a commit.

    Raises:
        NotThereError: a file is missing or differs; nothing was committed.
    """
    table = open_table(path)
    if table is not None and _has_seen(table, app_id, version):
        return False
    commit_written(
        path,
        files,
        schema,
        table=table,
        commit=NamedCommit(path, metadata),
        transactions=[Transaction(app_id, version)],
        partition_by=layout.partition_by,
        configuration=layout.configuration,
        hooks=_HOOKS,
        replaces=replaces,
    )
    _add_checkpoint(path)
    return True


def _has_seen(table: DeltaTable, app_id: str, version: int) -> bool:
    seen = table.transaction_version(app_id)
    return seen is not None and seen >= version


# Spark writes checkpoints as often; Spark's defaults also decide which log entries expire.
_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def _add_checkpoint(path: AnyPath) -> None:
    written = open_table(path)
    if written is not None and written.version() and not written.version() % _CHECKPOINT_INTERVAL:
        written.create_checkpoint()
