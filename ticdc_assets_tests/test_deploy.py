"""docs/deploy and docs/monitoring are true as far as a test can tell.

Files are parsed by what reads such files, our settings in them by our own reader, and our commands
by the program. Metrics and labels that boards and rules ask for are those that exist. What was run
for real, and what was not, is in docs/deploy.md.
"""

import configparser
import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from ticdc_assets.base.ports import free_port
from ticdc_assets.config import KafkaSource, parse_changefeeds
from ticdc_assets.observe.openmetrics import FIGURES
from ticdc_assets.observe.verdicts import Check
from ticdc_assets.orchestration.ui import ui_command
from ticdc_assets_tests.commands import PROGRAM, Commands
from ticdc_assets_tests.orchestration.small_shop import SmallShop
from ticdc_assets_tests.test_docs import anchors
from ticdc_assets_tests.test_operate import lines, understood
from ticdc_assets_tests.test_readme import blocks_of

OTHERS = {"docker", "install", "kubectl", "systemctl", "useradd"}
"""Programs of which only the name is looked at, and the files they are given."""

OF_FEEDS = {"ticdc_source_up", "ticdc_lake_readable"}
"""Metrics that are not made of a status."""

LABELS = {
    figure.name + ("_total" if figure.is_counter else ""): {"changefeed", *figure.labels}
    for figure in FIGURES
} | {name: {"changefeed"} for name in OF_FEEDS}


@pytest.fixture(scope="module")
def deploy(root: Path) -> Path:
    return root / "docs" / "deploy"


@pytest.fixture(scope="module")
def monitoring(root: Path) -> Path:
    return root / "docs" / "monitoring"


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_commands_are_understood_and_files_exist(root: Path) -> None:
    text = (root / "docs" / "deploy.md").read_text(encoding="utf-8")
    programs = set[str]()
    for line in lines(blocks_of(text)):
        program, *words = shlex.split(line)
        programs.add(program)
        if program == "ticdc-assets":
            understood(words)
        for word in words:
            if word.startswith("docs/"):
                assert (root / word).exists(), line
    assert programs == OTHERS | {"ticdc-assets"}


def our_command(words: list[str]) -> str:
    """Return the name of a program of ours whose command line is one it takes."""
    program = words[0].rpartition("/")[2]
    if program == "ticdc-assets":
        understood(words[1:])
    else:
        assert program in {"dagster-daemon", "dagster-webserver"}, words
        assert words[-1] == "/etc/ticdc-assets/workspace.yaml" or words[-1].endswith(
            "=/etc/ticdc-assets/workspace.yaml"
        )
    return program


ALL = {"dagster-daemon", "dagster-webserver", "ticdc-assets"}


def test_units_are_units(deploy: Path) -> None:
    programs = set[str]()
    for path in (deploy / "systemd").glob("*.service"):
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str  # type: ignore[assignment]  # names keep their case
        unit.read_string(path.read_text(encoding="utf-8"))
        programs.add(our_command(unit["Service"]["ExecStart"].split()))
        assert unit["Service"]["EnvironmentFile"] == "/etc/ticdc-assets/environment"
    assert programs == ALL


def test_the_environment_has_variables_that_are_known(deploy: Path, root: Path) -> None:
    known = (root / "docs" / "reference.md").read_text(encoding="utf-8")
    for line in (deploy / "systemd" / "environment").read_text(encoding="utf-8").splitlines():
        name, _, _ = line.partition("=")
        assert line.startswith("#") or name.startswith("KAFKA_") or f"`{name}`" in known, line


def test_the_workspace_is_that_of_the_ui(deploy: Path, tmp_path: Path) -> None:
    shop = SmallShop(tmp_path)
    ui_command(shop.settings, 3000)
    (made,) = loaded(shop.settings.lake / "_dagster" / "workspace.yaml")["load_from"]
    (told,) = loaded(deploy / "workspace.yaml")["load_from"]
    assert told["python_module"].items() <= made["python_module"].items()


def test_the_image_is_made_of_files_that_exist(deploy: Path, root: Path) -> None:
    text = (deploy / "Containerfile").read_text(encoding="utf-8")
    copied = [words.split() for words in re.findall(r"^COPY (.*)$", text, flags=re.MULTILINE)]
    assert len(copied) == 4
    for *sources, _ in copied:
        assert all((root / source).exists() for source in sources)
    for command in re.findall(r"^RUN ticdc-assets (.*)$", text, flags=re.MULTILINE):
        understood(shlex.split(command))
    (command,) = re.findall(r"^CMD (.*)$", text, flags=re.MULTILINE)
    our_command(json.loads(command))


def test_the_compose_file_starts_what_there_is(deploy: Path) -> None:
    folder = deploy / "compose"
    composed = loaded(folder / "compose.yaml")
    ours = [item for item in composed["services"].values() if item["image"] == "ticdc-assets"]
    assert {our_command(item["command"]) for item in ours} == ALL
    # Killed runs of a lake with a lease are known by it; see `orchestration.active_runs`.
    assert len({item["hostname"] for item in ours}) == len(ours)
    for service in composed["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in composed["volumes"] or (folder / source).exists(), volume
        # A server listens on this machine only.
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    path = folder / "changefeeds.yaml"
    (feed,) = parse_changefeeds(path.read_text(encoding="utf-8"), path=path, env={})
    assert isinstance(feed.source, KafkaSource)
    sink = composed["services"]["changefeed"]["command"][-1]
    assert f"/{feed.source.topics[0]}?protocol=simple&" in sink


def test_the_compose_file_has_one_tidb_and_its_new_ticdc(deploy: Path) -> None:
    services = loaded(deploy / "compose" / "compose.yaml")["services"]
    images = {name: item["image"] for name, item in services.items()}
    versions = {image.partition(":")[2] for image in images.values() if "pingcap/" in image}
    (version,) = versions
    # pingcap/ticdc begins here; the server still runs the classic one if nobody says otherwise.
    assert tuple(map(int, version.removeprefix("v").split("."))) >= (8, 5, 4)
    assert images["ticdc"] == images["changefeed"]
    assert "--newarch" in services["ticdc"]["command"]
    text = (deploy.parent / "deploy.md").read_text(encoding="utf-8")
    assert version in text
    assert "`--newarch`" in text


def test_the_manifest_starts_what_there_is(deploy: Path, tmp_path: Path) -> None:
    text = (deploy / "kubernetes" / "ticdc-assets.yaml").read_text(encoding="utf-8")
    kinds = {item["kind"]: item for item in yaml.safe_load_all(text)}
    parse_changefeeds(
        kinds["ConfigMap"]["data"]["changefeeds.yaml"],
        path=tmp_path / "changefeeds.yaml",
        env=kinds["Secret"]["stringData"],
    )
    pod = kinds["Deployment"]["spec"]["template"]["spec"]
    assert {our_command(item["command"]) for item in pod["containers"]} == ALL
    assert pod["hostname"]
    volumes = {item["name"] for item in pod["volumes"]}
    for container in (*pod["containers"], *pod["initContainers"]):
        assert {item["name"] for item in container["volumeMounts"]} <= volumes
    assert kinds["Deployment"]["spec"]["replicas"] == 1


# Metrics ----------------------------------------------------------------------------------------


def asked(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield the metrics that an expression of PromQL asks for, with the labels it selects by."""
    for name, selected in re.findall(r"\b(ticdc_\w+)(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selected))


def test_the_board_asks_for_metrics_that_exist(monitoring: Path) -> None:
    board = json.loads((monitoring / "grafana.json").read_text(encoding="utf-8"))
    shown = set[str]()
    for panel in board["panels"]:
        # Kinds that need nothing but a query: nobody has opened the board.
        assert panel["type"] in {"stat", "timeseries"}
        assert panel["title"]
        assert panel["description"]
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            grouped = re.search(r"by \(([^)]*)\)", target["expr"])
            for name, labels in asked(target["expr"]):
                shown.add(name)
                assert labels <= LABELS[name], target["expr"]
                left = set(grouped[1].replace(" ", "").split(",")) if grouped else LABELS[name]
                assert named <= left <= LABELS[name], target
    assert {"ticdc_replication_lag_seconds", "ticdc_check_level", "ticdc_table_lag_seconds"} < shown
    (feeds,) = [item for item in board["templating"]["list"] if item["name"] == "changefeed"]
    ((name, _),) = asked(feeds["query"]["query"])
    assert name in LABELS


def test_rules_ask_for_metrics_that_exist_and_lead_somewhere(monitoring: Path, root: Path) -> None:
    (scraped,) = loaded(monitoring / "prometheus.yml")["scrape_configs"]
    assert loaded(monitoring / "prometheus.yml")["rule_files"] == ["alerts.yml"]
    ((port,),) = [re.findall(r":(\d+)$", item) for item in scraped["static_configs"][0]["targets"]]
    assert f":{port}" in (root / "docs/deploy/systemd/ticdc-metrics.service").read_text("utf-8")
    (group,) = loaded(monitoring / "alerts.yml")["groups"]
    there = {
        path: anchors((root / path).read_text(encoding="utf-8"))
        for path in ("docs/operate.md", "docs/troubleshooting.md")
    }
    for rule in group["rules"]:
        for name, labels in asked(rule["expr"]):
            assert labels <= LABELS[name], rule["alert"]
        if "up{" in rule["expr"]:
            assert f'job="{scraped["job_name"]}"' in rule["expr"]
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        of_checks = [anchor.replace("{{ $labels.check }}", check) for check in Check]
        assert set(of_checks) <= there[path], rule["alert"]


@pytest.mark.dagster
def test_metrics_are_served_by_a_process_of_their_own(tmp_path: Path) -> None:
    capture = tmp_path / "capture.jsonl"
    capture.touch()
    commands = Commands(tmp_path)
    commands.add_capture("shop", capture, format="simple-json")
    port = free_port()
    line = [*PROGRAM, "metrics", "--listen", str(port)]
    env = os.environ | commands.env
    with subprocess.Popen(line, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert said == f"serving http://127.0.0.1:{port}/metrics until Ctrl-C\n"
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                text = answer.read().decode()
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    assert 'ticdc_source_up{changefeed="shop"} 1.0' in text
