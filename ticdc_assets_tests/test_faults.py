"""The faults of `python -m bench.faults` are real ones, and found again in code that moved."""

import ast
from pathlib import Path

import pytest

from bench.faults import ROOMS, Copy, Place, chosen, faults_in, same_place

CODE = '''"""A module."""

LIMIT = 3


def reach(items: list[int], most: int) -> int:
    """Say what 1 < 2 does."""
    if not items or len(items) < most:
        raise ValueError(f"{len(items) + 1} of {most}")
    last = items[1]
    return max(last, most)
'''
TEST = """from ticdc_assets.room.reaching import reach


def test_end():
    assert reach([1, 2], 2) == 2


def test_other():
    pass
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {
        "ticdc_assets/room/reaching.py": CODE,
        "ticdc_assets_tests/room/test_reaching.py": TEST,
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['thorough', 'slow']\n",
        "ticdc_assets_tests/conftest.py": "from hypothesis import settings\n"
        "settings.register_profile('quick')\n",
        "ticdc_assets/__init__.py": "",
        "ticdc_assets/room/__init__.py": "",
    }.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def kinds(places: list[Place]) -> set[tuple[str, str]]:
    return {(place.fault.kind, place.fault.before) for place in places}


def test_faults_are_in_code_and_not_in_what_it_says(tree: Path) -> None:
    assert kinds(faults_in(tree, "room")) == {
        ("condition", "not items or len(items) < most"),
        ("and, or", "not items or len(items) < most"),
        ("comparison", "len(items) < most"),
        ("return", "return max(last, most)"),
        ("arguments", "max(last, most)"),
        ("constant", "1"),
    }


def test_a_fault_is_caught_in_the_copy_only(tree: Path) -> None:
    faults = {place.fault.kind: place for place in faults_in(tree, "room")}
    copy = Copy(tree)
    try:
        assert copy.run("room", 60).by == ""
        by = "room/test_reaching.py::test_end"
        assert copy.run_with(faults["comparison"], 60).by == by
        assert copy.run_with(faults["return"], 60).by == by
        assert copy.run_with(faults["arguments"], 60).by == ""
        assert copy.run_with(faults["comparison"], 0).by.endswith("(limit of time)")
    finally:
        copy.close()
    assert not copy.tree.exists()
    assert (tree / "ticdc_assets/room/reaching.py").read_text() == CODE


def test_code_that_moved_has_the_same_faults(tree: Path) -> None:
    before = faults_in(tree, "room")
    old = tree / "ticdc_assets/room/reaching.py"
    old.write_text('"""Nothing."""\n')
    (old.parent / "moved.py").write_text(f"{CODE}\n\ndef other(a: int) -> int:\n    return a + 1\n")
    after = faults_in(tree, "room")
    for place in before:
        moved = same_place(place.fault, after)
        assert moved is not None
        assert (moved.fault.function, moved.fault.after) == ("reach", place.fault.after)
    (old.parent / "moved.py").unlink()
    assert same_place(before[0].fault, faults_in(tree, "room")) is None


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_have_enough_faults_and_the_same_for_the_same_seed(room: str, root: Path) -> None:
    places = faults_in(root, room)
    choice = chosen(root, places, 20, 1)
    assert len({place.fault for place in choice}) == 20
    assert choice == chosen(root, places, 20, 1)
    for place in choice:
        source = (root / place.fault.module).read_bytes()
        assert ast.dump(ast.parse(place.changed(source))) != ast.dump(ast.parse(source))
