"""The report as an asset: one HTML page per changefeed, written every quarter of an hour.

It reads small control tables and starts no Spark, so it is in no pool: it never waits for the
writer and no sync waits for it. The page is replaced atomically; a killed run leaves the old one.
Its job has its own schedule and is not part of a sync, because a page that reports missing syncs
must be written when there are none.
"""

import dagster as dg

from ticdc_assets.config import OFF
from ticdc_assets.orchestration.partitions import REPORT
from ticdc_assets.orchestration.steps import ChangefeedSteps, reported_failures

DEFAULT_CRON = "*/15 * * * *"


def report_asset(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    """Return the asset that writes the page of a changefeed."""
    names = steps.names

    @dg.asset(
        key=names.asset(REPORT),
        deps=[names.asset(name) for name in ("apply_changes", "schema_registry", "quarantine")],
        description=(
            "A status page for a browser: lag, throughput, backlog, held rows and quarantine over "
            "time, tables, DDL timeline, schema versions, partitions and cuts. It is one file that "
            "needs no server, at `path`. Writing it starts no Spark and waits for no other run."
        ),
        group_name=names.changefeed,
        kinds={"plotly"},
        owners=list(steps.changefeed.owners),
    )
    def report(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        # plotly takes a while to import; loading definitions should not.
        from ticdc_assets.observe.overview import read_overview
        from ticdc_assets.observe.report.headlines import verdict
        from ticdc_assets.observe.report.page import page
        from ticdc_assets.storage.paths import write_at_once

        with reported_failures(steps.paths):
            overview = read_overview(steps.lake)
        text, place = page([overview]), steps.paths.report
        write_at_once(place, text)
        return dg.MaterializeResult(
            metadata={
                "path": dg.MetadataValue.path(str(place)),
                "page": dg.MetadataValue.url(place.absolute().as_uri()),
                "bytes": len(text.encode("utf-8")),
                "verdict": verdict(overview).word,
            }
        )

    return report


def report_schedules(steps: ChangefeedSteps) -> list[dg.ScheduleDefinition]:
    """Return the schedule of the job that writes it; none if `schedules.report` is off."""
    names, cron = steps.names, steps.changefeed.schedules.report or DEFAULT_CRON
    if cron == OFF:
        return []
    return [
        dg.ScheduleDefinition(
            name=names.schedule("report"),
            target=dg.AssetSelection.assets(names.asset(REPORT)),
            tags=names.tags,
            cron_schedule=cron,
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description=(
                "Every 15 minutes, or at the times of the setting `schedules.report` (`off` "
                "removes the schedule), even if no sync runs."
            ),
        )
    ]
