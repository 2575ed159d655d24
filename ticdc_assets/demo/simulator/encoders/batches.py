"""Which events share a record in Open Protocol and Craft: rows that follow each other.

TiCDC also closes a record of 10 MB, which no row here comes near.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from ticdc_assets.model.events import Event, RowChange

DEFAULT_BATCH_SIZE: Final = 16
"""TiCDC's default of `max-batch-size`: rows of a record."""


def batches(events: Sequence[Event], most: int) -> Iterator[Sequence[Event]]:
    """Yield the events of each record: at most so many rows, or one other event."""
    for are_rows, group in groupby(events, lambda event: isinstance(event, RowChange)):
        some, size = list(group), most if are_rows else 1
        for begin in range(0, len(some), size):
            yield some[begin : begin + size]
