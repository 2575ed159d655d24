"""What the shop does with rows: each trade is one transaction, over one table or several.

In: a `ShopWriter` and a transaction. Out: row changes, about 70 inserts to 20 updates to 10
deletes over all trades by their weights; among them changes of keys, and two rows that trade
their keys, which no single update can say.
"""

from collections.abc import Callable, Mapping
from typing import Final

from ticdc_assets.demo.simulator.shop_tables import (
    CONTACTS,
    CUSTOMERS,
    INVENTORY,
    ORDER_ITEMS,
    ORDERS,
    PAYMENTS,
    REVIEWS,
    TABLES,
    VISITS,
)
from ticdc_assets.demo.simulator.shop_writer import ShopWriter
from ticdc_assets.demo.simulator.transaction import Transaction

_FORGETTABLE: Final = (VISITS, ORDER_ITEMS, REVIEWS, PAYMENTS, CONTACTS, ORDERS)


def new_customer(shop: ShopWriter) -> dict[str, str | None]:
    """Return the values of a customer that are not random."""
    number = shop.number("customer")
    created = shop.now_text(6)
    return {"id": str(number), "email": f"ann+{number}@example.com", "created": created}


def new_product(shop: ShopWriter) -> dict[str, str | None]:
    """Return the values of a product that are not random."""
    number = shop.number("product")
    warehouse = shop.rng.choice(("north", "süd", "東", "o'west"))
    return {"sku": f"sku-{number}", "warehouse": warehouse, "qty": str(shop.rng.randrange(5000))}


def _sign_up(shop: ShopWriter, transaction: Transaction) -> None:
    shop.insert(transaction, CUSTOMERS, **new_customer(shop))
    if shop.rng.random() < 0.5:
        handle = f"{shop.rng.choice(('ann', 'Bo', 'José', '李'))}-{shop.number('contact')}"
        shop.insert(transaction, CONTACTS, handle=handle)


def _order(shop: ShopWriter, transaction: Transaction) -> None:
    rng = shop.rng
    customer, product = shop.choose(CUSTOMERS), shop.choose(INVENTORY)
    # Ids above 2^63 are what BIGINT UNSIGNED is for.
    number = str(2**63 + shop.number("order") if rng.random() < 0.1 else shop.number("order"))
    lines = rng.randint(1, 4)
    shop.insert(
        transaction,
        ORDERS,
        region=rng.choice(("eu", "us", "as")),
        order_id=number,
        customer=customer[0] if customer else "0",
        state="new",
        placed=shop.now_text(6),
        pieces=str(lines),
    )
    for line in range(1, lines + 1):
        sku = product[0] if product else f"gone-{rng.randrange(9)}"
        shop.insert(transaction, ORDER_ITEMS, order_id=number, line_no=str(line), sku=sku)
    if product is not None:
        row = transaction.row(INVENTORY, product)
        qty = int((row or {}).get("qty") or 0) - lines
        if abs(qty) < 2**31:
            shop.update(transaction, INVENTORY, key=product, changes={"qty": str(qty)})


def _pay(shop: ShopWriter, transaction: Transaction) -> None:
    order = shop.choose(ORDERS)
    if order is None:
        return
    identifier = f"0x{shop.rng.randbytes(12).hex()}{shop.number('payment'):08x}"
    paid_at = shop.now_text(3)
    shop.insert(transaction, PAYMENTS, id=identifier, order_id=order[1], paid_at=paid_at)
    state = shop.rng.choice(("paid", "sent", "it's done"))
    shop.update(transaction, ORDERS, key=order, changes={"state": state})


def _review(shop: ShopWriter, transaction: Transaction) -> None:
    product = shop.choose(INVENTORY)
    sku = product[0] if product else None
    shop.insert(transaction, REVIEWS, id=str(2**32 - shop.number("review")), sku=sku)


def visit(shop: ShopWriter, transaction: Transaction) -> None:
    """Insert a few visits; unlike other trades it always changes something."""
    for _ in range(shop.rng.randint(1, 4)):
        number = str(shop.number("visit"))
        shop.insert(transaction, VISITS, id=number, at=shop.now_text(6))


def _stock(shop: ShopWriter, transaction: Transaction) -> None:
    shop.insert(transaction, INVENTORY, **new_product(shop))


def _correct(shop: ShopWriter, transaction: Transaction) -> None:
    for name in shop.rng.sample(tuple(TABLES), shop.rng.randint(1, 3)):
        shop.touch(transaction, name)


def _move_keys(shop: ShopWriter, transaction: Transaction) -> None:
    """Change keys: a plain key, a unique key that may be NULL, and two rows trading theirs."""
    rng = shop.rng
    contact = shop.choose(CONTACTS)
    if contact is not None and rng.random() < 0.5:
        changes = {"handle": f"moved-{shop.number('contact')}"}
        shop.update(transaction, CONTACTS, key=contact, changes=changes)
    customer = shop.choose(CUSTOMERS)
    if customer is not None:
        email = rng.choice((None, f"new+{shop.number('email')}@example.com"))
        shop.update(transaction, CUSTOMERS, key=customer, changes={"email": email})
    one, other = shop.choose(INVENTORY), shop.choose(INVENTORY)
    if one is None or other is None or one == other:
        return
    aside = (f"aside-{shop.number('aside')}", one[1])
    for old, new in ((one, aside), (other, one), (aside, other)):
        changes = {"sku": new[0], "warehouse": new[1]}
        shop.update(transaction, INVENTORY, key=old, changes=changes)


def _forget(shop: ShopWriter, transaction: Transaction) -> None:
    # From the large tables more often than from the small: none should die out.
    sizes = [len(shop.keys.get(name, ())) for name in _FORGETTABLE]
    for name in shop.rng.choices(_FORGETTABLE, weights=[size + 1 for size in sizes], k=3):
        shop.delete(transaction, name)


def _fill_side_table(shop: ShopWriter, transaction: Transaction) -> None:
    """Write to a table that comes and goes: a few rows in, sometimes one changed or out."""
    if not shop.side_tables:
        visit(shop, transaction)
        return
    name = shop.rng.choice(shop.side_tables)
    for _ in range(shop.rng.randint(1, 3)):
        shop.insert(transaction, name, id=str(shop.number("side")))
    if shop.rng.random() < 0.4:
        shop.touch(transaction, name)
    if shop.rng.random() < 0.2:
        shop.delete(transaction, name)


TRADES: Final[Mapping[Callable[[ShopWriter, Transaction], None], int]] = {
    _order: 24,
    visit: 14,
    _fill_side_table: 12,
    _pay: 12,
    _correct: 12,
    _forget: 10,
    _review: 8,
    _sign_up: 6,
    _move_keys: 4,
    _stock: 3,
}
"""Each trade with how often it comes."""
