"""The stand-in for a TiDB cluster: a tiny database in memory that keeps its own history.

In: transactions of row changes and DDL, as methods. Out: `history`, what was committed in commit
order (which the stand-in changefeed sends), and `truth`, the rows of every table now or at any
earlier TSO. Rows are kept in canonical text. Truth is what the operations did to the rows here;
no message is read to get it, and nothing of the package's decoding or applying is used.

Schemas look as TiCDC sends them: columns in the order of their ids (a column that MODIFY rewrites
gets a new id, so it moves to the end), the key as an index called `primary` where TiDB keeps none.

Asking for truth changes nothing, and a history once committed never changes.

Not handled: unique keys other than the row's own are not enforced; collations (two keys are equal
if their canonical text is); partitions, views, generated columns, foreign keys.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ticdc_assets.events import DdlEvent, Op
from ticdc_assets.schemas import ColumnSchema, IndexSchema, TableSchema
from ticdc_assets.simulator.clock import TsoClock
from ticdc_assets.simulator.columns import (
    column_sql,
    default_sql,
    default_value,
    modified_value,
    quoted,
    rewrites_rows,
    zero_value,
)

TableName: TypeAlias = tuple[str, str]
"""Database and table."""

Row: TypeAlias = Mapping[str, str | None]
"""One row: column name to canonical text."""

Key: TypeAlias = tuple[str, ...]
"""The values of a row's handle key; for a table without one the hidden row id."""

Truth: TypeAlias = dict[TableName, dict[Key, Row]]
"""The rows of every table by their key."""

ROW_ID: Final = "_tidb_rowid"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRow:
    """One row change as TiCDC sees it: an update of a unique key is already two of them.

    Attributes:
        schema: schema of the table at the commit.
        op: insert, update or delete.
        key: key of the row (before and after are of one key).
        before: row before the change, None for an insert.
        after: row after the change, None for a delete.
    """

    schema: TableSchema
    op: Op
    key: Key
    before: Row | None
    after: Row | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedTransaction:
    """Row changes committed together, in the order in which TiCDC sends them."""

    commit_ts: int
    rows: tuple[CommittedRow, ...]


@dataclass(slots=True)
class _Table:
    """A table as it is now; after a DDL a new object stands in its place."""

    schema: TableSchema
    primary_key: tuple[str, ...]
    clustered: bool
    secondary: tuple[IndexSchema, ...]
    rows: dict[Key, Row]
    next_row_id: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedDdl:
    """The DDL events of one statement, and the tables as they were before it.

    Attributes:
        commit_ts: TSO of the commit, the same for all events.
        events: what TiCDC sends, in order; `build_ts_ms` is 0 until something is built.
        previous: the tables that the statement changed, as they were; None where there was none.
    """

    commit_ts: int
    events: tuple[DdlEvent, ...]
    previous: Mapping[TableName, _Table | None]


Commit: TypeAlias = CommittedTransaction | CommittedDdl


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn:
    """ADD COLUMN; `place` is `""`, `"first"` or `"after x"` and changes nothing that travels."""

    column: ColumnSchema
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropColumn:
    """DROP COLUMN, with the index on it if it has one of its own."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameColumn:
    """RENAME COLUMN."""

    name: str
    new_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyColumn:
    """MODIFY COLUMN, or CHANGE COLUMN where `name` is not the column's new name."""

    name: str
    column: ColumnSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDefault:
    """ALTER COLUMN ... SET DEFAULT, or DROP DEFAULT for None; rows stay as they are."""

    name: str
    default: str | int | None


AlterAction: TypeAlias = AddColumn | DropColumn | RenameColumn | ModifyColumn | SetDefault


class Transaction:
    """Row changes that will be committed together; made by `Upstream.transaction`.

    It reads its own writes. What is sent is the net of each row, as TiKV sees it: a row inserted
    and deleted again leaves no trace, an update to the same values neither.
    """

    def __init__(self, tables: Mapping[TableName, _Table], *, timezone: str) -> None:
        self._tables = tables
        self._timezone = timezone
        # Per table, in the order in which rows were first touched.
        self._writes: dict[TableName, dict[Key, Row | None]] = {}
        self._moved: set[tuple[TableName, Key]] = set()

    def row(self, name: TableName, key: Key) -> Row | None:
        """Return a row as this transaction sees it, or None."""
        written = self._writes.get(name, {})
        return written[key] if key in written else self._tables[name].rows.get(key)

    def insert(self, name: TableName, values: Row) -> Key:
        """Insert a row, columns left out get their default, and return its key.

        Raises:
            ValueError: a column is unknown, NULL where it may not be, or the key is taken.
        """
        table = self._tables[name]
        row = _complete_row(table.schema, values, timezone=self._timezone)
        key = _key_of(table.schema, row)
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
        row = _complete_row(table.schema, {**old, **changes}, timezone=self._timezone)
        new_key = _key_of(table.schema, row) or key
        if new_key != key:
            if self.row(name, new_key) is not None:
                raise ValueError(f"{name}: key {new_key} is taken")
            self._write(name, key, None)
            if not table.clustered:
                # The row keeps its row id, so this is an update, which TiCDC splits.
                self._moved.update(((name, key), (name, new_key)))
        if any(
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
            self._moved.add((name, key))
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
                split = before is not None and after is not None and (name, key) in self._moved
                if split or after is None:
                    deletes.append(
                        CommittedRow(
                            schema=table.schema, op=Op.DELETE, key=key, before=before, after=None
                        )
                    )
                if after is not None:
                    op = Op.INSERT if before is None or split else Op.UPDATE
                    others.append(
                        CommittedRow(
                            schema=table.schema,
                            op=op,
                            key=key,
                            before=before if op is Op.UPDATE else None,
                            after=after,
                        )
                    )
            changes += deletes + others
        return changes


class Upstream:
    """The stand-in upstream database.

    Args:
        clock: where TSOs come from; a deterministic one by default.
        timezone: the changefeed's time zone, in which TIMESTAMPs stand in canonical text.

    Attributes:
        history: everything committed, in commit order.
    """

    def __init__(self, *, clock: TsoClock | None = None, timezone: str = "UTC") -> None:
        self.clock = clock or TsoClock()
        self.timezone = timezone
        self.history: list[Commit] = []
        self._databases: set[str] = set()
        self._tables: dict[TableName, _Table] = {}
        self._next_table_id = 100
        self._share_ts = False

    @property
    def databases(self) -> frozenset[str]:
        """Databases that exist now."""
        return frozenset(self._databases)

    @property
    def tables(self) -> tuple[TableName, ...]:
        """Tables that exist now, in the order of their creation."""
        return tuple(self._tables)

    def schema(self, name: TableName) -> TableSchema:
        """Return a table's schema now."""
        return self._table(name).schema

    def rows(self, name: TableName) -> Mapping[Key, Row]:
        """Return a table's rows now, a view that changes with the table."""
        return self._table(name).rows

    def truth(self, at: int | None = None) -> Truth:
        """Return the rows of every table, now or in the cut at the TSO `at`.

        The cut at `at` holds rows with commit ts <= `at` and DDL with commit ts < `at`.
        """
        tables: dict[TableName, dict[Key, Row]] = {
            name: table.rows for name, table in self._tables.items()
        }
        own: set[TableName] = set()
        for commit in reversed(self.history):
            if at is None or is_in_cut(commit, at):
                break
            if isinstance(commit, CommittedDdl):
                for name, table in commit.previous.items():
                    own.discard(name)
                    tables.pop(name, None)
                    if table is not None:
                        tables[name] = table.rows
                continue
            for change in reversed(commit.rows):
                name = (change.schema.database, change.schema.table)
                if name not in own:
                    tables[name] = dict(tables[name])
                    own.add(name)
                if change.before is None:
                    del tables[name][change.key]
                else:
                    tables[name][change.key] = change.before
        return {name: dict(rows) for name, rows in tables.items()}

    def share_next_ts(self) -> None:
        """Let the next DDL commit at the commit ts of the transaction just committed.

        Rows of that commit ts belong before the DDL.

        Raises:
            ValueError: the last commit is not a transaction.
        """
        if not self.history or not isinstance(self.history[-1], CommittedTransaction):
            raise ValueError("only a DDL after a transaction can share a commit ts")
        self._share_ts = True

    # Rows

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
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
        self._share_ts = False
        self.history.append(CommittedTransaction(commit_ts=self.clock.next(), rows=tuple(changes)))

    # Databases

    def create_database(self, database: str, *, sql: str | None = None) -> int:
        """Run CREATE DATABASE and return its commit ts."""
        if database in self._databases:
            raise ValueError(f"database {database!r} exists")
        self._databases.add(database)
        return self._commit_query(sql or f"CREATE DATABASE {quoted(database)}", {})

    def drop_database(self, database: str, *, sql: str | None = None) -> int:
        """Run DROP DATABASE, its tables with it, and return its commit ts."""
        if database not in self._databases:
            raise ValueError(f"no database {database!r}")
        self._databases.remove(database)
        previous = {name: table for name, table in self._tables.items() if name[0] == database}
        for name in previous:
            del self._tables[name]
        return self._commit_query(sql or f"DROP DATABASE {quoted(database)}", previous)

    def _commit_query(self, sql: str, previous: Mapping[TableName, _Table]) -> int:
        commit_ts = self._ddl_ts()
        event = DdlEvent(
            ddl_type="QUERY",
            commit_ts=commit_ts,
            build_ts_ms=0,
            sql=sql,
            database="",
            table="",
            schema=None,
            pre_schema=None,
        )
        self.history.append(CommittedDdl(commit_ts=commit_ts, events=(event,), previous=previous))
        return commit_ts

    # Tables

    def create_table(
        self,
        name: TableName,
        columns: Sequence[ColumnSchema],
        *,
        primary_key: Sequence[str] = (),
        indexes: Sequence[IndexSchema] = (),
        clustered: bool = True,
        sql: str | None = None,
    ) -> int:
        """Run CREATE TABLE and return its commit ts.

        Args:
            name: database and table.
            columns: the columns; those of the primary key become NOT NULL.
            primary_key: columns of the primary key, () for none.
            indexes: the other indexes; their `nullable` is found out here.
            clustered: whether the primary key is the row's place in TiKV. Without a primary key
                there is nothing to cluster by.
            sql: the statement, where it should read otherwise than the one built here.
        """
        if name[0] not in self._databases or name in self._tables:
            raise ValueError(f"cannot create {name}: no such database, or the table exists")
        own = tuple(
            replace(column, nullable=False) if column.name in primary_key else column
            for column in columns
        )
        if sql is None:
            parts = [column_sql(column, self.timezone) for column in own]
            if primary_key:
                kind = "clustered" if clustered else "nonclustered"
                parts.append(f"primary key ({_names(primary_key)}) /*T![clustered_index] {kind} */")
            parts += [_index_sql(index) for index in indexes]
            sql = f"CREATE TABLE {_path(name)} ({', '.join(parts)})"
        table = _Table(
            schema=TableSchema(
                database=name[0],
                table=name[1],
                table_id=self._new_table_id(),
                version=self._version(),
                columns=own,
                indexes=(),
            ),
            primary_key=tuple(primary_key),
            clustered=clustered and bool(primary_key),
            secondary=tuple(indexes),
            rows={},
        )
        table.schema = _with_indexes(table)
        return self._commit_table("CREATE", sql, name=name, table=table)

    def create_table_like(
        self, name: TableName, source: TableName, *, sql: str | None = None
    ) -> int:
        """Run CREATE TABLE ... LIKE and return its commit ts."""
        if name[0] not in self._databases or name in self._tables:
            raise ValueError(f"cannot create {name}: no such database, or the table exists")
        like = self._table(source)
        table = replace(like, rows={}, next_row_id=1)
        table.schema = replace(
            like.schema,
            database=name[0],
            table=name[1],
            table_id=self._new_table_id(),
            version=self._version(),
        )
        text = sql or f"CREATE TABLE {_path(name)} LIKE {_path(source)}"
        return self._commit_table("CREATE", text, name=name, table=table)

    def drop_table(self, name: TableName, *, sql: str | None = None) -> int:
        """Run DROP TABLE and return its commit ts."""
        table = self._table(name)
        del self._tables[name]
        # The schema after is that of the dropped table, and the text is TiCDC's, not the user's.
        return self._commit_events(
            [("ERASE", sql or f"DROP TABLE {_path(name)}", table.schema, table.schema)],
            previous={name: table},
        )

    def truncate_table(self, name: TableName, *, sql: str | None = None) -> int:
        """Run TRUNCATE TABLE (a new table id, the same version) and return its commit ts."""
        table = replace(self._table(name), rows={}, next_row_id=1)
        table.schema = replace(table.schema, table_id=self._new_table_id())
        text = sql or f"TRUNCATE TABLE {_path(name)}"
        return self._commit_table("TRUNCATE", text, name=name, table=table)

    def rename_table(self, name: TableName, new_name: TableName, *, sql: str | None = None) -> int:
        """Run RENAME TABLE for one table and return its commit ts."""
        return self.rename_tables([(name, new_name)], sqls=None if sql is None else [sql])

    def rename_tables(
        self,
        renames: Iterable[tuple[TableName, TableName]],
        *,
        sqls: Sequence[str] | None = None,
    ) -> int:
        """Run one RENAME TABLE for several tables, in order, and return its commit ts.

        `a` to `tmp`, `b` to `a`, `tmp` to `b` swaps two tables. TiCDC sends one event for each.
        """
        previous: dict[TableName, _Table | None] = {}
        events: list[tuple[str, str, TableSchema | None, TableSchema | None]] = []
        for number, (name, new_name) in enumerate(renames):
            table = self._table(name)
            if new_name in self._tables or new_name[0] not in self._databases:
                raise ValueError(f"cannot rename {name} to {new_name}")
            previous.setdefault(name, table)
            previous.setdefault(new_name, None)
            renamed = replace(table, rows=dict(table.rows))
            renamed.schema = replace(table.schema, database=new_name[0], table=new_name[1])
            del self._tables[name]
            self._tables[new_name] = renamed
            text = f"RENAME TABLE {_path(name)} TO {_path(new_name)}"
            text = text if sqls is None else sqls[number]
            events.append(("RENAME", text, renamed.schema, table.schema))
        return self._commit_events(events, previous=previous)

    def alter_table(self, name: TableName, *actions: AlterAction, sql: str | None = None) -> int:
        """Run ALTER TABLE with one or more changes to columns and return its commit ts."""
        table = replace(self._table(name), rows=dict(self._table(name).rows))
        parts = [_ACTIONS[type(action)](table, action, self.timezone) for action in actions]
        text = sql or f"ALTER TABLE {_path(name)} {', '.join(parts)}"
        return self._commit_altered("ALTER", text, name=name, table=table)

    def create_index(
        self,
        name: TableName,
        index: str,
        *,
        columns: Sequence[str],
        unique: bool = False,
        sql: str | None = None,
    ) -> int:
        """Run CREATE INDEX and return its commit ts."""
        table = replace(self._table(name), rows=dict(self._table(name).rows))
        added = IndexSchema(
            name=index, unique=unique, primary=False, nullable=False, columns=tuple(columns)
        )
        if index in {other.name for other in table.secondary}:
            raise ValueError(f"{name}: index {index!r} exists")
        table.secondary = (*table.secondary, added)
        kind = "UNIQUE INDEX" if unique else "INDEX"
        text = sql or f"CREATE {kind} {quoted(index)} ON {_path(name)} ({_names(columns)})"
        return self._commit_altered("CINDEX", text, name=name, table=table)

    def drop_index(self, name: TableName, index: str, *, sql: str | None = None) -> int:
        """Run DROP INDEX and return its commit ts."""
        table = replace(self._table(name), rows=dict(self._table(name).rows))
        table.secondary = tuple(other for other in table.secondary if other.name != index)
        if len(table.secondary) == len(self._table(name).secondary):
            raise ValueError(f"{name}: no index {index!r}")
        text = sql or f"DROP INDEX {quoted(index)} ON {_path(name)}"
        return self._commit_altered("DINDEX", text, name=name, table=table)

    def _table(self, name: TableName) -> _Table:
        table = self._tables.get(name)
        if table is None:
            raise ValueError(f"no table {name}")
        return table

    def _new_table_id(self) -> int:
        self._next_table_id += 2
        return self._next_table_id

    def _version(self) -> int:
        # The version is the TSO at which the schema was written, shortly before the commit.
        return self.clock.last if self._share_ts else self.clock.next()

    def _ddl_ts(self) -> int:
        self.clock.step()
        commit_ts = self.clock.last if self._share_ts else self.clock.next()
        self._share_ts = False
        return commit_ts

    def _commit_altered(self, ddl_type: str, sql: str, *, name: TableName, table: _Table) -> int:
        table.schema = replace(_with_indexes(table), version=self._version())
        rekeyed: dict[Key, Row] = {}
        for key, row in table.rows.items():
            ordered = {column.name: row[column.name] for column in table.schema.columns}
            rekeyed[_key_of(table.schema, ordered) or key] = ordered
        table.rows = rekeyed
        return self._commit_table(ddl_type, sql, name=name, table=table)

    def _commit_table(self, ddl_type: str, sql: str, *, name: TableName, table: _Table) -> int:
        previous = self._tables.get(name)
        self._tables[name] = table
        return self._commit_events(
            [(ddl_type, sql, table.schema, previous.schema if previous else None)],
            previous={name: previous},
        )

    def _commit_events(
        self,
        events: Iterable[tuple[str, str, TableSchema | None, TableSchema | None]],
        *,
        previous: Mapping[TableName, _Table | None],
    ) -> int:
        commit_ts = self._ddl_ts()
        self.history.append(
            CommittedDdl(
                commit_ts=commit_ts,
                events=tuple(
                    DdlEvent(
                        ddl_type=ddl_type,
                        commit_ts=commit_ts,
                        build_ts_ms=0,
                        sql=sql,
                        database=schema.database if schema else "",
                        table=schema.table if schema else "",
                        schema=schema,
                        pre_schema=pre_schema,
                    )
                    for ddl_type, sql, schema, pre_schema in events
                ),
                previous=previous,
            )
        )
        return commit_ts


def is_in_cut(commit: Commit, at: int) -> bool:
    """Tell whether a commit is in the cut at the TSO `at`: rows up to it, DDL below it."""
    if isinstance(commit, CommittedDdl):
        return commit.commit_ts < at
    return commit.commit_ts <= at


def _path(name: TableName) -> str:
    return f"{quoted(name[0])}.{quoted(name[1])}"


def _names(columns: Iterable[str]) -> str:
    return ", ".join(map(quoted, columns))


def _index_sql(index: IndexSchema) -> str:
    kind = "unique key" if index.unique else "key"
    return f"{kind} {quoted(index.name)} ({_names(index.columns)})"


def index(name: str, *columns: str, unique: bool = False) -> IndexSchema:
    """Return an index for `Upstream.create_table`."""
    return IndexSchema(name=name, unique=unique, primary=False, nullable=False, columns=columns)


def _complete_row(schema: TableSchema, values: Row, *, timezone: str) -> Row:
    row = {
        column.name: values[column.name]
        if column.name in values
        else default_value(column, timezone)
        for column in schema.columns
    }
    unknown = values.keys() - row.keys()
    if unknown:
        raise ValueError(f"{schema.table}: unknown columns {sorted(unknown)}")
    for column in schema.columns:
        if row[column.name] is None and not column.nullable:
            raise ValueError(f"{schema.table}: {column.name!r} may not be NULL")
    return row


def _key_of(schema: TableSchema, row: Row) -> Key | None:
    """Return the values of the handle key, None for a table without one."""
    key = tuple(row[name] or "" for name in schema.handle_key)
    return key or None


def _with_indexes(table: _Table) -> TableSchema:
    """Return the schema with its indexes as TiCDC sends them."""
    columns = {column.name: column for column in table.schema.columns}
    secondary = tuple(
        replace(index, nullable=any(columns[name].nullable for name in index.columns))
        for index in table.secondary
    )
    is_row_id = (
        table.clustered
        and len(table.primary_key) == 1
        and columns[table.primary_key[0]].mysql_type.endswith("int")
    )
    if table.primary_key and not is_row_id:
        return replace(table.schema, indexes=(_primary("PRIMARY", table.primary_key), *secondary))
    # TiDB keeps no index for these keys, and TiCDC adds one.
    key = table.primary_key or min(
        (index.columns for index in secondary if index.unique and not index.nullable),
        key=len,
        default=(),
    )
    added = (_primary("primary", key),) if key else ()
    return replace(table.schema, indexes=(*secondary, *added))


def _primary(name: str, columns: tuple[str, ...]) -> IndexSchema:
    return IndexSchema(name=name, unique=True, primary=True, nullable=False, columns=columns)


def _existing(table: _Table, name: str) -> ColumnSchema:
    found = table.schema.column(name)
    if found is None:
        raise ValueError(f"{table.schema.table}: no column {name!r}")
    return found


def _add_column(table: _Table, action: AddColumn, timezone: str) -> str:
    column = action.column
    if table.schema.column(column.name) is not None:
        raise ValueError(f"{table.schema.table}: column {column.name!r} exists")
    value = default_value(column, timezone)
    if value is None and not column.nullable:
        value = zero_value(column)
    table.schema = replace(table.schema, columns=(*table.schema.columns, column))
    table.rows = {key: {**row, column.name: value} for key, row in table.rows.items()}
    return f"ADD COLUMN {column_sql(column, timezone)} {action.place}".rstrip()


def _drop_column(table: _Table, action: DropColumn, timezone: str) -> str:
    del timezone
    _existing(table, action.name)
    wider = [index.columns for index in table.secondary if len(index.columns) > 1]
    if any(action.name in columns for columns in (table.primary_key, *wider)):
        raise ValueError(f"{table.schema.table}: {action.name!r} is part of a key")
    table.secondary = tuple(i for i in table.secondary if i.columns != (action.name,))
    table.schema = replace(
        table.schema, columns=tuple(c for c in table.schema.columns if c.name != action.name)
    )
    table.rows = {
        key: {name: value for name, value in row.items() if name != action.name}
        for key, row in table.rows.items()
    }
    return f"DROP COLUMN {quoted(action.name)}"


def _replace_column(table: _Table, old: str, column: ColumnSchema) -> None:
    """Put `column` in the place of the column called `old`, with its values, in keys too."""
    if column.name != old and table.schema.column(column.name) is not None:
        raise ValueError(f"{table.schema.table}: column {column.name!r} exists")
    table.schema = replace(
        table.schema, columns=tuple(column if c.name == old else c for c in table.schema.columns)
    )
    table.primary_key = tuple(column.name if c == old else c for c in table.primary_key)
    table.secondary = tuple(
        replace(index, columns=tuple(column.name if c == old else c for c in index.columns))
        for index in table.secondary
    )
    table.rows = {
        key: {column.name if name == old else name: value for name, value in row.items()}
        for key, row in table.rows.items()
    }


def _rename_column(table: _Table, action: RenameColumn, timezone: str) -> str:
    del timezone
    renamed = replace(_existing(table, action.name), name=action.new_name)
    _replace_column(table, action.name, renamed)
    return f"RENAME COLUMN {quoted(action.name)} TO {quoted(action.new_name)}"


def _modify_column(table: _Table, action: ModifyColumn, timezone: str) -> str:
    old, new = _existing(table, action.name), action.column
    if old.name in table.primary_key:
        new = replace(new, nullable=False)
    modified = {key: modified_value(row[old.name], old, new) for key, row in table.rows.items()}
    if not new.nullable and None in modified.values():
        raise ValueError(f"{table.schema.table}: {old.name!r} holds NULL")
    _replace_column(table, old.name, new)
    table.rows = {key: {**row, new.name: modified[key]} for key, row in table.rows.items()}
    if rewrites_rows(old, new):
        others = tuple(c for c in table.schema.columns if c.name != new.name)
        table.schema = replace(table.schema, columns=(*others, new))
    definition = column_sql(new, timezone)
    if new.name == old.name:
        return f"MODIFY COLUMN {definition}"
    return f"CHANGE COLUMN {quoted(old.name)} {definition}"


def _set_default(table: _Table, action: SetDefault, timezone: str) -> str:
    column = replace(_existing(table, action.name), default=action.default)
    _replace_column(table, action.name, column)
    if action.default is None:
        return f"ALTER COLUMN {quoted(action.name)} DROP DEFAULT"
    return f"ALTER COLUMN {quoted(action.name)} SET DEFAULT {default_sql(column, timezone)}"


_ACTIONS: Final[Mapping[type[AlterAction], Callable[..., str]]] = {
    AddColumn: _add_column,
    DropColumn: _drop_column,
    RenameColumn: _rename_column,
    ModifyColumn: _modify_column,
    SetDefault: _set_default,
}
