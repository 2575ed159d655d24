"""The tables that the shop has from its first day to its last, of many types and kinds of key.

Clustered and not, one key column and two, integers, text and bytes as keys, and a table whose key
is a NOT NULL unique key. Their rows look like those of a real shop. One table is not for people:
`ODD_VALUES` has a column of nearly every type of TiDB, and the values that break readers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.stored_table import TableName, index
from ticdc_assets.model.schemas import ColumnSchema, IndexSchema

CUSTOMERS: Final[TableName] = ("shop", "customers")
ORDERS: Final[TableName] = ("shop", "orders")
ORDER_ITEMS: Final[TableName] = ("shop", "order_items")
INVENTORY: Final[TableName] = ("shop", "inventory")
PAYMENTS: Final[TableName] = ("shop", "payments")
REVIEWS: Final[TableName] = ("crm", "reviews")
VISITS: Final[TableName] = ("crm", "visits")
CONTACTS: Final[TableName] = ("crm", "contacts")
ODD_VALUES: Final[TableName] = ("shop", "odd_values")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What CREATE TABLE says about one of the shop's tables."""

    columns: Sequence[ColumnSchema]
    primary_key: Sequence[str] = ()
    indexes: Sequence[IndexSchema] = ()
    clustered: bool = True


TABLES: Final[Mapping[TableName, Definition]] = {
    CUSTOMERS: Definition(
        columns=(
            column("id", "bigint", nullable=False),
            column("name", "varchar(64)"),
            column("email", "varchar(128)"),
            column("city", "varchar(40)"),
            column("balance", "decimal(12,2)", default="0.00"),
            column("flags", "bit(8)", nullable=False, default=5),
            column("level", "enum('bronze','silver','gold')", nullable=False, default="bronze"),
            column("tags", "set('vip','new','blocked')"),
            column("profile", "json"),
            column("born", "date"),
            column("created", "timestamp"),
            column("updated", "datetime(3)"),
        ),
        primary_key=("id",),
        indexes=(index("uk_email", "email", unique=True),),
    ),
    ORDERS: Definition(
        columns=(
            column("region", "char(2)", nullable=False),
            column("order_id", "bigint unsigned", nullable=False),
            column("customer", "bigint", nullable=False),
            column("total", "decimal(12,2)"),
            column("state", "enum('new','paid','sent','done')", nullable=False),
            column("note", "varchar(200)"),
            column("placed", "datetime", nullable=False),
            column("pieces", "smallint unsigned", nullable=False, default="1"),
        ),
        primary_key=("region", "order_id"),
    ),
    ORDER_ITEMS: Definition(
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
    INVENTORY: Definition(
        columns=(
            column("sku", "varchar(32)", nullable=False),
            column("warehouse", "varchar(16)", nullable=False),
            column("qty", "int"),
            column("note", "text"),
            column("img", "blob"),
        ),
        indexes=(index("uk", "sku", "warehouse", unique=True),),
    ),
    PAYMENTS: Definition(
        columns=(
            column("id", "binary(16)", nullable=False),
            column("order_id", "bigint unsigned", nullable=False),
            column("amount", "decimal(12,2)", nullable=False),
            column("fee", "decimal(8,4)"),
            column("method", "enum('card','cash','transfer')"),
            column("reference", "varbinary(64)", default="none"),
            column("paid_at", "timestamp(3)"),
        ),
        primary_key=("id",),
    ),
    REVIEWS: Definition(
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
    VISITS: Definition(
        columns=(
            column("id", "bigint unsigned", nullable=False),
            column("kind", "varchar(20) charset latin1"),
            column("payload", "json"),
            column("at", "datetime(6)"),
            column("agent", "longtext"),
            column("stayed", "time(6)"),
            column("scrolled", "mediumint"),
        ),
        primary_key=("id",),
        clustered=False,
    ),
    CONTACTS: Definition(
        columns=(
            column("handle", "varchar(40)", nullable=False),
            column("bio", "text"),
            column("born", "date", default="2000-02-29"),
            column("photo", "mediumblob"),
        ),
        primary_key=("handle",),
        indexes=(index("ix_born", "born", "handle"),),
    ),
    ODD_VALUES: Definition(
        columns=(
            column("id", "bigint unsigned", nullable=False),
            column("tiny", "tinyint"),
            column("medium", "mediumint"),
            column("whole", "int unsigned"),
            column("big", "bigint"),
            column("exact", "decimal(38,10)"),
            column("widest", "decimal(65,30)"),
            column("single", "float"),
            column("twice", "double"),
            column("bits", "bit(64)"),
            column("words", "varchar(64)"),
            column("latin", "varchar(20) charset latin1"),
            column("long_text", "longtext"),
            column("fixed", "binary(16)"),
            column("bytes", "varbinary(64)", default="none"),
            column("large", "mediumblob"),
            column("day", "date"),
            column("moment", "datetime(6)"),
            column("stamp", "timestamp(6)"),
            column("span", "time(6)"),
            column("since", "year"),
            column("choice", "enum('plain','it''s','é','two words')"),
            column("choices", "set('a','b c','é')"),
            column("doc", "json"),
            column("place", "vector(3)"),
        ),
        primary_key=("id",),
    ),
}
