"""The process of a run, as a name that a later process can look up in the system.

A killed run looks active forever unless its dead process is noticed. Dagster's run monitoring does
this only for runs that have not begun; `active_runs.end_orphans` does it for all others, with the
tag that each run gets here.

The number of a process means something only to those who share its numbers: not to another
container, nor after a restart of the machine. So the tag also names a lock that the process holds
while it lives (`delta.lock.seen_at_work`).
"""

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname

import dagster as dg
from dagster import DagsterRun

from ticdc_assets.config import Writer
from ticdc_assets.delta.lease import this_process
from ticdc_assets.delta.lock import nobody_at_work, seen_at_work
from ticdc_assets.storage.lake_paths import LakePaths

WORKER_TAG = "ticdc/worker"
"""Tag of a run: which process works on it; see `worker_tag`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A process that works on a run.

    Attributes:
        name: host, process id and start time; see `worker_name`.
        machine: what is the same for all processes that see each other's numbers; "" if not known.
        lock: the file whose lock it holds; "" if it holds none.
    """

    name: str
    machine: str = ""
    lock: str = ""

    @property
    def process(self) -> int:
        """Its process id, -1 if its name has none."""
        number = self.name.rpartition(":")[0].rpartition(":")[2]
        return int(number) if number.isdigit() else -1


def worker_name() -> str:
    """Return what tells this process from all others: host, process id, start time."""
    return f"{gethostname()}:{os.getpid()}:{_start_time(os.getpid()) or 0}"


def worker_tag(run_id: str, lock: str) -> str:
    """Return the tag of a run that this process works on: process, run, machine, lock.

    Args:
        run_id: id of the run.
        lock: the file whose lock this process holds; "" if it holds none.
    """
    return "#".join((worker_name(), run_id[:8], this_process().machine, lock))


def is_gone(worker: Worker) -> bool:
    """Return whether a process has ended.

    False where nobody can tell from here: a process of another host that held no lock.
    """
    host, _, rest = worker.name.rpartition(":")[0].rpartition(":")
    sees_it = worker.machine != "" and worker.machine == this_process().machine
    if worker.lock and not sees_it:
        return nobody_at_work(worker.lock)
    if host != gethostname() or not rest.isdigit():
        return False
    pid, started = int(rest), worker.name.rpartition(":")[2]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    # A process id is given again after a while; then the start time differs.
    now = _start_time(pid)
    return now is not None and started not in ("0", str(now))


def _start_time(pid: int) -> int | None:
    """Return when a process started, in the kernel's ticks; None where that is not told.

    Ticks since the machine's start are the same whoever asks and whenever. A time of day, as psutil
    tells it, is not: it is that of the clock when the asking program looked, and a clock that was
    set meanwhile would make a process that works look gone.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses, which may hold anything.
    return int(stat.rpartition(")")[2].split()[19])


def worker_of(run: DagsterRun) -> Worker | None:
    """Return the process that works on a run, None if it named itself in none.

    When a run is started again after its process died, Dagster gives it the tags of the one
    before, and with them the name of a process that is gone: that is not its own.
    """
    # Earlier versions wrote fewer parts.
    name, owner, machine, lock = (run.tags.get(WORKER_TAG, "").split("#", 3) + [""] * 3)[:4]
    if not name or owner not in ("", run.run_id[:8]):
        return None
    return Worker(name=name, machine=machine, lock=lock)


_LOCKS: dict[LakePaths, tuple[ExitStack, str]] = {}
"""What this process holds, by changefeed, until it ends."""


def name_worker(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, paths: LakePaths, writer: Writer
) -> None:
    """Tag the run of a step with this process, if whoever started it here has not."""
    run = context.run
    worker = worker_of(run)
    if worker is not None and worker.name == worker_name():
        return
    if paths not in _LOCKS:
        stack = ExitStack()
        _LOCKS[paths] = stack, stack.enter_context(seen_at_work(paths, writer))
    tag = worker_tag(run.run_id, _LOCKS[paths][1])
    context.instance.add_run_tags(run.run_id, {WORKER_TAG: tag})
