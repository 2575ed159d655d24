"""The loop of a follow run; no Dagster, no Spark.

In: surroundings that can look at the source, sync, and report waiting runs, and have the clock.
Out: `Followed`.

A sync begins when the source has records that the last sync did not see (`log.watching`).
Watermarks arrive every second, even for tables that do not change. So after syncs that had only
watermarks, the loop pauses longer and longer, because each sync is a commit in five tables and a
published cut.

It ends after a sync, never within one: when its time is over, when another run of the changefeed
wants to write, or when it is stopped. If the source is down, or another writer holds the lock,
it waits with growing pauses; every other error ends it. The first sync of a run always runs,
without looking at the source: it finishes the work of a killed run.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ticdc_assets.base.errors import BusyError, SourceRefusedError, SourceUnavailableError
from ticdc_assets.base.names import counted

LOOK_SECONDS = 1.0
"""The time between two checks of the source, unless the sync between them takes longer."""

LONGEST_REST_SECONDS = 10.0
"""The longest rest after a sync with only watermarks: each is twice as long as the one before."""

_BREATH_SECONDS = 0.5
"""The time from the end of a sync to the next check at least."""

_ASK_SECONDS = 3.0
"""The time between two checks for other runs."""

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
"""The pauses while the source is down: each is twice as long as the one before."""


class Ending(StrEnum):
    """Why a run that follows ended."""

    TIME = "its time is over"
    OTHER = "another run wants to write"
    STOPPED = "it was asked to stop"


class NewData(StrEnum):
    """The kind of new data that a sync or a step of it brought, the least first."""

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
        other: the run that it ended for, in words.
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
        waits = counted(self.failures, "wait")
        away = f", {waits} for the source or the lock" if self.failures else ""
        why = f"; ended because {self.ending}" if self.ending else ""
        other = f" ({self.other})" if self.other else ""
        return (
            f"{counted(self.syncs, 'sync')}: {self.changed} brought changes, {self.quiet} "
            f"watermarks only, {self.empty} nothing{away}{why}{other}"
        )


class _Surroundings(Protocol):
    """What the loop needs of its caller; `follow_job.Surroundings` says what each does."""

    def now(self) -> float: ...
    def wait(self, seconds: float) -> None: ...
    def is_stopped(self) -> bool: ...
    def other_run(self) -> str: ...
    def look(self) -> Hashable: ...
    def sync(self) -> NewData: ...
    def say(self, text: str) -> None: ...


class Following:
    """One run that follows for some seconds; the current sync is finished then.

    `rest_seconds` is the pause between two checks of the source, also after syncs with only
    watermarks; the times above if None.
    """

    def __init__(
        self, context: _Surroundings, seconds: float, rest_seconds: float | None = None
    ) -> None:
        self._context = context
        self._look_seconds = rest_seconds or LOOK_SECONDS
        self._longest_rest = rest_seconds or LONGEST_REST_SECONDS
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
            began, look = self._context.now(), self._look_seconds
            if began >= self._due:
                self._step()
            yield self.followed
            if self._has_ended():
                break
            now = self._context.now()
            pause = max(look - (now - began), min(_BREATH_SECONDS, look))
            self._context.wait(max(0.0, min(pause, self._end - now)))
        self._context.say(self.followed.summary)

    def _has_ended(self) -> bool:
        followed = self.followed
        now = self._context.now()
        if followed.ending is not None:
            return True
        if self._context.is_stopped():
            followed.ending = Ending.STOPPED
        elif now >= self._end and (self._has_synced or followed.failures):
            followed.ending = Ending.TIME
        elif now - self._asked >= _ASK_SECONDS:
            self._asked = now
            followed.other = self._context.other_run()
            if followed.other:
                followed.ending = Ending.OTHER
        return followed.ending is not None

    def _step(self) -> None:
        try:
            seen = self._context.look()
            if self._has_synced and seen == self._seen:
                return
            new_data = self._context.sync()
        except SourceRefusedError:
            raise  # waiting does not fix a password
        except (SourceUnavailableError, BusyError) as error:
            self.followed.failures += 1
            self._pause = min(max(_FIRST_PAUSE_SECONDS, self._pause * 2), _LONGEST_PAUSE_SECONDS)
            self._due = self._context.now() + self._pause
            self._context.say(f"waiting {self._pause:g} s: {error}")
            return
        if self._pause:
            self._pause = 0.0
            self._context.say("the source and the lock are back; syncing goes on")
        self._has_synced, self._seen = True, seen
        self._asked = float("-inf")
        match new_data:
            case NewData.CHANGES:
                self.followed.changed += 1
                self._rest = 0.0
            case NewData.WATERMARKS:
                self.followed.quiet += 1
                self._rest = min(max(self._look_seconds, self._rest * 2), self._longest_rest)
            case NewData.NOTHING:
                self.followed.empty += 1
        self._due = self._context.now() + self._rest
