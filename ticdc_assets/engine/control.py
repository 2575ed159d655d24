"""Small tables that steer the pipeline, read and written without Spark.

Landings, change groups, schema registry, DDL history and cuts hold at most thousands of rows. They
are portable Delta tables (no column mapping, no deletion vectors), so delta-rs reads them in tens
of milliseconds: a sensor or a check looks at progress without a JVM, and a sync does not pay
Spark's planning for ten rows. Each commit carries a small JSON object (`userMetadata`, where Spark
puts it too), which says how far the writer has got; that, and not a file beside the table, is the
memory of progress, because it is committed with the rows or not at all. An object that another
writer's commit carries is no memory of ours.

Every table is opened here, so here is where a broken one becomes a `LakeDamagedError`. A table
that is not there is None; one whose log is gone while others of the changefeed were made after it
is broken, or a sync would begin again where it had begun once.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from ticdc_assets.engine.commits import COMMIT_ID, METADATA_KEY, named_properties, object_of
from ticdc_assets.engine.deletion_vectors import DeletionVectorError
from ticdc_assets.engine.delta_files import broken, has_commits, lost_log, passed_over
from ticdc_assets.engine.repairs import damaged

LOG_RETENTION = "interval 3650 days"
"""How long Delta keeps log entries where nothing asks for less: as good as for ever."""


def open_table(path: Path, version: int | None = None) -> DeltaTable | None:
    """Return the Delta table at `path`, or None if there is none.

    Raises:
        LakeDamagedError: it is broken, or lacks the version that is asked for.
    """
    table = None
    with reading(path, version):
        if (path / "_delta_log").is_dir():
            try:
                table = DeltaTable(str(path), version=version)
            except TableNotFoundError:
                table = None
    if table is None:
        finding = _absence(path, version)
        if finding is not None:
            raise damaged(path, finding)
        return None
    finding = passed_over(path, table.version())
    if finding is not None:
        raise damaged(path, finding)
    return table


_MADE_AFTER: Mapping[str, Collection[str]] = {
    "raw_messages": ("change_log", "cuts"),
    "landings": ("cuts",),
    "change_log": ("change_groups", "cuts"),
    "change_groups": ("cuts",),
    "ddl_history": ("schema_registry",),
    "schema_conflicts": ("schema_registry",),
}
"""Tables that have a commit only if the table that they stand for has had one."""


def _absence(path: Path, version: int | None) -> str | None:
    """Return what is broken in a table without any commit, None if it may be no table yet."""
    if version is not None:
        return "its _delta_log has no commit"
    for name in _MADE_AFTER.get(path.name, ()):
        if has_commits(path.parent / name):
            return f"its _delta_log has no commit, though {name} was made after it"
    return lost_log(path)


@contextmanager
def reading(path: Path, version: int | None = None) -> Iterator[None]:
    """Turn what the libraries say of a broken table into the error that says what repairs it."""
    try:
        yield
    except TableNotFoundError:
        raise
    except (DeltaError, DeletionVectorError, pa.ArrowException, OSError) as error:
        finding = broken(path, version, footers=True)
        if finding is None and not isinstance(error, OSError):
            finding = f"it cannot be read: {words_of(error)}"
        if finding is None:
            raise
        raise damaged(path, finding) from error


def words_of(error: Exception) -> str:
    """Return what an error of a library says first, without colours and within reason."""
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= _ERROR_CHARACTERS else text[: _ERROR_CHARACTERS - 1] + "…"


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ERROR_CHARACTERS = 300


def latest_version(path: Path) -> int | None:
    """Return the newest version of the table at `path`, or None if there is none."""
    table = open_table(path)
    return None if table is None else table.version()


def commit_metadata(path: Path) -> dict[str, Any]:
    """Return the JSON object of the newest commit that carries one, or {}."""
    table = open_table(path)
    if table is None:
        return {}
    with reading(path):
        for limit in (1, 50, None):
            for commit in table.history(limit):
                found = _memory_in(commit)
                if found:
                    return found
    return {}


def _memory_in(commit: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object of a commit without the commit's id, {} if it is another writer's.

    What older versions of this package wrote has no id, but counts batches, landings, cuts or TSO.
    """
    found = object_of(commit.get(METADATA_KEY))
    if not found.keys() & _MEMORIES:
        return {}
    return {name: value for name, value in found.items() if name != COMMIT_ID}


_MEMORIES = {COMMIT_ID, "batch", "number", "tso"}


def find_commit_metadata(
    path: Path, wanted: Callable[[dict[str, Any]], bool]
) -> dict[str, Any] | None:
    """Return the JSON object of the newest commit whose object is `wanted`, or None."""
    table = open_table(path)
    if table is None:
        return None
    with reading(path):
        for limit in (50, None):
            for commit in table.history(limit):
                found = _memory_in(commit)
                if found and wanted(found):
                    return found
    return None


def partition_days(path: Path, column: str) -> list[date]:
    """Return the values of the partition column `column`, which holds days, in order."""
    table = open_table(path)
    if table is None:
        return []
    return sorted({date.fromisoformat(item[column]) for item in table.partitions()})


def dataset_of(table: DeltaTable, path: Path) -> ds.Dataset:
    """Return the dataset of an open table at `path`.

    It reads files by Arrow's own file system. That of delta-rs is a Python object, which Arrow's
    threads may still hold when a short program ends, and then the interpreter aborts.
    """
    files = pyarrow.fs.SubTreeFileSystem(str(path), pyarrow.fs.LocalFileSystem())
    return table.to_pyarrow_dataset(filesystem=files)


def is_portable(table: DeltaTable) -> bool:
    """Return whether a table has nothing that its files do not tell, or that delta-rs cannot write.

    It has no deletion vectors, no mapping of columns and nothing newer.
    """
    protocol = table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if not features:
        return protocol.min_reader_version == 1 and protocol.min_writer_version <= 2
    return features <= _PORTABLE_FEATURES


_PORTABLE_FEATURES = frozenset({"timestampNtz", "appendOnly", "invariants"})


def read_table(
    path: Path, condition: ds.Expression | None = None, *, columns: list[str] | None = None
) -> pa.Table | None:
    """Return the rows of the table at `path`, or None if there is none."""
    table = open_table(path)
    if table is None:
        return None
    with reading(path):
        return dataset_of(table, path).to_table(columns=columns, filter=condition)


def read_leaves(
    path: Path, leaves: Collection[str], *, column: str, least: int
) -> Iterator[pa.RecordBatch]:
    """Yield chosen leaves of the files that may hold rows with `column` at or above `least`.

    A column of structs is read only as far as its leaves are chosen; the other readers here read
    all of it. Rows below `least` may be among those of a file, so the caller filters.

    Args:
        path: the table.
        leaves: columns by name; a field of a struct or of a list of structs as `column.field`.
        column: a whole number by whose statistics files are left out.
        least: see above.
    """
    table = open_table(path)
    if table is None:
        return
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        greatest = action.get(f"max.{column}")
        if greatest is not None and greatest < least:
            continue
        with reading(path), pq.ParquetFile(path / action["path"]) as file:
            found = (file.schema.column(number).path for number in range(len(file.schema.names)))
            chosen = [leaf for leaf in found if _without_lists(leaf) in leaves]
            yield from file.iter_batches(batch_size=256, columns=chosen, use_threads=False)


def _without_lists(leaf: str) -> str:
    """Return a leaf's path in a file as one writes it: Parquet names the levels of lists too."""
    return _LIST_LEVEL.sub("", leaf)


_LIST_LEVEL = re.compile(r"\.list\.(?:element|item)(?=\.|$)")


def read_rows(path: Path, condition: ds.Expression | None = None) -> list[dict[str, Any]]:
    """Return the rows of the table at `path` as dicts; [] if there is none."""
    table = read_table(path, condition)
    return [] if table is None else table.to_pylist()


def write_table(
    path: Path, rows: pa.Table, *, overwrite: bool, metadata: Mapping[str, Any]
) -> None:
    """Append `rows`, or put them in place of all, in one commit that carries `metadata`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_deltalake(
        str(path),
        rows,
        mode="overwrite" if overwrite else "append",
        schema_mode="overwrite" if overwrite else "merge",
        configuration={"delta.checkpointInterval": "20"},
        commit_properties=named_properties(metadata),
    )
