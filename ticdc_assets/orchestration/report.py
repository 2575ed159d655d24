"""The report as an asset: one HTML page per changefeed, written every quarter of an hour.

It reads small control tables and starts no Spark, so it is in no pool: it never waits for the
writer and no sync waits for it. The page is replaced atomically; a killed run leaves the old one.
Its job has its own schedule and is not part of a sync, because a page that reports missing syncs
must be written when there are none.
"""

from typing import TYPE_CHECKING

import dagster as dg

from ticdc_assets.config import OFF
from ticdc_assets.orchestration.metadata import Metadata
from ticdc_assets.orchestration.partitions import REPORT
from ticdc_assets.orchestration.steps import ChangefeedSteps, reported_failures

if TYPE_CHECKING:
    from ticdc_assets.observe.overview import FeedOverview

DEFAULT_CRON = "*/15 * * * *"


def report_asset(steps: ChangefeedSteps) -> dg.AssetsDefinition:
    """Return the asset that writes the page of a changefeed."""
    names, paths = steps.names, steps.paths

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
        from ticdc_assets.observe.report.page import page
        from ticdc_assets.storage.paths import write_at_once

        with reported_failures(steps.paths):
            overview = read_overview(steps.lake)
        text = page([overview])
        write_at_once(paths.report, text)
        return dg.MaterializeResult(
            metadata={
                "path": dg.MetadataValue.path(str(paths.report)),
                "page": dg.MetadataValue.url(paths.report.absolute().as_uri()),
                "bytes": len(text.encode("utf-8")),
                **_verdicts(overview),
            }
        )

    return report


def _verdicts(overview: "FeedOverview") -> Metadata:
    """Return the headline figures with their verdict and advice."""
    from ticdc_assets.observe.report.headlines import headlines, verdict

    return {
        "verdict": verdict(overview).word,
        "headlines": dg.MetadataValue.md(
            "\n".join(
                ["| figure | value | verdict | |", "|---|---|---|---|"]
                + [
                    f"| {item.label} | {item.value} | {item.level.word} | {item.advice} |"
                    for item in headlines(overview)
                ]
            )
        ),
    }


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
