"""Read a mirror, or its history, at the Delta version that a cut names.

In: a mirror of a cut. Out: its rows with the columns of `MirrorLayout`, or its history's with those
of `HistoryLayout`: in Spark, for a step, in batches, or as a relation of SQL. All reading of
versions goes through this module.

Nothing is written, and versions do not change: reading again gives the same.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import Field

from ticdc_assets.delta.control import dataset_of, is_portable, open_table
from ticdc_assets.delta.damage import damaged, reading
from ticdc_assets.delta.delta_files import DataFile, data_files
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.cuts import MirrorCut
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.frames import Frame, delta_frame, quoted
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath

# Mirrors ----------------------------------------------------------------------------------------


def mirror_in_spark(lake: Lake, mirror: MirrorCut) -> Frame:
    """Return the rows of a mirror at its version in a cut."""
    return delta_frame(lake.spark, mirror.path(lake.paths), mirror.version)


def mirror_rows(paths: LakePaths, mirror: MirrorCut, above: int | None = None) -> Rows | None:
    """Return the rows of a mirror in a cut for a step; None if only Spark can read it.

    Args:
        paths: tables of the changefeed.
        mirror: the mirror.
        above: leave out rows whose last change is not above this commit ts; none if None.

    Returns:
        Rows with the columns of `MirrorLayout`, in its order; few and small ones are already read.
    """
    layout = MirrorLayout(schema=mirror.table_schema)
    path = mirror.path(paths)
    files = _files(path, mirror.version)
    if files is None:
        return None
    lacking = set(layout.names).difference(files.schema.names)
    if lacking:
        raise damaged(path, f"it lacks the columns {', '.join(sorted(lacking))}")
    with reading(path, mirror.version):
        rows = files.rows(layout.arrow)
        if above is not None:
            condition = ds.field(layout.commit_ts) > above
            stamps = files.rows(pa.schema([layout.arrow.field(layout.commit_ts)]))
            left = replace(stamps, condition=condition).read()
            rows = replace(rows, condition=condition, count=sum(item.num_rows for item in left))
        return rows.here_if_few()


def mirror_stamps(paths: LakePaths, mirror: MirrorCut) -> Rows | None:
    """Return the commit ts of a mirror's rows, unread; None if only Spark can read them."""
    layout = MirrorLayout(schema=mirror.table_schema)
    path = mirror.path(paths)
    files = _files(path, mirror.version)
    if files is None or layout.commit_ts not in files.schema.names:
        return None
    with reading(path, mirror.version):
        return files.rows(pa.schema([layout.arrow.field(layout.commit_ts)]))


def mirror_as_stored(paths: LakePaths, mirror: MirrorCut) -> Rows | None:
    """Return the rows of a mirror with all columns of its table for a step; None as above."""
    return _as_stored(mirror.path(paths), mirror.version)


def first_rows(paths: LakePaths, mirror: MirrorCut, limit: int) -> pa.Table | None:
    """Return up to `limit` rows of a mirror as a cut names it, or None if only Spark reads them.

    They have the columns of `MirrorLayout`. No more files are opened than have to be.
    """
    layout = MirrorLayout(schema=mirror.table_schema)
    path = mirror.path(paths)
    found = _files(path, mirror.version)
    if found is None or not set(layout.names) <= set(found.schema.names):
        return None
    rows = layout.arrow.empty_table()
    with reading(path, mirror.version):
        for file in found.files:
            if rows.num_rows >= limit:
                break
            batches = replace(found, files=[file]).rows(layout.arrow).read(most=limit)
            wanted = islice((item for item in batches if item.num_rows), limit - rows.num_rows)
            rows = pa.concat_tables([rows, pa.Table.from_batches(list(wanted), layout.arrow)])
    return rows.slice(0, limit)


def mirror_rescued(paths: LakePaths, mirror: MirrorCut, names: Collection[str]) -> bool:
    """Return whether the rescued data of a mirror may have an entry for one of some columns."""
    layout = MirrorLayout(schema=mirror.table_schema)
    path = mirror.path(paths)
    files = _files(path, mirror.version)
    if files is None:
        return True
    with reading(path, mirror.version):
        rows = files.rows(pa.schema([layout.arrow.field(layout.rescued)]))
        return any(
            name in names
            for batch in rows.read()
            for entries in batch.column(0).drop_null().to_pylist()
            for name, _ in entries
        )


def is_portable_mirror(paths: LakePaths, mirror: MirrorCut) -> bool:
    """Return whether the files of a mirror alone define the rows in a cut (`is_portable`)."""
    opened = open_table(mirror.path(paths), mirror.version)
    return opened is not None and is_portable(opened)


def mirror_columns(paths: LakePaths, mirror: MirrorCut) -> pa.Schema:
    """Return the columns of a mirror's table."""
    opened = open_table(mirror.path(paths), mirror.version)
    return pa.schema([]) if opened is None else pa.schema(opened.schema())


def stored_mirror(paths: LakePaths, mirror: MirrorCut) -> ds.Dataset | None:
    """Return the rows of a mirror in a cut, unread; None if only Spark can read them."""
    return _stored(mirror.path(paths), mirror.version)


def mirror_in_sql(paths: LakePaths, mirror: MirrorCut) -> str:
    """Return the relation, for a FROM, of a mirror in a cut."""
    return _in_sql(mirror.path(paths), mirror.version)


# Histories --------------------------------------------------------------------------------------


def history_in_spark(lake: Lake, mirror: MirrorCut) -> Frame:
    """Return the history of a mirror in a cut; the mirror must have one."""
    return delta_frame(lake.spark, *_history(lake.paths, mirror))


def stored_history(paths: LakePaths, mirror: MirrorCut) -> ds.Dataset | None:
    """Return the history of a mirror in a cut, unread; None if only Spark can read it."""
    return _stored(*_history(paths, mirror))


def history_as_stored(paths: LakePaths, mirror: MirrorCut) -> Rows | None:
    """Return the history of a mirror in a cut for a step; None if only Spark can read it."""
    return _as_stored(*_history(paths, mirror))


def history_in_sql(paths: LakePaths, mirror: MirrorCut) -> str:
    """Return the relation, for a FROM, of the history of a mirror in a cut."""
    return _in_sql(*_history(paths, mirror))


def _history(paths: LakePaths, mirror: MirrorCut) -> tuple[AnyPath, int]:
    assert mirror.history_version is not None
    return mirror.history_path(paths), mirror.history_version


# Tables -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _VersionFiles:
    """The files of a version of a table.

    Attributes:
        files: the files, and which of their rows are gone.
        schema: the columns of the table.
        stored: each column's name in the files, by its own name.
    """

    files: Sequence[DataFile]
    schema: pa.Schema
    stored: Mapping[str, str]

    def rows(self, schema: pa.Schema) -> Rows:
        """Return their rows with the columns of a schema."""
        return Rows.of_files(
            [file.path for file in self.files],
            schema,
            [self.stored[name] for name in schema.names],
            {file.path: file.deleted for file in self.files if file.deleted is not None},
        )


_READABLE = frozenset({"timestampNtz", "deletionVectors", "columnMapping", "typeWidening"})
"""Delta features that a reader has to know, among those that this package's writers use."""


def _files(table: AnyPath, version: int) -> _VersionFiles | None:
    """Return the files of a version; None if only Spark can read it."""
    opened = open_table(table, version)
    if opened is None or opened.metadata().partition_columns:
        return None
    columns = pa.schema(opened.schema())
    stored = [_stored_name(item) for item in opened.schema().fields]
    if is_portable(opened):
        names = pa.table(opened.get_add_actions(flatten=True))["path"].to_pylist()
        files = [DataFile(table / name, None) for name in names]
    else:
        mapping = opened.metadata().configuration.get("delta.columnMapping.mode", "none")
        features = frozenset(opened.protocol().reader_features or ())
        if mapping not in ("none", "name") or not features <= _READABLE:
            return None
        with reading(table, version):
            found = data_files(table, version)
        if found is None:
            return None
        files = found
    return _VersionFiles(
        files=files, schema=columns, stored=dict(zip(columns.names, stored, strict=True))
    )


def _stored_name(column: Field) -> str:
    return str(column.metadata.get("delta.columnMapping.physicalName", column.name))


def _as_stored(table: AnyPath, version: int) -> Rows | None:
    files = _files(table, version)
    if files is None:
        return None
    with reading(table, version):
        return files.rows(files.schema)


def _stored(table: AnyPath, version: int) -> ds.Dataset | None:
    opened = open_table(table, version)
    return None if opened is None or not is_portable(opened) else dataset_of(opened, table)


def _in_sql(table: AnyPath, version: int) -> str:
    return f"delta.{quoted(str(table))} VERSION AS OF {version}"
