"""What tables of a storm are made of: kinds of tables, types of columns and what these can become.

Keys and deciding columns have few values, so that they come again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets_tests.demo.simulator.partition_changes import hash_partitions
from ticdc_assets_tests.demo.simulator.partitions import Method, Partition, Partitioning

TYPES: Final = (
    "tinyint", "smallint unsigned", "int", "bigint", "bigint unsigned", "decimal(8,2)",
    "decimal(20,6)", "varchar(12)", "varchar(40)", "char(8)", "text", "varbinary(10)", "blob",
    "date", "datetime", "datetime(3)", "timestamp(3)", "time(3)", "year", "bit(10)",
    "enum('red','x y','it''s')", "set('a','b','d d')", "json", "varchar(20) charset latin1",
)  # fmt: skip
DEFAULTS: Final[Mapping[str, str | int]] = {
    "tinyint": "-3", "smallint unsigned": "65535", "int": "7", "bigint": "-9000000000",
    "bigint unsigned": "18446744073709551615", "decimal(8,2)": "1.50", "decimal(20,6)": "-0.125000",
    "varchar(12)": "it's ü", "varchar(40)": "a \\ b", "char(8)": "x", "varbinary(10)": "vb",
    "date": "2024-02-29", "datetime": "2024-03-11 00:51:01",
    "datetime(3)": "2024-03-11 00:51:01.461",
    "timestamp(3)": "2024-03-11 00:51:01.461", "time(3)": "-12:00:00.500", "year": "2155",
    "bit(10)": 682, "enum('red','x y','it''s')": "it's", "set('a','b','d d')": "a,d d",
    "varchar(20) charset latin1": "latin",
}  # fmt: skip

WIDER: Final[Mapping[str, tuple[str, ...]]] = {
    "tinyint": ("smallint", "int", "bigint"), "smallint": ("mediumint", "int", "bigint"),
    "mediumint": ("int", "bigint"), "int": ("bigint",), "bigint": ("decimal(24,0)",),
    "decimal": ("decimal(30,8)", "decimal(40,10)"),
    "varchar": ("varchar(60)", "varchar(200)", "text"),
    "char": ("char(30)", "varchar(50)"), "varbinary": ("varbinary(80)", "blob"),
    "datetime": ("datetime(6)",), "timestamp": ("timestamp(6)",), "time": ("time(6)",),
    "text": ("longtext",), "blob": ("longblob",),
    "enum": ("enum('red','x y','it''s','new')",), "set": ("set('a','b','d d','e')",),
}  # fmt: skip
"""Types that hold every value of a type, without a sign where it has none."""
NARROWER: Final[Mapping[str, tuple[str, ...]]] = {
    "smallint": ("tinyint",), "int": ("smallint", "tinyint"), "bigint": ("int", "smallint"),
    "decimal": ("decimal(6,2)", "int"), "varchar": ("varchar(4)", "varchar(10)"),
    "char": ("char(3)",),
    "varbinary": ("varbinary(4)",), "enum": ("enum('x y','red')",),
}  # fmt: skip
"""Types that hold fewer: where a value does not fit, the statement is not run."""
OTHER_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "tinyint": ("varchar(30)", "decimal(20,3)"), "smallint": ("varchar(30)", "decimal(20,3)"),
    "int": ("varchar(30)", "decimal(20,3)"), "bigint": ("varchar(30)", "decimal(30,3)"),
    "decimal": ("varchar(60)",), "varchar": ("bigint", "int"), "date": ("datetime", "varchar(20)"),
    "datetime": ("date", "varchar(40)"), "enum": ("varchar(20)",),
}  # fmt: skip
"""Types of another kind, for values whose text in that kind is certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A kind of table: its key and what decides over its partitions."""

    columns: tuple[ColumnSchema, ...]
    primary_key: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    clustered: bool = True
    divided: Callable[[], Partitioning] | None = None
    keyless: bool = False


def _not_null(name: str, sql_type: str) -> ColumnSchema:
    return column(name, sql_type, nullable=False)


def _ranges(method: Method, name: str, *bounds: int | str | None) -> Partitioning:
    parts = tuple(Partition(name=f"p{number}", below=below) for number, below in enumerate(bounds))
    return Partitioning(method=method, column=name, partitions=parts)


def _lists(method: Method, name: str, *lists: tuple[str | None, ...]) -> Partitioning:
    parts = tuple(
        Partition(name=f"P {number}", values=values) for number, values in enumerate(lists)
    )
    return Partitioning(method=method, column=name, partitions=parts)


def _hashes(name: str, count: int) -> Partitioning:
    return Partitioning(method=Method.HASH, column=name, partitions=hash_partitions(count))


TEMPLATES: Final = (
    Template(columns=(_not_null("id", "int"),), primary_key=("id",)),
    Template(columns=(_not_null("id", "bigint"),), primary_key=("id",), clustered=False),
    Template(
        columns=(_not_null("region", "char(2)"), _not_null("no", "bigint unsigned")),
        primary_key=("region", "no"),
    ),
    Template(
        columns=(_not_null("code", "varchar(20)"), column("alt", "int")),
        primary_key=("code",),
        unique=("alt",),
        clustered=False,
    ),
    Template(
        columns=(_not_null("sku", "varchar(20)"), _not_null("wh", "int")), unique=("sku", "wh")
    ),
    Template(columns=(column("line", "tinyint"), column("text", "varchar(8)")), keyless=True),
    Template(
        columns=(_not_null("id", "int"),),
        primary_key=("id",),
        divided=lambda: _ranges(Method.RANGE, "id", 10, 20, None),
    ),
    Template(
        columns=(_not_null("id", "int"), _not_null("day", "date")),
        primary_key=("id", "day"),
        clustered=False,
        divided=lambda: _ranges(Method.RANGE_YEAR, "day", 2022, 2024, 2026),
    ),
    Template(
        columns=(_not_null("day", "date"), _not_null("id", "int")),
        primary_key=("day", "id"),
        divided=lambda: _ranges(
            Method.RANGE_COLUMNS_DATE, "day", "2022-01-01", "2024-01-01", "2026-01-01", None
        ),
    ),
    Template(
        columns=(_not_null("id", "int"),),
        primary_key=("id",),
        divided=lambda: _ranges(Method.RANGE_COLUMNS, "id", -10, 10, 30),
    ),
    Template(
        columns=(_not_null("kind", "int"), _not_null("id", "int")),
        primary_key=("id", "kind"),
        divided=lambda: _lists(Method.LIST, "kind", ("1", "2"), ("3", "-7"), ("0",)),
    ),
    Template(
        columns=(_not_null("area", "varchar(10)"), _not_null("id", "int")),
        unique=("area", "id"),
        divided=lambda: _lists(
            Method.LIST_COLUMNS, "area", ("eu", "it's"), ("us", "ü"), ("", "EU")
        ),
    ),
    Template(
        columns=(_not_null("id", "int"),),
        primary_key=("id",),
        divided=lambda: _hashes("id", 3),
    ),
    Template(
        columns=(column("n", "int"), column("note", "varchar(6)")),
        keyless=True,
        divided=lambda: _hashes("n", 2),
    ),
    Template(
        columns=(column("n", "int"), column("note", "varchar(6)")),
        keyless=True,
        divided=lambda: _lists(Method.LIST, "n", ("1", None), ("2", "3")),
    ),
)
"""The kinds of tables."""
