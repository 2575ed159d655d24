"""The stand-in for a TiDB cluster: a tiny database in memory that keeps its own history.

In: transactions of row changes and DDL, as methods. Out: `history`, what was committed in commit
order (which the stand-in changefeed sends), and `truth`, the rows of every table now or at any
earlier TSO. Rows are kept in canonical text. Truth is what the operations did to the rows here;
no message is read to get it, and nothing of the package's decoding or applying is used.

A transaction commits the net change of each row as TiKV makes it, an update of a unique key as a
delete and an insert, as TiCDC sends it.

Schemas look as TiCDC sends them: columns in the order of their ids (a column that MODIFY rewrites
gets a new id, so it moves to the end), the key as an index called `primary` where TiDB keeps none.

Asking for truth changes nothing, and a history once committed never changes.

A DDL that makes a divided table, or empties one, gives its partitions new physical ids, as TiDB
does; TRUNCATE and RENAME keep the schema's version. Tables that were dropped or truncated can be
brought back with their rows.

Not handled: unique keys other than the row's own are not enforced; collations (two keys are equal
if their canonical text is); generated columns, foreign keys; what views show.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from ticdc_assets.demo.simulator.alterations import ActionCode, AlterAction
from ticdc_assets.demo.simulator.clock import TsoClock
from ticdc_assets.demo.simulator.columns import (
    charset_sql,
    column_sql,
    index_sql,
    names_sql,
    path_sql,
    quoted,
)
from ticdc_assets.demo.simulator.stored_table import (
    ROW_ID,
    Divided,
    Key,
    Row,
    StoredTable,
    TableName,
    complete_row,
    key_of,
    rekeyed,
    with_indexes,
)
from ticdc_assets.model.events import DdlEvent, Op
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema, TableSchema
from ticdc_assets.model.tso import to_datetime

Truth: TypeAlias = dict[TableName, dict[Key, Row]]
"""The rows of every table by their key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRow:
    """One row change as TiCDC sees it: an update of a unique key is already two of them.

    Attributes:
        schema: schema of the table at the commit.
        op: insert, update or delete.
        key: key of the row (before and after are of one key).
        before: row before the change, None for an insert.
        after: row after the change, None for a delete.
        physical_id: id of the physical table of the row: a partition's, or the table's own.
        is_split: whether it is one half of an update, which TiCDC has split.
    """

    schema: TableSchema
    op: Op
    key: Key
    before: Row | None
    after: Row | None
    physical_id: int
    is_split: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedTransaction:
    """Row changes committed together, in the order in which TiCDC sends them."""

    commit_ts: int
    rows: tuple[CommittedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedDdl:
    """The DDL events of one statement, and the tables as they were before it.

    Attributes:
        commit_ts: TSO of the commit, the same for all events.
        events: what TiCDC sends, in order; `build_ts_ms` is 0 until something is built.
        previous: the tables that the statement changed, as they were; None where there was none.
        of_view: whether it is about a view, which TiCDC sends though no view has a key.
        exchanged: id of the partition that EXCHANGE PARTITION gave a table.
    """

    commit_ts: int
    events: tuple[DdlEvent, ...]
    previous: Mapping[TableName, StoredTable | None]
    of_view: bool = False
    exchanged: int | None = None


Commit: TypeAlias = CommittedTransaction | CommittedDdl

DdlParts: TypeAlias = tuple[str, TableSchema | None, TableSchema | None]
"""The text of an event of a DDL, and the schemas of its table after and before it."""


def is_in_cut(commit: Commit, at: int) -> bool:
    """Return whether a commit is in the cut at the TSO `at`: rows up to it, DDL below it."""
    if isinstance(commit, CommittedDdl):
        return commit.commit_ts < at
    return commit.commit_ts <= at


def tables_before(
    tables: Mapping[TableName, StoredTable], later: Sequence[Commit]
) -> dict[TableName, StoredTable]:
    """Return the tables, with their rows, as they were before the last commits, oldest first."""
    before = dict(tables)
    copied: set[TableName] = set()
    for commit in reversed(later):
        if isinstance(commit, CommittedDdl):
            for name, table in commit.previous.items():
                copied.discard(name)
                before.pop(name, None)
                if table is not None:
                    before[name] = table
            continue
        for change in reversed(commit.rows):
            name = (change.schema.database, change.schema.table)
            if name not in copied:
                before[name] = replace(before[name], rows=dict(before[name].rows))
                copied.add(name)
            if change.before is None:
                del before[name].rows[change.key]
            else:
                before[name].rows[change.key] = change.before
    return before


class Transaction:
    """Row changes that will be committed together; made by `Upstream.transaction`.

    It reads its own writes. What is sent is the net of each row, as TiKV sees it: a row inserted
    and deleted again leaves no trace, an update to the same values neither.
    """

    def __init__(self, tables: Mapping[TableName, StoredTable], *, timezone: str) -> None:
        self._tables = tables
        self._timezone = timezone
        # Per table, in the order in which rows were first touched.
        self._writes: dict[TableName, dict[Key, Row | None]] = {}
        self._moved: set[tuple[TableName, Key]] = set()
        # Keys that belong to another row id now: what looks like an update of them is none.
        self._retaken: set[tuple[TableName, Key]] = set()

    def row(self, name: TableName, key: Key) -> Row | None:
        """Return a row as this transaction sees it, or None."""
        written = self._writes.get(name, {})
        return written[key] if key in written else self._tables[name].rows.get(key)

    def rows(self, name: TableName) -> dict[Key, Row]:
        """Return all rows of a table as this transaction sees them."""
        seen = {**self._tables[name].rows, **self._writes.get(name, {})}
        return {key: row for key, row in seen.items() if row is not None}

    def insert(self, name: TableName, values: Row) -> Key:
        """Insert a row, columns left out get their default, and return its key.

        Raises:
            ValueError: a column is unknown, NULL where it may not be, or the key is taken.
        """
        table = self._tables[name]
        row = complete_row(table.schema, values, timezone=self._timezone)
        key = key_of(table.schema, row)
        if key is None:
            key = (ROW_ID, str(table.next_row_id))
            table.next_row_id += 1
        elif self.row(name, key) is not None:
            raise ValueError(f"{name}: key {key} is taken")
        self._write(name, key, row)
        return key

    def update(self, name: TableName, key: Key, *, changes: Row) -> Key:
        """Change columns of the row with `key`, the key's own among them, and return its new key.

        Raises:
            ValueError: there is no such row, or the new row cannot be.
        """
        table = self._tables[name]
        old = self.row(name, key)
        if old is None:
            raise ValueError(f"{name}: no row {key}")
        row = complete_row(table.schema, {**old, **changes}, timezone=self._timezone)
        new_key = key_of(table.schema, row) or key
        # A row inserted a moment ago is still inserted, whatever becomes of its keys.
        is_update = key in table.rows or (name, key) in self._moved
        if new_key != key:
            if self.row(name, new_key) is not None:
                raise ValueError(f"{name}: key {new_key} is taken")
            self._write(name, key, None)
            if is_update and not table.clustered:
                # The row keeps its row id, so this is an update, which TiCDC splits.
                self._moved.update(((name, key), (name, new_key)))
        if is_update and any(
            old[column] != row[column]
            for index in table.schema.indexes
            if index.unique and not index.primary
            for column in index.columns
        ):
            self._moved.add((name, new_key))
        self._write(name, new_key, row)
        return new_key

    def delete(self, name: TableName, key: Key) -> None:
        """Delete the row with `key`.

        Raises:
            ValueError: there is no such row.
        """
        if self.row(name, key) is None:
            raise ValueError(f"{name}: no row {key}")
        self._write(name, key, None)

    def _write(self, name: TableName, key: Key, row: Row | None) -> None:
        writes = self._writes.setdefault(name, {})
        if row is not None and not self._tables[name].clustered and writes.get(key, row) is None:
            # A key freed and taken again belongs to another row id: a delete and an insert.
            self._retaken.add((name, key))
        writes[key] = row

    def net(self) -> list[CommittedRow]:
        """Return the net changes; in each table deletes come first."""
        changes: list[CommittedRow] = []
        for name, writes in self._writes.items():
            table = self._tables[name]
            deletes: list[CommittedRow] = []
            others: list[CommittedRow] = []
            for key, after in writes.items():
                before = table.rows.get(key)
                if before == after:
                    continue
                source = None if before is None else table.physical_id(before)
                target = None if after is None else table.physical_id(after)
                moved = (name, key) in self._moved
                # From one partition to another it is a delete and an insert in TiKV already.
                crossing = None not in (source, target) and source != target
                apart = moved or crossing or (name, key) in self._retaken
                # A changed clustered key is another place in TiKV: no update that could be split.
                both = before is not None and after is not None
                is_split = moved and not crossing and (both or not table.clustered)
                committed = partial(CommittedRow, schema=table.schema, key=key, is_split=is_split)
                if before is not None and source is not None and (apart or after is None):
                    deletes.append(
                        committed(op=Op.DELETE, before=before, after=None, physical_id=source)
                    )
                if after is not None and target is not None:
                    is_insert = before is None or apart
                    others.append(
                        committed(
                            op=Op.INSERT if is_insert else Op.UPDATE,
                            before=None if is_insert else before,
                            after=after,
                            physical_id=target,
                        )
                    )
            changes += deletes + others
        return changes


class Upstream:
    """The stand-in upstream database; TIMESTAMPs are in `timezone` in canonical text.

    Attributes:
        history: everything committed, in commit order.
        qualified: whether statements name databases; False for a client that did `USE`, whose text
            names none where the table's own is meant. TiCDC's own texts always do.
    """

    def __init__(self, *, clock: TsoClock | None = None, timezone: str = "UTC") -> None:
        self.clock = clock or TsoClock()
        self.timezone = timezone
        self.history: list[Commit] = []
        self.qualified = True
        # The character set of each database, "" for the server's.
        self._databases: dict[str, str] = {}
        self._tables: dict[TableName, StoredTable] = {}
        self._orders: dict[tuple[int, int], tuple[str, ...]] = {}
        self._next_table_id = 100

    @property
    def databases(self) -> frozenset[str]:
        """Databases that exist now."""
        return frozenset(self._databases)

    @property
    def tables(self) -> tuple[TableName, ...]:
        """Tables that exist now, in the order of their creation."""
        return tuple(self._tables)

    def stored(self, name: TableName) -> StoredTable:
        """Return a table as it is now; it is to be read only."""
        return self._table(name)

    def schema(self, name: TableName) -> TableSchema:
        """Return a table's schema now."""
        return self._table(name).schema

    def table_order(self, schema: TableSchema) -> tuple[str, ...]:
        """Return the columns of a table that is or was there, in the order of the table."""
        order = self._orders.get((schema.table_id, schema.version))
        return tuple(column.name for column in schema.columns) if order is None else order

    def rows(self, name: TableName) -> Mapping[Key, Row]:
        """Return a table's rows now, a view that changes with the table."""
        return self._table(name).rows

    def truth(self, at: int | None = None) -> Truth:
        """Return the rows of every table, now or in the cut at the TSO `at`.

        The cut at `at` holds rows with commit ts <= `at` and DDL with commit ts < `at`.
        """
        return {name: dict(table.rows) for name, table in self.tables_at(at).items()}

    def tables_at(self, at: int | None = None) -> dict[TableName, StoredTable]:
        """Return every table, now or in the cut at the TSO `at`; they are to be read only."""
        later = [] if at is None else [item for item in self.history if not is_in_cut(item, at)]
        return tables_before(self._tables, later)

    # Rows

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """Commit the changes made in the `with` block together; an error in it commits nothing."""
        transaction = Transaction(self._tables, timezone=self.timezone)
        yield transaction
        changes = transaction.net()
        self.clock.step()
        if not changes:
            return
        for change in changes:
            rows = self._tables[change.schema.database, change.schema.table].rows
            if change.after is None:
                del rows[change.key]
            else:
                rows[change.key] = change.after
        self.history.append(CommittedTransaction(commit_ts=self.clock.next(), rows=tuple(changes)))

    # Databases

    def create_database(self, database: str, *, charset: str = "") -> int:
        """Run CREATE DATABASE with a character set, "" for the server's; return its commit ts."""
        if database in self._databases:
            raise ValueError(f"database {database!r} exists")
        self._databases[database] = charset
        text = f"CREATE DATABASE {quoted(database)}{charset_sql(charset)}"
        return self._commit_ddl(ActionCode.CREATE_DATABASE, [(text, None, None)], database=database)

    def drop_database(self, database: str, *, sql: str | None = None) -> int:
        """Run DROP DATABASE, its tables with it, and return its commit ts."""
        if database not in self._databases:
            raise ValueError(f"no database {database!r}")
        del self._databases[database]
        text = sql or f"DROP DATABASE {quoted(database)}"
        return self._commit_ddl(
            ActionCode.DROP_DATABASE,
            [(text, None, None)],
            {name: table for name, table in self._tables.items() if name[0] != database},
            database=database,
        )

    # Tables

    def create_table(
        self,
        name: TableName,
        columns: Sequence[ColumnSchema],
        *,
        primary_key: Sequence[str] = (),
        indexes: Sequence[IndexSchema] = (),
        clustered: bool = True,
        partitioning: Divided | None = None,
    ) -> int:
        """Run CREATE TABLE and return its commit ts.

        Columns of the primary key become NOT NULL, and `nullable` of the other indexes is found out
        here. `clustered` says whether the primary key is the row's place in TiKV. The column of
        `partitioning` is in every unique key.
        """
        self._require_new(name)
        columns = tuple(
            replace(column, nullable=False) if column.name in primary_key else column
            for column in columns
        )
        parts = [column_sql(column, self.timezone) for column in columns]
        if primary_key:
            kind = "CLUSTERED" if clustered else "NONCLUSTERED"
            parts.append(f"PRIMARY KEY({names_sql(primary_key)}) /*T![clustered_index] {kind} */")
        parts += [index_sql(index) for index in indexes]
        sql = f"CREATE TABLE {self._path(name)} ({','.join(parts)})"
        if self._databases[name[0]] not in ("", "utf8mb4"):
            sql += " DEFAULT CHARACTER SET = UTF8MB4 DEFAULT COLLATE = UTF8MB4_BIN"
        if partitioning is not None:
            sql += f" {partitioning.sql()}"
        table = StoredTable(
            schema=TableSchema(
                database=name[0],
                table=name[1],
                table_id=self._new_table_id(),
                version=self._version(),
                columns=columns,
                indexes=(),
            ),
            order=tuple(column.name for column in columns),
            primary_key=tuple(primary_key),
            clustered=clustered and bool(primary_key),
            secondary=tuple(indexes),
            rows={},
            partitioning=partitioning and partitioning.with_new_ids(self._new_table_id),
        )
        table.schema = with_indexes(table)
        return self._commit_table(ActionCode.CREATE_TABLE, sql, table)

    def create_table_like(self, name: TableName, source: TableName) -> int:
        """Run CREATE TABLE ... LIKE and return its commit ts."""
        self._require_new(name)
        like = self._table(source)
        table = replace(like, rows={}, next_row_id=1, partitioning=self._divided_anew(like))
        table.schema = replace(
            like.schema,
            database=name[0],
            table=name[1],
            table_id=self._new_table_id(),
            version=self._version(),
        )
        path = self._path if name[0] == source[0] else path_sql
        text = f"CREATE TABLE {self._path(name)} LIKE {path(source)}"
        return self._commit_table(ActionCode.CREATE_TABLE, text, table)

    def drop_table(self, name: TableName) -> int:
        """Run DROP TABLE and return its commit ts."""
        schema = self.schema(name)
        # The schema after is that of the dropped table, and the text is TiCDC's, not the user's.
        return self._commit_ddl(
            ActionCode.DROP_TABLE,
            [(f"DROP TABLE {path_sql(name)}", schema, schema)],
            {other: table for other, table in self._tables.items() if other != name},
        )

    def truncate_table(self, name: TableName) -> int:
        """Run TRUNCATE TABLE (a new table id, the same version) and return its commit ts."""
        full = self._table(name)
        table = replace(full, rows={}, next_row_id=1, partitioning=self._divided_anew(full))
        table.schema = replace(table.schema, table_id=self._new_table_id())
        text = f"TRUNCATE TABLE {self._path(name)}"
        return self._commit_table(ActionCode.TRUNCATE_TABLE, text, table)

    def rename_table(self, name: TableName, new_name: TableName) -> int:
        """Run RENAME TABLE for one table and return its commit ts."""
        return self.rename_tables([(name, new_name)])

    def rename_tables(self, renames: Iterable[tuple[TableName, TableName]]) -> int:
        """Run one RENAME TABLE for several tables, in order, and return its commit ts.

        `a` to `tmp`, `b` to `a`, `tmp` to `b` swaps two tables. TiCDC sends one event for each.
        """
        tables = dict(self._tables)
        events: list[DdlParts] = []
        for name, new_name in renames:
            table = self._table(name, tables)
            self._require_new(new_name, tables)
            renamed = replace(tables.pop(name), rows=dict(table.rows))
            renamed.schema = replace(table.schema, database=new_name[0], table=new_name[1])
            tables[new_name] = renamed
            text = f"RENAME TABLE {path_sql(name)} TO {path_sql(new_name)}"
            events.append((text, renamed.schema, table.schema))
        return self._commit_ddl(ActionCode.RENAME_TABLE, events, tables)

    def alter_table(self, name: TableName, *actions: AlterAction) -> int:
        """Run ALTER TABLE with one or more changes to columns and keys; return its commit ts."""
        table = self._copy(name)
        version = self._version()
        commit_ts = self._ddl_ts()
        at = to_datetime(commit_ts)
        parts = [action(table, self.timezone, at) for action in actions]
        text = f"ALTER TABLE {self._path(name)} {', '.join(parts)}"
        code = actions[0].code if len(actions) == 1 else ActionCode.MULTI_CHANGE
        return self._commit_altered(code, text, table, version=version, commit_ts=commit_ts)

    def create_index(
        self,
        name: TableName,
        index: str,
        *,
        columns: Sequence[str],
        unique: bool = False,
    ) -> int:
        """Run CREATE INDEX and return its commit ts."""
        table = self._copy(name)
        added = IndexSchema(
            name=index, unique=unique, primary=False, nullable=False, columns=tuple(columns)
        )
        if index in {other.name for other in table.secondary}:
            raise ValueError(f"{name}: index {index!r} exists")
        table.secondary = (*table.secondary, added)
        kind = "UNIQUE INDEX" if unique else "INDEX"
        text = f"CREATE {kind} {quoted(index)} ON {self._path(name)} ({names_sql(columns)})"
        return self._commit_altered(ActionCode.ADD_INDEX, text, table)

    def drop_index(self, name: TableName, index: str) -> int:
        """Run DROP INDEX and return its commit ts."""
        table = self._copy(name)
        table.secondary = tuple(other for other in table.secondary if other.name != index)
        if len(table.secondary) == len(self._table(name).secondary):
            raise ValueError(f"{name}: no index {index!r}")
        text = f"DROP INDEX {quoted(index)} ON {self._path(name)}"
        return self._commit_altered(ActionCode.DROP_INDEX, text, table)

    def _table(
        self, name: TableName, tables: Mapping[TableName, StoredTable] | None = None
    ) -> StoredTable:
        table = (self._tables if tables is None else tables).get(name)
        if table is None:
            raise ValueError(f"no table {name}")
        return table

    def _require_new(
        self, name: TableName, tables: Mapping[TableName, StoredTable] | None = None
    ) -> None:
        if name[0] not in self._databases:
            raise ValueError(f"there is no database {name[0]}")
        if name in (self._tables if tables is None else tables):
            raise ValueError(f"there is a table {name}")

    def _copy(self, name: TableName) -> StoredTable:
        """Return a table that may be changed, to take the place of the one called `name`."""
        table = self._table(name)
        return replace(table, rows=dict(table.rows))

    def _path(self, name: TableName) -> str:
        return path_sql(name) if self.qualified else quoted(name[1])

    def _divided_anew(self, table: StoredTable) -> Divided | None:
        return table.partitioning and table.partitioning.with_new_ids(self._new_table_id)

    def _new_table_id(self) -> int:
        self._next_table_id += 2
        return self._next_table_id

    def _version(self) -> int:
        # The version is the TSO at which the schema was written, shortly before the commit.
        return self.clock.next()

    def _ddl_ts(self) -> int:
        self.clock.step()
        return self.clock.next()

    def _commit_altered(
        self,
        code: ActionCode,
        sql: str,
        table: StoredTable,
        *,
        version: int | None = None,
        commit_ts: int | None = None,
    ) -> int:
        table.schema = replace(
            with_indexes(table), version=self._version() if version is None else version
        )
        table.rows = rekeyed(table)
        return self._commit_table(code, sql, table, commit_ts=commit_ts)

    def _commit_table(
        self, code: ActionCode, sql: str, table: StoredTable, *, commit_ts: int | None = None
    ) -> int:
        """Commit a DDL of one table, which is new or takes the place of the one of its name."""
        before = self._tables.get(table.name)
        events: list[DdlParts] = [(sql, table.schema, before.schema if before else None)]
        return self._commit_ddl(
            code, events, {**self._tables, table.name: table}, commit_ts=commit_ts
        )

    def _commit_ddl(
        self,
        code: ActionCode,
        events: Iterable[DdlParts],
        tables: dict[TableName, StoredTable] | None = None,
        *,
        commit_ts: int | None = None,
        database: str = "",
        of_view: bool = False,
        exchanged: int | None = None,
    ) -> int:
        """Commit a DDL that leaves `tables`, None for those that there are."""
        if commit_ts is None:
            commit_ts = self._ddl_ts()
        before, after = self._tables, self._tables if tables is None else tables
        self._tables = after
        changed = [name for name in before | after if before.get(name) is not after.get(name)]
        for table in filter(None, map(after.get, changed)):
            self._orders[table.schema.table_id, table.schema.version] = table.order
        self.history.append(
            CommittedDdl(
                commit_ts=commit_ts,
                events=tuple(
                    DdlEvent(
                        ddl_type=code.word,
                        commit_ts=commit_ts,
                        build_ts_ms=0,
                        sql=sql,
                        database=schema.database if schema else database,
                        table=schema.table if schema else "",
                        schema=schema,
                        pre_schema=pre_schema,
                        action_code=code,
                    )
                    for sql, schema, pre_schema in events
                ),
                previous={name: before.get(name) for name in changed},
                of_view=of_view,
                exchanged=exchanged,
            )
        )
        return commit_ts
