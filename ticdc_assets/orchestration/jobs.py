"""Jobs and schedules of one changefeed, made of its assets and checks: runs are in their history.

`<changefeed>_sync` lands, decodes, registers and applies once. `<changefeed>_redrive` does the same
without landing, and first tries quarantined records and rows again. `<changefeed>_diff` compares
the mirrors with an export (`exports`), `<changefeed>_verify` with a rebuild. `<changefeed>_seed`,
`<changefeed>_maintenance` and `<changefeed>_rebuild` work on many tables; they are ops, not assets,
because "Materialize all" must not rebuild a lake. They may be killed anywhere and run again. Two
schedules have no job of their own: one decodes the day before again, one writes the status page; a
person materialises `change_log` or `report`. `follow_job` has the job that follows.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, timedelta
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.base.progress import listened
from ticdc_assets.config import OFF
from ticdc_assets.log.landing import landed_days
from ticdc_assets.orchestration.checks import KEYS_UNIQUE, MIRROR_EQUALS_REBUILD, cheap_checks
from ticdc_assets.orchestration.exports import (
    MIRROR_EQUALS_SOURCE,
    NO_EXPORT,
    ExportConfig,
    snapshot_complete_key,
)
from ticdc_assets.orchestration.partitions import DAY_FORMAT, REPORT, JobKind, skipping_unreadable
from ticdc_assets.orchestration.reporting import Reporter, log_news
from ticdc_assets.orchestration.resources import LakeSpark
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets.orchestration.syncing import Syncing
from ticdc_assets.orchestration.verdicts import judge_seeds
from ticdc_assets.repair.maintenance import maintain
from ticdc_assets.repair.rebuilding import rebuild
from ticdc_assets.repair.redecoding import first_whole_day
from ticdc_assets.repair.seeding import seed_balance
from ticdc_assets.spark.compute import Ran, watched

_REDRIVEN = ("decode_messages", "quarantine", "schema_registry", "apply_changes")
_SYNCED = ("raw_messages", *_REDRIVEN)


def changefeed_jobs(steps: ChangefeedSteps) -> list[Any]:
    """Return the jobs of one changefeed, without the one that follows."""
    names, feed = steps.names, steps.changefeed.name

    def job(
        kind: JobKind,
        selection: dg.AssetSelection,
        description: str,
        config: Mapping[str, Any] | None = None,
    ) -> Any:  # Dagster does not export what `define_asset_job` returns
        return dg.define_asset_job(
            name=names.job(kind),
            selection=selection,
            description=description,
            config=config,
            tags=names.tags,
            executor_def=dg.in_process_executor,
        )

    def assets(*wanted: str) -> dg.AssetSelection:
        return dg.AssetSelection.assets(*map(names.asset, wanted))

    def checks_of_mirrors(*wanted: str) -> dg.AssetSelection:
        keys = [dg.AssetCheckKey(names.asset("apply_changes"), name) for name in wanted]
        return dg.AssetSelection.checks(*keys)

    def steps_of_a_sync(*wanted: str) -> dg.AssetSelection:
        keys = cheap_checks(names).values()
        return assets(*wanted).without_checks() | dg.AssetSelection.checks(*keys)

    return [
        job(
            "sync",
            steps_of_a_sync(*_SYNCED),
            f"Lands the records of {feed}'s source, decodes them, and cuts every mirror at the "
            "global watermark. Running it twice changes nothing.",
        ),
        job(
            "redrive",
            steps_of_a_sync(*_REDRIVEN),
            "After a fix: tries the records and row changes in quarantine again. Those that fit "
            "now take their place by commit ts; the others stay in quarantine.",
            {
                "ops": {
                    names.op("decode_messages"): {"config": {"redrive": True}},
                    names.op("apply_changes"): {"config": {"refold_quarantined": True}},
                }
            },
        ),
        job(
            "diff",
            checks_of_mirrors(MIRROR_EQUALS_SOURCE),
            f"Compares the mirrors of {feed} with an export of the upstream, as of its TSO. It "
            "changes no table, and syncs continue meanwhile.",
        ),
        job(
            "verify",
            checks_of_mirrors(KEYS_UNIQUE, MIRROR_EQUALS_REBUILD),
            f"Rebuilds the mirrors of {feed} from the landed records in a separate folder and "
            "compares them with the newest cut. It changes no table, and syncs continue meanwhile.",
        ),
    ]


def op_job(
    steps: ChangefeedSteps,
    kind: JobKind,
    op: dg.OpDefinition,
    description: str,
    tags: Mapping[str, str] | None = None,
) -> dg.JobDefinition:
    """Return a job of one op."""
    names = steps.names
    return dg.GraphDefinition(name=names.job(kind), node_defs=[op]).to_job(
        description=description,
        tags=names.tags | dict(tags or {}),
        executor_def=dg.in_process_executor,
    )


def seed_job(steps: ChangefeedSteps) -> dg.JobDefinition:
    """Return the job that seeds tables from an export, and applies the later changes."""
    names = steps.names

    @dg.op(name=names.op("seed"), pool=names.pool, out=dg.Out(dg.Nothing))
    def seeded(
        context: dg.OpExecutionContext, config: ExportConfig, ticdc_spark: LakeSpark
    ) -> Iterator[dg.AssetCheckEvaluation | dg.Output[None]]:
        with steps.writing(context), listened(context.log.info):
            if not config.folder:  # as "Scaffold missing config" fills it in
                raise TicdcError(NO_EXPORT)
            syncing = Syncing(steps, ticdc_spark.spark_session, context.instance)
            seeding = partial(syncing.seed, config.folder, **config.meant())
            for work in (seeding, syncing.register, syncing.apply):
                step = work()
                log_news(context, (*step.news, *step.reports))
                context.log.info("%s", step.said)
            verdict = judge_seeds(seed_balance(steps.paths))
        yield verdict.evaluation(snapshot_complete_key(names))
        yield dg.Output(None)

    return op_job(
        steps,
        "seed",
        seeded,
        f"Seeds tables of {names.changefeed} from an export by Dumpling: the mirrors get its rows "
        "at its TSO, and later changes are applied on top of them. Give the export's folder and "
        "the tables in the run's configuration.",
    )


def maintenance_job(steps: ChangefeedSteps) -> dg.JobDefinition:
    """Return the job that applies retention, compacts and vacuums."""
    names = steps.names

    @dg.op(name=names.op("maintenance"), pool=names.pool, out=dg.Out(dg.Nothing))
    def maintenance(context: dg.OpExecutionContext, ticdc_spark: LakeSpark) -> None:
        with steps.writing(context), watched() as ran:
            done = steps.note(maintain(steps.lake.using(ticdc_spark.spark_session)))
        _log(context, done.lines(), ran)

    return op_job(
        steps,
        "maintenance",
        maintenance,
        f"Removes data of {names.changefeed} older than `retention`, compacts small files "
        "(OPTIMIZE) and removes files that no kept cut needs (VACUUM). Syncs wait for it; no row "
        "of a mirror or of a kept cut changes.",
    )


class RebuildConfig(dg.Config):
    """Options for rebuilding."""

    accept_losses: bool = Field(
        default=False,
        description="Publish the rebuilt tables although they lack something that the published "
        "ones have; the run that refused says what.",
    )


def rebuild_job(steps: ChangefeedSteps) -> dg.JobDefinition:
    """Return the job that makes all tables again from what landed."""
    names = steps.names

    @dg.op(name=names.op("rebuild"), pool=names.pool, out=dg.Out(dg.Nothing))
    def rebuilt(
        context: dg.OpExecutionContext, config: RebuildConfig, ticdc_spark: LakeSpark
    ) -> None:
        with steps.writing(context), watched() as ran:
            lake = steps.lake.using(ticdc_spark.spark_session)
            done = steps.note(rebuild(lake, accept_losses=config.accept_losses))
            if done.cut is not None and done.cut.mirrors:
                tables = {(item.database, item.table) for item in done.cut.mirrors}
                log_news(context, Reporter(steps, context.instance).tables(done.cut, tables))
        _log(context, done.lines(), ran)

    return op_job(
        steps,
        "rebuild",
        rebuilt,
        f"Makes all tables of {names.changefeed} again from what landed, compares the mirrors with "
        "the published ones, and publishes them by one cut. Syncs wait; readers have the old "
        "mirrors until then.",
    )


def _log(context: dg.OpExecutionContext, lines: Iterable[str], ran: Ran) -> None:
    for line in filter(None, (*lines, ran.sentence)):
        context.log.info("%s", line)


def _times(said: str | None, default: str, *, runs_by_default: bool = False) -> dict[str, Any]:
    """Return when a schedule is due, and whether it runs, by its setting: a time, or None.

    Without one it has the default time; if it does not run then, it can be started by hand.
    """
    return {
        "cron_schedule": said or default,
        "execution_timezone": "UTC",
        "default_status": dg.DefaultScheduleStatus.RUNNING
        if said is not None or runs_by_default
        else dg.DefaultScheduleStatus.STOPPED,
    }


def job_schedules(steps: ChangefeedSteps) -> list[dg.ScheduleDefinition]:
    """Return the schedules of maintenance, of verify, of redecoding, and of the page.

    Maintenance runs by default: nothing else removes files, and reading slows down as they pile up.
    Verify decodes every landed record, next to syncs, so the operator chooses the time. There is no
    schedule if its setting is off: otherwise it would run once somebody started it in the UI.
    """
    names, said = steps.names, steps.changefeed.schedules
    schedules: list[dg.ScheduleDefinition] = []
    if said.maintenance != OFF:
        schedules.append(
            dg.ScheduleDefinition(
                name=names.schedule("maintenance"),
                job_name=names.job("maintenance"),
                **_times(said.maintenance, "30 1 * * *", runs_by_default=True),
                description="Daily at 1:30 UTC, when the day before is complete, or when "
                "`schedules.maintenance` of the changefeed says.",
            )
        )
    if said.verify != OFF:
        schedules.append(
            dg.ScheduleDefinition(
                name=names.schedule("verify"),
                job_name=names.job("verify"),
                **_times(said.verify, "0 3 * * 0"),
                description="Sundays at 3:00 UTC, or when `schedules.verify` of the changefeed "
                "says. It decodes every landed record, so it is stopped without that setting: "
                "start it if the machine has the capacity.",
            )
        )
    if said.redecode != OFF:
        schedules.append(redecode_schedule(steps))
    if said.report != OFF:
        report = names.asset(REPORT)
        schedules.append(
            dg.ScheduleDefinition(
                name=names.schedule("report"),
                target=dg.AssetSelection.assets(report),
                # The UI shows the target of such a run by its selection alone.
                execution_fn=lambda _: dg.RunRequest(asset_selection=[report], tags=names.tags),
                **_times(said.report, "*/15 * * * *", runs_by_default=True),
                description="Every 15 minutes, or at the times of the setting `schedules.report`, "
                "even if no sync runs.",
            )
        )
    return schedules


def redecode_schedule(steps: ChangefeedSteps) -> dg.ScheduleDefinition:
    """Return the daily schedule that decodes the day before again.

    Without a time in the configuration it is stopped until it is started by hand: it is a proof,
    and costs a day's decoding.
    """
    names = steps.names
    asset = names.asset("change_log")

    @dg.schedule(
        name=names.schedule("redecode"),
        target=dg.AssetSelection.assets(asset),
        # After maintenance, before verify.
        **_times(steps.changefeed.schedules.redecode, "0 2 * * *"),
        description=(
            "Decodes the records landed the day before (UTC) again and compares. It skips, with a "
            "reason, if nothing landed or records of that day were removed."
        ),
    )
    @skipping_unreadable
    def yesterday_again(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        # A schedule made of the partitions would choose today, which is a partition already.
        day = context.scheduled_execution_time.astimezone(UTC).date() - timedelta(days=1)
        if day not in landed_days(steps.paths):
            return dg.SkipReason(f"nothing landed on {day}")
        first = first_whole_day(steps.paths)
        if day < first:
            return dg.SkipReason(
                f"retention removed records or rows of {day}; the first complete day is {first}"
            )
        key = f"{day:{DAY_FORMAT}}"
        return dg.RunRequest(
            run_key=key, partition_key=key, asset_selection=[asset], tags=names.tags
        )

    return yesterday_again
