"""The forms in which the binary formats, Avro and Craft, send values.

A form says how the text of a value is built (`events.PhysicalValue`). The tables of the formats
(`simple.avro_reference.BRANCHES`, `craft.values`) name the form of each type; the reference
decoders read one value by its form, and the batch decoders know its number (`simple.avro_loops`,
`craft.row_loops`).
"""

from enum import IntEnum


class Form(IntEnum):
    """How the text of a value is built."""

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
