"""Jobs of one changefeed, made of its assets and checks, so that their runs are their history.

`<changefeed>_sync` lands, decodes, registers and applies what is there now. `<changefeed>_redrive`
is the same way without landing, and tries quarantined records and rows again first.
`<changefeed>_maintenance` removes what is not kept and compacts the rest, once a day.
`<changefeed>_verify` runs the one check that no sync runs: it rebuilds the mirrors and compares.
"""

from typing import TYPE_CHECKING

import dagster as dg

from ticdc_assets.defs.checks import MIRROR_EQUALS_REBUILD
from ticdc_assets.defs.steps import ChangefeedSteps

if TYPE_CHECKING:
    # What `define_asset_job` returns; Dagster does not export its name.
    from dagster._core.definitions.unresolved_asset_job_definition import (
        UnresolvedAssetJobDefinition,
    )

_REDRIVEN = ("change_log", "quarantine", "schema_registry", "apply_changes")
_SYNCED = ("raw_messages", *_REDRIVEN)


def changefeed_jobs(steps: ChangefeedSteps) -> "list[UnresolvedAssetJobDefinition]":
    """Return the jobs of one changefeed."""
    return [sync_job(steps), redrive_job(steps), verify_job(steps), maintenance_job(steps)]


def maintenance_job(steps: ChangefeedSteps) -> "UnresolvedAssetJobDefinition":
    """Return the job that removes what is not kept, compacts and vacuums."""
    names = steps.names
    return dg.define_asset_job(
        name=names.maintenance_job,
        selection=dg.AssetSelection.assets(names.asset("maintenance")),
        description=(
            f"Removes what {names.changefeed} no longer needs to keep, and makes few files of "
            "many. Syncs wait for it; no row of a mirror or of a kept cut changes."
        ),
        tags=names.tags,
        executor_def=dg.in_process_executor,
    )


def maintenance_schedule(steps: ChangefeedSteps) -> dg.ScheduleDefinition:
    """Return the daily schedule of the maintenance job.

    It runs by default: nothing else removes files, and reading slows down as they pile up.
    """
    return dg.ScheduleDefinition(
        name=steps.names.maintenance_schedule,
        job_name=steps.names.maintenance_job,
        cron_schedule="30 1 * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Daily at 1:30 UTC, when the day before is complete.",
    )


def verify_job(steps: ChangefeedSteps) -> "UnresolvedAssetJobDefinition":
    """Return the job that compares the mirrors with their rebuild."""
    names = steps.names
    check = dg.AssetCheckKey(names.asset("mirrors"), MIRROR_EQUALS_REBUILD)
    return dg.define_asset_job(
        name=names.verify_job,
        selection=dg.AssetSelection.checks(check),
        description=(
            f"Rebuilds the mirrors of {names.changefeed} from the landed records in a side place "
            "and compares them with the newest cut. It changes no table, and syncs go on meanwhile."
        ),
        executor_def=dg.in_process_executor,
    )


def verify_schedule(steps: ChangefeedSteps) -> dg.ScheduleDefinition:
    """Return the weekly schedule of the verify job; it is stopped until somebody starts it.

    It decodes all that ever landed, beside the syncs on the same machine: when it may do so is for
    whoever knows the machine.
    """
    return dg.ScheduleDefinition(
        name=steps.names.verify_schedule,
        job_name=steps.names.verify_job,
        cron_schedule="0 3 * * 0",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=(
            "Sundays at 3:00 UTC. It decodes everything that ever landed, so it is stopped at "
            "first: start it where the machine has the time."
        ),
    )


def sync_job(steps: ChangefeedSteps) -> "UnresolvedAssetJobDefinition":
    """Return the job that brings the mirrors up to date, with the checks."""
    names = steps.names
    return dg.define_asset_job(
        name=names.sync_job,
        selection=dg.AssetSelection.assets(*(names.asset(name) for name in _SYNCED)),
        description=(
            f"Lands what the source of {names.changefeed} has, decodes it, and cuts every mirror "
            "at the global watermark. Running it twice changes nothing."
        ),
        tags=names.tags,
        executor_def=dg.in_process_executor,
    )


def redrive_job(steps: ChangefeedSteps) -> "UnresolvedAssetJobDefinition":
    """Return the job that tries what is in quarantine again."""
    names = steps.names
    return dg.define_asset_job(
        name=names.redrive_job,
        selection=dg.AssetSelection.assets(*(names.asset(name) for name in _REDRIVEN)),
        description=(
            "After a fix: tries the records and row changes in quarantine again. What fits now "
            "takes its place by commit ts; what does not stays where it is."
        ),
        config={
            "ops": {
                names.op("change_log"): {"config": {"redrive": True}},
                names.op("apply_changes"): {"config": {"refold_quarantined": True}},
            }
        },
        tags=names.tags,
        executor_def=dg.in_process_executor,
    )
