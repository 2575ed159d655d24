"""Jobs of one changefeed, made of its assets and checks, so their runs are in the assets' history.

`<changefeed>_sync` lands, decodes, registers and applies once. `<changefeed>_redrive` does the same
without landing, and first tries quarantined records and rows again. `<changefeed>_seed` starts
tables with the rows of an export, `<changefeed>_diff` compares the mirrors with one (`exports`).
`<changefeed>_maintenance` applies retention, compacts and vacuums, once a day.
`<changefeed>_redecode` decodes landing days again and corrects differences. `<changefeed>_verify`
runs the checks that no sync runs: it counts keys, rebuilds the mirrors and compares.
"""

from datetime import UTC, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from ticdc_assets.config import OFF
from ticdc_assets.defs.checks import KEYS_UNIQUE, MIRROR_EQUALS_REBUILD
from ticdc_assets.defs.exports import diff_job, seed_job
from ticdc_assets.defs.partitions import DAY_FORMAT
from ticdc_assets.defs.steps import ChangefeedSteps
from ticdc_assets.pipeline.landing import landed_days
from ticdc_assets.services.redecoding import first_whole_day

if TYPE_CHECKING:
    # What `define_asset_job` returns; Dagster does not export its name.
    from dagster._core.definitions.unresolved_asset_job_definition import (
        UnresolvedAssetJobDefinition,
    )

MAINTENANCE_CRON = "30 1 * * *"
"""The default time of maintenance: when the day before is complete."""

VERIFY_CRON = "0 3 * * 0"
"""The default time of verifying the mirrors."""

REDECODE_CRON = "0 2 * * *"
"""The default time of decoding days again: after maintenance, before verify."""

_REDRIVEN = ("decode_messages", "quarantine", "schema_registry", "apply_changes")
_SYNCED = ("raw_messages", *_REDRIVEN)


def changefeed_jobs(steps: ChangefeedSteps) -> "list[UnresolvedAssetJobDefinition]":
    """Return the jobs of one changefeed."""
    return [
        sync_job(steps),
        redrive_job(steps),
        seed_job(steps),
        diff_job(steps),
        redecode_job(steps),
        verify_job(steps),
        maintenance_job(steps),
    ]


def redecode_job(steps: ChangefeedSteps) -> "UnresolvedAssetJobDefinition":
    """Return the job that decodes landing days again; its partitions are the days."""
    names = steps.names
    return dg.define_asset_job(
        name=names.job("redecode"),
        selection=dg.AssetSelection.assets(names.asset("change_log")),
        description=(
            f"Decodes the records of {names.changefeed} that landed on the chosen days again and "
            "compares. Equal rows are not written; differences are corrected, and the next sync "
            "folds the affected tables."
        ),
        tags=names.tags,
        executor_def=dg.in_process_executor,
    )


def redecode_schedule(steps: ChangefeedSteps) -> dg.ScheduleDefinition:
    """Return the daily schedule that decodes the day before again.

    Without a time in the configuration it is stopped until it is started by hand: it is a proof,
    and costs a day's decoding.
    """
    names, cron = steps.names, steps.changefeed.schedules.redecode
    runs = cron is not None and cron != OFF

    @dg.schedule(
        name=names.schedule("redecode"),
        job_name=names.job("redecode"),
        cron_schedule=cron if cron is not None and runs else REDECODE_CRON,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING
        if runs
        else dg.DefaultScheduleStatus.STOPPED,
        description=(
            "Decodes the records landed the day before (UTC) again and compares. It skips, with a "
            "reason, if nothing landed or records of that day were removed."
        ),
    )
    def yesterday_again(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        # A schedule made of the partitions would ask for today, which is a partition already.
        day = context.scheduled_execution_time.astimezone(UTC).date() - timedelta(days=1)
        if day not in landed_days(steps.paths):
            return dg.SkipReason(f"nothing landed on {day}")
        first = first_whole_day(steps.paths)
        if day < first:
            return dg.SkipReason(
                f"retention removed records or rows of {day}; the first complete day is {first}"
            )
        key = f"{day:{DAY_FORMAT}}"
        return dg.RunRequest(run_key=key, partition_key=key, tags=names.tags)

    return yesterday_again


def maintenance_job(steps: ChangefeedSteps) -> "UnresolvedAssetJobDefinition":
    """Return the job that applies retention, compacts and vacuums."""
    names = steps.names
    return dg.define_asset_job(
        name=names.job("maintenance"),
        selection=dg.AssetSelection.assets(names.asset("maintenance")),
        description=(
            f"Removes old data of {names.changefeed}, and compacts small files. Syncs wait for "
            "it; no row of a mirror or of a kept cut changes."
        ),
        tags=names.tags,
        executor_def=dg.in_process_executor,
    )


def maintenance_schedule(steps: ChangefeedSteps) -> dg.ScheduleDefinition:
    """Return the daily schedule of the maintenance job.

    It runs by default: nothing else removes files, and reading slows down as they pile up.
    """
    said = steps.changefeed.schedules.maintenance
    runs_daily = said is None or said == OFF
    return dg.ScheduleDefinition(
        name=steps.names.schedule("maintenance"),
        job_name=steps.names.job("maintenance"),
        cron_schedule=MAINTENANCE_CRON if said is None or said == OFF else said,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED
        if said == OFF
        else dg.DefaultScheduleStatus.RUNNING,
        description="Daily at 1:30 UTC, when the day before is complete."
        if runs_daily
        else "When schedules.maintenance of the changefeed says.",
    )


def verify_job(steps: ChangefeedSteps) -> "UnresolvedAssetJobDefinition":
    """Return the job that compares the mirrors with their rebuild."""
    names = steps.names
    checks = [
        dg.AssetCheckKey(names.asset("mirrors"), name)
        for name in (KEYS_UNIQUE, MIRROR_EQUALS_REBUILD)
    ]
    return dg.define_asset_job(
        name=names.job("verify"),
        selection=dg.AssetSelection.checks(*checks),
        description=(
            f"Rebuilds the mirrors of {names.changefeed} from the landed records in a separate "
            "folder and compares them with the newest cut. It changes no table, and syncs continue "
            "meanwhile."
        ),
        tags=names.tags,
        executor_def=dg.in_process_executor,
    )


def verify_schedule(steps: ChangefeedSteps) -> dg.ScheduleDefinition:
    """Return the weekly schedule of the verify job.

    Without a time in the configuration it is stopped until it is started by hand: it decodes every
    landed record, in parallel with syncs on the same machine, so the operator chooses the time.
    """
    said = steps.changefeed.schedules.verify
    runs = said is not None and said != OFF
    return dg.ScheduleDefinition(
        name=steps.names.schedule("verify"),
        job_name=steps.names.job("verify"),
        cron_schedule=said if said is not None and runs else VERIFY_CRON,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING
        if runs
        else dg.DefaultScheduleStatus.STOPPED,
        description=(
            "At the time of the setting schedules.verify. It decodes every landed record."
            if runs
            else "Sundays at 3:00 UTC. It decodes every landed record, so it is stopped by "
            "default: start it if the machine has the capacity."
        ),
    )


def sync_job(steps: ChangefeedSteps) -> "UnresolvedAssetJobDefinition":
    """Return the job that brings the mirrors up to date, with the checks."""
    names = steps.names
    return dg.define_asset_job(
        name=names.job("sync"),
        selection=dg.AssetSelection.assets(*(names.asset(name) for name in _SYNCED)),
        description=(
            f"Lands the records of {names.changefeed}'s source, decodes them, and cuts every "
            "mirror at the global watermark. Running it twice changes nothing."
        ),
        tags=names.tags,
        executor_def=dg.in_process_executor,
    )


def redrive_job(steps: ChangefeedSteps) -> "UnresolvedAssetJobDefinition":
    """Return the job that decodes and applies quarantined records again."""
    names = steps.names
    return dg.define_asset_job(
        name=names.job("redrive"),
        selection=dg.AssetSelection.assets(*(names.asset(name) for name in _REDRIVEN)),
        description=(
            "After a fix: tries the records and row changes in quarantine again. Those that fit "
            "now take their place by commit ts; the others stay in quarantine."
        ),
        config={
            "ops": {
                names.op("decode_messages"): {"config": {"redrive": True}},
                names.op("apply_changes"): {"config": {"refold_quarantined": True}},
            }
        },
        tags=names.tags,
        executor_def=dg.in_process_executor,
    )
