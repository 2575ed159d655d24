"""What a page about a changefeed shows of it: tables, partitions, DDL, schemas, and its series.

In: the small tables that steer the pipeline. Out: one frozen `FeedOverview`, made without a Spark
session and without writing anything; read again it is what the tables say then.

How far a table is behind is told by what it is complete up to: the newest cut's TSO, or just below
its first held row change. Row changes in quarantine do not move it; they are counted beside.

What is not handled: nothing is read from the source, so the backlog is what the newest landing
left, and how far TiCDC itself is behind is not known here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from orjson import loads

from ticdc_assets.changelog.progress import GlobalWatermark, PartitionProgress, TopicState
from ticdc_assets.config import Changefeed
from ticdc_assets.lake.accepted_gaps import AcceptedGap, read_accepted
from ticdc_assets.lake.control import read_table
from ticdc_assets.lake.cuts import FAILED, Cut, FailedMirror
from ticdc_assets.lake.decoding import ChangeGroups, read_groups
from ticdc_assets.lake.paths import LakePaths
from ticdc_assets.lake.positions import PartitionOffsets, known_partitions
from ticdc_assets.lake.series import (
    CutHistory,
    LandingPoint,
    QuarantineFigures,
    read_cut_history,
    read_landings,
    read_quarantine_figures,
)
from ticdc_assets.lake.watermark import read_watermark
from ticdc_assets.registry.ddl import DdlStatement, parse_ddl_script
from ticdc_assets.registry.differences import Difference, differences
from ticdc_assets.schemas import TableSchema, schema_from_json
from ticdc_assets.tso import lag_ms, lead_ms

DDL_SHOWN = 2000
"""So many of the newest DDL are read in full."""

SCHEMA_TABLES_SHOWN = 100
"""So many tables, those whose schema changed last, are shown with their versions."""

VERSIONS_SHOWN = 20
"""So many of the newest versions of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFigures:
    """One upstream table.

    Attributes:
        database: database.
        table: table.
        rows: rows of its mirror, None if it has none yet.
        changes: keys that the counted cuts changed.
        last_change_ts: highest commit ts of a row change that landed, None if none did.
        complete_ts: every row change at or below it is in the mirror, but for quarantined ones;
            None without a mirror.
        held: row changes that wait for their schema.
        quarantined: row changes that did not fit.
        marks: reasons why the mirror may differ.
        mode: how the newest cut made it; empty without a mirror.
        history_rows: versions of rows in its history, None if none is kept.
        key: columns of the handle key.
        failed: why the newest cut could not make the mirror; None if it could.
    """

    database: str
    table: str
    rows: int | None
    changes: int
    last_change_ts: int | None
    complete_ts: int | None
    held: int
    quarantined: int
    marks: tuple[str, ...]
    mode: str
    history_rows: int | None
    key: tuple[str, ...]
    failed: FailedMirror | None = None

    @property
    def incomplete(self) -> bool:
        """Whether row changes at or below the cut are missing."""
        return self.held > 0 or self.quarantined > 0 or self.rows is None or self.failed is not None

    def lag_seconds(self, now: datetime) -> float | None:
        """Return how far the table is behind `now`, None without a mirror."""
        if self.complete_ts is None:
            return None
        return seconds_since(self.complete_ts, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFigures:
    """One partition of the source.

    Attributes:
        topic: topic.
        partition: partition.
        offsets: what the newest landing saw of it, None if only the change log knows it.
        progress: its watermark.
        state: what it means for the global watermark, in a word or two; empty if nothing.
    """

    topic: str
    partition: int
    offsets: PartitionOffsets | None
    progress: PartitionProgress
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlFigures:
    """One DDL.

    Attributes:
        commit_ts: commit ts.
        action: what the text says it does.
        database: database after it, empty where the message names none.
        table: table after it, empty where the message names none.
        sql: its text.
        not_understood: first piece of the text that was not understood, None if all was.
    """

    commit_ts: int
    action: str
    database: str
    table: str
    sql: str
    not_understood: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFigures:
    """One schema version of a table.

    Attributes:
        version: the schema version.
        valid_from: TSO from which it holds.
        source: what it was learnt from.
        columns: number of columns.
        sql: text of the DDL, None if it did not come by one.
        changes: what differs from the version before; () for the first that is shown.
        is_first: whether no version before it is known.
    """

    version: int
    valid_from: int
    source: str
    columns: int
    sql: str | None
    changes: tuple[Difference, ...]
    is_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFigures:
    """The schema versions of one table, newest first.

    Attributes:
        database: database.
        table: table.
        total: number of its versions, also of those that are not in `versions`.
        versions: the newest.
    """

    database: str
    table: str
    total: int
    versions: tuple[VersionFigures, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOverview:
    """A changefeed at a moment.

    Attributes:
        changefeed: its configuration.
        paths: its tables.
        now: the moment.
        since: from when on its series are.
        cuts: its cuts.
        landings: its landings.
        quarantine: its quarantine.
        tables: its tables: those behind or incomplete first, then those that changed most.
        partitions: its partitions.
        watermark: its global watermark.
        ddls: the newest DDL, newest first.
        ddl_total: how many DDL there are in all.
        ddl_unclear: how many of all were not understood.
        schemas: tables whose schema changed last, newest first.
        schema_tables: how many tables have schemas in all.
        conflicts: claims that contradict a registered schema.
        accepted_gaps: gaps of landing that were accepted.
        es_only: whether changes have no commit ts.
    """

    changefeed: Changefeed
    paths: LakePaths
    now: datetime
    since: datetime
    cuts: CutHistory
    landings: tuple[LandingPoint, ...]
    quarantine: QuarantineFigures
    tables: tuple[TableFigures, ...]
    partitions: tuple[PartitionFigures, ...]
    watermark: GlobalWatermark
    ddls: tuple[DdlFigures, ...]
    ddl_total: int
    ddl_unclear: int
    schemas: tuple[SchemaFigures, ...]
    schema_tables: int
    conflicts: tuple[Mapping[str, Any], ...]
    accepted_gaps: tuple[AcceptedGap, ...]
    es_only: bool

    @property
    def cut(self) -> Cut | None:
        """The newest cut."""
        return self.cuts.newest

    @property
    def held(self) -> int:
        """Row changes that wait for their schema at the newest cut."""
        return 0 if self.cut is None else sum(item.rows for item in self.cut.held)

    @property
    def backlog(self) -> int:
        """Offsets that the newest landing left in the source."""
        return sum(item.offsets.backlog for item in self.partitions if item.offsets is not None)

    @property
    def lag_seconds(self) -> float | None:
        """Now less the physical time of the newest cut's TSO, None before the first."""
        if self.cut is None:
            return None
        return seconds_since(self.cut.tso, self.now)

    @property
    def ahead_seconds(self) -> float:
        """By how much the newest cut is ahead of this machine's clock, 0 if it is not."""
        if self.cut is None:
            return 0.0
        return round(lead_ms(self.cut.tso, self.now.timestamp() * 1000) / 1000, 3)


def seconds_since(tso: int, now: datetime) -> float:
    """Return `now` less the physical time of `tso`, in seconds; 0 if it is ahead of `now`."""
    return round(lag_ms(tso, now.timestamp() * 1000) / 1000, 3)


def read_overview(
    changefeed: Changefeed, paths: LakePaths, *, days: float = 7, now: datetime | None = None
) -> FeedOverview:
    """Return what is known of a changefeed now.

    Args:
        changefeed: its configuration.
        paths: its tables; none of them need exist.
        days: how far back its series go.
        now: the moment; the time of this machine if None.
    """
    now = now or datetime.now(UTC)
    since = now - timedelta(days=days)
    cuts = read_cut_history(paths, since)
    groups = read_groups(paths)
    offsets = {(item.topic, item.partition): item for item in known_partitions(paths)}
    progress = groups.progress()
    watermark = read_watermark(paths, groups=groups, cut=cuts.newest)
    ddls, ddl_total, ddl_unclear = newest_ddls(paths)
    schemas, schema_tables = newest_schemas(paths)
    return FeedOverview(
        changefeed=changefeed,
        paths=paths,
        now=now,
        since=since,
        cuts=cuts,
        landings=read_landings(paths, since),
        quarantine=read_quarantine_figures(paths, since),
        tables=_tables(cuts, groups, now, changefeed.lag_warn_seconds),
        partitions=_partitions(offsets, progress, watermark),
        watermark=watermark,
        ddls=ddls,
        ddl_total=ddl_total,
        ddl_unclear=ddl_unclear,
        schemas=schemas,
        schema_tables=schema_tables,
        conflicts=_conflicts(paths),
        accepted_gaps=read_accepted(paths),
        es_only=groups.es_only,
    )


# Tables -----------------------------------------------------------------------------------------


def _tables(
    cuts: CutHistory, groups: ChangeGroups, now: datetime, limit: float
) -> tuple[TableFigures, ...]:
    cut = cuts.newest
    if cut is None:
        return ()
    last: dict[tuple[str, str], int] = {}
    for row in groups.rows:
        if row["kind"] == "row" and row["max_ts"] is not None:
            name = (row["database"], row["table"])
            last[name] = max(last.get(name, 0), row["max_ts"])
    waiting: dict[str, int] = {}
    homeless: dict[tuple[str, str], int] = {}
    for held in cut.held:
        if held.mirror_id is None:
            name = (held.database, held.table)
            homeless[name] = homeless.get(name, 0) + held.rows
        else:
            waiting[held.mirror_id] = min(waiting.get(held.mirror_id, held.min_ts), held.min_ts)
    failed = {item.mirror_id: item for item in cut.failed}
    for item in cut.failed:
        # The changes since are missing.
        if item.tso is not None:
            waiting[item.mirror_id] = min(waiting.get(item.mirror_id, item.tso + 1), item.tso + 1)
    figures = [
        TableFigures(
            database=mirror.database,
            table=mirror.table,
            rows=mirror.rows,
            changes=cuts.table_changes.get((mirror.database, mirror.table), 0),
            last_change_ts=last.get((mirror.database, mirror.table)),
            complete_ts=min(cut.tso, waiting.get(mirror.mirror_id, cut.tso + 1) - 1),
            held=mirror.held,
            quarantined=mirror.quarantined,
            marks=tuple(mirror.marks),
            mode=mirror.mode,
            history_rows=mirror.history_rows if mirror.history_version is not None else None,
            key=mirror.table_schema.handle_key,
            failed=failed.get(mirror.mirror_id),
        )
        for mirror in cut.mirrors
    ]
    with_rows = {mirror.mirror_id for mirror in cut.mirrors}
    figures += [
        TableFigures(
            database=item.database,
            table=item.table,
            rows=None,
            changes=0,
            last_change_ts=last.get((item.database, item.table)),
            complete_ts=None,
            held=sum(held.rows for held in cut.held if held.mirror_id == item.mirror_id),
            quarantined=0,
            marks=(),
            mode=FAILED,
            history_rows=None,
            key=(),
            failed=item,
        )
        for item in cut.failed
        if item.mirror_id not in with_rows
    ]
    figures += [
        TableFigures(
            database=database,
            table=table,
            rows=None,
            changes=0,
            last_change_ts=last.get((database, table)),
            complete_ts=None,
            held=rows,
            quarantined=0,
            marks=(),
            mode="",
            history_rows=None,
            key=(),
        )
        for (database, table), rows in homeless.items()
    ]

    def worst(item: TableFigures) -> tuple[object, ...]:
        lag = item.lag_seconds(now)
        behind = lag is None or lag >= limit
        return (
            not item.incomplete,
            not behind,
            not item.marks,
            -item.changes,
            -(item.last_change_ts or 0),
            item.database,
            item.table,
        )

    return tuple(sorted(figures, key=worst))


# Partitions -------------------------------------------------------------------------------------


def _partitions(
    offsets: Mapping[tuple[str, int], PartitionOffsets],
    progress: Mapping[tuple[str, int], PartitionProgress],
    watermark: GlobalWatermark,
) -> tuple[PartitionFigures, ...]:
    states: dict[tuple[str, int], str] = {}
    for topic in watermark.topics:
        if topic.state in (TopicState.RETIRED, TopicState.EMPTY):
            states |= {place: str(topic.state) for place in offsets if place[0] == topic.topic}
    states |= dict.fromkeys(watermark.waiting, "waits for its first watermark")
    if watermark.slowest is not None:
        states[watermark.slowest] = "slowest"
    return tuple(
        PartitionFigures(
            topic=place[0],
            partition=place[1],
            offsets=offsets.get(place),
            progress=progress.get(place, PartitionProgress()),
            state=states.get(place, ""),
        )
        for place in sorted(set(offsets) | set(progress))
    )


# DDL and schemas --------------------------------------------------------------------------------


def newest_ddls(paths: LakePaths) -> tuple[tuple[DdlFigures, ...], int, int]:
    """Return the newest DDL, how many there are in all, and how many were not understood."""
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


def newest_schemas(paths: LakePaths) -> tuple[tuple[SchemaFigures, ...], int]:
    """Return the tables whose schema changed last, and how many tables have schemas."""
    names = ["database", "table", "schema_version", "valid_from"]
    listed = read_table(paths.schema_registry, columns=names)
    if listed is None or not listed.num_rows:
        return (), 0
    newest = (
        listed.group_by(["database", "table"])
        .aggregate([("valid_from", "max"), ("valid_from", "count")])
        .sort_by(
            [
                ("valid_from_max", "descending"),
                ("database", "ascending"),
                ("table", "ascending"),
            ]
        )
    )
    # What changed lately is worth a look; what has one version says nothing.
    shown = newest.slice(0, SCHEMA_TABLES_SHOWN).to_pylist()
    wanted = {(row["database"], row["table"]): row["valid_from_count"] for row in shown}
    versions: dict[tuple[str, str], list[dict[str, Any]]] = {}
    found = read_table(
        paths.schema_registry,
        ds.field("database").isin(pa.array({name[0] for name in wanted}))
        & ds.field("table").isin(pa.array({name[1] for name in wanted})),
        columns=[*names, "source", "sql", "schema"],
    )
    for row in [] if found is None else found.to_pylist():
        name = (row["database"], row["table"])
        if name in wanted:
            versions.setdefault(name, []).append(row)
    return (
        tuple(
            SchemaFigures(
                database=name[0],
                table=name[1],
                total=total,
                versions=_versions(versions.get(name, [])),
            )
            for name, total in wanted.items()
        ),
        newest.num_rows,
    )


def _versions(rows: list[dict[str, Any]]) -> tuple[VersionFigures, ...]:
    rows.sort(key=lambda row: (row["valid_from"], row["schema_version"]))
    kept = rows[-VERSIONS_SHOWN - 1 :]
    schemas = [_schema_of(row) for row in kept]
    found: list[VersionFigures] = []
    for number, (row, schema) in enumerate(zip(kept, schemas, strict=True)):
        before = schemas[number - 1] if number else None
        found.append(
            VersionFigures(
                version=row["schema_version"],
                valid_from=row["valid_from"],
                source=row["source"],
                columns=len(schema.columns),
                sql=row["sql"],
                changes=()
                if before is None
                else differences(before, schema, statements=_statements(row["sql"])),
                is_first=before is None,
            )
        )
    return tuple(found[::-1][:VERSIONS_SHOWN])


def _schema_of(row: Mapping[str, Any]) -> TableSchema:
    return schema_from_json(loads(row["schema"]), "$")


def _statements(sql: str | None) -> Iterable[DdlStatement]:
    return () if sql is None else parse_ddl_script(sql)


def _conflicts(paths: LakePaths) -> tuple[Mapping[str, Any], ...]:
    table = read_table(paths.schema_conflicts, columns=list(_CONFLICT))
    if table is None:
        return ()
    order = [("schema_version", "descending"), ("database", "ascending"), ("table", "ascending")]
    return tuple(table.sort_by(order).to_pylist())


_CONFLICT = (
    "database",
    "table",
    "schema_version",
    "registered_source",
    "claimed_source",
    "topic",
    "partition",
    "offset",
    "index",
)
