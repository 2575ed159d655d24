"""The stand-in upstream with the statements that no shop runs.

The demo's workloads need none of them; tests of the changefeed, of storms and of partitions do.
"""

from contextlib import AbstractContextManager
from dataclasses import replace

from ticdc_assets.simulator.actions import ActionCode
from ticdc_assets.simulator.columns import path_sql, quoted
from ticdc_assets.simulator.commits import CommittedDdl, CommittedTransaction
from ticdc_assets.simulator.stored_table import TableName
from ticdc_assets.simulator.transaction import Transaction
from ticdc_assets.simulator.upstream import Upstream
from ticdc_assets_tests.simulator.partition_changes import (
    PARTITION_CODES,
    PartitionChange,
    TruncatePartitions,
    change_partitions,
    exchange,
)


class OddUpstream(Upstream):
    """An upstream that also changes partitions, and commits as few clusters do.

    TRUNCATE PARTITION and EXCHANGE PARTITION keep the schema's version.
    """

    _shares_ts = False

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
        return self._commit_events(ActionCode.MULTI_CHANGE, [], previous={})

    def unheard_of(self, name: TableName, clause: str) -> int:
        """Run an ALTER TABLE of a kind not known here; rows and columns stay as they are."""
        table = replace(self._table(name), rows=dict(self._table(name).rows))
        text = f"ALTER TABLE {self._path(name)} {clause}"
        return self._commit_altered(ActionCode.TABLE_COMMENT, text, name=name, table=table)

    def alter_partitions(
        self, name: TableName, change: PartitionChange, *, sql: str | None = None
    ) -> int:
        """Run ALTER TABLE with a change of partitions and return its commit ts."""
        table = replace(self._table(name), rows=dict(self._table(name).rows))
        clause = change_partitions(table, change, self._new_table_id)
        if not isinstance(change, TruncatePartitions):
            table.schema = replace(table.schema, version=self._version())
        text = sql or f"ALTER TABLE {self._path(name)} {clause}"
        return self._commit_table(PARTITION_CODES[type(change)], text, name=name, table=table)

    def exchange_partition(
        self, name: TableName, partition: str, other: TableName, *, sql: str | None = None
    ) -> int:
        """Run EXCHANGE PARTITION ... WITH TABLE `other` and return its commit ts.

        TiCDC sends one event, with the divided table's schema after it and the other's before it.
        The versions of both stay.
        """
        divided, alone = self._table(name), self._table(other)
        self._tables[name], self._tables[other] = exchange(divided, partition, alone)
        text = (
            f"ALTER TABLE {path_sql(name)} EXCHANGE PARTITION {quoted(partition)}"
            f" WITH TABLE {path_sql(other)}"
        )
        return self._commit_events(
            ActionCode.EXCHANGE_PARTITION,
            [(sql or text, self._tables[name].schema, alone.schema)],
            previous={name: divided, other: alone},
        )

    def _version(self) -> int:
        return self.clock.last if self._shares_ts else super()._version()

    def _ddl_ts(self) -> int:
        if not self._shares_ts:
            return super()._ddl_ts()
        self._shares_ts = False
        self.clock.step()
        return self.clock.last
