"""Append written files to a table, or replace a partition by them, in one commit.

In: files in the folder of a table that no commit names yet. Out: one commit on the table, with a
transaction identifier and metadata. The files are checked first (`committing`).

Why appending again is safe: a commit is skipped if the table has seen its identifier. All writers
of a changefeed hold its lock, so no other commit comes in between. Under a lease, Delta refuses
late commits of a stalled run. The files, the identifier and the metadata are one commit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import PostCommitHookProperties, Schema, Transaction
from deltalake.transaction import (  # noqa: TID251 - the one place
    AddAction,
    create_table_with_add_actions,
)

from ticdc_assets.delta.commits import NamedCommit
from ticdc_assets.delta.committing import require_there
from ticdc_assets.delta.control import LOG_RETENTION, create_empty, open_table
from ticdc_assets.delta.files import WrittenFile
from ticdc_assets.storage.paths import AnyPath, delta_options

CHECKPOINT_INTERVAL = 10
"""After how many versions a large table gets a checkpoint: Spark's default."""


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
        schema: the table's columns.
        app_id: the application that counts the versions; None if none does.
        version: its version of this commit.
        metadata: JSON object that the commit carries, if any.
        layout: what the table gets when it is created.
        replaces: the values of partition columns; the files take the place of all rows with them.

    Returns:
        Whether there was a commit.

    Raises:
        LeaseLostError: the table has a commit of a newer lease.
        NotThereError: a file is missing or differs; nothing was committed.
    """
    table = open_table(path)
    if table is not None and app_id is not None:
        seen = table.transaction_version(app_id)
        if seen is not None and seen >= version:
            return False
    commit = NamedCommit(path, metadata)
    require_there(path, files)
    partition_by, configuration = list(layout.partition_by), layout.configuration
    if table is None and commit.is_fenced:
        table = create_empty(path, schema, partition_by=partition_by, configuration=configuration)
    actions = [
        AddAction(
            path=file.path,
            size=file.size,
            partition_values=file.partition,
            modification_time=file.modified_ms,
            data_change=True,
            stats=file.stats,
        )
        for file in files
    ]
    transactions = [] if app_id is None else [Transaction(app_id, version)]
    with commit.on(table, *transactions) as properties:
        if table is None:
            path.mkdir(parents=True, exist_ok=True)
            create_table_with_add_actions(
                str(path),
                Schema.from_arrow(schema),
                actions,
                partition_by=partition_by,
                configuration=configuration,
                commit_properties=properties,
                post_commithook_properties=_HOOKS,
                storage_options=delta_options(path),
            )
        else:
            table.create_write_transaction(
                [*actions],
                "overwrite" if replaces else "append",
                table.schema(),
                partition_by=table.metadata().partition_columns,
                partition_filters=[(name, "=", value) for name, value in replaces.items()]
                if replaces
                else None,
                commit_properties=properties,
                post_commithook_properties=_HOOKS,
            )
    written = open_table(path)
    if written is not None and written.version() and not written.version() % CHECKPOINT_INTERVAL:
        written.create_checkpoint()
    return True


# Spark writes checkpoints as often; Spark's defaults also decide which log entries expire.
_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
