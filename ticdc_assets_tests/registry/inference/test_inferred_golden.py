"""Schemas from DDL text and from rows, against what TiCDC's real encoders sent.

The Simple protocol sends the schema before and after each DDL: what our reading of the text makes
of the one must be the other, field by field. The formats without schemas send rows that must fit
the schemas that the texts made.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache

import pytest

from ticdc_assets.demo.simulator.shapes import canal_shape_of, shape_of
from ticdc_assets.model.events import DdlEvent, RowChange
from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnFlag, ColumnSchema, RowShape, TableSchema
from ticdc_assets.model.values import canonical_of, default_text
from ticdc_assets.registry.catalog import Catalog
from ticdc_assets.registry.ddl.statement import DdlAction, DdlStatement
from ticdc_assets.registry.history import Coordinates, SchemaHistory
from ticdc_assets.registry.inference.column_facts import with_unsent_facts
from ticdc_assets.registry.inference.columns import DATABASE_DEFAULTS, Defaults, defaults_after
from ticdc_assets.registry.inference.row_shapes import fits, schema_of_shape
from ticdc_assets.registry.inference.schemas import schema_after
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets_tests.wire import golden

pytestmark = golden.needs_golden

TIMEZONE = "Asia/Shanghai"

SIMPLE_FOLDERS = (
    "simple-json/types",
    "simple-json/shop",
    "simple-json/shop-ddlwm",
    *golden.SIMPLE_JSON_OPTIONS,
)

DIFFERENCES = {
    "columns stand in the order of the table": "Simple sends them by column id",
    "decimal of FLOAT and DOUBLE": "TiCDC does not send the D of FLOAT(M,D), the text has it",
    "nullable of indexes": "TiCDC computes it wrongly from the second encoding on (QUIRKS B11)",
    "index `primary` over a unique key": "TiCDC lists it twice; it is no index of the table",
}
"""What is not compared, and why."""

CHANGING = (DdlAction.ALTER_TABLE, DdlAction.CREATE_INDEX, DdlAction.DROP_INDEX)


@cache
def ddls(folder: str) -> tuple[tuple[DdlEvent, DdlStatement], ...]:
    """Return each DDL of a folder once, with what its text says."""
    found: dict[tuple[int, str], DdlEvent] = {}
    for record in golden.records(folder):
        for event in decode(WireFormat.SIMPLE_JSON, record):
            if isinstance(event, DdlEvent):
                found.setdefault((event.commit_ts, event.sql), event)
    history = SchemaHistory()
    for number, event in enumerate(sorted(found.values(), key=lambda event: event.commit_ts)):
        history.add_ddl(event, Coordinates(topic="t", partition=0, offset=number, index=0))
    # No message says which columns are virtual.
    return tuple((ddl.event, ddl.statement) for ddl in with_unsent_facts(history).ddls)


@dataclass
class Known:
    """The defaults of databases and tables, as DDL texts set them."""

    databases: dict[str, Defaults] = field(default_factory=dict[str, Defaults])
    tables: dict[tuple[str, str], Defaults] = field(default_factory=dict[tuple[str, str], Defaults])

    def database(self, name: str) -> Defaults:
        return self.databases.get(name, DATABASE_DEFAULTS)

    def take(self, statement: DdlStatement, database: str, table: str) -> Defaults:
        """Take in `statement`; return the defaults that its own columns are read with."""
        if statement.action in (DdlAction.CREATE_DATABASE, DdlAction.ALTER_DATABASE):
            name = statement.database or ""
            self.databases[name] = defaults_after(statement, self.database(name))
            return self.databases[name]
        before = self.tables.get((database, table), self.database(database))
        self.tables[database, table] = defaults_after(statement, before)
        return before


def inferred(event: DdlEvent, statement: DdlStatement, defaults: Defaults) -> TableSchema | None:
    """Return what the text makes of the schema before it, None for what changes no columns."""
    sent = event.schema
    if sent is None:
        return None
    if statement.action is DdlAction.CREATE_TABLE:
        before = replace(sent, columns=(), indexes=())
    elif statement.action in CHANGING and event.pre_schema is not None:
        before = replace(event.pre_schema, version=sent.version)
    else:
        return None
    made = schema_after(statement, before, defaults=defaults, timezone=TIMEZONE)
    assert made.notes == (), event.sql
    return made.schema


def comparable(schema: TableSchema) -> TableSchema:
    """Return `schema` without `DIFFERENCES`."""

    def plain(column: ColumnSchema) -> ColumnSchema:
        is_float = column.mysql_type in ("float", "double")
        column = replace(column, decimal=0) if is_float else column
        if column.default is None:
            return column
        # A default from a text is not in the spelling of its column.
        bare = replace(column, length=0) if is_float else column
        value = default_text(bare, TIMEZONE, at=datetime(2024, 1, 1, tzinfo=UTC))
        return replace(column, default=value)

    return replace(
        schema,
        columns=tuple(sorted(map(plain, schema.columns), key=lambda column: column.name)),
        indexes=tuple(replace(index, nullable=False) for index in schema.own_indexes),
    )


@pytest.mark.parametrize("folder", SIMPLE_FOLDERS)
def test_text_makes_of_the_schema_before_the_schema_that_was_sent(folder: str) -> None:
    known = Known()
    compared = 0
    for event, statement in ddls(folder):
        assert statement.unparsed is None, event.sql
        defaults = known.take(statement, event.database, event.table)
        made = inferred(event, statement, defaults)
        if made is None or event.schema is None:
            assert statement.action not in (DdlAction.CREATE_TABLE, *CHANGING)
            continue
        compared += 1
        assert comparable(made) == comparable(event.schema), event.sql
    assert compared >= {"simple-json/types": 1, "simple-json/shop": 31}.get(folder, 1)


@cache
def rows_with_schemas(
    folder: str, wire_format: WireFormat
) -> tuple[tuple[RowChange, TableSchema], ...]:
    """Return each row with the schema that its table has at that moment by the DDL texts."""
    history = SchemaHistory()
    rows: list[RowChange] = []
    for number, record in enumerate(golden.records(folder)):
        place = Coordinates(topic="t", partition=0, offset=number, index=0)
        for event in decode(wire_format, record):
            if isinstance(event, DdlEvent):
                history.add_ddl(event, place)
            elif isinstance(event, RowChange):
                rows.append(event)
    catalog = Catalog(TIMEZONE)
    known = catalog.walk(history, [])
    assert not any(ddl.notes or ddl.statement.unparsed for ddl in known.ddls)
    found: list[tuple[RowChange, TableSchema]] = []
    for row in rows:
        schema = catalog.in_force(row.database, row.table, row.commit_ts)
        assert schema is not None
        found.append((row, schema))
    return tuple(found)


ROWS = (
    ("open/types", WireFormat.OPEN_PROTOCOL),
    ("open/shop", WireFormat.OPEN_PROTOCOL),
    ("open/shop-ddlwm", WireFormat.OPEN_PROTOCOL),
    ("open-updated/shop", WireFormat.OPEN_PROTOCOL),
    ("options/open-delete-only-handle-key", WireFormat.OPEN_PROTOCOL),
    ("options/open-handle-key-only", WireFormat.OPEN_PROTOCOL),
    ("options/open-force-replicate", WireFormat.OPEN_PROTOCOL),
    ("canal-json/types", WireFormat.CANAL_JSON),
    ("canal-json/shop", WireFormat.CANAL_JSON),
    ("canal-json-compat/types", WireFormat.CANAL_JSON),
    ("canal-json-compat/shop", WireFormat.CANAL_JSON),
    ("options/canal-json-delete-only-handle-key", WireFormat.CANAL_JSON),
    ("options/canal-json-force-replicate", WireFormat.CANAL_JSON),
    ("options/canal-json-handle-key-only", WireFormat.CANAL_JSON),
    ("craft/types", WireFormat.CRAFT),
    ("craft/shop", WireFormat.CRAFT),
)


STORED = frozenset({"s", "j"})
"""The stored generated columns of crm.gen_cols; the virtual one is in no row."""


@pytest.mark.parametrize(("folder", "wire_format"), ROWS)
@pytest.mark.thorough
def test_every_row_has_the_shape_of_the_schema_that_the_texts_made(
    folder: str, wire_format: WireFormat
) -> None:
    """It fits the schema, and the schema gives its types and flags."""
    met = 0
    for row, schema in rows_with_schemas(folder, wire_format):
        shape = row.shape
        assert shape is not None
        met += 1
        assert fits(schema, shape), (row, schema)
        names = {column.name for column in shape.columns}
        generated = STORED if row.table == "gen_cols" else frozenset[str]()
        made = shape_of(schema)
        if wire_format is WireFormat.CANAL_JSON:
            made = canal_shape_of(schema, full_types="compat" in folder)
        key = made.primary_key
        made = RowShape(
            columns=tuple(
                replace(column, flags=column.flags | ColumnFlag.GENERATED)
                if column.name in generated and column.flags is not None
                else column
                for column in made.columns
                if column.name in names
            ),
            primary_key=None if key is None else tuple(name for name in key if name in names),
            partial=shape.partial,
        )
        if wire_format is WireFormat.OPEN_PROTOCOL:
            # Its columns stand by name.
            assert sorted(made.columns, key=repr) == sorted(shape.columns, key=repr)
        else:
            assert made == shape
    assert met > 0


@pytest.mark.parametrize(("folder", "wire_format"), ROWS)
@pytest.mark.thorough
def test_a_row_alone_tells_its_key_and_loses_no_value(folder: str, wire_format: WireFormat) -> None:
    """Start at any row: the key is the same, and every value but of labels reads the same."""
    seen = set[object]()
    compared = 0
    for row, schema in rows_with_schemas(folder, wire_format):
        shape = row.shape
        assert shape is not None
        alone = schema_of_shape(
            shape, database=row.database, table=row.table, table_id=1, version=1
        )
        if shape not in seen:
            seen.add(shape)
            assert fits(alone, shape)
            if wire_format is not WireFormat.CANAL_JSON or shape.primary_key:
                assert set(alone.handle_key) == set(schema.handle_key)
        if len(seen) > 20 and row.commit_ts % 7:
            continue
        for image in (row.before, row.after):
            for name, value in (image or {}).items():
                known, unknown = schema.column(name), alone.column(name)
                assert known is not None
                assert unknown is not None
                if kind_of(known) in (Kind.ENUM, Kind.SET) and not unknown.elements:
                    continue
                texts = [canonical_of(column, TIMEZONE)(value) for column in (known, unknown)]
                assert texts[0] == texts[1], (row, name)
                compared += 1
    assert compared > 0
