"""What the stand-in for a TiDB cluster committed: transactions and DDL, and what cuts have of them.

In: commits, as `Upstream` appends them to its history. Out: whether one is in the cut at a TSO,
and the tables before the last of them (`tables_before`).
Commits never change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ticdc_assets.demo.simulator.stored_table import Key, Row, StoredTable, TableName
from ticdc_assets.demo.simulator.transaction import CommittedRow
from ticdc_assets.model.events import DdlEvent

Truth: TypeAlias = dict[TableName, dict[Key, Row]]
"""The rows of every table by their key."""


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
    """Return the tables, with their rows, as they were before the last commits.

    Args:
        tables: the tables now; left as they are.
        later: the last commits, oldest first.
    """
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
