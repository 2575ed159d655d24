"""JSON values as TiDB stores and prints them (pingcap/tidb pkg/types/json_binary.go).

TiDB keeps JSON in a binary form: object keys sorted by their bytes, the last of equal keys, numbers
as int64, uint64 or double. So text that a DDL turns into JSON comes back changed in these ways, and
`stored_json` returns the changed text.
"""

import json
from collections.abc import Callable
from typing import Any, cast

from ticdc_assets.model.values import shapes
from ticdc_assets.model.values.floats import double_text

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
_ESCAPE_TABLE = {
    **{code: f"\\u{code:04x}" for code in range(0x20)},
    **{ord(char): escape for char, escape in _ESCAPES.items()},
    # Half of a surrogate pair: Go reads it as the replacement character.
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}


def read_json(text: str) -> Any:
    """Return the parsed JSON text with TiDB's number types.

    Raises:
        ValueError: the text is not JSON, or one of its numbers is too large for TiDB.
    """
    if not shapes.is_json(text):
        raise ValueError("JSON too deep" if shapes.is_too_deep(text) else "no JSON")
    try:
        return _decode(text)
    except RecursionError:
        raise ValueError("JSON too deep") from None


def _read_int(text: str) -> int | float:
    number = int(text) if len(text) <= 20 else None
    if number is not None and -(2**63) <= number < 2**64:
        # "-0" is an int64 of value 0.
        return number
    return _read_float(text)


def _read_float(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError("number too large")
    return number


_decode: Callable[[str], Any] = json.JSONDecoder(
    parse_int=_read_int, parse_float=_read_float
).decode


def stored_json(text: str) -> str:
    """Return canonical JSON text of what TiDB stores for `text`; ValueError if it is not JSON."""
    try:
        return write_json(read_json(text))
    except RecursionError:
        raise ValueError("JSON too deep") from None


def write_json(value: Any) -> str:
    """Return the compact text of a parsed JSON value as TiDB prints it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float_json(value)
        case str():
            return f'"{value.translate(_ESCAPE_TABLE)}"'
        case list():
            return _write_array(cast("list[Any]", value))
        case _:
            return _write_object(value)


def _write_array(value: list[Any]) -> str:
    return f"[{','.join(map(write_json, value))}]"


def _write_object(value: dict[str, Any]) -> str:
    members = (
        f"{write_json(key)}:{write_json(value[key])}" for key in sorted(value, key=_sort_key)
    )
    return f"{{{','.join(members)}}}"


def _sort_key(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _float_json(value: float) -> str:
    if value != 0 and not 1e-15 <= abs(value) < 1e15:
        mantissa, _, exponent = _shortest_exponent(value).partition("e")
        return f"{mantissa}e{int(exponent)}"
    text = double_text(value)
    return text if "." in text else text + ".0"


def _shortest_exponent(value: float) -> str:
    """Return the shortest digits of `value` in scientific notation."""
    text = repr(value)
    if "e" in text:
        return text
    digits = len(text.replace("-", "").replace(".", "").strip("0"))
    return f"{value:.{max(digits - 1, 0)}e}"
