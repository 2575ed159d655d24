"""What the shop does with its schema: every kind of DDL, round after round, under new names.

In: a `ShopWriter`. Out: an iterator that runs one DDL statement at each step. Rows are written
between the steps, so each statement meets rows that are older than it.
"""

from collections.abc import Iterator

from ticdc_assets.demo.simulator.alterations import (
    AddColumn,
    DropColumn,
    ModifyColumn,
    RenameColumn,
    SetDefault,
)
from ticdc_assets.demo.simulator.columns import column, quoted, text_literal
from ticdc_assets.demo.simulator.shop_tables import (
    CUSTOMERS,
    INVENTORY,
    ODD_VALUES,
    ORDERS,
    REVIEWS,
)
from ticdc_assets.demo.simulator.shop_writer import ShopWriter


def live(shop: ShopWriter) -> Iterator[None]:
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
        upstream.alter_table(
            CUSTOMERS,
            RenameColumn(name=phone, new_name=contact),
            # A client that did `USE shop`, and comments: the text is sent as it was typed.
            sql=f"/* round {turn} */\nalter table customers  rename column {phone}"
            f" to {quoted(contact)} -- done",
        )
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
        shop.keys.pop(promotions, None)
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
        shop.forget_side_table(left)
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
        shop.forget_side_table(offers)
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
            shop.forget_side_table(name)
            yield
