"""The values of columns in Craft: bytes to physical values.

In: the bytes of one value that is not NULL, with the type code and the flags of its column. Out:
its text as the Simple protocol spells it, or a `WireError` that names the byte. Reading keeps no
state.

`_BY_TYPE` says how each type is sent (docs/formats/craft.md has it as a table). FLOAT and DOUBLE
are 8 bytes, SIGNED numbers varints, UNSIGNED ones uvarints, everything else is the text or the
bytes.

FLOAT is damaged by TiCDC itself: its encoder writes the 8 bytes where it reserved 4, so that the
next number of the message overwrites up to 4 of the upper ones (golden/QUIRKS.md E1). The lost
bytes cannot be restored, and most damaged values look like any other FLOAT. So a row is not
refused: a value is rounded to the nearest FLOAT, and one without a FLOAT near (NaN, infinite, too
large) is 0, which TiCDC itself writes for NaN and infinity. DOUBLE values are undamaged, so NaN and
infinity are refused there.

Source: EncodeTiDBType and DecodeTiDBType in pingcap/tiflow pkg/sink/codec/craft at 017624f.

Not handled: whether a number fits its column.
"""

import math
import struct
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from typing import Final

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.model.schemas import ColumnFlag
from ticdc_assets.model.values.floats import double_text, float_text, to_float32
from ticdc_assets.wire.codes import Form
from ticdc_assets.wire.column_types import TYPE_NAMES
from ticdc_assets.wire.craft.layout import Reader
from ticdc_assets.wire.record import text_of

_BY_TYPE: Final[Mapping[tuple[str, ...], tuple[Form, Form]]] = {
    ("tinyint", "smallint", "mediumint", "int", "bigint"): (Form.SIGNED, Form.UNSIGNED),
    ("year",): (Form.SIGNED, Form.SIGNED),
    ("enum", "set", "bit"): (Form.UNSIGNED, Form.UNSIGNED),
    ("float",): (Form.FLOAT, Form.FLOAT),
    ("double",): (Form.DOUBLE, Form.DOUBLE),
    ("date", "datetime", "newdate", "timestamp", "time"): (Form.TEXT, Form.TEXT),
    ("decimal", "json", "vector"): (Form.TEXT, Form.TEXT),
    ("char", "varchar", "tinytext", "mediumtext", "longtext", "text"): (Form.TEXT, Form.TEXT),
    ("binary", "varbinary", "tinyblob", "mediumblob", "longblob", "blob"): (
        Form.BASE64,
        Form.BASE64,
    ),
    ("null",): (Form.NULL, Form.NULL),
}
"""The form of each base type: without and with the flag `UNSIGNED`."""

_FORMS: Final[Mapping[tuple[int, int], Form]] = {
    (code, binary | unsigned): forms[bool(unsigned)]
    for code, names in TYPE_NAMES.items()
    for binary in (0, int(ColumnFlag.BINARY))
    for unsigned in (0, int(ColumnFlag.UNSIGNED))
    for types, forms in _BY_TYPE.items()
    if names[bool(binary)] in types
}
_TELLING: Final = int(ColumnFlag.BINARY | ColumnFlag.UNSIGNED)


def form_of(code: int, flags: int) -> Form | None:
    """Return the form of values of type code `code` with `flags`, None for an unknown type."""
    return _FORMS.get((code, flags & _TELLING))


def _binary(raw: bytes, _position: int) -> str:
    """Return `raw` in base64."""
    return b2a_base64(raw, newline=False).decode()


def _unsigned(raw: bytes, position: int) -> str:
    """Return the number of `raw`, a uvarint."""
    return str(_number(raw, position, Reader.uvarint))


def _signed(raw: bytes, position: int) -> str:
    """Return the number of `raw`, a varint."""
    return str(_number(raw, position, Reader.varint))


def _double(raw: bytes, position: int) -> str:
    """Return the text of the DOUBLE in `raw`."""
    value = _float64(raw, position)
    if not math.isfinite(value):
        raise WireError("not_finite", f"byte {position}", "a finite number", repr(value))
    return double_text(value)


def _float(raw: bytes, position: int) -> str:
    """Return the text of the FLOAT in `raw`, or of the nearest FLOAT."""
    value = to_float32(_float64(raw, position))
    return float_text(value) if math.isfinite(value) else "0"


def _nothing(raw: bytes, position: int) -> str:
    raise WireError("unexpected_value", f"byte {position}", "NULL", shorten(raw[:16]))


def _number(raw: bytes, position: int, read: Callable[[Reader], int]) -> int:
    reader = Reader(raw)
    try:
        number = read(reader)
        reader.finish()
    except WireError as error:
        raise WireError(error.reason, f"byte {position}", error.expected, error.got) from None
    return number


_FLOAT64: Final = struct.Struct("<d")


def _float64(raw: bytes, position: int) -> float:
    if len(raw) != _FLOAT64.size:
        raise WireError(
            "wrong_length", f"byte {position}", f"{_FLOAT64.size} bytes", f"{len(raw)} bytes"
        )
    return _FLOAT64.unpack(raw)[0]


READERS: Final[Mapping[Form, Callable[[bytes, int], str]]] = {
    Form.NULL: _nothing,
    Form.TEXT: text_of,
    Form.BASE64: _binary,
    Form.SIGNED: _signed,
    Form.UNSIGNED: _unsigned,
    Form.FLOAT: _float,
    Form.DOUBLE: _double,
}
"""Read the bytes of a value that is not NULL, and its start in the message."""
