"""Queries over files: DuckDB reads the files that are named, and no others."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ticdc_assets.delta.queries import asking, view_files


@pytest.mark.parametrize(
    ("folder", "neighbour"), [("lake*", "lakes"), ("lake[1]", "lake1"), ("lake?", "lake2")]
)
def test_the_name_of_a_folder_is_no_pattern(folder: str, neighbour: str, tmp_path: Path) -> None:
    for name in (folder, neighbour):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"of": [name]}), tmp_path / name / "rows.parquet")
    with asking() as engine:
        view_files(engine, "rows", [tmp_path / folder / "rows.parquet"])
        assert engine.execute("SELECT * FROM rows").fetchall() == [(folder,)]
