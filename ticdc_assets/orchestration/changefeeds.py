"""All definitions: one set per changefeed of the configuration, merged.

They always load. If tables of a changefeed or its entry in the configuration cannot be read, a
check fails (`lake_readable`, `configuration_valid`), and other changefeeds are not affected.

The in-process executor is the default for everything: one run is one Spark session, and runs
started by the UI or a backfill use an implicit job that takes no other default.
"""

from collections.abc import Sequence

import dagster as dg

from ticdc_assets.config import Settings
from ticdc_assets.orchestration.alerts_sensor import alerts_sensors
from ticdc_assets.orchestration.assets import changefeed_assets
from ticdc_assets.orchestration.checks import changefeed_checks
from ticdc_assets.orchestration.exports import export_schedules
from ticdc_assets.orchestration.follow_job import follow_job
from ticdc_assets.orchestration.jobs import (
    changefeed_jobs,
    maintenance_job,
    maintenance_schedule,
    rebuild_job,
    redecode_schedule,
    verify_schedule,
)
from ticdc_assets.orchestration.mirror_assets import MirrorAssets
from ticdc_assets.orchestration.report import report_asset, report_schedules
from ticdc_assets.orchestration.resources import LakeSpark
from ticdc_assets.orchestration.sensors import changefeed_sensor
from ticdc_assets.orchestration.steps import ChangefeedSteps, steps_of
from ticdc_assets.orchestration.tables_sensor import tables_sensor
from ticdc_assets.orchestration.wrong_entries import wrong_entries

# One for all: definitions that are merged may not have two resources of one name.
_SPARK = LakeSpark()

_SCHEDULES = (maintenance_schedule, verify_schedule, redecode_schedule)


def all_definitions(settings: Settings) -> dg.Definitions:
    """Return the definitions of every changefeed of `settings`, and of entries that are wrong."""
    return dg.Definitions.merge(
        definitions_of([steps_of(settings, changefeed) for changefeed in settings.changefeeds]),
        wrong_entries(settings),
    )


def definitions_of(
    changefeeds: Sequence[ChangefeedSteps], *, has_mirrors: bool = True
) -> dg.Definitions:
    """Return the definitions of `changefeeds`; their results are kept in each.

    Args:
        changefeeds: the changefeeds.
        has_mirrors: whether the assets of mirrors are among them; no job of a changefeed needs
            these.
    """
    mirrors = [MirrorAssets.of(steps) for steps in changefeeds] if has_mirrors else []
    checks = [(steps, changefeed_checks(steps)) for steps in changefeeds]
    return dg.Definitions(
        assets=[
            *(asset for steps in changefeeds for asset in changefeed_assets(steps)),
            *(report_asset(steps) for steps in changefeeds),
            *(asset for shown in mirrors for asset in shown.definitions()),
        ],
        asset_checks=[check for _, each in checks for check in each],
        jobs=[
            *(job for steps in changefeeds for job in changefeed_jobs(steps)),
            *(
                make(steps)
                for steps in changefeeds
                for make in (follow_job, maintenance_job, rebuild_job)
            ),
        ],
        schedules=[
            *(make(steps) for steps in changefeeds for make in _SCHEDULES),
            *(schedule for steps in changefeeds for schedule in report_schedules(steps)),
            *(schedule for steps in changefeeds for schedule in export_schedules(steps)),
        ],
        sensors=[
            *(changefeed_sensor(steps) for steps in changefeeds),
            *(tables_sensor(shown) for shown in mirrors),
            *(sensor for steps, each in checks for sensor in alerts_sensors(steps, each)),
        ],
        resources={"spark": _SPARK},
        executor=dg.in_process_executor,
    )
