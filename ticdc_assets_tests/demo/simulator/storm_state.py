"""The upstream while it is stormed, and the dice: choices of tables, columns and values, and rows.

In: an upstream and a random number generator. Out: transactions in it, and choices for those who
run statements (`storm_statements`).
"""

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from ticdc_assets.demo.simulator.columns import column, text_with_scale
from ticdc_assets.demo.simulator.stored_table import Key, Row, StoredTable, TableName, index
from ticdc_assets.demo.simulator.upstream import Transaction
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets_tests.demo.simulator.odd_upstream import OddUpstream
from ticdc_assets_tests.demo.simulator.partitions import some_value
from ticdc_assets_tests.demo.simulator.random_values import random_value
from ticdc_assets_tests.demo.simulator.storm_tables import DEFAULTS, TEMPLATES, TYPES

_DATABASES: Final = ("storm", "eye")
_TABLE_NAMES: Final = ("a", "b", "Orders", "odd `name", "../up", "ünï 🚀", "g", "h", "select")
_COLUMN_NAMES: Final = ("v", "w", "x 1", "größe", "y`z", "n", "m", "Total")
_MOST_TABLES: Final = 7
_MOST_ROWS: Final = 25


class StormState:
    """The upstream while it is stormed, and the dice."""

    def __init__(self, upstream: OddUpstream, rng: random.Random, *, keyless: bool) -> None:
        self.upstream = upstream
        self.rng = rng
        self.keyless = keyless
        self._number = 0

    def number(self) -> int:
        """Return a number not given before."""
        self._number += 1
        return self._number

    def open(self) -> None:
        """Create the databases and the first tables, with rows."""
        for database in _DATABASES:
            self.upstream.create_database(database)
        for _ in range(4):
            self.create_table()
        for _ in range(8):
            self.write()

    # Choices

    def table(self, wanted: Callable[[StoredTable], bool] = lambda _: True) -> TableName | None:
        """Return some table that is as wanted."""
        names = [n for n in self.upstream.tables if wanted(self.upstream.stored(n))]
        return self.rng.choice(names) if names else None

    def free_name(self, database: str | None = None) -> TableName:
        """Return a name that no table or view has, often one that a table once had."""
        taken = {*self.upstream.tables, *self.upstream.views}
        databases = [database] if database else sorted(self.upstream.databases)
        names = [(d, t) for d in databases for t in _TABLE_NAMES if (d, t) not in taken]
        if not names:
            return self.rng.choice(databases), f"t{self.number()}"
        return self.rng.choice(names)

    def free_column(self, table: StoredTable) -> str:
        """Return a name that no column has, in any case."""
        taken = {c.name.lower() for c in table.schema.columns}
        names = [name for name in _COLUMN_NAMES if name.lower() not in taken]
        return self.rng.choice(names) if names else f"c{self.number()}"

    def plain_columns(self, table: StoredTable) -> list[ColumnSchema]:
        """Return the columns that are in no key and decide over nothing."""
        kept = set(table.primary_key)
        kept.update(name for i in table.secondary for name in i.columns)
        if table.partitioning is not None:
            kept.add(table.partitioning.column)
        return [c for c in table.schema.columns if c.name not in kept]

    def random_column(self, name: str) -> ColumnSchema:
        """Return a column of some type, with a default or NULL or neither."""
        sql_type = self.rng.choice(TYPES)
        chance = self.rng.random()
        literal = DEFAULTS.get(sql_type) if chance < 0.5 else None
        return column(name, sql_type, nullable=self.rng.random() < 0.7, default=literal)

    # Rows

    def value(self, table: StoredTable, schema: ColumnSchema) -> str | None:
        """Return a value: of a key or deciding column one of few, of others any."""
        divided = table.partitioning
        if divided is not None and divided.column == schema.name:
            values = (
                some_value(self.rng, divided, self.rng.randrange(len(divided.partitions)))
                for _ in range(1000)
            )
            # A key made the column NOT NULL, and a partition for NULL was there before.
            return next((value for value in values if value is not None or schema.nullable), None)
        unique = any(schema.name in i.columns for i in table.secondary if i.unique)
        if schema.nullable and self.rng.random() < 0.2:
            return None
        keyed = schema.name in table.primary_key or schema.name in table.schema.handle_key
        if not table.schema.handle_key and self.rng.random() < 0.7:
            # Without a key, equal rows should come.
            return self._of_few(schema, 2) or random_value(
                self.rng, schema, timezone=self.upstream.timezone
            )
        if unique and not keyed:
            return self._of_few(schema, None)
        few = self._of_few(schema, 30) if keyed else None
        return few or random_value(self.rng, schema, timezone=self.upstream.timezone)

    def _of_few(self, schema: ColumnSchema, count: int | None) -> str | None:
        """Return one of `count` values, or for None one that did not come before."""
        number = self.number() if count is None else self.rng.randrange(1, count + 1)
        base = schema.mysql_type
        if base.endswith("int"):
            return str(number % 100 if base == "tinyint" else number)
        if base == "decimal":
            return text_with_scale(Decimal(number), schema.decimal)
        if base == "char":
            return ("eu", "us", "as")[number % 3] if schema.length == 2 else f"k{number}"
        return f"k{number}"[: schema.length] if base == "varchar" else None

    def row(self, table: StoredTable) -> Row:
        """Return a whole row."""
        return {c.name: self.value(table, c) for c in table.schema.columns}

    def write(self) -> None:
        """Commit a transaction over some tables."""
        if not self.upstream.tables:
            return
        names = [self.rng.choice(self.upstream.tables) for _ in range(self.rng.randint(1, 3))]
        with self.upstream.transaction() as transaction:
            for name in names:
                for _ in range(self.rng.randint(1, 4)):
                    self._touch(transaction, name)

    def refill(self) -> None:
        """Give rows to a table that has few."""
        poor = [n for n in self.upstream.tables if len(self.upstream.rows(n)) < 4]
        if poor and self.rng.random() < 0.7:
            name = self.rng.choice(poor)
            with self.upstream.transaction() as transaction:
                for _ in range(6):
                    self.insert(transaction, name)

    def insert(self, transaction: Transaction, name: TableName, **given: str | None) -> None:
        """Insert a row if its key is free."""
        table = self.upstream.stored(name)
        row = {**self.row(table), **given}
        key = tuple(row[part] or "" for part in table.schema.handle_key)
        is_free = not key or transaction.row(name, key) is None
        if is_free and not self._clashes(transaction, name, row, None):
            transaction.insert(name, row)

    def _clashes(
        self, transaction: Transaction, name: TableName, row: Row, own: Key | None
    ) -> bool:
        """Tell whether another row has the same values in a unique key."""
        keys = [i.columns for i in self.upstream.stored(name).secondary if i.unique]
        others = transaction.rows(name) if keys else {}
        return any(
            other_key != own and all(other[part] == row[part] is not None for part in key)
            for other_key, other in others.items()
            for key in keys
        )

    def _touch(self, transaction: Transaction, name: TableName) -> None:
        rng = self.rng
        table = self.upstream.stored(name)
        keys = [key for key in table.rows if transaction.row(name, key) is not None]
        chance = rng.random()
        if not keys or (chance < 0.45 and len(keys) < _MOST_ROWS):
            self.insert(transaction, name)
            return
        key = rng.choice(keys)
        if chance < 0.75:
            for _ in range(rng.choice((1, 1, 2))):
                self._update(transaction, name, key, changes=self._some_values(table))
        elif chance < 0.85:
            self._move(transaction, name, key)
        else:
            transaction.delete(name, key)
            if rng.random() < 0.3 and table.schema.handle_key:
                # The same key again, another row.
                of_key = dict(zip(table.schema.handle_key, key, strict=True))
                self.insert(transaction, name, **of_key)

    def _some_values(self, table: StoredTable) -> Row:
        kept = {*table.schema.handle_key, *table.primary_key}
        free = [c for c in table.schema.columns if c.name not in kept]
        chosen = self.rng.sample(free, min(len(free), self.rng.randint(1, 3)))
        return {c.name: self.value(table, c) for c in chosen}

    def _update(self, transaction: Transaction, name: TableName, key: Key, *, changes: Row) -> None:
        old = transaction.row(name, key)
        if old is None or not changes:
            return
        if not self._clashes(transaction, name, {**old, **changes}, key):
            transaction.update(name, key, changes=changes)

    def _move(self, transaction: Transaction, name: TableName, key: Key) -> None:
        """Change a row's key, or let two rows trade theirs."""
        table = self.upstream.stored(name)
        parts = table.schema.handle_key
        if not parts:
            return
        fresh = self.row(table)
        new_key = tuple(fresh[part] or "" for part in parts)
        if new_key == key:
            return
        other = transaction.row(name, new_key)
        if other is None:
            self._update(transaction, name, key, changes={part: fresh[part] for part in parts})
            return
        own = transaction.row(name, key)
        if own is None or self.rng.random() < 0.5:
            return
        # What is unique beside the key stays where it is.
        unique = {part for i in table.secondary if i.unique for part in i.columns}
        rest = [c.name for c in table.schema.columns if c.name not in {*parts, *unique}]
        if rest:
            swapped = {column_name: other[column_name] for column_name in rest}
            back = {column_name: own[column_name] for column_name in rest}
            transaction.update(name, key, changes=swapped)
            transaction.update(name, new_key, changes=back)

    # Tables

    def create_table(self, name: TableName | None = None) -> None:
        """Create a table of some kind."""
        rng = self.rng
        template = rng.choice([t for t in TEMPLATES if self.keyless or not t.keyless])
        columns = list(template.columns)
        taken = {c.name for c in columns}
        free = [name for name in _COLUMN_NAMES if name not in taken]
        columns += [self.random_column(extra) for extra in rng.sample(free, rng.randint(1, 4))]
        unique = (index("uk", *template.unique, unique=True),) if template.unique else ()
        self.upstream.create_table(
            name or self.free_name(),
            columns,
            primary_key=template.primary_key,
            indexes=unique,
            clustered=template.clustered,
            partitioning=template.divided() if template.divided else None,
        )

    def has_room(self) -> bool:
        """Tell whether one more table may come."""
        return bool(self.upstream.databases) and len(self.upstream.tables) < _MOST_TABLES

    def share_ts(self) -> None:
        """Now and then let the next DDL commit at the commit ts of the rows before it."""
        if self.rng.random() < 0.15 and self.upstream.history:
            try:
                self.upstream.share_next_ts()
            except ValueError:
                return  # the last commit was no transaction
