"""Schemas from DDL text and from rows, against what TiCDC's real encoders sent.

The Simple protocol sends the schema before and after each DDL: what our reading of the text makes
of the one must be the other, field by field. The formats without schemas send rows that must fit
the schemas that the texts made.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache

import pytest

from ticdc_assets.events import DdlEvent, RowChange
from ticdc_assets.registry.ddl import DdlAction, DdlStatement, parse_ddl
from ticdc_assets.registry.inferred_schemas import (
    DATABASE_DEFAULTS,
    Defaults,
    altered_schema,
    canal_shape_of,
    created_schema,
    database_defaults,
    fits,
    schema_of_shape,
    shape_of,
    table_defaults,
)
from ticdc_assets.schemas import ColumnFlag, ColumnSchema, TableSchema
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.record import Record
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
    wire_format = WireFormat.SIMPLE_JSON
    found: dict[tuple[int, str], DdlEvent] = {}
    for message in golden.messages(folder):
        for event in decode(wire_format, Record(key=message.key, value=message.value)):
            if isinstance(event, DdlEvent):
                found.setdefault((event.commit_ts, event.sql), event)
    events = sorted(found.values(), key=lambda event: event.commit_ts)
    return tuple((event, parse_ddl(event.sql)) for event in events)


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
            self.databases[name] = database_defaults(statement, self.database(name))
            return self.databases[name]
        before = self.tables.get((database, table), self.database(database))
        self.tables[database, table] = table_defaults(statement, before)
        return before


def inferred(
    event: DdlEvent, statement: DdlStatement, defaults: Defaults
) -> TableSchema | None:
    """Return what the text makes of the schema before it, None for what changes no columns."""
    sent = event.schema
    if sent is None:
        return None
    if statement.action is DdlAction.CREATE_TABLE:
        made = created_schema(
            statement,
            database=sent.database,
            table=sent.table,
            table_id=sent.table_id,
            version=sent.version,
            defaults=defaults,
            timezone=TIMEZONE,
        )
    elif statement.action in CHANGING and event.pre_schema is not None:
        made = altered_schema(
            event.pre_schema,
            statement,
            version=sent.version,
            defaults=defaults,
            timezone=TIMEZONE,
        )
    else:
        return None
    assert made.notes == (), event.sql
    return made.schema


def comparable(schema: TableSchema) -> TableSchema:
    """Return `schema` without `DIFFERENCES`."""

    def plain(column: ColumnSchema) -> ColumnSchema:
        return replace(column, decimal=0) if column.mysql_type in ("float", "double") else column

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
