"""The result of a check, as Dagster takes it; nothing is read here."""

import re
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from ticdc_assets.base.own_files import documented
from ticdc_assets.observe.verdicts import Level, Verdict
from ticdc_assets.orchestration.metadata import Metadata

_SEVERITIES = {Level.WARN: dg.AssetCheckSeverity.WARN, Level.FAIL: dg.AssetCheckSeverity.ERROR}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckVerdict:
    """The result of a check.

    Attributes:
        passed: whether all is well.
        severity: how bad it is if not.
        description: the finding, and the action to take if one is needed.
        metadata: the numbers.
    """

    passed: bool
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN
    description: str
    metadata: Metadata = field(default_factory=Metadata)

    @classmethod
    def of(cls, said: Verdict, metadata: Metadata) -> "CheckVerdict":
        """Return a verdict of the lake with its numbers."""
        return cls(
            passed=said.level is Level.OK,
            severity=_SEVERITIES.get(said.level, dg.AssetCheckSeverity.WARN),
            description=jobs_named(said.sentence),
            metadata=metadata,
        )

    @property
    def level(self) -> str:
        """`passed`, or the severity in lower case."""
        return _level(self)

    def result(self, key: dg.AssetCheckKey | None = None) -> dg.AssetCheckResult:
        """Return the result for Dagster; a function that could be of several checks needs `key`."""
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


def shown_level(record: Any) -> str | None:
    """Return the level that Dagster shows of a check; None before it is evaluated."""
    evaluation = None if record is None else record.evaluation
    return _level(evaluation) if isinstance(evaluation, dg.AssetCheckEvaluation) else None


def _level(result: CheckVerdict | dg.AssetCheckEvaluation) -> str:
    return "passed" if result.passed else result.severity.value.lower()


def runbook(check: str) -> str:
    """Return where the documentation says more about a check."""
    return f"See {documented('troubleshooting', check)}."


_JOBS = {
    "sync": "sync",
    "redrive": "redrive",
    "rebuild": "rebuild",
    "verify": "verify",
    "maintain": "maintenance",
}
"""The job of a changefeed that does what a command does, by the name of the command."""

_COMMAND = re.compile(rf"`ticdc-assets ({'|'.join(_JOBS)}) ([a-z0-9_]+)`")
_JOB = re.compile(rf"the job `([a-z0-9_]+?)_({'|'.join(_JOBS.values())})`")


def jobs_named(text: str) -> str:
    """Return a sentence with the commands that a job can do as jobs, for a person in Dagster."""
    return _COMMAND.sub(lambda found: f"the job `{found[2]}_{_JOBS[found[1]]}`", text)


def commands_named(text: str) -> str:
    """Return the same for a person at a command line; it is the inverse of `jobs_named`."""
    commands = {job: command for command, job in _JOBS.items()}
    return _JOB.sub(lambda found: f"`ticdc-assets {commands[found[2]]} {found[1]}`", text)
