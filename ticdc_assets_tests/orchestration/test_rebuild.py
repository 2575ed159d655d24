"""The rebuild in Dagster: the check that proves mirrors, and the backfill that folds them again."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterRunStatus
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from ticdc_assets.delta.opening import latest_version
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.log.cuts import Cut, publish, require_cut
from ticdc_assets.mirrors import applying as mirrors
from ticdc_assets.orchestration.active_runs import active_runs
from ticdc_assets.orchestration.changefeeds import all_definitions
from ticdc_assets.orchestration.instance import open_instance
from ticdc_assets.reading.mirrors import read_mirror
from ticdc_assets_tests.orchestration.small_shop import ODD, ORDERS, SmallShop, recorded

pytestmark = pytest.mark.spark

ITEMS = ("shop", "items")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> SmallShop:
    """A changefeed of three tables; the tests of this module go on from each other."""
    shop = SmallShop(tmp_path_factory.mktemp("shop"))
    shop.create_tables()
    shop.upstream.create_table(ITEMS, (column("id", "int", nullable=False),), primary_key=("id",))
    shop.insert(ORDERS, 4)
    shop.insert(ODD, 3)
    with shop.upstream.transaction() as transaction:
        transaction.insert(ITEMS, {"id": "1"})
    return shop


@pytest.fixture(scope="module")
def instance(shop: SmallShop) -> Iterator[dg.DagsterInstance]:
    with open_instance(shop.settings) as instance:
        shop.sync(instance)
        yield instance


def checked(shop: SmallShop, instance: dg.DagsterInstance) -> dg.AssetCheckEvaluation:
    """Run the verify job and return what the rebuild says; keys are unique in all of it."""
    job = all_definitions(shop.settings).resolve_job_def("shop_verify")
    result = job.execute_in_process(instance=instance)
    assert result.success
    found = {item.check_name: item for item in result.get_asset_check_evaluations()}
    assert set(found) == {"keys_unique", "mirror_equals_rebuild"}
    assert {item.asset_key for item in found.values()} == {shop.names.asset("apply_changes")}
    assert found["keys_unique"].passed
    return found["mirror_equals_rebuild"]


def damaged(shop: SmallShop, spark: SparkSession) -> Cut:
    """Change one price and lose a row of the odd table, and publish a cut with both."""
    cut = require_cut(shop.paths)
    kept: list[Any] = []
    for mirror in cut.mirrors:
        table = DeltaTable.forPath(spark, str(mirror.path(shop.paths)))
        if (mirror.database, mirror.table) == ORDERS:
            table.update("id = 2", {"price": "0.10"})
        elif (mirror.database, mirror.table) == ODD:
            table.delete("id = 5")
        version = latest_version(mirror.path(shop.paths))
        assert version is not None
        rows = table.toDF().count()
        kept.append(replace(mirror, version=version, rows=rows))
    publish(shop.paths, replace(cut, number=cut.number + 1, mirrors=tuple(kept)))
    return require_cut(shop.paths)


def test_sound_mirrors_pass_by_a_job_of_its_own(
    shop: SmallShop, instance: dg.DagsterInstance
) -> None:
    evaluation = checked(shop, instance)
    assert evaluation.passed
    assert (evaluation.description or "").startswith("3 of 3 mirrors of cut 1 at ")
    assert evaluation.metadata["proof_from"].value == "the first record"
    run = instance.get_runs(limit=1)[0]
    assert (run.job_name, run.status) == ("shop_verify", DagsterRunStatus.SUCCESS)


def test_a_job_that_a_user_made_of_the_assets_verifies_nothing(
    shop: SmallShop, instance: dg.DagsterInstance
) -> None:
    own = dg.define_asset_job("own", selection=[shop.names.asset("apply_changes")])
    definitions = dg.Definitions.merge(all_definitions(shop.settings), dg.Definitions(jobs=[own]))
    done = definitions.resolve_job_def("own").execute_in_process(instance=instance)
    found = {item.check_name for item in done.get_asset_check_evaluations()}
    assert "replication_lag" in found
    assert not found & {"keys_unique", "mirror_equals_rebuild"}


def test_a_verify_keeps_no_sync_waiting(shop: SmallShop, instance: dg.DagsterInstance) -> None:
    job = all_definitions(shop.settings).resolve_job_def("shop_verify")
    run = instance.create_run_for_job(job, status=DagsterRunStatus.STARTED)
    try:
        assert active_runs(instance, shop.names) == []
        assert not job.op_selection_data
        assert all(not node.definition.pool for node in job.graph.nodes)
    finally:
        instance.report_run_canceled(run)


def test_damage_fails_with_key_and_column_and_without_values(
    shop: SmallShop, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    damaged(shop, spark)
    evaluation = checked(shop, instance)
    assert not evaluation.passed
    assert evaluation.severity is dg.AssetCheckSeverity.ERROR
    said = evaluation.description or ""
    assert "2 of 3 mirrors of cut 2" in said
    assert "shop.orders: different; rows: 1 changed (first changed: id=2 in price)" in said
    rows = [record.data for record in evaluation.metadata["rows"].records]
    names = ("table", "row", "key", "columns")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (ODD[1], "missing", "id=5", ""),
        ("orders", "changed", "id=2", "price"),
    ]
    assert "0.10" not in repr(evaluation)


def test_a_backfill_mends_chosen_mirrors_at_once_while_readers_read_on(
    shop: SmallShop,
    instance: dg.DagsterInstance,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(table: tuple[str, str]) -> DataFrame:
        return read_mirror(spark, "shop", *table, settings=shop.settings)

    def seen(orders: DataFrame, odd: DataFrame) -> tuple[str, int]:
        return str(orders.where("id = 2").collect()[0]["price"]), odd.count()

    before = require_cut(shop.paths)
    held = read(ORDERS), read(ODD)
    in_between: list[tuple[str, int]] = []
    publish_cut = mirrors.publish

    def publish_after_a_look(*arguments: Any) -> None:
        in_between.append(seen(read(ORDERS), read(ODD)))
        publish_cut(*arguments)

    monkeypatch.setattr(mirrors, "publish", publish_after_a_look)
    for table in (ODD, ORDERS):
        job = all_definitions(shop.settings).resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(
            asset_selection=[shop.names.mirror(*table)], instance=instance
        )
        assert result.success
        run = recorded(instance, result.run_id)
        assert run.tags["ticdc/changefeed"] == "shop", "the run of a button has the tag too"
    monkeypatch.undo()
    assert in_between == [("0.10", 2), ("0.10", 3)]
    assert seen(*held) == ("0.10", 2)
    assert seen(read(ORDERS), read(ODD)) == ("9.90", 3)
    after = require_cut(shop.paths)
    assert (after.number, after.tso) == (before.number + 2, before.tso)
    assert after.mirror(*ITEMS) == replace(
        before.mirror(*ITEMS) or after.mirrors[0], mode="carried", changes=0
    )
    assert checked(shop, instance).passed
