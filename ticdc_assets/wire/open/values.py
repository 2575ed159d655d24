"""Column values of Open Protocol: parsed JSON to physical values.

In: the parsed `v` of a column, with its `t` and `f`; a number is an `OtherNumber`. Out: the
physical value in the one spelling of all formats (`events.PhysicalValue`), which depends on the
value and its type alone. docs/formats/open_protocol.md has the types as a table.

The flags may be those of an earlier type of the column, or 0 for none (`reference`), while the
encoder writes a value by the type that the column has. So a value that contradicts the flags is not
refused if it fits the opposite flag `BINARY`: `physical_values` then returns the text of a column
flagged as bytes as it was sent, or the base64 of a column flagged as text, and reports the
spelling.

Integers are read over the whole range of 64 bits, signed and unsigned: the official decoder fails
on a BIT of 2^63 and more, which the encoder sends (golden/QUIRKS.md C3). A number that does not fit
its type (300 in a TINYINT) is not refused here but where values are typed.

Source: `FromRowChangeColumn` and `FormatColumn` in pingcap/tiflow pkg/sink/codec/internal/column.go
at 017624f.
"""

import math
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.model.json_fields import read_text, wrong_type
from ticdc_assets.model.schemas import ColumnFlag
from ticdc_assets.model.values.floats import double_text, float_text, to_float32
from ticdc_assets.wire.codes import Spelling
from ticdc_assets.wire.go_json import OtherNumber
from ticdc_assets.wire.open.go_quote import is_quoted, unquote

_SPELLINGS: Final[Mapping[tuple[int, ...], tuple[Spelling, Spelling]]] = {
    (1, 2, 3, 8, 9, 13): (Spelling.INTEGER, Spelling.INTEGER),
    (16, 247, 248): (Spelling.UNSIGNED, Spelling.UNSIGNED),
    (4,): (Spelling.FLOAT, Spelling.FLOAT),
    (5,): (Spelling.DOUBLE, Spelling.DOUBLE),
    (6,): (Spelling.NULL, Spelling.NULL),
    (7, 10, 11, 12, 14, 225, 245, 246): (Spelling.TEXT, Spelling.TEXT),
    (15, 253, 254): (Spelling.TEXT, Spelling.QUOTED),
    (249, 250, 251, 252): (Spelling.TEXT_IN_BASE64, Spelling.BYTES_IN_BASE64),
}
"""Of each type code: without and with the flag `BINARY`."""

SPELLINGS: Final[Mapping[int, tuple[Spelling, Spelling]]] = {
    code: pair for codes, pair in _SPELLINGS.items() for code in codes
}
"""How the values of a type code are written, without and with the flag `BINARY`."""

_MIN_INTEGER: Final = -(2**63)
_MAX_INTEGER: Final = 2**64 - 1

_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")

_UNSAID: Final[Mapping[Spelling, Spelling]] = {
    Spelling.QUOTED: Spelling.TEXT,
    Spelling.TEXT_IN_BASE64: Spelling.BYTES_IN_BASE64,
}
"""How values of text and bytes are read that contradict the flags."""

BYTES: Final = frozenset({Spelling.QUOTED, Spelling.BYTES_IN_BASE64})
"""The spellings whose physical values are base64."""


def spelling(code: int, flags: int) -> Spelling:
    """Return how the values of a column of type `code` with `flags` are written."""
    return SPELLINGS[code][bool(flags & ColumnFlag.BINARY)]


class SentValue(NamedTuple):
    """A value as parsed, its path, and what its column says.

    The code is one of `column_types.TYPE_NAMES`; `is_handle_key` is `h`.
    """

    value: Any
    code: int
    flags: int
    position: str
    is_handle_key: bool


def physical_values(
    values: Sequence[SentValue],
) -> tuple[list[str | None], list[Spelling]]:
    """Return the physical values of a column in the images of one row, and how each is spelled.

    The flags of the first count for all.

    Raises:
        WireError: a value does not fit its type.
    """
    said = [spelling(sent.code, values[0].flags) for sent in values]
    try:
        return _read_all(values, said), said
    except WireError:
        unsaid = [_UNSAID.get(item, item) for item in said]
        if unsaid == said:
            raise
        return _read_all(values, unsaid), unsaid


def _read_all(values: Sequence[SentValue], spellings: Sequence[Spelling]) -> list[str | None]:
    return [
        None if sent.value is None else READERS[spelled](sent.value, sent.position)
        for sent, spelled in zip(values, spellings, strict=True)
    ]


def read_integer(value: Any, position: str, *, minimum: int, maximum: int) -> int:
    """Return the integer of a parsed JSON number.

    Raises:
        WireError: `value` is not a number, has a fraction or an exponent, or is out of range.
    """
    if type(value) is not OtherNumber or not value.text.lstrip("-").isdecimal():
        raise wrong_type(position, "integer", value)
    number = int(value.text) if _INTEGER.fullmatch(value.text) is not None else maximum + 1
    if not minimum <= number <= maximum:
        raise WireError("out_of_range", position, f"{minimum} to {maximum}", shorten(value))
    return number


def _integer_text(value: Any, position: str) -> str:
    return str(read_integer(value, position, minimum=_MIN_INTEGER, maximum=_MAX_INTEGER))


def _unsigned_text(value: Any, position: str) -> str:
    return str(read_integer(value, position, minimum=0, maximum=_MAX_INTEGER))


def _float(value: Any, position: str) -> str:
    wide = _number(value, position)
    number = to_float32(wide)
    if not math.isfinite(number):
        raise WireError("out_of_range", position, "a number of 32 bits", shorten(wide))
    return float_text(number)


def _double(value: Any, position: str) -> str:
    number = _number(value, position)
    if not math.isfinite(number):
        raise WireError("out_of_range", position, "a number of 64 bits", shorten(number))
    return double_text(number)


def _number(value: Any, position: str) -> float:
    if type(value) is not OtherNumber:
        raise wrong_type(position, "number", value)
    return float(value.text)


def _null(value: Any, position: str) -> str:
    raise wrong_type(position, "null", value)


def _quoted(value: Any, position: str) -> str:
    """Return as base64 the bytes that a BINARY or VARBINARY column holds as quoted text."""
    text = read_text(value, position)
    if not is_quoted(text):
        raise WireError("invalid_escape", position, "text as Go quotes it", shorten(text))
    try:
        content = unquote(text)
    except ValueError as error:
        got = f"{shorten(text)} ({error})"
        raise WireError("invalid_escape", position, "text as Go quotes it", got) from None
    return b2a_base64(content, newline=False).decode()


def _text_in_base64(value: Any, position: str) -> str:
    content = _base64(read_text(value, position), position)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        got = shorten(content[error.start : error.start + 16])
        raise WireError("invalid_utf8", position, "base64 of UTF-8", got) from None


def _bytes_in_base64(value: Any, position: str) -> str:
    _base64(read_text(value, position), position)
    return value


def _base64(value: str, position: str) -> bytes:
    try:
        return from_base64(value)
    except ValueError:
        raise WireError("invalid_base64", position, "standard base64", shorten(value)) from None


def from_base64(value: str) -> bytes:
    """Return the bytes of `value`, which must be their standard base64."""
    content = a2b_base64(value)
    # Python's reader skips invalid characters; encoding the result again shows whether it did.
    if b2a_base64(content, newline=False) != value.encode():
        raise ValueError(f"not standard base64: {shorten(value)}")
    return content


READERS: Final[Mapping[Spelling, Callable[[Any, str], str]]] = {
    Spelling.INTEGER: _integer_text,
    Spelling.UNSIGNED: _unsigned_text,
    Spelling.FLOAT: _float,
    Spelling.DOUBLE: _double,
    Spelling.NULL: _null,
    Spelling.TEXT: read_text,
    Spelling.QUOTED: _quoted,
    Spelling.TEXT_IN_BASE64: _text_in_base64,
    Spelling.BYTES_IN_BASE64: _bytes_in_base64,
}
"""Read the parsed value of a column that is not NULL, and take its JSON path."""
