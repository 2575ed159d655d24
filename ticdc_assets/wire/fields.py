"""A message as data: its fields, how each is written, whether it must be there, its meaning.

In: what a format's documentation says. Out: tables of `Field` for both readers of a format: the
reference reads a message by its table, and the batch reader columns of messages. The tables never
change and keep no state.

Here too are the readers of the kinds, for the references. In: a value as `go_json.parse` gives it
(or `simple.avro`, whose values are like these), and its JSON path. Out: the value with its type, or
a `WireError` with that path. A number is never text, text never a number, and true not an integer:
TiCDC's encoders write one type for each field.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, cast

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.model.tso import LOGICAL_BITS, MAX_TSO
from ticdc_assets.wire.codes import Presence


class Kind(StrEnum):
    """How a field is written."""

    INTEGER = "integer"
    """From 0 to 2^63-1."""
    MILLISECONDS = "milliseconds"
    """From 0 to the most that can be shifted to a TSO."""
    UINT32 = "integer of 32 bits"
    ROW_ID = "row id"
    """A signed integer of 64 bits."""
    TEXT = "text"
    NAME = "name"
    """A text that is not empty."""
    BOOLEAN = "boolean"
    IMAGE = "image"
    IMAGES = "images"
    """An array of images, one a row."""
    CHECKSUM = "checksum"
    SCHEMA = "schema"
    NAMES = "names"
    """An array of texts."""
    TYPES = "types"
    """An object: column name to text."""
    OBJECT = "object"


LARGEST: Final[Mapping[Kind, int]] = {
    Kind.INTEGER: MAX_TSO,
    Kind.MILLISECONDS: MAX_TSO >> LOGICAL_BITS,
    Kind.UINT32: 2**32 - 1,
}
"""The greatest number of each kind of those that begin at 0."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message type.

    Attributes:
        name: its name in the message.
        kind: how it is written.
        presence: whether it must be there.
        meaning: the attribute of the event for it, by default its name.
    """

    name: str
    kind: Kind
    presence: Presence = Presence.REQUIRED
    meaning: str = ""

    def __post_init__(self) -> None:
        """Use the name as the meaning where none is given."""
        object.__setattr__(self, "meaning", self.meaning or self.name)


# --- reading ---

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
