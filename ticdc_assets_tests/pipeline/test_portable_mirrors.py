"""Mirrors that are written without Spark while they are small, and what becomes of them."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ticdc_assets.config import Retention
from ticdc_assets.engine.control import is_portable, open_table, read_portable
from ticdc_assets.pipeline import mirror_making, mirrors, overwriting
from ticdc_assets.pipeline.cuts import MirrorCut
from ticdc_assets.pipeline.mirror_making import Mode
from ticdc_assets.pipeline.mirror_properties import mirror_properties
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.services.maintenance import maintain
from ticdc_assets.simulator.alterations import AddColumn, RenameColumn
from ticdc_assets.simulator.changefeed import StandInChangefeed
from ticdc_assets.simulator.columns import column
from ticdc_assets.simulator.upstream import Upstream
from ticdc_assets_tests.lake.feeds import Feed, truth_rows
from ticdc_assets_tests.lake.test_killed_runs import Killed, before
from ticdc_assets_tests.simulator.builders import churn, fill

pytestmark = pytest.mark.spark

T = ("d", "t")


def upstream_of(*names: str) -> Upstream:
    """Return an upstream with a table for each name, which has a column of that name."""
    upstream = Upstream()
    upstream.create_database("d")
    for number, name in enumerate(names):
        upstream.create_table(
            ("d", f"t{number}" if number else "t"),
            (
                column("id", "bigint", nullable=False),
                column(name, "varchar(40)"),
                column("amount", "decimal(30,8)"),
                column("at", "datetime(6)"),
                column("seen", "timestamp(6)"),
                column("bits", "varbinary(20)"),
            ),
            primary_key=("id",),
        )
    return upstream


def is_plain_now(feed: Feed, mirror: MirrorCut) -> bool:
    table = open_table(mirror.path(feed.paths))
    assert table is not None
    return is_portable(table)


def test_a_mirror_is_plain_until_it_is_large(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_making, "SMALL_MIRROR_ROWS", 20)
    monkeypatch.setattr(overwriting, "PORTABLE_ROWS", 20)
    upstream = upstream_of("v")
    fill(upstream, T, rows=8)
    changefeed = StandInChangefeed(upstream, "feed", partitions=2)
    feed = Feed.of(spark, tmp_path)

    def synced() -> MirrorCut:
        feed.write(changefeed.tick())
        feed.sync()
        assert feed.rows() == truth_rows(changefeed.truth())
        (mirror,) = feed.cut.mirrors
        return mirror

    first = synced()
    small_ts, small_rows = feed.cut.tso, feed.rows()
    assert is_plain_now(feed, first)
    churn(upstream, steps=3, seed=1)
    upstream.alter_table(
        T, AddColumn(column=column("n", "datetime")), RenameColumn(name="v", new_name="w")
    )
    small = synced()
    assert small.mode == Mode.REWRITE
    assert is_plain_now(feed, small)
    # Readers outside Spark find the same rows.
    rows = read_portable(small.path(feed.paths), small.version)
    assert rows is not None
    assert rows.schema.equals(MirrorLayout(schema=small.table_schema).arrow)
    assert rows.num_rows == small.rows

    fill(upstream, T, rows=40, seed=2)
    assert not is_plain_now(feed, synced())
    churn(upstream, steps=3, seed=3)
    assert synced().mode == Mode.MERGE
    for key in list(upstream.rows(T))[5:]:
        with upstream.transaction() as transaction:
            transaction.delete(T, key)
    synced()
    churn(upstream, steps=3, seed=4)
    assert synced().mode == Mode.REWRITE
    assert feed.rows_as_of(small_ts) == small_rows
    assert feed.read(*T).count() == len(upstream.rows(T))


def test_no_name_keeps_a_mirror_from_being_plain(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = upstream_of("v", "a b", "x,y;{}()=", "dotted.name", "back`tick", "名前 é")
    for name in upstream.tables:
        fill(upstream, name, rows=5)
    changefeed = StandInChangefeed(upstream, "feed", partitions=2)
    feed = Feed.of(spark, tmp_path)
    for seed in range(2):
        churn(upstream, steps=10, seed=seed)
        feed.write(changefeed.tick())
        feed.sync()
        assert feed.rows() == truth_rows(changefeed.truth())
    assert all(is_plain_now(feed, mirror) for mirror in feed.cut.mirrors)
    for mirror in feed.cut.mirrors:
        assert feed.read("d", mirror.table).count() == mirror.rows
    # Maintenance brings properties up to date, which Spark would refuse where a name has a space.
    kept = replace(feed.changefeed, retention=Retention(cuts=timedelta(days=9)))
    maintain(spark, feed.paths, kept)
    for mirror in feed.cut.mirrors:
        table = open_table(mirror.path(feed.paths))
        assert table is not None
        wanted = mirror_properties(kept.retention)
        assert wanted.items() <= table.metadata().configuration.items()
    assert feed.rows() == truth_rows(changefeed.truth())
    # And what grows gets column mapping under the same names.
    monkeypatch.setattr(overwriting, "PORTABLE_ROWS", 0)
    churn(upstream, steps=20, seed=5)
    feed.write(changefeed.tick())
    feed.sync()
    assert not any(is_plain_now(feed, mirror) for mirror in feed.cut.mirrors)
    assert feed.rows() == truth_rows(changefeed.truth())


def test_what_a_killed_run_left_ahead_is_written_over(spark: SparkSession, tmp_path: Path) -> None:
    upstream = upstream_of("v")
    fill(upstream, T, rows=8)
    changefeed = StandInChangefeed(upstream, "feed", partitions=2)
    feed = Feed.of(spark, tmp_path)
    feed.write(changefeed.tick())
    feed.sync()
    churn(upstream, steps=5, seed=1)
    feed.write(changefeed.tick())
    with pytest.MonkeyPatch.context() as monkeypatch:
        before(mirrors, "publish")(monkeypatch)
        with pytest.raises(Killed):
            feed.sync()
    (published,) = feed.cut.mirrors
    table = open_table(published.path(feed.paths))
    assert table is not None
    assert table.version() > published.version
    feed.sync()
    assert feed.rows() == truth_rows(changefeed.truth())
    (mirror,) = feed.cut.mirrors
    newest = spark.read.format("delta").load(str(mirror.path(feed.paths)))
    assert newest.count() == mirror.rows


def test_rows_that_no_change_is_about_pass_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    upstream = upstream_of("v")
    with upstream.transaction() as transaction:
        for number in range(30):
            zero = number % 3 == 0
            transaction.insert(
                T,
                {
                    "id": str(number),
                    "v": None if number % 5 == 0 else f"row {number}",
                    "amount": f"{number}.00000001",
                    "at": "0000-00-00 00:00:00.000000" if zero else "9999-12-31 23:59:59.999999",
                    "seen": "2026-01-01 00:00:00.000001",
                    "bits": None,
                },
            )
    changefeed = StandInChangefeed(upstream, "feed", partitions=2)
    feed = Feed.of(spark, tmp_path)
    feed.write(changefeed.tick())
    feed.sync()
    (first,) = feed.cut.mirrors
    with upstream.transaction() as transaction:
        transaction.update(T, ("3",), changes={"v": "changed"})
        transaction.delete(T, ("6",))
        transaction.update(T, ("7",), changes={"id": "700"})
    feed.write(changefeed.tick())
    feed.sync()
    (mirror,) = feed.cut.mirrors
    assert (mirror.mode, mirror.rows) == (Mode.REWRITE, 29)
    assert feed.rows() == truth_rows(changefeed.truth())
    tables = [read_portable(item.path(feed.paths), item.version) for item in (first, mirror)]
    old, new = (by_id(table) for table in tables if table is not None)
    assert {key: new[key] for key in old if key not in {3, 6, 7}} == {
        key: row for key, row in old.items() if key not in {3, 6, 7}
    }
    # The rows that it was about are known by their commit ts.
    assert {row["_ticdc_commit_ts"] for row in old.values()} != {new[3]["_ticdc_commit_ts"]}


def by_id(table: pa.Table) -> dict[int, dict[str, object]]:
    return {row["id"]: row for row in table.to_pylist()}
