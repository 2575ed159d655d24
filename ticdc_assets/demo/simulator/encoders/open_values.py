"""Column values of Open Protocol: physical values to what Go's JSON encoder is given.

In: the physical value of a column, and its type code and flags. Out: a value for `go_json.dumps`,
as `wire.open_values` reads it; or a `ValueError` for a value that the type does not have.
"""

from binascii import b2a_base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import orjson

from ticdc_assets.base.errors import shorten
from ticdc_assets.demo.simulator.encoders import numbers
from ticdc_assets.demo.simulator.encoders.go_quote import quote
from ticdc_assets.model.events import PhysicalValue, ZonedTimestamp
from ticdc_assets.model.values.floats import double_text, float_text, to_float32
from ticdc_assets.wire.open_values import Spelling, from_base64, spelling

_MAX_INTEGER: Final = 2**64 - 1

# encoding/json prefers an exponent outside of these, judged in the size of the value.
_POSITIONAL_DOUBLE: Final = (1e-6, 1e21)
_POSITIONAL_FLOAT: Final = (to_float32(1e-6), to_float32(1e21))


def json_value(value: PhysicalValue, code: int, flags: int) -> Any:
    """Return what Go's JSON encoder would be given for the physical `value` of a column.

    Raises:
        ValueError: `value` is none of the type.
    """
    if value is None:
        return None
    text = value.value if isinstance(value, ZonedTimestamp) else value
    return _WRITERS[spelling(code, flags)](text)


def _integer(value: str) -> int:
    return numbers.integer(value, -(2**63), _MAX_INTEGER)


def _unsigned(value: str) -> int:
    return numbers.integer(value, 0, _MAX_INTEGER)


def _float(value: str) -> orjson.Fragment:
    number = numbers.single(value)
    return _go_number(float_text(number), abs(number), *_POSITIONAL_FLOAT)


def _double(value: str) -> orjson.Fragment:
    number = numbers.double(value)
    return _go_number(double_text(number), abs(number), *_POSITIONAL_DOUBLE)


def _go_number(text: str, size: float, least: float, most: float) -> orjson.Fragment:
    if size == 0 or least <= size < most:
        return orjson.Fragment(text)
    sign = "-" if text.startswith("-") else ""
    digits = text.lstrip("-").replace(".", "").strip("0")
    point = "." if len(digits) > 1 else ""
    exponent = Decimal(text).adjusted()
    # Go gives an exponent two digits at least; encoding/json takes the leading 0 of a negative one.
    written = f"{exponent}" if exponent < 0 else f"+{exponent:02d}"
    return orjson.Fragment(f"{sign}{digits[0]}{point}{digits[1:]}e{written}")


def _null(value: str) -> None:
    raise ValueError(f"a column of the type NULL holds {shorten(value)}")


def _quoted(value: str) -> str:
    return quote(from_base64(value))


def _text_in_base64(value: str) -> str:
    return b2a_base64(value.encode(), newline=False).decode()


def _bytes_in_base64(value: str) -> str:
    from_base64(value)
    return value


_WRITERS: Final[Mapping[Spelling, Callable[[str], Any]]] = {
    Spelling.INTEGER: _integer,
    Spelling.UNSIGNED: _unsigned,
    Spelling.FLOAT: _float,
    Spelling.DOUBLE: _double,
    Spelling.NULL: _null,
    Spelling.TEXT: str,
    Spelling.QUOTED: _quoted,
    Spelling.TEXT_IN_BASE64: _text_in_base64,
    Spelling.BYTES_IN_BASE64: _bytes_in_base64,
}
