"""What a check found, and the small words all of them use; nothing is read here."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import dagster as dg

from ticdc_assets.defs.metadata import Metadata

LISTED = 20
"""Findings told in one sentence or table; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a check found.

    Attributes:
        passed: whether all is well.
        severity: how bad it is if not.
        description: what is seen, and what to do about it if anything.
        metadata: the numbers.
    """

    passed: bool
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN
    description: str
    metadata: Metadata = field(default_factory=dict[str, dg.MetadataValue])

    @property
    def level(self) -> str:
        """`passed`, or the severity in lower case."""
        return "passed" if self.passed else self.severity.value.lower()

    def result(self, key: dg.AssetCheckKey | None = None) -> dg.AssetCheckResult:
        """Return what a check function returns; `key` is for one that could be of several."""
        return dg.AssetCheckResult(
            asset_key=None if key is None else key.asset_key,
            check_name=None if key is None else key.name,
            passed=self.passed,
            severity=self.severity,
            description=self.description,
            metadata=self.metadata,
        )

    def evaluation(self, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation:
        """Return the event that a sensor reports."""
        return dg.AssetCheckEvaluation(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=self.passed,
            severity=self.severity,
            description=self.description,
            metadata=self.metadata,
        )


def severity_of(
    seconds: float, *, warn_seconds: float, error_seconds: float
) -> tuple[dg.AssetCheckSeverity, float]:
    """Return how bad it is to be beyond a limit, and which limit that is."""
    if seconds >= error_seconds:
        return dg.AssetCheckSeverity.ERROR, error_seconds
    return dg.AssetCheckSeverity.WARN, warn_seconds


def runbook(check: str) -> str:
    """Return where the documents say more about a check."""
    return f"See docs/operate.md#{check}."


def duration(seconds: float) -> str:
    """Return a span of time as people read it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"


def listed(findings: Iterable[str], separator: str = ", ") -> str:
    """Return findings in one text, the first ones spelled out and the rest counted."""
    told = list(findings)
    more = f" and {len(told) - LISTED} more" if len(told) > LISTED else ""
    return separator.join(told[:LISTED]) + more
