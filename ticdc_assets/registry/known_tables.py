"""The tables of one moment, by id and by name.

In: schemas of tables in the order of the walk of `registry.catalog`. Out: which table has an id or
a name now. Names are compared without case, as upstream does; returned names are spelled as in the
newest schema.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.history import folded_name

Name: TypeAlias = tuple[str, str]
"""(database, table)."""


def folded(name: Name) -> Name:
    """Return a name without case."""
    return folded_name(*name)


@dataclass
class KnownTables:
    """The tables of one moment.

    Attributes:
        by_name: the schema of each, by its name as written.
        exact: names as written, by names without case.
        names: names as written, by table id.
    """

    by_name: dict[Name, TableSchema] = field(default_factory=dict[Name, TableSchema])
    exact: dict[Name, Name] = field(default_factory=dict[Name, Name])
    names: dict[int, Name] = field(default_factory=dict[int, Name])

    def find(self, name: Name) -> TableSchema | None:
        """Return the table of a name, or None."""
        exact = self.exact.get(folded(name))
        return None if exact is None else self.by_name[exact]

    def identified(self, table_id: int) -> TableSchema | None:
        """Return the table of an id, or None."""
        name = self.names.get(table_id)
        return None if name is None else self.by_name[name]

    def put(self, schema: TableSchema) -> None:
        """Set the schema of its table, which takes its name from any other table."""
        name = (schema.database, schema.table)
        self.take(name)
        moved = self.names.get(schema.table_id)
        if moved is not None:
            self.take(moved)
        self.by_name[name] = schema
        self.exact[folded(name)] = name
        self.names[schema.table_id] = name

    def take(self, name: Name) -> TableSchema | None:
        """Remove the table of a name and return it, or None."""
        exact = self.exact.pop(folded(name), None)
        if exact is None:
            return None
        schema = self.by_name.pop(exact)
        self.names.pop(schema.table_id, None)
        return schema

    def elsewhere(self, name: Name) -> Name | None:
        """Return the only name of another database whose table has this name."""
        found = [other for other in self.by_name if other[1].lower() == name[1].lower()]
        return found[0] if len(found) == 1 else None
