"""The workload: the life of a shop, its rows and its schema changes.

In: an `Upstream` and a seed. Out: commits in it: databases `shop` and `crm` with tables of many
types and kinds of key, then transactions over several tables, and now and then a DDL statement.

The same seed, sizes and clock give the same history. Steps may be taken in any portions.

Not handled: shops larger than memory.
"""

import random
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from ticdc_assets.demo.simulator.alterations import SetDefault
from ticdc_assets.demo.simulator.columns import text_literal
from ticdc_assets.demo.simulator.shop_trades import (
    CREATES,
    CUSTOMERS,
    INVENTORY,
    ORDERS,
    REVIEWS,
    TABLES,
    TRADES,
    ShopWriter,
    new_customer,
    new_product,
    visit,
)
from ticdc_assets.demo.simulator.statements import execute
from ticdc_assets.demo.simulator.upstream import Upstream

_Statement: TypeAlias = str | Callable[[], int]
"""SQL as a person types it, or a call of the upstream for what `statements` does not know."""

STEPS_PER_DDL: Final = 12
_CUSTOMERS, _PRODUCTS = 40, 20
"""How many there are before the first step."""


class ShopWorkload:
    """Writes the life of a shop into an upstream.

    Args:
        upstream: where it is written; it must not have databases `shop` and `crm`.
        seed: of everything random.
        steps_per_ddl: steps between two schema changes; 0 for no schema change.

    Attributes:
        transactions: row transactions committed so far.
        statements: DDL statements committed so far.
    """

    def __init__(
        self, upstream: Upstream, seed: int = 0, *, steps_per_ddl: int = STEPS_PER_DDL
    ) -> None:
        self.transactions = 0
        self.statements = 0
        self._upstream = upstream
        self._steps_per_ddl = steps_per_ddl
        self._shop = ShopWriter(upstream, random.Random(seed))
        self._life = _live(upstream)
        self._steps = 0
        self._is_open = False

    def open(self) -> None:
        """Create the databases and tables and fill them, if that was not done yet."""
        if self._is_open:
            return
        self._is_open = True
        self._upstream.create_database("shop")
        self._upstream.create_database("crm", charset="utf8mb4")
        for statement in CREATES.split(";\n")[:-1]:
            execute(self._upstream, statement)
        self.statements += 2 + len(TABLES)
        for name, new, count in (
            (CUSTOMERS, new_customer, _CUSTOMERS),
            (INVENTORY, new_product, _PRODUCTS),
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
            every = self._steps_per_ddl
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


def _live(upstream: Upstream) -> Iterator[None]:
    """Run one DDL statement at each step; each round meets every kind of DDL under new names."""
    turn = 0
    while True:
        turn += 1
        for statement in _round(upstream, turn):
            if isinstance(statement, str):
                execute(upstream, statement)
            else:
                statement()
            yield


def _round(upstream: Upstream, turn: int) -> Iterator[_Statement]:
    """Yield the statements of one round; the tables that come and go have the key `id`."""
    customers, orders, reviews = "shop.customers", "shop.orders", "crm.reviews"
    phone, contact, priority = f"phone_{turn}", f"`Contact {turn}`", f"priority_{turn}"
    spare, scratch, odd = f"spare_{turn}", f"scratch_{turn}", f"odd_{turn}"
    left, right, aside = f"crm.left_{turn}", f"crm.right_{turn}", f"crm.aside_{turn}"
    promotions, index = f"shop.promotions_{turn}", f"ix_state_{turn}"
    labels = ["bronze", "silver", "gold", *(f"level {n}" for n in range(1, turn + 1))]

    def rename_unqualified() -> int:
        upstream.qualified = False  # a client that did `USE shop`
        execute(upstream, f"ALTER TABLE {customers} RENAME COLUMN {phone} TO {contact}")
        upstream.qualified = True
        return upstream.history[-1].commit_ts

    yield f"""ALTER TABLE {customers} ADD COLUMN {phone} varchar(20) DEFAULT '+49 30 5550100'
        AFTER name"""
    yield f"""CREATE TABLE {promotions} (id int PRIMARY KEY, title varchar(50),
        starts timestamp DEFAULT '2024-03-11 08:51:01', discount decimal(5,2) NOT NULL DEFAULT 0.05,
        banner varbinary(32) DEFAULT 'vb')"""
    # NOT NULL without a default: rows that are there get the type's zero.
    yield f"ALTER TABLE {orders} ADD COLUMN {priority} tinyint unsigned NOT NULL FIRST"
    yield lambda: upstream.create_index(ORDERS, index, columns=("state",))
    yield rename_unqualified
    yield f"CREATE TABLE {left} (id int PRIMARY KEY, v varchar(40), amount int)"
    yield f"ALTER TABLE {orders} MODIFY COLUMN {priority} int unsigned NOT NULL DEFAULT 7"
    yield f"CREATE TABLE {right} (id int PRIMARY KEY, v datetime(3), raw binary(4))"
    yield f"TRUNCATE TABLE {promotions}"
    yield lambda: upstream.create_database(scratch)
    yield f"RENAME TABLE {left} TO {aside}, {right} TO {left}, {aside} TO {right}"
    yield f"RENAME TABLE {promotions} TO {scratch}.offers"
    yield f"""ALTER TABLE {reviews}
        ADD COLUMN seen_{turn} timestamp(3) DEFAULT '2024-03-11 08:51:01.461',
        ADD COLUMN {spare} bit(10) DEFAULT 682"""
    # The content of `left` now has the name `right`: INT to VARCHAR rewrites its rows.
    yield f"ALTER TABLE {right} CHANGE COLUMN amount total varchar(40)"
    yield lambda: upstream.alter_table(REVIEWS, SetDefault(name=spare, default=None))
    yield f"""ALTER TABLE {customers}
        MODIFY COLUMN level enum({",".join(map(text_literal, labels))}) NOT NULL"""
    yield f"DROP TABLE {left}"
    # The same name again, another table.
    yield f"CREATE TABLE {left} (id int PRIMARY KEY, w json, v double)"
    yield f"""ALTER TABLE {reviews} DROP COLUMN {spare},
        ADD COLUMN kept_{turn} smallint DEFAULT -3"""
    yield f"""ALTER TABLE {customers}
        MODIFY COLUMN balance decimal({min(12 + turn, 30)},2) DEFAULT 0.5"""
    yield lambda: upstream.drop_index(ORDERS, index)
    yield f"CREATE TABLE {aside} LIKE {right}"
    yield f"ALTER TABLE {orders} DROP COLUMN {priority}"
    yield lambda: upstream.drop_database(scratch)
    yield f"ALTER TABLE shop.inventory MODIFY COLUMN qty bigint DEFAULT {turn}"
    yield f"ALTER TABLE {customers} DROP COLUMN {contact}"
    # The same of odd values: a default beyond ASCII, and another scale for extremes.
    yield f"""ALTER TABLE shop.odd_values ADD COLUMN {odd} decimal(20,6) DEFAULT -0.5 FIRST,
        ADD COLUMN {odd}_text varchar(20) DEFAULT 'ü'"""
    yield f"ALTER TABLE shop.odd_values MODIFY COLUMN {odd} decimal(30,9)"
    yield f"ALTER TABLE shop.odd_values DROP COLUMN {odd}, DROP COLUMN {odd}_text"
    for name in (left, right, aside):
        yield f"DROP TABLE {name}"
