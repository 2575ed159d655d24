"""Columns that TiDB adds itself to tables with SOFTDELETE and ACTIVE_ACTIVE, in every format.

No text of a DDL names them, and the table may have the option from its database only. Rows have
them, and so have the schemas of the Simple protocol.
"""

from dataclasses import replace

import pytest

from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.inference.columns import HIDDEN_COLUMNS
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.changelog.lives import only_table
from ticdc_assets_tests.changelog.test_handle_keys import values
from ticdc_assets_tests.text_tables import altered, created, ddl, row

FORMATS = tuple(WireFormat)
OPTIONS = ("", " SOFTDELETE = RETENTION 7 DAY", " ACTIVE_ACTIVE='ON' SOFTDELETE=RETENTION 7 DAY")
DELETED = "_tidb_softdelete_time"


def as_rows_have_it(schema: TableSchema) -> TableSchema:
    return replace(schema, columns=(*schema.columns, *HIDDEN_COLUMNS.values()))


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("wire_format", FORMATS)
def test_they_are_no_schema_change(wire_format: WireFormat, option: str) -> None:
    sql = f"CREATE TABLE `t1` (`id` INT PRIMARY KEY,`v` INT){option}"
    alter = "ALTER TABLE `t1` SOFTDELETE_JOB_ENABLE = 'ON' SOFTDELETE_JOB_INTERVAL = '24h'"
    one = as_rows_have_it(created(sql))
    two = as_rows_have_it(altered(created(sql), alter, version=30))
    none = {DELETED: None, "_tidb_origin_ts": None}
    table = only_table(
        [
            ddl(wire_format, sql, ts=10, after=one),
            row(wire_format, one, ts=20, after={"id": "1", "v": "5", **none}),
            row(wire_format, one, ts=21, after={"id": "2", "v": "6", **none}),
            # A soft delete is a DELETE, RECOVER VALUES an UPDATE of a row that is gone.
            row(wire_format, one, ts=22, before={"id": "1", "v": "5", **none}),
            row(wire_format, one, ts=23, before={"id": "2", "v": "6", **none}),
            ddl(wire_format, alter, ts=30, after=two, before=one),
            row(
                wire_format,
                two,
                ts=31,
                before={"id": "1", "v": "5", **none},
                after={"id": "1", "v": "7", **none},
            ),
        ]
    )
    assert table.plan.caveats == ()
    assert table.quarantined == []
    assert values(table, "id", "v", DELETED) == [("1", "7", None)]


@pytest.mark.parametrize("wire_format", [WireFormat.OPEN_PROTOCOL, WireFormat.CANAL_JSON])
def test_any_other_column_without_a_ddl_is_one(wire_format: WireFormat) -> None:
    sql = "CREATE TABLE `t1` (`id` INT PRIMARY KEY)"
    grown = altered(as_rows_have_it(created(sql)), "alter table t1 add w int", version=20)
    image = {"id": "1", DELETED: None, "_tidb_origin_ts": None, "w": "3"}
    table = only_table(
        [
            ddl(wire_format, sql, ts=10, after=created(sql)),
            row(wire_format, grown, ts=20, after=image),
        ]
    )
    (caveat,) = table.plan.caveats
    assert caveat.reason == "schema changed without a DDL message"
