"""The names of the wire formats, apart from the tables that say what each one does."""

from enum import StrEnum


class WireFormat(StrEnum):
    """The wire formats that are known, by their name in the configuration."""

    SIMPLE_JSON = "simple-json"
    SIMPLE_AVRO = "simple-avro"
    OPEN_PROTOCOL = "open-protocol"
    CANAL_JSON = "canal-json"
    CRAFT = "craft"
