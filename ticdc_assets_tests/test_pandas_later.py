"""pyarrow does without pandas until somebody imports it, and then knows its objects."""

import subprocess
import sys

import pytest

_NOT_IMPORTED = """
import sys
import ticdc_assets.engine.control
import pyarrow as pa
import pyarrow.dataset
assert pa.array([1, None]).null_count == 1
assert pa.table({"a": [1]}).num_rows == 1
assert "pandas" not in sys.modules
"""

_KNOWN = """
import pandas as pd
numbers = pd.Series([1.0, float("nan")])
assert pa.array(numbers).null_count == 1
assert pa.table(pd.DataFrame({"a": [1]})).num_rows == 1
assert pa.table({"a": [1]}).to_pandas()["a"].tolist() == [1]
"""

_ASKED_BY_PYARROW = """
frame = pa.table({"a": [1]}).to_pandas()
assert pa.table(frame).num_rows == 1
"""

_IMPORTED_BEFORE = """
import pandas as pd
import ticdc_assets.engine
import pyarrow as pa
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    "program",
    [
        _NOT_IMPORTED,
        _NOT_IMPORTED + _KNOWN,
        _NOT_IMPORTED + _ASKED_BY_PYARROW,
        _IMPORTED_BEFORE + _KNOWN,
    ],
    ids=["alone", "imported later", "asked for", "imported before"],
)
def test_pyarrow_knows_pandas_from_its_import_on(program: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.thorough
def test_definitions_are_loaded_without_what_only_runs_need() -> None:
    program = (
        "import sys, ticdc_assets.definitions\n"
        "print(sorted({'numba', 'duckdb', 'pandas', 'plotly', 'apprise'} & sys.modules.keys()))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
