"""Facts of a table from the texts of DDL, carried along to its later schemas.

In: DDL events with the schemas before and after them, oldest first. Out: for each schema the facts
of its table up to there, through renames of the table and other ids. Adding is idempotent: a fact
is stored under the version of its schema.
"""

from typing import Generic, TypeVar

from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.registry.ddl_statement import DdlAction, DdlStatement
from ticdc_assets.registry.history import folded_name

F = TypeVar("F")


class CarriedFacts(Generic[F]):
    """Facts of tables, by the ways in which a schema is looked up.

    Args:
        nothing: the fact of a table that no text mentions.
    """

    def __init__(self, nothing: F) -> None:
        self._nothing = nothing
        self._by_id: dict[tuple[int, int], F] = {}
        self._by_name: dict[tuple[str, str], dict[int, F]] = {}
        self._exported: dict[tuple[str, str], int] = {}

    def remember(self, schema: TableSchema, fact: F, *, exported: bool = False) -> None:
        """Store the fact of a schema.

        Args:
            schema: the schema.
            fact: the fact.
            exported: whether it comes from an export.
        """
        self._by_id[schema.table_id, schema.version] = fact
        name = folded_name(schema.database, schema.table)
        self._by_name.setdefault(name, {})[schema.version] = fact
        if exported:
            self._exported.setdefault(name, schema.version)

    def of(self, schema: TableSchema) -> F:
        """Return the fact of a schema."""
        found = self._by_id.get((schema.table_id, schema.version))
        if found is not None:
            return found
        # A schema whose DDL was not seen has the last fact of the table.
        name = folded_name(schema.database, schema.table)
        versions = self._by_name.get(name, {})
        known = max((version for version in versions if version <= schema.version), default=None)
        if known is None:
            # A later export says what the table was all along, as far as is known.
            known = self._exported.get(name)
        return self._nothing if known is None else versions[known]

    def before(self, statement: DdlStatement, before: TableSchema | None, after: TableSchema) -> F:
        """Return the fact of a table just before a statement.

        A new table begins with the columns of the one that it is created like, or with none.

        Args:
            statement: the statement.
            before: the schema before it, None if none was sent.
            after: the schema after it.
        """
        if before is not None:
            return self.of(before)
        like = statement.like
        if statement.action is DdlAction.CREATE_TABLE:
            return self._nothing
        if statement.action is not DdlAction.CREATE_TABLE_LIKE or like is None:
            return self.of(after)
        versions = self._by_name.get(folded_name(like.database or after.database, like.table), {})
        known = max((version for version in versions if version <= after.version), default=None)
        return self._nothing if known is None else versions[known]
