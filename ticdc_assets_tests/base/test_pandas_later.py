"""pyarrow does without pandas in commands, and knows it everywhere else."""

import pytest

from ticdc_assets_tests.fresh import printed

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
