"""The follow run: one process, one warm Spark session, sync after sync.

In: a changefeed. Out: the same tables and the same reports in Dagster as from runs of the sync job,
without starting a process and a session each time. `following` decides when to sync, wait and end;
`syncing` does a sync. This module reports several syncs as one: Dagster keeps every event, so one
for each fills the disk.

A sync with changes is reported at once if the last report is at least 30 s old, otherwise together
with the syncs after it, 30 s after that report or when the run ends. Syncs that had only watermarks
are reported once a minute. The checks that read small tables are evaluated after each sync, and
reported at most once a minute unless a verdict changes.

The writer lock is held during each sync, not between syncs. After a signal (cancelling the run,
Ctrl-C) the current sync finishes; a second signal stops it. Killing the run is safe at any time:
the next sync finishes its work.
"""

import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import suppress
from types import FrameType
from typing import TypeAlias

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus
from pydantic import Field
from pyspark.sql import SparkSession

from ticdc_assets.delta.opening import keeping
from ticdc_assets.log.watching import SourceWatcher
from ticdc_assets.observe.verdicts import Level
from ticdc_assets.orchestration.active_runs import (
    FOLLOW_TAG,
    name_worker,
    run_to_let_in,
    signals_handled,
)
from ticdc_assets.orchestration.checks import judge_cheaply
from ticdc_assets.orchestration.following import Following, NewData
from ticdc_assets.orchestration.jobs import op_job
from ticdc_assets.orchestration.metadata import utc_now
from ticdc_assets.orchestration.reporting import News, events_of
from ticdc_assets.orchestration.resources import LakeSpark
from ticdc_assets.orchestration.steps import ChangefeedSteps, reported_failures
from ticdc_assets.orchestration.syncing import Syncing

REPORT_SECONDS = 60.0
"""The time between reports of syncs with only watermarks, and of checks with the same verdict."""

CHANGES_SECONDS = 30.0
"""The time between reports while syncs bring changes: Dagster's automations tick that often."""

_Event: TypeAlias = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation


class FollowConfig(dg.Config):
    """Options for following."""

    seconds: float | None = Field(
        default=None,
        ge=0,
        description="How long it keeps syncing; by default the changefeed's follow_seconds.",
    )
    rest_seconds: float | None = Field(
        default=None,
        gt=0,
        description="Pause between two checks of the source; by default 1 s, and up to 10 s after "
        "syncs that had only watermarks.",
    )


def follow_job(steps: ChangefeedSteps) -> dg.JobDefinition:
    """Return the job whose run follows the source of a changefeed."""
    names, default = steps.names, steps.changefeed.follow_seconds

    @dg.op(
        name=names.op("follow"),
        pool=names.pool,
        out=dg.Out(dg.Nothing),
        description=(
            "Syncs, waits until the source has more records, syncs again. It ends after a sync "
            f"when its time is over (follow_seconds, {default:g} s, or `seconds` of its run "
            "configuration) or when another run of the changefeed waits."
        ),
    )
    def follow(
        context: dg.OpExecutionContext, config: FollowConfig, ticdc_spark: LakeSpark
    ) -> Iterator[_Event | dg.Output[None]]:
        name_worker(context, steps.paths, steps.changefeed.writer)
        seconds = default if config.seconds is None else config.seconds
        with reported_failures(steps.paths):
            surroundings = Surroundings(steps, ticdc_spark.spark_session, context)
            following = Following(surroundings, seconds, config.rest_seconds)
            steps.note(following.followed)
            yield from surroundings.follow(following)
        if following.followed.is_stopped:
            run = context.instance.get_run_by_id(context.run_id)
            if run is not None and run.status is DagsterRunStatus.CANCELING:
                # Otherwise the run would end as done.
                raise dg.DagsterExecutionInterruptedError(following.followed.summary)
        yield dg.Output(None)

    return op_job(
        steps,
        "follow",
        follow,
        f"Keeps the mirrors of {names.changefeed} as fresh as possible: one run that syncs "
        "repeatedly in one process. The sensor requests it; other runs of the changefeed wait for "
        "at most one of its syncs.",
        {FOLLOW_TAG: "true"},
    )


class Surroundings:
    """The context of one run that follows, and its reports."""

    def __init__(
        self, steps: ChangefeedSteps, spark: SparkSession, context: dg.OpExecutionContext
    ) -> None:
        self._steps = steps
        self._context = context
        self._syncing = Syncing(steps, spark, self._instance)
        self._news = SourceWatcher(steps.lake)
        self._stop = threading.Event()
        self._checks: list[_Event] = []
        self._unreported: list[News] = []
        self._has_changes = False
        self._reported_at = float("-inf")
        self._levels: dict[dg.AssetCheckKey, Level] = {}
        self._judged_at = float("-inf")
        self._number = 0

    @property
    def _instance(self) -> DagsterInstance:
        return self._context.instance

    def follow(self, following: Following) -> Iterator[_Event]:
        """Follow, and yield reports as soon as they are due.

        A failure or a second signal interrupts the last sync; the syncs before it are reported.
        """
        loop = following.run()
        goes_on: object = True
        while goes_on is not None:
            try:
                # The handlers of Dagster and Spark would interrupt a sync; they are restored
                # whenever this generator yields.
                with signals_handled(self._stop_on_signal):
                    goes_on = next(loop, None)
            except (Exception, KeyboardInterrupt):
                yield from self._due(is_last=True)
                raise
            yield from self._due(is_last=goes_on is None)

    def _due(self, *, is_last: bool) -> list[_Event]:
        """Return the reports that are due; at the end of the run, all of them."""
        events: list[_Event] = []
        patience = CHANGES_SECONDS if self._has_changes else REPORT_SECONDS
        if self._unreported and (is_last or self.now() - self._reported_at >= patience):
            events += events_of(self._unreported)
            self._unreported = []
            self._has_changes = False
            self._reported_at = self.now()
        events += self._checks
        self._checks = []
        return events

    def _stop_on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt
        self._stop.set()
        with suppress(RuntimeError):  # the signal interrupted another line
            self._steps.say("stopping after the sync under way; Ctrl-C again stops at once")

    def now(self) -> float:
        """Return seconds of a clock that never goes back."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Let time pass; return early when stopped."""
        self._stop.wait(seconds)

    def is_stopped(self) -> bool:
        """Return whether to stop."""
        return self._stop.is_set()

    def other_run(self) -> str:
        """Return another run that wants to write, in words; "" if there is none."""
        return run_to_let_in(self._instance, self._steps.names, self._context.run_id, utc_now())

    def look(self) -> Hashable:
        """Return how far the source is; equal as long as it has nothing more."""
        return self._news.look()

    def say(self, text: str) -> None:
        """Write a line to the log of the run."""
        self._context.log.info("%s", text)
        self._steps.say(text)

    def sync(self) -> NewData:
        """Sync once, and keep its reports."""
        began = self.now()
        self._number += 1
        steps, run = self._steps, self._context.run_id
        with keeping(f"{run} {self._number}"), steps.lake.writing(run=run):
            done = (
                self._syncing.land(),
                self._syncing.decode(),
                self._syncing.register(),
                self._syncing.apply(),
            )
        # Only callers that run a job once need results; here they would pile up.
        del self._steps.results[1:]
        new_data = max((step.new_data for step in done), key=list(NewData).index)
        if new_data is not NewData.NOTHING:
            landed, decoded, _, applied = (step.said for step in done)
            self.say(f"{applied} ({landed}, {decoded}, {self.now() - began:.1f} s)")
        # News of other assets is always kept: no later sync repeats it.
        self._unreported += [item for step in done for item in step.news]
        if new_data is not NewData.NOTHING:
            # All steps or none: an asset whose upstream is newer is shown as out of date.
            self._unreported += [report for step in done for report in step.reports]
        self._has_changes |= new_data is NewData.CHANGES
        self._judge()
        return new_data

    def _judge(self) -> None:
        """Evaluate the checks that read small tables; report those that are due."""
        due = self.now() - self._judged_at >= REPORT_SECONDS
        with keeping(f"{self._context.run_id} {self._number}"):
            verdicts = judge_cheaply(self._steps, self._instance, utc_now())
        for key, verdict in verdicts.items():
            if due or verdict.level is not self._levels.get(key):
                self._checks.append(verdict.evaluation(key))
                self._levels[key] = verdict.level
        if due:
            self._judged_at = self.now()
