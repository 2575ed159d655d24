"""Read a mirror, or its history, at the Delta version that a cut names.

In: a mirror of a cut, or the table of a mirror or a history and its version. Out: its rows, for a
step, as a dataset, or as a relation of SQL. A version with features of Delta that this package
never writes, from another program, is damaged: no sync could continue from it.

Nothing is written, and versions do not change: reading again gives the same.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.delta.control import dataset_of
from ticdc_assets.delta.damage import damaged, reading
from ticdc_assets.delta.delta_files import file_of, vector_of
from ticdc_assets.delta.delta_protocol import (
    DeletionVector,
    stored_name,
    unportable_features,
    unread_features,
)
from ticdc_assets.delta.log_reading import log_state
from ticdc_assets.delta.opening import open_table
from ticdc_assets.log.cuts import MirrorCut
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.frames import quoted
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath


def mirror_rows(paths: LakePaths, mirror: MirrorCut, above: int | None = None) -> Rows:
    """Return the rows of a mirror in a cut for a step.

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


def first_rows(paths: LakePaths, mirror: MirrorCut, limit: int) -> pa.Table:
    """Return up to `limit` rows of a mirror as a cut names it.

    They have the columns of `MirrorLayout`. No more files are opened than have to be.
    """
    layout = MirrorLayout(schema=mirror.table_schema)
    path = mirror.path(paths)
    files = _files(path, mirror.version)
    rows = layout.arrow.empty_table()
    with reading(path, mirror.version):
        for file in files.files.items():
            if rows.num_rows >= limit:
                break
            batches = replace(files, files=dict([file])).rows(layout.arrow).read(most=limit)
            wanted = islice((item for item in batches if item.num_rows), limit - rows.num_rows)
            rows = pa.concat_tables([rows, pa.Table.from_batches(list(wanted), layout.arrow)])
    return rows.slice(0, limit)


def has_rescued(table: AnyPath, version: int, rescued: str, names: Collection[str]) -> bool:
    """Return whether the rescued data of a table have an entry for one of some columns."""
    rows = rows_as_stored(table, version).select([rescued])
    with reading(table, version):
        return any(
            name in names
            for batch in rows.read()
            for entries in batch.column(0).drop_null().to_pylist()
            for name, _ in entries
        )


def is_portable_mirror(paths: LakePaths, mirror: MirrorCut) -> bool:
    """Return whether the files of a mirror alone define the rows in a cut."""
    opened = open_table(*mirror.at(paths))
    return opened is not None and not unportable_features(opened)


# Tables -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _VersionFiles:
    """The files of a version of a table.

    Each file with its deleted rows; `stored` are the names of columns in the files, by their own.
    """

    files: Mapping[AnyPath, DeletionVector | None]
    schema: pa.Schema
    stored: Mapping[str, str]

    def rows(self, schema: pa.Schema) -> Rows:
        return Rows.of_files(
            list(self.files),
            schema,
            [self.stored[name] for name in schema.names],
            {path: deleted for path, deleted in self.files.items() if deleted is not None},
        )


def _files(table: AnyPath, version: int) -> _VersionFiles:
    """Return the files of a version.

    Raises:
        LakeDamagedError: it does not exist, or another program wrote it in a way that this package
            does not read.
    """
    with reading(table, version):
        state = log_state(table, version)
        if foreign := unread_features(state):
            raise damaged(table, f"another program gave it {', '.join(foreign)}")
        return _VersionFiles(
            files={file_of(table, action): vector_of(table, action) for action in state.files},
            schema=state.schema,
            stored={item["name"]: stored_name(item) for item in state.fields},
        )


def rows_as_stored(table: AnyPath, version: int) -> Rows:
    """Return the rows of a version of a mirror or a history, with all its columns, for a step."""
    files = _files(table, version)
    with reading(table, version):
        return files.rows(files.schema)


def dataset_as_stored(table: AnyPath, version: int) -> ds.Dataset | None:
    """Return the same rows unread; None if the files alone do not define them."""
    opened = open_table(table, version)
    if opened is None or unportable_features(opened):
        return None
    return dataset_of(opened, table)


def relation_of(table: AnyPath, version: int) -> str:
    """Return the relation of Spark's SQL, for a FROM, of a version of a mirror or a history."""
    return f"delta.{quoted(str(table))} VERSION AS OF {version}"
