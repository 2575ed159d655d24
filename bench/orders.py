"""Tables of orders in the stand-in's upstream, for benchmarks of many small tables.

In: an upstream, names of tables, how many rows. Out: the tables, with rows that differ by number.
"""

from collections.abc import Iterable

from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.stored_table import TableName
from ticdc_assets.demo.simulator.upstream import Upstream


def create_orders(upstream: Upstream, names: Iterable[TableName], *, rows: int) -> None:
    """Create tables of orders, each with `rows` new ones."""
    for name in names:
        upstream.create_table(
            name,
            (
                column("id", "bigint", nullable=False),
                column("customer", "int"),
                column("state", "enum('new','paid','sent')"),
                column("total", "decimal(12,2)"),
                column("note", "varchar(120)"),
                column("ordered_at", "datetime(3)"),
            ),
            primary_key=("id",),
        )
        with upstream.transaction() as transaction:
            for number in range(rows):
                transaction.insert(name, _order(number))


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
