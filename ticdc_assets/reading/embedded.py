"""SQL over mirrors in this process: one query, run by DuckDB over the files of a cut.

In: the text of one query, and the newest cut or a TSO. Out: the names of its columns, and its rows
as texts. Only the tables that the query names are opened, each at the Delta version that the cut
names, so they are all at one TSO, whatever a run is writing. `table__history` and
`table__with_deleted` exist as in Spark (`views`); `deleted_lines` asks the latter's query itself.

The caller chooses the engine, because the two have different dialects
(docs/decisions/0060-two-engines-of-sql.md). The text is untrusted: only a single reading query is
accepted, which cannot reach files, networks, extensions or settings.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import duckdb
import orjson
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ticdc_assets.base.names import joined_name
from ticdc_assets.changelog.plan import TableName
from ticdc_assets.delta.lake import Lake
from ticdc_assets.log.cuts import Cut, require_cut
from ticdc_assets.log.damage import damage_told, find_damage
from ticdc_assets.mirrors.versions import dataset_as_stored, rows_as_stored
from ticdc_assets.reading.as_of import AsOf, TableRows
from ticdc_assets.reading.histories import (
    DUCKDB,
    require_history,
    require_known,
    with_deleted_sql,
)
from ticdc_assets.reading.mirrors import shown_rows
from ticdc_assets.reading.views import (
    MakeSelect,
    QueryError,
    QueryResult,
    no_such_table,
    views_as_of,
    views_of,
)
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.rows_of_work import Rows, numbered_names
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath

_ROWS_AT_ONCE = 1_000

_SETTINGS = (
    "TimeZone = 'UTC'",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "python_enable_replacements = false",
    "enable_external_access = false",
)
"""What limits a query to its tables."""

_PART = r'(?:"(?:[^"]|"")*"|[^".\s]+)'
_CATALOG = "memory"
"""The engine's own name for its one database, which may precede that of a table."""
_NAMED = re.compile(
    rf"(?:{_CATALOG}\.(?={_PART}\.))?({_PART})(?:\.({_PART}))?(?:\s+(?:AS|TABLESAMPLE)\s.*)?",
    re.DOTALL | re.IGNORECASE,
)


@contextmanager
def query(lake: Lake, text: str, *, as_of: int | None = None) -> Iterator[QueryResult]:
    """Yield the result of one query over the tables of a changefeed.

    Args:
        lake: the changefeed's lake, whose session is used only for tables with many changes since
            a cut.
        text: the query, in DuckDB's dialect.
        as_of: TSO that the tables are read as of; the newest cut if None.

    Raises:
        QueryError: the text is not a query, or names something that does not exist.
        NotFoundError: nothing is published yet, or nothing is known at that TSO.
        LakeDamagedError: a table of the query is broken.
    """
    cut = require_cut(lake.paths)
    with tempfile.TemporaryDirectory(prefix="ticdc-sql-") as folder, _connection(folder) as engine:
        wanted = _tables_of(engine, text)
        views = (
            views_of(lake.paths, cut, partial(_stored, engine, Path(folder)), DUCKDB)
            if as_of is None
            else views_as_of(AsOf(lake, as_of), partial(_folded, engine, Path(folder)), DUCKDB)
        )
        selects: dict[TableName, MakeSelect] = {}
        for name, make in views:
            selects.setdefault(name, make)
        notes: dict[str, None] = {}
        with damage_told(lake.paths):
            for name, make in _chosen(wanted, selects):
                select = make()
                _create(engine, name, select.text)
                notes.update(dict.fromkeys(select.notes))
            engine.execute("SET lock_configuration = true")
            try:
                with _files_read(lake.paths):
                    relation = engine.sql(text)
                    texts = (_as_text(at, str(kind)) for at, kind in enumerate(relation.types, 1))
                    shown = relation.project(", ".join(texts))
                    yield QueryResult(
                        columns=relation.columns,
                        rows=_rows(shown.to_arrow_reader(_ROWS_AT_ONCE)),
                        notes=list(notes),
                    )
            except duckdb.Error as error:
                raise QueryError(_sentence(error, wanted, selects)) from None


_OF_FILES = (duckdb.InvalidInputException, duckdb.IOException)
"""Errors that may mean unreadable files."""


@contextmanager
def _files_read(paths: LakePaths) -> Iterator[None]:
    """Report which table is broken if the engine cannot read a file."""
    try:
        yield
    except _OF_FILES as error:
        for damage in find_damage(paths):
            raise damage from error
        raise


@contextmanager
def _connection(folder: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield an engine without tables and without access to anything outside."""
    engine = duckdb.connect(":memory:", config={"temp_directory": f"{folder}/spilled"})
    try:
        for setting in _SETTINGS:
            engine.execute(f"SET {setting}")
        yield engine
    finally:
        engine.close()


def _tables_of(engine: duckdb.DuckDBPyConnection, text: str) -> list[TableName]:
    """Return the (database, table) that a query names, as it spells them.

    Raises:
        QueryError: the text is not one query.
    """
    try:
        statements = engine.extract_statements(text)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise QueryError("not a query: expected one SELECT")
        names = engine.get_table_names(text, qualified=True)
    except duckdb.Error as error:
        raise QueryError(f"not a query: {_said(error)}") from None
    tables: set[TableName] = set()
    for name in names:
        parts = _NAMED.fullmatch(name)
        if parts is not None and parts[2] is not None:
            tables.add((_unquoted(parts[1]), _unquoted(parts[2])))
    return sorted(tables)


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def _chosen(
    wanted: Sequence[TableName], selects: Mapping[TableName, MakeSelect]
) -> Iterator[tuple[TableName, MakeSelect]]:
    """Yield the tables that a query names; the engine reports unknown ones."""
    folded: dict[TableName, list[TableName]] = {}
    for database, table in selects:
        folded.setdefault((database.lower(), table.lower()), []).append((database, table))
    chosen: dict[TableName, TableName] = {}
    for database, table in wanted:
        key = (database.lower(), table.lower())
        candidates = folded.get(key, [])
        if len(candidates) > 1:
            same = ", ".join(joined_name(*name) for name in candidates)
            candidates = [name for name in candidates if name == (database, table)]
            if not candidates:
                raise QueryError(
                    f"{joined_name(database, table)} may be one of {same}: write the exact name"
                )
        for name in candidates:
            other = chosen.setdefault(key, name)
            if other != name:
                raise QueryError(
                    f"{joined_name(*other)} and {joined_name(*name)} differ only by case: a query "
                    "can read one of them"
                )
    for name in chosen.values():
        yield name, selects[name]


def deleted_lines(
    lake: Lake, cut: Cut, name: TableName, *, as_of: int | None = None, limit: int | None = None
) -> Iterator[str]:
    """Yield the newest version of every row that a table ever had, as JSON in canonical text.

    Each has, by the names of `HistoryLayout`, when and why it was deleted; NULL if it was not. They
    are those as of a TSO, or of the newest cut, and `limit` at most.

    Raises:
        NotFoundError: there is no such table, no history of it is kept, or the history lacks rows
            as of then.
        LakeDamagedError: the history is broken.
        QueryError: the engine cannot answer, for example because the disk is full.
    """
    mirror = require_history(lake.paths, cut, *name)
    if as_of is not None:
        require_known(lake, cut, mirror, as_of)
    schema, hidden = mirror.table_schema, frozenset(mirror.hidden)
    layout = HistoryLayout(schema=schema)
    added = [layout.deleted_at, layout.ended_by]
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ticdc-sql-") as folder,
            _connection(folder) as engine,
            damage_told(lake.paths),
            _files_read(lake.paths),
        ):
            source = _stored(engine, Path(folder), *mirror.history_at(lake.paths))
            text = with_deleted_sql(schema, frozenset(), source, as_of=as_of, dialect=DUCKDB)
            relation = engine.sql(text if limit is None else f"{text} LIMIT {limit}")
            for batch in _batches(relation.to_arrow_reader(_ROWS_AT_ONCE)):
                rows = shown_rows(batch, schema, hidden, lake.changefeed.timezone)
                for row, ended in zip(rows, batch.select(added).to_pylist(), strict=True):
                    at, by = ended.values()
                    more = {layout.deleted_at: None if at is None else str(at), layout.ended_by: by}
                    yield orjson.dumps(row | more).decode()
    except duckdb.Error as error:
        raise QueryError(f"{joined_name(*name)}: {_said(error)}") from None


# Tables -----------------------------------------------------------------------------------------


def _stored(engine: duckdb.DuckDBPyConnection, folder: Path, table: AnyPath, version: int) -> str:
    """Return what a query reads a version of a table from."""
    unread = dataset_as_stored(table, version)
    if unread is None:
        return _copied(engine, folder, rows_as_stored(table, version))
    return _registered(engine, unread, unread.schema.names)


def _folded(engine: duckdb.DuckDBPyConnection, folder: Path, rows: TableRows) -> str:
    """Return what a query reads the rows of a table at a moment from."""
    return _copied(engine, folder, rows.stored())


def _copied(engine: duckdb.DuckDBPyConnection, folder: Path, rows: Rows) -> str:
    """Copy rows into files for the engine, if its files have deleted rows or other column names."""
    if rows.table is not None:
        return _registered(engine, rows.table, rows.schema.names)
    names = numbered_names(rows.schema)
    place = folder / f"{uuid4().hex}.parquet"
    schema = pa.schema(
        [item.with_name(name) for item, name in zip(rows.schema, names, strict=True)]
    )
    with pq.ParquetWriter(place, schema) as writer:
        for batch in rows.read():
            writer.write_batch(batch.rename_columns(names))
    return _registered(engine, ds.dataset(place, format="parquet"), rows.schema.names)


def _registered(
    engine: duckdb.DuckDBPyConnection, rows: pa.Table | ds.Dataset, names: Sequence[str]
) -> str:
    """Give the engine rows; return the relation that has their columns by these names."""
    source = f"ticdc_rows_{uuid4().hex}"
    engine.register(source, rows)
    pairs = zip(rows.schema.names, names, strict=True)
    shown = (f"{DUCKDB.quoted(view)} AS {DUCKDB.quoted(name)}" for view, name in pairs)
    return f"(SELECT {', '.join(shown)} FROM {source})"


def _create(engine: duckdb.DuckDBPyConnection, name: TableName, select: str) -> None:
    database, table = (DUCKDB.quoted(part) for part in name)
    # By its whole name: `system` and `temp` are databases of the engine.
    place = f"{_CATALOG}.{database}"
    try:
        engine.execute(f"CREATE SCHEMA IF NOT EXISTS {place}")
        engine.execute(f"CREATE VIEW {place}.{table} AS {select}")
    except duckdb.Error as error:
        raise QueryError(f"{joined_name(*name)}: {_said(error)}") from None


# Results ----------------------------------------------------------------------------------------


def _as_text(number: int, kind: str) -> str:
    if kind == "BLOB":
        return f"'0x' || lower(hex(#{number}))"
    if kind == "TIMESTAMP WITH TIME ZONE":
        return f"CAST(#{number} AT TIME ZONE 'UTC' AS VARCHAR)"
    return f"CAST(#{number} AS VARCHAR)"


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Sequence[str | None]]:
    for batch in _batches(batches):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except (OSError, pa.ArrowException) as error:
        # Arrow's words for an error of the engine that comes after the first rows.
        raise duckdb.IOException(str(error)) from error


def _sentence(
    error: duckdb.Error, wanted: Sequence[TableName], tables: Mapping[TableName, object]
) -> str:
    """Return what is wrong with a query; of a table that is not there, the tables that are."""
    said = _said(error)
    if not isinstance(error, duckdb.CatalogException | duckdb.BinderException):
        return said
    there = {(database.lower(), table.lower()) for database, table in tables}
    missing = [name for name in wanted if (name[0].lower(), name[1].lower()) not in there]
    unknown = _UNKNOWN.search(said)
    if unknown is None:
        return said
    names = [joined_name(*name) for name in missing if unknown[1].lower() in map(str.lower, name)]
    return no_such_table(names[0] if names else unknown[1], tables)


_UNKNOWN = re.compile(
    r"""(?:Table with name|[Ss]chema(?: with name)?) "?([^"\s]+)"? does not exist"""
)


def _said(error: duckdb.Error) -> str:
    """Return what the engine says, without its guesses and the drawing of where in the text."""
    text = re.split("\n\nLINE |\nDid you mean|\n\nPossible solutions", str(error))[0]
    return " ".join(text.split())
