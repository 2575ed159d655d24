"""The tables that the shop has from its first day to its last, of many types and kinds of key.

Clustered and not, one key column and two, integers, text and bytes as keys, and a table whose key
is a NOT NULL unique key. Their rows look like those of a real shop. One table is not for people:
`ODD_VALUES` has a column of nearly every type of TiDB, and the values that break readers.
"""

from typing import Final

from ticdc_assets.demo.simulator.stored_table import TableName

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
