"""What Open Protocol and Craft share: rows in one record, and TiDB's numbers for column types."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from ticdc_assets.model.events import Event, RowChange
from ticdc_assets.model.mysql_types import base_type
from ticdc_assets.model.schemas import ColumnSchema
from ticdc_assets.wire.column_types import TYPE_NAMES

DEFAULT_BATCH_SIZE: Final = 16
"""TiCDC's default of `max-batch-size`: rows of a record."""

# Of the two codes of varchar TiDB gives columns the lower.
_CODES: Final[Mapping[str, int]] = {
    name: code for code in sorted(TYPE_NAMES, reverse=True) for name in TYPE_NAMES[code]
}


def batches(events: Sequence[Event], most: int) -> Iterator[Sequence[Event]]:
    """Yield the events of each record: at most so many rows, or one other event.

    TiCDC also closes a record of 10 MB, which no row here comes near.
    """
    for are_rows, group in groupby(events, lambda event: isinstance(event, RowChange)):
        some, size = list(group), most if are_rows else 1
        for begin in range(0, len(some), size):
            yield some[begin : begin + size]


def type_code(mysql_type: str) -> int:
    """Return the type code of `mysql_type`, base or spelled."""
    return _CODES[base_type(ColumnSchema(name="", mysql_type=mysql_type))]
