"""The stand-in upstream with the statements that no shop runs.

The demo's workloads need none of them; tests of the changefeed, of storms and of partitions do.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

from ticdc_assets.demo.simulator.alterations import ActionCode
from ticdc_assets.demo.simulator.columns import charset_sql, path_sql, quoted
from ticdc_assets.demo.simulator.stored_table import StoredTable, TableName
from ticdc_assets.demo.simulator.upstream import (
    CommittedDdl,
    CommittedTransaction,
    Transaction,
    Upstream,
)
from ticdc_assets.model.schemas import TableSchema
from ticdc_assets_tests.demo.simulator.partition_changes import (
    PartitionChange,
    TruncatePartitions,
    check_places,
    exchange,
)


class OddUpstream(Upstream):
    """An upstream that also changes partitions, and commits as few clusters do.

    TRUNCATE PARTITION and EXCHANGE PARTITION keep the schema's version.
    """

    _shares_ts = False

    def __init__(self, *, timezone: str = "UTC") -> None:
        super().__init__(timezone=timezone)
        self._views: dict[TableName, TableSchema] = {}
        # What was dropped or truncated last under each name.
        self._gone: dict[TableName, StoredTable] = {}

    @property
    def views(self) -> tuple[TableName, ...]:
        """Views that exist now."""
        return tuple(self._views)

    @property
    def recoverable(self) -> tuple[TableName, ...]:
        """Names under which a table was dropped or truncated and not yet brought back."""
        return tuple(self._gone)

    def alter_database(self, database: str, *, charset: str) -> int:
        """Run ALTER DATABASE, which no table that is there notices, and return its commit ts."""
        if database not in self._databases:
            raise ValueError(f"no database {database!r}")
        self._databases[database] = charset
        text = f"ALTER DATABASE {quoted(database)}{charset_sql(charset)}"
        return self._commit_ddl(ActionCode.ALTER_DATABASE, [(text, None, None)], database=database)

    def drop_database(self, database: str, *, sql: str | None = None) -> int:
        """Run DROP DATABASE, its tables and views with it, and return its commit ts."""
        commit_ts = super().drop_database(database, sql=sql)
        for names in (self._views, self._gone):
            for name in [name for name in names if name[0] == database]:
                del names[name]
        return commit_ts

    def create_view(self, name: TableName, source: TableName) -> int:
        """Run CREATE VIEW over a table and return its commit ts."""
        self._require_new(name)
        schema = self._table(source).schema
        shown = schema.columns
        view = TableSchema(
            database=name[0],
            table=name[1],
            table_id=self._new_table_id(),
            version=self._version(),
            columns=shown,
            indexes=(),
        )
        self._views[name] = view
        text = (
            "CREATE ALGORITHM = UNDEFINED DEFINER = CURRENT_USER SQL SECURITY DEFINER"
            f" VIEW {self._path(name)} AS"
            f" SELECT {','.join(quoted(column.name) for column in shown)} FROM {path_sql(source)}"
        )
        return self._commit_ddl(ActionCode.CREATE_VIEW, [(text, view, None)], of_view=True)

    def drop_view(self, name: TableName) -> int:
        """Run DROP VIEW and return its commit ts."""
        view = self._views.pop(name)
        event = (f"DROP VIEW {path_sql(name)}", view, view)
        return self._commit_ddl(ActionCode.DROP_VIEW, [event], of_view=True)

    def _require_new(
        self, name: TableName, tables: Mapping[TableName, StoredTable] | None = None
    ) -> None:
        super()._require_new(name, tables)
        if name in self._views:
            raise ValueError(f"there is a view {name}")

    def drop_table(self, name: TableName) -> int:
        """Run DROP TABLE and return its commit ts."""
        self._gone[name] = self._table(name)
        return super().drop_table(name)

    def truncate_table(self, name: TableName) -> int:
        """Run TRUNCATE TABLE and return its commit ts."""
        self._gone[name] = self._table(name)
        return super().truncate_table(name)

    def recover_table(self, name: TableName, *, to: str | None = None) -> int:
        """Bring back, with its rows, what was last dropped or truncated under a name.

        Args:
            name: the name it had then.
            to: FLASHBACK TABLE ... TO another name in its database; None for RECOVER TABLE.
        """
        gone = self._gone.get(name)
        new_name = (name[0], name[1] if to is None else to)
        if gone is None:
            raise ValueError(f"there is nothing to recover of {name}")
        self._require_new(new_name)
        del self._gone[name]
        table = replace(gone, rows=dict(gone.rows))
        table.schema = replace(
            gone.schema, database=new_name[0], table=new_name[1], version=self._version()
        )
        text = f"RECOVER TABLE {self._path(name)}"
        if to is not None:
            text = f"FLASHBACK TABLE {self._path(name)} TO {quoted(to)}"
        return self._commit_table(ActionCode.RECOVER_TABLE, text, table)

    def forget(self) -> None:
        """Let nothing be brought back of what was dropped or truncated so far."""
        self._gone.clear()

    def was_truncated(self, name: TableName) -> bool:
        """Tell whether a name in `recoverable` is there for a table that was truncated."""
        gone = self._gone[name].schema
        return any(
            event.ddl_type == "TRUNCATE" and event.pre_schema == gone
            for commit in self.history
            if isinstance(commit, CommittedDdl)
            for event in commit.events
        )

    def share_next_ts(self) -> None:
        """Let the next DDL commit at the commit ts of the transaction just committed.

        Rows of that commit ts belong before the DDL.

        Raises:
            ValueError: the last commit is not a transaction.
        """
        if not self.history or not isinstance(self.history[-1], CommittedTransaction):
            raise ValueError("only a DDL after a transaction can share a commit ts")
        self._shares_ts = True

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Commit the changes made in the `with` block together."""
        self._shares_ts = False
        return super().transaction()

    def unsent(self) -> int:
        """Run a statement that TiCDC never sends (CREATE SEQUENCE); return its commit ts."""
        return self._commit_ddl(ActionCode.MULTI_CHANGE, [])

    def unheard_of(self, name: TableName, clause: str) -> int:
        """Run an ALTER TABLE of a kind not known here; rows and columns stay as they are."""
        table = self._copy(name)
        text = f"ALTER TABLE {self._path(name)} {clause}"
        return self._commit_altered(ActionCode.TABLE_COMMENT, text, table)

    def alter_partitions(self, name: TableName, change: PartitionChange) -> int:
        """Run ALTER TABLE with a change of partitions and return its commit ts."""
        table = self._copy(name)
        clause = change(table, self._new_table_id)
        check_places(table)
        if not isinstance(change, TruncatePartitions):
            table.schema = replace(table.schema, version=self._version())
        text = f"ALTER TABLE {self._path(name)} {clause}"
        return self._commit_table(change.code, text, table)

    def exchange_partition(self, name: TableName, partition: str, other: TableName) -> int:
        """Run EXCHANGE PARTITION ... WITH TABLE `other` and return its commit ts.

        TiCDC sends one event, with the divided table's schema after it and the other's before it.
        The versions of both stay.
        """
        alone = self._table(other)
        after, alone_after = exchange(self._table(name), partition, alone)
        text = (
            f"ALTER TABLE {path_sql(name)} EXCHANGE PARTITION {quoted(partition)}"
            f" WITH TABLE {path_sql(other)}"
        )
        return self._commit_ddl(
            ActionCode.EXCHANGE_PARTITION,
            [(text, after.schema, alone.schema)],
            {**self._tables, name: after, other: alone_after},
            exchanged=alone_after.schema.table_id,
        )

    def _version(self) -> int:
        return self.clock.last if self._shares_ts else super()._version()

    def _ddl_ts(self) -> int:
        if not self._shares_ts:
            return super()._ddl_ts()
        self._shares_ts = False
        self.clock.step()
        return self.clock.last
