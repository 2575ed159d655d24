"""The workload: the life of a shop, its rows and its schema changes.

In: an `Upstream` and a seed. Out: commits in it: databases `shop` and `crm` with tables of many
types and kinds of key, then transactions over several tables, and now and then a DDL statement.

The same seed, sizes and clock give the same history. Steps may be taken in any portions.

Not handled: shops larger than memory.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from ticdc_assets.demo.simulator.shop_life import live
from ticdc_assets.demo.simulator.shop_tables import CUSTOMERS, INVENTORY, TABLES
from ticdc_assets.demo.simulator.shop_trades import TRADES, new_customer, new_product, visit
from ticdc_assets.demo.simulator.shop_writer import ShopWriter
from ticdc_assets.demo.simulator.upstream import Upstream


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopOptions:
    """Sizes and habits of the shop.

    Attributes:
        customers: customers there are before the first step.
        products: products in the inventory before the first step.
        steps_per_ddl: steps between two schema changes; 0 for no schema change.
        max_rows: a table that has this many rows loses one for each that it gets.
    """

    customers: int = 40
    products: int = 20
    steps_per_ddl: int = 12
    max_rows: int = 100_000


class ShopWorkload:
    """Writes the life of a shop into an upstream.

    Args:
        upstream: where it is written; it must not have databases `shop` and `crm`.
        seed: of everything random.
        options: sizes and habits.

    Attributes:
        transactions: row transactions committed so far.
        statements: DDL statements committed so far.
    """

    def __init__(
        self, upstream: Upstream, seed: int = 0, *, options: ShopOptions | None = None
    ) -> None:
        self.transactions = 0
        self.statements = 0
        self._upstream = upstream
        self._options = options or ShopOptions()
        self._shop = ShopWriter(upstream, random.Random(seed), max_rows=self._options.max_rows)
        self._life = live(self._shop)
        self._steps = 0
        self._is_open = False

    def open(self) -> None:
        """Create the databases and tables and fill them, if that was not done yet."""
        if self._is_open:
            return
        self._is_open = True
        self._create_tables()
        for name, new, count in (
            (CUSTOMERS, new_customer, self._options.customers),
            (INVENTORY, new_product, self._options.products),
        ):
            left = count
            while left > 0:
                size = min(left, self._shop.rng.randint(1, 20))
                with self._upstream.transaction() as transaction:
                    for _ in range(size):
                        self._shop.insert(transaction, name, **new(self._shop))
                self.transactions += 1
                left -= size

    def steps(self, count: int) -> Iterator[int]:
        """Take `count` steps, yielding the highest commit ts after each.

        A step is one transaction, or one DDL statement when it is time for one.
        """
        self.open()
        for _ in range(count):
            self._steps += 1
            every = self._options.steps_per_ddl
            if every and self._steps % every == 0:
                next(self._life)
                self.statements += 1
            else:
                self._trade()
                self.transactions += 1
            yield self._upstream.history[-1].commit_ts

    def _trade(self) -> None:
        trade = self._shop.rng.choices(tuple(TRADES), weights=tuple(TRADES.values()))[0]
        before = len(self._upstream.history)
        with self._upstream.transaction() as transaction:
            trade(self._shop, transaction)
        if len(self._upstream.history) == before:
            # It changed nothing (an update to the same values): a step is always a commit.
            with self._upstream.transaction() as transaction:
                visit(self._shop, transaction)

    def _create_tables(self) -> None:
        self._upstream.create_database("shop")
        self._upstream.create_database("crm", sql="create database crm character set utf8mb4")
        self.statements += 2 + len(TABLES)
        for name, definition in TABLES.items():
            self._upstream.create_table(
                name,
                definition.columns,
                primary_key=definition.primary_key,
                indexes=definition.indexes,
                clustered=definition.clustered,
            )
