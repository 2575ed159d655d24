"""Schemas that no message sent: from DDL text, and from what rows say of their columns.

In: a `SchemaHistory` whose DDL carry no schemas (every format but Simple), and the shapes of the
rows that were seen, each with its lowest commit ts. Out: a new history in which each DDL carries
the schema before and after it, and each table that no CREATE tells of has the schema that its rows
show; all of them are marked by their source.

A row of these formats cites no schema version. It is read with the version in force at its commit
ts: the highest version below it. So a schema's version here is the commit ts of the DDL it came
from (TRUNCATE and RENAME keep it, as in TiDB), and a schema that only rows prove has a version just
below the first of them.

How it goes: DDL and first rows are walked in the order of time, with the tables as they are at each
moment. Text says more than rows do (labels, precisions, defaults), so a row's shape changes a
schema only where it contradicts it: then something was missed, and what the row proves is added.

Completing is a pure function of history and shapes, made anew whenever either grows; nothing of it
is kept, so late DDL and late rows need no correction afterwards.

Not handled: FLASHBACK DATABASE and FLASHBACK CLUSTER (their tables begin anew where rows are met).
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, TypeAlias

from ticdc_assets.registry.ddl_statement import DdlAction, DdlStatement
from ticdc_assets.registry.history import (
    Coordinates,
    RegisteredDdl,
    SchemaHistory,
    SchemaSource,
    SchemaVersion,
    Timeline,
    is_snapshot,
    of_one_partition,
    schema_in_force,
)
from ticdc_assets.registry.inferred_columns import (
    DATABASE_DEFAULTS,
    Defaults,
    database_defaults,
    table_defaults,
)
from ticdc_assets.registry.inferred_schemas import altered_schema, created_schema
from ticdc_assets.registry.renames import Rename, settle
from ticdc_assets.registry.row_shapes import fits, merged, schema_of_shape
from ticdc_assets.registry.virtual_columns import with_virtual_columns
from ticdc_assets.schemas import RowShape, TableSchema
from ticdc_assets.tso import MAX_TSO

Name: TypeAlias = tuple[str, str]
"""(database, table)."""

_ROWS = Coordinates(topic="", partition=-1, offset=-1, index=-1)
"""Where a schema is said to be from that no single record holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenShape:
    """A shape that rows of one table name had, and since when."""

    database: str
    table: str
    shape: RowShape
    min_ts: int

    @property
    def name(self) -> Name:
        """(database, table)."""
        return (self.database, self.table)


def complete(history: SchemaHistory, seen: Iterable[SeenShape], timezone: str) -> SchemaHistory:
    """Return `history` with what its messages lack: schemas, and which columns are virtual.

    Args:
        history: as registered; it is not changed.
        seen: shapes of rows, one for each (database, table, shape).
        timezone: the changefeed's time zone, for defaults of TIMESTAMP columns.
    """
    history = with_virtual_columns(history)
    shapes = list(seen)
    if not shapes and all(map(_needs_nothing, history.ddls)):
        return history
    return Catalog(timezone).walk(history, shapes)


@dataclass
class _Tables:
    """The tables of one moment, found by name without regard to case."""

    by_name: dict[Name, TableSchema] = field(default_factory=dict[Name, TableSchema])
    exact: dict[Name, Name] = field(default_factory=dict[Name, Name])

    def find(self, name: Name) -> TableSchema | None:
        exact = self.exact.get(_folded(name))
        return None if exact is None else self.by_name[exact]

    def put(self, schema: TableSchema) -> None:
        name = (schema.database, schema.table)
        self.take(name)
        self.by_name[name] = schema
        self.exact[_folded(name)] = name

    def take(self, name: Name) -> TableSchema | None:
        exact = self.exact.pop(_folded(name), None)
        return None if exact is None else self.by_name.pop(exact)


def _has_schemas(ddl: RegisteredDdl) -> bool:
    return ddl.event.schema is not None or ddl.event.pre_schema is not None


def _needs_nothing(ddl: RegisteredDdl) -> bool:
    """Return whether a DDL says all by itself; those of databases matter to texts alone."""
    return _has_schemas(ddl) or ddl.statement.action in _OF_DATABASES


_OF_DATABASES = frozenset(
    {DdlAction.CREATE_DATABASE, DdlAction.ALTER_DATABASE, DdlAction.DROP_DATABASE}
)


def _folded(name: Name) -> Name:
    return (name[0].lower(), name[1].lower())


_Action: TypeAlias = Callable[[RegisteredDdl, DdlStatement], "_Change"]
_Change: TypeAlias = tuple[TableSchema | None, TableSchema | None, tuple[str, ...]]
"""The schema before, the schema after, and what could not be understood."""

_NOTHING: Final[_Change] = (None, None, ())


class Catalog:
    """The tables of one moment and how they came to be, taken further in the order of time.

    Args:
        timezone: the changefeed's time zone, for defaults of TIMESTAMP columns.
    """

    def __init__(self, timezone: str) -> None:
        self._timezone = timezone
        self._tables = _Tables()
        self._dropped: list[TableSchema] = []
        self._freed: dict[Name, int] = {}
        # Character sets by database, in lower case, and by table id.
        self._defaults: dict[str, Defaults] = {}
        self._table_defaults: dict[int, Defaults] = {}
        self._ids: set[int] = set()
        self._observed: dict[tuple[str, str, int], TableSchema] = {}
        self._versions: list[SchemaVersion] = []
        self._timeline: Timeline = {}
        self._actions: Mapping[DdlAction, _Action] = {
            DdlAction.CREATE_TABLE: self._create,
            DdlAction.CREATE_TABLE_LIKE: self._create_like,
            DdlAction.DROP_TABLE: self._drop,
            DdlAction.TRUNCATE_TABLE: self._truncate,
            DdlAction.RENAME_TABLE: self._rename,
            DdlAction.ALTER_TABLE: self._alter,
            DdlAction.CREATE_INDEX: self._alter,
            DdlAction.DROP_INDEX: self._alter,
            DdlAction.RECOVER_TABLE: self._recover,
            DdlAction.FLASHBACK_TABLE: self._recover,
            DdlAction.CREATE_DATABASE: self._database,
            DdlAction.ALTER_DATABASE: self._database,
            DdlAction.DROP_DATABASE: self._drop_database,
        }
        # For a text that is not understood at all, what the message calls it.
        self._by_type: Mapping[str, _Action] = {
            "ERASE": self._drop,
            "TRUNCATE": self._truncate,
            "CREATE": self._create,
            "ALTER": self._alter,
        }

    def walk(self, history: SchemaHistory, seen: Iterable[SeenShape]) -> SchemaHistory:
        """Take in all of a history and the shapes of rows; return the completed history."""
        shapes = sorted(seen, key=lambda item: (item.min_ts, item.name, repr(item.shape)))
        completed: list[RegisteredDdl] = []
        met = 0
        for commit_ts, ddls in groupby(history.ddls, key=lambda ddl: ddl.event.commit_ts):
            end = met
            while end < len(shapes) and shapes[end].min_ts <= commit_ts:
                end += 1
            self.meet(shapes[met:end])
            met = end
            completed += self.apply(list(ddls))
        self.meet(shapes[met:])
        return history.completed(completed, self._versions, self._observed, self._timeline)

    def in_force(self, database: str, table: str, commit_ts: int) -> TableSchema | None:
        """Return the schema that a row which cites none is read with, as `SchemaHistory` does."""
        return schema_in_force(self._timeline, database, table, commit_ts)

    # Rows -------------------------------------------------------------------------------------

    def meet(self, shapes: Sequence[SeenShape]) -> None:
        """Take in what the rows between two DDL prove.

        A table that begins here does so with a whole row where there is one: a partial row does not
        tell all columns.
        """
        whole: dict[Name, SeenShape] = {}
        for item in shapes:
            if not item.shape.partial:
                whole.setdefault(item.name, item)
        for item in sorted(shapes, key=lambda item: (item.min_ts, item.shape.partial)):
            if self._tables.find(item.name) is None:
                self._begin(whole.get(item.name, item), item.min_ts)
            present = self._tables.find(item.name)
            if present is not None and not fits(present, item.shape):
                # A version must lie below the rows that prove it. Where none is free, the schema
                # in force was wrong from its start.
                version = max(item.min_ts - 1, present.version)
                self._observe(merged(present, item.shape, version=version), item.min_ts)

    def _begin(self, item: SeenShape, min_ts: int) -> None:
        freed = self._freed.get(_folded(item.name), 0)
        text = f"{item.database}\0{item.table}\0{freed}".encode()
        table_id = int.from_bytes(hashlib.sha256(text).digest()[:8]) & MAX_TSO
        schema = schema_of_shape(
            item.shape,
            database=item.database,
            table=item.table,
            table_id=self._free_id(table_id),
            version=freed,
        )
        self._observe(schema, min_ts)

    def _put(self, schema: TableSchema, since_ts: int) -> None:
        """Let `schema` be in force for the rows above `since_ts`."""
        self._tables.put(schema)
        self._timeline.setdefault((schema.database, schema.table), []).append((since_ts, schema))

    def _observe(self, schema: TableSchema, ts: int) -> None:
        self._put(schema, schema.version)
        self._observed[schema.database, schema.table, ts] = schema
        self._versions.append(
            SchemaVersion(
                schema=schema,
                source=SchemaSource.ROWS,
                sql=None,
                commit_ts=None,
                coordinates=_ROWS,
            )
        )

    # DDL --------------------------------------------------------------------------------------

    def apply(self, ddls: Sequence[RegisteredDdl]) -> list[RegisteredDdl]:
        """Take in the DDL of the next commit ts; return them with the schemas around them."""
        moved: list[tuple[RegisteredDdl, Name, Name]] = []
        for ddl in ddls:
            is_rename = ddl.statement.action is DdlAction.RENAME_TABLE and not _has_schemas(ddl)
            pair = _renamed_pair(ddl) if is_rename else None
            if pair is not None:
                moved.append((ddl, *pair))
        changes = dict(
            zip((ddl.identity for ddl, _, _ in moved), self._renamed(moved), strict=True)
            if moved
            else ()
        )
        return [self._applied(ddl, changes.get(ddl.identity)) for ddl in ddls]

    def _applied(self, ddl: RegisteredDdl, change: "_Change | None") -> RegisteredDdl:
        event = ddl.event
        if is_snapshot(event):
            return self._seed(ddl)
        if _has_schemas(ddl):
            self._take_over(ddl)
            return ddl
        statement = ddl.statement
        if change is None:
            action = self._actions.get(statement.action)
            if action is None and statement.action is DdlAction.UNKNOWN:
                action = self._by_type.get(event.ddl_type)
            change = _NOTHING if action is None else action(ddl, statement)
        before, after, notes = change
        if after is not None:
            self._versions.append(
                SchemaVersion(
                    schema=after,
                    source=SchemaSource.TEXT,
                    sql=event.sql,
                    commit_ts=event.commit_ts,
                    coordinates=ddl.coordinates,
                )
            )
        return replace(ddl, event=replace(event, schema=after, pre_schema=before), notes=notes)

    def _take_over(self, ddl: RegisteredDdl) -> None:
        """Keep step with a DDL that carries its schemas."""
        event = ddl.event
        if event.pre_schema is not None:
            self._tables.take((event.pre_schema.database, event.pre_schema.table))
        if event.schema is not None and event.ddl_type != "ERASE":
            self._put(event.schema, event.commit_ts)
            self._ids.add(event.schema.table_id)

    def _seed(self, ddl: RegisteredDdl) -> RegisteredDdl:
        """Take over the schema of an export: the table that goes by its name has it from now on."""
        schema = ddl.event.schema
        if schema is None:
            return ddl
        present = self._tables.find((schema.database, schema.table))
        if present is not None:
            schema = replace(schema, table_id=present.table_id)
        self._put(schema, ddl.event.commit_ts)
        self._ids.add(schema.table_id)
        defaults = table_defaults(ddl.statement, self._defaults_of(schema.database))
        self._table_defaults[schema.table_id] = defaults
        return replace(ddl, event=replace(ddl.event, schema=schema))

    def _create(self, ddl: RegisteredDdl, statement: DdlStatement) -> _Change:
        name = _name_of(ddl)
        self._tables.take(name)
        self._freed[_folded(name)] = ddl.event.commit_ts
        if not statement.columns:
            return None, None, ("the columns of CREATE TABLE are not understood",)
        schema = created_schema(
            statement,
            database=name[0],
            table=name[1],
            table_id=self._free_id(ddl.event.commit_ts),
            version=ddl.event.commit_ts,
            defaults=self._defaults_of(name[0]),
            timezone=self._timezone,
        )
        self._put(schema.schema, ddl.event.commit_ts)
        defaults = table_defaults(statement, self._defaults_of(name[0]))
        self._table_defaults[schema.schema.table_id] = defaults
        return None, schema.schema, schema.notes

    def _create_like(self, ddl: RegisteredDdl, statement: DdlStatement) -> _Change:
        name = _name_of(ddl)
        other = statement.like
        source = other and self._tables.find((other.database or name[0], other.table))
        self._tables.take(name)
        self._freed[_folded(name)] = ddl.event.commit_ts
        if source is None:
            return None, None, ("CREATE TABLE LIKE a table that is not known",)
        schema = replace(
            source,
            database=name[0],
            table=name[1],
            table_id=self._free_id(ddl.event.commit_ts),
            version=ddl.event.commit_ts,
        )
        self._put(schema, ddl.event.commit_ts)
        self._table_defaults[schema.table_id] = self._charset_of(source)
        return None, schema, ()

    def _drop(self, ddl: RegisteredDdl, _statement: DdlStatement) -> _Change:
        name = _name_of(ddl)
        self._freed[_folded(name)] = ddl.event.commit_ts
        gone = self._tables.take(name)
        if gone is None:
            return _NOTHING
        self._dropped.append(gone)
        return gone, None, ()

    def _truncate(self, ddl: RegisteredDdl, _statement: DdlStatement) -> _Change:
        name = _name_of(ddl)
        before = self._tables.find(name)
        if before is None:
            self._freed[_folded(name)] = ddl.event.commit_ts
            return _NOTHING
        after = replace(before, table_id=self._free_id(ddl.event.commit_ts))
        self._dropped.append(before)
        self._put(after, ddl.event.commit_ts)
        self._table_defaults[after.table_id] = self._charset_of(before)
        return before, after, ()

    def _rename(self, ddl: RegisteredDdl, _statement: DdlStatement) -> _Change:
        pair = _renamed_pair(ddl)
        if pair is None:
            return None, None, ("RENAME does not say which table became this one",)
        (change,) = self._renamed([(ddl, *pair)])
        return change

    def _renamed(self, ddls: Sequence[tuple[RegisteredDdl, Name, Name]]) -> list[_Change]:
        """Rename the tables of one commit ts, each from an old name to a new one."""
        held: dict[object, TableSchema | None] = {}
        for _, old, _ in ddls:
            held.setdefault(_folded(old), self._tables.take(old))
        settled = settle(
            [Rename(_folded(old), _folded(new)) for _, old, new in ddls],
            {name: name for name in map(_folded, (old for _, old, _ in ddls)) if held[name]}
            | {name: name for _, _, new in ddls if self._tables.find(name := _folded(new))},
            in_order=of_one_partition(ddl for ddl, _, _ in ddls),
        )
        notes = () if settled.certain else ("which table took which name cannot be told",)
        changes = dict.fromkeys(range(len(ddls)), _NOTHING)
        for number in settled.order:
            ddl, old, new = ddls[number]
            self._freed[_folded(old)] = ddl.event.commit_ts
            table = settled.tables[number]
            before = held.get(table)
            if before is None:
                continue
            after = replace(before, database=new[0], table=new[1])
            changes[number] = (before, after, notes)
            if ddl.statement.action is DdlAction.ALTER_TABLE:
                _, changed, found = self._changed(after, ddl, ddl.statement)
                changes[number] = (before, changed, (*notes, *found))
                after = changed or after
            held[table] = after
        for schema in held.values():
            if schema is not None:
                self._put(schema, ddls[0][0].event.commit_ts)
        return [changes[number] for number in range(len(ddls))]

    def _alter(self, ddl: RegisteredDdl, statement: DdlStatement) -> _Change:
        if statement.renames:
            return self._rename(ddl, statement)
        before = self._tables.find(_name_of(ddl))
        if before is None:
            return _NOTHING
        change = self._changed(before, ddl, statement)
        if change[1] is not None:
            self._put(change[1], ddl.event.commit_ts)
        return change

    def _changed(self, before: TableSchema, ddl: RegisteredDdl, statement: DdlStatement) -> _Change:
        defaults = self._charset_of(before)
        inferred = altered_schema(
            before,
            statement,
            version=max(ddl.event.commit_ts, before.version + 1),
            defaults=defaults,
            timezone=self._timezone,
        )
        self._table_defaults[before.table_id] = table_defaults(statement, defaults)
        return before, inferred.schema, inferred.notes

    def _recover(self, ddl: RegisteredDdl, statement: DdlStatement) -> _Change:
        """Bring a dropped or truncated table back: RECOVER, or FLASHBACK, maybe to a new name."""
        target = _name_of(ddl)
        old = target
        if statement.renames:
            old = (statement.renames[0].old.database or target[0], statement.renames[0].old.table)
        elif statement.table is not None:
            old = (statement.database or target[0], statement.table)
        gone = next(
            (
                item
                for item in reversed(self._dropped)
                if _folded((item.database, item.table)) == _folded(old)
            ),
            None,
        )
        if gone is None:
            self._freed[_folded(target)] = ddl.event.commit_ts
            return _NOTHING
        self._dropped.remove(gone)
        after = replace(gone, database=target[0], table=target[1])
        self._put(after, ddl.event.commit_ts)
        return None, after, ()

    def _database(self, ddl: RegisteredDdl, statement: DdlStatement) -> _Change:
        database = (statement.database or ddl.event.database).lower()
        before = self._defaults.get(database, DATABASE_DEFAULTS)
        self._defaults[database] = database_defaults(statement, before)
        return _NOTHING

    def _drop_database(self, ddl: RegisteredDdl, statement: DdlStatement) -> _Change:
        database = (statement.database or ddl.event.database).lower()
        for name in [name for name in self._tables.by_name if name[0].lower() == database]:
            gone = self._tables.take(name)
            self._freed[_folded(name)] = ddl.event.commit_ts
            if gone is not None:
                self._dropped.append(gone)
        self._defaults.pop(database, None)
        return _NOTHING

    def _defaults_of(self, database: str) -> Defaults:
        return self._defaults.get(database.lower(), DATABASE_DEFAULTS)

    def _charset_of(self, schema: TableSchema) -> Defaults:
        return self._table_defaults.get(schema.table_id, self._defaults_of(schema.database))

    def _free_id(self, table_id: int) -> int:
        while table_id in self._ids:
            table_id = (table_id + 1) & MAX_TSO
        self._ids.add(table_id)
        return table_id


def _renamed_pair(ddl: RegisteredDdl) -> tuple[Name, Name] | None:
    """Return the old and new name of a rename's table, None if the text does not tell.

    TiCDC sends one event for each pair, named after the new table. An unqualified old name was in
    the session's database, which only the new one can tell.
    """
    target, renames = _name_of(ddl), ddl.statement.renames
    pair = next(
        (
            item
            for item in renames
            if _folded((item.new.database or target[0], item.new.table)) == _folded(target)
        ),
        renames[0] if len(renames) == 1 else None,
    )
    return pair and ((pair.old.database or target[0], pair.old.table), target)


def _name_of(ddl: RegisteredDdl) -> Name:
    """Return the name of the table that a DDL is about, as the message says it, else its text."""
    event, statement = ddl.event, ddl.statement
    database = event.database or statement.database or ""
    return (database, event.table or statement.table or "")
