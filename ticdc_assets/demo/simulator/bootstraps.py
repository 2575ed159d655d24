"""When a BOOTSTRAP of a table is due: before its first row, and again every so many rows.

In: each row's table, as it is counted (`MessageForm.bootstrap_id`), with its schema. Out: whether a
BOOTSTRAP of that schema goes before the row. The counts are those of one process of TiCDC: after a
restart (`clear`) every table has its first row once more.

Not handled: BOOTSTRAPs by time, but for those in `late`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ticdc_assets.model.schemas import TableSchema


@dataclass(slots=True)
class _Count:
    """One table: its rows since the last BOOTSTRAP, its schema now, and the one that was sent."""

    rows: int = 0
    schema: TableSchema | None = None
    sent: TableSchema | None = None


class Bootstraps:
    """The BOOTSTRAPs of one changefeed.

    Args:
        every_rows: repeat one after this many rows of its table; 0 for never.
        delay_rows: send the first one only after this many rows.
    """

    def __init__(self, *, every_rows: int, delay_rows: int) -> None:
        self._every_rows = every_rows
        self._delay_rows = delay_rows
        self._counts: dict[int, _Count] = defaultdict(_Count)

    def clear(self) -> None:
        """Forget everything, as a restart does."""
        self._counts.clear()

    def is_due(self, table_id: int, schema: TableSchema) -> bool:
        """Count one more row of a table and return whether a BOOTSTRAP goes before it."""
        count = self._counts[table_id]
        count.rows += 1
        count.schema = schema
        if count.sent is None:
            due = count.rows > self._delay_rows
        else:
            due = 0 < self._every_rows <= count.rows
        if due:
            count.rows, count.sent = 0, schema
        return due

    def note_sent(self, schema: TableSchema) -> None:
        """Keep in mind that a BOOTSTRAP was sent before any row."""
        self._counts[schema.table_id] = _Count(schema=schema, sent=schema)

    def late(self, is_undescribed: Callable[[TableSchema], bool]) -> Iterator[TableSchema]:
        """Yield the schemas of the BOOTSTRAPs that time makes due, once each.

        Args:
            is_undescribed: returns whether no message but a BOOTSTRAP has a schema that rows cite.
        """
        for count in self._counts.values():
            schema, sent = count.schema, count.sent
            if schema is None or sent is None or schema.version == sent.version:
                continue
            if is_undescribed(schema):
                count.sent = schema
                yield schema
