"""One writer per changefeed, and in parallel one rebuild: a file lock, or a lease in the lake.

In: the tables of a changefeed. Out: a lock that this process holds within a block, or a `BusyError`
that names the holder. It keeps apart what Dagster's pools cannot see: a command next to a daemon,
or another host.

A lake in a folder has locks on files, which the operating system drops when their holder dies. They
reach one host, or NFSv4. In an object store, or if `writer.lease` says so, the writer also holds a
lease (`lease`), and every commit is fenced by its number (`fencing`). A folder that ever had a
lease keeps it. Processes that use the lease share the lock on the file; others hold it alone.

The holder of a lease that was not given back may only be stalled. So the process that takes over
first commits its own number to the changefeed's tables (`_fence`), which then refuse the old
holder's commits. Mirrors and histories need none: only a row of `cuts` makes their versions count.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import cast

from ticdc_assets.base.errors import BusyError, LakeDamagedError, PrerequisiteError
from ticdc_assets.base.machine import require_space
from ticdc_assets.config import Writer
from ticdc_assets.delta.appending import append_files
from ticdc_assets.delta.committing import ConflictError
from ticdc_assets.delta.control import commit_metadata
from ticdc_assets.delta.delta_protocol import LogState
from ticdc_assets.delta.fencing import guarded, number_in
from ticdc_assets.delta.lease import LeaseLog, named_process, renewed, take, this_process
from ticdc_assets.delta.opening import open_table
from ticdc_assets.storage.lake_paths import LakePaths
from ticdc_assets.storage.paths import AnyPath


def writer_lock(paths: LakePaths, writer: Writer, *, run: str = "") -> AbstractContextManager[None]:
    """Hold the changefeed's writer lock, for a Dagster run if messages are to name one.

    Raises:
        BusyError: another process holds it.
        PrerequisiteError: the disk has too little space, or the file system has no locks.
    """
    if isinstance(paths.root, Path):
        require_space(paths.root)
    other = f"another sync of changefeed {paths.changefeed!r}"
    tables = (*paths.tables, paths.accepted_gaps)
    return _held(paths.lock, paths.lease, writer, other, base=paths.base, tables=tables, run=run)


def side_lock(
    paths: LakePaths, writer: Writer, made: AnyPath | None = None
) -> AbstractContextManager[None]:
    """Hold the changefeed's lock on unpublished generations; it raises as `writer_lock`.

    The holder removes what others left of such generations, so nothing needs a fence. `made` is the
    folder that is written to; None if the writer's lock is held too.
    """
    other = f"another verify or rebuild of changefeed {paths.changefeed!r}"
    return _held(paths.side_lock, paths.side_lease, writer, other, base=made)


@contextmanager
def _held(
    path: AnyPath,
    folder: AnyPath,
    writer: Writer,
    other: str,
    *,
    base: AnyPath | None,
    tables: Sequence[AnyPath] = (),
    run: str = "",
) -> Iterator[None]:
    """Hold the lock on a file; or share it with others that use the lease, and hold the lease.

    Tables below `base` are written under the lease in `folder`, of which some, `tables`, refuse
    commits of older leases.
    """
    if not _uses_lease(folder, writer):
        with held_lock(path, other, run):
            yield
        return
    with ExitStack() as stack:
        if isinstance(path, Path):
            with suppress(PrerequisiteError):  # a file system without locks
                stack.enter_context(_locked(path, other, fcntl.LOCK_SH))
        lease = take(
            LeaseLog(folder),
            this_process(run),
            writer.lease_seconds,
            other=other,
            first=lambda: _first_number(tables),
        )
        stack.enter_context(renewed(lease, writer.lease_seconds))
        if base is not None:
            stack.enter_context(guarded(base, lease))
        # The holder of a lease that was not given back may still run.
        for table in tables if lease.taken_over else ():
            _fence(table)
        yield


def _uses_lease(lease: AnyPath, writer: Writer) -> bool:
    return writer.lease is not None or not isinstance(lease, Path) or lease.exists()


# The lock on a file -----------------------------------------------------------------------------


@contextmanager
def held_lock(path: AnyPath, other: str, run: str = "") -> Iterator[None]:
    """Hold the lock on a file, which is made if missing, and write into it who holds it.

    The lock counts, not the text: a killed holder leaves its text and no lock. `other` is what else
    may hold it, for people.

    Raises:
        BusyError: another process holds it.
        PrerequisiteError: the file system has no locks.
    """
    # A lake in a store has the lease, whatever the settings say.
    with _locked(cast("Path", path), other, fcntl.LOCK_EX) as descriptor:
        with suppress(OSError):  # the name is for people; the lock is held without it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, named_process(run).encode(), 0)
        try:
            yield
        finally:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)


_LONGEST_HOLDER = 400


@contextmanager
def _locked(path: Path, other: str, kind: int) -> Iterator[int]:
    """Hold a lock of a kind on a file; yield its descriptor."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = ""
            with suppress(OSError):
                holder = os.pread(descriptor, _LONGEST_HOLDER, 0).decode(errors="replace").strip()
            who = f"{holder}, which holds {path}" if holder else f"it holds {path}"
            raise BusyError(
                f"{other} is running ({who}); try again when it has ended", holder=holder
            ) from error
        except OSError as error:
            raise PrerequisiteError(
                f"{path} cannot be locked ({error.strerror}): the file system has no locks; keep "
                "writers apart by a lease in the lake (`writer: {lease: 60 seconds}`)"
            ) from error
        yield descriptor
    finally:
        os.close(descriptor)


# Running processes ------------------------------------------------------------------------------


@contextmanager
def seen_at_work(paths: LakePaths, writer: Writer) -> Iterator[str]:
    """Share a lock with all workers on the changefeed, between syncs too; yield its file.

    A process that sees it can check whether its holders have ended (`nobody_at_work`), even in
    another container or after a restart of the machine. "" where file locks do not reach.
    """
    if _uses_lease(paths.lease, writer):
        yield ""
        return
    path = cast("Path", paths.workers)
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            stack.callback(os.close, descriptor)
            # This call waits: a process that checks for others holds the lock for a moment.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            seen = str(path.absolute())
        except OSError:
            # Whatever a run needs reports its own error.
            seen = ""
        yield seen


def nobody_at_work(path: str) -> bool:
    """Return whether no process holds the file of `seen_at_work`; False if that is unknown."""
    try:
        with Path(path).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


# The lease --------------------------------------------------------------------------------------


def _first_number(tables: Sequence[AnyPath]) -> int:
    """Return a number that is greater than those of all leases that tables have seen."""
    highest = -1
    for path in tables:
        with suppress(LakeDamagedError):
            highest = max(highest, number_in(open_table(path) or LogState()) or -1)
    # A killed run may have written to mirrors only, under a lease one above the highest here.
    return highest + 2


def _fence(path: AnyPath) -> None:
    """Make a table, unless it is broken, refuse older leases: an empty commit under this one."""
    with suppress(LakeDamagedError):
        table = open_table(path)
        if table is None:
            return
        try:
            # A commit without rows carries on the newest commit's metadata.
            append_files(path, [], table.schema, metadata=commit_metadata(path))
        except ConflictError as error:
            raise BusyError(
                f"{path} is written again and again by a run whose lease is over; try again"
            ) from error
