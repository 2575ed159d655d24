"""The small control tables of the pipeline, read without Spark.

Landings, change groups, schema registry, DDL history and cuts hold at most thousands of rows. They
are portable Delta tables, so a sensor reads the progress without a JVM. Each commit carries a small
JSON object (`userMetadata`, as in Spark) with the writer's progress; objects of other writers are
ignored. Nothing is written.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import date
from functools import lru_cache
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.base.names import counted
from ticdc_assets.delta.damage import damaged, reading
from ticdc_assets.delta.delta_files import name_of
from ticdc_assets.delta.delta_protocol import LogState, memory_of, partition_of
from ticdc_assets.delta.files import open_parquet
from ticdc_assets.delta.log_reading import commit_actions, versions_of
from ticdc_assets.delta.opening import kept, open_table
from ticdc_assets.storage.paths import AnyPath, subtree

LOG_RETENTION = "interval 3650 days"
"""How long Delta keeps log entries by default: practically forever."""


def commit_metadata(path: AnyPath) -> dict[str, Any]:
    """Return the JSON object of the newest commit that carries one, or {}."""
    # A state that begins with a checkpoint has no objects of commits: these are searched.
    return dict(kept(path, "metadata of its commits", lambda: _newest_metadata(path)))


def _newest_metadata(path: AnyPath) -> Mapping[str, Any]:
    table = open_table(path)
    if table is None or table.memory:
        return {} if table is None else table.memory
    with reading(path):
        for version in reversed(versions_of(path)):
            for action in commit_actions(path, version):
                if memory := memory_of(action.get("commitInfo", {})):
                    return memory
    return {}


def partition_days(path: AnyPath, column: str) -> list[date]:
    """Return the values of the partition column `column`, which holds days, in order."""
    table = open_table(path)
    files = () if table is None else table.files
    values = (partition_of(item).get(column) for item in files)
    return sorted({date.fromisoformat(value) for value in values if value})


def dataset_of(table: LogState, path: AnyPath) -> ds.Dataset:
    """Return the dataset of a version of the table at `path`, with what the log says of files."""
    files = subtree(path)
    form = ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True)
    )
    types = tuple((name, table.schema.field(name).type) for name in table.partition_columns)
    # A mirror may have a DECIMAL of that name; delta-rs bounds those by 64-bit integers.
    bounded = tuple(
        item.name
        for item in table.schema
        if item.name in _FILTERED and pa.types.is_integer(item.type)
    )
    fragments = [
        form.make_fragment(
            name_of(action),
            filesystem=files,
            partition_expression=_guarantee(
                types,
                tuple(partition_of(action).get(name) for name, _ in types),
                bounded,
                action.get("stats"),
            ),
            # A size that is not known here is one more request to a store.
            file_size=action["size"],
        )
        for action in table.files
    ]
    return ds.FileSystemDataset(fragments, table.schema, form, files)


_FILTERED = ("batch", "commit_ts", "number")
"""Columns by which readers skip files."""


@lru_cache(maxsize=1 << 14)
def _guarantee(
    types: tuple[tuple[str, pa.DataType], ...],
    values: tuple[str | None, ...],
    bounded: tuple[str, ...],
    stats: str | None,
) -> ds.Expression:
    """Return what holds for all rows of a file, from the log's statistics.

    A following run needs the same files in each sync.
    """
    guarantee = ds.scalar(True)
    for (name, kind), value in zip(types, values, strict=True):
        field = ds.field(name)
        guarantee &= field == pa.scalar(value).cast(kind) if value else field.is_null()
    for name in bounded:
        low, high = bounds_in(stats, name)
        field = ds.field(name)
        # Bounds cover only values that are not null.
        if low is not None:
            guarantee &= (field >= low) | field.is_null()
        if high is not None:
            guarantee &= (field <= high) | field.is_null()
    return guarantee


@lru_cache(maxsize=1 << 14)
def bounds_in(stats: str | None, name: str) -> tuple[int | None, int | None]:
    """Return the bounds of a column of integers by a file's statistics; None for an unknown one.

    A mirror may have a column of that name too, of another type. Only bounds of integers are exact:
    those of texts and times may be shortened.
    """
    said = orjson.loads(stats) if stats else {}
    low, high = ((said.get(kind) or {}).get(name) for kind in ("minValues", "maxValues"))
    return (low if type(low) is int else None), (high if type(high) is int else None)


def read_table(
    path: AnyPath, condition: ds.Expression | None = None, *, columns: list[str] | None = None
) -> pa.Table | None:
    """Return the rows of the table at `path`; None if there is no table."""
    table = open_table(path)
    if table is None:
        return None
    with reading(path):
        return dataset_of(table, path).to_table(columns=columns, filter=condition)


def read_leaves(path: AnyPath, leaves: Collection[str], *, least: int) -> Iterator[pa.RecordBatch]:
    """Yield chosen leaves of the files that may hold rows with a `number` at or above `least`.

    The other readers here read all leaves of a column. A file may also have rows below `least`, so
    the caller filters. A leaf is a column, or a field of its structs as `column.field`.
    """
    table = open_table(path)
    if table is None:
        return
    for action in table.files:
        _, greatest = bounds_in(action.get("stats"), "number")
        if greatest is not None and greatest < least:
            continue
        with reading(path), open_parquet(path / name_of(action)) as file:
            there = (file.schema.column(number).path for number in range(len(file.schema.names)))
            # In files, Parquet also names levels of lists.
            chosen = [leaf for leaf in there if _LIST_LEVEL.sub("", leaf) in leaves]
            yield from file.iter_batches(batch_size=256, columns=chosen, use_threads=False)


_LIST_LEVEL = re.compile(r"\.list\.(?:element|item)(?=\.|$)")


def read_rows(
    path: AnyPath, condition: ds.Expression | None = None, *, columns: list[str] | None = None
) -> list[dict[str, Any]]:
    """Return some or all columns of the table at `path` as dicts; [] if there is no table."""
    table = read_table(path, condition, columns=columns)
    return [] if table is None else table.to_pylist()


def newest_row(path: AnyPath) -> dict[str, Any] | None:
    """Return the row of the number in the newest commit of a table of numbered rows, or None."""
    number = commit_metadata(path).get("number")
    if number is None:
        return None
    rows = read_rows(path, ds.field("number") == number)
    if len(rows) != 1:
        what = f"{counted(len(rows), 'row')} with number {number}, which is its newest"
        raise damaged(path, f"it has {what}")
    return rows[0]
