"""Fields of objects of parsed JSON, each of one type.

In: a value as a JSON parser gives it, and its JSON path. Out: the value with its type, or a
`WireError` with that path. A number is never text, text never a number, and true not an integer:
TiCDC's encoders write one type for each field.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.model.tso import MAX_TSO

_T = TypeVar("_T")


def wrong_type(position: str, expected: str, value: Any) -> WireError:
    """Return the error that `value` is not what was expected at `position`."""
    return WireError("wrong_type", position, expected, shorten(value))


def read_object(value: Any, position: str) -> dict[str, Any]:
    """Return `value` as an object."""
    if type(value) is not dict:
        raise wrong_type(position, "object", value)
    return cast(dict[str, Any], value)


def read_array(value: Any, position: str) -> list[Any]:
    """Return `value` as an array."""
    if type(value) is not list:
        raise wrong_type(position, "array", value)
    return cast(list[Any], value)


def read_natural(value: Any, position: str, minimum: int = 0, maximum: int = MAX_TSO) -> int:
    """Return `value` as an integer, by default from 0 on."""
    if type(value) is not int:
        raise wrong_type(position, "integer", value)
    if not minimum <= value <= maximum:
        raise WireError("out_of_range", position, f"{minimum} to {maximum}", shorten(value))
    return value


def read_text(value: Any, position: str) -> str:
    """Return `value` as text."""
    if type(value) is not str:
        raise wrong_type(position, "text", value)
    return value


def read_name(value: Any, position: str) -> str:
    """Return `value` as text that is not empty."""
    if not read_text(value, position):
        raise WireError("empty_text", position, "text that is not empty", "''")
    return value


def read_boolean(value: Any, position: str) -> bool:
    """Return `value` as true or false."""
    if type(value) is not bool:
        raise wrong_type(position, "true or false", value)
    return value


def required(
    fields: Mapping[str, Any], name: str, read: Callable[[Any, str], _T], position: str = "$"
) -> _T:
    """Return the field `name` of the object at `position`, as `read` reads it."""
    if name not in fields:
        raise WireError("missing_field", f"{position}.{name}", "the field", "nothing")
    return read(fields[name], f"{position}.{name}")


def required_not_null(
    fields: Mapping[str, Any], name: str, read: Callable[[Any, str], _T], position: str = "$"
) -> _T:
    """Return the same; null counts as missing."""
    value = fields.get(name)
    if value is None:
        got = "null" if name in fields else "nothing"
        raise WireError("missing_field", f"{position}.{name}", "the field", got)
    return read(value, f"{position}.{name}")


def optional(
    fields: Mapping[str, Any], name: str, read: Callable[[Any, str], _T], position: str = "$"
) -> _T | None:
    """Return the field `name`, None if there is no such field or it is null."""
    value = fields.get(name)
    return None if value is None else read(value, f"{position}.{name}")


def read_names(value: Any, position: str) -> tuple[str, ...]:
    """Return `value` as an array of texts."""
    return tuple(
        read_text(name, f"{position}[{number}]")
        for number, name in enumerate(read_array(value, position))
    )
