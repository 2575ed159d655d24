"""Compare two tables of mirror rows by content hash, and find the differences.

In: the rows of a mirror and the rows it should have, both with the columns of `MirrorLayout`, or
two histories, as parts for steps. Out: the content hash of each and, if they differ, the numbers of
changed, missing and extra rows, with examples by key and column.

Each row has two 64-bit hashes over its typed columns, the rescued data and the commit ts of its
last change. The content hash is one over the number of rows, the sums of both, and the exclusive or
of the first: it depends on no order, counts equal rows of a table without a key, and costs one pass
over a table. It is DuckDB's, so it is compared only within a run, and it does not resist deliberate
collisions.

Only tables that differ are joined by their keys: first the hashes (rows that both sides have
equally often cancel out), then the values of a few rows. In a table without a key, the whole row is
the key, so a change is one missing row and one extra row.

The commit ts is not compared for rows that were sent with only their handle key
(`mirror_rows.PARTIAL`): whether such a change is the row's last depends on whether the row existed
before, and a mirror built step by step may differ there from one folded at once. Nor is it in a
table without a key: rows may become equal when a column is dropped, and nothing says which of them
has which commit ts (decision 0012).

Of a history the beginnings and the ends of versions are compared, each with the row
(`ComparedHistory`), as far back as both have all of them. A version that has both is two rows.

Why running it again is safe: nothing is written.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, reduce
from operator import itemgetter, xor
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_assets.base.errors import InputError
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.queries import asking
from ticdc_assets.log.cuts import MirrorCut
from ticdc_assets.mirrors.versions import rows_as_stored
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.mirror_rows import PARTIAL, MirrorLayout, canonical_rows
from ticdc_assets.rows.rows_of_work import Rows, Sort, buckets_for, reduced, shared_out
from ticdc_assets.spark.executing import Executor, executor
from ticdc_assets.storage.lake_paths import LakePaths

_Key: TypeAlias = tuple[int, ...]
"""The two hashes of a row's key."""

EXAMPLES = 10
"""How many differing rows of a table are shown at most."""

SHOWN_CHARACTERS = 200
"""How many characters of a value are shown."""


class RowFinding(StrEnum):
    """How a row differs."""

    CHANGED = "changed"
    MISSING = "missing"
    TOO_MANY = "too many"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDifference:
    """One column of one row: what the mirror has, and what was rebuilt (None is NULL)."""

    name: str
    mirror: str | None
    rebuilt: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDifference:
    """One row that differs.

    Attributes:
        finding: how it differs.
        key: its key, column name to canonical text; all of its columns in a table without a key.
        columns: the columns that differ, if it is in both.
        copies: how many such rows are missing or too many.
    """

    finding: RowFinding
    key: Mapping[str, str | None]
    columns: tuple[ColumnDifference, ...] = ()
    copies: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of a table, in two numbers: its rows, and its content hash."""

    rows: int
    content_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """How many rows differ, by finding."""

    changed: int = 0
    missing: int = 0
    too_many: int = 0

    @property
    def total(self) -> int:
        """Rows that differ in any way."""
        return self.changed + self.missing + self.too_many

    @property
    def clause(self) -> str:
        """The numbers that are not zero, in words; empty if none differ."""
        numbers = {"changed": self.changed, "missing": self.missing, "too many": self.too_many}
        return ", ".join(f"{count} {what}" for what, count in numbers.items() if count)


NO_ROWS = RowCounts()
"""No row differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Where two tables differ: how many rows, and some of them; by default nowhere."""

    counts: RowCounts = NO_ROWS
    examples: tuple[RowDifference, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One of two compared tables.

    Attributes:
        rows: its rows.
        layout: its columns.
        names: its columns, in an order that both tables have.
        blank: which of them are not compared: all of their values are NULL here.
    """

    rows: Rows
    layout: MirrorLayout
    names: tuple[str, ...]
    blank: frozenset[str] = frozenset()

    @property
    def key(self) -> Sequence[str]:
        """The columns that no two rows have in common; none if rows may be equal."""
        return self.layout.schema.handle_key

    @property
    def shown(self) -> Sequence[str]:
        """The columns that name a row in an example."""
        return self.layout.schema.handle_key or self.layout.names[:-2]

    def seen(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what is compared of some of its rows."""
        for batch in rows:
            yield _without(batch.select(list(self.names)), self.blank)


@dataclass(frozen=True, kw_only=True)
class ComparedHistory(Compared):
    """One of two compared histories, as beginnings and ends of versions.

    Which of several equal rows a delete ended is not compared: nothing says it (decision 0012).

    Attributes:
        since: the beginnings and ends above this TSO are compared.
    """

    since: int

    @cached_property
    def history(self) -> HistoryLayout:
        """The columns of its table."""
        return HistoryLayout(schema=self.layout.schema)

    @property
    def key(self) -> Sequence[str]:
        """No columns: a row has many versions."""
        return ()

    @property
    def shown(self) -> Sequence[str]:
        """The columns that name a version in an example."""
        history = self.history
        return (*super().shown, history.valid_from, history.op, history.valid_to, history.ended_by)

    def seen(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the beginnings of versions, without their ends, and the ends without beginnings.

        A version that is current has an end without a TSO.
        """
        history, since = self.history, self.since
        for batch in super().seen(rows):
            begins = pc.greater(batch.column(history.valid_from), since)
            ends = pc.fill_null(pc.greater(batch.column(history.valid_to), since), True)
            yield _without(batch.filter(begins), (history.valid_to, history.ended_by))
            yield _without(batch.filter(ends), (history.valid_from, history.op))


def _without(rows: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
    for name in names:
        number = rows.schema.get_field_index(name)
        field = rows.schema.field(number)
        rows = rows.set_column(number, field, pa.nulls(rows.num_rows, field.type))
    return rows


def compared_history(paths: LakePaths, mirror: MirrorCut, since: int) -> ComparedHistory:
    """Return the history of a mirror in a cut, which must be kept, above a TSO."""
    layout = MirrorLayout(schema=mirror.table_schema)
    names = tuple(HistoryLayout(schema=layout.schema).names)
    rows = rows_as_stored(*mirror.history_at(paths)).select(names)
    return ComparedHistory(rows=rows, layout=layout, names=names, since=since)


def compared_mirror(paths: LakePaths, mirror: MirrorCut) -> Compared:
    """Return a mirror in a cut, with all columns of its table."""
    rows = rows_as_stored(*mirror.at(paths))
    layout = MirrorLayout(schema=mirror.table_schema)
    return Compared(rows=rows, layout=layout, names=tuple(rows.schema.names))


def content_of(lake: Lake, table: Compared) -> Content:
    """Return the content of a table, in one pass."""

    def summed(parts: Iterable[Rows]) -> Iterator[tuple[int, ...]]:
        for rows, hashing in _hashed(table, _read(parts)):
            yield hashing.sums(rows)

    parts = table.rows.parts()
    runs_on = _executor(lake, "adding up rows", table)
    sums = [item for item in runs_on.run(summed, parts, tasks=len(parts)) if item[0]]
    rows, first, second = (sum(item[number] for item in sums) for number in range(3))
    text = f"{rows}/{first}/{second}/{reduce(xor, (item[3] for item in sums), 0)}"
    return Content(rows=rows, content_hash=hashlib.sha256(text.encode()).hexdigest()[:32])


def _executor(lake: Lake, does: str, *tables: Compared) -> Executor:
    rows, size = (sum(getattr(item.rows, name) for item in tables) for name in ("count", "size"))
    return executor(lake.spark, lake.paths.base, does, rows=rows, size=size)


def differences(lake: Lake, mirror: Compared, rebuilt: Compared) -> Differences:
    """Return how the rows of two tables differ, by their contents first, which is cheaper."""
    if content_of(lake, mirror) == content_of(lake, rebuilt):
        return Differences()
    return row_differences(lake, mirror, rebuilt)


def column_differences(
    mirror: pa.Schema,
    other: pa.Schema,
    *,
    noun: str = "rebuild",
    verb: str = "rebuilt",
    ordered: bool = True,
) -> list[str]:
    """Return how the columns of two tables differ, one clause each, in these words.

    Their order counts if `ordered`.
    """
    ours, theirs = _types(mirror), _types(other)
    clauses = [
        *(f"column {name!r} is not in the {noun}" for name in ours if name not in theirs),
        *(f"column {name!r} is only in the {noun}" for name in theirs if name not in ours),
        *(
            f"column {name!r} is {ours[name]}, {verb} {theirs[name]}"
            for name in ours
            if name in theirs and ours[name] != theirs[name]
        ),
    ]
    if ordered and not clauses and list(ours) != list(theirs):
        clauses.append("the columns are in another order")
    return clauses


def _types(schema: pa.Schema) -> dict[str, str]:
    fields = from_arrow_schema(schema, prefer_timestamp_ntz=True).fields
    return {field.name: field.dataType.simpleString() for field in fields}


def row_differences(lake: Lake, mirror: Compared, rebuilt: Compared) -> Differences:
    """Return how the rows of two tables with the same columns differ."""
    numbers, keys = _keys_of(lake, _DIFFERING, EXAMPLES, mirror, rebuilt)
    ours, theirs = (_rows_of(lake, table, keys) if keys else {} for table in (mirror, rebuilt))
    sample = (
        item
        for key in keys
        for item in _differences_of(rebuilt, ours.get(key, []), theirs.get(key, []))
    )
    examples = sorted(sample, key=lambda item: _json(item.key))
    return Differences(counts=RowCounts(**numbers), examples=tuple(examples))


_DIFFERING = """
    SELECT
        key,
        other_key,
        least(more, fewer) AS changed,
        fewer - changed AS missing,
        more - changed AS too_many,
    FROM (
        SELECT
            key,
            other_key,
            sum(greatest(surplus, 0))::BIGINT AS more,
            sum(greatest(-surplus, 0))::BIGINT AS fewer,
        FROM (
            SELECT key, other_key, sum(surplus) AS surplus FROM hashed
            GROUP BY key, other_key, first, second
            HAVING sum(surplus) <> 0
        )
        GROUP BY key, other_key
    )
    ORDER BY key, other_key
"""
"""For each key, how many of its rows are in one table more often than in the other."""


def repeated_keys(
    lake: Lake, table: Compared, *, examples: int
) -> tuple[int, list[tuple[Mapping[str, str | None], int]]]:
    """Return how many keys of a table are in several rows, and some of them, each with its rows."""
    wanted = (*table.layout.schema.handle_key, table.layout.rescued)
    names = tuple(name for name in table.names if name in wanted)
    keys_alone = replace(table, rows=table.rows.select(names), names=names)
    numbers, keys = _keys_of(lake, _REPEATED, examples, keys_alone)
    rows = _rows_of(lake, table, keys) if keys else {}
    repeated = [
        (_key_of(table, group[0]), sum(row.copies for row in group)) for group in rows.values()
    ]
    return numbers.get("repeated", 0), sorted(repeated, key=lambda item: _json(item[0]))


_REPEATED = """
    SELECT key, other_key, 1 AS repeated FROM hashed
    GROUP BY key, other_key
    HAVING count(*) > 1
    ORDER BY key, other_key
"""


def _keys_of(
    lake: Lake, query: str, most: int, *tables: Compared
) -> tuple[Mapping[str, int], list[_Key]]:
    """Return the keys that a query finds among the rows of one or two tables.

    Args:
        lake: the lake.
        query: gives keys with numbers, in the order of the keys, from the hashes of all rows of
            some keys. `surplus` is 1 in rows of the first table and -1 in those of the second.
        most: how many keys are returned at most.
        tables: the tables.

    Returns:
        The sums of each of its numbers, and the first keys.
    """
    runs_on = _executor(lake, "comparing rows", *tables)
    rows = sum(table.rows.count for table in tables)
    buckets = buckets_for(rows, rows * _HASHED_BYTES, runs_on.workers)

    def sorting(table: Compared, surplus: int) -> Sort:
        def sort(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
            for some, hashing in _hashed(table, batches):
                hashes = hashing.hashes(some)
                signs = pa.array([surplus] * hashes.num_rows, pa.int8())
                for batch in hashes.append_column("surplus", signs).to_batches():
                    numbers = batch.column("key").to_numpy() % buckets
                    yield from shared_out(batch, numbers.astype(np.int64), buckets)

        return sort

    def found(
        _: int, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[Counter[str], list[_Key]]]:
        with asking() as engine:
            engine.register("hashed", pa.Table.from_batches(batches))
            keys = engine.sql(query).to_arrow_table()
        first, second, *names = keys.column_names
        numbers = Counter({name: pc.sum(keys[name]).as_py() or 0 for name in names})
        head = keys.slice(0, most)
        yield numbers, list(zip(head[first].to_pylist(), head[second].to_pylist(), strict=True))

    sources = [
        (table.rows, sorting(table, surplus))
        for table, surplus in zip(tables, (1, -1), strict=False)
    ]
    numbers, keys = Counter[str](), list[_Key]()
    for own_numbers, own_keys in reduced(runs_on, sources, found, buckets=buckets):
        numbers.update(own_numbers)
        keys += own_keys
    return numbers, sorted(keys)[:most]


# Hashes -----------------------------------------------------------------------------------------

_HASHED = pa.schema([(name, pa.uint64()) for name in ("key", "other_key", "first", "second")])
"""The hashes of a row: two of its key, and two of all its compared values."""

_HASHED_BYTES = 40
"""About how many bytes the hashes of a row have."""


class _Hashing:
    """Hashes rows of a table, in a connection of DuckDB."""

    def __init__(self, engine: Any, table: Compared) -> None:
        self._engine = engine
        self._layout = table.layout
        self._key = tuple(name for name in table.key if name in table.names)
        columns = ", ".join(f"c{number}" for number in range(len(table.names)))
        keys = ", ".join(f"k{number}, r{number}" for number in range(len(self._key))) or columns
        self._sums = (
            "SELECT count(*), sum(first), sum(second), bit_xor(first) FROM "
            f"(SELECT hash({columns}) AS first, hash('second', {columns}) AS second FROM hashed)"
        )
        self._hashes = (
            f"SELECT hash({keys}) AS key, hash('second', {keys}) AS other_key, "
            f"hash({columns}) AS first, hash('second', {columns}) AS second FROM hashed"
        )

    def sums(self, rows: pa.RecordBatch) -> tuple[int, ...]:
        """Return the number of rows, the sums of their hashes, and the xor of the first ones."""
        self._engine.register("hashed", self._comparable(rows))
        (sums,) = self._engine.execute(self._sums).fetchall()
        return tuple(map(int, sums)) if sums[0] else (0, 0, 0, 0)

    def hashes(self, rows: pa.RecordBatch) -> pa.Table:
        self._engine.register("hashed", self._comparable(rows))
        return self._engine.sql(self._hashes).to_arrow_table().cast(_HASHED)

    def _comparable(self, rows: pa.RecordBatch) -> pa.Table:
        """Return columns that are equal if the rows are, with numbers as names."""
        names = rows.schema.names
        texts: list[Mapping[str, str | None]] = [{}] * rows.num_rows
        if self._layout.rescued in names:
            rescued = rows.column(self._layout.rescued)
            if rescued.null_count < rows.num_rows:
                texts = [dict(item or ()) for item in rescued.to_pylist()]
        columns: dict[str, pa.Array] = {}
        for number, name in enumerate(names):
            column = _bits(rows.column(name))
            if name == self._layout.rescued:
                column = pa.array([_json(item) if item else None for item in texts], pa.string())
            elif name == self._layout.commit_ts:
                column = self._certain(column, texts)
            columns[f"c{number}"] = column
        for number, name in enumerate(self._key):
            columns[f"k{number}"] = columns[f"c{names.index(name)}"]
            columns[f"r{number}"] = pa.array([item.get(name) for item in texts], pa.string())
        return pa.table(columns)

    def _certain(self, stamps: pa.Array, texts: list[Mapping[str, str | None]]) -> pa.Array:
        """Return the commit ts of rows, NULL where it is not compared."""
        if not self._layout.schema.handle_key:
            return pa.nulls(len(stamps), stamps.type)
        partial = pa.array([PARTIAL in item for item in texts])
        return pc.if_else(partial, pa.scalar(None, stamps.type), stamps)


def _read(parts: Iterable[Rows]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from part.read()


def _hashed(
    table: Compared, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, _Hashing]]:
    """Yield what is compared of rows with what hashes them, which one worker uses for all."""
    with asking() as engine:
        hashing = _Hashing(engine, table)
        for rows in table.seen(batches):
            yield rows, hashing


def _bits(column: pa.Array) -> pa.Array:
    """Return fractions as their bits, other values unchanged: a hash takes -0 for 0."""
    bits = {pa.float64(): pa.int64(), pa.float32(): pa.int32()}.get(column.type)
    if bits is None:
        return column
    nan = pa.scalar(math.nan, column.type)
    return pc.if_else(pc.is_nan(column), nan, column).view(bits)


# Examples ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One row to show: its hashes, its texts, its values, and how often the table has it."""

    hashes: tuple[int, ...]
    texts: Mapping[str, str | None]
    values: Mapping[str, Any]
    copies: int


def _rows_of(lake: Lake, table: Compared, keys: Sequence[_Key]) -> dict[_Key, list[_Row]]:
    """Return the rows with one of `keys`; equal ones once, with their number."""
    wanted = frozenset(keys)
    # One hash finds a row; the other one excludes rows that have the same hash by chance.
    first_hashes = pa.array(sorted({key for key, _ in wanted}), pa.uint64())

    def chosen(parts: Iterable[Rows]) -> Iterator[_Found]:
        by_hashes: _Found = {}
        for rows, hashing in _hashed(table, _read(parts)):
            hashes = hashing.hashes(rows)
            places = pc.indices_nonzero(pc.is_in(hashes["key"], first_hashes))
            columns = (hashes[name].take(places).to_pylist() for name in _HASHED.names)
            for place, *numbers in zip(places.to_pylist(), *columns, strict=True):
                row_hashes = tuple(numbers)
                copies, row = by_hashes.get(row_hashes, (0, None))
                if row is None:
                    # A slice would keep, and send, all rows of its batch.
                    row = rows.take(pa.array([place]))
                by_hashes[row_hashes] = (copies + 1, row)
        yield by_hashes

    runs_on = _executor(lake, "reading rows that differ", table)
    rows: _Found = {}
    for part in runs_on.run(chosen, table.rows.parts(), tasks=runs_on.workers):
        for hashes, (copies, row) in part.items():
            rows[hashes] = (copies + rows.get(hashes, (0, row))[0], row)
    by_key: dict[_Key, list[_Row]] = {}
    for hashes, (copies, row) in sorted(rows.items(), key=itemgetter(0)):
        if hashes[:2] in wanted:
            texts, (values,) = _texts(row, table.layout, lake.changefeed.timezone), row.to_pylist()
            by_key.setdefault(hashes[:2], []).append(
                _Row(hashes=hashes[2:], texts=texts, values=values, copies=copies)
            )
    return by_key


_Found: TypeAlias = dict[tuple[int, ...], tuple[int, pa.RecordBatch]]
"""For a row's hashes, how often the table has it, and the row."""


def _texts(row: pa.RecordBatch, layout: MirrorLayout, timezone: str) -> dict[str, str | None]:
    """Return a row as canonical text; a damaged value without one as Python shows it."""
    (values,) = row.to_pylist()
    try:
        (texts,) = canonical_rows(row, layout, timezone)
    except (InputError, ValueError, ArithmeticError):
        texts = {column.name: _shown(values[column.name]) for column in layout.schema.columns}
    names = (name for name in row.schema.names if name not in texts and name != layout.rescued)
    return {**texts, **{name: _shown(values[name]) for name in names}}


def _shown(value: object) -> str | None:
    return None if value is None else str(value)


def _differences_of(
    table: Compared, ours: Sequence[_Row], theirs: Sequence[_Row]
) -> Iterator[RowDifference]:
    surplus = {row.hashes: row.copies for row in ours}
    for row in theirs:
        surplus[row.hashes] = surplus.get(row.hashes, 0) - row.copies
    surplus_rows = [row for row in ours if surplus[row.hashes] > 0]
    lacking = [row for row in theirs if surplus[row.hashes] < 0]
    pairs = min(len(surplus_rows), len(lacking)) if table.key else 0
    for one, other in zip(surplus_rows[:pairs], lacking[:pairs], strict=True):
        yield RowDifference(
            finding=RowFinding.CHANGED,
            key=_key_of(table, other),
            columns=tuple(_changed_columns(table.layout, one, other)),
        )
    for finding, rows in (
        (RowFinding.MISSING, lacking[pairs:]),
        (RowFinding.TOO_MANY, surplus_rows[pairs:]),
    ):
        for row in rows:
            copies = abs(surplus[row.hashes])
            yield RowDifference(finding=finding, key=_key_of(table, row), copies=copies)


def _key_of(table: Compared, row: _Row) -> dict[str, str | None]:
    return {name: _short(row.texts[name]) for name in table.shown}


def _changed_columns(layout: MirrorLayout, one: _Row, other: _Row) -> Iterator[ColumnDifference]:
    named: set[str] = set()
    for name in layout.names[:-1]:
        texts = (one.texts[name], other.texts[name])
        if texts[0] == texts[1]:
            # Different typed values may have the same text, which is in the rescued data.
            texts = (repr(one.values[name]), repr(other.values[name]))
        if texts[0] != texts[1]:
            named.add(name)
            yield ColumnDifference(name=name, mirror=_short(texts[0]), rebuilt=_short(texts[1]))
    # The rescued data has the texts of the columns above too.
    rescued = [
        {name: text for name, text in row.values[layout.rescued] or () if name not in named}
        for row in (one, other)
    ]
    if rescued[0] != rescued[1]:
        mirror, rebuilt = (_short(_json(texts) if texts else None) for texts in rescued)
        yield ColumnDifference(name=layout.rescued, mirror=mirror, rebuilt=rebuilt)


def _json(texts: Mapping[str, str | None]) -> str:
    return json.dumps(dict(texts), ensure_ascii=False, sort_keys=True)


def _short(text: str | None) -> str | None:
    if text is None or len(text) <= SHOWN_CHARACTERS:
        return text
    return text[: SHOWN_CHARACTERS - 1] + "…"
