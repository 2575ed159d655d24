"""The process of a run, as a name that a later process can look up in the system.

A killed run looks active forever unless its dead process is noticed. Dagster's run monitoring does
this for runs launched by the daemon; `active_runs.end_orphans` does it for other runs, with the tag
that each run gets here.
"""

import os
from pathlib import Path
from socket import gethostname

import dagster as dg
from dagster import DagsterRun

WORKER_TAG = "ticdc/worker"
"""Tag of a run: which process works on it (see `worker_name`), `#`, and which run that is."""


def worker_name() -> str:
    """Return what tells this process from all others: host, process id, start time."""
    return f"{gethostname()}:{os.getpid()}:{_start_time(os.getpid()) or 0}"


def is_gone(worker: str) -> bool:
    """Return whether `worker` was a process of this host and has ended.

    False where nobody can tell from here: a process of another host.
    """
    host, _, rest = worker.rpartition(":")[0].rpartition(":")
    if host != gethostname() or not rest.isdigit():
        return False
    pid, started = int(rest), worker.rpartition(":")[2]
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


def worker_of(run: DagsterRun) -> str | None:
    """Return the process that works on a run, None if it named itself in none.

    When a run is started again after its process died, Dagster gives it the tags of the one
    before, and with them the name of a process that is gone: that is not its own.
    """
    worker, _, owner = run.tags.get(WORKER_TAG, "").partition("#")
    return worker or None if owner in ("", run.run_id[:8]) else None


def name_worker(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> None:
    """Tag the run of a step with this process."""
    worker = f"{worker_name()}#{context.run.run_id[:8]}"
    if context.run.tags.get(WORKER_TAG) != worker:
        context.instance.add_run_tags(context.run.run_id, {WORKER_TAG: worker})
