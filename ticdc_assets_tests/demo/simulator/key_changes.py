"""What ALTER TABLE does to the primary key of a table of the stand-in upstream; no shop does it."""

from dataclasses import dataclass, replace
from datetime import datetime

from ticdc_assets.demo.simulator.alterations import (
    ActionCode,
    AlterAction,
    existing_column,
    replace_column,
)
from ticdc_assets.demo.simulator.columns import names_sql
from ticdc_assets.demo.simulator.stored_table import StoredTable


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPrimaryKey(AlterAction):
    """ADD PRIMARY KEY, not clustered: rows keep their place; the columns become NOT NULL."""

    code = ActionCode.ADD_PRIMARY_KEY
    columns: tuple[str, ...]

    def _change(self, table: StoredTable, timezone: str, at: datetime) -> str:
        if table.primary_key:
            raise ValueError(f"{table.schema.table}: there is a primary key")
        for name in self.columns:
            column = existing_column(table, name)
            if any(row[name] is None for row in table.rows.values()):
                raise ValueError(f"{table.schema.table}: {name!r} holds NULL")
            replace_column(table, name, replace(column, nullable=False))
        table.primary_key, table.clustered = self.columns, False
        clause = f"ADD PRIMARY KEY({names_sql(self.columns)})"
        return f"{clause} /*T![clustered_index] NONCLUSTERED */"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPrimaryKey(AlterAction):
    """DROP PRIMARY KEY, of a key that is not clustered; its columns stay NOT NULL."""

    code = ActionCode.DROP_PRIMARY_KEY

    def _change(self, table: StoredTable, timezone: str, at: datetime) -> str:
        if not table.primary_key or table.clustered:
            raise ValueError(f"{table.schema.table}: no primary key that could be dropped")
        table.primary_key = ()
        return "DROP PRIMARY KEY"
