"""Small lives of tables, written as statements and rows, for formats with and without schemas."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ticdc_assets.changelog.plan import MirrorPlan
from ticdc_assets.demo.simulator.shapes import shape_of
from ticdc_assets.model.events import Bootstrap, Event, Op
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema, TableSchema
from ticdc_assets.registry.history import Coordinates
from ticdc_assets_tests.events import ddl_event, row_event
from ticdc_assets_tests.reference.fold import FoldedTable, fold

VARCHAR = {"charset": "utf8mb4", "collation": "utf8mb4_bin", "length": 40}
BINARY = {"charset": "binary", "collation": "binary"}


def column(name: str) -> ColumnSchema:
    """Return an INT for a name that begins with i, else a VARCHAR."""
    if name == "id":
        return ColumnSchema(name=name, mysql_type="int", length=11, nullable=False, **BINARY)
    if name.startswith("i"):
        return ColumnSchema(name=name, mysql_type="int", length=11, **BINARY)
    return ColumnSchema(name=name, mysql_type="varchar", **VARCHAR)


def table(name: str, table_id: int, version: int, columns: str = "id v") -> TableSchema:
    """Return the schema of `database.table` with these columns, the key is `id`."""
    database, _, short = name.partition(".")
    return TableSchema(
        database=database,
        table=short,
        table_id=table_id,
        version=version,
        columns=tuple(column(item) for item in columns.split()),
        indexes=(
            IndexSchema(name="primary", unique=True, primary=True, nullable=False, columns=("id",)),
        ),
    )


@dataclass
class Life:
    """Events of a changefeed, in the order of their commit ts.

    Attributes:
        schemas: whether messages carry schemas and ids, as in the Simple protocol.
        partitions: to how many partitions DDL goes, in another order on each.
    """

    schemas: bool
    partitions: int = 1
    events: list[tuple[Coordinates, Event]] = field(default_factory=list)
    ts: int = 1_000

    def _add(self, event: Event, partition: int = 0) -> None:
        place = Coordinates(topic="t", partition=partition, offset=len(self.events), index=0)
        self.events.append((place, event))

    def ddl(
        self,
        sql: str,
        after: TableSchema | str | None = None,
        *,
        before: TableSchema | None = None,
        word: str = "QUERY",
        same_ts: bool = False,
        partition: int = 0,
    ) -> None:
        """Add a DDL; a message without schemas names its table by `after`, a schema or a name."""
        if not same_ts:
            self.ts += 10
        name = (
            after if isinstance(after, str) else f"{after.database}.{after.table}" if after else ""
        )
        database, _, short = name.partition(".")
        sent = after if self.schemas and isinstance(after, TableSchema) else None
        names = {"database": database, "table": short}
        schemas = {"schema": sent, "pre_schema": before if self.schemas else None}
        self._add(ddl_event(self.ts, sql, ddl_type=word, **names, **schemas), partition)

    def bootstrap(self, schema: TableSchema) -> None:
        """Add a BOOTSTRAP, where the format has some."""
        if self.schemas:
            self._add(Bootstrap(build_ts_ms=None, schema=schema))

    def row(self, schema: TableSchema, *, op: Op = Op.INSERT, **values: str | None) -> None:
        """Add a row change: a put, or a DELETE of a key."""
        self.ts += 10
        full = {item.name: values.get(item.name) for item in schema.columns}
        images = {"before" if op is Op.DELETE else "after": full}
        cited = {"table_id": schema.table_id, "schema_version": schema.version}
        told = cited if self.schemas else {"shape": shape_of(schema)}
        names = {"database": schema.database, "table": schema.table}
        self._add(row_event(self.ts, **images, **names, **told))

    def rows(self) -> dict[str, list[Mapping[str, str | None]]]:
        """Return the rows of each table at the end, in the order of their keys."""
        return {
            name: sorted(folded.rows.values(), key=lambda row: int(row["id"] or 0))
            for name, folded in self.tables().items()
        }

    def whole(self) -> dict[str, list[Mapping[str, str | None]]]:
        """Return `rows`, if no table may differ from its source."""
        assert self.caveats() == {}
        return self.rows()

    def tables(self) -> dict[str, FoldedTable]:
        """Return each table at the end, by its name."""
        _, tables = fold(self.events, self.ts + 1, "UTC")
        return {".".join(name): folded for name, folded in tables.items()}

    def plans(self) -> dict[str, MirrorPlan]:
        """Return the plan of each table at the end, by its name."""
        return {name: folded.plan for name, folded in self.tables().items()}

    def caveats(self) -> dict[str, list[str]]:
        """Return why tables may differ from their source, of those that may."""
        return {
            name: [caveat.reason for caveat in plan.caveats]
            for name, plan in self.plans().items()
            if plan.caveats
        }


def of(*pairs: tuple[str, str | None]) -> list[Mapping[str, str | None]]:
    """Return rows of `id` and `v`."""
    return [{"id": key, "v": value} for key, value in pairs]


def placed(events: Iterable[Event]) -> list[tuple[Coordinates, Event]]:
    """Return events with coordinates, in their order."""
    return [
        (Coordinates(topic="t", partition=0, offset=offset, index=0), event)
        for offset, event in enumerate(events)
    ]


def only_table(events: Iterable[Event], cut_ts: int = 1000) -> FoldedTable:
    """Return the one table of some events, at a cut."""
    _, tables = fold(placed(events), cut_ts, "UTC")
    (folded,) = tables.values()
    return folded
