"""What only the text of a DDL says of columns, for the rows that were there, in every format.

Of a DEFAULT its bytes, and whether it is an expression; of FLOAT(M,D) and DOUBLE(M,D) the D, which
no schema of the Simple protocol has.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.demo.simulator.shapes import canal_shape_of, shape_of
from ticdc_assets.model.events import SNAPSHOT_DDL, Event, Op
from ticdc_assets.model.schemas import (
    TableSchema,
    schema_from_json,
    schema_from_text,
    schema_to_json,
    schema_to_text,
)
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets_tests.changelog.lives import only_table
from ticdc_assets_tests.changelog.test_encoder_damage import planned
from ticdc_assets_tests.events import ddl_event, row_event
from ticdc_assets_tests.reference.fold import FoldedTable
from ticdc_assets_tests.text_tables import altered, created

every_format = pytest.mark.parametrize("wire_format", WireFormat)
CREATE = "create table t (id int primary key)"


def as_sent(schema: TableSchema) -> TableSchema:
    """Return a schema as the Simple protocol sends it."""
    return replace(
        schema,
        columns=tuple(
            replace(column, decimal=0) if column.mysql_type in ("float", "double") else column
            for column in schema.columns
        ),
    )


def life(wire_format: WireFormat, create: str, change: str, **values: str) -> FoldedTable:
    """Return the table of one row after an ALTER TABLE, by way of the format."""
    first = created(create, table="t")
    sql = f"alter table t {change}"
    second = altered(first, sql, version=30)
    has_schemas = wire_format in (WireFormat.SIMPLE_JSON, WireFormat.SIMPLE_AVRO)
    is_canal = wire_format is WireFormat.CANAL_JSON
    cited: dict[str, Any] = {"table_id": 7, "schema_version": 10} if has_schemas else {}
    shape = None
    if wire_format is not WireFormat.SIMPLE_JSON:
        shape = canal_shape_of(first) if is_canal else shape_of(first)
    sent = [as_sent(schema) if has_schemas else None for schema in (first, second)]
    events: list[Event] = [
        ddl_event(10, create, schema=sent[0], action_code=3, build_ts_ms=1),
        row_event(20, after={"id": "1", **values}, shape=shape, build_ts_ms=1, **cited),
        ddl_event(30, sql, schema=sent[1], pre_schema=sent[0], action_code=12, build_ts_ms=1),
    ]
    return only_table(
        event for record in encode(wire_format, events) for event in decode(wire_format, record)
    )


# Defaults --------------------------------------------------------------------------------------

DEFAULTS = [
    ("binary(2) not null default 0x00ff", "0x00ff"),
    ("binary(3) default x'ff'", "0xff0000"),
    ("binary(3) default b'0111111111'", "0x01ff00"),
    ("binary(3) default _binary x'fe'", "0xfe0000"),
    ("binary(2) not null default '\\0a'", "0x0061"),
    ("varbinary(9) default x'41ff'", "0x41ff"),
    ("varbinary(9) default 0xff00", "0xff00"),
    ("varbinary(9) not null default X''", "0x"),
    ("varbinary(9) default 0xefbfbd", "0xefbfbd"),
    ("varchar(9) character set binary default x'80'", "0x80"),
    ("blob default (x'80')", "0x80"),
    ("varchar(9) default x'c3a9'", "é"),
    ("varchar(9) default _UTF8MB4'x'", "x"),
    ("int default x'ff'", "255"),
    ("bit(9) default b'100000001'", "257"),
]


@every_format
@pytest.mark.parametrize(("definition", "wanted"), DEFAULTS)
def test_older_rows_get_the_bytes(wire_format: WireFormat, definition: str, wanted: str) -> None:
    table = life(wire_format, CREATE, f"add column c {definition}")
    assert list(table.listed()) == [{"id": "1", "c": wanted}]
    assert not table.plan.caveats


@every_format
@pytest.mark.parametrize(
    "definition",
    [
        "varchar(60) default (date_format(now(), '%Y-%m'))",
        "TEXT DEFAULT (DATE_FORMAT(NOW(), _UTF8MB4'%Y-%m-%d'))",
        "varchar(60) not null default (str_to_date('1980-01-01', '%Y-%m-%d'))",
    ],
)
def test_an_expression_is_not_a_text(wire_format: WireFormat, definition: str) -> None:
    table = life(wire_format, CREATE, f"add column c {definition}")
    assert list(table.listed()) == [{"id": "1", "c": None}]
    (caveat,) = table.plan.caveats
    assert "the default of added column 'c' is not understood" in caveat.reason


def test_a_truncate_ends_the_caveat_of_older_rows() -> None:
    added = "alter table t add column c varchar(60) default (uuid())"
    assert planned(CREATE, added).caveats
    assert not planned(CREATE, added, "truncate table t").caveats


def test_bytes_survive_as_json() -> None:
    (column,) = created("create table t (c varbinary(9) default 0xff00fe)").columns
    assert column.default == b"\xff\x00\xfe"
    assert column.default_text == "0xff00fe"
    schema = TableSchema(
        database="d", table="t", table_id=1, version=1, columns=(column,), indexes=()
    )
    assert schema_from_text(schema_to_text(schema)) == schema
    assert schema_from_json(json.loads(json.dumps(schema_to_json(schema))), "$") == schema


# Scales ----------------------------------------------------------------------------------------


@every_format
@pytest.mark.parametrize(
    ("old", "new", "sent", "wanted"),
    [
        ("double", "double(10,2)", "1.236", "1.24"),
        ("double(10,4)", "double(10,2)", "1.236", "1.24"),
        ("double(10,2)", "double(12,2)", "1.25", "1.25"),
        ("double(10,2)", "double(8,2)", "1.25", "1.25"),
        ("double(10,2)", "double(10,2) not null", "1.25", "1.25"),
        ("varchar(9)", "double(10,2)", "1.236", "1.24"),
    ],
)
def test_a_modified_column_has_the_scale_of_the_text(
    wire_format: WireFormat, old: str, new: str, sent: str, wanted: str
) -> None:
    create = f"create table t (id int primary key, v {old})"
    table = life(wire_format, create, f"modify v {new}", v=sent)
    assert list(table.listed()) == [{"id": "1", "v": wanted}]
    assert not table.quarantined
    assert not table.casts


@every_format
def test_a_changed_column_has_the_scale_of_the_text(wire_format: WireFormat) -> None:
    create = "create table t (id int primary key, v double)"
    table = life(wire_format, create, "change v w double(10,1)", v="1.26")
    assert list(table.listed()) == [{"id": "1", "w": "1.3"}]


@every_format
def test_a_value_beyond_the_new_size_is_cut_as_in_a_lenient_mode(wire_format: WireFormat) -> None:
    create = "create table t (id int primary key, v double)"
    table = life(wire_format, create, "modify v double(4,2)", v="123.456")
    assert list(table.listed()) == [{"id": "1", "v": "99.99"}]
    assert table.casts == {("v", 30): 1}


@every_format
def test_an_added_column_has_its_default(wire_format: WireFormat) -> None:
    table = life(wire_format, CREATE, "add column v double(10,2) not null default 0.5")
    assert list(table.listed()) == [{"id": "1", "v": "0.5"}]
    assert not table.plan.caveats


def test_rows_of_an_export_outlive_the_next_ddl() -> None:
    create = "create table t (id int primary key, v double(10,2))"
    exported = created(create, table="t", version=20, table_id=10**12)
    change = "alter table t add column n int"
    later = replace(as_sent(altered(exported, change, version=30)), table_id=7)
    snapshot = row_event(20, after={"id": "1", "v": "1.25"}, schema_version=20)
    table = only_table(
        [
            ddl_event(20, create, ddl_type=SNAPSHOT_DDL, schema=exported),
            replace(snapshot, op=Op.SNAPSHOT),
            ddl_event(30, change, schema=later),
            row_event(40, after={"id": "2", "v": "2.5", "n": "1"}, table_id=7, schema_version=30),
        ]
    )
    assert not table.quarantined
    assert list(table.listed()) == [
        {"id": "1", "v": "1.25", "n": None},
        {"id": "2", "v": "2.5", "n": "1"},
    ]
