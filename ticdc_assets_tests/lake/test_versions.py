"""Names of the columns of mirrors at versions that earlier programs wrote."""

from dataclasses import replace

import pytest

from ticdc_assets.pipeline.versions import names_today
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.schemas import ColumnSchema, TableSchema

TABLE = TableSchema(database="d", table="t", table_id=1, version=1, columns=(), indexes=())


def schema_of(*names: str) -> TableSchema:
    columns = tuple(
        ColumnSchema(name=name, mysql_type="int", nullable=True, default=None) for name in names
    )
    return replace(TABLE, columns=columns)


@pytest.mark.parametrize(
    ("upstream", "stored", "rescued"),
    [
        (["id"], "_ticdc_extra", "_rescued_data"),
        (["id"], "_rescued_data", "_rescued_data"),
        (["_ticdc_extra"], "_ticdc_extra_", "_rescued_data"),
        (["_ticdc_extra"], "_rescued_data", "_rescued_data"),
        (["_rescued_data"], "_ticdc_extra", "_rescued_data_"),
        (["_rescued_data"], "_rescued_data_", "_rescued_data_"),
        (["_Rescued_Data", "_TICDC_EXTRA"], "_ticdc_extra_", "_rescued_data_"),
    ],
)
def test_the_former_name_is_told_from_columns_of_upstream(
    upstream: list[str], stored: str, rescued: str
) -> None:
    """Upstream may have a column of either name."""
    schema = schema_of(*upstream)
    assert MirrorLayout(schema=schema).rescued == rescued
    there = [*upstream, "_ticdc_commit_ts", stored]
    assert names_today(there, schema) == [*upstream, "_ticdc_commit_ts", rescued]


def test_a_table_that_lost_the_column_keeps_its_names() -> None:
    """A foreign writer may have dropped it; the reader of the table says so."""
    assert names_today(["id", "_ticdc_commit_ts"], schema_of("id")) == ["id", "_ticdc_commit_ts"]
