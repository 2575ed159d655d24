"""Wrong entries of the configuration, each as an asset whose check fails.

In: the entries that were left out because of mistakes. Out: for each an asset `configuration`, a
check that fails with the mistakes, and a sensor that reports it, because no run evaluates this
check. When the entry is corrected, the changefeed's assets replace these; its tables were not
touched.
"""

import dagster as dg

from ticdc_assets.config import Settings, WrongEntry
from ticdc_assets.observe.verdicts import Level
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.orchestration.verdicts import CheckVerdict, runbook

CONFIGURATION_VALID = "configuration_valid"

_INTERVAL_SECONDS = 60


def wrong_entries(settings: Settings) -> dg.Definitions:
    """Return the definitions of the entries of `settings` that are wrong."""
    return dg.Definitions.merge(*(_definitions(settings, wrong) for wrong in settings.wrong))


def _definitions(settings: Settings, wrong: WrongEntry) -> dg.Definitions:
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
        assets=[asset], asset_checks=[configuration_valid], sensors=[configuration_sensor]
    )
