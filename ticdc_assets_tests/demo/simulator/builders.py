"""Upstreams of odd shapes, for tests of readers of a changefeed.

In: sizes and a seed. Out: an `Upstream` with tables and a history, ready for a
`StandInChangefeed` with any `FeedOptions`.
The same arguments give the same history.

Not handled: shapes that TiDB itself refuses (more than 4096 columns, two equal names).
"""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from ticdc_assets.demo.simulator.clock import TsoClock
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.shop import ShopWorkload
from ticdc_assets.demo.simulator.stored_table import Row, TableName, index
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.source.capture import CaptureRecord, CaptureWriter
from ticdc_assets_tests.demo.simulator.random_values import random_value

ODD_NAMES: Final[tuple[str, ...]] = (
    "with space",
    "dotted.name",
    "back`tick",
    "single'quote",
    'double"quote',
    "../../x",
    "/etc/passwd",
    "..",
    "C:\\con",
    "emoji 🚀👩‍👩‍👧",
    "数据库",
    "Mixed Case",
    "semi;colon -- comment",
    "per%cent %2F",
    "new\nline",
    "tab\there",
    "{brace}=$x",
    "a=b",
    "_delta_log",
    "select",
    "é",
    "e\u0301",
    "hash#?&query",
    "[bracket](paren)",
    "comma,name",
)
"""Names that are somebody's path, SQL, URL or code if they are taken for it."""

ALL_TYPES: Final[tuple[str, ...]] = (
    "tinyint", "tinyint unsigned", "tinyint(1)", "smallint", "smallint unsigned", "mediumint",
    "mediumint unsigned", "int", "int unsigned", "int zerofill", "bigint", "bigint unsigned",
    "float", "float unsigned", "double", "decimal(10,4)", "decimal(38,0)", "decimal(38,38)",
    "decimal(65,30)", "decimal(20,0) unsigned", "bit(1)", "bit(10)", "bit(64)", "date", "datetime",
    "datetime(3)", "datetime(6)", "timestamp", "timestamp(6)", "time", "time(3)", "time(6)", "year",
    "char(20)", "varchar(255)", "varchar(40) charset latin1", "varchar(40) charset ascii",
    "varchar(40) charset gbk", "tinytext", "text", "mediumtext", "longtext", "binary(16)",
    "varbinary(64)", "tinyblob", "blob", "mediumblob", "longblob", "enum('red','x y','é','it''s')",
    "set('a','b','d d')", "json", "vector(3)",
)  # fmt: skip
"""Every column type, as `columns.column` takes it."""


PLAIN_COLUMNS: Final = (column("id", "int", nullable=False), column("v", "varchar(20)"))
"""The columns of a table of `plain_upstream`."""


def plain_upstream(
    *names: TableName,
    bags: Sequence[TableName] = (),
    rows: int = 0,
    clock: TsoClock | None = None,
) -> Upstream:
    """Return an upstream with tables of `PLAIN_COLUMNS`, and random rows in each of them.

    Args:
        names: tables with the key `id`.
        bags: tables without a key.
        rows: how many rows are inserted into each table.
        clock: where its TSOs come from.
    """
    upstream = Upstream(clock=clock)
    for database in dict.fromkeys(database for database, _ in (*names, *bags)):
        upstream.create_database(database)
    for name in (*names, *bags):
        key = () if name in bags else ("id",)
        upstream.create_table(name, PLAIN_COLUMNS, primary_key=key)
        fill(upstream, name, rows=rows)
    return upstream


def upstream_of(
    name: TableName,
    columns: Sequence[ColumnSchema],
    *,
    rows: int = 0,
    primary_key: Sequence[str] = (),
    timezone: str = "UTC",
) -> Upstream:
    """Return an upstream with one table, and random rows in it."""
    upstream = Upstream(timezone=timezone)
    upstream.create_database(name[0])
    upstream.create_table(name, columns, primary_key=primary_key)
    fill(upstream, name, rows=rows)
    return upstream


def random_row(upstream: Upstream, name: TableName, rng: random.Random) -> Row:
    """Return a row for a table with random values, the key's too, and some NULLs."""
    return {
        schema.name: None
        if schema.nullable and rng.random() < 0.15
        else random_value(rng, schema, timezone=upstream.timezone)
        for schema in upstream.schema(name).columns
    }


def fill(upstream: Upstream, name: TableName, *, rows: int, seed: int = 0) -> None:
    """Insert random rows, one transaction each; a row whose key is taken is not inserted."""
    rng = random.Random(seed)
    for _ in range(rows):
        row = random_row(upstream, name, rng)
        key = tuple(row[part] for part in upstream.schema(name).handle_key)
        if not key or key not in upstream.rows(name):
            with upstream.transaction() as transaction:
                transaction.insert(name, row)


def churn(
    upstream: Upstream, *, steps: int, seed: int = 0, tables: Sequence[TableName] = ()
) -> None:
    """Commit random transactions of inserts, updates and deletes (70, 20, 10 of a hundred).

    Args:
        upstream: where.
        steps: number of transactions.
        seed: of everything random.
        tables: the tables to write to; all there are by default.
    """
    rng = random.Random(seed)
    names = tables or upstream.tables
    for _ in range(steps):
        with upstream.transaction() as transaction:
            for _ in range(rng.randint(1, 4)):
                name = rng.choice(names)
                schema = upstream.schema(name)
                chance = rng.random()
                keys = upstream.rows(name)
                old = rng.choice(tuple(keys)) if keys and chance >= 0.7 else None
                row = random_row(upstream, name, rng)
                if old is None:
                    key = tuple(row[part] or "" for part in schema.handle_key)
                    if not key or transaction.row(name, key) is None:
                        transaction.insert(name, row)
                elif transaction.row(name, old) is None:
                    continue  # deleted a moment ago in the same transaction
                elif chance < 0.9:
                    kept = {part: value for part, value in row.items() if rng.random() < 0.5}
                    changes = {p: v for p, v in kept.items() if p not in schema.handle_key}
                    transaction.update(name, old, changes=changes)
                else:
                    transaction.delete(name, old)


def wide_upstream(*, columns: int = 300, rows: int = 20) -> Upstream:
    """Return an upstream with `wide`.`wide`, a table of many columns of every type."""
    types = [ALL_TYPES[number % len(ALL_TYPES)] for number in range(columns - 1)]
    upstream = upstream_of(
        ("wide", "wide"),
        (
            column("id", "bigint", nullable=False),
            *(column(f"c{number:03d}", sql_type) for number, sql_type in enumerate(types)),
        ),
        primary_key=("id",),
        rows=rows,
    )
    churn(upstream, steps=rows)
    return upstream


def all_types_upstream(*, rows: int = 60, timezone: str = "UTC") -> Upstream:
    """Return an upstream with `kinds`.`types`: one column of every type, many of their extremes."""
    columns = [column(sql_type, sql_type) for sql_type in ALL_TYPES]
    upstream = upstream_of(
        ("kinds", "types"),
        (column("id", "int", nullable=False), *columns),
        primary_key=("id",),
        rows=rows,
        timezone=timezone,
    )
    churn(upstream, steps=rows)
    return upstream


def odd_names_upstream(*, rows: int = 5) -> Upstream:
    """Return an upstream in which each odd name is a database, a table in it and its columns."""
    upstream = Upstream()
    for name in ODD_NAMES:
        upstream.create_database(name)
        table = (name, name)
        upstream.create_table(
            table,
            (column(name, "varchar(30)", nullable=False), column(f"{name}'`\"", "int")),
            primary_key=(name,),
            indexes=(index(f"ix {name}", f"{name}'`\""),),
        )
        fill(upstream, table, rows=rows)
    churn(upstream, steps=rows * 4)
    return upstream


def keyless_upstream(*, rows: int = 20) -> Upstream:
    """Return an upstream with `log`.`lines`, a table without a key, and `log`.`keyed` beside it.

    Some of its rows are equal in every column. TiCDC sends the table only with `force_replicate`.
    """
    lines, keyed = ("log", "lines"), ("log", "keyed")
    upstream = upstream_of(lines, (column("level", "tinyint"), column("text", "varchar(40)")))
    upstream.create_table(
        keyed,
        (column("id", "int", nullable=False), column("text", "varchar(40)")),
        primary_key=("id",),
    )
    fill(upstream, lines, rows=rows)
    fill(upstream, keyed, rows=rows)
    with upstream.transaction() as transaction:
        for _ in range(3):
            transaction.insert(lines, {"level": "1", "text": "the same"})
    churn(upstream, steps=rows)
    return upstream


def shop_upstream(
    seed: int, *, steps: int = 110, steps_per_ddl: int = 4, timezone: str = "Asia/Shanghai"
) -> Upstream:
    """Return an upstream with a shop that has lived so many steps."""
    upstream = Upstream(timezone=timezone)
    for _ in ShopWorkload(upstream, seed, steps_per_ddl=steps_per_ddl).steps(steps):
        pass
    return upstream


def write_capture(path: Path, records: Iterable[CaptureRecord]) -> int:
    """Append records to the capture at `path` and return how many."""
    count = 0
    with CaptureWriter(path) as writer:
        for record in records:
            writer.append(record)
            count += 1
    return count
