"""Schemas for rows that cite none, while a capture is read from its beginning.

In: DDL and rows in their recorded order. Out: for each row the schema in force at its commit ts, as
far as the DDL and the rows up to there show.

Input in the order of time advances the catalog: a DDL after all earlier input, a row after all DDL
and after the rows of its table. After late input (partitions are read one by one, rows of one flush
are in no order) everything is walked again at the next row. A row whose columns fit the schema in
force proves nothing new and is not kept. So the cost is that of the DDL and of the rows that
contradict them, not of all rows.

The answers depend on the input and on its order alone. They are preliminary: a later DDL can change
the schema of an earlier row. With all messages at hand use `catalog.complete`.
"""

from ticdc_assets.model.events import DdlEvent
from ticdc_assets.model.schemas import RowShape, TableSchema
from ticdc_assets.registry.catalog import Catalog, SeenShape
from ticdc_assets.registry.history import Coordinates, SchemaHistory
from ticdc_assets.registry.known_tables import Name, folded
from ticdc_assets.registry.row_shapes import fits

_MOST_FITTING = 65536


class GrowingCatalog:
    """The tables according to the messages up to here.

    Args:
        timezone: the changefeed's time zone, for defaults of TIMESTAMP columns.
    """

    def __init__(self, timezone: str) -> None:
        self._timezone = timezone
        self._history = SchemaHistory()
        # Shapes that did not fit when they came, in a dict for its order.
        self._shapes: dict[SeenShape, None] = {}
        self._catalog: Catalog | None = Catalog(timezone)
        # How far the catalog is: by DDL, by rows of a table (in lower case), by rows of any table.
        self._latest_ddl = -1
        self._latest_rows: dict[Name, int] = {}
        self._latest_row = -1
        # By identity of the schema, which the value keeps alive.
        self._fitting: dict[tuple[int, RowShape], tuple[TableSchema, bool]] = {}

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
    ) -> TableSchema | None:
        """Return the schema for a row of `shape` at `commit_ts`; None if nothing shows it."""
        schema = self._current().in_force(database, table, commit_ts)
        if schema is not None and self._fits(schema, shape):
            return schema
        seen = SeenShape(database=database, table=table, shape=shape, min_ts=commit_ts)
        if seen not in self._shapes:
            self._shapes[seen] = None
            self._meet(seen)
            schema = self._current().in_force(database, table, commit_ts)
        # Rows of one commit ts may contradict each other, so that not all fit.
        return schema

    def _meet(self, seen: SeenShape) -> None:
        if self._catalog is None:
            return
        latest_rows = self._latest_rows.get(folded(seen.name), -1)
        if seen.min_ts > self._latest_ddl and seen.min_ts >= latest_rows:
            self._catalog.meet([seen])
            self._remember(seen)
        else:
            self._catalog = None

    def _remember(self, seen: SeenShape) -> None:
        name = folded(seen.name)
        self._latest_rows[name] = max(seen.min_ts, self._latest_rows.get(name, -1))
        self._latest_row = max(seen.min_ts, self._latest_row)

    def _current(self) -> Catalog:
        if self._catalog is None:
            self._catalog = Catalog(self._timezone)
            self._catalog.walk(self._history, self._shapes)
            self._fitting.clear()
            self._latest_ddl = max((ddl.event.commit_ts for ddl in self._history.ddls), default=-1)
            for seen in self._shapes:
                self._remember(seen)
        return self._catalog

    def _fits(self, schema: TableSchema, shape: RowShape) -> bool:
        known = (id(schema), shape)
        found = self._fitting.get(known)
        if found is None:
            if len(self._fitting) >= _MOST_FITTING:
                self._fitting.clear()
            found = self._fitting[known] = (schema, fits(schema, shape))
        return found[1]
