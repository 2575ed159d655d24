"""Reading mirrors: as DataFrames, and as the source's own text.

Readers read what a cut names, so all mirrors they see stand at one TSO, whatever a run is writing
meanwhile; or what `as_of` makes of a cut and the changes after it. `read_mirror` gives a table's
typed columns; `iterate_rows` gives each row as one JSON object in canonical text, which is what the
source would print, with the values that no typed column can hold in their place.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ticdc_assets.config import Settings, load_settings
from ticdc_assets.errors import LakeDamagedError, NotFoundError
from ticdc_assets.lake.as_of import AsOf, TableRows
from ticdc_assets.lake.change_folding import quoted, read_version
from ticdc_assets.lake.control import read_plain
from ticdc_assets.lake.cuts import Cut, FailedMirror, MirrorCut, newest_cut, require_cut, tso_as_of
from ticdc_assets.lake.damage import damaged_mirrors
from ticdc_assets.lake.mirror_rows import (
    MirrorLayout,
    canonical_rows,
    map_batches,
    spark_type_name,
)
from ticdc_assets.lake.paths import LakePaths
from ticdc_assets.schemas import TableSchema
from ticdc_assets.tso import lag_ms, moment_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnListing:
    """A column of a mirror: its name, its type upstream and its Spark type."""

    name: str
    mysql_type: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorListing:
    """A mirror as listed to people and programs.

    Attributes:
        database: database.
        table: table.
        key: columns of the handle key, [] if there is none.
        columns: columns, without ours and without virtual generated ones.
        rows: rows at the cut.
        applied_ts: TSO that the rows are at: that of the cut, or an older one of a failed mirror.
        moment: what people are told it is at: the TSO, or the time of a cut without one.
        lag_seconds: now less the physical time of `applied_ts`; 0 if that is ahead of now.
        path: the Delta table.
        version: Delta version that is the mirror at the cut; None of one that was never made.
        held: row changes that wait for their schema.
        quarantined: row changes that did not fit.
        incomplete: whether any are held or quarantined, or the mirror could not be made, or is
            damaged.
        marks: reasons why the mirror may differ from its table.
        failed: why the cut could not make it; None if it could.
        damaged: what is broken of its files; None if nothing is.
        lenient_casts: values that did not fit when their column was modified, and were cast.
    """

    database: str
    table: str
    key: list[str]
    columns: list[ColumnListing]
    rows: int
    applied_ts: int
    moment: str
    lag_seconds: float
    path: Path
    version: int | None
    held: int
    quarantined: int
    incomplete: bool
    marks: list[str]
    failed: FailedMirror | None = None
    damaged: LakeDamagedError | None = None
    lenient_casts: int = 0


def require_mirror(paths: LakePaths, database: str, table: str) -> MirrorCut:
    """Return the mirror of (database, table) in the newest cut, or raise NotFoundError."""
    cut = require_cut(paths)
    mirror = cut.mirror(database, table)
    failure = cut.failure(database, table)
    if mirror is None and failure is not None:
        raise NotFoundError(failure.sentence)
    if mirror is None:
        held = sum(
            item.rows for item in cut.held if (item.database, item.table) == (database, table)
        )
        known = ", ".join(f"{item.database}.{item.table}" for item in cut.mirrors) or "none"
        waiting = f"; {held} rows of it are held until its schema arrives" if held else ""
        raise NotFoundError(
            f"no mirror of database {database!r}, table {table!r} at {cut.moment}{waiting}; "
            f"mirrors: {known}"
        )
    return mirror


def list_mirrors(paths: LakePaths) -> list[MirrorListing]:
    """Return the mirrors of the newest cut; [] before the first. Needs no Spark session."""
    cut = newest_cut(paths)
    if cut is None:
        return []
    now_ms = datetime.now(UTC).timestamp() * 1000

    def lag(tso: int) -> float:
        return round(lag_ms(tso, now_ms) / 1000, 3)

    failed = {item.mirror_id: item for item in cut.failed}
    damages = damaged_mirrors(paths, cut)
    listings: list[MirrorListing] = []
    for mirror in cut.mirrors:
        schema = mirror.table_schema
        failure = failed.pop(mirror.mirror_id, None)
        applied_ts = cut.tso if failure is None or failure.tso is None else failure.tso
        listings.append(
            MirrorListing(
                database=mirror.database,
                table=mirror.table,
                key=list(schema.handle_key),
                columns=[
                    ColumnListing(
                        name=column.name,
                        mysql_type=column.mysql_type + (" unsigned" if column.unsigned else ""),
                        type=spark_type_name(column),
                    )
                    for column in schema.columns
                    if column.name not in mirror.hidden
                ],
                rows=mirror.rows,
                applied_ts=applied_ts,
                moment=moment_text(applied_ts, es_only=cut.es_only),
                lag_seconds=lag(applied_ts),
                path=mirror.path(paths),
                version=mirror.version,
                held=mirror.held,
                quarantined=mirror.quarantined,
                incomplete=mirror.incomplete or mirror.mirror_id in damages,
                marks=mirror.marks,
                failed=failure,
                damaged=damages.get(mirror.mirror_id),
                lenient_casts=mirror.casts.total(),
            )
        )
    listings += (_never_made(paths, cut, failure, lag(cut.tso)) for failure in failed.values())
    return sorted(listings, key=lambda item: (item.database, item.table))


def _never_made(
    paths: LakePaths, cut: Cut, failure: FailedMirror, lag_seconds: float
) -> MirrorListing:
    """Return what is listed of a mirror that no cut could make yet."""
    return MirrorListing(
        database=failure.database,
        table=failure.table,
        key=[],
        columns=[],
        rows=0,
        applied_ts=cut.tso,
        moment=cut.moment,
        lag_seconds=lag_seconds,
        path=paths.mirror(failure.mirror_id),
        version=None,
        held=sum(item.rows for item in cut.held if item.mirror_id == failure.mirror_id),
        quarantined=0,
        incomplete=True,
        marks=[],
        failed=failure,
    )


def published_table(spark: SparkSession, paths: LakePaths, mirror: MirrorCut) -> TableRows:
    """Return the rows of a mirror as a cut names it."""
    return TableRows(
        database=mirror.database,
        table=mirror.table,
        schema=mirror.table_schema,
        hidden=frozenset(mirror.hidden),
        rows=mirror.rows,
        made=lambda: read_version(spark, paths, mirror),
        here=lambda: read_plain(mirror.path(paths), mirror.version),
        warnings=tuple(mirror.marks),
    )


def read_mirror(
    spark: SparkSession,
    changefeed: str,
    database: str,
    table: str,
    *,
    as_of: int | str | datetime | None = None,
    settings: Settings | None = None,
) -> DataFrame:
    """Return a table at one moment: typed columns, the extra map and the commit ts.

    Virtual generated columns, which TiCDC never sends, are left out.

    Args:
        spark: the session.
        changefeed: name of the changefeed.
        database: the table's database at that moment.
        table: its name at that moment.
        as_of: TSO, or time (all of its millisecond; UTC if it names no offset); the newest cut if
            None.
        settings: the configuration; as the command line reads it if None.

    Raises:
        NotFoundError: there is no such changefeed, or no such table then, or nothing is known as
            of then.
        ConfigError: `as_of` is neither, or a TSO where there are none.
    """
    settings = settings or load_settings()
    feed = settings.changefeed(changefeed)
    paths = LakePaths(root=settings.lake, changefeed=changefeed)
    if as_of is None:
        found = published_table(spark, paths, require_mirror(paths, database, table))
    else:
        found = AsOf(spark, paths, feed, tso_as_of(paths, as_of)).table(database, table)
    names = [name for name in MirrorLayout(schema=found.schema).names if name not in found.hidden]
    return found.frame.select(*(quoted(name) for name in names))


def iterate_rows(
    tables: Iterable[TableRows], timezone: str, *, limit: int | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yield (database, table, row) of tables, `row` a JSON object in canonical text.

    A table of up to `_ROWS_AT_ONCE` rows comes in one piece, a larger one a partition at a time.
    """
    for table in tables:
        here = table.here()
        if here is not None:
            batches = here.slice(0, limit).to_batches()
            for text in _texts(batches, table.schema, table.hidden, timezone):
                yield table.database, table.table, text
            continue
        rows = table.frame if limit is None else table.frame.limit(limit)
        if min(table.rows, table.rows if limit is None else limit) <= _ROWS_AT_ONCE:
            texts = _texts(rows.toArrow().to_batches(), table.schema, table.hidden, timezone)
        else:
            texts = _rendered_by_workers(rows, table, timezone)
        for text in texts:
            yield table.database, table.table, text


_ROWS_AT_ONCE = 100_000


def _texts(
    batches: Iterable[pa.RecordBatch], schema: TableSchema, hidden: frozenset[str], timezone: str
) -> Iterator[str]:
    layout = MirrorLayout(schema=schema)
    for batch in batches:
        for row in canonical_rows(batch, layout, timezone):
            shown = {name: text for name, text in row.items() if name not in hidden}
            yield orjson.dumps(shown).decode()


def _rendered_by_workers(rows: DataFrame, table: TableRows, timezone: str) -> Iterator[str]:
    schema, hidden = table.schema, table.hidden

    def render(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = list(_texts([batch], schema, hidden, timezone))
            yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], ["row"])

    for row in map_batches(rows, render, "row string").toLocalIterator(prefetchPartitions=True):
        yield row["row"]
