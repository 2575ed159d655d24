"""What the project starts collects garbage seldom; what imports it as a library does as before."""

import pytest

from ticdc_assets_tests.fresh import printed

_PYTHONS_OWN = (700, 10, 10)


@pytest.mark.parametrize(
    ("module", "seldom"), [("ticdc_assets.cli", True), ("ticdc_assets.registry.history", False)]
)
def test_commands_look_for_garbage_seldom(module: str, *, seldom: bool) -> None:
    told = printed(f"import gc, {module}; print(gc.get_threshold())")
    assert (told != f"{_PYTHONS_OWN}\n") is seldom


_ENDS = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count() > 10_000))
import ticdc_assets.cli
"""
_COLLECTS = """
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


@pytest.mark.parametrize("program", [_ENDS, _COLLECTS])
def test_commands_end_without_a_look_at_all_objects_and_still_collect(program: str) -> None:
    assert printed(program) == "True\n"
