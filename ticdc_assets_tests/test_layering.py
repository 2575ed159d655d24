"""Imports go one way, and the tool that says so would notice if they did not."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

# What may know Spark or Dagster; every other module of the package is pure.
ROOMS = {"engine", "rows", "pipeline", "observe", "reading", "services"}
HEAVY = {
    "cli",
    "definitions",
    "orchestration",
    "demo",
    "demo_live",
    "doctor",
    "report",
    "source_checks",
    *ROOMS,
}
LINTER = Path(sys.executable).with_name("lint-imports")


def contracts(root: Path) -> dict[str, dict[str, Any]]:
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    return {each["id"]: each for each in settings["tool"]["importlinter"]["contracts"]}


def lint(folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(LINTER), "--no-logo", "--no-cache"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "400", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_layers_hold(root: Path) -> None:
    done = lint(root)
    assert done.returncode == 0, done.stdout


PLANTED = {
    # module: what it must not import, the contract that says so
    "tso.py": ("ticdc_assets.errors, ticdc_assets.events", "layers"),
    "wire/record.py": ("ticdc_assets.registry", "layers"),
    "values/__init__.py": ("pyspark.sql", "pure"),
    "kafka.py": ("dagster", "pure"),
    "capture.py": ("ticdc_assets.engine", "pure"),
    "engine/__init__.py": ("dagster", "lake"),
    "engine/paths.py": ("ticdc_assets.services", "layers"),
    "observe/wording.py": ("pyspark.sql", "spark"),
    "wire/__init__.py": ("yaml", "wire"),
    "simulator/__init__.py": ("ticdc_assets.engine", "simulator"),
    "report/texts.py": ("pyspark.sql, ticdc_assets.reading", "report"),
    "added.py": ("ticdc_assets.errors", "layers"),
}


def test_planted_violations_are_found(root: Path, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "ticdc_assets", tmp_path / "ticdc_assets", ignore=ignored)
    shutil.copy(root / "pyproject.toml", tmp_path)
    assert lint(tmp_path).returncode == 0
    for module, (imported, _) in PLANTED.items():
        path = tmp_path / "ticdc_assets" / module
        before = path.read_text() if path.exists() else '"""A new module."""\n'
        path.write_text(f"{before}\nimport {imported}\n")
    done = lint(tmp_path)
    assert done.returncode == 1
    for identifier, contract in contracts(root).items():
        broken = f"{contract['name']} BROKEN" in done.stdout
        expected = identifier in {planted for _, planted in PLANTED.values()}
        assert broken is expected, (identifier, done.stdout)
    for seen in (
        "ticdc_assets.tso -> ticdc_assets.events",
        "ticdc_assets.wire.record -> ticdc_assets.registry",
        "ticdc_assets.values -> pyspark",
        "ticdc_assets.kafka -> dagster",
        "ticdc_assets.capture -> ticdc_assets.engine",
        "ticdc_assets.engine -> dagster",
        "ticdc_assets.engine.paths -> ticdc_assets.services",
        "ticdc_assets.observe.wording -> pyspark",
        "ticdc_assets.wire -> yaml",
        "ticdc_assets.simulator -> ticdc_assets.engine",
        "ticdc_assets.report.texts -> pyspark",
        "ticdc_assets.report.texts -> ticdc_assets.reading",
        "ticdc_assets.added",
    ):
        assert seen in done.stdout, done.stdout


def test_every_other_module_is_declared_pure(root: Path) -> None:
    package = root / "ticdc_assets"
    modules = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    declared = {name.split(".")[1] for name in contracts(root)["pure"]["source_modules"]}
    assert declared == modules - HEAVY - {"__init__"}


IMPORT_ALL = """
import importlib, json, pkgutil, sys
for name in json.loads(sys.argv[1]):
    module = importlib.import_module(name)
    for inner in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        importlib.import_module(inner.name)
    heavy = set(sys.modules) & set(json.loads(sys.argv[2]))
    if heavy:
        sys.exit(f"importing {name} brought {sorted(heavy)}")
"""


@pytest.mark.thorough
def test_pure_modules_bring_neither_spark_nor_dagster(root: Path) -> None:
    pure = contracts(root)["pure"]
    done = subprocess.run(
        [
            *(sys.executable, "-c", IMPORT_ALL),
            *(json.dumps(pure["source_modules"]), json.dumps(pure["forbidden_modules"])),
        ],
        cwd=root,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "from pyspark.sql import functions as F",
        "import pyspark.sql.functions as F",
        "from pyspark.sql.functions import col",
        "from pyspark.sql.functions.builtin import lit",
        "from pyspark.sql import Window",
        "from pyspark.sql.window import Window",
    ],
)
@pytest.mark.parametrize(
    ("module", "refused"),
    [
        ("ticdc_assets/pipeline/mirrors.py", True),
        ("ticdc_assets_tests/lake/test_edges.py", True),
        ("bench/large.py", True),
        ("ticdc_assets/engine/session.py", False),
    ],
)
def test_expressions_come_from_a_session(line: str, module: str, refused: bool, root: Path) -> None:
    """What builds an expression without asking for a session first fails where Spark is not up."""
    ruff = LINTER.with_name("ruff")
    options = ["--no-cache", "--select", "TID251", "--output-format", "concise"]
    done = subprocess.run(
        [str(ruff), "check", *options, "--stdin-filename", module, "-"],
        cwd=root,
        input=f"{line}\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "starts the session" in done.stdout) == (int(refused), refused)


def test_one_module_looks_at_sparks_jvm(root: Path) -> None:
    """A Connect session has none; what a DataFrame does not say is asked of `engine.driver`."""
    inside = re.compile(r"\b_jvm\b|\b_jsc\b|\b_jdf\b|\b_jsparkSession\b|\bsparkContext\b|\.rdd\b")
    found = {
        path.name
        for path in (root / "ticdc_assets").rglob("*.py")
        if inside.search(path.read_text(encoding="utf-8"))
    }
    assert found <= {"driver.py", "class_archive.py"}
