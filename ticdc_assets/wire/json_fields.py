"""The kinds of JSON values in messages, read strictly.

In: a value as `go_json.parse` gives it (or `simple.avro`, whose values are like these), and its
JSON path; or an object and the name of one of its fields. Out: the value with its type, or a
`WireError` with that path. A number is never text, text never a number, and true not an integer:
TiCDC's encoders write one type for each field. Every reader depends on its arguments alone.

Not handled: which fields a message has (the formats' own tables of `Field`), and what they mean.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.model.tso import MAX_TSO
from ticdc_assets.wire.fields import LARGEST, Field, Kind, Presence

_T = TypeVar("_T")

Reader: TypeAlias = Callable[[Any, str], Any]
"""Reads a parsed value at a JSON path."""


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


def read_natural(value: Any, position: str, maximum: int = MAX_TSO) -> int:
    """Return `value` as an integer from 0 to `maximum`.

    Raises:
        WireError: it is not an integer, or not within that range.
    """
    if type(value) is not int:
        raise wrong_type(position, "integer", value)
    if not 0 <= value <= maximum:
        raise WireError("out_of_range", position, f"0 to {maximum}", shorten(value))
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


READERS: Final[Mapping[Kind, Reader]] = {
    **{kind: partial(read_natural, maximum=LARGEST[kind]) for kind in LARGEST},
    Kind.TEXT: read_text,
    Kind.NAME: read_name,
    Kind.BOOLEAN: read_boolean,
    Kind.NAMES: read_names,
    Kind.OBJECT: read_object,
}
"""Readers of the kinds with the same meaning in all formats."""


def read_fields(
    members: Mapping[str, Any],
    fields: Iterable[Field],
    position: str = "$",
    *,
    readers: Mapping[Kind, Reader] = READERS,
    read_required: Callable[[Mapping[str, Any], str, Reader, str], Any] = required,
) -> dict[str, Any]:
    """Return the values of the fields that are there, by their meaning.

    Args:
        members: the parsed object.
        fields: the fields that it may or must have.
        position: its JSON path.
        readers: the reader of each kind of these fields.
        read_required: reads a field that must be there.

    Raises:
        WireError: a field is not as its table says.
    """
    found: dict[str, Any] = {}
    for field in fields:
        name, value = field.name, members.get(field.name)
        if field.presence is Presence.REQUIRED:
            found[field.meaning] = read_required(members, name, readers[field.kind], position)
        elif value is None:
            continue
        elif field.presence is Presence.OPTIONAL:
            found[field.meaning] = readers[field.kind](value, f"{position}.{name}")
        else:
            expected = f"no {name} in this type"
            raise WireError("unexpected_field", f"{position}.{name}", expected, shorten(value))
    return found
