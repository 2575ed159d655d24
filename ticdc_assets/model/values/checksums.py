"""Row checksums of the Simple protocol: CRC32 over the columns in the order of the schema.

In: an image with physical values, and the schema it cites, whose columns are as Simple sends them:
by their ids from the old TiCDC, in the order of the table from the new one. Each takes the columns
of a row in the same order. Out: whether it is the CRC32 (IEEE) that TiCDC computes of the row, or
None where it cannot be computed. The result depends on the arguments alone.

NULL adds nothing. Of all else these bytes are added, numbers little-endian:

    integers, YEAR      8 bytes, two's complement
    ENUM, SET, BIT      8 bytes: the index, the mask, the bits as a number
    FLOAT, DOUBLE       8 bytes: the IEEE double (a FLOAT is widened to it)
    text, binary        4 bytes of length, then the bytes (text in UTF-8)
    DECIMAL, DATE,      4 bytes of length, then TiDB's text
    DATETIME, TIME,
    JSON
    TIMESTAMP           4 bytes of length, then TiDB's text in UTC
    VECTOR              4 bytes: the number of elements, then each as an IEEE float

A local time that a clock change repeats is ambiguous; this module chooses as Go does, as sender and
reader must agree. A time that a clock change skips has no checksum.

Source: `appendDatumForChecksum` in pingcap/tidb pkg/util/rowcodec/common.go; `VerifyChecksum` and
`buildChecksumBytes` in pingcap/tiflow pkg/sink/codec/common/verify_checksum.go; `verifyChecksum` in
cdc/entry/mounter.go at 017624f; `calculateColumnChecksum` in pkg/common/event/checksum.go of
pingcap/ticdc.

Not handled: the checksum of the stored bytes that TiDB has had since version 1. TiCDC verifies it
and sends that of the columns all the same.
"""

import struct
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache, partial
from typing import Final, TypeAlias
from zlib import crc32

from ticdc_assets.model.events import Image, PhysicalValue, RowChange, ZonedTimestamp
from ticdc_assets.model.mysql_types import Kind, kind_of
from ticdc_assets.model.schemas import ColumnSchema, TableSchema
from ticdc_assets.model.values import shapes
from ticdc_assets.model.values.floats import to_float32
from ticdc_assets.model.values.zones import (
    CHANGEFEED_ZONE_NAMES,
    changefeed_zone,
    find_zone,
    to_utc,
)

VERSIONS: Final = frozenset({0, 1, 2})
"""Versions of TiDB's checksums for which the one sent is known to be that of the columns."""

_Encoder: TypeAlias = Callable[[PhysicalValue], bytes | None]
"""The bytes of a value that is not NULL, None for anything but a value of the column's type."""

_UINT64: Final = 2**64
_LENGTH: Final = struct.Struct("<I")
_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")


def checksum_agrees(event: RowChange, schema: TableSchema, timezone: str) -> bool | None:
    """Return whether `event` matches its checksums; None if they say nothing.

    The rules are those of TiCDC's own consumer:

    - `current` is of the image after the change, `previous` of that before it. A checksum of 0
      counts as none: the row was stored without one, or its UPDATE was split, which zeroes both.
    - A row that TiCDC marks `corrupted` does not match, whatever is sent.
    - A column without a value is a virtual generated one, which is in no checksum.
    - Nothing can be said of rows cut to their handle key, as the checksum is that of the whole
      row, and of checksums of a version that is not known.

    Raises:
        ConfigError: `timezone` is no zone.
    """
    sent = event.checksum
    if sent is None:
        return None
    if sent.corrupted:
        return False
    cut = event.handle_key_only or event.claim_check_location is not None
    if cut or sent.version not in VERSIONS:
        return None
    columns = _encoders(schema, timezone)
    agreed: bool | None = None
    unknown = False
    for wanted, image in ((sent.current, event.after), (sent.previous, event.before)):
        if wanted:
            checksum = _checksum(columns, image or {})
            if checksum is None:
                unknown = True
            elif checksum != wanted:
                return False
            else:
                agreed = True
    return None if unknown else agreed


def _checksum(columns: Iterable[tuple[str, "_Encoder | None"]], image: Image) -> int | None:
    checksum = 0
    for name, encode in columns:
        if name not in image:
            continue
        value = image[name]
        if encode is None:
            return None
        if value is not None:
            added = encode(value)
            if added is None:
                return None
            checksum = crc32(added, checksum)
    return checksum


@lru_cache(maxsize=256)
def _encoders(schema: TableSchema, timezone: str) -> tuple[tuple[str, _Encoder | None], ...]:
    """Return for each column its name and encoder, None for one of an unknown type."""
    zone = changefeed_zone(timezone)
    return tuple((column.name, _encoder(column, zone)) for column in schema.columns)


def _encoder(column: ColumnSchema, zone: tzinfo) -> _Encoder | None:
    kind = kind_of(column)
    if kind is Kind.TIMESTAMP:
        return lambda value: _timestamp(value, zone)
    encode = _ENCODERS.get(kind)
    if encode is None:
        return None
    return lambda value: encode(value) if isinstance(value, str) else None


def _integer(text: str) -> bytes | None:
    if shapes.INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    # Simple Avro sends values with the top bit as negative numbers.
    return (number % _UINT64).to_bytes(8, "little") if -(2**63) <= number < _UINT64 else None


def _number(text: str, narrow: Callable[[float], float]) -> bytes | None:
    if shapes.NUMBER.fullmatch(text) is None:
        return None
    number = narrow(float(text))
    # Infinite where the text is not a number of the type; TiDB counts such values as 0.
    return _DOUBLE.pack(number if abs(number) != float("inf") else 0.0)


def _text(text: str) -> bytes | None:
    try:
        return _with_length(text.encode())
    except UnicodeEncodeError:
        return None


def _binary(text: str) -> bytes | None:
    try:
        return _with_length(b64decode(text, validate=True))
    except ValueError:
        return None


def _with_length(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


def _vector(text: str) -> bytes | None:
    inner = text.strip()
    if inner[:1] != "[" or inner[-1:] != "]" or len(inner) < 2:
        return None
    elements = inner[1:-1].split(",") if inner[1:-1].strip() else []
    packed = [_LENGTH.pack(len(elements))]
    for element in elements:
        number = element.strip()
        if shapes.NUMBER.fullmatch(number) is None:
            return None
        try:
            packed.append(_FLOAT.pack(float(number)))
        except OverflowError:
            return None
    return b"".join(packed)


_SECONDS: Final = len("2024-01-31 23:59:59")


def _timestamp(value: PhysicalValue, changefeed: tzinfo) -> bytes | None:
    if isinstance(value, ZonedTimestamp):
        text = value.value
        local = value.location in CHANGEFEED_ZONE_NAMES
        zone = changefeed if local else find_zone(value.location)
    else:
        text, zone = value, changefeed
    if text is None or zone is None:
        return None
    if shapes.datetime_pattern(None).fullmatch(text) is None:
        return None
    if not text.strip("0-: ."):
        return _text(text)
    try:
        shown = datetime.fromisoformat(text[:_SECONDS])
    except ValueError:
        return None
    instant = _go_instant(shown, zone)
    if instant is None:
        return None
    # No zone was ever off by a part of a second, so the digits stay as they are.
    return _text(f"{instant:%Y-%m-%d %H:%M:%S}{text[_SECONDS:]}")


def _go_instant(local: datetime, zone: tzinfo) -> datetime | None:
    """Return the naive UTC time that Go's `time.Date` gives for `local` in `zone`.

    Go takes the offset at the instant that `local` would be in UTC, and then the offset at the
    resulting instant.
    """
    try:
        near = local - _offset(local, zone)
        instant = local - _offset(near, zone)
    except OverflowError:
        return None
    # None in a gap, which has no instant.
    return instant if to_utc(local, zone) is not None else None


def _offset(instant: datetime, zone: tzinfo) -> timedelta:
    return instant.replace(tzinfo=UTC).astimezone(zone).utcoffset() or timedelta()


_ENCODERS: Final[Mapping[Kind, Callable[[str], bytes | None]]] = {
    **dict.fromkeys((Kind.INTEGER, Kind.YEAR, Kind.ENUM, Kind.SET, Kind.BIT), _integer),
    Kind.FLOAT: partial(_number, narrow=to_float32),
    Kind.DOUBLE: partial(_number, narrow=float),
    **dict.fromkeys((Kind.TEXT, Kind.DECIMAL, Kind.JSON), _text),
    **dict.fromkeys((Kind.DATE, Kind.DATETIME, Kind.TIME), _text),
    Kind.BINARY: _binary,
    Kind.VECTOR: _vector,
}
"""The encoders of all known kinds but TIMESTAMP, which needs a zone."""
