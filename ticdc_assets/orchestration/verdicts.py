"""The results of checks: as Dagster takes them, and as it has recorded them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from ticdc_assets.base.own_files import documented
from ticdc_assets.observe.verdicts import Level, Verdict
from ticdc_assets.orchestration.metadata import Metadata

_SEVERITIES = {Level.WARN: dg.AssetCheckSeverity.WARN, Level.FAIL: dg.AssetCheckSeverity.ERROR}
_LEVELS = {severity: level for level, severity in _SEVERITIES.items()}

_RECORDS_LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """The result of a check: a verdict in words for a person in Dagster, and its numbers."""

    level: Level
    sentence: str
    metadata: Metadata = field(default_factory=Metadata)

    @classmethod
    def of(cls, verdict: Verdict, metadata: Metadata) -> "CheckVerdict":
        """Return a verdict of the lake with its numbers."""
        return cls(verdict.level, jobs_named(verdict.sentence), metadata)

    def result(self, key: dg.AssetCheckKey) -> dg.AssetCheckResult:
        """Return the result of the check `key`, as its function returns it."""
        return dg.AssetCheckResult(**self._parts(key))

    def evaluation(self, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation:
        """Return the event that a sensor reports."""
        return dg.AssetCheckEvaluation(**self._parts(key))

    def _parts(self, key: dg.AssetCheckKey) -> dict[str, Any]:
        return {
            "asset_key": key.asset_key,
            "check_name": key.name,
            "passed": self.level is Level.OK,
            "severity": _SEVERITIES.get(self.level, dg.AssetCheckSeverity.WARN),
            "description": self.sentence,
            "metadata": self.metadata,
        }


@dataclass(frozen=True, slots=True)
class Shown:
    """The newest evaluation of a check, as Dagster shows it; recorded `at`, in epoch seconds."""

    evaluation: dg.AssetCheckEvaluation
    at: float

    @property
    def level(self) -> Level:
        """How bad it is."""
        return level_of(self.evaluation)


def level_of(evaluation: dg.AssetCheckEvaluation) -> Level:
    """Return how bad an evaluation is."""
    return Level.OK if evaluation.passed else _LEVELS[evaluation.severity]


def shown_verdicts(
    instance: dg.DagsterInstance, keys: Iterable[dg.AssetCheckKey]
) -> dict[dg.AssetCheckKey, Shown]:
    """Return the newest evaluation of each check that has one."""
    log = instance.event_log_storage
    verdicts: dict[dg.AssetCheckKey, Shown] = {}
    for key, record in log.get_latest_asset_check_execution_by_key(list(keys)).items():
        if isinstance(record.evaluation, dg.AssetCheckEvaluation):
            verdicts[key] = Shown(record.evaluation, record.create_timestamp)
        elif (older := next(evaluations(instance, key), None)) is not None:
            verdicts[key] = older
    return verdicts


def evaluations(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> Iterator[Shown]:
    """Yield the newest evaluations of a check, newest first.

    The newest record may be of a run that has not evaluated the check yet.
    """
    log = instance.event_log_storage
    for record in log.get_asset_check_execution_history(key, limit=_RECORDS_LOOKED_AT):
        if isinstance(record.evaluation, dg.AssetCheckEvaluation):
            yield Shown(record.evaluation, record.create_timestamp)


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
    return _COMMAND.sub(lambda match: f"the job `{match[2]}_{_JOBS[match[1]]}`", text)


def commands_named(text: str) -> str:
    """Return the same for a person at a command line; it is the inverse of `jobs_named`."""
    commands = {job: command for command, job in _JOBS.items()}
    return _JOB.sub(lambda match: f"`ticdc-assets {commands[match[2]]} {match[1]}`", text)
