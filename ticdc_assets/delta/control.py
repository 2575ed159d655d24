"""The small control tables of the pipeline, read without Spark.

Landings, change groups, schema registry, DDL history and cuts hold at most thousands of rows. They
are portable Delta tables, which delta-rs reads in tens of milliseconds, so a sensor reads the
progress without a JVM. Each commit carries a small JSON object (`userMetadata`, as in Spark) with
the writer's progress, committed together with the rows; objects of other writers are ignored.

Every table is opened here. Reading a damaged table raises `LakeDamagedError`. A missing table is
None, unless later tables of the changefeed exist: then it is damaged, as a sync would start again
from the beginning.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from ticdc_assets.delta.commits import COMMIT_ID, METADATA_KEY, object_of
from ticdc_assets.delta.damage import damaged, reading
from ticdc_assets.delta.delta_files import has_commits, is_ahead, lost_log, passed_over
from ticdc_assets.delta.files import open_parquet
from ticdc_assets.delta.marks import listed_once, mark_of
from ticdc_assets.storage.lake_paths import HISTORIES, MIRRORS
from ticdc_assets.storage.paths import LOG, AnyPath, RemotePath, delta_options, subtree

_Value = TypeVar("_Value")

LOG_RETENTION = "interval 3650 days"
"""How long Delta keeps log entries by default: practically forever."""


def open_table(path: AnyPath, version: int | None = None) -> DeltaTable | None:
    """Return the Delta table at `path`, or None if there is none.

    Raises:
        LakeDamagedError: it is broken or lacks the requested version; or another program gave Delta
            features (`is_portable`) to a table that is neither a mirror nor a history.
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
    """Open the table at `path` by delta-rs, which reports errors in its own words."""
    return DeltaTable(str(path), version=version, storage_options=delta_options(path))


def _at(path: AnyPath, version: int) -> DeltaTable | None:
    # Without a folder, delta-rs would create one.
    is_there = isinstance(path, RemotePath) or (path / LOG).is_dir()
    return _looked_through(path, version) if is_there else None


def _looked_through(path: AnyPath, version: int | None = None) -> DeltaTable:
    """Open a table and check that its commits since the last checkpoint are complete."""
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
    """Open a table, or return the open one if nothing was committed since.

    To open a table, delta-rs reads each commit since the last checkpoint and the statistics of each
    file; in a store, each read is a request.
    """
    # The mark is read before the table is opened: a commit in between changes the mark.
    mark = _mark(path)
    if mark is None:
        return None
    with _LOCK:
        entry = _OPENED.pop(path, None)
    # A caller that commits through an open table moves it to a later version.
    if entry is None or entry[:2] != (mark, entry[2].version()) or _is_passed(path, entry[1]):
        table = _looked_through(path)
        entry = mark, table.version(), table
    with _LOCK:
        _OPENED[path] = entry
        while len(_OPENED) > _KEPT_OPEN:
            del _OPENED[next(iter(_OPENED))]
    return entry[2]


def _mark(path: AnyPath) -> Hashable | None:
    """Return a value that changes when a table's log gets a file; None if there is no log.

    In a folder it is the time of the log, in a store its newest entry (`marks`).
    """
    if isinstance(path, RemotePath):
        return mark_of(path)
    log = path / LOG
    return log.stat().st_mtime_ns if log.is_dir() else None


def _is_passed(path: AnyPath, version: int) -> bool:
    """Return whether the mark may miss a commit."""
    # A folder's time has the ticks of a clock; the mark in a store names the commit.
    return not isinstance(path, RemotePath) and is_ahead(path, version)


_KEPT_OPEN = 64
"""How many tables a process keeps open: those of a changefeed, and some mirrors."""

_LOCK = Lock()
_OPENED: dict[AnyPath, tuple[Hashable, int, DeltaTable]] = {}
"""The open tables by path, each with its mark and version; the most recently used are last."""


_MADE_AFTER: Mapping[str, Collection[str]] = {
    "raw_messages": ("change_log", "cuts"),
    "landings": ("cuts",),
    "change_log": ("change_groups", "cuts"),
    "change_groups": ("cuts",),
    "ddl_history": ("schema_registry",),
    "schema_conflicts": ("schema_registry",),
}
"""Tables that get a commit only after the table that they are listed under."""


def _absence(path: AnyPath, version: int | None) -> str | None:
    """Return what is broken in a table without any commit; None if it may be no table yet."""
    if version is not None:
        return "its _delta_log has no commit"
    for name in _MADE_AFTER.get(path.name, ()):
        if has_commits(path.parent / name):
            return f"its _delta_log has no commit, although {name} was made after it"
    # In a store, the listing that found no table listed its log.
    return None if isinstance(path, RemotePath) and mark_of(path) is None else lost_log(path)


@contextmanager
def keeping(of: str) -> Iterator[None]:
    """Cache what is computed from a version of a table, for all callers within this block.

    The steps and checks of one sync read the same small tables repeatedly, and with thousands of
    tables these are not small. The cache lasts for one sync. Each sync opens the tables in folders
    again, so it notices a table that broke without a trace in its log's folder. In a store each log
    is listed once (`marks`). Threads that start within the block share only the open tables.

    Args:
        of: names the sync; another name clears the cache.
    """
    if of not in _KEPT:
        _KEPT.clear()
        _KEPT[of] = {}
        with _LOCK:
            for path in [path for path in _OPENED if not isinstance(path, RemotePath)]:
                del _OPENED[path]
    before = _KEEPER.set(_KEPT[of])
    try:
        with listed_once():
            yield
    finally:
        _KEEPER.reset(before)


def kept(path: AnyPath, what: str, read: Callable[[], _Value]) -> _Value:
    """Return what `read` computes from the newest version of a table, and from nothing else.

    Args:
        path: the table.
        what: what is computed; one text for one function.
        read: computes it; no caller may change the result.
    """
    store = _KEEPER.get()
    if store is None:
        return read()
    version = latest_version(path)
    cached = store.get((path, what))
    if cached is None or cached[0] != version:
        cached = store[path, what] = (version, read())
    return cached[1]


_KEPT: dict[str, dict[tuple[AnyPath, str], tuple[int | None, Any]]] = {}
_KEEPER: ContextVar[dict[tuple[AnyPath, str], tuple[int | None, Any]] | None] = ContextVar(
    "what is kept", default=None
)


def latest_version(path: AnyPath) -> int | None:
    """Return the newest version of the table at `path`; None if there is no table."""
    table = open_table(path)
    return None if table is None else table.version()


def commit_metadata(path: AnyPath) -> dict[str, Any]:
    """Return the JSON object of the newest commit that carries one, or {}."""
    found = kept(path, "metadata of its commits", lambda: find_commit_metadata(path, bool))
    return dict(found or {})


def _memory_in(commit: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON object of a commit without its id; {} if another program wrote it.

    Older versions of this package wrote no id, but counted batches, landings, cuts or TSO.
    """
    memory = object_of(commit.get(METADATA_KEY))
    if not memory.keys() & _MEMORIES:
        return {}
    return {name: value for name, value in memory.items() if name != COMMIT_ID}


_MEMORIES = {COMMIT_ID, "batch", "number", "tso"}


def find_commit_metadata(
    path: AnyPath, wanted: Callable[[dict[str, Any]], bool]
) -> dict[str, Any] | None:
    """Return the JSON object of the newest commit that carries `wanted` as its object, or None."""
    table = open_table(path)
    if table is None:
        return None
    with reading(path):
        for limit in (1, 50, None):
            for commit in table.history(limit):
                memory = _memory_in(commit)
                if memory and wanted(memory):
                    return memory
    return None


def partition_days(path: AnyPath, column: str) -> list[date]:
    """Return the values of the partition column `column`, which holds days, in order."""
    table = open_table(path)
    if table is None:
        return []
    return sorted({date.fromisoformat(item[column]) for item in table.partitions()})


def dataset_of(table: DeltaTable, path: AnyPath) -> ds.Dataset:
    """Return the dataset of an open table at `path`.

    The dataset reads files by Arrow's own file system. That of delta-rs is a Python object, which
    Arrow's threads may still hold when a short program ends; then the interpreter aborts.

    For each file it has the partition and the bounds of the columns that readers filter by
    (`_FILTERED`). delta-rs gives Arrow the bounds of all columns, which takes milliseconds for each
    file, and a table of many small commits has a file for each of them. If a file has no bounds of
    a column, delta-rs reports that none of its rows meets a condition on that column.
    """
    files = subtree(path)
    actions = pa.table(table.get_add_actions(flatten=True))
    form = ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True)
    )
    names = tuple(field.name for field in actions.schema if _is_needed(field))
    described = zip(
        *(actions[name].to_pylist() for name in ("path", "size_bytes", *names)), strict=True
    )
    fragments = [
        form.make_fragment(
            name,
            filesystem=files,
            partition_expression=_guarantee(names, tuple(values)),
            # A size that is not known here is one more request to a store.
            file_size=size,
        )
        for name, size, *values in described
    ]
    return ds.FileSystemDataset(fragments, pa.schema(table.schema().to_arrow()), form, files)


_FILTERED = frozenset({"batch", "commit_ts", "number"})
"""Columns by which readers skip files."""


def _is_needed(action: pa.Field) -> bool:
    """Return whether readers need a column of the `add` actions.

    A mirror may have a column of that name too. Only bounds of integers are exact; those of texts
    and times may be shortened.
    """
    kind, _, column = action.name.partition(".")
    bounds = kind in ("min", "max") and column in _FILTERED and pa.types.is_integer(action.type)
    return kind == "partition" or bounds


@lru_cache(maxsize=1 << 14)
def _guarantee(names: tuple[str, ...], values: tuple[Any, ...]) -> ds.Expression:
    """Return what holds for all rows of a file, from the log's statistics.

    A following run needs the same files in each sync.
    """
    guarantee = ds.scalar(True)
    for name, value in zip(names, values, strict=True):
        kind, _, column = name.partition(".")
        field = ds.field(column)
        if kind == "partition":
            guarantee &= field.is_null() if value is None else field == value
        elif value is not None:
            # Bounds cover only values that are not null.
            guarantee &= (field >= value if kind == "min" else field <= value) | field.is_null()
    return guarantee


def is_portable(table: DeltaTable) -> bool:
    """Return whether delta-rs can read and write a table by its files alone.

    Such a table has no deletion vectors, no column mapping and no newer features.
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
    """Return the rows of the table at `path`; None if there is no table."""
    table = open_table(path)
    if table is None:
        return None
    with reading(path):
        return dataset_of(table, path).to_table(columns=columns, filter=condition)


def read_leaves(
    path: AnyPath, leaves: Collection[str], *, column: str, least: int
) -> Iterator[pa.RecordBatch]:
    """Yield chosen leaves of the files that may hold rows with `column` at or above `least`.

    Only the chosen leaves of a column of structs are read; the other readers here read all of them.
    A file may also have rows below `least`, so the caller filters.

    Args:
        path: the table.
        leaves: columns by name; a field of a struct or of a list of structs as `column.field`.
        column: a column of integers by whose statistics files are skipped.
        least: the smallest wanted value.
    """
    table = open_table(path)
    if table is None:
        return
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        greatest = action.get(f"max.{column}")
        if greatest is not None and greatest < least:
            continue
        with reading(path), open_parquet(path / action["path"]) as file:
            leaves_of_file = (
                file.schema.column(number).path for number in range(len(file.schema.names))
            )
            chosen = [leaf for leaf in leaves_of_file if _without_lists(leaf) in leaves]
            yield from file.iter_batches(batch_size=256, columns=chosen, use_threads=False)


def _without_lists(leaf: str) -> str:
    """Return a leaf's path as callers write it; in files, Parquet also names levels of lists."""
    return _LIST_LEVEL.sub("", leaf)


_LIST_LEVEL = re.compile(r"\.list\.(?:element|item)(?=\.|$)")


def read_rows(
    path: AnyPath, condition: ds.Expression | None = None, *, columns: list[str] | None = None
) -> list[dict[str, Any]]:
    """Return some or all columns of the table at `path` as dicts; [] if there is no table."""
    table = read_table(path, condition, columns=columns)
    if table is None:
        return []
    return table.to_pylist()
