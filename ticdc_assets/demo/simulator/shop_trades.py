"""What the shop does with rows: each trade is one transaction, over one table or several.

In: a `ShopWriter` and a transaction. Out: row changes, about 70 inserts to 20 updates to 10
deletes over all trades by their weights; among them changes of keys, and two rows that trade
their keys, which no single update can say.
"""

import unicodedata
from collections.abc import Callable, Mapping
from typing import Final

from ticdc_assets.demo.simulator.shop_tables import (
    CONTACTS,
    CUSTOMERS,
    INVENTORY,
    ODD_VALUES,
    ORDER_ITEMS,
    ORDERS,
    PAYMENTS,
    REVIEWS,
    TABLES,
    VISITS,
)
from ticdc_assets.demo.simulator.shop_values import (
    CITIES,
    FIRST_NAMES,
    PRODUCTS,
    WAREHOUSES,
    full_name,
    number_text,
    price,
)
from ticdc_assets.demo.simulator.shop_writer import ShopWriter
from ticdc_assets.demo.simulator.transaction import Transaction

_FORGETTABLE: Final = (VISITS, ORDER_ITEMS, REVIEWS, PAYMENTS, CONTACTS, ORDERS, ODD_VALUES)


def new_customer(shop: ShopWriter) -> dict[str, str | None]:
    """Return who a new customer is."""
    number = shop.number("customer")
    name = full_name(shop.rng)
    return {
        "id": str(number),
        "name": name,
        "email": f"{_address(name)}.{number}@example.com",
        "city": shop.rng.choice(CITIES),
    }


def _address(name: str) -> str:
    """Return the last of a person's names as an address has it."""
    plain = unicodedata.normalize("NFKD", name.split()[-1].lower())
    return "".join(letter for letter in plain if letter.isascii() and letter.isalpha())


def new_product(shop: ShopWriter) -> dict[str, str | None]:
    """Return what a new product is called, where it is, and how many there are."""
    return {
        "sku": f"{shop.rng.choice(PRODUCTS)}-{shop.number('product'):04d}",
        "warehouse": shop.rng.choice(WAREHOUSES),
        "qty": str(shop.rng.randrange(5000)),
    }


def _sign_up(shop: ShopWriter, transaction: Transaction) -> None:
    shop.insert(transaction, CUSTOMERS, **new_customer(shop), created=shop.now_text(0))
    if shop.rng.random() < 0.5:
        handle = f"{shop.rng.choice(FIRST_NAMES).lower()}-{shop.number('contact')}"
        shop.insert(transaction, CONTACTS, handle=handle)


def _order(shop: ShopWriter, transaction: Transaction) -> None:
    rng = shop.rng
    customer, product = shop.choose(CUSTOMERS), shop.choose(INVENTORY)
    number = str(shop.number("order"))
    prices = [price(rng) for _ in range(rng.randint(1, 4))]
    shop.insert(
        transaction,
        ORDERS,
        region=rng.choice(("eu", "us", "as")),
        order_id=number,
        customer=customer[0] if customer else "0",
        total=f"{sum(prices):.2f}",
        state="new",
        placed=shop.now_text(0),
        pieces=str(len(prices)),
    )
    for line, paid in enumerate(prices, 1):
        shop.insert(
            transaction,
            ORDER_ITEMS,
            order_id=number,
            line_no=str(line),
            sku=product[0] if product else f"{PRODUCTS[0]}-0000",
            price=number_text(paid),
        )
    if product is not None:
        row = transaction.row(INVENTORY, product)
        qty = int((row or {}).get("qty") or 0) - len(prices)
        if abs(qty) < 2**31:
            shop.update(transaction, INVENTORY, key=product, changes={"qty": str(qty)})


def _pay(shop: ShopWriter, transaction: Transaction) -> None:
    order = shop.choose(ORDERS)
    if order is None:
        return
    identifier = f"0x{shop.rng.randbytes(12).hex()}{shop.number('payment'):08x}"
    paid_at = shop.now_text(3)
    amount = (transaction.row(ORDERS, order) or {}).get("total") or "0.00"
    shop.insert(
        transaction, PAYMENTS, id=identifier, order_id=order[1], amount=amount, paid_at=paid_at
    )
    state = shop.rng.choice(("paid", "sent", "done"))
    shop.update(transaction, ORDERS, key=order, changes={"state": state})


def _review(shop: ShopWriter, transaction: Transaction) -> None:
    product = shop.choose(INVENTORY)
    sku = product[0] if product else None
    shop.insert(transaction, REVIEWS, id=str(shop.number("review")), sku=sku)


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
        changes = {"handle": f"{rng.choice(FIRST_NAMES).lower()}-{shop.number('contact')}"}
        shop.update(transaction, CONTACTS, key=contact, changes=changes)
    customer = shop.choose(CUSTOMERS)
    if customer is not None:
        email = rng.choice((None, f"post.{shop.number('email')}@example.org"))
        shop.update(transaction, CUSTOMERS, key=customer, changes={"email": email})
    one, other = shop.choose(INVENTORY), shop.choose(INVENTORY)
    if one is None or other is None or one == other:
        return
    aside = (f"ASIDE-{shop.number('aside')}", one[1])
    for old, new in ((one, aside), (other, one), (aside, other)):
        changes = {"sku": new[0], "warehouse": new[1]}
        shop.update(transaction, INVENTORY, key=old, changes=changes)


def _forget(shop: ShopWriter, transaction: Transaction) -> None:
    # From the large tables more often than from the small: none should die out.
    sizes = [len(shop.keys.get(name, ())) for name in _FORGETTABLE]
    for name in shop.rng.choices(_FORGETTABLE, weights=[size + 1 for size in sizes], k=3):
        shop.delete(transaction, name)


def _odd_values(shop: ShopWriter, transaction: Transaction) -> None:
    """Insert a row of odd values; its id is one that only BIGINT UNSIGNED has, now and then."""
    number = shop.number("odd")
    shop.insert(transaction, ODD_VALUES, id=str(2**63 + number if number % 3 == 0 else number))
    if shop.rng.random() < 0.5:
        shop.touch(transaction, ODD_VALUES)


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
    _odd_values: 8,
    _review: 8,
    _sign_up: 6,
    _move_keys: 4,
    _stock: 3,
}
"""Each trade with how often it comes."""
