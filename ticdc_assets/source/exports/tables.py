"""The schema of an exported table, from its CREATE TABLE in the export.

In: an `ExportedTable` and the TSO. Out: its `TableSchema` at the TSO, from the DDL text, or an
error that says why there is none. Pure. An export has no table ids: the schema's id is made from
the table's name.
"""

import hashlib
import re
from dataclasses import dataclass

from ticdc_assets.base.errors import InputError, shorten
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.registry.ddl.reader import parse_ddl
from ticdc_assets.registry.ddl.statement import DdlAction
from ticdc_assets.registry.inference.columns import DATABASE_DEFAULTS, defaults_after
from ticdc_assets.registry.inference.schemas import schema_after
from ticdc_assets.source.exports.folder import ExportedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSchema:
    """The schema of an exported table.

    Attributes:
        schema: the schema; its version is the TSO.
        sql: the CREATE TABLE.
        notes: the parts of the text that are not understood.
    """

    schema: TableSchema
    sql: str
    notes: tuple[str, ...]


def exported_schema(table: ExportedTable, tso: int, timezone: str) -> ExportedSchema:
    """Return the schema of a table in an export.

    Args:
        table: the table.
        tso: TSO of the export.
        timezone: zone of the session that exported it, for defaults of TIMESTAMP columns.

    Raises:
        InputError: the export has none.
    """
    if table.create_sql is None:
        raise InputError("no_schema", "the export", "a file with its CREATE TABLE", "none")
    sql = _statement(table.create_sql)
    statement = parse_ddl(sql)
    if statement.action is not DdlAction.CREATE_TABLE or not statement.columns:
        raise InputError("invalid_schema", "the export", "CREATE TABLE", shorten(sql))
    defaults = DATABASE_DEFAULTS
    if table.database_sql is not None:
        text = parse_ddl(_statement(table.database_sql))
        defaults = defaults_after(text, DATABASE_DEFAULTS)
    # Only the file's name has the database; the text has the table's name.
    name = statement.table or table.table
    new = TableSchema(
        database=table.database,
        table=name,
        table_id=_table_id(table.database, name),
        version=tso,
        columns=(),
        indexes=(),
    )
    schema = schema_after(statement, new, defaults=defaults, timezone=timezone)
    return ExportedSchema(schema=schema.schema, sql=sql, notes=schema.notes)


def _table_id(database: str, table: str) -> int:
    text = f"export\0{database}\0{table}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8]) & MAX_TSO


_SETTINGS = re.compile(
    r"\A(?:\s+|/\*.*?\*/\s*;?|--[^\n]*\n|SET\s[^;]*;)+", re.DOTALL | re.IGNORECASE
)


def _statement(text: str) -> str:
    """Return the statement of a file, without the settings in comments before it."""
    return _SETTINGS.sub("", text).strip().rstrip(";").rstrip()
