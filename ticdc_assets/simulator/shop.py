"""The workload: the life of a shop, its rows and its schema changes.

In: an `Upstream` and a seed. Out: commits in it: databases `shop` and `crm` with tables of many
types and kinds of key, then transactions over several tables (about 70 inserts to 20 updates to
10 deletes), and now and then an episode of DDL, in an order that is the same for every seed.

The same seed, sizes and clock give the same history. Steps may be taken in any portions.

Not handled: the workload knows no load beyond its own memory; a shop of millions of rows needs as
much of it.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from ticdc_assets.schemas import ColumnSchema, IndexSchema
from ticdc_assets.simulator.columns import column, moment_text, quoted, random_value, text_literal
from ticdc_assets.simulator.upstream import (
    AddColumn,
    DropColumn,
    Key,
    ModifyColumn,
    RenameColumn,
    SetDefault,
    TableName,
    Transaction,
    Upstream,
    index,
)

CUSTOMERS: Final[TableName] = ("shop", "customers")
ORDERS: Final[TableName] = ("shop", "orders")
ORDER_ITEMS: Final[TableName] = ("shop", "order_items")
INVENTORY: Final[TableName] = ("shop", "inventory")
PAYMENTS: Final[TableName] = ("shop", "payments")
REVIEWS: Final[TableName] = ("crm", "reviews")
VISITS: Final[TableName] = ("crm", "visits")
CONTACTS: Final[TableName] = ("crm", "contacts")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopOptions:
    """Sizes and habits of the shop.

    Attributes:
        customers: customers there are before the first step.
        products: products in the inventory before the first step.
        steps_per_ddl: steps between two schema changes; 0 for no schema change.
        max_rows: a table that has this many rows gets no more; its oldest go instead.
    """

    customers: int = 40
    products: int = 20
    steps_per_ddl: int = 12
    max_rows: int = 100_000


class _Ring:
    """The keys of a table in the order of their arrival, with a fast random choice and removal."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._places: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Key) -> None:
        if key not in self._places:
            self._places[key] = len(self._keys)
            self._keys.append(key)

    def remove(self, key: Key) -> None:
        place = self._places.pop(key)
        last = self._keys.pop()
        if place < len(self._keys):
            self._keys[place] = last
            self._places[last] = place

    def choose(self, rng: random.Random) -> Key:
        return self._keys[rng.randrange(len(self._keys))]


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
        self._rng = random.Random(seed)
        self._options = options or ShopOptions()
        self._zone = ZoneInfo(upstream.timezone)
        self._keys: dict[TableName, _Ring] = {}
        self._numbers: dict[str, int] = {}
        self._side_tables: list[TableName] = []
        self._steps = 0
        self._episodes = _life(self)
        self._is_open = False

    def open(self) -> None:
        """Create the databases and tables and fill them, if that was not done yet."""
        if self._is_open:
            return
        self._is_open = True
        self._create()
        rng = self._rng
        remaining = {CUSTOMERS: self._options.customers, INVENTORY: self._options.products}
        for name, count in remaining.items():
            while count > 0:
                size = min(count, rng.randint(1, 20))
                with self._upstream.transaction() as transaction:
                    for _ in range(size):
                        self._insert(transaction, name, **_FRESH[name](self))
                self.transactions += 1
                count -= size

    def steps(self, count: int) -> Iterator[int]:
        """Take `count` steps, yielding the highest commit ts after each.

        A step is one transaction, or one DDL statement when it is time for one.
        """
        self.open()
        for _ in range(count):
            self._steps += 1
            every = self._options.steps_per_ddl
            if every and self._steps % every == 0:
                next(self._episodes)
                self.statements += 1
            else:
                self._trade()
                self.transactions += 1
            yield self._upstream.history[-1].commit_ts

    # Rows

    def _trade(self) -> None:
        action = self._rng.choices(tuple(_TRADES), weights=tuple(_TRADES.values()))[0]
        before = len(self._upstream.history)
        with self._upstream.transaction() as transaction:
            action(self, transaction)
        if len(self._upstream.history) == before:
            # It changed nothing (an update to the same values): a step is always a commit.
            with self._upstream.transaction() as transaction:
                _visit(self, transaction)

    def _now_text(self, digits: int, *, zone: ZoneInfo | None = None) -> str:
        at = datetime.fromtimestamp(self._upstream.clock.physical_ms / 1000, tz=UTC)
        at = at.replace(microsecond=at.microsecond // 1000 * 1000 + self._rng.randrange(1000))
        return moment_text(at.astimezone(zone or self._zone), digits)

    def _number(self, series: str) -> int:
        self._numbers[series] = self._numbers.get(series, 0) + 1
        return self._numbers[series]

    def _insert(self, transaction: Transaction, name: TableName, **values: str | None) -> Key:
        """Insert a row: given values, and random ones for other columns (at times the default)."""
        row: dict[str, str | None] = dict(values)
        for schema in self._upstream.schema(name).columns:
            if schema.name not in row:
                value = self._value(schema)
                if value is not None or schema.nullable:
                    row[schema.name] = value
        key = transaction.insert(name, row)
        ring = self._keys.setdefault(name, _Ring())
        ring.add(key)
        if len(ring) > self._options.max_rows:
            self._delete(transaction, name)
        return key

    def _value(self, schema: ColumnSchema) -> str | None:
        if schema.nullable and self._rng.random() < 0.15:
            return None
        return random_value(self._rng, schema, timezone=self._upstream.timezone)

    def _update(
        self,
        transaction: Transaction,
        name: TableName,
        *,
        key: Key,
        changes: Mapping[str, str | None],
    ) -> None:
        known = {c.name for c in self._upstream.schema(name).columns}
        new_key = transaction.update(
            name, key, changes={c: value for c, value in changes.items() if c in known}
        )
        if new_key != key:
            self._keys[name].remove(key)
            self._keys[name].add(new_key)

    def _delete(self, transaction: Transaction, name: TableName) -> None:
        key = self._choose(name)
        if key is not None and transaction.row(name, key) is not None:
            transaction.delete(name, key)
            self._keys[name].remove(key)

    def _choose(self, name: TableName) -> Key | None:
        ring = self._keys.get(name)
        return ring.choose(self._rng) if ring else None

    def _touch(self, transaction: Transaction, name: TableName) -> None:
        """Change one to three columns of some row that are in no key, whatever they are by now."""
        key = self._choose(name)
        if key is None:
            return
        schema = self._upstream.schema(name)
        keyed = {c for i in schema.indexes if i.unique for c in i.columns}
        free = [c for c in schema.columns if c.name not in keyed]
        chosen = self._rng.sample(free, min(len(free), self._rng.randint(1, 3)))
        changes = {c.name: self._value(c) for c in chosen}
        self._update(transaction, name, key=key, changes=changes)

    def _create(self) -> None:
        upstream = self._upstream
        upstream.create_database("shop")
        upstream.create_database("crm", sql="create database crm character set utf8mb4")
        for name, definition in _TABLES.items():
            upstream.create_table(
                name,
                definition.columns,
                primary_key=definition.primary_key,
                indexes=definition.indexes,
                clustered=definition.clustered,
            )

    # Schema changes

    def _open_side_table(self, name: TableName, columns: Sequence[ColumnSchema]) -> None:
        """Create a table that comes and goes; `_fill_side_table` writes to it."""
        self._upstream.create_table(
            name, (column("id", "int", nullable=False), *columns), primary_key=("id",)
        )
        self._side_tables.append(name)

    def _move_side_tables(self, *renames: tuple[TableName, TableName]) -> None:
        self._upstream.rename_tables(renames)
        for name, new_name in renames:
            self._side_tables[self._side_tables.index(name)] = new_name
            if name in self._keys:
                self._keys[new_name] = self._keys.pop(name)

    def _forget_side_table(self, name: TableName) -> None:
        self._side_tables.remove(name)
        self._keys.pop(name, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Definition:
    columns: Sequence[ColumnSchema]
    primary_key: Sequence[str] = ()
    indexes: Sequence[IndexSchema] = ()
    clustered: bool = True


_TABLES: Final[Mapping[TableName, _Definition]] = {
    CUSTOMERS: _Definition(
        columns=(
            column("id", "bigint", nullable=False),
            column("name", "varchar(64)"),
            column("email", "varchar(128)"),
            column("balance", "decimal(12,2)", default="0.00"),
            column("flags", "bit(8)", nullable=False, default=5),
            column("level", "enum('bronze','silver','gold')", nullable=False, default="bronze"),
            column("tags", "set('vip','new','blocked')"),
            column("profile", "json"),
            column("born", "date"),
            column("created", "timestamp(6)"),
            column("updated", "datetime(3)"),
        ),
        primary_key=("id",),
        indexes=(index("uk_email", "email", unique=True),),
    ),
    ORDERS: _Definition(
        columns=(
            column("region", "char(2)", nullable=False),
            column("order_id", "bigint unsigned", nullable=False),
            column("customer", "bigint", nullable=False),
            column("total", "decimal(20,6)"),
            column("state", "enum('new','paid','sent','it''s done')", nullable=False),
            column("note", "varchar(200)"),
            column("placed", "datetime(6)", nullable=False),
            column("pieces", "smallint unsigned", nullable=False, default="1"),
        ),
        primary_key=("region", "order_id"),
    ),
    ORDER_ITEMS: _Definition(
        columns=(
            column("order_id", "bigint unsigned", nullable=False),
            column("line_no", "int", nullable=False),
            column("sku", "varchar(32)", nullable=False),
            column("price", "double"),
            column("weight", "float"),
            column("gift", "tinyint(1)"),
        ),
        primary_key=("order_id", "line_no"),
        indexes=(index("ix_sku", "sku"),),
        clustered=False,
    ),
    INVENTORY: _Definition(
        columns=(
            column("sku", "varchar(32)", nullable=False),
            column("warehouse", "varchar(16)", nullable=False),
            column("qty", "int"),
            column("note", "text"),
            column("img", "blob"),
        ),
        indexes=(index("uk", "sku", "warehouse", unique=True),),
    ),
    PAYMENTS: _Definition(
        columns=(
            column("id", "binary(16)", nullable=False),
            column("order_id", "bigint unsigned", nullable=False),
            column("amount", "decimal(38,10)", nullable=False),
            column("fee", "decimal(65,30)"),
            column("method", "enum('card','cash','transfer','é')"),
            column("reference", "varbinary(64)", default="none"),
            column("paid_at", "timestamp(3)"),
        ),
        primary_key=("id",),
    ),
    REVIEWS: _Definition(
        columns=(
            column("id", "int unsigned", nullable=False),
            column("sku", "varchar(32)"),
            column("stars", "tinyint unsigned"),
            column("body", "mediumtext"),
            column("took", "time(3)"),
            column("bought", "year"),
            column("embedding", "vector(3)"),
            column("heat", "float"),
        ),
        primary_key=("id",),
    ),
    VISITS: _Definition(
        columns=(
            column("id", "bigint unsigned", nullable=False),
            column("kind", "varchar(20) charset latin1"),
            column("payload", "json"),
            column("at", "datetime(6)"),
            column("agent", "longtext"),
            column("stayed", "time(6)"),
            column("bits", "bit(64)"),
            column("far", "mediumint"),
        ),
        primary_key=("id",),
        clustered=False,
    ),
    CONTACTS: _Definition(
        columns=(
            column("handle", "varchar(40)", nullable=False),
            column("bio", "text"),
            column("born", "date", default="2000-02-29"),
            column("photo", "mediumblob"),
        ),
        primary_key=("handle",),
        indexes=(index("ix_born", "born", "handle"),),
    ),
}


def _new_customer(shop: ShopWorkload) -> dict[str, str | None]:
    number = shop._number("customer")
    created = shop._now_text(6)
    return {"id": str(number), "email": f"ann+{number}@example.com", "created": created}


def _new_product(shop: ShopWorkload) -> dict[str, str | None]:
    number = shop._number("product")
    warehouse = shop._rng.choice(("north", "süd", "東", "o'west"))
    return {"sku": f"sku-{number}", "warehouse": warehouse, "qty": str(shop._rng.randrange(5000))}


_FRESH: Final[Mapping[TableName, Callable[[ShopWorkload], dict[str, str | None]]]] = {
    CUSTOMERS: _new_customer,
    INVENTORY: _new_product,
}


_FORGETTABLE: Final = (VISITS, ORDER_ITEMS, REVIEWS, PAYMENTS, CONTACTS, ORDERS)


# Trades: what one transaction does.


def _sign_up(shop: ShopWorkload, transaction: Transaction) -> None:
    shop._insert(transaction, CUSTOMERS, **_new_customer(shop))
    if shop._rng.random() < 0.5:
        handle = f"{shop._rng.choice(('ann', 'Bo', 'José', '李'))}-{shop._number('contact')}"
        shop._insert(transaction, CONTACTS, handle=handle)


def _order(shop: ShopWorkload, transaction: Transaction) -> None:
    rng = shop._rng
    customer, product = shop._choose(CUSTOMERS), shop._choose(INVENTORY)
    # Ids above 2^63 are what BIGINT UNSIGNED is for.
    number = str(2**63 + shop._number("order") if rng.random() < 0.1 else shop._number("order"))
    lines = rng.randint(1, 4)
    shop._insert(
        transaction,
        ORDERS,
        region=rng.choice(("eu", "us", "as")),
        order_id=number,
        customer=customer[0] if customer else "0",
        state="new",
        placed=shop._now_text(6),
        pieces=str(lines),
    )
    for line in range(1, lines + 1):
        sku = product[0] if product else f"gone-{rng.randrange(9)}"
        shop._insert(transaction, ORDER_ITEMS, order_id=number, line_no=str(line), sku=sku)
    if product is not None:
        row = transaction.row(INVENTORY, product)
        qty = int((row or {}).get("qty") or 0) - lines
        if abs(qty) < 2**31:
            shop._update(transaction, INVENTORY, key=product, changes={"qty": str(qty)})


def _pay(shop: ShopWorkload, transaction: Transaction) -> None:
    order = shop._choose(ORDERS)
    if order is None:
        return
    identifier = f"0x{shop._rng.randbytes(12).hex()}{shop._number('payment'):08x}"
    paid_at = shop._now_text(3)
    shop._insert(transaction, PAYMENTS, id=identifier, order_id=order[1], paid_at=paid_at)
    state = shop._rng.choice(("paid", "sent", "it's done"))
    shop._update(transaction, ORDERS, key=order, changes={"state": state})


def _review(shop: ShopWorkload, transaction: Transaction) -> None:
    product = shop._choose(INVENTORY)
    sku = product[0] if product else None
    shop._insert(transaction, REVIEWS, id=str(2**32 - shop._number("review")), sku=sku)


def _visit(shop: ShopWorkload, transaction: Transaction) -> None:
    for _ in range(shop._rng.randint(1, 4)):
        number = str(shop._number("visit"))
        shop._insert(transaction, VISITS, id=number, at=shop._now_text(6))


def _stock(shop: ShopWorkload, transaction: Transaction) -> None:
    shop._insert(transaction, INVENTORY, **_new_product(shop))


def _correct(shop: ShopWorkload, transaction: Transaction) -> None:
    for name in shop._rng.sample(tuple(_TABLES), shop._rng.randint(1, 3)):
        shop._touch(transaction, name)


def _move_keys(shop: ShopWorkload, transaction: Transaction) -> None:
    """Change keys: a plain key, a unique key that may be NULL, and two rows trading theirs."""
    rng = shop._rng
    contact = shop._choose(CONTACTS)
    if contact is not None and rng.random() < 0.5:
        changes = {"handle": f"moved-{shop._number('contact')}"}
        shop._update(transaction, CONTACTS, key=contact, changes=changes)
    customer = shop._choose(CUSTOMERS)
    if customer is not None:
        email = rng.choice((None, f"new+{shop._number('email')}@example.com"))
        shop._update(transaction, CUSTOMERS, key=customer, changes={"email": email})
    one, other = shop._choose(INVENTORY), shop._choose(INVENTORY)
    if one is None or other is None or one == other:
        return
    aside = (f"aside-{shop._number('aside')}", one[1])
    for old, new in ((one, aside), (other, one), (aside, other)):
        changes = {"sku": new[0], "warehouse": new[1]}
        shop._update(transaction, INVENTORY, key=old, changes=changes)


def _forget(shop: ShopWorkload, transaction: Transaction) -> None:
    # From the large tables more often than from the small: none should die out.
    sizes = [len(shop._keys.get(name, ())) for name in _FORGETTABLE]
    for name in shop._rng.choices(_FORGETTABLE, weights=[size + 1 for size in sizes], k=3):
        shop._delete(transaction, name)


def _fill_side_table(shop: ShopWorkload, transaction: Transaction) -> None:
    """Write to a table that comes and goes: a few rows in, sometimes one changed or out."""
    if not shop._side_tables:
        _visit(shop, transaction)
        return
    name = shop._rng.choice(shop._side_tables)
    for _ in range(shop._rng.randint(1, 3)):
        shop._insert(transaction, name, id=str(shop._number("side")))
    if shop._rng.random() < 0.4:
        shop._touch(transaction, name)
    if shop._rng.random() < 0.2:
        shop._delete(transaction, name)


_TRADES: Final[Mapping[Callable[[ShopWorkload, Transaction], None], int]] = {
    _order: 24,
    _visit: 14,
    _fill_side_table: 12,
    _pay: 12,
    _correct: 12,
    _forget: 10,
    _review: 8,
    _sign_up: 6,
    _move_keys: 4,
    _stock: 3,
}


def _life(shop: ShopWorkload) -> Iterator[None]:
    """Run one DDL statement at each step; each round meets every kind of DDL under new names."""
    upstream = shop._upstream
    turn = 0
    while True:
        turn += 1
        phone, contact = f"phone_{turn}", f"Contact {turn}"
        priority, seen, spare = f"priority_{turn}", f"seen_{turn}", f"spare_{turn}"
        scratch = f"scratch_{turn}"
        promotions, offers = ("shop", f"promotions_{turn}"), (scratch, "offers")
        left, right = ("crm", f"left_{turn}"), ("crm", f"right_{turn}")
        aside = ("crm", f"aside_{turn}")

        added = AddColumn(
            column=column(phone, "varchar(20)", default="+49 ü"), place="after `name`"
        )
        upstream.alter_table(CUSTOMERS, added)
        yield
        shop._open_side_table(
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
        added = AddColumn(
            column=column(priority, "tinyint unsigned", nullable=False), place="first"
        )
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
        shop._open_side_table(left, (column("v", "varchar(40)"), column("amount", "int")))
        yield
        upstream.alter_table(
            ORDERS,
            ModifyColumn(
                name=priority, column=column(priority, "int unsigned", nullable=False, default="7")
            ),
        )
        yield
        shop._open_side_table(right, (column("v", "datetime(3)"), column("raw", "binary(4)")))
        yield
        upstream.truncate_table(promotions)
        shop._keys.pop(promotions, None)
        yield
        upstream.create_database(scratch)
        yield
        shop._move_side_tables((left, aside), (right, left), (aside, right))
        yield
        shop._move_side_tables((promotions, offers))
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
        shop._forget_side_table(left)
        yield
        # The same name again, another table.
        shop._open_side_table(left, (column("w", "json"), column("v", "double")))
        yield
        upstream.alter_table(
            REVIEWS,
            DropColumn(name=spare),
            AddColumn(column=column(f"kept_{turn}", "smallint", default="-3")),
        )
        yield
        scale = min(2 + turn, 20)
        wider = column("balance", f"decimal({12 + scale},{scale})", default="0.5")
        upstream.alter_table(CUSTOMERS, ModifyColumn(name="balance", column=wider))
        yield
        upstream.drop_index(ORDERS, f"ix_state_{turn}")
        yield
        upstream.create_table_like(aside, right)
        shop._side_tables.append(aside)
        yield
        upstream.alter_table(ORDERS, DropColumn(name=priority))
        yield
        upstream.drop_database(scratch)
        shop._forget_side_table(offers)
        yield
        quantity = column("qty", "bigint", default=str(turn))
        upstream.alter_table(INVENTORY, ModifyColumn(name="qty", column=quantity))
        yield
        upstream.alter_table(CUSTOMERS, DropColumn(name=contact))
        yield
        for name in (left, right, aside):
            upstream.drop_table(name)
            shop._forget_side_table(name)
            yield
