"""A bank: accounts in several tables, transfers between them, and a total that never changes.

In: an `Upstream` and a seed. Out: commits in it. Whoever reads every table at one TSO must find the
total, whichever TSO it is; a transaction read in part, or twice, changes it. Half of what a reader
must keep together lies apart: in another table, another partition upstream (`savings` is divided by
HASH), another partition of the topic, or in the two halves of an update that moves an account to
another number.

The same seed and sizes give the same history.

Not handled: DDL, and accounts that are opened or closed with money in them.
"""

import random
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.partitions import Method, Partitioning
from ticdc_assets.demo.simulator.stored_table import Key, Row, TableName, index
from ticdc_assets.demo.simulator.transaction import Transaction
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets_tests.demo.simulator.partition_changes import hash_partitions

ACCOUNTS: Final[TableName] = ("bank", "accounts")
SAVINGS: Final[TableName] = ("bank", "savings")
VAULT: Final[TableName] = ("vault", "deposits")
TABLES: Final[tuple[TableName, ...]] = (ACCOUNTS, SAVINGS, VAULT)
"""Tables with a clustered key, with one that is not (divided by HASH), and with a unique key."""

BALANCE: Final = "balance"
_ACCOUNTS: Final = 12
"""Accounts in each table."""


class Bank:
    """Writes transfers into an upstream.

    Args:
        upstream: where; it must not have databases `bank` and `vault`.
        seed: of everything random.

    Attributes:
        total: what all balances sum up to, from the opening on.
        opened_ts: commit ts of the opening, in one transaction.
    """

    def __init__(self, upstream: Upstream, seed: int = 0) -> None:
        self.total = Decimal(0)
        self.opened_ts = 0
        self._upstream = upstream
        self._rng = random.Random(seed)
        self._next = _ACCOUNTS

    def open(self) -> None:
        """Create the tables, and all accounts in one transaction."""
        upstream = self._upstream
        for database in ("bank", "vault"):
            upstream.create_database(database)
        owner = column("owner", "varchar(20)")
        balance = column(BALANCE, "decimal(14,2)", nullable=False)
        number = column("number", "int", nullable=False)
        upstream.create_table(ACCOUNTS, (number, owner, balance), primary_key=("number",))
        upstream.create_table(
            SAVINGS,
            (number, owner, balance),
            primary_key=("number",),
            clustered=False,
            partitioning=Partitioning(
                method=Method.HASH, column="number", partitions=hash_partitions(3)
            ),
        )
        branch = column("branch", "varchar(10)", nullable=False)
        upstream.create_table(
            VAULT,
            (branch, number, balance),
            indexes=(index("uk", "branch", "number", unique=True),),
        )
        with upstream.transaction() as transaction:
            for name in TABLES:
                for account in range(_ACCOUNTS):
                    amount = Decimal(self._rng.randrange(100_000)) / 100
                    self.total += amount
                    row = {"number": str(account), BALANCE: f"{amount:.2f}"}
                    if name == VAULT:
                        row["branch"] = self._rng.choice(("nord", "süd"))
                    transaction.insert(name, row)
        self.opened_ts = upstream.history[-1].commit_ts

    def transfer(self) -> int:
        """Commit one transaction of one to three transfers and return the last commit ts."""
        with self._upstream.transaction() as transaction:
            for _ in range(self._rng.randint(1, 3)):
                source, target = self._account(transaction), self._account(transaction)
                if source == target:
                    continue
                amount = Decimal(self._rng.randrange(1, 50_000)) / 100
                self._book(transaction, *source, amount=-amount)
                self._book(transaction, *target, amount=amount)
        return self._upstream.history[-1].commit_ts

    def _account(self, transaction: Transaction) -> tuple[TableName, Key]:
        name = self._rng.choice(TABLES)
        return name, self._rng.choice(tuple(transaction.rows(name)))

    def _book(
        self, transaction: Transaction, name: TableName, key: Key, *, amount: Decimal
    ) -> None:
        """Change a balance; now and then the account gets another number with it."""
        row = transaction.row(name, key)
        if row is None:
            raise ValueError(f"{name}: no account {key}")
        changes: dict[str, str | None] = {BALANCE: f"{balance_of(row) + amount:.2f}"}
        if self._rng.random() < 0.15:
            changes["number"] = str(self._next)
            self._next += 1
        transaction.update(name, key, changes=changes)


def balance_of(row: Row) -> Decimal:
    """Return the balance of an account."""
    return Decimal(row[BALANCE] or "0")


def total_of(truth: Mapping[TableName, Mapping[Key, Row]]) -> Decimal:
    """Return what all balances sum up to."""
    return sum((balance_of(row) for rows in truth.values() for row in rows.values()), Decimal(0))
