"""Verdicts: a level and a sentence. Values only: no I/O, no Spark."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Level(IntEnum):
    """How bad a verdict is."""

    OK = 0
    WARN = 1
    FAIL = 2

    @property
    def word(self) -> str:
        """The level as it is printed."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement of some figures: what happened, and what to do about it, if anything."""

    level: Level
    sentence: str

    def as_json(self) -> dict[str, str]:
        """Return it as JSON values."""
        return {"level": self.level.word, "sentence": self.sentence}


class Check(StrEnum):
    """The checks of a changefeed; Dagster's asset checks have these names."""

    REPLICATION_LAG = "replication_lag"
    WATERMARK_PROGRESS = "watermark_progress"
    HELD_ROWS = "held_rows"
    MIRRORS_COMPLETE = "mirrors_complete"
    QUARANTINE_GROWTH = "quarantine_growth"
    CHANGES_ACCOUNTED = "changes_accounted"
    ROW_CHECKSUMS = "row_checksums"
    SCHEMA_CONFLICTS = "schema_conflicts"
