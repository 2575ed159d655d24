"""Finding rows: the places, in the files of a mirror or a history, of rows with certain keys.

In: keys as typed columns (`Keys`), and a data file with the vector that it has. Out: the positions
of the rows that have one of the keys, and the key of each. Key columns are read one after the
other, until none matches. Statistics exclude whole row groups. It is a function over one file, so
it runs in this process and in Spark's workers.

Two values are the same if Arrow says so; NULL is the same as NULL, and -0 as 0. A value that a
typed column cannot hold is NULL there, and its exact text is in the rescued data; then the texts
are compared too. In a table without a key, all columns are the key, and a key may have many rows.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ticdc_assets.delta.delta_protocol import DeletionVector, Positions
from ticdc_assets.delta.files import open_parquet
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.storage.paths import AnyPath

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Step:
    """How one more column distinguishes the keys.

    Attributes:
        name: the column; with `is_text` its texts in the rescued data.
        is_text: whether these are texts of the rescued data.
        values: the values that keys have in it, each once.
        pairs: the beginnings that keys have up to this column, each once, as sorted numbers: the
            number of the beginning before this column, times the number of values, plus the place
            of the value.
    """

    name: str
    is_text: bool
    values: pa.Array
    pairs: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Keys to search rows by.

    Attributes:
        steps: the columns, one after the other.
        numbers: for each key, as the steps number it, its row in the table that it came from.
        least: the smallest value of the first column, if its type has an order in files'
            statistics.
        greatest: the greatest value, likewise.
    """

    steps: Sequence[_Step]
    numbers: Numbers
    least: object = None
    greatest: object = None

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def first(self) -> str:
        """Name of the first column."""
        return self.steps[0].name

    def may_be_between(self, least: object, greatest: object) -> bool:
        """Return whether a key may be between two bounds of the first column, None if unknown."""
        low: Any = self.least
        high: Any = self.greatest
        if type(least) is not type(low) or type(greatest) is not type(high):
            return True
        return low is None or (least <= high and greatest >= low)  # pyright: ignore[reportOperatorIssue]


def keys_of(rows: pa.Table, columns: Sequence[str], inexact: Collection[str], rescued: str) -> Keys:
    """Return the keys of rows; no two rows have the same key.

    Args:
        rows: the rows.
        columns: names of the key columns.
        inexact: the key columns whose values may be in the rescued data.
        rescued: name of the column of rescued data.
    """
    steps: list[_Step] = []
    beginnings = np.zeros(rows.num_rows, np.int64)

    def add(name: str, values: pa.Array, *, is_text: bool) -> None:
        nonlocal beginnings
        distinct = pc.unique(values)
        places = _index_in(values, distinct)
        pairs = beginnings * len(distinct) + places
        distinct_pairs, beginnings = np.unique(pairs, return_inverse=True)
        steps.append(_Step(name, is_text, distinct, distinct_pairs))

    for name in columns:
        values = comparable(rows[name])
        add(name, values, is_text=False)
        if name in inexact and values.null_count:
            add(name, _texts(rows[rescued], name), is_text=True)
    numbers = np.empty(rows.num_rows, np.int64)
    numbers[beginnings] = np.arange(rows.num_rows)
    least = greatest = None
    first = rows[columns[0]]
    if not first.null_count and (pa.types.is_integer(first.type) or pa.types.is_string(first.type)):
        least, greatest = pc.min_max(first).as_py().values()
    return Keys(steps=steps, numbers=numbers, least=least, greatest=greatest)


def comparable(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return values that Arrow can look up, the same for the same values: -0 is 0."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, values.type)
    if pa.types.is_floating(values.type):
        bits = pa.int64() if pa.types.is_float64(values.type) else pa.int32()
        return pc.add(values, pa.scalar(0.0, values.type)).view(bits)
    if not pa.types.is_list(values.type):
        return values
    # Vectors become the bytes of their elements.
    elements = values.flatten().to_numpy(zero_copy_only=False)
    sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(elements.itemsize * sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(elements))]
    texts = pa.Array.from_buffers(pa.large_binary(), len(values), buffers)
    return pc.if_else(values.is_valid(), texts, None)


def _index_in(values: pa.Array, distinct: pa.Array) -> Numbers:
    """Return where in `distinct` each value is, -1 if nowhere."""
    return pc.index_in(values, value_set=distinct).fill_null(-1).to_numpy().astype(np.int64)


def _texts(rescued: pa.ChunkedArray | pa.Array, name: str) -> pa.Array:
    """Return the text of a column in the rescued data of each row."""
    maps = rescued.to_pylist() if rescued.null_count < len(rescued) else []
    texts = [dict(entries).get(name) if entries else None for entries in maps]
    return pa.array(texts, pa.string()) if texts else pa.nulls(len(rescued), pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRows:
    """Rows of a file that have one of the keys.

    Attributes:
        positions: their numbers in the file, ascending.
        keys: the number of the key of each.
    """

    positions: Positions
    keys: Numbers

    def where(self, chosen: npt.NDArray[np.bool_]) -> "FoundRows":
        """Return the rows whose key is chosen, by the key's number."""
        is_chosen = chosen[self.keys]
        return FoundRows(positions=self.positions[is_chosen], keys=self.keys[is_chosen])


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedFile:
    """A file in which rows are searched.

    Attributes:
        path: where it is.
        deleted: which of its rows are deleted already.
        stored: for each column that may be read, its name in the file.
        types: and its type in the table.
        current: a column that is NULL in the rows to search; None to search all rows.
        rescued: the column of rescued data.
    """

    path: AnyPath
    deleted: DeletionVector | None
    stored: Mapping[str, str]
    types: Mapping[str, pa.DataType] = field(default_factory=dict[str, pa.DataType])
    current: str | None = None
    rescued: str = ""


def find(file: SearchedFile, keys: Keys) -> FoundRows:
    """Return the rows of a file that have one of the keys."""
    positions: list[Positions] = [np.empty(0, np.int64)]
    numbers: list[Numbers] = [np.empty(0, np.int64)]
    if len(keys):
        with open_parquet(file.path) as opened:
            for first, groups in _spans(opened, file, keys):
                places, key_numbers = _find_in(opened, file, first, groups, keys)
                positions.append(places)
                numbers.append(key_numbers)
    return FoundRows(positions=np.concatenate(positions), keys=np.concatenate(numbers))


_SPAN_ROWS = 1_000_000
_SPAN_BYTES = 64 << 20
"""About how many rows, and bytes of the first key column, are searched at a time."""


def _spans(
    opened: pq.ParquetFile, file: SearchedFile, keys: Keys
) -> Iterator[tuple[int, list[int]]]:
    """Yield adjacent row groups that may have one of the keys, after the number of their first row.

    So many are searched at once.
    """
    stored = file.stored[keys.first]
    groups: list[int] = []
    place = first = rows = size = 0
    for number in range(opened.num_row_groups):
        group = opened.metadata.row_group(number)
        columns = map(group.column, range(group.num_columns))
        column = next((item for item in columns if item.path_in_schema == stored), None)
        bounds = column.statistics if column is not None and column.is_stats_set else None
        may_have = True
        if bounds is not None and bounds.has_min_max:
            may_have = keys.may_be_between(bounds.min, bounds.max)
        if groups and (rows >= _SPAN_ROWS or size >= _SPAN_BYTES or not may_have):
            yield first, groups
            groups = []
        if may_have:
            if not groups:
                first, rows, size = place, 0, 0
            groups.append(number)
            rows += group.num_rows
            size += 0 if column is None else column.total_uncompressed_size
        place += group.num_rows
    if groups:
        yield first, groups


def _find_in(
    opened: pq.ParquetFile, file: SearchedFile, first: int, groups: list[int], keys: Keys
) -> tuple[Positions, Numbers]:
    """Return the rows of adjacent row groups, whose first row is `first`, with one of the keys."""
    count = sum(opened.metadata.row_group(number).num_rows for number in groups)
    places = np.arange(count)
    beginnings = np.zeros(count, np.int64)

    def column(name: str) -> pa.Array:
        """Return a column as the table has it, at `places`; NULL where the file has none."""
        stored, wanted = file.stored[name], file.types[name]
        if stored not in opened.schema_arrow.names:
            return pa.nulls(len(places), wanted)
        array = opened.read_row_groups(groups, columns=[stored], use_threads=False).column(0)
        values = comparable(array if array.type == wanted else array.cast(wanted))
        return values if len(places) == count else values.take(pa.array(places))

    for step in keys.steps:
        if not len(places):
            break
        values = column(file.rescued if step.is_text else step.name)
        indices = _index_in(_texts(values, step.name) if step.is_text else values, step.values)
        matches = indices >= 0
        places, indices, beginnings = places[matches], indices[matches], beginnings[matches]
        pairs = beginnings * len(step.values) + indices
        spots = np.searchsorted(step.pairs, pairs)
        spots[spots == len(step.pairs)] = 0
        same = step.pairs[spots] == pairs if len(step.pairs) else np.zeros(len(pairs), np.bool_)
        places, beginnings = places[same], spots[same]
    if len(places) and file.deleted is not None:
        left = file.deleted.kept(first, count)
        if left is not None:
            places, beginnings = places[left[places]], beginnings[left[places]]
    if len(places) and file.current is not None:
        is_current = column(file.current).is_null().to_numpy(False)
        places, beginnings = places[is_current], beginnings[is_current]
    return places + first, keys.numbers[beginnings]


def rows_at(
    file: SearchedFile, positions: Positions, schema: pa.Schema, stored: Sequence[str]
) -> pa.Table:
    """Return the rows of a file at some positions, ascending.

    `schema` has the columns to read, `stored` their names in the file.
    """
    with open_parquet(file.path) as opened:
        sizes = [opened.metadata.row_group(n).num_rows for n in range(opened.num_row_groups)]
    batches: list[pa.RecordBatch] = []
    first = 0
    for number, rows in enumerate(sizes):
        begin, end = np.searchsorted(positions, [first, first + rows])
        groups = ((file.path, (number,)),) if end > begin else ()
        group = Rows(schema=schema, groups=groups, stored=tuple(stored), count=rows)
        place = first
        for batch in group.read():
            begin, end = np.searchsorted(positions, [place, place + batch.num_rows])
            if end > begin:
                batches.append(batch.take(pa.array(positions[begin:end] - place)))
            place += batch.num_rows
        first += rows
    return pa.Table.from_batches(batches, schema)
