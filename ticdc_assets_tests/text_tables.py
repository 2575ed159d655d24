"""Tables written as DDL text, and the events that TiCDC's messages of them decode to.

Messages say of a table what TiCDC says: the Simple protocol its schema, with the first NOT NULL
unique key listed again as `primary`, the others text and flags. No message says what is virtual, or
which index is over some rows only.
"""

from dataclasses import replace

from ticdc_assets.demo.simulator.shapes import canal_shape_of, shape_of
from ticdc_assets.model.events import DdlEvent, Image, RowChange
from ticdc_assets.model.schemas import IndexSchema, TableSchema
from ticdc_assets.registry.ddl.reader import parse_ddl
from ticdc_assets.registry.inference.row_shapes import NO_TABLE
from ticdc_assets.registry.inference.schemas import schema_after
from ticdc_assets.wire import WireFormat
from ticdc_assets_tests.events import ddl_event, row_event

T1 = (
    "create table t1 (a int, b int as (a + 1) virtual not null, c int not null, "
    "unique index idx1(b), unique index idx2(c))"
)


def created(sql: str, *, version: int = 10, table: str = "t1", table_id: int = 7) -> TableSchema:
    """Return the schema that CREATE TABLE makes."""
    new = replace(NO_TABLE, database="d", table=table, table_id=table_id, version=version)
    made = schema_after(parse_ddl(sql), new)
    assert made.notes == ()
    return made.schema


def altered(schema: TableSchema, sql: str, *, version: int) -> TableSchema:
    """Return the schema that ALTER TABLE makes of another."""
    made = schema_after(parse_ddl(sql), replace(schema, version=version))
    assert made.notes == ()
    return made.schema


def as_sent(schema: TableSchema) -> TableSchema:
    """Return a schema as the Simple protocol sends it, without what only DDL text says."""
    nullable = {column.name for column in schema.columns if column.nullable}
    indexes = tuple(replace(index, partial=False) for index in schema.indexes)
    if not any(index.primary for index in indexes):
        first = [
            index.columns
            for index in indexes
            if index.unique and nullable.isdisjoint(index.columns)
        ][:1]
        indexes += tuple(
            IndexSchema(name="primary", unique=True, primary=True, nullable=False, columns=columns)
            for columns in first
        )
    return replace(
        schema,
        columns=tuple(replace(column, virtual=False) for column in schema.columns),
        indexes=indexes,
    )


def ddl(
    wire_format: WireFormat,
    sql: str,
    *,
    ts: int,
    after: TableSchema,
    before: TableSchema | None = None,
) -> DdlEvent:
    """Return the event of a DDL as the decoder of a format gives it."""
    carries = wire_format in (WireFormat.SIMPLE_JSON, WireFormat.SIMPLE_AVRO)
    return ddl_event(
        ts,
        sql,
        ddl_type=(
            "CREATE" if before is None else "ALTER" if before.table == after.table else "RENAME"
        ),
        build_ts_ms=5,
        database=after.database,
        table=after.table,
        schema=as_sent(after) if carries else None,
        pre_schema=as_sent(before) if carries and before is not None else None,
    )


def row(
    wire_format: WireFormat,
    schema: TableSchema,
    *,
    ts: int,
    before: Image | None = None,
    after: Image | None = None,
) -> RowChange:
    """Return a row change as the decoder of a format gives it."""
    carries = wire_format in (WireFormat.SIMPLE_JSON, WireFormat.SIMPLE_AVRO)
    names = [column.name for column in schema.columns if not column.virtual]
    shape = (canal_shape_of if wire_format is WireFormat.CANAL_JSON else shape_of)(schema)
    sent = tuple(column for column in shape.columns if column.name in names)
    return row_event(
        ts,
        build_ts_ms=5,
        database=schema.database,
        table=schema.table,
        table_id=schema.table_id if carries else None,
        schema_version=schema.version if carries else None,
        before=before,
        after=after,
        shape=replace(shape, columns=sent, partial=after is None),
    )
