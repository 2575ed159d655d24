"""Reading as of any TSO: between cuts, after what came late, and where nothing is known."""

import json
import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_assets.base.errors import ConfigError, NotFoundError
from ticdc_assets.config import Retention
from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.log.cuts import read_cuts
from ticdc_assets.model.tso import from_physical_ms, physical_ms, to_datetime
from ticdc_assets.reading import as_of, mirrors
from ticdc_assets.reading.mirrors import locate_mirror, read_mirror
from ticdc_assets_tests.demo.simulator.builders import fill, plain_upstream
from ticdc_assets_tests.golden import (
    FORMATS,
    THREE_OF_THE_SHOP,
    TYPES_OF_THE_SHOP,
    Rows,
    Scenario,
    assert_same_rows,
    folded,
)
from ticdc_assets_tests.lake.feeds import Feed, rows_of_tables
from ticdc_assets_tests.lake.golden_lakes import GoldenLakes
from ticdc_assets_tests.lake.test_golden_mirrors import renumbered
from ticdc_assets_tests.repair.test_retention import (
    DAY,
    KEYED,
    keyed_beyond_base,
    truncated,
)

pytestmark = pytest.mark.spark


TABLE = ("d", "t")
MANY = 20
WITH_WATERMARKS = [variant for variant in FORMATS if variant != "canal-json-plain"]


@pytest.mark.parametrize(
    ("variant", "tables", "moments"),
    [
        ("simple-json", (), 2),
        # There is one cut, and nothing below it: all changes are folded.
        ("canal-json-updated", THREE_OF_THE_SHOP, 1),
        ("craft", TYPES_OF_THE_SHOP, 6),
        *(pytest.param(variant, (), MANY, marks=pytest.mark.slow) for variant in WITH_WATERMARKS),
    ],
    ids=lambda value: ("some" if value else "all") if isinstance(value, tuple) else None,
)
def test_any_tso_is_what_a_fold_of_the_events_says(
    variant: str,
    tables: tuple[tuple[str, str], ...],
    moments: int,
    golden_lakes: GoldenLakes,
) -> None:
    if variant == "canal-json-updated" and tables:
        feed = golden_lakes.at_once(variant, "shop", tables)
    else:
        feed = golden_lakes.in_steps(variant, "shop", tables).feed
    scenario = golden_lakes.scenario(variant, "shop")
    events = scenario.events

    def of_these(rows: Rows) -> Rows:
        return rows_of_tables(rows, tables) if tables else rows

    newest = feed.cut.tso
    stamps = sorted({event.commit_ts for _, event in events if hasattr(event, "commit_ts")})
    for at in random.Random(5).sample([ts for ts in stamps if ts <= newest], moments):
        assert feed.rows_as_of(at) == of_these(folded(events, at, scenario.timezone)), at
    for at in scenario.earlier if moments == MANY else []:
        assert_same_rows(feed.rows_as_of(at), scenario.state(at), variant=variant)


def test_where_nothing_is_known_the_error_says_from_when_on(
    spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    scenario = Scenario(golden_dir("simple-json", "types"))
    feed = Feed.of(spark, tmp_path, capture=scenario.capture, timezone=scenario.timezone)
    with pytest.raises(NotFoundError, match="no published cut yet"):
        feed.rows_as_of(scenario.end)
    first, last = scenario.earlier
    feed.sync(until=last)
    oldest = min(event.commit_ts for _, event in scenario.events if hasattr(event, "commit_ts"))
    with pytest.raises(NotFoundError, match=rf"the oldest change is at .* \(TSO {oldest}\)"):
        feed.rows_as_of(oldest - 1)
    with pytest.raises(NotFoundError, match=rf"the newest cut is at .* \(TSO {last}\)"):
        feed.rows_as_of(last + 1)

    def read(moment: object) -> int:
        return read_mirror(
            spark, "feed", "kinds", "types", as_of=moment, settings=feed.settings
        ).count()

    assert read(first) == scenario.state(first)["kinds", "types"].total()
    assert read(str(first)) == read(first)
    assert read(to_datetime(first)) == read(from_physical_ms(physical_ms(first) + 1) - 1)
    with pytest.raises(ConfigError, match="expected a TSO"):
        read("yesterday")
    with pytest.raises(NotFoundError, match="there were: "):
        read_mirror(spark, "feed", "kinds", "none", as_of=last, settings=feed.settings)


@pytest.fixture
def growing(spark: SparkSession, tmp_path: Path) -> tuple[Feed, Callable[[], int]]:
    """A feed with one cut, and what writes two rows more to its source and returns their TSO."""
    upstream = plain_upstream(TABLE)
    changefeed = StandInChangefeed(upstream, "d", partitions=1)
    feed = Feed.of(spark, tmp_path)
    seeds = count()

    def grow() -> int:
        fill(upstream, TABLE, rows=2, seed=next(seeds))
        records = list(changefeed.tick())
        feed.write(records)
        messages = [json.loads(item.value) for item in records if item.value is not None]
        return max(item["commitTs"] for item in messages if item["type"] == "INSERT")

    grow()
    feed.sync()
    return feed, grow


def sync_behind(feed: Feed, patch: pytest.MonkeyPatch, module: ModuleType, *readers: str) -> None:
    """Let a sync publish a cut directly behind what one of some functions reads first."""
    waiting = [feed.sync]

    def then_sync(real: Callable[..., Any]) -> Callable[..., Any]:
        def read(*arguments: Any) -> Any:
            found = real(*arguments)
            if waiting:
                waiting.pop()()
            return found

        return read

    for name in readers:
        patch.setattr(module, name, then_sync(getattr(module, name)))


def test_a_cut_that_is_published_meanwhile_is_read_whole_or_not_at_all(
    growing: tuple[Feed, Callable[[], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, grow = growing
    newest = grow()
    with monkeypatch.context() as patch:
        sync_behind(feed, patch, as_of, "read_statistics", "require_cut")
        with pytest.raises(NotFoundError, match="the newest cut is at"):
            feed.rows_as_of(newest)
    # Where a mirror is.
    grow()
    with monkeypatch.context() as patch:
        sync_behind(feed, patch, mirrors, "require_cut")
        found = locate_mirror("feed", *TABLE, settings=feed.settings)
    published = {
        (mirror.version, cut.tso)
        for cut in read_cuts(feed.paths)
        if (mirror := cut.mirror(*TABLE)) is not None
    }
    assert len(published) == 3
    assert (found.version, found.applied_ts) in published


def test_a_cut_that_retention_removes_meanwhile_is_not_needed(
    growing: tuple[Feed, Callable[[], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, _ = growing
    wanted = feed.rows_as_of(feed.cut.tso)
    monkeypatch.setattr(as_of, "read_cuts", lambda *_, **__: [])
    assert feed.rows_as_of(feed.cut.tso) == wanted


def test_what_came_late_is_in_its_place(
    spark: SparkSession, tmp_path: Path, golden_dir: Callable[..., Path]
) -> None:
    """Rows that land after their cut are read at the older moment too, not only from then on."""
    scenario = Scenario(golden_dir("canal-json", "shop"))
    feed = Feed.of(spark, tmp_path, timezone=scenario.timezone, wire_format=scenario.wire_format)
    first = scenario.earlier[0]
    events = scenario.events
    late = {
        (place.partition, place.offset)
        for place, event in events
        if hasattr(event, "after") and event.commit_ts <= first and place.offset % 7 == 0
    }
    early = [item for item in scenario.records if (item.partition, item.offset) not in late]
    rest = [item for item in scenario.records if (item.partition, item.offset) in late]
    records = renumbered([*early, *rest])
    feed.write(records[: len(early)])
    feed.sync()
    feed.write(records[len(early) :])
    before = feed.rows_as_of(first)
    feed.sync()
    assert feed.cut.late == len(rest)
    assert feed.rows_as_of(first) == folded(events, first, scenario.timezone) != before


def test_retention_beside_a_reader_takes_no_row_from_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It removes rows of the change log between the look at its state and the reading of it."""
    upstream, feed, base = keyed_beyond_base(spark, tmp_path, Retention(change_log=DAY))
    moment = as_of.AsOf(feed.lake, feed.cut.tso)
    assert truncated(feed, base).changes > 0
    assert moment.table(*KEYED).rows == len(upstream.rows(KEYED))
