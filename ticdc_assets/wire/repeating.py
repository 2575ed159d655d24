"""How far a message may grow by repeating names and types, which it has once, in each row.

In: how many bytes of JSON text the rows would repeat. Out: a `WireError` if these are too many.
Columns of rows end at 2 GiB; everything else in them grows to at most six times its length.
"""

from json.encoder import encode_basestring
from typing import Final

from ticdc_assets.base.errors import WireError

MAX_REPEATED: Final = 64
"""How many times its own length a message may grow in this way."""

MOST_REPEATED_BYTES: Final = 1 << 30
"""Bytes by which the longest message may grow in this way."""


def stored_bytes(text: str) -> int:
    """Return how many bytes `text` takes in a JSON text, between its quotes."""
    return len(encode_basestring(text).encode()) - 2


def check_repeated(size: int, length: int, position: str) -> None:
    """Refuse a message of `length` bytes whose rows repeat `size` bytes, if these are too many.

    Raises:
        WireError: they are too many.
    """
    most = min(length * MAX_REPEATED, MOST_REPEATED_BYTES)
    if size > most:
        raise WireError(
            "too_many_rows",
            position,
            f"names and types that, repeated in each row, take {most} bytes",
            f"{size} bytes",
        )
