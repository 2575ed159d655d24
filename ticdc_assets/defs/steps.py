"""What every step of a changefeed does around its work: the lock, the errors, the results.

A step holds the changefeed's writer lock while it writes. An error that this package raises on
purpose fails the step with its one sentence, and without a wall of wrappers; `defs.run` gives it
back to its caller as it was. Whoever runs the job in its own process finds the lake's results in
`ChangefeedSteps.results`; Dagster itself sees metadata only.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import gethostname
from typing import TypeVar

import dagster as dg

from ticdc_assets.config import Changefeed, Settings
from ticdc_assets.defs.partitions import FeedNames
from ticdc_assets.errors import TicdcError
from ticdc_assets.lake.lock import writer_lock
from ticdc_assets.lake.paths import LakePaths

WORKER_TAG = "ticdc/worker"
"""Tag of a run: which process works on it (see `worker_name`)."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangefeedSteps:
    """One changefeed as its assets see it.

    Attributes:
        changefeed: its configuration.
        paths: its tables.
        results: what the lake's functions returned, in the order of the steps run.
    """

    changefeed: Changefeed
    paths: LakePaths
    results: list[object] = field(default_factory=list[object])

    @property
    def names(self) -> FeedNames:
        """The names of its assets and jobs."""
        return FeedNames(changefeed=self.changefeed.name)

    @contextmanager
    def writing(self, context: dg.AssetExecutionContext) -> Iterator[None]:
        """Hold the writer lock; turn an error of ours into a failure of the step."""
        _name_worker(context)
        try:
            with writer_lock(self.paths):
                yield
        except TicdcError as error:
            raise dg.Failure(
                description=str(error),
                metadata={"error": type(error).__name__, "retriable": error.retriable},
                allow_retries=error.retriable,
            ) from error

    def note(self, result: _Result) -> _Result:
        """Keep a result for `defs.run`, and return it."""
        self.results.append(result)
        return result


def steps_of(settings: Settings, changefeed: Changefeed) -> ChangefeedSteps:
    """Return the steps of a changefeed."""
    return ChangefeedSteps(
        changefeed=changefeed, paths=LakePaths(root=settings.lake, changefeed=changefeed.name)
    )


# Workers ----------------------------------------------------------------------------------------


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
    """Return when a process started, in the kernel's ticks; None where that is not told."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in parentheses, which may hold anything.
    return int(stat.rpartition(")")[2].split()[19])


def _name_worker(context: dg.AssetExecutionContext) -> None:
    worker = worker_name()
    if context.run.tags.get(WORKER_TAG) != worker:
        context.instance.add_run_tags(context.run.run_id, {WORKER_TAG: worker})
