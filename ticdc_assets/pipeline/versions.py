"""Reading a mirror, or its history, at the Delta version that a cut names.

In: a mirror of a cut. Out: its rows with the columns of `MirrorLayout`, or its history's with those
of `HistoryLayout`: in Spark, in this process, in pieces, or as a relation of SQL. Every reader of a
version goes through here.

Versions of earlier programs call the column of rescued data `_ticdc_extra`. The schema of the table
at that version tells which name it has, and the rows come with the name of today. Where upstream
has a column of that name, either program adds underscores to its own, so the two are not confused.

Nothing is written, and a version stays what it is: reading it again gives the same.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession

from ticdc_assets.engine.control import dataset_of, is_portable, open_table, read_portable
from ticdc_assets.engine.files import read_rows_bounded, texts_of
from ticdc_assets.engine.paths import LakePaths
from ticdc_assets.errors import LakeDamagedError
from ticdc_assets.pipeline.cuts import MirrorCut
from ticdc_assets.rows.mirror_rows import MirrorLayout, free_name, quoted
from ticdc_assets.schemas import TableSchema

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


def former_rescued(table: Path, version: int, schema: TableSchema) -> str | None:
    """Return the former name of the column of rescued data, None if it has today's.

    Args:
        table: folder of the mirror or the history.
        version: its version.
        schema: the schema of the mirror.
    """
    stored = _stored_names(table, version)
    pairs = zip(stored, names_today(stored, schema), strict=True)
    return next((name for name, today in pairs if name != today), None)


def _stored_names(table: Path, version: int) -> list[str]:
    opened = open_table(table, version)
    return [] if opened is None else [field.name for field in opened.schema().fields]


# Mirrors ----------------------------------------------------------------------------------------


def mirror_in_spark(spark: SparkSession, paths: LakePaths, mirror: MirrorCut) -> DataFrame:
    """Return the rows of a mirror as a cut names it."""
    return _in_spark(spark, mirror.path(paths), mirror.version, mirror.table_schema)


def mirror_here(paths: LakePaths, mirror: MirrorCut) -> pa.Table | None:
    """Return the rows of a mirror as a cut names it, or None if only Spark reads it."""
    return _here(mirror.path(paths), mirror.version, mirror.table_schema)


@dataclass(frozen=True, slots=True)
class MirrorFiles:
    """The files of a mirror, which say by themselves which rows there are.

    Attributes:
        paths: the files.
        stored: what the columns of `MirrorLayout` are called in them, in its order.
    """

    paths: Sequence[Path]
    stored: Sequence[str]


def mirror_files(paths: LakePaths, mirror: MirrorCut) -> MirrorFiles | None:
    """Return the files of a mirror as a cut names it, or None if only Spark reads it."""
    path = mirror.path(paths)
    table = open_table(path, mirror.version)
    if table is None or not is_portable(table):
        return None
    stored = [field.name for field in table.schema().fields]
    names = dict(zip(names_today(stored, mirror.table_schema), stored, strict=True))
    return MirrorFiles(
        [path / name for name in pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()],
        [names[name] for name in MirrorLayout(schema=mirror.table_schema).names],
    )


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


def mirror_in_pieces(
    paths: LakePaths, mirror: MirrorCut
) -> Callable[[], Iterator[pa.RecordBatch]] | None:
    """Return what yields the rows in batches of bounded size, or None if only Spark reads them."""
    found = stored_mirror(paths, mirror)
    if found is None or isinstance(found.rows, pa.Table):
        return None
    path, rows, names = mirror.path(paths), found.rows, found.names
    stored = rows.schema.names
    large = texts_of(rows.schema, stored)
    return lambda: (
        batch.rename_columns(list(names))
        for batch in read_rows_bounded(rows, path, None, columns=stored, large=large)
    )


# Histories --------------------------------------------------------------------------------------


def history_in_spark(spark: SparkSession, paths: LakePaths, mirror: MirrorCut) -> DataFrame:
    """Return the history of a mirror as a cut names it; the mirror must have one."""
    path, version = _history(paths, mirror)
    return _in_spark(spark, path, version, mirror.table_schema)


def history_here(paths: LakePaths, mirror: MirrorCut) -> pa.Table | None:
    """Return the history of a mirror as a cut names it, or None if only Spark reads it."""
    path, version = _history(paths, mirror)
    return _here(path, version, mirror.table_schema)


def stored_history(paths: LakePaths, mirror: MirrorCut) -> StoredRows | None:
    """Return the history of a mirror as a cut names it, unread, or None if only Spark reads it."""
    path, version = _history(paths, mirror)
    return _stored(path, version, mirror.table_schema)


def history_in_sql(paths: LakePaths, mirror: MirrorCut) -> str:
    """Return the relation, for a FROM, of the history of a mirror as a cut names it."""
    path, version = _history(paths, mirror)
    return _in_sql(path, version, mirror.table_schema)


def _history(paths: LakePaths, mirror: MirrorCut) -> tuple[Path, int]:
    assert mirror.history_version is not None
    return paths.history(mirror.mirror_id), mirror.history_version


# Tables -----------------------------------------------------------------------------------------


def _in_spark(spark: SparkSession, table: Path, version: int, schema: TableSchema) -> DataFrame:
    rows = spark.read.format("delta").option("versionAsOf", version).load(str(table))
    names = names_today(rows.columns, schema)
    return rows if names == rows.columns else rows.toDF(*names)


def _here(table: Path, version: int, schema: TableSchema) -> pa.Table | None:
    rows = read_portable(table, version)
    return None if rows is None else rows.rename_columns(names_today(rows.column_names, schema))


def _stored(table: Path, version: int, schema: TableSchema) -> StoredRows | None:
    opened = open_table(table, version)
    if opened is None or not is_portable(opened):
        return None
    rows = dataset_of(opened, table)
    return StoredRows(rows, names_today(rows.schema.names, schema))


def _in_sql(table: Path, version: int, schema: TableSchema) -> str:
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
