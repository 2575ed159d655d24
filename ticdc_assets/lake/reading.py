"""Reading mirrors: as DataFrames, and as the source's own text.

Readers read what a cut names, so all mirrors they see stand at one TSO, whatever a run is writing
meanwhile. `read_mirror` gives a mirror's typed columns; `row_texts` gives each row as one JSON
object in canonical text, which is what the source would print, with the values that no typed
column can hold in their place.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ticdc_assets.config import Changefeed
from ticdc_assets.errors import NotFoundError
from ticdc_assets.lake.change_folding import quoted, read_version
from ticdc_assets.lake.cuts import Cut, MirrorCut, newest_cut
from ticdc_assets.lake.mirror_rows import MirrorLayout, canonical_rows, spark_type_name
from ticdc_assets.lake.paths import LakePaths
from ticdc_assets.tso import physical_ms


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
        applied_ts: TSO of the cut.
        moment: what people are told it is at: the TSO, or the time of a cut without one.
        lag_seconds: now less the physical time of `applied_ts`.
        path: the Delta table.
        version: Delta version that is the mirror at the cut.
        held: row changes that wait for their schema.
        quarantined: row changes that did not fit.
        incomplete: whether any are held or quarantined.
        marks: reasons why the mirror may differ from its table.
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
    version: int
    held: int
    quarantined: int
    incomplete: bool
    marks: list[str]


def require_cut(paths: LakePaths) -> Cut:
    """Return the newest cut, or raise NotFoundError."""
    cut = newest_cut(paths)
    if cut is None:
        raise NotFoundError(
            f"changefeed {paths.changefeed!r} has no published cut yet; run: "
            f"ticdc-assets sync {paths.changefeed}"
        )
    return cut


def require_mirror(paths: LakePaths, database: str, table: str) -> MirrorCut:
    """Return the mirror of (database, table) in the newest cut, or raise NotFoundError."""
    cut = require_cut(paths)
    mirror = cut.mirror(database, table)
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
    lag = round((now_ms - physical_ms(cut.tso)) / 1000, 3)
    listings: list[MirrorListing] = []
    for mirror in cut.mirrors:
        schema = mirror.table_schema
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
                applied_ts=cut.tso,
                moment=cut.moment,
                lag_seconds=lag,
                path=mirror.path(paths),
                version=mirror.version,
                held=mirror.held,
                quarantined=mirror.quarantined,
                incomplete=mirror.incomplete,
                marks=mirror.marks,
            )
        )
    return listings


def read_mirror(spark: SparkSession, paths: LakePaths, database: str, table: str) -> DataFrame:
    """Return a mirror at the newest cut: typed columns, the extra map and the commit ts.

    Virtual generated columns, which TiCDC never sends, are left out.
    """
    mirror = require_mirror(paths, database, table)
    layout = MirrorLayout(schema=mirror.table_schema)
    names = [name for name in layout.names if name not in mirror.hidden]
    return read_version(spark, paths, mirror).select(*(quoted(name) for name in names))


def iterate_rows(
    spark: SparkSession,
    paths: LakePaths,
    changefeed: Changefeed,
    mirrors: Sequence[MirrorCut],
    *,
    limit: int | None = None,
) -> Iterator[tuple[str, str, str]]:
    """Yield (database, table, row) of mirrors, `row` a JSON object in canonical text.

    A mirror of up to `_ROWS_AT_ONCE` rows comes in one piece, a larger one a partition at a time.
    """
    for mirror in mirrors:
        rows = read_version(spark, paths, mirror)
        if limit is not None:
            rows = rows.limit(limit)
        if min(mirror.rows, mirror.rows if limit is None else limit) <= _ROWS_AT_ONCE:
            texts = _rendered(rows.toArrow().to_batches(), mirror, changefeed.timezone)
        else:
            texts = _rendered_by_workers(rows, mirror, changefeed.timezone)
        for text in texts:
            yield mirror.database, mirror.table, text


_ROWS_AT_ONCE = 100_000


def _rendered(batches: Iterable[pa.RecordBatch], mirror: MirrorCut, timezone: str) -> Iterator[str]:
    layout = MirrorLayout(schema=mirror.table_schema)
    hidden = frozenset(mirror.hidden)
    for batch in batches:
        for row in canonical_rows(batch, layout, timezone):
            shown = {name: text for name, text in row.items() if name not in hidden}
            yield orjson.dumps(shown).decode()


def _rendered_by_workers(rows: DataFrame, mirror: MirrorCut, timezone: str) -> Iterator[str]:
    def render(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = list(_rendered([batch], mirror, timezone))
            yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], ["row"])

    for row in rows.mapInArrow(render, "row string").toLocalIterator(prefetchPartitions=True):
        yield row["row"]
