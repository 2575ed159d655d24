"""The lease: who writes to a changefeed, where the file system's locks do not reach.

In: a folder of numbered files, each of which is an entry (`LeaseLog`). Out: a `HeldLease` with a
number greater than those of all earlier leases, or a `BusyError` that names the holder.

Taking the lease, renewing it and giving it back write one entry each, with the whole state, under
the number after the newest one, only where no file is (`storage.creating`). So of two entries after
the same one, one is refused. Clocks of two machines are never compared; times in an entry are for
people.

- Only the newest entry counts. A holder renews with an entry after its own last one. If that is
  refused and the newest entry belongs to another holder, the lease is lost for good.
- A lease that was given back is free at once. So is one whose holder ran on this machine and has
  ended. Any other is watched: if no entry comes for its duration, the watcher takes it over.
- A holder treats its lease as over a tenth earlier, counted from before it renewed, by a clock that
  also runs while the machine sleeps. The lease is still its own if a renewal succeeds.

A holder may stall before a commit, so its commits carry the number, and tables refuse older ones
(`fencing`). A writer recognises its entry, even if the write reported an error. It
reads the newest entry after each put, so one that stalled until its next number was removed learns
that it is late.
"""

import json
import logging
import os
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ticdc_assets.base.errors import BusyError, LeaseLostError, TicdcError
from ticdc_assets.base.progress import tell
from ticdc_assets.delta.damage import damaged, require_answer
from ticdc_assets.storage.creating import create
from ticdc_assets.storage.paths import AnyPath, names_in

_LOGGER = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
"""How often a holder and a watcher read the log at most."""

_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds a lease, or wants it.

    `machine` is a boot of it and a process namespace, `started` is as the machine counts; "" if
    unknown. The command is for people.
    """

    host: str
    process: int
    machine: str
    started: str
    command: str

    def __str__(self) -> str:
        return f"{self.host}, process {self.process} ({self.command})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseState:
    """What one entry of the log says; times are by the holder's clock.

    Attributes:
        is_held: whether the holder has the lease; False once it gave it back.
        token: unique to this taking of the lease.
        seconds: how long the lease lasts from each renewal on.
        renewed_at: when it was renewed or given back last.
    """

    number: int
    is_held: bool
    holder: Holder
    token: str
    seconds: float
    taken_at: datetime
    renewed_at: datetime

    @property
    def until(self) -> datetime:
        """When it ends if it is not renewed, by the holder's clock."""
        return self.renewed_at + timedelta(seconds=self.seconds)

    def __str__(self) -> str:
        renewed = f"{self.renewed_at:{_TIME}}"
        if not self.is_held:
            return f"nobody has the lease; {self.holder} gave back lease {self.number} at {renewed}"
        return (
            f"{self.holder} has had lease {self.number} since {self.taken_at:{_TIME}} UTC, renewed "
            f"at {renewed}, valid until {self.until:{_TIME}} by its clock"
        )


_TIME = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A place in the log, and what is there; None if no process ever took the lease."""

    version: int
    state: LeaseState | None


_ENTRY = re.compile(r"[0-9]{20}\.json")

_KEPT = 20
"""How many entries are kept at least, for people and for processes that list them now."""

_REMOVED = 10
"""After how many entries the older ones are removed."""


class LeaseLog:
    """The log of a lease, in a folder that the first entry creates."""

    def __init__(self, folder: AnyPath) -> None:
        self._folder = folder
        self._newest = Entry(version=0, state=None)

    def newest(self) -> Entry:
        """Return the newest entry; one of version 0 without a state if there is none.

        It raises LakeDamagedError if that is not a lease's, or why the folder cannot be read.
        """
        try:
            # A folder that other hosts write to may show an entry late; this log knows its own.
            while (version := max(self._versions(), default=0)) > self._newest.version:
                with suppress(FileNotFoundError):  # removed, because newer ones came
                    content = self._entry(version).read_bytes()
                    self._newest = Entry(version=version, state=_state_in(content))
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(self._folder, "its newest entry is not a lease's") from error
        except OSError:
            require_answer(self._folder)
            raise
        return self._newest

    def put(self, state: LeaseState, after: Entry) -> bool:
        """Put an entry after another one; return False if there is one, OSError if nobody knows."""
        version = after.version + 1
        content = json.dumps(asdict(state), default=datetime.isoformat).encode()
        try:
            create(self._entry(version), content)
        except FileExistsError:
            return False
        self._newest = Entry(version=version, state=state)
        # Each listing is a request in a store, so entries go a few at a time.
        if version % _REMOVED == 0:
            for older in self._versions():
                if older <= version - _KEPT:
                    self._entry(older).unlink(missing_ok=True)
        return True

    def _entry(self, version: int) -> AnyPath:
        return self._folder / f"{version:020}.json"

    def _versions(self) -> list[int]:
        # Files that are being written have other names.
        return [int(name[:-5]) for name in names_in(self._folder) if _ENTRY.fullmatch(name)]


def _state_in(content: bytes) -> LeaseState:
    stored: dict[str, Any] = json.loads(content)
    times = {name: datetime.fromisoformat(stored[name]) for name in ("taken_at", "renewed_at")}
    return LeaseState(**{**stored, **times, "holder": Holder(**stored["holder"])})


def read_lease(folder: AnyPath) -> LeaseState | None:
    """Return what `LeaseLog.newest` says; None if no process ever took the lease."""
    return LeaseLog(folder).newest().state


def now_seconds() -> float:
    """Return the seconds of a clock that never goes back and runs while the machine sleeps."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The clock and the processes around a lease; `at` is the time of day, for people."""

    now: Callable[[], float] = now_seconds
    wait: Callable[[float], None] = time.sleep
    at: Callable[[], datetime] = lambda: datetime.now(UTC)
    is_gone: Callable[[Holder], bool] = lambda holder: is_gone(holder)


class HeldLease:
    """A lease of this process from its first renewal on, which is the entry that takes it.

    Args:
        log: the log of the lease.
        state: number, holder, token and duration of the lease.
        after: the entry of the lease before it.
        surroundings: the clock.

    Attributes:
        taken_over: whether the lease before it was not given back: its holder may still run.
    """

    def __init__(
        self, log: LeaseLog, state: LeaseState, after: Entry, surroundings: Surroundings
    ) -> None:
        self._log = log
        self._entry = after
        self._state = state
        self._around = surroundings
        self._good_until = self._looked = 0.0
        self._lost = ""
        # The renewing thread and the committing threads share the log's handle.
        self._lock = threading.Lock()
        self.taken_over = after.state is not None and after.state.is_held

    @property
    def number(self) -> int:
        """Its number, greater than those of all earlier leases."""
        return self._state.number

    @property
    def is_lost(self) -> bool:
        """Whether it is over for good."""
        return bool(self._lost)

    def require(self) -> None:
        """Raise LeaseLostError unless no other process can hold the lease now.

        A lease that is over by the clock is renewed: if that succeeds, no other process had it.
        """
        with self._lock:
            now, failure = self._around.now(), None
            try:
                if not self._lost and now >= self._good_until:
                    self._renew()
                elif not self._lost and now - self._looked >= _LOOK_SECONDS:
                    self._looked = now
                    self._see(self._log.newest())
            except (TicdcError, OSError) as error:
                failure = error
            if self._lost:
                raise LeaseLostError(self._lost)
            if now >= self._good_until:
                # Without an error, a folder shows late which entry took the next number.
                raise LeaseLostError(
                    f"lease {self.number} ran out and cannot be renewed "
                    f"({failure or 'its newest entry is not visible yet'}); nothing more is "
                    "committed, sync again"
                ) from failure

    def renew(self) -> bool:
        """Renew it; return whether it is renewed; TicdcError or OSError if nobody knows now."""
        with self._lock:
            return not self._lost and self._renew()

    def release(self) -> None:
        """Give it back, so that the next holder need not wait; for this process it is over.

        It raises TicdcError or OSError if nobody knows whether it was given back.
        """
        with self._lock:
            if self._lost:
                return
            try:
                self._put(is_held=False)
            finally:
                self._lost = self._lost or f"lease {self.number} was given back"

    def _renew(self) -> bool:
        began = self._around.now()
        is_put = self._put(is_held=True)
        if is_put:
            self._looked = began
            # A holder treats its lease as over a tenth earlier than a watcher does.
            self._good_until = began + self._state.seconds * 0.9
        return is_put

    def _put(self, *, is_held: bool) -> bool:
        """Put an entry after this holder's last one; return whether it is the newest one."""
        state = replace(self._state, is_held=is_held, renewed_at=self._around.at())
        for _ in range(_TRIES):
            failure = None
            try:
                self._log.put(state, self._entry)
            except (TicdcError, OSError) as error:
                failure = error
            # An entry may be there although its write reported an error. So may an earlier one of
            # this holder: then this one comes after it.
            self._see(self._log.newest())
            if self._entry.state == state:
                return True
            if self._lost:
                return False
            if failure is not None:
                raise failure
        return False

    def _see(self, entry: Entry) -> None:
        newest = entry.state
        if newest is None or newest.token == self._state.token or entry == self._entry:
            self._entry = entry
            return
        self._lost = (
            f"lease {self.number} of this run ended while the run was stalled: {newest}; nothing "
            "more is committed, sync again"
        )


@contextmanager
def renewed(lease: HeldLease, seconds: float) -> Iterator[None]:
    """Let a thread renew a lease of some duration within this block; give it back at the end."""
    end = threading.Event()

    def run() -> None:
        pause = seconds / 3
        while not end.wait(pause):
            try:
                pause = seconds / (3 if lease.renew() else 12)
                if lease.is_lost:
                    _LOGGER.warning("lease %d is lost", lease.number)
                    return
            except (TicdcError, OSError) as error:
                _LOGGER.warning("lease %d was not renewed: %s", lease.number, error)
                pause = seconds / 12

    thread = threading.Thread(target=run, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        try:
            lease.release()
        except (TicdcError, OSError) as error:
            # The next holder has to wait for its duration.
            _LOGGER.warning("lease %d could not be given back: %s", lease.number, error)


def take(
    log: LeaseLog,
    holder: Holder,
    seconds: float,
    *,
    other: str,
    first: Callable[[], int] = lambda: 1,
    surroundings: Surroundings = Surroundings(),
) -> HeldLease:
    """Take the lease, for some seconds, as soon as it is free: given back, or over.

    `other` says who else may hold it, for the BusyError if that process is alive. `first` returns
    the number of the first lease, greater than all that tables have seen.
    """
    while True:
        entry = log.newest()
        before = entry.state
        is_open = before is None or not before.is_held or surroundings.is_gone(before.holder)
        if not is_open and not _ran_out(log, entry, surroundings):
            newest = log.newest().state
            if newest is not None and newest.is_held:
                raise BusyError(
                    f"{other} is running: {newest}; try again when it has ended",
                    holder=str(newest.holder),
                )
            continue
        now = surroundings.at()
        state = LeaseState(
            number=first() if before is None else before.number + 1,
            is_held=True,
            holder=holder,
            token=uuid.uuid4().hex,
            seconds=seconds,
            taken_at=now,
            renewed_at=now,
        )
        lease = HeldLease(log, state, entry, surroundings)
        if lease.renew():
            return lease
        # Another process was faster; maybe the holder, which is alive.


def _ran_out(log: LeaseLog, entry: Entry, surroundings: Surroundings) -> bool:
    """Watch a held lease; return whether no entry came for its duration."""
    assert entry.state is not None
    end = surroundings.now() + entry.state.seconds
    tell(f"waiting to see whether {entry.state.holder} renews its lease {entry.state.number}")
    while (left := end - surroundings.now()) > 0:
        surroundings.wait(min(left, _LOOK_SECONDS))
        if log.newest().version != entry.version:
            return False
    return log.newest().version == entry.version


# The holder -------------------------------------------------------------------------------------


def this_process(run: str = "") -> Holder:
    """Return this process as a holder, with the Dagster run that it works for, if any."""
    process = os.getpid()
    return Holder(
        host=socket.gethostname(),
        process=process,
        machine=_machine(),
        started=started_at(process) or "",
        command=f"run {run}" if run else _command(),
    )


def named_process(run: str = "") -> str:
    """Return this process for people on the same machine: its number, its command, its run."""
    does = [_command(), f"run {run[:8]}" if run else ""]
    return f"process {os.getpid()} ({', '.join(word for word in does if word)})"


def _command() -> str:
    """Return the name of the program and of its command; other words may be secret."""
    words = [Path(sys.argv[0]).name or "python", *sys.argv[1:2]]
    return " ".join(word for word in words if word.replace("-", "").replace(".", "").isalnum())


def _machine() -> str:
    """Return an id that all processes share which see each other's numbers; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def started_at(process: int) -> str | None:
    """Return when a process of this machine began, in the kernel's ticks since its start.

    None if the process has ended, "" if that is unknown.
    """
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""  # another user's
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The process name is in brackets and may have any characters.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def is_gone(holder: Holder) -> bool:
    """Return whether a holder ran on this machine and has ended."""
    if not holder.machine or not holder.started or holder.machine != _machine():
        return False
    started = started_at(holder.process)
    return started is None or (started != "" and started != holder.started)
