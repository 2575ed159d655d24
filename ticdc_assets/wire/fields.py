"""A message as data: its fields, how each is written, whether it must be there, its meaning.

In: what a format's documentation says. Out: tables of `Field` for both readers of a format: the
reference reads a message by its table, and the batch reader columns of messages. The tables never
change and keep no state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from ticdc_assets.model.tso import LOGICAL_BITS, MAX_TSO


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


class Presence(IntEnum):
    """Whether a field must be there; null counts as absent. The loops know the numbers."""

    ABSENT = 1
    OPTIONAL = 2
    REQUIRED = 3


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
