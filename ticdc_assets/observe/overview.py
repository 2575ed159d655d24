"""The content of a page about a changefeed: tables, partitions, DDL, schemas, and time series.

In: the small control tables of the pipeline. Out: one frozen `FeedOverview`, without a Spark
session and without writing. Nothing is read from the source, so the backlog is that of the newest
landing, and TiCDC's own lag is unknown here.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.changelog.progress import PartitionProgress, TopicState
from ticdc_assets.config import Changefeed
from ticdc_assets.delta.control import read_table
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.positions import PartitionOffsets
from ticdc_assets.model.schemas import schema_from_text
from ticdc_assets.observe.series import (
    CutHistory,
    LandingPoint,
    QuarantineFigures,
    read_cut_history,
    read_landings,
    read_quarantine_figures,
)
from ticdc_assets.observe.status import Status
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.observe.table_status import TableState, TableStatus
from ticdc_assets.registry.ddl.reader import parse_ddl_script
from ticdc_assets.registry.differences import differences
from ticdc_assets.storage.lake_paths import LakePaths

DDL_SHOWN = 2000
"""How many of the newest DDL are read in full."""

SCHEMA_TABLES_SHOWN = 100
"""How many tables are shown with their versions: those whose schema changed last."""

VERSIONS_SHOWN = 20
"""How many of the newest versions of each table are shown."""

_LISTED_COLUMNS = ["database", "table", "schema_version", "valid_from"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFigures:
    """One partition of the source.

    Attributes:
        offsets: its offsets in the newest landing; None if only the change log knows it.
        state: its effect on the global watermark, in a word or two; empty if none.
    """

    topic: str
    partition: int
    offsets: PartitionOffsets | None
    progress: PartitionProgress
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlFigures:
    """One DDL, with database and table after it; empty if the message names none.

    `not_understood` is the first piece of the text that was not understood; None if all was.
    """

    commit_ts: int
    action: str
    database: str
    table: str
    sql: str
    not_understood: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFigures:
    """One schema version of a table, its number of columns, and what differs from the one before.

    It has none if it is the first that is shown; `is_first` says whether none before it is known.
    """

    version: int
    valid_from: int
    source: str
    columns: int
    changes: tuple[str, ...]
    is_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFigures:
    """The newest schema versions of one table, newest first, and how many it has in total."""

    database: str
    table: str
    total: int
    versions: tuple[VersionFigures, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOverview:
    """A changefeed at a moment.

    Attributes:
        since: the start of its series.
        tables: the failed, incomplete ones and those with caveats first, then the most changed.
        ddls: the newest DDL, newest first.
        ddl_total: how many DDL there are in all.
        ddl_unclear: how many of all were not understood.
        schemas: tables whose schema changed last, newest first.
        schema_tables: how many tables have schemas in all.
    """

    changefeed: Changefeed
    status: Status
    since: datetime
    cuts: CutHistory
    landings: tuple[LandingPoint, ...]
    quarantine: QuarantineFigures
    tables: tuple[TableStatus, ...]
    partitions: tuple[PartitionFigures, ...]
    ddls: tuple[DdlFigures, ...]
    ddl_total: int
    ddl_unclear: int
    schemas: tuple[SchemaFigures, ...]
    schema_tables: int

    @property
    def now(self) -> datetime:
        """The moment."""
        return self.status.at

    def changes(self, table: TableStatus) -> int:
        """Return how many keys of a table the counted cuts changed."""
        return self.cuts.table_changes.get((table.database, table.table), 0)


def read_overview(lake: Lake, *, days: float = 7, now: datetime | None = None) -> FeedOverview:
    """Return an overview of a changefeed now, with series of so many days; it may have no table."""
    now = now or datetime.now(UTC)
    since = now - timedelta(days=days)
    paths, changefeed = lake.paths, lake.changefeed
    status = read_status(lake, now)
    cuts = read_cut_history(paths, since, newest=status.cut)
    ddls, ddl_total, ddl_unclear = newest_ddls(paths)
    schemas, schema_tables = read_schemas(paths)
    states = list(TableState)

    def worst(item: TableStatus) -> tuple[object, ...]:
        name = (item.database, item.table)
        changes = cuts.table_changes.get(name, 0)
        return (-states.index(item.state), -changes, -(item.last_change_ts or 0), *name)

    return FeedOverview(
        changefeed=changefeed,
        status=status,
        since=since,
        cuts=cuts,
        landings=read_landings(paths, since),
        quarantine=read_quarantine_figures(paths, since, tables=changefeed.tables),
        tables=tuple(sorted(status.tables, key=worst)),
        partitions=_partitions(status),
        ddls=ddls,
        ddl_total=ddl_total,
        ddl_unclear=ddl_unclear,
        schemas=schemas,
        schema_tables=schema_tables,
    )


def _partitions(status: Status) -> tuple[PartitionFigures, ...]:
    offsets = {(item.topic, item.partition): item for item in status.partitions}
    states: dict[tuple[str, int], str] = {}
    for topic in status.watermark.topics:
        if topic.state in (TopicState.RETIRED, TopicState.EMPTY):
            states |= {place: str(topic.state) for place in offsets if place[0] == topic.topic}
    states |= dict.fromkeys(status.watermark.waiting, "waits for its first watermark")
    if status.watermark.slowest is not None:
        states[status.watermark.slowest] = "slowest"
    return tuple(
        PartitionFigures(
            topic=place[0],
            partition=place[1],
            offsets=offsets.get(place),
            progress=status.progress.get(place, PartitionProgress()),
            state=states.get(place, ""),
        )
        for place in sorted(set(offsets) | set(status.progress))
    )


def newest_ddls(paths: LakePaths) -> tuple[tuple[DdlFigures, ...], int, int]:
    """Return the newest DDL, the number of all DDL, and how many were not understood."""
    names = ["commit_ts", "action", "database", "table", "sql", "not_understood", "offset"]
    table = read_table(paths.ddl_history, columns=names)
    if table is None:
        return (), 0, 0
    unclear = table.num_rows - table["not_understood"].null_count
    newest = table.sort_by([("commit_ts", "descending"), ("offset", "descending")])
    rows = newest.slice(0, DDL_SHOWN).drop_columns(["offset"]).to_pylist()
    return (
        tuple(
            DdlFigures(**{**row, "database": row["database"] or "", "table": row["table"] or ""})
            for row in rows
        ),
        table.num_rows,
        unclear,
    )


def read_schemas(
    paths: LakePaths,
    tables: Collection[tuple[str, str]] | None = None,
    *,
    most: int = VERSIONS_SHOWN,
) -> tuple[tuple[SchemaFigures, ...], int]:
    """Return tables with their newest versions, at most `most` of each.

    They are the named ones, or those whose schema changed last. Also return how many tables there
    are of these. The texts of other versions are not read.
    """
    listed = read_table(paths.schema_registry, columns=_LISTED_COLUMNS)
    if listed is None:
        return (), 0
    by_table: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for database, table, version, valid_from in zip(
        *(listed[name].to_pylist() for name in _LISTED_COLUMNS), strict=True
    ):
        if tables is None or (database, table) in tables:
            by_table.setdefault((database, table), []).append((valid_from, version))
    shown = sorted(by_table, key=lambda name: (-max(by_table[name])[0], *name))
    if tables is None:
        shown = shown[:SCHEMA_TABLES_SHOWN]
    # The version before shows what differs.
    needed = {name: set(sorted(by_table[name])[-most - 1 :]) for name in shown}
    moments = {valid_from for versions in needed.values() for valid_from, _ in versions}
    registry = read_table(
        paths.schema_registry,
        ds.field("database").isin(pa.array({name[0] for name in needed}, pa.string()))
        & ds.field("table").isin(pa.array({name[1] for name in needed}, pa.string()))
        & ds.field("valid_from").isin(pa.array(moments, pa.int64())),
        columns=[*_LISTED_COLUMNS, "source", "sql", "schema"],
    )
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {name: [] for name in needed}
    for row in [] if registry is None else registry.to_pylist():
        name = (row["database"], row["table"])
        if (row["valid_from"], row["schema_version"]) in needed.get(name, ()):
            rows[name].append(row)
    figures = (
        SchemaFigures(
            database=name[0],
            table=name[1],
            total=len(by_table[name]),
            versions=_versions(versions, min(most, len(by_table[name]))),
        )
        for name, versions in rows.items()
    )
    return tuple(figures), len(by_table)


def _versions(rows: list[dict[str, Any]], count: int) -> tuple[VersionFigures, ...]:
    rows.sort(key=lambda row: (row["valid_from"], row["schema_version"]))
    schemas = [schema_from_text(row["schema"]) for row in rows]
    figures: list[VersionFigures] = []
    for row, schema, before in zip(rows, schemas, [None, *schemas[:-1]], strict=True):
        changes: tuple[str, ...] = ()
        if before is not None:
            statements = parse_ddl_script(row["sql"]) if row["sql"] else ()
            changes = differences(before, schema, statements=statements, shows_defaults=True)
        figures.append(
            VersionFigures(
                version=row["schema_version"],
                valid_from=row["valid_from"],
                source=row["source"],
                columns=len(schema.columns),
                changes=changes,
                is_first=before is None,
            )
        )
    return tuple(figures[::-1][:count])
