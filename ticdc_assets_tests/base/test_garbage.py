"""What the project starts collects garbage seldom; what imports it as a library does as before."""

import subprocess
import sys

import pytest

_PYTHONS_OWN = (700, 10, 10)


@pytest.mark.parametrize(
    ("module", "seldom"), [("ticdc_assets.cli", True), ("ticdc_assets.registry.history", False)]
)
def test_commands_look_for_garbage_seldom(module: str, *, seldom: bool) -> None:
    program = f"import gc, {module}; print(gc.get_threshold())"
    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert (told != f"{_PYTHONS_OWN}\n") is seldom


def test_commands_end_without_a_look_at_all_objects() -> None:
    program = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count() > 10_000))
import ticdc_assets.cli
"""
    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert told == "True\n"


def test_what_is_garbage_is_still_collected() -> None:
    program = """
import gc, weakref
import ticdc_assets.cli
class Node:
    pass
def cycle():
    node = Node()
    node.itself = node
    return weakref.ref(node)
first = cycle()
kept = [[] for _ in range(2 * gc.get_threshold()[0])]
print(first() is None)
"""
    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert told == "True\n"
