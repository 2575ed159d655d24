"""Imports go one way, and the tool that says so would notice if they did not."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

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
    "model/tso.py": ("ticdc_assets.wire", "layers"),
    "wire/record.py": ("ticdc_assets.registry", "layers"),
    "model/values/__init__.py": ("pyspark.sql", "pure"),
    "source/capture.py": ("dagster", "pure"),
    "delta/control.py": ("dagster", "lake"),
    "storage/lake_paths.py": ("ticdc_assets.repair", "layers"),
    "observe/wording.py": ("pyspark.sql", "spark"),
    "wire/__init__.py": ("yaml", "wire"),
    "demo/simulator/__init__.py": ("ticdc_assets.delta", "simulator"),
    "observe/report/texts.py": ("pyspark.sql, ticdc_assets.reading", "report"),
    "added.py": ("ticdc_assets.base.errors", "layers"),
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
        "ticdc_assets.model.tso -> ticdc_assets.wire",
        "ticdc_assets.wire.record -> ticdc_assets.registry",
        "ticdc_assets.model.values -> pyspark",
        "ticdc_assets.source.capture -> dagster",
        "ticdc_assets.delta.control -> dagster",
        "ticdc_assets.storage.lake_paths -> ticdc_assets.repair",
        "ticdc_assets.observe.wording -> pyspark",
        "ticdc_assets.wire -> yaml",
        "ticdc_assets.demo.simulator -> ticdc_assets.delta",
        "ticdc_assets.observe.report.texts -> pyspark",
        "ticdc_assets.observe.report.texts -> ticdc_assets.reading",
        "ticdc_assets.added",
    ):
        assert seen in done.stdout, done.stdout


def test_one_module_looks_at_sparks_jvm(root: Path) -> None:
    """A Connect session has none; what a DataFrame does not say is asked of `spark.driver`."""
    inside = re.compile(r"\b_jvm\b|\b_jsc\b|\b_jdf\b|\b_jsparkSession\b|\bsparkContext\b|\.rdd\b")
    found = {
        path.name
        for path in (root / "ticdc_assets").rglob("*.py")
        if inside.search(path.read_text(encoding="utf-8"))
    }
    assert found <= {"driver.py", "class_archive.py"}
