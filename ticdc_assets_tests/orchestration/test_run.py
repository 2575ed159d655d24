"""Running jobs from a program, as far as it needs no Spark."""

import os
import re
import socket
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster import DagsterRun
from dagster._config import process_config, resolve_to_config_type
from dagster._core.instance.config import PoolGranularity
from dagster._core.instance.ref import InstanceRef
from dagster_postgres import DagsterPostgresStorage
from dagster_postgres.utils import pg_url_from_config
from sqlalchemy import create_engine

from ticdc_assets.base.errors import BusyError, NotFoundError, PrerequisiteError
from ticdc_assets.config import Writer
from ticdc_assets.delta.lock import nobody_at_work, writer_lock
from ticdc_assets.orchestration import run as run_module
from ticdc_assets.orchestration.active_runs import worker_of
from ticdc_assets.orchestration.instance import dagster_home, instance_settings, open_instance
from ticdc_assets.orchestration.run import run_sync
from ticdc_assets.orchestration.ui import serve_ui, ui_command
from ticdc_assets_tests.orchestration.small_shop import SmallShop


def test_the_instance_is_in_the_lake_unless_named(
    shop: SmallShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dagster_home(shop.settings) == shop.settings.lake / "_dagster"
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "elsewhere"))
    assert dagster_home(shop.settings) == tmp_path / "elsewhere"
    assert (tmp_path / "elsewhere" / "dagster.yaml").read_text() == instance_settings()


def test_settings_that_are_there_stay(shop: SmallShop) -> None:
    file = dagster_home(shop.settings) / "dagster.yaml"
    file.write_text("telemetry: {enabled: false}\n")
    dagster_home(shop.settings)
    assert file.read_text() == "telemetry: {enabled: false}\n"


@pytest.mark.parametrize("home", ["file", "file/home"])
def test_a_home_that_cannot_be_made_is_one_sentence(
    shop: SmallShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / home))
    with pytest.raises(PrerequisiteError, match="set TICDC_LAKE or DAGSTER_HOME to"):
        dagster_home(shop.settings)


@pytest.mark.parametrize("text", ["nonsense: 1", "a: [", "retention: [1]"])
def test_wrong_settings_of_dagster_are_one_sentence(shop: SmallShop, text: str) -> None:
    file = dagster_home(shop.settings) / "dagster.yaml"
    file.write_text(text)
    with pytest.raises(PrerequisiteError, match="cannot be used") as raised:
        run_sync(shop.settings, "shop")
    assert str(raised.value).startswith(f"{file}, the settings of the Dagster instance, ")
    assert "\n" not in str(raised.value)


def test_dagster_takes_the_settings(shop: SmallShop) -> None:
    with open_instance(shop.settings) as instance:
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        assert instance.run_monitoring_enabled
        assert instance.run_retries_enabled
        pools = instance.get_concurrency_config().pool_config
        assert pools.pool_granularity is PoolGranularity.RUN
        assert pools.default_pool_limit == 1


def test_dagster_postgres_takes_the_commented_block(
    shop: SmallShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names no secret, and the database and the driver are those of the variables."""
    text = instance_settings()
    assert "storage" not in yaml.safe_load(text)
    block = re.search(r"^# storage:\n(?:#  .*\n)+", text, re.MULTILINE)
    assert block is not None
    told = re.sub(r"^# ", "", block[0], flags=re.MULTILINE)
    named = yaml.safe_load(told)["storage"]["postgres"]["postgres_db"]
    assert {name for name, value in named.items() if not isinstance(value, dict)} == {"scheme"}
    (dagster_home(shop.settings) / "dagster.yaml").write_text(text.replace(block[0], told))
    for name, value in {
        "HOST": "h",
        "PORT": "5",
        "DB": "d",
        "USER": "u",
        "PASSWORD": "p/@",
    }.items():
        monkeypatch.setenv(f"DAGSTER_POSTGRES_{name}", value)
    storage = InstanceRef.from_dir(str(dagster_home(shop.settings))).storage_data
    assert storage is not None
    assert storage.class_name == DagsterPostgresStorage.__name__
    taken = process_config(
        resolve_to_config_type(DagsterPostgresStorage.config_type()), storage.config_dict
    )
    assert taken.value is not None, taken.errors
    url = create_engine(pg_url_from_config(taken.value)).url
    assert url.render_as_string(hide_password=False) == ("postgresql+psycopg2://u:p%2F%40@h:5/d")


def test_a_lake_that_is_written_to_is_busy_and_leaves_no_run(
    shop: SmallShop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "PATIENCE_SECONDS", 0)
    said = "another sync of changefeed 'shop' is running"
    with writer_lock(shop.paths, Writer()), pytest.raises(BusyError, match=said):
        run_sync(shop.settings, "shop", instance=instance)
    assert instance.get_runs_count() == 0


def test_a_run_has_its_process_before_its_first_step(
    shop: SmallShop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds the run of a killed command then knows that nobody works on it."""
    seen: list[DagsterRun] = []

    def killed(self: dg.JobDefinition, *, run_id: str, tags: dict[str, str], **_: object) -> None:
        seen.append(DagsterRun(job_name=self.name, run_id=run_id, tags=tags))
        assert not nobody_at_work(str(shop.paths.workers))
        raise KeyboardInterrupt

    monkeypatch.setattr(dg.JobDefinition, "execute_in_process", killed)
    with pytest.raises(KeyboardInterrupt):
        run_sync(shop.settings, "shop", instance=instance)
    (worker,) = map(worker_of, seen)
    assert worker is not None
    assert (worker.process.process, worker.lock) == (os.getpid(), str(shop.paths.workers))
    assert not worker.is_gone
    assert nobody_at_work(worker.lock)


def test_an_unknown_changefeed_is_named(shop: SmallShop) -> None:
    with pytest.raises(NotFoundError, match="no changefeed 'shoop'"):
        run_sync(shop.settings, "shoop")


def test_a_port_in_use_is_one_sentence(shop: SmallShop) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PrerequisiteError, match=f"port {port} of 127.0.0.1 is in use"):
            serve_ui(shop.settings, port, print)


def test_the_ui_listens_on_the_loopback_address_and_finds_the_package(shop: SmallShop) -> None:
    command, env = ui_command(shop.settings, 3000)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    workspace = yaml.safe_load(Path(command[command.index("-w") + 1]).read_text())
    (location,) = workspace["load_from"]
    assert location["python_module"]["module_name"] == "ticdc_assets.definitions"
    assert location["python_module"]["location_name"] == "ticdc_assets"
    assert env["TICDC_CHANGEFEEDS"] == str(shop.settings.path)
    assert env["TICDC_LAKE"] == str(shop.settings.lake)
    assert env["DAGSTER_HOME"] == str(shop.settings.lake / "_dagster")
