"""Checks of one changefeed: lag, quarantine, incomplete mirrors, row checksums, the rebuild.

The first four read the small tables that steer the pipeline, never Spark, so they cost milliseconds
and can be run alone. They come with every sync; the sensor evaluates the lag between syncs too,
because a lag grows exactly when no sync runs. `mirror_equals_rebuild` decodes all that ever landed,
so it comes with no sync but has a job and a schedule of its own.

Replication lag is now less the physical time of the newest cut's TSO. All mirrors of a cut stand
at that TSO, so it is the lag of the worst table. It is not the time since the last
materialisation: a mirror that was just written from an old watermark is behind all the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from ticdc_assets.changelog.progress import GlobalWatermark, global_watermark
from ticdc_assets.config import Changefeed
from ticdc_assets.defs.metadata import Metadata, lag_seconds, tso_metadata, utc_now
from ticdc_assets.defs.resources import LakeSpark
from ticdc_assets.defs.steps import ChangefeedSteps
from ticdc_assets.defs.table_schemas import table_of_records
from ticdc_assets.errors import TicdcError
from ticdc_assets.lake.checksums import Agreement, Checksums, read_checksums
from ticdc_assets.lake.cuts import Cut, MirrorCut, newest_cut
from ticdc_assets.lake.decoding import read_groups
from ticdc_assets.lake.landing import known_partitions
from ticdc_assets.lake.paths import LakePaths
from ticdc_assets.lake.quarantine import read_quarantine
from ticdc_assets.lake.verifying import Verification, VerifiedMirror, verify
from ticdc_assets.tso import to_datetime

REPLICATION_LAG = "replication_lag"
QUARANTINE_GROWTH = "quarantine_growth"
MIRRORS_COMPLETE = "mirrors_complete"
ROW_CHECKSUMS = "row_checksums"
MIRROR_EQUALS_REBUILD = "mirror_equals_rebuild"

CLOCK_TOLERANCE_SECONDS = 5.0
"""How far the upstream's clock may be ahead of ours before a lag means nothing."""

_SEEN_UNTIL = "seen_until"
_LISTED = 20


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

    def evaluation(self, key: dg.AssetKey, name: str) -> dg.AssetCheckEvaluation:
        """Return the event that a sensor reports."""
        return dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=name,
            passed=self.passed,
            severity=self.severity,
            description=self.description,
            metadata=self.metadata,
        )


def changefeed_checks(steps: ChangefeedSteps) -> list[dg.AssetChecksDefinition]:
    """Return the checks of one changefeed."""
    names, paths, changefeed = steps.names, steps.paths, steps.changefeed

    @dg.asset_check(
        asset=names.asset("apply_changes"),
        name=REPLICATION_LAG,
        description=(
            "Now less the physical time of the newest cut's TSO. Warns from "
            f"{changefeed.lag_warn_seconds:g} s, fails from {changefeed.lag_error_seconds:g} s "
            "(lag_warn_seconds and lag_error_seconds of the changefeed)."
        ),
    )
    def replication_lag(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        return judge_lag(changefeed, newest_cut(paths), read_watermark(paths), utc_now()).result()

    @dg.asset_check(
        asset=names.asset("quarantine"),
        name=QUARANTINE_GROWTH,
        # An apply may quarantine rows too: look after it.
        additional_deps=[names.asset("apply_changes")],
        description="Warns when something came into quarantine since the check last looked.",
    )
    def quarantine_growth(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        key = dg.AssetCheckKey(names.asset("quarantine"), QUARANTINE_GROWTH)
        return judge_quarantine(
            changefeed.name, read_quarantine(paths), _seen_until(context.instance, key)
        ).result()

    @dg.asset_check(
        asset=names.asset("apply_changes"),
        name=MIRRORS_COMPLETE,
        description=(
            "Warns when a mirror of the newest cut lacks row changes (held or quarantined), or "
            "is marked as possibly different from its table."
        ),
    )
    def mirrors_complete(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        return judge_mirrors(changefeed.name, newest_cut(paths)).result()

    @dg.asset_check(
        asset=names.asset("apply_changes"),
        name=ROW_CHECKSUMS,
        description=(
            "Fails when a row change is not what its checksum says (TiCDC's integrity check, "
            "Simple protocol); passes where none are sent."
        ),
    )
    def row_checksums(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        return judge_checksums(read_checksums(paths)).result()

    rebuild = dg.AssetCheckSpec(
        name=MIRROR_EQUALS_REBUILD,
        asset=names.asset("mirrors"),
        description=(
            "Rebuilds every mirror of the newest cut from the landed records, in a side place, and "
            f"compares. Fails with the keys and columns that differ. Run it by {names.verify_job}; "
            "it is no part of a sync, writes nothing that lasts, and syncs go on meanwhile."
        ),
    )

    # That its result may be left out is what `can_subset` is for here.
    @dg.multi_asset_check(
        specs=[rebuild], name=names.op(f"mirrors_{MIRROR_EQUALS_REBUILD}"), can_subset=True
    )
    def mirror_equals_rebuild(
        context: dg.AssetCheckExecutionContext, spark: LakeSpark
    ) -> Iterator[dg.AssetCheckResult]:
        if context.run.asset_selection:
            # Whoever materialises mirrors gets their checks too. Each run of a backfill would
            # decode all that ever landed, and keep syncs waiting as long.
            context.log.info("not run with a materialisation; run the job %s", names.verify_job)
            return
        if newest_cut(paths) is None:
            yield judge_rebuild(None).result(rebuild.key)
            return
        try:
            found = verify(spark.spark_session, paths, changefeed)
        except TicdcError as error:
            raise dg.Failure(
                description=str(error),
                metadata={"error": type(error).__name__},
                allow_retries=error.retriable,
            ) from error
        yield judge_rebuild(found).result(rebuild.key)

    return [
        replication_lag,
        quarantine_growth,
        mirrors_complete,
        row_checksums,
        mirror_equals_rebuild,
    ]


# Lag --------------------------------------------------------------------------------------------


def read_watermark(paths: LakePaths) -> GlobalWatermark:
    """Return the global watermark as the change log has it; needs no Spark."""
    places = [(item.topic, item.partition) for item in known_partitions(paths)]
    return global_watermark(read_groups(paths).progress(), places)


def judge_lag(
    changefeed: Changefeed, cut: Cut | None, watermark: GlobalWatermark, now: datetime
) -> Verdict:
    """Judge how far the newest cut is behind now."""
    limits: Metadata = {
        "warn_from_seconds": dg.MetadataValue.float(float(changefeed.lag_warn_seconds)),
        "error_from_seconds": dg.MetadataValue.float(float(changefeed.lag_error_seconds)),
        **tso_metadata("watermark", watermark.watermark_ts),
    }
    if cut is None:
        return Verdict(
            passed=False,
            description=(
                "No cut was published yet, so there is no mirror and no lag to measure: "
                f"{_why_no_cut(watermark)}. Run the job {changefeed.name}_sync, and look at the "
                "outcome of apply_changes."
            ),
            metadata=limits,
        )
    lag = lag_seconds(cut.tso, now)
    metadata = {
        "lag_seconds": dg.MetadataValue.float(lag),
        **tso_metadata("applied_ts", cut.tso),
        "mirrors": dg.MetadataValue.int(len(cut.mirrors)),
        **limits,
    }
    if watermark.watermark_ts is not None:
        metadata["changefeed_lag_seconds"] = dg.MetadataValue.float(
            lag_seconds(watermark.watermark_ts, now)
        )
    if lag < -CLOCK_TOLERANCE_SECONDS:
        return Verdict(
            passed=False,
            description=(
                f"The newest cut is {_duration(-lag)} in the future: the upstream's clock is ahead "
                "of this machine's, so the lag cannot be measured. Synchronise the clocks (NTP)."
            ),
            metadata=metadata,
        )
    if lag < changefeed.lag_warn_seconds:
        return Verdict(
            passed=True,
            description=f"The mirrors are {_duration(max(0.0, lag))} behind now.",
            metadata=metadata,
        )
    severe = lag >= changefeed.lag_error_seconds
    limit = changefeed.lag_error_seconds if severe else changefeed.lag_warn_seconds
    return Verdict(
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR if severe else dg.AssetCheckSeverity.WARN,
        description=(
            f"The mirrors are {_duration(lag)} behind now (limit {_duration(limit)}). "
            f"{_where_behind(changefeed, cut, watermark, now)}"
        ),
        metadata=metadata,
    )


def _where_behind(
    changefeed: Changefeed, cut: Cut, watermark: GlobalWatermark, now: datetime
) -> str:
    """Return which part of the way the lag is on, and what to look at."""
    if cut.es_only:
        return (
            "The messages have no commit ts and no watermark, so this is the age of the newest "
            "change that was applied: look whether records wait in the topic (kafka_topic, the "
            "sensor's ticks)."
        )
    if watermark.watermark_ts is None:
        return f"A partition has no watermark: {_why_no_cut(watermark)}."
    waiting = (watermark.watermark_ts >> 18) - (cut.tso >> 18)
    if waiting > 0:
        return (
            f"A watermark {_duration(waiting / 1000)} newer has landed and was not applied: look "
            f"at the runs of {changefeed.name}_sync."
        )
    place = "/".join(str(part) for part in watermark.slowest) if watermark.slowest else "?"
    return (
        f"The newest landed watermark (from {place}) is "
        f"{_duration(max(0.0, lag_seconds(watermark.watermark_ts, now)))} old itself: look whether "
        "records wait in the topic (kafka_topic, the sensor's ticks), else at TiCDC's checkpoint."
    )


def _why_no_cut(watermark: GlobalWatermark) -> str:
    if watermark.waiting:
        listed = ", ".join(f"{topic}/{partition}" for topic, partition in watermark.waiting)
        return f"no watermark has come from {listed}"
    if watermark.watermark_ts is None:
        return "nothing has landed"
    return f"the global watermark is {watermark.watermark_ts}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"


# Quarantine -------------------------------------------------------------------------------------


def judge_quarantine(
    changefeed: str, rows: list[dict[str, Any]], seen_until: datetime | None
) -> Verdict:
    """Judge whether open rows came since `seen_until` (None: the check never looked)."""
    new = [row for row in rows if seen_until is None or row["quarantined_at"] > seen_until]
    newest = max((row["quarantined_at"] for row in rows), default=None)
    reasons: dict[tuple[str, str], int] = {}
    for row in rows:
        group = (row["stage"], row["reason"])
        reasons[group] = reasons.get(group, 0) + 1
    metadata: Metadata = {
        "open": dg.MetadataValue.int(len(rows)),
        "new": dg.MetadataValue.int(len(new)),
        "reasons": table_of_records(
            [
                {"stage": stage, "reason": reason, "open": count}
                for (stage, reason), count in sorted(
                    reasons.items(), key=lambda item: (-item[1], item[0])
                )
            ],
            {"stage": "string", "reason": "string", "open": "int"},
        ),
        _SEEN_UNTIL: dg.MetadataValue.text(_later(newest, seen_until)),
    }
    if new:
        counts: dict[str, int] = {}
        for row in new:
            counts[row["reason"]] = counts.get(row["reason"], 0) + 1
        listed = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
        return Verdict(
            passed=False,
            description=(
                f"{len(new)} came into quarantine ({listed}); {len(rows)} are open in all. Look at "
                f"them with `ticdc-assets quarantine {changefeed}`; after a fix run "
                f"{changefeed}_redrive."
            ),
            metadata=metadata,
        )
    remaining = f"; {len(rows)} from before are still open" if rows else ", and nothing is open"
    return Verdict(
        passed=True, description=f"Nothing new in quarantine{remaining}.", metadata=metadata
    )


def _later(newest: datetime | None, seen_until: datetime | None) -> str:
    moments = [moment for moment in (newest, seen_until) if moment is not None]
    return max(moments).isoformat() if moments else ""


def _seen_until(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> datetime | None:
    """Return up to which moment of quarantining an earlier evaluation has looked."""
    # The newest record may be the one of this very run, planned and without an evaluation.
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=20):
        evaluation = record.evaluation
        metadata: Mapping[str, Any] = getattr(evaluation, "metadata", None) or {}
        if _SEEN_UNTIL in metadata:
            text = metadata[_SEEN_UNTIL].value
            return datetime.fromisoformat(text) if text else datetime.min.replace(tzinfo=UTC)
    return None


# Completeness -----------------------------------------------------------------------------------


def judge_mirrors(changefeed: str, cut: Cut | None) -> Verdict:
    """Judge whether the mirrors of the newest cut have everything."""
    if cut is None:
        return Verdict(passed=True, description="No cut was published yet; nothing to look at.")
    incomplete = [item for item in cut.mirrors if item.incomplete or item.marks]
    unknown = [item for item in cut.held if item.mirror_id is None]
    metadata: Metadata = {
        "mirrors": dg.MetadataValue.int(len(cut.mirrors)),
        "incomplete": dg.MetadataValue.int(sum(item.incomplete for item in cut.mirrors)),
        "marked": dg.MetadataValue.int(sum(bool(item.marks) for item in cut.mirrors)),
        "undecoded_records": dg.MetadataValue.int(cut.quarantined),
        **tso_metadata("applied_ts", cut.tso),
    }
    if incomplete:
        metadata["tables"] = table_of_records(
            [
                {
                    "database": item.database,
                    "table": item.table,
                    "held": item.held,
                    "quarantined": item.quarantined,
                    "marks": ", ".join(item.marks),
                }
                for item in incomplete
            ],
            {
                "database": "string",
                "table": "string",
                "held": "int",
                "quarantined": "int",
                "marks": "string",
            },
        )
    if cut.held:
        metadata["held"] = table_of_records(
            [
                {
                    "database": item.database,
                    "table": item.table,
                    "schema_version": str(item.schema_version),
                    "rows": item.rows,
                    "since": item.since.isoformat(timespec="seconds"),
                    "first_commit": to_datetime(item.min_ts).isoformat(timespec="seconds"),
                }
                for item in cut.held
            ],
            {
                "database": "string",
                "table": "string",
                "schema_version": "string",
                "rows": "int",
                "since": "string",
                "first_commit": "string",
            },
        )
    findings = [
        *(f"{item.database}.{item.table} ({_shortcomings(item)})" for item in incomplete),
        *(f"{item.database}.{item.table} ({item.rows} held, no mirror yet)" for item in unknown),
    ]
    if cut.quarantined:
        findings.append(f"{cut.quarantined} records that could not be decoded")
    if not findings:
        return Verdict(
            passed=True,
            description=f"All {len(cut.mirrors)} mirrors have every change up to {cut.moment}.",
            metadata=metadata,
        )
    listed = ", ".join(findings[:_LISTED])
    more = f" and {len(findings) - _LISTED} more" if len(findings) > _LISTED else ""
    return Verdict(
        passed=False,
        description=(
            f"Not complete at {cut.moment}: {listed}{more}. Held changes wait for their schema "
            "(TiCDC repeats bootstraps: see enable-bootstrap and send-bootstrap-interval-in-sec); "
            f"quarantined ones need a fix and {changefeed}_redrive; marks are explained in "
            "docs/limitations.md."
        ),
        metadata=metadata,
    )


def _shortcomings(mirror: MirrorCut) -> str:
    parts = [f"{mirror.held} held"] if mirror.held else []
    if mirror.quarantined:
        parts.append(f"{mirror.quarantined} quarantined")
    return ", ".join([*parts, *mirror.marks])


# Checksums --------------------------------------------------------------------------------------


def judge_checksums(checksums: Checksums) -> Verdict:
    """Judge whether the rows are what their checksums say."""
    counts = checksums.counts
    wrong = counts[Agreement.DISAGREES]
    metadata: Metadata = {
        str(agreement): dg.MetadataValue.int(count) for agreement, count in counts.items()
    }
    if not sum(counts.values()):
        return Verdict(
            passed=True, description="The messages carry no row checksums.", metadata=metadata
        )
    said = (
        f"{counts[Agreement.AGREES]} row changes agree with their checksum, {wrong} disagree; of "
        f"{counts[Agreement.UNKNOWN]} nothing can be said, {counts[Agreement.WAITING]} wait for "
        "their schema."
    )
    if not wrong:
        return Verdict(passed=True, description=said, metadata=metadata)
    metadata["examples"] = table_of_records(
        [
            {
                "where": "/".join(
                    str(item[name]) for name in ("topic", "partition", "offset", "index")
                ),
                "database": item["database"],
                "table": item["table"],
                "commit_ts": str(item["commit_ts"]),
            }
            for item in checksums.examples
        ],
        {"where": "string", "database": "string", "table": "string", "commit_ts": "string"},
    )
    return Verdict(
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=(
            f"{said} Those rows were applied as they were sent: compare them with the source, and "
            "look for TiCDC's own report of a corrupted row."
        ),
        metadata=metadata,
    )


# The rebuild ------------------------------------------------------------------------------------


def judge_rebuild(found: Verification | None) -> Verdict:
    """Judge whether the mirrors are what the landed records make (None: there is no cut yet).

    Keys and names of columns are told, the values of other columns are not: what Dagster records
    stays, and `ticdc-assets verify` shows them.
    """
    if found is None:
        return Verdict(passed=True, description="No cut was published yet; nothing to rebuild.")
    metadata: Metadata = {
        "cut": dg.MetadataValue.int(found.cut),
        **tso_metadata("applied_ts", found.tso),
        "proof_from": dg.MetadataValue.text(
            "the first record" if found.proof_from is None else str(found.proof_from)
        ),
        "mirrors": dg.MetadataValue.int(len(found.mirrors)),
        "different": dg.MetadataValue.int(sum(not item.is_sound for item in found.mirrors)),
        "records": dg.MetadataValue.int(found.records),
        "seconds": dg.MetadataValue.float(found.seconds),
    }
    notes = found.notes()
    if notes:
        metadata["notes"] = dg.MetadataValue.text("\n".join(notes))
    if found.equal:
        return Verdict(passed=True, description=f"{found.summary}.", metadata=metadata)
    unsound = [item for item in found.mirrors if not item.is_sound]
    metadata["tables"] = table_of_records(
        [
            {
                "database": item.database,
                "table": item.table,
                "found": "; ".join(item.findings()),
                "content_hash": "" if item.mirror is None else item.mirror.content_hash,
                "rebuilt_hash": "" if item.rebuilt is None else item.rebuilt.content_hash,
            }
            for item in unsound
        ],
        dict.fromkeys(("database", "table", "found", "content_hash", "rebuilt_hash"), "string"),
    )
    rows = [record for item in unsound for record in _row_records(item)]
    if rows:
        names = ("database", "table", "row", "key", "columns")
        metadata["rows"] = table_of_records(rows, dict.fromkeys(names, "string"))
    told = [*found.differences, *map(_told, unsound)]
    listed = "; ".join(told[:_LISTED])
    more = f"; and {len(told) - _LISTED} more" if len(told) > _LISTED else ""
    return Verdict(
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=(
            f"{found.summary}: {listed}{more}. `ticdc-assets verify {found.changefeed}` shows the "
            "values; materialise the mirrors that differ to fold them again from the change log."
        ),
        metadata=metadata,
    )


def _told(mirror: VerifiedMirror) -> str:
    """Return what is the matter with a mirror, and with its first row that differs."""
    text = f"{mirror.database}.{mirror.table}: {'; '.join(mirror.findings())}"
    for record in _row_records(mirror)[:1]:
        columns = f" in {record['columns']}" if record["columns"] else ""
        text += f" (first {record['row']}: {record['key']}{columns})"
    return text


def _row_records(mirror: VerifiedMirror) -> list[dict[str, str]]:
    return [
        {
            "database": mirror.database,
            "table": mirror.table,
            "row": str(row.finding),
            "key": ", ".join(f"{name}={value}" for name, value in row.key.items()),
            "columns": ", ".join(item.name for item in row.columns),
        }
        for row in mirror.examples
    ]
