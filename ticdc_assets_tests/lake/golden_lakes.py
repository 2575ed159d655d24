"""Lakes of golden scenarios, synced once a test run and read by all tests.

Whoever damages or continues one takes a copy of its folder: Delta's logs and data files stay as
they are, but `_last_checkpoint` and the files of locks do not.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from ticdc_assets.config import ClaimCheck
from ticdc_assets_tests.golden import Rows, Scenario
from ticdc_assets_tests.lake.feeds import Feed

Tables = Collection[tuple[str, str]]
"""Those that have mirrors; all if there are none."""

Key = tuple[str, str, tuple[tuple[str, str], ...]]
"""Variant, scenario and tables of a lake."""


def feed_of(
    spark: SparkSession,
    folder: Path,
    scenario: Scenario,
    tables: Tables = (),
    *,
    claim_check: ClaimCheck | None = None,
) -> Feed:
    """Return a feed over the messages of a scenario, with mirrors of these tables, or of all."""
    feed = Feed.of(
        spark,
        folder,
        capture=scenario.capture,
        timezone=scenario.timezone,
        wire_format=scenario.wire_format,
        compression=scenario.compression,
        claim_check=claim_check or scenario.claim_check,
    )
    return feed.with_mirrors_of(tables) if tables else feed


@dataclass(frozen=True)
class Steps:
    """What a lake was at each cut at which it was read.

    Attributes:
        scenario: the messages and the truth.
        feed: the feed, at its last cut.
        rows: for the TSO of each cut the rows of all mirrors, read before the next sync.
        modes: how the mirrors were made.
    """

    scenario: Scenario
    feed: Feed
    rows: dict[int, Rows] = field(default_factory=dict)
    modes: set[str] = field(default_factory=set)

    def sync(self, until: int | None = None) -> None:
        """Sync up to a watermark, or to the end, and read everything."""
        applying = self.feed.sync(until=until)
        assert applying.cut == self.feed.cut
        self.rows[self.feed.cut.tso] = self.feed.rows()
        self.modes.update(mirror.mode for mirror in self.feed.cut.mirrors)


def synced_in_steps(feed: Feed, scenario: Scenario) -> Steps:
    """Sync at each watermark with a known state, and then to the end."""
    steps = Steps(scenario, feed)
    # What sends no watermarks has one cut alone.
    for at in [] if scenario.variant == "canal-json-plain" else scenario.earlier:
        steps.sync(until=at)
    steps.sync()
    return steps


class GoldenLakes:
    """The lakes of this run; each is made when it is first asked for."""

    def __init__(self, spark: SparkSession, folder: Path, golden_dir: Callable[..., Path]) -> None:
        self._spark = spark
        self._folder = folder
        self._golden_dir = golden_dir
        self._in_steps: dict[Key, Steps] = {}
        self._at_once: dict[Key, Feed] = {}

    def scenario(self, variant: str, name: str) -> Scenario:
        """Return a scenario; skip where there are no golden messages."""
        return Scenario(self._golden_dir(variant, name))

    def in_steps(self, variant: str, name: str, tables: Tables = ()) -> Steps:
        """Return the lake that was synced at each watermark with a known state."""
        key = (variant, name, tuple(tables))
        if key not in self._in_steps:
            scenario = self.scenario(variant, name)
            feed = feed_of(self._spark, self._new_folder(), scenario, tables)
            self._in_steps[key] = synced_in_steps(feed, scenario)
        return self._in_steps[key]

    def at_once(self, variant: str, name: str, tables: Tables = ()) -> Feed:
        """Return the lake that was synced once."""
        key = (variant, name, tuple(tables))
        if key not in self._at_once:
            feed = feed_of(self._spark, self._new_folder(), self.scenario(variant, name), tables)
            feed.sync()
            self._at_once[key] = feed
        return self._at_once[key]

    def _new_folder(self) -> Path:
        return self._folder / str(len(self._in_steps) + len(self._at_once))
