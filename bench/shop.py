"""Tables of orders in the stand-in's upstream, for benchmarks of many small tables.

In: a capture, how many tables, and how many rows of each. Out: the tables, with rows that differ by
number, and their changefeed into the capture.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from ticdc_assets.demo.simulator.changefeed import FeedOptions, StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets_tests.demo.simulator.builders import write_capture

DATABASE = "shop"
_COLUMNS = (
    column("id", "bigint", nullable=False),
    column("customer", "int"),
    column("state", "enum('new','paid','sent')"),
    column("total", "decimal(12,2)"),
    column("note", "varchar(120)"),
    column("ordered_at", "datetime(3)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """Tables of one shape, and their changefeed into a capture."""

    upstream: Upstream
    changefeed: StandInChangefeed
    capture: Path
    names: Sequence[TableName]

    @classmethod
    def open(
        cls, capture: Path, *, tables: int, rows: int, options: FeedOptions | None = None
    ) -> "Shop":
        """Create tables with rows, and write them into the capture."""
        upstream = Upstream()
        upstream.create_database(DATABASE)
        names = [(DATABASE, f"orders{number}") for number in range(tables)]
        for name in names:
            upstream.create_table(name, _COLUMNS, primary_key=("id",))
            with upstream.transaction() as transaction:
                for number in range(rows):
                    transaction.insert(name, _order(number))
        shop = cls(
            upstream=upstream,
            changefeed=StandInChangefeed(upstream, "bench", partitions=4, options=options),
            capture=capture,
            names=names,
        )
        shop.send()
        return shop

    def change(self, count: int, state: str, names: Sequence[TableName] = ()) -> None:
        """Update `count` rows of each table, or of some, spread over it."""
        for name in names or self.names:
            keys = list(self.upstream.rows(name))
            with self.upstream.transaction() as transaction:
                for key in keys[:: max(1, len(keys) // count)][:count]:
                    transaction.update(name, key, changes={"state": state, "total": "1.25"})
        self.send()

    def send(self) -> None:
        """Write what was committed into the capture, with a watermark."""
        write_capture(self.capture, self.changefeed.tick())


def alternating() -> Callable[[], str]:
    """Return a function that says `paid` and `sent` in turns, so that each change is one."""
    return cycle(("paid", "sent")).__next__


def _order(number: int) -> dict[str, str | None]:
    """Return the order of a number."""
    return {
        "id": str(number),
        "customer": str(number % 97),
        "state": "new",
        "total": f"{number % 1000}.50",
        "note": f"order {number}, to be left with the neighbours",
        "ordered_at": f"2026-11-{number % 28 + 1:02d} 10:00:00.123",
    }
