"""All definitions: one set per changefeed of the configuration, merged.

They always load. If tables of a changefeed or its entry in the configuration cannot be read, a
check fails (`lake_readable`, `configuration_valid`), and other changefeeds are not affected.

Each job of a changefeed runs in one process: one run is one Spark session. `all_definitions` makes
that the default of the location, because runs started by the UI or a backfill use an implicit job.
A component leaves the default to the user's project, which may have only one.
"""

from collections.abc import Sequence

import dagster as dg

from ticdc_assets.config import Settings, WrongEntry
from ticdc_assets.observe.verdicts import Level
from ticdc_assets.orchestration.alerts_sensor import alerts_sensors
from ticdc_assets.orchestration.assets import changefeed_assets
from ticdc_assets.orchestration.checks import changefeed_checks
from ticdc_assets.orchestration.exports import export_schedules
from ticdc_assets.orchestration.follow_job import follow_job
from ticdc_assets.orchestration.jobs import (
    changefeed_jobs,
    job_schedules,
    maintenance_job,
    rebuild_job,
    seed_job,
)
from ticdc_assets.orchestration.mirror_assets import MirrorAssets, tables_sensor
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.orchestration.resources import LakeSpark
from ticdc_assets.orchestration.sensors import changefeed_sensor
from ticdc_assets.orchestration.steps import ChangefeedSteps, steps_of
from ticdc_assets.orchestration.verdicts import CheckVerdict, runbook

CONFIGURATION_VALID = "configuration_valid"

_INTERVAL_SECONDS = 60

# One for all: definitions that are merged may not have two resources of one name.
_SPARK = LakeSpark()


def all_definitions(settings: Settings) -> dg.Definitions:
    """Return the definitions of every changefeed of `settings`, and of entries that are wrong."""
    return dg.Definitions.merge(
        dg.Definitions(executor=dg.in_process_executor),
        definitions_of([steps_of(settings, changefeed) for changefeed in settings.changefeeds]),
        *(_wrong_entry(settings, wrong) for wrong in settings.wrong),
    )


def definitions_of(
    changefeeds: Sequence[ChangefeedSteps], *, has_mirrors: bool = True
) -> dg.Definitions:
    """Return the definitions of `changefeeds`; their results are kept in each.

    No job of a changefeed needs the assets of its mirrors.
    """
    return dg.Definitions.merge(
        dg.Definitions(resources={"ticdc_spark": _SPARK}),
        *(_definitions(steps, has_mirrors=has_mirrors) for steps in changefeeds),
    )


def _definitions(steps: ChangefeedSteps, *, has_mirrors: bool) -> dg.Definitions:
    mirrors = MirrorAssets.of(steps) if has_mirrors else None
    checks = changefeed_checks(steps)
    return dg.Definitions(
        assets=[
            *changefeed_assets(steps),
            *(mirrors.definitions() if mirrors else ()),
        ],
        asset_checks=checks,
        jobs=[
            *changefeed_jobs(steps),
            follow_job(steps),
            maintenance_job(steps),
            rebuild_job(steps),
            seed_job(steps),
        ],
        schedules=[
            *job_schedules(steps),
            *export_schedules(steps),
        ],
        sensors=[
            changefeed_sensor(steps),
            *([tables_sensor(mirrors)] if mirrors else ()),
            *alerts_sensors(steps.names, steps.changefeed.alerts, checks),
        ],
    )


def _wrong_entry(settings: Settings, wrong: WrongEntry) -> dg.Definitions:
    """Return the definitions of an entry of the configuration that was left out for its mistakes.

    They are an asset `configuration`, a check that fails with the mistakes, a sensor that reports
    it, because no run evaluates this check, and the sensor that alerts people about it.
    """
    # No changefeed has a name in capitals.
    number = "".join(filter(str.isdigit, wrong.position))
    names = FeedNames(changefeed=wrong.name or f"ENTRY_{number}")
    key = dg.AssetCheckKey(names.asset("configuration"), CONFIGURATION_VALID)
    verdict = CheckVerdict(
        Level.FAIL,
        f"{settings.path} has mistakes in {wrong.position}, so this changefeed is not "
        f"synced: {'; '.join(wrong.mistakes)}. Fix them and reload the code location. "
        f"{runbook(CONFIGURATION_VALID)}",
    )

    @dg.asset_check(
        asset=key.asset_key,
        name=CONFIGURATION_VALID,
        description="Fails as long as the entry has mistakes, and lists them.",
    )
    def configuration_valid() -> dg.AssetCheckResult:
        return verdict.result(key)

    @dg.sensor(
        name=f"{names.changefeed}_configuration_sensor",
        asset_selection=dg.AssetSelection.assets(key.asset_key),
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports the mistakes of the entry once. It requests no run.",
    )
    def configuration_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        said = verdict.sentence
        news = [] if context.cursor == said else [verdict.evaluation(key)]
        return dg.SensorResult(skip_reason=said, cursor=said, asset_events=news)

    asset = dg.AssetSpec(
        key=key.asset_key,
        description=(
            f"The entry {wrong.position} of the changefeeds file, which has mistakes. Without "
            "them, the assets of the changefeed would be here."
        ),
        group_name=names.changefeed,
    )
    return dg.Definitions(
        assets=[asset],
        asset_checks=[configuration_valid],
        sensors=[
            configuration_sensor,
            *alerts_sensors(names, wrong.alerts, [configuration_valid]),
        ],
    )
