"""The process of a run, as a name that a later process can look up in the system.

Dagster notices a dead process only of runs that have not begun; `active_runs.end_orphans` does it
for all others, with the tag that each run gets here. The number of a process has a meaning only in
its container, and until the machine restarts. So the tag also names a lock that the process holds
while it lives (`delta.lock.seen_at_work`).
"""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import NamedTuple

import dagster as dg
from dagster import DagsterRun

from ticdc_assets.config import Writer
from ticdc_assets.delta.lease import Holder, started_at, this_process
from ticdc_assets.delta.lock import nobody_at_work, seen_at_work
from ticdc_assets.storage.lake_paths import LakePaths

WORKER_TAG = "ticdc/worker"
"""Tag of a run: which process works on it; see `worker_tag`."""


class Worker(NamedTuple):
    """A process that works on a run, and the file whose lock it holds; "" if it holds none."""

    process: Holder
    lock: str = ""


def worker_name(process: int | None = None) -> str:
    """Return what identifies a process (None: this one): host, process id, start time."""
    this = this_process()
    number = this.process if process is None else process
    return f"{this.host}:{number}:{started_at(number) or 0}"


def worker_tag(run_id: str, lock: str, name: str | None = None) -> str:
    """Return the tag of a run that a process works on: process, run, machine, lock ("": none)."""
    return "#".join((name or worker_name(), run_id[:8], this_process().machine, lock))


def is_gone(worker: Worker) -> bool:
    """Return whether a process has ended; False if unknown (of another host, without a lock)."""
    process, this = worker.process, this_process()
    if worker.lock and not (process.machine and process.machine == this.machine):
        return nobody_at_work(worker.lock)
    if process.host != this.host:
        return False
    # A process id is given again after a while; then the start time differs.
    start = started_at(process.process)
    return start is None or (start != "" and process.started not in ("0", start))


def worker_of(run: DagsterRun) -> Worker | None:
    """Return the process that works on a run; None before it has named itself.

    A run that Dagster starts again has the tags of the run before, with the name of a dead process.
    """
    # Earlier versions wrote fewer parts.
    name, owner, machine, lock = (run.tags.get(WORKER_TAG, "").split("#", 3) + [""] * 3)[:4]
    parts = re.fullmatch(r"(.+):(\d+):(\d+)", name)
    if parts is None or owner not in ("", run.run_id[:8]):
        return None
    host, process, started = parts.groups()
    holder = Holder(host=host, process=int(process), machine=machine, started=started, command="")
    return Worker(holder, lock)


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
    run = context.run
    is_whole = context.job_def.executor_def.name in _ONE_PROCESS
    name = worker_name(None if is_whole else os.getppid())
    if run.tags.get(WORKER_TAG, "").startswith(f"{name}#{run.run_id[:8]}#"):
        return
    if is_whole and paths not in _LOCKS:
        stack = ExitStack()
        _LOCKS[paths] = stack, stack.enter_context(seen_at_work(paths, writer))
    tag = worker_tag(run.run_id, _LOCKS[paths][1] if is_whole else "", name)
    context.instance.add_run_tags(run.run_id, {WORKER_TAG: tag})


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
