"""Seeding: give mirrors the rows of an export at its TSO.

In: the folder of an export (`exports.folder`), and the wanted tables. Out: their rows in
`snapshot_rows`, verbatim, and in the change log; text that is not a row in `quarantine`, with file
and line. The next apply makes the mirrors from those rows and the changes above the TSO.

Why running it again is safe: a table whose files equal those of its newest seed at that TSO is not
seeded again, nor is one that a killed run landed: it is first decoded, like any landed batch.

A table without a schema in the export and in the schema registry is not seeded, and this is
reported; the others are seeded. Tables that the configuration leaves out are left out here too.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.dataset as ds

from ticdc_assets.base.errors import ConfigError, InputError, NotFoundError
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.changelog.plan import TableName
from ticdc_assets.config import Changefeed
from ticdc_assets.delta.appending import BY_LANDING_DAY, append_files
from ticdc_assets.delta.control import dataset_of
from ticdc_assets.delta.damage import reading
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.opening import open_table
from ticdc_assets.log.ahead import is_ahead
from ticdc_assets.log.change_statistics import read_statistics
from ticdc_assets.log.decoding import decode_new
from ticdc_assets.log.landing_files import RAW_SCHEMA
from ticdc_assets.log.quarantine import read_quarantine, unread_exports
from ticdc_assets.log.seed_landing import land_seed
from ticdc_assets.log.seeds import Seed, landed_seed, read_seeds, write_seeds
from ticdc_assets.mirrors.caveats import lacking_columns
from ticdc_assets.mirrors.truncation_points import read_truncation_point
from ticdc_assets.mirrors.validity import Knowledge
from ticdc_assets.model.tso import time_with_tso
from ticdc_assets.model.values.zones import changefeed_zone
from ticdc_assets.observe.wording import listed
from ticdc_assets.registry.history import SchemaHistory
from ticdc_assets.source.exports.dialect import CsvDialect
from ticdc_assets.source.exports.folder import UNREADABLE_FILE, Export, ExportedTable, read_export
from ticdc_assets.source.exports.tables import ExportedSchema, exported_schema
from ticdc_assets.storage.lake_paths import LakePaths


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededRows:
    """One seeded table.

    Attributes:
        database: its database.
        table: its name.
        seed: number of the seed.
        rows: rows of the export that are in the change log.
        quarantined: how many rows of its files are in quarantine.
        is_new: whether this run seeded it; otherwise its newest seed has the same files.
        fault: why the first row in quarantine could not be read; None without one.
        unknown: columns without a value in some of its rows.
    """

    database: str
    table: str
    seed: int
    rows: int
    quarantined: int
    is_new: bool
    fault: str | None = None
    unknown: tuple[str, ...] = ()

    @property
    def has_none(self) -> bool:
        """Whether its files have rows, but none could be read."""
        return self.quarantined > 0 and self.rows == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeding:
    """The result of one seeding.

    Attributes:
        tso: TSO of the export.
        tables: the tables, by database and name.
        refused: the reasons why others were not seeded, by (database, table).
        excluded: tables that the configuration leaves out.
        skipped: other contents of the export, by kind.
        unterminated: CSV files that this run landed, and whose last row has no line terminator. If
            one was cut there, the last value of that row is too short.
    """

    tso: int
    tables: tuple[SeededRows, ...]
    refused: Mapping[TableName, str]
    excluded: int
    skipped: Mapping[str, int]
    unterminated: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows that this run seeded."""
        return sum(item.rows for item in self.tables if item.is_new)


def seed(
    lake: Lake,
    folder: str,
    *,
    tables: Collection[TableName] = (),
    tso: int | None = None,
    dialect: CsvDialect | None = None,
    timezone: str | None = None,
) -> Seeding:
    """Seed tables from an export. The caller holds the writer's lock.

    Args:
        lake: the changefeed's lake.
        folder: the folder of the export, or its URI.
        tables: the wanted tables; all if none is named.
        tso: the TSO, if the export does not have it.
        dialect: the dialect of its CSV files; Dumpling's default if None.
        timezone: zone of the session that exported it; the changefeed's if None.

    Raises:
        NotFoundError: there is no export, or it lacks a named table.
        ConfigError: the export does not have its TSO, or the TSO is below the kept changes or in
            the future.
    """
    export = read_export(folder, tso=tso)
    dialect, timezone = dialect or CsvDialect(), timezone or lake.changefeed.timezone
    changefeed_zone(timezone)
    _require_above(lake.paths, export)
    require_past(export, lake.changefeed)
    _begin(lake)
    chosen, excluded = _chosen(export, lake.changefeed, tables)
    # A file may be readable now that was not: a store failed, or a right was missing.
    unread = {
        (row["partition"], row["database"], row["table"])
        for row in read_quarantine(lake.paths)
        if row["reason"] == UNREADABLE_FILE
    }
    newest_seeds = {
        (item.name, item.tso): item
        for item in read_seeds(lake.paths)
        if (item.seed, *item.name) not in unread
    }
    refused: dict[TableName, str] = {}
    again: list[Seed] = []
    new: list[tuple[Seed, ExportedTable]] = []
    number, now = landed_seed(lake.paths) + 1, datetime.now(UTC)
    history: SchemaHistory | None = None
    for table in chosen:
        if table.create_sql is None and history is None:
            history = Knowledge.of(lake.paths, lake.changefeed.timezone).history
        try:
            definition = _schema(table, export.tso, timezone, history)
        except InputError as error:
            refused[table.name] = str(error)
            continue
        item = Seed(
            seed=number,
            database=definition.schema.database,
            table=definition.schema.table,
            tso=export.tso,
            folder=folder,
            fingerprint=_fingerprint(table, definition.sql, dialect, timezone),
            create_sql=definition.sql,
            schema=definition.schema,
            notes=definition.notes,
            dialect=dialect,
            timezone=timezone,
            seeded_at=now,
        )
        before = newest_seeds.get((item.name, item.tso))
        if before is not None and before.fingerprint == item.fingerprint:
            again.append(before)
        else:
            new.append((item, table))
    unterminated: tuple[str, ...] = ()
    if new:
        seeds = [item for item, _ in new]
        write_seeds(lake.paths, seeds)
        unterminated = land_seed(lake, seeds, [table.files for _, table in new])
        decode_new(lake)
    seeded = [*((item, True) for item, _ in new), *((item, False) for item in again)]
    return Seeding(
        tso=export.tso,
        tables=tuple(
            sorted(_counted(lake.paths, seeded), key=lambda item: (item.database, item.table))
        ),
        refused=refused,
        excluded=excluded,
        skipped=export.skipped,
        unterminated=unterminated,
    )


def _require_above(paths: LakePaths, export: Export) -> None:
    """Refuse an export that no kept change follows, or if the changes have no TSO."""
    if read_statistics(paths).es_only:
        raise ConfigError(
            "the messages of the changefeed carry no commit ts, so an export cannot be placed "
            "among them: set `enable-tidb-extension=true` in the sink URI"
        )
    truncation_point = read_truncation_point(paths)
    # At the TSO of the base, the base has the rows of the table.
    if truncation_point.cut is not None and export.tso <= truncation_point.tso:
        raise ConfigError(
            f"the export is at {time_with_tso(export.tso)}, and changes up to "
            f"{time_with_tso(truncation_point.tso)} were removed by retention: export again"
        )


def require_past(export: Export, changefeed: Changefeed) -> None:
    """Refuse an export from the future: its tables would wait for a watermark that never comes."""
    now = datetime.now(UTC)
    if is_ahead(export.tso, now, changefeed.max_ahead_seconds):
        raise ConfigError(
            f"the export is at {time_with_tso(export.tso)}, and it is {now:%Y-%m-%d %H:%M} UTC on "
            "this machine: check --tso, or the clock"
        )


def _begin(lake: Lake) -> None:
    """Finish a killed run, and create the tables that others are made from."""
    if open_table(lake.paths.raw_messages) is None:
        append_files(
            lake.paths.raw_messages,
            [],
            RAW_SCHEMA,
            app_id="land",
            version=0,
            metadata={"batch": 0, "next": [], "topic_ids": {}},
            layout=BY_LANDING_DAY,
        )
    decode_new(lake)


def _chosen(
    export: Export, changefeed: Changefeed, wanted: Collection[TableName]
) -> tuple[list[ExportedTable], int]:
    """Return the tables to seed, and how many the configuration leaves out."""
    missing = set(wanted) - {table.name for table in export.tables}
    if missing:
        names = listed(joined_name(*name) for name in sorted(missing))
        contents = listed(joined_name(*table.name) for table in export.tables)
        raise NotFoundError(f"the export has no {names}; it has {contents}")
    named = [table for table in export.tables if not wanted or table.name in wanted]
    chosen = [table for table in named if changefeed.tables.includes(*table.name)]
    return chosen, len(named) - len(chosen)


def _schema(
    table: ExportedTable, tso: int, timezone: str, history: SchemaHistory | None
) -> ExportedSchema:
    """Return the schema of a table: from its CREATE TABLE, otherwise from the registry."""
    if table.create_sql is not None or history is None:
        return exported_schema(table, tso, timezone)
    schemas = [
        version.schema
        for version in history.versions
        if (version.schema.database, version.schema.table) == table.name
        and version.schema.version <= tso
    ]
    if not schemas:
        raise InputError(
            "no_schema", "the export", "a file with its CREATE TABLE, or a known schema", "none"
        )
    schema = max(schemas, key=lambda item: item.version)
    return ExportedSchema(schema=replace(schema, version=tso), sql="", notes=())


def _counted(paths: LakePaths, seeds: Iterable[tuple[Seed, bool]]) -> Iterator[SeededRows]:
    statistics = read_statistics(paths)
    rows, lacking = statistics.exported_rows(), statistics.exported_columns
    faults = Counter[tuple[object, ...]]()
    first: dict[tuple[object, ...], str] = {}
    for row in read_quarantine(paths):
        place = (row["database"], row["table"], row["partition"])
        faults[*place, row["commit_ts"]] += 1
        at = "" if row["position"] is None else f"{row['position']}: "
        first.setdefault(place, f"{at}expected {row['expected']}, got {row['got']}")
    for item, is_new in seeds:
        place = (*item.name, item.seed)
        yield SeededRows(
            database=item.database,
            table=item.table,
            seed=item.seed,
            rows=rows.get(place, 0),
            # Rows that did not decode have no commit ts.
            quarantined=faults[*place, None] + faults[*place, item.tso],
            is_new=is_new,
            fault=first.get(place),
            unknown=tuple(lacking_columns(item.schema, lacking.get(place, ()))),
        )


def _fingerprint(table: ExportedTable, sql: str, dialect: CsvDialect, timezone: str) -> str:
    """Return a value that changes if a table's files or their meaning change."""
    files = [(file.path, file.size, file.stamp) for file in table.files]
    return hashlib.sha256(repr((files, sql, dialect, timezone)).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedBalance:
    """The balance of the landed rows of one table's newest seed.

    Rows landed, in the change log (`rows`), and in quarantine because they did not decode.
    """

    database: str
    table: str
    seed: int
    landed: int
    rows: int
    quarantined: int

    @property
    def lost(self) -> int:
        """Landed rows that are neither in the change log nor in quarantine."""
        return max(0, self.landed - self.rows - self.quarantined)

    @property
    def sentence(self) -> str:
        """The balance, in one clause."""
        lost = f", {self.lost} are lost" if self.lost else ""
        landed = counted(self.landed, "row")
        return f"{landed} landed, {self.rows} seeded, {self.quarantined} in quarantine{lost}"


def seed_balance(paths: LakePaths) -> list[SeedBalance]:
    """Return the balance of the landed rows of each table's newest seed; needs no Spark.

    Seeds whose landed rows retention has removed are left out.
    """
    newest = {item.name: item for item in read_seeds(paths)}
    table = open_table(paths.snapshot_rows)
    if not newest or table is None:
        return []
    condition = ds.field("batch").isin(sorted({item.seed for item in newest.values()}))
    landed = Counter[tuple[int, str, str]]()
    with reading(paths.snapshot_rows):
        scanner = dataset_of(table, paths.snapshot_rows).scanner(
            columns=["batch", "database", "table"], filter=condition, batch_readahead=2
        )
        for batch in scanner.to_batches():
            groups = pa.Table.from_batches([batch]).group_by(["batch", "database", "table"])
            for row in groups.aggregate([([], "count_all")]).to_pylist():
                landed[row["batch"], row["database"], row["table"]] += row["count_all"]
    rows = read_statistics(paths).exported_rows()
    faults = unread_exports(paths)
    return [
        SeedBalance(
            database=item.database,
            table=item.table,
            seed=item.seed,
            landed=landed[item.seed, *item.name],
            rows=rows.get((*item.name, item.seed), 0),
            quarantined=faults[(*item.name, item.seed)],
        )
        for item in newest.values()
        if landed[item.seed, *item.name]
    ]
