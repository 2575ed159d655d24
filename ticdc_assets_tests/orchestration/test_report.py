"""The report as an asset: written beside whoever writes the tables, without Spark."""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance

from ticdc_assets.config import Writer
from ticdc_assets.delta.lock import writer_lock
from ticdc_assets.orchestration.active_runs import active_runs
from ticdc_assets.orchestration.changefeeds import definitions_of
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets.spark import session
from ticdc_assets_tests.observe.report.small_lake import small_lake


@pytest.fixture
def steps(tmp_path: Path) -> ChangefeedSteps:
    changefeed, paths = small_lake(tmp_path)
    return ChangefeedSteps(changefeed=changefeed, root=paths.root)


@pytest.mark.thorough
def test_the_report_is_written_while_somebody_else_writes(
    steps: ChangefeedSteps, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "get_spark", lambda *_: pytest.fail("it asked for Spark"))
    definitions = definitions_of([steps])
    node = definitions.resolve_asset_graph().get(dg.AssetKey(["shop", "report"]))
    assert node.pools == set(), "it waits for nobody"
    with writer_lock(steps.paths, Writer()):
        result = definitions.resolve_job_def(steps.names.job("report")).execute_in_process(
            instance=instance
        )
    assert result.success
    (event,) = result.get_asset_materialization_events()
    metadata = event.materialization.metadata
    page = steps.paths.report
    assert metadata["path"].value == str(page)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert metadata["verdict"].value == "fail", "the lake is of another day"


def test_a_run_of_the_report_keeps_no_sync_waiting(
    steps: ChangefeedSteps, instance: DagsterInstance
) -> None:
    names = FeedNames(changefeed="shop")
    definitions = definitions_of([steps])
    for job, selection in (
        (names.job("report"), None),
        ("__ASSET_JOB", frozenset({names.asset("report")})),
    ):
        definition = (
            definitions.resolve_job_def(job)
            if selection is None
            else definitions.resolve_implicit_global_asset_job_def()
        )
        instance.create_run_for_job(
            definition, asset_selection=selection, status=dg.DagsterRunStatus.STARTED
        )
    assert len(instance.get_runs()) == 2
    assert active_runs(instance, names) == []
    instance.create_run_for_job(
        definitions.resolve_implicit_global_asset_job_def(),
        asset_selection=frozenset({names.asset("report"), names.asset("apply_changes")}),
        status=dg.DagsterRunStatus.STARTED,
    )
    assert len(active_runs(instance, names)) == 1


def test_the_run_of_the_schedule_names_its_asset(steps: ChangefeedSteps) -> None:
    repository = definitions_of([steps]).get_repository_def()
    schedule = repository.get_schedule_def(steps.names.schedule("report"))
    context = dg.build_schedule_context(
        repository_def=repository, scheduled_execution_time=datetime(2026, 11, 21, tzinfo=UTC)
    )
    (request,) = schedule.evaluate_tick(context).run_requests or ()
    assert request.asset_selection == [steps.names.asset("report")]
    assert request.tags["ticdc/changefeed"] == "shop"
