"""The commented PostgreSQL variant of dagster.yaml, as it stands there, on a real PostgreSQL."""

import re
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

from ticdc_assets.orchestration.changefeeds import all_definitions
from ticdc_assets.orchestration.run import instance_settings, open_instance
from ticdc_assets_tests.orchestration.small_shop import SmallShop
from ticdc_assets_tests.postgresql import Postgresql, find_postgresql, run_postgresql

pytestmark = pytest.mark.dagster


def with_postgresql(text: str) -> str:
    """The text of dagster.yaml with the marks of its commented block taken off."""
    block = re.search(r"^# storage:\n(?:#  .*\n)+", text, re.MULTILINE)
    assert block is not None
    return text.replace(block[0], re.sub(r"^# ", "", block[0], flags=re.MULTILINE))


@pytest.fixture(scope="module")
def server() -> Iterator[Postgresql]:
    programs = find_postgresql()
    if programs is None:
        pytest.skip("no PostgreSQL here; on Debian: apt-get install postgresql")
    with run_postgresql(programs) as server:
        yield server


def test_the_block_names_no_secret() -> None:
    storage = yaml.safe_load(with_postgresql(instance_settings()))["storage"]
    database = storage["postgres"]["postgres_db"]
    literal = {name for name, value in database.items() if not isinstance(value, dict)}
    assert literal == {"scheme"}, "a value that does not come from the environment"
    assert "storage" not in yaml.safe_load(instance_settings())


def test_an_instance_lives_in_postgresql(
    shop: SmallShop, server: Postgresql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(with_postgresql(instance_settings()), encoding="utf-8")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    shop.create_tables()
    shop.send()
    key = dg.AssetCheckKey(shop.names.asset("apply_changes"), "replication_lag")

    with open_instance(shop.settings) as instance:
        run_id = run_check(shop, key, instance)
        instance.add_dynamic_partitions("tables", ["shop.orders"])
        instance.daemon_cursor_storage.set_cursor_values({"asset_daemon": "17"})

    assert server.count("runs") == 1
    assert server.count("jobs") == 0, "what sensors and schedules keep is there too"
    assert server.count("event_logs") > 3
    assert not list(home.rglob("*.db")), "SQLite files beside PostgreSQL"

    with open_instance(shop.settings) as instance:
        run = instance.get_run_by_id(run_id)
        assert run is not None
        assert run.status == dg.DagsterRunStatus.SUCCESS
        (record,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=5)
        assert record.event is not None
        assert record.run_id == run_id
        assert instance.get_dynamic_partitions("tables") == ["shop.orders"]
        assert instance.daemon_cursor_storage.get_cursor_values({"asset_daemon"}) == {
            "asset_daemon": "17"
        }
        # What is stored is used: the next run finds its predecessor's verdict.
        assert run_check(shop, key, instance) != run_id
    assert server.count("runs") == 2


def run_check(shop: SmallShop, key: dg.AssetCheckKey, instance: dg.DagsterInstance) -> str:
    """Run a check of the real definitions, which needs no Spark."""
    definitions = all_definitions(shop.settings)
    job = definitions.resolve_implicit_global_asset_job_def().get_subset(
        asset_check_selection={key}
    )
    result = job.execute_in_process(instance=instance)
    assert result.success
    (evaluation,) = result.get_asset_check_evaluations()
    assert evaluation.check_name == key.name
    return result.run_id
