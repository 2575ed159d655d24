"""SQL over mirrors: a view for every table of the newest cut, and single queries as of any TSO.

In: the newest cut. Out: for each mirror, a view `database.table` in a Spark catalog that reads the
Delta version that the cut names, whatever a run is writing; if a history is kept, also
`table__history` (every version) and `table__with_deleted` (the newest version of every row that
ever existed). Virtual generated columns, which TiCDC never sends, are left out.

Creating the views again moves them, one after the other, to a newer cut and drops those of dropped
tables. Views made here carry the changefeed's name as a property; others are never replaced. Names
come from upstream and are quoted. A name that the catalog refuses (Spark's own only takes A-Z a-z
0-9 and _, and no two names that differ only by case) is listed in `Views.refused`.

`query` creates only the views that one query needs, and drops them afterwards.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.base.names import joined_name
from ticdc_assets.changelog.plan import TableName
from ticdc_assets.config import Settings, load_settings
from ticdc_assets.delta.lake import Lake, paths_of
from ticdc_assets.log.cuts import Cut, MirrorCut, require_cut
from ticdc_assets.log.damage import damage_told
from ticdc_assets.mirrors.versions import relation_of
from ticdc_assets.observe.wording import listed
from ticdc_assets.reading.as_of import AsOf, TableRows
from ticdc_assets.reading.histories import SPARK, SqlDialect, with_deleted_sql
from ticdc_assets.reading.mirrors import notes_of
from ticdc_assets.rows.history_layout import HistoryLayout
from ticdc_assets.rows.mirror_rows import MirrorLayout
from ticdc_assets.spark.driver import plan_of
from ticdc_assets.spark.frames import quoted
from ticdc_assets.spark.scratch import READING, Scratch
from ticdc_assets.spark.session import functions
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath

HISTORY = "__history"
"""Suffix of the view of a table's history."""

WITH_DELETED = "__with_deleted"
"""Suffix of the view of a table with its deleted rows."""

_OWNER = "ticdc.changefeed"


class QueryError(TicdcError):
    """A text that is not a query, or a query that cannot run; the message is for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedView:
    """A view that could not be created.

    Attributes:
        database: database of the table.
        name: name that the view would have had.
        reason: why, in one sentence.
    """

    database: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """The views of a cut.

    Attributes:
        cut: the cut they read.
        created: their (database, name) in the catalog.
        dropped: those of tables that are gone, which were dropped.
        refused: those that could not be created.
    """

    cut: Cut
    created: tuple[tuple[str, str], ...]
    dropped: tuple[tuple[str, str], ...]
    refused: tuple[RefusedView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The result of a query.

    Attributes:
        columns: names of the columns, which may repeat.
        rows: the rows, each value as text or None; binary as 0x and hex.
        notes: why the tables that the query reads may differ from their source, each a sentence.
    """

    columns: Sequence[str]
    rows: Iterator[Sequence[str | None]]
    notes: Sequence[str]


class Select(NamedTuple):
    """The SELECT that is a view, and why its rows may differ from the source, each a sentence."""

    text: str
    notes: Sequence[str]


MakeSelect: TypeAlias = Callable[[], Select]
"""Makes the SELECT of a view, and what it reads."""

_Layout: TypeAlias = type[MirrorLayout] | type[HistoryLayout]


def views_of(
    paths: LakePaths,
    cut: Cut,
    relation: Callable[[AnyPath, int], str],
    dialect: SqlDialect = SPARK,
) -> Iterator[tuple[TableName, MakeSelect]]:
    """Yield the view of each table of a cut, and those of its history.

    Args:
        paths: the changefeed's tables.
        cut: the cut.
        relation: returns what a query reads a version of a Delta table from.
        dialect: the engine that the views are for.
    """

    def rows(mirror: MirrorCut, layout: _Layout, table: AnyPath, version: int) -> Select:
        names = layout(schema=mirror.table_schema).names
        shown = ", ".join(dialect.quoted(name) for name in names if name not in mirror.hidden)
        return Select(f"SELECT {shown} FROM {relation(table, version)}", notes_of(cut, mirror))

    def with_deleted(mirror: MirrorCut) -> Select:
        schema, source = mirror.table_schema, relation(*mirror.history_at(paths))
        text = with_deleted_sql(schema, frozenset(mirror.hidden), source, dialect=dialect)
        return Select(text, notes_of(cut, mirror))

    for mirror in cut.mirrors:
        current = partial(rows, mirror, MirrorLayout, *mirror.at(paths))
        yield (mirror.database, mirror.table), current
    # A table may have the name of another one's history; the table comes first.
    for mirror in cut.mirrors:
        if mirror.history_version is not None:
            history = partial(rows, mirror, HistoryLayout, *mirror.history_at(paths))
            yield (mirror.database, mirror.table + HISTORY), history
            yield (mirror.database, mirror.table + WITH_DELETED), partial(with_deleted, mirror)


def views_as_of(
    moment: AsOf, relation: Callable[[TableRows], str], dialect: SqlDialect = SPARK
) -> Iterator[tuple[TableName, MakeSelect]]:
    """Yield the view of each table as of a TSO; see `views_of`.

    Making that of a table whose rows are not known then raises NotFoundError, which says why.
    """

    def rows(database: str, table: str) -> Select:
        table_rows = moment.table(database, table)
        shown = ", ".join(map(dialect.quoted, table_rows.shown))
        return Select(f"SELECT {shown} FROM {relation(table_rows)}", table_rows.notes)

    exported = (name for name, _ in moment.plan.exported_above)
    for name in dict.fromkeys((*moment.names, *exported)):
        yield name, partial(rows, *name)


def create_views(
    spark: SparkSession,
    changefeed: str,
    *,
    settings: Settings | None = None,
    catalog: str | None = None,
    prefix: str = "",
) -> Views:
    """Create the views of the newest cut, or move them to it.

    Args:
        spark: the session.
        changefeed: name of the changefeed.
        settings: the configuration; as the command line reads it if None.
        catalog: the catalog to create them in; the session's current one if None.
        prefix: the start of the databases' names, which keeps changefeeds apart.

    Raises:
        NotFoundError: there is no such changefeed, or it has no published cut yet.
    """
    settings = settings or load_settings()
    settings.changefeed(changefeed)
    paths = paths_of(settings.lake, changefeed)
    cut = require_cut(paths)
    catalog = catalog or str(spark.catalog.currentCatalog())
    place = _Place(spark, catalog, changefeed)
    created: dict[TableName, TableName] = {}
    refused: list[RefusedView] = []
    for (database, name), make in views_of(paths, cut, relation_of):
        key = (prefix.lower() + database.lower(), name.lower())
        if key in created:
            reason = f"{'.'.join(created[key])} has the same name except for case"
        else:
            reason = place.create(prefix + database, name, make().text)
        if reason is None:
            created[key] = (database, name)
        else:
            refused.append(RefusedView(database=database, name=name, reason=reason))
    return Views(
        cut=cut,
        created=tuple((prefix + database, name) for database, name in created.values()),
        dropped=place.drop_others(prefix, set(created)),
        refused=tuple(refused),
    )


class _Place:
    """A catalog with the views of one changefeed.

    Args:
        spark: the session.
        catalog: the catalog.
        changefeed: name of the changefeed.
        location: where the databases of one query are; None if the views stay.
    """

    def __init__(
        self,
        spark: SparkSession,
        catalog: str,
        changefeed: str,
        *,
        location: AnyPath | None = None,
    ) -> None:
        self._spark = spark
        self._catalog = catalog
        self._changefeed = changefeed
        self._location = location
        self._databases: dict[str, str | None] = {}
        self.made: list[str] = []
        self.notes: dict[str, None] = {}

    def create(self, database: str, view: str, select: str) -> str | None:
        """Create or replace a view; return the reason if it could not."""
        if database not in self._databases:
            self._databases[database] = self._create_database(database)
        if self._databases[database] is not None:
            return self._databases[database]
        name = self._name(database, view)

        def create() -> str | None:
            if self._spark.catalog.tableExists(name):
                if self._location is not None:
                    return (
                        "the catalog already has this name, and a query replaces no view: read it "
                        "by Spark itself, or leave out --engine spark"
                    )
                if not self._is_ours(name):
                    return "something that is not a view of this changefeed already has this name"
            self._spark.sql(
                f"CREATE OR REPLACE VIEW {name} TBLPROPERTIES "
                f"('{_OWNER}' = '{self._changefeed}') AS {select}"
            )
            return None

        return _reason(create)

    def drop_others(self, prefix: str, wanted: set[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Drop the changefeed's views that are not in `wanted`; return them."""
        dropped: list[tuple[str, str]] = []
        for row in self._spark.sql(f"SHOW DATABASES IN {quoted(self._catalog)}").collect():
            database = row[0]
            if not database.lower().startswith(prefix.lower()):
                continue
            views = self._spark.sql(f"SHOW VIEWS IN {self._name(database)}").collect()
            for view in views:
                name = self._name(database, view["viewName"])
                key = (database.lower(), view["viewName"].lower())
                if not view["isTemporary"] and key not in wanted and self._is_ours(name):
                    self._spark.sql(f"DROP VIEW {name}")
                    dropped.append((database, view["viewName"]))
        return tuple(dropped)

    def remove(self) -> None:
        """Remove the databases that this object created, with their contents."""
        for database in self.made:
            self._spark.sql(f"DROP DATABASE IF EXISTS {self._name(database)} CASCADE")

    def _create_database(self, database: str) -> str | None:
        name = self._name(database)

        def create() -> None:
            if self._spark.catalog.databaseExists(name):
                return
            where = ""
            if self._location is not None:
                where = f" LOCATION {SPARK.literal(str(self._location))}"
            self._spark.sql(f"CREATE DATABASE {name}{where}")
            self.made.append(database)

        return _reason(create)

    def _is_ours(self, name: str) -> bool:
        properties = self._spark.sql(f"SHOW TBLPROPERTIES {name}").collect()
        return (_OWNER, self._changefeed) in {(row[0], row[1]) for row in properties}

    def _name(self, *parts: str) -> str:
        return ".".join(quoted(part) for part in (self._catalog, *parts))


def _reason(create: Callable[[], str | None]) -> str | None:
    """Return why a catalog has no new view or database; None if it has."""
    try:
        return create()
    except PySparkException as error:
        return _sentence(error)
    except Py4JJavaError as error:
        return str(error.java_exception).splitlines()[0]


def _sentence(error: object) -> str:
    return str(error).strip().splitlines()[0].partition(" SQLSTATE")[0]


def _failure(error: PySparkException | Py4JJavaError) -> str:
    """Return why a query failed: what Java threw first is the cause of all else that it threw."""
    if isinstance(error, PySparkException):
        return _sentence(error)
    thrown = error.java_exception
    while thrown.getCause() is not None:
        thrown = thrown.getCause()
    return _sentence(thrown.getMessage() or thrown.toString())


def no_such_table(name: str, names: Iterable[tuple[str, str]]) -> str:
    """Return that a query names a table that is not there, and the tables that are.

    Args:
        name: the table, as the query spells it.
        names: (database, table) of each table of the query's moment; histories are not listed.
    """
    tables = [
        joined_name(database, table)
        for database, table in names
        if not table.endswith((HISTORY, WITH_DELETED))
    ]
    return f"no table {name}; the tables are: {listed(tables) or 'none'}"


# Single queries ---------------------------------------------------------------------------------


@contextmanager
def query(lake: Lake, text: str, *, as_of: int | None = None) -> Iterator[QueryResult]:
    """Yield the result of one query over the views of a changefeed.

    Args:
        lake: the changefeed's lake.
        text: the query.
        as_of: TSO that the tables are read as of; the newest cut if None.

    Raises:
        QueryError: the text is not a query, names something that does not exist, or fails.
        NotFoundError: nothing is published yet, or nothing is known at that TSO.
        LakeDamagedError: a table of the query is broken.
    """
    names = require_query(lake.spark, text)
    session = lake.spark.newSession()
    lake = lake.using(session)
    cut = require_cut(lake.paths)
    # Next to the tables, where workers of a cluster see it.
    with closing(Scratch(lake.paths, READING)) as scratch:
        folder = scratch.folder()
        catalog = str(session.catalog.currentCatalog())
        place = _Place(session, catalog, lake.changefeed.name, location=folder)
        views = (
            # The first of a name counts.
            reversed(list(views_of(lake.paths, cut, relation_of)))
            if as_of is None
            else views_as_of(AsOf(lake, as_of), partial(_written, folder))
        )
        selects = {(name[0].lower(), name[1].lower()): (name, make) for name, make in views}
        try:
            viewed = [key for key in selects if _is_named(key, names)]
            for key in viewed:
                _make(place, *selects.pop(key))
            # Spark runs the query when its rows are read.
            with damage_told(lake.paths):
                frame = _analysed(session, place, text, selects, [*selects, *viewed])
                yield QueryResult(
                    columns=frame.columns, rows=_text_rows(frame), notes=list(place.notes)
                )
        except (PySparkException, Py4JJavaError) as error:
            raise QueryError(_failure(error)) from None
        finally:
            place.remove()


def _written(folder: AnyPath, rows: TableRows) -> str:
    """Write rows into a table for this query alone, with any column names; return the relation."""
    path = folder / uuid4().hex
    writer = rows.frame.write.format("delta").option("delta.columnMapping.mode", "name")
    writer.save(str(path))
    return f"delta.{quoted(str(path))}"


def _analysed(
    session: SparkSession,
    place: _Place,
    text: str,
    selects: dict[TableName, tuple[TableName, MakeSelect]],
    tables: list[TableName],
) -> DataFrame:
    """Return the query's result, once every table it names has its view."""
    while True:
        try:
            return session.sql(text)
        except AnalysisException as error:
            relation = None
            if error.getCondition() in {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"}:
                relation = (error.getMessageParameters() or {}).get("relationName")
            if relation is None:
                raise QueryError(_sentence(error)) from None
            for database, table in selects:
                if relation.lower().endswith(f"{quoted(database)}.{quoted(table)}"):
                    # Each view is made once.
                    _make(place, *selects.pop((database, table)))
                    break
            else:
                raise QueryError(no_such_table(relation.replace("`", ""), sorted(tables))) from None


def _is_named(key: tuple[str, str], names: list[str]) -> bool:
    place = f"{key[0]}, {key[1]}]"
    return any(name == "[" + place or name.endswith(", " + place) for name in names)


def _make(place: _Place, name: TableName, make: MakeSelect) -> None:
    select = make()
    reason = place.create(*name, select.text)
    if reason is not None:
        raise QueryError(f"{'.'.join(name)}: {reason}")
    place.notes.update(dict.fromkeys(select.notes))


def _text_rows(frame: DataFrame) -> Iterator[list[str | None]]:
    """Yield the rows of a result as texts: as Spark prints a value, binary as 0x and hex."""
    F = functions(frame.sparkSession)
    numbered = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    texts = [
        F.concat(F.lit("0x"), F.lower(F.hex(field.name)))
        if isinstance(field.dataType, T.BinaryType)
        else F.col(field.name).cast("string")
        for field in numbered.schema.fields
    ]
    for row in numbered.select(*texts).toLocalIterator(prefetchPartitions=True):
        yield list(row)


_REFUSED_FUNCTIONS = frozenset({"reflect", "java_method", "try_reflect"})


def require_query(spark: SparkSession, text: str) -> list[str]:
    """Raise QueryError unless a text is one query by Spark's grammar, which only reads.

    The parser's rule for queries accepts no statement that changes something. Two parts of a query
    can: a program that rows are piped through, and a function that calls any Java method.

    Returns:
        The names it reads from, in lower case, each as `[part, part]`.
    """
    try:
        plan = plan_of(spark, text)
    except ParseException as error:
        raise QueryError(f"not a query: {_sentence(error)}") from None
    if plan is None:
        raise QueryError(
            "Spark Connect does not report what a query reads and changes before it runs; leave "
            "out --engine spark"
        )
    names: list[str] = []
    left: list[Any] = [json.loads(plan)]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left += node
        if not isinstance(node, dict):
            continue
        left += node.values()
        if str(node.get("class", "")).rpartition(".")[2] == "ScriptTransformation":
            raise QueryError("not a query that only reads: it runs a program")
        function = str(node.get("nameParts", "")).strip("[]").rpartition(",")[2].strip().lower()
        if function in _REFUSED_FUNCTIONS:
            raise QueryError(f"not a query that only reads: {function} calls any Java method")
        if "multipartIdentifier" in node:
            names.append(str(node["multipartIdentifier"]).lower())
    return names
