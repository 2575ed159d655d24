"""The jobs that work on all tables of a changefeed: maintenance and rebuild.

In: a changefeed. Out: the same tables, compacted and without old data, or made again from what
landed. They are jobs and no assets, because nothing is made from what they do, and because
"Materialize all" must not rebuild a lake. Both may be killed anywhere and run again.
"""

from collections.abc import Iterable

import dagster as dg
from pydantic import Field

from ticdc_assets.log.watermark import read_watermark
from ticdc_assets.mirrors.standing import Applying, Outcome
from ticdc_assets.orchestration.metadata import (
    Metadata,
    maintaining_metadata,
    ran_metadata,
    rebuild_metadata,
)
from ticdc_assets.orchestration.resources import LakeSpark
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets.orchestration.syncing import Reporter
from ticdc_assets.repair.maintenance import maintain
from ticdc_assets.repair.rebuilding import rebuild
from ticdc_assets.spark.compute import watched


def maintenance_job(steps: ChangefeedSteps) -> dg.JobDefinition:
    """Return the job that applies retention, compacts and vacuums."""
    names, feed = steps.names, steps.changefeed

    @dg.op(name=names.op("maintenance"), pool=names.pool, out=dg.Out(dg.Nothing))
    def maintenance(context: dg.OpExecutionContext, spark: LakeSpark) -> dg.Output[None]:
        with steps.writing(context), watched() as ran:
            done = steps.note(maintain(steps.lake.using(spark.spark_session)))
        return _told(context, done.lines(), maintaining_metadata(done) | ran_metadata(ran))

    @dg.job(
        name=names.job("maintenance"),
        description=(
            f"Removes data of {feed.name} older than `retention`, compacts small files (OPTIMIZE) "
            "and removes files that no kept cut needs (VACUUM). Syncs wait for it; no row of a "
            "mirror or of a kept cut changes."
        ),
        tags=names.tags,
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        maintenance()

    return job


class RebuildConfig(dg.Config):
    """What a rebuild is allowed."""

    accept_losses: bool = Field(
        default=False,
        description="Publish the rebuilt tables although they lack something that the published "
        "ones have; the run that refused says what.",
    )


def rebuild_job(steps: ChangefeedSteps) -> dg.JobDefinition:
    """Return the job that makes all tables again from what landed."""
    names, feed = steps.names, steps.changefeed

    @dg.op(name=names.op("rebuild"), pool=names.pool, out=dg.Out(dg.Nothing))
    def rebuilt(
        context: dg.OpExecutionContext, config: RebuildConfig, spark: LakeSpark
    ) -> dg.Output[None]:
        with steps.writing(context), watched() as ran:
            done = steps.note(
                rebuild(steps.lake.using(spark.spark_session), accept_losses=config.accept_losses)
            )
            if done.cut is not None:
                applying = Applying(
                    outcome=Outcome.PUBLISHED,
                    reason="rebuilt",
                    cut=done.cut,
                    watermark=read_watermark(steps.paths),
                )
                for event in Reporter(steps, context.instance).mirrors(applying):
                    context.log_event(event)
        return _told(context, done.lines(), rebuild_metadata(done) | ran_metadata(ran))

    @dg.job(
        name=names.job("rebuild"),
        description=(
            f"Makes all tables of {feed.name} again from what landed, compares the mirrors with "
            "the published ones, and publishes them by one cut. Syncs wait; readers have the old "
            "mirrors until then."
        ),
        tags=names.tags,
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        rebuilt()

    return job


def _told(
    context: dg.OpExecutionContext, lines: Iterable[str], metadata: Metadata
) -> dg.Output[None]:
    """Say in the log what was done, and return its figures with the step's output."""
    for line in lines:
        context.log.info("%s", line)
    return dg.Output(None, metadata=metadata)
