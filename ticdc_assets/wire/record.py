"""A Kafka record as `wire` sees it: key and value. Coordinates stay with the caller."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Key and value of one Kafka record; None is Kafka's null."""

    key: bytes | None
    value: bytes | None
