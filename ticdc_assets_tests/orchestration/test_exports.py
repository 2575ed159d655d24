"""Exports in Dagster: the jobs that seed and compare, their checks, and the schedule."""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.demo.simulator.export import export_upstream
from ticdc_assets.log.cuts import require_cut
from ticdc_assets.orchestration import exports as exports_module
from ticdc_assets.orchestration.changefeeds import all_definitions
from ticdc_assets.orchestration.metadata import utc_now
from ticdc_assets.orchestration.run import run_seed, run_sync
from ticdc_assets.repair.rebuilding import rebuild
from ticdc_assets.source.exports.folder import finished_exports
from ticdc_assets.spark.session import LazySession
from ticdc_assets_tests.orchestration.small_shop import ODD, ORDERS, SmallShop

pytestmark = pytest.mark.dagster


@pytest.fixture
def exported(shop: SmallShop, tmp_path: Path) -> Path:
    """A folder with an export, between changes that the changefeed sends all of."""
    shop.create_tables()
    shop.insert(ORDERS, 5)
    shop.send()
    folder = tmp_path / "exports" / "first"
    folder.parent.mkdir()
    export_upstream(shop.upstream, folder)
    shop.insert(ORDERS, 2)
    shop.send()
    return folder


def job(shop: SmallShop, name: str) -> dg.JobDefinition:
    return all_definitions(shop.settings).resolve_job_def(name)


def test_a_seed_reports_its_tables_and_what_was_applied(
    shop: SmallShop, exported: Path, instance: dg.DagsterInstance
) -> None:
    run_sync(shop.settings, "shop", instance=instance)
    path = exported / "shop.orders.000000000.csv"
    path.write_bytes(path.read_bytes() + b"no row\r\n")
    report = run_seed(shop.settings, "shop", {"folder": str(exported)}, instance=instance)
    assert report.seeding.rows == 5
    names = shop.names
    made = set(instance.get_asset_keys(prefix=["shop", "mirrors"]))
    assert made == {names.mirror(*ORDERS), names.mirror(*ODD)}
    for name in ("snapshot", "schema_registry", "apply_changes"):
        event = instance.get_latest_materialization_event(names.asset(name))
        assert event is not None, name
        assert event.run_id == report.run_id, name
    event = instance.get_latest_materialization_event(names.asset("snapshot"))
    assert event is not None
    assert event.asset_materialization is not None
    seeds = event.asset_materialization.metadata["seeds"]
    assert isinstance(seeds, dg.TableMetadataValue)
    shown = [(it.data["table"], it.data["rows"], it.data["quarantined"]) for it in seeds.records]
    assert shown == [(ODD[1], 0, 0), ("orders", 5, 1)]
    (check,) = (
        item.asset_check_evaluation
        for item in instance.all_logs(
            report.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION
        )
        if item.asset_check_evaluation
    )
    assert check.check_name == "snapshot_complete"
    assert not check.passed
    assert check.severity is dg.AssetCheckSeverity.WARN
    assert {item.table: item.rows for item in require_cut(shop.paths).mirrors}["orders"] == 7


def test_rows_that_are_seeded_after_a_rebuild_are_found_by_the_check(
    shop: SmallShop, exported: Path, instance: dg.DagsterInstance
) -> None:
    run_sync(shop.settings, "shop", instance=instance)
    # A run that waits for the writer has loaded its definitions before.
    waiting = job(shop, shop.names.job("seed"))
    with shop.lake.writing():
        rebuild(shop.lake.using(LazySession()))
    result = waiting.execute_in_process(
        run_config={"ops": {shop.names.op("seed"): {"config": {"folder": str(exported)}}}},
        instance=instance,
    )
    (check,) = result.get_asset_check_evaluations()
    assert check.passed, check.description


def test_without_a_folder_no_seed_runs(shop: SmallShop, instance: dg.DagsterInstance) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError, match="folder"):  # so does the Launchpad
        run_seed(shop.settings, "shop", {}, instance=instance)
    assert not instance.get_runs()
    with pytest.raises(TicdcError, match="no export is named"):
        run_seed(shop.settings, "shop", {"folder": ""}, instance=instance)
    assert not shop.paths.snapshot_rows.exists()


def test_without_a_folder_nothing_is_compared(
    shop: SmallShop, instance: dg.DagsterInstance
) -> None:
    with pytest.raises(dg.Failure, match="no export is named"):
        job(shop, shop.names.job("diff")).execute_in_process(instance=instance)
    key = dg.AssetCheckKey(shop.names.asset("apply_changes"), "mirror_equals_source")
    result = (
        shop.definitions.resolve_implicit_global_asset_job_def()
        .get_subset(asset_selection=set(), asset_check_selection={key})
        .execute_in_process(instance=instance)
    )
    assert result.success, '"Execute all" names no export'
    assert not list(result.get_asset_check_evaluations())


def evaluations(
    shop: SmallShop, instance: dg.DagsterInstance, folder: Path
) -> Iterator[dg.AssetCheckEvaluation]:
    op = shop.names.op("mirror_equals_source")
    result = job(shop, shop.names.job("diff")).execute_in_process(
        run_config={"ops": {op: {"config": {"folder": str(folder)}}}},
        instance=instance,
        raise_on_error=False,
    )
    assert result.success
    yield from result.get_asset_check_evaluations()


def test_a_comparison_with_an_export_is_a_check_of_the_mirrors(
    shop: SmallShop, exported: Path, instance: dg.DagsterInstance
) -> None:
    run_sync(shop.settings, "shop", instance=instance)
    (equal,) = evaluations(shop, instance, exported)
    assert equal.passed, equal.description
    path = exported / "shop.orders.000000000.csv"
    path.write_bytes(path.read_bytes().replace(b"9.90", b"9.91", 1))
    (other,) = evaluations(shop, instance, exported)
    assert not other.passed
    assert "1 of 2 mirrors differ" in (other.description or "")
    assert require_cut(shop.paths).number == 1, "a comparison publishes nothing"


def test_the_schedule_compares_each_finished_export_once(
    shop: SmallShop,
    exported: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = dg.DagsterInstance.local_temp(str(tmp_path))  # a schedule needs its reference
    shop.set(exports=str(exported.parent))
    definitions = all_definitions(shop.settings)
    schedule = definitions.resolve_schedule_def(shop.names.schedule("diff"))

    def looked() -> Any:
        with dg.build_schedule_context(instance=instance) as context:
            found = schedule.evaluate_tick(context)
        return found.skip_message or [item.run_key for item in found.run_requests or ()]

    def ran(key: str) -> dg.DagsterRun:
        comparing = definitions.resolve_job_def(shop.names.job("diff"))
        return instance.create_run_for_job(comparing, tags={"dagster/run_key": key})

    assert looked() == "no cut was published yet"
    run_sync(shop.settings, "shop", instance=instance)
    (first,) = looked()
    instance.report_run_failed(ran(first))
    assert "failed (1 in a row); the next try is at" in looked()
    with monkeypatch.context() as patch:
        patch.setattr(exports_module, "utc_now", lambda: utc_now() + timedelta(minutes=2))
        assert looked() == [first]
    instance.report_run_canceled(ran(first))
    assert looked() == [first], "a comparison that was cancelled has no result"
    compared = f"each export is compared once: {exported} by run {ran(first).run_id}"
    assert looked() == compared
    later = exported.parent / "second"
    export_upstream(shop.upstream, later)
    assert looked() == compared, "its TSO lies above the newest cut"
    shutil.move(later / "metadata", later / "metadata.partial")
    shop.insert(ORDERS, 1)
    shop.sync(instance)
    assert looked() == compared, "it is not finished"
    shutil.move(later / "metadata.partial", later / "metadata")
    (second,) = looked()
    assert second != first
    unreadable = exported.parent / "unreadable" / "metadata"
    unreadable.mkdir(parents=True)
    assert looked() == [second], "a folder that cannot be read is left out"
    shutil.rmtree(exported)
    shutil.rmtree(later)
    assert looked() == (
        f"0 finished exports in {exported.parent}, none at or below the newest cut; "
        "1 folder cannot be read"
    )
    shutil.rmtree(exported.parent)
    assert "none at or below" in looked()
    exported.parent.touch()
    assert "cannot be read: " in looked()


def test_exports_below_a_uri_with_a_query_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "all" / "2026 1%"
    folder.mkdir(parents=True)
    (folder / "metadata").write_text(
        "Started dump at: 2024-01-01\nPos: 446266324640595968\nFinished dump at: 2024-01-01\n"
    )
    (tso, place), *more = finished_exports(f"{folder.parent.as_uri()}?a=b:1&c=d")[0]
    assert (tso, more) == (446266324640595968, [])
    assert place == f"{folder.as_uri()}?a=b:1&c=d"
