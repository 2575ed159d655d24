"""An event log whose databases stay open has the files, and tells the events, of Dagster's own."""

from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage

from ticdc_assets.orchestration.event_log import OpenEventLog, opened_instance
from ticdc_assets.orchestration.instance import instance_settings

pytestmark = pytest.mark.dagster

KEY = dg.AssetKey("numbers")


@dg.asset(check_specs=[dg.AssetCheckSpec("even", asset=KEY)])
def numbers() -> dg.MaterializeResult:
    return dg.MaterializeResult(
        metadata={"rows": 2}, check_results=[dg.AssetCheckResult(passed=True)]
    )


JOB = dg.Definitions(assets=[numbers], jobs=[dg.define_asset_job("job")]).resolve_job_def("job")


@pytest.fixture
def home(tmp_path: Path) -> str:
    (tmp_path / "dagster.yaml").write_text(instance_settings())
    return str(tmp_path)


def kinds(instance: DagsterInstance, run_id: str) -> list[str | None]:
    found = [entry.dagster_event for entry in instance.all_logs(run_id)]
    return [None if item is None else item.event_type_value for item in found]


def test_dagster_reads_what_was_stored_while_it_is_stored_and_after(home: str) -> None:
    with DagsterInstance.from_config(home) as own, opened_instance(home) as opened:
        assert isinstance(opened.event_log_storage, OpenEventLog)
        assert isinstance(own.event_log_storage, SqliteEventLogStorage)
        assert not isinstance(own.event_log_storage, OpenEventLog)
        wanted = JOB.execute_in_process(instance=own)
        # More runs than databases are kept open.
        runs = [JOB.execute_in_process(instance=opened).run_id for _ in range(4)]
        for instance in (own, opened):
            for run in runs:
                assert kinds(instance, run) == kinds(own, wanted.run_id)
            records = instance.fetch_materializations(KEY, limit=9).records
            assert [record.run_id for record in records] == [*reversed(runs), wanted.run_id]
        # And the other way round.
        last = JOB.execute_in_process(instance=own).run_id
        assert kinds(opened, last) == kinds(own, last)
        assert len(opened.event_log_storage._engines) <= 3
    with DagsterInstance.from_config(home) as own:
        assert [kinds(own, run) for run in runs] == [kinds(own, wanted.run_id)] * len(runs)
        status = own.event_log_storage.get_asset_check_summary_records(
            [dg.AssetCheckKey(KEY, "even")]
        )
        assert len(status) == 1


def test_events_that_are_removed_are_gone(home: str) -> None:
    with opened_instance(home) as opened:
        run = JOB.execute_in_process(instance=opened).run_id
        opened.delete_run(run)
        assert not opened.all_logs(run)
        assert kinds(opened, JOB.execute_in_process(instance=opened).run_id)


def test_another_storage_is_left_as_it_is(home: str) -> None:
    settings = (
        "storage:\n  custom:\n"
        "    module: ticdc_assets_tests.orchestration.test_event_log\n"
        "    class: AnotherStorage\n"
        f"    config: {{base_dir: {home}}}\n"
    )
    (Path(home) / "dagster.yaml").write_text(settings)
    with opened_instance(home) as opened:
        assert not isinstance(opened.event_log_storage, OpenEventLog)


def test_what_a_command_prints_is_kept_where_somebody_asks_for_it(home: str) -> None:
    with opened_instance(home) as opened:
        assert isinstance(opened.compute_log_manager, NoOpComputeLogManager)
    module = "ticdc_assets_tests.orchestration.test_event_log"
    settings = f"compute_logs:\n  module: {module}\n  class: AnotherPlace\n"
    (Path(home) / "dagster.yaml").write_text(settings)
    with opened_instance(home) as opened:
        assert isinstance(opened.compute_log_manager, AnotherPlace)


class AnotherPlace(NoOpComputeLogManager):
    """A place for what is printed that somebody else configured."""


class AnotherStorage(DagsterSqliteStorage):
    """A storage that somebody else configured."""
