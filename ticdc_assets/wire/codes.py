"""Numbers that the references and the compiled loops both know.

They are: whether a field must be there, how values are written, how deep JSON may be nested. The
loops are compiled again when this module changes (`base.compiled`), so it imports no other.
"""

from enum import IntEnum
from typing import Final

MAX_DEPTH: Final = 100
"""Most nested arrays and objects that are read; a table schema needs 6."""


class Presence(IntEnum):
    """Whether a field must be there; null counts as absent."""

    ABSENT = 1
    OPTIONAL = 2
    REQUIRED = 3


class Form(IntEnum):
    """How the binary formats, Avro and Craft, send a value: how its text is built."""

    NULL = 0
    TEXT = 1
    """Bytes in UTF-8."""
    BASE64 = 2
    """Bytes, in base64."""
    SIGNED = 3
    UNSIGNED = 4
    FLOAT = 5
    DOUBLE = 6
    ZONED = 7
    """A location and a text, both in UTF-8: a TIMESTAMP with its time zone."""


class Spelling(IntEnum):
    """How the formats in JSON send a value: how it becomes text.

    The first five are of Simple and Canal-JSON, the others, and text, of Open Protocol.
    """

    REFUSED = 0
    TEXT = 1
    ZONED = 2
    """A text, or a text in a zone."""
    NUMBER = 3
    """A text or a number."""
    LATIN1 = 4
    """A text whose characters are bytes."""
    INTEGER = 5
    UNSIGNED = 6
    FLOAT = 7
    DOUBLE = 8
    NULL = 9
    QUOTED = 10
    """Bytes, as `open.go_quote` reads them."""
    TEXT_IN_BASE64 = 11
    BYTES_IN_BASE64 = 12
