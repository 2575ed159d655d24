"""The workload: the life of a shop, its rows and its schema changes.

In: an `Upstream` and a seed. Out: commits in it: databases `shop` and `crm` with tables of many
types and kinds of key, then transactions over several tables, and now and then a DDL statement.

The tables of `TABLES` are there from the first day to the last: with keys clustered and not, one
key column and two, integers, text and bytes as keys, and one whose key is a NOT NULL unique key.
Their rows look like those of a real shop. One table is not for people: `ODD_VALUES` has a column of
nearly every type of TiDB, and the values that break readers.

Each trade is one transaction: about 70 inserts to 20 updates to 10 deletes over all trades by their
weights; among them changes of keys, and two rows that trade their keys, which no single update can
say. Columns that a trade does not name get values too, whatever columns the table has by then.

The same seed, sizes and clock give the same history. Steps may be taken in any portions.

Not handled: shops larger than memory.
"""

import random
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain, count, islice
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from ticdc_assets.demo.simulator.alterations import SetDefault
from ticdc_assets.demo.simulator.columns import moment_text, text_literal
from ticdc_assets.demo.simulator.shop_values import (
    ALWAYS,
    CITIES,
    FIRST_NAMES,
    PRODUCTS,
    WAREHOUSES,
    full_name,
    number_text,
    odd_value,
    plain_value,
    price,
)
from ticdc_assets.demo.simulator.statements import execute
from ticdc_assets.demo.simulator.stored_table import Key, TableName
from ticdc_assets.demo.simulator.upstream import Transaction, Upstream
from ticdc_assets.model.schemas import ColumnSchema

CUSTOMERS: Final[TableName] = ("shop", "customers")
ORDERS: Final[TableName] = ("shop", "orders")
ORDER_ITEMS: Final[TableName] = ("shop", "order_items")
INVENTORY: Final[TableName] = ("shop", "inventory")
PAYMENTS: Final[TableName] = ("shop", "payments")
REVIEWS: Final[TableName] = ("crm", "reviews")
VISITS: Final[TableName] = ("crm", "visits")
CONTACTS: Final[TableName] = ("crm", "contacts")
ODD_VALUES: Final[TableName] = ("shop", "odd_values")

TABLES: Final = (
    CUSTOMERS, ORDERS, ORDER_ITEMS, INVENTORY, PAYMENTS, REVIEWS, VISITS, CONTACTS, ODD_VALUES,
)  # fmt: skip

CREATES: Final = """\
CREATE TABLE shop.customers (
    id bigint, name varchar(64), email varchar(128), city varchar(40),
    balance decimal(12,2) DEFAULT 0.00, flags bit(8) NOT NULL DEFAULT b'101',
    level enum('bronze','silver','gold') NOT NULL DEFAULT 'bronze', tags set('vip','new','blocked'),
    profile json, born date, created timestamp, updated datetime(3),
    PRIMARY KEY (id), UNIQUE KEY uk_email (email));
CREATE TABLE shop.orders (
    region char(2), order_id bigint unsigned, customer bigint NOT NULL, total decimal(12,2),
    state enum('new','paid','sent','done') NOT NULL, note varchar(200), placed datetime NOT NULL,
    pieces smallint unsigned NOT NULL DEFAULT 1,
    PRIMARY KEY (region, order_id));
CREATE TABLE shop.order_items (
    order_id bigint unsigned, line_no int, sku varchar(32) NOT NULL, price double, weight float,
    gift tinyint(1),
    PRIMARY KEY (order_id, line_no) NONCLUSTERED, KEY ix_sku (sku));
CREATE TABLE shop.inventory (
    sku varchar(32) NOT NULL, warehouse varchar(16) NOT NULL, qty int, note text, img blob,
    UNIQUE KEY uk (sku, warehouse));
CREATE TABLE shop.payments (
    id binary(16), order_id bigint unsigned NOT NULL, amount decimal(12,2) NOT NULL,
    fee decimal(8,4), method enum('card','cash','transfer'),
    reference varbinary(64) DEFAULT 'none', paid_at timestamp(3),
    PRIMARY KEY (id));
CREATE TABLE crm.reviews (
    id int unsigned, sku varchar(32), stars tinyint unsigned, body mediumtext, took time(3),
    bought year, embedding vector(3), heat float,
    PRIMARY KEY (id));
CREATE TABLE crm.visits (
    id bigint unsigned, kind varchar(20) CHARACTER SET latin1, payload json, at datetime(6),
    agent longtext, stayed time(6), scrolled mediumint,
    PRIMARY KEY (id) NONCLUSTERED);
CREATE TABLE crm.contacts (
    handle varchar(40), bio text, born date DEFAULT '2000-02-29', photo mediumblob,
    PRIMARY KEY (handle), KEY ix_born (born, handle));
CREATE TABLE shop.odd_values (
    id bigint unsigned, tiny tinyint, medium mediumint, whole int unsigned, big bigint,
    exact decimal(38,10), widest decimal(65,30), single float, twice double, bits bit(64),
    words varchar(64), latin varchar(20) CHARACTER SET latin1, long_text longtext, fixed binary(16),
    bytes varbinary(64) DEFAULT 'none', large mediumblob, day date, moment datetime(6),
    stamp timestamp(6), span time(6), since year, choice enum('plain','it''s','é','two words'),
    choices set('a','b c','é'), doc json, place vector(3),
    PRIMARY KEY (id));
"""
"""How `TABLES` are created, in their order."""

_FORGETTABLE: Final = (VISITS, ORDER_ITEMS, REVIEWS, PAYMENTS, CONTACTS, ORDERS, ODD_VALUES)


class ShopWriter:
    """Writes rows of a shop; `rng` decides everything random."""

    def __init__(self, upstream: Upstream, rng: random.Random) -> None:
        self.upstream = upstream
        self.rng = rng
        self._zone = ZoneInfo(upstream.timezone)
        self._numbers: dict[str, int] = {}

    def now(self) -> datetime:
        """Return the moment of the upstream's clock in the shop's zone."""
        at = datetime.fromtimestamp(self.upstream.clock.physical_ms / 1000, tz=UTC)
        at = at.replace(microsecond=at.microsecond // 1000 * 1000 + self.rng.randrange(1000))
        return at.astimezone(self._zone)

    def now_text(self, digits: int) -> str:
        """Return the moment of the upstream's clock as the text of a DATETIME or TIMESTAMP."""
        return moment_text(self.now(), digits)

    def number(self, series: str) -> int:
        """Return the next number of a series, from 1."""
        self._numbers[series] = self._numbers.get(series, 0) + 1
        return self._numbers[series]

    def insert(self, transaction: Transaction, name: TableName, /, **values: str | None) -> None:
        """Insert a row: given values, for other columns others or at times the default."""
        row: dict[str, str | None] = dict(values)
        for schema in self.upstream.schema(name).columns:
            is_default = schema.default is not None and self.rng.random() < 0.2
            if schema.name not in row and not is_default:
                row[schema.name] = self.value(name, schema)
        transaction.insert(name, row)

    def value(self, name: TableName, schema: ColumnSchema) -> str | None:
        """Return a value of a table's column, NULL now and then where it may be."""
        if schema.nullable and schema.name not in ALWAYS and self.rng.random() < 0.15:
            return None
        generate = odd_value if name == ODD_VALUES else plain_value
        return generate(self.rng, schema, self.now())

    def delete(self, transaction: Transaction, name: TableName) -> None:
        """Delete some row of a table, if there is one."""
        key = self.choose(transaction, name)
        if key is not None:
            transaction.delete(name, key)

    def choose(self, transaction: Transaction, name: TableName) -> Key | None:
        """Return the key of some row that a table had before the transaction and still has."""
        rows = self.upstream.rows(name)
        key = next(islice(rows, self.rng.randrange(len(rows)), None)) if rows else None
        return None if key is None or transaction.row(name, key) is None else key

    def touch(self, transaction: Transaction, name: TableName) -> None:
        """Change one to three columns of some row that are in no key, whatever they are by now."""
        key = self.choose(transaction, name)
        if key is None:
            return
        schema = self.upstream.schema(name)
        keyed = {c for i in schema.indexes if i.unique for c in i.columns}
        free = [c for c in schema.columns if c.name not in keyed]
        chosen = self.rng.sample(free, min(len(free), self.rng.randint(1, 3)))
        changes = {c.name: self.value(name, c) for c in chosen}
        transaction.update(name, key, changes=changes)


# Trades -------------------------------------------------------------------------------------------


def _new_customer(shop: ShopWriter) -> dict[str, str | None]:
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


def _new_product(shop: ShopWriter) -> dict[str, str | None]:
    """Return what a new product is called, where it is, and how many there are."""
    return {
        "sku": f"{shop.rng.choice(PRODUCTS)}-{shop.number('product'):04d}",
        "warehouse": shop.rng.choice(WAREHOUSES),
        "qty": str(shop.rng.randrange(5000)),
    }


def _sign_up(shop: ShopWriter, transaction: Transaction) -> None:
    shop.insert(transaction, CUSTOMERS, **_new_customer(shop), created=shop.now_text(0))
    if shop.rng.random() < 0.5:
        handle = f"{shop.rng.choice(FIRST_NAMES).lower()}-{shop.number('contact')}"
        shop.insert(transaction, CONTACTS, handle=handle)


def _order(shop: ShopWriter, transaction: Transaction) -> None:
    rng = shop.rng
    customer, product = (shop.choose(transaction, name) for name in (CUSTOMERS, INVENTORY))
    assert customer is not None
    assert product is not None
    number = str(shop.number("order"))
    prices = [price(rng) for _ in range(rng.randint(1, 4))]
    shop.insert(
        transaction,
        ORDERS,
        region=rng.choice(("eu", "us", "as")),
        order_id=number,
        customer=customer[0],
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
            sku=product[0],
            price=number_text(paid),
        )
    row = transaction.row(INVENTORY, product)
    qty = int((row or {}).get("qty") or 0) - len(prices)
    transaction.update(INVENTORY, product, changes={"qty": str(qty)})


def _pay(shop: ShopWriter, transaction: Transaction) -> None:
    order = shop.choose(transaction, ORDERS)
    if order is None:
        return
    identifier = f"0x{shop.rng.randbytes(12).hex()}{shop.number('payment'):08x}"
    paid_at = shop.now_text(3)
    amount = (transaction.row(ORDERS, order) or {}).get("total") or "0.00"
    shop.insert(
        transaction, PAYMENTS, id=identifier, order_id=order[1], amount=amount, paid_at=paid_at
    )
    state = shop.rng.choice(("paid", "sent", "done"))
    transaction.update(ORDERS, order, changes={"state": state})


def _review(shop: ShopWriter, transaction: Transaction) -> None:
    product = shop.choose(transaction, INVENTORY)
    sku = product[0] if product else None
    shop.insert(transaction, REVIEWS, id=str(shop.number("review")), sku=sku)


def _visit(shop: ShopWriter, transaction: Transaction) -> None:
    """Insert a few visits; unlike other trades it always changes something."""
    for _ in range(shop.rng.randint(1, 4)):
        number = str(shop.number("visit"))
        shop.insert(transaction, VISITS, id=number, at=shop.now_text(6))


def _stock(shop: ShopWriter, transaction: Transaction) -> None:
    shop.insert(transaction, INVENTORY, **_new_product(shop))


def _correct(shop: ShopWriter, transaction: Transaction) -> None:
    for name in shop.rng.sample(TABLES, shop.rng.randint(1, 3)):
        shop.touch(transaction, name)


def _move_keys(shop: ShopWriter, transaction: Transaction) -> None:
    """Change keys: a plain key, a unique key that may be NULL, and two rows trading theirs."""
    rng = shop.rng
    contact = shop.choose(transaction, CONTACTS)
    if contact is not None and rng.random() < 0.5:
        changes = {"handle": f"{rng.choice(FIRST_NAMES).lower()}-{shop.number('contact')}"}
        transaction.update(CONTACTS, contact, changes=changes)
    customer = shop.choose(transaction, CUSTOMERS)
    if customer is not None:
        email = rng.choice((None, f"post.{shop.number('email')}@example.org"))
        transaction.update(CUSTOMERS, customer, changes={"email": email})
    one, other = (shop.choose(transaction, INVENTORY) for _ in range(2))
    if one is None or other is None or one == other:
        return
    aside = (f"ASIDE-{shop.number('aside')}", one[1])
    for old, new in ((one, aside), (other, one), (aside, other)):
        changes = {"sku": new[0], "warehouse": new[1]}
        transaction.update(INVENTORY, old, changes=changes)


def _forget(shop: ShopWriter, transaction: Transaction) -> None:
    # From the large tables more often than from the small: none should die out.
    sizes = [len(shop.upstream.rows(name)) for name in _FORGETTABLE]
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
    side_tables = [name for name in shop.upstream.tables if name not in TABLES]
    if not side_tables:
        _visit(shop, transaction)
        return
    name = shop.rng.choice(side_tables)
    for _ in range(shop.rng.randint(1, 3)):
        shop.insert(transaction, name, id=str(shop.number("side")))
    if shop.rng.random() < 0.4:
        shop.touch(transaction, name)
    if shop.rng.random() < 0.2:
        shop.delete(transaction, name)


TRADES: Final[Mapping[Callable[[ShopWriter, Transaction], None], int]] = {
    _order: 24,
    _visit: 14,
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


_Statement: TypeAlias = str | Callable[[], int]
"""SQL as a person types it, or a call of the upstream for what `statements` does not know."""

_STEPS_PER_DDL: Final = 12
_CUSTOMERS, _PRODUCTS = 40, 20
"""How many there are before the first step."""


class ShopWorkload:
    """Writes the life of a shop into an upstream without databases `shop` and `crm`.

    With `steps_per_ddl` 0 there is no schema change.

    Attributes:
        transactions: row transactions committed so far.
        statements: DDL statements committed so far.
    """

    def __init__(
        self, upstream: Upstream, seed: int = 0, *, steps_per_ddl: int = _STEPS_PER_DDL
    ) -> None:
        self.transactions = 0
        self.statements = 0
        self._upstream = upstream
        self._steps_per_ddl = steps_per_ddl
        self._shop = ShopWriter(upstream, random.Random(seed))
        # Each round meets every kind of DDL under new names.
        self._life = chain.from_iterable(_round(upstream, turn) for turn in count(1))
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
        for name, new, left in (
            (CUSTOMERS, _new_customer, _CUSTOMERS),
            (INVENTORY, _new_product, _PRODUCTS),
        ):
            while left > 0:
                size = min(left, self._shop.rng.randint(1, 20))
                with self._upstream.transaction() as transaction:
                    for _ in range(size):
                        self._shop.insert(transaction, name, **new(self._shop))
                self.transactions += 1
                left -= size

    def steps(self, number: int) -> Iterator[int]:
        """Take so many steps, yielding the highest commit ts after each.

        A step is one transaction, or one DDL statement when it is time for one.
        """
        self.open()
        for _ in range(number):
            self._steps += 1
            every = self._steps_per_ddl
            if every and self._steps % every == 0:
                statement = next(self._life)
                if isinstance(statement, str):
                    execute(self._upstream, statement)
                else:
                    statement()
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
                _visit(self._shop, transaction)


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
