"""Read a mirror, or its history, at the Delta version that a cut names.

In: a mirror of a cut. Out: its rows with the columns of `MirrorLayout`, or its history's with those
of `HistoryLayout`: in Spark, for a step, in batches, or as a relation of SQL. All reading of
versions goes through this module.

In versions of earlier programs, the column of rescued data is `_ticdc_extra`. The schema of the
table at that version has its name, and the rows are returned with the current name. If upstream has
a column of that name, both programs add underscores to theirs, so the two are not confused.

Nothing is written, and versions do not change: reading again gives the same.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, Field

from ticdc_assets.engine.control import dataset_of, is_portable, open_table, reading
from ticdc_assets.engine.delta_files import DataFile, data_files
from ticdc_assets.engine.frames import Frame, delta_frame, quoted
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.engine.repairs import damaged
from ticdc_assets.engine.session import Session
from ticdc_assets.errors import LakeDamagedError
from ticdc_assets.pipeline.cuts import MirrorCut
from ticdc_assets.rows.mirror_rows import MirrorLayout, free_name
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.schemas import TableSchema
from ticdc_assets.storage.paths import AnyPath

FORMER_RESCUED = "_ticdc_extra"
"""What the column of rescued data was called before layout 2."""


def names_today(stored: Sequence[str], schema: TableSchema) -> list[str]:
    """Return the names that the columns of a mirror or a history have today.

    Args:
        stored: the names that they have in the table, in order.
        schema: the schema of the mirror.
    """
    rescued = MirrorLayout(schema=schema).rescued
    if rescued in stored:
        return list(stored)
    former = free_name(FORMER_RESCUED, schema)
    return [rescued if name == former else name for name in stored]


def former_rescued(table: AnyPath, version: int, schema: TableSchema) -> str | None:
    """Return the former name of the column of rescued data, None if it has today's.

    Args:
        table: folder of the mirror or the history.
        version: its version.
        schema: the schema of the mirror.
    """
    stored = _stored_names(table, version)
    pairs = zip(stored, names_today(stored, schema), strict=True)
    return next((name for name, today in pairs if name != today), None)


def _stored_names(table: AnyPath, version: int) -> list[str]:
    opened = open_table(table, version)
    return [] if opened is None else [field.name for field in opened.schema().fields]


# Mirrors ----------------------------------------------------------------------------------------


def mirror_in_spark(spark: Session, paths: LakePaths, mirror: MirrorCut) -> Frame:
    """Return the rows of a mirror as a cut names it."""
    return _in_spark(spark, mirror.path(paths), mirror.version, mirror.table_schema)


def mirror_rows(paths: LakePaths, mirror: MirrorCut, above: int | None = None) -> Rows | None:
    """Return the rows of a mirror as a cut names it for a step, or None if only Spark reads it.

    Args:
        paths: tables of the changefeed.
        mirror: the mirror.
        above: leave out rows whose last change is not above this commit ts; none if None.

    Returns:
        Rows with the columns of `MirrorLayout`, in its order; few and small ones are read already.
    """
    layout = MirrorLayout(schema=mirror.table_schema)
    path = mirror.path(paths)
    files = _files(path, mirror.version, mirror.table_schema)
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
    """Return the commit ts of the rows of a mirror, unread, or None if only Spark reads them."""
    layout = MirrorLayout(schema=mirror.table_schema)
    path = mirror.path(paths)
    files = _files(path, mirror.version, mirror.table_schema)
    if files is None or layout.commit_ts not in files.schema.names:
        return None
    with reading(path, mirror.version):
        return files.rows(pa.schema([layout.arrow.field(layout.commit_ts)]))


def mirror_as_stored(paths: LakePaths, mirror: MirrorCut) -> Rows | None:
    """Return the rows of a mirror for a step with all columns that the table has; else as above."""
    return _as_stored(mirror.path(paths), mirror.version, mirror.table_schema)


def mirror_rescued(paths: LakePaths, mirror: MirrorCut, names: Collection[str]) -> bool:
    """Return whether the rescued data of a mirror may have an entry of one of some columns."""
    layout = MirrorLayout(schema=mirror.table_schema)
    path = mirror.path(paths)
    files = _files(path, mirror.version, mirror.table_schema)
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
    """Return whether the files of a mirror alone say which rows a cut has (`is_portable`)."""
    opened = open_table(mirror.path(paths), mirror.version)
    return opened is not None and is_portable(opened)


def mirror_columns(paths: LakePaths, mirror: MirrorCut) -> pa.Schema:
    """Return the columns that the table of a mirror has, by the names of today."""
    opened = open_table(mirror.path(paths), mirror.version)
    return pa.schema([]) if opened is None else _columns(opened, mirror.table_schema)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows that Arrow reads, as they are stored.

    Attributes:
        rows: the rows, by the names that their columns are stored by.
        names: what these columns are called today, in their order.
    """

    rows: ds.Dataset | pa.Table
    names: Sequence[str]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows by the names of today."""
        for batch in self.rows.to_batches():
            yield batch.rename_columns(list(self.names))


def stored_mirror(paths: LakePaths, mirror: MirrorCut) -> StoredRows | None:
    """Return the rows of a mirror as a cut names it, unread, or None if only Spark reads them."""
    return _stored(mirror.path(paths), mirror.version, mirror.table_schema)


def mirror_in_sql(paths: LakePaths, mirror: MirrorCut) -> str:
    """Return the relation, for a FROM, of a mirror as a cut names it."""
    return _in_sql(mirror.path(paths), mirror.version, mirror.table_schema)


# Histories --------------------------------------------------------------------------------------


def history_in_spark(spark: Session, paths: LakePaths, mirror: MirrorCut) -> Frame:
    """Return the history of a mirror as a cut names it; the mirror must have one."""
    path, version = _history(paths, mirror)
    return _in_spark(spark, path, version, mirror.table_schema)


def stored_history(paths: LakePaths, mirror: MirrorCut) -> StoredRows | None:
    """Return the history of a mirror as a cut names it, unread, or None if only Spark reads it."""
    path, version = _history(paths, mirror)
    return _stored(path, version, mirror.table_schema)


def history_as_stored(paths: LakePaths, mirror: MirrorCut) -> Rows | None:
    """Return the history of a mirror as a cut names it for a step, or None if Spark reads it."""
    path, version = _history(paths, mirror)
    return _as_stored(path, version, mirror.table_schema)


def history_in_sql(paths: LakePaths, mirror: MirrorCut) -> str:
    """Return the relation, for a FROM, of the history of a mirror as a cut names it."""
    path, version = _history(paths, mirror)
    return _in_sql(path, version, mirror.table_schema)


def _history(paths: LakePaths, mirror: MirrorCut) -> tuple[AnyPath, int]:
    assert mirror.history_version is not None
    return paths.history(mirror.mirror_id), mirror.history_version


# Tables -----------------------------------------------------------------------------------------


def _in_spark(spark: Session, table: AnyPath, version: int, schema: TableSchema) -> Frame:
    rows = delta_frame(spark, table, version)
    names = names_today(rows.columns, schema)
    return rows if names == rows.columns else rows.toDF(*names)


@dataclass(frozen=True, slots=True, kw_only=True)
class _VersionFiles:
    """The files of a version of a table.

    Attributes:
        files: the files, and which of their rows are gone.
        schema: the columns of the table, by the names of today.
        stored: what each column is called in the files, by that name.
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
"""Features of Delta that a reader has to know, of those that our writers use."""


def _files(table: AnyPath, version: int, schema: TableSchema) -> _VersionFiles | None:
    """Return the files of a version, or None if only Spark reads it."""
    opened = open_table(table, version)
    if opened is None or opened.metadata().partition_columns:
        return None
    columns = _columns(opened, schema)
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


def _columns(opened: DeltaTable, schema: TableSchema) -> pa.Schema:
    found = pa.schema(opened.schema())
    names = names_today(found.names, schema)
    return pa.schema([pa.field(name, item.type) for name, item in zip(names, found, strict=True)])


def _as_stored(table: AnyPath, version: int, schema: TableSchema) -> Rows | None:
    files = _files(table, version, schema)
    if files is None:
        return None
    with reading(table, version):
        return files.rows(files.schema)


def _stored(table: AnyPath, version: int, schema: TableSchema) -> StoredRows | None:
    opened = open_table(table, version)
    if opened is None or not is_portable(opened):
        return None
    rows = dataset_of(opened, table)
    return StoredRows(rows, names_today(rows.schema.names, schema))


def _in_sql(table: AnyPath, version: int, schema: TableSchema) -> str:
    relation = f"delta.{quoted(str(table))} VERSION AS OF {version}"
    try:
        stored = _stored_names(table, version)
    except LakeDamagedError:
        # The query that reads it fails, and its error names the table.
        return relation
    names = names_today(stored, schema)
    if names == stored:
        return relation
    columns = ", ".join(
        quoted(name) if name == today else f"{quoted(name)} AS {quoted(today)}"
        for name, today in zip(stored, names, strict=True)
    )
    return f"(SELECT {columns} FROM {relation})"
