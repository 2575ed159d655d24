"""The tables of one moment, by id and by name.

In: schemas of tables in the order of the walk of `registry.catalog`. Out: which table has an id or
a name now. Names are compared without case, as upstream does; returned names are spelled as in the
newest schema.
"""

from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.history import Name, folded


class KnownTables:
    """The tables of one moment."""

    def __init__(self) -> None:
        # By their names without case, and these names by table id.
        self._tables: dict[Name, TableSchema] = {}
        self._names: dict[int, Name] = {}

    @property
    def all(self) -> list[TableSchema]:
        """The schemas of all tables."""
        return list(self._tables.values())

    def find(self, name: Name) -> TableSchema | None:
        """Return the table of a name, or None."""
        return self._tables.get(folded(name))

    def identified(self, table_id: int) -> TableSchema | None:
        """Return the table of an id, or None."""
        name = self._names.get(table_id)
        return None if name is None else self._tables[name]

    def put(self, schema: TableSchema) -> None:
        """Set the schema of its table, which takes its name from any other table."""
        name = folded(schema.name)
        self.take(name)
        earlier_name = self._names.get(schema.table_id)
        if earlier_name is not None:
            self.take(earlier_name)
        self._tables[name] = schema
        self._names[schema.table_id] = name

    def take(self, name: Name) -> TableSchema | None:
        """Remove the table of a name and return it, or None."""
        schema = self._tables.pop(folded(name), None)
        if schema is not None:
            self._names.pop(schema.table_id, None)
        return schema

    def elsewhere(self, name: Name) -> TableSchema | None:
        """Return the only table of another database that has this name."""
        tables = [schema for schema in self.all if schema.table.lower() == name[1].lower()]
        return tables[0] if len(tables) == 1 else None
