"""A Kafka record as `wire` sees it: key and value. Coordinates stay with the caller.

Also what formats check in the same way: that a value has content, that bytes are text, and that a
message does not grow too much by names and types that it has once, and its rows each.
"""

from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Final

from ticdc_assets.base.errors import WireError, shorten

MAX_REPEATED: Final = 64
"""How many times its own length a message may grow by what its rows repeat.

Columns of rows end at 2 GiB; everything else in them grows to at most six times its length.
"""

MOST_REPEATED_BYTES: Final = 1 << 30
"""Bytes by which the longest message may grow in this way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Key and value of one Kafka record; None is Kafka's null."""

    key: bytes | None
    value: bytes | None


def content_of(value: bytes | None, expected: str) -> bytes:
    """Return a value with content.

    Raises:
        WireError: it is null or empty, where `expected` is wanted.
    """
    if value is None:
        raise WireError("null_value", "byte 0", expected, "null value (tombstone)")
    if not value:
        raise WireError("empty_value", "byte 0", expected, "0 bytes")
    return value


def text_of(raw: bytes, position: int) -> str:
    """Return the UTF-8 text of `raw`, which is at `position`.

    Raises:
        WireError: it is not UTF-8.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        got = shorten(raw[error.start : error.start + 16])
        place = f"byte {position + error.start}"
        raise WireError("invalid_utf8", place, "UTF-8", got) from None


def moved(error: WireError, start: str) -> WireError:
    """Return the error of a part of a record with its byte in the record.

    The part starts at `start`: `byte 8` or `key byte 8`.
    """
    where, _, first = start.rpartition("byte ")
    byte = int(first) + int(error.position.removeprefix("byte "))
    return WireError(error.reason, f"{where}byte {byte}", error.expected, error.got)


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
