"""docs/architecture.md says what the imports are: its line is that which the linter checks."""

import re
import tomllib
from pathlib import Path

import pytest


def rows(page: str, heading: str) -> list[str]:
    """Return the first cells of the table under a heading."""
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [line.split("|")[1].strip() for line in table[2:]]


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_line_is_that_of_the_linter(root: Path, page: str) -> None:
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(item["layers"] for item in contracts if item["id"] == "layers")
    told = [re.findall(r"`(\w+)`", row) for row in rows(page, "The line")]
    assert told == [[name.strip() for name in layer.split("|")] for layer in reversed(layers)]


def test_every_room_has_its_row(root: Path, page: str) -> None:
    package = root / "ticdc_assets"
    there = {path.stem for path in package.glob("*.py")} - {"__init__"}
    assert there == {"definitions"}
    there |= {path.parent.name for path in package.glob("*/__init__.py")}
    told = {name for row in rows(page, "The line") for name in re.findall(r"`(\w+)`", row)}
    assert told == there


def test_the_sizes_it_tells_are_those_of_the_code(page: str) -> None:
    from ticdc_assets.spark.executing import INLINE_ROWS

    assert f"up to {INLINE_ROWS:,} rows" in page


def test_one_module_looks_at_sparks_jvm(root: Path) -> None:
    """A Connect session has none; what a DataFrame does not say is asked of `spark.driver`."""
    inside = re.compile(r"\b_jvm\b|\b_jsc\b|\b_jdf\b|\b_jsparkSession\b|\bsparkContext\b|\.rdd\b")
    found = {
        path.name
        for path in (root / "ticdc_assets").rglob("*.py")
        if inside.search(path.read_text(encoding="utf-8"))
    }
    assert found <= {"driver.py", "class_archive.py"}
