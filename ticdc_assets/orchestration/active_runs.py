"""The queued and running runs of a changefeed, and the processes that work on them.

The sensor requests no sync while there is such a run, whichever program started it, and a follow
run ends for one. Dagster notices a dead process only of runs that have not begun: `end_orphans`
marks all others as ended, with the tag that each run gets here. The number of a process has a
meaning only in its container, and until the machine restarts. So the tag also names a lock that the
process holds while it lives (`delta.lock.seen_at_work`).
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from types import FrameType

import dagster as dg
import msgspec
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, RunRecord, RunsFilter

from ticdc_assets.base.names import counted
from ticdc_assets.config import Writer
from ticdc_assets.delta.lease import Holder, started_at, this_process
from ticdc_assets.delta.lock import nobody_at_work, seen_at_work
from ticdc_assets.observe.wording import duration
from ticdc_assets.orchestration.partitions import (
    CHANGEFEED_TAG,
    REPORT,
    TABLE_LAG,
    FeedNames,
    JobKind,
)
from ticdc_assets.storage.lake_paths import LakePaths

WORKER_TAG = ".dagster/ticdc_worker"
"""Tag of a run: which process works on it, a `Worker` as JSON. The UI hides tags that begin so."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that works on a run, and the file whose lock it holds; "" if it holds none."""

    run: str
    process: Holder
    lock: str = ""

    @property
    def tag(self) -> dict[str, str]:
        """The tag of the run."""
        return {WORKER_TAG: msgspec.json.encode(self).decode()}

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended; False if unknown (of another host, without a lock)."""
        process, this = self.process, this_process()
        if self.lock and not (process.machine and process.machine == this.machine):
            return nobody_at_work(self.lock)
        if process.host != this.host:
            return False
        # A process id is given again after a while; then the start time differs.
        start = started_at(process.process)
        return start is None or bool(start and process.started and start != process.started)


def worker_of(run: DagsterRun) -> Worker | None:
    """Return the process that works on a run; None before it has named itself.

    A run that Dagster starts again has the tags of the run before, with the name of a dead process.
    """
    try:
        worker = msgspec.json.decode(run.tags.get(WORKER_TAG, ""), type=Worker)
    except msgspec.MsgspecError:
        return None
    return worker if worker.run == run.run_id else None


_ONE_PROCESS = ("in_process", "execute_in_process_executor")
"""The executors that run all steps of a run in one process."""

_LOCKS: dict[LakePaths, tuple[ExitStack, str]] = {}
"""The locks that this process holds until it ends, by changefeed."""


def name_worker(
    context: dg.AssetExecutionContext | dg.OpExecutionContext | dg.AssetCheckExecutionContext,
    paths: LakePaths,
    writer: Writer,
) -> None:
    """Tag the run of a step with the process that works on it, unless it has this tag.

    That is this process, or the parent of one that an executor started for this step alone.
    """
    run, process = context.run, this_process()
    is_whole = context.job_def.executor_def.name in _ONE_PROCESS
    if not is_whole:
        parent = os.getppid()
        process = replace(process, process=parent, started=started_at(parent) or "")
    current = worker_of(run)
    if current is not None and current.process == process:
        return
    if is_whole and paths not in _LOCKS:
        stack = ExitStack()
        _LOCKS[paths] = stack, stack.enter_context(seen_at_work(paths, writer))
    worker = Worker(run.run_id, process, _LOCKS[paths][1] if is_whole else "")
    context.instance.add_run_tags(run.run_id, worker.tag)


@contextmanager
def signals_handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Have SIGINT and SIGTERM call `handler`. Python allows this in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


QUEUED_STATUSES = (DagsterRunStatus.NOT_STARTED, DagsterRunStatus.QUEUED)

ACTIVE_STATUSES = (
    *QUEUED_STATUSES,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
)

STATUS_WORDS = {
    DagsterRunStatus.NOT_STARTED: "queued",
    DagsterRunStatus.QUEUED: "queued",
    DagsterRunStatus.STARTING: "starting",
    DagsterRunStatus.STARTED: "at work",
    DagsterRunStatus.CANCELING: "being cancelled",
}

RUNS_LOOKED_AT = 10
"""How many of a job's newest runs count when a run is requested again."""

_FIRST_PAUSE_SECONDS = 60
_LONGEST_PAUSE_SECONDS = 1800

_LONG_QUEUED_SECONDS = 60.0

_SILENT_SECONDS = 900.0
"""How long a run may be silent before its first step. One that waits for a pool says so every
300 s (`CONCURRENCY_CLAIM_MESSAGE_INTERVAL` of Dagster)."""

_READING_JOBS: tuple[JobKind, ...] = ("verify", "diff", "report")


_ACTIVE = RunsFilter(statuses=list(ACTIVE_STATUSES))


def active_runs(instance: DagsterInstance, names: FeedNames) -> list[DagsterRun]:
    """Return the runs of the changefeed that write and are queued or at work."""
    return [run for run in instance.get_runs(filters=_ACTIVE) if _belongs(run, names)]


def pause_after_failures(records: Sequence[RunRecord], now: datetime) -> str:
    """Return why no run is requested now, if the newest runs failed; "" if one may be requested.

    `records` are runs of the same work, newest first; each failure in a row doubles the pause.
    """
    failed = list(takewhile(lambda it: it.dagster_run.status is DagsterRunStatus.FAILURE, records))
    if not failed:
        return ""
    pause = min(_FIRST_PAUSE_SECONDS * 2 ** (len(failed) - 1), _LONGEST_PAUSE_SECONDS)
    again = datetime.fromtimestamp(failed[0].end_time or 0, UTC) + timedelta(seconds=pause)
    if now >= again:
        return ""
    return (
        f"run {failed[0].dagster_run.run_id} failed ({len(failed)} in a row); the next try is at "
        f"{again:%Y-%m-%d %H:%M:%S} UTC"
    )


def run_to_let_in(instance: DagsterInstance, names: FeedNames, own_id: str, now: datetime) -> str:
    """Return the run, in words, that the run `own_id` must end for; "" if there is none.

    That is any other run of the changefeed. It is also a run of another changefeed that has long
    been queued because of the limit on runs, if `own_id` is the oldest follow run: followed
    changefeeds must not keep all others out.
    """
    records = instance.get_run_records(filters=_ACTIVE)
    others = [item for item in records if item.dagster_run.run_id != own_id]
    for record in others:
        run = record.dagster_run
        worker = worker_of(run)
        if _belongs(run, names) and (worker is None or not worker.is_gone):
            return f"{run.job_name} {run.run_id} is {STATUS_WORDS[run.status]}"
    limit = instance.get_concurrency_config().run_queue_config
    at_work = [item for item in records if item.dagster_run.status not in QUEUED_STATUSES]
    if limit is None or not 0 <= limit.max_concurrent_runs <= len(at_work):
        return ""
    follows = [item for item in at_work if FOLLOW_TAG in item.dagster_run.tags]
    oldest = min(follows, key=lambda item: (item.create_timestamp, item.storage_id), default=None)
    if oldest is None or oldest.dagster_run.run_id != own_id:
        return ""
    for record in others:
        run, waits = record.dagster_run, now - record.create_timestamp.astimezone(UTC)
        if run.status in QUEUED_STATUSES and waits.total_seconds() > _LONG_QUEUED_SECONDS:
            return (
                f"{run.job_name} {run.run_id} has been queued for "
                f"{duration(waits.total_seconds())}; "
                f"the limit is {counted(len(at_work), 'run')} at a time"
            )
    return ""


FOLLOW_TAG = "ticdc/follow"
"""Tag of the runs that follow their source."""


def end_orphans(instance: DagsterInstance, names: FeedNames, now: datetime) -> list[str]:
    """Mark runs as ended whose process has ended without a report; return their ids.

    Without this, a run that was killed at work would look active for ever, and one that only reads
    would keep its place among the runs that the instance allows.
    """
    ended: list[str] = []
    for run in instance.get_runs(filters=_ACTIVE):
        if not (_belongs(run, names) or _reads(run, names)):
            continue
        worker = worker_of(run)
        if worker is not None and worker.is_gone:
            process = f"{worker.process.process} of {worker.process.host}"
            why = f"process {process}, which worked on the run, is gone"
        elif _died_early(instance, names, run, now):
            why = f"the run began no step within {_SILENT_SECONDS:.0f} s: its process is gone"
        else:
            continue
        # It may have ended well meanwhile.
        fresh = instance.get_run_by_id(run.run_id)
        if fresh is not None and fresh.status in ACTIVE_STATUSES:
            if fresh.status is DagsterRunStatus.CANCELING:
                # As a failure it would be started again.
                instance.report_run_canceled(fresh, why)
            else:
                instance.report_run_failed(fresh, why)
            ended.append(run.run_id)
    return ended


def _died_early(
    instance: DagsterInstance, names: FeedNames, run: DagsterRun, now: datetime
) -> bool:
    """Return whether a run's process was killed before the first step named it, as each does."""
    is_ours = run.status is DagsterRunStatus.STARTED and run.job_name in names.jobs
    if not is_ours or worker_of(run) is not None:
        return False
    newest = instance.event_log_storage.get_logs_for_run(run.run_id, limit=1, ascending=False)
    return any(now.timestamp() - entry.timestamp > _SILENT_SECONDS for entry in newest)


def _belongs(run: DagsterRun, names: FeedNames) -> bool:
    """Return whether a run writes to the changefeed's tables, or waits for its pool."""
    if run.job_name in map(names.job, _READING_JOBS):
        return False
    return (
        run.tags.get(CHANGEFEED_TAG) == names.changefeed
        or run.job_name in names.jobs
        # Runs that the UI starts belong to an implicit job, without this package's tags.
        or any(
            # The report only reads.
            key.path[0] == names.changefeed and key != names.asset(REPORT)
            for key in run.asset_selection or ()
        )
        or any(
            key.name == TABLE_LAG and key.asset_key.path[0] == names.changefeed
            for key in run.asset_check_selection or ()
        )
    )


def _reads(run: DagsterRun, names: FeedNames) -> bool:
    checked = (key.asset_key for key in run.asset_check_selection or ())
    return run.job_name in map(names.job, _READING_JOBS) or any(
        key.path[0] == names.changefeed for key in (*(run.asset_selection or ()), *checked)
    )
