"""Folding effects: the last one of each key, or for a table without a key how often each row is.

An effect that came to nothing because a value does not fit (it has a `reason`) is void if the row
changes again; else it is there beside the last one that fits, for the quarantine.

A put that knows the key alone (`is_partial`) gives way to any other effect: it brings a row where
none is there, and marks the one that is there (`mirror_rows.PARTIAL`).

In: effects (`mirror_rows`), as a DataFrame or, for a small change set, as Arrow batches. Out: a
`Folding`: one row a key with what a mirror needs to be written, and the counts of it.

There are two ways to the same result. Spark's scales; but a sync moves few rows into many mirrors,
and then Spark's fixed cost per job is nearly all of the time. So up to `LOCAL_ROWS` rows are folded
here, in Arrow, without a job, and stay here for who can use them so (`Folding.here`). Folding is
pure and writes nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ticdc_assets.changelog.resolve import standing_casts
from ticdc_assets.lake.effects import RESCUED_TYPE, SEQUENCE_FIELDS, effect_schema
from ticdc_assets.lake.mirror_rows import PARTIAL
from ticdc_assets.lake.session import functions, windows
from ticdc_assets.registry.evolution import Casts
from ticdc_assets.schemas import TableSchema

LOCAL_ROWS = 10_000
"""Rows up to which a change set is folded without Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldCounts:
    """A folding in numbers.

    Attributes:
        copies: rows that are there after it, copies counted.
        changed: keys that a change touched.
        unknown_deletes: keys whose first effect is a delete (bags: deletes of no row).
        taken: keys that are gone and were there before, if all is well.
        errors: changes that did not fit.
        lost: rows of the older mirror that a schema step could not carry over.
        with_missing: put rows whose image lacked columns.
        puts: put rows.
        casts: values that did not fit when their column was modified, of rows that stood then, by
            column and commit ts of the DDL.
    """

    copies: int
    changed: int
    unknown_deletes: int
    taken: int
    errors: int
    lost: int
    with_missing: int
    puts: int
    casts: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])

    def plus(self, other: "FoldCounts") -> "FoldCounts":
        """Return the counts of two foldings that have no key in common."""
        return FoldCounts(
            **{
                item.name: getattr(self, item.name) + getattr(other, item.name)
                for item in fields(self)
            }
        )


@dataclass(frozen=True, kw_only=True)
class Folding:
    """Folded effects.

    They have one row a key: the columns of an effect, `copies`, and `keeps_row`: whether a row that
    is there stays as it is but for the mark.

    Attributes:
        counts: in numbers.
        never_sent: columns that every image of the put rows lacked.
        before: what is known of the columns of the rows that the changes were folded over.
        here: the rows, if they were folded in this process.
        untouched: rows of the older mirror that no change is about, as its table has them; they are
            counted and stand beside the others.
        pieces: the effects whose rows are there afterwards, a piece at a time, if they were folded
            in pieces; then `frame` has no values.
        made: how to have the rows in Spark.
    """

    counts: FoldCounts
    never_sent: frozenset[str]
    before: "KnownColumns" = field(default_factory=lambda: KnownColumns())
    here: pa.Table | None = None
    untouched: pa.Table | None = None
    pieces: Callable[[], Iterator[pa.Table]] | None = None
    made: Callable[[], DataFrame]

    @cached_property
    def frame(self) -> DataFrame:
        """The rows in Spark."""
        return self.made()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownColumns:
    """What rows have told of their columns.

    Attributes:
        hidden: columns no row was ever sent for.
        columns: all columns, if there was any row.
    """

    hidden: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()


# Here -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedRows:
    """Effects folded in one process.

    Attributes:
        rows: as `Folding` describes them.
        counts: in numbers.
        missing: what images of put rows lacked, each list of names once; those that lacked nothing
            are not among them.
    """

    rows: pa.Table
    counts: FoldCounts
    missing: frozenset[tuple[str, ...]]


def fold_here(
    spark: SparkSession, batches: Iterable[pa.RecordBatch], schema: TableSchema
) -> Folding:
    """Fold the effects on a table with a key in this process."""
    folded = fold_rows(pa.Table.from_batches(list(batches), effect_schema(schema)))
    return Folding(
        here=folded.rows,
        made=lambda: frame_of(spark, folded.rows),
        counts=folded.counts,
        never_sent=never_sent(folded.counts, folded.missing),
    )


def fold_in_pieces(
    spark: SparkSession,
    effects: Callable[[], Iterator[pa.RecordBatch]],
    schema: TableSchema,
) -> Folding:
    """Fold effects on a table with a key in this process, whose values are too large to be held.

    They are gone through twice: without their values to see which of them are left, and with them
    to have these. All but the values of a piece is held.

    Args:
        spark: the session.
        effects: gives all effects, in the same order each time.
        schema: of the table.
    """
    # The values are last, and behind them the rescued data, which may be as large.
    names = effect_schema(schema).names[: -len(schema.columns) - 1]
    plain: list[pa.Table] = []
    place = 0
    for batch in effects():
        places = pa.array(np.arange(place, place + batch.num_rows))
        place += batch.num_rows
        rows = pa.Table.from_batches([batch]).select(names)
        rows = rows.append_column("extra", pa.nulls(batch.num_rows, RESCUED_TYPE))
        # A copy: what is only selected keeps the whole batch.
        plain.append(
            pa.concat_tables([rows.append_column("place", places)]).take(
                pa.array(np.arange(batch.num_rows))
            )
        )
    nothing = effect_schema(schema).empty_table().select([*names, "extra"])
    nothing = nothing.append_column("place", pa.array([], pa.int64()))
    folded = fold_rows(pa.concat_tables([nothing, *plain]))
    del plain
    puts = folded.rows.filter(ds.field("reason").is_null() & (ds.field("copies") > 0))
    puts = puts.select(["place", "extra"]).sort_by("place")
    wanted = puts["place"].to_numpy()
    marks = [dict(extra)[PARTIAL] if extra else None for extra in puts["extra"].to_pylist()]

    def pieces() -> Iterator[pa.Table]:
        place = 0
        for batch in effects():
            begin, end = np.searchsorted(wanted, [place, place + batch.num_rows]).tolist()
            rows = pa.Table.from_batches([batch.take(pa.array(wanted[begin:end] - place))])
            place += batch.num_rows
            if rows.num_rows:
                rows = rows.append_column("copies", pa.array([1] * rows.num_rows, pa.int32()))
                yield _with_marks(rows, marks[begin:end]) if any(marks[begin:end]) else rows

    return Folding(
        pieces=pieces,
        made=lambda: frame_of(spark, folded.rows.drop_columns(["place"])),
        counts=folded.counts,
        never_sent=never_sent(folded.counts, folded.missing),
    )


def fold_rows(effects: pa.Table) -> FoldedRows:
    """Fold effects on a table with a key; none of another table with the same key may be missing.

    Most keys have whole puts and deletes that fit, and their first and last effect say everything:
    they are found by one sort. The others are gone through one by one, as are
    keys with values that were cast as in a lenient SQL mode.
    """
    effects = effects.combine_chunks()
    size = effects.num_rows
    if not size:
        return _fold_each(effects, np.empty(0, np.int64))
    codes = effects.column("key").chunk(0).dictionary_encode().indices.to_numpy()
    faulty = effects.column("reason").is_valid().to_numpy()
    special = faulty | effects.column("is_partial").to_numpy()
    special |= effects.column("casts").is_valid().to_numpy()
    order = _order(effects, codes)
    ranks = effects.column("sequence").chunk(0).field("rank").to_numpy()
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    ends = np.append(starts[1:], size) - 1
    is_plain = ~np.logical_or.reduceat(special[order], starts)
    each = _fold_each(effects, order[np.repeat(~is_plain, ends - starts + 1)])
    changed = np.maximum.reduceat(ranks[order], starts)[is_plain] >= 0
    first, last = order[starts[is_plain]], order[ends[is_plain]]
    is_delete = effects.column("is_delete").to_numpy()
    was_delete, is_gone = is_delete[first], is_delete[last]
    is_new = effects.column("is_new").to_numpy()[first]
    put = changed & ~is_gone
    missing = effects.column("missing").chunk(0)
    lacking: frozenset[tuple[str, ...]] = frozenset()
    with_missing = 0
    if missing.null_count < size:
        lists = missing.take(pa.array(last[put])).drop_null()
        with_missing = len(lists)
        lacking = frozenset(map(tuple, lists.to_pylist()))
    rows = effects.take(pa.array(last))
    rows = rows.append_column("copies", pa.array((~is_gone).astype(np.int32)))
    rows = rows.append_column("keeps_row", pa.array(np.zeros(len(last), np.bool_)))
    counts = FoldCounts(
        copies=int(np.count_nonzero(~is_gone)),
        changed=int(np.count_nonzero(changed)),
        unknown_deletes=int(np.count_nonzero(was_delete)),
        taken=int(np.count_nonzero(is_gone & ~is_new)),
        errors=0,
        lost=0,
        with_missing=with_missing,
        puts=int(np.count_nonzero(put)),
    )
    return FoldedRows(
        rows=pa.concat_tables([rows, each.rows]) if each.rows.num_rows else rows,
        counts=counts.plus(each.counts),
        missing=lacking | each.missing,
    )


def _order(effects: pa.Table, codes: np.ndarray) -> np.ndarray:
    """Return the places of effects by key, and of each key in the order of their sequence."""
    sequence = effects.column("sequence").chunk(0)
    levels = [codes]
    for name in SEQUENCE_FIELDS:
        level = sequence.field(name)
        if name == "topic":
            encoded = level.dictionary_encode()
            names = encoded.dictionary.to_pylist()
            place = np.empty(len(names), np.int64)
            place[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
            level = place[encoded.indices.to_numpy()]
        else:
            level = level.to_numpy()
        if level.size and (level != level[0]).any():
            levels.append(level)
    return np.lexsort(levels[::-1])


def _fold_each(all_effects: pa.Table, places: np.ndarray) -> FoldedRows:
    """Fold the effects at `places`, which are all of their keys, in their order, one by one."""
    effects = all_effects.take(pa.array(places))
    sequence = effects.column("sequence").combine_chunks()
    stamps = sequence.field("commit_ts").to_pylist()
    ranks = sequence.field("rank").to_pylist()
    keys = effects.column("key").to_pylist()
    is_delete = effects.column("is_delete").to_pylist()
    is_partial = effects.column("is_partial").to_pylist()
    faulty = effects.column("reason").is_valid().to_pylist()
    casts = _standing_casts(keys, stamps, effects.column("casts").to_pylist())
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    faults: dict[str, int] = {}
    marked: dict[str, str] = {}
    whole: set[str] = set()
    changed: set[str] = set()
    for number, key in enumerate(keys):
        if faulty[number]:
            faults[key] = number
            continue
        faults.pop(key, None)
        first.setdefault(key, number)
        if ranks[number] >= 0:
            changed.add(key)
        if not is_partial[number]:
            last[key] = number
            whole.add(key)
            marked.pop(key, None)
            continue
        before = last.get(key)
        if before is None or is_delete[before] or is_partial[before]:
            last[key] = number
        else:
            marked[key] = str(stamps[number])
    is_new = effects.column("is_new").to_pylist()
    missing = effects.column("missing").to_pylist()
    puts = [key for key in last if key in changed and not is_delete[last[key]]]
    lacking = [missing[last[key]] for key in puts]
    bad = list(faults.values())
    counts = FoldCounts(
        copies=sum(not is_delete[number] for number in last.values()),
        changed=len(changed),
        unknown_deletes=sum(is_delete[first[key]] for key in last),
        taken=sum(is_delete[last[key]] and not is_new[first[key]] for key in last),
        errors=sum(ranks[number] >= 0 for number in bad),
        lost=sum(ranks[number] < 0 for number in bad),
        with_missing=sum(names is not None for names in lacking),
        puts=len(puts),
        casts=casts,
    )
    folded = effects.take(pa.array([*last.values(), *bad], pa.int64()))
    copies = [int(not is_delete[number]) for number in last.values()] + [0] * len(bad)
    folded = folded.append_column("copies", pa.array(copies, pa.int32()))
    keeps = [key not in whole for key in last] + [False] * len(bad)
    folded = folded.append_column("keeps_row", pa.array(keeps, pa.bool_()))
    if marked:
        folded = _with_marks(folded, [marked.get(key) for key in last] + [None] * len(bad))
    return FoldedRows(
        rows=folded,
        counts=counts,
        missing=frozenset(tuple(names) for names in lacking if names is not None),
    )


def _standing_casts(
    keys: Sequence[str], stamps: Sequence[int], casts: Sequence[list[dict[str, Any]] | None]
) -> Counter[tuple[str, int]]:
    """Return the casts of effects, in their order, whose row stood at the DDL."""
    counted: Counter[tuple[str, int]] = Counter()
    pending: dict[str, Casts] = {}
    for key, ts, own in zip(keys, stamps, casts, strict=True):
        counted.update(standing_casts(pending.pop(key, ()), ts))
        if own is not None:
            pending[key] = tuple((item["column"], item["ddl_ts"]) for item in own)
    for left in pending.values():
        counted.update(left)
    return counted


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return rows that are here as a DataFrame."""
    return spark.createDataFrame(
        rows, schema=from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    )


def _with_marks(folded: pa.Table, marks: list[str | None]) -> pa.Table:
    """Return `folded` with the mark of each row in its rescued data, where it has one."""
    extras: list[list[tuple[str, str]] | None] = []
    for extra, mark in zip(folded.column("extra").to_pylist(), marks, strict=True):
        if mark is not None:
            extra = [*(item for item in extra or () if item[0] != PARTIAL), (PARTIAL, mark)]
        extras.append(extra)
    number = folded.schema.get_field_index("extra")
    field = folded.schema.field(number)
    return folded.set_column(number, field, pa.array(extras, field.type))


def never_sent(counts: FoldCounts, missing: Iterable[tuple[str, ...]]) -> frozenset[str]:
    """Return the columns that every image of the put rows lacked.

    Args:
        counts: of the folding.
        missing: what images lacked, where they lacked something.
    """
    if not counts.puts or counts.with_missing != counts.puts:
        return frozenset()
    return frozenset.intersection(*map(frozenset[str], missing))


# In Spark ---------------------------------------------------------------------------------------


@contextmanager
def folded_in_spark(
    effects: DataFrame, schema: TableSchema, *, may_cast: bool
) -> Iterator[Folding]:
    """Fold effects by Spark; the result is kept in its cache while the context is open.

    Args:
        effects: the effects.
        schema: of the table.
        may_cast: whether values among them may have been cast as in a lenient SQL mode. To count
            these costs a sort.
    """
    F = functions(effects.sparkSession)
    if not may_cast:
        effects = effects.withColumn("casts", F.lit(None).cast(effects.schema["casts"].dataType))
    elif schema.handle_key:
        following = windows(effects.sparkSession).partitionBy("key").orderBy("sequence")
        next_ts = F.lead("sequence.commit_ts").over(following)
        effects = effects.withColumn("next_ts", next_ts).withColumn(
            "casts",
            F.filter(
                "casts",
                lambda item: F.col("next_ts").isNull() | (item["ddl_ts"] < F.col("next_ts")),
            ),
        )
        effects = effects.drop("next_ts")
    folded = _fold_keys(effects) if schema.handle_key else _fold_bag(effects)
    folded = folded.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counts = _count(folded)
        if may_cast:
            counts = replace(counts, casts=_count_casts(folded))
        missing: list[tuple[str, ...]] = []
        if counts.with_missing and counts.with_missing == counts.puts:
            lists = (
                folded.where("reason is null and is_changed and not is_delete")
                .select("missing")
                .distinct()
                .collect()
            )
            missing = [tuple(row["missing"]) for row in lists]
        never = never_sent(counts, missing)
        yield Folding(made=lambda: folded, counts=counts, never_sent=never)
    finally:
        folded.unpersist()


_FAULT_COLUMNS = frozenset(
    {"sequence", "is_delete", "is_new", "is_partial", "reason", "position", "expected", "got"}
)


def _fold_keys(effects: DataFrame) -> DataFrame:
    """Return the last effect of each key, and what its first one says of the row before."""
    F = functions(effects.sparkSession)
    columns = [name for name in effects.columns if name not in {"key", "casts"}]
    effect, fits = F.struct(*columns), F.col("reason").isNull()
    # Of what came to nothing no value is needed.
    nothing = F.struct(
        *(
            F.col(name) if name in _FAULT_COLUMNS else F.lit(None).cast(kind).alias(name)
            for name, kind in ((name, effects.schema[name].dataType) for name in columns)
        )
    )
    sequence, is_partial = F.col("sequence"), F.col("is_partial")
    # Among the puts that know the key alone, the others, and those that came to nothing, the last.
    behind = F.col("partial.sequence") > F.col("whole.sequence")
    takes_partial = F.col("whole").isNull() | (F.col("whole.is_delete") & behind)
    marks = F.col("whole").isNotNull() & ~F.col("whole.is_delete") & behind
    mark = F.create_map(F.lit(PARTIAL), F.col("partial.sequence.commit_ts").cast("string"))
    others = F.map_filter(
        F.coalesce("item.extra", F.create_map().cast("map<string,string>")),
        lambda name, _: name != PARTIAL,
    )
    is_void = F.col("fault").isNull() | (F.col("fault.sequence") < F.col("last_sequence"))
    no_fault = F.coalesce(is_void, F.lit(False))
    folded = (
        effects.groupBy("key")
        .agg(
            F.max_by(effect, F.when(fits & ~is_partial, sequence)).alias("whole"),
            F.max_by(effect, F.when(fits & is_partial, sequence)).alias("partial"),
            F.max_by(nothing, F.when(~fits, sequence)).alias("fault"),
            F.max(F.when(fits, sequence)).alias("last_sequence"),
            F.min_by("is_delete", F.when(fits, sequence)).alias("first_is_delete"),
            F.min_by("is_new", F.when(fits, sequence)).alias("first_is_new"),
            F.max(fits & (F.col("sequence.rank") >= 0)).alias("has_changes"),
            F.flatten(F.collect_list("casts")).alias("casts"),
        )
        .withColumn("last", F.when(takes_partial, F.col("partial")).otherwise(F.col("whole")))
        .withColumn(
            "item",
            F.explode(F.array_compact(F.array("last", F.when(~no_fault, F.col("fault"))))),
        )
    )
    is_last = F.col("item.reason").isNull()
    return folded.select(
        "key",
        *(F.col(f"item.{name}") for name in columns if name != "extra"),
        F.when(is_last & marks, F.map_concat(others, mark))
        .otherwise(F.col("item.extra"))
        .alias("extra"),
        F.when(is_last & ~F.col("item.is_delete"), 1).otherwise(0).alias("copies"),
        F.when(is_last & F.col("first_is_delete"), 1).otherwise(0).alias("unknown_deletes"),
        (is_last & F.col("item.is_delete") & ~F.col("first_is_new")).alias("takes_row"),
        (~is_last | F.col("has_changes")).alias("is_changed"),
        (is_last & F.col("whole").isNull()).alias("keeps_row"),
        # Of the two rows that a key may have, one counts.
        F.when(is_last | F.col("last").isNull(), F.col("casts")).alias("casts"),
    )


def _fold_bag(effects: DataFrame) -> DataFrame:
    """Return each distinct row with how often it is there; a delete of none is counted."""
    F = functions(effects.sparkSession)
    columns = [name for name in effects.columns if name not in {"key", "casts"}]
    steps = F.sort_array(F.collect_list(F.struct("sequence", "is_delete")))
    start = F.struct(F.lit(0).alias("copies"), F.lit(0).alias("unknown"))

    def step(total: Column, item: Column) -> Column:
        missing = item["is_delete"] & (total["copies"] == 0)
        return F.struct(
            F.when(item["is_delete"], F.greatest(total["copies"] - 1, F.lit(0)))
            .otherwise(total["copies"] + 1)
            .alias("copies"),
            (total["unknown"] + F.when(missing, 1).otherwise(0)).alias("unknown"),
        )

    return (
        effects.groupBy("key")
        .agg(
            F.max_by(F.struct(*columns), "sequence").alias("last"),
            F.aggregate(steps, start, step).alias("total"),
            F.max(F.col("sequence.rank") >= 0).alias("is_changed"),
            F.flatten(F.collect_list("casts")).alias("casts"),
        )
        .select(
            "key",
            *(F.col(f"last.{name}") for name in columns),
            F.col("total.copies").alias("copies"),
            F.col("total.unknown").alias("unknown_deletes"),
            F.lit(False).alias("takes_row"),
            "is_changed",
            F.lit(False).alias("keeps_row"),
            "casts",
        )
        # What no longer fits and is gone again does not matter.
        .where("reason is null or copies > 0")
    )


def _count_casts(folded: DataFrame) -> Counter[tuple[str, int]]:
    """Return how many values were cast as in a lenient SQL mode, by column and DDL."""
    F = functions(folded.sparkSession)
    rows = (
        folded.select(F.explode("casts").alias("item"))
        .groupBy("item.column", "item.ddl_ts")
        .agg(F.sum("item.rows").alias("rows"))
        .collect()
    )
    return +Counter({(row["column"], row["ddl_ts"]): row["rows"] for row in rows})


def _count(folded: DataFrame) -> FoldCounts:
    F = functions(folded.sparkSession)
    fits = F.col("reason").isNull()
    row = folded.agg(
        F.coalesce(F.sum(F.when(fits, F.col("copies"))), F.lit(0)).alias("copies"),
        F.count_if(fits & F.col("is_changed")).alias("changed"),
        F.coalesce(F.sum(F.when(fits, F.col("unknown_deletes"))), F.lit(0)).alias(
            "unknown_deletes"
        ),
        F.count_if(fits & F.col("takes_row")).alias("taken"),
        F.count_if(~fits & (F.col("sequence.rank") >= 0)).alias("errors"),
        F.count_if(~fits & (F.col("sequence.rank") < 0)).alias("lost"),
        F.count_if(
            fits & F.col("is_changed") & ~F.col("is_delete") & F.col("missing").isNotNull()
        ).alias("with_missing"),
        F.count_if(fits & F.col("is_changed") & ~F.col("is_delete")).alias("puts"),
    ).collect()[0]
    return FoldCounts(**row.asDict())
