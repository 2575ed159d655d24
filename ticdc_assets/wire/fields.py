"""A message as data: its fields, how each is written, whether it must be there, its meaning.

In: what a format's documentation says. Out: tables of `Field` for both readers of a format: the
reference reads a message by its table, and the batch reader columns of messages. The tables never
change and keep no state.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeAlias

from ticdc_assets.base.errors import WireError, shorten
from ticdc_assets.model.json_fields import (
    read_boolean,
    read_name,
    read_names,
    read_natural,
    read_object,
    read_text,
    required,
)
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

Reader: TypeAlias = Callable[[Any, str], Any]
"""Reads a parsed value at a JSON path."""

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
    by_meaning: dict[str, Any] = {}
    for field in fields:
        name, value = field.name, members.get(field.name)
        if field.presence is Presence.REQUIRED:
            by_meaning[field.meaning] = read_required(members, name, readers[field.kind], position)
        elif value is None:
            continue
        elif field.presence is Presence.OPTIONAL:
            by_meaning[field.meaning] = readers[field.kind](value, f"{position}.{name}")
        else:
            expected = f"no {name} in this type"
            raise WireError("unexpected_field", f"{position}.{name}", expected, shorten(value))
    return by_meaning
