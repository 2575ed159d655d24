"""Exports of the upstream in Dagster: seeding tables from an export, comparing mirrors with one.

    snapshot -> change_log

One run of the seed job seeds all tables of an export, applies the later changes, and reports on
`snapshot`. The check `snapshot_complete` says whether each landed row was seeded or is in
quarantine; `mirror_equals_source` compares the mirrors with an export, like `ticdc-assets diff`. If
the configuration names a folder of exports, a schedule compares each new one.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg
from dagster import DagsterRunStatus, RunsFilter
from pydantic import Field

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.base.names import counted, table_named
from ticdc_assets.base.progress import listened
from ticdc_assets.log.cuts import newest_cut
from ticdc_assets.orchestration.active_runs import RUNS_LOOKED_AT, name_worker, pause_after_failures
from ticdc_assets.orchestration.metadata import definition_metadata, utc_now
from ticdc_assets.orchestration.partitions import FeedNames, skipping_unreadable
from ticdc_assets.orchestration.resources import LakeSpark
from ticdc_assets.orchestration.steps import ChangefeedSteps, reported_failures
from ticdc_assets.orchestration.verdicts import judge_seeds, judge_source, runbook
from ticdc_assets.repair.diffing import diff
from ticdc_assets.repair.seeding import seed_balance
from ticdc_assets.source.exports.dialect import dialect_of
from ticdc_assets.source.exports.folder import finished_exports

SNAPSHOT_COMPLETE = "snapshot_complete"
MIRROR_EQUALS_SOURCE = "mirror_equals_source"

NO_EXPORT = "no export is named: give its `folder` in the run's configuration"

_LOOK_CRON = "*/15 * * * *"

_RUN_KEY = "dagster/run_key"
"""Tag of a run: the key of the request that it comes from."""

_WITHOUT_RESULT = (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
"""How a comparison ends that is made again: a run is cancelled too when the UI stops."""


class ExportConfig(dg.Config):
    """An export, and the form of its files."""

    folder: str = Field(description="The folder of the export, or its URI.")
    tables: list[str] = Field(
        default=[], description="`database.table` of each wanted table; by default all."
    )
    tso: int | None = Field(
        default=None, description="The export's TSO, if its `metadata` does not contain it."
    )
    timezone: str | None = Field(
        default=None,
        description="Time zone of the session that exported it; by default the changefeed's.",
    )
    csv: dict[str, str] = Field(
        default={},
        description="Dumpling's options for CSV files, without `--`: "
        "csv-separator, csv-delimiter, csv-null-value, csv-line-terminator, no-header, "
        "escape-backslash, csv-output-dialect.",
    )

    def meant(self) -> dict[str, Any]:
        """Return it as the arguments of `seed` and `diff`."""
        return {
            "tables": [table_named(name) for name in self.tables],
            "tso": self.tso,
            "dialect": dialect_of(self.csv),
            "timezone": self.timezone,
        }


class DiffConfig(ExportConfig):
    """An export to compare with; "Execute all" and "Materialize all" name none."""

    folder: str = Field(
        default="", description="The folder of the export, or its URI; the job needs one."
    )


def snapshot_asset(steps: ChangefeedSteps) -> dg.AssetSpec:
    """Return the asset with the first rows of seeded tables, which the seed job reports.

    It is external. "Materialize all" must not seed, and most changefeeds have no seed: Dagster
    would warn about an asset that was never materialised before each materialisation of
    `change_log`.
    """
    return dg.AssetSpec(
        key=steps.names.asset("snapshot"),
        description=(
            "The first rows of seeded tables, from exports by Dumpling, verbatim: they are decoded "
            "into change_log; text that is not a row goes to quarantine with file and line. From "
            "the TSO of the export on, its tables have these rows, and later changes are applied "
            f"on top of them. The job [{steps.names.job('seed')}](/guess/{steps.names.job('seed')})"
            " makes them; name the export in the run's configuration."
        ),
        metadata=definition_metadata("snapshot_rows"),
    )


def snapshot_complete_key(names: FeedNames) -> dg.AssetCheckKey:
    """Return the key of the check that each landed row of an export has its place."""
    return dg.AssetCheckKey(names.asset("snapshot"), SNAPSHOT_COMPLETE)


def export_checks(steps: ChangefeedSteps) -> list[dg.AssetChecksDefinition]:
    """Return the checks about exports."""
    names = steps.names

    @dg.asset_check(
        asset=names.asset("snapshot"),
        name=SNAPSHOT_COMPLETE,
        description=(
            "Fails when landed rows of an export are neither in the change log nor in quarantine, "
            f"and warns about rows in quarantine. {runbook(SNAPSHOT_COMPLETE)}"
        ),
    )
    def snapshot_complete() -> dg.AssetCheckResult:
        with reported_failures(steps.paths):
            verdict = judge_seeds(seed_balance(steps.paths))
        return verdict.result(snapshot_complete_key(names))

    source = dg.AssetCheckSpec(
        name=MIRROR_EQUALS_SOURCE,
        asset=names.asset("apply_changes"),
        description=(
            "Compares the mirrors, as of the TSO of an export of the upstream, with the export. "
            f"Fails with the keys and columns that differ. Run it with {names.job('diff')}, and "
            "name the export in the run's configuration; it changes no table. "
            f"{runbook(MIRROR_EQUALS_SOURCE)}"
        ),
    )

    @dg.multi_asset_check(specs=[source], name=names.op(MIRROR_EQUALS_SOURCE), can_subset=True)
    def mirror_equals_source(
        context: dg.AssetCheckExecutionContext, config: DiffConfig, ticdc_spark: LakeSpark
    ) -> Iterator[dg.AssetCheckResult]:
        if not config.folder and context.run.job_name != names.job("diff"):
            context.log.info("no export is named; run the job %s with one", names.job("diff"))
            return
        name_worker(context, steps.paths, steps.changefeed.writer)
        with reported_failures(steps.paths), listened(context.log.info):
            if not config.folder:
                raise TicdcError(NO_EXPORT)
            lake = steps.lake.using(ticdc_spark.spark_session)
            difference = diff(lake, config.folder, **config.meant())
        yield judge_source(difference).result(source.key)

    return [snapshot_complete, mirror_equals_source]


def export_schedules(steps: ChangefeedSteps) -> list[dg.ScheduleDefinition]:
    """Return the schedule that looks for new exports, if the configuration names a folder."""
    names, folder = steps.names, steps.changefeed.exports
    if folder is None:
        return []

    @dg.schedule(
        name=names.schedule("diff"),
        job_name=names.job("diff"),
        cron_schedule=_LOOK_CRON,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=(
            "Looks for finished exports in the folder of the setting `exports`, and compares the "
            "mirrors once with the newest export at or below the newest cut."
        ),
    )
    @skipping_unreadable
    def new_exports(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        cut = newest_cut(steps.paths)
        if cut is None:
            return dg.SkipReason("no cut was published yet")
        try:
            exports, unread = finished_exports(folder)
        except TicdcError as error:
            return dg.SkipReason(str(error))
        for place, reason in unread.items():
            context.log.warning("the folder %s cannot be read and is left out: %s", place, reason)
        ready = [(tso, place) for tso, place in exports if tso <= cut.tso]
        if not ready:
            left_out = f"; {counted(len(unread), 'folder')} cannot be read" if unread else ""
            return dg.SkipReason(
                f"{counted(len(exports), 'finished export')} in {folder}, none at or below the "
                f"newest cut{left_out}"
            )
        tso, place = max(ready)
        key = f"{place}@{tso}"
        # Dagster compares the run keys of a schedule within one tick only.
        tried = context.instance.get_run_records(
            RunsFilter(job_name=names.job("diff"), tags={_RUN_KEY: key}), limit=RUNS_LOOKED_AT
        )
        if tried and tried[0].dagster_run.status not in _WITHOUT_RESULT:
            run_id = tried[0].dagster_run.run_id
            return dg.SkipReason(f"each export is compared once: {place} by run {run_id}")
        if pause := pause_after_failures(tried, utc_now()):
            return dg.SkipReason(f"comparing {place}: {pause}")
        return dg.RunRequest(
            run_key=key,
            run_config={"ops": {names.op(MIRROR_EQUALS_SOURCE): {"config": {"folder": place}}}},
        )

    return [new_exports]
