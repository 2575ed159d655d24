"""The loop of a follow run: when it syncs, waits and ends; no Dagster, no Spark, no clock here.

In: a `FollowContext` that can look at the source, sync, and report waiting runs. Out: `Followed`,
how often it synced and why it ended. `syncing` does a sync; this is only the loop.

A sync begins when the source has records that the last sync did not see. Watermarks arrive every
second, even for tables that do not change. So after syncs that had only watermarks, the loop pauses
longer and longer, because each sync is a commit in five tables and a published cut.

It ends after a sync, never within one: when its time is over, when another run of the changefeed
wants to write, or when it is stopped. If the source is down, or another writer holds the lock,
it waits with growing pauses; every other error ends it.

Why running it again is safe: a sync is safe to repeat wherever it stopped, and the first sync of a
run always runs, without looking at the source: it finishes the work of a killed run.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ticdc_assets.base.errors import BusyError, SourceRefusedError, SourceUnavailableError
from ticdc_assets.base.names import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Times between the steps of the loop, in seconds.

    Attributes:
        look: between two checks of the source, unless the sync between them takes longer.
        breath: from the end of a sync to the next check at least.
        ask: between two checks for other runs.
        longest_rest: the longest rest after a sync with only watermarks; the first is `look`, each
            further one is twice as long.
        first_pause: the first pause when the source is down; each further one is twice as long.
        longest_pause: the longest of these.
    """

    look: float = 1.0
    breath: float = 0.5
    ask: float = 3.0
    longest_rest: float = 10.0
    first_pause: float = 1.0
    longest_pause: float = 60.0


class Ending(StrEnum):
    """Why a run that follows ended."""

    TIME = "its time is over"
    OTHER = "another run wants to write"
    STOPPED = "it was asked to stop"


class NewData(StrEnum):
    """The kind of new data that a sync brought."""

    NOTHING = "nothing"
    WATERMARKS = "watermarks only"
    CHANGES = "changes"


@dataclass(slots=True, kw_only=True)
class Followed:
    """Counts of a run that follows; they grow while it runs.

    Attributes:
        changed: syncs that brought changes.
        quiet: syncs that brought watermarks only.
        empty: syncs that brought nothing.
        failures: waits because the source was down or another process held the lock.
        ending: why it ended; None while it runs.
        other: the run that it ended for; "" if none.
    """

    changed: int = 0
    quiet: int = 0
    empty: int = 0
    failures: int = 0
    ending: Ending | None = None
    other: str = ""

    @property
    def syncs(self) -> int:
        """Syncs in all."""
        return self.changed + self.quiet + self.empty

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped."""
        return self.ending is Ending.STOPPED

    @property
    def summary(self) -> str:
        """One sentence with the numbers."""
        away = f", {counted(self.failures, 'wait')} for the source or the lock"
        away = away if self.failures else ""
        why = f"; ended because {self.ending}" if self.ending else ""
        other = f" ({self.other})" if self.other else ""
        return (
            f"{counted(self.syncs, 'sync')}: {self.changed} brought changes, {self.quiet} "
            f"watermarks only, {self.empty} nothing{away}{why}{other}"
        )


class FollowContext(Protocol):
    """The functions that the loop gets from its caller."""

    def now(self) -> float:
        """Return seconds of a clock that never goes back."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass; return early when stopped."""
        ...

    def is_stopped(self) -> bool:
        """Return whether to stop."""
        ...

    def other_run(self) -> str:
        """Return another run that wants to write, in words; "" if there is none."""
        ...

    def look(self) -> Hashable:
        """Return how far the source is; equal as long as it has nothing more."""
        ...

    def sync(self) -> NewData:
        """Sync once."""
        ...

    def say(self, text: str) -> None:
        """Write a line to the log of the run."""
        ...


class Following:
    """One run that follows.

    Args:
        context: its surroundings.
        seconds: how long it runs; the current sync is finished then.
        pace: times between its steps.
    """

    def __init__(self, context: FollowContext, seconds: float, pace: Pace | None = None) -> None:
        self._context = context
        self._pace = pace or Pace()
        self._end = context.now() + seconds
        self._due = context.now()
        self._asked = float("-inf")
        self._seen: Hashable = None
        self._has_synced = False
        self._pause = 0.0
        self._rest = 0.0
        self.followed = Followed()

    def run(self) -> Iterator[Followed]:
        """Follow until it ends; yield the counts before each wait.

        Raises:
            TicdcError: a sync failed with an error that waiting does not fix.
        """
        while not self._has_ended():
            began = self._context.now()
            if began >= self._due:
                self._step()
            yield self.followed
            if self._has_ended():
                break
            now = self._context.now()
            pause = max(self._pace.look - (now - began), min(self._pace.breath, self._pace.look))
            self._context.wait(max(0.0, min(pause, self._end - now)))
        self._context.say(self.followed.summary)

    def _has_ended(self) -> bool:
        """Return whether it ends, and record why."""
        followed = self.followed
        now = self._context.now()
        if followed.ending is not None:
            return True
        if self._context.is_stopped():
            followed.ending = Ending.STOPPED
        elif now >= self._end and (self._has_synced or followed.failures):
            followed.ending = Ending.TIME
        elif now - self._asked >= self._pace.ask:
            self._asked = now
            followed.other = self._context.other_run()
            if followed.other:
                followed.ending = Ending.OTHER
        return followed.ending is not None

    def _step(self) -> None:
        """Check the source, and sync if it has more."""
        try:
            seen = self._context.look()
            if self._has_synced and seen == self._seen:
                return
            new_data = self._context.sync()
        except SourceRefusedError:
            raise  # waiting does not fix a password
        except (SourceUnavailableError, BusyError) as error:
            self._wait_for(error)
            return
        if self._pause:
            self._pause = 0.0
            self._context.say("the source and the lock are back; syncing goes on")
        self._has_synced, self._seen = True, seen
        self._asked = float("-inf")
        self._count(new_data)

    def _count(self, new_data: NewData) -> None:
        match new_data:
            case NewData.CHANGES:
                self.followed.changed += 1
                self._rest = 0.0
            case NewData.WATERMARKS:
                self.followed.quiet += 1
                self._rest = min(max(self._pace.look, self._rest * 2), self._pace.longest_rest)
            case NewData.NOTHING:
                self.followed.empty += 1
        self._due = self._context.now() + self._rest

    def _wait_for(self, error: SourceUnavailableError | BusyError) -> None:
        self.followed.failures += 1
        self._pause = min(max(self._pace.first_pause, self._pause * 2), self._pace.longest_pause)
        self._due = self._context.now() + self._pause
        self._context.say(f"waiting {self._pause:g} s: {error}")
