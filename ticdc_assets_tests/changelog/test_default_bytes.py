"""Bytes in the DEFAULT of a DDL text, given to the rows that were there, in every format."""

import json
from dataclasses import replace

import pytest

from ticdc_assets.demo.simulator.encoders import encode
from ticdc_assets.demo.simulator.shapes import canal_shape_of, shape_of
from ticdc_assets.model.events import DdlEvent, Event, Op, RowChange
from ticdc_assets.model.schemas import (
    RowShape,
    TableSchema,
    schema_from_json,
    schema_from_text,
    schema_to_json,
    schema_to_text,
)
from ticdc_assets.registry.ddl import parse_ddl
from ticdc_assets.registry.history import Coordinates
from ticdc_assets.registry.inferred_columns import DATABASE_DEFAULTS
from ticdc_assets.registry.inferred_schemas import altered_schema, created_schema
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets_tests.reference.fold import FoldedTable, fold

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


def ddl(ts: int, sql: str, before: TableSchema | None, after: TableSchema) -> DdlEvent:
    return DdlEvent(
        ddl_type=sql.split()[0].upper(),
        commit_ts=ts,
        build_ts_ms=1,
        sql=sql,
        database="d",
        table="t",
        schema=after,
        pre_schema=before,
        action_code=3 if before is None else 5,
    )


def put(ts: int, number: int, schema: TableSchema, shape: RowShape | None) -> RowChange:
    return RowChange(
        op=Op.INSERT,
        commit_ts=ts,
        build_ts_ms=1,
        database="d",
        table="t",
        table_id=schema.table_id,
        schema_version=schema.version if shape is None else None,
        before=None,
        after={"id": str(number)},
        shape=shape,
    )


def life(wire_format: WireFormat, definition: str) -> FoldedTable:
    """Return the table of a row and a column that is added to it, by way of the format."""
    first = created_schema(
        parse_ddl(CREATE),
        database="d",
        table="t",
        table_id=7,
        version=10,
        defaults=DATABASE_DEFAULTS,
        timezone="UTC",
    ).schema
    sql = f"alter table t add column c {definition}"
    second = altered_schema(
        first, parse_ddl(sql), version=30, defaults=DATABASE_DEFAULTS, timezone="UTC"
    ).schema
    ddls = [ddl(10, CREATE, None, first), ddl(30, sql, first, second)]
    shape = None
    if wire_format not in (WireFormat.SIMPLE_JSON, WireFormat.SIMPLE_AVRO):
        ddls = [replace(event, schema=None, pre_schema=None) for event in ddls]
        is_canal = wire_format is WireFormat.CANAL_JSON
        shape = canal_shape_of(first) if is_canal else shape_of(first)
    row = put(20, 1, first, shape)
    if wire_format is WireFormat.SIMPLE_AVRO:
        row = replace(row, shape=shape_of(first))
    events: list[Event] = [ddls[0], row, ddls[1]]
    read = [
        event for record in encode(wire_format, events) for event in decode(wire_format, record)
    ]
    placed = [
        (Coordinates(topic="t", partition=0, offset=offset, index=0), event)
        for offset, event in enumerate(read)
    ]
    _, tables = fold(placed, 99, "UTC")
    (table,) = tables.values()
    return table


@pytest.mark.parametrize("wire_format", WireFormat)
@pytest.mark.parametrize(("definition", "wanted"), DEFAULTS)
def test_older_rows_get_the_bytes(wire_format: WireFormat, definition: str, wanted: str) -> None:
    table = life(wire_format, definition)
    assert list(table.listed()) == [{"id": "1", "c": wanted}]
    assert not table.plan.caveats


def test_bytes_survive_as_json() -> None:
    (column,) = created_schema(
        parse_ddl("create table t (c varbinary(9) default 0xff00fe)"),
        database="d",
        table="t",
        table_id=1,
        version=1,
        defaults=DATABASE_DEFAULTS,
        timezone="UTC",
    ).schema.columns
    assert column.default == b"\xff\x00\xfe"
    assert column.default_text == "0xff00fe"
    schema = TableSchema(
        database="d", table="t", table_id=1, version=1, columns=(column,), indexes=()
    )
    assert schema_from_text(schema_to_text(schema)) == schema
    assert schema_from_json(json.loads(json.dumps(schema_to_json(schema))), "$") == schema
