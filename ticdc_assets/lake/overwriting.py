"""Overwriting: a mirror or a history written whole, in one commit.

In: rows with the columns that the table is to have. Out: a Delta version with these columns and
rows.

There are two kinds of table. A *plain* one is for few rows, and for the first version of a table of
many (`first_folds`): delta-rs writes it in some 20 ms, where Spark takes a second of CPU, and
readers outside Spark read it. It is always written whole, so it needs no feature of Delta's but its
types; it has no statistics of columns either, because none of its few files is worth skipping. The
other kind is Spark's: columns may be renamed, dropped and widened in place, rows taken out without
writing their files anew. A plain table becomes one of these when it is first written by Spark, and
stays one. Spark reads a plain table whatever its columns are called, but with a space or the like
in a name it alters and restores none, so nobody asks it to. In both, files and log entries stay for
as long as kept cuts name them (`mirror_properties`).

Why running it again is safe: an overwrite does not look at what was there. A run that is killed
between the two commits that make a plain table Spark's leaves one whose rows nobody has named yet.
A table that is there keeps the properties it has; maintenance brings those of retention up to date.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import Schema, write_deltalake
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyspark.sql import DataFrame, SparkSession

from ticdc_assets.config import Retention
from ticdc_assets.lake.change_folding import quoted
from ticdc_assets.lake.control import commit_properties, is_plain, open_table
from ticdc_assets.lake.folding import frame_of
from ticdc_assets.lake.renewing import renew_if_lost
from ticdc_assets.lake.retention import mirror_properties

PLAIN_ROWS = 10_000
"""Rows up to which a table may be plain: it costs less to write all of them than to MERGE a few."""

_STATISTICS = "delta.dataSkippingNumIndexedCols"

_FEATURES = {
    "delta.columnMapping.mode": "name",
    "delta.enableDeletionVectors": "true",
    "delta.enableTypeWidening": "true",
    # A table without a DATETIME may get one: then Delta would not enable it by itself.
    "delta.feature.timestampNtz": "supported",
    _STATISTICS: "32",
}

_PLAIN = {_STATISTICS: "0", "delta.checkpointInterval": "20"}


def overwrite(
    spark: SparkSession,
    rows: DataFrame | pa.Table,
    table: Path,
    retention: Retention,
    *,
    metadata: Mapping[str, object],
    published: int | None = None,
) -> None:
    """Write `rows` as the next version of a mirror or a history, the first if there is none.

    Args:
        spark: the session.
        rows: the rows, with the table's columns; an Arrow table if they are in this process.
        table: where it is.
        retention: what is kept for how long.
        metadata: what the commit carries.
        published: the newest version that a cut names; the table gets a new log if it is lost.
    """
    properties = {**_PLAIN, **mirror_properties(retention)}
    if published is not None:
        renew_if_lost(table, published, properties)
    there = open_table(table)
    is_light = there is None or is_plain(there)
    if not isinstance(rows, DataFrame) and is_light and rows.num_rows <= PLAIN_ROWS:
        table.parent.mkdir(parents=True, exist_ok=True)
        write_deltalake(
            str(table),
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            configuration=properties,
            commit_properties=commit_properties(metadata),
        )
        return
    give_features(spark, table)
    frame = rows if isinstance(rows, DataFrame) else frame_of(spark, rows)
    (
        frame.write.format("delta")
        .mode("overwrite")
        .option("overwriteSchema", "true")
        .options(**_FEATURES)
        .options(**mirror_properties(retention))
        .option("userMetadata", json.dumps(metadata))
        .save(str(table))
    )


def commit_files(
    files: Sequence[AddAction],
    schema: pa.Schema,
    table: Path,
    retention: Retention,
    *,
    metadata: Mapping[str, object],
) -> None:
    """Make a plain table of files that were written into its folder; there must be none yet."""
    create_table_with_add_actions(
        str(table),
        Schema.from_arrow(schema),
        list(files),
        configuration={**_PLAIN, **mirror_properties(retention)},
        commit_properties=commit_properties(metadata),
    )


def give_features(spark: SparkSession, table: Path) -> None:
    """Give a table what Spark's writing of it needs, if it is plain or was taken back to that."""
    there = open_table(table)
    if there is None or there.metadata().configuration.get("delta.columnMapping.mode") == "name":
        return
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in _FEATURES.items())
    spark.sql(f"ALTER TABLE delta.{quoted(str(table))} SET TBLPROPERTIES ({listed})")
