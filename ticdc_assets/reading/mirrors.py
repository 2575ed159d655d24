"""Read mirrors: as DataFrames, and as the source's own text.

Readers read the versions that a cut names, so all mirrors they see are at one TSO, whatever a run
is writing; or they read a cut with later changes, by `as_of`. `read_mirror` returns a table's typed
columns. `iterate_rows` returns each row as one JSON object in canonical text, as the source would
print it, including values that no typed column can hold.
"""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal, overload

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.base.errors import MirrorCaveatWarning, NotFoundError
from ticdc_assets.base.names import joined_name
from ticdc_assets.config import Settings, load_settings
from ticdc_assets.delta.lake import Lake, paths_of
from ticdc_assets.log.cuts import Cut, MirrorCut, require_cut, tso_as_of
from ticdc_assets.mirrors.versions import first_rows, is_portable_mirror
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.tso import moment_text
from ticdc_assets.observe.status import Status
from ticdc_assets.observe.table_status import TableStatus
from ticdc_assets.observe.wording import listed
from ticdc_assets.reading.as_of import AsOf, TableRows, notes_on
from ticdc_assets.registry.evolution import CanonicalRow
from ticdc_assets.rows.mirror_rows import MirrorLayout, canonical_rows, spark_type_name
from ticdc_assets.rows.rows_of_work import Rows
from ticdc_assets.spark.executing import INLINE_ROWS
from ticdc_assets.spark.frames import map_batches, quoted
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath

if TYPE_CHECKING:  # importing pyspark takes a while
    from pyspark.sql import DataFrame, SparkSession

_READ_HERE = 10_000_000
"""Rows up to which this process finds the first ones: Spark would take as long to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorListing:
    """A mirror as listed to people and programs.

    Attributes:
        database: database.
        table: table.
        key: columns of the handle key, [] if there is none.
        columns: its columns, without this package's and virtual generated ones, each with its
            `name`, its type upstream (`mysql_type`) and its Spark `type`.
        rows: rows at the cut.
        applied_ts: TSO of the rows: the cut's, or an older one for a failed mirror.
        moment: the moment of the rows for people: the TSO, or a time in a cut without TSO.
        status: how far it is, and its problems.
        path: the Delta table.
        version: Delta version of the mirror at the cut; None if it was never made.
    """

    database: str
    table: str
    key: list[str]
    columns: list[dict[str, str]]
    rows: int
    applied_ts: int
    moment: str
    status: TableStatus
    path: AnyPath | None
    version: int | None

    @property
    def incomplete(self) -> bool:
        """Whether it lacks changes at or below the cut."""
        return not self.status.is_complete


def require_mirror(cut: Cut, database: str, table: str) -> MirrorCut:
    """Return the mirror of (database, table) in a cut, or raise NotFoundError."""
    mirror = cut.mirror(database, table)
    if mirror is not None:
        return mirror
    failure = cut.failure(database, table)
    if failure is not None:
        raise NotFoundError(failure.sentence)
    held = sum(item.rows for item in cut.held if (item.database, item.table) == (database, table))
    mirrors = listed(joined_name(item.database, item.table) for item in cut.mirrors) or "none"
    waiting = f"; {held} of its rows are held until its schema arrives" if held else ""
    raise NotFoundError(
        f"no mirror of database {database!r}, table {table!r} at {cut.moment}{waiting}; "
        f"mirrors: {mirrors}"
    )


def applied_ts(cut: Cut, database: str, table: str) -> int:
    """Return the TSO of a table's rows in a cut.

    It is the cut's, or for a failed mirror that of the older cut that its rows come from.
    """
    failed = cut.failure(database, table)
    return cut.tso if failed is None or failed.tso is None else failed.tso


def list_mirrors(paths: LakePaths, status: Status) -> list[MirrorListing]:
    """Return the mirrors of the newest cut; [] before the first. It needs no Spark session.

    Tables without a mirror are listed too: those that no cut could make yet, and those known only
    from rows.
    """
    cut = status.cut
    if cut is None:
        return []
    mirrors = {item.mirror_id: item for item in cut.mirrors}
    listings = [
        _listing(paths, cut, item, mirrors.get(item.mirror_id or "")) for item in status.tables
    ]
    return sorted(listings, key=lambda item: (item.database, item.table))


def _listing(
    paths: LakePaths, cut: Cut, status: TableStatus, mirror: MirrorCut | None
) -> MirrorListing:
    """Return the listing of a table, which may have no mirror."""
    tso = applied_ts(cut, status.database, status.table)
    schema = None if mirror is None else mirror.table_schema
    return MirrorListing(
        database=status.database,
        table=status.table,
        key=[] if schema is None else list(schema.handle_key),
        columns=[
            {
                "name": column.name,
                "mysql_type": column.mysql_type + (" unsigned" if column.unsigned else ""),
                "type": spark_type_name(column),
            }
            for column in (() if schema is None else schema.columns)
            if mirror is not None and column.name not in mirror.hidden
        ],
        rows=status.rows,
        applied_ts=tso,
        moment=moment_text(tso, es_only=cut.es_only),
        status=status,
        path=None if status.mirror_id is None else paths.mirror(status.mirror_id),
        version=None if mirror is None else mirror.version,
    )


def notes_of(cut: Cut, mirror: MirrorCut) -> tuple[str, ...]:
    """Return why the rows of a mirror in a cut may differ from its table, each a sentence."""
    name = mirror.database, mirror.table
    failure = cut.failure(*name)
    failed = () if failure is None else (failure.sentence,)
    return (*failed, *notes_on(*name, mirror.caveats))


def published_table(lake: Lake, mirror: MirrorCut) -> TableRows:
    """Return the rows of a mirror as a cut names it."""
    return TableRows(
        database=mirror.database,
        table=mirror.table,
        schema=mirror.table_schema,
        hidden=frozenset(mirror.hidden),
        rows=mirror.rows,
        lake=lake,
        source=mirror.at(lake.paths),
        warnings=tuple(mirror.caveats),
    )


def table_at(
    lake: Lake, database: str, table: str, as_of: int | str | datetime | None
) -> tuple[TableRows, tuple[str, ...]]:
    """Return the rows of a table, and why they may differ from the upstream's, each a sentence.

    Args:
        lake: the changefeed's lake.
        database: the table's database at that moment.
        table: its name at that moment.
        as_of: TSO or time; the newest cut if None.

    Raises:
        NotFoundError: there is no such table then, or nothing is known as of then.
        ConfigError: `as_of` is neither, or is a TSO in a changefeed without TSO.
    """
    if as_of is None:
        cut = require_cut(lake.paths)
        mirror = require_mirror(cut, database, table)
        return published_table(lake, mirror), notes_of(cut, mirror)
    rows = AsOf(lake, tso_as_of(lake.paths, as_of)).table(database, table)
    return rows, rows.notes


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLocation:
    """Where a mirror is, for other readers of Delta tables.

    Attributes:
        path: the folder of the Delta table.
        version: the version that the newest cut names; no cut may name a newer one yet.
        applied_ts: TSO that its rows are at.
        rows: rows at that version.
        portable: whether readers without deletion vectors, column mapping and type widening can
            read it.
    """

    path: AnyPath
    version: int
    applied_ts: int
    rows: int
    portable: bool


def locate_mirror(
    changefeed: str, database: str, table: str, *, settings: Settings | None = None
) -> MirrorLocation:
    """Return where a mirror of the newest cut is; needs no Spark.

    Args:
        changefeed: name of the changefeed.
        database: the table's database.
        table: its name.
        settings: the configuration; as the command line reads it if None.

    Raises:
        NotFoundError: there is no such changefeed, or no such table in its newest cut.
    """
    settings = settings or load_settings()
    paths = paths_of(settings.lake, settings.changefeed(changefeed).name)
    cut = require_cut(paths)
    mirror = require_mirror(cut, database, table)
    return MirrorLocation(
        path=mirror.path(paths).absolute(),
        version=mirror.version,
        applied_ts=applied_ts(cut, database, table),
        rows=mirror.rows,
        portable=is_portable_mirror(paths, mirror),
    )


@overload
def read_mirror(
    spark: "SparkSession",
    changefeed: str,
    database: str,
    table: str,
    *,
    as_of: int | str | datetime | None = None,
    settings: Settings | None = None,
    engine: Literal["spark"] = "spark",
) -> "DataFrame": ...


@overload
def read_mirror(
    spark: "SparkSession | None",
    changefeed: str,
    database: str,
    table: str,
    *,
    as_of: int | str | datetime | None = None,
    settings: Settings | None = None,
    engine: Literal["arrow"],
) -> pa.Table: ...


def read_mirror(
    spark: "SparkSession | None",
    changefeed: str,
    database: str,
    table: str,
    *,
    as_of: int | str | datetime | None = None,
    settings: Settings | None = None,
    engine: Literal["spark", "arrow"] = "spark",
) -> "DataFrame | pa.Table":
    """Return a table at one moment: typed columns, the rescued data and the commit ts.

    Virtual generated columns, which TiCDC never sends, are left out. A `MirrorCaveatWarning` says
    why the rows may differ from the upstream's.

    Args:
        spark: the session; None is enough for Arrow, and one is started only to fold many changes.
        changefeed: name of the changefeed.
        database: the table's database at that moment.
        table: its name at that moment.
        as_of: TSO, or time (all of its millisecond; UTC if it names no offset); the newest cut if
            None.
        settings: the configuration; as the command line reads it if None.
        engine: `spark` for a DataFrame, `arrow` for a table in memory.

    Raises:
        NotFoundError: there is no such changefeed, or no such table then, or nothing is known as of
            then.
        ConfigError: `as_of` is neither, or is a TSO in a changefeed without TSO.
        LakeDamagedError: its files are missing or torn. Spark raises its own error, when rows are
            read.
    """
    settings = settings or load_settings()
    lake = Lake.open(settings.lake, settings.changefeed(changefeed), spark)
    table_rows, notes = table_at(lake, database, table, as_of)
    for text in notes:
        warnings.warn(text, MirrorCaveatWarning, stacklevel=2)
    if engine == "spark":
        return table_rows.frame.select(*map(quoted, table_rows.shown))
    return table_rows.stored().table_here().select(table_rows.shown)


def iterate_rows(
    tables: Iterable[TableRows],
    timezone: str,
    *,
    limit: int | None = None,
    by_key: bool = False,
) -> Iterator[tuple[str, str, str]]:
    """Yield (database, table, row) of tables, `row` a JSON object in canonical text.

    With `by_key` the rows of a table come in the order of its key, with numbers in numeric order.
    Few rows are read in this process, and the first few of more; of many, workers make the texts, a
    partition at a time.
    """
    for table in tables:
        stored = table.stored()
        key = list(table.schema.handle_key) if by_key else []
        texts = partial(_texts, schema=table.schema, hidden=table.hidden, timezone=timezone)
        few = stored.count if limit is None else min(limit, stored.count)
        if few <= INLINE_ROWS and stored.count <= _READ_HERE:
            # Arrow orders no vectors.
            types = {name: stored.schema.field(name).type for name in key}
            order = [(name, "ascending") for name in key if not pa.types.is_nested(types[name])]
            batches = _first(stored, order, few).to_batches() if order else stored.read()
            lines = islice(chain.from_iterable(map(texts, batches)), few)
        else:
            rows = table.frame.orderBy(*map(quoted, key)) if key else table.frame
            lines = _text_lines(rows if limit is None else rows.limit(limit), texts)
        for text in lines:
            yield table.database, table.table, text


def _first(rows: Rows, order: list[tuple[str, str]], limit: int) -> pa.Table:
    """Return the first rows in an order; no more than these and a batch are held."""
    first = rows.schema.empty_table()
    for batch in rows.read():
        both = pa.concat_tables([first, pa.Table.from_batches([batch])])
        first = both.take(pc.sort_indices(both, sort_keys=order)[:limit])
    return first


def sample_rows(
    paths: LakePaths, mirror: MirrorCut, timezone: str, *, limit: int
) -> list[dict[str, str | None]]:
    """Return up to `limit` rows of a mirror of a cut as canonical text."""
    if not limit:
        return []
    schema, hidden = mirror.table_schema, frozenset(mirror.hidden)
    batches = first_rows(paths, mirror, limit).to_batches()
    return [row for batch in batches for row in shown_rows(batch, schema, hidden, timezone)]


def shown_rows(
    batch: pa.RecordBatch, schema: TableSchema, hidden: Collection[str], timezone: str
) -> Iterator[CanonicalRow]:
    """Yield the rows of a batch in canonical text, without the columns that are never sent."""
    for row in canonical_rows(batch, MirrorLayout(schema=schema), timezone):
        yield {name: text for name, text in row.items() if name not in hidden}


def _texts(
    batch: pa.RecordBatch, schema: TableSchema, hidden: frozenset[str], timezone: str
) -> Iterator[str]:
    for row in shown_rows(batch, schema, hidden, timezone):
        yield orjson.dumps(row).decode()


def _text_lines(
    rows: "DataFrame", texts: Callable[[pa.RecordBatch], Iterator[str]]
) -> Iterator[str]:
    """Yield the texts that workers make of the batches of some rows."""

    def render(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            lines = pa.array(list(texts(batch)), pa.string())
            yield pa.RecordBatch.from_arrays([lines], ["row"])

    for row in map_batches(rows, render, "row string").toLocalIterator(prefetchPartitions=True):
        yield row["row"]
