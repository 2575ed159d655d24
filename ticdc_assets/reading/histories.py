"""Read histories: as DataFrames, with deleted rows, and the versions of one row.

In: the newest cut, and the histories that it names. Out: every version of a table's rows
(`read_history`), the SELECT of the newest version of every row that ever existed
(`with_deleted_sql`), or all versions of one row in canonical text (`row_versions`), computed from
the change log if no history is kept. Nothing is written.
"""

import csv
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_assets.base.errors import ConfigError, ImageError, NotFoundError
from ticdc_assets.base.names import joined_name
from ticdc_assets.changelog.plan import TableName
from ticdc_assets.config import Settings, load_settings
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.change_statistics import read_statistics
from ticdc_assets.log.cuts import Cut, MirrorCut, require_cut
from ticdc_assets.mirrors.change_folding import ChangeFolding
from ticdc_assets.mirrors.history import HistoryFolding
from ticdc_assets.mirrors.truncation_points import read_truncation_point
from ticdc_assets.mirrors.validity import Knowledge
from ticdc_assets.mirrors.versions import rows_as_stored
from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets.model.tso import moment_text, to_datetime
from ticdc_assets.model.values import UNFIT, canonical_of, key_text, typed_of
from ticdc_assets.reading.as_of import incomplete, require_changes
from ticdc_assets.reading.mirrors import applied_ts, require_mirror, shown_rows
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.mirror_rows import may_be_rescued
from ticdc_assets.spark.frames import delta_frame, quoted
from ticdc_assets.spark.scratch import READING, Scratch
from ticdc_assets.storage.lake_paths import LakePaths

if TYPE_CHECKING:  # importing pyspark takes a while
    from pyspark.sql import DataFrame, SparkSession


def read_history(
    spark: "SparkSession",
    changefeed: str,
    database: str,
    table: str,
    *,
    settings: Settings | None = None,
) -> "DataFrame":
    """Return every version of a table's rows, with the time from which to which it was current.

    The rows of any TSO are those with `_ticdc_valid_from <= tso` whose `_ticdc_valid_to` is NULL or
    above it.

    Args:
        spark: the session.
        changefeed: name of the changefeed.
        database: the table's database at the newest cut.
        table: its name there.
        settings: the configuration; as the command line reads it if None.

    Raises:
        NotFoundError: there is no such changefeed, no such table, or no history of it is kept.
    """
    settings = settings or load_settings()
    lake = Lake.open(settings.lake, settings.changefeed(changefeed), spark)
    mirror = require_history(lake.paths, require_cut(lake.paths), database, table)
    names = HistoryLayout(schema=mirror.table_schema).names
    shown = (quoted(name) for name in names if name not in mirror.hidden)
    return delta_frame(lake.spark, *mirror.history_at(lake.paths)).select(*shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlDialect:
    """How an engine writes names and texts.

    Attributes:
        quoted: makes an identifier of a name.
        literal: makes a literal of a text.
    """

    quoted: Callable[[str], str]
    literal: Callable[[str], str]


SPARK: Final = SqlDialect(
    quoted=quoted,
    literal=lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'",
)
DUCKDB: Final = SqlDialect(
    quoted=lambda name: '"' + name.replace('"', '""') + '"',
    literal=lambda text: "'" + text.replace("'", "''") + "'",
)


def with_deleted_sql(
    schema: TableSchema,
    hidden: frozenset[str],
    relation: str,
    *,
    as_of: int | None = None,
    dialect: SqlDialect = SPARK,
) -> str:
    """Return the SELECT of a table with its deleted rows, from a relation with its history.

    A row is the newest version of a key, as of a TSO if one is given. In a table without a key it
    is each copy of a row that ever existed. Hidden columns, which are never sent, are left out.
    """
    layout, quoted = HistoryLayout(schema=schema), dialect.quoted
    valid_from, valid_to = quoted(layout.valid_from), quoted(layout.valid_to)
    shown = [quoted(column.name) for column in schema.columns if column.name not in hidden]
    ended, ended_by = valid_to, quoted(layout.ended_by)
    source = relation
    if as_of is not None:
        source = f"(SELECT * FROM {relation} WHERE {valid_from} <= {as_of})"
        ended = f"CASE WHEN {valid_to} <= {as_of} THEN {valid_to} END"
        ended_by = f"CASE WHEN {valid_to} <= {as_of} THEN {ended_by} END"
    shown += [
        valid_from,
        f"{ended} AS {quoted(layout.deleted_at)}",
        f"{ended_by} AS {quoted(layout.ended_by)}",
        quoted(layout.rescued),
    ]
    columns = ", ".join(shown)
    if not schema.handle_key:
        return f"SELECT {columns} FROM {source}"
    identity = [quoted(name) for name in schema.handle_key]
    # A key value that its typed column cannot hold is NULL there and is in the rescued data.
    identity += [
        f"{quoted(layout.rescued)}[{dialect.literal(column.name)}]"
        for column in schema.columns
        if column.name in schema.handle_key and may_be_rescued(column)
    ]
    number = quoted(layout.newest)
    return (
        f"SELECT {columns} FROM (SELECT *, row_number() OVER (PARTITION BY {', '.join(identity)} "
        f"ORDER BY {valid_from} DESC) AS {number} FROM {source}) WHERE {number} = 1"
    )


def require_history(paths: LakePaths, cut: Cut, database: str, table: str) -> MirrorCut:
    """Return a mirror of a cut that has a history, or raise NotFoundError."""
    mirror = require_mirror(cut, database, table)
    if mirror.history_version is None:
        raise NotFoundError(
            f"no history of database {database!r}, table {table!r} is kept; to keep one, add the "
            f"table to `history` or `soft_delete` of changefeed {paths.changefeed!r}, and run: "
            f"ticdc-assets sync {paths.changefeed}"
        )
    return mirror


def require_known(lake: Lake, cut: Cut, mirror: MirrorCut, tso: int) -> None:
    """Raise NotFoundError if a mirror's history does not have all rows as of a TSO.

    Unlike a read of mirrors (`as_of`), a history may have them below a truncation of the change
    log.
    """
    name, es_only = (mirror.database, mirror.table), cut.es_only
    statistics = read_statistics(lake.paths)
    require_changes(lake.paths, cut, statistics, tso)
    shown, wanted = joined_name(*name), moment_text(tso, es_only=es_only)
    made_at = applied_ts(cut, *name)
    if tso > made_at:
        raise NotFoundError(
            f"{shown} is not known as of {wanted}: it could not be made beyond "
            f"{moment_text(made_at, es_only=es_only)}"
        )
    then = Knowledge.of(lake.paths, lake.changefeed.timezone, statistics).plan(tso)
    plan = next((item for item in then.mirrors if item.mirror_id == mirror.mirror_id), None)
    exported = dict(then.exported_above).get(name) if plan is None else plan.incomplete_until
    if exported is not None:
        raise incomplete(*name, tso, exported)
    since = mirror.history_since
    if since is None:
        since = read_truncation_point(lake.paths).tso_of(mirror.mirror_id)
    if tso < since:
        raise NotFoundError(
            f"the history of {shown} does not have the rows as of {wanted}: it begins at "
            f"{moment_text(since, es_only=es_only)}, up to which the change log was truncated, or "
            "where the table was seeded from an export"
        )
    if plan is None and all(item.mirror_id != mirror.mirror_id for item in then.failed):
        raise NotFoundError(f"the table that is now {shown} did not exist as of {wanted}")


# One row ----------------------------------------------------------------------------------------


def row_versions(
    lake: Lake,
    cut: Cut,
    name: TableName,
    key: str,
) -> list[dict[str, Any]]:
    """Return all versions of one row as JSON objects, oldest first.

    Each has `op`, how it came; `valid_from`, the commit ts from which on it is current; `valid_to`,
    the first cut without it, and `ended_by`, how it ended, both None if it is current; both moments
    also as times; and `row`, its values in canonical text. The key is as people write it
    (`parse_key`), and `cut` is the newest one.

    Raises:
        NotFoundError: there is no such table.
        ConfigError: it is not a key of this table, or the table has none.
    """
    mirror = require_mirror(cut, *name)
    schema = mirror.table_schema
    timezone = lake.changefeed.timezone
    values = _canonical_key(schema, key, timezone)
    layout = HistoryLayout(schema=schema)
    versions: list[dict[str, Any]] = []
    for batch in _versions_of(lake, cut, mirror, values):
        rows = shown_rows(batch, schema, mirror.hidden, timezone)
        added = batch.select([layout.op, layout.valid_from, layout.valid_to, layout.ended_by])
        for row, version in zip(rows, added.to_pylist(), strict=True):
            op, valid_from, valid_to, ended_by = version.values()
            versions.append(
                {
                    "op": op,
                    "valid_from": valid_from,
                    "valid_from_time": _time_of(valid_from),
                    "valid_to": valid_to,
                    "valid_to_time": _time_of(valid_to),
                    "ended_by": ended_by,
                    "row": row,
                }
            )
    return sorted(versions, key=lambda version: version["valid_from"])


def _time_of(tso: int | None) -> str | None:
    return None if tso is None else to_datetime(tso).isoformat(timespec="milliseconds")


def parse_key(schema: TableSchema, text: str) -> dict[str, str]:
    """Return the values of a key as people write it.

    A key of one column is its plain value. A key of several columns is their values in the key's
    order, separated by commas, in double quotes if they contain a comma. Both may have names:
    `id=1`, `a=1,b=x`; for one column only if the text starts with its name (`id=`).

    Raises:
        ConfigError: it is not a key of this table, or the table has none.
    """
    columns = list(schema.handle_key)
    if not columns:
        raise ConfigError(
            f"{joined_name(schema.database, schema.table)} has no key, so its rows have no "
            "separate histories"
        )
    names = {name.lower(): name for name in columns}
    if len(columns) == 1:
        name, equals, value = text.partition("=")
        return {columns[0]: value if equals and name.lower() in names else text}
    fields = next(csv.reader([text], strict=False), [])
    named = [field.partition("=") for field in fields]
    if len(fields) == len(columns) and {name.lower() for name, _, _ in named} == set(names):
        return {names[name.lower()]: value for name, _, value in named}
    if len(fields) != len(columns):
        raise ConfigError(
            f"expected the {len(columns)} values of the key {', '.join(columns)}, separated by "
            f"commas, got {text[:80]!r}"
        )
    return dict(zip(columns, fields, strict=True))


def _canonical_key(schema: TableSchema, text: str, timezone: str) -> dict[str, str]:
    """Return the values of a key as people write it in canonical text, in the key's order."""
    values = parse_key(schema, text)
    for column in schema.columns:
        kind = kind_of(column)
        # People write the labels of an ENUM or SET, and messages have numbers.
        if column.name not in values or kind in (Kind.ENUM, Kind.SET):
            continue
        given = values[column.name]
        if kind is Kind.BINARY:
            values[column.name] = given.lower()
            continue
        # It may be a value of a past type.
        with suppress(ImageError):
            values[column.name] = canonical_of(column, timezone)(given) or given
    return {name: values[name] for name in schema.handle_key}


def _versions_of(
    lake: Lake, cut: Cut, mirror: MirrorCut, values: dict[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yield the versions of one row, with the columns of `HistoryLayout`.

    They come from its history, or from the change log.
    """
    schema = mirror.table_schema
    layout = HistoryLayout(schema=schema)
    if mirror.history_version is not None:
        stored = rows_as_stored(*mirror.history_at(lake.paths)).select(layout.names)
        batches = (batch.rename_columns(layout.places) for batch in stored.read())
    else:
        rows = _folded_versions(lake, cut, mirror, values)
        batches = (batch.select(layout.places) for batch in rows)
    # The rescued data has values that the typed column cannot hold, and values of past types.
    wanted = [
        (number, column.name, text, typed_of(column, lake.changefeed.timezone)(text))
        for number, column in enumerate(schema.columns)
        if (text := values.get(column.name)) is not None
    ]
    for batch in batches:
        is_row = pa.repeat(True, batch.num_rows)
        for number, name, text, value in wanted:
            rescued = pc.map_lookup(batch.column("rescued"), pa.scalar(name), "first")
            same = pc.equal(rescued, text).fill_null(False)
            if value is not UNFIT:
                typed = batch.column(f"c{number}")
                equal = pc.equal(typed, pa.scalar(value, typed.type)).fill_null(False)
                same = pc.or_(equal, same)
            is_row = pc.and_(is_row, same)
        versions = batch.filter(is_row)
        if versions.num_rows:
            yield versions.rename_columns(layout.names)


def _folded_versions(
    lake: Lake, cut: Cut, mirror: MirrorCut, values: dict[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yield the versions of one row, folded from the change log."""
    schema = mirror.table_schema
    there = Knowledge.of(lake.paths, lake.changefeed.timezone).plan(cut.tso)
    plan = next((item for item in there.mirrors if item.mirror_id == mirror.mirror_id), None)
    if plan is None:
        raise NotFoundError(
            f"{joined_name(mirror.database, mirror.table)} cannot be folded at {cut.moment} from "
            f"what is known now; run: ticdc-assets sync {lake.paths.changefeed}"
        )
    columns = [column for name in schema.handle_key if (column := schema.column(name)) is not None]
    changes = ChangeFolding(lake, batch=cut.batch, scratch=Scratch(lake.paths, READING))
    only_key = key_text(list(values.values()), columns)
    folding = HistoryFolding(changes, only_key=only_key)
    base = changes.truncation_point.base_of(mirror.mirror_id)
    for table in folding.folded(plan, until=cut.tso, base=base).rows.tables():
        # A row without it is not a version.
        yield from table.filter(pc.field("valid_from").is_valid()).to_batches()
