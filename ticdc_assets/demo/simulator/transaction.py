"""A transaction of the stand-in upstream, what it commits, and what cuts have of its commits.

In: inserts, updates and deletes, in order. Out: the net change of each row as TiKV makes it, an
update of a unique key as a delete and an insert, as TiCDC sends it. The tables themselves are not
changed here. Of commits, which `Upstream` appends to its history and which never change: whether
one is in the cut at a TSO, and the tables before the last of them (`tables_before`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from ticdc_assets.demo.simulator.stored_table import (
    ROW_ID,
    Key,
    Row,
    StoredTable,
    TableName,
    complete_row,
    key_of,
)
from ticdc_assets.model.events import DdlEvent, Op
from ticdc_assets.model.schemas import TableSchema

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
