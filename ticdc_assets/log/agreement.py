"""The results of comparing row checksums. Values only: no I/O, no Spark; `checksums` compares."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Agreement(StrEnum):
    """The result of comparing the checksums of one row."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNKNOWN = "unknown"
    """Unknown: the row is cut, its version is not known, or it was split."""
    WAITING = "waiting"
    """The row's schema has not arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksums:
    """All row checksums so far.

    Attributes:
        counts: rows by agreement.
        examples: coordinates of the first rows that disagree.
    """

    counts: Mapping[Agreement, int]
    examples: tuple[dict[str, Any], ...]
