"""Wrong entries of the configuration, each as an asset whose check fails.

In: the entries that were left out because of mistakes. Out: for each an asset `configuration`, a
check that fails with the mistakes, and a sensor that reports it, because no run evaluates this
check. When the entry is corrected, the changefeed's assets replace these; its tables were not
touched.
"""

import dagster as dg

from ticdc_assets.config import Settings, WrongEntry
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.orchestration.verdicts import CheckVerdict, runbook

CONFIGURATION_VALID = "configuration_valid"

_INTERVAL_SECONDS = 60


def wrong_entries(settings: Settings) -> dg.Definitions:
    """Return the definitions of the entries of `settings` that are wrong."""
    entries = [_Entry(settings, wrong) for wrong in settings.wrong]
    return dg.Definitions(
        assets=[entry.asset() for entry in entries],
        asset_checks=[entry.check() for entry in entries],
        sensors=[entry.sensor() for entry in entries],
    )


class _Entry:
    """One entry that is wrong."""

    def __init__(self, settings: Settings, wrong: WrongEntry) -> None:
        # No changefeed has a name in capitals.
        number = "".join(filter(str.isdigit, wrong.position))
        self._names = FeedNames(changefeed=wrong.name or f"ENTRY_{number}")
        self._position = wrong.position
        self._key = dg.AssetCheckKey(self._names.asset("configuration"), CONFIGURATION_VALID)
        self._verdict = CheckVerdict(
            passed=False,
            severity=dg.AssetCheckSeverity.ERROR,
            description=(
                f"{settings.path} has mistakes in {wrong.position}, so this changefeed is not "
                f"synced: {'; '.join(wrong.mistakes)}. Fix them and reload the code location. "
                f"{runbook(CONFIGURATION_VALID)}"
            ),
        )

    def asset(self) -> dg.AssetSpec:
        return dg.AssetSpec(
            key=self._key.asset_key,
            description=(
                f"The entry {self._position} of the changefeeds file, which has mistakes. Without "
                "them, the assets of the changefeed would be here."
            ),
            group_name=self._names.changefeed,
        )

    def check(self) -> dg.AssetChecksDefinition:
        @dg.asset_check(
            asset=self._key.asset_key,
            name=CONFIGURATION_VALID,
            description="Fails as long as the entry has mistakes, and lists them.",
        )
        def configuration_valid() -> dg.AssetCheckResult:
            return self._verdict.result()

        return configuration_valid

    def sensor(self) -> dg.SensorDefinition:
        @dg.sensor(
            name=f"{self._names.changefeed}_configuration_sensor",
            asset_selection=dg.AssetSelection.assets(self._key.asset_key),
            minimum_interval_seconds=_INTERVAL_SECONDS,
            default_status=dg.DefaultSensorStatus.RUNNING,
            description="Reports the mistakes of the entry once. It requests no run.",
        )
        def configuration_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
            said = self._verdict.description
            news = [] if context.cursor == said else [self._verdict.evaluation(self._key)]
            return dg.SensorResult(skip_reason=said, cursor=said, asset_events=news)

        return configuration_sensor
