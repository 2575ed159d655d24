"""What only a DDL text says of a DEFAULT, for the rows that were there, in every format."""

import json

import pytest

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.demo.simulator.shapes import canal_shape_of, shape_of
from ticdc_assets.model.events import Event
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

CREATE = "create table t (id int primary key)"

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


def life(wire_format: WireFormat, definition: str) -> FoldedTable:
    """Return the table of a row and a column that is added to it, by way of the format."""
    first = created(CREATE, table="t")
    sql = f"alter table t add column c {definition}"
    second = altered(first, sql, version=30)
    has_schemas = wire_format in (WireFormat.SIMPLE_JSON, WireFormat.SIMPLE_AVRO)
    is_canal = wire_format is WireFormat.CANAL_JSON
    cited = {"table_id": 7, "schema_version": 10} if has_schemas else {}
    shape = None
    if wire_format is not WireFormat.SIMPLE_JSON:
        shape = canal_shape_of(first) if is_canal else shape_of(first)
    events: list[Event] = [
        ddl_event(10, CREATE, schema=first if has_schemas else None, action_code=3, build_ts_ms=1),
        row_event(20, after={"id": "1"}, shape=shape, build_ts_ms=1, **cited),
        ddl_event(
            30,
            sql,
            schema=second if has_schemas else None,
            pre_schema=first if has_schemas else None,
            action_code=5,
            build_ts_ms=1,
        ),
    ]
    return only_table(
        event for record in encode(wire_format, events) for event in decode(wire_format, record)
    )


@pytest.mark.parametrize("wire_format", WireFormat)
@pytest.mark.parametrize(("definition", "wanted"), DEFAULTS)
def test_older_rows_get_the_bytes(wire_format: WireFormat, definition: str, wanted: str) -> None:
    table = life(wire_format, definition)
    assert list(table.listed()) == [{"id": "1", "c": wanted}]
    assert not table.plan.caveats


@pytest.mark.parametrize("wire_format", WireFormat)
@pytest.mark.parametrize(
    "definition",
    [
        "varchar(60) default (date_format(now(), '%Y-%m'))",
        "TEXT DEFAULT (DATE_FORMAT(NOW(), _UTF8MB4'%Y-%m-%d'))",
        "varchar(60) not null default (str_to_date('1980-01-01', '%Y-%m-%d'))",
    ],
)
def test_an_expression_is_not_a_text(wire_format: WireFormat, definition: str) -> None:
    table = life(wire_format, definition)
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
