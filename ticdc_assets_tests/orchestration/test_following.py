"""The loop of a run that follows, with a clock and a source of the test's own."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ticdc_assets.base.errors import (
    BusyError,
    LandingGapError,
    SourceRefusedError,
    SourceUnavailableError,
)
from ticdc_assets.orchestration.following import Ending, Followed, Following, NewData


@dataclass
class Script:
    """A world in which only the loop moves time.

    `source` says what a look returns at a time; `brings` what a sync brings.
    """

    source: Callable[[float], object] = lambda _: "the same"
    brings: Callable[[float], NewData] = lambda _: NewData.CHANGES
    others: Callable[[float], str] = lambda _: ""
    stop_at: float = float("inf")
    sync_seconds: float = 2.0
    time: float = 0.0
    syncs: list[float] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)
    asks: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        assert seconds > 0, "a loop that does not wait burns a core"
        self.time = min(self.time + seconds, max(self.time, self.stop_at))

    def is_stopped(self) -> bool:
        return self.time >= self.stop_at

    def other_run(self) -> str:
        self.asks.append(self.time)
        return self.others(self.time)

    def look(self) -> object:
        self.looks.append(self.time)
        return self.source(self.time)

    def sync(self) -> NewData:
        self.syncs.append(self.time)
        brought = self.brings(self.time)
        self.time += self.sync_seconds
        return brought

    def say(self, text: str) -> None:
        self.said.append(text)


def followed(script: Script, seconds: float) -> Followed:
    following = Following(script, seconds)
    for done in following.run():
        assert done is following.followed
    return following.followed


def test_it_syncs_once_and_then_only_for_news() -> None:
    script = Script(source=lambda now: now >= 5)
    done = followed(script, 20)
    assert script.syncs == [0, 5.5]
    assert (done.changed, done.syncs, done.ending) == (2, 2, Ending.TIME)
    assert script.time == 20
    # A second from look to look, and half a second behind a sync that took longer.
    assert script.looks == [0, 2.5, 3.5, 4.5, 5.5, *range(8, 20)]
    assert script.said == [
        "2 syncs: 2 brought changes, 0 watermarks only, 0 nothing; ended because its time is over"
    ]


def test_syncs_of_watermarks_alone_come_further_and_further_apart() -> None:
    script = Script(
        source=lambda now: now,
        brings=lambda now: NewData.CHANGES if 60 <= now < 70 else NewData.WATERMARKS,
        sync_seconds=1,
    )
    followed(script, 90)
    gaps = [after - before for before, after in zip(script.syncs, script.syncs[1:], strict=False)]
    assert gaps[:6] == [2.5, 3.5, 5.5, 9.5, 11.5, 11.5]
    busy = [gap for at, gap in zip(script.syncs, gaps, strict=False) if 60 <= at < 69]
    assert busy
    assert set(busy) == {1.5}
    assert all(looked in script.syncs for looked in script.looks), "a rest needs no look"


@pytest.mark.parametrize("error", [SourceUnavailableError("away"), BusyError("held")])
def test_what_is_away_is_waited_for_with_growing_pauses(error: Exception) -> None:
    def source(now: float) -> object:
        if 10 <= now < 200:
            raise error
        return now >= 10

    script = Script(source=source)
    done = followed(script, 400)
    pauses = [text.split(" ")[1] for text in script.said if text.startswith("waiting")]
    assert pauses[:6] == ["1", "2", "4", "8", "16", "32"]
    assert set(pauses[6:]) == {"60"}
    assert script.said[-2] == "the source and the lock are back; syncing goes on"
    assert (done.changed, done.failures) == (2, len(pauses))
    assert "waits for the source or the lock" in done.summary


def test_other_errors_end_it() -> None:
    def brings(now: float) -> NewData:
        raise LandingGapError("t", 0, 5, 9, "expired")

    with pytest.raises(LandingGapError):
        followed(Script(brings=brings), 100)

    def refuses(now: float) -> object:
        raise SourceRefusedError("wrong password")

    with pytest.raises(SourceRefusedError):
        followed(Script(source=refuses), 100)


def test_another_run_is_let_in_after_the_sync() -> None:
    script = Script(
        source=lambda now: now,
        others=lambda now: "run 7 is queued" if now >= 4 else "",
        sync_seconds=10,
    )
    done = followed(script, 600)
    assert script.syncs == [0]
    assert script.time == 10
    assert (done.ending, done.other) == (Ending.OTHER, "run 7 is queued")
    assert done.summary.endswith("another run wants to write (run 7 is queued)")


def test_another_run_is_let_in_within_seconds_while_nothing_happens() -> None:
    script = Script(others=lambda now: "run 7 is queued" if now >= 31 else "")
    assert followed(script, 600).ending is Ending.OTHER
    assert script.time < 35
    assert len(script.asks) < 16, "runs are looked for every few seconds only"


def away(now: float) -> object:
    raise SourceUnavailableError("away")


TIME, OTHER, STOPPED = Ending.TIME, Ending.OTHER, Ending.STOPPED
NOTHING = Script(brings=lambda _: NewData.NOTHING)
AWAY_AT_LAST = Script(source=away, others=lambda now: "run 7" if now >= 50 else "")
ENDS = {
    "without time": (Script(), 0, (1, 0, 0), 2, TIME),
    "under way": (Script(source=lambda now: now, sync_seconds=7), 10, (2, 0, 0), 14.5, TIME),
    "never comes back": (Script(source=away), 100, (0, 0, 0), 100, TIME),
    "another run while it is away": (AWAY_AT_LAST, 600, (0, 0, 0), 51, OTHER),
    "waits already": (Script(others=lambda _: "run 7"), 600, (0, 0, 0), 0, OTHER),
    "stopped": (Script(stop_at=30.5), 600, (1, 0, 0), 30.5, STOPPED),
    "finds nothing": (NOTHING, 5, (0, 0, 1), 5, TIME),
}


@pytest.mark.parametrize(
    ("script", "seconds", "counts", "ends", "ending"), ENDS.values(), ids=ENDS.keys()
)
def test_when_it_ends(
    script: Script, seconds: float, counts: tuple[int, int, int], ends: float, ending: Ending
) -> None:
    """Counts are of syncs that brought changes, watermarks only, and nothing."""
    done = followed(script, seconds)
    assert (done.changed, done.quiet, done.empty) == counts
    assert (script.time, done.ending) == (ends, ending)
    changed, quiet, empty = counts
    said = f": {changed} brought changes, {quiet} watermarks only, {empty} nothing"
    assert said in done.summary == script.said[-1]
