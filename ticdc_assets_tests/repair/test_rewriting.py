"""What rewriting does with a table that was damaged after somebody opened it."""

from pathlib import Path

import pyarrow as pa
import pytest

from ticdc_assets.base.errors import LakeDamagedError
from ticdc_assets.delta.appending import write_table
from ticdc_assets.repair.rewriting import Rewriter
from ticdc_assets.spark.session import LazySession


def test_a_broken_log_is_told_in_a_sentence(tmp_path: Path) -> None:
    table = tmp_path / "landings"
    write_table(table, pa.table({"number": [1]}), overwrite=False, metadata={"number": 1})
    (entry,) = (table / "_delta_log").glob("*.json")
    entry.write_text("{")
    rewriter = Rewriter(spark=LazySession(), table=table, does="removing rows")
    with pytest.raises(LakeDamagedError, match="landings"):
        rewriter.remove_files(["gone.parquet"])
