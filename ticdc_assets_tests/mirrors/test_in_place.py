"""Schema changes of large mirrors: what needs no row to be written writes none."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.config import TableChoice
from ticdc_assets.delta import committing
from ticdc_assets.demo.simulator.alterations import (
    AddColumn,
    AlterAction,
    DropColumn,
    ModifyColumn,
    RenameColumn,
)
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log.cuts import Mode, read_cuts
from ticdc_assets.mirrors import mirror_making
from ticdc_assets.mirrors.versions import rows_as_stored
from ticdc_assets.repair.verifying import verify
from ticdc_assets.spark.frames import delta_frame
from ticdc_assets.storage.paths import AnyPath
from ticdc_assets_tests.delta.libraries import opened
from ticdc_assets_tests.demo.simulator.builders import churn, upstream_of
from ticdc_assets_tests.lake.feeds import Feed, keep_files_apart, small_up_to
from ticdc_assets_tests.lake.killing import Death, after, before, killed
from ticdc_assets_tests.mirrors.test_history import assert_as_folded

pytestmark = pytest.mark.spark

T = ("d", "t")

IN_PLACE: dict[str, tuple[AlterAction, ...]] = {
    "add NULL": (AddColumn(column=column("more", "int")),),
    "add first": (AddColumn(column=column("more", "varchar(9)"), first=True),),
    "add in the middle": (AddColumn(column=column("more", "datetime(3)"), after="id"),),
    "drop": (DropColumn(name="v"),),
    "rename": (RenameColumn(name="v", new_name="w"),),
    "widen": (ModifyColumn(name="n", column=column("n", "bigint")),),
    "move": (ModifyColumn(name="n", column=column("n", "int"), first=True),),
    "several": (
        RenameColumn(name="v", new_name="w"),
        DropColumn(name="d"),
        AddColumn(column=column("v", "bigint"), first=True),
        ModifyColumn(name="n", column=column("n", "bigint")),
    ),
}
REWRITTEN: dict[str, tuple[AlterAction, ...]] = {
    "add with a default": (AddColumn(column=column("more", "int", nullable=False, default="5")),),
    "another type": (ModifyColumn(name="n", column=column("n", "varchar(20)")),),
}


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    small_up_to(monkeypatch, 0)
    keep_files_apart(monkeypatch)


def started(spark: SparkSession, folder: Path) -> tuple[Feed, Upstream, StandInChangefeed]:
    upstream = upstream_of(
        T,
        (
            column("id", "bigint", nullable=False),
            column("v", "varchar(20)"),
            column("n", "int"),
            column("d", "datetime"),
        ),
        primary_key=("id",),
        rows=30,
    )
    changefeed = StandInChangefeed(upstream, "feed", partitions=2)
    feed = Feed.of(spark, folder)
    feed.follow(changefeed)
    return feed, upstream, changefeed


def operations(table: AnyPath) -> list[str]:
    """Return what the commits of a table since the first were, oldest first."""
    return [commit["operation"] for commit in reversed(opened(table).history())][1:]


def assert_read_alike(feed: Feed) -> None:
    """Assert that Arrow reads each version of the mirror as Spark does, deletion vectors too."""
    deleted = 0
    for cut in read_cuts(feed.paths):
        (mirror,) = cut.mirrors
        rows = rows_as_stored(*mirror.at(feed.paths))
        assert rows is not None
        deleted += sum(item.cardinality for item in rows.deleted.values())
        spark_rows = delta_frame(feed.lake.spark, *mirror.at(feed.lake.paths)).toArrow()
        assert rows.count == spark_rows.num_rows
        assert rows.schema.names == spark_rows.schema.names
        order = [("id", "ascending")]
        theirs = spark_rows.cast(rows.schema).sort_by(order)
        assert rows.table_here().sort_by(order).to_pylist() == theirs.to_pylist()
    assert deleted


BY_DAY = ("add in the middle", "several")
"""Of these the second has what the others do one by one."""


def test_small_mirrors_and_histories_have_the_columns_in_their_new_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed, upstream, changefeed = started(spark, tmp_path)
    feed = feed.having(history=TableChoice(("d.*",)))
    feed.sync()
    for behind, order in ((None, "nivd"), ("v", "ivnd"), ("d", "ivdn")):
        n = column("n", "int")
        moved = ModifyColumn(name="n", column=n, first=behind is None, after=behind)
        upstream.alter_table(T, moved)
        feed.follow(changefeed)
        (mirror,) = feed.cut.mirrors
        for path in (mirror.path(feed.paths), feed.paths.history(mirror.mirror_id)):
            table = opened(path)
            names = [field.name for field in table.schema().fields]
            assert "".join(name[0] for name in names if len(name) <= 2) == order
        feed.require_truth(changefeed)
        assert verify(feed.lake).equal


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    "actions",
    [
        pytest.param(actions, id=name, marks=() if name in BY_DAY else pytest.mark.slow)
        for name, actions in IN_PLACE.items()
    ],
)
def test_what_touches_no_row_is_altered(
    actions: tuple[AlterAction, ...], spark: SparkSession, tmp_path: Path
) -> None:
    feed, upstream, changefeed = started(spark, tmp_path)
    feed = feed.having(history=TableChoice(("d.*",)))
    feed.sync()
    upstream.alter_table(T, *actions)
    feed.follow(changefeed)
    (mirror,) = feed.cut.mirrors
    assert mirror.mode == Mode.ALTER
    feed.require_truth(changefeed)
    for table in (mirror.path(feed.paths), feed.paths.history(mirror.mirror_id)):
        assert operations(table) == ["WRITE"]
        assert len(list(table.glob("*.parquet"))) == 1
    churn(upstream, steps=10, seed=1)
    feed.follow(changefeed)
    (mirror,) = feed.cut.mirrors
    assert mirror.mode == Mode.CHANGE
    feed.require_truth(changefeed)
    assert_read_alike(feed)
    assert_as_folded(feed)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("actions", REWRITTEN.values(), ids=REWRITTEN)
def test_what_touches_rows_is_written_anew(
    actions: tuple[AlterAction, ...], spark: SparkSession, tmp_path: Path
) -> None:
    feed, upstream, changefeed = started(spark, tmp_path)
    upstream.alter_table(T, *actions)
    churn(upstream, steps=10, seed=1)
    feed.follow(changefeed)
    (mirror,) = feed.cut.mirrors
    assert mirror.mode == Mode.REWRITE
    feed.require_truth(changefeed)


DEATHS = {
    "nothing committed": before(committing, "create"),
    "altered and changed": after(mirror_making.MirrorMaker, "_change"),
}


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS)
def test_a_run_killed_after_altering_goes_on(
    death: Death, spark: SparkSession, tmp_path: Path
) -> None:
    feed, upstream, changefeed = started(spark, tmp_path)
    upstream.alter_table(T, *IN_PLACE["several"])
    churn(upstream, steps=10, seed=1)
    feed.write(changefeed.tick())
    with killed(death):
        feed.sync()
    feed.sync()
    feed.require_truth(changefeed)
    earlier = changefeed.watermark_ts
    assert feed.rows_as_of(earlier) == feed.rows()
