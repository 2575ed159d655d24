"""Jobs of one changefeed. Both are made of the assets themselves, so their runs are their history.

`<changefeed>_sync` lands, decodes, registers and applies what is there now. `<changefeed>_redrive`
is the same way without landing, and tries quarantined records and rows again first.
"""

from typing import TYPE_CHECKING

import dagster as dg

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
    return [sync_job(steps), redrive_job(steps)]


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
