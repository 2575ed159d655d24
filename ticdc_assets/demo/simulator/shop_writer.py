"""What the shop's trades write with: its upstream, its dice, and which rows there are.

In: names of tables and values. Out: row changes in a transaction, with values of a real shop for
columns that were not given, whatever columns the table has by then; odd ones in `ODD_VALUES`.

Not handled: a transaction that is given up. The keys would be ahead of the upstream.
"""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from ticdc_assets.demo.simulator.columns import column, moment_text, random_value
from ticdc_assets.demo.simulator.shop_tables import ODD_VALUES
from ticdc_assets.demo.simulator.shop_values import ALWAYS, plain_value
from ticdc_assets.demo.simulator.stored_table import Key, TableName
from ticdc_assets.demo.simulator.transaction import Transaction
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.model.schemas import ColumnSchema


class KeySet:
    """The keys of a table, with a random choice and a removal that take no search."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._places: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Key) -> None:
        """Add a key, if it is not there."""
        if key not in self._places:
            self._places[key] = len(self._keys)
            self._keys.append(key)

    def remove(self, key: Key) -> None:
        """Remove a key that is there."""
        place = self._places.pop(key)
        last = self._keys.pop()
        if place < len(self._keys):
            self._keys[place] = last
            self._places[last] = place

    def choose(self, rng: random.Random) -> Key:
        """Return one of the keys, of which there must be some."""
        return self._keys[rng.randrange(len(self._keys))]


class ShopWriter:
    """Writes rows of a shop.

    Args:
        upstream: where they are written.
        rng: of everything random.
        max_rows: a table that has this many rows loses one for each that it gets.

    Attributes:
        upstream: where rows are written.
        rng: of everything random.
        keys: keys of the rows that each table has.
        side_tables: tables that come and go, as they are called now.
    """

    def __init__(self, upstream: Upstream, rng: random.Random, *, max_rows: int) -> None:
        self.upstream = upstream
        self.rng = rng
        self.keys: dict[TableName, KeySet] = {}
        self.side_tables: list[TableName] = []
        self._max_rows = max_rows
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

    def insert(self, transaction: Transaction, name: TableName, /, **values: str | None) -> Key:
        """Insert a row: given values, for other columns others or at times the default."""
        row: dict[str, str | None] = dict(values)
        for schema in self.upstream.schema(name).columns:
            is_default = schema.default is not None and self.rng.random() < 0.2
            if schema.name not in row and not is_default:
                row[schema.name] = self.value(name, schema)
        key = transaction.insert(name, row)
        ring = self.keys.setdefault(name, KeySet())
        ring.add(key)
        if len(ring) > self._max_rows:
            self.delete(transaction, name)
        return key

    def value(self, name: TableName, schema: ColumnSchema) -> str | None:
        """Return a value of a table's column, NULL now and then where it may be."""
        if schema.nullable and schema.name not in ALWAYS and self.rng.random() < 0.15:
            return None
        if name == ODD_VALUES:
            return random_value(self.rng, schema, timezone=self.upstream.timezone)
        return plain_value(self.rng, schema, self.now())

    def update(
        self,
        transaction: Transaction,
        name: TableName,
        *,
        key: Key,
        changes: Mapping[str, str | None],
    ) -> None:
        """Change a row, leaving out columns that the table does not have any more."""
        known = {c.name for c in self.upstream.schema(name).columns}
        new_key = transaction.update(
            name, key, changes={c: value for c, value in changes.items() if c in known}
        )
        if new_key != key:
            self.keys[name].remove(key)
            self.keys[name].add(new_key)

    def delete(self, transaction: Transaction, name: TableName) -> None:
        """Delete some row of a table, if there is one."""
        key = self.choose(name)
        if key is not None and transaction.row(name, key) is not None:
            transaction.delete(name, key)
            self.keys[name].remove(key)

    def choose(self, name: TableName) -> Key | None:
        """Return the key of some row of a table, None if it has none."""
        ring = self.keys.get(name)
        return ring.choose(self.rng) if ring else None

    def touch(self, transaction: Transaction, name: TableName) -> None:
        """Change one to three columns of some row that are in no key, whatever they are by now."""
        key = self.choose(name)
        if key is None:
            return
        schema = self.upstream.schema(name)
        keyed = {c for i in schema.indexes if i.unique for c in i.columns}
        free = [c for c in schema.columns if c.name not in keyed]
        chosen = self.rng.sample(free, min(len(free), self.rng.randint(1, 3)))
        changes = {c.name: self.value(name, c) for c in chosen}
        self.update(transaction, name, key=key, changes=changes)

    def open_side_table(self, name: TableName, columns: Sequence[ColumnSchema]) -> None:
        """Create a table that comes and goes; a trade writes to it."""
        self.upstream.create_table(
            name, (column("id", "int", nullable=False), *columns), primary_key=("id",)
        )
        self.side_tables.append(name)

    def move_side_tables(self, *renames: tuple[TableName, TableName]) -> None:
        """Rename tables in one statement."""
        self.upstream.rename_tables(renames)
        for name, new_name in renames:
            self.side_tables[self.side_tables.index(name)] = new_name
            if name in self.keys:
                self.keys[new_name] = self.keys.pop(name)

    def forget_side_table(self, name: TableName) -> None:
        """Forget a table that was dropped."""
        self.side_tables.remove(name)
        self.keys.pop(name, None)
