"""The results of checks: as Dagster takes them, as it has recorded them, and with their figures.

In: verdicts and figures of the lake. Out: verdicts in words for a person in Dagster, with metadata.
Those of a status are `Status.verdicts`; those that need files or mirrors (damage, keys, the
rebuild, exports) are made here, from values, and change only after writes.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import dagster as dg

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.base.names import counted, joined_name
from ticdc_assets.base.own_files import documented
from ticdc_assets.log.faults import Faults
from ticdc_assets.model.tso import lag_seconds
from ticdc_assets.observe.judging import conflict_text, judge_quarantine
from ticdc_assets.observe.lag import LagPart
from ticdc_assets.observe.status import Status
from ticdc_assets.observe.table_status import TableState
from ticdc_assets.observe.verdicts import Check, Level, Verdict
from ticdc_assets.observe.wording import LISTED, listed
from ticdc_assets.orchestration.metadata import (
    Metadata,
    table_metadata,
    table_of,
    time_text,
    tso_metadata,
)
from ticdc_assets.repair.diffing import DiffedTable, SourceDifference
from ticdc_assets.repair.seeding import SeedBalance
from ticdc_assets.repair.verifying import KeyCounts, Verification, VerifiedMirror

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


# Of a status -------------------------------------------------------------------------------------

SEEN_UNTIL = "seen_until"
"""Metadata of an evaluation: up to which moment of quarantining it has looked."""

OPEN = "open"
"""Metadata of the same: how many rows are open."""


def check_verdict(check: Check, status: Status) -> CheckVerdict:
    """Return the verdict of the status on a check, with its numbers."""
    return CheckVerdict.of(status.verdicts[check], _METADATA[check](status))


def quarantine_verdict(
    changefeed: str, faults: Sequence[Faults], seen_until: datetime | None
) -> CheckVerdict:
    """Return whether open rows came since `seen_until` (None: the check never looked)."""
    reasons = Counter[tuple[str, str]]()
    for item in faults:
        reasons[item.stage, item.reason] += item.rows
    new = [item.rows for item in faults if seen_until is None or item.since > seen_until]
    moments = [item.since for item in faults] + ([] if seen_until is None else [seen_until])
    return CheckVerdict.of(
        judge_quarantine(changefeed, faults, seen_until),
        {
            OPEN: sum(item.rows for item in faults),
            "new": sum(new),
            **table_metadata(
                "reasons",
                "stage, reason, open",
                [(*group, count) for group, count in reasons.most_common()],
            ),
            **({SEEN_UNTIL: max(moments).isoformat()} if moments else {}),
        },
    )


def _lag_metadata(status: Status) -> Metadata:
    metadata = tso_metadata("watermark", status.watermark.watermark_ts)
    cut, lag = status.cut, status.lag
    if cut is None or lag is None:
        return metadata
    metadata |= {
        "lag_seconds": lag.seconds,
        **{f"{part}_seconds": lag.part_seconds(part) for part in LagPart},
        "backlog": status.backlog,
        **tso_metadata("applied_ts", cut.tso),
        "mirrors": len(cut.mirrors),
        **table_metadata(
            "worst_tables",
            "database, table, lag_seconds, held, quarantined",
            status.tables[:LISTED],
        ),
    }
    if status.tables:
        metadata["worst_table_lag_seconds"] = status.tables[0].lag_seconds
    if status.ending is not None:
        metadata["finished_at"] = dg.MetadataValue.timestamp(status.ending.at)
    elif status.watermark.watermark_ts is not None:
        metadata["changefeed_lag_seconds"] = lag_seconds(status.watermark.watermark_ts, status.at)
    return metadata


def _watermark_metadata(status: Status) -> Metadata:
    # The slowest first: with many topics only some are shown.
    slowest = sorted(status.topics, key=lambda item: (item.watermark_ts or 0, item.topic))
    metadata: Metadata = {
        **tso_metadata("watermark", status.watermark.watermark_ts),
        **tso_metadata("newest_change", status.newest_change),
        "watermarks_stepped_back": status.steps_back,
        "rows_beyond_seconds": status.beyond_seconds,
        **table_metadata(
            "topics",
            "topic, state, partitions, backlog, watermark, time",
            [
                (
                    item.topic,
                    item.state,
                    item.partitions,
                    item.backlog,
                    _text(item.watermark_ts),
                    time_text(item.watermark_ts),
                )
                for item in slowest[:LISTED]
            ],
        ),
    }
    if status.slowest is not None:
        metadata["slowest_partition"] = status.slowest
    if status.quiet_seconds is not None:
        metadata["quiet_seconds"] = status.quiet_seconds
    return metadata


def _held_metadata(status: Status) -> Metadata:
    return {
        "held": status.held_rows,
        "oldest_seconds": status.held_seconds,
        **table_metadata(
            "tables",
            "database, table, schema_version, waits_for, rows, age_seconds, since, first_commit",
            [
                (
                    item.database,
                    item.table,
                    _text(item.schema_version),
                    item.awaited,
                    item.rows,
                    status.age_seconds(item.since),
                    item.since.isoformat(timespec="seconds"),
                    time_text(item.min_ts),
                )
                for item in status.held[:LISTED]
            ],
        ),
    }


def _mirrors_metadata(status: Status) -> Metadata:
    cut = status.cut
    if cut is None:
        return {}
    states = (TableState.INCOMPLETE, TableState.CAVEATS)
    return {
        "mirrors": len(cut.mirrors),
        "incomplete": status.incomplete,
        "failed": len(status.failed),
        "with_caveats": sum(bool(item.caveats) for item in status.tables),
        "undecoded_records": cut.quarantined,
        **tso_metadata("applied_ts", cut.tso),
        **table_metadata(
            "failed_mirrors",
            "database, table, reason, since, rows_at, waiting",
            [
                (
                    item.database,
                    item.table,
                    item.reason,
                    item.since.isoformat(timespec="seconds"),
                    _text(item.tso),
                    item.waiting,
                )
                for item in status.failed
            ],
        ),
        **table_metadata(
            "tables",
            "database, table, held, quarantined, caveats",
            [item for item in status.tables if item.has_mirror and item.state in states],
        ),
    }


def _checksums_metadata(status: Status) -> Metadata:
    return {
        **{str(agreement): count for agreement, count in status.checksums.counts.items()},
        **table_metadata(
            "examples",
            "where, database, table, commit_ts",
            [
                (_where(item), item["database"], item["table"], str(item["commit_ts"]))
                for item in status.checksums.examples
            ],
        ),
    }


def _conflicts_metadata(status: Status) -> Metadata:
    return {
        "conflicts": len(status.conflicts),
        **table_metadata(
            "claims",
            "database, table, schema_version, registered, claimed, difference, where",
            [
                (
                    row["database"],
                    row["table"],
                    str(row["schema_version"]),
                    row["registered_source"],
                    row["claimed_source"],
                    conflict_text(row),
                    _where(row),
                )
                for row in status.conflicts[:LISTED]
            ],
        ),
    }


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def _where(row: Mapping[str, Any]) -> str:
    return "/".join(str(row[name]) for name in ("topic", "partition", "offset", "index"))


_METADATA: Mapping[Check, Callable[[Status], Metadata]] = {
    Check.REPLICATION_LAG: _lag_metadata,
    Check.WATERMARK_PROGRESS: _watermark_metadata,
    Check.HELD_ROWS: _held_metadata,
    Check.MIRRORS_COMPLETE: _mirrors_metadata,
    Check.CHANGES_ACCOUNTED: lambda status: dict(status.accounts) if status.cut else {},
    Check.ROW_CHECKSUMS: _checksums_metadata,
    Check.SCHEMA_CONFLICTS: _conflicts_metadata,
}

STATUS_CHECKS = tuple(_METADATA)
"""The checks that need only a status."""


# Damage -----------------------------------------------------------------------------------------


def judge_damage(error: TicdcError | None) -> CheckVerdict:
    """Judge whether the steering tables can be read, from the error of reading them, if any."""
    if error is None:
        return CheckVerdict(Level.OK, "The steering tables can be read.")
    return CheckVerdict(Level.FAIL, f"{error}.")


# Keys -------------------------------------------------------------------------------------------


def judge_keys(counts: KeyCounts | None) -> CheckVerdict:
    """Judge whether every key is once in every mirror (None: there is no cut yet)."""
    if counts is None:
        return CheckVerdict(Level.OK, "No cut was published yet; there is no key.")
    metadata: Metadata = {
        "cut": counts.cut,
        **tso_metadata("applied_ts", counts.tso),
        "mirrors": counts.mirrors,
        "mirrors_without_key": counts.without_key,
        "rows": counts.rows,
        "repeated_keys": sum(item.keys for item in counts.repeated),
        **table_metadata(
            "keys",
            "database, table, key, rows",
            [
                (item.database, item.table, _key_of(key), rows)
                for item in counts.repeated[:LISTED]
                for key, rows in item.examples
            ],
        ),
    }
    if not counts.repeated:
        unknown = f"; {counts.without_key} without a key cannot be checked"
        return CheckVerdict(
            Level.OK,
            f"Every mirror has each key once: {counted(counts.rows, 'row')} of "
            f"{counted(counts.mirrors, 'mirror')}{unknown if counts.without_key else ''}.",
            metadata,
        )
    texts: list[str] = []
    for item in counts.repeated:
        keys = ", ".join(f"({_key_of(key)}) {rows} times" for key, rows in item.examples)
        left = item.keys - len(item.examples)
        more = f" and {left} more" if left > 0 else ""
        texts.append(f"{joined_name(item.database, item.table)}: {keys}{more}")
    return CheckVerdict(
        Level.FAIL,
        f"Repeated keys: {listed(texts, '; ')}. Materialise these mirrors to fold them again from "
        "the change log, and check whether another program writes to their Delta tables.",
        metadata,
    )


def _key_of(key: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name}={'NULL' if value is None else value}" for name, value in key.items())


# The rebuild ------------------------------------------------------------------------------------


def judge_rebuild(proof: Verification | None) -> CheckVerdict:
    """Judge whether the mirrors are what the landed records make (None: there is no cut yet).

    It has keys and names of columns, but no values of other columns: Dagster keeps its records
    forever, and `ticdc-assets verify` shows the values.
    """
    if proof is None:
        return CheckVerdict(Level.OK, "No cut was published yet; nothing to rebuild.")
    metadata: Metadata = {
        "cut": proof.cut,
        **tso_metadata("applied_ts", proof.tso),
        "proof_from": "the first record" if proof.proof_from is None else str(proof.proof_from),
        "mirrors": len(proof.mirrors),
        "different": sum(not item.is_sound for item in proof.mirrors),
        "records": proof.records,
        "seconds": proof.seconds,
    }
    notes = proof.notes()
    if notes:
        metadata["notes"] = "\n".join(notes)
    if proof.equal:
        return CheckVerdict(Level.OK, f"{proof.summary}.", metadata)
    unsound = [item for item in proof.mirrors if not item.is_sound]
    metadata["tables"] = table_of(
        "database, table, found, content_hash, rebuilt_hash",
        [
            (
                item.database,
                item.table,
                "; ".join(item.findings()),
                "" if item.mirror is None else item.mirror.content_hash,
                "" if item.rebuilt is None else item.rebuilt.content_hash,
            )
            for item in unsound
        ],
    )
    rows = [row for item in unsound for row in _rows_of(item)]
    metadata |= table_metadata("rows", _ROW_COLUMNS, rows)
    texts = list(proof.differences)
    for item in unsound:
        text = f"{joined_name(item.database, item.table)}: {'; '.join(item.findings())}"
        for _, _, row, key, columns in _rows_of(item)[:1]:
            text += f" (first {row}: {key}{f' in {columns}' if columns else ''})"
        texts.append(text)
    return CheckVerdict(
        Level.FAIL,
        f"{proof.summary}: {listed(texts, '; ')}. `ticdc-assets verify {proof.changefeed}` "
        "shows the values; materialise the mirrors that differ to fold them again from the "
        "change log.",
        metadata,
    )


_ROW_COLUMNS = "database, table, row, key, columns"


def _rows_of(table: VerifiedMirror | DiffedTable) -> list[tuple[str, str, str, str, str]]:
    return [
        (
            table.database,
            table.table,
            str(row.finding),
            _key_of(row.key),
            ", ".join(column.name for column in row.columns),
        )
        for row in table.examples
    ]


# Exports ----------------------------------------------------------------------------------------


def judge_seeds(seeds: Sequence[SeedBalance]) -> CheckVerdict:
    """Judge whether all landed rows of exports were seeded or are in quarantine."""
    if not seeds:
        return CheckVerdict(Level.OK, "No table was seeded from an export.")
    lost = [item for item in seeds if item.lost or (item.quarantined and not item.rows)]
    quarantined = [item for item in seeds if item.quarantined]
    metadata: Metadata = {
        "tables": len(seeds),
        "landed_rows": sum(item.landed for item in seeds),
        "seeded_rows": sum(item.rows for item in seeds),
        "quarantined": sum(item.quarantined for item in seeds),
        "seeds": table_of("database, table, seed, landed, rows, quarantined", seeds),
    }
    if not lost and not quarantined:
        rows = sum(item.rows for item in seeds)
        return CheckVerdict(
            Level.OK,
            f"All that landed is seeded: {counted(rows, 'row')} of {counted(len(seeds), 'table')}.",
            metadata,
        )
    texts = [
        f"{joined_name(item.database, item.table)}: {item.sentence}"
        for item in (*lost, *quarantined)
    ]
    return CheckVerdict(
        Level.FAIL if lost else Level.WARN,
        f"{listed(dict.fromkeys(texts), '; ')}.",
        metadata,
    )


def judge_source(difference: SourceDifference) -> CheckVerdict:
    """Judge whether the mirrors equal an export of the upstream."""
    differing = [item for item in difference.tables if not item.equal]
    metadata: Metadata = {
        **tso_metadata("export_ts", difference.tso),
        "tables": len(difference.tables),
        "differing_tables": len(differing),
        **table_metadata(
            "rows", _ROW_COLUMNS, [row for item in differing[:LISTED] for row in _rows_of(item)]
        ),
    }
    texts = (f"{joined_name(item.database, item.table)}: {item.sentence}" for item in differing)
    return CheckVerdict(
        Level.FAIL if differing else Level.OK,
        f"{difference.summary}. {listed(texts, '; ')}".rstrip(),
        metadata,
    )
