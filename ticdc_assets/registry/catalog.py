"""Which table each DDL concerns, and its schemas before and after it, for all formats.

In: a `SchemaHistory` as it was sent, and the shapes of the rows, each with its lowest commit ts.
Out: a new history whose DDL are parts (`registry.ddl.parts`), each of one table, with the schema
before and after it; a table without a CREATE gets its schema from its rows. The source of a schema
says whether a message sent it.

The table id, the text and the history together decide the table of a DDL. Newer TiCDC sends no
schema before a RENAME and, for a name in the middle of a cyclic one, a table id that means none;
other formats send no ids and no schemas at all; a text may leave out the database. So each table
has an id here: the one that was sent, else an id derived from its beginning.

A row of the formats without schemas cites no version. It is read with the version in force at its
commit ts: the highest version below it. So a schema's version there is the commit ts of the DDL it
came from (TRUNCATE and RENAME keep it, as in TiDB), and a schema that only rows prove has a version
just below the first of them.

The catalog walks DDL and first rows in the order of time, with the tables of each moment. Text says
more than rows do (labels, precisions, defaults), so a row's shape changes a schema only where the
two disagree: then a DDL was missed, and the catalog adds what the row proves.

Completing is a pure function of history and shapes, repeated whenever either grows; its result is
not stored, so late DDL and late rows need no correction.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, TypeAlias

from ticdc_assets.model.events import DdlEvent
from ticdc_assets.model.schemas import RowShape, TableSchema
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.registry.ddl.parts import name_in_text, parts_of, recovered_name
from ticdc_assets.registry.ddl.reader import parse_ddl_script
from ticdc_assets.registry.ddl.statement import DdlAction, DdlKind
from ticdc_assets.registry.history import (
    Coordinates,
    Name,
    RegisteredDdl,
    SchemaHistory,
    SchemaSource,
    SchemaVersion,
    exchange_of,
    folded,
    of_one_partition,
)
from ticdc_assets.registry.inference.column_facts import with_unsent_facts
from ticdc_assets.registry.inference.columns import DATABASE_DEFAULTS, Defaults, defaults_after
from ticdc_assets.registry.inference.row_shapes import NO_TABLE, fits, merged, schema_of_shape
from ticdc_assets.registry.inference.schemas import schema_after
from ticdc_assets.registry.renames import KnownTables, Move, Rename, moves_of, settle

_ROWS = Coordinates(topic="", partition=-1, offset=-1, index=-1)
"""The source of a schema that no single record holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenShape:
    """A shape of the rows of one table name, and its lowest commit ts."""

    database: str
    table: str
    shape: RowShape
    min_ts: int

    @property
    def name(self) -> Name:
        """(database, table)."""
        return (self.database, self.table)


def complete(history: SchemaHistory, seen: Iterable[SeenShape], timezone: str) -> SchemaHistory:
    """Return `history` with its DDL as parts, the schemas it lacks, and which columns are virtual.

    Args:
        history: as registered; it is not changed.
        seen: shapes of rows, one for each (database, table, shape).
        timezone: the changefeed's time zone, for defaults of TIMESTAMP columns.
    """
    return with_unsent_facts(Catalog(timezone).walk(history, list(seen)))


_Action: TypeAlias = Callable[[RegisteredDdl], "_Change"]
_Change: TypeAlias = tuple[TableSchema | None, TableSchema | None, tuple[str, ...]]
"""The schema before, the schema after, and notes on what was not understood."""

_NOTHING: Final[_Change] = (None, None, ())


class Catalog:
    """The tables of one moment and their past, advanced in the order of time."""

    def __init__(self, timezone: str) -> None:
        self._timezone = timezone
        self._tables = KnownTables()
        # Names of views: a RENAME of one looks like that of a table.
        self._views: set[Name] = set()
        self._dropped: list[TableSchema] = []
        self._freed: dict[Name, int] = {}
        # Character sets by database, in lower case, and by table id.
        self._defaults: dict[str, Defaults] = {}
        self._table_defaults: dict[int, Defaults] = {}
        # Texts of exported tables, each with the defaults of its database: read when the first
        # statement about the table asks, because most tables have none.
        self._exported: dict[int, tuple[str, Defaults]] = {}
        self._ids: set[int] = set()
        # By (database, table, lowest commit ts), names in lower case.
        self._observed: dict[tuple[str, str, int], TableSchema] = {}
        self._versions: list[SchemaVersion] = []
        # Schemas by (database, table) in lower case, in the order of the walk, each with the commit
        # ts above which it is in force.
        self._timeline: dict[Name, list[tuple[int, TableSchema]]] = {}
        # Schemas as they were sent, by name, in the order of their versions.
        self._sent: dict[Name, list[TableSchema]] = {}
        self._inferring: Mapping[DdlKind, _Action] = {
            DdlKind.CREATE: self._create,
            DdlKind.DROP: self._drop,
            DdlKind.TRUNCATE: self._truncate,
            DdlKind.ALTER: self._alter,
            DdlKind.EXCHANGE: self._alter,
            DdlKind.RECOVER: self._recover,
            DdlKind.DROP_DATABASE: self._drop_database,
            DdlKind.OTHER: self._database,
        }

    def walk(self, history: SchemaHistory, seen: Iterable[SeenShape]) -> SchemaHistory:
        """Process all of a history and the shapes of rows; return the completed history."""
        for version in history.versions:
            name = folded(version.schema.name)
            self._sent.setdefault(name, []).append(version.schema)
        shapes = sorted(seen, key=lambda item: (item.min_ts, item.name, repr(item.shape)))
        completed: list[RegisteredDdl] = []
        begin = 0
        for commit_ts, ddls in groupby(history.ddls, key=lambda ddl: ddl.event.commit_ts):
            end = bisect_right(shapes, commit_ts, key=lambda item: item.min_ts)
            self.meet(shapes[begin:end])
            begin = end
            completed += self.apply(list(ddls))
        self.meet(shapes[begin:])
        versions = [*history.versions, *self._versions]
        return history.with_schemas(versions, completed, self._observed)

    def in_force(self, database: str, table: str, commit_ts: int) -> TableSchema | None:
        """Return the schema for a row of `commit_ts` that cites none, or None.

        A row at the commit ts of a DDL was committed before it.
        """
        name = folded((database, table))
        for since_ts, schema in reversed(self._timeline.get(name, ())):
            if since_ts < commit_ts:
                return schema
        return None

    # Rows -------------------------------------------------------------------------------------

    def meet(self, shapes: Sequence[SeenShape]) -> None:
        """Add what the rows between two DDL prove.

        A new table begins with a whole row if there is one: a partial row does not show all
        columns.
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
                # A version must be below the rows that prove it. Where none is free, the schema in
                # force was wrong from its start.
                version = max(item.min_ts - 1, present.version)
                self._observe(merged(present, item.shape, version=version), item.min_ts)

    def _begin(self, item: SeenShape, min_ts: int) -> None:
        freed = self._freed.get(folded(item.name), 0)
        schema = schema_of_shape(
            item.shape,
            database=item.database,
            table=item.table,
            table_id=self._derived_id(item.name),
            version=freed,
        )
        self._observe(schema, min_ts)

    def _put(self, schema: TableSchema, since_ts: int) -> None:
        """Let `schema` be in force for the rows above `since_ts`."""
        self._tables.put(schema)
        name = folded(schema.name)
        self._timeline.setdefault(name, []).append((since_ts, schema))

    def _observe(self, schema: TableSchema, ts: int) -> None:
        self._put(schema, schema.version)
        self._observed[(*folded(schema.name), ts)] = schema
        source = SchemaSource.ROWS
        self._versions.append(SchemaVersion(schema=schema, source=source, coordinates=_ROWS))

    # DDL --------------------------------------------------------------------------------------

    def apply(self, ddls: Sequence[RegisteredDdl]) -> list[RegisteredDdl]:
        """Apply the DDL of the next commit ts; return their parts with the schemas around them.

        The renames of one statement take effect at once.
        """
        done: list[RegisteredDdl] = []
        parts = parts_of(ddls)
        for renaming, together in groupby(parts, key=lambda part: part.kind is DdlKind.RENAME):
            run = list(together)
            done += self._renamed(run) if renaming else map(self._applied, run)
        return [replace(part, step=step) for step, part in enumerate(done)]

    def _applied(self, part: RegisteredDdl) -> RegisteredDdl:
        if part.kind is DdlKind.OTHER:
            self._follow_views(part)
        if part.kind is DdlKind.SNAPSHOT:
            return self._seed(part)
        sent = part.event.schema or part.event.pre_schema
        if sent is not None:
            return self._taken_over(part, sent)
        kind = part.kind or DdlKind.OTHER
        if kind not in (DdlKind.DROP_DATABASE, DdlKind.OTHER):
            database, table = self._name_of(part)
            part = replace(part, event=replace(part.event, database=database, table=table))
        return self._inferred(part, self._inferring[kind](part))

    def _inferred(self, part: RegisteredDdl, change: "_Change") -> RegisteredDdl:
        """Return a part with the schemas that its text implies."""
        before, after, notes = change
        event = part.event
        if after is not None:
            version = SchemaVersion.of(event, after, SchemaSource.TEXT, part.coordinates)
            self._versions.append(version)
        return replace(part, event=replace(event, schema=after, pre_schema=before), notes=notes)

    def _taken_over(self, part: RegisteredDdl, sent: TableSchema) -> RegisteredDdl:
        """Follow a part that carries schemas, the last of them `sent`, and add what it lacks."""
        event, kind = part.event, part.kind
        sent = self._with_id(sent)
        name = sent.name
        if kind is DdlKind.OTHER:
            return part
        if kind is DdlKind.DROP:
            gone = self._with_id(event.pre_schema or sent)
            table = self._known(gone) or gone
            self._ended(table.name, event.commit_ts)
            return replace(part, event=replace(event, schema=None, pre_schema=gone))
        before = event.pre_schema and self._with_id(event.pre_schema)
        if kind is DdlKind.EXCHANGE:
            # The schema before is the other table's, whose id the partition takes.
            exchange = exchange_of(part.statement)
            if exchange is not None and exchange.other is not None:
                other = self._tables.find(name_in_text(exchange.other, name[0]))
                if other is not None:
                    other_id = self._derived_id(other.name)
                    self._tables.put(replace(other, table_id=other_id))
        elif kind is DdlKind.CREATE:
            if self._tables.find(name) is not None:
                self._ended(name, event.commit_ts)
        elif kind is not DdlKind.RECOVER and before is None:
            before = self._known(sent)
            if before is None and kind is DdlKind.ALTER:
                before = self._sent_before(sent)
            elif before is not None and folded(before.name) != folded(name):
                note = "the table was renamed, and no message says when"
                part = replace(part, kind=DdlKind.RENAME, notes=(*part.notes, note))
        if event.schema is None:
            return replace(part, event=replace(event, pre_schema=before))
        self._put(sent, event.commit_ts)
        self._ids.add(sent.table_id)
        return replace(part, event=replace(event, schema=sent, pre_schema=before))

    def _known(self, schema: TableSchema) -> TableSchema | None:
        table = self._tables.find(schema.name)
        return table or self._tables.identified(schema.table_id)

    def _sent_before(self, schema: TableSchema) -> TableSchema | None:
        """Return the newest schema that was sent of a table before this version."""
        name = folded(schema.name)
        since = self._freed.get(name, -1)
        return next(
            (
                other
                for other in reversed(self._sent.get(name, ()))
                if since < other.version < schema.version
            ),
            None,
        )

    def _with_id(self, schema: TableSchema) -> TableSchema:
        if schema.has_id:
            return schema
        name = schema.name
        table = self._tables.find(name)
        return replace(schema, table_id=self._derived_id(name) if table is None else table.table_id)

    def _ended(self, name: Name, ts: int) -> TableSchema | None:
        """Let the table of a name end at `ts`; return it, or None for an unknown name."""
        gone = self._tables.take(name)
        self._freed[folded(name)] = ts
        if gone is not None:
            self._dropped.append(gone)
        return gone

    def _seed(self, ddl: RegisteredDdl) -> RegisteredDdl:
        schema = ddl.event.schema
        if schema is None:
            return ddl
        present = self._tables.find(schema.name)
        if present is not None:
            schema = replace(schema, table_id=present.table_id)
        self._put(schema, ddl.event.commit_ts)
        self._ids.add(schema.table_id)
        self._exported[schema.table_id] = (ddl.event.sql, self._defaults_of(schema.database))
        return replace(ddl, event=replace(ddl.event, schema=schema))

    def _create(self, ddl: RegisteredDdl) -> _Change:
        statement = ddl.statement
        name, ts = (ddl.event.database, ddl.event.table), ddl.event.commit_ts
        like = statement.like and self._tables.find(name_in_text(statement.like, name[0]))
        self._tables.take(name)
        self._freed[folded(name)] = ts
        if statement.like is not None and like is None:
            return None, None, ("CREATE TABLE LIKE a table that is not known",)
        if like is None and not statement.columns:
            return None, None, ("the columns of CREATE TABLE are not understood",)
        table_id, notes = self._free_id(ts), ()
        if like is not None:
            schema = replace(like, database=name[0], table=name[1], table_id=table_id, version=ts)
            defaults = self._charset_of(like)
        else:
            defaults = self._defaults_of(name[0])
            new = replace(NO_TABLE, database=name[0], table=name[1], table_id=table_id, version=ts)
            inferred = schema_after(statement, new, defaults=defaults, timezone=self._timezone)
            schema, notes = inferred.schema, inferred.notes
            defaults = defaults_after(statement, defaults)
        self._put(schema, ts)
        self._table_defaults[table_id] = defaults
        return None, schema, notes

    def _drop(self, ddl: RegisteredDdl) -> _Change:
        name = (ddl.event.database, ddl.event.table)
        return self._ended(name, ddl.event.commit_ts), None, ()

    def _truncate(self, ddl: RegisteredDdl) -> _Change:
        name = (ddl.event.database, ddl.event.table)
        before = self._tables.find(name)
        if before is None:
            self._freed[folded(name)] = ddl.event.commit_ts
            return _NOTHING
        after = replace(before, table_id=self._free_id(ddl.event.commit_ts))
        self._dropped.append(before)
        self._put(after, ddl.event.commit_ts)
        self._table_defaults[after.table_id] = self._charset_of(before)
        return before, after, ()

    # Renames ----------------------------------------------------------------------------------

    def _renamed(self, parts: Sequence[RegisteredDdl]) -> list[RegisteredDdl]:
        """Rename the tables of one statement at once; return the parts in their order of effect."""
        moves = moves_of(parts, self._tables)
        note = "RENAME does not say which table became this one"
        unknown = [
            replace(part, notes=(*part.notes, note))
            for part in parts
            if not any(move.part is part for move in moves)
        ]
        moves, of_views = self._without_views(moves)
        names = {name for move in moves for name in (move.old, move.new)}
        there = {folded(name): self._tables.find(name) for name in names}
        settled = settle(
            [Rename(folded(move.old), folded(move.new)) for move in moves],
            {name: schema.table_id for name, schema in there.items() if schema is not None},
            [move.table_id for move in moves],
            in_order=of_one_partition(move.part for move in moves),
        )
        notes = () if settled.certain else ("it is ambiguous which table took which name",)
        now: dict[Hashable, TableSchema] = {}
        for table in settled.tables:
            current = self._tables.identified(table) if isinstance(table, int) else None
            if current is not None:
                now[table] = current
        for schema in now.values():
            self._tables.take(schema.name)
        done: list[RegisteredDdl] = []
        for number in settled.order:
            move, table = moves[number], settled.tables[number]
            self._freed[folded(move.old)] = move.part.event.commit_ts
            moved = self._moved(move, now.get(table), table, notes)
            after = moved.event.schema
            if after is not None:
                now[table] = after
            done.append(moved)
        for schema in now.values():
            self._put(schema, parts[0].event.commit_ts)
            self._ids.add(schema.table_id)
        return done + unknown + of_views

    def _follow_views(self, part: RegisteredDdl) -> None:
        statement = part.statement
        names = {folded(name_in_text(item, part.event.database)) for item in statement.tables}
        if statement.action is DdlAction.CREATE_VIEW:
            self._views |= names
        elif statement.action is DdlAction.DROP_VIEW:
            self._views -= names

    def _without_views(self, moves: Iterable[Move]) -> tuple[list[Move], list[RegisteredDdl]]:
        """Rename views; return the steps of tables, and the parts of views, which move no rows."""
        # The old TiCDC spells each step by the name from before the statement.
        before = frozenset(self._views)
        of_tables: list[Move] = []
        of_views: list[RegisteredDdl] = []
        for move in moves:
            old, part = folded(move.old), move.part
            is_view = old in before or old in self._views
            if not is_view or self._tables.find(old) is not None:
                of_tables.append(move)
                continue
            self._views.discard(old)
            self._views.add(folded(move.new))
            event = replace(part.event, schema=None, pre_schema=None)
            of_views.append(replace(part, kind=DdlKind.OTHER, event=event))
        return of_tables, of_views

    def _moved(
        self, move: Move, before: TableSchema | None, table: Hashable, notes: tuple[str, ...]
    ) -> RegisteredDdl:
        """Return the part of one step of a rename, with the schemas around it.

        `table` is the id of its table, or a name for one without; `notes` are those of the
        statement.
        """
        part, event = move.part, move.part.event
        notes = (*part.notes, *move.notes, *notes)
        new = replace(event, database=move.new[0], table=move.new[1])
        sent = event.schema or event.pre_schema
        if sent is None:
            if before is None:
                return replace(part, event=new)
            after = replace(before, database=move.new[0], table=move.new[1])
            if part.statement.changes:
                _, changed, added_notes = self._changed(after, part)
                after, notes = changed or after, (*notes, *added_notes)
            return self._inferred(replace(part, event=new), (before, after, notes))
        # All steps of one table have one id before them, whatever its schemas say after each.
        if isinstance(table, int):
            table_id = table
        else:
            table_id = self._with_id(sent).table_id if before is None else before.table_id
        name = move.old if before is None else before.name
        before = event.pre_schema or before or sent
        before = replace(before, database=name[0], table=name[1], table_id=table_id)
        after = replace(sent, database=move.new[0], table=move.new[1])
        if not after.has_id:
            after = replace(after, table_id=table_id)
        return replace(part, event=replace(new, schema=after, pre_schema=before), notes=notes)

    def _alter(self, ddl: RegisteredDdl) -> _Change:
        before = self._tables.find((ddl.event.database, ddl.event.table))
        if before is None:
            return _NOTHING
        change = self._changed(before, ddl)
        if change[1] is not None:
            self._put(change[1], ddl.event.commit_ts)
        return change

    def _changed(self, before: TableSchema, ddl: RegisteredDdl) -> _Change:
        defaults = self._charset_of(before)
        table = replace(before, version=max(ddl.event.commit_ts, before.version + 1))
        inferred = schema_after(ddl.statement, table, defaults=defaults, timezone=self._timezone)
        self._table_defaults[before.table_id] = defaults_after(ddl.statement, defaults)
        return before, inferred.schema, inferred.notes

    def _recover(self, ddl: RegisteredDdl) -> _Change:
        """Bring a dropped or truncated table back: RECOVER, or FLASHBACK, maybe to a new name."""
        target = (ddl.event.database, ddl.event.table)
        old = folded(recovered_name(ddl) or target)
        gone = next((item for item in reversed(self._dropped) if folded(item.name) == old), None)
        if gone is None:
            self._freed[folded(target)] = ddl.event.commit_ts
            return _NOTHING
        self._dropped.remove(gone)
        after = replace(gone, database=target[0], table=target[1])
        self._put(after, ddl.event.commit_ts)
        return None, after, ()

    def _database(self, ddl: RegisteredDdl) -> _Change:
        """Record the character set of a database; other statements concern no table."""
        statement = ddl.statement
        if statement.action in (DdlAction.CREATE_DATABASE, DdlAction.ALTER_DATABASE):
            database = (statement.database or ddl.event.database).lower()
            before = self._defaults.get(database, DATABASE_DEFAULTS)
            self._defaults[database] = defaults_after(statement, before)
        return _NOTHING

    def _drop_database(self, ddl: RegisteredDdl) -> _Change:
        database = (ddl.statement.database or ddl.event.database).lower()
        for schema in self._tables.all:
            if schema.database.lower() == database:
                self._ended(schema.name, ddl.event.commit_ts)
        self._views = {name for name in self._views if name[0] != database}
        self._defaults.pop(database, None)
        return _NOTHING

    def _defaults_of(self, database: str) -> Defaults:
        return self._defaults.get(database.lower(), DATABASE_DEFAULTS)

    def _charset_of(self, schema: TableSchema) -> Defaults:
        exported = self._exported.pop(schema.table_id, None)
        if exported is not None:
            text, defaults = exported
            for statement in parse_ddl_script(text):
                if statement.action is DdlAction.CREATE_TABLE:
                    defaults = defaults_after(statement, defaults)
            self._table_defaults[schema.table_id] = defaults
        return self._table_defaults.get(schema.table_id, self._defaults_of(schema.database))

    def _name_of(self, ddl: RegisteredDdl) -> Name:
        """Return the name of the table that a statement without schemas is about.

        The text names it, and the message too, with its database. Where they differ, the known
        table of the two counts: TiCDC names an EXCHANGE PARTITION by the other table.
        """
        event, statement = ddl.event, ddl.statement
        sent = (event.database, event.table)
        if statement.table is None:
            return sent
        written = (statement.database or event.database, statement.table)
        if not event.table or ddl.kind is DdlKind.EXCHANGE:
            return written
        if folded(written) == folded(sent):
            return sent
        if ddl.kind is DdlKind.CREATE:
            return written if self._tables.find(sent) is not None else sent
        if ddl.kind is DdlKind.RECOVER:
            return sent
        is_sent = self._tables.find(written) is None and self._tables.find(sent) is not None
        return sent if is_sent else written

    def _derived_id(self, name: Name) -> int:
        """Return an id for a table without one in any message, from its name and its beginning."""
        text = f"{name[0]}\0{name[1]}\0{self._freed.get(folded(name), 0)}".encode()
        return self._free_id(int.from_bytes(hashlib.sha256(text).digest()[:8]) & MAX_TSO)

    def _free_id(self, table_id: int) -> int:
        while table_id in self._ids:
            table_id = (table_id + 1) & MAX_TSO
        self._ids.add(table_id)
        return table_id


_MOST_READ = 65536


class GrowingCatalog:
    """The tables according to the messages up to here, for rows of a capture that cite no schema.

    DDL and rows come in their recorded order. A row has the schema in force at its commit ts, as
    far as the DDL up to there show, with what the row itself proves. A table without a CREATE
    begins with its first row, so that later DDL of it count. Input in the order of time advances
    the catalog; after a late DDL (partitions are read one by one) everything is walked again at the
    next row. So the cost is that of the DDL, not of all rows.

    The answers are preliminary: a later DDL can change the schema of an earlier row. With all
    messages at hand use `complete`.
    """

    def __init__(self, timezone: str) -> None:
        self._timezone = timezone
        self._history = SchemaHistory()
        self._first_rows: list[SeenShape] = []
        self._catalog: Catalog | None = Catalog(timezone)
        # How far the catalog is: by DDL, and by first rows of tables.
        self._latest_ddl = self._latest_row = 0
        # How rows of a shape are read, by identity of the schema, which the value keeps alive.
        self._read: dict[tuple[int, RowShape], tuple[TableSchema | None, TableSchema]] = {}

    def add_ddl(self, event: DdlEvent, coordinates: Coordinates) -> None:
        """Add one copy of a DDL."""
        is_copy = self._history.ddl(event) is not None
        self._history.add_ddl(event, coordinates)
        entry = self._history.ddl(event)
        if is_copy or entry is None or self._catalog is None:
            return
        # Renames of one commit ts are understood together.
        if event.commit_ts > self._latest_ddl and event.commit_ts >= self._latest_row:
            self._catalog.apply([entry])
            self._latest_ddl = event.commit_ts
        else:
            self._catalog = None

    def schema_of(
        self, database: str, table: str, *, shape: RowShape, commit_ts: int
    ) -> TableSchema:
        """Return the schema for a row of `shape` at `commit_ts`."""
        if self._catalog is None:
            self._catalog = Catalog(self._timezone)
            self._catalog.walk(self._history, self._first_rows)
            self._read.clear()
            self._latest_ddl = max(ddl.event.commit_ts for ddl in self._history.ddls)
        schema = self._catalog.in_force(database, table, commit_ts)
        if schema is None and commit_ts > self._latest_ddl:
            seen = SeenShape(database=database, table=table, shape=shape, min_ts=commit_ts)
            self._first_rows.append(seen)
            self._catalog.meet([seen])
            self._latest_row = max(commit_ts, self._latest_row)
            schema = self._catalog.in_force(database, table, commit_ts)
        cached = self._read.get((id(schema), shape))
        if cached is None:
            if len(self._read) >= _MOST_READ:
                self._read.clear()
            cached = self._read[id(schema), shape] = (schema, _read_with(schema, shape))
        return cached[1]


def _read_with(schema: TableSchema | None, shape: RowShape) -> TableSchema:
    if schema is None:
        return schema_of_shape(shape, database="", table="", table_id=0, version=0)
    return schema if fits(schema, shape) else merged(schema, shape, version=schema.version)
