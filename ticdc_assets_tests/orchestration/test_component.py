"""A changefeed as a component in a project of the user's, by the commands that users have."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.core.component_tree import ComponentTreeException
from dagster.components.core.package_entry import discover_entry_point_package_objects

from ticdc_assets.base.errors import ConfigError
from ticdc_assets.config import parse_changefeeds
from ticdc_assets.orchestration import resources
from ticdc_assets.orchestration.component import ChangefeedComponent, read_attributes
from ticdc_assets.spark.session import LazySession
from ticdc_assets_tests.orchestration.small_shop import (
    CHANGEFEEDS,
    ORDERS,
    SmallShop,
    materializations,
)

PROJECT = """\
[project]
name = "shop_lake"
version = "0.1"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "shop_lake"
"""

DEFINITIONS = """\
from pathlib import Path

import dagster as dg


@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


def component(name: str, **more: Any) -> str:
    attributes = {
        "name": name,
        "format": "simple-json",
        "timezone": "UTC",
        "source": {"capture": "messages.jsonl"},
        "ended": False,
        "lake": "lake",
        **more,
    }
    return yaml.safe_dump(
        {"type": "ticdc_assets.ChangefeedComponent", "attributes": attributes}, sort_keys=False
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project as `create-dagster` makes one, with two changefeeds."""
    package = tmp_path / "shop_lake"
    for name in ("shop", "crm"):
        (package / "defs" / name).mkdir(parents=True)
        (package / "defs" / name / "defs.yaml").write_text(component(name, lag_warn_seconds=120))
    (package / "__init__.py").touch()
    (package / "defs" / "__init__.py").touch()
    (package / "definitions.py").write_text(DEFINITIONS)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    return tmp_path


def run_dg(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(Path(sys.executable).parent / "dg"), *words],
        cwd=folder,
        env=dict(os.environ) | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def loaded(folder: Path, patch: pytest.MonkeyPatch) -> dg.Definitions:
    """Return the definitions of a project, as the commands of `dg` load them."""
    patch.syspath_prepend(folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop_lake"]:
        patch.delitem(sys.modules, name)
    return dg.load_from_defs_folder(path_within_project=folder)


@pytest.mark.dagster
def test_components_of_a_project_are_checked_and_listed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_CAPTURE", "messages.jsonl")
    monkeypatch.setenv("CRM_OWNER", "team:crm")
    source = {"capture": "{{ env.CRM_CAPTURE }}"}
    (project / "shop_lake" / "defs" / "crm" / "defs.yaml").write_text(
        component("crm", source=source, owners=["{{ env.CRM_OWNER }}"])
    )
    done = run_dg(project, "check", "defs")
    assert done.returncode == 0, done.stdout + done.stderr
    graph = loaded(project, monkeypatch).resolve_asset_graph()
    keys = {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert {"shop/raw_messages", "shop/change_log", "crm/raw_messages", "crm/change_log"} <= keys
    owners = graph.get(dg.AssetKey(["crm", "change_log"])).owners
    assert list(owners) == ["team:crm"], "templates have their values"
    offered = {key.to_typename() for key in discover_entry_point_package_objects()}
    assert "ticdc_assets.ChangefeedComponent" in offered, "`dg list components` has it"


def test_mistakes_are_told_with_their_key(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = project / "shop_lake" / "defs" / "crm" / "defs.yaml"
    file.write_text(component("crm", lag_wern_seconds=1))
    with pytest.raises(ComponentTreeException) as refused:
        loaded(project, monkeypatch)
    assert "lag_wern_seconds" in str(refused.getrepr())
    with pytest.raises(ConfigError) as raised:
        read_attributes(
            {"name": "crm", "format": "simple", "timezone": "UTC", "source": {"capture": "a"}},
            project,
        )
    assert "attributes.format" in str(raised.value)


# It starts two programs of `dg`, and only whoever adds to this project types them.
@pytest.mark.slow
@pytest.mark.dagster
def test_what_dg_scaffolds_in_this_project_loads(root: Path, tmp_path: Path) -> None:
    package = tmp_path / "ticdc_assets"
    package.mkdir()
    for path in (root / "ticdc_assets").iterdir():
        if path.name != "defs":
            (package / path.name).symlink_to(path)
    shutil.copytree(root / "ticdc_assets" / "defs", package / "defs")
    for name in ("pyproject.toml", "changefeeds.yaml"):
        shutil.copy(root / name, tmp_path)
    done = run_dg(tmp_path, "scaffold", "defs", "dagster.asset", "x.py")
    assert done.returncode == 0, done.stderr
    file = root / "changefeeds.yaml"
    (feed, *_) = parse_changefeeds(file.read_bytes(), path=file, env={})
    # The changefeeds are there as before.
    own = {f"{feed.name}/raw_messages", f"{feed.name}/apply_changes"}
    listed = run_dg(tmp_path, "list", "defs", "--json")
    assert listed.returncode == 0, listed.stderr
    assert {"x", *own} <= {asset["asset_key"] for asset in json.loads(listed.stdout)["assets"]}


def test_attributes_are_read_as_the_changefeeds_file(tmp_path: Path) -> None:
    path = tmp_path / "changefeeds.yaml"
    (entry,) = yaml.safe_load(CHANGEFEEDS)["changefeeds"]
    entry |= {
        "lag_warn_seconds": 60,
        "retention": {"raw_messages": "30 days", "cuts": "7 days"},
        "tables": {"include": ["shop.*"]},
        "checks": {"quiet_warn_seconds": "never"},
        "schedules": {"maintenance": "off"},
        "owners": ["team:data"],
        "start_ts": 466391837665329152,
    }
    expected = parse_changefeeds(yaml.safe_dump({"changefeeds": [entry]}), path=path, env={})
    model = ChangefeedComponent.get_model_cls()
    assert model is not None
    # YAML reads `off` as false in a component's file.
    for maintenance in ("off", False):
        given = model.model_validate(entry | {"schedules": {"maintenance": maintenance}})
        attributes = given.model_dump(exclude_unset=True)
        assert read_attributes(attributes, tmp_path).changefeeds == expected
    kafka = model.model_json_schema()["$defs"]["ChangefeedAttributes_source_kafka"]
    assert "topics" in kafka["required"]
    assert "sink URI" in kafka["properties"]["topics"]["description"]


def test_the_lake_of_a_component_may_be_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    attributes = yaml.safe_load(component("shop", lake="~/lake"))["attributes"]
    assert read_attributes(attributes, tmp_path).lake == tmp_path / "home" / "lake"


@pytest.mark.parametrize(
    ("more", "mistake"),
    [
        ({"source": {"capture": None}}, "attributes.source.capture: expected"),
        ({"history": [None]}, "attributes.history[0]: expected database.table"),
        ({"lag_warn_seconds": None}, "attributes.lag_warn_seconds: expected a number"),
        ({"lake": None}, "lake: expected a folder, got nothing"),
    ],
)
def test_a_template_without_its_variable_is_a_mistake(
    tmp_path: Path, more: dict[str, Any], mistake: str
) -> None:
    attributes = yaml.safe_load(component("shop", **more))["attributes"]
    with pytest.raises(ConfigError, match=re.escape(mistake)):
        read_attributes(attributes, tmp_path)


def test_a_project_keeps_its_executor_and_its_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICDC_LAKE", str(tmp_path / "lake"))
    (entry,) = yaml.safe_load(CHANGEFEEDS)["changefeeds"]
    context = dg.ComponentTree.for_test().load_context

    @dg.op(required_resource_keys={"spark"})
    def told(context: dg.OpExecutionContext) -> str:
        return context.resources.spark

    @dg.job
    def own_job() -> None:
        told()

    own = dg.Definitions(
        jobs=[own_job], executor=dg.multiprocess_executor, resources={"spark": "the project's"}
    )
    crm = entry | {"name": "crm"}
    ours = [ChangefeedComponent(item).build_defs(context) for item in (entry, crm)]
    together = dg.Definitions.merge(own, *ours)
    dg.Definitions.validate_loadable(together)
    done = together.resolve_job_def("own_job").execute_in_process()
    assert done.output_for_node("told") == "the project's"
    assert together.resolve_job_def("shop_sync").executor_def is dg.in_process_executor
    theirs = together.resolve_implicit_global_asset_job_def()
    assert theirs.executor_def is dg.multiprocess_executor


@pytest.mark.dagster
def test_a_component_syncs_with_the_session_of_its_resource(
    shop: SmallShop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICDC_LAKE", str(shop.settings.lake))
    shop.create_tables()
    shop.insert(ORDERS, 3)
    shop.send()
    (entry,) = yaml.safe_load(CHANGEFEEDS)["changefeeds"]
    attributes = entry | {"source": {"capture": str(shop.capture)}}
    context = dg.ComponentTree.for_test().load_context
    definitions = ChangefeedComponent(attributes).build_defs(context)
    started: list[Mapping[str, str]] = []

    def session(extra: Mapping[str, str]) -> LazySession:
        started.append(extra)
        return LazySession(extra)

    monkeypatch.setattr(resources, "LazySession", session)
    spark_config = {"spark.sql.shuffle.partitions": "3"}
    done = definitions.resolve_job_def("shop_sync").execute_in_process(
        run_config={"resources": {"ticdc_spark": {"config": {"spark_config": spark_config}}}},
        instance=instance,
    )
    assert done.success
    assert started == [spark_config], "the session of all steps is the resource's"
    (event,) = materializations(instance, shop.names.mirror(*ORDERS))
    assert event.metadata["rows"].value == 3
