"""Folding: the same rows, counts and faults however the operations are shared out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.rows.bag_operations import watermarks_of
from ticdc_assets.rows.fold_runs import MirrorFold, Output, run_folds
from ticdc_assets.rows.folding import FoldedRows, fold_operations, never_sent, thinned, with_origins
from ticdc_assets.rows.row_operations import operation_schema
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.executing import Inline, OnSpark
from ticdc_assets_tests.examples import examples
from ticdc_assets_tests.rows.plans import table_of

SCHEMA = table_of(1, column("v", "varchar(9)"))


def casts_of(kind: str, ts: int) -> st.SearchStrategy[list[tuple[str, int, int]] | None]:
    """Return casts by DDL that came after the change."""
    if kind not in {"put", "before"}:
        return st.none()
    item = st.tuples(st.just("v"), st.integers(ts, 5), st.just(1))
    return st.none() | st.lists(item, min_size=1, max_size=2, unique=True)


def operation(key: str, ts: int, *, is_delete: bool = False, **others: Any) -> dict[str, Any]:
    rank = others.pop("rank", int(not is_delete))
    place = {"topic": "t", "partition": 0, "offset": others.pop("offset", ts), "index": 0}
    return {
        "key": f"={key}",
        "sequence": {"commit_ts": ts, "rank": rank, **place},
        "is_delete": is_delete,
        "is_partial": False,
        "c0": int(key),
        "c1": key,
        **others,
    }


@st.composite
def operations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Operations on a few keys: puts, deletes, puts of the key alone, faults, and rows before them.

    Values of puts may have been cast by two DDL.
    """
    found: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 12))):
        key = draw(st.integers(0, 2))
        kind = draw(st.sampled_from(["put", "put", "delete", "partial", "fault", "before"]))
        ts = 0 if kind == "before" else draw(st.integers(1, 4))
        if kind == "before" and any(item["sequence"]["rank"] < 0 for item in found):
            continue
        found.append(
            operation(
                str(key),
                ts,
                is_delete=kind == "delete",
                rank=-1 if kind == "before" else int(kind != "delete"),
                offset=number,
                is_partial=kind == "partial",
                reason="unfit" if kind == "fault" else None,
                position="after.v" if kind == "fault" else None,
                casts=draw(casts_of(kind, ts)),
                c1=None if kind in {"delete", "partial", "fault"} else f"v{number}",
                rescued=[("", str(ts))] if kind == "partial" else None,
            )
        )
    return found


def table_of(items: list[dict[str, Any]], *, keyed: bool) -> pa.Table:
    schema = operation_schema(SCHEMA)
    return pa.Table.from_pylist(items, schema=schema if keyed else with_origins(schema))


def told(folded: FoldedRows) -> tuple[Any, ...]:
    """Return all that a fold says, in an order of its own."""
    names = ["key", "reason", "position", "copies", "keeps_row", "least"]
    names += ["is_delete", "c1", "rescued"]
    rows = []
    for row in folded.rows.to_pylist():
        values = {name: row[name] for name in names}
        if row["reason"] is not None:
            # Of a fault only the place counts.
            values |= {"c1": None, "rescued": None, "keeps_row": None}
        rows.append((row["sequence"]["offset"], repr(values)))
    counts = replace(folded.counts, casts=+folded.counts.casts)
    return sorted(rows), counts, never_sent(folded.missing)


@settings(max_examples=400)
@given(items=operations(), seed=st.randoms(use_true_random=False), stamps=st.booleans())
@pytest.mark.thorough
def test_a_fold_of_thinned_parts_is_the_fold_of_all(
    items: list[dict[str, Any]], seed: Random, stamps: bool
) -> None:
    ddl_stamps = list(range(6)) if stamps else []
    if not stamps:
        items = [item | {"casts": None} for item in items]
    whole = fold_operations(table_of(items, keyed=True), keyed=True)
    parts = shared_out(items, seed, keyed=True, ddl_stamps=ddl_stamps)
    assert told(fold_operations(parts, keyed=True)) == told(whole)


def shared_out(
    items: list[dict[str, Any]], seed: Random, *, keyed: bool, ddl_stamps: Sequence[int] = ()
) -> pa.Table:
    """Thin operations in parts, and what is left of these again, in any order."""
    parts: list[list[dict[str, Any]]] = [[], [], []]
    for item in items:
        seed.choice(parts).append(item)
    tables: list[pa.Table] = []
    for part in parts:
        seed.shuffle(part)
        tables.append(thinned(table_of(part, keyed=keyed), keyed=keyed, ddl_stamps=ddl_stamps))
    seed.shuffle(tables)
    two = thinned(pa.concat_tables(tables[:2]), keyed=keyed, ddl_stamps=ddl_stamps)
    return pa.concat_tables([two, tables[2]])


@examples(100)
@given(items=operations(), ts=st.integers(0, 6))
@pytest.mark.thorough
def test_a_fold_over_the_rows_of_an_earlier_one_is_the_fold_of_all(
    items: list[dict[str, Any]], ts: int
) -> None:
    items = [item | {"casts": None, "missing": None} for item in items if not item["reason"]]
    items = [item for item in items if item["sequence"]["rank"] >= 0]
    whole = fold_operations(table_of(items, keyed=True), keyed=True)
    early = [item for item in items if item["sequence"]["commit_ts"] <= ts]
    late = [item for item in items if item["sequence"]["commit_ts"] > ts]
    earlier = fold_operations(table_of(early, keyed=True), keyed=True).rows.to_pylist()
    names = operation_schema(SCHEMA).names
    there = [
        {name: row[name] for name in names}
        | {"sequence": row["sequence"] | {"rank": -1}, "is_partial": False}
        for row in earlier
        if row["copies"]
    ]
    later = fold_operations(table_of([*there, *late], keyed=True), keyed=True)
    assert mirrored(later) == mirrored(whole)


def mirrored(folded: FoldedRows) -> list[tuple[Any, ...]]:
    """Return what a mirror has of a fold: keys, values, commit ts and rescued data."""
    return sorted(
        (row["key"], row["c1"], row["sequence"]["commit_ts"], row["rescued"])
        for row in folded.rows.to_pylist()
        if row["copies"]
    )


@pytest.mark.parametrize("casts", [None, [{"column": "v", "ddl_ts": 9, "rows": 1}]])
@pytest.mark.parametrize(
    ("deletes", "least"),
    [
        ([True], -1),
        ([True, False], -1),
        # As where an update brings a key and a delete takes it.
        ([False, True], 0),
        ([False], 0),
    ],
)
def test_a_row_is_missed_if_a_delete_is_the_first_change_of_its_key(
    deletes: list[bool], least: int, casts: list[dict[str, Any]] | None
) -> None:
    items = [
        operation("1", ts, is_delete=is_delete, casts=None if is_delete else casts)
        for ts, is_delete in enumerate(deletes)
    ]
    folded = fold_operations(table_of(items, keyed=True), keyed=True)
    assert folded.rows["least"].to_pylist() == [least]
    assert folded.counts.unknown_deletes == -least


def test_a_cast_counts_if_no_change_came_between_it_and_its_ddl() -> None:
    cast = [{"column": "v", "ddl_ts": 5, "rows": 1}]
    for ts, counted in ((4, {}), (5, {}), (6, {("v", 5): 1})):
        items = [operation("1", 1, casts=cast), operation("1", ts)]
        assert fold_operations(table_of(items, keyed=True), keyed=True).counts.casts == counted


def test_a_key_that_changes_all_the_time_is_moved_as_few_rows() -> None:
    items = [operation("1", number) for number in range(5_000)]
    assert thinned(table_of(items, keyed=True), keyed=True).num_rows == 2


@st.composite
def bags(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Puts and deletes of a few rows, some of them covered by a watermark before."""
    items: list[dict[str, Any]] = []
    faulty = draw(st.sets(st.integers(0, 2), max_size=1))
    for number in range(draw(st.integers(0, 14))):
        key = draw(st.integers(0, 2))
        items.append(
            operation(
                str(key),
                draw(st.integers(1, 9)),
                is_delete=draw(st.booleans()),
                offset=number,
                reason="unfit" if key in faulty else None,
                identity=b"%016d" % draw(st.integers(0, 6)),
                covered=max(-1, draw(st.integers(-8, 2))),
                casts=draw(st.none() | st.just([{"column": "v", "ddl_ts": 3, "rows": 1}])),
            )
        )
    return items


def counted_rows(items: list[dict[str, Any]]) -> tuple[dict[str, int], int]:
    """Count the copies of each row one operation at a time, and the deletes of none."""
    first: dict[bytes, int] = {}
    for item in items:
        first[item["identity"]] = min(first.get(item["identity"], item["covered"]), item["covered"])
    copies: dict[str, int] = {}
    unknown = 0
    for item in sorted(items, key=lambda item: tuple(item["sequence"].values())):
        if item["covered"] > first[item["identity"]]:
            continue
        there = copies.get(item["key"], 0)
        unknown += item["is_delete"] and not there
        copies[item["key"]] = max(0, there - 1) if item["is_delete"] else there + 1
    return copies, unknown


@settings(max_examples=400)
@given(items=bags(), seed=st.randoms(use_true_random=False))
@pytest.mark.thorough
def test_a_bag_counts_its_rows(items: list[dict[str, Any]], seed: Random) -> None:
    whole = fold_operations(table_of(items, keyed=False), keyed=False)
    parts = shared_out(items, seed, keyed=False)
    assert told(fold_operations(parts, keyed=False)) == told(whole)
    fitting = [item | {"reason": None} for item in items]
    folded = fold_operations(table_of(fitting, keyed=False), keyed=False)
    copies, unknown = counted_rows(fitting)
    assert {row["key"]: row["copies"] for row in folded.rows.to_pylist()} == copies
    assert folded.counts.unknown_deletes == unknown
    assert folded.counts.copies == sum(copies.values())


@settings(max_examples=100)
@given(watermarks=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20)), max_size=12))
def test_a_watermark_covers_what_comes_after_it_in_its_partition(
    watermarks: list[tuple[int, int]],
) -> None:
    rows = [
        {"topic": "t", "partition": partition, "offset": 2 * offset, "commit_ts": ts}
        for offset, (partition, ts) in enumerate(watermarks)
    ]
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("commit_ts", pa.int64()),
        ]
    )
    halves = (rows[1::2], rows[::2])
    found = watermarks_of(pa.RecordBatch.from_pylist(half, schema) for half in halves)
    changes = [
        {"topic": "t", "partition": partition, "offset": offset, "commit_ts": commit_ts}
        for offset in range(-1, 2 * len(rows) + 1, 2)
        for partition in range(3)
        for commit_ts in range(22)
    ]

    def is_covered(change: dict[str, Any]) -> bool:
        return any(
            row["partition"] == change["partition"]
            and row["offset"] < change["offset"]
            and row["commit_ts"] >= change["commit_ts"]
            for row in rows
        )

    expected = [change["offset"] if is_covered(change) else -1 for change in changes]
    assert found.covering(pa.RecordBatch.from_pylist(changes, schema)).tolist() == expected


@pytest.mark.spark
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(items=operations(), bag=bags(), with_keys=st.booleans())
def test_both_executors_come_to_the_same(
    items: list[dict[str, Any]],
    bag: list[dict[str, Any]],
    with_keys: bool,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    heap = replace(SCHEMA, indexes=())

    def convert(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    for schema, table in (
        (SCHEMA, table_of(items, keyed=True)),
        (heap, table_of(bag, keyed=False)),
    ):
        found = []
        for runs_on, folder in (
            (Inline(), None),
            (Inline(holds=False), tmp_path),
            (OnSpark(spark, tmp_path), tmp_path),
        ):
            fold = MirrorFold(
                schema=schema,
                condition=None,
                convert=convert,
                ddl_stamps=range(6),
                watched=frozenset({"=0", "=1"}),
                output=Output(folder=folder, faults=folder, with_keys=with_keys),
                rows=3,
            )
            log = Rows.here(pa.concat_tables([table.slice(0, 4), table.slice(4)]))
            (folded,) = run_folds(runs_on, log, [fold])
            assert (folded.rows.table is None) is (folder is not None)
            rows = sorted(map(repr, folded.rows.table_here().to_pylist()))
            faults = sorted(map(repr, folded.faults.table_here().to_pylist()))
            in_spark = sorted(map(repr, folded.rows.frame(spark).toArrow().to_pylist()))
            assert in_spark == rows
            keys = folded.keys and [folded.keys.rows.to_pylist(), folded.keys.flags.to_pylist()]
            told = sorted(map(repr, zip(*keys, strict=True))) if keys else []
            found.append((rows, faults, folded.counts, folded.never_sent, folded.newest, told))
        assert found[0] == found[1] == found[2]
