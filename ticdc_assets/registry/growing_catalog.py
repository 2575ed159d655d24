"""Schemas for rows that cite none, while a capture is read from its beginning.

In: DDL and rows in their recorded order. Out: for each row the schema in force at its commit ts, as
far as the DDL up to there show, with what the row itself proves. A table without a CREATE begins
with its first row, so that later DDL of it count.

Input in the order of time advances the catalog; after a late DDL (partitions are read one by one)
everything is walked again at the next row. So the cost is that of the DDL, not of all rows.

The answers are preliminary: a later DDL can change the schema of an earlier row. With all messages
at hand use `catalog.complete`.
"""

from ticdc_assets.model.events import DdlEvent
from ticdc_assets.model.schemas import RowShape, TableSchema
from ticdc_assets.registry.catalog import Catalog, SeenShape
from ticdc_assets.registry.history import Coordinates, SchemaHistory
from ticdc_assets.registry.inference.row_shapes import fits, merged, schema_of_shape

_MOST_READ = 65536


class GrowingCatalog:
    """The tables according to the messages up to here.

    Args:
        timezone: the changefeed's time zone, for defaults of TIMESTAMP columns.
    """

    def __init__(self, timezone: str) -> None:
        self._timezone = timezone
        self._history = SchemaHistory()
        self._first_rows: list[SeenShape] = []
        self._catalog: Catalog | None = Catalog(timezone)
        # How far the catalog is: by DDL, and by first rows of tables.
        self._latest_ddl = self._latest_row = 0
        # How rows of a shape are read, by identity of the schema, which the value keeps alive.
        self._read: dict[tuple[int, RowShape], tuple[TableSchema | None, TableSchema]] = {}

    def add_ddl(self, event: DdlEvent, coordinates: Coordinates) -> None:
        """Add one copy of a DDL."""
        is_copy = self._history.ddl(event) is not None
        self._history.add_ddl(event, coordinates)
        entry = self._history.ddl(event)
        if is_copy or entry is None or self._catalog is None:
            return
        # Renames of one commit ts are understood together.
        if event.commit_ts > self._latest_ddl and event.commit_ts >= self._latest_row:
            self._catalog.apply([entry])
            self._latest_ddl = event.commit_ts
        else:
            self._catalog = None

    def schema_of(
        self, database: str, table: str, *, shape: RowShape, commit_ts: int
    ) -> TableSchema:
        """Return the schema for a row of `shape` at `commit_ts`."""
        if self._catalog is None:
            self._catalog = Catalog(self._timezone)
            self._catalog.walk(self._history, self._first_rows)
            self._read.clear()
            self._latest_ddl = max(ddl.event.commit_ts for ddl in self._history.ddls)
        schema = self._catalog.in_force(database, table, commit_ts)
        if schema is None and commit_ts > self._latest_ddl:
            seen = SeenShape(database=database, table=table, shape=shape, min_ts=commit_ts)
            self._first_rows.append(seen)
            self._catalog.meet([seen])
            self._latest_row = max(commit_ts, self._latest_row)
            schema = self._catalog.in_force(database, table, commit_ts)
        found = self._read.get((id(schema), shape))
        if found is None:
            if len(self._read) >= _MOST_READ:
                self._read.clear()
            found = self._read[id(schema), shape] = (schema, _read_with(schema, shape))
        return found[1]


def _read_with(schema: TableSchema | None, shape: RowShape) -> TableSchema:
    if schema is None:
        return schema_of_shape(shape, database="", table="", table_id=0, version=0)
    return schema if fits(schema, shape) else merged(schema, shape, version=schema.version)
