"""What the project starts collects garbage seldom and does without pandas; a library does not."""

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


_KNOWN = """
import pandas as pd
numbers = pd.Series([1.0, float("nan")])
assert pa.array(numbers).null_count == 1
assert pa.table(pd.DataFrame({"a": [1]})).num_rows == 1
"""

_COMMAND = """
import sys
import ticdc_assets.cli
import ticdc_assets.orchestration.run
import pyarrow as pa
import pyarrow.dataset
assert pa.array([1, None]).null_count == 1
assert pa.table({"a": [1]}).num_rows == 1
assert "pandas" not in sys.modules
assert pa.table({"a": [1]}).to_pandas()["a"].tolist() == [1]
"""

_LIBRARY = """
import ticdc_assets.delta.control
import pyarrow as pa
"""


@pytest.mark.thorough
@pytest.mark.parametrize("program", [_COMMAND, _COMMAND + _KNOWN, _LIBRARY + _KNOWN])
def test_only_commands_do_without_pandas(program: str) -> None:
    printed(program)


@pytest.mark.thorough
def test_definitions_are_loaded_without_what_only_runs_need() -> None:
    program = (
        "import sys, ticdc_assets.definitions\n"
        "print(sorted({'numba', 'duckdb', 'plotly', 'apprise'} & sys.modules.keys()))"
    )
    assert printed(program).strip() == "[]"
