"""The values of columns in Craft: bytes to physical values, and back.

In: the bytes of one value that is not NULL, with the type code and the flags of its column. Out:
its text as the Simple protocol spells it, or a `WireError` that names the byte. And back: the text
to its bytes. Neither keeps state.

    type                                                    bytes
    date datetime newdate timestamp time                    the text
    decimal json vector                                     the text
    tinyint smallint mediumint int bigint                   varint, with UNSIGNED uvarint
    year                                                    varint, UNSIGNED or not
    enum set bit                                            uvarint: index, mask, the bits
    float double                                            float64
    char varchar text, without BINARY                       the text in UTF-8
    the same with BINARY: binary varbinary blob             the bytes
    null                                                    none: always NULL

FLOAT is damaged by TiCDC itself: its encoder writes the 8 bytes where it reserved 4, so that the
next number of the message overwrites up to 4 of the upper ones (golden/QUIRKS.md E1). What was
there is lost, and most damaged values look like any other FLOAT. A row is not refused for it: what
is no FLOAT is rounded to the nearest one, and what has none near (NaN, infinite, too large) is 0,
which TiCDC itself writes for NaN and infinity. DOUBLE is right, so there both are refused.

Source: EncodeTiDBType and DecodeTiDBType in pingcap/tiflow pkg/sink/codec/craft at 017624f.

Not handled: whether a number fits its column.
"""

import math
import re
from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ticdc_assets.errors import WireError, shorten
from ticdc_assets.schemas import ColumnFlag
from ticdc_assets.values.floats import MAX_FLOAT32, double_text, float_text, to_float32
from ticdc_assets.wire.column_types import TYPE_NAMES
from ticdc_assets.wire.craft_bytes import (
    FLOAT64,
    MAX_UINT64,
    Reader,
    text_of,
    write_uvarint,
    write_varint,
)

_INTEGER: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_MAX_INT64: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ValueCodec:
    """How the values of a column are written.

    Attributes:
        read: bytes and where they stand to text; raises `WireError`.
        write: text to bytes; raises `ValueError`.
    """

    read: Callable[[bytes, int], str]
    write: Callable[[str], bytes]


def codec_of(code: int, flags: int) -> ValueCodec | None:
    """Return how values of type code `code` with `flags` are written, None for an unknown type."""
    codecs = _CODECS.get(code)
    return None if codecs is None else codecs[flags & _TELLING]


def read_text(raw: bytes, position: int) -> str:
    """Return the text that `raw` is in UTF-8."""
    return text_of(raw, position)


def read_binary(raw: bytes, _position: int) -> str:
    """Return `raw` in base64."""
    return b2a_base64(raw, newline=False).decode()


def read_unsigned(raw: bytes, position: int) -> str:
    """Return the number that `raw` is as a uvarint."""
    return str(_number(raw, position))


def read_signed(raw: bytes, position: int) -> str:
    """Return the number that `raw` is as a varint."""
    number = _number(raw, position)
    return str((number >> 1) ^ -(number & 1))


def read_double(raw: bytes, position: int) -> str:
    """Return the text of the DOUBLE in `raw`."""
    value = _float64(raw, position)
    if not math.isfinite(value):
        raise WireError("not_finite", f"byte {position}", "a finite number", repr(value))
    return double_text(value)


def read_float(raw: bytes, position: int) -> str:
    """Return the text of the FLOAT in `raw`, or of one near what is there instead."""
    value = to_float32(_float64(raw, position))
    return float_text(value) if math.isfinite(value) else "0"


def _read_nothing(raw: bytes, position: int) -> str:
    raise WireError("unexpected_value", f"byte {position}", "NULL", shorten(raw[:16]))


def _number(raw: bytes, position: int) -> int:
    reader = Reader(raw, 0, len(raw))
    try:
        number = reader.uvarint()
        reader.finish()
    except WireError as error:
        raise WireError(error.reason, f"byte {position}", error.expected, error.got) from None
    return number


def _float64(raw: bytes, position: int) -> float:
    if len(raw) != FLOAT64.size:
        raise WireError(
            "wrong_length", f"byte {position}", f"{FLOAT64.size} bytes", f"{len(raw)} bytes"
        )
    return FLOAT64.unpack(raw)[0]


def _write_binary(text: str) -> bytes:
    return b64decode(text, validate=True)


def _write_unsigned(text: str) -> bytes:
    return write_uvarint(_integer(text, 0, MAX_UINT64))


def _write_signed(text: str) -> bytes:
    return write_varint(_integer(text, -_MAX_INT64 - 1, _MAX_INT64))


def _write_double(text: str) -> bytes:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"no finite number: {shorten(text)}")
    return FLOAT64.pack(value)


def _write_float(text: str) -> bytes:
    value = to_float32(float(text))
    if not abs(value) <= MAX_FLOAT32:
        raise ValueError(f"no FLOAT: {shorten(text)}")
    return FLOAT64.pack(value)


def _write_nothing(text: str) -> bytes:
    raise ValueError(f"a column of type null has no value: {shorten(text)}")


def _integer(text: str, low: int, high: int) -> int:
    if _INTEGER.fullmatch(text) is None or not low <= int(text) <= high:
        raise ValueError(f"no integer from {low} to {high}: {shorten(text)}")
    return int(text)


_TEXT: Final = ValueCodec(read_text, str.encode)
_BINARY: Final = ValueCodec(read_binary, _write_binary)
_SIGNED: Final = ValueCodec(read_signed, _write_signed)
_UNSIGNED: Final = ValueCodec(read_unsigned, _write_unsigned)
_FLOAT: Final = ValueCodec(read_float, _write_float)
_DOUBLE: Final = ValueCodec(read_double, _write_double)
_NOTHING: Final = ValueCodec(_read_nothing, _write_nothing)

_BY_TYPE: Final[Mapping[str, tuple[ValueCodec, ValueCodec]]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), (_SIGNED, _UNSIGNED)),
    "year": (_SIGNED, _SIGNED),
    **dict.fromkeys(("enum", "set", "bit"), (_UNSIGNED, _UNSIGNED)),
    "float": (_FLOAT, _FLOAT),
    "double": (_DOUBLE, _DOUBLE),
    **dict.fromkeys(
        ("date", "datetime", "newdate", "timestamp", "time", "decimal", "json", "vector"),
        (_TEXT, _TEXT),
    ),
    **dict.fromkeys(
        ("char", "varchar", "tinytext", "mediumtext", "longtext", "text"), (_TEXT, _TEXT)
    ),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "mediumblob", "longblob", "blob"), (_BINARY, _BINARY)
    ),
    "null": (_NOTHING, _NOTHING),
}
"""The codec of each base type: without and with the flag `UNSIGNED`."""

_TELLING: Final = int(ColumnFlag.BINARY | ColumnFlag.UNSIGNED)

_CODECS: Final[Mapping[int, Mapping[int, ValueCodec]]] = {
    code: {
        flags: _BY_TYPE[names[bool(flags & ColumnFlag.BINARY)]][bool(flags & ColumnFlag.UNSIGNED)]
        for flags in (0, ColumnFlag.BINARY, ColumnFlag.UNSIGNED, _TELLING)
    }
    for code, names in TYPE_NAMES.items()
}
"""The codec of each type code, by the two flags that tell."""
