"""Columns that rows and DDL do not share: virtual generated ones, and those that TiDB adds itself.

No row ever has a virtual column, though it comes, goes and changes its name. No text of a DDL names
the columns of tables with SOFTDELETE and ACTIVE_ACTIVE, which a table may have from its database
only: rows have them, and so have the schemas of the Simple protocol.
"""

from dataclasses import replace

import pytest

from ticdc_assets.changelog.resolve import RowResolver
from ticdc_assets.model.events import SNAPSHOT_DDL, Op
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.inference.columns import HIDDEN_COLUMNS
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.changelog.lives import only_table
from ticdc_assets_tests.changelog.test_handle_keys import values
from ticdc_assets_tests.events import ddl_event
from ticdc_assets_tests.text_tables import Told, altered, created, ddl, row

every_format = pytest.mark.parametrize("wire_format", WireFormat)
KEYLESS = "create table t1 (a int, c int)"
WITH_VIRTUAL = "create table t1 (a int, v int as (a + 1) virtual, c int)"


@pytest.mark.parametrize("nullable", ["", " not null"])
@every_format
def test_rows_from_before_an_added_one_are_still_found(
    wire_format: WireFormat, nullable: str
) -> None:
    told = Told(wire_format, KEYLESS)
    told.row({"a": "1", "c": "5"})
    told.row({"a": "2", "c": "6"})
    told.alter(f"alter table t1 add column v int as (a + 1) virtual{nullable}")
    told.row(None, {"a": "1", "c": "5"})
    table = only_table(told.events)
    assert table.plan.generated == {"v"}
    assert table.unknown_deletes == 0
    assert values(table, "a", "c", "v") == [("2", "6", None)]
    assert (table.quarantined, table.plan.caveats) == ([], ())


@pytest.mark.parametrize(
    "sql",
    [
        "alter table t1 drop column v",
        "alter table t1 rename column v to w",
        "alter table t1 change v w int as (a + 1) virtual",
    ],
)
@every_format
def test_deletes_from_before_one_goes_are_whole(wire_format: WireFormat, sql: str) -> None:
    told = Told(wire_format, WITH_VIRTUAL)
    told.row({"a": "1", "c": "5"})
    told.row({"a": "2", "c": "6"})
    told.row(None, {"a": "1", "c": "5"})
    told.alter(sql)
    told.row({"a": "3", "c": "7"})
    table = only_table(told.events)
    assert table.quarantined == []
    assert values(table, "a", "c") == [("2", "6"), ("3", "7")]


def test_an_export_says_it_of_a_table_that_was_altered_before() -> None:
    """The changefeed begins after the CREATE, so no earlier text says what is virtual."""
    wire_format = WireFormat.SIMPLE_JSON
    add, rename = "alter table t1 add column d int", "alter table t1 rename column v to w"
    one = created(WITH_VIRTUAL)
    two = altered(one, add, version=20)
    three = altered(two, rename, version=40)
    exported = WITH_VIRTUAL.replace("c int", "c int, d int")
    schema = created(exported, version=30, table_id=10**12)
    of_table = {"database": "d", "table": "t1", "build_ts_ms": 0}
    table = only_table(
        [
            ddl(wire_format, add, ts=20, after=two, before=one),
            row(wire_format, two, ts=25, after={"a": "1", "c": "5", "d": None}),
            ddl_event(30, exported, ddl_type=SNAPSHOT_DDL, schema=schema, **of_table),
            row(wire_format, two, ts=35, after={"a": "2", "c": "6", "d": None}),
            ddl(wire_format, rename, ts=40, after=three, before=two),
            row(wire_format, three, ts=45, after={"a": "3", "c": "7", "d": None}),
        ]
    )
    assert table.plan.generated == {"w"}


@pytest.mark.parametrize(
    ("created_as", "sql", "lacked"),
    [
        (KEYLESS, "alter table t1 add column v int as (a + 1) virtual not null", ("v",)),
        (WITH_VIRTUAL, "alter table t1 rename column v to w", ("w",)),
        (WITH_VIRTUAL, "alter table t1 drop column v", ()),
        (KEYLESS, "alter table t1 add column d int not null", ()),
    ],
)
def test_every_row_lacks_the_virtual_columns_of_the_mirror(
    created_as: str, sql: str, lacked: tuple[str, ...]
) -> None:
    told = Told(WireFormat.OPEN_PROTOCOL, created_as)
    told.row({"a": "1", "c": "5"})
    told.alter(sql)
    plan = only_table(told.events).plan
    (put,) = RowResolver(plan, "UTC").resolve(
        Op.INSERT, None, commit_ts=15, before=None, after={"a": "1", "c": "5"}
    )
    assert put.missing == lacked


OPTIONS = ("", " SOFTDELETE = RETENTION 7 DAY", " ACTIVE_ACTIVE='ON' SOFTDELETE=RETENTION 7 DAY")
DELETED = "_tidb_softdelete_time"


def as_rows_have_it(schema: TableSchema) -> TableSchema:
    return replace(schema, columns=(*schema.columns, *HIDDEN_COLUMNS.values()))


@pytest.mark.parametrize("option", OPTIONS)
@every_format
def test_they_are_no_schema_change(wire_format: WireFormat, option: str) -> None:
    sql = f"CREATE TABLE `t1` (`id` INT PRIMARY KEY,`v` INT){option}"
    told = Told(wire_format, sql, seen=as_rows_have_it)
    none = {DELETED: None, "_tidb_origin_ts": None}
    one, other = {"id": "1", "v": "5", **none}, {"id": "2", "v": "6", **none}
    told.row(one)
    told.row(other)
    # A soft delete is a DELETE, RECOVER VALUES an UPDATE of a row that is gone.
    told.row(None, one)
    told.row(None, other)
    told.alter("ALTER TABLE `t1` SOFTDELETE_JOB_ENABLE = 'ON' SOFTDELETE_JOB_INTERVAL = '24h'")
    told.row(one | {"v": "7"}, one)
    table = only_table(told.events)
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
