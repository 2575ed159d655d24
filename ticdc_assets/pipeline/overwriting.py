"""Overwriting: write a whole mirror or history in one commit.

In: rows with the columns of the new table. Out: a Delta version with these columns and rows.

There are two kinds of tables. A *portable* table is for few rows, and for the first version of a
large table (`fold_runs`): delta-rs writes it in some 20 ms, where Spark takes a second of CPU, and
readers outside Spark can read it. It is always overwritten as a whole, so it needs no Delta
features except types; it has no column statistics, because its few files are not worth skipping.
The other kind is written by Spark: columns can be renamed, dropped and widened in place, and rows
deleted without rewriting their files. A portable table becomes such a table at Spark's first write,
and stays one. Spark can read any portable table, but cannot alter or restore one with a space or a
similar character in a column name, so it is never asked to. Both kinds keep files and log entries
as long as kept cuts name them (`mirror_properties`).

Concurrent commits of other writers are not among the rows: the returned version is that of the
overwrite, and if a foreign change came before it, the overwrite is made again.

Why running it again is safe: an overwrite does not read the old rows. Two commits turn a portable
table into Spark's kind; after a run killed between them, no cut names the table's new rows. An
existing table keeps its properties; maintenance updates those of retention.
"""

import logging
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
from deltalake import DeltaTable as Table
from deltalake import TableFeatures, write_deltalake
from deltalake.exceptions import CommitFailedError

from ticdc_assets.config import Retention
from ticdc_assets.engine.commits import (
    CommitError,
    LoggedCommit,
    NamedCommit,
    OwnCommit,
    commits_after,
    foreign_changes,
    newest_version,
)
from ticdc_assets.engine.committing import commit_written
from ticdc_assets.engine.control import is_portable, open_table
from ticdc_assets.engine.files import FileWriter, WrittenFile
from ticdc_assets.engine.frames import Frame, frame_of
from ticdc_assets.engine.renewing import renew_if_lost
from ticdc_assets.engine.session import Session
from ticdc_assets.engine.spark_commits import CONFLICTS, SparkCommit, alter
from ticdc_assets.errors import LakeDamagedError
from ticdc_assets.isolation import first_sentence
from ticdc_assets.pipeline.mirror_properties import mirror_properties
from ticdc_assets.storage.paths import AnyPath, copy, delta_options

PORTABLE_ROWS = 10_000
"""Most rows of a portable table: to write all of them costs less than to MERGE a few."""

_STATISTICS = "delta.dataSkippingNumIndexedCols"

_FEATURES = {
    "delta.columnMapping.mode": "name",
    "delta.enableDeletionVectors": "true",
    "delta.enableTypeWidening": "true",
    # A table without a DATETIME may get one: then Delta would not enable it by itself.
    "delta.feature.timestampNtz": "supported",
    _STATISTICS: "32",
}

_PORTABLE = {_STATISTICS: "0", "delta.checkpointInterval": "20"}


def overwrite(
    spark: Session,
    rows: Frame | pa.Table,
    table: AnyPath,
    retention: Retention,
    *,
    metadata: Mapping[str, object],
    published: int | None = None,
    portable: bool = False,
) -> int:
    """Write `rows` as the next version of a mirror or a history, the first if there is none.

    Args:
        spark: the session.
        rows: the rows, with the table's columns; an Arrow table if they are in this process.
        table: where it is.
        retention: what is kept for how long.
        metadata: what the commit carries.
        published: the newest version that a cut names; the table gets a new log if it is lost.
        portable: whether it stays a portable table, however many rows it has (`stays_portable`).

    Returns:
        The version that it is.

    Raises:
        ForeignCommitError: somebody else writes to it all the while.
    """
    properties = {**_PORTABLE, **mirror_properties(retention)}
    if published is not None:
        renew_if_lost(table, published, properties)
    most = sys.maxsize if portable else PORTABLE_ROWS
    return _alone(table, lambda: _overwritten(spark, rows, table, properties, metadata, most))


_TRIES = 3
_CONFLICTS = (CommitFailedError, *CONFLICTS)
_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")


class ForeignCommitError(CommitError):
    """Somebody else writes to a mirror or a history, again and again."""

    def __init__(self, table: AnyPath, foreign: Sequence[LoggedCommit]) -> None:
        super().__init__(table, foreign)
        self.table = table
        self.foreign = foreign

    def __str__(self) -> str:
        listed = ", ".join(f"version {item.version} ({item.operation})" for item in self.foreign)
        return (
            f"another program wrote table {self.table} while it was being written, {_TRIES} times: "
            f"{listed}; nothing was published: stop that program, and sync again"
        )


def _alone(table: AnyPath, write: Callable[[], LoggedCommit]) -> int:
    """Return the version that `write` made, written anew where somebody else wrote meanwhile.

    Raises:
        ForeignCommitError: somebody else writes to it all the while.
    """
    foreign: list[LoggedCommit] = []
    for _ in range(_TRIES):
        before = newest_version(table)
        made = write()
        # What somebody appended in the meantime would be among the rows.
        foreign = foreign_changes(table, commits_after(table, before, until=made.version))
        if not foreign:
            return made.version
    raise ForeignCommitError(table, foreign)


def undisturbed(make: Callable[[], T]) -> T:
    """Return what `make` returns, begun anew where Delta refused a commit beside another one.

    A compaction by hand takes away files that a MERGE has read. Nothing of the refused commit is
    there, so the next try sees what the other one left.
    """
    for _ in range(_TRIES - 1):
        try:
            return make()
        except _CONFLICTS as error:
            _LOGGER.warning("another writer was faster, trying again: %s", first_sentence(error))
    return make()


def _overwritten(
    spark: Session,
    rows: Frame | pa.Table,
    table: AnyPath,
    properties: Mapping[str, str],
    metadata: Mapping[str, object],
    most: int,
) -> LoggedCommit:
    there = open_table(table)
    is_light = there is None or is_portable(there)
    if not isinstance(rows, Frame) and is_light and rows.num_rows <= most:
        table.parent.mkdir(parents=True, exist_ok=True)
        own = OwnCommit(table, metadata)
        with own.on(there) as carried:
            write_deltalake(
                str(table) if there is None else there,
                rows if there is None else rows.cast(_ordered(rows.schema, there)),
                mode="overwrite",
                schema_mode="overwrite",
                configuration=properties,
                commit_properties=carried,
                storage_options=delta_options(table),
            )
        return own.made()
    give_features(spark, table)
    frame = rows if isinstance(rows, Frame) else frame_of(spark, rows)
    own = SparkCommit(spark, table, metadata)
    (
        own.writer(frame)
        .mode("overwrite")
        .option("overwriteSchema", "true")
        .options(**{name: value for name, value in properties.items() if name not in _PORTABLE})
        .options(**_FEATURES)
        .save(str(table))
    )
    return own.made()


def overwrite_by_files(
    files: Callable[[], Sequence[WrittenFile]],
    schema: pa.Schema,
    table: AnyPath,
    retention: Retention,
    *,
    metadata: Mapping[str, object],
    published: int | None = None,
) -> int:
    """Do as `overwrite` with files that were written into the table's folder.

    Args:
        files: gives the files.
        schema: the table's columns.
        table: where it is; it is portable, or not there.
        retention: what is kept for how long.
        metadata: what the commit carries.
        published: as of `overwrite`.

    Returns:
        The version that it is.

    Raises:
        ForeignCommitError: somebody else writes to it all the while.
        NotThereError: a file that was written here is gone; nothing was committed.
    """
    properties = {**_PORTABLE, **mirror_properties(retention)}
    if published is not None:
        renew_if_lost(table, published, properties)
    named: set[str] = set()

    def write() -> LoggedCommit:
        there = open_table(table)
        if there is not None:
            _allow(schema, table, there)
        columns = schema if there is None else _ordered(schema, there)
        found = [_renamed(table, item) if item.path in named else item for item in files()]
        named.update(item.path for item in found)
        own = OwnCommit(table, metadata)
        commit_written(
            table,
            found,
            columns,
            table=open_table(table),
            commit=own,
            configuration=properties,
            overwrites=True,
        )
        return own.made()

    if open_table(table) is None:
        return write().version
    return _alone(table, write)


def _ordered(schema: pa.Schema, there: Table) -> pa.Schema:
    """Return the columns of an overwrite, so that it brings them into their order.

    delta-rs changes the columns of a table only if one of them is new, or has another type or other
    metadata; a new order alone is no change to it. So each column gets its place as metadata
    (decision 0094).
    """
    names = [field.name for field in there.schema().fields]
    if schema.names == names or sorted(schema.names) != sorted(names):
        return schema
    return pa.schema(
        [field.with_metadata({_PLACE: str(place)}) for place, field in enumerate(schema)]
    )


_PLACE = "ticdc.place"


def _renamed(table: AnyPath, file: WrittenFile) -> WrittenFile:
    """Return a copy of a file that a commit named: no later one may name it as new."""
    name = f"part-{uuid.uuid4()}.snappy.parquet"
    copy(table / file.path, table / name)
    return replace(file, path=name)


def written(pieces: Iterable[pa.Table], schema: pa.Schema, table: AnyPath) -> list[WrittenFile]:
    """Write rows into files of bounded size, each piece a row group."""
    table.mkdir(parents=True, exist_ok=True)
    files: list[WrittenFile] = []
    writer: FileWriter | None = None
    size = 0
    for rows in pieces:
        if writer is None:
            # A dictionary of large values is of use to nobody.
            writer, size = FileWriter(table, schema, distinct=schema.names), 0
        writer.write(rows)
        size += rows.nbytes
        if size >= _FILE_BYTES:
            files.append(writer.close())
            writer = None
    if writer is not None:
        files.append(writer.close())
    return files


_FILE_BYTES = 512 << 20


def _allow(schema: pa.Schema, table: AnyPath, there: Table) -> None:
    """Let a table have the columns of `schema`; its rows stay what they are."""
    if not any(pa.types.is_timestamp(field.type) and field.type.tz is None for field in schema):
        return
    if "timestampNtz" not in (there.protocol().writer_features or ()):
        with NamedCommit(table).on(there) as properties:
            there.alter.add_feature(
                TableFeatures.TimestampWithoutTimezone,
                allow_protocol_versions_increase=True,
                commit_properties=properties,
            )


def stays_portable(table: AnyPath, *, broken: bool = True) -> bool:
    """Return whether a mirror or a history is a portable table, or is to begin as one.

    Args:
        table: where it is.
        broken: what to say of a broken one, which gets a new log.
    """
    try:
        there = open_table(table)
    except LakeDamagedError:
        return broken
    return there is None or is_portable(there)


def fits_merge(names: Iterable[str]) -> bool:
    """Return whether Spark merges into a portable table with columns of these names."""
    return not any(_REFUSED.search(name) for name in names)


_REFUSED = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Spark refuses in the names of columns that no mapping stands for."""


def give_features(spark: Session, table: AnyPath) -> None:
    """Give a table what Spark's writing of it needs, if it is portable or was made so again."""
    there = open_table(table)
    if there is None or there.metadata().configuration.get("delta.columnMapping.mode") == "name":
        return
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in _FEATURES.items())
    alter(spark, table, [f"SET TBLPROPERTIES ({listed})"])
