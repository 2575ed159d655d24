"""Recognise the format of records from the records themselves.

In: some records of a topic. Out: the formats, with compression, in which most of them can be
decoded; and for records that no format can decode, the name of a well-known format that they look
like. It is only for advice: landed records are never decoded by a guess.

One record can fit several formats, such as a watermark of Open Protocol, which is the same under
every compression. So a configured format is wrong only if it is not among the best ones.

Not handled: options within a format (`content-compatible`, the TiDB extension), which decoding does
not need.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

from ticdc_assets.base.errors import WireError
from ticdc_assets.wire import WireFormat, decode
from ticdc_assets.wire.compression import Compression, supports
from ticdc_assets.wire.record import Record


@dataclass(frozen=True, slots=True, order=True)
class Look:
    """A format with the compression around it.

    Args:
        wire_format: the format.
        compression: how messages are compressed.
    """

    wire_format: WireFormat
    compression: Compression = Compression.NONE

    def __str__(self) -> str:
        if self.compression is Compression.NONE:
            return self.wire_format.value
        return f"{self.wire_format.value} compressed by {self.compression.value}"


LOOKS: Final = tuple(
    Look(wire_format, compression)
    for compression in Compression
    for wire_format in WireFormat
    if supports(wire_format, compression)
)
"""All possible forms of a record; uncompressed ones first."""


def looks_of(records: Iterable[Record]) -> tuple[Look, ...]:
    """Return the forms that most of `records` can be decoded as, uncompressed first; () for none.

    Records without key and value do not count.
    """
    given = [record for record in records if record.key or record.value]
    counts = {look: sum(_fits(look, record) for record in given) for look in LOOKS}
    best = max(counts.values())
    return tuple(look for look, count in counts.items() if count == best) if best else ()


def foreign_look(records: Iterable[Record]) -> str:
    """Return the known format that records resemble although TiCDC's do not fit; "" if unknown."""
    values = [record.value for record in records if record.value]
    return next((what for value in values for what, is_it in _FOREIGN if is_it(value)), "")


def _fits(look: Look, record: Record) -> bool:
    try:
        decode(look.wire_format, record, compression=look.compression)
    except WireError:
        return False
    return True


# Other formats of TiCDC or other programs ---------------------------------------------------------


def _members(value: bytes) -> dict[str, Any]:
    try:
        parsed: Any = orjson.loads(value)
    except orjson.JSONDecodeError:
        return {}
    return cast(dict[str, Any], parsed) if isinstance(parsed, dict) else {}


def _is_debezium(value: bytes) -> bool:
    members = _members(value)
    payload = members.get("payload", members)
    return isinstance(payload, dict) and {"op", "source"} <= cast(dict[str, Any], payload).keys()


def _is_registered_avro(value: bytes) -> bool:
    # A zero and the four bytes of a schema's id, which is small; or AWS Glue's version 3 without
    # compression, and the 16 bytes of a schema's id.
    return (len(value) > 5 and value[:2] == b"\0\0") or (len(value) > 18 and value[:2] == b"\3\0")


_OF_MAXWELL: Final = {"database", "table", "type", "ts", "data"}
_FOREIGN: Sequence[tuple[str, Callable[[bytes], bool]]] = (
    ("Debezium (protocol=debezium)", _is_debezium),
    ("Maxwell (protocol=maxwell)", lambda value: _members(value).keys() >= _OF_MAXWELL),
    ("JSON in none of TiCDC's formats", lambda value: bool(_members(value))),
    ("Avro with a schema registry (protocol=avro or debezium-avro)", _is_registered_avro),
    # A packet of version 1 and of the type MESSAGES.
    ("Canal in Protobuf (protocol=canal)", lambda value: value.startswith(b"\x10\x01\x18\x07")),
)
