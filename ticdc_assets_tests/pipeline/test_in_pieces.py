"""Mirrors of values that are too large to be held: made in pieces, they are the same mirrors."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ticdc_assets.engine import files
from ticdc_assets.engine.control import is_portable, open_table
from ticdc_assets.pipeline import change_folding, mirror_making, totals
from ticdc_assets.pipeline.mirror_making import Mode
from ticdc_assets.rows.folding import FoldInPieces
from ticdc_assets.simulator.alterations import AddColumn, RenameColumn
from ticdc_assets.simulator.changefeed import StandInChangefeed
from ticdc_assets.simulator.columns import column
from ticdc_assets.simulator.upstream import Upstream
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.changelog.test_storm import ZONE
from ticdc_assets_tests.lake.feeds import Feed, truth_rows
from ticdc_assets_tests.simulator.builders import churn, fill
from ticdc_assets_tests.simulator.storm import storm
from ticdc_assets_tests.simulator.variants import Variant

pytestmark = pytest.mark.spark

T = ("d", "t")


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Treat all values as large; return in how many pieces each fold came."""
    monkeypatch.setattr(totals, "LARGE_ROW_BYTES", 0)
    monkeypatch.setattr(mirror_making, "LARGE_BYTES", 0)
    monkeypatch.setattr(files, "_BATCH_BYTES", 300)
    counts: list[int] = []
    fold = change_folding.fold_in_pieces

    def counted(*arguments: Any, **named: Any) -> FoldInPieces:
        counts.append(0)
        made = fold(*arguments, **named)

        def all_of_them() -> Iterator[pa.Table]:
            for piece in made.pieces():
                counts[-1] += 1
                yield piece

        return replace(made, pieces=all_of_them)

    monkeypatch.setattr(change_folding, "fold_in_pieces", counted)
    return counts


def test_mirrors_made_in_pieces_are_the_truth_at_every_cut(
    spark: SparkSession, tmp_path: Path, pieces: list[int]
) -> None:
    upstream = Upstream()
    upstream.create_database("d")
    upstream.create_table(
        T,
        (column("id", "bigint", nullable=False), column("v", "varchar(200)")),
        primary_key=("id",),
    )
    fill(upstream, T, rows=60)
    changefeed = StandInChangefeed(upstream, "feed", partitions=2)
    feed = Feed.of(spark, tmp_path)

    def synced() -> str:
        feed.write(changefeed.tick())
        feed.sync()
        assert feed.rows() == truth_rows(changefeed.truth())
        (mirror,) = feed.cut.mirrors
        table = open_table(mirror.path(feed.paths))
        assert table is not None
        assert is_portable(table)
        return mirror.mode

    assert synced() == Mode.FOLD
    churn(upstream, steps=5, seed=1)
    assert synced() == Mode.CHANGE
    assert len(pieces) == 2
    assert min(pieces) > 1
    old_ts, old_rows = feed.cut.tso, feed.rows()
    # The first of a type that Delta has to be told of.
    upstream.alter_table(T, AddColumn(column=column("n", "datetime")))
    upstream.alter_table(T, RenameColumn(name="v", new_name="w"))
    churn(upstream, steps=5, seed=2)
    with upstream.transaction() as transaction:
        transaction.update(
            T, (next(iter(upstream.rows(T)))[0],), changes={"n": "2026-01-02 03:04:05"}
        )
    assert synced() == Mode.REWRITE
    assert len(pieces) == 3
    assert feed.rows_as_of(old_ts) == old_rows


@pytest.mark.parametrize("wire_format", [WireFormat.SIMPLE_JSON, WireFormat.CRAFT])
def test_a_storm_in_pieces_of_values_is_the_truth_at_every_cut(
    wire_format: WireFormat, spark: SparkSession, tmp_path: Path, pieces: list[int]
) -> None:
    state = storm(11, steps=40, keyless=False, timezone=ZONE)
    changefeed = Variant(wire_format).changefeed(state.upstream, seed=11)
    feed = Feed.of(spark, tmp_path, timezone=ZONE, wire_format=wire_format)
    records = list(changefeed.tick())
    for start in range(0, len(records), len(records) // 2 + 1):
        feed.write(records[start : start + len(records) // 2 + 1])
        if feed.sync().cut is not None:
            assert feed.rows() == truth_rows(changefeed.truth(feed.cut.tso))
    assert feed.cut.tso == changefeed.watermark_ts
    assert max(pieces) > 1
