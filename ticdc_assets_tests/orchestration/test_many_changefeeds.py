"""Several changefeeds in one file: their runs beside each other, and a file that is edited."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._daemon.run_coordinator import QueuedRunCoordinatorDaemon

from ticdc_assets.cli import main
from ticdc_assets.config import Settings, load_settings
from ticdc_assets.log.cuts import require_cut
from ticdc_assets.log.landing import read_position
from ticdc_assets.orchestration.changefeeds import all_definitions
from ticdc_assets.orchestration.instance import open_instance
from ticdc_assets.orchestration.run import run_sync
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets_tests.orchestration.small_shop import ODD, ORDERS, SmallShop, recorded


def entry(name: str, **keys: object) -> dict[str, object]:
    """A changefeed over the shop's capture."""
    source = {"capture": "messages.jsonl"}
    return {"name": name, "format": "simple-json", "timezone": "UTC", "source": source} | keys


class File:
    """A changefeeds file beside a lake, written anew and read as a reload does."""

    def __init__(self, folder: Path) -> None:
        self.env = {
            "TICDC_CHANGEFEEDS": str(folder / "changefeeds.yaml"),
            "TICDC_LAKE": str(folder / "lake"),
        }

    def read(self, *entries: dict[str, object]) -> Settings:
        text = yaml.safe_dump({"changefeeds": entries})
        Path(self.env["TICDC_CHANGEFEEDS"]).write_text(text, encoding="utf-8")
        return load_settings(self.env)


def test_a_reload_sees_what_the_file_says_now(tmp_path: Path) -> None:
    file = File(tmp_path)
    seen: list[tuple[set[str], set[str]]] = []
    for entries in ([entry("shop")], [entry("crm"), entry("shop")], [entry("crm")]):
        repository = all_definitions(file.read(*entries)).get_repository_def()
        keys = repository.asset_graph.get_all_asset_keys()
        jobs = {name for name in repository.job_names if name.endswith("_sync")}
        seen.append(({key.path[0] for key in keys}, jobs))
    assert seen == [
        ({"shop"}, {"shop_sync"}),
        ({"crm", "shop"}, {"crm_sync", "shop_sync"}),
        ({"crm"}, {"crm_sync"}),
    ]


def test_a_folder_of_another_user_stops_no_other_changefeed(tmp_path: Path) -> None:
    settings = File(tmp_path).read(entry("shop"), entry("crm"))
    dg.Definitions.validate_loadable(all_definitions(settings))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "shop" / "cuts" / "_delta_log"
        log.mkdir(parents=True)
        Path(folder).chmod(0o755)
        (Path(folder) / "shop").chmod(0)
        user = os.geteuid()
        try:
            if user == 0:
                os.seteuid(65534)
            found = all_definitions(replace(settings, lake=Path(folder)))
            dg.Definitions.validate_loadable(found)
        finally:
            os.seteuid(user)
            (Path(folder) / "shop").chmod(0o700)
    keys = found.resolve_asset_graph().get_all_asset_keys()
    assert {key.path[0] for key in keys} == {"shop", "crm"}


def test_owners_and_schedules_are_those_of_the_file(tmp_path: Path) -> None:
    file, owners = File(tmp_path), ["team:data", "ada@example.com"]
    schedules = {"maintenance": "off", "redecode": "off", "verify": "15 4 1 * *", "report": "off"}
    settings = file.read(entry("shop", owners=owners, schedules=schedules), entry("crm"))
    repository = all_definitions(settings).get_repository_def()
    graph = repository.asset_graph
    for key in graph.get_all_asset_keys():
        assert list(graph.get(key).owners) == (owners if key.path[0] == "shop" else [])
    found = {
        schedule.name: (schedule.cron_schedule, schedule.default_status)
        for schedule in repository.schedule_defs
    }
    on, stopped = dg.DefaultScheduleStatus.RUNNING, dg.DefaultScheduleStatus.STOPPED
    # One that is off cannot be started in the UI either.
    assert [name for name in found if name.startswith("shop_")] == ["shop_verify_schedule"]
    assert found["shop_verify_schedule"] == ("15 4 1 * *", on)
    assert found["crm_maintenance_schedule"] == ("30 1 * * *", on)
    assert found["crm_verify_schedule"] == ("0 3 * * 0", stopped)


@pytest.mark.dagster
def test_runs_of_one_changefeed_wait_for_each_other_and_those_of_two_do_not(
    tmp_path: Path,
) -> None:
    settings = File(tmp_path).read(entry("shop"), entry("crm"))
    repository = all_definitions(settings).get_repository_def()
    target = LoadableTargetOrigin(python_file=__file__)
    origin = RemoteRepositoryOrigin(InProcessCodeLocationOrigin(target), "__repository__")
    with open_instance(settings) as instance:

        def queue(job: str) -> str:
            run = instance.create_run_for_job(
                repository.get_job(job),
                status=dg.DagsterRunStatus.QUEUED,
                remote_job_origin=origin.get_job_origin(job),
            )
            return run.run_id

        def may_start() -> list[str]:
            daemon = QueuedRunCoordinatorDaemon(interval_seconds=1)
            config = instance.get_concurrency_config()
            return [run.run_id for run in daemon._get_runs_to_dequeue(instance, config, None)]

        shop, again, crm = queue("shop_sync"), queue("shop_sync"), queue("crm_sync")
        maintenance, verify = queue("shop_maintenance"), queue("shop_verify")
        # Dagster gives a pool its limit at the first look at a run of it, and minds it from the
        # next look on; the writer's lock is what keeps two first runs apart.
        may_start()
        # A proof writes to no table of the changefeed.
        assert may_start() == [shop, crm, verify]
        for run_id in (shop, crm):
            name = recorded(instance, run_id).job_name
            event = dg.DagsterEvent(event_type_value="PIPELINE_STARTING", job_name=name)
            instance.report_dagster_event(event, run_id)
        assert may_start() == [verify]
        instance.report_run_canceled(recorded(instance, shop))
        assert may_start() == [again, verify]
        assert maintenance not in may_start()


@pytest.mark.dagster
def test_a_changefeed_that_is_taken_out_loses_nothing(shop: SmallShop, tmp_path: Path) -> None:
    file = File(tmp_path)
    shop.create_tables()
    shop.insert(ORDERS, 3)
    shop.send()
    settings = file.read(entry("shop"), entry("other"))
    paths = LakePaths(root=settings.lake, changefeed="shop")
    with open_instance(settings) as instance:
        run_sync(settings, "shop", instance=instance)
        before, landed = require_cut(paths), sum(read_position(paths).next_offsets.values())

        file.read(entry("other"))
        told = CliRunner().invoke(main, ["doctor"], env=file.env).stdout
        (note,) = [line for line in told.splitlines() if " changefeeds in the lake: " in line]
        assert note.startswith("warn")
        assert ": shop, which " in note
        assert require_cut(paths) == before

        shop.insert(ODD, 2)
        sent = shop.send()
        settings = file.read(entry("other"), entry("shop"))
        report = run_sync(settings, "shop", instance=instance)
        assert report.landing.records == sent
        assert sum(read_position(paths).next_offsets.values()) == landed + sent
        after = require_cut(paths)
        assert after.number == before.number + 1
        rows = {(item.database, item.table): (item.rows, item.mode) for item in after.mirrors}
        assert rows[ORDERS] == (3, "carried")
        assert rows[ODD][0] == 2
        told = CliRunner().invoke(main, ["doctor"], env=file.env).stdout
        assert "changefeeds in the lake: all are named" in told
