"""The workload: the life of a shop, its rows and its schema changes.

In: an `Upstream` and a seed. Out: commits in it: databases `shop` and `crm` with tables of many
types and kinds of key, then transactions over several tables, and now and then a DDL statement.

The same seed, sizes and clock give the same history. Steps may be taken in any portions.

Not handled: shops larger than memory.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from ticdc_assets.demo.simulator.alterations import (
    AddColumn,
    DropColumn,
    ModifyColumn,
    RenameColumn,
    SetDefault,
)
from ticdc_assets.demo.simulator.columns import column, text_literal
from ticdc_assets.demo.simulator.shop_tables import (
    CUSTOMERS,
    INVENTORY,
    ODD_VALUES,
    ORDERS,
    REVIEWS,
    TABLES,
)
from ticdc_assets.demo.simulator.shop_trades import (
    TRADES,
    ShopWriter,
    new_customer,
    new_product,
    visit,
)
from ticdc_assets.demo.simulator.upstream import Upstream

_CUSTOMERS, _PRODUCTS = 40, 20
"""How many there are before the first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopOptions:
    """Habits of the shop.

    Attributes:
        steps_per_ddl: steps between two schema changes; 0 for no schema change.
        max_rows: a table that has this many rows loses one for each that it gets.
    """

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
        self._life = _live(self._shop)
        self._steps = 0
        self._is_open = False

    def open(self) -> None:
        """Create the databases and tables and fill them, if that was not done yet."""
        if self._is_open:
            return
        self._is_open = True
        self._create_tables()
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
        self._upstream.create_database("crm", charset="utf8mb4")
        self.statements += 2 + len(TABLES)
        for name, definition in TABLES.items():
            self._upstream.create_table(
                name,
                definition.columns,
                primary_key=definition.primary_key,
                indexes=definition.indexes,
                clustered=definition.clustered,
            )


def _live(shop: ShopWriter) -> Iterator[None]:
    """Run one DDL statement at each step; each round meets every kind of DDL under new names."""
    upstream = shop.upstream
    turn = 0
    while True:
        turn += 1
        phone, contact = f"phone_{turn}", f"Contact {turn}"
        priority, seen, spare = f"priority_{turn}", f"seen_{turn}", f"spare_{turn}"
        scratch, odd = f"scratch_{turn}", f"odd_{turn}"
        promotions, offers = ("shop", f"promotions_{turn}"), (scratch, "offers")
        left, right = ("crm", f"left_{turn}"), ("crm", f"right_{turn}")
        aside = ("crm", f"aside_{turn}")

        added = AddColumn(
            column=column(phone, "varchar(20)", default="+49 30 5550100"), after="name"
        )
        upstream.alter_table(CUSTOMERS, added)
        yield
        shop.open_side_table(
            promotions,
            (
                column("title", "varchar(50)"),
                column("starts", "timestamp", default="2024-03-11 00:51:01"),
                column("discount", "decimal(5,2)", nullable=False, default="0.05"),
                column("banner", "varbinary(32)", default="vb"),
            ),
        )
        yield
        # NOT NULL without a default: rows that are there get the type's zero.
        added = AddColumn(column=column(priority, "tinyint unsigned", nullable=False), first=True)
        upstream.alter_table(ORDERS, added)
        yield
        upstream.create_index(ORDERS, f"ix_state_{turn}", columns=("state",))
        yield
        upstream.qualified = False  # a client that did `USE shop`
        upstream.alter_table(CUSTOMERS, RenameColumn(name=phone, new_name=contact))
        upstream.qualified = True
        yield
        shop.open_side_table(left, (column("v", "varchar(40)"), column("amount", "int")))
        yield
        upstream.alter_table(
            ORDERS,
            ModifyColumn(
                name=priority, column=column(priority, "int unsigned", nullable=False, default="7")
            ),
        )
        yield
        shop.open_side_table(right, (column("v", "datetime(3)"), column("raw", "binary(4)")))
        yield
        upstream.truncate_table(promotions)
        yield
        upstream.create_database(scratch)
        yield
        shop.move_side_tables((left, aside), (right, left), (aside, right))
        yield
        shop.move_side_tables((promotions, offers))
        yield
        stamp = column(seen, "timestamp(3)", default="2024-03-11 00:51:01.461")
        upstream.alter_table(
            REVIEWS,
            AddColumn(column=stamp),
            AddColumn(column=column(spare, "bit(10)", default=682)),
        )
        yield
        # The content of `left` now has the name `right`: INT to VARCHAR rewrites its rows.
        upstream.alter_table(
            right, ModifyColumn(name="amount", column=column("total", "varchar(40)"))
        )
        yield
        upstream.alter_table(REVIEWS, SetDefault(name=spare, default=None))
        yield
        labels = ["bronze", "silver", "gold", *(f"level {n}" for n in range(1, turn + 1))]
        level = column("level", f"enum({','.join(map(text_literal, labels))})", nullable=False)
        upstream.alter_table(CUSTOMERS, ModifyColumn(name="level", column=level))
        yield
        upstream.drop_table(left)
        shop.side_tables.remove(left)
        yield
        # The same name again, another table.
        shop.open_side_table(left, (column("w", "json"), column("v", "double")))
        yield
        upstream.alter_table(
            REVIEWS,
            DropColumn(name=spare),
            AddColumn(column=column(f"kept_{turn}", "smallint", default="-3")),
        )
        yield
        wider = column("balance", f"decimal({min(12 + turn, 30)},2)", default="0.5")
        upstream.alter_table(CUSTOMERS, ModifyColumn(name="balance", column=wider))
        yield
        upstream.drop_index(ORDERS, f"ix_state_{turn}")
        yield
        upstream.create_table_like(aside, right)
        shop.side_tables.append(aside)
        yield
        upstream.alter_table(ORDERS, DropColumn(name=priority))
        yield
        upstream.drop_database(scratch)
        shop.side_tables.remove(offers)
        yield
        quantity = column("qty", "bigint", default=str(turn))
        upstream.alter_table(INVENTORY, ModifyColumn(name="qty", column=quantity))
        yield
        upstream.alter_table(CUSTOMERS, DropColumn(name=contact))
        yield
        # The same of odd values: a default beyond ASCII, and another scale for extremes.
        added = AddColumn(column=column(odd, "decimal(20,6)", default="-0.5"), first=True)
        upstream.alter_table(
            ODD_VALUES, added, AddColumn(column=column(f"{odd}_text", "varchar(20)", default="ü"))
        )
        yield
        upstream.alter_table(
            ODD_VALUES, ModifyColumn(name=odd, column=column(odd, "decimal(30,9)"))
        )
        yield
        upstream.alter_table(ODD_VALUES, DropColumn(name=odd), DropColumn(name=f"{odd}_text"))
        yield
        for name in (left, right, aside):
            upstream.drop_table(name)
            shop.side_tables.remove(name)
            yield
