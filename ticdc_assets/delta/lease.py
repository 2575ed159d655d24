"""The lease: who writes to a changefeed, where the file system's locks do not reach.

In: a log with one entry behind the other, where of two that are put behind the same one the second
is refused (`Log`; `lease_log` has the one in Delta). Out: a `HeldLease` with a number that is
greater than those of all leases before it, or a `BusyError` that says who has it and until when.

Each entry says the whole state: the number, the holder, and whether it is held. Taking the lease,
renewing it and giving it back are one entry each, so they have an order that no clock makes:

- Only the newest entry counts. A holder renews by an entry behind its own last one. If that is
  refused, and the newest one is another's, the lease is lost for good.
- A lease that was given back is taken at once. So is one whose holder ran on this machine and is no
  more. Any other is watched: if its newest entry stays the newest for as long as its duration, by
  the watcher's own clock, it is taken over; if an entry comes, the holder lives. No clock of two
  machines is ever compared. The times in an entry are for people.
- A holder counts its lease as over a tenth earlier, from before it renewed, by its own clock, which
  also runs while the machine sleeps. It may still find it its own, if a renewal comes through.

That a holder believes this is not enough: it may stand still between looking and committing. So
its commits carry the number, and tables refuse older ones (`fencing`).

Why taking again is safe: an entry that came in though its writer was told of an error is known by
its token. Not handled: entries that somebody else writes or removes by hand.
"""

import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from ticdc_assets.base.errors import BusyError, LeaseLostError, TicdcError
from ticdc_assets.base.progress import tell

_LOGGER = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
"""How often a holder and a watcher look at the log at most."""

_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds a lease, or wants it.

    Attributes:
        host: name of its machine.
        process: its number there.
        machine: the start of the machine and its space of process numbers; "" if not known.
        started: when the process began, as the machine counts; "" if not known.
        command: what it does, for people.
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
    """What one entry of the log says.

    Attributes:
        number: of the lease.
        is_held: whether the holder has it; else it gave it back.
        holder: who took it.
        token: of this taking; no other one has it.
        seconds: for how long it is good from each renewal on.
        taken_at: when it was taken, by the holder's clock.
        renewed_at: when it was renewed or given back last, by the holder's clock.
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
        """Until when it is good if it is not renewed, by the holder's clock."""
        return self.renewed_at + timedelta(seconds=self.seconds)

    def __str__(self) -> str:
        held = f"{self.holder} has had lease {self.number} since {self.taken_at:{_TIME}} UTC"
        if not self.is_held:
            return f"nobody; {self.holder} gave back lease {self.number} at {self._renewed}"
        return f"{held}, renewed at {self._renewed}, good until {self.until:{_TIME}} by its clock"

    @property
    def _renewed(self) -> str:
        return f"{self.renewed_at:{_TIME}}"


_TIME = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of the log.

    Attributes:
        version: its place.
        state: what it says; None if nobody ever took the lease.
    """

    version: int
    state: LeaseState | None


class Log(Protocol):
    """One entry behind the other."""

    def newest(self) -> Entry:
        """Return the newest entry."""
        ...

    def put(self, state: LeaseState, behind: Entry) -> bool:
        """Put an entry behind another one; return False if that is not the newest."""
        ...

    def first_number(self) -> int:
        """Return the number of the first lease; it is greater than those that tables have seen."""
        ...


def now_seconds() -> float:
    """Return seconds of a clock that never goes back and runs while the machine sleeps."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The world of a lease.

    Attributes:
        now: seconds of a clock that never goes back.
        wait: lets seconds pass.
        at: the time of day, for people.
        is_gone: whether a holder is known to be no more.
    """

    now: Callable[[], float] = now_seconds
    wait: Callable[[float], None] = time.sleep
    at: Callable[[], datetime] = lambda: datetime.now(UTC)
    is_gone: Callable[[Holder], bool] = lambda holder: is_gone(holder)


class HeldLease:
    """A lease that this process took.

    Args:
        log: where its entries are.
        entry: the entry by which it was taken.
        began: seconds of the clock from before that.
        surroundings: clock and the like.
        taken_over: whether the one before it was not given back.
    """

    def __init__(
        self,
        log: Log,
        entry: Entry,
        began: float,
        surroundings: Surroundings,
        *,
        taken_over: bool,
    ) -> None:
        assert entry.state is not None
        state = entry.state
        self._log = log
        self._entry = entry
        self._state = state  # all that is asked of it stays the same: number, token, duration
        self._around = surroundings
        self._good_until = began + _good_for(state)
        self._looked = began
        self._lost = ""
        # The thread that renews and those that commit share the log's handle.
        self._lock = threading.Lock()
        self.taken_over = taken_over
        """Whether the lease before it was not given back, so that its holder may go on."""

    @property
    def number(self) -> int:
        """Its number, greater than those of all before it."""
        return self._state.number

    def require(self) -> None:
        """Raise LeaseLostError unless nobody else can have it now.

        One that is over by the clock is renewed: if that comes through, nobody had it meanwhile.
        """
        with self._lock:
            now = self._around.now()
            try:
                if not self._lost and now >= self._good_until:
                    self._renew()
                elif not self._lost and now - self._looked >= _LOOK_SECONDS:
                    self._looked = now
                    self._see(self._log.newest())
            except (TicdcError, OSError) as error:
                if now >= self._good_until:
                    raise LeaseLostError(
                        f"lease {self.number} ran out and cannot be renewed ({error}); nothing "
                        "more is committed, sync again"
                    ) from error
            self._refuse_lost()

    def renew(self) -> bool:
        """Renew it; return False if it is lost for good.

        Raises:
            TicdcError: the log cannot be reached now.
        """
        with self._lock:
            if not self._lost:
                self._renew()
            return not self._lost

    def release(self) -> None:
        """Give it back, so that the next one need not wait. It is over here whatever comes of that.

        Raises:
            TicdcError: the log cannot be reached, so nobody knows whether it was given back.
        """
        with self._lock:
            if self._lost:
                return
            try:
                self._put(replace(self._state, is_held=False, renewed_at=self._around.at()))
            finally:
                self._lost = self._lost or f"lease {self.number} was given back"

    def _renew(self) -> None:
        began = self._around.now()
        if self._put(replace(self._state, renewed_at=self._around.at())):
            self._looked = began
            self._good_until = began + _good_for(self._state)

    def _put(self, state: LeaseState) -> bool:
        """Put an entry behind the own one; return False if it is lost, or others are faster."""
        is_put = False
        for _ in range(_TRIES):
            is_put = is_put or self._log.put(state, self._entry)
            # What came before it may be an own entry, of which an error was told.
            self._see(self._log.newest())
            if is_put or self._lost:
                break
        return is_put and not self._lost

    def _see(self, entry: Entry) -> None:
        newest = entry.state
        if newest is None or newest.token == self._state.token:
            self._entry = entry
            return
        self._lost = (
            f"lease {self.number} of this run went over while it stood still: {newest}; nothing "
            "more is committed, sync again"
        )

    def _refuse_lost(self) -> None:
        if self._lost:
            raise LeaseLostError(self._lost)


def _good_for(state: LeaseState) -> float:
    """Return for how long a holder counts its lease as good, a tenth less than a watcher does."""
    return state.seconds * 0.9


class Renewing:
    """A thread that renews a lease while its holder works.

    Args:
        lease: the lease.
        seconds: its duration.
    """

    def __init__(self, lease: HeldLease, seconds: float) -> None:
        self._lease = lease
        self._pause = seconds / 3
        self._retry = seconds / 12
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Renew no more; what is under way ends first."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        pause = self._pause
        while not self._end.wait(pause):
            try:
                if not self._lease.renew():
                    _LOGGER.warning("lease %d is lost", self._lease.number)
                    return
                pause = self._pause
            except (TicdcError, OSError) as error:
                _LOGGER.warning("lease %d was not renewed: %s", self._lease.number, error)
                pause = self._retry


def take(
    log: Log,
    holder: Holder,
    seconds: float,
    *,
    other: str,
    surroundings: Surroundings = Surroundings(),
) -> HeldLease:
    """Take the lease, as soon as it is known that nobody has it.

    A lease that somebody has is watched until it is given back, renewed or over.

    Args:
        log: where its entries are.
        holder: who wants it.
        seconds: for how long it is to be good from each renewal on.
        other: who else may have it, for the error: `another sync of ...`.
        surroundings: clock and the like.

    Raises:
        BusyError: somebody has it, and lives.
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
        began, now = surroundings.now(), surroundings.at()
        state = LeaseState(
            number=log.first_number() if before is None else before.number + 1,
            is_held=True,
            holder=holder,
            token=uuid.uuid4().hex,
            seconds=seconds,
            taken_at=now,
            renewed_at=now,
        )
        made = _put(log, state, entry)
        if made is not None:
            taken_over = before is not None and before.is_held
            return HeldLease(log, made, began, surroundings, taken_over=taken_over)
        # Somebody was faster; maybe it was the holder, which lives.


def _ran_out(log: Log, entry: Entry, surroundings: Surroundings) -> bool:
    """Watch a held lease; return whether no entry came for as long as it is good."""
    assert entry.state is not None
    end = surroundings.now() + entry.state.seconds
    tell(f"waiting to see whether {entry.state.holder} renews its lease {entry.state.number}")
    while (left := end - surroundings.now()) > 0:
        surroundings.wait(min(left, _LOOK_SECONDS))
        if log.newest().version != entry.version:
            return False
    return log.newest().version == entry.version


def _put(log: Log, state: LeaseState, behind: Entry) -> Entry | None:
    """Put an entry and return it if it is there, even if an error was told of it."""
    failure = None
    try:
        log.put(state, behind)
    except (TicdcError, OSError) as error:
        failure = error
    newest = log.newest()
    if newest.state is not None and newest.state.token == state.token:
        return newest
    if failure is not None:
        raise failure
    return None


# Who holds it -----------------------------------------------------------------------------------


def this_process(run: str = "") -> Holder:
    """Return this process as a holder.

    Args:
        run: id of the Dagster run that it works for, if it does.
    """
    process = os.getpid()
    return Holder(
        host=socket.gethostname(),
        process=process,
        machine=_machine(),
        started=_started(process) or "",
        command=f"run {run}" if run else _command(),
    )


def named_process(run: str = "") -> str:
    """Return this process for people on the same machine: its number, its command, its run."""
    does = [_command(), f"run {run[:8]}" if run else ""]
    return f"process {os.getpid()} ({', '.join(word for word in does if word)})"


def _command() -> str:
    """Return the name of the program and of its command, and no other word: it may be secret."""
    words = [Path(sys.argv[0]).name or "python", *sys.argv[1:2]]
    return " ".join(word for word in words if word.replace("-", "").replace(".", "").isalnum())


def _machine() -> str:
    """Return what is the same for all processes that see each other's numbers, "" if not known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(process: int) -> str | None:
    """Return when a process of this machine began, None if it is no more, "" if not known."""
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
    # Its name stands in brackets, and may have any characters.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def is_gone(holder: Holder) -> bool:
    """Return whether a holder ran on this machine and is no more."""
    if not holder.machine or not holder.started or holder.machine != _machine():
        return False
    started = _started(holder.process)
    return started is None or (started != "" and started != holder.started)
