"""A table of the stand-in upstream: its schema as TiCDC sends it, its key, its rows.

In: columns, key and indexes as CREATE TABLE says them. Out: the `TableSchema` with the indexes in
TiCDC's form, complete rows with their defaults, and the key of a row.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from ticdc_assets.demo.simulator.columns import default_value
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema, TableSchema

TableName: TypeAlias = tuple[str, str]
"""Database and table."""

Row: TypeAlias = Mapping[str, str | None]
"""One row: column name to canonical text."""

Key: TypeAlias = tuple[str, ...]
"""The values of a row's handle key; for a table without one the hidden row id."""

ROW_ID: Final = "_tidb_rowid"


Divided: TypeAlias = Any
"""How the rows of a table are divided among physical ones; only tests have such tables."""


@dataclass(slots=True)
class StoredTable:
    """A table as it is now; after a DDL a new object takes its place.

    Attributes:
        schema: the schema as TiCDC sends it, its columns in the order in which they were made.
        order: the names of the columns, in the order of the table.
    """

    schema: TableSchema
    order: tuple[str, ...]
    primary_key: tuple[str, ...]
    clustered: bool
    secondary: tuple[IndexSchema, ...]
    rows: dict[Key, Row]
    next_row_id: int = 1
    partitioning: Divided | None = None

    @property
    def name(self) -> TableName:
        """Its database and its own name."""
        return self.schema.database, self.schema.table

    @property
    def columns(self) -> tuple[ColumnSchema, ...]:
        """The columns in the order of the table, as SHOW CREATE TABLE lists them."""
        return in_table_order(self.schema, self.order).columns

    def physical_id(self, row: Row) -> int:
        """Return the id of the physical table of a row: its partition's, or the table's own.

        Raises:
            ValueError: no partition takes the row.
        """
        return self.partitioning.physical_id(row) if self.partitioning else self.schema.table_id


def index(name: str, *columns: str, unique: bool = False) -> IndexSchema:
    """Return an index for `Upstream.create_table`."""
    return IndexSchema(name=name, unique=unique, primary=False, nullable=False, columns=columns)


def complete_row(schema: TableSchema, values: Row, *, timezone: str) -> Row:
    """Return a row with the default in each column that `values` leaves out.

    Raises:
        ValueError: a column is unknown, or NULL where it may not be.
    """
    name = (schema.database, schema.table)
    row = {
        column.name: values[column.name]
        if column.name in values
        else default_value(column, timezone)
        for column in schema.columns
    }
    unknown = values.keys() - row.keys()
    if unknown:
        raise ValueError(f"{name}: unknown columns {sorted(unknown)}")
    for column in schema.columns:
        if row[column.name] is None and not column.nullable:
            raise ValueError(f"{name}: {column.name!r} may not be NULL")
    return row


def in_table_order(schema: TableSchema, order: Iterable[str]) -> TableSchema:
    """Return a schema with its columns in the order of the table."""
    columns = {column.name: column for column in schema.columns}
    return replace(schema, columns=tuple(columns[name] for name in order))


def key_of(schema: TableSchema, row: Row) -> Key | None:
    """Return the values of the handle key, None for a table without one."""
    key = tuple(row[name] or "" for name in schema.handle_key)
    return key or None


def rekeyed(table: StoredTable) -> dict[Key, Row]:
    """Return the rows in the order of the columns, by the keys that the schema gives them.

    Raises:
        ValueError: two rows have one key.
    """
    rows: dict[Key, Row] = {}
    for key, row in table.rows.items():
        ordered = {column.name: row[column.name] for column in table.schema.columns}
        rows[key_of(table.schema, ordered) or key] = ordered
    if len(rows) < len(table.rows):
        raise ValueError(f"{table.name}: two rows of one key")
    return rows


def with_indexes(table: StoredTable) -> TableSchema:
    """Return the schema with its indexes as TiCDC sends them."""
    columns = {column.name: column for column in table.schema.columns}
    secondary = tuple(
        replace(index, nullable=any(columns[name].nullable for name in index.columns))
        for index in table.secondary
    )
    is_row_id = (
        table.clustered
        and len(table.primary_key) == 1
        and columns[table.primary_key[0]].mysql_type.endswith("int")
    )
    if table.primary_key and not is_row_id:
        return replace(table.schema, indexes=(_primary("PRIMARY", table.primary_key), *secondary))
    # TiDB keeps no index for these keys, and TiCDC adds one.
    key = table.primary_key or min(
        (index.columns for index in secondary if index.unique and not index.nullable),
        key=len,
        default=(),
    )
    added = (_primary("primary", key),) if key else ()
    return replace(table.schema, indexes=(*secondary, *added))


def _primary(name: str, columns: tuple[str, ...]) -> IndexSchema:
    return IndexSchema(name=name, unique=True, primary=True, nullable=False, columns=columns)
