"""Tables written as DDL text, and the events that TiCDC's messages of them decode to.

Messages say of a table what TiCDC says: the Simple protocol its schema, with the first NOT NULL
unique key listed again as `primary`, the others text and flags. No message says what is virtual, or
which index is over some rows only.
"""

from collections.abc import Callable
from dataclasses import replace

from ticdc_assets.demo.simulator.shapes import canal_shape_of, shape_of
from ticdc_assets.model.events import DdlEvent, Event, Image, RowChange
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


class Told:
    """What messages of one format tell of a table: its DDL and rows, each later than the last.

    Attributes:
        schema: the table after the newest DDL.
        events: the events so far, in the order of time.
    """

    def __init__(
        self,
        wire_format: WireFormat,
        sql: str,
        seen: Callable[[TableSchema], TableSchema] = lambda schema: schema,
    ) -> None:
        """Begin with a CREATE TABLE; `seen` makes of a schema what messages show of it."""
        self._format, self._seen, self._ts = wire_format, seen, 10
        self.schema = created(sql)
        self.events: list[Event] = [ddl(wire_format, sql, ts=10, after=seen(self.schema))]

    def alter(self, sql: str) -> None:
        """Tell of a DDL that changes the table."""
        before, self._ts = self._seen(self.schema), self._ts + 10
        self.schema = altered(self.schema, sql, version=self._ts)
        after = self._seen(self.schema)
        self.events.append(ddl(self._format, sql, ts=self._ts, after=after, before=before))

    def row(self, after: Image | None, before: Image | None = None) -> None:
        """Tell of a change of a row: an INSERT, an UPDATE, or a DELETE, which has nothing after."""
        self._ts += 1
        schema = self._seen(self.schema)
        self.events.append(row(self._format, schema, ts=self._ts, before=before, after=after))
