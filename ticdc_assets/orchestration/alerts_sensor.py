"""The sensor that alerts people about problems: checks that do not pass, and runs that failed.

In: the latest evaluation of each check of the changefeed, and its newest runs, from Dagster. Out:
one message to each target of the changefeed's `alerts` with the changes since its last message. It
requests no run and reads no table.

The cursor records the problems that each target knows. A target that does not accept a message gets
it at a later tick. Losing the cursor sends all problems once more. `table_lag` is left out:
`replication_lag` and `mirrors_complete` cover all tables in one sentence.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import dagster as dg
from dagster import DagsterEventType, DagsterInstance, DagsterRun, DagsterRunStatus, RunsFilter

from ticdc_assets.base.errors import TicdcError
from ticdc_assets.base.names import counted
from ticdc_assets.config import Alerts
from ticdc_assets.observe.alerting import Problem, deliver, news
from ticdc_assets.observe.verdicts import Check, Level
from ticdc_assets.orchestration.mirror_assets import WEBSERVER
from ticdc_assets.orchestration.partitions import ANONYMOUS, IMPLICIT_ASSET_JOB_NAME, FeedNames
from ticdc_assets.orchestration.sensors import cursor_text, read_cursor
from ticdc_assets.orchestration.verdicts import OPEN, SEEN_UNTIL, shown_verdicts

INTERVAL_SECONDS = 30

_RUNS_LOOKED_AT = 50
_RUNS_OF_A_JOB = 10
_WILL_RETRY = "dagster/will_retry"


def alerts_sensors(
    names: FeedNames, alerts: Alerts, checks: Iterable[dg.AssetChecksDefinition]
) -> list[dg.SensorDefinition]:
    """Return the sensor that alerts people about one changefeed; none without a target."""
    if not alerts.to:
        return []
    keys = sorted({key for check in checks for key in check.check_keys})
    targets = ", ".join(str(target) for target in alerts.to)

    @dg.sensor(
        name=f"{names.changefeed}_alerts",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            f"Alerts {targets} when checks of {names.changefeed} {alerts.level}, when runs fail, "
            "and when they recover. It requests no run."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        current = list(problems(context.instance, names, keys))
        sent = read_cursor(context.cursor, dict[str, dict[str, str]])
        counts = counted(len(current), "problem")
        for target in alerts.to:
            least = Level[alerts.level.upper()]
            before = sent.get(target.shown, {})
            message, after = news(names.changefeed, current, before, least)
            try:
                if message is not None:
                    deliver(message, target)
            except TicdcError as error:
                context.log.error("%s", error)  # noqa: TRY400  # the sentence says it all
                counts += f"; {error}; it is tried again"
                continue
            sent[target.shown] = after
            counts += (
                f"; {target}: {counted(0 if message is None else message.changes, 'change')} sent"
            )
        return dg.SensorResult(skip_reason=counts, cursor=cursor_text(sent))

    return [sensor]


def problems(
    instance: DagsterInstance, names: FeedNames, keys: Sequence[dg.AssetCheckKey]
) -> Iterator[Problem]:
    """Yield the problems of a changefeed, from Dagster's records of its checks and runs."""
    server = os.environ.get(WEBSERVER, "").rstrip("/")
    for key, shown in sorted(shown_verdicts(instance, keys).items()):
        evaluation = shown.evaluation
        is_growth = key.name == Check.QUARANTINE_GROWTH
        event, growth = _growth(evaluation) if is_growth else ("", "")
        if not evaluation.passed or event:
            path = "/".join(key.asset_key.path)
            yield Problem(
                name=key.name,
                level=Level.WARN if evaluation.passed else shown.level,
                sentence=growth if evaluation.passed else evaluation.description or "",
                link=server and f"{server}/assets/{path}?view=checks&checkDetail={key.name}",
                event=event,
            )
    for run in _newest_runs(instance, names):
        if run.status is DagsterRunStatus.FAILURE:
            is_implicit = run.job_name == IMPLICIT_ASSET_JOB_NAME
            work = ", ".join(sorted(_chosen(run))) if is_implicit else ""
            yield Problem(
                name=f"run of {work or run.job_name.removeprefix(ANONYMOUS)}",
                level=Level.FAIL,
                sentence=_why(instance, run),
                link=server and f"{server}/runs/{run.run_id}",
            )


def _growth(evaluation: dg.AssetCheckEvaluation) -> tuple[str, str]:
    """Return when the newest record came to quarantine, in ISO 8601, and a sentence about it.

    Both are "" if no record is open. The evaluation with the growth may be gone: a run that follows
    evaluates after each sync, and Dagster keeps one evaluation of a run.
    """
    values = {name: item.value for name, item in evaluation.metadata.items()}
    seen_until, left = str(values.get(SEEN_UNTIL) or ""), values.get(OPEN)
    if not seen_until or not left:
        return "", ""
    at = datetime.fromisoformat(seen_until)
    return (
        seen_until,
        f"Records came to quarantine, the last at {at:%Y-%m-%d %H:%M:%S} UTC; {left} are open "
        "in total.",
    )


def _newest_runs(instance: DagsterInstance, names: FeedNames) -> Iterator[DagsterRun]:
    """Yield the newest ended run of each job that is not retried.

    Runs of chosen assets all have one job: the newest of each choice counts, unless a later run
    made all of these assets with success.
    """
    newest: dict[str, DagsterRun] = {}
    # First the runs of all jobs, including a user's own. Then each job by name: the last run of one
    # that runs seldom is older than many others.
    for job in (None, *names.jobs):
        if job in newest:
            continue
        for run in _ended(instance, names, job, _RUNS_LOOKED_AT if job is None else _RUNS_OF_A_JOB):
            newest.setdefault(run.job_name, run)
    newest.pop(IMPLICIT_ASSET_JOB_NAME, None)
    yield from newest.values()
    later: list[DagsterRun] = []
    for run in _ended(instance, names, IMPLICIT_ASSET_JOB_NAME, _RUNS_LOOKED_AT):
        if not any(_makes_up_for(one, run) for one in later):
            yield run
        later.append(run)


def _ended(
    instance: DagsterInstance, names: FeedNames, job: str | None, limit: int
) -> Iterator[DagsterRun]:
    """Yield the last ended runs of a job, or of all, that are not retried."""
    ended = RunsFilter(
        job_name=job, tags=names.tags, statuses=[DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE]
    )
    for run in instance.get_runs(filters=ended, limit=limit):
        if run.tags.get(_WILL_RETRY) != "true":
            yield run


def _makes_up_for(later: DagsterRun, run: DagsterRun) -> bool:
    after, before = _chosen(later), _chosen(run)
    if later.status is DagsterRunStatus.SUCCESS:
        return not after or (bool(before) and before <= after)
    return after == before


def _chosen(run: DagsterRun) -> frozenset[str]:
    """Return the assets and checks that were selected for a run; none if all were."""
    assets = {key.to_user_string() for key in run.asset_selection or ()}
    checks = {
        f"{key.asset_key.to_user_string()}:{key.name}" for key in run.asset_check_selection or ()
    }
    return frozenset(assets | checks)


def _why(instance: DagsterInstance, run: DagsterRun) -> str:
    """Return why a run failed: the error of the step that failed, or what ended the run."""
    kinds = {DagsterEventType.STEP_FAILURE, DagsterEventType.RUN_FAILURE}
    entries = instance.all_logs(run.run_id, of_type=kinds)
    for entry in entries:
        event = entry.dagster_event
        if event is not None and event.event_type is DagsterEventType.STEP_FAILURE:
            error = event.step_failure_data.error
            while error is not None and error.cause is not None:
                error = error.cause
            if error is not None:
                first, _, _ = error.message.strip().partition("\n")
                return f"{event.step_key}: {first}"
    texts = [entry.dagster_event.message for entry in entries if entry.dagster_event is not None]
    return next((text for text in texts if text), "it failed, and its log says no reason")
