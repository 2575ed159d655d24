"""What a published cut leaves for programs that do not read the table of cuts."""

import json
import logging
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ticdc_assets.demo.simulator.changefeed import StandInChangefeed
from ticdc_assets.demo.simulator.columns import column
from ticdc_assets.demo.simulator.upstream import Upstream
from ticdc_assets.log import cuts
from ticdc_assets.mirrors.standing import Outcome, standing
from ticdc_assets.spark.session import LazySession
from ticdc_assets_tests.demo.simulator.builders import fill, upstream_of
from ticdc_assets_tests.lake.feeds import Feed
from ticdc_assets_tests.lake.killing import before, killed

T = ("d", "a/b ..")


def started(folder: Path) -> tuple[Feed, Upstream, StandInChangefeed]:
    upstream = upstream_of(T, (column("id", "bigint", nullable=False),), primary_key=("id",))
    return Feed.of(LazySession(), folder), upstream, StandInChangefeed(upstream, "feed")


def test_the_file_follows_the_cuts(tmp_path: Path) -> None:
    feed, upstream, changefeed = started(tmp_path)
    for seed in range(3):
        fill(upstream, T, rows=5, seed=seed)
        feed.write(changefeed.tick())
        if seed == 2:
            with killed(before(cuts, "name_mirrors")):
                feed.sync()
            assert json.loads(feed.paths.by_name.read_text())["cut"] == feed.cut.number - 1
        feed.sync()
        listed = json.loads(feed.paths.by_name.read_text())
        assert (listed["cut"], listed["tso"]) == (feed.cut.number, feed.cut.tso)
        (found,) = listed["mirrors"]
        assert (found["database"], found["table"], found["tso"]) == (*T, feed.cut.tso)
        table = DeltaTable(str(feed.paths.by_name.parent / found["path"]), found["version"])
        assert table.to_pyarrow_table().num_rows == found["rows"] == feed.cut.mirrors[0].rows


def test_records_that_change_nothing_are_applied_once(tmp_path: Path) -> None:
    feed, upstream, changefeed = started(tmp_path)
    fill(upstream, T, rows=5)
    feed.follow(changefeed)
    cut = feed.cut
    fill(upstream, T, rows=5, seed=1)
    records = list(changefeed.tick())
    marks = [item for item in records if b'"WATERMARK"' in (item.value or b"")]
    feed.write([item for item in records if item not in marks])
    applying = feed.sync()
    assert applying.outcome is Outcome.UNCHANGED
    assert "the landed records change nothing" in applying.reason
    # Whatever process asks: it goes over no mirror.
    ended = standing(feed.lake).ended
    assert ended is not None
    assert (ended.outcome, feed.cut) == (Outcome.UNCHANGED, cut)
    assert ended.reason.endswith("nothing new was landed")
    feed.write(marks)
    assert feed.sync().outcome is Outcome.PUBLISHED
    assert feed.cut.mirrors[0].rows == len(upstream.rows(T))


def test_a_cut_is_published_though_the_file_cannot_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    feed, upstream, changefeed = started(tmp_path)
    fill(upstream, T, rows=5)
    feed.write(changefeed.tick())
    feed.paths.by_name.mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        feed.sync()
    assert feed.cut.mirrors[0].rows == len(upstream.rows(T))
    assert "by_name.json cannot be brought to cut 1" in caplog.text
    assert not list(feed.paths.base.glob(".by_name*"))
