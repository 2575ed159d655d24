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
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from types import FrameType
from typing import Any, Final, TypeAlias

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus
from pydantic import Field
from pyspark.sql import SparkSession

from ticdc_assets.delta.opening import keeping
from ticdc_assets.observe.verdicts import Level
from ticdc_assets.orchestration.active_runs import (
    FOLLOW_TAG,
    name_worker,
    run_to_let_in,
    signals_handled,
)
from ticdc_assets.orchestration.checks import judge_cheaply
from ticdc_assets.orchestration.following import Following, NewData, SourceWatcher
from ticdc_assets.orchestration.jobs import op_job
from ticdc_assets.orchestration.metadata import (
    Metadata,
    described,
    rate_metadata,
    utc_now,
)
from ticdc_assets.orchestration.resources import LakeSpark
from ticdc_assets.orchestration.steps import ChangefeedSteps, reported_failures
from ticdc_assets.orchestration.syncing import Event, Syncing

REPORT_SECONDS = 60.0
"""The time between reports of syncs with only watermarks, and of checks with the same verdict."""

CHANGES_SECONDS = 30.0
"""The time between reports while syncs bring changes: Dagster's automations tick that often."""

_Event: TypeAlias = Event | dg.AssetCheckEvaluation


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
        self._unreported = Unreported()
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
            events += self._unreported.take()
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
        # Events about other assets are always kept: no later sync repeats them.
        self._unreported.add(event for step in done for event in step.events)
        if new_data is not NewData.NOTHING:
            # All steps or none: an asset whose upstream is newer is shown as out of date.
            self._unreported.add(report for step in done for report in step.reports)
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


_ADDED: Final[Mapping[str, tuple[str, ...]]] = {
    "raw_messages": ("records",),
    "decode_messages": ("changes*", "quarantined", "batches"),
    "quarantine": ("quarantined",),
    "change_log": ("appended",),
    "schema_registry": (),
    "apply_changes": ("replays", "late"),
    "mirrors/*": ("changes",),
    "histories/*": (),
}
"""Patterns of the numbers' names, by the asset: its key without the changefeed and the table."""


class Unreported:
    """The events of syncs that are not reported yet, one for each asset and partition.

    Numbers that count what a sync did (`_ADDED`) are added, so a plot in the UI keeps its sum. All
    other metadata is the newest sync's. An observation stays as it is.
    """

    def __init__(self) -> None:
        self._events: dict[object, Event] = {}

    def __bool__(self) -> bool:
        """Return whether there is any event."""
        return bool(self._events)

    def add(self, events: Iterable[Event]) -> None:
        """Keep the events of a sync; those on the same asset and partition become one."""
        for event in events:
            _, name, *table = event.asset_key.path
            kind = f"{name}/*" if table else name
            if kind not in _ADDED or isinstance(event, dg.AssetObservation):
                self._events[len(self._events)] = event
                continue
            place = (event.asset_key, event.partition)
            older = self._events.get(place)
            self._events[place] = event if older is None else _together(older, event, kind)

    def take(self) -> list[Event]:
        """Return the events, and keep them no longer."""
        events, self._events = self._events, {}
        return list(events.values())


def _together(older: Event, newer: Event, kind: str) -> Event:
    both = (older.metadata, newer.metadata)
    metadata: Metadata = dict(newer.metadata)
    for name in {**newer.metadata, **older.metadata}:
        if any(fnmatchcase(name, pattern) for pattern in _ADDED[kind]):
            metadata[name] = sum(_value(item, name) for item in both)
    if all("seconds" in item for item in both):
        metadata.pop("per_second", None)
        done = sum(_value(item, "per_second") * _value(item, "seconds") for item in both)
        metadata |= rate_metadata(round(done), sum(_value(item, "seconds") for item in both))
    said = None if newer.description is None else described(kind, metadata)
    return dg.AssetMaterialization(
        asset_key=newer.asset_key,
        partition=newer.partition,
        description=said or newer.description,
        metadata=metadata,
        tags=newer.tags,
    )


def _value(metadata: Mapping[str, dg.MetadataValue], name: str) -> Any:
    return metadata[name].value if name in metadata else 0
