"""Comparing two tables of mirror rows: equal or not by content hash, and if not where.

In: the rows of a mirror and the rows it should have, both with the columns of `MirrorLayout`. Out:
a `Comparison`: the content hash of each, and, if they differ, how many rows are different, missing
and too many, with examples by key and column.

The content hash does not depend on the order of rows or files. Each row has two 64-bit hashes over
its typed columns, which of them are NULL, the rescued data and the commit ts of its last change.
The hash of the table is one over the number of rows, the sums of the first and the second, and
their exclusive or. So equal rows of a table without a key are counted, and two equal tables cost
one pass each. It is made to find damage, not to withstand somebody who looks for collisions.

Only tables that differ are brought together, by their keys: by hash first (a row that is in both as
often cancels out), and the values of a few rows at last. In a table without a key a row is its own
key, so that a change there is a row missing and a row too many.

The commit ts is compared as well, but for rows that were sent as their handle key alone
(`mirror_rows.PARTIAL`): whether such a change is the row's last depends on whether the row was
there before it, which a mirror that began in the middle and one folded at once answer differently.

Pure but for reading: nothing is written, and asking again gives the same.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from ticdc_assets.engine.session import functions
from ticdc_assets.errors import InputError
from ticdc_assets.rows.mirror_rows import PARTIAL, MirrorLayout, canonical_rows, quoted
from ticdc_assets.schemas import TableSchema

SHOWN_CHARACTERS = 200
"""How much of a value is shown."""


class RowFinding(StrEnum):
    """What is the matter with a row."""

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
        finding: what is the matter with it.
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
    """What a table holds, in two numbers: its rows, and its content hash."""

    rows: int
    content_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """How many rows differ, by what is the matter with them."""

    changed: int = 0
    missing: int = 0
    too_many: int = 0

    @property
    def total(self) -> int:
        """Rows that differ in any way."""
        return self.changed + self.missing + self.too_many


NO_ROWS = RowCounts()
"""No row differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """Where two tables differ: how many rows, and some of them."""

    counts: RowCounts
    examples: tuple[RowDifference, ...]


def content_of(rows: DataFrame, schema: TableSchema) -> Content:
    """Return what the rows of a mirror of `schema` come to, in one pass."""
    F = functions(rows.sparkSession)
    first, second = _row_hashes(rows, MirrorLayout(schema=schema))
    wide = T.DecimalType(20, 0)
    (row,) = (
        rows.select(first.alias("first"), second.alias("second"))
        .agg(
            F.count("*").alias("rows"),
            F.sum(F.col("first").cast(wide)).alias("first"),
            F.sum(F.col("second").cast(wide)).alias("second"),
            F.bit_xor("first").alias("both"),
        )
        .collect()
    )
    text = "/".join(str(row[name]) for name in ("rows", "first", "second", "both"))
    return Content(rows=row["rows"], content_hash=hashlib.sha256(text.encode()).hexdigest()[:32])


def column_differences(mirror: DataFrame, rebuilt: DataFrame) -> list[str]:
    """Return what differs in the columns of two tables, one clause each."""
    ours = {field.name: field.dataType.simpleString() for field in mirror.schema.fields}
    theirs = {field.name: field.dataType.simpleString() for field in rebuilt.schema.fields}
    found = [
        *(f"column {name!r} is not in the rebuild" for name in ours if name not in theirs),
        *(f"column {name!r} is only in the rebuild" for name in theirs if name not in ours),
        *(
            f"column {name!r} is {ours[name]}, rebuilt {theirs[name]}"
            for name in ours
            if name in theirs and ours[name] != theirs[name]
        ),
    ]
    if not found and list(ours) != list(theirs):
        found.append("the columns are in another order")
    return found


def row_differences(
    mirror: DataFrame, rebuilt: DataFrame, schema: TableSchema, timezone: str, *, examples: int
) -> Differences:
    """Return where two tables with the columns of `schema` differ.

    Args:
        mirror: the rows that are there.
        rebuilt: the rows that should be there.
        schema: their schema.
        timezone: time zone of the changefeed, in which TIMESTAMPs are shown.
        examples: how many rows to show at most.
    """
    F = functions(mirror.sparkSession)
    layout = MirrorLayout(schema=schema)
    ours, theirs = _keyed(mirror, layout), _keyed(rebuilt, layout)
    row = ("key", "other_key", "first", "second")
    surplus = (
        ours.select(*row, F.lit(1).alias("surplus"))
        .unionAll(theirs.select(*row, F.lit(-1).alias("surplus")))
        .groupBy(*row)
        .agg(F.sum("surplus").alias("surplus"))
        .where("surplus != 0")
    )
    by_key = (
        surplus.groupBy("key", "other_key")
        .agg(
            F.sum(F.greatest(F.col("surplus"), F.lit(0))).alias("too_many"),
            F.sum(F.greatest(-F.col("surplus"), F.lit(0))).alias("missing"),
        )
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    try:
        both = F.least("too_many", "missing")
        (counted,) = by_key.agg(
            F.sum(both).alias("changed"),
            F.sum(F.col("missing") - both).alias("missing"),
            F.sum(F.col("too_many") - both).alias("too_many"),
        ).collect()
        counts = RowCounts(**{name: value or 0 for name, value in counted.asDict().items()})
        chosen = by_key.orderBy("key", "other_key").limit(examples).collect()
    finally:
        by_key.unpersist()
    if not chosen:
        return Differences(counts=counts, examples=())
    keys = [(item["key"], item["other_key"]) for item in chosen]
    shown = _Shown(layout, timezone)
    found = shown.differences(
        _rows_of(ours, keys, layout, timezone), _rows_of(theirs, keys, layout, timezone), keys
    )
    return Differences(counts=counts, examples=tuple(found))


# Hashes -----------------------------------------------------------------------------------------


def _row_hashes(rows: DataFrame, layout: MirrorLayout) -> tuple[Column, Column]:
    """Return two hashes of a row of a mirror."""
    F = functions(rows.sparkSession)
    has_rescued = layout.rescued in rows.columns
    known = _rescued(rows.sparkSession, layout) if has_rescued else F.create_map()
    is_partial = (
        F.map_contains_key(_rescued(rows.sparkSession, layout), F.lit(PARTIAL))
        if has_rescued
        else F.lit(False)
    )
    items: list[Column] = []
    for field in rows.schema.fields:
        if field.name == layout.rescued:
            continue
        value = F.col(quoted(field.name))
        if field.name == layout.commit_ts:
            value = F.when(~is_partial, value)
        items += _hashed(value, field.dataType)
    items.append(F.array_sort(F.map_entries(known)))
    return _two_hashes(rows.sparkSession, items)


def _rescued(spark: SparkSession, layout: MirrorLayout) -> Column:
    """Return the rescued data; an empty map for none."""
    F = functions(spark)
    none = F.create_map().cast("map<string,string>")
    return F.coalesce(F.col(quoted(layout.rescued)), none)


def _hashed(value: Column, kind: T.DataType) -> list[Column]:
    """Return what stands for a value in a hash: Spark's hashes skip NULL, and take -0 for 0."""
    if isinstance(kind, T.FloatType | T.DoubleType | T.ArrayType):
        value = value.cast("string")
    return [value, value.isNull()]


def _two_hashes(spark: SparkSession, items: Sequence[Column]) -> tuple[Column, Column]:
    F = functions(spark)
    return F.xxhash64(*items), F.xxhash64(F.lit("second"), *items)


def _keyed(rows: DataFrame, layout: MirrorLayout) -> DataFrame:
    """Return rows with the hashes of their keys and of themselves before their columns.

    The columns are called c0, c1, ...: their own names may be anything.
    """
    F = functions(rows.sparkSession)
    fields = rows.schema.fields
    first, second = _row_hashes(rows, layout)
    key, other_key = first, second
    if layout.schema.handle_key:
        by_name = {field.name: field.dataType for field in fields}
        items: list[Column] = []
        for name in layout.schema.handle_key:
            items += _hashed(F.col(quoted(name)), by_name[name])
            items += _hashed(_rescued(rows.sparkSession, layout)[name], T.StringType())
        key, other_key = _two_hashes(rows.sparkSession, items)
    return rows.select(
        key.alias("key"),
        other_key.alias("other_key"),
        first.alias("first"),
        second.alias("second"),
        *(F.col(quoted(field.name)).alias(f"c{number}") for number, field in enumerate(fields)),
    )


# Examples ---------------------------------------------------------------------------------------

_Key = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One row as it is shown, its hash, and how often it is there."""

    hashes: tuple[int, int]
    texts: Mapping[str, str | None]
    typed: Mapping[str, str]
    rescued: Mapping[str, str | None]
    copies: int


def _rows_of(
    rows: DataFrame, keys: Sequence[_Key], layout: MirrorLayout, timezone: str
) -> dict[_Key, list[_Row]]:
    """Return the rows with one of `keys`; equal ones once, with how often they are there."""
    F = functions(rows.sparkSession)
    # One hash is enough to find a row; the other one tells it from what has the same by chance.
    columns = [name for name in rows.columns if name.startswith("c")]
    table = (
        rows.where(F.col("key").isin([key for key, _ in keys]))
        .groupBy("key", "other_key", "first", "second")
        .agg(F.count("*").alias("copies"), F.first(F.struct(*columns)).alias("row"))
        .select("key", "other_key", "first", "second", "copies", "row.*")
        .toArrow()
    )
    found: dict[_Key, list[_Row]] = {}
    for batch in table.to_batches():
        hashes = [batch.column(name).to_pylist() for name in ("key", "other_key")]
        own = [batch.column(name).to_pylist() for name in ("first", "second")]
        copies = batch.column("copies").to_pylist()
        values = batch.select(columns).rename_columns(layout.names)
        texts = list(_texts(values, layout, timezone))
        for number in range(batch.num_rows):
            key = (hashes[0][number], hashes[1][number])
            typed = {name: values.column(name)[number].as_py() for name in layout.names}
            found.setdefault(key, []).append(
                _Row(
                    hashes=(own[0][number], own[1][number]),
                    texts=texts[number],
                    typed={name: repr(value) for name, value in typed.items()},
                    rescued=dict(typed[layout.rescued] or ()),
                    copies=copies[number],
                )
            )
    return found


def _texts(
    values: pa.RecordBatch, layout: MirrorLayout, timezone: str
) -> Iterator[dict[str, str | None]]:
    """Yield rows as canonical text; a value that has none (it is damaged) as Python shows it."""
    for number in range(values.num_rows):
        row = values.slice(number, 1)
        try:
            (texts,) = canonical_rows(row, layout, timezone)
        except (InputError, ValueError, ArithmeticError):
            values_of_row = {
                column.name: row.column(column.name)[0].as_py() for column in layout.schema.columns
            }
            texts = {
                name: None if value is None else str(value) for name, value in values_of_row.items()
            }
        commit_ts = row.column(layout.commit_ts)[0].as_py()
        yield {**texts, layout.commit_ts: None if commit_ts is None else str(commit_ts)}


@dataclass(frozen=True, slots=True)
class _Shown:
    """Tells the differences between rows of the same keys."""

    layout: MirrorLayout
    timezone: str

    def differences(
        self,
        ours: Mapping[_Key, list[_Row]],
        theirs: Mapping[_Key, list[_Row]],
        keys: Sequence[_Key],
    ) -> list[RowDifference]:
        found: list[RowDifference] = []
        for key in keys:
            found += self._of_key(ours.get(key, []), theirs.get(key, []))
        return sorted(found, key=lambda item: _json(item.key))

    def _of_key(self, ours: Sequence[_Row], theirs: Sequence[_Row]) -> Iterator[RowDifference]:
        surplus = {row.hashes: row.copies for row in ours}
        for row in theirs:
            surplus[row.hashes] = surplus.get(row.hashes, 0) - row.copies
        surplus_rows = [row for row in ours if surplus[row.hashes] > 0]
        lacking = [row for row in theirs if surplus[row.hashes] < 0]
        if self.layout.schema.handle_key:
            for one, other in zip(surplus_rows, lacking, strict=False):
                yield RowDifference(
                    finding=RowFinding.CHANGED,
                    key=self._key(other),
                    columns=tuple(self._columns(one, other)),
                )
            pairs = min(len(surplus_rows), len(lacking))
            surplus_rows, lacking = surplus_rows[pairs:], lacking[pairs:]
        for finding, rows in ((RowFinding.MISSING, lacking), (RowFinding.TOO_MANY, surplus_rows)):
            for row in rows:
                copies = abs(surplus[row.hashes])
                yield RowDifference(finding=finding, key=self._key(row), copies=copies)

    def _key(self, row: _Row) -> dict[str, str | None]:
        names = self.layout.schema.handle_key or self.layout.names[:-1]
        return {name: _short(row.texts[name]) for name in names}

    def _columns(self, one: _Row, other: _Row) -> Iterator[ColumnDifference]:
        named: set[str] = set()
        for name in self.layout.names[:-1]:
            texts = (one.texts[name], other.texts[name])
            if texts[0] == texts[1]:
                # The same text, by the rescued data, may stand over different typed values.
                texts = (one.typed[name], other.typed[name])
            if texts[0] != texts[1]:
                named.add(name)
                yield ColumnDifference(name=name, mirror=_short(texts[0]), rebuilt=_short(texts[1]))
        # Texts of the columns above stand in the rescued data too.
        rescued = [
            {name: text for name, text in row.rescued.items() if name not in named}
            for row in (one, other)
        ]
        if rescued[0] != rescued[1]:
            mirror, rebuilt = (_short(_json(texts) if texts else None) for texts in rescued)
            yield ColumnDifference(name=self.layout.rescued, mirror=mirror, rebuilt=rebuilt)


def _json(texts: Mapping[str, str | None]) -> str:
    return json.dumps(dict(texts), ensure_ascii=False, sort_keys=True)


def _short(text: str | None) -> str | None:
    if text is None or len(text) <= SHOWN_CHARACTERS:
        return text
    return text[: SHOWN_CHARACTERS - 1] + "…"
