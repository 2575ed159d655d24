"""A run that dies between any two steps and runs again ends in the state of one that did not."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.delta import committing
from ticdc_assets.delta.control import commit_metadata, read_rows
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.opening import latest_version
from ticdc_assets.demo.simulator.alterations import AddColumn, RenameColumn
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log import decoding, landing, schema_tables
from ticdc_assets.log.quarantine import count_open
from ticdc_assets.mirrors import applying as mirrors
from ticdc_assets.mirrors import mirror_making
from ticdc_assets.mirrors.standing import Outcome
from ticdc_assets.repair.maintenance import maintain
from ticdc_assets_tests.demo.simulator.builders import churn, fill, plain_upstream
from ticdc_assets_tests.golden import Rows
from ticdc_assets_tests.lake.feeds import Feed, small_up_to, truth_rows
from ticdc_assets_tests.lake.killing import after, before, killed

pytestmark = pytest.mark.spark


DEATHS = {
    "raw landed, not logged": before(landing, "_log_landing"),
    "change log appended, errors and totals missing": after(decoding, "append_changes"),
    "errors quarantined, totals missing": before(decoding, "add_to_statistics"),
    "totals written": after(decoding, "add_to_statistics"),
    "DDL history written, registry missing": after(schema_tables, "write_table", 1),
    "conflicts written, registry missing": after(schema_tables, "write_table", 2),
    "registry written": after(schema_tables, "write_table", 3),
    "one mirror overwritten": after(mirror_making.MirrorMaker, "_overwrite"),
    "vectors and rows of one mirror written, nothing committed": before(committing, "create"),
    "one mirror changed": after(mirror_making.MirrorMaker, "_change"),
    "every mirror there, nothing published": before(mirrors, "publish"),
    "published": after(mirrors, "publish"),
}

OF_LARGE = {
    "vectors and rows of one mirror written, nothing committed",
    "one mirror changed",
    "every mirror there, nothing published",
}
"""Those before which small mirrors are written as large ones are."""


def two_tables() -> Upstream:
    """Return an upstream of two tables with eight rows each."""
    return plain_upstream(("d", "altered"), ("d", "plain"), rows=8)


def alter(upstream: Upstream) -> None:
    """Alter one of the tables, change rows of both, and add a third table."""
    upstream.alter_table(
        ("d", "altered"), AddColumn(column=column("n", "int", nullable=False, default="7"))
    )
    upstream.alter_table(("d", "altered"), RenameColumn(name="v", new_name="w"))
    churn(upstream, steps=10, seed=1)
    upstream.create_table(
        ("d", "added"), (column("id", "int", nullable=False),), primary_key=("id",)
    )
    fill(upstream, ("d", "added"), rows=3)


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Feed, Rows, int]:
    """A feed with one published cut, whose capture then grew: rows, DDL and a damaged record."""
    folder = tmp_path_factory.mktemp("story")
    upstream = two_tables()
    changefeed = StandInChangefeed(upstream, "d", partitions=2)
    feed = Feed.of(spark, folder)
    feed.follow(changefeed)
    alter(upstream)
    feed.write(changefeed.tick())
    feed.write([changefeed.inject(1, key=None, value=b"{")])
    return feed, truth_rows(changefeed.truth()), feed.cut.number


@pytest.mark.parametrize("death", DEATHS)
def test_a_killed_run_is_finished_by_the_next(
    death: str,
    story: tuple[Feed, Rows, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    template, truth, number = story
    if death in OF_LARGE:
        small_up_to(monkeypatch, 0)
    shutil.copytree(template.paths.root, tmp_path / "lake")
    feed = template.in_folder(tmp_path)
    with killed(DEATHS[death]):
        feed.sync()
    feed.sync()
    assert feed.rows() == truth
    assert feed.cut.number == number + 1
    assert feed.cut.quarantined == 1
    groups = read_rows(feed.paths.change_groups)
    log, raw = read_rows(feed.paths.change_log), read_rows(feed.paths.raw_messages)
    assert sum(row["rows"] for row in groups) == len(log)
    assert len({place(row, "index") for row in log}) == len(log)
    assert len({place(row) for row in raw}) == len(raw)
    for mirror in feed.cut.mirrors:
        assert latest_version(mirror.path(feed.paths)) == mirror.version
    assert feed.sync().outcome is Outcome.UNCHANGED


@pytest.mark.parametrize("finish", [decoding.decode_new, maintain])
def test_a_batch_is_finished_with_what_it_refused_whatever_a_newer_program_reads(
    finish: Callable[[Lake], object],
    story: tuple[Feed, Rows, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    template, _, _ = story
    shutil.copytree(template.paths.root, tmp_path / "lake")
    feed = template.in_folder(tmp_path)
    with killed(after(decoding, "append_changes")):
        feed.sync()
    assert count_open(feed.paths).decode == 0
    # The refused record is in a file that no commit of the quarantine names.
    (file,) = feed.paths.quarantine.glob("*.parquet")
    os.utime(file, (0, 0))
    monkeypatch.setattr(decoding, "decode_into_files", None)
    finish(feed.lake)
    assert count_open(feed.paths).decode == 1
    assert commit_metadata(feed.paths.change_groups)["batch"] == 2


def test_landed_batches_that_wait_are_one_commit_and_are_counted_after_a_kill(feed: Feed) -> None:
    upstream = two_tables()
    changefeed = StandInChangefeed(upstream, "d", partitions=2)
    feed.follow(changefeed)
    for seed in range(3):
        churn(upstream, steps=5, seed=seed)
        feed.write([*changefeed.tick(), changefeed.inject(1, key=None, value=b"{")])
        feed.land()
    with killed(before(decoding, "add_to_statistics")):
        decoding.decode_new(feed.lake)
    assert latest_version(feed.paths.change_log) == 1
    assert commit_metadata(feed.paths.change_log)["landed"] == 4
    feed.sync()
    feed.require_truth(changefeed)
    assert count_open(feed.paths).decode == 3
    log, groups = read_rows(feed.paths.change_log), read_rows(feed.paths.change_groups)
    assert {row["batch"] for row in log} == {1, 2, 3, 4}
    assert sum(row["rows"] for row in groups) == len(log)
    assert len({place(row, "index") for row in log}) == len(log)


def place(row: dict[str, Any], *more: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("topic", "partition", "offset", *more))
