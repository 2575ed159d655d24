"""The names of the wire formats, without the tables of each format."""

from enum import StrEnum


class WireFormat(StrEnum):
    """The known wire formats, by their name in the configuration."""

    SIMPLE_JSON = "simple-json"
    SIMPLE_AVRO = "simple-avro"
    OPEN_PROTOCOL = "open-protocol"
    CANAL_JSON = "canal-json"
    CRAFT = "craft"
