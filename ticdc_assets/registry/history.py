"""Schema history: every schema version of every table, and every DDL, each kept once.

In: bootstraps and DDL events with the coordinates of the record they came in. Out: `SchemaHistory`:
schemas by exact (database, table, version), DDL in their order in time, and the conflicts, that is,
two different structures claimed for one version.

Adding is idempotent and does not depend on the order of arrival: the copies of one DDL on several
partitions, replays and repeated bootstraps leave the history as it was. A conflicting schema is
reported and never replaces the registered one; (source, topic, partition, offset), not arrival,
decides which of two is first, so that a rebuild gives the same answer.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import TypeAlias

from ticdc_assets.model.events import SNAPSHOT_DDL, DdlEvent
from ticdc_assets.model.mysql_types import CLOCK_LENGTHS, fractional_digits
from ticdc_assets.model.schemas import NO_TABLE_ID, ColumnSchema, TableSchema
from ticdc_assets.registry.ddl.reader import parse_ddl_script
from ticdc_assets.registry.ddl.statement import (
    DdlAction,
    DdlKind,
    DdlStatement,
    PartitionAction,
    PartitionChange,
)

Name: TypeAlias = tuple[str, str]
"""(database, table)."""

SchemaKey: TypeAlias = tuple[str, str, int]
"""(database, table, version): how a row change cites its schema."""


class SchemaSource(StrEnum):
    """Where a schema was read, best first."""

    DDL = "DDL tableSchema"
    PRE_DDL = "DDL preTableSchema"
    BOOTSTRAP = "BOOTSTRAP"
    EXCHANGE = "EXCHANGE PARTITION"
    """The other table's schema, under the divided one's version, which its rows cite since."""
    SNAPSHOT = "snapshot"
    """The CREATE TABLE of an export, at its TSO."""
    TEXT = "DDL text"
    """Inferred: no message sent it, the statement's text has it."""
    ROWS = "rows"
    """Inferred from the columns of rows, where no text is known."""


INFERRED_SOURCES = frozenset({SchemaSource.TEXT, SchemaSource.ROWS})


_SOURCE_RANK = {source: rank for rank, source in enumerate(SchemaSource)}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Coordinates:
    """Where an event was: topic, partition, offset, and its index in the record."""

    topic: str
    partition: int
    offset: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """One schema as registered.

    Attributes:
        coordinates: where it was first seen (lowest coordinates of the best source).
        sql: the DDL's text, None for a bootstrap.
        commit_ts: the DDL's commit ts, None for a bootstrap (it has none).
    """

    schema: TableSchema
    source: SchemaSource
    coordinates: Coordinates
    sql: str | None = None
    commit_ts: int | None = None

    @classmethod
    def of(
        cls, event: DdlEvent, schema: TableSchema, source: SchemaSource, coordinates: Coordinates
    ) -> "SchemaVersion":
        """Return a schema of a DDL."""
        return cls(
            schema=schema,
            source=source,
            coordinates=coordinates,
            sql=event.sql,
            commit_ts=event.commit_ts,
        )

    @property
    def key(self) -> SchemaKey:
        """(database, table, version)."""
        return (self.schema.database, self.schema.table, self.schema.version)

    @property
    def rank(self) -> tuple[int, int, Coordinates]:
        """Orders two structures claimed for one version: the lower rank wins."""
        return (_SOURCE_RANK[self.source], self.commit_ts or 0, self.coordinates)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaConflict:
    """A second structure claimed for a version that has one already."""

    registered: SchemaVersion
    claimed: SchemaVersion


@dataclass(frozen=True, kw_only=True)
class RegisteredDdl:
    """One DDL, with all of its copies.

    A DDL is kept as it was sent. `registry.catalog` divides it into parts: one for each table that
    its text concerns, with the schemas of that table before and after.

    Attributes:
        event: the event as sent; for a part, the schemas and the name of its table.
        coordinates: of its copy in the lowest (topic, partition, offset).
        notes: what was not understood of its text, where there is only the text.
        kind: for a part, what it means for its table.
        of_table: for a part, the statement about its table.
        step: for a part, its place among the parts of its commit ts, in the order of their effect.
    """

    event: DdlEvent
    coordinates: Coordinates
    copies: frozenset[tuple[str, int]]
    notes: tuple[str, ...] = ()
    kind: DdlKind | None = None
    of_table: DdlStatement | None = None
    step: int = 0

    @property
    def identity(self) -> tuple[int, str, str, str, int]:
        """(commit ts, SQL, database, table, step): equal for copies of one DDL."""
        return _identity(self.event, self.step)

    @cached_property
    def statement(self) -> DdlStatement:
        """The statement of the text, for a part that of its table."""
        if self.of_table is not None:
            return self.of_table
        return next(iter(_parse(self.event.sql)), _WITHOUT_TEXT)

    @property
    def statements_beyond_schemas(self) -> tuple[DdlStatement, ...]:
        """Each statement of the text, without what the schemas sent with it say.

        Nearly every CREATE TABLE says nothing more, and a quick check shows it: the history of
        thousands of tables has as many of them.
        """
        event = self.event
        if self.of_table is not None:
            return (self.of_table,)
        if event.schema is not None and event.pre_schema is None and _is_all_in_schema(event.sql):
            return (DdlStatement(action=DdlAction.CREATE_TABLE),)
        return _parse(event.sql) or (_WITHOUT_TEXT,)

    @property
    def order(self) -> tuple[int, bool, int, Coordinates]:
        """Place in time: commit ts, the order of effect, the offset in the lowest partition.

        An export includes the DDL at its TSO.
        """
        return (self.event.commit_ts, is_snapshot(self.event), self.step, self.coordinates)


_parse = lru_cache(maxsize=4096)(parse_ddl_script)
_WITHOUT_TEXT = DdlStatement(action=DdlAction.UNKNOWN, unparsed="")

_CREATES_TABLE = re.compile(r"\s*CREATE\s+TABLE\b", re.IGNORECASE)
# A digit may come before a word: the version in an executable comment.
_SAYS_MORE = re.compile(
    r"(?<![A-Za-z_$])(?:PARTITION|LIKE|AS|WHERE)(?![\w$])|;\s*[^\s;]", re.IGNORECASE
)
"""Words of a text that says more.

A word before partitions, the table to be like, a generated column's expression, the condition of a
partial index; a statement.
"""


def _is_all_in_schema(sql: str) -> bool:
    """Return whether a text is a CREATE TABLE whose schema has everything that matters."""
    return bool(_CREATES_TABLE.match(sql)) and not _SAYS_MORE.search(sql)


def _identity(event: DdlEvent, step: int = 0) -> tuple[int, str, str, str, int]:
    return (event.commit_ts, event.sql, event.database, event.table, step)


def is_snapshot(event: DdlEvent) -> bool:
    """Return whether `event` says that a table's rows are an export's from then on."""
    return event.ddl_type == SNAPSHOT_DDL


def named_by_text(schema: TableSchema, statement: DdlStatement) -> TableSchema:
    """Return the schema that was sent with a statement under the name in its text.

    pingcap/ticdc sends the partitioned table of an EXCHANGE PARTITION under the database of the
    other table (`buildDDLEventForExchangeTablePartition` in
    logservice/schemastore/persist_storage_ddl_handlers.go).
    """
    database, table = statement.database, statement.table
    is_other = (
        database is not None
        and table is not None
        and exchange_of(statement) is not None
        and schema.table.lower() == table.lower()
        and schema.database.lower() != database.lower()
    )
    return replace(schema, database=database) if is_other else schema


def _exchanged(event: DdlEvent, statement: DdlStatement) -> TableSchema | None:
    """Return the schema that rows of a table cite after an EXCHANGE PARTITION with it.

    pingcap/ticdc sends them with the columns of their own table, whose names may differ by case and
    whose defaults may be others, and the version of the partitioned table. The BOOTSTRAP of that
    version is not sent before the rows if their table has an id that it had before.
    """
    if event.schema is None or event.pre_schema is None or exchange_of(statement) is None:
        return None
    return replace(event.pre_schema, version=event.schema.version, table_id=NO_TABLE_ID)


def exchange_of(statement: DdlStatement) -> PartitionChange | None:
    """Return the EXCHANGE PARTITION of a statement, None if there is none."""
    parts = (change.partition for change in statement.changes)
    return next(
        (item for item in parts if item is not None and item.action is PartitionAction.EXCHANGE),
        None,
    )


_VIEW_ACTIONS = frozenset({DdlAction.CREATE_VIEW, DdlAction.DROP_VIEW})


def same_structure(left: TableSchema, right: TableSchema) -> bool:
    """Whether two schemas of one version agree.

    The table id may differ (TRUNCATE keeps the version). The `nullable` of an index is ignored:
    TiCDC computes it wrongly from the second encoding on (golden/QUIRKS.md B11). So are `virtual`
    of a column and `partial` of an index, which no message says. The fraction of a time type counts
    as it is meant: in Avro the new TiCDC sends it for TIMESTAMP, and the old one for none.
    """

    def compared(column: ColumnSchema) -> ColumnSchema:
        column = replace(column, virtual=False)
        if column.mysql_type not in CLOCK_LENGTHS:
            return column
        return replace(column, decimal=fractional_digits(column))

    def shape(schema: TableSchema) -> tuple[object, ...]:
        return (
            frozenset(map(compared, schema.columns)),
            tuple(replace(index, nullable=False, partial=False) for index in schema.indexes),
        )

    return shape(left) == shape(right)


class SchemaHistory:
    """All schema versions, DDL and conflicts of one changefeed."""

    def __init__(self) -> None:
        self._versions: dict[SchemaKey, SchemaVersion] = {}
        # A key of each version by its name without case.
        self._spellings: dict[SchemaKey, SchemaKey] = {}
        # The keys of each version by the name of its table without case, in any database.
        self._in_databases: dict[tuple[str, int], list[SchemaKey]] = {}
        self._conflicts: dict[tuple[SchemaKey, str], SchemaConflict] = {}
        self._ddls: dict[tuple[int, str, str, str, int], RegisteredDdl] = {}
        self._in_order: list[RegisteredDdl] = []
        self._observed: Mapping[tuple[str, str, int], TableSchema] = {}

    def add_schema(self, version: SchemaVersion) -> bool:
        """Add one schema; return whether the history changed."""
        present = self._versions.get(version.key)
        if present is None:
            self._put(version)
            return True
        better = version.rank < present.rank
        if same_structure(present.schema, version.schema):
            if better:
                self._versions[version.key] = version
            return better
        # The better source stays registered, so that the outcome does not depend on arrival.
        winner, loser = (version, present) if better else (present, version)
        self._versions[version.key] = winner
        label = (version.key, repr(loser.schema))
        changed = better or label not in self._conflicts
        self._conflicts[label] = SchemaConflict(registered=winner, claimed=loser)
        return changed

    def add_bootstrap(self, schema: TableSchema, coordinates: Coordinates) -> bool:
        """Add the schema of a bootstrap; return whether the history changed."""
        source = SchemaSource.BOOTSTRAP
        return self.add_schema(SchemaVersion(schema=schema, source=source, coordinates=coordinates))

    def add_ddl(self, event: DdlEvent, coordinates: Coordinates) -> bool:
        """Add one copy of a DDL and the schemas it carries; return whether anything changed."""
        identity = _identity(event)
        place = (coordinates.topic, coordinates.partition)
        present = self._ddls.get(identity)
        if present is None:
            entry = RegisteredDdl(event=event, coordinates=coordinates, copies=frozenset({place}))
        else:
            # A table that is seeded twice at one TSO has the rows of the later seed.
            first = (max if is_snapshot(event) else min)(coordinates, present.coordinates)
            entry = RegisteredDdl(
                event=event if first == coordinates else present.event,
                coordinates=first,
                copies=present.copies | {place},
            )
        changed = present is None or entry != present
        self._ddls[identity] = entry
        self._in_order.clear()
        statement = entry.statements_beyond_schemas[0]
        if statement.action in _VIEW_ACTIONS:
            return changed
        schema_source = SchemaSource.SNAPSHOT if is_snapshot(event) else SchemaSource.DDL
        for schema, source in (
            (event.schema and named_by_text(event.schema, statement), schema_source),
            (event.pre_schema, SchemaSource.PRE_DDL),
            (_exchanged(event, statement), SchemaSource.EXCHANGE),
        ):
            if schema is not None:
                changed |= self.add_schema(SchemaVersion.of(event, schema, source, coordinates))
        return changed

    def _put(self, version: SchemaVersion) -> None:
        self._versions[version.key] = version
        key = (*folded(version.schema.name), version.key[2])
        self._spellings[key] = min(version.key, self._spellings.get(key, version.key))
        self._in_databases.setdefault(key[1:], []).append(version.key)

    def at(self, database: str, table: str, version: int) -> TableSchema | None:
        """Return the schema of (database, table, version), or None: such rows are held.

        A schema under the same name in another case counts if there is none under exactly this one.
        """
        entry = self._versions.get((database, table, version))
        if entry is None:
            key = self._spellings.get((*folded((database, table)), version))
            entry = None if key is None else self._versions[key]
        return entry.schema if entry else None

    def in_another_database(self, table: str, version: int) -> TableSchema | None:
        """Return the schema of this version of a table of this name, if one table has it, or None.

        After a RENAME to another database TiCDC goes on sending bootstraps with the database before
        it (`update` in pkg/sink/codec/bootstraper.go): rows cite a name that none of them has. Rows
        of partitioned tables have the ids of partitions, so the name of the table decides.
        """
        keys = self._in_databases.get((table.lower(), version), ())
        schemas = [self._versions[key].schema for key in sorted(keys)]
        ids = {schema.table_id for schema in schemas if schema.has_id}
        return next((item for item in schemas if item.has_id), None) if len(ids) == 1 else None

    def observed(self, database: str, table: str, ts: int) -> TableSchema | None:
        """Return the schema that the rows of (database, table) prove from commit ts `ts` on."""
        return self._observed.get((*folded((database, table)), ts))

    def with_schemas(
        self,
        versions: Iterable[SchemaVersion],
        ddls: Iterable[RegisteredDdl],
        observed: Mapping[tuple[str, str, int], TableSchema] | None = None,
    ) -> "SchemaHistory":
        """Return this history with other schemas and DDL.

        Of several schemas at one version the last counts. `observed` are schemas that rows prove,
        by (database, table, lowest commit ts), names in lower case; the same as here if None.
        """
        result = SchemaHistory()
        result.restore(versions, ddls, self.conflicts)
        result._observed = self._observed if observed is None else observed
        return result

    def ddl(self, event: DdlEvent) -> RegisteredDdl | None:
        """Return the registered DDL of which `event` is a copy."""
        return self._ddls.get(_identity(event))

    @property
    def versions(self) -> list[SchemaVersion]:
        """All schema versions by (database, table, version)."""
        return [self._versions[key] for key in sorted(self._versions)]

    @property
    def conflicts(self) -> list[SchemaConflict]:
        """All conflicts, in a stable order."""
        return [self._conflicts[key] for key in sorted(self._conflicts)]

    @property
    def ddls(self) -> list[RegisteredDdl]:
        """All DDL in their order in time.

        Those of one commit ts are ordered by their coordinates, which means nothing across topics;
        their parts in a completed history are in the order of their effect.
        """
        if len(self._in_order) != len(self._ddls):
            self._in_order = sorted(self._ddls.values(), key=lambda ddl: ddl.order)
        return list(self._in_order)

    def restore(
        self,
        versions: Iterable[SchemaVersion],
        ddls: Iterable[RegisteredDdl],
        conflicts: Iterable[SchemaConflict],
    ) -> None:
        """Fill the history from the stored content of another one."""
        for version in versions:
            self._put(version)
        for ddl in ddls:
            self._ddls[ddl.identity] = ddl
        self._in_order.clear()
        for conflict in conflicts:
            self._conflicts[(conflict.claimed.key, repr(conflict.claimed.schema))] = conflict


def of_one_partition(ddls: Iterable[RegisteredDdl]) -> bool:
    """Whether the offsets of `ddls` show their order."""
    return len({(ddl.coordinates.topic, ddl.coordinates.partition) for ddl in ddls}) == 1


def folded(name: Name) -> Name:
    """Return the name of a table without case, as upstream compares it."""
    return (name[0].lower(), name[1].lower())
