"""The small control tables of the pipeline, read and written without Spark.

Landings, change groups, schema registry, DDL history and cuts hold at most thousands of rows. They
are portable Delta tables (no column mapping, no deletion vectors), so delta-rs reads them in tens
of milliseconds: a sensor or a check reads the progress without a JVM, and a sync does not pay for
Spark's planning of ten rows. Each commit carries a small JSON object (`userMetadata`, as in Spark)
with the writer's progress. The progress is stored there and not in a separate file, because it is
committed together with the rows. Objects of other writers' commits are ignored.

Every table is opened here; where a damaged one is read, that is a `LakeDamagedError` (`damage`). A
missing table is None. A table whose log is gone although later tables of the changefeed exist is
damaged; otherwise a sync would start again from the beginning.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from ticdc_assets.delta.commits import (
    COMMIT_ID,
    METADATA_KEY,
    NamedCommit,
    creating_properties,
    object_of,
)
from ticdc_assets.delta.damage import damaged, reading
from ticdc_assets.delta.delta_files import has_commits, is_ahead, lost_log, passed_over
from ticdc_assets.delta.fencing import LEASE
from ticdc_assets.delta.files import open_parquet
from ticdc_assets.storage.lake_paths import HISTORIES, MIRRORS
from ticdc_assets.storage.paths import LOG, AnyPath, RemotePath, delta_options, subtree

_Value = TypeVar("_Value")

LOG_RETENTION = "interval 3650 days"
"""How long Delta keeps log entries where nothing asks for less: as good as for ever."""


def open_table(path: AnyPath, version: int | None = None) -> DeltaTable | None:
    """Return the Delta table at `path`, or None if there is none.

    Raises:
        LakeDamagedError: it is broken, or lacks the version that is asked for; or it is no mirror
            and no history, and another program gave it features of Delta (`is_portable`).
    """
    with reading(path, version):
        try:
            table = _newest(path) if version is None else _at(path, version)
        except TableNotFoundError:
            table = None
    if table is None and (finding := _absence(path, version)) is not None:
        raise damaged(path, finding)
    return table


def opened(path: AnyPath, version: int | None = None) -> DeltaTable:
    """Open the table at `path` by delta-rs, which says in its own words what is wrong with it."""
    return DeltaTable(str(path), version=version, storage_options=delta_options(path))


def _at(path: AnyPath, version: int) -> DeltaTable | None:
    # Where there is no folder, delta-rs would make one.
    is_there = isinstance(path, RemotePath) or (path / LOG).is_dir()
    return _looked_through(path, version) if is_there else None


def _looked_through(path: AnyPath, version: int | None = None) -> DeltaTable:
    """Open a table whose commits since the last checkpoint are all there."""
    table = opened(path, version)
    finding = passed_over(path, table.version())
    if finding is None and path.parent.name not in (MIRRORS, HISTORIES) and not is_portable(table):
        protocol = table.protocol()
        named = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        foreign = ", ".join(sorted(named - _PORTABLE_FEATURES)) or (
            f"protocol {protocol.min_reader_version}, {protocol.min_writer_version}"
        )
        finding = f"another program gave it features of Delta that only mirrors have ({foreign})"
    if finding is not None:
        raise damaged(path, finding)
    return table


def _newest(path: AnyPath) -> DeltaTable | None:
    """Open a table, or give the one that was opened before if nothing was committed since.

    To open it, delta-rs reads each commit since the last checkpoint and what each file holds; in a
    store, each of them is a question.
    """
    # Before the table is opened: a commit that comes meanwhile makes another mark.
    mark = _mark(path)
    if mark is None:
        return None
    with _LOCK:
        known = _OPENED.pop(path, None)
    # Who commits by an open table brings it to a later version.
    if known is None or known[:2] != (mark, known[2].version()) or _is_passed(path, known[1]):
        table = _looked_through(path)
        known = mark, table.version(), table
    with _LOCK:
        _OPENED[path] = known
        while len(_OPENED) > _KEPT_OPEN:
            del _OPENED[next(iter(_OPENED))]
    return known[2]


def _mark(path: AnyPath) -> Hashable | None:
    """Return a value that changes when a file comes into a table's log; None if there is no log.

    In a folder it is the time of the log; in a store the number, size and time of the newest
    commit, by which a table that was made anew in this place is another one.
    """
    if isinstance(path, RemotePath):
        listed = (path / LOG).listed(deep=False)
        commits = [
            (entry.name, info.size, info.mtime_ns)
            for entry, info in listed
            if entry.name.endswith(".json") and entry.name[:-5].isdigit()
        ]
        # Without a commit it begins with a checkpoint, or is damaged.
        return max(commits, default="") if listed else None
    log = path / LOG
    return log.stat().st_mtime_ns if log.is_dir() else None


def _is_passed(path: AnyPath, version: int) -> bool:
    """Return whether there is a commit that the mark may not tell."""
    # A folder's time has the ticks of a clock; the mark of a store names the commit.
    return not isinstance(path, RemotePath) and is_ahead(path, version)


_KEPT_OPEN = 64
"""Tables that a process keeps open: those of a changefeed, and some mirrors."""

_LOCK = Lock()
_OPENED: dict[AnyPath, tuple[Hashable, int, DeltaTable]] = {}
"""By its place a table that was opened, with its mark and its version; the last used are last."""


_MADE_AFTER: Mapping[str, Collection[str]] = {
    "raw_messages": ("change_log", "cuts"),
    "landings": ("cuts",),
    "change_log": ("change_groups", "cuts"),
    "change_groups": ("cuts",),
    "ddl_history": ("schema_registry",),
    "schema_conflicts": ("schema_registry",),
}
"""Tables that have a commit only if the table that they stand for has had one."""


def _absence(path: AnyPath, version: int | None) -> str | None:
    """Return what is broken in a table without any commit, None if it may be no table yet."""
    if version is not None:
        return "its _delta_log has no commit"
    for name in _MADE_AFTER.get(path.name, ()):
        if has_commits(path.parent / name):
            return f"its _delta_log has no commit, though {name} was made after it"
    return lost_log(path)


@contextmanager
def keeping(of: str) -> Iterator[None]:
    """Keep what is worked out of a version of a table, for whoever asks again within this.

    The steps and checks of one sync ask for the same small tables again and again, which with
    thousands of tables are not small. Nothing is kept but for one sync, and each opens the tables
    in folders itself: one that was broken without a trace in its log's folder is noticed. Threads
    that are begun within it keep nothing but open tables.

    Args:
        of: names the sync; another name forgets what was kept.
    """
    if of not in _KEPT:
        _KEPT.clear()
        _KEPT[of] = {}
        with _LOCK:
            for path in [path for path in _OPENED if not isinstance(path, RemotePath)]:
                del _OPENED[path]
    before = _KEEPER.set(_KEPT[of])
    try:
        yield
    finally:
        _KEEPER.reset(before)


def kept(
    path: AnyPath, what: str, read: Callable[[], _Value], *, version: int | None = None
) -> _Value:
    """Return what `read` makes of a version of a table, and of nothing else.

    Args:
        path: the table.
        what: what is made of it; one text for one function.
        read: makes it; nobody may change what it returns.
        version: the version; the newest if None.
    """
    store = _KEEPER.get()
    if store is None:
        return read()
    if version is None:
        version = latest_version(path)
    found = store.get((path, what))
    if found is None or found[0] != version:
        found = store[path, what] = (version, read())
    return found[1]


_KEPT: dict[str, dict[tuple[AnyPath, str], tuple[int | None, Any]]] = {}
_KEEPER: ContextVar[dict[tuple[AnyPath, str], tuple[int | None, Any]] | None] = ContextVar(
    "what is kept", default=None
)


def latest_version(path: AnyPath) -> int | None:
    """Return the newest version of the table at `path`, or None if there is none."""
    table = open_table(path)
    return None if table is None else table.version()


def commit_metadata(path: AnyPath) -> dict[str, Any]:
    """Return the JSON object of the newest commit that carries one, or {}."""
    return dict(kept(path, "metadata of its commits", lambda: _newest_memory(path)))


def _newest_memory(path: AnyPath) -> dict[str, Any]:
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
    """Return the JSON object of a commit without its names, {} if it is another writer's.

    What older versions of this package wrote has no id, but counts batches, landings, cuts or TSO.
    """
    found = object_of(commit.get(METADATA_KEY))
    if not found.keys() & _MEMORIES:
        return {}
    return {name: value for name, value in found.items() if name not in (COMMIT_ID, LEASE)}


_MEMORIES = {COMMIT_ID, "batch", "number", "tso"}


def find_commit_metadata(
    path: AnyPath, wanted: Callable[[dict[str, Any]], bool]
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


def partition_days(path: AnyPath, column: str) -> list[date]:
    """Return the values of the partition column `column`, which holds days, in order."""
    table = open_table(path)
    if table is None:
        return []
    return sorted({date.fromisoformat(item[column]) for item in table.partitions()})


def dataset_of(table: DeltaTable, path: AnyPath) -> ds.Dataset:
    """Return the dataset of an open table at `path`.

    It reads files by Arrow's own file system. That of delta-rs is a Python object, which Arrow's
    threads may still hold when a short program ends, and then the interpreter aborts.

    Of a file it knows the partition and the bounds of the columns that readers ask for (`_ASKED`).
    delta-rs tells Arrow the bounds of all columns, which takes milliseconds for each file, and a
    table of many small commits has a file for each of them. Where a file has no bounds of a column,
    by what delta-rs tells no row of it meets a condition on that column.
    """
    files = subtree(path)
    actions = pa.table(table.get_add_actions(flatten=True))
    form = ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True)
    )
    names = tuple(field.name for field in actions.schema if _tells(field))
    told = zip(*(actions[name].to_pylist() for name in ("path", *names)), strict=True)
    fragments = [
        form.make_fragment(
            name, filesystem=files, partition_expression=_guarantee(names, tuple(values))
        )
        for name, *values in told
    ]
    return ds.FileSystemDataset(fragments, pa.schema(table.schema().to_arrow()), form, files)


_ASKED = frozenset({"batch", "commit_ts", "number"})
"""Columns by which readers leave out files."""


def _tells(action: pa.Field) -> bool:
    """Return whether readers need a column of the actions that add files.

    A mirror may have a column of such a name too. Only bounds of integers are exact: those of texts
    and times may be shortened.
    """
    kind, _, column = action.name.partition(".")
    bounds = kind in ("min", "max") and column in _ASKED and pa.types.is_integer(action.type)
    return kind == "partition" or bounds


@lru_cache(maxsize=1 << 14)
def _guarantee(names: tuple[str, ...], values: tuple[Any, ...]) -> ds.Expression:
    """Return what is true of all rows of a file, by what the log tells of it.

    A run that follows asks for the same files at each sync.
    """
    found = ds.scalar(True)
    for name, value in zip(names, values, strict=True):
        kind, _, column = name.partition(".")
        field = ds.field(column)
        if kind == "partition":
            found &= field.is_null() if value is None else field == value
        elif value is not None:
            # Bounds are those of the values that are there.
            found &= (field >= value if kind == "min" else field <= value) | field.is_null()
    return found


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
    path: AnyPath, condition: ds.Expression | None = None, *, columns: list[str] | None = None
) -> pa.Table | None:
    """Return the rows of the table at `path`, or None if there is none."""
    table = open_table(path)
    if table is None:
        return None
    with reading(path):
        return dataset_of(table, path).to_table(columns=columns, filter=condition)


def read_leaves(
    path: AnyPath, leaves: Collection[str], *, column: str, least: int
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
        with reading(path), open_parquet(path / action["path"]) as file:
            found = (file.schema.column(number).path for number in range(len(file.schema.names)))
            chosen = [leaf for leaf in found if _without_lists(leaf) in leaves]
            yield from file.iter_batches(batch_size=256, columns=chosen, use_threads=False)


def _without_lists(leaf: str) -> str:
    """Return a leaf's path in a file as one writes it: Parquet names the levels of lists too."""
    return _LIST_LEVEL.sub("", leaf)


_LIST_LEVEL = re.compile(r"\.list\.(?:element|item)(?=\.|$)")


def read_rows(
    path: AnyPath, condition: ds.Expression | None = None, *, columns: list[str] | None = None
) -> list[dict[str, Any]]:
    """Return the rows of the table at `path` as dicts, of some columns or all; [] if none is."""
    table = read_table(path, condition, columns=columns)
    if table is None:
        return []
    names, values = table.column_names, map(_values, table.columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values; Arrow takes four microseconds for each moment, so each once."""
    if not pa.types.is_timestamp(column.type) or not len(column):
        return column.to_pylist()
    found = column.dictionary_encode().combine_chunks()
    moments = found.dictionary.to_pylist()
    return [None if at is None else moments[at] for at in found.indices.to_pylist()]


def write_table(
    path: AnyPath, rows: pa.Table, *, overwrite: bool, metadata: Mapping[str, Any]
) -> None:
    """Append `rows`, or put them in place of all, in one commit that carries `metadata`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    configuration = {"delta.checkpointInterval": "20"}
    commit = NamedCommit(path, metadata)
    there = open_table(path)
    if there is None and commit.is_fenced:
        there = create_empty(path, rows.schema, configuration=configuration)
    with commit.on(there) as properties:
        write_deltalake(
            str(path) if there is None else there,
            rows,
            mode="overwrite" if overwrite else "append",
            schema_mode="overwrite" if overwrite else "merge",
            configuration=configuration,
            storage_options=delta_options(path),
            commit_properties=properties,
        )


def create_empty(
    path: AnyPath,
    schema: pa.Schema,
    *,
    partition_by: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
) -> DeltaTable:
    """Make a table without rows, if there is none yet, and return it.

    It is for writers under a lease: see `creating_properties`.
    """
    path.mkdir(parents=True, exist_ok=True)
    try:
        DeltaTable.create(
            str(path),
            Schema.from_arrow(schema),
            mode="ignore",
            partition_by=list(partition_by),
            configuration=configuration,
            storage_options=delta_options(path),
            commit_properties=creating_properties(),
        )
    except DeltaError:
        made = open_table(path)
        if made is None:
            raise
        return made  # another process was faster
    made = open_table(path)
    assert made is not None
    return made
