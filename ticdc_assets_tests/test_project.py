"""The project's files: set-up, packaging, Dagster's two YAML files."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ticdc_assets_tests.spark.test_preflight import fake_java

NEEDED_FOR_SETUP = ["Makefile", "pyproject.toml", "uv.lock", ".python-version"]


@pytest.fixture(scope="module")
def pyproject(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text())


@pytest.fixture
def clone(root: Path, tmp_path: Path) -> Path:
    """A copy of what `make setup` needs, nothing installed; the package is a link."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in NEEDED_FOR_SETUP:
        shutil.copy(root / name, folder / name)
    (folder / "ticdc_assets").symlink_to(root / "ticdc_assets")
    return folder


def programs(folder: Path, *names: str) -> str:
    """A PATH with the named programs of this machine and no others."""
    folder.mkdir(exist_ok=True)
    for name in names:
        found = shutil.which(name)
        assert found is not None, name
        (folder / name).symlink_to(found)
    return str(folder)


def make(folder: Path, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    # Nor what the outer make, which may be running these tests, has set for its own folder.
    set_by_make = ("MAKE", "MFLAGS", "TICDC_LAKE", "TICDC_CHANGEFEEDS", "DAGSTER_HOME")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(set_by_make)}
    return subprocess.run(
        ["/usr/bin/env", "make", *arguments],
        cwd=folder,
        env=kept | env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def sentence(done: "subprocess.CompletedProcess[str]") -> str:
    """The one sentence that a failing target wrote, without make's own line."""
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(lines) == 1, done.stderr
    return lines[0]


# --- make ---


def test_every_target_says_what_it_does(root: Path) -> None:
    text = (root / "Makefile").read_text()
    public = set(re.findall(r"^\.PHONY: ([a-z-]+)$", text, re.MULTILINE)) - {"chromium"}
    listed = set(re.findall(r"^  ([a-z-]+) +\S", make(root, "help").stdout, re.MULTILINE))
    assert public == listed


def test_setup_without_python(clone: Path, tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", "bash", "make")
    message = sentence(make(clone, "setup", PATH=path))
    assert message.startswith("Python 3.11 to 3.14 is needed and was not found on PATH")


def test_setup_with_an_old_python(clone: Path, tmp_path: Path) -> None:
    path = programs(tmp_path / "bin", "bash", "make")
    old = tmp_path / "bin" / "python3"
    old.write_text('#!/bin/bash\n[ "$1" = --version ] && echo "Python 3.9.2" || exit 1\n')
    old.chmod(0o755)
    message = sentence(make(clone, "setup", PATH=path))
    assert "(python3 here: Python 3.9.2)" in message


def test_setup_with_a_wrong_java(clone: Path, tmp_path: Path) -> None:
    fake_java(tmp_path / "jdk", "11")
    python = f"PYTHON={sys.executable}"
    message = sentence(make(clone, "setup", python, JAVA_HOME=str(tmp_path / "jdk")))
    assert message.startswith("java: Java 11 at ")
    assert "; needed: Java 17 to 22; " in message
    assert not (clone / ".venv").exists()


def test_setup_is_instant_when_nothing_changed(clone: Path) -> None:
    (clone / ".venv").mkdir()
    (clone / ".venv" / ".made").touch()
    done = make(clone, "setup", PYTHON="/bin/false")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    os.utime(clone / "uv.lock", (2e9, 2e9))
    assert make(clone, "setup", PYTHON="/bin/false").returncode != 0


def test_locations_come_from_the_folder(clone: Path) -> None:
    (clone / "show.mk").write_text(
        "include Makefile\nshow:\n\t@echo $$DAGSTER_HOME $$TICDC_LAKE $$TICDC_CHANGEFEEDS\n"
    )
    done = make(clone, "-f", "show.mk", "show", TICDC_LAKE="/elsewhere", DAGSTER_HOME="/not/ours")
    assert done.stdout.split() == [
        f"{clone}/.dagster_home",
        "/elsewhere",
        f"{clone}/changefeeds.yaml",
    ]


def test_ci_runs_everything_and_can_fail(root: Path, tmp_path: Path) -> None:
    script = root / ".ci" / "run"
    assert os.access(script, os.X_OK)
    text = script.read_text()
    assert "set -euo pipefail" in text
    assert re.search(r"^make lint type test$", text, re.MULTILINE)
    copy = tmp_path / ".ci" / "run"
    copy.parent.mkdir()
    shutil.copy(script, copy)
    (tmp_path / "Makefile").write_text("setup lint type:\n\t@echo $@\ntest:\n\t@exit 3\n")
    done = subprocess.run([str(copy)], capture_output=True, text=True, check=False)
    assert done.stdout.split()[:3] == ["setup", "lint", "type"]
    assert done.returncode != 0


# --- packaging ---


def test_lock_has_one_registry_and_no_other_file_names_it(root: Path) -> None:
    lock = tomllib.loads((root / "uv.lock").read_text())
    sources = [package["source"] for package in lock["package"]]
    registries = {source["registry"] for source in sources if "registry" in source}
    assert len(registries) == 1, "the lock was made with an index of somebody's own"
    hosts = set(re.findall(r"https?://([^/\"]+)", (root / "uv.lock").read_text()))
    assert len(hosts) == 2, f"the index and its files, not {hosts}"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, check=False
    ).stdout.decode()
    for name in tracked.split("\0"):
        path = root / name
        if name and name != "uv.lock" and path.is_file():
            content = path.read_bytes()
            assert not any(host.encode() in content for host in hosts), name


def test_every_dependency_is_locked(root: Path, pyproject: dict[str, Any]) -> None:
    lock = tomllib.loads((root / "uv.lock").read_text())
    locked = {package["name"]: package for package in lock["package"]}
    ours = locked[pyproject["project"]["name"]]
    wanted = {
        re.split(r"[<>=!~ \[]", line)[0].lower() for line in pyproject["project"]["dependencies"]
    }
    assert {each["name"] for each in ours["dependencies"]} == wanted
    groups = {
        name: {re.split(r"[<>=!~ \[]", line)[0] for line in lines}
        for name, lines in pyproject["dependency-groups"].items()
    }
    assert {
        name: {each["name"] for each in lines} for name, lines in ours["dev-dependencies"].items()
    } == groups


# --- Dagster ---


def test_workspace_and_project_name_the_same_location(
    root: Path, pyproject: dict[str, Any]
) -> None:
    workspace = yaml.safe_load((root / "workspace.yaml").read_text())
    (entry,) = workspace["load_from"]
    module = entry["python_module"]
    assert module == {
        "module_name": "ticdc_assets.definitions",
        "working_directory": ".",
        "location_name": "ticdc_assets",
    }
    project = pyproject["tool"]["dg"]["project"]
    assert project["code_location_name"] == module["location_name"]
    assert project["code_location_target_module"] == module["module_name"]
    assert pyproject["tool"]["dagster"]["module_name"] == module["module_name"]
