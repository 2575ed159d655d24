"""Checks of one changefeed: wiring only.

The cheap checks read only small control tables, without Spark, so they cost milliseconds and can
run alone. Every sync runs them, and the sensor evaluates them between syncs, because lag and the
age of held rows grow while no sync runs. `keys_unique` reads all mirrors, and
`mirror_equals_rebuild` decodes every landed record: no sync runs them; they have their own job and
schedule.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

import dagster as dg

from ticdc_assets.base.errors import UNREADABLE
from ticdc_assets.delta.lake import Lake
from ticdc_assets.delta.opening import keeping
from ticdc_assets.log.cuts import Cut, newest_cut
from ticdc_assets.log.damage import require_in_step
from ticdc_assets.observe.status import Status
from ticdc_assets.observe.status_reading import read_status
from ticdc_assets.observe.verdicts import Check
from ticdc_assets.observe.wording import duration
from ticdc_assets.orchestration.active_runs import name_worker
from ticdc_assets.orchestration.exports import export_checks
from ticdc_assets.orchestration.metadata import utc_now
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.orchestration.resources import LakeSpark
from ticdc_assets.orchestration.steps import ChangefeedSteps, reported_failures
from ticdc_assets.orchestration.verdicts import (
    SEEN_UNTIL,
    STATUS_CHECKS,
    CheckVerdict,
    check_verdict,
    evaluations,
    judge_damage,
    judge_keys,
    judge_rebuild,
    quarantine_verdict,
    runbook,
)
from ticdc_assets.repair.verifying import count_keys, verify

LAKE_READABLE = "lake_readable"
KEYS_UNIQUE = "keys_unique"
MIRROR_EQUALS_REBUILD = "mirror_equals_rebuild"

_ASSETS: Mapping[str, str] = {
    LAKE_READABLE: "apply_changes",
    **dict.fromkeys(STATUS_CHECKS, "apply_changes"),
    Check.SCHEMA_CONFLICTS: "schema_registry",
    Check.QUARANTINE_GROWTH: "quarantine",
}
"""The checks that need no Spark, in their order, and their assets."""


def cheap_checks(names: FeedNames) -> dict[str, dg.AssetCheckKey]:
    """Return the checks that each sync evaluates, by their names: those that need no Spark."""
    return {
        str(check): dg.AssetCheckKey(names.asset(asset), str(check))
        for check, asset in _ASSETS.items()
    }


def readable_key(names: FeedNames) -> dg.AssetCheckKey:
    """Return the key of the check that fails if a table cannot be read."""
    return cheap_checks(names)[LAKE_READABLE]


def status_verdicts(names: FeedNames, status: Status) -> dict[dg.AssetCheckKey, CheckVerdict]:
    """Return the verdicts of the checks that need only a status."""
    keys = cheap_checks(names)
    return {keys[check]: check_verdict(check, status) for check in STATUS_CHECKS}


def judge_cheaply(
    steps: ChangefeedSteps, instance: dg.DagsterInstance, now: datetime
) -> dict[dg.AssetCheckKey, CheckVerdict]:
    """Return the verdicts of the checks that need no Spark, from one reading of the tables."""
    keys = cheap_checks(steps.names)
    readable, quarantine = keys[LAKE_READABLE], keys[Check.QUARANTINE_GROWTH]
    try:
        lake = steps.lake
        require_in_step(lake.paths)
        status = read_status(lake, now)
    except UNREADABLE as error:
        # The others would say the same, if they could say anything.
        return {readable: judge_damage(error)}
    verdicts = status_verdicts(steps.names, status)
    verdicts[readable] = judge_damage(None)
    # An evaluation while a table was damaged does not say until when an earlier one has looked.
    said = (item.evaluation.metadata.get(SEEN_UNTIL) for item in evaluations(instance, quarantine))
    text = next((str(item.value) for item in said if item is not None), "")
    seen_until = datetime.fromisoformat(text) if text else None
    verdicts[quarantine] = quarantine_verdict(steps.changefeed.name, status.faults, seen_until)
    return verdicts


def changefeed_checks(steps: ChangefeedSteps) -> list[dg.AssetChecksDefinition]:
    """Return the checks of one changefeed."""
    return [_cheap_checks(steps), *_spark_checks(steps), *export_checks(steps)]


def _cheap_checks(steps: ChangefeedSteps) -> dg.AssetChecksDefinition:
    """Return the checks that need no Spark, as one op: a sync reads the status once for all."""
    names, descriptions = steps.names, _descriptions(steps)
    applied = names.asset("apply_changes")
    specs = [
        dg.AssetCheckSpec(
            name=name,
            asset=key.asset_key,
            # Conflicts are reported with the cut that was made in spite of them, and an apply may
            # quarantine rows too.
            additional_deps=[] if key.asset_key == applied else [applied],
            description=f"{descriptions[name]} {runbook(name)}",
        )
        for name, key in cheap_checks(names).items()
    ]

    @dg.multi_asset_check(specs=specs, name=names.op("checks"), can_subset=True)
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with keeping(context.run.run_id):
            verdicts = judge_cheaply(steps, context.instance, utc_now())
        broken = verdicts[readable_key(names)]
        for item in specs:
            if item.key in context.selected_asset_check_keys:
                yield verdicts.get(item.key, broken).result(item.key)

    return checks


def _descriptions(steps: ChangefeedSteps) -> dict[str, str]:
    changefeed, limits = steps.changefeed, steps.changefeed.checks
    quiet = "never"
    if limits.quiet_warn_seconds is not None:
        quiet = f"from {duration(limits.quiet_warn_seconds)}"
    return {
        LAKE_READABLE: (
            "Fails when a table that steers the pipeline is damaged, or the lake's store does "
            "not answer, and says how to repair it. The other checks fail with the same sentence "
            "meanwhile. Mirrors are not checked: reading one shows its damage, and `ticdc-assets "
            "doctor` checks all."
        ),
        Check.QUARANTINE_GROWTH: (
            "Warns when quarantine has records that are new since the last evaluation. List them "
            f"with ticdc-assets quarantine {changefeed.name}, fix the cause, and run "
            f"{steps.names.job('redrive')}."
        ),
        Check.REPLICATION_LAG: (
            "How far the mirrors are behind now: now minus the physical time of the newest cut's "
            "TSO, as the sum of three parts (source to Kafka, Kafka to raw_messages, "
            "raw_messages to mirrors), and the table that is furthest behind. Warns from "
            f"{duration(changefeed.lag_warn_seconds)}, fails from "
            f"{duration(changefeed.lag_error_seconds)} (lag_warn_seconds and lag_error_seconds of "
            "the changefeed). Look at the largest part first."
        ),
        Check.WATERMARK_PROGRESS: (
            "Whether the watermark moves with the rows. Rows that land far beyond a watermark that "
            "does not move are not applied: warns from "
            f"{duration(limits.stuck_warn_seconds)} of upstream time, fails from "
            f"{duration(limits.stuck_error_seconds)} (checks.stuck_warn_seconds and "
            "checks.stuck_error_seconds). A watermark that moves while no row and no DDL arrives "
            f"warns {quiet} (checks.quiet_warn_seconds). Check the named partition and TiCDC's "
            "changefeed."
        ),
        Check.HELD_ROWS: (
            "How long row changes have waited for the schema they cite. Warns from "
            f"{duration(limits.held_warn_seconds)}, fails from "
            f"{duration(limits.held_error_seconds)} (checks.held_warn_seconds and "
            "checks.held_error_seconds). Their tables lack these changes meanwhile. Make sure that "
            "TiCDC sends bootstraps."
        ),
        Check.SCHEMA_CONFLICTS: (
            "Warns while two messages describe one schema version of a table differently. The "
            "registered schema is used; compare both with the upstream table."
        ),
        Check.MIRRORS_COMPLETE: (
            "Fails when a mirror could not be made at the newest cut: it keeps its older rows, and "
            "each sync tries again. Warns when a mirror lacks row changes (held or quarantined), "
            "or has a caveat. Held changes wait for bootstraps, quarantined changes for a fix and "
            "a redrive."
        ),
        Check.CHANGES_ACCOUNTED: (
            "Fails when a row change that is new in the newest cut was neither applied nor held, "
            "quarantined, excluded or superseded, and names its coordinates. The metadata of "
            "apply_changes has the account of each table."
        ),
        Check.ROW_CHECKSUMS: (
            "Fails when a row change does not match its checksum (TiCDC's integrity check, Simple "
            "protocol); passes if no checksums are sent. Compare such rows with the source."
        ),
    }


def _spark_checks(steps: ChangefeedSteps) -> Iterator[dg.AssetChecksDefinition]:
    """Yield the checks that read mirrors or records, which no sync runs."""
    verify_job = steps.names.job("verify")
    yield _spark_check(
        steps,
        KEYS_UNIQUE,
        "Fails when a mirror of the newest cut has the same key more than once, and names up to 5 "
        "such keys of each table. It reads the keys of all mirrors. Run it with "
        f"{verify_job}; it is not part of a sync and writes nothing.",
        lambda lake, cut: judge_keys(None if cut is None else count_keys(lake, cut)),
    )
    yield _spark_check(
        steps,
        MIRROR_EQUALS_REBUILD,
        "Rebuilds every mirror of the newest cut from the landed records, in a separate folder, "
        "and compares. Fails with the keys and columns that differ. Run it with "
        f"{verify_job}; it is not part of a sync, removes its files at the end, and syncs "
        "continue meanwhile.",
        lambda lake, cut: judge_rebuild(None if cut is None else verify(lake)),
    )


def _spark_check(
    steps: ChangefeedSteps,
    name: str,
    description: str,
    judge: Callable[[Lake, Cut | None], CheckVerdict],
) -> dg.AssetChecksDefinition:
    names = steps.names
    spec = dg.AssetCheckSpec(
        name=name, asset=names.asset("apply_changes"), description=f"{description} {runbook(name)}"
    )

    # `can_subset` allows a run without a result.
    @dg.multi_asset_check(specs=[spec], name=names.op(name), can_subset=True)
    def check(
        context: dg.AssetCheckExecutionContext, ticdc_spark: LakeSpark
    ) -> Iterator[dg.AssetCheckResult]:
        # Dagster selects the checks of the assets that a run materialises. Then each run of a
        # backfill, or of a user's job, would read all mirrors, or decode every landed record.
        if context.job_def.is_asset_job:
            context.log.info("not run with a materialisation; run the job %s", names.job("verify"))
            return
        lake = steps.lake.using(ticdc_spark.spark_session)
        name_worker(context, lake.paths, steps.changefeed.writer)
        with reported_failures(lake.paths):
            verdict = judge(lake, newest_cut(lake.paths))
        yield verdict.result(spec.key)

    return check
