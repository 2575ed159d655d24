"""The definitions as Dagster sees them, written out."""

from pathlib import Path

import dagster as dg
import pytest

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.base.own_files import documented
from ticdc_assets.config import Settings
from ticdc_assets.model.tso import es_cut
from ticdc_assets.orchestration.assets import ApplyConfig
from ticdc_assets.orchestration.changefeeds import all_definitions
from ticdc_assets.orchestration.metadata import TABLES, definition_metadata, utc_now
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets_tests.orchestration.small_shop import SmallShop
from ticdc_assets_tests.statuses import changefeed


@pytest.fixture
def definitions(tmp_path: Path) -> dg.Definitions:
    feeds = tuple(changefeed(tmp_path / f"{name}.jsonl", name) for name in ("shop", "crm"))
    return all_definitions(
        Settings(changefeeds=feeds, lake=tmp_path / "lake", path=tmp_path / "changefeeds.yaml")
    )


PARENTS = {
    "kafka_topic": set(),
    "raw_messages": {"kafka_topic"},
    "decode_messages": {"raw_messages"},
    "quarantine": {"raw_messages"},
    "snapshot": set(),
    "change_log": {"decode_messages", "snapshot"},
    "schema_registry": {"decode_messages", "change_log"},
    "apply_changes": {"change_log", "schema_registry"},
    "report": {"apply_changes", "schema_registry", "quarantine"},
}


def test_each_changefeed_has_its_assets_with_these_parents(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    assert {
        tuple(key.path): {tuple(parent.path) for parent in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
    } == {
        (feed, name): {(feed, parent) for parent in parents}
        for feed in ("shop", "crm")
        for name, parents in PARENTS.items()
    }


def test_groups_kinds_pools_and_partitions(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        feed, name = key.path
        assert node.group_name == feed
        assert node.description
        if name == "kafka_topic":
            assert node.is_external
            assert node.kinds == {"file"}
            continue
        if name == "report":
            assert node.kinds == {"plotly"}
            assert node.pools == set()
            continue
        assert node.kinds == {"spark", "deltalake"}
        if name == "snapshot":
            # Dagster warns about upstream assets that it can materialise and never did.
            assert node.is_external
            continue
        partitions = node.partitions_def
        assert graph.get(key).pools == {f"ticdc_{feed}"}
        if name == "change_log":
            assert isinstance(partitions, dg.DailyPartitionsDefinition)
            assert partitions.get_last_partition_key() == f"{utc_now():%Y-%m-%d}"
            assert node.backfill_policy == dg.BackfillPolicy.single_run()
            continue
        assert partitions is None


JOBS = ("follow", "sync", "redrive", "seed", "diff", "verify", "rebuild", "maintenance")
STOPPED, RUNNING = dg.DefaultScheduleStatus.STOPPED, dg.DefaultScheduleStatus.RUNNING
SCHEDULES = {
    "verify": ("{}_verify", "0 3 * * 0", STOPPED),
    "redecode": ("__anonymous_asset_job_{}_redecode_schedule", "0 2 * * *", STOPPED),
    "maintenance": ("{}_maintenance", "30 1 * * *", RUNNING),
    "report": ("__anonymous_asset_job_{}_report_schedule", "*/15 * * * *", RUNNING),
}
CHECKS = {
    "apply_changes": {
        *("lake_readable", "replication_lag", "watermark_progress", "held_rows"),
        *("mirrors_complete", "changes_accounted", "row_checksums", "keys_unique"),
        *("mirror_equals_rebuild", "mirror_equals_source"),
    },
    "quarantine": {"quarantine_growth"},
    "schema_registry": {"schema_conflicts"},
    "snapshot": {"snapshot_complete"},
}


def test_jobs_sensors_and_checks(definitions: dg.Definitions) -> None:
    repository, feeds = definitions.get_repository_def(), ("shop", "crm")
    names = [job for feed in feeds for job in FeedNames(changefeed=feed).jobs]
    jobs = {f"{feed}_{job}" for feed in feeds for job in JOBS}
    assert {name for name in repository.job_names if not name.startswith("__")} == jobs
    assert {name for name in names if not name.startswith("__")} == jobs
    assert set(names) <= set(repository.job_names), "also those that only a schedule has"
    assert {
        schedule.name: (schedule.job_name, schedule.cron_schedule, schedule.default_status)
        for schedule in repository.schedule_defs
    } == {
        f"{feed}_{kind}_schedule": (job.format(feed), cron, status)
        for feed in feeds
        for kind, (job, cron, status) in SCHEDULES.items()
    }
    running = dg.DefaultSensorStatus.RUNNING
    assert {
        sensor.name: ([target.job_name for target in sensor.targets], sensor.default_status)
        for sensor in repository.sensor_defs
    } == {f"{feed}_sync_sensor": ([f"{feed}_follow"], running) for feed in feeds} | {
        f"{feed}_tables_sensor": ([], running) for feed in feeds
    }
    checks = definitions.resolve_asset_graph().asset_check_keys
    assert {(*check.asset_key.path, check.name) for check in checks} == {
        (feed, asset, name) for feed in feeds for asset in CHECKS for name in CHECKS[asset]
    }


def test_a_sync_runs_the_steps_in_order_and_its_checks(definitions: dg.Definitions) -> None:
    job = definitions.resolve_job_def("shop_sync")
    assert [node.name for node in job.graph.nodes_in_topological_order] == [
        "shop__raw_messages",
        "shop__decode_messages",
        "shop__schema_registry",
        "shop__apply_changes",
        "shop__checks",
    ]
    evaluated = {key.name for key in job.asset_layer.asset_graph.asset_check_keys}
    assert evaluated == {
        *("changes_accounted", "held_rows", "lake_readable", "mirrors_complete"),
        *("quarantine_growth", "replication_lag", "row_checksums", "schema_conflicts"),
        "watermark_progress",
    }


def test_each_check_says_what_to_do_and_where_more_is_told(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    for key in graph.asset_check_keys:
        description = graph.get(key).description or ""
        assert description.endswith(f"See {documented('troubleshooting', key.name)}."), key
        assert len(description) > 150, key


def test_every_job_is_one_process(definitions: dg.Definitions) -> None:
    jobs = [definitions.resolve_job_def(f"shop_{name}") for name in JOBS]
    assert {job.tags["ticdc/changefeed"] for job in jobs} == {"shop"}
    for job in (*jobs, definitions.resolve_implicit_global_asset_job_def()):
        assert job.executor_def is dg.in_process_executor


@pytest.mark.parametrize("table", TABLES)
def test_the_columns_of_every_table_are_described(table: str) -> None:
    columns = definition_metadata(table)["dagster/column_schema"].columns
    assert all(column.description and column.type for column in columns)
    described = TABLES[table][1]
    assert sorted(column.name for column in columns) == sorted(described), "it describes no others"


def test_an_until_is_read_as_that_of_a_command() -> None:
    with pytest.raises(ConfigError, match="until: expected a TSO"):
        ApplyConfig(until="x").cut(es_only=False)
    with pytest.raises(ConfigError, match="until: this changefeed has no commit ts"):
        ApplyConfig(until="470616190122196993").cut(es_only=True)
    assert ApplyConfig(until="470616190122196993").cut(es_only=False) == 470616190122196993
    assert ApplyConfig(until="2026-11-21T10:00:00.123Z").cut(es_only=True) == es_cut(1795255200123)
    assert ApplyConfig().cut(es_only=False) is None


def test_definitions_load_without_a_source_or_a_lake(shop: SmallShop) -> None:
    dg.Definitions.validate_loadable(all_definitions(shop.settings))
    assert not shop.paths.base.exists()
