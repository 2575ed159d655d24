"""The sensor of one changefeed: it reports the progress in numbers and requests runs.

In: the offsets of the source, and the small tables with the lake's progress; no Spark. Out: at most
one run of the follow job (of the sync job if `follow_seconds` is 0), or a reason why not. The state
is in the lake; the cursor only prevents repeated reports, so losing it does no harm.

It requests a run when records wait, a partition is new, a landed batch is not decoded, a decoded
batch is not applied, or the watermark is beyond the newest cut. It requests none while a run of the
changefeed is queued or running, and after failed runs it waits longer and longer. The run key names
the last run, so each run is followed by one request, whatever became of it.

It runs by default: nothing else starts a sync, and mirrors that silently stop are worse than a
sensor that runs unasked. Every tick asks the source once, hence 20 s.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

import dagster as dg
import msgspec
from dagster import DagsterInstance, RunsFilter

from ticdc_assets.base.errors import UNREADABLE
from ticdc_assets.base.names import counted
from ticdc_assets.log.cuts import Cut
from ticdc_assets.log.positions import known_partitions
from ticdc_assets.model.tso import lag_seconds
from ticdc_assets.observe.judging import watermark_text
from ticdc_assets.observe.status import Status
from ticdc_assets.observe.status_reading import see_status
from ticdc_assets.observe.verdicts import Check, Level
from ticdc_assets.observe.wording import duration
from ticdc_assets.orchestration.active_runs import (
    RUNS_LOOKED_AT,
    STATUS_WORDS,
    active_runs,
    end_orphans,
    pause_after_failures,
)
from ticdc_assets.orchestration.checks import readable_key, status_verdicts
from ticdc_assets.orchestration.metadata import LOOKED_AT_BATCH, offsets_metadata, utc_now
from ticdc_assets.orchestration.partitions import FeedNames
from ticdc_assets.orchestration.steps import ChangefeedSteps
from ticdc_assets.orchestration.verdicts import CheckVerdict, Shown, judge_damage, shown_verdicts

INTERVAL_SECONDS = 20
OBSERVATION_SECONDS = 60
REPEAT_SECONDS = 900
"""Seconds after which a bad verdict is reported again, with current numbers."""


_Cursor = TypeVar("_Cursor")


def read_cursor(text: str | None, kind: type[_Cursor]) -> _Cursor:
    """Return the cursor of a sensor from its JSON; `kind()` of a text that a person has changed."""
    try:
        return msgspec.json.decode(text or "{}", type=kind)
    except msgspec.MsgspecError:
        return kind()


def cursor_text(cursor: object) -> str:
    """Return a cursor as JSON."""
    return msgspec.json.encode(cursor).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorCursor:
    """The state that the sensor keeps from tick to tick.

    It has since when the source fails, as messages say it, and the digest and the time (epoch
    seconds) of the offsets observed last.
    """

    failing_since: str = ""
    observed: str = ""
    observed_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorState:
    """The progress of a changefeed, and what else is a reason for a sync.

    Attributes:
        status: the progress, with the source's partitions as they are now.
        known: partitions that a landing has seen.
        applied_batch: batch of the change log that the last apply looked at.
    """

    status: Status
    known: frozenset[tuple[str, int]]
    applied_batch: int

    def reasons(self) -> list[str]:
        """Return the reasons for a sync; [] if there is nothing to do."""
        status = self.status
        reasons: list[str] = []
        if status.backlog:
            reasons.append(counted(status.backlog, "record waits", "records wait"))
        new = [item for item in status.partitions if (item.topic, item.partition) not in self.known]
        if new:
            places = ", ".join(f"{item.topic}/{item.partition}" for item in new)
            reasons.append(f"{counted(len(new), 'new partition')} ({places})")
        if status.landed_batch > status.decoded_batch:
            batches = status.landed_batch - status.decoded_batch
            reasons.append(counted(batches, "landed batch waits", "landed batches wait"))
        if status.log_batch > self.applied_batch:
            reasons.append(f"batch {status.log_batch} of the change log was not applied yet")
        watermark = status.watermark.watermark_ts
        if watermark is not None and watermark > (status.cut.tso if status.cut else 0):
            reasons.append("the watermark is beyond the newest cut")
        return reasons

    def numbers(self, now: datetime) -> str:
        """Return the progress in one sentence."""
        status = self.status
        there = sum(item.end - item.earliest for item in status.partitions)
        landed = there - status.backlog
        applied = "nothing is applied yet"
        if status.cut is not None:
            ago = duration(lag_seconds(status.cut.tso, now))
            applied = f"applied {status.cut.moment}, {ago} ago"
        return (
            f"landed {landed:,} of {counted(there, 'record')} in "
            f"{counted(len(status.partitions), 'partition')}, "
            f"{status.backlog:,} wait; {watermark_text(status)}; {applied}"
        )

    def offsets_digest(self) -> str:
        """Return a short text that changes with the source's or the landed offsets."""
        offsets = [list(asdict(item).values()) for item in self.status.partitions]
        return hashlib.sha256(json.dumps(offsets).encode()).hexdigest()[:16]


def changefeed_sensor(steps: ChangefeedSteps) -> dg.SensorDefinition:
    """Return the sensor of one changefeed."""
    names = steps.names

    @dg.sensor(
        name=f"{names.changefeed}_sync_sensor",
        job_name=requested_job(steps),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            f"Compares the records in the source of {names.changefeed} with those landed, decoded "
            "and applied, and requests a run when there is work. Every tick without a run says "
            "why, in numbers. It also reports the source's offsets on kafka_topic, and the verdict "
            "of every check that needs no Spark when it changes, because lag and the age of held "
            "rows grow while no sync runs."
        ),
    )
    def sync_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return tick(context, steps, utc_now())

    return sync_sensor


def tick(
    context: dg.SensorEvaluationContext, steps: ChangefeedSteps, now: datetime
) -> dg.SensorResult:
    """Evaluate the sensor once."""
    instance, names = context.instance, steps.names
    cursor = read_cursor(context.cursor, SensorCursor)
    end_orphans(instance, names, now)
    try:
        request, events, cursor = _ticked(context, steps, cursor, now)
    except UNREADABLE as error:
        # Runs would fail too.
        request, events = (
            str(error),
            _news(instance, {readable_key(names): judge_damage(error)}, now),
        )
    return dg.SensorResult(
        skip_reason=request if isinstance(request, str) else None,
        run_requests=None if isinstance(request, str) else [request],
        cursor=cursor_text(cursor),
        asset_events=events,
    )


def _ticked(
    context: dg.SensorEvaluationContext, steps: ChangefeedSteps, cursor: SensorCursor, now: datetime
) -> tuple[dg.RunRequest | str, list[Any], SensorCursor]:
    """Return what to request or why nothing, and events, if the changefeed's tables can be read."""
    instance, names = context.instance, steps.names
    status, failure = see_status(steps.lake, now)
    events = changed_verdicts(instance, steps, status)
    if failure is not None:
        since = cursor.failing_since or f"{now:%Y-%m-%d %H:%M:%S} UTC"
        request = f"the source is not available (since {since}): {failure}"
        return request, events, replace(cursor, failing_since=since)
    state = sensor_state(instance, steps, status)
    cursor = replace(cursor, failing_since="")
    observed = state.offsets_digest()
    if observed != cursor.observed and now.timestamp() - cursor.observed_at >= OBSERVATION_SECONDS:
        events.append(_observation(names, status))
        cursor = replace(cursor, observed=observed, observed_at=int(now.timestamp()))
    request = requested_run(instance, names, state, now)
    if not isinstance(request, str):
        context.log.info("requesting a run: %s; %s", "; ".join(state.reasons()), state.numbers(now))
    return request, events, cursor


def changed_verdicts(
    instance: DagsterInstance, steps: ChangefeedSteps, status: Status
) -> list[Any]:
    """Return the evaluations of cheap checks whose verdict is not the one that Dagster shows.

    A first verdict that passes is not reported.
    """
    verdicts = status_verdicts(steps.names, status)
    if status.cut is None:
        verdicts = {
            key: item for key, item in verdicts.items() if key.name != Check.REPLICATION_LAG
        }
    verdicts[readable_key(steps.names)] = judge_damage(None)
    return _news(instance, verdicts, status.at)


def _news(
    instance: DagsterInstance, verdicts: Mapping[dg.AssetCheckKey, CheckVerdict], now: datetime
) -> list[Any]:
    shown = shown_verdicts(instance, verdicts)

    def is_news(verdict: CheckVerdict, shown: Shown | None) -> bool:
        is_old = shown is None or shown.at <= now.timestamp() - REPEAT_SECONDS
        is_other = shown is not None and verdict.level is not shown.level
        return is_other or (is_old and verdict.level is not Level.OK)

    return [
        verdict.evaluation(key)
        for key, verdict in verdicts.items()
        if is_news(verdict, shown.get(key))
    ]


def sensor_state(instance: DagsterInstance, steps: ChangefeedSteps, status: Status) -> SensorState:
    """Return the progress, from a status that includes the source's offsets."""
    partitions = known_partitions(steps.paths)
    return SensorState(
        status=status,
        known=frozenset((item.topic, item.partition) for item in partitions),
        applied_batch=applied_batch(instance, steps, status.cut),
    )


def requested_job(steps: ChangefeedSteps) -> str:
    """Return the job that the sensor requests: the follow job, or a single sync."""
    follows = steps.changefeed.follow_seconds > 0
    return steps.names.job("follow") if follows else steps.names.job("sync")


def requested_run(
    instance: DagsterInstance, names: FeedNames, state: SensorState, now: datetime
) -> dg.RunRequest | str:
    """Return the run to request, or why there is none."""
    reasons = state.reasons()
    if state.status.gaps:
        # A run would fail with the same words; a person must decide.
        first, *others = state.status.gaps
        more = f" ({len(others)} more)" if others else ""
        return f"landing is stopped by a {first.error}{more}"
    active = active_runs(instance, names)
    if active:
        run = active[0]
        return f"run {run.run_id} is {STATUS_WORDS[run.status]}; {state.numbers(now)}"
    if not reasons:
        return f"nothing to do: {state.numbers(now)}"
    # A failed sync that a person started counts like one that the sensor requested.
    last = sorted(
        (
            record
            for job in (names.job("sync"), names.job("follow"))
            for record in instance.get_run_records(
                filters=RunsFilter(job_name=job), limit=RUNS_LOOKED_AT
            )
        ),
        key=lambda record: record.create_timestamp,
        reverse=True,
    )
    if pause := pause_after_failures(last, now):
        return f"{pause}; {state.numbers(now)}"
    last_run = last[0].dagster_run.run_id[:8] if last else "none"
    return dg.RunRequest(run_key=f"after {last_run}", tags=names.tags)


def applied_batch(instance: DagsterInstance, steps: ChangefeedSteps, cut: Cut | None) -> int:
    """Return the batch that the last apply looked at; for a rewound cut, the cut's batch."""
    if cut is not None and cut.rewind is not None:
        return cut.batch
    event = instance.get_latest_materialization_event(steps.names.asset("apply_changes"))
    report = None if event is None else event.asset_materialization
    value = None if report is None else report.metadata.get(LOOKED_AT_BATCH)
    looked_at = value.value if isinstance(value, dg.IntMetadataValue) else None
    return max(cut.batch if cut else 0, looked_at or 0)


def _observation(names: FeedNames, status: Status) -> dg.AssetObservation:
    return dg.AssetObservation(
        asset_key=names.asset("kafka_topic"),
        description=f"{counted(status.backlog, 'record waits', 'records wait')} to be landed",
        metadata={
            "backlog": status.backlog,
            "records": sum(item.end - item.earliest for item in status.partitions),
            "partitions": len(status.partitions),
            "offsets": offsets_metadata(status.partitions),
        },
    )
